/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as they are, copies and fills, handed to the runtime. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "devices/hip/backend.h"

/* Of host memory that the device does not reach, copied by way of the device. */
#define CHUNK_BYTES (16ull << 20)

/* ---- launches ---- */

int gantry_hip_check_shape(const struct gantry_stream *stream,
			   const struct gantry_cmd_launch *launch)
{
	uint64_t nthreads = 1;

	if (launch->shared_bytes > stream->dev->max_shared)
		return -EINVAL;
	for (unsigned i = 0; i < 3; i++)
		if (launch->grid[i] == 0 || launch->block[i] == 0 ||
		    gantry_mul_u64(nthreads, launch->block[i], &nthreads) < 0 ||
		    (uint64_t)launch->grid[i] * launch->block[i] > UINT32_MAX)
			return -EINVAL;
	return nthreads <= launch->kernel->max_threads ? 0 : -EINVAL;
}

static int take_params(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
		       void **addresses, void **params)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	struct gantry_hip_place *place;
	int r = 0;

	for (uint32_t i = 0; i < launch->nargs && r == 0; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		/* The runtime reads as many bytes as the kernel's metadata have, which are the signature's. */
		params[i] = (void *)(uintptr_t)&launch->args[i].value;
		if (!sig->args[i].mode)
			continue;
		params[i] = &addresses[i];
		addresses[i] = NULL;
		if (!range->mem || range->len == 0)
			continue;
		r = gantry_hip_place_take(stream, range, sig->args[i].mode, &place);
		if (r == 0)
			addresses[i] = place->address;
	}
	return r;
}

int gantry_hip_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	const uint32_t *grid = launch->grid, *block = launch->block;
	void *addresses[GANTRY_MAX_CMD_ARGS];
	void *params[GANTRY_MAX_CMD_ARGS + 1];
	int r;

	assert(launch->nargs == launch->kernel->sig->nargs);
	if (launch->kernel->body)
		return gantry_hip_body_run(stream, launch);
	r = gantry_hip_check_shape(stream, launch);
	if (r == 0)
		r = take_params(stream, launch, addresses, params);
	if (r < 0)
		return r;
	return gantry_hip_outcome(stream->dev->hip->ModuleLaunchKernel(
		launch->kernel->function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
		launch->shared_bytes, stream->native, params, NULL));
}

/* ---- moving bytes ---- */

static int transfer(struct gantry_stream *stream, void *dst, const void *src, uint64_t len,
		    int kind)
{
	return gantry_hip_outcome(
		stream->dev->hip->MemcpyAsync(dst, src, len, kind, stream->native));
}

static bool overlap(const void *a, const void *b, uint64_t len)
{
	uintptr_t at = (uintptr_t)a, other = (uintptr_t)b;

	return at < other + len && other < at + len;
}

int gantry_hip_move(struct gantry_stream *stream, char *dst, const char *src, uint64_t len)
{
	struct gantry_hip_place *between;
	int r;

	if (len == 0 || dst == src)
		return 0;
	if (!overlap(dst, src, len))
		return transfer(stream, dst, src, len, GANTRY_HIP_DEVICE_TO_DEVICE);
	r = gantry_hip_place_scratch(stream, len, &between);
	if (r == 0)
		r = transfer(stream, between->address, src, len, GANTRY_HIP_DEVICE_TO_DEVICE);
	return r < 0 ? r
		     : transfer(stream, dst, between->address, len, GANTRY_HIP_DEVICE_TO_DEVICE);
}

/* Nothing may wait for the processor here, so the device carries it; what overlaps must fit there as a whole. */
static int host_to_host(struct gantry_stream *stream, unsigned char *dst, const unsigned char *src,
			uint64_t len)
{
	uint64_t chunk = overlap(dst, src, len) ? len : gantry_min_u64(len, CHUNK_BYTES);
	struct gantry_hip_place *between;
	int r = gantry_hip_place_scratch(stream, chunk, &between);

	for (uint64_t off = 0; off < len && r == 0; off += chunk) {
		uint64_t n = gantry_min_u64(chunk, len - off);

		r = transfer(stream, between->address, src + off, n, GANTRY_HIP_HOST_TO_DEVICE);
		if (r == 0)
			r = transfer(stream, dst + off, between->address, n,
				     GANTRY_HIP_DEVICE_TO_HOST);
	}
	return r;
}

int gantry_hip_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy)
{
	const struct gantry_mem *to = copy->dst.mem, *from = copy->src.mem;
	uint64_t len = copy->dst.len;

	if (len == 0)
		return 0;
	if (!to->is_window && !from->is_window)
		return host_to_host(stream, to->host.base + copy->dst.off,
				    from->host.base + copy->src.off, len);
	if (!from->is_window)
		return transfer(stream, gantry_hip_address(&copy->dst),
				from->host.base + copy->src.off, len, GANTRY_HIP_HOST_TO_DEVICE);
	if (!to->is_window)
		return transfer(stream, to->host.base + copy->dst.off,
				gantry_hip_address(&copy->src), len, GANTRY_HIP_DEVICE_TO_HOST);
	if (to->dev->device != from->dev->device)
		return gantry_hip_outcome(stream->dev->hip->MemcpyPeerAsync(
			gantry_hip_address(&copy->dst), to->dev->device,
			gantry_hip_address(&copy->src), from->dev->device, len, stream->native));
	return gantry_hip_move(stream, gantry_hip_address(&copy->dst),
			       gantry_hip_address(&copy->src), len);
}

/* ---- fills ---- */

/* Of patterns that no memset has, or that begin where it may not: the first is copied there, and then what is there. */
static int set_by_copies(struct gantry_stream *stream, char *dst, uint64_t len, uint64_t pattern,
			 uint32_t pattern_bytes)
{
	struct gantry_hip_slot *slot = stream->slot;
	struct gantry_hip_cell *cell = &stream->cells[slot - stream->slots];
	uint64_t done = pattern_bytes;
	uint64_t *word;
	int r;

	if (slot->npatterns == GANTRY_HIP_PATTERNS)
		return -ENOMEM;
	word = &cell->patterns[slot->npatterns++];
	*word = pattern; /* little-endian, as hosts are: the low bytes come first */
	r = transfer(stream, dst, word, pattern_bytes, GANTRY_HIP_HOST_TO_DEVICE);
	for (; done < len && r == 0; done *= 2)
		r = transfer(stream, dst + done, dst, gantry_min_u64(done, len - done),
			     GANTRY_HIP_DEVICE_TO_DEVICE);
	return r;
}

/* The narrowest pattern that gives the same bytes. */
static uint32_t narrow(uint64_t pattern, uint32_t pattern_bytes)
{
	while (pattern_bytes > 1) {
		uint32_t half_bits = pattern_bytes * 4;
		uint64_t mask = (1ull << half_bits) - 1;

		if (((pattern >> half_bits) & mask) != (pattern & mask))
			break;
		pattern_bytes /= 2;
	}
	return pattern_bytes;
}

int gantry_hip_set(struct gantry_stream *stream, char *dst, uint64_t len, uint64_t pattern,
		   uint32_t pattern_bytes)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	uint32_t bytes = narrow(pattern, pattern_bytes);

	if (len == 0)
		return 0;
	if (bytes > 4 || (uintptr_t)dst % bytes != 0)
		return set_by_copies(stream, dst, len, pattern, bytes);
	if (bytes == 1)
		return gantry_hip_outcome(
			hip->MemsetAsync(dst, (int)(pattern & 0xff), len, stream->native));
	if (bytes == 2)
		return gantry_hip_outcome(
			hip->MemsetD16Async(dst, (unsigned short)pattern, len / 2, stream->native));
	return gantry_hip_outcome(
		hip->MemsetD32Async(dst, (int)(uint32_t)pattern, len / 4, stream->native));
}

int gantry_hip_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill)
{
	struct gantry_hip_place *place;
	int r;

	if (fill->dst.len == 0)
		return 0;
	r = gantry_hip_place_take(stream, &fill->dst, GANTRY_W, &place);
	return r < 0 ? r
		     : gantry_hip_set(stream, place->address, fill->dst.len, fill->pattern,
				      fill->pattern_bytes);
}
