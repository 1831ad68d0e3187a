/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVRTC's programs: where they are compiled no file is read, so what they include from folders that their options name goes along (includes.h). For that the texts of
 * each are kept here, until it is destroyed. The other end is devices/cuda/calls/hand/nvrtc.c, and what lies on the wire is said there.
 *
 * Threads: any; a lock of its own. A program that one thread destroys while another compiles it is compiled as it was.
 */
#include <nvrtc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cudalibs/call.h"
#include "guest-shim/cudalibs/includes.h"

void gantry_hand_noted_nvrtcCreateProgram(nvrtcProgram *prog, const char *src, const char *name,
					  int nheaders, const char *const *headers,
					  const char *const *names);
void gantry_hand_noted_nvrtcDestroyProgram(nvrtcProgram *prog);
void gantry_hand_nvrtcCompileProgram(struct gantry_call *call, nvrtcProgram prog, int noptions,
				     const char *const *options);

struct program {
	struct program *next;
	uint64_t number;
	uint32_t nusers; /* the list, and whoever compiles it */
	uint32_t nheaders;
	char *source;
	char **texts; /* headers, then their names */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct program *programs;

/* A child has no session, and none of the threads that may have had the lock. */
static void in_child(void)
{
	(void)pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
	(void)pthread_atfork(NULL, NULL, in_child); /* or a child may hang */
}

static void put_locked(struct program *p)
{
	if (--p->nusers > 0)
		return;
	for (uint32_t i = 0; p->texts && i < 2 * p->nheaders; i++)
		free(p->texts[i]);
	free(p->texts);
	free(p->source);
	free(p);
}

static void forget_locked(uint64_t number)
{
	struct program **at = &programs, *p;

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	p = *at;
	if (!p)
		return;
	*at = p->next;
	put_locked(p);
}

static struct program *take(uint64_t number)
{
	struct program *p;

	(void)pthread_mutex_lock(&lock);
	for (p = programs; p && p->number != number; p = p->next)
		;
	if (p)
		p->nusers++;
	(void)pthread_mutex_unlock(&lock);
	return p;
}

/* NULL: no memory. The program is compiled without files then. */
static struct program *copy(uint64_t number, const char *src, uint32_t nheaders,
			    const char *const *headers, const char *const *names)
{
	struct program *p = calloc(1, sizeof(*p));
	bool is_whole;

	if (!p)
		return NULL;
	p->number = number;
	p->nusers = 1;
	p->nheaders = nheaders;
	p->source = strdup(src);
	p->texts = calloc(2 * (size_t)nheaders + 1, sizeof(*p->texts));
	is_whole = p->source && p->texts;
	for (uint32_t i = 0; i < nheaders && is_whole; i++) {
		p->texts[i] = headers[i] ? strdup(headers[i]) : NULL;
		p->texts[nheaders + i] = names[i] ? strdup(names[i]) : NULL;
		is_whole = p->texts[i] && p->texts[nheaders + i];
	}
	if (is_whole)
		return p;
	put_locked(p); /* nobody else has it */
	return NULL;
}

void gantry_hand_noted_nvrtcCreateProgram(nvrtcProgram *prog, const char *src, const char *name,
					  int nheaders, const char *const *headers,
					  const char *const *names)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t number = (uint64_t)(uintptr_t)*prog;
	bool is_whole = src && nheaders >= 0 && (nheaders == 0 || (headers && names));
	struct program *p = is_whole ? copy(number, src, (uint32_t)nheaders, headers, names) : NULL;

	(void)name;
	(void)pthread_once(&once, watch_forks);
	(void)pthread_mutex_lock(&lock);
	forget_locked(number); /* of a session that has ended */
	if (p) {
		p->next = programs;
		programs = p;
	}
	(void)pthread_mutex_unlock(&lock);
}

void gantry_hand_noted_nvrtcDestroyProgram(nvrtcProgram *prog)
{
	(void)pthread_mutex_lock(&lock);
	forget_locked((uint64_t)(uintptr_t)*prog);
	(void)pthread_mutex_unlock(&lock);
}

static bool are_options(int noptions, const char *const *options)
{
	bool are = noptions > 0 && options;

	for (int i = 0; are && i < noptions; i++)
		are = options[i] != NULL;
	return are;
}

static void put_plain(struct gantry_call *call, int noptions, const char *const *options)
{
	gantry_call_strings(call, options, noptions);
	gantry_call_string(call, NULL);
}

static void put_with_files(struct gantry_call *call, int noptions,
			   const struct gantry_includes *set)
{
	gantry_call_strings(call, set->options, noptions);
	gantry_call_string(call, set->source);
	gantry_call_put(call, &set->nheaders, sizeof(set->nheaders));
	gantry_call_strings(call, set->headers, set->nheaders);
	gantry_call_strings(call, set->names, set->nheaders);
}

void gantry_hand_nvrtcCompileProgram(struct gantry_call *call, nvrtcProgram prog, int noptions,
				     const char *const *options)
{
	uint64_t number = (uint64_t)(uintptr_t)prog;
	struct program *p = are_options(noptions, options) ? take(number) : NULL;
	struct gantry_includes set = { 0 };
	int r = 0;

	/* Programs decide by what it returns, and it is no part of what streams do. */
	call->waits = true;
	call->flags |= GANTRY_CALL_APART;
	gantry_call_put(call, &noptions, sizeof(noptions));
	gantry_call_handle(call, number, 0);
	if (p) {
		const struct gantry_includes_given given = {
			.source = p->source,
			.nheaders = p->nheaders,
			.headers = (const char *const *)p->texts,
			.names = (const char *const *)p->texts + p->nheaders,
			.noptions = (uint32_t)noptions,
			.options = options,
		};

		r = gantry_includes_follow(&given, &set);
	}
	if (r == 1)
		put_with_files(call, noptions, &set);
	else
		put_plain(call, noptions,
			  options); /* without memory the compiler says what is not there */
	gantry_includes_fini(&set);
	if (p) {
		(void)pthread_mutex_lock(&lock);
		put_locked(p);
		(void)pthread_mutex_unlock(&lock);
	}
}
