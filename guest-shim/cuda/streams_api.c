/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported: what goes into a stream. Compiled twice: with CUDA_API_PER_THREAD_DEFAULT_STREAM cuda.h gives each of these
 * functions its other name, and stream 0 is the calling thread's own.
 */
#include <string.h>

#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/mirror.h"
#include "guest-shim/cuda/streams.h"

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

static CUresult copy_3d(const CUDA_MEMCPY3D *what, CUstream handle, bool waits)
{
	struct CUstream_st *stream;
	CUresult result = what ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_copy_box_locked(stream, what, waits)) : result;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *c, CUstream stream, bool waits)
{
	CUDA_MEMCPY3D what;

	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	what = (CUDA_MEMCPY3D){
		.srcXInBytes = c->srcXInBytes,
		.srcY = c->srcY,
		.srcMemoryType = c->srcMemoryType,
		.srcHost = c->srcHost,
		.srcDevice = c->srcDevice,
		.srcArray = c->srcArray,
		.srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes,
		.dstY = c->dstY,
		.dstMemoryType = c->dstMemoryType,
		.dstHost = c->dstHost,
		.dstDevice = c->dstDevice,
		.dstArray = c->dstArray,
		.dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes,
		.Height = c->Height,
		.Depth = 1,
	};
	return copy_3d(&what, stream, waits);
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

CUresult CUDAAPI cuMemcpy3D(const CUDA_MEMCPY3D *what)
{
	return copy_3d(what, 0, true);
}

CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D *what, CUstream stream)
{
	return copy_3d(what, stream, false);
}

/* ---- fills ---- */

static CUresult fill(CUstream handle, CUdeviceptr dst, unsigned int pattern, unsigned int width,
		     size_t pitch, size_t count, size_t height, bool waits)
{
	const CUDA_MEMSET_NODE_PARAMS rows = { .dst = dst,
					       .pitch = pitch,
					       .value = pattern,
					       .elementSize = width,
					       .width = count,
					       .height = height };
	const struct cu_alloc *alloc;
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_fill_rows_locked(stream, &rows);
	/* What the program can read it may read now. */
	alloc = result == CUDA_SUCCESS && waits ? cu_alloc_find_locked(dst) : NULL;
	return cu_leave(alloc && alloc->host && !stream->capture ? cu_stream_wait_locked(stream)
								 : result);
}

CUresult CUDAAPI cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t n)
{
	return fill(0, dst, value, 1, 0, n, 1, true);
}

CUresult CUDAAPI cuMemsetD16(CUdeviceptr dst, unsigned short value, size_t n)
{
	return fill(0, dst, value, 2, 0, n, 1, true);
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr dst, unsigned int value, size_t n)
{
	return fill(0, dst, value, 4, 0, n, 1, true);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 1, 0, n, 1, false);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 2, 0, n, 1, false);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream)
{
	return fill(stream, dst, value, 4, 0, n, 1, false);
}

CUresult CUDAAPI cuMemsetD2D8(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
			      size_t height)
{
	return fill(0, dst, value, 1, pitch, width, height, true);
}

CUresult CUDAAPI cuMemsetD2D16(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
			       size_t height)
{
	return fill(0, dst, value, 2, pitch, width, height, true);
}

CUresult CUDAAPI cuMemsetD2D32(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
			       size_t height)
{
	return fill(0, dst, value, 4, pitch, width, height, true);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
				   size_t height, CUstream stream)
{
	return fill(stream, dst, value, 1, pitch, width, height, false);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value,
				    size_t width, size_t height, CUstream stream)
{
	return fill(stream, dst, value, 2, pitch, width, height, false);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
				    size_t height, CUstream stream)
{
	return fill(stream, dst, value, 4, pitch, width, height, false);
}

/* ---- memory in the order of a stream ---- */

static CUresult alloc_captured(struct CUstream_st *stream, const struct cu_device *dev,
			       size_t bytes, CUdeviceptr *ret_address)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
					     .id = (int)cu_device_ordinal(dev) } },
		.bytesize = bytes,
	};
	CUresult result = cu_capture_alloc_locked(stream, &params);

	if (result == CUDA_SUCCESS)
		*ret_address = params.dptr;
	return result;
}

/* From the device's pool where @pool is NULL; there sooner than it has to be. */
static CUresult alloc_from(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = address ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (pool && !cu_handle_is_locked(pool, CU_KIND_POOL))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (!pool)
		result = cu_mempool_of_locked(stream->ctx->dev, &pool);
	if (result == CUDA_SUCCESS)
		result = stream->capture
				 ? alloc_captured(stream, cu_mempool_device(pool), bytes, address)
				 : cu_alloc_device_locked(stream->ctx, bytes, pool, address);
	return cu_leave(result);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
	return alloc_from(address, bytes, NULL, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
					 CUstream stream)
{
	return pool ? alloc_from(address, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(stream->capture ? cu_capture_free_locked(stream, address)
					: cu_free_behind_locked(address, stream));
}

/* ---- launches ---- */

static CUresult launch(const struct cu_launch *what, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter_to_put(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(what->func, CU_KIND_FUNC))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(cu_launch_locked(stream, what));
}

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
				unsigned int grid_z, unsigned int block_x, unsigned int block_y,
				unsigned int block_z, unsigned int shared, CUstream handle,
				void **params, void **extra)
{
	return launch(&(struct cu_launch){ .func = f,
					   .grid = { grid_x, grid_y, grid_z },
					   .block = { block_x, block_y, block_z },
					   .shared_bytes = shared,
					   .params = params,
					   .extra = extra },
		      handle);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y,
					   unsigned int grid_z, unsigned int block_x,
					   unsigned int block_y, unsigned int block_z,
					   unsigned int shared, CUstream handle, void **params)
{
	return launch(&(struct cu_launch){ .func = f,
					   .grid = { grid_x, grid_y, grid_z },
					   .block = { block_x, block_y, block_z },
					   .shared_bytes = shared,
					   .groups = GANTRY_TASK_TOGETHER,
					   .params = params },
		      handle);
}

static CUresult take_cluster(const CUlaunchAttribute *attribute, uint32_t *groups)
{
	uint32_t x = attribute->value.clusterDim.x, y = attribute->value.clusterDim.y,
		 z = attribute->value.clusterDim.z;

	if (x < 1 || x > 16 || y < 1 || y > 16 || z < 1 || z > 16)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	*groups |= GANTRY_TASK_CLUSTER(x, y, z);
	return CUDA_SUCCESS;
}

/*
 * Attributes that only say what is preferred, or how early something may begin, change nothing here: the next kernel begins when
 * this one has ended.
 */
static CUresult take_attribute(const CUlaunchAttribute *attribute, uint32_t *groups)
{
	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		if (attribute->value.cooperative)
			*groups |= GANTRY_TASK_TOGETHER;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return take_cluster(attribute, groups);
	default:
		return cu_unsupported("cuLaunchKernelEx with events, or nodes of the device");
	}
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params,
				  void **extra)
{
	CUresult result = CUDA_SUCCESS;
	uint32_t groups = 0;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < config->numAttrs && result == CUDA_SUCCESS; i++)
		result = take_attribute(&config->attrs[i], &groups);
	if (result != CUDA_SUCCESS)
		return result;
	return launch(
		&(struct cu_launch){
			.func = f,
			.grid = { config->gridDimX, config->gridDimY, config->gridDimZ },
			.block = { config->blockDimX, config->blockDimY, config->blockDimZ },
			.shared_bytes = config->sharedMemBytes,
			.groups = groups,
			.params = params,
			.extra = extra },
		config->hStream);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *data)
{
	struct CUstream_st *stream;
	CUresult result = enter_to_put(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_hostfn_put_locked(stream, fn, data, NULL))
				      : result;
}

CUresult CUDAAPI cuStreamAddCallback(CUstream handle, CUstreamCallback callback, void *data,
				     unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = flags == 0 && callback ? enter_to_put(handle, &stream)
						 : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_hostfn_put_locked(stream, NULL, data, callback))
				      : result;
}

/* Who else may look at managed memory: here everybody always may, as it lies on the host. Only what is asked is checked. */
CUresult CUDAAPI cuStreamAttachMemAsync(CUstream handle, CUdeviceptr address, size_t bytes,
					unsigned int flags)
{
	struct CUstream_st *stream;
	const struct cu_alloc *alloc;
	CUresult result = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
					  flags == CU_MEM_ATTACH_SINGLE
				  ? enter(handle, &stream)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (stream->capture)
		return cu_leave(cu_capture_refuse_locked(stream));
	alloc = cu_alloc_find_locked(address);
	/* All of an allocation, and a stream of the program's own for a stream's. */
	if (!alloc || alloc->address != address || !cu_alloc_is_managed(alloc) ||
	    (bytes != 0 && bytes != alloc->bytes) || (flags == CU_MEM_ATTACH_SINGLE && !handle))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (alloc->kind != CU_MEMORY_MANAGED)
		cu_mirror_attach_locked();
	return cu_leave(CUDA_SUCCESS);
}

/* ---- streams ---- */

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(stream->capture ? cu_capture_refuse_locked(stream)
					: cu_stream_wait_locked(stream));
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(stream->capture ? cu_capture_refuse_locked(stream)
					: cu_stream_query_locked(stream));
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL
				  ? CUDA_ERROR_INVALID_VALUE
				  : enter_to_put(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(event, CU_KIND_EVENT))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(cu_capture_wait_locked(stream, event, flags & CU_EVENT_WAIT_EXTERNAL));
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

/* There are no green contexts. */
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream handle, CUcontext *ctx, CUgreenCtx *green)
{
	CUresult result = ctx && green ? cuStreamGetCtx(handle, ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*green = NULL;
	return result;
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

/* ---- events ---- */

static CUresult record(CUevent event, CUstream handle, unsigned int flags)
{
	struct CUstream_st *stream;
	CUresult result = enter_to_put(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(event, CU_KIND_EVENT) || event->ctx != stream->ctx)
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return cu_leave(cu_capture_record_locked(stream, event, flags & CU_EVENT_RECORD_EXTERNAL));
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, stream, 0);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return record(event, stream, flags);
}
