/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs: the Runtime API's words for them become the Driver API's. */
#include <string.h>

#include "guest-shim/cuda/runtime/rt.h"

/* ---- words ---- */

static CUresult kernel_of(const struct cudaKernelNodeParams *from, CUDA_KERNEL_NODE_PARAMS *ret_to)
{
	CUfunction function;
	cudaError_t error = from ? rt_function(from->func, &function) : cudaErrorInvalidValue;

	/* A launch says that it is no function of a device; here it is no handle of a kernel either. */
	if (error == cudaErrorInvalidDeviceFunction)
		error = cudaErrorInvalidResourceHandle;
	if (error != cudaSuccess)
		return (CUresult)error;
	*ret_to = (CUDA_KERNEL_NODE_PARAMS){
		.func = function,
		.gridDimX = from->gridDim.x,
		.gridDimY = from->gridDim.y,
		.gridDimZ = from->gridDim.z,
		.blockDimX = from->blockDim.x,
		.blockDimY = from->blockDim.y,
		.blockDimZ = from->blockDim.z,
		.sharedMemBytes = from->sharedMemBytes,
		.kernelParams = from->kernelParams,
		.extra = from->extra,
	};
	return CUDA_SUCCESS;
}

static CUresult fill_of(const struct cudaMemsetParams *from, CUDA_MEMSET_NODE_PARAMS *ret_to)
{
	if (!from)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_to = (CUDA_MEMSET_NODE_PARAMS){ .dst = (CUdeviceptr)(uintptr_t)from->dst,
					     .pitch = from->pitch,
					     .value = from->value,
					     .elementSize = from->elementSize,
					     .width = from->width,
					     .height = from->height };
	return CUDA_SUCCESS;
}

static struct cudaMemcpy3DParms line_of(void *dst, const void *src, size_t bytes,
					enum cudaMemcpyKind kind)
{
	return (struct cudaMemcpy3DParms){ .srcPtr = { (void *)(uintptr_t)src, bytes, bytes, 1 },
					   .dstPtr = { dst, bytes, bytes, 1 },
					   .extent = { bytes, 1, 1 },
					   .kind = kind };
}

/* ---- adding ---- */

cudaError_t CUDARTAPI cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
					     const cudaGraphNode_t *after, size_t nafter,
					     const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS own;
	cudaError_t error = RT(kernel_of(params, &own));

	return error == cudaSuccess ? RT(cuGraphAddKernelNode(node, graph, after, nafter, &own))
				    : error;
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode(cudaGraphNode_t *node, cudaGraph_t graph,
					     const cudaGraphNode_t *after, size_t nafter,
					     const struct cudaMemcpy3DParms *params)
{
	CUDA_MEMCPY3D own;
	cudaError_t error = RT(rt_box(params, &own));

	return error == cudaSuccess
		       ? RT(cuGraphAddMemcpyNode(node, graph, after, nafter, &own, NULL))
		       : error;
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
					       const cudaGraphNode_t *after, size_t nafter,
					       void *dst, const void *src, size_t bytes,
					       enum cudaMemcpyKind kind)
{
	const struct cudaMemcpy3DParms params = line_of(dst, src, bytes, kind);

	return cudaGraphAddMemcpyNode(node, graph, after, nafter, &params);
}

cudaError_t CUDARTAPI cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
					     const cudaGraphNode_t *after, size_t nafter,
					     const struct cudaMemsetParams *params)
{
	CUDA_MEMSET_NODE_PARAMS own;
	cudaError_t error = RT(fill_of(params, &own));

	return error == cudaSuccess
		       ? RT(cuGraphAddMemsetNode(node, graph, after, nafter, &own, NULL))
		       : error;
}

/* The structures are the same. */
cudaError_t CUDARTAPI cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
					   const cudaGraphNode_t *after, size_t nafter,
					   const struct cudaHostNodeParams *params)
{
	return RT(cuGraphAddHostNode(node, graph, after, nafter,
				     (const CUDA_HOST_NODE_PARAMS *)params));
}

cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t *node, cudaGraph_t graph,
					    const cudaGraphNode_t *after, size_t nafter)
{
	return RT(cuGraphAddEmptyNode(node, graph, after, nafter));
}

cudaError_t CUDARTAPI cudaGraphAddChildGraphNode(cudaGraphNode_t *node, cudaGraph_t graph,
						 const cudaGraphNode_t *after, size_t nafter,
						 cudaGraph_t child)
{
	return RT(cuGraphAddChildGraphNode(node, graph, after, nafter, child));
}

cudaError_t CUDARTAPI cudaGraphAddEventRecordNode(cudaGraphNode_t *node, cudaGraph_t graph,
						  const cudaGraphNode_t *after, size_t nafter,
						  cudaEvent_t event)
{
	return RT(cuGraphAddEventRecordNode(node, graph, after, nafter, event));
}

cudaError_t CUDARTAPI cudaGraphAddEventWaitNode(cudaGraphNode_t *node, cudaGraph_t graph,
						const cudaGraphNode_t *after, size_t nafter,
						cudaEvent_t event)
{
	return RT(cuGraphAddEventWaitNode(node, graph, after, nafter, event));
}

/* Both APIs lay these out the same. */
cudaError_t CUDARTAPI cudaGraphAddMemAllocNode(cudaGraphNode_t *node, cudaGraph_t graph,
					       const cudaGraphNode_t *after, size_t nafter,
					       struct cudaMemAllocNodeParams *params)
{
	CUDA_MEM_ALLOC_NODE_PARAMS own;
	cudaError_t error;

	_Static_assert(sizeof(*params) == sizeof(own), "both have the same size");
	if (params)
		memcpy(&own, params, sizeof(own));
	error = RT(cuGraphAddMemAllocNode(node, graph, after, nafter, params ? &own : NULL));
	if (error == cudaSuccess)
		params->dptr = (void *)(uintptr_t)own.dptr;
	return error;
}

cudaError_t CUDARTAPI cudaGraphAddMemFreeNode(cudaGraphNode_t *node, cudaGraph_t graph,
					      const cudaGraphNode_t *after, size_t nafter,
					      void *address)
{
	return RT(
		cuGraphAddMemFreeNode(node, graph, after, nafter, (CUdeviceptr)(uintptr_t)address));
}

/* What both APIs lay out the same is passed on; of these three the words differ. */
static cudaError_t params_of(const struct cudaGraphNodeParams *params, CUgraphNodeParams *ret_own)
{
	struct cudaKernelNodeParams kernel;
	CUDA_KERNEL_NODE_PARAMS made;
	cudaError_t error;

	if (!params)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
	_Static_assert(sizeof(*params) == sizeof(*ret_own), "both have the same size");
	memcpy(ret_own, params, sizeof(*ret_own));
	if (params->type == cudaGraphNodeTypeMemcpy) {
		memset(&ret_own->memcpy, 0, sizeof(ret_own->memcpy));
		return RT(rt_box(&params->memcpy.copyParams, &ret_own->memcpy.copyParams));
	}
	/* Theirs has no context: it is the condition's. */
	if (params->type == cudaGraphNodeTypeConditional)
		ret_own->conditional.ctx = NULL;
	if (params->type != cudaGraphNodeTypeKernel)
		return cudaSuccess;
	kernel = (struct cudaKernelNodeParams){ .func = params->kernel.func,
						.gridDim = params->kernel.gridDim,
						.blockDim = params->kernel.blockDim,
						.sharedMemBytes = params->kernel.sharedMemBytes,
						.kernelParams = params->kernel.kernelParams,
						.extra = params->kernel.extra };
	error = RT(kernel_of(&kernel, &made));
	if (error == cudaSuccess)
		memcpy(&ret_own->kernel, &made, sizeof(made));
	return error;
}

cudaError_t CUDARTAPI cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
				       const cudaGraphNode_t *after, const cudaGraphEdgeData *edges,
				       size_t nafter, struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams own;
	cudaError_t error = params_of(params, &own);

	if (error == cudaSuccess)
		error = RT(cuGraphAddNode(node, graph, after, (const CUgraphEdgeData *)edges,
					  nafter, &own));
	if (error == cudaSuccess && params->type == cudaGraphNodeTypeMemAlloc)
		params->alloc.dptr = (void *)(uintptr_t)own.alloc.dptr;
	if (error == cudaSuccess && params->type == cudaGraphNodeTypeConditional)
		params->conditional.phGraph_out = own.conditional.phGraph_out;
	return error;
}

/* ---- changing ---- */

cudaError_t CUDARTAPI cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
						   const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS own;
	cudaError_t error = RT(kernel_of(params, &own));

	return error == cudaSuccess ? RT(cuGraphKernelNodeSetParams(node, &own)) : error;
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
						   const struct cudaMemcpy3DParms *params)
{
	CUDA_MEMCPY3D own;
	cudaError_t error = RT(rt_box(params, &own));

	return error == cudaSuccess ? RT(cuGraphMemcpyNodeSetParams(node, &own)) : error;
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst,
						     const void *src, size_t bytes,
						     enum cudaMemcpyKind kind)
{
	const struct cudaMemcpy3DParms params = line_of(dst, src, bytes, kind);

	return cudaGraphMemcpyNodeSetParams(node, &params);
}

cudaError_t CUDARTAPI cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
						   const struct cudaMemsetParams *params)
{
	CUDA_MEMSET_NODE_PARAMS own;
	cudaError_t error = RT(fill_of(params, &own));

	return error == cudaSuccess ? RT(cuGraphMemsetNodeSetParams(node, &own)) : error;
}

cudaError_t CUDARTAPI cudaGraphHostNodeSetParams(cudaGraphNode_t node,
						 const struct cudaHostNodeParams *params)
{
	return RT(cuGraphHostNodeSetParams(node, (const CUDA_HOST_NODE_PARAMS *)params));
}

cudaError_t CUDARTAPI cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
						       const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS own;
	cudaError_t error = RT(kernel_of(params, &own));

	return error == cudaSuccess ? RT(cuGraphExecKernelNodeSetParams(exec, node, &own)) : error;
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
						       const struct cudaMemcpy3DParms *params)
{
	CUDA_MEMCPY3D own;
	cudaError_t error = RT(rt_box(params, &own));

	return error == cudaSuccess ? RT(cuGraphExecMemcpyNodeSetParams(exec, node, &own, NULL))
				    : error;
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node,
							 void *dst, const void *src, size_t bytes,
							 enum cudaMemcpyKind kind)
{
	const struct cudaMemcpy3DParms params = line_of(dst, src, bytes, kind);

	return cudaGraphExecMemcpyNodeSetParams(exec, node, &params);
}

cudaError_t CUDARTAPI cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
						       const struct cudaMemsetParams *params)
{
	CUDA_MEMSET_NODE_PARAMS own;
	cudaError_t error = RT(fill_of(params, &own));

	return error == cudaSuccess ? RT(cuGraphExecMemsetNodeSetParams(exec, node, &own, NULL))
				    : error;
}

cudaError_t CUDARTAPI cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
						     const struct cudaHostNodeParams *params)
{
	return RT(cuGraphExecHostNodeSetParams(exec, node, (const CUDA_HOST_NODE_PARAMS *)params));
}

cudaError_t CUDARTAPI cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec,
							   cudaGraphNode_t node, cudaGraph_t child)
{
	return RT(cuGraphExecChildGraphNodeSetParams(exec, node, child));
}

cudaError_t CUDARTAPI cudaGraphNodeSetParams(cudaGraphNode_t node,
					     struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams own;
	cudaError_t error = params_of(params, &own);

	return error == cudaSuccess ? RT(cuGraphNodeSetParams(node, &own)) : error;
}

cudaError_t CUDARTAPI cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
						 struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams own;
	cudaError_t error = params_of(params, &own);

	return error == cudaSuccess ? RT(cuGraphExecNodeSetParams(exec, node, &own)) : error;
}
