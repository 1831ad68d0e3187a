/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, but for what goes into streams. */
#include <assert.h>
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaMalloc(void **ptr, size_t bytes)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	CUresult result = CUDA_SUCCESS;

	if (error != cudaSuccess)
		return error;
	if (!ptr)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
	/* Nothing is NULL here, and no error. */
	if (bytes)
		result = cuMemAlloc(&address, bytes);
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaMallocPitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	CUresult result;

	if (error != cudaSuccess)
		return error;
	result = ptr ? cuMemAllocPitch(&address, pitch, width, height, 4)
		     : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaMalloc3D(struct cudaPitchedPtr *ptr, struct cudaExtent extent)
{
	size_t pitch = 0;
	void *base = NULL;
	cudaError_t error = ptr ? cudaMallocPitch(&base, &pitch, extent.width,
						  extent.height * extent.depth)
				: rt_leave(CUDA_ERROR_INVALID_VALUE);

	if (error == cudaSuccess)
		*ptr = (struct cudaPitchedPtr){ base, pitch, extent.width, extent.height };
	return error;
}

cudaError_t CUDARTAPI cudaFree(void *ptr)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuMemFree((CUdeviceptr)(uintptr_t)ptr)) : error;
}

cudaError_t CUDARTAPI cudaMallocHost(void **ptr, size_t bytes)
{
	return cudaHostAlloc(ptr, bytes, cudaHostAllocDefault);
}

cudaError_t CUDARTAPI cudaHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	cudaError_t error = rt_enter();

	if (error != cudaSuccess)
		return error;
	if (ptr && bytes == 0) {
		*ptr = NULL;
		return cudaSuccess;
	}
	return rt_leave(cuMemHostAlloc(ptr, bytes, flags));
}

cudaError_t CUDARTAPI cudaFreeHost(void *ptr)
{
	cudaError_t error = rt_enter();

	if (error != cudaSuccess || !ptr)
		return error;
	return rt_leave(cuMemFreeHost(ptr));
}

/* Flags have the driver's numbers. */
cudaError_t CUDARTAPI cudaHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
	return RT(cuMemHostRegister(ptr, bytes, flags));
}

cudaError_t CUDARTAPI cudaHostUnregister(void *ptr)
{
	return RT(cuMemHostUnregister(ptr));
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	CUresult result;

	if (error != cudaSuccess)
		return error;
	result = device ? cuMemHostGetDevicePointer(&address, host, flags)
			: CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*device = (void *)(uintptr_t)address;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int *flags, void *host)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuMemHostGetFlags(flags, host)) : error;
}

cudaError_t CUDARTAPI cudaMallocManaged(void **ptr, size_t bytes, unsigned int flags)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	CUresult result;

	if (error != cudaSuccess)
		return error;
	result = ptr ? cuMemAllocManaged(&address, bytes, flags) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuMemGetInfo(ret_free, ret_total)) : error;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *ret, const void *ptr)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
	unsigned int type = 0, managed = 0;
	CUdeviceptr device = 0;
	int ordinal = -2;
	CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					CU_POINTER_ATTRIBUTE_IS_MANAGED,
					CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
					CU_POINTER_ATTRIBUTE_DEVICE_POINTER };
	void *values[] = { &type, &managed, &ordinal, &device };
	CUresult result;

	if (error != cudaSuccess)
		return error;
	if (!ret)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
	result = cuPointerGetAttributes(4, which, values, address);
	if (result != CUDA_SUCCESS)
		return rt_leave(result);
	memset(ret, 0, sizeof(*ret));
	ret->type = managed			   ? cudaMemoryTypeManaged
		    : type == CU_MEMORYTYPE_HOST   ? cudaMemoryTypeHost
		    : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
						   : cudaMemoryTypeUnregistered;
	ret->device = ret->type == cudaMemoryTypeUnregistered ? cudaInvalidDeviceId : ordinal;
	ret->devicePointer = (void *)(uintptr_t)device;
	ret->hostPointer = type == CU_MEMORYTYPE_DEVICE && !managed ? NULL
								    : (void *)(uintptr_t)address;
	return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGetSymbolAddress(void **ptr, const void *symbol)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	size_t bytes;

	if (error == cudaSuccess)
		error = rt_variable(symbol, &address, &bytes);
	if (error == cudaSuccess && ptr)
		*ptr = (void *)(uintptr_t)address;
	return rt_leave((CUresult)error);
}

cudaError_t CUDARTAPI cudaGetSymbolSize(size_t *bytes, const void *symbol)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address;
	size_t found = 0;

	if (error == cudaSuccess)
		error = rt_variable(symbol, &address, &found);
	if (error == cudaSuccess && bytes)
		*bytes = found;
	return rt_leave((CUresult)error);
}

/* Addresses say which device they are of. */
static CUresult check_devices(int dst_device, int src_device)
{
	int n = 0;
	CUresult result = cuDeviceGetCount(&n);

	if (result == CUDA_SUCCESS &&
	    (dst_device < 0 || dst_device >= n || src_device < 0 || src_device >= n))
		result = CUDA_ERROR_INVALID_DEVICE;
	return result;
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device,
				     size_t bytes)
{
	cudaError_t error = RT(check_devices(dst_device, src_device));

	return error == cudaSuccess ? RT(cuMemcpyDtoD((CUdeviceptr)(uintptr_t)dst,
						      (CUdeviceptr)(uintptr_t)src, bytes))
				    : error;
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src,
					  int src_device, size_t bytes, cudaStream_t stream)
{
	cudaError_t error = RT(check_devices(dst_device, src_device));

	return error == cudaSuccess
		       ? RT(cuMemcpyDtoDAsync((CUdeviceptr)(uintptr_t)dst,
					      (CUdeviceptr)(uintptr_t)src, bytes, stream))
		       : error;
}

/* ---- what is said of managed memory; numbers are the Driver API's ---- */

cudaError_t CUDARTAPI cudaMemAdvise(const void *address, size_t bytes, enum cudaMemoryAdvise advice,
				    struct cudaMemLocation location)
{
	return RT(cuMemAdvise((CUdeviceptr)(uintptr_t)address, bytes, (CUmem_advise)advice,
			      (CUmemLocation){ .type = (CUmemLocationType)location.type,
					       .id = location.id }));
}

cudaError_t CUDARTAPI cudaMemRangeGetAttribute(void *data, size_t data_bytes,
					       enum cudaMemRangeAttribute attribute,
					       const void *address, size_t bytes)
{
	return RT(cuMemRangeGetAttribute(data, data_bytes, (CUmem_range_attribute)attribute,
					 (CUdeviceptr)(uintptr_t)address, bytes));
}

cudaError_t CUDARTAPI cudaMemRangeGetAttributes(void **data, size_t *data_bytes,
						enum cudaMemRangeAttribute *attributes, size_t n,
						const void *address, size_t bytes)
{
	return RT(cuMemRangeGetAttributes(data, data_bytes,
					  (CUmem_range_attribute *)(void *)attributes, n,
					  (CUdeviceptr)(uintptr_t)address, bytes));
}

/* ---- of other processes ---- */

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "both are the driver's bytes");

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory)
{
	return RT(cuIpcGetMemHandle((CUipcMemHandle *)handle, (CUdeviceptr)(uintptr_t)memory));
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle,
					   unsigned int flags)
{
	CUdeviceptr address = 0;
	CUipcMemHandle of_driver;
	cudaError_t error;

	memcpy(&of_driver, &handle, sizeof(of_driver));
	error = RT(memory ? cuIpcOpenMemHandle(&address, of_driver, flags)
			  : CUDA_ERROR_INVALID_VALUE);
	if (error == cudaSuccess)
		*memory = (void *)(uintptr_t)address;
	return error;
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void *memory)
{
	return RT(cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)memory));
}

static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle),
	      "both are the driver's bytes");

cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
	return RT(cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}

cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
	CUipcEventHandle of_driver;

	memcpy(&of_driver, &handle, sizeof(of_driver));
	return RT(cuIpcOpenEventHandle(event, of_driver));
}
