/* SPDX-License-Identifier: Apache-2.0 */
/* What goes into streams. Compiled twice, as guest-shim/cuda/streams_api.c: stream 0 is the thread's own the second time. */
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

static CUdeviceptr at(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

/* ---- launches ---- */

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
	return rt_leave(result);
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

static CUresult copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
			size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream,
			bool waits)
{
	const CUDA_MEMCPY2D what = { .srcMemoryType = type_of(kind, false),
				     .srcHost = src,
				     .srcDevice = at(src),
				     .srcPitch = src_pitch,
				     .dstMemoryType = type_of(kind, true),
				     .dstHost = dst,
				     .dstDevice = at(dst),
				     .dstPitch = dst_pitch,
				     .WidthInBytes = width,
				     .Height = height };

	if ((unsigned int)kind > cudaMemcpyDefault)
		return (CUresult)cudaErrorInvalidMemcpyDirection;
	return waits ? cuMemcpy2D(&what) : cuMemcpy2DAsync(&what, stream);
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

static cudaError_t symbol(const void *which, size_t bytes, size_t off, CUdeviceptr *ret_address)
{
	cudaError_t error = rt_enter();
	size_t size = 0;

	if (error == cudaSuccess)
		error = rt_variable(which, ret_address, &size);
	if (error == cudaSuccess && (off > size || bytes > size - off))
		error = cudaErrorInvalidValue;
	if (error == cudaSuccess)
		*ret_address += off;
	return error;
}

static bool to_symbol(enum cudaMemcpyKind kind)
{
	return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice ||
	       kind == cudaMemcpyDefault;
}

static bool from_symbol(enum cudaMemcpyKind kind)
{
	return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice ||
	       kind == cudaMemcpyDefault;
}

static cudaError_t copy_to(const void *which, const void *src, size_t bytes, size_t off,
			   enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	CUdeviceptr address = 0;
	cudaError_t error = to_symbol(kind) ? symbol(which, bytes, off, &address)
					    : cudaErrorInvalidMemcpyDirection;

	return rt_leave(error == cudaSuccess
				? copy((void *)(uintptr_t)address, src, bytes, kind, stream, waits)
				: (CUresult)error);
}

static cudaError_t copy_from(void *dst, const void *which, size_t bytes, size_t off,
			     enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	CUdeviceptr address = 0;
	cudaError_t error = from_symbol(kind) ? symbol(which, bytes, off, &address)
					      : cudaErrorInvalidMemcpyDirection;

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

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t stream, unsigned long long *id)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess ? rt_leave(cuStreamGetId(stream, id)) : error;
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream,
					    enum cudaStreamCaptureStatus *status)
{
	cudaError_t error = rt_enter();

	return error == cudaSuccess
		       ? rt_leave(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status))
		       : error;
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
