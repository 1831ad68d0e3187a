/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that can be launched: a copy, with the order of its nodes. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graphmem.h"

static pthread_cond_t is_whole = PTHREAD_COND_INITIALIZER;

static void exec_free(struct CUgraphExec_st *exec)
{
	cu_exec_memory_free_locked(exec->memory);
	cu_twin_put_locked(exec->twin);
	cu_graph_free_locked(exec->graph);
	free(exec->order);
	free(exec);
}

CUresult cu_exec_new_locked(const struct CUgraph_st *graph, unsigned long long flags,
			    struct CUgraphExec_st **ret_exec)
{
	struct CUgraphExec_st *exec = calloc(1, sizeof(*exec));
	CUresult result = exec ? cu_graph_clone_locked(graph, &exec->graph)
			       : CUDA_ERROR_OUT_OF_MEMORY;

	if (result != CUDA_SUCCESS) {
		free(exec);
		return result;
	}
	exec->graph->is_inner = true;
	exec->flags = flags;
	result = cu_graph_order_locked(exec->graph, &exec->order);
	if (result == CUDA_SUCCESS)
		result = cu_exec_memory_new_locked(graph, exec->graph, &exec->memory);
	if (result == CUDA_SUCCESS && graph->twin) {
		exec->twin = cu_twin_get_locked(graph->twin);
		result = cu_twin_build_locked(exec->twin, exec->graph);
	}
	if (result == CUDA_SUCCESS && !cu_handle_add_locked(exec, CU_KIND_EXEC))
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result != CUDA_SUCCESS) {
		exec_free(exec);
		return result;
	}
	*ret_exec = exec;
	return CUDA_SUCCESS;
}

void cu_exec_end_locked(struct CUgraphExec_st *exec)
{
	cu_handle_remove_locked(exec);
	exec->is_dead = true;
	if (exec->nusers == 0)
		exec_free(exec);
}

static CUresult wait_for_last(const struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result = cu_stream_begin_locked(stream);
	int r;

	if (result != CUDA_SUCCESS || !exec->last)
		return result;
	do
		r = gantry_submit_wait(cu.session, stream->queue, &exec->last, 1, NULL);
	while (r == GANTRY_E_AGAIN);
	return cu_result(r);
}

static CUresult put_all(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < exec->graph->nnodes && result == CUDA_SUCCESS; i++)
		if (!exec->order[i]->is_disabled)
			result = cu_work_put_locked(stream, &exec->order[i]->work);
	return result;
}

static CUresult put_with_memory(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result = cu_exec_memory_begin_locked(
		exec->memory, stream,
		exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);

	if (result != CUDA_SUCCESS)
		return result;
	result = put_all(exec, stream);
	cu_exec_memory_end_locked(exec->memory, stream);
	return result;
}

/* The lock is given up for each node that waits for room. */
static CUresult put_whole(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result;

	cu_stream_hold_locked(stream);
	/* Launches of one graph do not overlap. */
	result = wait_for_last(exec, stream);
	if (result == CUDA_SUCCESS)
		result = exec->twin	? cu_twin_launch_locked(exec->twin, stream)
			 : exec->memory ? put_with_memory(exec, stream)
					: put_all(exec, stream);
	if (cu_handle_is_locked(stream, CU_KIND_STREAM))
		exec->last = stream->last;
	cu_stream_let_go_locked(stream);
	return result;
}

/* A launch of it that another thread puts into some stream is whole first. INVALID_HANDLE: @stream is gone since. */
static CUresult take_turn(const struct CUgraphExec_st *exec, const struct CUstream_st *stream)
{
	while (exec->is_put) {
		(void)pthread_cond_wait(&is_whole, &cu.lock);
		if (!cu_handle_is_locked(stream, CU_KIND_STREAM))
			return CUDA_ERROR_INVALID_HANDLE;
	}
	return CUDA_SUCCESS;
}

static CUresult put_in_turn(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result = take_turn(exec, stream);

	if (result != CUDA_SUCCESS)
		return result;
	exec->is_put = true;
	result = cu_stream_room_locked(stream);
	if (result == CUDA_SUCCESS)
		result = put_whole(exec, stream);
	exec->is_put = false;
	(void)pthread_cond_broadcast(&is_whole);
	return result;
}

CUresult cu_exec_launch_locked(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result;

	/* What allocates is not copied into another graph, nor are conditions. */
	if (stream->capture && (exec->memory || exec->twin))
		return cu_capture_refuse_locked(stream);
	if (stream->capture)
		return cu_capture_work_locked(stream,
					      &(struct cu_work){ .type = CU_GRAPH_NODE_TYPE_GRAPH,
								 .child = exec->graph },
					      false);
	exec->nusers++;
	result = put_in_turn(exec, stream);
	exec->nusers--;
	if (exec->is_dead && exec->nusers == 0)
		exec_free(exec);
	return result;
}

CUresult cu_exec_upload_locked(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
	CUresult result;

	if (stream->capture)
		return cu_capture_refuse_locked(stream);
	if (!exec->memory)
		return CUDA_SUCCESS;
	exec->nusers++;
	result = cu_exec_memory_upload_locked(exec->memory, stream);
	exec->nusers--;
	if (exec->is_dead && exec->nusers == 0)
		exec_free(exec);
	return result;
}

struct CUgraphNode_st *cu_exec_node_locked(const struct CUgraphExec_st *exec,
					   const struct CUgraphNode_st *node)
{
	for (struct CUgraphNode_st *n = exec->graph->first; n; n = n->next)
		if (n->copy_of == node)
			return n;
	return NULL;
}

/* ---- other parameters for the same nodes ---- */

static CUgraphExecUpdateResult compare(const struct CUgraphNode_st *mine,
				       const struct CUgraphNode_st *other)
{
	if (mine->work.type != other->work.type || mine->work.is_library != other->work.is_library)
		return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
	/* What allocates is one graph's, with the addresses that it has. */
	if (mine->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    mine->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
	    (mine->work.type == CU_GRAPH_NODE_TYPE_GRAPH && !mine->work.is_library &&
	     cu_graph_has_memory_locked(other->work.child)))
		return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	if (mine->after.n != other->after.n)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* Nodes are the same by the order in which they were added, as after capturing the same calls again. */
CUresult cu_exec_update_locked(struct CUgraphExec_st *exec, struct CUgraph_st *graph,
			       CUgraphExecUpdateResultInfo *ret_info)
{
	struct CUgraphNode_st *mine = exec->graph->first, *other = graph->first;
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_SUCCESS };
	struct CUgraph_st *next;
	struct CUgraphNode_st **order;
	CUresult result;

	if (exec->twin || graph->twin)
		info.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
	for (; mine && other && info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS;
	     mine = mine->next, other = other->next) {
		info.result = compare(mine, other);
		info.errorNode = info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? NULL : other;
	}
	if (info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS && (mine || other)) {
		info.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		info.errorNode = other;
	}
	if (ret_info)
		*ret_info = info;
	if (info.result != CU_GRAPH_EXEC_UPDATE_SUCCESS || exec->nusers)
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	result = cu_graph_clone_locked(graph, &next);
	if (result != CUDA_SUCCESS)
		return result;
	result = cu_graph_order_locked(next, &order);
	if (result != CUDA_SUCCESS) {
		cu_graph_free_locked(next);
		return result;
	}
	/* Nodes keep the names that they had when the graph was made ready, and whether they are left out. */
	for (mine = exec->graph->first, other = next->first; mine && other;
	     mine = mine->next, other = other->next) {
		other->copy_of = mine->copy_of;
		other->is_disabled = mine->is_disabled;
	}
	next->is_inner = true;
	cu_graph_free_locked(exec->graph);
	free(exec->order);
	exec->graph = next;
	exec->order = order;
	return CUDA_SUCCESS;
}
