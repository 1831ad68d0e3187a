/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. An end of a copy is memory that tasks reach (device memory, a variable, pinned memory), or pageable:
 * bytes of those go through pieces of pinned memory, on the stream like everything else.
 */
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/mirror.h"
#include "guest-shim/cuda/vmm.h"

/* One end. */
struct end {
	gantry_buffer
		buffer; /* 0: pageable, pinned that no device reaches, or a graph's without memory */
	uint64_t off;
	uint8_t *host; /* of pinned and pageable memory */
};

static CUresult look(CUdeviceptr address, size_t bytes, bool may_be_pageable, struct end *ret_end)
{
	struct end end = { .host = (uint8_t *)(uintptr_t)address };
	const struct cu_alloc *alloc = cu_alloc_span_locked(address, bytes, &end.off);

	if (alloc) {
		end.buffer = alloc->buffer;
		if (!alloc->host)
			end.host = NULL;
		*ret_end = end;
		return CUDA_SUCCESS;
	}
	/* Of several mappings, which is for captures: the parts are found when it runs. */
	if (cu_mapped_bytes_locked(address, bytes) == bytes) {
		*ret_end = end;
		return CUDA_SUCCESS;
	}
	/* It begins in memory of ours, or reaches into it, and does not lie inside. */
	if (cu_alloc_find_locked(address) || cu_alloc_find_locked(address + bytes - 1))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_end = end;
	return may_be_pageable && address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult look_into(const struct CUarray_st *array, uint64_t off, size_t bytes,
			  struct end *ret_end)
{
	if (!cu_handle_is_locked(array, CU_KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!gantry_range_inside(off, bytes, cu_array_bytes(array)))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_end = (struct end){ .buffer = array->buffer, .off = off };
	return CUDA_SUCCESS;
}

/* A stream waits for room in its ring as long as it takes. */
static CUresult put_copy(struct CUstream_st *stream, gantry_buffer dst, uint64_t dst_off,
			 gantry_buffer src, uint64_t src_off, size_t bytes)
{
	gantry_ticket ticket = 0;
	CUresult result;
	int r;

	/* The lock was given up meanwhile. */
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	result = cu_stream_room_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->builds)
		return cu_twin_put_copy_locked(stream, dst, dst_off, src, src_off, bytes);
	do
		r = gantry_submit_copy(cu.session, stream->queue, dst, dst_off, src, src_off, bytes,
				       &ticket);
	while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

static CUresult put_piece(struct CUstream_st *stream, const struct cu_piece *piece, bool is_write,
			  const struct end *end, size_t at, size_t bytes)
{
	gantry_ticket ticket = 0;
	int r;

	do
		r = cu_stage_submit(stream, piece, is_write, end->buffer, end->off + at, bytes,
				    &ticket);
	while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

/*
 * A piece, and room for it. Who has a piece waits for neither room nor a graph that another thread puts: what those wait for may want pieces too,
 * of which there are few.
 */
static CUresult take_piece(struct CUstream_st *stream, struct cu_piece **ret_piece)
{
	while (cu_handle_is_locked(stream, CU_KIND_STREAM)) {
		CUresult result = cu_stream_room_locked(stream);

		if (result == CUDA_SUCCESS)
			result = cu_stage_take_locked(ret_piece);
		if (result != CUDA_SUCCESS)
			return result;
		/* The lock may have been given up for it. */
		if (cu_handle_is_locked(stream, CU_KIND_STREAM) &&
		    cu_stream_has_room_locked(stream))
			return CUDA_SUCCESS;
		cu_stage_put_locked(*ret_piece);
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

/* One more, if that is to be had without waiting; NULL: it is not. */
static struct cu_piece *try_piece(const struct CUstream_st *stream)
{
	return cu_handle_is_locked(stream, CU_KIND_STREAM) && cu_stream_has_room_locked(stream)
		       ? cu_stage_try_locked()
		       : NULL;
}

static CUresult copy_in(struct CUstream_st *stream, const struct end *dst, const uint8_t *src,
			size_t bytes)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t at = 0; at < bytes && result == CUDA_SUCCESS;) {
		struct cu_piece *piece;
		size_t n;

		result = take_piece(stream, &piece);
		if (result != CUDA_SUCCESS)
			break;
		n = GANTRY_MIN(bytes - at, piece->bytes);
		memcpy(piece->host, src + at, n);
		result = put_piece(stream, piece, true, dst, at, n);
		if (result == CUDA_SUCCESS)
			piece->ticket = stream->last;
		cu_stage_put_locked(piece);
		at += n;
	}
	return result;
}

/* Some pieces ahead of the program's own copying. */
#define AHEAD 4u

struct out {
	struct cu_piece *pieces[AHEAD];
	size_t lens[AHEAD];
	uint32_t head;
	uint32_t tail;
};

static CUresult ask_for(struct CUstream_st *stream, struct out *out, struct cu_piece *piece,
			const struct end *src, size_t at, size_t bytes)
{
	size_t n = GANTRY_MIN(bytes - at, piece->bytes);
	CUresult result = put_piece(stream, piece, false, src, at, n);

	if (result != CUDA_SUCCESS) {
		cu_stage_put_locked(piece);
		return result;
	}
	piece->ticket = stream->last;
	out->pieces[out->tail % AHEAD] = piece;
	out->lens[out->tail++ % AHEAD] = n;
	return CUDA_SUCCESS;
}

/* The oldest piece, when it is there, to @dst; returns how much that is. */
static CUresult take_out(struct out *out, uint8_t *dst, size_t *ret_bytes)
{
	struct cu_piece *piece = out->pieces[out->head % AHEAD];
	size_t n = out->lens[out->head++ % AHEAD];
	CUresult result = cu_ticket_wait_locked(piece->ticket);

	if (result == CUDA_SUCCESS && dst)
		memcpy(dst, piece->host, n);
	cu_stage_put_locked(piece);
	*ret_bytes = n;
	return result;
}

static CUresult copy_out(struct CUstream_st *stream, uint8_t *dst, const struct end *src,
			 size_t bytes)
{
	struct out out = { 0 };
	size_t asked = 0, at = 0, n;
	CUresult result = CUDA_SUCCESS;

	while (at < bytes && result == CUDA_SUCCESS) {
		struct cu_piece *piece = NULL;

		/* Who has a piece must not wait for another. */
		if (asked < bytes && out.tail == out.head)
			result = take_piece(stream, &piece);
		else if (asked < bytes && out.tail - out.head < AHEAD)
			piece = try_piece(stream);
		if (result != CUDA_SUCCESS)
			break;
		if (piece) {
			result = ask_for(stream, &out, piece, src, asked, bytes);
			asked += result == CUDA_SUCCESS ? out.lens[(out.tail - 1) % AHEAD] : 0;
			continue;
		}
		result = take_out(&out, dst + at, &n);
		at += n;
	}
	while (out.head != out.tail) /* something has failed, which is the one to tell */
		(void)take_out(&out, NULL, &n);
	return result;
}

/* Both ends are the program's to read and write: the stream's turn has to come. */
static CUresult copy_here(struct CUstream_st *stream, uint8_t *dst, const uint8_t *src,
			  size_t bytes)
{
	CUresult result = cu_stream_wait_locked(stream);

	if (result == CUDA_SUCCESS)
		memmove(dst, src, bytes);
	return result;
}

static CUresult capture(struct CUstream_st *stream, const struct cu_copy *copy)
{
	const struct cu_work work = {
		.type = CU_GRAPH_NODE_TYPE_MEMCPY,
		.copy = { .dstMemoryType = copy->dst_may_be_pageable ? CU_MEMORYTYPE_UNIFIED
								     : CU_MEMORYTYPE_DEVICE,
			  .dstDevice = copy->dst,
			  .srcMemoryType = copy->src_may_be_pageable ? CU_MEMORYTYPE_UNIFIED
								     : CU_MEMORYTYPE_DEVICE,
			  .srcDevice = copy->src,
			  .WidthInBytes = copy->bytes,
			  .Height = 1,
			  .Depth = 1 },
	};

	return cu_capture_work_locked(stream, &work, copy->waits);
}

static CUresult copy_part(struct CUstream_st *stream, const struct cu_copy *copy)
{
	struct end dst, src;
	CUresult result;

	result = copy->dst_array ? look_into(copy->dst_array, copy->dst, copy->bytes, &dst)
				 : look(copy->dst, copy->bytes, copy->dst_may_be_pageable, &dst);
	if (result != CUDA_SUCCESS)
		return result;
	result = copy->src_array ? look_into(copy->src_array, copy->src, copy->bytes, &src)
				 : look(copy->src, copy->bytes, copy->src_may_be_pageable, &src);
	if (result == CUDA_SUCCESS && stream->capture)
		return copy->dst_array || copy->src_array
			       ? cu_unsupported("captured copies of arrays by offset")
			       : capture(stream, copy);
	/* What a graph allocates is nowhere before the graph is launched. */
	if (result == CUDA_SUCCESS && ((!dst.buffer && !dst.host) || (!src.buffer && !src.host)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->builds && (!dst.buffer || !src.buffer))
		return cu_unsupported("copies of pageable memory in a graph with conditions");
	if (dst.buffer && src.buffer) {
		result = put_copy(stream, dst.buffer, dst.off, src.buffer, src.off, copy->bytes);
		/* Between two places of the device nobody is waited for. */
		if (result == CUDA_SUCCESS && copy->waits && (dst.host || src.host))
			result = cu_stream_wait_locked(stream);
		return result;
	}
	if (dst.host && src.host)
		return copy_here(stream, dst.host, src.host, copy->bytes);
	if (dst.buffer)
		return copy_in(stream, &dst, src.host, copy->bytes);
	return copy_out(stream, dst.host, &src, copy->bytes);
}

/*
 * Of registered memory some pages are pinned, and what is beside them is not. What was mapped piece by piece is as many buffers; captured it is
 * one copy.
 */
static size_t part_of(const struct CUstream_st *stream, const struct cu_copy *copy)
{
	size_t bytes = copy->bytes;

	if (!copy->dst_array)
		bytes = cu_registered_part_locked(copy->dst, bytes);
	if (!copy->src_array)
		bytes = cu_registered_part_locked(copy->src, bytes);
	if (!copy->dst_array && !stream->capture)
		bytes = cu_mapped_part_locked(copy->dst, bytes);
	if (!copy->src_array && !stream->capture)
		bytes = cu_mapped_part_locked(copy->src, bytes);
	return bytes;
}

/* Nothing is copied where not all may be. */
static bool is_allowed(const struct CUstream_st *stream, const struct cu_copy *copy)
{
	uint32_t ordinal = cu_device_ordinal(stream->ctx->dev);

	return (copy->dst_array ||
		cu_mapped_allows_locked(copy->dst, copy->bytes, ordinal, true)) &&
	       (copy->src_array || cu_mapped_allows_locked(copy->src, copy->bytes, ordinal, false));
}

CUresult cu_copy_locked(struct CUstream_st *stream, const struct cu_copy *copy)
{
	struct cu_copy part = *copy;
	CUresult result = CUDA_SUCCESS;
	size_t left = copy->bytes;

	if (copy->bytes > GANTRY_MAX_BUFFER_BYTES || copy->src + copy->bytes < copy->src ||
	    copy->dst + copy->bytes < copy->dst)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_allowed(stream, copy))
		return CUDA_ERROR_INVALID_VALUE;
	while (left > 0 && result == CUDA_SUCCESS) {
		part.bytes = left;
		part.bytes = part_of(stream, &part);
		result = copy_part(stream, &part);
		part.dst += part.bytes;
		part.src += part.bytes;
		left -= part.bytes;
	}
	/* The program is to find there what was copied. */
	if (result == CUDA_SUCCESS && copy->waits && !stream->capture && !copy->dst_array &&
	    cu_mirror_touches_locked(copy->dst, copy->bytes))
		return cu_stream_wait_locked(stream);
	return copy->waits ? cu_mirror_pull_locked(result) : result;
}

/* Pinned memory that no device reaches: the stream's turn has to come. */
static CUresult fill_here(struct CUstream_st *stream, uint8_t *dst, uint64_t pattern,
			  unsigned int width, size_t bytes)
{
	CUresult result = cu_stream_wait_locked(stream);

	for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += width)
		memcpy(dst + at, &pattern, width);
	return result;
}

static CUresult fill_part(struct CUstream_st *stream, CUdeviceptr dst, uint64_t pattern,
			  unsigned int width, size_t bytes)
{
	gantry_ticket ticket = 0;
	struct cu_alloc *alloc;
	CUresult result;
	uint64_t off;
	int r;

	result = cu_stream_room_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	alloc = cu_alloc_span_locked(dst, bytes, &off);
	if (!alloc || (!alloc->buffer && !cu_alloc_is_far(alloc)))
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->builds && !cu_alloc_is_far(alloc))
		return cu_twin_put_fill_locked(stream, alloc->buffer, off, bytes, (uint32_t)pattern,
					       width);
	if (cu_alloc_is_far(alloc))
		return fill_here(stream, (uint8_t *)(uintptr_t)dst, pattern, width, bytes);
	do
		r = gantry_submit_fill(cu.session, stream->queue, alloc->buffer, off, bytes,
				       pattern, width, &ticket);
	while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

CUresult cu_fill_locked(struct CUstream_st *stream, CUdeviceptr dst, uint64_t pattern,
			unsigned int width, size_t count)
{
	CUresult result = CUDA_SUCCESS;
	size_t left;

	if (dst % width || count > GANTRY_MAX_BUFFER_BYTES / width)
		return CUDA_ERROR_INVALID_VALUE;
	left = count * width;
	if (!cu_mapped_allows_locked(dst, left, cu_device_ordinal(stream->ctx->dev), true))
		return CUDA_ERROR_INVALID_VALUE;
	while (left > 0 && result == CUDA_SUCCESS) {
		size_t bytes = cu_mapped_part_locked(dst, left);

		result = fill_part(stream, dst, pattern, width, bytes);
		dst += bytes;
		left -= bytes;
	}
	return result;
}
