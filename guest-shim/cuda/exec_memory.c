/* SPDX-License-Identifier: Apache-2.0 */
/* What a graph that can be launched allocates and frees, in the order in which its nodes run, and what that comes to at a launch. */
#include <stdlib.h>

#include "guest-shim/cuda/graphmem.h"

struct step {
	CUdeviceptr address;
	struct cu_spot *spot; /* NULL: another graph's, which is there or not */
	bool frees;
};

struct cu_exec_memory {
	struct cu_graph_memory **memories; /* its graph's, and those of graphs inside its nodes */
	uint32_t nmemories;
	struct step *steps;
	uint32_t nsteps;
	struct cu_extent **extents; /* where what it allocates lies */
	uint32_t nextents;
};

/* ---- made ---- */

static void *grown(void *list, uint32_t n, size_t size)
{
	/* Powers of two are full. */
	return n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * size);
}

static CUresult add_memories(struct cu_exec_memory *memory, const struct CUgraph_st *graph)
{
	CUresult result = CUDA_SUCCESS;

	if (graph->memory) {
		void *list = grown(memory->memories, memory->nmemories, sizeof(void *));

		if (!list)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memory->memories = list;
		if (graph->memory->has_exec)
			return CUDA_ERROR_INVALID_VALUE;
		memory->memories[memory->nmemories++] = graph->memory;
		graph->memory->has_exec = true;
		graph->memory->nrefs++;
	}
	for (const struct CUgraphNode_st *n = graph->first; n && result == CUDA_SUCCESS;
	     n = n->next)
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = add_memories(memory, n->work.child);
	return result;
}

static bool is_own(const struct cu_exec_memory *memory, const struct cu_spot *spot)
{
	for (uint32_t i = 0; spot && i < memory->nmemories; i++)
		if (memory->memories[i] == spot->extent->memory)
			return true;
	return false;
}

static CUresult add_extent(struct cu_exec_memory *memory, struct cu_extent *extent)
{
	void *list;

	for (uint32_t i = 0; i < memory->nextents; i++)
		if (memory->extents[i] == extent)
			return CUDA_SUCCESS;
	list = grown(memory->extents, memory->nextents, sizeof(void *));
	if (!list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->extents = list;
	memory->extents[memory->nextents++] = extent;
	return CUDA_SUCCESS;
}

/* A graph frees what it has allocated by then, once, and allocates at an address again only when it has freed it. */
static CUresult add_step(struct cu_exec_memory *memory, CUdeviceptr address, bool frees)
{
	struct cu_spot *spot = cu_spot_at_locked(address);
	void *list = grown(memory->steps, memory->nsteps, sizeof(*memory->steps));

	if (!list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memory->steps = list;
	if (!is_own(memory, spot))
		spot = NULL;
	if ((!spot && !frees) || (spot && spot->is_walked != frees))
		return CUDA_ERROR_INVALID_VALUE;
	if (spot)
		spot->is_walked = !frees;
	memory->steps[memory->nsteps++] = (struct step){ address, spot, frees };
	return spot ? add_extent(memory, spot->extent) : CUDA_SUCCESS;
}

static CUresult add_steps(struct cu_exec_memory *memory, struct CUgraph_st *graph)
{
	struct CUgraphNode_st **order;
	CUresult result = cu_graph_order_locked(graph, &order);

	if (result != CUDA_SUCCESS)
		return result;
	for (uint32_t i = 0; i < graph->nnodes && result == CUDA_SUCCESS; i++) {
		const struct cu_work *work = &order[i]->work;

		if (work->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			result = add_step(memory, work->alloc.dptr, false);
		else if (work->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			result = add_step(memory, work->freed, true);
		else if (work->type == CU_GRAPH_NODE_TYPE_GRAPH)
			result = add_steps(memory, work->child);
	}
	free(order);
	return result;
}

static void unwalk(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nsteps; i++)
		if (memory->steps[i].spot)
			memory->steps[i].spot->is_walked = false;
}

void cu_exec_memory_free_locked(struct cu_exec_memory *memory)
{
	if (!memory)
		return;
	for (uint32_t i = 0; i < memory->nmemories; i++) {
		memory->memories[i]->has_exec = false;
		cu_graph_memory_put_locked(memory->memories[i]);
	}
	free(memory->memories);
	free(memory->steps);
	free(memory->extents);
	free(memory);
}

CUresult cu_exec_memory_new_locked(const struct CUgraph_st *graph, struct CUgraph_st *copy,
				   struct cu_exec_memory **ret_memory)
{
	struct cu_exec_memory *memory;
	CUresult result;

	*ret_memory = NULL;
	if (!cu_graph_has_memory_locked(graph))
		return CUDA_SUCCESS;
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = add_memories(memory, graph);
	if (result == CUDA_SUCCESS)
		result = add_steps(memory, copy);
	unwalk(memory);
	if (result != CUDA_SUCCESS) {
		cu_exec_memory_free_locked(memory);
		return result;
	}
	*ret_memory = memory;
	return CUDA_SUCCESS;
}

/* ---- launched ---- */

static bool has_live(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nsteps; i++)
		if (memory->steps[i].spot && memory->steps[i].spot->is_live)
			return true;
	return false;
}

static void free_live(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nsteps; i++)
		if (memory->steps[i].spot)
			cu_spot_live_locked(memory->steps[i].spot, false);
}

/* What other graphs have allocated has to be there to be freed. */
static bool frees_what_is(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nsteps; i++) {
		const struct step *step = &memory->steps[i];
		const struct cu_spot *spot = step->spot ? NULL : cu_spot_at_locked(step->address);

		if (!step->spot && (!spot || !spot->is_live))
			return false;
	}
	return true;
}

static void leave(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nextents; i++)
		memory->extents[i]->nusers--;
}

/* Users of all before memory is found for the first: what another has is not taken for it. */
static CUresult enter(const struct cu_exec_memory *memory, struct CUstream_st *stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < memory->nextents; i++)
		memory->extents[i]->nusers++;
	for (uint32_t i = 0; i < memory->nextents && result == CUDA_SUCCESS; i++) {
		result = cu_backing_want_locked(memory->extents[i], stream);
		/* The lock was given up meanwhile. */
		if (result == CUDA_SUCCESS && !cu_handle_is_locked(stream, CU_KIND_STREAM))
			result = CUDA_ERROR_INVALID_HANDLE;
	}
	if (result != CUDA_SUCCESS)
		leave(memory);
	return result;
}

static CUresult await(const struct cu_exec_memory *memory, struct CUstream_st *stream)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < memory->nextents && result == CUDA_SUCCESS; i++) {
		result = cu_stream_room_locked(stream);
		if (result == CUDA_SUCCESS)
			result = cu_backing_await_locked(memory->extents[i]->backing, stream);
	}
	return result;
}

static void take_steps(const struct cu_exec_memory *memory)
{
	for (uint32_t i = 0; i < memory->nsteps; i++) {
		const struct step *step = &memory->steps[i];

		if (step->spot)
			cu_spot_live_locked(step->spot, !step->frees);
	}
}

CUresult cu_exec_memory_begin_locked(struct cu_exec_memory *memory, struct CUstream_st *stream,
				     bool frees)
{
	CUresult result;

	if ((has_live(memory) && !frees) || !frees_what_is(memory))
		return CUDA_ERROR_INVALID_VALUE;
	free_live(memory);
	result = enter(memory, stream);
	if (result != CUDA_SUCCESS)
		return result;
	result = await(memory, stream);
	if (result == CUDA_SUCCESS)
		take_steps(memory);
	else
		leave(memory);
	return result;
}

void cu_exec_memory_end_locked(struct cu_exec_memory *memory, const struct CUstream_st *stream)
{
	bool is_there = cu_handle_is_locked(stream, CU_KIND_STREAM);

	for (uint32_t i = 0; i < memory->nsteps; i++) {
		struct cu_spot *spot = memory->steps[i].spot
					       ? NULL
					       : cu_spot_at_locked(memory->steps[i].address);

		/* Freed by another thread meanwhile, it is nobody's. */
		if (spot && is_there)
			(void)cu_spot_free_locked(spot, stream);
	}
	for (uint32_t i = 0; i < memory->nextents && is_there; i++)
		cu_backing_used_locked(memory->extents[i]->backing, stream);
	leave(memory);
}

CUresult cu_exec_memory_upload_locked(struct cu_exec_memory *memory, struct CUstream_st *stream)
{
	CUresult result = enter(memory, stream);

	if (result == CUDA_SUCCESS)
		leave(memory);
	return result;
}
