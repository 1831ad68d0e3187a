/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. Those without a stream go through the context's own and wait for it. */
#include "tests/fakecuda/fake.h"

/* As the driver: from one pinned piece of memory into the next goes no copy. */
static bool crosses_pins(uint64_t base, uint64_t len)
{
	bool crosses = false;

	pthread_mutex_lock(&fake.lock);
	for (struct fake_range *range = fake.ranges; range && !crosses; range = range->next)
		crosses = range->kind == FAKE_REGISTER && base < range->base + range->len &&
			  range->base < base + len &&
			  (base < range->base || base + len > range->base + range->len);
	pthread_mutex_unlock(&fake.lock);
	return crosses;
}

static CUresult put_any(const char *call, uint64_t dst, uint64_t src, size_t bytes, CUstream stream,
			bool wait, bool peer)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS || bytes == 0)
		return r;
	if (dst == 0 || src == 0 || crosses_pins(dst, bytes) || crosses_pins(src, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(FAKE_COPY);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->copy.dst = dst;
	cmd->copy.src = src;
	cmd->copy.len = bytes;
	cmd->copy.peer = peer;
	r = fake_put(stream, ctx, cmd);
	return r == CUDA_SUCCESS && wait ? cuStreamSynchronize(stream) : r;
}

static CUresult put_copy(const char *call, uint64_t dst, uint64_t src, size_t bytes,
			 CUstream stream, bool wait)
{
	return put_any(call, dst, src, bytes, stream, wait, false);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return put_copy(__func__, dst, src, bytes, stream, false);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	return put_copy(__func__, dst, (uintptr_t)src, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return put_copy(__func__, (uintptr_t)dst, src, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	return put_copy(__func__, dst, src, bytes, stream, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
			   size_t bytes, CUstream stream)
{
	if (!dst_ctx || !src_ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	return put_any(__func__, dst, src, bytes, stream, false, true);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return put_copy(__func__, dst, src, bytes, NULL, true);
}

CUresult cuMemcpyHtoD(CUdeviceptr dst, const void *src, size_t bytes)
{
	return put_copy(__func__, dst, (uintptr_t)src, bytes, NULL, true);
}

CUresult cuMemcpyDtoH(void *dst, CUdeviceptr src, size_t bytes)
{
	return put_copy(__func__, (uintptr_t)dst, src, bytes, NULL, true);
}

CUresult cuMemcpyDtoD(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return put_copy(__func__, dst, src, bytes, NULL, true);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
		      size_t bytes)
{
	if (!dst_ctx || !src_ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	return put_any(__func__, dst, src, bytes, NULL, true, true);
}

static CUresult put_set(const char *call, uint64_t dst, uint32_t value, uint32_t width,
			size_t count, CUstream stream, bool wait)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS || count == 0)
		return r;
	if (dst == 0 || dst % width)
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(FAKE_SET);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->set.dst = dst;
	cmd->set.value = value;
	cmd->set.width = width;
	cmd->set.count = count;
	r = fake_put(stream, ctx, cmd);
	return r == CUDA_SUCCESS && wait ? cuStreamSynchronize(stream) : r;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
	return put_set(__func__, dst, value, 1, count, stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream)
{
	return put_set(__func__, dst, value, 2, count, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream)
{
	return put_set(__func__, dst, value, 4, count, stream, false);
}

CUresult cuMemsetD8(CUdeviceptr dst, unsigned char value, size_t count)
{
	return put_set(__func__, dst, value, 1, count, NULL, true);
}

CUresult cuMemsetD16(CUdeviceptr dst, unsigned short value, size_t count)
{
	return put_set(__func__, dst, value, 2, count, NULL, true);
}

CUresult cuMemsetD32(CUdeviceptr dst, unsigned int value, size_t count)
{
	return put_set(__func__, dst, value, 4, count, NULL, true);
}

/* Rows of @height: each is a fill of its own. */
static CUresult put_rows(const char *call, uint64_t dst, size_t pitch, uint32_t value,
			 uint32_t width, size_t count, size_t height, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; i < height && r == CUDA_SUCCESS; i++)
		r = put_set(call, dst + i * pitch, value, width, count, stream, false);
	return r;
}

CUresult cuMemsetD2D8Async(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width,
			   size_t height, CUstream stream)
{
	return put_rows(__func__, dst, pitch, value, 1, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width,
			    size_t height, CUstream stream)
{
	return put_rows(__func__, dst, pitch, value, 2, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width,
			    size_t height, CUstream stream)
{
	return put_rows(__func__, dst, pitch, value, 4, width, height, stream);
}
