/* SPDX-License-Identifier: Apache-2.0 */
/* What a node of a graph does. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "guest-shim/cuda/memop.h"
#include "guest-shim/cudalibs/road.h"
#include "proto/calls.h"

static void *copy_of(const void *bytes, size_t n)
{
	void *copy = malloc(n ? n : 1);

	if (copy && n)
		memcpy(copy, bytes, n);
	return copy;
}

static CUresult copy_library(const struct cu_library_call *from, struct cu_work *ret_work)
{
	void *message = copy_of(from->message, from->bytes);
	void *answers = copy_of(from->answers, from->nanswers * sizeof(*from->answers));
	void *after = copy_of(from->after, from->nafter * sizeof(*from->after));

	if (!message || !answers || !after) {
		free(message);
		free(answers);
		free(after);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_work = (struct cu_work){ .type = CU_GRAPH_NODE_TYPE_KERNEL,
				      .is_library = true,
				      .library = *from };
	ret_work->library.message = message;
	ret_work->library.answers = answers;
	ret_work->library.after = after;
	ret_work->library.buffer = 0;
	return CUDA_SUCCESS;
}

/* Of a node that is added the bodies are new; what is copied has copies of them. */
static CUresult copy_branch(const struct cu_branch *from, struct cu_work *ret_work)
{
	struct cu_work work = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .branch = *from };
	CUresult result = CUDA_SUCCESS;

	work.branch.bodies = calloc(from->n, sizeof(struct CUgraph_st *));
	if (!work.branch.bodies)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < from->n && result == CUDA_SUCCESS; i++)
		result = from->bodies
				 ? cu_graph_clone_locked(from->bodies[i], &work.branch.bodies[i])
				 : cu_graph_new_locked(&work.branch.bodies[i]);
	if (result != CUDA_SUCCESS)
		cu_work_free(&work);
	else
		*ret_work = work;
	return result;
}

static void free_branch(const struct cu_branch *branch)
{
	for (uint32_t i = 0; i < branch->n; i++)
		if (branch->bodies[i])
			cu_graph_free_locked(branch->bodies[i]);
	free(branch->bodies);
}

CUresult cu_work_copy(const struct cu_work *from, struct cu_work *ret_work)
{
	struct cu_work work = *from;
	CUresult result = CUDA_SUCCESS;
	uint8_t *bytes = NULL;

	if (work.is_library)
		return copy_library(&from->library, ret_work);
	if (work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return copy_branch(&from->branch, ret_work);
	if (work.type == CU_GRAPH_NODE_TYPE_KERNEL)
		bytes = copy_of(from->call.args, from->call.func->params_bytes);
	else if (work.type == CU_GRAPH_NODE_TYPE_GRAPH && !work.is_moved)
		result = cu_graph_clone_locked(from->child, &work.child);
	else if (work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		bytes = copy_of(from->alloc.accessDescs,
				from->alloc.accessDescCount * sizeof(CUmemAccessDesc));
	else if (work.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
		bytes = copy_of(from->memops.paramArray,
				from->memops.count * sizeof(*from->memops.paramArray));
	if (result != CUDA_SUCCESS)
		return result;
	if (!bytes &&
	    (work.type == CU_GRAPH_NODE_TYPE_KERNEL || work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	     work.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (work.type == CU_GRAPH_NODE_TYPE_KERNEL) {
		work.call.args = bytes;
	} else if (work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
		work.child->is_inner = true;
		work.is_moved = false;
	} else if (work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		work.alloc.accessDescs = (const CUmemAccessDesc *)(const void *)bytes;
	} else if (work.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
		work.memops.paramArray = (CUstreamBatchMemOpParams *)(void *)bytes;
	}
	*ret_work = work;
	return CUDA_SUCCESS;
}

void cu_work_free(struct cu_work *work)
{
	if (work->is_library) {
		/* What was submitted keeps the memory until it is done. */
		if (work->library.buffer)
			(void)gantry_free(cu.session, work->library.buffer);
		free(work->library.message);
		free(work->library.answers);
		free(work->library.after);
	} else if (work->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		free(work->call.args);
	} else if (work->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		cu_graph_free_locked(work->child);
	} else if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		free((void *)(uintptr_t)work->alloc.accessDescs);
	} else if (work->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
		free(work->memops.paramArray);
	} else if (work->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		free_branch(&work->branch);
	}
}

/* ---- libraries' calls ---- */

/* The answer goes behind the message: that is the same each time. Of most calls nobody reads it. */
static int make_buffer(struct cu_library_call *call)
{
	struct gantry_calls_request head;
	gantry_buffer buffer;
	int r;

	if (call->bytes < sizeof(head))
		return GANTRY_E_ARG;
	memcpy(&head, call->message, sizeof(head));
	head.flags |= GANTRY_CALLS_KEEPS;
	memcpy(call->message, &head, sizeof(head));
	r = gantry_alloc(cu.session, call->room, GANTRY_ALLOC_HOST | GANTRY_ALLOC_KEPT, &buffer);
	if (r < 0)
		return r;
	r = gantry_write(cu.session, buffer, 0, call->message, call->bytes);
	if (r < 0)
		(void)gantry_free(cu.session, buffer); /* the first failure is the one to tell */
	else
		call->buffer = buffer;
	return r;
}

/* As a copy to memory of the program's that is not pinned, it is there when the launch returns. */
static CUresult take_answers(const struct cu_library_call *call, gantry_ticket ticket)
{
	const size_t at = (call->bytes + 7) & ~7ul;
	const struct gantry_calls_reply *reply;
	CUresult result = cu_ticket_wait_locked(ticket);
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t taken = sizeof(*reply);
	int r;

	if (result != CUDA_SUCCESS)
		return result;
	bytes = malloc(call->room - at);
	if (!bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = gantry_read(cu.session, call->buffer, at, bytes, call->room - at);
	if (r < 0)
		return cu_result(r);
	reply = (const struct gantry_calls_reply *)(const void *)bytes;
	for (uint32_t i = 0; i < call->nanswers; i++) {
		const struct gantry_cuda_road_answer *answer = &call->answers[i];

		/* The worker's word for how much there is counts no further than the buffer goes. */
		if (taken - sizeof(*reply) + answer->bytes > reply->bytes ||
		    taken + answer->bytes > call->room - at)
			return CUDA_ERROR_UNKNOWN;
		memcpy(answer->to, bytes + taken, answer->bytes);
		taken += (answer->bytes + 7) & ~7ul;
	}
	return CUDA_SUCCESS;
}

static CUresult put_library(struct CUstream_st *stream, struct cu_library_call *call)
{
	const uint64_t args[2] = { 0, call->bytes };
	int r = call->buffer ? 0 : make_buffer(call);
	const struct gantry_access access = { .buffer = call->buffer, .mode = GANTRY_RW };
	const struct gantry_task task = { .kernel = call->kernel,
					  .args = args,
					  .args_bytes = sizeof(args),
					  .naccess = 1,
					  .nafter = call->nafter,
					  .access = &access,
					  .after = call->after };
	CUresult result = r < 0 ? cu_result(r) : cu_stream_begin_locked(stream);
	gantry_ticket ticket = 0;

	if (result != CUDA_SUCCESS)
		return result;
	do
		r = gantry_submit(cu.session, stream->queue, &task, 1, &ticket);
	while (r == GANTRY_E_AGAIN);
	result = cu_stream_put_locked(stream, r, ticket);
	return result == CUDA_SUCCESS && call->nanswers ? take_answers(call, ticket) : result;
}

/* ---- putting ---- */

/* A graph inside a graph: the copy that a launched one has does not change, so an order made now is good. */
CUresult cu_graph_put_locked(struct CUstream_st *stream, struct CUgraph_st *child)
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
	CUresult result;

	/* The lock was given up meanwhile, and what the program destroyed is not looked into. */
	if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
		return CUDA_ERROR_INVALID_HANDLE;
	result = cu_stream_room_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
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
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return cu_memops_put_locked(stream, work->memops.paramArray, work->memops.count);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cu_graph_put_locked(stream, work->child);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return stream->builds ? cu_twin_put_branch_locked(stream, work)
				      : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_SUCCESS; /* an empty one, or one that the launch has seen to (exec_memory.c) */
	}
}
