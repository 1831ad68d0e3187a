/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

/* Of a pattern that the driver cannot set, this much is laid out and the rest is copied from it. */
#define SEED_BYTES (64u << 10)

/* ---- on the host, in the order of the stream ---- */

struct host_move {
	unsigned char *dst;
	const unsigned char *src; /* NULL: a fill */
	uint64_t len;
	uint64_t pattern; /* eight bytes */
};

/* Eight bytes that repeat the pattern. */
static uint64_t widen(uint64_t pattern, uint32_t bytes)
{
	if (bytes == 1)
		return (pattern & 0xff) * 0x0101010101010101ull;
	if (bytes == 2)
		return (pattern & 0xffff) * 0x0001000100010001ull;
	if (bytes == 4)
		return (pattern & 0xffffffff) * 0x0000000100000001ull;
	return pattern;
}

/* Runs on a thread of the driver. */
static void host_move_main(void *arg)
{
	struct host_move *move = arg;
	uint64_t off = 0;

	if (move->src) {
		memmove(move->dst, move->src, move->len);
	} else {
		/* memcpy(): the start may be unaligned; compilers make wide stores of it. */
		for (; off + sizeof(move->pattern) <= move->len; off += sizeof(move->pattern))
			memcpy(move->dst + off, &move->pattern, sizeof(move->pattern));
		memcpy(move->dst + off, &move->pattern, move->len - off);
	}
	free(move);
}

/*
 * Between host memory and host memory the driver copies before it returns, and it fills only what the
 * device reaches; this waits for its turn in the stream instead.
 */
static int host_move(struct gantry_stream *stream, const struct host_move *what)
{
	struct host_move *move = malloc(sizeof(*move));
	CUresult result;

	if (!move)
		return -ENOMEM;
	*move = *what;
	result = stream->dev->driver->LaunchHostFunc(stream->native, host_move_main, move);
	if (result != CUDA_SUCCESS)
		free(move);
	return gantry_cuda_check(stream->dev, result, "", NULL);
}

/* ---- copies ---- */

static CUresult copy_device(struct gantry_stream *stream, CUdeviceptr dst, CUdeviceptr src,
			    uint64_t len)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	uint64_t distance = dst > src ? dst - src : src - dst;
	CUdeviceptr between;
	CUresult result;

	if (distance == 0)
		return CUDA_SUCCESS;
	if (distance >= len)
		return driver->MemcpyDtoDAsync(dst, src, len, stream->native);
	/* Ranges of one buffer that overlap: the engines copy in no order that one could rely on. */
	result = driver->MemAllocAsync(&between, len, stream->native);
	if (result != CUDA_SUCCESS)
		return result;
	result = driver->MemcpyDtoDAsync(between, src, len, stream->native);
	if (result == CUDA_SUCCESS)
		result = driver->MemcpyDtoDAsync(dst, between, len, stream->native);
	(void)driver->MemFreeAsync(between,
				   stream->native); /* the first failure is the one to tell */
	return result;
}

/* The driver copies within one pinned piece at a time. The next is pinned while the last is copied. */
static CUresult copy_host(struct gantry_stream *stream, const struct gantry_range *host,
			  CUdeviceptr address, bool in)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUresult result = CUDA_SUCCESS;
	uint64_t len;

	for (uint64_t done = 0; done < host->len && result == CUDA_SUCCESS; done += len) {
		unsigned char *at = host->mem->base + host->off + done;

		len = gantry_cuda_mem_use(host->mem, host->off + done, host->len - done);
		result = in ? driver->MemcpyHtoDAsync(address + done, at, len, stream->native)
			    : driver->MemcpyDtoHAsync(at, address + done, len, stream->native);
		/* The command is refused: nothing of it may be under way. */
		if (result != CUDA_SUCCESS && done > 0)
			(void)driver->StreamSynchronize(stream->native);
	}
	return result;
}

/* What is mapped for both, or lies in one GPU, goes by itself; the driver's other call may take a way through the host. */
static bool is_direct(const struct gantry_mem *dst, const struct gantry_mem *src)
{
	return dst->dev->device == src->dev->device || gantry_cuda_sees(dst, src);
}

static CUresult copy(struct gantry_stream *stream, const struct gantry_range *dst,
		     const struct gantry_range *src)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUdeviceptr to = dst->mem->address + dst->off;
	CUdeviceptr from = src->mem->address + src->off;

	if (src->mem->base)
		return copy_host(stream, src, to, true);
	if (dst->mem->base)
		return copy_host(stream, dst, from, false);
	if (!is_direct(dst->mem, src->mem))
		return driver->MemcpyPeerAsync(to, dst->mem->dev->context, from,
					       src->mem->dev->context, dst->len, stream->native);
	return copy_device(stream, to, from, dst->len);
}

/* What the driver said of a call that enqueues: a sticky error is told by poll(). */
static int outcome(struct gantry_stream *stream, CUresult result)
{
	int r = gantry_cuda_check(stream->dev, result, "", NULL);

	return gantry_cuda_sticky(result) ? 0 : r;
}

int gantry_cuda_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *cmd)
{
	const struct gantry_range *dst = &cmd->dst;
	const struct gantry_range *src = &cmd->src;

	if (dst->len == 0)
		return 1;
	if (dst->mem->texture || src->mem->texture)
		return gantry_cuda_texture_copy(stream, cmd);
	if (dst->mem->base && src->mem->base) {
		const struct host_move move = { .dst = dst->mem->base + dst->off,
						.src = src->mem->base + src->off,
						.len = dst->len };

		return host_move(stream, &move);
	}
	return outcome(stream, copy(stream, dst, src));
}

/* ---- fills ---- */

static bool bytes_equal(uint64_t pattern, uint32_t bytes)
{
	for (uint32_t i = 1; i < bytes; i++)
		if ((unsigned char)(pattern >> (8 * i)) != (unsigned char)pattern)
			return false;
	return true;
}

/*
 * What cuMemset does not know: patterns of 8 bytes, and those of 2 and 4 at odd addresses. Byte by byte
 * as columns of a matrix with the pattern's width, at the start only; from there it doubles.
 */
static CUresult fill_by_doubling(struct gantry_stream *stream, CUdeviceptr dst, uint64_t len,
				 uint64_t pattern, uint32_t bytes)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	uint64_t done = gantry_min_u64(len, SEED_BYTES);
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < bytes && result == CUDA_SUCCESS; i++)
		result = driver->MemsetD2D8Async(dst + i, bytes,
						 (unsigned char)(pattern >> (8 * i)), 1,
						 done / bytes, stream->native);
	while (done < len && result == CUDA_SUCCESS) {
		uint64_t more = gantry_min_u64(done, len - done);

		result = driver->MemcpyDtoDAsync(dst + done, dst, more, stream->native);
		done += more;
	}
	return result;
}

CUresult gantry_cuda_fill_device(struct gantry_stream *stream, CUdeviceptr dst, uint64_t len,
				 uint64_t pattern, uint32_t bytes)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;

	if (len == 0)
		return CUDA_SUCCESS;
	if (bytes <= 4 || (uint32_t)pattern == (uint32_t)(pattern >> 32))
		if (gantry_cuda_fill_again(stream, dst, len, (uint32_t)widen(pattern, bytes)))
			return CUDA_SUCCESS;
	if (bytes_equal(pattern, bytes))
		return driver->MemsetD8Async(dst, (unsigned char)pattern, len, stream->native);
	if (bytes == 8 && (uint32_t)pattern == (uint32_t)(pattern >> 32))
		bytes = 4;
	if (bytes == 4 && dst % 4 == 0)
		return driver->MemsetD32Async(dst, (uint32_t)pattern, len / 4, stream->native);
	if (bytes == 2 && dst % 2 == 0)
		return driver->MemsetD16Async(dst, (uint16_t)pattern, len / 2, stream->native);
	return fill_by_doubling(stream, dst, len, pattern, bytes);
}

int gantry_cuda_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill)
{
	const struct gantry_range *dst = &fill->dst;

	if (dst->len == 0)
		return 1;
	if (dst->mem->texture)
		return -EINVAL;
	if (dst->mem->base) {
		const struct host_move move = { .dst = dst->mem->base + dst->off,
						.len = dst->len,
						.pattern = widen(fill->pattern,
								 fill->pattern_bytes) };

		return host_move(stream, &move);
	}
	return outcome(stream,
		       gantry_cuda_fill_device(stream, dst->mem->address + dst->off, dst->len,
					       fill->pattern, fill->pattern_bytes));
}
