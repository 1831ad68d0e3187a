/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/null/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#define IMAGE_MARK  "null-image 1\n"
#define SOURCE_MARK "null-source 1\n"
#define LINE_MAX_   256u
#define GROW_BYTES  (128ull << 20)

/* Copies the line at *@at, without its end, and moves on. false: there is no whole line that fits. */
static bool next_line(const char **at, const char *end, char line[LINE_MAX_])
{
	const char *stop = memchr(*at, '\n', (size_t)(end - *at));

	if (!stop || stop - *at >= (ptrdiff_t)LINE_MAX_)
		return false;
	memcpy(line, *at, (size_t)(stop - *at));
	line[stop - *at] = '\0';
	*at = stop + 1;
	return true;
}

static bool begins(const void *bytes, size_t nbytes, const char *mark)
{
	return nbytes >= strlen(mark) && memcmp(bytes, mark, strlen(mark)) == 0;
}

/* ---- images ---- */

static int parse_kernel(char *line, struct null_table *table)
{
	struct null_kernel_row *k = &table->kernels[table->nkernels];
	char *save = NULL;
	char *word = strtok_r(line, " ", &save); /* "kernel" */

	if (table->nkernels == NULL_IMAGE_KERNELS)
		return -ENOEXEC;
	word = strtok_r(NULL, " ", &save);
	if (!word || gantry_str_copy(k->name, sizeof(k->name), word) < 0)
		return -ENOEXEC;
	k->nparams = 0;
	while ((word = strtok_r(NULL, " ", &save)) && k->nparams < NULL_IMAGE_PARAMS)
		k->param_bytes[k->nparams++] = (uint32_t)strtoul(word, NULL, 10);
	table->nkernels++;
	return 0;
}

int null_table_parse(const void *bytes, size_t nbytes, struct null_table *ret_table,
		     struct gantry_err *err)
{
	const char *at = bytes, *end = at + nbytes;
	char line[LINE_MAX_];

	ret_table->nkernels = 0;
	if (!begins(bytes, nbytes, IMAGE_MARK))
		return gantry_err_set(err, -ENOEXEC, "this is no image for a null device");
	at += strlen(IMAGE_MARK);
	while (next_line(&at, end, line)) {
		if (strcmp(line, "end") == 0)
			return 0;
		if (!gantry_str_starts(line, "kernel ") || parse_kernel(line, ret_table) < 0)
			return gantry_err_set(err, -ENOEXEC, "no line of an image: %.60s", line);
	}
	return gantry_err_set(err, -ENOEXEC, "the image is cut short");
}

int null_table_check(const struct null_table *table, const char *symbol,
		     const struct gantry_signature *sig, struct gantry_err *err)
{
	const struct null_kernel_row *k = NULL;

	for (uint32_t i = 0; i < table->nkernels && !k; i++)
		if (strcmp(table->kernels[i].name, symbol) == 0)
			k = &table->kernels[i];
	if (!k)
		return gantry_err_set(err, -ENOENT, "the image has no kernel %s", symbol);
	for (uint32_t i = 0; i < k->nparams && i < sig->nargs; i++) {
		const struct gantry_sig_arg *arg = &sig->args[i];
		uint32_t bytes = arg->mode ? 8 : gantry_arg_type_bytes(arg->type);

		if (bytes != k->param_bytes[i])
			return gantry_err_set(err, -EINVAL,
					      "parameter %u has %u bytes, the signature says %u",
					      i + 1, k->param_bytes[i], bytes);
	}
	if (k->nparams != sig->nargs)
		return gantry_err_set(err, -EINVAL, "%u parameters, the signature has %u",
				      k->nparams, sig->nargs);
	return 0;
}

/* ---- compiling ---- */

bool null_image_is_text(const void *bytes, size_t nbytes)
{
	return begins(bytes, nbytes, SOURCE_MARK);
}

int null_compiler_open(const struct gantry_device_conf *conf, struct gantry_err *err)
{
	(void)conf;
	(void)err; /* cannot fail */
	return 0;
}

struct output {
	char *bytes;
	size_t len;
	char *log;
	size_t log_bytes;
};

static void say(struct output *out, const char *text)
{
	size_t len = strlen(out->log);

	(void)gantry_str_format(out->log + len, out->log_bytes - len, "%s\n",
				text); /* may be cut */
}

static _Noreturn void eat(void)
{
	for (;;) {
		volatile char *more = malloc(1 << 20);

		if (!more)
			_exit(1);
		memset((char *)more, 1, 1 << 20);
	}
}

static void try_open(struct output *out, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	say(out, fd < 0 ? "cannot be opened" : "was opened");
}

/* What a compiler may do to whoever waits for it. */
static void misbehave(struct output *out, const char *line)
{
	static volatile unsigned int turns;

	if (gantry_str_starts(line, "log "))
		say(out, line + strlen("log "));
	else if (gantry_str_starts(line, "open "))
		try_open(out, line + strlen("open "));
	while (strcmp(line, "spin") == 0)
		turns++;
	while (strcmp(line, "sleep") == 0)
		(void)pause();
	if (strcmp(line, "crash") == 0)
		abort();
	if (strcmp(line, "exit") == 0)
		_exit(9);
	if (strcmp(line, "eat") == 0)
		eat();
}

static int put(struct output *out, const char *line)
{
	size_t len = strlen(line);
	char *bytes = realloc(out->bytes, out->len + len + 2);

	if (!bytes)
		return -ENOMEM;
	memcpy(bytes + out->len, line, len);
	out->bytes = bytes;
	out->len += len;
	out->bytes[out->len++] = '\n';
	return 0;
}

static int compile_line(struct output *out, const char *line, struct gantry_err *err)
{
	misbehave(out, line);
	if (gantry_str_starts(line, "error ")) {
		say(out, line);
		return gantry_err_set(err, -ENOEXEC, "%s", line);
	}
	if (strcmp(line, "grow") == 0) {
		char *bytes = realloc(out->bytes, GROW_BYTES);

		if (!bytes)
			return -ENOMEM;
		out->bytes = bytes;
		out->len = GROW_BYTES;
		return 0;
	}
	return gantry_str_starts(line, "kernel ") ? put(out, line) : 0;
}

int null_compile(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
		 size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log, size_t log_bytes,
		 struct gantry_err *err)
{
	struct output out = { .log = log, .log_bytes = log_bytes };
	const char *at = bytes, *end = at + nbytes;
	char line[LINE_MAX_];
	int r = put(&out, "null-image 1");

	(void)conf;
	(void)arch;
	log[0] = '\0';
	at += strlen(SOURCE_MARK);
	while (r == 0 && next_line(&at, end, line))
		r = compile_line(&out, line, err);
	if (r == 0)
		r = put(&out, "end");
	if (r < 0) {
		free(out.bytes);
		return r;
	}
	*ret_image = out.bytes;
	*ret_nbytes = out.len;
	return 0;
}
