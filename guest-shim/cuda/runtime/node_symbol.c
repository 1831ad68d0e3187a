/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of graphs that copy to and from variables of the program's: those of addresses, once it is known where the variable is. */
#include "guest-shim/cuda/runtime/rt.h"

static void *at(CUdeviceptr address)
{
	return (void *)(uintptr_t)address;
}

/* The address, and the thread's last error where there is none. */
static cudaError_t find(const void *symbol, size_t bytes, size_t off, enum cudaMemcpyKind kind,
			bool to, CUdeviceptr *ret_address)
{
	return rt_leave((CUresult)rt_symbol(symbol, bytes, off, kind, to, ret_address));
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
						     const cudaGraphNode_t *after, size_t nafter,
						     const void *symbol, const void *src,
						     size_t bytes, size_t off,
						     enum cudaMemcpyKind kind)
{
	CUdeviceptr to;
	cudaError_t error = find(symbol, bytes, off, kind, true, &to);

	return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(node, graph, after, nafter, at(to),
							       src, bytes, kind)
				    : error;
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *node, cudaGraph_t graph,
						       const cudaGraphNode_t *after, size_t nafter,
						       void *dst, const void *symbol, size_t bytes,
						       size_t off, enum cudaMemcpyKind kind)
{
	CUdeviceptr from;
	cudaError_t error = find(symbol, bytes, off, kind, false, &from);

	return error == cudaSuccess ? cudaGraphAddMemcpyNode1D(node, graph, after, nafter, dst,
							       at(from), bytes, kind)
				    : error;
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol,
							   const void *src, size_t bytes,
							   size_t off, enum cudaMemcpyKind kind)
{
	CUdeviceptr to;
	cudaError_t error = find(symbol, bytes, off, kind, true, &to);

	return error == cudaSuccess ? cudaGraphMemcpyNodeSetParams1D(node, at(to), src, bytes, kind)
				    : error;
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *dst,
							     const void *symbol, size_t bytes,
							     size_t off, enum cudaMemcpyKind kind)
{
	CUdeviceptr from;
	cudaError_t error = find(symbol, bytes, off, kind, false, &from);

	return error == cudaSuccess
		       ? cudaGraphMemcpyNodeSetParams1D(node, dst, at(from), bytes, kind)
		       : error;
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec,
							       cudaGraphNode_t node,
							       const void *symbol, const void *src,
							       size_t bytes, size_t off,
							       enum cudaMemcpyKind kind)
{
	CUdeviceptr to;
	cudaError_t error = find(symbol, bytes, off, kind, true, &to);

	return error == cudaSuccess
		       ? cudaGraphExecMemcpyNodeSetParams1D(exec, node, at(to), src, bytes, kind)
		       : error;
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec,
								 cudaGraphNode_t node, void *dst,
								 const void *symbol, size_t bytes,
								 size_t off,
								 enum cudaMemcpyKind kind)
{
	CUdeviceptr from;
	cudaError_t error = find(symbol, bytes, off, kind, false, &from);

	return error == cudaSuccess
		       ? cudaGraphExecMemcpyNodeSetParams1D(exec, node, dst, at(from), bytes, kind)
		       : error;
}
