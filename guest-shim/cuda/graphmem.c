/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of what graphs allocate, and nodes that do. */
#include "guest-shim/cuda/graphmem.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/vmm.h"

#define LEAST_BYTES ((uint64_t)4096) /* of a spot */

/* ---- life ---- */

CUresult cu_graph_memory_want_locked(struct CUgraph_st *graph)
{
	if (!graph->memory)
		graph->memory = calloc(1, sizeof(*graph->memory));
	else
		return CUDA_SUCCESS;
	if (!graph->memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->memory->nrefs = 1;
	return CUDA_SUCCESS;
}

void cu_extent_end_locked(struct cu_extent *extent)
{
	/* It goes with the session where this fails. */
	(void)cu_range_end_locked(extent->range, extent->address, extent->reserved);
	free(extent);
}

void cu_graph_memory_put_locked(struct cu_graph_memory *memory)
{
	if (!memory || --memory->nrefs)
		return;
	while (memory->extents) {
		struct cu_extent *extent = memory->extents;

		memory->extents = extent->next;
		extent->memory = NULL;
		for (uint32_t i = 0; i < extent->nspots; i++)
			if (cu_spot_at_locked(extent->spots[i].address))
				cu_alloc_forget_locked(extent->spots[i].address);
		/* What may be in use yet stays where it lies until somebody wants the memory. */
		if (!extent->backing)
			cu_extent_end_locked(extent);
	}
	free(memory);
}

bool cu_graph_has_memory_locked(const struct CUgraph_st *graph)
{
	if (graph->memory)
		return true;
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next)
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH &&
		    cu_graph_has_memory_locked(n->work.child))
			return true;
	return false;
}

/* ---- addresses ---- */

struct cu_spot *cu_spot_at_locked(CUdeviceptr address)
{
	const struct cu_alloc *alloc = cu_alloc_find_locked(address);

	return alloc && alloc->kind == CU_MEMORY_GRAPH && alloc->address == address ? alloc->spot
										    : NULL;
}

void cu_extent_lies_locked(struct cu_extent *extent, struct cu_backing *backing)
{
	extent->backing = backing;
	for (uint32_t i = 0; i < extent->nspots; i++) {
		struct cu_alloc *alloc = cu_alloc_find_locked(extent->spots[i].address);

		if (alloc && alloc->spot == &extent->spots[i])
			alloc->buffer = backing ? backing->buffer : 0;
	}
}

/* Powers of two share what is reserved and mapped as a whole; what is larger has it for itself. */
static uint64_t room_for(const struct cu_device *dev, size_t bytes)
{
	uint64_t room = LEAST_BYTES;

	if (bytes > dev->granule / 2)
		return gantry_align_up(bytes, dev->granule, &room) < 0 ? 0 : room;
	while (room < bytes)
		room *= 2;
	return room;
}

/* So that memory of about that size does too. */
static uint64_t reserved_for(const struct cu_device *dev, uint64_t bytes)
{
	uint64_t reserved = dev->granule;

	while (reserved < bytes)
		reserved *= 2;
	return reserved;
}

static CUresult extent_new(struct cu_graph_memory *memory, struct cu_device *dev, uint64_t room,
			   struct cu_extent **ret_extent)
{
	uint32_t n = room < dev->granule ? (uint32_t)(dev->granule / room) : 1;
	struct cu_extent *extent = calloc(1, sizeof(*extent) + n * sizeof(extent->spots[0]));
	struct gantry_reply_variable range;
	CUresult result;

	if (!extent)
		return CUDA_ERROR_OUT_OF_MEMORY;
	extent->bytes = n * room;
	extent->reserved = reserved_for(dev, extent->bytes);
	result = cu_range_new_locked(dev, extent->reserved, dev->granule, 0, &range);
	if (result != CUDA_SUCCESS) {
		free(extent);
		return result;
	}
	extent->dev = dev;
	extent->range = range.handle;
	extent->address = range.address;
	extent->memory = memory;
	extent->nspots = n;
	for (uint32_t i = 0; i < n; i++)
		extent->spots[i] = (struct cu_spot){ .extent = extent,
						     .address = extent->address + i * room,
						     .bytes = room };
	extent->next = memory->extents;
	memory->extents = extent;
	*ret_extent = extent;
	return CUDA_SUCCESS;
}

/* Nobody has it, or whoever had it frees it before a node that comes after all that is marked. */
static bool is_free(const struct cu_spot *spot)
{
	return !spot->is_used || (spot->freed == CU_FREED_OWN && spot->free->is_marked);
}

static struct cu_spot *find(const struct cu_graph_memory *memory, const struct cu_device *dev,
			    uint64_t room)
{
	struct cu_spot *best = NULL;

	for (struct cu_extent *extent = memory->extents; extent; extent = extent->next)
		for (uint32_t i = 0; i < extent->nspots; i++) {
			struct cu_spot *spot = &extent->spots[i];

			/* A small one in a large place would keep a large one from it. */
			if (extent->dev == dev && spot->bytes >= room && spot->bytes / 2 < room &&
			    is_free(spot) && (!best || spot->bytes < best->bytes))
				best = spot;
		}
	return best;
}

/* Programs may name the address from now on. */
static CUresult know(struct cu_spot *spot, size_t bytes)
{
	struct cu_alloc *known = cu_alloc_find_locked(spot->address);
	const struct cu_alloc alloc = { .address = spot->address,
					.bytes = bytes,
					.off = spot->address - spot->extent->address,
					.buffer = spot->extent->backing
							  ? spot->extent->backing->buffer
							  : 0,
					.kind = CU_MEMORY_GRAPH,
					.device = spot->extent->dev->index,
					.spot = spot };

	if (!known)
		return cu_alloc_add_locked(&alloc);
	known->bytes = GANTRY_MAX(known->bytes, bytes);
	return CUDA_SUCCESS;
}

CUresult cu_spot_take_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
			     size_t nafter, struct cu_device *dev, size_t bytes,
			     struct cu_spot **ret_spot)
{
	uint64_t room = room_for(dev, bytes);
	struct cu_extent *extent;
	struct cu_spot *spot;
	CUresult result = CUDA_SUCCESS;

	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (room == 0 || room > GANTRY_MAX_BUFFER_BYTES / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_graph_unmark_locked(graph);
	for (size_t i = 0; i < nafter; i++)
		if (!after[i]->is_marked)
			cu_graph_mark_locked(after[i]);
	spot = find(graph->memory, dev, room);
	cu_graph_unmark_locked(graph);
	if (!spot)
		result = extent_new(graph->memory, dev, room, &extent);
	if (result == CUDA_SUCCESS && !spot)
		spot = &extent->spots[0];
	if (result == CUDA_SUCCESS)
		result = know(spot, bytes);
	if (result == CUDA_SUCCESS)
		*ret_spot = spot;
	return result;
}

/* ---- what is allocated ---- */

void cu_spot_live_locked(struct cu_spot *spot, bool is_live)
{
	struct cu_graph_memory *memory = spot->extent->memory;

	if (spot->is_live == is_live)
		return;
	spot->is_live = is_live;
	if (is_live) {
		spot->extent->backing->nlive++;
		memory->nrefs++;
	} else {
		spot->extent->backing->nlive--;
		cu_graph_memory_put_locked(memory);
	}
}

CUresult cu_spot_free_locked(struct cu_spot *spot, const struct CUstream_st *stream)
{
	if (!spot->is_live)
		return CUDA_ERROR_INVALID_VALUE;
	cu_backing_used_locked(spot->extent->backing, stream);
	cu_spot_live_locked(spot, false);
	return CUDA_SUCCESS;
}

CUresult cu_spot_free_now_locked(CUdeviceptr address)
{
	struct cu_spot *spot = cu_spot_at_locked(address);
	struct CUctx_st *ctx;
	CUresult result;

	if (!spot || !spot->is_live)
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_ctx_current_locked(&ctx);
	if (result == CUDA_SUCCESS)
		result = cu_ctx_wait_locked(ctx);
	spot = cu_spot_at_locked(address);
	if (!spot || !spot->is_live)
		return CUDA_ERROR_INVALID_VALUE; /* freed twice at the same time */
	cu_spot_live_locked(spot, false);
	return result;
}

/* ---- nodes ---- */

static CUresult check(const CUDA_MEM_ALLOC_NODE_PARAMS *params, struct cu_device **ret_dev)
{
	const CUmemPoolProps *props = &params->poolProps;
	struct cu_device *dev;

	if (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
	    params->accessDescCount > cu.ndevices ||
	    (params->accessDescCount && !params->accessDescs))
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return cu_unsupported("memory of the host's that a graph allocates");
	/* Devices of a session reach each other's memory where they can at all. */
	for (size_t i = 0; i < params->accessDescCount; i++)
		if (params->accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    cu_device_get(params->accessDescs[i].location.id, &dev) != CUDA_SUCCESS)
			return CUDA_ERROR_INVALID_VALUE;
	if (cu_device_get(props->location.id, ret_dev) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	return (*ret_dev)->granule ? CUDA_SUCCESS : cu_unsupported("memory of graphs on this host");
}

CUresult cu_graph_add_alloc_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				   size_t nafter, CUDA_MEM_ALLOC_NODE_PARAMS *params,
				   struct CUgraphNode_st **ret_node)
{
	struct cu_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = *params };
	struct cu_device *dev = NULL;
	struct cu_spot *spot;
	CUresult result = check(params, &dev);

	if (result == CUDA_SUCCESS)
		result = cu_graph_memory_want_locked(graph);
	if (result == CUDA_SUCCESS)
		result = cu_spot_take_locked(graph, after, nafter, dev, params->bytesize, &spot);
	if (result != CUDA_SUCCESS)
		return result;
	work.alloc.dptr = spot->address;
	result = cu_graph_add_locked(graph, after, nafter, &work, ret_node);
	if (result != CUDA_SUCCESS)
		return result;
	spot->is_used = true;
	spot->freed = CU_FREED_NOT;
	spot->free = NULL;
	params->dptr = spot->address;
	return CUDA_SUCCESS;
}

static bool frees_already(const struct CUgraph_st *graph, CUdeviceptr address)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next)
		if (n->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE && n->work.freed == address)
			return true;
	return false;
}

CUresult cu_graph_add_free_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				  size_t nafter, CUdeviceptr address,
				  struct CUgraphNode_st **ret_node)
{
	const struct cu_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE, .freed = address };
	struct cu_spot *spot = cu_spot_at_locked(address);
	bool is_own = spot && spot->extent->memory == graph->memory;
	CUresult result;

	if (!spot || !spot->is_used || spot->freed == CU_FREED_OWN ||
	    (is_own && spot->freed != CU_FREED_NOT) || (!is_own && frees_already(graph, address)))
		return CUDA_ERROR_INVALID_VALUE;
	result = cu_graph_memory_want_locked(graph);
	if (result == CUDA_SUCCESS)
		result = cu_graph_add_locked(graph, after, nafter, &work, ret_node);
	if (result != CUDA_SUCCESS)
		return result;
	spot->freed = is_own ? CU_FREED_OWN : CU_FREED_OTHER;
	spot->free = is_own ? *ret_node : NULL;
	return CUDA_SUCCESS;
}
