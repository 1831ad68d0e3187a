/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/board/bitstream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/bytes.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "devices/board/driver.h"

#define MAX_WORDS	 13u
#define MAX_SLOWER	 1000u /* per cent */
#define MAX_CONFIGURE_NS 600000000000u
#define READ_BYTES	 65536u

struct parser {
	struct gantry_bitstream *bitstream;
	bool has_memory;
	uint64_t windows[GANTRY_BITSTREAM_MAX_WINDOWS / 64]; /* that kernels have, bit by bit */
	char **words;
	unsigned int nwords;
	struct gantry_err *err;
};

static int parse_bitstream(struct parser *p)
{
	struct gantry_bitstream *b = p->bitstream;
	uint64_t version;

	if (p->nwords != 3)
		return gantry_err_set(p->err, -EINVAL, "write \"bitstream NAME VERSION\"");
	if (b->name[0])
		return gantry_err_set(p->err, -EINVAL, "the bitstream is named already");
	if (!gantry_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no name of a bitstream",
				      p->words[1]);
	if (gantry_u64_parse(p->words[2], 1, UINT32_MAX, &version, p->err) < 0)
		return gantry_err_wrap(p->err, -EINVAL, "version");
	b->version = (uint32_t)version;
	(void)gantry_str_copy(b->name, sizeof(b->name), p->words[1]); /* valid, so it fits */
	return 0;
}

static int parse_board(struct parser *p)
{
	struct gantry_bitstream *b = p->bitstream;

	if (p->nwords != 2)
		return gantry_err_set(p->err, -EINVAL, "write \"board MODEL\"");
	if (b->board[0])
		return gantry_err_set(p->err, -EINVAL, "the board is named already");
	if (!gantry_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no model of a board",
				      p->words[1]);
	(void)gantry_str_copy(b->board, sizeof(b->board), p->words[1]);
	return 0;
}

static int parse_tenant(struct parser *p)
{
	struct gantry_bitstream *b = p->bitstream;

	if (p->nwords != 2)
		return gantry_err_set(p->err, -EINVAL, "write \"tenant NAME\"");
	if (b->tenant[0])
		return gantry_err_set(p->err, -EINVAL, "whose it is is said already");
	if (!gantry_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.40s\" is no name of a tenant",
				      p->words[1]);
	(void)gantry_str_copy(b->tenant, sizeof(b->tenant), p->words[1]);
	return 0;
}

static int place_of(struct parser *p, uint32_t *ret_place)
{
	const struct gantry_bitstream *b = p->bitstream;
	uint64_t region = GANTRY_BOARD_WHOLE;

	if (strcmp(p->words[1], "whole") != 0 &&
	    gantry_u64_parse(p->words[1], 0, GANTRY_BOARD_MAX_REGIONS - 1, &region, NULL) < 0)
		return gantry_err_set(p->err, -EINVAL,
				      "\"%.40s\" is neither whole nor a region from 0 to %u",
				      p->words[1], GANTRY_BOARD_MAX_REGIONS - 1);
	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++) {
		if (!gantry_bitstream_fits(b, place))
			continue;
		if (place == region)
			return gantry_err_set(p->err, -EINVAL, "the file for %s is named already",
					      p->words[1]);
		if ((place == GANTRY_BOARD_WHOLE) != (region == GANTRY_BOARD_WHOLE))
			return gantry_err_set(p->err, -EINVAL,
					      "an image is for the whole board or for regions");
	}
	*ret_place = (uint32_t)region;
	return 0;
}

static int parse_load(struct parser *p)
{
	struct gantry_bitstream_file file = { 0 };
	uint32_t place = 0;
	int r;

	if (p->nwords != 4)
		return gantry_err_set(p->err, -EINVAL, "write \"load whole|REGION FILE SHA256\"");
	r = place_of(p, &place);
	if (r < 0)
		return r;
	if (!gantry_file_name_valid(p->words[2]))
		return gantry_err_set(p->err, -EINVAL,
				      "\"%.40s\" is no name of a file beside the manifest",
				      p->words[2]);
	if (strlen(p->words[3]) != 2 * sizeof(file.sha256) ||
	    gantry_hex_decode(p->words[3], file.sha256, sizeof(file.sha256)) < 0)
		return gantry_err_set(p->err, -EINVAL,
				      "\"%.70s\" is no SHA-256 of 64 digits: sha256sum tells it",
				      p->words[3]);
	(void)gantry_str_copy(file.name, sizeof(file.name), p->words[2]);
	p->bitstream->files[place] = file;
	return 0;
}

static int parse_configure(struct parser *p)
{
	uint64_t ns;

	if (p->nwords != 2)
		return gantry_err_set(p->err, -EINVAL, "write \"configure TIME\"");
	if (p->bitstream->configure_ns)
		return gantry_err_set(p->err, -EINVAL, "how long loading takes is said already");
	if (gantry_duration_parse(p->words[1], &ns, p->err) < 0)
		return gantry_err_wrap(p->err, -EINVAL, "configure");
	if (ns == 0 || ns > MAX_CONFIGURE_NS)
		return gantry_err_set(p->err, -EINVAL,
				      "configure: write more than 0 and at most 10m");
	p->bitstream->configure_ns = ns;
	return 0;
}

static int parse_memory(struct parser *p)
{
	bool kept = p->nwords == 2 && strcmp(p->words[1], "kept") == 0;

	if (!kept && (p->nwords != 2 || strcmp(p->words[1], "lost") != 0))
		return gantry_err_set(p->err, -EINVAL, "write \"memory kept\" or \"memory lost\"");
	if (p->has_memory)
		return gantry_err_set(p->err, -EINVAL, "what happens to memory is said already");
	p->has_memory = true;
	p->bitstream->keeps_memory = kept;
	return 0;
}

/* The word after word @i as a number. */
static int parse_count(struct parser *p, unsigned int i, uint64_t min, uint64_t max,
		       uint32_t *ret_count)
{
	uint64_t value;

	if (i + 1 == p->nwords)
		return gantry_err_set(p->err, -EINVAL, "a number is missing after \"%s\"",
				      p->words[i]);
	if (gantry_u64_parse(p->words[i + 1], min, max, &value, p->err) < 0)
		return gantry_err_wrap(p->err, -EINVAL, "%s", p->words[i]);
	*ret_count = (uint32_t)value;
	return 0;
}

static int parse_slower(struct parser *p, unsigned int i, uint32_t *ret_slower)
{
	char *word = i + 1 < p->nwords ? p->words[i + 1] : NULL;
	size_t len = word ? strlen(word) : 0;

	if (len < 2 || word[len - 1] != '%')
		return gantry_err_set(p->err, -EINVAL, "write \"slower 17%%\"");
	word[len - 1] = '\0';
	return parse_count(p, i, 0, MAX_SLOWER, ret_slower);
}

static int parse_run(struct parser *p, unsigned int i, uint64_t *ret_ns)
{
	if (i + 1 == p->nwords)
		return gantry_err_set(p->err, -EINVAL, "a time is missing after \"run\"");
	if (gantry_duration_parse(p->words[i + 1], ret_ns, p->err) < 0)
		return gantry_err_wrap(p->err, -EINVAL, "run");
	return 0;
}

/* "ndrange", and how many work-items a launch may have at most. Returns how many words that were. */
static int parse_ndrange(struct parser *p, unsigned int i, struct gantry_bitstream_kernel *kernel)
{
	const char *word = i + 1 < p->nwords ? p->words[i + 1] : "";

	kernel->ndrange = true;
	kernel->max_items = GANTRY_BITSTREAM_ITEMS;
	if (word[0] < '0' || word[0] > '9')
		return 1;
	if (gantry_u64_parse(word, 1, UINT64_MAX, &kernel->max_items, p->err) < 0)
		return gantry_err_wrap(p->err, -EINVAL, "ndrange");
	return 2;
}

/* The words after the signature. */
static int parse_words(struct parser *p, struct gantry_bitstream_kernel *kernel)
{
	unsigned int i = 3;

	kernel->window = UINT32_MAX;
	while (i < p->nwords) {
		unsigned int used = 2;
		int r;

		if (strcmp(p->words[i], "window") == 0)
			r = parse_count(p, i, 0, GANTRY_BITSTREAM_MAX_WINDOWS - 1, &kernel->window);
		else if (strcmp(p->words[i], "units") == 0)
			r = parse_count(p, i, 1, GANTRY_BITSTREAM_MAX_UNITS, &kernel->units);
		else if (strcmp(p->words[i], "slower") == 0)
			r = parse_slower(p, i, &kernel->slower);
		else if (strcmp(p->words[i], "run") == 0)
			r = parse_run(p, i, &kernel->run_ns);
		else if (strcmp(p->words[i], "pure") == 0)
			r = 0, used = 1, kernel->pure = true;
		else if (strcmp(p->words[i], "ndrange") == 0)
			r = parse_ndrange(p, i, kernel), used = r < 0 ? 0 : (unsigned int)r;
		else
			r = gantry_err_set(
				p->err, -EINVAL,
				"\"%.40s\" is not window, units, slower, run, ndrange or pure",
				p->words[i]);
		if (r < 0)
			return r;
		i += used;
	}
	if (kernel->window == UINT32_MAX)
		return gantry_err_set(p->err, -EINVAL, "kernel %s has no window", kernel->name);
	return 0;
}

static int take_windows(struct parser *p, const struct gantry_bitstream_kernel *kernel)
{
	for (uint32_t w = kernel->window; w < kernel->window + kernel->units; w++) {
		uint64_t bit = 1ull << (w % 64);

		if (w >= GANTRY_BITSTREAM_MAX_WINDOWS)
			return gantry_err_set(p->err, -EINVAL, "kernel %s: no window past %u",
					      kernel->name, GANTRY_BITSTREAM_MAX_WINDOWS - 1);
		if (p->windows[w / 64] & bit)
			return gantry_err_set(p->err, -EINVAL, "kernel %s: window %u is another's",
					      kernel->name, w);
		p->windows[w / 64] |= bit;
	}
	return 0;
}

uint32_t gantry_bitstream_registers(const struct gantry_bitstream_kernel *kernel)
{
	const struct gantry_signature *sig = &kernel->sig;
	uint32_t n = sig->nargs + (kernel->ndrange ? GANTRY_BOARD_SHAPE_REGISTERS : 0);

	for (uint32_t i = 0; i < sig->nargs; i++)
		n += sig->args[i].mode != 0;
	return n;
}

static int parse_kernel(struct parser *p)
{
	struct gantry_bitstream *b = p->bitstream;
	struct gantry_bitstream_kernel kernel = { .units = 1 };
	int r;

	if (p->nwords < 3)
		return gantry_err_set(p->err, -EINVAL,
				      "write \"kernel NAME SIGNATURE window N [WORD ...]\"");
	if (!gantry_kernel_name_valid(p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "\"%.70s\" is no kernel name", p->words[1]);
	if (gantry_bitstream_find(b, p->words[1]))
		return gantry_err_set(p->err, -EINVAL, "kernel %s stands there twice", p->words[1]);
	if (b->nkernels == GANTRY_BITSTREAM_MAX_KERNELS)
		return gantry_err_set(p->err, -EINVAL, "more than %u kernels",
				      GANTRY_BITSTREAM_MAX_KERNELS);
	(void)gantry_str_copy(kernel.name, sizeof(kernel.name), p->words[1]);
	r = gantry_signature_parse(p->words[2], &kernel.sig, p->err);
	if (r == 0 && gantry_signature_is_opencl(&kernel.sig))
		r = gantry_err_set(p->err, -EINVAL,
				   "bN, local and range are for kernels of sessions' images");
	if (r < 0)
		return gantry_err_wrap(p->err, r, "kernel %s", kernel.name);
	r = parse_words(p, &kernel);
	if (r == 0 && gantry_bitstream_registers(&kernel) > GANTRY_BOARD_MAX_ARGS)
		r = gantry_err_set(
			p->err, -EINVAL,
			"kernel %s: more than %u arguments (a buffer counts twice, a grid six times)",
			kernel.name, GANTRY_BOARD_MAX_ARGS);
	if (r == 0)
		r = take_windows(p, &kernel);
	if (r < 0)
		return r;
	b->nunits += kernel.units;
	b->kernels[b->nkernels++] = kernel;
	return 0;
}

static int parse_statement(void *arg, char **words, unsigned int nwords, struct gantry_err *err)
{
	static const struct {
		const char *word;
		int (*parse)(struct parser *p);
	} statements[] = {
		{ "bitstream", parse_bitstream }, { "board", parse_board },
		{ "load", parse_load },		  { "configure", parse_configure },
		{ "memory", parse_memory },	  { "kernel", parse_kernel },
		{ "tenant", parse_tenant },
	};
	struct parser *p = arg;

	p->words = words;
	p->nwords = nwords;
	p->err = err;
	if (!p->bitstream->name[0] && strcmp(words[0], "bitstream") != 0)
		return gantry_err_set(err, -EINVAL, "the first statement must be \"bitstream\"");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(statements); i++)
		if (strcmp(words[0], statements[i].word) == 0)
			return statements[i].parse(p);
	return gantry_err_set(
		err, -EINVAL,
		"\"%.40s\" is not bitstream, board, load, configure, memory, tenant or kernel",
		words[0]);
}

static int check_whole(const struct parser *p, struct gantry_err *err)
{
	const struct gantry_bitstream *b = p->bitstream;
	bool fits = false;

	for (uint32_t place = 0; place < GANTRY_BOARD_NPLACES; place++)
		fits = fits || gantry_bitstream_fits(b, place);
	if (!b->name[0])
		return gantry_err_set(err, -EINVAL, "the manifest names no bitstream");
	if (!b->board[0])
		return gantry_err_set(err, -EINVAL, "bitstream %s names no board", b->name);
	if (!fits)
		return gantry_err_set(err, -EINVAL, "bitstream %s has no file to load", b->name);
	if (!b->configure_ns)
		return gantry_err_set(err, -EINVAL,
				      "bitstream %s does not say how long loading takes", b->name);
	if (b->nkernels == 0)
		return gantry_err_set(err, -EINVAL, "bitstream %s has no kernel", b->name);
	return 0;
}

int gantry_bitstream_parse(const char *text, size_t len, struct gantry_bitstream **ret_bitstream,
			   struct gantry_err *err)
{
	_cleanup_free_ struct gantry_bitstream *bitstream = NULL;
	struct parser p = { 0 };
	int r;

	if (len > GANTRY_BITSTREAM_MAX_BYTES)
		return gantry_err_set(err, -EINVAL, "the manifest has more than %u bytes",
				      GANTRY_BITSTREAM_MAX_BYTES);
	bitstream = calloc(1, sizeof(*bitstream));
	if (!bitstream)
		return gantry_err_set(err, -ENOMEM, "no memory for the manifest");
	p.bitstream = bitstream;
	r = gantry_statements_parse(text, len, MAX_WORDS, parse_statement, &p, err);
	if (r == 0)
		r = check_whole(&p, err);
	if (r < 0)
		return r;
	*ret_bitstream = GANTRY_TAKE_PTR(bitstream);
	return 0;
}

int gantry_bitstream_read(const char *path, struct gantry_bitstream **ret_bitstream,
			  struct gantry_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	int r = gantry_file_read(path, GANTRY_BITSTREAM_MAX_BYTES, &text, &len);

	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", path);
	r = gantry_bitstream_parse(text, len, ret_bitstream, err);
	return r < 0 ? gantry_err_wrap(err, r, "%s", path) : 0;
}

char *gantry_bitstream_module(const struct gantry_bitstream *bitstream, const char *file)
{
	char signature[GANTRY_SIGNATURE_TEXT_MAX];
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return NULL;
	fprintf(out, "module %s %u\nimage fpga %s\n", bitstream->name, bitstream->version, file);
	if (bitstream->tenant[0])
		fprintf(out, "tenant %s\n", bitstream->tenant);
	for (uint32_t i = 0; i < bitstream->nkernels; i++) {
		const struct gantry_bitstream_kernel *kernel = &bitstream->kernels[i];

		if (gantry_signature_format(&kernel->sig, signature, sizeof(signature)) < 0)
			continue; /* it was parsed from a shorter one */
		fprintf(out, "kernel %s %s%s\n", kernel->name, signature,
			kernel->pure ? " pure" : "");
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

const struct gantry_bitstream_kernel *gantry_bitstream_find(
	const struct gantry_bitstream *bitstream, const char *kernel)
{
	for (uint32_t i = 0; i < bitstream->nkernels; i++)
		if (strcmp(bitstream->kernels[i].name, kernel) == 0)
			return &bitstream->kernels[i];
	return NULL;
}

/* @path as it is now, for reading. */
static int open_regular(const char *path, uint64_t *ret_bytes, int *ret_fd, struct gantry_err *err)
{
	/* NONBLOCK: opening a FIFO of that name must not hang. */
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ELOOP)
		return gantry_err_set(err, -EPERM, "%s is a link", path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return gantry_err_set(err, -EPERM, "%s is no regular file", path);
	if (st.st_size > (off_t)GANTRY_BITSTREAM_MAX_FILE_BYTES)
		return gantry_err_set(err, -EFBIG, "%s has more than %u bytes", path,
				      GANTRY_BITSTREAM_MAX_FILE_BYTES);
	*ret_bytes = (uint64_t)st.st_size;
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

/* Exactly @left bytes from one to the other, and their hash. */
static int copy_and_hash(int from, int to, uint64_t left, uint8_t ret_hash[GANTRY_SHA256_BYTES])
{
	_cleanup_free_ uint8_t *bytes = malloc(READ_BYTES);
	struct gantry_sha256 state;

	if (!bytes)
		return -ENOMEM;
	gantry_sha256_init(&state);
	while (left > 0) {
		size_t n = (size_t)gantry_min_u64(left, READ_BYTES);
		int r = gantry_read_all(from, bytes, n);

		if (r == 0)
			r = gantry_write_all(to, bytes, n);
		if (r < 0)
			return r;
		gantry_sha256_add(&state, bytes, n);
		left -= n;
	}
	gantry_sha256_end(&state, ret_hash);
	return 0;
}

int gantry_bitstream_open_file(const struct gantry_bitstream *bitstream, const char *directory,
			       uint32_t place, int *ret_fd, struct gantry_err *err)
{
	const struct gantry_bitstream_file *file = &bitstream->files[place];
	_cleanup_close_ int from = -EBADF;
	_cleanup_close_ int copy = -EBADF;
	uint8_t hash[GANTRY_SHA256_BYTES];
	char path[PATH_MAX];
	uint64_t bytes = 0;
	int r;

	if (gantry_str_format(path, sizeof(path), "%s/%s", directory, file->name) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "%.80s/%s: the path is too long",
				      directory, file->name);
	r = open_regular(path, &bytes, &from, err);
	if (r < 0)
		return r;
	copy = memfd_create(bitstream->name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0)
		return gantry_err_set_errno(err, -errno, "memory for %s", path);
	r = copy_and_hash(from, copy, bytes, hash);
	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", path);
	if (memcmp(hash, file->sha256, sizeof(hash)) != 0)
		return gantry_err_set(err, -EBADMSG,
				      "%s is not the file that the manifest of %s was written for",
				      path, bitstream->name);
	r = gantry_memfd_freeze(copy);
	if (r < 0)
		return gantry_err_set_errno(err, r, "sealing the copy of %s", path);
	*ret_fd = GANTRY_TAKE_FD(copy);
	return 0;
}
