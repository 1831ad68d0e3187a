/* SPDX-License-Identifier: Apache-2.0 */
/* Handles. Objects lie in chunks that are never given back; those of a type that are free wait in a line. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/icd.h"

#define FIRST_CHUNK 32u
#define MAX_CHUNKS  24u /* each twice as long as the one before */

#define HELD_FOR_EVER (UINT32_MAX / 2)

struct pool {
	size_t bytes; /* of one object */
	uint32_t nchunks;
	unsigned char *chunks[MAX_CHUNKS];
	struct gantry_list free;
	uint64_t nfree, nlive;
};

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct pool pools[ICD_NTYPES] = {
	[ICD_DEVICE] = { .bytes = sizeof(struct _cl_device_id) },
	[ICD_CONTEXT] = { .bytes = sizeof(struct _cl_context) },
	[ICD_QUEUE] = { .bytes = sizeof(struct _cl_command_queue) },
	[ICD_MEM] = { .bytes = sizeof(struct _cl_mem) },
	[ICD_PROGRAM] = { .bytes = sizeof(struct _cl_program) },
	[ICD_KERNEL] = { .bytes = sizeof(struct _cl_kernel) },
	[ICD_EVENT] = { .bytes = sizeof(struct _cl_event) },
	[ICD_SAMPLER] = { .bytes = sizeof(struct _cl_sampler) },
};
static uint64_t last_serial;
/* Objects that nobody has any more: one after the other, for each may be the last to have the next. */
static struct gantry_list ending = GANTRY_LIST_INIT(ending);
static bool is_ending;

void icd_gate_lock(void)
{
	(void)pthread_mutex_lock(&gate);
}

void icd_gate_unlock(void)
{
	(void)pthread_mutex_unlock(&gate);
}

void icd_gate_changed(void)
{
	(void)pthread_cond_broadcast(&changed);
}

void icd_gate_sleep(pthread_cond_t *cond)
{
	(void)pthread_cond_wait(cond, &gate);
}

void icd_gate_wait(void)
{
	if (icd_pump_is_me() && icd_pump_step())
		return;
	(void)pthread_cond_wait(&changed, &gate);
}

/* ---- pools ---- */

static size_t chunk_count(uint32_t i)
{
	return (size_t)FIRST_CHUNK << i;
}

static bool grow(struct pool *pool)
{
	size_t n = chunk_count(pool->nchunks);
	unsigned char *chunk;

	if (pool->nchunks == 0)
		gantry_list_init(&pool->free);
	if (pool->nchunks == MAX_CHUNKS)
		return false;
	chunk = calloc(n, pool->bytes);
	if (!chunk)
		return false;
	pool->chunks[pool->nchunks++] = chunk;
	for (size_t i = 0; i < n; i++)
		gantry_list_push_back(
			&pool->free,
			&((struct icd_object *)(void *)(chunk + i * pool->bytes))->free);
	pool->nfree += n;
	return true;
}

void *icd_object_new(enum icd_type type)
{
	struct pool *pool = &pools[type];
	struct icd_object *object;

	/* Some stay free, so that a place is not taken again at once. */
	if (pool->nfree <= FIRST_CHUNK / 2 && !grow(pool) && pool->nfree == 0)
		return NULL;
	pool->nfree--;
	object = gantry_list_entry(gantry_list_pop_front(&pool->free), struct icd_object, free);
	memset(object, 0, pool->bytes);
	object->dispatch = &icd_dispatch;
	object->type = type;
	object->refs = 1;
	object->serial = ++last_serial;
	pool->nlive++;
	return object;
}

static bool is_in(const struct pool *pool, const void *handle)
{
	uintptr_t at = (uintptr_t)handle;

	for (uint32_t i = 0; i < pool->nchunks; i++) {
		uintptr_t begin = (uintptr_t)pool->chunks[i];

		if (at >= begin && at - begin < chunk_count(i) * pool->bytes)
			return (at - begin) % pool->bytes == 0;
	}
	return false;
}

void *icd_object_get(const void *handle, enum icd_type type)
{
	struct icd_object *object = (struct icd_object *)(uintptr_t)handle;

	return handle && is_in(&pools[type], handle) && object->refs > 0 ? object : NULL;
}

void *icd_object_get_held(const void *handle, enum icd_type type)
{
	struct icd_object *object = (struct icd_object *)(uintptr_t)handle;

	if (!handle || !is_in(&pools[type], handle))
		return NULL;
	return object->refs > 0 || (object->holds > 0 && object->holds < HELD_FOR_EVER) ? object
											: NULL;
}

bool icd_object_any(enum icd_type type)
{
	return pools[type].nlive > 0;
}

/* ---- counting ---- */

static void end_one(struct icd_object *object)
{
	struct pool *pool = &pools[object->type];

	switch ((enum icd_type)object->type) {
	case ICD_DEVICE:
		icd_part_end((struct _cl_device_id *)object);
		break;
	case ICD_CONTEXT:
		icd_context_end((struct _cl_context *)object);
		break;
	case ICD_QUEUE:
		icd_queue_end((struct _cl_command_queue *)object);
		break;
	case ICD_MEM:
		icd_mem_end((struct _cl_mem *)object);
		break;
	case ICD_PROGRAM:
		icd_program_end((struct _cl_program *)object);
		break;
	case ICD_KERNEL:
		icd_kernel_end((struct _cl_kernel *)object);
		break;
	case ICD_EVENT:
		icd_event_free((struct _cl_event *)object);
		break;
	case ICD_SAMPLER:
		icd_sampler_end((struct _cl_sampler *)object);
		break;
	case ICD_NTYPES:
		break;
	}
	object->holds = 0;
	pool->nlive--;
	pool->nfree++;
	gantry_list_push_back(&pool->free, &object->free);
}

/* Events may be a chain of any length: what is let go of here ends after it, not within. */
static void end(struct icd_object *object)
{
	object->holds = 1; /* what it lets go of may come back to it */
	gantry_list_push_back(&ending, &object->free);
	if (is_ending)
		return;
	is_ending = true;
	while (!gantry_list_is_empty(&ending))
		end_one(gantry_list_entry(gantry_list_pop_front(&ending), struct icd_object, free));
	is_ending = false;
}

void icd_object_hold(void *object)
{
	((struct icd_object *)object)->holds++;
}

void icd_object_drop(void *object)
{
	struct icd_object *o = object;

	if (o && --o->holds == 0 && o->refs == 0)
		end(o);
}

cl_int icd_object_retain(const void *handle, enum icd_type type, cl_int otherwise)
{
	struct icd_object *object;
	cl_int result = otherwise;

	icd_gate_lock();
	object = icd_object_get(handle, type);
	if (object) {
		object->refs++;
		result = CL_SUCCESS;
	}
	icd_gate_unlock();
	return result;
}

cl_int icd_object_release(const void *handle, enum icd_type type, cl_int otherwise)
{
	struct icd_object *object;
	cl_int result = otherwise;

	icd_gate_lock();
	object = icd_object_get(handle, type);
	if (object) {
		icd_object_let_go(object);
		result = CL_SUCCESS;
		if (!icd_object_any(ICD_CONTEXT))
			icd_pump_kick(); /* it ends */
	}
	icd_gate_unlock();
	return result;
}

/* What a queue has of its last barrier would keep both for ever, and a user event what waits for it. */
void icd_object_let_go(void *object)
{
	struct icd_object *o = object;

	o->holds++;
	o->refs--;
	if (o->refs == 0 && o->type == ICD_QUEUE)
		icd_queue_left(object);
	if (o->refs == 0 && o->type == ICD_EVENT)
		icd_event_left(object);
	icd_object_drop(object);
}

void icd_object_hold_new(void *object)
{
	if (object)
		icd_object_hold(object);
}

void *icd_object_give(void *object, cl_int result)
{
	struct icd_object *o = object;

	if (!o)
		return NULL;
	if (result != CL_SUCCESS)
		o->refs = 0;
	icd_object_drop(o);
	return result == CL_SUCCESS ? object : NULL;
}

void icd_object_throw_away(void *object)
{
	struct icd_object *o = object;

	if (!o)
		return;
	o->refs = 0;
	o->holds++;
	icd_object_drop(o);
}

/* ---- fork() ---- */

static void before_fork(void)
{
	icd_gate_lock();
}

static void after_fork(void)
{
	icd_gate_unlock();
}

/* What is free says so by its place in a list; all else was the parent's. Its places are not used again. */
static void forget_all(struct pool *pool)
{
	for (uint32_t i = 0; i < pool->nchunks; i++)
		for (size_t j = 0; j < chunk_count(i); j++) {
			struct icd_object *object =
				(struct icd_object *)(void *)(pool->chunks[i] + j * pool->bytes);

			object->refs = 0;
			object->holds = HELD_FOR_EVER;
		}
	pool->nlive = 0;
}

/* A child has nothing of its parent's: no thread, no command, and no object, for their session is not its own. */
static void in_child(void)
{
	static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;

	for (uint32_t type = 0; type < ICD_NTYPES; type++)
		forget_all(&pools[type]);
	gantry_list_init(&ending);
	is_ending = false;
	changed = fresh; /* threads that waited there are not in this process */
	icd_pump_forget();
	icd_gate_unlock();
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, in_child); /* else a child may hang */
}

/* ---- answers ---- */

cl_int icd_answer(const struct icd_to *to, const void *from, size_t n)
{
	if (to->value && to->size < n)
		return CL_INVALID_VALUE;
	if (to->value && n)
		memcpy(to->value, from, n);
	if (to->ret)
		*to->ret = n;
	return CL_SUCCESS;
}

cl_int icd_answer_text(const struct icd_to *to, const char *text)
{
	return icd_answer(to, text ? text : "", text ? strlen(text) + 1 : 1);
}

void *icd_result(cl_int *ret, cl_int result, void *object)
{
	if (ret)
		*ret = result;
	return object;
}

cl_int icd_status(int status)
{
	switch (status) {
	case GANTRY_OK:
		return CL_SUCCESS;
	case GANTRY_E_NO_MEMORY:
	case GANTRY_E_LIMIT:
		return CL_MEM_OBJECT_ALLOCATION_FAILURE;
	case GANTRY_E_NO_KERNEL:
		return CL_INVALID_PROGRAM_EXECUTABLE;
	case GANTRY_E_SIGNATURE:
	case GANTRY_E_KERNEL:
		return CL_INVALID_KERNEL_ARGS;
	case GANTRY_E_SPAN:
	case GANTRY_E_ARG:
		return CL_INVALID_VALUE;
	case GANTRY_E_NO_DEVICE:
	case GANTRY_E_NO_AGENT:
	case GANTRY_E_DETACHED:
	case GANTRY_E_PROTOCOL:
	case GANTRY_E_MOVED:
	case GANTRY_E_CLOSED:
	case GANTRY_E_FORKED:
	case GANTRY_E_DEVICE_LOST:
		return CL_DEVICE_NOT_AVAILABLE;
	case GANTRY_E_UNSUPPORTED:
		return CL_INVALID_OPERATION;
	default:
		return CL_OUT_OF_RESOURCES;
	}
}
