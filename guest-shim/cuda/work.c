/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of a graph does. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graph.h"

static void *copy_of(const void *bytes, size_t n)
{
	void *copy = malloc(n ? n : 1);

	if (copy && n)
		memcpy(copy, bytes, n);
	return copy;
}

CUresult cu_work_copy(const struct cu_work *from, struct cu_work *ret_work)
{
	struct cu_work work = *from;
	CUresult result;

	if (work.is_library) {
		work.library.request = work.library.buffer = 0;
		work.library.message = copy_of(from->library.message, from->library.bytes);
		if (!work.library.message)
			return CUDA_ERROR_OUT_OF_MEMORY;
	} else if (work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
		work.call.args = copy_of(from->call.args, from->call.func->params_bytes);
		if (!work.call.args)
			return CUDA_ERROR_OUT_OF_MEMORY;
	} else if (work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
		result = cu_graph_clone_locked(from->child, &work.child);
		if (result != CUDA_SUCCESS)
			return result;
		work.child->is_inner = true;
	}
	*ret_work = work;
	return CUDA_SUCCESS;
}

void cu_work_free(struct cu_work *work)
{
	if (work->is_library) {
		/* What was submitted keeps the memory until it is done. */
		if (work->library.request)
			(void)gantry_free(cu.session, work->library.request);
		if (work->library.buffer)
			(void)gantry_free(cu.session, work->library.buffer);
		free(work->library.message);
	} else if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		free(work->call.args);
	} else if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		cu_graph_free_locked(work->child);
	}
}

/* ---- libraries' calls ---- */

static int make_buffers(struct cu_library_call *call)
{
	int r = 0;

	if (!call->request)
		r = gantry_alloc(cu.session, call->bytes, GANTRY_ALLOC_HOST, &call->request);
	if (r == 0 && !call->buffer)
		r = gantry_alloc(cu.session, call->room, GANTRY_ALLOC_HOST, &call->buffer);
	return r < 0 ? r : gantry_write(cu.session, call->request, 0, call->message, call->bytes);
}

/* The answer is written where the message was, so each time there is a new copy of it. */
static CUresult put_library(struct CUstream_st *stream, struct cu_library_call *call)
{
	const uint64_t args[2] = { 0, call->bytes };
	const struct gantry_access access = { .mode = GANTRY_RW };
	struct gantry_access mine = access;
	struct gantry_task task = { .kernel = call->kernel,
				    .args = args,
				    .args_bytes = sizeof(args),
				    .naccess = 1,
				    .access = &mine };
	CUresult result = cu_stream_begin_locked(stream);
	gantry_ticket ticket = 0;
	int r;

	if (result != CUDA_SUCCESS)
		return result;
	if (!call->request || !call->buffer) {
		r = make_buffers(call);
		if (r < 0)
			return cu_result(r);
	}
	mine.buffer = call->buffer;
	do
		r = gantry_submit_copy(cu.session, stream->queue, call->buffer, 0, call->request, 0,
				       call->bytes, &ticket);
	while (r == GANTRY_E_AGAIN);
	if (r == 0)
		do
			r = gantry_submit(cu.session, stream->queue, &task, 1, &ticket);
		while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

/* ---- putting ---- */

/* A graph inside a graph: the copy that a launched one has does not change, so an order made now is good. */
static CUresult put_child(struct CUstream_st *stream, struct CUgraph_st *child)
{
	struct CUgraphNode_st **order;
	CUresult result = cu_graph_order_locked(child, &order);

	if (result != CUDA_SUCCESS)
		return result;
	for (uint32_t i = 0; result == CUDA_SUCCESS && i < child->nnodes; i++)
		result = cu_work_put_locked(stream, &order[i]->work);
	free(order);
	return result;
}

static CUresult put_event(struct CUstream_st *stream, struct cu_work *work)
{
	if (!cu_handle_is_locked(work->event, CU_KIND_EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	return work->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD
		       ? cu_event_record_locked(work->event, stream)
		       : cu_event_await_locked(work->event, stream);
}

CUresult cu_work_put_locked(struct CUstream_st *stream, struct cu_work *work)
{
	/* The lock was given up meanwhile, and what the program destroyed is not looked into. */
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	if (work->is_library)
		return put_library(stream, &work->library);
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return cu_handle_is_locked(work->call.func, CU_KIND_FUNC)
			       ? cu_call_put_locked(stream, &work->call)
			       : CUDA_ERROR_INVALID_HANDLE;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cu_copy_box_locked(stream, &work->copy, false);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return cu_fill_rows_locked(stream, &work->fill);
	case CU_GRAPH_NODE_TYPE_HOST:
		return cu_hostfn_put_locked(stream, work->host.fn, work->host.userData, NULL);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return put_event(stream, work);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return put_child(stream, work->child);
	default:
		return CUDA_SUCCESS; /* an empty one */
	}
}
