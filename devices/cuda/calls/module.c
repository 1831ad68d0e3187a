/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The installed module "calls": its kernel, which has two names (proto/calls.h), takes a library call out of a buffer, behind others perhaps, and
 * puts the answer there.
 *
 * It runs aside (devices/cuda/module.h) but for functions that were quick so far: libraries compile, and wait for the device where they answer a result into host
 * memory, and that holds up nobody but calls of the same session on the same device.
 *
 * One table of objects for each session and device: a number of another session's is no number. At a session's end its
 * objects are ended by their libraries.
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
#include "devices/cuda/calls/batch.h"
#include "devices/cuda/calls/nvrtc.h"
#include "devices/cuda/calls/quick.h"
#include "devices/cuda/calls/recipe.h"
#include "devices/cuda/module.h"
#include "devices/hosts.h"

/* Generated of list.c.in; NULL at the end. */
extern const struct gantry_calls_library *const gantry_calls_libraries[];

#define EXPORT __attribute__((visibility("default")))

/* What takes no memory of its own. */
#define SMALL_REQUESTS 4096u
#define SMALL_REPLY    1024u
#define QUICK_BYTES    (64u << 10) /* larger requests take their time, whatever they ask */
#define SYMBOLS	       512u	   /* of a site, by where their names lie; a power of two */

/* Libraries that a site keeps at hand; more are looked up each time. */
#define LIBRARIES_MAX 16u

static struct gantry_quick known;

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
	struct gantry_recipes recipes;
	struct gantry_calls_rtc rtc;
	uint32_t looked; /* atomic; what was kept for the session has been looked at */
	struct {
		const struct gantry_calls_library *library;
		void *loaded;
	} loaded[LIBRARIES_MAX];
	/* The generated code's names lie where they lie. Only what was found is kept. */
	struct {
		const char *name;
		void *function;
	} symbols[SYMBOLS];
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

/*
 * A process of communicators says by its environment what host it is of, in words that the worker has made room for
 * (host-agent/worker/communicators.h). Parts of one GPU are hosts of their own to NCCL, which has no two ranks of a host on one GPU;
 * the same parts of several GPUs are of one, and use what links those. Once, before NCCL first asks.
 */
static void be_of_a_host(uint32_t part)
{
	static bool done;
	char *host = gantry_communicators_host();
	size_t len = strlen(GANTRY_COMMUNICATORS_HOST);

	if (done || !host)
		return;
	done = true;
	for (size_t i = strlen(host); i-- > len; part /= 10)
		host[i] = (char)('0' + part % 10);
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	const struct place *place = cookie;
	uint32_t i = (uint32_t)((uintptr_t)name * 0x9e3779b1u >> 8) & (SYMBOLS - 1);
	void *found;

	if (place->site->symbols[i].name == name)
		return place->site->symbols[i].function;
	found = strcmp(library->name, "nvrtc") == 0 ? gantry_calls_rtc_symbol(name) : NULL;
	if (!found) {
		found = loaded(place->site, place->env ? place : NULL, library);
		found = found ? dlsym(found, name) : NULL;
	}
	if (found && place->env && strcmp(library->name, "nccl") == 0 &&
	    strstr(name, "ncclCommInit")) {
		pthread_mutex_lock(&lock);
		be_of_a_host(place->calls->part);
		pthread_mutex_unlock(&lock);
	}
	if (found) {
		place->site->symbols[i].name = name;
		place->site->symbols[i].function = found;
	}
	return found;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	const struct place *place = cookie;

	(void)stream;
	return place->calls->reaches(place->env, address);
}

static int32_t device_of(void *cookie)
{
	const struct place *place = cookie;

	return place->calls->ordinal;
}

static int compile(void *cookie, const void *text, uint64_t bytes, void **ret_made,
		   uint64_t *ret_bytes)
{
	const struct place *place = cookie;
	const struct gantry_cuda_calls *calls = place->calls;

	if (calls->size < offsetof(struct gantry_cuda_calls, compile) + sizeof(calls->compile))
		return -EOPNOTSUPP;
	return calls->compile(place->env, text, bytes, ret_made, ret_bytes);
}

static int settle(void *cookie)
{
	const struct place *place = cookie;

	return place->calls->settle(place->env);
}

/* @lock is held. NULL: there is none. */
static struct site *find_site_locked(uint64_t owner)
{
	struct site *site = sites;

	while (site && site->owner != owner)
		site = site->next;
	return site;
}

/* Used by the owner's thread only. NULL: no memory. */
static struct site *site_of(uint64_t owner)
{
	struct site *site;

	pthread_mutex_lock(&lock);
	site = find_site_locked(owner);
	if (!site) {
		site = calloc(1, sizeof(*site));
		if (site) {
			site->owner = owner;
			site->site.symbol = find_symbol;
			site->site.reaches = reaches;
			site->site.device = device_of;
			site->site.settle = settle;
			site->rtc.compile = compile;
			gantry_calls_table_init(&site->site.table);
			site->next = sites;
			sites = site;
		}
	}
	pthread_mutex_unlock(&lock);
	return site;
}

/* Until then the owner's first call makes all that was kept, which takes as long as it takes. Any thread. */
static bool has_looked(uint64_t owner)
{
	const struct site *site;
	bool looked;

	pthread_mutex_lock(&lock);
	site = find_site_locked(owner);
	/* Acquire: pairs with the release in inherit(). */
	looked = site && gantry_load_acquire(&site->looked);
	pthread_mutex_unlock(&lock);
	return looked;
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
	gantry_calls_rtc_here(&site->rtc);
	if (lost)
		gantry_calls_table_fini(&site->site.table);
	else
		gantry_calls_end(&site->site, gantry_calls_libraries);
	gantry_calls_rtc_here(NULL);
	free(site);
}

/* ---- what the session had elsewhere ---- */

struct remaking {
	struct site *site;
	void *stream;
	uint32_t nfailed;
};

/* Goes on where one fails: the others are of use. */
static bool remake(void *arg, const uint32_t *subjects, uint32_t nsubjects, const void *request,
		   size_t bytes)
{
	struct remaking *r = arg;

	r->nfailed += !gantry_calls_remake(&r->site->site, gantry_calls_libraries, r->stream,
					   subjects, nsubjects, request, bytes);
	return true;
}

static void make_again(struct site *site, void *stream)
{
	struct remaking r = { .site = site, .stream = stream };

	if (gantry_load_acquire(&site->recipes.head->barred)) {
		gantry_recipes_clear(&site->recipes);
		return;
	}
	if (!gantry_recipes_each(&site->recipes, remake, &r) || r.nfailed)
		gantry_recipes_bar(&site->recipes,
				   "a call that did not succeed when it was made again");
	gantry_calls_table_settle(&site->site.table);
}

/*
 * On the thread of its calls, before the first on this device. Where not all can be made anew the session begins without any.
 * Other memory than before: the device has another number for the session, and what was here is its old number's.
 */
static void inherit(struct site *site, const struct gantry_cuda_calls *calls, void *stream)
{
	bool looked = gantry_load_relaxed(&site->looked);

	if (calls->size <
		    offsetof(struct gantry_cuda_calls, keep_cookie) + sizeof(calls->keep_cookie) ||
	    (looked && calls->keep == (void *)site->recipes.head)) {
		gantry_store_release(&site->looked, 1u);
		return;
	}
	if (looked && site->recipes.head) {
		gantry_calls_end(&site->site, gantry_calls_libraries);
		gantry_calls_table_init(&site->site.table);
		looked = false;
	}
	site->site.recipes = NULL; /* nothing is written down while it is made again */
	gantry_recipes_init(&site->recipes, calls->keep, calls->keep_bytes, calls->keep_reserve,
			    calls->keep_cookie);
	if (site->recipes.head) {
		gantry_recipes_take_over(&site->recipes);
		if (looked)
			gantry_recipes_bar(&site->recipes,
					   "libraries before there was where to write that down");
		else
			make_again(site, stream);
		site->site.recipes = &site->recipes;
	}
	/* Release: has_looked() on another thread. */
	gantry_store_release(&site->looked, 1u);
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

/* Nobody reads what a node of a graph returned: its task fails instead. Functions with a stream return a status, 0 for success. */
static bool failed_in_graph(const void *request, uint64_t bytes, const struct gantry_pack *reply)
{
	struct gantry_calls_request head;
	struct gantry_calls_reply said;

	if (bytes < sizeof(head))
		return false;
	memcpy(&head, request, sizeof(head));
	memcpy(&said, reply->bytes, sizeof(said));
	return head.version == GANTRY_CALLS_VERSION && head.flags == GANTRY_CALLS_KEEPS &&
	       (said.state != GANTRY_CALLS_RAN || said.ret != 0);
}

/*
 * The functions that quick() has let this thread run next; the guest may write other ones' numbers there before the request is
 * copied. None: any.
 */
static _Thread_local struct {
	uint32_t n;
	uint64_t functions[GANTRY_CALLS_TOGETHER];
} only;

static bool asks_for_only(const void *request, uint64_t bytes)
{
	uint64_t functions[GANTRY_CALLS_TOGETHER];
	uint32_t n = gantry_calls_functions(request, bytes, functions);

	return n == only.n && memcmp(functions, only.functions, n * sizeof(functions[0])) == 0;
}

static int answer(struct gantry_env *env, const struct gantry_cuda_calls *calls, uint8_t *box,
		  uint64_t room, uint64_t bytes)
{
	struct site *site = site_of(calls->owner);
	_Alignas(GANTRY_CALLS_ALIGNMENT) uint8_t small[SMALL_REQUESTS], said[SMALL_REPLY];
	_cleanup_free_ void *large = bytes > sizeof(small) ? malloc(bytes) : NULL;
	void *request = bytes > sizeof(small) ? large : small;
	struct place place = { env, calls, site };
	struct gantry_pack reply;
	bool fits = true;
	uint64_t at;
	int r = 0;

	if (request) {
		memcpy(request, box, bytes);
		fits = only.n == 0 || asks_for_only(request, bytes);
	}
	only.n = 0;
	if (!request || !site)
		return -ENOMEM;
	if (!fits)
		return -EINVAL;
	site->site.cookie = site->rtc.cookie = &place;
	gantry_calls_rtc_here(&site->rtc);
	inherit(site, calls, env->stream);
	gantry_pack_init_in(&reply, said, sizeof(said),
			    GANTRY_CALLS_MAX_BYTES + sizeof(struct gantry_calls_reply));
	at = reply_at(request, bytes);
	(void)gantry_calls_serve_all(&site->site, gantry_calls_libraries, env->stream, request,
				     bytes, &known, &reply);
	if (reply.failed || !gantry_range_inside(at, reply.len, room))
		r = -ENOMEM;
	else
		tell(box + at, &reply);
	if (r == 0 && failed_in_graph(request, bytes, &reply))
		r = -EIO;
	gantry_pack_fini(&reply);
	return r;
}

/* The thread is the device's, and whoever waits for the device's lane waits for it. */
static bool quick(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_span *span = &call->args[0].span;
	const struct gantry_cuda_calls *calls = env->handle(env, "cuda");
	uint64_t bytes = call->args[1].u64;
	uint32_t n;
	void *box;

	if (!span->ptr || span->len_bytes < bytes || bytes > QUICK_BYTES ||
	    !has_looked(calls->owner))
		return false;
	box = calls->host(env, span->ptr, bytes);
	n = box ? gantry_calls_functions(box, bytes, only.functions) : 0;
	for (uint32_t i = 0; i < n; i++)
		if (!gantry_quick_is(&known, only.functions[i]))
			return false;
	only.n = n;
	return n > 0;
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

EXPORT int gantry_kernel_library_calls(struct gantry_env *env, const struct gantry_call *call);

/* By its second name the guest knows that there may be several in a task. */
int gantry_kernel_library_calls(struct gantry_env *env, const struct gantry_call *call)
{
	return gantry_kernel_library_call(env, call);
}

EXPORT const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.flags = GANTRY_CUDA_ASIDE,
	.quick = quick,
	.left = left,
};
