/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/signature.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "base/str.h"
#include "proto/opencl.h"

/* A kernel without arguments; an empty text could not stand on a manifest's line. */
#define NO_ARGS "void"
#define RAW	"raw"

struct word {
	const char *text;
	uint8_t value;
	uint8_t bytes;
};

static const struct word types[] = {
	{ "u8", GANTRY_ARG_U8, 1 },   { "i8", GANTRY_ARG_I8, 1 },   { "u16", GANTRY_ARG_U16, 2 },
	{ "i16", GANTRY_ARG_I16, 2 }, { "u32", GANTRY_ARG_U32, 4 }, { "i32", GANTRY_ARG_I32, 4 },
	{ "u64", GANTRY_ARG_U64, 8 }, { "i64", GANTRY_ARG_I64, 8 }, { "f32", GANTRY_ARG_F32, 4 },
	{ "f64", GANTRY_ARG_F64, 8 },
};

/* Of kernels of OpenCL images; no element of a buffer has them. */
static const struct word slots[] = {
	{ "local", GANTRY_ARG_LOCAL, sizeof(uint64_t) },
	{ "range", GANTRY_ARG_RANGE, sizeof(struct gantry_launch_range) },
	{ "image", GANTRY_ARG_IMAGE, sizeof(struct gantry_launch_image) },
	{ "sampler", GANTRY_ARG_SAMPLER, sizeof(struct gantry_launch_sampler) },
};

static const struct word modes[] = {
	{ "r", GANTRY_R, 0 },
	{ "w", GANTRY_W, 0 },
	{ "rw", GANTRY_RW, 0 },
	{ "c", GANTRY_C, 0 },
};

#define BUFFER_SLOT_BYTES 8u

static const struct word *word_of_text(const struct word *words, size_t nwords, const char *text,
				       size_t len)
{
	for (size_t i = 0; i < nwords; i++)
		if (strlen(words[i].text) == len && memcmp(words[i].text, text, len) == 0)
			return &words[i];
	return NULL;
}

static const struct word *word_of_value(const struct word *words, size_t nwords, unsigned value)
{
	for (size_t i = 0; i < nwords; i++)
		if (words[i].value == value)
			return &words[i];
	return NULL;
}

uint32_t gantry_arg_type_bytes(unsigned type)
{
	const struct word *word = word_of_value(types, GANTRY_ARRAY_SIZE(types), type);

	return word ? word->bytes : 0;
}

bool gantry_signature_is_opencl(const struct gantry_signature *sig)
{
	for (uint32_t i = 0; i < sig->nargs; i++)
		if (sig->args[i].type >= GANTRY_ARG_BYTES)
			return true;
	return false;
}

bool gantry_signature_same(const struct gantry_signature *a, const struct gantry_signature *b)
{
	if (a->nargs != b->nargs || a->is_raw != b->is_raw)
		return false;
	for (uint32_t i = 0; i < a->nargs; i++)
		if (a->args[i].mode != b->args[i].mode || a->args[i].type != b->args[i].type ||
		    a->args[i].len_bytes != b->args[i].len_bytes)
			return false;
	return true;
}

/* "bN" of 1 to GANTRY_SIGNATURE_MAX_BYTES bytes, without leading zeros, so that it has one text. 0: it is none. */
static uint16_t parse_bytes(const char *text, size_t len)
{
	uint32_t n = 0;

	if (len < 2 || len > 5 || text[0] != 'b' || text[1] == '0')
		return 0;
	for (size_t i = 1; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return 0;
		n = 10 * n + (uint32_t)(text[i] - '0');
	}
	return n <= GANTRY_SIGNATURE_MAX_BYTES ? (uint16_t)n : 0;
}

/* A type that is no buffer's. */
static bool parse_slot(const char *text, size_t len, struct gantry_sig_arg *arg)
{
	const struct word *word = word_of_text(slots, GANTRY_ARRAY_SIZE(slots), text, len);

	if (!word)
		word = word_of_text(types, GANTRY_ARRAY_SIZE(types), text, len);
	arg->type = word ? word->value : GANTRY_ARG_BYTES;
	arg->len_bytes = word ? word->bytes : parse_bytes(text, len);
	return arg->len_bytes != 0;
}

static int unknown(const char *text, size_t len, uint32_t position, struct gantry_err *err)
{
	return gantry_err_set(err, -EINVAL, "argument %u: unknown type \"%.*s\"", position,
			      (int)(len < 16 ? len : 16), text);
}

/* "MODE:TYPE*" or "TYPE", @len bytes; @position counts arguments from 1. */
static int parse_arg(const char *text, size_t len, uint32_t position,
		     struct gantry_sig_arg *ret_arg, struct gantry_err *err)
{
	const char *colon = memchr(text, ':', len);
	struct gantry_sig_arg arg = { 0 };
	const struct word *word;

	if (len == 0)
		return gantry_err_set(err, -EINVAL, "argument %u is empty", position);
	if (colon) {
		word = word_of_text(modes, GANTRY_ARRAY_SIZE(modes), text, (size_t)(colon - text));
		if (!word)
			return gantry_err_set(err, -EINVAL,
					      "argument %u: the mode is not r, w, rw or c",
					      position);
		arg.mode = word->value;
		len -= (size_t)(colon + 1 - text);
		text = colon + 1;
		if (len == 0 || text[len - 1] != '*')
			return gantry_err_set(err, -EINVAL,
					      "argument %u: a buffer's type ends with \"*\"",
					      position);
		len--;
	}
	if (!colon) {
		if (!parse_slot(text, len, &arg))
			return unknown(text, len, position, err);
		*ret_arg = arg;
		return 0;
	}
	word = word_of_text(types, GANTRY_ARRAY_SIZE(types), text, len);
	if (!word)
		return unknown(text, len, position, err);
	arg.len_bytes = BUFFER_SLOT_BYTES;
	arg.type = word->value;
	*ret_arg = arg;
	return 0;
}

/* What says of a buffer that it is an image stands before one. */
static bool wants_buffer(const struct gantry_signature *sig)
{
	return sig->nargs && sig->args[sig->nargs - 1].type == GANTRY_ARG_IMAGE &&
	       !sig->args[sig->nargs - 1].mode;
}

/* Appends @arg at its natural alignment. Sixty-four slots of 1 KiB and padding fill less than 16 bits. */
static int place_arg(struct gantry_signature *sig, struct gantry_sig_arg arg,
		     struct gantry_err *err)
{
	uint32_t align = arg.type >= GANTRY_ARG_BYTES ? BUFFER_SLOT_BYTES : arg.len_bytes;

	if (arg.type == GANTRY_ARG_RANGE && sig->nargs != 0)
		return gantry_err_set(err, -EINVAL, "argument %u: range comes first",
				      sig->nargs + 1);
	if (wants_buffer(sig) && !arg.mode)
		return gantry_err_set(err, -EINVAL, "argument %u: image stands before a buffer",
				      sig->nargs);
	sig->args_bytes = (sig->args_bytes + align - 1) & ~(align - 1);
	if (sig->args_bytes + arg.len_bytes > UINT16_MAX)
		return gantry_err_set(err, -EINVAL, "the arguments have more than %u bytes",
				      UINT16_MAX);
	arg.off_bytes = (uint16_t)sig->args_bytes;
	sig->args_bytes += arg.len_bytes;
	sig->args[sig->nargs++] = arg;
	return 0;
}

int gantry_signature_parse(const char *text, struct gantry_signature *ret_sig,
			   struct gantry_err *err)
{
	struct gantry_signature sig = { 0 };
	struct gantry_sig_arg arg = { 0 };
	int r;

	if (strcmp(text, NO_ARGS) == 0) {
		*ret_sig = sig;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(text, ",");

		if (sig.nargs == GANTRY_SIGNATURE_MAX_ARGS)
			return gantry_err_set(err, -EINVAL, "more than %u arguments",
					      GANTRY_SIGNATURE_MAX_ARGS);
		r = parse_arg(text, len, sig.nargs + 1, &arg, err);
		if (r < 0)
			return r;
		r = place_arg(&sig, arg, err);
		if (r < 0)
			return r;
		if (text[len] == '\0')
			break;
		text += len + 1;
	}
	if (wants_buffer(&sig))
		return gantry_err_set(err, -EINVAL, "argument %u: image stands before a buffer",
				      sig.nargs);
	sig.args_bytes = (sig.args_bytes + 7) & ~7u;
	*ret_sig = sig;
	return 0;
}

int gantry_signature_parse_own(const char *text, struct gantry_signature *ret_sig,
			       struct gantry_err *err)
{
	if (strcmp(text, RAW) != 0)
		return gantry_signature_parse(text, ret_sig, err);
	*ret_sig = (struct gantry_signature){ .is_raw = 1 };
	return 0;
}

static int format_arg(const struct gantry_sig_arg *arg, int first, char *buf, size_t cap)
{
	const struct word *type = word_of_value(types, GANTRY_ARRAY_SIZE(types), arg->type);
	const struct word *mode = word_of_value(modes, GANTRY_ARRAY_SIZE(modes), arg->mode);

	if (!arg->mode && arg->type == GANTRY_ARG_BYTES)
		return gantry_str_format(buf, cap, "%sb%u", first ? "" : ",", arg->len_bytes);
	if (!arg->mode && !type)
		type = word_of_value(slots, GANTRY_ARRAY_SIZE(slots), arg->type);
	if (!type || (arg->mode && !mode))
		return -EINVAL;
	return gantry_str_format(buf, cap, "%s%s%s%s%s", first ? "" : ",", mode ? mode->text : "",
				 mode ? ":" : "", type->text, mode ? "*" : "");
}

int gantry_signature_format(const struct gantry_signature *sig, char *buf, size_t cap)
{
	size_t len = 0;
	int r;

	if (cap == 0)
		return -E2BIG;
	if (sig->nargs == 0)
		return gantry_str_copy(buf, cap, sig->is_raw ? RAW : NO_ARGS);
	for (uint32_t i = 0; i < sig->nargs; i++) {
		r = format_arg(&sig->args[i], i == 0, buf + len, cap - len);
		if (r < 0)
			return r;
		len += strlen(buf + len);
	}
	return 0;
}
