/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: capturing streams, and launching graphs into them. Compiled twice, as streams_api.c. */
#include <stdlib.h>

#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/cuda/streams.h"

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
	struct cu_capture_state state;
	struct CUstream_st *stream;
	CUresult result = status ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	/* The legacy stream would wait for what is captured. */
	if (stream == stream->ctx->legacy && cu_capture_any_locked(stream->ctx))
		for (const struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
			if (s->capture && s->is_blocking)
				return cu_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	cu_capture_state_locked(stream, &state);
	*status = state.status;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	return result == CUDA_SUCCESS
		       ? cu_leave(cu_capture_begin_locked(stream, mode, NULL, NULL, 0))
		       : result;
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph,
					     const CUgraphNode *after, const CUgraphEdgeData *edges,
					     size_t nafter, CUstreamCaptureMode mode)
{
	struct CUstream_st *stream;
	CUresult result = after || !nafter ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	(void)edges; /* what may begin sooner begins when all is done */
	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH) ||
	    !cu_nodes_are_of_locked(graph, after, nafter))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return cu_leave(cu_capture_begin_locked(stream, mode, graph, after, nafter));
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_leave(cu_capture_end_locked(stream, graph));
	cu_userobj_destroy();
	return result;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **after, size_t *nafter)
{
	struct cu_capture_state state;
	struct CUstream_st *stream;
	CUresult result = status ? enter(handle, &stream) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	cu_capture_state_locked(stream, &state);
	*status = state.status;
	if (state.status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (id)
			*id = state.id;
		if (graph)
			*graph = state.graph;
		if (after)
			*after = stream->tips.node; /* until something is put into the stream */
		if (nafter)
			*nafter = stream->tips.n;
	}
	return cu_leave(CUDA_SUCCESS);
}

/* No edge of a captured graph has data: every one waits for all of the node before. */
static const CUgraphEdgeData *no_data(void)
{
	static CUgraphEdgeData none[4096];

	return none;
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status,
					cuuint64_t *id, CUgraph *graph, const CUgraphNode **after,
					const CUgraphEdgeData **edges, size_t *nafter)
{
	size_t n = 0;
	CUresult result;

	if (edges && !after)
		return CUDA_ERROR_INVALID_VALUE;
	result = info(handle, status, id, graph, after, &n);
	if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return result;
	if (edges && n > 4096)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (edges)
		*edges = no_data();
	if (nafter)
		*nafter = n;
	return CUDA_SUCCESS;
}

/* The form before edges had data. */
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream handle, CUstreamCaptureStatus *status,
						cuuint64_t *id, CUgraph *graph,
						const CUgraphNode **after, size_t *nafter);
CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream handle, CUstreamCaptureStatus *status,
						cuuint64_t *id, CUgraph *graph,
						const CUgraphNode **after, size_t *nafter)
{
	return info(handle, status, id, graph, after, nafter);
}
#else
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph,
					   const CUgraphNode **after, size_t *nafter);
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status,
					   cuuint64_t *id, CUgraph *graph,
					   const CUgraphNode **after, size_t *nafter)
{
	return info(handle, status, id, graph, after, nafter);
}
#endif

static CUresult update(CUstream handle, CUgraphNode *nodes, size_t n, unsigned int flags)
{
	struct cu_capture_state state;
	struct CUstream_st *stream;
	CUresult result = (nodes || !n) && flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES
				  ? enter(handle, &stream)
				  : CUDA_ERROR_INVALID_VALUE;
	bool fits = true;

	if (result != CUDA_SUCCESS)
		return result;
	cu_capture_state_locked(stream, &state);
	if (state.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return cu_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (!cu_nodes_are_of_locked(state.graph, nodes, n))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		fits = cu_nodes_set(&stream->tips, nodes, n);
	for (size_t i = 0; flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES && fits && i < n; i++)
		if (!cu_nodes_have(&stream->tips, nodes[i]))
			fits = cu_nodes_add(&stream->tips, nodes[i]);
	return cu_leave(fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes,
						   const CUgraphEdgeData *edges, size_t n,
						   unsigned int flags)
{
	(void)edges;
	return update(handle, nodes, n, flags);
}

/* ---- graphs ---- */

CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(exec, CU_KIND_EXEC))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = cu_leave(cu_exec_launch_locked(exec, stream));
	cu_userobj_destroy();
	return result;
}

/* Nothing of it is on the device before it is launched, but memory. */
CUresult CUDAAPI cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult result = enter(handle, &stream);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(exec, CU_KIND_EXEC))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return cu_leave(cu_exec_upload_locked(exec, stream));
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
					      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	bool has_unused = false;
	CUresult result;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	params->hErrNode_out = NULL;
	(void)pthread_mutex_lock(&cu.lock);
	if (cu_handle_is_locked(graph, CU_KIND_GRAPH))
		has_unused = cu_graph_has_unused_locked(graph);
	(void)pthread_mutex_unlock(&cu.lock);
	result = cuGraphInstantiateWithFlags(
		ret_exec, graph, params->flags & ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
	params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
			     : result == CUDA_ERROR_NOT_SUPPORTED
				     ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
			     : has_unused ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED
					  : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
	return result;
}
