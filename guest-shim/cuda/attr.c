/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes that are hints, of streams and of graphs' kernels: each is checked as CUDA does and noted, so that a program reads what
 * it has set; the host decides about its caches, how it waits, and which of its tenants' kernels share a domain.
 */
#include <string.h>

#include "guest-shim/cuda/core.h"

static bool is_window(const struct cu_device *dev, const CUaccessPolicyWindow *window)
{
	int32_t most = dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE];

	return window->hitRatio >= 0 && window->hitRatio <= 1 &&
	       (most <= 0 || window->num_bytes <= (size_t)most) &&
	       (unsigned int)window->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
	       (unsigned int)window->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

CUresult cu_hints_set(struct cu_hints *hints, const struct cu_device *dev,
		      CUlaunchAttributeID which, const CUlaunchAttributeValue *value)
{
	int32_t ndomains = dev->attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT];

	switch (which) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		if (!is_window(dev, &value->accessPolicyWindow))
			return CUDA_ERROR_INVALID_VALUE;
		hints->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
		    value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
			return CUDA_ERROR_INVALID_VALUE;
		hints->waits = value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		if (value->memSyncDomainMap.default_ >= ndomains ||
		    value->memSyncDomainMap.remote >= ndomains)
			return CUDA_ERROR_INVALID_VALUE;
		hints->domains = value->memSyncDomainMap;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		if ((unsigned int)value->memSyncDomain > CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE)
			return CUDA_ERROR_INVALID_VALUE;
		hints->domain = value->memSyncDomain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cu_hints_get(const struct cu_hints *hints, CUlaunchAttributeID which,
		      CUlaunchAttributeValue *ret_value)
{
	memset(ret_value, 0, sizeof(*ret_value));
	switch (which) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		ret_value->accessPolicyWindow = hints->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		ret_value->syncPolicy = hints->waits;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		ret_value->memSyncDomainMap = hints->domains;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		ret_value->memSyncDomain = hints->domain;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
