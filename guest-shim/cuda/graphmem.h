/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that graphs allocate: addresses are a graph's for as long as it lives, or what was made of it, or what it allocated; memory lies
 * behind them when the graph is launched. Memory that nobody holds stays for graphs of the same stream, where the next may lie behind
 * other addresses, and for whoever finds no other.
 *
 *   graphmem.c      addresses: which allocation of a graph lies where, and what is allocated at the moment
 *   backing.c       memory behind them
 *   exec_memory.c   what a launch allocates and frees
 *   api_graphmem.c  exported
 *
 * Under the lock; errors as the Driver API documents them.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_GRAPHMEM_H
#define GANTRY_GUEST_SHIM_CUDA_GRAPHMEM_H

#include "guest-shim/cuda/graph.h"

enum cu_freed {
	CU_FREED_NOT,	/* by no node */
	CU_FREED_OWN,	/* by one of the graph that allocates it */
	CU_FREED_OTHER, /* by one of another graph */
};

/* Where one allocation lies, or several one after the other. */
struct cu_spot {
	struct cu_extent *extent;
	CUdeviceptr address;
	size_t bytes;		     /* room */
	bool is_used;		     /* some node allocates it */
	enum cu_freed freed;	     /* what the newest node allocated */
	struct CUgraphNode_st *free; /* which node, of the same graph */
	bool is_live;		     /* allocated, as far as what was submitted goes */
	bool is_walked;		     /* while the nodes of a graph are looked through */
};

/* Addresses that have memory all at once, or none. */
struct cu_extent {
	struct cu_extent *next;
	struct cu_graph_memory *memory; /* NULL: its graph is gone */
	struct cu_device *dev;
	CUdeviceptr address;
	uint64_t bytes;	   /* that memory has to have */
	uint64_t reserved; /* and may have */
	gantry_buffer range;
	uint32_t nusers;	    /* launches under way */
	struct cu_backing *backing; /* NULL: none */
	uint32_t nspots;
	struct cu_spot spots[];
};

struct cu_graph_memory {
	struct cu_extent *extents;
	uint32_t nrefs; /* the graph, what was made of it, and allocations that are live */
	bool has_exec;
};

/* Memory, and who may have it next. */
struct cu_backing {
	struct cu_backing *next;
	struct cu_device *dev;
	gantry_buffer buffer;
	uint64_t bytes;
	struct cu_extent *extent; /* where it lies; NULL: nowhere */
	uint32_t nlive;
	bool is_moving;	 /* somebody waits to have it elsewhere */
	uint64_t stream; /* whose work used it last */
	/* Behind these nobody uses it: the newest of each queue. */
	gantry_ticket *lasts;
	uint32_t nlasts;
};

/* ---- graphmem.c ---- */
/* A graph that allocates or frees has it from the first such node on. */
CUresult cu_graph_memory_want_locked(struct CUgraph_st *graph);
void cu_graph_memory_put_locked(struct cu_graph_memory *memory);
/* Also of graphs inside its nodes. */
bool cu_graph_has_memory_locked(const struct CUgraph_st *graph);
/* Room for a node of @graph that will come after @after. */
CUresult cu_spot_take_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
			     size_t nafter, struct cu_device *dev, size_t bytes,
			     struct cu_spot **ret_spot);
/* NULL: no graph's memory begins there. */
struct cu_spot *cu_spot_at_locked(CUdeviceptr address);
/* A launch allocates it, or it is freed; memory is behind it. */
void cu_spot_live_locked(struct cu_spot *spot, bool is_live);
/* Freed behind what @stream has by now. INVALID_VALUE: it is not allocated. */
CUresult cu_spot_free_locked(struct cu_spot *spot, const struct CUstream_st *stream);
/* The same when all that the context has under way has ended, which is waited for. */
CUresult cu_spot_free_now_locked(CUdeviceptr address);
/* Addresses without memory and without a graph go. */
void cu_extent_end_locked(struct cu_extent *extent);
/* Copies of what lies there use @backing from now on; NULL: there are none. */
void cu_extent_lies_locked(struct cu_extent *extent, struct cu_backing *backing);
/* Nodes: INVALID_VALUE and so on as the API documents. *@params gets the address. */
CUresult cu_graph_add_alloc_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				   size_t nafter, CUDA_MEM_ALLOC_NODE_PARAMS *params,
				   struct CUgraphNode_st **ret_node);
CUresult cu_graph_add_free_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				  size_t nafter, CUdeviceptr address,
				  struct CUgraphNode_st **ret_node);

/* ---- backing.c ---- */
/* May wait for what @stream has under way, with the lock given up; @extent has a user. */
CUresult cu_backing_want_locked(struct cu_extent *extent, const struct CUstream_st *stream);
/* @stream uses it, up to what it has by now. */
void cu_backing_used_locked(struct cu_backing *backing, const struct CUstream_st *stream);
/* @stream waits for whoever uses it. */
CUresult cu_backing_await_locked(const struct cu_backing *backing, struct CUstream_st *stream);
/* Gives back what nobody uses, nor anything that runs; true: there was some. */
bool cu_backing_trim_locked(const struct cu_device *dev);
/*
 * Waits for a launch that gives some back at its end, with the lock given up; false: there is none, or it did not end in time. Contexts, streams and pools
 * may be gone behind it.
 */
bool cu_backing_wait_locked(const struct cu_device *dev, uint64_t deadline_ns);
uint64_t cu_backing_bytes(const struct cu_device *dev, CUgraphMem_attribute attribute);
void cu_backing_reset_high(const struct cu_device *dev, CUgraphMem_attribute attribute);

/* ---- exec_memory.c ---- */
struct cu_exec_memory;
/*
 * Of @graph, whose own copy that can be launched is @copy. NULL, where it has no such node. INVALID_VALUE: it allocates twice without freeing,
 * or frees what it has not allocated, or something can be launched already that was made of it.
 */
CUresult cu_exec_memory_new_locked(const struct CUgraph_st *graph, struct CUgraph_st *copy,
				   struct cu_exec_memory **ret_memory);
void cu_exec_memory_free_locked(struct cu_exec_memory *memory);
/* Memory is behind all addresses, and @stream waits for who had it. INVALID_VALUE: something is allocated, or not, that has not to be. */
CUresult cu_exec_memory_begin_locked(struct cu_exec_memory *memory, struct CUstream_st *stream,
				     bool frees);
/* All of it was put into @stream, which is not NULL but may be gone; or it has failed. */
void cu_exec_memory_end_locked(struct cu_exec_memory *memory, const struct CUstream_st *stream);
/* Memory only, for a launch to come. */
CUresult cu_exec_memory_upload_locked(struct cu_exec_memory *memory, struct CUstream_st *stream);

#endif
