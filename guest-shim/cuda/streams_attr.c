/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported: attributes of streams. Each is a hint: it is checked as CUDA does and noted, so that a program reads what it has set; the
 * host decides about its caches, how it waits, and which of its tenants' kernels share a domain. Compiled twice, as streams_api.c.
 */
#include <string.h>

#include "guest-shim/cuda/streams.h"

static bool is_window(const struct cu_device *dev, const CUaccessPolicyWindow *window)
{
	int32_t most = dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE];

	return window->hitRatio >= 0 && window->hitRatio <= 1 &&
	       (most <= 0 || window->num_bytes <= (size_t)most) &&
	       (unsigned int)window->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned int)window->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

static CUresult set(struct CUstream_st *stream, CUstreamAttrID which,
		    const CUstreamAttrValue *value)
{
	struct cu_stream_hints *hints = &stream->hints;
	const struct cu_device *dev = stream->ctx->dev;
	int32_t ndomains = dev->attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];

	switch (which) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		if (!is_window(dev, &value->accessPolicyWindow))
			return CUDA_ERROR_INVALID_VALUE;
		hints->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
		    value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
			return CUDA_ERROR_INVALID_VALUE;
		hints->waits = value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		if (value->memSyncDomainMap.default_ >= ndomains ||
		    value->memSyncDomainMap.remote >= ndomains)
			return CUDA_ERROR_INVALID_VALUE;
		hints->domains = value->memSyncDomainMap;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		if ((unsigned int)value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
			return CUDA_ERROR_INVALID_VALUE;
		hints->domain = value->memSyncDomain;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		/* The queue of the stream has it from its beginning. */
		return value->priority == stream->priority
			       ? CUDA_SUCCESS
			       : cu_unsupported("cuStreamSetAttribute of another priority");
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult get(const struct CUstream_st *stream, CUstreamAttrID which,
		    CUstreamAttrValue *ret_value)
{
	const struct cu_stream_hints *hints = &stream->hints;

	memset(ret_value, 0, sizeof(*ret_value));
	switch (which) {
	case CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		ret_value->accessPolicyWindow = hints->window;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		ret_value->syncPolicy = hints->waits;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		ret_value->memSyncDomainMap = hints->domains;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN:
		ret_value->memSyncDomain = hints->domain;
		return CUDA_SUCCESS;
	case CU_STREAM_ATTRIBUTE_PRIORITY:
		ret_value->priority = stream->priority;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
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
