/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into streams. Compiled twice, as guest-shim/cuda/streams_api.c: stream 0 is the thread's own the second time. */
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

static CUdeviceptr at(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

/* ---- launches ---- */

static bool is_inside(dim3 size, uint32_t x, uint32_t y, uint32_t z)
{
	return size.x - 1 < x && size.y - 1 < y && size.z - 1 < z;
}

/* What is an invalid value to the driver has a word of its own here, where it is the sizes that every device has: they are the same in all. */
static CUresult configured(CUresult result, dim3 grid, dim3 block)
{
	bool fits = is_inside(grid, INT32_MAX, 65535, 65535) && is_inside(block, 1024, 1024, 64) &&
		    (uint64_t)block.x * block.y * block.z <= 1024;

	return result == CUDA_ERROR_INVALID_VALUE && !fits ? (CUresult)cudaErrorInvalidConfiguration
							   : result;
}

static cudaError_t launch(const void *host, dim3 grid, dim3 block, void **args, size_t shared,
			  cudaStream_t stream)
{
	cudaError_t error = rt_enter();
	CUfunction function;
	CUresult result;

	if (error == cudaSuccess)
		error = rt_function(host, &function);
	if (error != cudaSuccess)
		return rt_leave((CUresult)error);
	if (shared > UINT32_MAX)
		return rt_leave((CUresult)cudaErrorInvalidValue);
	result = cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
				(unsigned int)shared, stream, args, NULL);
	return rt_leave(configured(result, grid, block));
}

cudaError_t CUDARTAPI cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
				       size_t shared, cudaStream_t stream)
{
	return launch(function, grid, block, args, shared, stream);
}

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define LAUNCH __cudaLaunchKernel_ptsz
#else
#define LAUNCH __cudaLaunchKernel
#endif
cudaError_t CUDARTAPI LAUNCH(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
			     cudaStream_t stream);
/* What <<<>>> becomes. */
cudaError_t CUDARTAPI LAUNCH(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
			     cudaStream_t stream)
{
	return launch((const void *)kernel, grid, block, args, shared, stream);
}

cudaError_t CUDARTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host,
					  void **args)
{
	CUlaunchConfig own;
	CUfunction function;
	CUresult result = rt_config(config, &own);
	cudaError_t error = RT(result == CUDA_SUCCESS ? (CUresult)rt_function(host, &function)
						      : result);

	if (error != cudaSuccess)
		return error;
	return RT(configured(cuLaunchKernelEx(&own, function, args, NULL), config->gridDim,
			     config->blockDim));
}

cudaError_t CUDARTAPI cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block,
						  void **args, size_t shared, cudaStream_t stream)
{
	cudaLaunchAttribute together = { .id = cudaLaunchAttributeCooperative,
					 .val = { .cooperative = 1 } };
	const cudaLaunchConfig_t config = { .gridDim = grid,
					    .blockDim = block,
					    .dynamicSmemBytes = shared,
					    .stream = stream,
					    .attrs = &together,
					    .numAttrs = 1 };

	return cudaLaunchKernelExC(&config, host, args);
}

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuLaunchHostFunc(stream, fn, data)) : error;
}

cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
					    void *data, unsigned int flags)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuStreamAddCallback(stream, (CUstreamCallback)callback, data,
						      flags))
		       : error;
}

/* ---- copies ---- */

/* What the program says of the two ends has to hold for device memory; of host memory anything does. */
static CUresult copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
		     cudaStream_t stream, bool waits)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return waits ? cuMemcpy(at(dst), at(src), bytes)
			     : cuMemcpyAsync(at(dst), at(src), bytes, stream);
	case cudaMemcpyHostToDevice:
		return waits ? cuMemcpyHtoD(at(dst), src, bytes)
			     : cuMemcpyHtoDAsync(at(dst), src, bytes, stream);
	case cudaMemcpyDeviceToHost:
		return waits ? cuMemcpyDtoH(dst, at(src), bytes)
			     : cuMemcpyDtoHAsync(dst, at(src), bytes, stream);
	case cudaMemcpyDeviceToDevice:
		return waits ? cuMemcpyDtoD(at(dst), at(src), bytes)
			     : cuMemcpyDtoDAsync(at(dst), at(src), bytes, stream);
	default:
		return (CUresult)cudaErrorInvalidMemcpyDirection;
	}
}

cudaError_t CUDARTAPI cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(copy(dst, src, bytes, kind, 0, true)) : error;
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
				      enum cudaMemcpyKind kind, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(copy(dst, src, bytes, kind, stream, false)) : error;
}

static CUresult copy_box(const struct cudaMemcpy3DParms *box, cudaStream_t stream, bool waits)
{
	CUDA_MEMCPY3D what;
	CUresult result = rt_box(box, &what);

	if (result != CUDA_SUCCESS)
		return result;
	return waits ? cuMemcpy3D(&what) : cuMemcpy3DAsync(&what, stream);
}

static CUresult copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
			size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream,
			bool waits)
{
	const struct cudaMemcpy3DParms box = {
		.srcPtr = { (void *)(uintptr_t)src, src_pitch, width, height },
		.dstPtr = { dst, dst_pitch, width, height },
		.extent = { width, height, 1 },
		.kind = kind,
	};

	if (dst_pitch < width || src_pitch < width)
		return (CUresult)cudaErrorInvalidPitchValue;
	return copy_box(&box, stream, waits);
}

cudaError_t CUDARTAPI cudaMemcpy3D(const struct cudaMemcpy3DParms *box)
{
	return RT(copy_box(box, 0, true));
}

cudaError_t CUDARTAPI cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *box, cudaStream_t stream)
{
	return RT(copy_box(box, stream, false));
}

cudaError_t CUDARTAPI cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
				   size_t width, size_t height, enum cudaMemcpyKind kind)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(copy_2d(dst, dst_pitch, src, src_pitch, width,
						       height, kind, 0, true))
				    : error;
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src,
					size_t src_pitch, size_t width, size_t height,
					enum cudaMemcpyKind kind, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(copy_2d(dst, dst_pitch, src, src_pitch, width,
						       height, kind, stream, false))
				    : error;
}

/* ---- symbols ---- */

static cudaError_t copy_to(const void *which, const void *src, size_t bytes, size_t off,
			   enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	CUdeviceptr address = 0;
	cudaError_t error = rt_symbol(which, bytes, off, kind, true, &address);

	return rt_leave(error == cudaSuccess
				? copy((void *)(uintptr_t)address, src, bytes, kind, stream, waits)
				: (CUresult)error);
}

static cudaError_t copy_from(void *dst, const void *which, size_t bytes, size_t off,
			     enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	CUdeviceptr address = 0;
	cudaError_t error = rt_symbol(which, bytes, off, kind, false, &address);

	return rt_leave(error == cudaSuccess ? copy(dst, (const void *)(uintptr_t)address, bytes,
						    kind, stream, waits)
					     : (CUresult)error);
}

cudaError_t CUDARTAPI cudaMemcpyToSymbol(const void *which, const void *src, size_t bytes,
					 size_t off, enum cudaMemcpyKind kind)
{
	return copy_to(which, src, bytes, off, kind, 0, true);
}

cudaError_t CUDARTAPI cudaMemcpyToSymbolAsync(const void *which, const void *src, size_t bytes,
					      size_t off, enum cudaMemcpyKind kind,
					      cudaStream_t stream)
{
	return copy_to(which, src, bytes, off, kind, stream, false);
}

cudaError_t CUDARTAPI cudaMemcpyFromSymbol(void *dst, const void *which, size_t bytes, size_t off,
					   enum cudaMemcpyKind kind)
{
	return copy_from(dst, which, bytes, off, kind, 0, true);
}

cudaError_t CUDARTAPI cudaMemcpyFromSymbolAsync(void *dst, const void *which, size_t bytes,
						size_t off, enum cudaMemcpyKind kind,
						cudaStream_t stream)
{
	return copy_from(dst, which, bytes, off, kind, stream, false);
}

/* ---- fills ---- */

cudaError_t CUDARTAPI cudaMemset(void *dst, int value, size_t bytes)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuMemsetD8(at(dst), (unsigned char)value, bytes))
				    : error;
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuMemsetD8Async(at(dst), (unsigned char)value, bytes, stream))
		       : error;
}

cudaError_t CUDARTAPI cudaMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuMemsetD2D8(at(dst), pitch, (unsigned char)value, width, height))
		       : error;
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void *dst, size_t pitch, int value, size_t width,
					size_t height, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuMemsetD2D8Async(at(dst), pitch, (unsigned char)value, width,
						    height, stream))
		       : error;
}

static CUresult fill_box(struct cudaPitchedPtr at_, int value, struct cudaExtent extent,
			 cudaStream_t stream, bool waits)
{
	CUresult result = CUDA_SUCCESS;
	CUdeviceptr plane = at(at_.ptr);

	if (extent.width == 0 || extent.height == 0)
		return CUDA_SUCCESS;
	for (size_t z = 0; z < extent.depth && result == CUDA_SUCCESS; z++) {
		result = cuMemsetD2D8Async(plane, at_.pitch, (unsigned char)value, extent.width,
					   extent.height, stream);
		plane += at_.pitch * at_.ysize;
	}
	return result == CUDA_SUCCESS && waits ? cuStreamSynchronize(stream) : result;
}

cudaError_t CUDARTAPI cudaMemset3D(struct cudaPitchedPtr ptr, int value, struct cudaExtent extent)
{
	return RT(fill_box(ptr, value, extent, 0, true));
}

cudaError_t CUDARTAPI cudaMemset3DAsync(struct cudaPitchedPtr ptr, int value,
					struct cudaExtent extent, cudaStream_t stream)
{
	return RT(fill_box(ptr, value, extent, stream, false));
}

/* ---- memory in the order of a stream ---- */

cudaError_t CUDARTAPI cudaMallocAsync(void **ptr, size_t bytes, cudaStream_t stream)
{
	cudaError_t error = rt_enter();
	CUdeviceptr address = 0;
	CUresult result;

	if (error != cudaSuccess)
		return error;
	result = ptr ? cuMemAllocAsync(&address, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		*ptr = (void *)(uintptr_t)address;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void **ptr, size_t bytes, cudaMemPool_t pool,
					      cudaStream_t stream)
{
	CUdeviceptr address = 0;
	cudaError_t error = RT(ptr ? cuMemAllocFromPoolAsync(&address, bytes, pool, stream)
				   : CUDA_ERROR_INVALID_VALUE);

	if (error == cudaSuccess)
		*ptr = (void *)(uintptr_t)address;
	return error;
}

cudaError_t CUDARTAPI cudaFreeAsync(void *ptr, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuMemFreeAsync(at(ptr), stream)) : error;
}

/* ---- streams and events ---- */

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamSynchronize(stream)) : error;
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamQuery(stream)) : error;
}

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
					  unsigned int flags)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamWaitEvent(stream, event, flags)) : error;
}

cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t stream, unsigned int *flags)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamGetFlags(stream, flags)) : error;
}

cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamGetPriority(stream, priority)) : error;
}

/* The Runtime API's attributes and their values are the driver's. */
cudaError_t CUDARTAPI cudaStreamSetAttribute(cudaStream_t stream, enum cudaLaunchAttributeID which,
					     const union cudaLaunchAttributeValue *value)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuStreamSetAttribute(stream, (CUstreamAttrID)which,
						       (const CUstreamAttrValue *)value))
		       : error;
}

cudaError_t CUDARTAPI cudaStreamGetAttribute(cudaStream_t stream, enum cudaLaunchAttributeID which,
					     union cudaLaunchAttributeValue *value)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamGetAttribute(stream, (CUstreamAttrID)which,
								    (CUstreamAttrValue *)value))
				    : error;
}

cudaError_t CUDARTAPI cudaStreamCopyAttributes(cudaStream_t dst, cudaStream_t src)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamCopyAttributes(dst, src)) : error;
}

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamGetId(stream, id)) : error;
}

cudaError_t CUDARTAPI cudaStreamAttachMemAsync(cudaStream_t stream, void *address, size_t bytes,
					       unsigned int flags)
{
	return RT(cuStreamAttachMemAsync(stream, at(address), bytes, flags));
}

cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t stream, int *ordinal)
{
	return RT(cuStreamGetDevice(stream, ordinal));
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventRecord(event, stream)) : error;
}

cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
					       unsigned int flags)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuEventRecordWithFlags(event, stream, flags))
				    : error;
}
