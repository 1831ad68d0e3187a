/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of memory in the order of streams. The Driver API's structures and numbers are the same. */
#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int ordinal)
{
	return RT(cuDeviceGetDefaultMemPool(pool, ordinal));
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t *pool, int ordinal)
{
	return RT(cuDeviceGetMemPool(pool, ordinal));
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int ordinal, cudaMemPool_t pool)
{
	return RT(cuDeviceSetMemPool(ordinal, pool));
}

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
	_Static_assert(sizeof(*props) == sizeof(CUmemPoolProps), "both have the same size");
	return RT(cuMemPoolCreate(pool, (const CUmemPoolProps *)props));
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t pool)
{
	return RT(cuMemPoolDestroy(pool));
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
	return RT(cuMemPoolTrimTo(pool, keep));
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
					      void *value)
{
	return RT(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
					      void *value)
{
	return RT(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *list,
					   size_t n)
{
	return RT(cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)list, n));
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
					   struct cudaMemLocation *location)
{
	return RT(cuMemPoolGetAccess((CUmemAccess_flags *)flags, pool, (CUmemLocation *)location));
}

/* ---- of a place ---- */

cudaError_t CUDARTAPI cudaMemGetDefaultMemPool(cudaMemPool_t *pool,
					       struct cudaMemLocation *location,
					       enum cudaMemAllocationType type)
{
	return RT(
		cuMemGetDefaultMemPool(pool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

cudaError_t CUDARTAPI cudaMemGetMemPool(cudaMemPool_t *pool, struct cudaMemLocation *location,
					enum cudaMemAllocationType type)
{
	return RT(cuMemGetMemPool(pool, (CUmemLocation *)location, (CUmemAllocationType)type));
}

cudaError_t CUDARTAPI cudaMemSetMemPool(struct cudaMemLocation *location,
					enum cudaMemAllocationType type, cudaMemPool_t pool)
{
	return RT(cuMemSetMemPool((CUmemLocation *)location, (CUmemAllocationType)type, pool));
}
