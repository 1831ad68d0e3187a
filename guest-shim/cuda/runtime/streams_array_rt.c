/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to and from arrays. Compiled twice, as streams_rt.c. Widths and offsets are bytes here. */
#include "guest-shim/cuda/runtime/array.h"

/* One end of rectangles in two dimensions: an array, or rows that are @pitch apart. */
struct plane {
	cudaArray_const_t array; /* NULL: rows */
	size_t x, y;
	const void *rows;
	size_t pitch;
	bool is_host; /* by the kind of copy; addresses say so where that is left open */
	bool is_either;
};

static CUresult put(const struct plane *dst, const struct plane *src, size_t width, size_t height,
		    cudaStream_t stream, bool waits)
{
	CUDA_MEMCPY3D what = {
		.dstXInBytes = dst->x,
		.dstY = dst->y,
		.dstMemoryType = dst->array	  ? CU_MEMORYTYPE_ARRAY
				 : dst->is_either ? CU_MEMORYTYPE_UNIFIED
				 : dst->is_host	  ? CU_MEMORYTYPE_HOST
						  : CU_MEMORYTYPE_DEVICE,
		.dstArray = rt_array(dst->array),
		.dstHost = (void *)(uintptr_t)dst->rows,
		.dstDevice = (CUdeviceptr)(uintptr_t)dst->rows,
		.dstPitch = dst->pitch,
		.srcXInBytes = src->x,
		.srcY = src->y,
		.srcMemoryType = src->array	  ? CU_MEMORYTYPE_ARRAY
				 : src->is_either ? CU_MEMORYTYPE_UNIFIED
				 : src->is_host	  ? CU_MEMORYTYPE_HOST
						  : CU_MEMORYTYPE_DEVICE,
		.srcArray = rt_array(src->array),
		.srcHost = src->rows,
		.srcDevice = (CUdeviceptr)(uintptr_t)src->rows,
		.srcPitch = src->pitch,
		.WidthInBytes = width,
		.Height = height,
		.Depth = 1,
	};

	return waits ? cuMemcpy3D(&what) : cuMemcpy3DAsync(&what, stream);
}

/* Where the rows lie of a copy whose other end is an array, which is the device's. */
static CUresult rows_of(enum cudaMemcpyKind kind, enum cudaMemcpyKind with_host,
			struct plane *plane)
{
	if (kind != with_host && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
		return (CUresult)cudaErrorInvalidMemcpyDirection;
	plane->is_host = kind == with_host;
	plane->is_either = kind == cudaMemcpyDefault;
	return CUDA_SUCCESS;
}

static CUresult to_array(cudaArray_t dst, size_t x, size_t y, const void *src, size_t pitch,
			 size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream,
			 bool waits)
{
	struct plane from = { .rows = src, .pitch = pitch };
	CUresult result = dst ? rows_of(kind, cudaMemcpyHostToDevice, &from)
			      : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS && pitch < width)
		result = (CUresult)cudaErrorInvalidPitchValue;
	return result == CUDA_SUCCESS ? put(&(struct plane){ .array = dst, .x = x, .y = y }, &from,
					    width, height, stream, waits)
				      : result;
}

static CUresult from_array(void *dst, size_t pitch, cudaArray_const_t src, size_t x, size_t y,
			   size_t width, size_t height, enum cudaMemcpyKind kind,
			   cudaStream_t stream, bool waits)
{
	struct plane to = { .rows = dst, .pitch = pitch };
	CUresult result = src ? rows_of(kind, cudaMemcpyDeviceToHost, &to)
			      : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS && pitch < width)
		result = (CUresult)cudaErrorInvalidPitchValue;
	return result == CUDA_SUCCESS ? put(&to, &(struct plane){ .array = src, .x = x, .y = y },
					    width, height, stream, waits)
				      : result;
}

cudaError_t CUDARTAPI cudaMemcpy2DToArray(cudaArray_t dst, size_t x, size_t y, const void *src,
					  size_t pitch, size_t width, size_t height,
					  enum cudaMemcpyKind kind)
{
	return RT(to_array(dst, x, y, src, pitch, width, height, kind, 0, true));
}

cudaError_t CUDARTAPI cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t x, size_t y, const void *src,
					       size_t pitch, size_t width, size_t height,
					       enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return RT(to_array(dst, x, y, src, pitch, width, height, kind, stream, false));
}

cudaError_t CUDARTAPI cudaMemcpy2DFromArray(void *dst, size_t pitch, cudaArray_const_t src,
					    size_t x, size_t y, size_t width, size_t height,
					    enum cudaMemcpyKind kind)
{
	return RT(from_array(dst, pitch, src, x, y, width, height, kind, 0, true));
}

cudaError_t CUDARTAPI cudaMemcpy2DFromArrayAsync(void *dst, size_t pitch, cudaArray_const_t src,
						 size_t x, size_t y, size_t width, size_t height,
						 enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return RT(from_array(dst, pitch, src, x, y, width, height, kind, stream, false));
}

static CUresult between(cudaArray_t dst, size_t dst_x, size_t dst_y, cudaArray_const_t src,
			size_t src_x, size_t src_y, size_t width, size_t height,
			enum cudaMemcpyKind kind)
{
	if (kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
		return (CUresult)cudaErrorInvalidMemcpyDirection;
	if (!dst || !src)
		return CUDA_ERROR_INVALID_VALUE;
	return put(&(struct plane){ .array = dst, .x = dst_x, .y = dst_y },
		   &(struct plane){ .array = src, .x = src_x, .y = src_y }, width, height, 0, true);
}

cudaError_t CUDARTAPI cudaMemcpy2DArrayToArray(cudaArray_t dst, size_t dst_x, size_t dst_y,
					       cudaArray_const_t src, size_t src_x, size_t src_y,
					       size_t width, size_t height,
					       enum cudaMemcpyKind kind)
{
	return RT(between(dst, dst_x, dst_y, src, src_x, src_y, width, height, kind));
}

/* ---- bytes from a place on, over the ends of rows ---- */

/* Where (@x, @y) is, counted in bytes. */
static CUresult offset_of(cudaArray_const_t array, size_t x, size_t y, size_t *ret_off)
{
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUresult result = cuArray3DGetDescriptor(&desc, rt_array(array));

	if (result == CUDA_SUCCESS &&
	    __builtin_mul_overflow(desc.Width * rt_element_bytes(rt_array(array)), y, ret_off))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && __builtin_add_overflow(*ret_off, x, ret_off))
		result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

static CUresult bytes_to(cudaArray_t dst, size_t x, size_t y, const void *src, size_t n,
			 enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)src;
	struct plane from = { 0 };
	size_t off;
	CUresult result = rows_of(kind, cudaMemcpyHostToDevice, &from);

	if (result == CUDA_SUCCESS)
		result = offset_of(dst, x, y, &off);
	if (result != CUDA_SUCCESS)
		return result;
	if (!from.is_host && !from.is_either)
		return cuMemcpyDtoA(rt_array(dst), off, address, n);
	/* Memory of the device's is found by its address. */
	return waits ? cuMemcpyHtoA(rt_array(dst), off, src, n)
		     : cuMemcpyHtoAAsync(rt_array(dst), off, src, n, stream);
}

static CUresult bytes_from(void *dst, cudaArray_const_t src, size_t x, size_t y, size_t n,
			   enum cudaMemcpyKind kind, cudaStream_t stream, bool waits)
{
	struct plane to = { 0 };
	size_t off;
	CUresult result = rows_of(kind, cudaMemcpyDeviceToHost, &to);

	if (result == CUDA_SUCCESS)
		result = offset_of(src, x, y, &off);
	if (result != CUDA_SUCCESS)
		return result;
	if (!to.is_host && !to.is_either)
		return cuMemcpyAtoD((CUdeviceptr)(uintptr_t)dst, rt_array(src), off, n);
	return waits ? cuMemcpyAtoH(dst, rt_array(src), off, n)
		     : cuMemcpyAtoHAsync(dst, rt_array(src), off, n, stream);
}

cudaError_t CUDARTAPI cudaMemcpyToArray(cudaArray_t dst, size_t x, size_t y, const void *src,
					size_t n, enum cudaMemcpyKind kind)
{
	return RT(bytes_to(dst, x, y, src, n, kind, 0, true));
}

cudaError_t CUDARTAPI cudaMemcpyToArrayAsync(cudaArray_t dst, size_t x, size_t y, const void *src,
					     size_t n, enum cudaMemcpyKind kind,
					     cudaStream_t stream)
{
	return RT(bytes_to(dst, x, y, src, n, kind, stream, false));
}

cudaError_t CUDARTAPI cudaMemcpyFromArray(void *dst, cudaArray_const_t src, size_t x, size_t y,
					  size_t n, enum cudaMemcpyKind kind)
{
	return RT(bytes_from(dst, src, x, y, n, kind, 0, true));
}

cudaError_t CUDARTAPI cudaMemcpyFromArrayAsync(void *dst, cudaArray_const_t src, size_t x, size_t y,
					       size_t n, enum cudaMemcpyKind kind,
					       cudaStream_t stream)
{
	return RT(bytes_from(dst, src, x, y, n, kind, stream, false));
}

static CUresult bytes_between(cudaArray_t dst, size_t dst_x, size_t dst_y, cudaArray_const_t src,
			      size_t src_x, size_t src_y, size_t n, enum cudaMemcpyKind kind)
{
	size_t to, from;
	CUresult result = kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault
				  ? offset_of(dst, dst_x, dst_y, &to)
				  : (CUresult)cudaErrorInvalidMemcpyDirection;

	if (result == CUDA_SUCCESS)
		result = offset_of(src, src_x, src_y, &from);
	return result == CUDA_SUCCESS ? cuMemcpyAtoA(rt_array(dst), to, rt_array(src), from, n)
				      : result;
}

cudaError_t CUDARTAPI cudaMemcpyArrayToArray(cudaArray_t dst, size_t dst_x, size_t dst_y,
					     cudaArray_const_t src, size_t src_x, size_t src_y,
					     size_t n, enum cudaMemcpyKind kind)
{
	return RT(bytes_between(dst, dst_x, dst_y, src, src_x, src_y, n, kind));
}
