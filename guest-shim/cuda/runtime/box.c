/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in three dimensions: the Runtime API's words for them become the Driver API's. */
#include "guest-shim/cuda/runtime/array.h"

static CUmemorytype type_of(enum cudaMemcpyKind kind, bool is_dst)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
		return CU_MEMORYTYPE_HOST;
	case cudaMemcpyHostToDevice:
		return is_dst ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case cudaMemcpyDeviceToHost:
		return is_dst ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case cudaMemcpyDeviceToDevice:
		return CU_MEMORYTYPE_DEVICE;
	default:
		return CU_MEMORYTYPE_UNIFIED;
	}
}

/* Places and widths of an array are elements; without an array all of it is bytes. */
static CUresult take_arrays(const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *to)
{
	size_t src = from->srcArray ? rt_element_bytes(rt_array(from->srcArray)) : 1;
	size_t dst = from->dstArray ? rt_element_bytes(rt_array(from->dstArray)) : 1;

	if (!src || !dst)
		return CUDA_ERROR_INVALID_HANDLE;
	if (from->srcArray && from->dstArray && src != dst)
		return CUDA_ERROR_INVALID_VALUE;
	if ((from->srcArray && from->srcPtr.ptr) || (from->dstArray && from->dstPtr.ptr))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(to->srcXInBytes, src, &to->srcXInBytes) ||
	    __builtin_mul_overflow(to->dstXInBytes, dst, &to->dstXInBytes) ||
	    __builtin_mul_overflow(to->WidthInBytes, src > dst ? src : dst, &to->WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (from->srcArray) {
		to->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		to->srcArray = rt_array(from->srcArray);
	}
	if (from->dstArray) {
		to->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		to->dstArray = rt_array(from->dstArray);
	}
	return CUDA_SUCCESS;
}

CUresult rt_box(const struct cudaMemcpy3DParms *from, CUDA_MEMCPY3D *ret_to)
{
	if (!from)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)from->kind > cudaMemcpyDefault)
		return (CUresult)cudaErrorInvalidMemcpyDirection;
	*ret_to = (CUDA_MEMCPY3D){
		.srcXInBytes = from->srcPos.x,
		.srcY = from->srcPos.y,
		.srcZ = from->srcPos.z,
		.srcMemoryType = type_of(from->kind, false),
		.srcHost = from->srcPtr.ptr,
		.srcDevice = (CUdeviceptr)(uintptr_t)from->srcPtr.ptr,
		.srcPitch = from->srcPtr.pitch,
		.srcHeight = from->srcPtr.ysize,
		.dstXInBytes = from->dstPos.x,
		.dstY = from->dstPos.y,
		.dstZ = from->dstPos.z,
		.dstMemoryType = type_of(from->kind, true),
		.dstHost = from->dstPtr.ptr,
		.dstDevice = (CUdeviceptr)(uintptr_t)from->dstPtr.ptr,
		.dstPitch = from->dstPtr.pitch,
		.dstHeight = from->dstPtr.ysize,
		.WidthInBytes = from->extent.width,
		.Height = from->extent.height,
		.Depth = from->extent.depth,
	};
	return take_arrays(from, ret_to);
}

/* ---- and back ---- */

static enum cudaMemcpyKind kind_of(CUmemorytype dst, CUmemorytype src)
{
	bool to_host = dst == CU_MEMORYTYPE_HOST, from_host = src == CU_MEMORYTYPE_HOST;

	if (dst == CU_MEMORYTYPE_UNIFIED || src == CU_MEMORYTYPE_UNIFIED)
		return cudaMemcpyDefault;
	if (to_host)
		return from_host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
	return from_host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

/* An array that is gone has no elements, and the copy of it no words. */
CUresult rt_unbox(const CUDA_MEMCPY3D *from, struct cudaMemcpy3DParms *ret_to)
{
	bool src_is_array = from->srcMemoryType == CU_MEMORYTYPE_ARRAY;
	bool dst_is_array = from->dstMemoryType == CU_MEMORYTYPE_ARRAY;
	size_t src = src_is_array ? rt_element_bytes(from->srcArray) : 1;
	size_t dst = dst_is_array ? rt_element_bytes(from->dstArray) : 1;

	if (!src || !dst)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_to = (struct cudaMemcpy3DParms){
		.srcPos = { from->srcXInBytes / src, from->srcY, from->srcZ },
		.dstPos = { from->dstXInBytes / dst, from->dstY, from->dstZ },
		.extent = { from->WidthInBytes / (src > dst ? src : dst), from->Height,
			    from->Depth },
		.kind = kind_of(from->dstMemoryType, from->srcMemoryType),
	};
	if (src_is_array)
		ret_to->srcArray = (cudaArray_t)from->srcArray;
	else
		ret_to->srcPtr =
			(struct cudaPitchedPtr){ from->srcMemoryType == CU_MEMORYTYPE_HOST
							 ? (void *)(uintptr_t)from->srcHost
							 : (void *)(uintptr_t)from->srcDevice,
						 from->srcPitch, from->WidthInBytes,
						 from->srcHeight };
	if (dst_is_array)
		ret_to->dstArray = (cudaArray_t)from->dstArray;
	else
		ret_to->dstPtr =
			(struct cudaPitchedPtr){ from->dstMemoryType == CU_MEMORYTYPE_HOST
							 ? from->dstHost
							 : (void *)(uintptr_t)from->dstDevice,
						 from->dstPitch, from->WidthInBytes,
						 from->dstHeight };
	return CUDA_SUCCESS;
}
