/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/calls/nvrtc.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "proto/cuda_rtc.h"

/* nvrtcResult, of nvrtc.h, which a build need not have. */
enum result {
	SUCCESS = 0,
	OUT_OF_MEMORY = 1,
	INVALID_INPUT = 3,
	INVALID_PROGRAM = 4,
	NO_NAME_EXPRESSIONS_AFTER_COMPILATION = 8,
	NO_LOWERED_NAMES_BEFORE_COMPILATION = 9,
	NAME_EXPRESSION_NOT_VALID = 10,
	INTERNAL_ERROR = 11,
	NO_PCH_CREATE_ATTEMPTED = 13,
	LAST_RESULT = 17,
};

/* Of a session: programs are small, and what holds more than that holds it against its neighbours. */
#define MAX_BYTES (256ull << 20)

struct texts {
	char *bytes; /* one behind the other, each with its NUL */
	size_t len, room;
	uint32_t n;
};

struct program {
	struct texts base; /* source, name, headers and their names */
	uint32_t nheaders;
	struct texts expressions;
	uint64_t charged;
	/* What came of it; NULL: it has not been compiled. */
	char *made;
	uint64_t made_bytes;
	struct gantry_rtc_result head;
	const char *parts[GANTRY_RTC_NPARTS];
	const char *lowered; /* of the expressions, in their order */
	char why[160];	     /* in place of a log where nobody compiled */
};

static _Thread_local struct gantry_calls_rtc *here;

void gantry_calls_rtc_here(struct gantry_calls_rtc *rtc)
{
	here = rtc;
}

/* ---- memory ---- */

static bool charge(struct program *p, uint64_t bytes)
{
	if (!here || bytes > MAX_BYTES || here->bytes > MAX_BYTES - bytes)
		return false;
	here->bytes += bytes;
	p->charged += bytes;
	return true;
}

static void refund(struct program *p, uint64_t bytes)
{
	if (here)
		here->bytes -= bytes < here->bytes ? bytes : here->bytes;
	p->charged -= bytes;
}

static bool texts_add(struct program *p, struct texts *t, const char *text)
{
	size_t n = strlen(text) + 1;
	char *grown;

	if (t->n == 2 * GANTRY_RTC_MAX_TEXTS + 2 || !charge(p, n))
		return false;
	if (n > t->room - t->len) {
		size_t room = t->room + n + t->room / 2;

		grown = realloc(t->bytes, room);
		if (!grown) {
			refund(p, n);
			return false;
		}
		t->bytes = grown;
		t->room = room;
	}
	memcpy(t->bytes + t->len, text, n);
	t->len += n;
	t->n++;
	return true;
}

static void forget_made(struct program *p)
{
	if (p->made)
		refund(p, p->made_bytes);
	free(p->made);
	p->made = NULL;
	p->made_bytes = 0;
	p->why[0] = '\0';
}

static void program_free(struct program *p)
{
	refund(p, p->charged);
	free(p->made);
	free(p->base.bytes);
	free(p->expressions.bytes);
	free(p);
}

/* ---- making one ---- */

static int create(struct program **ret_program, const char *source, const char *name, int nheaders,
		  const char *const *headers, const char *const *names)
{
	struct program *p;
	bool all;

	if (!ret_program || !source || nheaders < 0 || (uint32_t)nheaders > GANTRY_RTC_MAX_TEXTS ||
	    (nheaders > 0 && (!headers || !names)))
		return INVALID_INPUT;
	p = calloc(1, sizeof(*p));
	if (!p)
		return OUT_OF_MEMORY;
	p->nheaders = (uint32_t)nheaders;
	all = charge(p, sizeof(*p)) && texts_add(p, &p->base, source) &&
	      texts_add(p, &p->base, name ? name : "");
	for (int i = 0; i < nheaders && all; i++)
		all = headers[i] && names[i] && texts_add(p, &p->base, headers[i]) &&
		      texts_add(p, &p->base, names[i]);
	if (!all) {
		program_free(p);
		return OUT_OF_MEMORY;
	}
	*ret_program = p;
	return SUCCESS;
}

static int destroy(struct program **program)
{
	if (!program || !*program)
		return INVALID_PROGRAM;
	program_free(*program);
	*program = NULL;
	return SUCCESS;
}

static int add_expression(struct program *p, const char *expression)
{
	if (!p || !expression)
		return !p ? INVALID_PROGRAM : INVALID_INPUT;
	if (p->made)
		return NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
	if (p->expressions.n >= GANTRY_RTC_MAX_TEXTS)
		return OUT_OF_MEMORY;
	return texts_add(p, &p->expressions, expression) ? SUCCESS : OUT_OF_MEMORY;
}

/* ---- compiling it ---- */

/* What came back is as a guest's text may have made it: all of it is looked at, once. */
static bool is_whole(struct program *p)
{
	const char *at = p->made, *end = p->made + p->made_bytes;

	if (p->made_bytes < sizeof(p->head))
		return false;
	memcpy(&p->head, at, sizeof(p->head));
	at += sizeof(p->head);
	if (memcmp(p->head.magic, GANTRY_RTC_MAGIC, GANTRY_RTC_MAGIC_BYTES) != 0 ||
	    p->head.nexpressions != p->expressions.n || p->head.result < 0 ||
	    p->head.result > LAST_RESULT)
		return false;
	for (unsigned int i = 0; i < GANTRY_RTC_NPARTS; i++) {
		uint64_t n = p->head.bytes[i];

		if (n > (uint64_t)(end - at) || p->head.asked[i] < 0 ||
		    p->head.asked[i] > LAST_RESULT)
			return false;
		if ((i == GANTRY_RTC_LOG || i == GANTRY_RTC_PTX) && n > 0 && at[n - 1] != '\0')
			return false;
		p->parts[i] = at;
		at += n;
	}
	p->lowered = at;
	for (uint32_t i = 0; i < p->head.nexpressions; i++) {
		const char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

		if (!nul)
			return false;
		at = nul + 1;
	}
	return at == end;
}

static const char *sentence(int r)
{
	switch (r) {
	case -EOPNOTSUPP:
		return "the host has no NVRTC that could compile this\n";
	case -EDQUOT:
		return "compiling took longer, or more memory, than the session may have for it\n";
	default:
		return "the process that compiles did not come to an end\n";
	}
}

static int fail(struct program *p, int result, const char *why)
{
	forget_made(p);
	(void)strncpy(p->why, why, sizeof(p->why) - 1);
	return result;
}

static int compile_request(struct program *p, const void *request, size_t bytes)
{
	void *made;
	int r;

	if (!here || !here->compile)
		return fail(p, INTERNAL_ERROR, sentence(-EOPNOTSUPP));
	r = here->compile(here->cookie, request, bytes, &made, &p->made_bytes);
	if (r < 0)
		return fail(p, r == -ENOMEM ? OUT_OF_MEMORY : INTERNAL_ERROR, sentence(r));
	if (!charge(p, p->made_bytes)) {
		free(made);
		return fail(p, OUT_OF_MEMORY, "the session's programs hold too much\n");
	}
	p->made = made;
	if (!is_whole(p))
		return fail(p, INTERNAL_ERROR, sentence(-EPROTO));
	return p->head.result;
}

/* What a program is made of, when it is compiled. */
struct base {
	const char *texts; /* source, name, of each header its content and its name */
	size_t len;
	uint32_t nheaders;
};

static int compile_base(struct program *p, const struct base *base, int noptions,
			const char *const *options)
{
	struct gantry_rtc_request head = { .magic = GANTRY_RTC_MAGIC,
					   .version = GANTRY_RTC_VERSION };
	char *request, *at;
	int r;

	if (noptions < 0 || (uint32_t)noptions > GANTRY_RTC_MAX_TEXTS || (noptions > 0 && !options))
		return INVALID_INPUT;
	forget_made(p);
	head.nheaders = base->nheaders;
	head.noptions = (uint32_t)noptions;
	head.nexpressions = p->expressions.n;
	head.bytes = sizeof(head) + base->len + p->expressions.len;
	for (int i = 0; i < noptions; i++) {
		if (!options[i])
			return INVALID_INPUT;
		head.bytes += strlen(options[i]) + 1;
	}
	request = malloc(head.bytes);
	if (!request)
		return OUT_OF_MEMORY;
	at = mempcpy(request, &head, sizeof(head));
	at = mempcpy(at, base->texts, base->len);
	for (int i = 0; i < noptions; i++)
		at = stpcpy(at, options[i]) + 1;
	if (p->expressions.len)
		memcpy(at, p->expressions.bytes, p->expressions.len);
	r = compile_request(p, request, head.bytes);
	free(request);
	return r;
}

static int compile(struct program *p, int noptions, const char *const *options)
{
	struct base base;

	if (!p)
		return INVALID_PROGRAM;
	base = (struct base){ p->base.bytes, p->base.len, p->nheaders };
	return compile_base(p, &base, noptions, options);
}

/* With files of the guest's in it, for this once: what it was made of stays. */
static int compile_with(struct program *p, int noptions, const char *const *options,
			const char *source, uint32_t nheaders, const char *const *headers,
			const char *const *names)
{
	struct base base = { .nheaders = nheaders };
	const char *name;
	char *texts, *at;
	int r;

	if (!p || !source || nheaders > GANTRY_RTC_MAX_TEXTS || !headers || !names)
		return !p ? INVALID_PROGRAM : INVALID_INPUT;
	name = p->base.bytes + strlen(p->base.bytes) + 1;
	base.len = strlen(source) + 1 + strlen(name) + 1;
	for (uint32_t i = 0; i < nheaders; i++)
		base.len += strlen(headers[i]) + 1 + strlen(names[i]) + 1;
	base.texts = texts = malloc(base.len);
	if (!texts)
		return OUT_OF_MEMORY;
	at = stpcpy(texts, source) + 1;
	at = stpcpy(at, name) + 1;
	for (uint32_t i = 0; i < nheaders; i++) {
		at = stpcpy(at, headers[i]) + 1;
		at = stpcpy(at, names[i]) + 1;
	}
	r = compile_base(p, &base, noptions, options);
	free(texts);
	return r;
}

/* ---- what came of it ---- */

static int part_size(const struct program *p, enum gantry_rtc_part part, size_t *ret_bytes)
{
	if (!p || !p->made)
		return INVALID_PROGRAM;
	if (p->head.asked[part] == SUCCESS)
		*ret_bytes = p->head.bytes[part];
	return p->head.asked[part];
}

static int part(const struct program *p, enum gantry_rtc_part which, char *to)
{
	size_t n = 0;
	int r = part_size(p, which, &n);

	if (r == SUCCESS && n > 0)
		memcpy(to, p->parts[which], n);
	return r;
}

#define PART(name, which)                                                  \
	static int name##_size(const struct program *p, size_t *ret_bytes) \
	{                                                                  \
		return part_size(p, which, ret_bytes);                     \
	}                                                                  \
	static int name(const struct program *p, char *to)                 \
	{                                                                  \
		return part(p, which, to);                                 \
	}

PART(ptx, GANTRY_RTC_PTX)
PART(cubin, GANTRY_RTC_CUBIN)
PART(ltoir, GANTRY_RTC_LTOIR)
PART(optixir, GANTRY_RTC_OPTIXIR)

/* Of a program that nobody has compiled there is nothing to say. */
static int log_size(const struct program *p, size_t *ret_bytes)
{
	if (!p)
		return INVALID_PROGRAM;
	*ret_bytes = p->made && p->head.bytes[GANTRY_RTC_LOG] ? p->head.bytes[GANTRY_RTC_LOG]
							      : strlen(p->why) + 1;
	return SUCCESS;
}

static int log_text(const struct program *p, char *to)
{
	size_t n;
	int r = log_size(p, &n);

	if (r == SUCCESS)
		memcpy(to,
		       p->made && p->head.bytes[GANTRY_RTC_LOG] ? p->parts[GANTRY_RTC_LOG] : p->why,
		       n);
	return r;
}

static int lowered(const struct program *p, const char *expression, const char **ret_name)
{
	const char *asked, *name;

	if (!p || !expression || !ret_name)
		return !p ? INVALID_PROGRAM : INVALID_INPUT;
	if (!p->made)
		return NO_LOWERED_NAMES_BEFORE_COMPILATION;
	asked = p->expressions.bytes;
	name = p->lowered;
	for (uint32_t i = 0; i < p->expressions.n; i++) {
		if (strcmp(asked, expression) == 0 && name[0]) {
			*ret_name = name;
			return SUCCESS;
		}
		asked += strlen(asked) + 1;
		name += strlen(name) + 1;
	}
	return NAME_EXPRESSION_NOT_VALID;
}

/* Precompiled headers are files, or memory of one process: each program has one of its own. */
static int pch_status(const struct program *p)
{
	return p ? NO_PCH_CREATE_ATTEMPTED : INVALID_PROGRAM;
}

static int pch_required(const struct program *p, size_t *ret_bytes)
{
	(void)ret_bytes;
	return pch_status(p);
}

/* POSIX wants this conversion to work; ISO C has no cast for it. */
#define FUNCTION(name, function)                 \
	{                                        \
		name, (void (*)(void))(function) \
	}

void *gantry_calls_rtc_symbol(const char *name)
{
	static const struct {
		const char *name;
		void (*function)(void);
	} own[] = {
		FUNCTION("nvrtcCreateProgram", create),
		FUNCTION("nvrtcDestroyProgram", destroy),
		FUNCTION("nvrtcAddNameExpression", add_expression),
		FUNCTION("nvrtcCompileProgram", compile),
		FUNCTION("nvrtcCompileProgramWith", compile_with), /* ours alone */
		FUNCTION("nvrtcGetProgramLogSize", log_size),
		FUNCTION("nvrtcGetProgramLog", log_text),
		FUNCTION("nvrtcGetPTXSize", ptx_size),
		FUNCTION("nvrtcGetPTX", ptx),
		FUNCTION("nvrtcGetCUBINSize", cubin_size),
		FUNCTION("nvrtcGetCUBIN", cubin),
		FUNCTION("nvrtcGetLTOIRSize", ltoir_size),
		FUNCTION("nvrtcGetLTOIR", ltoir),
		FUNCTION("nvrtcGetOptiXIRSize", optixir_size),
		FUNCTION("nvrtcGetOptiXIR", optixir),
		FUNCTION("nvrtcGetLoweredName", lowered),
		FUNCTION("nvrtcGetPCHCreateStatus", pch_status),
		FUNCTION("nvrtcGetPCHHeapSizeRequired", pch_required),
	};
	void *found = NULL;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(own); i++)
		if (strcmp(own[i].name, name) == 0)
			memcpy(&found, &own[i].function, sizeof(found));
	return found;
}
