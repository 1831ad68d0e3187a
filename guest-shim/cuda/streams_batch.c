/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: many copies in one call, and managed memory that is wanted elsewhere. Compiled twice, as streams_api.c. */
#include "base/checked.h"
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/managed.h"
#include "guest-shim/cuda/streams.h"

/* Not the legacy stream, whatever its name. */
static CUresult enter_own(CUstream handle, struct CUstream_st **ret_stream)
{
	CUresult result = enter(handle, ret_stream);

	if (result != CUDA_SUCCESS)
		return result;
	return *ret_stream == (*ret_stream)->ctx->legacy ? cu_leave(CUDA_ERROR_INVALID_VALUE)
							 : CUDA_SUCCESS;
}

static bool is_order(CUmemcpySrcAccessOrder order, unsigned int flags)
{
	return (order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
		order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
		order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY) &&
	       !(flags & ~(unsigned int)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

static bool is_pageable(CUdeviceptr address)
{
	return !cu_alloc_find_locked(address);
}

/*
 * Copies of pageable memory read it at the call: before that the stream has to come there, where the order says so. What
 * is read later is waited for where it has to be read at the call.
 */
static CUresult come_to(struct CUstream_st *stream, CUdeviceptr src, CUmemcpySrcAccessOrder order)
{
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && is_pageable(src) && !stream->capture
		       ? cu_stream_wait_locked(stream)
		       : CUDA_SUCCESS;
}

static bool is_read_later(const struct CUstream_st *stream, CUdeviceptr src,
			  CUmemcpySrcAccessOrder order)
{
	return order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && !is_pageable(src) &&
	       !stream->capture;
}

/* ---- of bytes ---- */

static bool are_attributes(const CUmemcpyAttributes *attributes, const size_t *from, size_t n,
			   size_t count)
{
	if (!attributes || !from || n == 0 || n > count || from[0] != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!is_order(attributes[i].srcAccessOrder, attributes[i].flags) ||
		    from[i] >= count || (i && from[i] <= from[i - 1]))
			return false;
	return true;
}

CUresult CUDAAPI cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
				    size_t count, CUmemcpyAttributes *attributes,
				    size_t *attributes_from, size_t nattributes, CUstream handle)
{
	struct CUstream_st *stream;
	bool waits = false;
	CUresult result = dsts && srcs && sizes &&
					  are_attributes(attributes, attributes_from, nattributes,
							 count)
				  ? enter_own(handle, &stream)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0, k = 0; i < count && result == CUDA_SUCCESS; i++) {
		struct cu_copy copy = { dsts[i], srcs[i], sizes[i], true, true, false };

		if (k + 1 < nattributes && attributes_from[k + 1] <= i)
			k++;
		waits = waits || is_read_later(stream, srcs[i], attributes[k].srcAccessOrder);
		result = come_to(stream, srcs[i], attributes[k].srcAccessOrder);
		/* The lock may have been given up. */
		if (result == CUDA_SUCCESS && !cu_handle_is_locked(stream, CU_KIND_STREAM))
			return cu_leave(CUDA_ERROR_INVALID_HANDLE);
		if (result == CUDA_SUCCESS)
			result = cu_copy_locked(stream, &copy);
	}
	if (result == CUDA_SUCCESS && waits)
		result = cu_stream_wait_locked(stream);
	return cu_leave(result);
}

/* ---- of boxes ---- */

/* Bytes of an element: where no end is an array it is one. 0: both are, and do not agree, or one is none. */
static uint32_t element_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	const CUmemcpy3DOperand *ends[] = { &op->src, &op->dst };
	uint32_t bytes = 0;

	for (unsigned int i = 0; i < 2; i++) {
		CUarray array = ends[i]->op.array.array;

		if (ends[i]->type != CU_MEMCPY_OPERAND_TYPE_ARRAY)
			continue;
		if (!cu_handle_is_locked(array, CU_KIND_ARRAY) ||
		    (bytes && bytes != array->element_bytes))
			return 0;
		bytes = array->element_bytes;
	}
	return bytes ? bytes : 1;
}

struct side {
	CUmemorytype type;
	CUdeviceptr address;
	CUarray array;
	size_t x, y, z; /* of an array; x in bytes */
	size_t pitch, height;
};

static CUresult side_of(const CUmemcpy3DOperand *end, const CUextent3D *extent, uint32_t element,
			struct side *ret_side)
{
	const CUoffset3D *off = &end->op.array.offset;
	bool is_array = end->type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
	size_t row = extent->width, height = extent->height;
	uint64_t bytes;

	if (!is_array && end->op.ptr.rowLength)
		row = end->op.ptr.rowLength;
	if (!is_array && end->op.ptr.layerHeight)
		height = end->op.ptr.layerHeight;
	if (row < extent->width || height < extent->height ||
	    gantry_mul_u64(is_array ? off->x : row, element, &bytes) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_array)
		*ret_side = (struct side){ .type = CU_MEMORYTYPE_ARRAY,
					   .array = end->op.array.array,
					   .x = bytes,
					   .y = off->y,
					   .z = off->z };
	else
		*ret_side = (struct side){ .type = CU_MEMORYTYPE_UNIFIED,
					   .address = end->op.ptr.ptr,
					   .pitch = bytes,
					   .height = height };
	return CUDA_SUCCESS;
}

static CUresult box_of(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *ret_box)
{
	uint32_t element = element_of(op);
	struct side src, dst;
	uint64_t width;

	if (!element || !op->extent.width || !op->extent.height || !op->extent.depth ||
	    !is_order(op->srcAccessOrder, op->flags) ||
	    gantry_mul_u64(op->extent.width, element, &width) < 0 ||
	    side_of(&op->src, &op->extent, element, &src) != CUDA_SUCCESS ||
	    side_of(&op->dst, &op->extent, element, &dst) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_box = (CUDA_MEMCPY3D){ .srcMemoryType = src.type,
				    .srcDevice = src.address,
				    .srcArray = src.array,
				    .srcXInBytes = src.x,
				    .srcY = src.y,
				    .srcZ = src.z,
				    .srcPitch = src.pitch,
				    .srcHeight = src.height,
				    .dstMemoryType = dst.type,
				    .dstDevice = dst.address,
				    .dstArray = dst.array,
				    .dstXInBytes = dst.x,
				    .dstY = dst.y,
				    .dstZ = dst.z,
				    .dstPitch = dst.pitch,
				    .dstHeight = dst.height,
				    .WidthInBytes = width,
				    .Height = op->extent.height,
				    .Depth = op->extent.depth };
	return CUDA_SUCCESS;
}

static bool are_operands(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	return (op->src.type == CU_MEMCPY_OPERAND_TYPE_POINTER ||
		op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) &&
	       (op->dst.type == CU_MEMCPY_OPERAND_TYPE_POINTER ||
		op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY);
}

CUresult CUDAAPI cuMemcpy3DBatchAsync(size_t n, CUDA_MEMCPY3D_BATCH_OP *ops,
				      unsigned long long flags, CUstream handle)
{
	struct CUstream_st *stream;
	bool waits = false;
	CUresult result = n && ops && flags == 0 ? enter_own(handle, &stream)
						 : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	for (size_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
		CUDA_MEMCPY3D box;

		result = are_operands(&ops[i]) ? box_of(&ops[i], &box) : CUDA_ERROR_INVALID_VALUE;
		if (result == CUDA_SUCCESS && box.srcMemoryType == CU_MEMORYTYPE_UNIFIED) {
			waits = waits ||
				is_read_later(stream, box.srcDevice, ops[i].srcAccessOrder);
			result = come_to(stream, box.srcDevice, ops[i].srcAccessOrder);
		}
		/* The lock may have been given up. */
		if (result == CUDA_SUCCESS && !cu_handle_is_locked(stream, CU_KIND_STREAM))
			return cu_leave(CUDA_ERROR_INVALID_HANDLE);
		if (result == CUDA_SUCCESS)
			result = cu_copy_box_locked(stream, &box, false);
	}
	if (result == CUDA_SUCCESS && waits)
		result = cu_stream_wait_locked(stream);
	return cu_leave(result);
}

/* ---- managed memory ---- */

/* It stays where it is: what was asked for is noted. */
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUmemLocation location,
				    unsigned int flags, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = flags == 0 ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS
		       ? cu_leave(cu_managed_prefetch_locked(address, bytes, &location))
		       : result;
}
