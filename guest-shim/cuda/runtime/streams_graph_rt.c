/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and launches of graphs, and entry points of the driver. Compiled twice, as streams_rt.c. */
#include "guest-shim/cuda/runtime/rt.h"

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	return RT(cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

cudaError_t CUDARTAPI cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
						    const cudaGraphNode_t *after,
						    const cudaGraphEdgeData *edges, size_t nafter,
						    enum cudaStreamCaptureMode mode)
{
	return RT(cuStreamBeginCaptureToGraph(stream, graph, after, (const CUgraphEdgeData *)edges,
					      nafter, (CUstreamCaptureMode)mode));
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	return RT(cuStreamEndCapture(stream, graph));
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream,
					    enum cudaStreamCaptureStatus *status)
{
	return RT(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream,
					       enum cudaStreamCaptureStatus *status,
					       unsigned long long *id, cudaGraph_t *graph,
					       const cudaGraphNode_t **after,
					       const cudaGraphEdgeData **edges, size_t *nafter)
{
	cuuint64_t found = 0;
	cudaError_t error = RT(cuStreamGetCaptureInfo(stream, (CUstreamCaptureStatus *)status,
						      &found, graph, after,
						      (const CUgraphEdgeData **)edges, nafter));

	if (error == cudaSuccess && id && *status == cudaStreamCaptureStatusActive)
		*id = found;
	return error;
}

cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
							  cudaGraphNode_t *nodes,
							  const cudaGraphEdgeData *edges, size_t n,
							  unsigned int flags)
{
	return RT(cuStreamUpdateCaptureDependencies(stream, nodes, (const CUgraphEdgeData *)edges,
						    n, flags));
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	return RT(cuGraphLaunch(exec, stream));
}

cudaError_t CUDARTAPI cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
	return RT(cuGraphUpload(exec, stream));
}

/* The structures and their results are laid out and numbered the same. */
cudaError_t CUDARTAPI cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
						     cudaGraphInstantiateParams *params)
{
	return RT(
		cuGraphInstantiateWithParams(exec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)params));
}

/* ---- entry points of the driver ---- */

static cudaError_t entry_point(const char *name, void **function, unsigned int version,
			       unsigned long long flags,
			       enum cudaDriverEntryPointQueryResult *status)
{
	CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
	CUresult result;

	if (flags > cudaEnablePerThreadDefaultStream || version > INT32_MAX)
		return rt_leave(CUDA_ERROR_INVALID_VALUE);
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
	if (flags == cudaEnableDefault)
		flags = cudaEnablePerThreadDefaultStream;
#endif
	/* The flags have the driver's numbers, and so has what was found. */
	result = cuGetProcAddress(name, function, (int)version, flags, &found);
	if (result == CUDA_SUCCESS && status)
		*status = (enum cudaDriverEntryPointQueryResult)found;
	return rt_leave(result);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char *name, void **function,
					      unsigned long long flags,
					      enum cudaDriverEntryPointQueryResult *status)
{
	return entry_point(name, function, CUDART_VERSION, flags, status);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char *name, void **function,
						       unsigned int version,
						       unsigned long long flags,
						       enum cudaDriverEntryPointQueryResult *status)
{
	return entry_point(name, function, version, flags, status);
}
