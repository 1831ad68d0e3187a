/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: memory that graphs allocate: nodes, and how much there is. */
#include "guest-shim/cuda/graphmem.h"

/* ---- nodes; with the lock on success ---- */

static CUresult enter_graph(CUgraph graph, const CUgraphNode *after, size_t nafter,
			    const void *output)
{
	CUresult result = output && (after || !nafter) ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH) || graph->is_inner)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < nafter; i++)
		if (!cu_handle_is_locked(after[i], CU_KIND_NODE) || after[i]->graph != graph)
			return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
					size_t nafter, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUresult result = enter_graph(graph, after, nafter, params ? (const void *)node : NULL);

	return result == CUDA_SUCCESS
		       ? cu_leave(cu_graph_add_alloc_locked(graph, after, nafter, params, node))
		       : result;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				       size_t nafter, CUdeviceptr address)
{
	CUresult result = enter_graph(graph, after, nafter, node);

	return result == CUDA_SUCCESS
		       ? cu_leave(cu_graph_add_free_locked(graph, after, nafter, address, node))
		       : result;
}

/* What the descriptors are is the node's own. */
CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params);

	if (result != CUDA_SUCCESS)
		return result;
	*params = node->work.alloc;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_MEM_FREE, address);

	if (result != CUDA_SUCCESS)
		return result;
	*address = node->work.freed;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- how much ---- */

static CUresult enter_device(CUdevice ordinal, struct cu_device **ret_dev)
{
	CUresult result = cu_check();

	if (result == CUDA_SUCCESS)
		result = cu_device_get(ordinal, ret_dev);
	if (result == CUDA_SUCCESS)
		(void)pthread_mutex_lock(&cu.lock);
	return result;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
					      void *value)
{
	struct cu_device *dev;
	CUresult result = value ? enter_device(ordinal, &dev) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if ((unsigned int)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	*(cuuint64_t *)value = cu_backing_bytes(dev, attribute);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute,
					      void *value)
{
	struct cu_device *dev;
	CUresult result;

	if (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
	    attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	/* High water marks are set back, and not to anything else. */
	if (!value || *(cuuint64_t *)value != 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = enter_device(ordinal, &dev);
	if (result != CUDA_SUCCESS)
		return result;
	cu_backing_reset_high(dev, attribute);
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice ordinal)
{
	struct cu_device *dev;
	CUresult result = enter_device(ordinal, &dev);

	if (result != CUDA_SUCCESS)
		return result;
	(void)cu_backing_trim_locked(dev);
	return cu_leave(CUDA_SUCCESS);
}
