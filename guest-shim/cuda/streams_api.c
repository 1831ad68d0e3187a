/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported: what goes into a stream. Compiled twice: with CUDA_API_PER_THREAD_DEFAULT_STREAM cuda.h gives each of these
 * functions its other name, and stream 0 is the calling thread's own.
 */
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/core.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define PER_THREAD true
#else
#define PER_THREAD false
#endif

/* With the lock on success. */
static CUresult enter(CUstream handle, struct CUstream_st **ret_stream)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_stream_get_locked(ctx, handle, PER_THREAD, ret_stream);
	return result == CUDA_SUCCESS ? result : cu_leave(result);
}

/* ---- copies ---- */

static CUresult copy(CUstream handle, const struct cu_copy *what)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_copy_locked(stream, what)) : result;
}

static CUdeviceptr at(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

CUresult CUDAAPI cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy(0, &(struct cu_copy){ dst, src, bytes, true, true, true });
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy(stream, &(struct cu_copy){ dst, src, bytes, true, true, false });
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t bytes)
{
	return copy(0, &(struct cu_copy){ dst, at(src), bytes, false, true, true });
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	return copy(stream, &(struct cu_copy){ dst, at(src), bytes, false, true, false });
}

CUresult CUDAAPI cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t bytes)
{
	return copy(0, &(struct cu_copy){ at(dst), src, bytes, true, false, true });
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy(stream, &(struct cu_copy){ at(dst), src, bytes, true, false, false });
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return copy(0, &(struct cu_copy){ dst, src, bytes, false, false, true });
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return copy(stream, &(struct cu_copy){ dst, src, bytes, false, false, false });
}

/* Addresses say which device they are of: contexts need not. */
CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
			      CUcontext src_ctx, size_t bytes)
{
	(void)dst_ctx;
	(void)src_ctx;
	return copy(0, &(struct cu_copy){ dst, src, bytes, false, false, true });
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
				   CUcontext src_ctx, size_t bytes, CUstream stream)
{
	(void)dst_ctx;
	(void)src_ctx;
	return copy(stream, &(struct cu_copy){ dst, src, bytes, false, false, false });
}

/* ---- copies of rows ---- */

/* One end of a copy in three dimensions. */
struct box {
	CUdeviceptr base;
	size_t pitch;
	size_t height;
	bool is_host;
};

static CUresult box_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch,
		       size_t height, size_t x, size_t y, size_t z, struct box *ret_box)
{
	struct box box = { .pitch = pitch, .height = height };
	uint64_t row, off;

	switch (type) {
	case CU_MEMORYTYPE_HOST:
		box.base = at(host);
		box.is_host = true;
		break;
	case CU_MEMORYTYPE_UNIFIED:
		box.base = device;
		box.is_host = true;
		break;
	case CU_MEMORYTYPE_DEVICE:
		box.base = device;
		break;
	default:
		return cu_unsupported("copies of CUDA arrays");
	}
	if (gantry_mul_u64(z, height, &row) < 0 || gantry_add_u64(row, y, &row) < 0 ||
	    gantry_mul_u64(row, pitch, &off) < 0 || gantry_add_u64(off, x, &off) < 0 ||
	    gantry_add_u64(box.base, off, &off) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	box.base = off;
	*ret_box = box;
	return CUDA_SUCCESS;
}

/* Rows that lie behind each other are one. */
static CUresult copy_plane(struct CUstream_st *stream, struct cu_copy *row, size_t height,
			   size_t dst_pitch, size_t src_pitch)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t all;

	if (dst_pitch == row->bytes && src_pitch == row->bytes) {
		if (gantry_mul_u64(row->bytes, height, &all) < 0)
			return CUDA_ERROR_INVALID_VALUE;
		row->bytes = all;
		return cu_copy_locked(stream, row);
	}
	for (size_t i = 0; i < height && result == CUDA_SUCCESS; i++) {
		result = cu_copy_locked(stream, row);
		row->dst += dst_pitch;
		row->src += src_pitch;
	}
	return result;
}

static CUresult copy_box(CUstream handle, const struct box *dst, const struct box *src,
			 size_t width, size_t height, size_t depth, bool waits)
{
	struct CUstream_st *stream;
	CUresult result;

	if (width == 0 || height == 0 || depth == 0)
		return CUDA_SUCCESS;
	if (height * depth > 1 && (dst->pitch < width || src->pitch < width))
		return CUDA_ERROR_INVALID_VALUE;
	if (depth > 1 && (dst->height < height || src->height < height))
		return CUDA_ERROR_INVALID_VALUE;
	result = enter(handle, &stream);
	for (size_t z = 0; z < depth && result == CUDA_SUCCESS; z++) {
		struct cu_copy row = { .dst = dst->base + z * dst->height * dst->pitch,
				       .src = src->base + z * src->height * src->pitch,
				       .bytes = width,
				       .dst_may_be_pageable = dst->is_host,
				       .src_may_be_pageable = src->is_host };

		result = copy_plane(stream, &row, height, dst->pitch, src->pitch);
		if (result != CUDA_SUCCESS)
			return cu_leave(result);
	}
	if (result != CUDA_SUCCESS)
		return result;
	if (waits && (dst->is_host || src->is_host))
		result = cu_stream_wait_locked(stream);
	return cu_leave(result);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool waits)
{
	struct box dst, src;
	CUresult result;

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	result = box_of(c->dstMemoryType, c->dstHost, c->dstDevice,
			c->dstPitch ? c->dstPitch : c->WidthInBytes, c->Height, c->dstXInBytes,
			c->dstY, 0, &dst);
	if (result == CUDA_SUCCESS)
		result = box_of(c->srcMemoryType, c->srcHost, c->srcDevice,
				c->srcPitch ? c->srcPitch : c->WidthInBytes, c->Height,
				c->srcXInBytes, c->srcY, 0, &src);
	return result == CUDA_SUCCESS
		       ? copy_box(stream, &dst, &src, c->WidthInBytes, c->Height, 1, waits)
		       : result;
}

CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D *what)
{
	return copy_2d(what, 0, true);
}

CUresult CUDAAPI cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *what)
{
	return copy_2d(what, 0, true);
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *what, CUstream stream)
{
	return copy_2d(what, stream, false);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *c, CUstream stream, bool waits)
{
	struct box dst, src;
	CUresult result;

	if (!c || c->srcLOD || c->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	result = box_of(c->dstMemoryType, c->dstHost, c->dstDevice,
			c->dstPitch ? c->dstPitch : c->WidthInBytes,
			c->dstHeight ? c->dstHeight : c->Height, c->dstXInBytes, c->dstY, c->dstZ,
			&dst);
	if (result == CUDA_SUCCESS)
		result = box_of(c->srcMemoryType, c->srcHost, c->srcDevice,
				c->srcPitch ? c->srcPitch : c->WidthInBytes,
				c->srcHeight ? c->srcHeight : c->Height, c->srcXInBytes, c->srcY,
				c->srcZ, &src);
	return result == CUDA_SUCCESS
		       ? copy_box(stream, &dst, &src, c->WidthInBytes, c->Height, c->Depth, waits)
		       : result;
}

CUresult CUDAAPI cuMemcpy3D(const CUDA_MEMCPY3D *what)
{
	return copy_3d(what, 0, true);
}

CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D *what, CUstream stream)
{
	return copy_3d(what, stream, false);
}

/* ---- fills ---- */

static CUresult fill(CUstream handle, CUdeviceptr dst, uint64_t pattern, unsigned int width,
		     size_t pitch, size_t count, size_t height)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (count == 0)
		height = 0; /* however many rows of nothing */
	if (height > 1 && pitch / width < count)
		result = CUDA_ERROR_INVALID_VALUE;
	for (size_t y = 0; y < height && result == CUDA_SUCCESS; y++)
		result = cu_fill_locked(stream, dst + y * pitch, pattern, width, count);
	return cu_leave(result);
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t n)
{
	return fill(0, dst, value, 1, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD16(CUdeviceptr dst, unsigned short value, size_t n)
{
	return fill(0, dst, value, 2, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr dst, unsigned int value, size_t n)
{
	return fill(0, dst, value, 4, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 1, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 2, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 4, 0, n, 1);
}

CUresult CUDAAPI cuMemsetD2D8(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
			      size_t height)
{
	return fill(0, dst, value, 1, pitch, width, height);
}

CUresult CUDAAPI cuMemsetD2D16(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
			       size_t height)
{
	return fill(0, dst, value, 2, pitch, width, height);
}

CUresult CUDAAPI cuMemsetD2D32(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
			       size_t height)
{
	return fill(0, dst, value, 4, pitch, width, height);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
				   size_t height, CUstream stream)
{
	return fill(stream, dst, value, 1, pitch, width, height);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
				    size_t width, size_t height, CUstream stream)
{
	return fill(stream, dst, value, 2, pitch, width, height);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
				    size_t height, CUstream stream)
{
	return fill(stream, dst, value, 4, pitch, width, height);
}

/* ---- memory in the order of a stream ---- */

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = address ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	/* There sooner than it has to be. */
	return result == CUDA_SUCCESS
		       ? cu_leave(cu_alloc_device_locked(stream->ctx, bytes, address))
		       : result;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	/* Later than it could be: when all that was submitted before has finished. */
	return result == CUDA_SUCCESS ? cu_leave(cu_free_device_locked(address, true)) : result;
}

/* ---- launches ---- */

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
				unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				unsigned int block_z, unsigned int shared, CUstream handle,
				void **params, void **extra)
{
	const struct cu_launch launch = { .func = f,
					  .grid = { grid_x, grid_y, grid_z },
					  .block = { block_x, block_y, block_z },
					  .shared_bytes = shared,
					  .params = params,
					  .extra = extra };
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(f, CU_KIND_FUNC))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(cu_launch_locked(stream, &launch));
}

/* Attributes that only say what is preferred, or that say nothing. */
static bool is_plain(const CUlaunchAttribute *attribute)
{
	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return true;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return attribute->value.cooperative == 0;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		return attribute->value.programmaticStreamSerializationAllowed == 0;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return attribute->value.clusterDim.x <= 1 && attribute->value.clusterDim.y <= 1 &&
		       attribute->value.clusterDim.z <= 1;
	default:
		return false;
	}
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
				  void **extra)
{
	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs; i++)
		if (!is_plain(&config->attrs[i]))
			return cu_unsupported(
				"cuLaunchKernelEx with clusters, cooperation or events");
	return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ,
			      config->blockDimX, config->blockDimY, config->blockDimZ,
			      config->sharedMemBytes, config->hStream, params, extra);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_hostfn_put_locked(stream, fn, data, NULL))
				      : result;
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
				     unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = flags == 0 && callback ? enter(handle, &stream)
						 : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_hostfn_put_locked(stream, NULL, data, callback))
				      : result;
}

/* ---- streams ---- */

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_stream_wait_locked(stream)) : result;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_stream_query_locked(stream)) : result;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE
									: enter(handle, &stream);
	gantry_ticket ticket = 0;
	int r;

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(event, CU_KIND_EVENT))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!event->ticket)
		return cu_leave(CUDA_SUCCESS);
	do
		r = gantry_submit_wait(cu.session, stream->queue, &event->ticket, 1, NULL);
	while (r == GANTRY_E_AGAIN);
	/* An event behind the wait has to be behind what it waits for: a task that is known stands for it. */
	if (r == 0)
		do
			r = gantry_submit_marker(cu.session, stream->queue, &ticket);
		while (r == GANTRY_E_AGAIN);
	return cu_leave(cu_stream_put_locked(stream, r, ticket));
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	struct CUstream_st *stream;
	CUresult result = flags ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*flags = stream->flags;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int *priority)
{
	struct CUstream_st *stream;
	CUresult result = priority ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*priority = stream->priority;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long *id)
{
	struct CUstream_st *stream;
	CUresult result = id ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*id = stream->id;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *ctx)
{
	struct CUstream_st *stream;
	CUresult result = ctx ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*ctx = stream->ctx;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice *dev)
{
	struct CUstream_st *stream;
	CUresult result = dev ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*dev = (CUdevice)cu_device_ordinal(stream->ctx->dev);
	return cu_leave(CUDA_SUCCESS);
}

/* No stream is ever being captured. */
CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct CUstream_st *stream;
	CUresult result = status ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*status = CU_STREAM_CAPTURE_STATUS_NONE;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- events ---- */

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);
	gantry_ticket ticket = 0;
	int r;

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(event, CU_KIND_EVENT))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	if (event->ctx != stream->ctx)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	result = cu_stream_begin_locked(stream);
	if (result == CUDA_SUCCESS)
		result = cu_event_renew_locked(event);
	if (result != CUDA_SUCCESS)
		return cu_leave(result);
	do
		r = event->cell ? gantry_submit_stamp(cu.session, stream->queue,
						      cu_cell_off(event->cell), &ticket)
				: gantry_submit_marker(cu.session, stream->queue, &ticket);
	while (r == GANTRY_E_AGAIN);
	result = cu_stream_put_locked(stream, r, ticket);
	if (result == CUDA_SUCCESS) {
		event->ticket = ticket;
		event->is_recorded = true;
	}
	return cu_leave(result);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return cuEventRecord(event, stream);
}
