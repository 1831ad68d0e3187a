/* SPDX-License-Identifier: Apache-2.0 */
/* Copies in two and three dimensions, and fills of rows: as copies and fills of rows that lie apart. */
#include "base/checked.h"
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/graph.h"
#include "guest-shim/cuda/vmm.h"

/* One end of a copy in three dimensions. */
struct box {
	CUdeviceptr base;
	size_t pitch;
	size_t height;
	bool is_host;
	struct CUarray_st *array; /* @base counts from its beginning; NULL: addresses */
};

/* Of a box inside @array; pitch and height are its own. */
static CUresult box_of_array(struct CUarray_st *array, const CUDA_MEMCPY3D *c, size_t x, size_t y,
			     size_t z, struct box *ret_box)
{
	if (!cu_handle_is_locked(array, CU_KIND_ARRAY))
		return CUDA_ERROR_INVALID_HANDLE;
	if (x % array->element_bytes || c->WidthInBytes % array->element_bytes ||
	    !gantry_range_inside(x, c->WidthInBytes, array->row_bytes) ||
	    !gantry_range_inside(y, c->Height, array->rows) ||
	    !gantry_range_inside(z, c->Depth, array->planes))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_box = (struct box){ .base = (z * array->rows + y) * array->row_bytes + x,
				 .pitch = array->row_bytes,
				 .height = array->rows,
				 .array = array };
	return CUDA_SUCCESS;
}

static CUresult box_of(CUmemorytype type, const void *host, CUdeviceptr device, size_t pitch,
		       size_t height, size_t x, size_t y, size_t z, struct box *ret_box)
{
	struct box box = { .pitch = pitch, .height = height };
	uint64_t row, off;

	switch (type) {
	case CU_MEMORYTYPE_HOST:
		box.base = (CUdeviceptr)(uintptr_t)host;
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
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (gantry_mul_u64(z, height, &row) < 0 || gantry_add_u64(row, y, &row) < 0 ||
	    gantry_mul_u64(row, pitch, &off) < 0 || gantry_add_u64(off, x, &off) < 0 ||
	    gantry_add_u64(box.base, off, &off) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	box.base = off;
	*ret_box = box;
	return CUDA_SUCCESS;
}

/*
 * Whether the last of its rows lies where there are addresses, and memory of ours where @ours: so nothing of a box that is too large is
 * done. Neither of its sizes is 0.
 */
static bool reaches(const struct box *box, size_t width, size_t height, size_t depth, bool ours)
{
	uint64_t row, off, last;

	if (box->array)
		return true;
	if (gantry_mul_u64(depth - 1, box->height, &row) < 0 ||
	    gantry_add_u64(row, height - 1, &row) < 0 ||
	    gantry_mul_u64(row, box->pitch, &off) < 0 || gantry_add_u64(off, width - 1, &off) < 0 ||
	    gantry_add_u64(box->base, off, &last) < 0)
		return false;
	return !ours || box->is_host || cu_alloc_find_locked(last) ||
	       cu_mapped_bytes_locked(last, 1) == 1;
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

static CUresult copy_rows(struct CUstream_st *stream, const struct box *dst, const struct box *src,
			  const CUDA_MEMCPY3D *c)
{
	CUresult result = CUDA_SUCCESS;

	for (size_t z = 0; z < c->Depth && result == CUDA_SUCCESS; z++) {
		struct cu_copy row = { .dst = dst->base + z * dst->height * dst->pitch,
				       .src = src->base + z * src->height * src->pitch,
				       .bytes = c->WidthInBytes,
				       .dst_may_be_pageable = dst->is_host,
				       .src_may_be_pageable = src->is_host,
				       .dst_array = dst->array,
				       .src_array = src->array };

		result = copy_plane(stream, &row, c->Height, dst->pitch, src->pitch);
	}
	return result;
}

static size_t or_else(size_t given, size_t otherwise)
{
	return given ? given : otherwise;
}

CUresult cu_copy_box_locked(struct CUstream_st *stream, const CUDA_MEMCPY3D *c, bool waits)
{
	struct box dst = { 0 }, src = { 0 };
	CUresult result;
	uint64_t all;

	if (c->srcLOD || c->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		result = box_of_array(c->dstArray, c, c->dstXInBytes, c->dstY, c->dstZ, &dst);
	else
		result = box_of(c->dstMemoryType, c->dstHost, c->dstDevice,
				or_else(c->dstPitch, c->WidthInBytes),
				or_else(c->dstHeight, c->Height), c->dstXInBytes, c->dstY, c->dstZ,
				&dst);
	if (result == CUDA_SUCCESS && c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
		result = box_of_array(c->srcArray, c, c->srcXInBytes, c->srcY, c->srcZ, &src);
	else if (result == CUDA_SUCCESS)
		result = box_of(c->srcMemoryType, c->srcHost, c->srcDevice,
				or_else(c->srcPitch, c->WidthInBytes),
				or_else(c->srcHeight, c->Height), c->srcXInBytes, c->srcY, c->srcZ,
				&src);
	if (result != CUDA_SUCCESS)
		return result;
	if (c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
		return CUDA_SUCCESS;
	if (gantry_mul_u64(c->Height, c->Depth, &all) < 0 ||
	    gantry_mul_u64(all, c->WidthInBytes, &all) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if ((c->Height > 1 || c->Depth > 1) &&
	    (dst.pitch < c->WidthInBytes || src.pitch < c->WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (c->Depth > 1 && (dst.height < c->Height || src.height < c->Height))
		return CUDA_ERROR_INVALID_VALUE;
	/* What a capture takes has to be there when it runs. */
	if (!reaches(&dst, c->WidthInBytes, c->Height, c->Depth, !stream->capture) ||
	    !reaches(&src, c->WidthInBytes, c->Height, c->Depth, !stream->capture))
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture)
		return cu_capture_work_locked(
			stream, &(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = *c },
			waits);
	result = copy_rows(stream, &dst, &src, c);
	if (result == CUDA_SUCCESS && waits && (dst.is_host || src.is_host))
		result = cu_stream_wait_locked(stream);
	return result;
}

CUresult cu_fill_rows_locked(struct CUstream_st *stream, const CUDA_MEMSET_NODE_PARAMS *rows)
{
	unsigned int width = rows->elementSize;
	/* Rows of nothing are none, however many. */
	size_t height = rows->width ? rows->height : 0;
	const struct box box = { .base = rows->dst, .pitch = rows->pitch, .height = height };
	CUresult result = CUDA_SUCCESS;
	uint64_t bytes;

	if (width != 1 && width != 2 && width != 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (height > 1 && rows->pitch / width < rows->width)
		return CUDA_ERROR_INVALID_VALUE;
	if (height && (gantry_mul_u64(rows->width, width, &bytes) < 0 ||
		       !reaches(&box, bytes, height, 1, !stream->capture)))
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture && height)
		return cu_capture_work_locked(stream,
					      &(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_MEMSET,
								 .fill = *rows },
					      false);
	for (size_t y = 0; y < height && result == CUDA_SUCCESS; y++)
		result = cu_fill_locked(stream, rows->dst + y * rows->pitch, rows->value, width,
					rows->width);
	return result;
}
