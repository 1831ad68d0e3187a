/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed number of objects of one size, allocated once: take and put are O(1) and never allocate,
 * so they may stand on the road of a task.
 *
 * Threads: one pool belongs to one thread (or to whoever holds its owner's lock).
 * Order of calls: init, take and put, fini. Objects stay where they are between take and put.
 */
#ifndef GANTRY_BASE_POOL_H
#define GANTRY_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gantry_pool {
	unsigned char *objects; /* owned; count * stride_bytes, 64-byte aligned */
	uint32_t *free_slots;	/* owned; a stack: what was put last is taken next */
	unsigned char *in_use;	/* owned; one byte an object, to refuse a double put */
	size_t stride_bytes;
	uint32_t count;
	uint32_t nfree;
};

/* -ENOMEM; -EINVAL: a size or count of 0; -EOVERFLOW. @pool is untouched on failure. */
int gantry_pool_init(struct gantry_pool *pool, size_t object_bytes, uint32_t count);

/* Free the memory. Objects still taken become invalid. A zeroed pool is fine. */
void gantry_pool_fini(struct gantry_pool *pool);

/* An object filled with zeroes; NULL when all are taken. The caller gives it back with put. */
void *gantry_pool_take(struct gantry_pool *pool);

/*
 * Give @object back; NULL is ignored. An object of another pool, or one put already, is our bug:
 * asserts.
 */
void gantry_pool_put(struct gantry_pool *pool, void *object);

/* Objects taken now. */
static inline uint32_t gantry_pool_in_use(const struct gantry_pool *pool)
{
	return pool->count - pool->nfree;
}

#ifdef __cplusplus
}
#endif

#endif
