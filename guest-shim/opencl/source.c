/* SPDX-License-Identifier: Apache-2.0 */
/* Texts on their way to the host, and the host's words on the way back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "guest-shim/opencl/icd.h"
#include "proto/opencl.h"

#define MAX_DEPTH 32u
#define MAX_BYTES (16u << 20)
#define MAX_ONCE  256u
#define NAME_ROOM 1024u /* of what a text includes */
#define PATH_ROOM 4096u

/* ---- headers ---- */

struct flat {
	char *text;
	size_t len, room;
	const char *options;
	uint32_t nheaders;
	const struct icd_header *headers;
	uint32_t nonce;
	char *once[MAX_ONCE]; /* headers that are wanted once */
	bool failed;
};

static void add(struct flat *f, const char *text, size_t len)
{
	if (f->failed || len > MAX_BYTES - f->len) {
		f->failed = true;
		return;
	}
	if (f->len + len + 1 > f->room) {
		size_t room = 2 * (f->len + len + 1);
		char *more = realloc(f->text, room);

		if (!more) {
			f->failed = true;
			return;
		}
		f->text = more;
		f->room = room;
	}
	memcpy(f->text + f->len, text, len);
	f->len += len;
	f->text[f->len] = '\0';
}

static void add_text(struct flat *f, const char *text)
{
	add(f, text, strlen(text));
}

static char *read_whole(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = file ? calloc(1, MAX_BYTES / 4 + 1) : NULL;
	size_t n = text ? fread(text, 1, MAX_BYTES / 4, file) : 0;

	if (file)
		(void)fclose(file);
	if (!text || n == MAX_BYTES / 4) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

/* The next word of options, which quotes may hold together; NULL: there is none. */
static const char *next_word(const char *at, size_t *ret_len)
{
	char quote = '\0';
	const char *begin;

	at += strspn(at, " \t\r\n");
	if (*at == '\0')
		return NULL;
	for (begin = at; *at && (quote || !strchr(" \t\r\n", *at)); at++)
		if (*at == '"' || *at == '\'')
			quote = quote == *at ? '\0' : quote ? quote : *at;
	*ret_len = (size_t)(at - begin);
	return begin;
}

/* The file @name in one of the -I folders, or as it is. */
static char *find_file(const struct flat *f, const char *name)
{
	const char *word = f->options;
	char path[PATH_ROOM];
	size_t len = 0;
	char *text;

	while ((word = next_word(word, &len)) != NULL) {
		const char *folder = word + 2;
		size_t n = len - 2;

		if (len >= 2 && strncmp(word, "-I", 2) == 0) {
			if (len == 2) {
				folder = next_word(word + len, &n);
				if (!folder)
					break;
				word = folder;
				len = n;
			}
			if (n >= 2 && folder[0] == '"' && folder[n - 1] == '"') {
				folder++;
				n -= 2;
			}
			text = n + strlen(name) + 2 <= sizeof(path) &&
					       snprintf(path, sizeof(path), "%.*s/%s", (int)n,
							folder, name) > 0
				       ? read_whole(path)
				       : NULL;
			if (text)
				return text;
		}
		word += len;
	}
	return read_whole(name);
}

static char *find(const struct flat *f, const char *name)
{
	for (uint32_t i = 0; i < f->nheaders; i++)
		if (strcmp(f->headers[i].name, name) == 0)
			return strdup(f->headers[i].text);
	return find_file(f, name);
}

static bool is_directive(const char *line, const char *word, const char **ret_rest)
{
	size_t n = strlen(word);

	line += strspn(line, " \t");
	if (*line != '#')
		return false;
	line++;
	line += strspn(line, " \t");
	if (strncmp(line, word, n) != 0)
		return false;
	*ret_rest = line + n + strspn(line + n, " \t");
	return true;
}

/* The name that a line includes. */
static bool includes(const char *line, char name[NAME_ROOM])
{
	const char *at, *end;
	char close;

	if (!is_directive(line, "include", &at) || (*at != '"' && *at != '<'))
		return false;
	close = *at == '<' ? '>' : '"';
	end = at + 1 + strcspn(at + 1, close == '>' ? ">\n" : "\"\n");
	if (*end != close || end - at - 1 <= 0 || (size_t)(end - at) >= NAME_ROOM)
		return false;
	memcpy(name, at + 1, (size_t)(end - at - 1));
	name[end - at - 1] = '\0';
	return true;
}

static bool was_once(const struct flat *f, const char *name)
{
	for (uint32_t i = 0; i < f->nonce; i++)
		if (strcmp(f->once[i], name) == 0)
			return true;
	return false;
}

static void flatten(struct flat *f, const char *text, const char *self, unsigned depth);

static void put_header(struct flat *f, const char *name, unsigned line, unsigned depth)
{
	char mark[48];
	char *text = was_once(f, name) ? strdup("") : find(f, name);

	if (!text) {
		/* The compiler says what is missing. */
		add_text(f, "#include \"");
		add_text(f, name);
		add_text(f, "\"\n");
		return;
	}
	add_text(f, "#line 1\n");
	flatten(f, text, name, depth + 1);
	free(text);
	(void)snprintf(mark, sizeof(mark), "\n#line %u\n", line + 1);
	add_text(f, mark);
}

static void flatten(struct flat *f, const char *text, const char *self, unsigned depth)
{
	char name[NAME_ROOM];
	const char *rest;

	if (depth > MAX_DEPTH) {
		f->failed = true;
		return;
	}
	for (unsigned line = 1; *text && !f->failed; line++) {
		size_t len = strcspn(text, "\n");

		if (self && f->nonce < MAX_ONCE && is_directive(text, "pragma", &rest) &&
		    strncmp(rest, "once", 4) == 0) {
			f->once[f->nonce] = strdup(self);
			f->nonce += f->once[f->nonce] != NULL;
			add_text(f, "\n");
		} else if (includes(text, name)) {
			put_header(f, name, line, depth);
		} else {
			add(f, text, len);
			add_text(f, "\n");
		}
		text += len;
		text += *text == '\n';
	}
}

char *icd_source_flatten(const char *text, const char *options, uint32_t nheaders,
			 const struct icd_header *headers)
{
	struct flat f = { .options = options ? options : "",
			  .nheaders = nheaders,
			  .headers = headers };

	add_text(&f, "");
	flatten(&f, text, NULL, 0);
	for (uint32_t i = 0; i < f.nonce; i++)
		free(f.once[i]);
	if (!f.failed)
		return f.text;
	free(f.text);
	return NULL;
}

/* ---- options ---- */

static bool is_known(const char *word, size_t len)
{
	static const char *const known[] = {
		"-cl-single-precision-constant",
		"-cl-denorms-are-zero",
		"-cl-fp32-correctly-rounded-divide-sqrt",
		"-cl-opt-disable",
		"-cl-strict-aliasing",
		"-cl-mad-enable",
		"-cl-no-signed-zeros",
		"-cl-unsafe-math-optimizations",
		"-cl-finite-math-only",
		"-cl-fast-relaxed-math",
		"-cl-kernel-arg-info",
		"-w",
		"-Werror",
	};

	if (len > 8 && strncmp(word, "-cl-std=", 8) == 0)
		return true;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(known); i++)
		if (strlen(known[i]) == len && strncmp(word, known[i], len) == 0)
			return true;
	return false;
}

char *icd_options_for_host(const char *options)
{
	char *taken = calloc(1, options ? strlen(options) + 2 : 1);
	const char *word = options ? options : "";
	char *at = taken;
	size_t len = 0;

	while (taken && (word = next_word(word, &len)) != NULL) {
		bool has_name = len >= 2 &&
				(strncmp(word, "-D", 2) == 0 || strncmp(word, "-U", 2) == 0);
		bool is_folder = len >= 2 && strncmp(word, "-I", 2) == 0;
		size_t whole = len, n;

		/* "-D NAME" and "-I FOLDER" are two words. */
		if ((has_name || is_folder) && len == 2) {
			const char *next = next_word(word + len, &n);

			if (!next) {
				free(taken);
				return NULL;
			}
			whole = (size_t)(next + n - word);
		}
		if (!has_name && !is_folder && !is_known(word, len)) {
			free(taken);
			return NULL;
		}
		if (!is_folder) {
			memcpy(at, word, whole);
			for (size_t i = 0; i < whole; i++)
				at[i] = at[i] == '\n' || at[i] == '\r' ? ' ' : at[i];
			at += whole;
			*at++ = ' ';
		}
		word += whole;
	}
	return taken;
}

/* ---- what the host says of an image ---- */

/* The text up to the next tab or the line's end; *at moves past it. NULL: no memory, or there is none. */
static char *field(const char **at)
{
	size_t len = strcspn(*at, "\t\n");
	char *text = strndup(*at, len);

	*at += len;
	*at += **at == '\t';
	return text;
}

static uint64_t number(const char **at)
{
	size_t len = strcspn(*at, "\t\n");
	uint64_t value = strtoull(*at, NULL, 10);

	*at += len;
	*at += **at == '\t';
	return value;
}

static void *grow(void *array, uint32_t n, size_t bytes)
{
	/* One more; doubled at powers of two. */
	return (n & (n - 1)) == 0 ? realloc(array, (n ? 2 * (size_t)n : 1) * bytes) : array;
}

static bool parse_kernel(const char *at, struct icd_kernel_info *kernel)
{
	*kernel = (struct icd_kernel_info){ .name = field(&at) };
	kernel->work_group = number(&at);
	for (int i = 0; i < 3; i++)
		kernel->compiled[i] = number(&at);
	kernel->local_bytes = number(&at);
	kernel->private_bytes = number(&at);
	kernel->multiple = number(&at);
	return kernel->name != NULL;
}

static bool parse_attributes(const char *at, struct icd_kernel_info *kernel)
{
	free(kernel->attributes);
	kernel->attributes = field(&at);
	return kernel->attributes != NULL;
}

static bool parse_arg(const char *at, struct icd_kernel_info *kernel)
{
	struct icd_arg *args = grow(kernel->args, kernel->nargs, sizeof(*args));
	struct icd_arg arg;

	if (!args)
		return false;
	kernel->args = args;
	arg.where = (cl_kernel_arg_address_qualifier)number(&at);
	arg.access = (cl_kernel_arg_access_qualifier)number(&at);
	arg.qualifiers = number(&at);
	arg.bytes = (uint32_t)number(&at);
	arg.type = field(&at);
	arg.name = field(&at);
	if (arg.bytes == 0 && arg.type && arg.where == CL_KERNEL_ARG_ADDRESS_PRIVATE)
		arg.bytes = gantry_opencl_type_bytes(arg.type);
	args[kernel->nargs++] = arg;
	return arg.type && arg.name;
}

bool icd_kernels_parse(const char *text, struct icd_kernel_info **ret_kernels, uint32_t *ret_n,
		       const char **ret_rest)
{
	struct icd_kernel_info *kernels = NULL, *more;
	uint32_t n = 0;
	bool good = strncmp(text, "kernels\n", 8) == 0;

	for (; good && strncmp(text, "end\n", 4) != 0; text += strcspn(text, "\n") + 1) {
		if (strncmp(text, "kernel\t", 7) == 0) {
			more = grow(kernels, n, sizeof(*kernels));
			good = more != NULL;
			kernels = good ? more : kernels;
			good = good && parse_kernel(text + 7, &kernels[n++]);
		} else if (strncmp(text, "arg\t", 4) == 0) {
			good = n > 0 && parse_arg(text + 4, &kernels[n - 1]);
		} else if (strncmp(text, "attributes\t", 11) == 0) {
			good = n > 0 && parse_attributes(text + 11, &kernels[n - 1]);
		}
		good = good && strchr(text, '\n') != NULL;
		if (!good)
			break;
	}
	if (!good) {
		icd_kernel_infos_free(kernels, n);
		return false;
	}
	*ret_kernels = kernels;
	*ret_n = n;
	*ret_rest = text + 4;
	return true;
}

/* ---- installed kernels ---- */

static bool builtin_arg(const char *word, size_t len, struct icd_kernel_info *info)
{
	static const struct {
		const char *word, *type;
		uint32_t bytes;
	} types[] = { { "u8", "uchar", 1 },  { "i8", "char", 1 },  { "u16", "ushort", 2 },
		      { "i16", "short", 2 }, { "u32", "uint", 4 }, { "i32", "int", 4 },
		      { "u64", "ulong", 8 }, { "i64", "long", 8 }, { "f32", "float", 4 },
		      { "f64", "double", 8 } };
	const char *colon = memchr(word, ':', len);
	const char *name = colon ? colon + 1 : word;
	size_t n = len - (size_t)(name - word) - (colon ? 1 : 0);
	struct icd_arg *args = grow(info->args, info->nargs, sizeof(*args));
	struct icd_arg *arg;
	char text[16];

	if (!args)
		return false;
	info->args = args;
	arg = &args[info->nargs++];
	*arg = (struct icd_arg){ .where = colon ? CL_KERNEL_ARG_ADDRESS_GLOBAL
						: CL_KERNEL_ARG_ADDRESS_PRIVATE,
				 .access = CL_KERNEL_ARG_ACCESS_NONE };
	if (colon && len > 2 && strncmp(word, "r:", 2) == 0)
		arg->qualifiers = CL_KERNEL_ARG_TYPE_CONST;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(types); i++) {
		if (strlen(types[i].word) != n || strncmp(types[i].word, name, n) != 0)
			continue;
		(void)snprintf(text, sizeof(text), "%s%s", types[i].type, colon ? "*" : "");
		arg->type = strdup(text);
		arg->bytes = colon ? 0 : types[i].bytes;
	}
	(void)snprintf(text, sizeof(text), "arg%u", info->nargs - 1);
	arg->name = strdup(text);
	return arg->type && arg->name;
}

bool icd_kernel_of_builtin(const struct icd_builtin *builtin, struct icd_kernel_info *ret_info)
{
	struct icd_kernel_info info = { .work_group = 1, .multiple = 1 };
	const char *at = builtin->signature;
	bool good = true;

	info.name = strdup(builtin->name);
	info.signature = strdup(builtin->signature);
	while (good && *at && strcmp(builtin->signature, "void") != 0) {
		size_t len = strcspn(at, ",");

		good = builtin_arg(at, len, &info);
		at += len;
		at += *at == ',';
	}
	if (good && info.name && info.signature) {
		*ret_info = info;
		return true;
	}
	free(info.name);
	free(info.signature);
	for (uint32_t i = 0; i < info.nargs; i++) {
		free(info.args[i].type);
		free(info.args[i].name);
	}
	free(info.args);
	return false;
}

void icd_kernel_infos_free(struct icd_kernel_info *infos, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = 0; j < infos[i].nargs; j++) {
			free(infos[i].args[j].type);
			free(infos[i].args[j].name);
		}
		free(infos[i].args);
		free(infos[i].name);
		free(infos[i].signature);
		free(infos[i].attributes);
	}
	free(infos);
}
