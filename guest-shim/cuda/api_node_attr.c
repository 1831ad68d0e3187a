/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: attributes of graphs' kernel nodes. How blocks are grouped is what a launch does; the others are noted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graph.h"

#define CLUSTER_MAX 16u /* of each dimension; GANTRY_TASK_CLUSTER has no more */

/* With the lock on success: a kernel's node, which is the program's to change where it @changes. */
static CUresult enter(CUgraphNode node, bool changes, struct CUctx_st **ret_ctx)
{
	CUresult result = cu_enter(ret_ctx);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(node, CU_KIND_NODE) || node->work.is_library ||
	    node->work.type != CU_GRAPH_NODE_TYPE_KERNEL || (changes && node->graph->is_inner))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

static CUresult set_groups(struct cu_call *call, const struct cu_device *dev, uint32_t groups)
{
	CUresult result;

	/* Its module may have been unloaded. */
	if (!cu_handle_is_locked(call->func, CU_KIND_FUNC))
		return CUDA_ERROR_INVALID_HANDLE;
	result = cu_call_check_groups_locked(dev, call, groups);
	if (result == CUDA_SUCCESS)
		call->groups = groups;
	return result;
}

static CUresult set_cluster(struct cu_call *call, const struct cu_device *dev,
			    const CUlaunchAttributeValue *value)
{
	uint32_t x = value->clusterDim.x, y = value->clusterDim.y, z = value->clusterDim.z;

	if (x < 1 || x > CLUSTER_MAX || y < 1 || y > CLUSTER_MAX || z < 1 || z > CLUSTER_MAX)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return set_groups(call, dev,
			  (call->groups & GANTRY_TASK_TOGETHER) | GANTRY_TASK_CLUSTER(x, y, z));
}

static CUresult set(struct cu_call *call, const struct cu_device *dev, CUlaunchAttributeID which,
		    const CUlaunchAttributeValue *value)
{
	uint32_t cluster = call->groups & ~GANTRY_TASK_TOGETHER;

	switch (which) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return set_groups(call, dev,
				  cluster | (value->cooperative ? GANTRY_TASK_TOGETHER : 0));
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		return set_cluster(call, dev, value);
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		call->said.priority = value->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if ((unsigned int)value->clusterSchedulingPolicyPreference >
		    CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
			return CUDA_ERROR_INVALID_VALUE;
		call->said.policy = value->clusterSchedulingPolicyPreference;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value->sharedMemCarveout > 100)
			return CUDA_ERROR_INVALID_VALUE;
		call->said.carveout = value->sharedMemCarveout;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return cu_unsupported("cuGraphKernelNodeSetAttribute of nodes that kernels change");
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: /* streams have that */
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return cu_hints_set(&call->said.hints, dev, which, value);
	}
}

static CUresult get(const struct cu_call *call, CUlaunchAttributeID which,
		    CUlaunchAttributeValue *ret_value)
{
	memset(ret_value, 0, sizeof(*ret_value));
	switch (which) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		ret_value->cooperative = (call->groups & GANTRY_TASK_TOGETHER) != 0;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		ret_value->clusterDim.x = GANTRY_TASK_CLUSTER_OF(call->groups, 0);
		ret_value->clusterDim.y = GANTRY_TASK_CLUSTER_OF(call->groups, 1);
		ret_value->clusterDim.z = GANTRY_TASK_CLUSTER_OF(call->groups, 2);
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		ret_value->priority = call->said.priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		ret_value->clusterSchedulingPolicyPreference = call->said.policy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		ret_value->sharedMemCarveout = call->said.carveout;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return CUDA_ERROR_INVALID_VALUE;
	default:
		return cu_hints_get(&call->said.hints, which, ret_value);
	}
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID which,
					       const CUkernelNodeAttrValue *value)
{
	struct CUctx_st *ctx;
	CUresult result = value ? enter(node, true, &ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	return cu_leave(set(&node->work.call, ctx->dev, which, value));
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID which,
					       CUkernelNodeAttrValue *value)
{
	struct CUctx_st *ctx;
	CUresult result = value ? enter(node, false, &ctx) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(get(&node->work.call, which, value)) : result;
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct CUctx_st *ctx;
	CUresult result = enter(dst, true, &ctx);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(src, CU_KIND_NODE) || src->work.is_library ||
	    src->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = set_groups(&dst->work.call, ctx->dev, src->work.call.groups);
	if (result == CUDA_SUCCESS)
		dst->work.call.said = src->work.call.said;
	return cu_leave(result);
}

/* ---- looking at a graph ---- */

/* Without the lock: it is the program's file, and may be slow. */
static CUresult write_file(const char *path, const char *text, size_t len)
{
	FILE *file = fopen(path, "we");
	bool failed;

	if (!file)
		return CUDA_ERROR_OPERATING_SYSTEM;
	failed = fwrite(text, 1, len, file) != len;
	failed = fclose(file) != 0 || failed;
	return failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
	CUresult result = path ? cu_check() : CUDA_ERROR_INVALID_VALUE;
	char *text = NULL;
	size_t len = 0;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	result = cu_handle_is_locked(graph, CU_KIND_GRAPH)
			 ? cu_dot_text_locked(graph, flags, &text, &len)
			 : CUDA_ERROR_INVALID_VALUE;
	result = cu_leave(result);
	if (result == CUDA_SUCCESS)
		result = write_file(path, text, len);
	free(text);
	return result;
}
