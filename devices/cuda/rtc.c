/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/cuda/rtc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NVRTC_INVALID_INPUT  3
#define NVRTC_INTERNAL_ERROR 11

bool gantry_cuda_rtc_is(const void *bytes, size_t nbytes)
{
	return nbytes >= GANTRY_RTC_MAGIC_BYTES &&
	       memcmp(bytes, GANTRY_RTC_MAGIC, GANTRY_RTC_MAGIC_BYTES) == 0;
}

/* ---- a request ---- */

struct program {
	struct gantry_rtc_request head;
	const char *source, *name;
	const char **headers, **names, **options, **expressions; /* in one allocation */
};

/* NULL: no text ends here. */
static const char *take(const char **at, const char *end)
{
	const char *text = *at;
	const char *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

	if (!nul)
		return NULL;
	*at = nul + 1;
	return text;
}

static bool take_all(const char **to, uint32_t n, const char **at, const char *end)
{
	for (uint32_t i = 0; i < n; i++) {
		to[i] = take(at, end);
		if (!to[i])
			return false;
	}
	return true;
}

static bool take_texts(struct program *p, const char *at, const char *end)
{
	p->source = take(&at, end);
	p->name = take(&at, end);
	if (!p->source || !p->name)
		return false;
	for (uint32_t i = 0; i < p->head.nheaders; i++)
		if (!take_all(&p->headers[i], 1, &at, end) || !take_all(&p->names[i], 1, &at, end))
			return false;
	return take_all(p->options, p->head.noptions, &at, end) &&
	       take_all(p->expressions, p->head.nexpressions, &at, end) && at == end;
}

static int parse(const void *bytes, size_t nbytes, struct program *p, struct gantry_err *err)
{
	if (nbytes < sizeof(p->head))
		return gantry_err_set(err, -ENOEXEC, "the program is cut short");
	memcpy(&p->head, bytes, sizeof(p->head));
	if (p->head.version != GANTRY_RTC_VERSION || p->head.bytes != nbytes ||
	    p->head.nheaders > GANTRY_RTC_MAX_TEXTS || p->head.noptions > GANTRY_RTC_MAX_TEXTS ||
	    p->head.nexpressions > GANTRY_RTC_MAX_TEXTS)
		return gantry_err_set(err, -ENOEXEC, "this is no program for NVRTC");
	p->headers = calloc(2 * p->head.nheaders + p->head.noptions + p->head.nexpressions + 1,
			    sizeof(*p->headers));
	if (!p->headers)
		return gantry_err_set(err, -ENOMEM, "no memory for a program");
	p->names = p->headers + p->head.nheaders;
	p->options = p->names + p->head.nheaders;
	p->expressions = p->options + p->head.noptions;
	if (take_texts(p, (const char *)bytes + sizeof(p->head), (const char *)bytes + nbytes))
		return 0;
	free(p->headers);
	return gantry_err_set(err, -ENOEXEC, "a text of the program has no end");
}

/* ---- a result ---- */

struct making {
	struct gantry_rtc_result head;
	char *parts[GANTRY_RTC_NPARTS];
	const char **lowered; /* of each expression */
};

static int run(const struct gantry_nvrtc *nvrtc, const struct program *p,
	       gantry_nvrtc_program *ret_program)
{
	int r = nvrtc->create(ret_program, p->source, p->name[0] ? p->name : NULL,
			      (int)p->head.nheaders, p->headers, p->names);

	for (uint32_t i = 0; i < p->head.nexpressions && r == 0; i++)
		r = nvrtc->add_expression ? nvrtc->add_expression(*ret_program, p->expressions[i])
					  : NVRTC_INTERNAL_ERROR;
	return r == 0 ? nvrtc->compile(*ret_program, (int)p->head.noptions, p->options) : r;
}

static void take_part(struct making *m, enum gantry_rtc_part part, gantry_nvrtc_program program,
		      int (*size)(gantry_nvrtc_program, size_t *),
		      int (*get)(gantry_nvrtc_program, char *))
{
	size_t n = 0;
	int r = size && get ? size(program, &n) : NVRTC_INVALID_INPUT;

	if (r == 0 && n > 0) {
		m->parts[part] = calloc(1, n);
		r = m->parts[part] ? get(program, m->parts[part]) : NVRTC_INTERNAL_ERROR;
	}
	m->head.asked[part] = r;
	m->head.bytes[part] = r == 0 ? n : 0;
}

static void take_parts(const struct gantry_nvrtc *nvrtc, gantry_nvrtc_program program,
		       struct making *m)
{
	take_part(m, GANTRY_RTC_LOG, program, nvrtc->log_size, nvrtc->log);
	take_part(m, GANTRY_RTC_PTX, program, nvrtc->ptx_size, nvrtc->ptx);
	take_part(m, GANTRY_RTC_CUBIN, program, nvrtc->cubin_size, nvrtc->cubin);
	take_part(m, GANTRY_RTC_LTOIR, program, nvrtc->ltoir_size, nvrtc->ltoir);
	take_part(m, GANTRY_RTC_OPTIXIR, program, nvrtc->optixir_size, nvrtc->optixir);
}

static void take_lowered(const struct gantry_nvrtc *nvrtc, gantry_nvrtc_program program,
			 const struct program *p, struct making *m)
{
	for (uint32_t i = 0; i < p->head.nexpressions; i++) {
		const char *name = NULL;

		if (m->head.result != 0 || !nvrtc->lowered ||
		    nvrtc->lowered(program, p->expressions[i], &name) != 0 || !name)
			name = "";
		m->lowered[i] = name;
	}
}

static int give(const struct making *m, void **ret_result, size_t *ret_nbytes,
		struct gantry_err *err)
{
	size_t n = sizeof(m->head);
	char *result, *at;

	for (unsigned int i = 0; i < GANTRY_RTC_NPARTS; i++)
		n += m->head.bytes[i];
	for (uint32_t i = 0; i < m->head.nexpressions; i++)
		n += strlen(m->lowered[i]) + 1;
	result = malloc(n);
	if (!result)
		return gantry_err_set(err, -ENOMEM, "no memory for what was compiled");
	at = mempcpy(result, &m->head, sizeof(m->head));
	for (unsigned int i = 0; i < GANTRY_RTC_NPARTS; i++)
		if (m->head.bytes[i])
			at = mempcpy(at, m->parts[i], m->head.bytes[i]);
	for (uint32_t i = 0; i < m->head.nexpressions; i++)
		at = stpcpy(at, m->lowered[i]) + 1;
	*ret_result = result;
	*ret_nbytes = n;
	return 0;
}

int gantry_cuda_rtc_compile(const struct gantry_nvrtc *nvrtc, const void *bytes, size_t nbytes,
			    void **ret_result, size_t *ret_nbytes, struct gantry_err *err)
{
	struct making m = { .head.magic = GANTRY_RTC_MAGIC };
	gantry_nvrtc_program program = NULL;
	struct program p;
	int r = parse(bytes, nbytes, &p, err);

	if (r < 0)
		return r;
	m.lowered = calloc(p.head.nexpressions + 1, sizeof(*m.lowered));
	if (!m.lowered) {
		free(p.headers);
		return gantry_err_set(err, -ENOMEM, "no memory for names");
	}
	m.head.nexpressions = p.head.nexpressions;
	m.head.result = run(nvrtc, &p, &program);
	if (program)
		take_parts(nvrtc, program, &m);
	take_lowered(nvrtc, program, &p, &m);
	r = give(&m, ret_result, ret_nbytes, err);
	/* NVRTC's own ends with the process. */
	for (unsigned int i = 0; i < GANTRY_RTC_NPARTS; i++)
		free(m.parts[i]);
	free(m.lowered);
	free(p.headers);
	return r;
}
