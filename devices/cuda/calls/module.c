/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The installed module "calls": its one kernel takes a library call out of a buffer and puts the answer there.
 *
 * It runs aside (devices/cuda/module.h): libraries compile, and wait for the device where they answer a result into host
 * memory, and that holds up nobody but calls of the same session on the same device.
 *
 * One table of objects for each session and device: a number of another session's is no number. At a session's end its
 * objects are ended by their libraries.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "devices/cuda/calls/run.h"
#include "devices/cuda/module.h"

/* Generated of list.c.in; NULL at the end. */
extern const struct gantry_calls_library *const gantry_calls_libraries[];

#define EXPORT __attribute__((visibility("default")))

/* Libraries that a site keeps at hand; more are looked up each time. */
#define LIBRARIES_MAX 16u

/* Whose call runs; at a session's end there is no run. */
struct place {
	struct gantry_env *env;
	const struct gantry_cuda_calls *calls;
	struct site *site;
};

/* One for each session on a device. */
struct site {
	struct site *next;
	uint64_t owner;
	struct gantry_calls_site site;
	struct {
		const struct gantry_calls_library *library;
		void *loaded;
	} loaded[LIBRARIES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct site *sites;

static void *load(const struct place *place, const struct gantry_calls_library *library)
{
	/* What it needs it does not find itself where the folder is not the system's. */
	for (const char *const *need = library->needs; *need; need++)
		(void)place->calls->library(place->env,
					    *need); /* then the library itself says so */
	return place->calls->library(place->env, library->soname);
}

/* A library that this site has loaded; NULL: there is none, or nobody to load it. */
static void *loaded(struct site *site, const struct place *place,
		    const struct gantry_calls_library *library)
{
	for (uint32_t i = 0; i < LIBRARIES_MAX; i++) {
		if (!site->loaded[i].library && place) {
			site->loaded[i].loaded = load(place, library);
			if (site->loaded[i].loaded)
				site->loaded[i].library = library;
			return site->loaded[i].loaded;
		}
		if (site->loaded[i].library == library)
			return site->loaded[i].loaded;
	}
	return place ? load(place, library) : NULL;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	const struct place *place = cookie;
	void *found = loaded(place->site, place->env ? place : NULL, library);

	return found ? dlsym(found, name) : NULL;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	const struct place *place = cookie;

	(void)stream;
	return place->calls->reaches(place->env, address);
}

/* Used by the owner's thread only. NULL: no memory. */
static struct site *site_of(uint64_t owner)
{
	struct site *site;

	pthread_mutex_lock(&lock);
	for (site = sites; site; site = site->next)
		if (site->owner == owner)
			break;
	if (!site) {
		site = calloc(1, sizeof(*site));
		if (site) {
			site->owner = owner;
			site->site.symbol = find_symbol;
			site->site.reaches = reaches;
			gantry_calls_table_init(&site->site.table);
			site->next = sites;
			sites = site;
		}
	}
	pthread_mutex_unlock(&lock);
	return site;
}

static struct site *site_remove(uint64_t owner)
{
	struct site *site;

	pthread_mutex_lock(&lock);
	for (struct site **at = &sites; (site = *at) != NULL; at = &site->next)
		if (site->owner == owner) {
			*at = site->next;
			break;
		}
	pthread_mutex_unlock(&lock);
	return site;
}

static void left(uint64_t owner, bool lost)
{
	struct site *site = site_remove(owner);
	struct place place = { .site = site };

	if (!site)
		return;
	site->site.cookie = &place;
	if (lost)
		gantry_calls_table_fini(&site->site.table);
	else
		gantry_calls_end(&site->site, gantry_calls_libraries);
	free(site);
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

static int answer(struct gantry_env *env, const struct gantry_cuda_calls *calls, uint8_t *box,
		  uint64_t room, uint64_t bytes)
{
	struct site *site = site_of(calls->owner);
	_cleanup_free_ void *request = malloc(bytes ? bytes : 1);
	struct place place = { env, calls, site };
	struct gantry_pack reply;
	uint64_t at;
	int r = 0;

	if (!request || !site)
		return -ENOMEM;
	memcpy(request, box, bytes);
	site->site.cookie = &place;
	gantry_pack_init(&reply, GANTRY_CALLS_MAX_BYTES + sizeof(struct gantry_calls_reply));
	gantry_calls_serve(&site->site, gantry_calls_libraries, env->stream, request, bytes,
			   &reply);
	at = reply_at(request, bytes);
	if (reply.failed || !gantry_range_inside(at, reply.len, room))
		r = -ENOMEM;
	else
		memcpy(box + at, reply.bytes, reply.len);
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
	return box ? answer(env, calls, box, span->len_bytes, bytes) : -EINVAL;
}

EXPORT const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.flags = GANTRY_CUDA_ASIDE,
	.left = left,
};
