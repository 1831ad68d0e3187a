/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: copies to and from arrays by offsets. Compiled twice, as streams_api.c. */
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/streams.h"

static CUresult copy(CUstream handle, const struct cu_copy *what)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS ? cu_leave(cu_copy_locked(stream, what)) : result;
}

/* No array is one that is none: NULL would make its offset an address. */
static CUarray given(CUarray array)
{
	return array ? array : (CUarray)&cu;
}

static CUdeviceptr at(const void *host)
{
	return (CUdeviceptr)(uintptr_t)host;
}

CUresult CUDAAPI cuMemcpyDtoA(CUarray dst, size_t off, CUdeviceptr src, size_t bytes)
{
	return copy(0, &(struct cu_copy){
			       .dst = off, .src = src, .bytes = bytes, .dst_array = given(dst) });
}

CUresult CUDAAPI cuMemcpyAtoD(CUdeviceptr dst, CUarray src, size_t off, size_t bytes)
{
	return copy(0, &(struct cu_copy){
			       .dst = dst, .src = off, .bytes = bytes, .src_array = given(src) });
}

CUresult CUDAAPI cuMemcpyHtoA(CUarray dst, size_t off, const void *src, size_t bytes)
{
	return copy(0, &(struct cu_copy){ .dst = off,
					  .src = at(src),
					  .bytes = bytes,
					  .src_may_be_pageable = true,
					  .waits = true,
					  .dst_array = given(dst) });
}

CUresult CUDAAPI cuMemcpyAtoH(void *dst, CUarray src, size_t off, size_t bytes)
{
	return copy(0, &(struct cu_copy){ .dst = at(dst),
					  .src = off,
					  .bytes = bytes,
					  .dst_may_be_pageable = true,
					  .waits = true,
					  .src_array = given(src) });
}

CUresult CUDAAPI cuMemcpyHtoAAsync(CUarray dst, size_t off, const void *src, size_t bytes,
				   CUstream stream)
{
	return copy(stream, &(struct cu_copy){ .dst = off,
					       .src = at(src),
					       .bytes = bytes,
					       .src_may_be_pageable = true,
					       .dst_array = given(dst) });
}

CUresult CUDAAPI cuMemcpyAtoHAsync(void *dst, CUarray src, size_t off, size_t bytes,
				   CUstream stream)
{
	return copy(stream, &(struct cu_copy){ .dst = at(dst),
					       .src = off,
					       .bytes = bytes,
					       .dst_may_be_pageable = true,
					       .src_array = given(src) });
}

CUresult CUDAAPI cuMemcpyAtoA(CUarray dst, size_t dst_off, CUarray src, size_t src_off,
			      size_t bytes)
{
	return copy(0, &(struct cu_copy){ .dst = dst_off,
					  .src = src_off,
					  .bytes = bytes,
					  .dst_array = given(dst),
					  .src_array = given(src) });
}
