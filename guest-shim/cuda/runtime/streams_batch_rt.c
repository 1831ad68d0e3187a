/* SPDX-License-Identifier: Apache-2.0 */
/* Many copies in one call, and managed memory that is wanted elsewhere. Compiled twice, as streams_rt.c. Both APIs lay out the same. */
#include "guest-shim/cuda/runtime/rt.h"

_Static_assert(sizeof(struct cudaMemcpyAttributes) == sizeof(CUmemcpyAttributes) &&
		       sizeof(struct cudaMemcpy3DBatchOp) == sizeof(CUDA_MEMCPY3D_BATCH_OP) &&
		       sizeof(struct cudaMemLocation) == sizeof(CUmemLocation),
	       "both have the same size");

cudaError_t CUDARTAPI cudaMemcpyBatchAsync(void *const *dsts, const void *const *srcs,
					   const size_t *sizes, size_t count,
					   struct cudaMemcpyAttributes *attributes,
					   size_t *attributes_from, size_t nattributes,
					   cudaStream_t stream)
{
	return RT(cuMemcpyBatchAsync((CUdeviceptr *)(uintptr_t)dsts, (CUdeviceptr *)(uintptr_t)srcs,
				     (size_t *)(uintptr_t)sizes, count,
				     (CUmemcpyAttributes *)(void *)attributes, attributes_from,
				     nattributes, stream));
}

cudaError_t CUDARTAPI cudaMemcpy3DBatchAsync(size_t n, struct cudaMemcpy3DBatchOp *ops,
					     unsigned long long flags, cudaStream_t stream)
{
	return RT(cuMemcpy3DBatchAsync(n, (CUDA_MEMCPY3D_BATCH_OP *)(void *)ops, flags, stream));
}

cudaError_t CUDARTAPI cudaMemPrefetchAsync(const void *address, size_t bytes,
					   struct cudaMemLocation location, unsigned int flags,
					   cudaStream_t stream)
{
	return RT(cuMemPrefetchAsync((CUdeviceptr)(uintptr_t)address, bytes,
				     (CUmemLocation){ .type = (CUmemLocationType)location.type,
						      .id = location.id },
				     flags, stream));
}
