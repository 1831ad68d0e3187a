/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams that are captured: what is put into them becomes a node of a graph. A stream joins the capture of another when it
 * waits for an event that was recorded there, and has to be joined again before the capture ends.
 */
#include <stdlib.h>

#include "guest-shim/cuda/graphmem.h"

struct cu_capture {
	struct cu_capture *next;
	struct CUgraph_st *graph; /* NULL: it is gone, and the capture invalid */
	struct CUstream_st *origin;
	uint64_t id;
	CUstreamCaptureMode mode;
	pthread_t thread; /* that began it */
	bool owns_graph;  /* nobody else had it when it began */
	struct cu_nodes
		left; /* what streams ended with that are gone: it has to be joined as well */
	bool is_invalid;
};

static struct cu_capture *captures;
static uint64_t next_id;
static _Thread_local CUstreamCaptureMode thread_mode; /* GLOBAL at first */

CUstreamCaptureMode cu_capture_mode_exchange(CUstreamCaptureMode mode)
{
	CUstreamCaptureMode before = thread_mode;

	thread_mode = mode;
	return before;
}

/* ---- begin and end ---- */

static void put_into(struct CUstream_st *stream, struct cu_capture *capture)
{
	free(stream->tips.node);
	stream->tips = (struct cu_nodes){ 0 };
	stream->capture = capture;
}

CUresult cu_capture_begin_locked(struct CUstream_st *stream, CUstreamCaptureMode mode,
				 struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				 size_t nafter)
{
	struct cu_capture *capture;
	CUresult result = CUDA_SUCCESS;

	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream == stream->ctx->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (stream->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*capture = (struct cu_capture){ .next = captures,
					.graph = graph,
					.origin = stream,
					.id = ++next_id,
					.mode = mode,
					.thread = pthread_self(),
					.owns_graph = !graph };
	if (!graph)
		result = cu_graph_new_locked(&capture->graph);
	put_into(stream, NULL);
	if (result == CUDA_SUCCESS && !cu_nodes_set(&stream->tips, after, nafter)) {
		if (capture->owns_graph)
			cu_graph_free_locked(capture->graph);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (result != CUDA_SUCCESS) {
		free(capture);
		return result;
	}
	capture->graph->ncaptures++;
	captures = capture;
	stream->capture = capture;
	return CUDA_SUCCESS;
}

static struct CUstream_st *next_stream(const struct cu_capture *capture, uint32_t *at)
{
	struct CUstream_st *stream;

	while ((stream = (struct CUstream_st *)(uintptr_t)cu_handle_next_locked(CU_KIND_STREAM,
										at)))
		if (stream->capture == capture)
			return stream;
	return NULL;
}

static bool are_marked(const struct cu_nodes *nodes)
{
	for (uint32_t i = 0; i < nodes->n; i++)
		if (!nodes->node[i]->is_marked)
			return false;
	return true;
}

/* What was put into the other streams has to come before something in the one where it began. */
static bool is_joined(const struct cu_capture *capture)
{
	const struct cu_nodes *tips = &capture->origin->tips;
	const struct CUstream_st *stream;
	uint32_t at = 0;
	bool joined = true;

	cu_graph_unmark_locked(capture->graph);
	for (uint32_t i = 0; i < tips->n; i++)
		cu_graph_mark_locked(tips->node[i]);
	while ((stream = next_stream(capture, &at)))
		joined = joined && are_marked(&stream->tips);
	joined = joined && are_marked(&capture->left);
	cu_graph_unmark_locked(capture->graph);
	return joined;
}

/* Streams run again what is put into them. */
static void end(struct cu_capture *capture, bool keeps_graph)
{
	struct cu_capture **at = &captures;
	struct CUstream_st *stream;
	uint32_t i = 0;

	while ((stream = next_stream(capture, &i)))
		put_into(stream, NULL);
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	if (capture->graph)
		capture->graph->ncaptures--;
	if (capture->graph && !keeps_graph && capture->owns_graph)
		cu_graph_free_locked(capture->graph);
	free(capture->left.node);
	free(capture);
}

void cu_capture_lose_locked(const struct CUgraph_st *graph)
{
	struct CUstream_st *stream;

	for (struct cu_capture *capture = captures; capture; capture = capture->next) {
		uint32_t at = 0;

		if (capture->graph != graph)
			continue;
		while ((stream = next_stream(capture, &at)))
			put_into(stream, capture);
		free(capture->left.node);
		capture->left = (struct cu_nodes){ 0 };
		capture->graph = NULL;
		capture->is_invalid = true;
	}
}

CUresult cu_capture_end_locked(struct CUstream_st *stream, struct CUgraph_st **ret_graph)
{
	struct cu_capture *capture = stream->capture;
	CUresult result = CUDA_SUCCESS;

	if (ret_graph)
		*ret_graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	if (capture->origin != stream)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (capture->is_invalid)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!is_joined(capture))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	if (result == CUDA_SUCCESS && ret_graph)
		*ret_graph = capture->graph;
	end(capture, result == CUDA_SUCCESS);
	return result;
}

void cu_capture_leave_locked(struct CUstream_st *stream)
{
	if (stream->capture && stream->capture->origin == stream)
		end(stream->capture, false);
	for (uint32_t i = 0; stream->capture && i < stream->tips.n; i++)
		if (!cu_nodes_add(&stream->capture->left, stream->tips.node[i]))
			stream->capture->is_invalid = true;
	put_into(stream, NULL);
}

/* ---- what is refused ---- */

CUresult cu_capture_refuse_locked(struct CUstream_st *stream)
{
	stream->capture->is_invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static struct cu_capture *capture_of(const struct CUevent_st *event)
{
	struct cu_capture *capture = captures;

	while (capture && capture->id != event->captured)
		capture = capture->next;
	return capture;
}

CUresult cu_capture_asked_locked(const struct CUevent_st *event)
{
	struct cu_capture *capture = capture_of(event);

	if (capture)
		capture->is_invalid = true;
	return CUDA_ERROR_CAPTURED_EVENT;
}

/* Captures that are not relaxed of this thread, and global ones of others, as this thread's mode has it. */
CUresult cu_capture_unsafe_locked(void)
{
	CUresult result = CUDA_SUCCESS;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct cu_capture *capture = captures; capture; capture = capture->next) {
		bool is_mine = pthread_equal(capture->thread, pthread_self());

		if (is_mine ? capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED
			    : capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
				      thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)
			continue;
		capture->is_invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return result;
}

bool cu_capture_any_locked(const struct CUctx_st *ctx)
{
	for (const struct CUstream_st *s = ctx->streams; s; s = s->next)
		if (s->capture)
			return true;
	return false;
}

void cu_capture_state_locked(const struct CUstream_st *stream, struct cu_capture_state *ret_state)
{
	const struct cu_capture *capture = stream->capture;

	*ret_state = (struct cu_capture_state){ .status = CU_STREAM_CAPTURE_STATUS_NONE };
	if (!capture)
		return;
	ret_state->status = capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
						: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	ret_state->id = capture->id;
	ret_state->graph = capture->graph;
}

/* ---- nodes ---- */

/* What is captured next comes after @node, which was added with that @result. */
static CUresult step_to(struct CUstream_st *stream, struct CUgraphNode_st *node, CUresult result)
{
	if (result == CUDA_SUCCESS && !cu_nodes_set(&stream->tips, &node, 1))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS)
		stream->capture->is_invalid = true;
	return result;
}

CUresult cu_capture_work_locked(struct CUstream_st *stream, const struct cu_work *work, bool waits)
{
	struct cu_capture *capture = stream->capture;
	struct CUgraphNode_st *node;
	CUresult result;

	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (waits)
		return cu_capture_refuse_locked(stream);
	result = cu_graph_add_locked(capture->graph, stream->tips.node, stream->tips.n, work,
				     &node);
	return step_to(stream, node, result);
}

CUresult cu_capture_alloc_locked(struct CUstream_st *stream, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct CUgraphNode_st *node = NULL;
	CUresult result;

	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	result = cu_graph_add_alloc_locked(stream->capture->graph, stream->tips.node,
					   stream->tips.n, params, &node);
	return step_to(stream, node, result);
}

CUresult cu_capture_free_locked(struct CUstream_st *stream, CUdeviceptr address)
{
	struct CUgraphNode_st *node = NULL;
	CUresult result;

	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	result = cu_graph_add_free_locked(stream->capture->graph, stream->tips.node, stream->tips.n,
					  address, &node);
	return step_to(stream, node, result);
}

CUresult cu_capture_record_locked(struct CUstream_st *stream, struct CUevent_st *event,
				  bool is_external)
{
	if (!stream->capture)
		return is_external ? CUDA_ERROR_ILLEGAL_STATE
				   : cu_event_record_locked(event, stream);
	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (is_external)
		return cu_capture_work_locked(
			stream,
			&(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD,
					   .event = event },
			false);
	if (!cu_nodes_set(&event->tips, stream->tips.node, stream->tips.n))
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->captured = stream->capture->id;
	return CUDA_SUCCESS;
}

static CUresult join(struct CUstream_st *stream, struct cu_capture *capture,
		     const struct CUevent_st *event)
{
	if (stream == stream->ctx->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (stream->capture && stream->capture != capture) {
		stream->capture->is_invalid = capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!stream->capture)
		put_into(stream, capture);
	for (uint32_t i = 0; i < event->tips.n; i++)
		if (!cu_nodes_have(&stream->tips, event->tips.node[i]) &&
		    !cu_nodes_add(&stream->tips, event->tips.node[i]))
			return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cu_capture_wait_locked(struct CUstream_st *stream, struct CUevent_st *event,
				bool is_external)
{
	struct cu_capture *capture = capture_of(event);

	if (cu_event_is_anothers(event) && stream->capture)
		return cu_unsupported("captured waits for events of other processes");
	if (is_external && stream->capture)
		return cu_capture_work_locked(
			stream,
			&(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event },
			false);
	if (event->captured && capture)
		return join(stream, capture, event);
	if (!stream->capture)
		return event->captured ? CUDA_ERROR_CAPTURED_EVENT
				       : cu_event_await_locked(event, stream);
	if (!event->ticket && !event->captured)
		return CUDA_SUCCESS; /* it was never recorded */
	stream->capture->is_invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}
