/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: attributes of streams, which are hints (attr.c) but for the priority. Compiled twice, as streams_api.c. */
#include "guest-shim/cuda/streams.h"

static CUresult set(struct CUstream_st *stream, CUstreamAttrID which,
		    const CUstreamAttrValue *value)
{
	if (which != CU_STREAM_ATTRIBUTE_PRIORITY)
		return cu_hints_set(&stream->hints, stream->ctx->dev, which, value);
	/* The queue of the stream has it from its beginning. */
	return value->priority == stream->priority
		       ? CUDA_SUCCESS
		       : cu_unsupported("cuStreamSetAttribute of another priority");
}

static CUresult get(const struct CUstream_st *stream, CUstreamAttrID which,
		    CUstreamAttrValue *ret_value)
{
	if (which != CU_STREAM_ATTRIBUTE_PRIORITY)
		return cu_hints_get(&stream->hints, which, ret_value);
	*ret_value = (CUstreamAttrValue){ .priority = stream->priority };
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSetAttribute(CUstream handle, CUstreamAttrID which,
				      const CUstreamAttrValue *value)
{
	struct CUstream_st *stream;
	CUresult result = value ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(set(stream, which, value)) : result;
}

CUresult CUDAAPI cuStreamGetAttribute(CUstream handle, CUstreamAttrID which,
				      CUstreamAttrValue *value)
{
	struct CUstream_st *stream;
	CUresult result = value ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(get(stream, which, value)) : result;
}

CUresult CUDAAPI cuStreamCopyAttributes(CUstream dst, CUstream src)
{
	struct CUstream_st *from, *to;
	CUresult result = enter(dst, &to);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_stream_get_locked(to->ctx, src, PER_THREAD, &from);
	if (result == CUDA_SUCCESS && from->ctx != to->ctx)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS)
		to->hints = from->hints;
	return cu_leave(result);
}
