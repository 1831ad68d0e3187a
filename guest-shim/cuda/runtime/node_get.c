/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs, asked: the Driver API's words for them become the Runtime API's. And their events. */
#include <string.h>

#include "guest-shim/cuda/runtime/array.h"

/* ---- what a node does ---- */

static CUresult get_kernel(cudaGraphNode_t node, struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS own;
	CUresult result = params ? cuGraphKernelNodeGetParams(node, &own)
				 : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*params = (struct cudaKernelNodeParams){
		.func = (void *)(uintptr_t)rt_host_of(own.func),
		.gridDim = { own.gridDimX, own.gridDimY, own.gridDimZ },
		.blockDim = { own.blockDimX, own.blockDimY, own.blockDimZ },
		.sharedMemBytes = own.sharedMemBytes,
		.kernelParams = own.kernelParams,
		.extra = own.extra,
	};
	return CUDA_SUCCESS;
}

cudaError_t CUDARTAPI cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
						   struct cudaKernelNodeParams *params)
{
	return RT(get_kernel(node, params));
}

static CUresult get_fill(cudaGraphNode_t node, struct cudaMemsetParams *params)
{
	CUDA_MEMSET_NODE_PARAMS own;
	CUresult result = params ? cuGraphMemsetNodeGetParams(node, &own)
				 : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*params = (struct cudaMemsetParams){ .dst = (void *)(uintptr_t)own.dst,
						     .pitch = own.pitch,
						     .value = own.value,
						     .elementSize = own.elementSize,
						     .width = own.width,
						     .height = own.height };
	return result;
}

cudaError_t CUDARTAPI cudaGraphMemsetNodeGetParams(cudaGraphNode_t node,
						   struct cudaMemsetParams *params)
{
	return RT(get_fill(node, params));
}

cudaError_t CUDARTAPI cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node,
						     struct cudaMemAllocNodeParams *params)
{
	CUDA_MEM_ALLOC_NODE_PARAMS own;
	cudaError_t error = RT(cuGraphMemAllocNodeGetParams(node, params ? &own : NULL));

	if (error == cudaSuccess)
		memcpy(params, &own, sizeof(own));
	return error;
}

cudaError_t CUDARTAPI cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *ret_address)
{
	CUdeviceptr own;
	cudaError_t error = RT(cuGraphMemFreeNodeGetParams(node, ret_address ? &own : NULL));

	if (error == cudaSuccess)
		memcpy(ret_address, &own, sizeof(own));
	return error;
}

static CUresult get_copy(cudaGraphNode_t node, struct cudaMemcpy3DParms *params)
{
	CUDA_MEMCPY3D own;
	CUresult result = params ? cuGraphMemcpyNodeGetParams(node, &own)
				 : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? rt_unbox(&own, params) : result;
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node,
						   struct cudaMemcpy3DParms *params)
{
	return RT(get_copy(node, params));
}

/* The structures are the same. */
cudaError_t CUDARTAPI cudaGraphHostNodeGetParams(cudaGraphNode_t node,
						 struct cudaHostNodeParams *params)
{
	return RT(cuGraphHostNodeGetParams(node, (CUDA_HOST_NODE_PARAMS *)params));
}

cudaError_t CUDARTAPI cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *graph)
{
	return RT(cuGraphChildGraphNodeGetGraph(node, graph));
}

/* ---- events ---- */

cudaError_t CUDARTAPI cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
	return RT(cuGraphEventRecordNodeGetEvent(node, event));
}

cudaError_t CUDARTAPI cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
	return RT(cuGraphEventRecordNodeSetEvent(node, event));
}

cudaError_t CUDARTAPI cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t *event)
{
	return RT(cuGraphEventWaitNodeGetEvent(node, event));
}

cudaError_t CUDARTAPI cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event)
{
	return RT(cuGraphEventWaitNodeSetEvent(node, event));
}

cudaError_t CUDARTAPI cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec,
							   cudaGraphNode_t node, cudaEvent_t event)
{
	return RT(cuGraphExecEventRecordNodeSetEvent(exec, node, event));
}

cudaError_t CUDARTAPI cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node,
							 cudaEvent_t event)
{
	return RT(cuGraphExecEventWaitNodeSetEvent(exec, node, event));
}

/* ---- attributes, and a look at a graph ---- */

cudaError_t CUDARTAPI cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node,
						      cudaLaunchAttributeID which,
						      const cudaLaunchAttributeValue *value)
{
	_Static_assert(sizeof(*value) == sizeof(CUkernelNodeAttrValue), "both have the same size");
	return RT(cuGraphKernelNodeSetAttribute(node, (CUkernelNodeAttrID)which,
						(const CUkernelNodeAttrValue *)value));
}

cudaError_t CUDARTAPI cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node,
						      cudaLaunchAttributeID which,
						      cudaLaunchAttributeValue *value)
{
	return RT(cuGraphKernelNodeGetAttribute(node, (CUkernelNodeAttrID)which,
						(CUkernelNodeAttrValue *)value));
}

cudaError_t CUDARTAPI cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t dst, cudaGraphNode_t src)
{
	return RT(cuGraphKernelNodeCopyAttributes(dst, src));
}

/* The flags have the same numbers. */
cudaError_t CUDARTAPI cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path,
					     unsigned int flags)
{
	return RT(cuGraphDebugDotPrint(graph, path, flags));
}
