/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host functions that may take long (GANTRY_CUDA_ASIDE): each runs on a thread of the session that submitted it, so that
 * the device thread, and with it all other sessions and streams, goes on.
 *
 * A stream has one at a time. Until it has returned the stream takes nothing more and closes no batch, so what it
 * enqueued lies between what was submitted before and what comes after. It cannot wait for ever for what is before it:
 * that has been sent to the device when it begins. Those of one session run one after the other, in the order they were
 * submitted, whatever their streams. Where the device thread is theirs alone, those of which the module knows that they are quick
 * run on it, when none of the session's is at work elsewhere: to hand one over takes longer than it.
 *
 * While one runs nothing of its stream is on the device, perhaps; so the device's time is not counted for it, and the
 * core hears of it when it takes longer than TELL_NS.
 *
 * Threads: a gantry_cuda_aside belongs to the device thread until it is posted, to the owner's thread until its state is
 * RAN, and to the device thread again. What that thread may look at besides are constants of the device and the ranges
 * that the device thread wrote down for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/spin.h"
#include "base/str.h"
#include "devices/cuda/backend.h"
#include "devices/keep.h"

/* One that takes longer is told of. */
#define TELL_NS GANTRY_NS_PER_MS
/* An owner's thread that has nothing to do looks for so long before it sleeps. */
#define SPIN_NS	    50000u
#define MODULES_MAX 4u

enum state {
	IDLE = 0,
	RUNNING = 1, /* posted */
	RAN = 2,
};

/* Memory of the device as it was when somebody asked. @nrefs is the device thread's. */
struct gantry_cuda_reach {
	uint32_t nrefs;
	uint32_t n;
	struct {
		CUdeviceptr address;
		uint64_t len;
		unsigned char *base; /* of host memory; else NULL */
	} ranges[];		     /* by address */
};

struct gantry_cuda_aside {
	struct gantry_list link; /* gantry_cuda_owner.waiting */
	struct gantry_dev *dev;
	struct gantry_cuda_owner *owner; /* while it runs */
	uint32_t state;			 /* enum state; release and acquire */
	uint32_t position;		 /* of its command in the stream */
	bool is_told;
	uint64_t began; /* cycles */
	uint64_t tag;
	gantry_body *body;
	const struct gantry_cuda_module *module; /* whose body it is */
	struct gantry_cuda_reach *reach;
	int (*compile)(void *cookie, const void *text, size_t nbytes, void **ret_made,
		       size_t *ret_nbytes); /* gantry_stream_attr's */
	void *compile_cookie;
	struct gantry_env env;
	struct gantry_cuda_calls calls;
	struct gantry_call call;
	union gantry_value args[GANTRY_MAX_CMD_ARGS];
	int result;
};

struct gantry_cuda_owner {
	struct gantry_list link; /* gantry_dev.owners */
	struct gantry_dev *dev;
	const void *who;
	uint64_t number; /* unique in the process */
	pthread_t thread;
	struct gantry_spin spin;
	uint32_t nflying;  /* the device thread's: posted, and not seen ended */
	uint32_t nposted;  /* atomic; to look at without the lock */
	uint32_t has_left; /* atomic: the thread does nothing more */
	pthread_mutex_t lock;
	pthread_cond_t more;
	/* Under the lock. */
	struct gantry_list waiting;
	bool leaves;
	bool runs;
	const struct gantry_cuda_module *modules[MODULES_MAX]; /* that have something of it */
};

/* ---- what the owner's thread may look at ---- */

static int by_address(const void *a, const void *b)
{
	CUdeviceptr left, right;

	memcpy(&left, a, sizeof(left));
	memcpy(&right, b, sizeof(right));
	return left < right ? -1 : left > right;
}

static void reach_drop(struct gantry_cuda_reach *reach)
{
	if (reach && --reach->nrefs == 0)
		free(reach);
}

void gantry_cuda_reach_changed(struct gantry_dev *dev)
{
	reach_drop(dev->reach);
	dev->reach = NULL;
}

/* Its memory as it is now, with a reference; NULL: no memory. */
static struct gantry_cuda_reach *reach_take(struct gantry_dev *dev)
{
	struct gantry_cuda_reach *reach;

	/* Acquire: the addresses were written before. */
	if (gantry_load_acquire(&dev->reach_is_old)) {
		gantry_store_relaxed(&dev->reach_is_old, 0u);
		gantry_cuda_reach_changed(dev);
	}
	reach = dev->reach;
	if (!reach) {
		size_t n = gantry_list_count(&dev->mems);

		reach = calloc(1, sizeof(*reach) + n * sizeof(reach->ranges[0]));
		if (!reach)
			return NULL;
		gantry_list_for_each(&dev->mems, struct gantry_mem, link, mem) {
			reach->ranges[reach->n].address = mem->address;
			reach->ranges[reach->n].len = mem->len;
			reach->ranges[reach->n++].base = mem->base;
		}
		qsort(reach->ranges, reach->n, sizeof(reach->ranges[0]), by_address);
		reach->nrefs = 1;
		dev->reach = reach;
	}
	reach->nrefs++;
	return reach;
}

/* The range that @address lies in: its index, or -1. */
static int64_t range_of(const struct gantry_cuda_reach *reach, uint64_t address)
{
	uint32_t low = 0, high = reach->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (reach->ranges[mid].address <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low > 0 && address - reach->ranges[low - 1].address < reach->ranges[low - 1].len
		       ? (int64_t)low - 1
		       : -1;
}

static struct gantry_cuda_aside *aside_of(struct gantry_env *env)
{
	return gantry_container_of(env, struct gantry_cuda_aside, env);
}

/* ---- struct gantry_env ---- */

static int env_cancelled(struct gantry_env *env)
{
	const struct gantry_cuda_aside *aside = aside_of(env);
	const struct gantry_device_host *host = aside->dev->host;

	return host->cancelled(host->cookie, aside->tag);
}

static void *env_scratch(struct gantry_env *env, size_t bytes)
{
	(void)env;
	(void)bytes;
	return NULL;
}

static void *env_handle(struct gantry_env *env, const char *library)
{
	return strcmp(library, "cuda") == 0 ? &aside_of(env)->calls : NULL;
}

/* ---- struct gantry_cuda_calls: there is no device code aside ---- */

static int no_launch(struct gantry_env *env, const struct gantry_cuda_launch *launch)
{
	(void)env;
	(void)launch;
	return -EINVAL;
}

static int no_set(struct gantry_env *env, void *dst, uint32_t value, uint32_t elem_bytes,
		  uint64_t count)
{
	(void)env;
	(void)dst;
	(void)value;
	(void)elem_bytes;
	(void)count;
	return -EINVAL;
}

static int no_copy(struct gantry_env *env, void *dst, const void *src, uint64_t bytes)
{
	(void)env;
	(void)dst;
	(void)src;
	(void)bytes;
	return -EINVAL;
}

static int no_occupancy(struct gantry_env *env, uint32_t function, uint32_t nthreads,
			uint32_t shared_bytes)
{
	(void)env;
	(void)function;
	(void)nthreads;
	(void)shared_bytes;
	return -EINVAL;
}

static struct gantry_cuda_verdict *no_verdict(struct gantry_env *env)
{
	(void)env;
	return NULL;
}

static void *call_host(struct gantry_env *env, void *ptr, uint64_t bytes)
{
	const struct gantry_cuda_reach *reach = aside_of(env)->reach;
	uint64_t address = (uintptr_t)ptr;
	int64_t i = range_of(reach, address);
	uint64_t off;

	if (i < 0 || !reach->ranges[i].base)
		return NULL;
	off = address - reach->ranges[i].address;
	return bytes <= reach->ranges[i].len - off ? reach->ranges[i].base + off : NULL;
}

static int call_reaches(struct gantry_env *env, uint64_t address)
{
	return range_of(aside_of(env)->reach, address) >= 0;
}

static void *call_library(struct gantry_env *env, const char *soname)
{
	return gantry_cuda_libraries_load(aside_of(env)->dev->libraries, soname);
}

static int call_settle(struct gantry_env *env)
{
	const struct gantry_cuda_aside *aside = aside_of(env);

	return aside->dev->driver->StreamSynchronize(env->stream) == CUDA_SUCCESS ? 0 : -EIO;
}

static int call_compile(struct gantry_env *env, const void *text, uint64_t bytes, void **ret_made,
			uint64_t *ret_bytes)
{
	const struct gantry_cuda_aside *aside = aside_of(env);
	size_t nbytes;
	int r = aside->compile
			? aside->compile(aside->compile_cookie, text, bytes, ret_made, &nbytes)
			: -EOPNOTSUPP;

	if (r == 0)
		*ret_bytes = nbytes;
	return r;
}

static struct gantry_cuda_aside *aside_new(struct gantry_stream *stream)
{
	struct gantry_cuda_aside *aside = calloc(1, sizeof(*aside));

	if (!aside)
		return NULL;
	aside->dev = stream->dev;
	aside->compile = stream->compile;
	aside->compile_cookie = stream->compile_cookie;
	gantry_list_init(&aside->link);
	aside->env = (struct gantry_env){
		.size = sizeof(aside->env),
		.abi = GANTRY_MODULE_ABI,
		.nlanes = 1,
		.parallel = stream->env.parallel,
		.cancelled = env_cancelled,
		.scratch = env_scratch,
		.handle = env_handle,
		.stream = stream->native,
	};
	aside->calls = (struct gantry_cuda_calls){
		.size = sizeof(aside->calls),
		.nunits = stream->dev->units,
		.launch = no_launch,
		.set = no_set,
		.copy = no_copy,
		.occupancy = no_occupancy,
		.verdict = no_verdict,
		.host = call_host,
		.reaches = call_reaches,
		.library = call_library,
		.device = stream->dev,
		.ordinal = stream->dev->device,
		.part = gantry_cuda_part(stream->dev),
		.settle = call_settle,
		.compile = call_compile,
	};
	aside->call.args = aside->args;
	return aside;
}

/* ---- an owner's thread ---- */

static struct gantry_cuda_aside *wait_for_work(struct gantry_cuda_owner *owner)
{
	struct gantry_list *link;

	gantry_spin_begin(&owner->spin);
	while (gantry_load_relaxed(&owner->nposted) == 0 && gantry_spin_again(&owner->spin))
		;
	gantry_spin_end(&owner->spin, gantry_load_relaxed(&owner->nposted) != 0);
	(void)pthread_mutex_lock(&owner->lock);
	owner->runs = false;
	while (gantry_list_is_empty(&owner->waiting) && !owner->leaves)
		(void)pthread_cond_wait(&owner->more, &owner->lock);
	link = gantry_list_pop_front(&owner->waiting);
	owner->runs = link != NULL;
	if (link)
		(void)gantry_fetch_sub(&owner->nposted, 1);
	(void)pthread_mutex_unlock(&owner->lock);
	return link ? gantry_list_entry(link, struct gantry_cuda_aside, link) : NULL;
}

static void *owner_main(void *arg)
{
	struct gantry_cuda_owner *owner = arg;
	struct gantry_dev *dev = owner->dev;
	struct gantry_cuda_aside *aside;

	/* Refused after a fault only: then the libraries' calls say so. */
	(void)dev->driver->CtxSetCurrent(dev->context);
	while ((aside = wait_for_work(owner)) != NULL) {
		aside->result = aside->body(&aside->env, &aside->call);
		/* Release: pairs with the acquire in gantry_cuda_aside_look(). */
		gantry_store_release(&aside->state, (uint32_t)RAN);
		dev->host->wake(dev->host->cookie);
	}
	for (uint32_t i = 0; i < MODULES_MAX && owner->modules[i]; i++)
		owner->modules[i]->left(owner->number, gantry_load_relaxed(&dev->fault) != 0);
	(void)dev->driver->CtxSetCurrent(NULL);
	gantry_store_release(&owner->has_left, 1u);
	return NULL;
}

static void owner_free(struct gantry_cuda_owner *owner)
{
	(void)pthread_join(owner->thread, NULL); /* ours, and not joined before */
	gantry_list_remove(&owner->link);
	(void)pthread_cond_destroy(&owner->more);
	(void)pthread_mutex_destroy(&owner->lock);
	free(owner);
}

/* Those that have done what was to be done at their end. */
static void reap(struct gantry_dev *dev)
{
	gantry_list_for_each_safe(&dev->owners, struct gantry_cuda_owner, link, owner)
		if (gantry_load_acquire(&owner->has_left))
			owner_free(owner);
}

static struct gantry_cuda_owner *owner_new(struct gantry_dev *dev, const void *who)
{
	static uint64_t last;
	struct gantry_cuda_owner *owner = calloc(1, sizeof(*owner));

	if (!owner)
		return NULL;
	owner->dev = dev;
	owner->who = who;
	owner->number = gantry_fetch_add(&last, 1) + 1;
	gantry_list_init(&owner->waiting);
	gantry_spin_init(&owner->spin, SPIN_NS, 0);
	(void)pthread_mutex_init(&owner->lock, NULL); /* default attributes cannot fail */
	(void)pthread_cond_init(&owner->more, NULL);
	if (pthread_create(&owner->thread, NULL, owner_main, owner) != 0) {
		(void)pthread_cond_destroy(&owner->more);
		(void)pthread_mutex_destroy(&owner->lock);
		free(owner);
		return NULL;
	}
	gantry_list_push_back(&dev->owners, &owner->link);
	return owner;
}

static struct gantry_cuda_owner *owner_find(struct gantry_dev *dev, const void *who)
{
	/* @leaves is written by this thread alone. */
	gantry_list_for_each(&dev->owners, struct gantry_cuda_owner, link, owner)
		if (owner->who == who && !owner->leaves)
			return owner;
	return NULL;
}

static void leave(struct gantry_cuda_owner *owner)
{
	(void)pthread_mutex_lock(&owner->lock);
	owner->leaves = true;
	(void)pthread_cond_signal(&owner->more);
	(void)pthread_mutex_unlock(&owner->lock);
}

/* Its modules are told of its end, where they want to be; false: it has too many. */
static bool note_module_locked(struct gantry_cuda_owner *owner,
			       const struct gantry_cuda_module *module)
{
	for (uint32_t i = 0; i < MODULES_MAX; i++) {
		if (!owner->modules[i])
			owner->modules[i] = module;
		if (owner->modules[i] == module)
			return true;
	}
	return false;
}

/* ---- the device thread's ---- */

static int post(struct gantry_cuda_owner *owner, struct gantry_cuda_aside *aside,
		const struct gantry_cuda_module *module)
{
	int r = 0;

	(void)pthread_mutex_lock(&owner->lock);
	if (module->left && !note_module_locked(owner, module))
		r = -ENOMEM;
	if (r == 0) {
		gantry_list_push_back(&owner->waiting, &aside->link);
		(void)gantry_fetch_add(&owner->nposted, 1);
		(void)pthread_cond_signal(&owner->more);
	}
	(void)pthread_mutex_unlock(&owner->lock);
	return r;
}

bool gantry_cuda_aside_is_busy(const struct gantry_stream *stream)
{
	return stream->aside && gantry_load_relaxed(&stream->aside->state) != IDLE;
}

/* Nothing of the owner's is at work: what its modules keep may be looked at here. */
static bool may_run_here(const struct gantry_stream *stream, const struct gantry_cuda_owner *owner,
			 const struct gantry_cuda_module *module)
{
	const struct gantry_cuda_aside *aside = stream->aside;

	return stream->is_alone && owner->nflying == 0 && module->quick &&
	       module->quick((struct gantry_env *)(uintptr_t)&aside->env, &aside->call);
}

static struct gantry_cuda_owner *owner_get(struct gantry_dev *dev, const void *who)
{
	struct gantry_cuda_owner *owner = owner_find(dev, who);

	if (owner)
		return owner;
	reap(dev);
	return owner_new(dev, who);
}

static int take(struct gantry_stream *stream, struct gantry_cuda_aside *aside,
		const struct gantry_cmd_launch *launch, uint64_t tag)
{
	int r = gantry_cuda_body_args(stream, launch, aside->args);

	if (r < 0)
		return r;
	aside->reach = reach_take(stream->dev);
	if (!aside->reach)
		return -ENOMEM;
	memcpy(aside->call.grid, launch->grid, sizeof(aside->call.grid));
	memcpy(aside->call.block, launch->block, sizeof(aside->call.block));
	aside->call.nargs = launch->nargs;
	aside->body = launch->kernel->body;
	aside->module = launch->kernel->image->installed;
	aside->tag = tag;
	aside->position = stream->submitted;
	return 0;
}

/*
 * A module that has things of the session's, and of which nothing was written down: it is of before modules did, and on another device, or in
 * another worker, the session would lose them without a word.
 */
static void see_kept(const struct gantry_cuda_aside *aside)
{
	const struct gantry_cuda_module *module = aside->module;
	struct gantry_keep_head *head = aside->calls.keep;

	if (!head || !module->left || gantry_load_relaxed(&head->writer) ||
	    gantry_load_relaxed(&head->barred))
		return;
	(void)gantry_str_copy(head->why, sizeof(head->why),
			      "an installed module that writes nothing down"); /* fits */
	/* Release: the sentence is there. */
	gantry_store_release(&head->barred, 1u);
}

static void take_back(struct gantry_cuda_aside *aside)
{
	reach_drop(aside->reach);
	aside->reach = NULL;
}

static int keep_reserve(const void *keep_cookie, uint64_t off, uint64_t bytes)
{
	const struct gantry_keep *keep = keep_cookie;

	return keep->reserve(keep, off, bytes);
}

int gantry_cuda_aside_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  uint64_t tag, int *ret_result)
{
	const struct gantry_cuda_module *module = launch->kernel->image->installed;
	struct gantry_cuda_aside *aside = stream->aside ? stream->aside : aside_new(stream);
	struct gantry_cuda_owner *owner = owner_get(stream->dev, stream->owner);
	int r;

	stream->aside = aside;
	if (!aside || !owner)
		return -ENOMEM;
	r = take(stream, aside, launch, tag);
	if (r < 0)
		return r;
	aside->owner = owner;
	aside->calls.owner = owner->number;
	if (stream->keep) {
		/* Acquire: the memory is there. */
		aside->calls.keep = gantry_load_acquire(&stream->keep->base);
		aside->calls.keep_bytes = stream->keep->bytes;
		aside->calls.keep_reserve = keep_reserve;
		aside->calls.keep_cookie = stream->keep;
	}
	if (may_run_here(stream, owner, module)) {
		*ret_result = aside->body(&aside->env, &aside->call);
		see_kept(aside);
		take_back(aside);
		return 1;
	}
	/* What comes before is to be seen finished while this takes its time. */
	gantry_cuda_close_batch(stream);
	aside->began = gantry_cycles();
	aside->is_told = false;
	gantry_store_relaxed(&aside->state, (uint32_t)RUNNING);
	r = post(owner, aside, module);
	if (r < 0) {
		gantry_store_relaxed(&aside->state, (uint32_t)IDLE);
		take_back(aside);
		return r;
	}
	owner->nflying++;
	return 0;
}

/* The core is told once that it takes long, and then that it has ended. */
static void tell(struct gantry_cuda_aside *aside, bool off)
{
	const struct gantry_device_host *host = aside->dev->host;

	if (aside->is_told == off || !host->off_device)
		return;
	aside->is_told = off;
	host->off_device(host->cookie, aside->tag, off);
}

void gantry_cuda_aside_tell(struct gantry_stream *stream)
{
	struct gantry_cuda_aside *aside = stream->aside;

	if (aside && gantry_load_relaxed(&aside->state) == RUNNING &&
	    gantry_cycles() - aside->began > TELL_NS / GANTRY_NS_PER_US * gantry_cycles_per_us())
		tell(aside, true);
}

bool gantry_cuda_aside_look(struct gantry_stream *stream)
{
	struct gantry_cuda_aside *aside = stream->aside;

	/* Acquire: pairs with the release in owner_main(). */
	if (!aside || gantry_load_acquire(&aside->state) != RAN)
		return false;
	tell(aside, false);
	see_kept(aside);
	take_back(aside);
	aside->owner->nflying--;
	gantry_store_relaxed(&aside->state, (uint32_t)IDLE);
	gantry_cuda_body_ended(stream, gantry_cuda_slot_at(stream, aside->position), aside->result);
	return true;
}

void gantry_cuda_aside_fini(struct gantry_stream *stream)
{
	free(stream->aside);
}

void gantry_cuda_owner_left(struct gantry_dev *dev, const void *who)
{
	struct gantry_cuda_owner *owner = owner_find(dev, who);

	if (owner)
		leave(owner);
	reap(dev);
}

void gantry_cuda_owners_end(struct gantry_dev *dev)
{
	gantry_list_for_each(&dev->owners, struct gantry_cuda_owner, link, owner)
		leave(owner);
	gantry_list_for_each_safe(&dev->owners, struct gantry_cuda_owner, link, owner)
		owner_free(owner);
}

bool gantry_cuda_owners_abandon(struct gantry_dev *dev)
{
	bool all = true;

	gantry_list_for_each_safe(&dev->owners, struct gantry_cuda_owner, link, owner) {
		bool runs;

		if (gantry_load_acquire(&owner->has_left)) {
			owner_free(owner);
			continue;
		}
		(void)pthread_mutex_lock(&owner->lock);
		runs = owner->runs || owner->leaves || !gantry_list_is_empty(&owner->waiting);
		/* One that leaves goes through them already. */
		if (!runs)
			memset(owner->modules, 0, sizeof(owner->modules));
		(void)pthread_mutex_unlock(&owner->lock);
		if (runs) {
			all = false;
			continue;
		}
		leave(owner);
		owner_free(owner);
	}
	return all;
}
