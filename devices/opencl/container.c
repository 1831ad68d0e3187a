/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers of device code. PoCL's, as its version 3.1 writes it (format 9), all numbers little-endian:
 *
 *   "poclbin\0", u64 device, u32 format, u32 kernels, u64 flags, u32 root files, 41 bytes of a folder's name
 *   u64 bytes of the root files, and these: the intermediate code of the program
 *   for each kernel: u64 bytes of all this, u64 bytes of its files, u32 bytes of its arguments, text name, u32 arguments,
 *     u32 local variables, 3 x u64 work-group, u64 for each local variable, text attributes, u64 flags, arguments, files
 *   an argument: u32, u32, u64, u32, u32, text, text; a file: text name, text contents; a text: u32 bytes, and these
 *
 * Xilinx's, as XRT reads it, all numbers little-endian:
 *
 *   "xclbin2\0", i32, 284 bytes, u64; u64 bytes of the whole, 136 bytes, u32 sections, u32; and for each section
 *   u32 kind, 16 bytes of a name, u32, u64 offset in the file, u64 bytes
 *
 * NVIDIA's is a text in PTX with two NULs behind it.
 */
#include "devices/opencl/container.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "proto/spirv.h"

#define XCLBIN_MAGIC	    "xclbin2" /* with its NUL */
#define XCLBIN_LENGTH_OFF   304u
#define XCLBIN_NSECTIONS    448u
#define XCLBIN_SECTIONS_OFF 456u
#define XCLBIN_SECTION	    40u
#define XCLBIN_MAX_SECTIONS 1024u

#define POCL_MAGIC	 "poclbin" /* with its NUL */
#define POCL_FORMAT	 9u
#define POCL_FOLDER	 41u /* "XX/" and 37 letters, and a NUL */
#define POCL_ROOT_OFF	 0x4du
#define POCL_MAX_KERNELS 4096u
#define POCL_MAX_ARGS	 1024u
#define POCL_MAX_LOCALS	 4096u
#define POCL_MAX_NAME	 512u /* of a kernel, and of a file: PoCL's buffers for paths have 4096 */

/* ---- reading ---- */

/* What is left of something; @bad once it was read past its end. */
struct reader {
	const uint8_t *at;
	size_t left;
	bool bad;
};

static const uint8_t *take(struct reader *r, uint64_t n)
{
	const uint8_t *at = r->at;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->at += n;
	r->left -= n;
	return at;
}

static uint64_t take_number(struct reader *r, size_t n)
{
	const uint8_t *at = take(r, n);
	uint64_t number = 0;

	for (size_t i = 0; at && i < n; i++)
		number |= (uint64_t)at[i] << (8 * i);
	return number;
}

static const char *take_text(struct reader *r, uint32_t *ret_len)
{
	uint32_t len = (uint32_t)take_number(r, 4);

	*ret_len = len;
	return (const char *)take(r, len);
}

/* ---- PoCL ---- */

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_';
}

bool gantry_opencl_is_identifier(const char *text, size_t len)
{
	if (!text || len == 0 || len > POCL_MAX_NAME)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!is_word(text[i]))
			return false;
	return true;
}

/* A name that stays below the folder it is put in: "/a/b.c", no empty part and none that begins with a dot. */
static bool is_inner_path(const char *text, uint32_t len)
{
	if (!text || len < 2 || len > POCL_MAX_NAME || text[0] != '/' || text[len - 1] == '/')
		return false;
	for (uint32_t i = 0; i < len; i++) {
		if (text[i] == '/' && (text[i + 1] == '/' || text[i + 1] == '.'))
			return false;
		if (!is_word(text[i]) && text[i] != '/' && text[i] != '.' && text[i] != '-')
			return false;
	}
	return true;
}

static int bad(struct gantry_err *err, const char *what)
{
	return gantry_err_set(err, -ENOEXEC, "a PoCL binary that is cut short or altered: %s",
			      what);
}

/* Files up to the end of @r; below folder "/@kernel/" where that is not NULL. */
static int check_files(struct reader *r, const char *kernel, uint32_t kernel_len,
		       uint32_t *ret_nfiles, struct gantry_err *err)
{
	uint32_t nfiles = 0;

	while (r->left > 0) {
		uint32_t path_len, len;
		const char *path = take_text(r, &path_len);

		if (!is_inner_path(path, path_len))
			return bad(err, "the name of a file");
		if (kernel && (path_len < kernel_len + 3 || path[kernel_len + 1] != '/' ||
			       memcmp(path + 1, kernel, kernel_len) != 0))
			return bad(err, "a file that is not of its kernel");
		if (!take_text(r, &len) || len == 0)
			return bad(err, "the length of a file");
		nfiles++;
	}
	*ret_nfiles = nfiles;
	return 0;
}

static bool skip_args(struct reader *r, uint32_t nargs)
{
	uint32_t len;

	for (uint32_t i = 0; i < nargs; i++) {
		(void)take(r, 4 + 4 + 8 + 4 + 4);
		(void)take_text(r, &len);
		(void)take_text(r, &len);
		if (r->bad)
			return false;
	}
	return r->left == 0;
}

static int check_kernel(struct reader *whole, struct gantry_err *err)
{
	struct reader r = *whole;
	uint64_t all_bytes = take_number(&r, 8);
	uint64_t file_bytes = take_number(&r, 8);
	uint64_t arg_bytes = take_number(&r, 4);
	struct reader part;
	uint32_t name_len, len, nargs, nlocals, nfiles = 0;
	const char *name;
	int e;

	/* From here no further than the kernel says of itself. */
	if (r.bad || all_bytes > whole->left || all_bytes < 20)
		return bad(err, "the length of a kernel");
	r.left = all_bytes - 20;
	if (file_bytes > r.left || arg_bytes > r.left - file_bytes)
		return bad(err, "the length of a kernel's parts");
	name = take_text(&r, &name_len);
	nargs = (uint32_t)take_number(&r, 4);
	nlocals = (uint32_t)take_number(&r, 4);
	if (!gantry_opencl_is_identifier(name, name_len) || nargs > POCL_MAX_ARGS ||
	    nlocals > POCL_MAX_LOCALS)
		return bad(err, "the head of a kernel");
	(void)take(&r, 3 * 8 + 8ull * nlocals);
	(void)take_text(&r, &len);
	(void)take(&r, 8);
	if (r.bad || r.left != arg_bytes + file_bytes)
		return bad(err, "the head of a kernel");
	part = (struct reader){ .at = take(&r, arg_bytes), .left = arg_bytes };
	if (!skip_args(&part, nargs))
		return bad(err, "a kernel's arguments");
	e = check_files(&r, name, name_len, &nfiles, err);
	if (e < 0)
		return e;
	if (nfiles == 0)
		return bad(err, "a kernel without code");
	(void)take(whole, all_bytes);
	return 0;
}

/* PoCL makes a folder of this name below its own: "XX/" and letters. */
bool gantry_opencl_pocl_is_folder(const char *name, size_t cap)
{
	if (!name || cap < POCL_FOLDER || name[POCL_FOLDER - 1] != '\0')
		return false;
	for (unsigned int i = 0; i < POCL_FOLDER - 1; i++)
		if (i == 2 ? name[i] != '/' : name[i] < 'A' || name[i] > 'Z')
			return false;
	return true;
}

const char *gantry_opencl_pocl_folder(const void *bytes)
{
	return (const char *)bytes + POCL_ROOT_OFF - POCL_FOLDER;
}

static int check_pocl(struct reader r, struct gantry_err *err)
{
	uint64_t format, nkernels, nroot, root_bytes;
	struct reader root;
	uint32_t nfiles = 0;
	int e;

	(void)take(&r, sizeof(POCL_MAGIC) + 8);
	format = take_number(&r, 4);
	if (!r.bad && format != POCL_FORMAT)
		return gantry_err_set(
			err, -ENOEXEC,
			"a PoCL binary of format %u; this build knows %u, of PoCL 3.1",
			(unsigned int)format, POCL_FORMAT);
	nkernels = take_number(&r, 4);
	(void)take(&r, 8);
	nroot = take_number(&r, 4);
	if (!gantry_opencl_pocl_is_folder((const char *)take(&r, POCL_FOLDER), POCL_FOLDER) ||
	    nkernels == 0 || nkernels > POCL_MAX_KERNELS)
		return bad(err, "its head");
	root_bytes = take_number(&r, 8);
	root = (struct reader){ .at = take(&r, root_bytes), .left = root_bytes };
	if (r.bad)
		return bad(err, "the program's part");
	e = check_files(&root, NULL, 0, &nfiles, err);
	if (e < 0)
		return e;
	/* Others than one, and PoCL ends the process. */
	if (nroot != 1 || nfiles != 1)
		return bad(err, "the number of the program's files");
	for (uint64_t i = 0; i < nkernels && e == 0; i++)
		e = check_kernel(&r, err);
	if (e == 0 && r.left != 0)
		e = bad(err, "there is something behind it");
	return e;
}

static void put_number(uint8_t *at, uint64_t number, size_t n)
{
	for (size_t i = 0; i < n; i++)
		at[i] = (uint8_t)(number >> (8 * i));
}

size_t gantry_opencl_pocl_strip(const void *bytes, size_t nbytes, void *dst)
{
	/* PoCL wants one file there; this one is nothing to it. */
	static const char name[] = "/none", contents[] = "-";
	const size_t name_len = sizeof(name) - 1, len = sizeof(contents) - 1;
	const size_t root_bytes = 4 + name_len + 4 + len;
	struct reader r = { .at = bytes, .left = nbytes };
	uint8_t *out = dst, *at = out + POCL_ROOT_OFF + 8;
	uint64_t old_bytes;

	(void)take(&r, POCL_ROOT_OFF);
	old_bytes = take_number(&r, 8);
	(void)take(&r, old_bytes);
	if (r.bad || old_bytes < root_bytes) {
		memmove(dst, bytes, nbytes);
		return nbytes;
	}
	memmove(out, bytes, POCL_ROOT_OFF);
	/* The rest moves down, never up. */
	memmove(at + root_bytes, r.at, r.left);
	put_number(out + POCL_ROOT_OFF, root_bytes, 8);
	put_number(at, name_len, 4);
	memcpy(at + 4, name, name_len);
	put_number(at + 4 + name_len, len, 4);
	memcpy(at + 4 + name_len + 4, contents, len);
	return POCL_ROOT_OFF + 8 + root_bytes + r.left;
}

/* ---- ELF ---- */

static bool table_inside(uint64_t off, uint64_t entry_bytes, uint64_t n, uint64_t nbytes)
{
	uint64_t bytes;

	return gantry_mul_u64(entry_bytes, n, &bytes) == 0 &&
	       gantry_range_inside(off, bytes, nbytes);
}

static int check_elf(const uint8_t *bytes, size_t nbytes, struct gantry_err *err)
{
	Elf64_Ehdr head;
	Elf64_Shdr section;
	Elf64_Phdr part;

	if (nbytes < sizeof(head))
		return gantry_err_set(err, -ENOEXEC, "an ELF binary that is cut short: its head");
	memcpy(&head, bytes, sizeof(head));
	if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB)
		return gantry_err_set(err, -ENOEXEC, "an ELF binary of 32 bits, or big-endian");
	if ((head.e_shnum && head.e_shentsize != sizeof(section)) ||
	    (head.e_phnum && head.e_phentsize != sizeof(part)) ||
	    !table_inside(head.e_shoff, sizeof(section), head.e_shnum, nbytes) ||
	    !table_inside(head.e_phoff, sizeof(part), head.e_phnum, nbytes) ||
	    (head.e_shnum && head.e_shstrndx >= head.e_shnum))
		return gantry_err_set(err, -ENOEXEC,
				      "an ELF binary that is cut short or altered: its tables");
	for (unsigned int i = 0; i < head.e_shnum; i++) {
		memcpy(&section, bytes + head.e_shoff + i * sizeof(section), sizeof(section));
		if (section.sh_type != SHT_NOBITS &&
		    !gantry_range_inside(section.sh_offset, section.sh_size, nbytes))
			return gantry_err_set(
				err, -ENOEXEC,
				"an ELF binary that is cut short or altered: section %u", i);
	}
	for (unsigned int i = 0; i < head.e_phnum; i++) {
		memcpy(&part, bytes + head.e_phoff + i * sizeof(part), sizeof(part));
		if (!gantry_range_inside(part.p_offset, part.p_filesz, nbytes))
			return gantry_err_set(
				err, -ENOEXEC,
				"an ELF binary that is cut short or altered: segment %u", i);
	}
	if (head.e_shnum == 0 && head.e_phnum == 0)
		return gantry_err_set(err, -ENOEXEC, "an ELF binary with nothing in it");
	return 0;
}

/* ---- xclbin ---- */

static int bad_xclbin(struct gantry_err *err, const char *what)
{
	return gantry_err_set(err, -ENOEXEC, "an xclbin that is cut short or altered: %s", what);
}

static int check_xclbin(const uint8_t *bytes, size_t nbytes, struct gantry_err *err)
{
	struct reader head = { .at = bytes, .left = nbytes };
	struct reader table;
	uint64_t whole, n;

	(void)take(&head, XCLBIN_LENGTH_OFF);
	whole = take_number(&head, 8);
	(void)take(&head, XCLBIN_NSECTIONS - XCLBIN_LENGTH_OFF - 8);
	n = take_number(&head, 4);
	(void)take(&head, 4);
	if (head.bad || whole != nbytes)
		return bad_xclbin(err, "its head");
	if (n == 0 || n > XCLBIN_MAX_SECTIONS ||
	    !table_inside(XCLBIN_SECTIONS_OFF, XCLBIN_SECTION, n, nbytes))
		return bad_xclbin(err, "its table of sections");
	table = (struct reader){ .at = bytes + XCLBIN_SECTIONS_OFF, .left = n * XCLBIN_SECTION };
	for (uint64_t i = 0; i < n; i++) {
		uint64_t off, len;

		(void)take(&table, XCLBIN_SECTION - 16);
		off = take_number(&table, 8);
		len = take_number(&table, 8);
		if (!gantry_range_inside(off, len, nbytes))
			return bad_xclbin(err, "a section");
	}
	return 0;
}

/* ---- PTX ---- */

/* Behind blanks and comments; @end where there is nothing else. */
static const char *skip_comments(const char *at, const char *end)
{
	const char *close;

	while (at < end) {
		if (*at == ' ' || (*at >= '\t' && *at <= '\r')) {
			at++;
		} else if (end - at >= 2 && at[0] == '/' && at[1] == '/') {
			close = memchr(at, '\n', (size_t)(end - at));
			at = close ? close : end;
		} else if (end - at >= 4 && at[0] == '/' && at[1] == '*') {
			close = memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
			at = close ? close + 2 : end;
		} else {
			break;
		}
	}
	return at;
}

/* Behind word @word, which stands at the first thing there that is no comment; NULL: something else does. */
static const char *skip_word(const char *at, const char *end, const char *word)
{
	size_t len = strlen(word);

	at = skip_comments(at, end);
	return (size_t)(end - at) > len && memcmp(at, word, len) == 0 &&
			       (at[len] == ' ' || at[len] == '\t')
		       ? at + len
		       : NULL;
}

/* PTX begins with its version, which no text in OpenCL C does. */
static bool is_ptx(const uint8_t *bytes, size_t nbytes)
{
	const char *text = (const char *)bytes;

	return nbytes > 0 && bytes[0] != '\0' && skip_word(text, text + nbytes, ".version");
}

static int bad_ptx(struct gantry_err *err, const char *what)
{
	return gantry_err_set(err, -ENOEXEC, "PTX that is cut short or altered: %s", what);
}

/* A loader may take it for a string, whatever length it is told. */
static int check_ptx(const uint8_t *bytes, size_t nbytes, struct gantry_err *err)
{
	const char *text = (const char *)bytes, *end = memchr(text, '\0', nbytes), *at;

	if (!end)
		return bad_ptx(err, "no NUL at its end");
	for (const char *nul = end; nul < text + nbytes; nul++)
		if (*nul != '\0')
			return bad_ptx(err, "a NUL within it");
	at = skip_word(text, end, ".version");
	at = at ? memchr(at, '\n', (size_t)(end - at)) : NULL;
	if (!at || !skip_word(at, end, ".target"))
		return bad_ptx(err, "its head");
	return 0;
}

/* ---- all ---- */

/* Text has no NUL, but for one at its end. */
static bool is_text(const uint8_t *bytes, size_t nbytes)
{
	const uint8_t *nul = memchr(bytes, 0, nbytes);

	return nbytes > 0 && (!nul || (nul == bytes + nbytes - 1 && nbytes > 1));
}

static int check_il(const void *bytes, size_t nbytes, struct gantry_err *err)
{
	const char *wrong;
	size_t off = 0;

	(void)gantry_spirv_find(bytes, nbytes, &off); /* it was found before */
	wrong = gantry_spirv_check((const char *)bytes + off, nbytes - off);
	return wrong ? gantry_err_set(err, -ENOEXEC, "%s", wrong) : 0;
}

enum gantry_opencl_sort gantry_opencl_sort(const void *bytes, size_t nbytes)
{
	if (nbytes >= sizeof(POCL_MAGIC) && memcmp(bytes, POCL_MAGIC, sizeof(POCL_MAGIC)) == 0)
		return GANTRY_OPENCL_POCL;
	if (nbytes >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0)
		return GANTRY_OPENCL_ELF;
	if (nbytes >= sizeof(XCLBIN_MAGIC) &&
	    memcmp(bytes, XCLBIN_MAGIC, sizeof(XCLBIN_MAGIC)) == 0)
		return GANTRY_OPENCL_XCLBIN;
	if (gantry_spirv_find(bytes, nbytes, &(size_t){ 0 }))
		return GANTRY_OPENCL_IL;
	if (is_ptx(bytes, nbytes))
		return GANTRY_OPENCL_PTX;
	return is_text(bytes, nbytes) ? GANTRY_OPENCL_SOURCE : GANTRY_OPENCL_UNKNOWN;
}

int gantry_opencl_container_check(const void *bytes, size_t nbytes,
				  enum gantry_opencl_sort *ret_sort, struct gantry_err *err)
{
	enum gantry_opencl_sort sort = gantry_opencl_sort(bytes, nbytes);
	int r = 0;

	if (sort == GANTRY_OPENCL_POCL)
		r = check_pocl((struct reader){ .at = bytes, .left = nbytes }, err);
	else if (sort == GANTRY_OPENCL_ELF)
		r = check_elf(bytes, nbytes, err);
	else if (sort == GANTRY_OPENCL_XCLBIN)
		r = check_xclbin(bytes, nbytes, err);
	else if (sort == GANTRY_OPENCL_IL)
		r = check_il(bytes, nbytes, err);
	else if (sort == GANTRY_OPENCL_PTX)
		r = check_ptx(bytes, nbytes, err);
	else if (sort == GANTRY_OPENCL_UNKNOWN)
		r = gantry_err_set(err, -ENOEXEC,
				   "neither OpenCL C nor a binary of a sort that is known here");
	if (r == 0 && ret_sort)
		*ret_sort = sort;
	return r;
}
