/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs. What nodes are made of is in node.c. */
#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	return RT(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t *graph, unsigned int flags)
{
	return RT(cuGraphCreate(graph, flags));
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph)
{
	return RT(cuGraphDestroy(graph));
}

cudaError_t CUDARTAPI cudaGraphClone(cudaGraph_t *clone, cudaGraph_t graph)
{
	return RT(cuGraphClone(clone, graph));
}

cudaError_t CUDARTAPI cudaGraphNodeFindInClone(cudaGraphNode_t *ret_node, cudaGraphNode_t node,
					       cudaGraph_t clone)
{
	return RT(cuGraphNodeFindInClone(ret_node, node, clone));
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
	return RT(cuGraphGetNodes(graph, nodes, n));
}

cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
	return RT(cuGraphGetRootNodes(graph, nodes, n));
}

cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
					cudaGraphNode_t *to, cudaGraphEdgeData *edges, size_t *n)
{
	return RT(cuGraphGetEdges(graph, from, to, (CUgraphEdgeData *)edges, n));
}

cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
	CUgraphNodeType found = CU_GRAPH_NODE_TYPE_EMPTY;
	cudaError_t error = RT(cuGraphNodeGetType(node, type ? &found : NULL));

	/* The numbers are the same. */
	if (error == cudaSuccess)
		*type = (enum cudaGraphNodeType)found;
	return error;
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
						   cudaGraphEdgeData *edges, size_t *n)
{
	return RT(cuGraphNodeGetDependencies(node, nodes, (CUgraphEdgeData *)edges, n));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
						     cudaGraphEdgeData *edges, size_t *n)
{
	return RT(cuGraphNodeGetDependentNodes(node, nodes, (CUgraphEdgeData *)edges, n));
}

cudaError_t CUDARTAPI cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
					       const cudaGraphNode_t *to,
					       const cudaGraphEdgeData *edges, size_t n)
{
	return RT(cuGraphAddDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n));
}

cudaError_t CUDARTAPI cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
						  const cudaGraphNode_t *to,
						  const cudaGraphEdgeData *edges, size_t n)
{
	return RT(cuGraphRemoveDependencies(graph, from, to, (const CUgraphEdgeData *)edges, n));
}

/* The context is the thread's. */
cudaError_t CUDARTAPI cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle,
						       cudaGraph_t graph, unsigned int value,
						       unsigned int flags)
{
	CUgraphConditionalHandle made = 0;
	cudaError_t error = RT(
		cuGraphConditionalHandleCreate(handle ? &made : NULL, graph, NULL, value, flags));

	if (error == cudaSuccess)
		*handle = made;
	return error;
}

cudaError_t CUDARTAPI cudaGraphDestroyNode(cudaGraphNode_t node)
{
	return RT(cuGraphDestroyNode(node));
}

/* ---- what can be launched ---- */

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
					   unsigned long long flags)
{
	return RT(cuGraphInstantiate(exec, graph, flags));
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
						    unsigned long long flags)
{
	return RT(cuGraphInstantiate(exec, graph, flags));
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	return RT(cuGraphExecDestroy(exec));
}

cudaError_t CUDARTAPI cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long *flags)
{
	cuuint64_t found = 0;
	cudaError_t error = RT(cuGraphExecGetFlags(exec, flags ? &found : NULL));

	if (error == cudaSuccess)
		*flags = found;
	return error;
}

cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
					  cudaGraphExecUpdateResultInfo *info)
{
	return RT(cuGraphExecUpdate(exec, graph, (CUgraphExecUpdateResultInfo *)info));
}

cudaError_t CUDARTAPI cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					      unsigned int enabled)
{
	return RT(cuGraphNodeSetEnabled(exec, node, enabled));
}

cudaError_t CUDARTAPI cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
					      unsigned int *enabled)
{
	return RT(cuGraphNodeGetEnabled(exec, node, enabled));
}

/* ---- objects of the program's, memory of graphs ---- */

cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t *object, void *data,
					   cudaHostFn_t destroy, unsigned int nrefs,
					   unsigned int flags)
{
	return RT(cuUserObjectCreate(object, data, destroy, nrefs, flags));
}

cudaError_t CUDARTAPI cudaUserObjectRetain(cudaUserObject_t object, unsigned int n)
{
	return RT(cuUserObjectRetain(object, n));
}

cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t object, unsigned int n)
{
	return RT(cuUserObjectRelease(object, n));
}

cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
						unsigned int n, unsigned int flags)
{
	return RT(cuGraphRetainUserObject(graph, object, n, flags));
}

cudaError_t CUDARTAPI cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
						 unsigned int n)
{
	return RT(cuGraphReleaseUserObject(graph, object, n));
}

cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int ordinal,
						     enum cudaGraphMemAttributeType attribute,
						     void *value)
{
	return RT(cuDeviceGetGraphMemAttribute(ordinal, (CUgraphMem_attribute)attribute, value));
}

cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int ordinal,
						     enum cudaGraphMemAttributeType attribute,
						     void *value)
{
	return RT(cuDeviceSetGraphMemAttribute(ordinal, (CUgraphMem_attribute)attribute, value));
}

cudaError_t CUDARTAPI cudaDeviceGraphMemTrim(int ordinal)
{
	return RT(cuDeviceGraphMemTrim(ordinal));
}
