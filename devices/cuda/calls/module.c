/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The installed module "calls": its one kernel takes a library call out of a buffer and puts the answer there.
 *
 * Unlike other host functions this one may wait for the device: the vendor's libraries do, where they answer a result
 * into host memory. It holds up the device thread of its worker, so it is the session's own affair where workers are
 * isolated, and that of its trust group where they are pooled.
 *
 * One table of objects for each device of the worker, as a library's objects belong to a context: sessions that share
 * a worker share addresses too, and one that guesses another's number may use its object.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"
#include "devices/cuda/calls/run.h"
#include "devices/cuda/module.h"

/* Generated of list.c.in; NULL at the end. */
extern const struct gantry_calls_library *const gantry_calls_libraries[];

#define EXPORT __attribute__((visibility("default")))

/* Functions that are kept at hand, and where one may lie. */
#define SYMBOLS 4096u
#define TRIES	16u

struct place {
	struct gantry_env *env;
	const struct gantry_cuda_calls *calls;
};

static void *load(const struct place *place, const struct gantry_calls_library *library)
{
	/* What it needs it does not find itself where the folder is not the system's. */
	for (const char *const *need = library->needs; *need; need++)
		(void)place->calls->library(place->env,
					    *need); /* then the library itself says so */
	return place->calls->library(place->env, library->soname);
}

/*
 * What was found is kept, by the name's address: generated code has one for each use. What is missing is looked for again. To look
 * for it takes longer than most calls, and where the folder lacks a library, some calls of the system.
 */
static struct known {
	const char *name;
	void *symbol;
} known[SYMBOLS];
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *known_at_locked(const char *name)
{
	uint32_t at = (uint32_t)((uintptr_t)name * 0x9e3779b97f4a7c15ull >> 32);

	for (uint32_t i = 0; i < TRIES; i++) {
		struct known *one = &known[(at + i) % SYMBOLS];

		if (!one->name || one->name == name)
			return one;
	}
	return NULL;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	struct known *one;
	void *symbol = NULL, *loaded;

	(void)pthread_mutex_lock(&known_lock);
	one = known_at_locked(name);
	if (one && one->name)
		symbol = one->symbol;
	(void)pthread_mutex_unlock(&known_lock);
	if (symbol)
		return symbol;
	loaded = load(cookie, library);
	symbol = loaded ? dlsym(loaded, name) : NULL;
	(void)pthread_mutex_lock(&known_lock);
	one = symbol ? known_at_locked(name) : NULL;
	if (one && !one->name)
		*one = (struct known){ name, symbol };
	(void)pthread_mutex_unlock(&known_lock);
	return symbol;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	const struct place *place = cookie;

	(void)stream;
	return place->calls->reaches(place->env, address);
}

/* One for each device that calls were made on; they stay, as the libraries do. */
struct site {
	struct site *next;
	const void *device;
	struct gantry_calls_site site;
};

/* Of the device of this run: used by its device thread only. NULL: no memory. */
static struct gantry_calls_site *site_of(const struct gantry_cuda_calls *calls)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct site *sites;
	struct site *site;

	pthread_mutex_lock(&lock);
	for (site = sites; site; site = site->next)
		if (site->device == calls->device)
			break;
	if (!site) {
		site = calloc(1, sizeof(*site));
		if (site) {
			site->device = calls->device;
			site->site.symbol = find_symbol;
			site->site.reaches = reaches;
			gantry_calls_table_init(&site->site.table);
			site->next = sites;
			sites = site;
		}
	}
	pthread_mutex_unlock(&lock);
	return site ? &site->site : NULL;
}

/* Where the reply goes: over the request, unless that is to stay. */
static uint64_t reply_at(const void *request, uint64_t bytes)
{
	struct gantry_calls_request head;

	if (bytes < sizeof(head))
		return 0;
	memcpy(&head, request, sizeof(head));
	/* What is no request says nothing about its reply. */
	return head.version == GANTRY_CALLS_VERSION && head.flags == GANTRY_CALLS_KEEPS
		       ? (bytes + 7) & ~7ull
		       : 0;
}

/* The header's last word comes last: who looks at it need not wait for the device. */
static void tell(uint8_t *to, const struct gantry_pack *reply)
{
	struct gantry_calls_reply header;

	memcpy(&header, reply->bytes, sizeof(header));
	header.told = 0;
	memcpy(to + sizeof(header), reply->bytes + sizeof(header), reply->len - sizeof(header));
	memcpy(to, &header, sizeof(header));
	/* Release: pairs with the acquire in is_told() of the guest; the reply comes first. */
	gantry_store_release((uint32_t *)(void *)(to + offsetof(struct gantry_calls_reply, told)),
			     GANTRY_CALLS_TOLD);
}

static int answer(struct gantry_env *env, const struct gantry_cuda_calls *calls, uint8_t *box,
		  uint64_t room, uint64_t bytes)
{
	struct gantry_calls_site *site = site_of(calls);
	_cleanup_free_ void *request = malloc(bytes ? bytes : 1);
	struct place place = { env, calls };
	struct gantry_pack reply;
	uint64_t at;
	int r = 0;

	if (!request || !site)
		return -ENOMEM;
	memcpy(request, box, bytes);
	site->cookie = &place;
	gantry_pack_init(&reply, GANTRY_CALLS_MAX_BYTES + sizeof(struct gantry_calls_reply));
	gantry_calls_serve(site, gantry_calls_libraries, env->stream, request, bytes, &reply);
	at = reply_at(request, bytes);
	if (reply.failed || !gantry_range_inside(at, reply.len, room))
		r = -ENOMEM;
	else
		tell(box + at, &reply);
	gantry_pack_fini(&reply);
	return r;
}

EXPORT int gantry_kernel_library_call(struct gantry_env *env, const struct gantry_call *call);

int gantry_kernel_library_call(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_span *span = &call->args[0].span;
	const struct gantry_cuda_calls *calls = env->handle(env, "cuda");
	uint64_t bytes = call->args[1].u64;
	uint8_t *box;

	if (!calls || calls->size < sizeof(*calls) || !span->ptr || bytes > span->len_bytes ||
	    bytes > GANTRY_CALLS_MAX_BYTES || span->len_bytes < sizeof(struct gantry_calls_reply))
		return -EINVAL;
	box = calls->host(env, span->ptr, span->len_bytes);
	/* The words of a header are written as words. */
	if (!box || (uintptr_t)box % sizeof(uint64_t) != 0)
		return -EINVAL;
	return answer(env, calls, box, span->len_bytes, bytes);
}

EXPORT const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
};
