/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported: pools of memory in the order of streams. A pool here counts and bounds what is allocated from it; what is freed goes
 * back to the session at once, so nothing is reserved beyond what is used, and a release threshold is noted only.
 */
#include <stdlib.h>

#include "guest-shim/cuda/core.h"

struct CUmemPoolHandle_st {
	struct cu_device *dev;
	int reuse[3]; /* noted: nothing is reused before the work that freed it has finished */
	uint64_t threshold;
	uint64_t used;
	/* The most that was used since the program last set it back; what is reserved is what is used. */
	uint64_t used_high;
	uint64_t reserved_high;
	uint64_t max_bytes; /* 0: what the tenant may have */
	uint64_t nallocs;
	uint64_t peers; /* devices that were given access to it, as they have anyway */
	bool is_default;
	bool is_dead; /* destroyed, with allocations that are left */
};

CUresult cu_mempool_take_locked(struct CUmemPoolHandle_st *pool, size_t bytes)
{
	if (pool->max_bytes && (bytes > pool->max_bytes || pool->used > pool->max_bytes - bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->used += bytes;
	pool->nallocs++;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	if (pool->used > pool->reserved_high)
		pool->reserved_high = pool->used;
	return CUDA_SUCCESS;
}

const struct cu_device *cu_mempool_device(const struct CUmemPoolHandle_st *pool)
{
	return pool->dev;
}

void cu_mempool_put_locked(struct CUmemPoolHandle_st *pool, size_t bytes)
{
	pool->used -= bytes;
	pool->nallocs--;
	if (pool->is_dead && pool->nallocs == 0)
		free(pool);
}

static CUresult make(struct cu_device *dev, struct CUmemPoolHandle_st **ret_pool)
{
	struct CUmemPoolHandle_st *pool = calloc(1, sizeof(*pool));

	if (!pool || !cu_handle_add_locked(pool, CU_KIND_POOL)) {
		free(pool);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pool->dev = dev;
	for (unsigned int i = 0; i < 3; i++)
		pool->reuse[i] = 1;
	*ret_pool = pool;
	return CUDA_SUCCESS;
}

static CUresult default_of(struct cu_device *dev, struct CUmemPoolHandle_st **ret_pool)
{
	CUresult result = dev->default_pool ? CUDA_SUCCESS : make(dev, &dev->default_pool);

	if (result != CUDA_SUCCESS)
		return result;
	dev->default_pool->is_default = true;
	*ret_pool = dev->default_pool;
	return CUDA_SUCCESS;
}

CUresult cu_mempool_of_locked(struct cu_device *dev, struct CUmemPoolHandle_st **ret_pool)
{
	*ret_pool = dev->pool;
	return dev->pool ? CUDA_SUCCESS : default_of(dev, ret_pool);
}

/* ---- entering; with the lock on success ---- */

static CUresult enter_device(CUdevice ordinal, const void *output, struct cu_device **ret_dev)
{
	CUresult result = output ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		result = cu_device_get(ordinal, ret_dev);
	if (result == CUDA_SUCCESS)
		(void)pthread_mutex_lock(&cu.lock);
	return result;
}

static CUresult enter_pool(CUmemoryPool pool, const void *argument)
{
	CUresult result = argument ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_handle_is_locked(pool, CU_KIND_POOL) ? CUDA_SUCCESS
						       : cu_leave(CUDA_ERROR_INVALID_VALUE);
}

/* ---- of a device ---- */

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = enter_device(ordinal, pool, &dev);

	return result == CUDA_SUCCESS ? cu_leave(default_of(dev, pool)) : result;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = enter_device(ordinal, pool, &dev);

	return result == CUDA_SUCCESS ? cu_leave(cu_mempool_of_locked(dev, pool)) : result;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice ordinal, CUmemoryPool pool)
{
	struct cu_device *dev;
	CUresult result = enter_device(ordinal, pool, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(pool, CU_KIND_POOL) || pool->dev != dev)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	dev->pool = pool;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- of a place ---- */

/* The device that @location names. Pools of the host's memory, and of managed memory, there are none. */
static CUresult device_at(const CUmemLocation *location, CUmemAllocationType type,
			  CUdevice *ret_ordinal)
{
	if (!location ||
	    (type != CU_MEM_ALLOCATION_TYPE_PINNED && type != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	if (type == CU_MEM_ALLOCATION_TYPE_MANAGED)
		return cu_unsupported("pools of managed memory");
	if (location->type == CU_MEM_LOCATION_TYPE_HOST ||
	    location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return cu_unsupported("pools of the host's memory");
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_ordinal = location->id;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
					CUmemAllocationType type)
{
	CUdevice ordinal = 0;
	CUresult result = device_at(location, type, &ordinal);

	return result == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool, ordinal) : result;
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location,
				 CUmemAllocationType type)
{
	CUdevice ordinal = 0;
	CUresult result = device_at(location, type, &ordinal);

	return result == CUDA_SUCCESS ? cuDeviceGetMemPool(pool, ordinal) : result;
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
				 CUmemoryPool pool)
{
	CUdevice ordinal = 0;
	CUresult result = device_at(location, type, &ordinal);

	return result == CUDA_SUCCESS ? cuDeviceSetMemPool(ordinal, pool) : result;
}

/* ---- life ---- */

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	struct cu_device *dev;
	CUresult result;

	if (!props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cu_unsupported("cuMemPoolCreate for other processes, or of host memory");
	result = enter_device(props->location.id, pool, &dev);
	if (result != CUDA_SUCCESS)
		return result;
	result = make(dev, pool);
	if (result == CUDA_SUCCESS)
		(*pool)->max_bytes = props->maxSize;
	return cu_leave(result);
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result = enter_pool(pool, pool);

	if (result != CUDA_SUCCESS)
		return result;
	if (pool->is_default)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	cu_handle_remove_locked(pool);
	if (pool->dev->pool == pool)
		pool->dev->pool = NULL;
	pool->is_dead = true;
	if (pool->nallocs == 0)
		free(pool);
	return cu_leave(CUDA_SUCCESS);
}

/* Nothing is kept beyond what is used. */
CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	CUresult result = enter_pool(pool, pool);

	(void)keep;
	return result == CUDA_SUCCESS ? cu_leave(CUDA_SUCCESS) : result;
}

/* ---- attributes ---- */

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
				       void *value)
{
	CUresult result = enter_pool(pool, value);

	if (result != CUDA_SUCCESS)
		return result;
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] =
			*(int *)value;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		pool->threshold = *(cuuint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		/* High water marks are set back, and not to anything else. */
		if (*(cuuint64_t *)value != 0)
			return cu_leave(CUDA_ERROR_INVALID_VALUE);
		if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->used_high = pool->used;
		else
			pool->reserved_high = pool->used;
		break;
	default:
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
				       void *value)
{
	CUresult result = enter_pool(pool, value);

	if (result != CUDA_SUCCESS)
		return result;
	switch (attribute) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value =
			pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = pool->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = pool->used;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = pool->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = pool->used_high;
		break;
	default:
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return cu_leave(CUDA_SUCCESS);
}

/* Devices of a session reach each other's memory where they can at all; what a program asks for is noted. */
CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t n)
{
	CUresult result = enter_pool(pool, list);
	struct cu_device *dev;

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < n; i++) {
		if (list[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return cu_leave(CUDA_ERROR_INVALID_VALUE);
		result = cu_device_get(list[i].location.id, &dev);
		if (result != CUDA_SUCCESS)
			return cu_leave(result);
		/* Its own device keeps it. */
		if (dev == pool->dev && list[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return cu_leave(CUDA_ERROR_INVALID_VALUE);
		if (list[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			pool->peers |= 1ull << cu_device_ordinal(dev);
		else
			pool->peers &= ~(1ull << cu_device_ordinal(dev));
	}
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool,
				    CUmemLocation *location)
{
	CUresult result = enter_pool(pool, flags && location ? flags : NULL);
	struct cu_device *dev;

	if (result != CUDA_SUCCESS)
		return result;
	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = cu_device_get(location->id, &dev);
	if (result == CUDA_SUCCESS)
		*flags = dev == pool->dev || (pool->peers >> cu_device_ordinal(dev) & 1)
				 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
				 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	return cu_leave(result);
}
