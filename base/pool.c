/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* A cache line: objects of two threads never share one. */
#define POOL_ALIGN 64u

int gantry_pool_init(struct gantry_pool *pool, size_t object_bytes, uint32_t count)
{
	uint64_t stride, total;

	if (object_bytes == 0 || count == 0)
		return -EINVAL;
	if (gantry_align_up(object_bytes, POOL_ALIGN, &stride) < 0 ||
	    gantry_mul_u64(stride, count, &total) < 0)
		return -EOVERFLOW;

	struct gantry_pool fresh = {
		.objects = aligned_alloc(POOL_ALIGN, total),
		.free_slots = calloc(count, sizeof(*fresh.free_slots)),
		.in_use = calloc(count, 1),
		.stride_bytes = stride,
		.count = count,
		.nfree = count,
	};
	if (!fresh.objects || !fresh.free_slots || !fresh.in_use) {
		gantry_pool_fini(&fresh);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < count; i++)
		fresh.free_slots[i] = count - 1 - i;
	*pool = fresh;
	return 0;
}

void gantry_pool_fini(struct gantry_pool *pool)
{
	free(pool->objects);
	free(pool->free_slots);
	free(pool->in_use);
	*pool = (struct gantry_pool){ 0 };
}

void *gantry_pool_take(struct gantry_pool *pool)
{
	uint32_t slot;
	void *object;

	if (pool->nfree == 0)
		return NULL;
	slot = pool->free_slots[--pool->nfree];
	pool->in_use[slot] = 1;
	object = pool->objects + slot * pool->stride_bytes;
	return memset(object, 0, pool->stride_bytes);
}

void gantry_pool_put(struct gantry_pool *pool, void *object)
{
	size_t off;
	uint32_t slot;

	if (!object)
		return;
	assert((unsigned char *)object >= pool->objects);
	off = (size_t)((unsigned char *)object - pool->objects);
	assert(off < pool->stride_bytes * pool->count && off % pool->stride_bytes == 0);
	slot = (uint32_t)(off / pool->stride_bytes);
	assert(pool->in_use[slot]);

	pool->in_use[slot] = 0;
	pool->free_slots[pool->nfree++] = slot;
}
