/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: nodes that a program adds or captures, and what was made of them to be run again and again.
 *
 *   work.c     what a node does: copied, freed, put into a stream
 *   graph.c    graphs and their nodes
 *   exec.c     graphs that can be launched
 *   capture.c  streams that take nodes down rather than run them
 *   twin.c     graphs of the host's driver's, for those with conditions
 *   userobj.c  objects of the program's that live as long as graphs
 *   dot.c      a graph as a text for Graphviz
 *   api_graph.c, api_node.c, api_node_attr.c, streams_graph.c  exported
 *
 * A graph stays in the guest. A launch of it puts its nodes into the stream one after the other, in an order that its edges
 * allow: the ring takes hundreds at a time, and the host makes rows of kernels into one call again (devices/rows.c).
 *
 * Threads and errors: as core.h.
 */
#ifndef GANTRY_GUEST_SHIM_CUDA_GRAPH_H
#define GANTRY_GUEST_SHIM_CUDA_GRAPH_H

#include "guest-shim/cuda/core.h"

/* What a program has said of a node, and reads back. */
struct cu_node_hints {
	struct cu_hints hints;
	int priority;
	CUclusterSchedulingPolicy policy;
	unsigned int carveout;
};

/* A launch with its parameters as the image lays them out. */
struct cu_call {
	struct CUfunc_st *func;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t groups; /* of GANTRY_TASK_GROUPS */
	uint8_t *args;
	struct cu_node_hints said;
};

/* A call of a forwarding library's: a launch of one of the host's kernels on a message. */
struct cu_library_call {
	gantry_kernel kernel;
	uint8_t *message;
	size_t bytes;	      /* of it */
	size_t room;	      /* what its buffer has to have */
	gantry_buffer buffer; /* with the message; 0: not made yet */
	struct gantry_cuda_road_answer *answers;
	uint32_t nanswers;
	uint32_t nafter;
	gantry_ticket *after; /* what was under way when it was captured, and it comes behind */
};

/* A condition's node. Its bodies are graphs of its own, which the program fills. */
struct cu_branch {
	uint64_t handle;
	CUgraphConditionalNodeType type;
	uint32_t n;
	struct CUgraph_st **bodies; /* owned; NULL: not made yet */
};

struct cu_work {
	CUgraphNodeType type;
	bool is_library; /* a kernel node that is a library's call */
	bool is_moved;	 /* a graph inside a node becomes the node's rather than being copied */
	union {
		struct cu_call call;
		struct cu_library_call library;
		CUDA_MEMCPY3D copy;
		CUDA_MEMSET_NODE_PARAMS fill;
		CUDA_HOST_NODE_PARAMS host;
		struct CUevent_st *event;
		struct CUgraph_st *child; /* owned */
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		CUdeviceptr freed;
		CUDA_BATCH_MEM_OP_NODE_PARAMS memops;
		struct cu_branch branch;
	};
};

struct CUgraphNode_st {
	struct CUgraphNode_st *next; /* in the order in which they were added */
	struct CUgraph_st *graph;
	struct cu_nodes after; /* its dependencies */
	struct cu_work work;
	void **params;			      /* of a kernel, for whoever asked last */
	const struct CUgraphNode_st *copy_of; /* by address only: it may be gone */
	struct CUgraphNode_st *made;	      /* of it, by the clone under way */
	struct CUgraphNode_st *todo;	      /* these two are used while a graph is walked */
	bool is_marked;
	bool is_disabled; /* of graphs that can be launched */
};

/* How many references a graph has to an object of the program's. */
struct cu_held {
	struct cu_held *next;
	struct CUuserObject_st *object;
	uint32_t n;
};

struct CUgraph_st {
	struct CUgraphNode_st *first;
	struct CUgraphNode_st **end;
	uint32_t nnodes;
	uint32_t ncaptures; /* that go into it: it is not to be destroyed */
	bool is_inner; /* of a node, or of a graph that can be launched: not the program's to destroy */
	struct cu_held *held;
	struct cu_graph_memory *memory;	      /* NULL: none of its own nodes allocates or frees */
	const struct CUgraphNode_st *body_of; /* a body of this node; NULL: it is none */
	struct cu_twin *twin; /* NULL: it has no conditions; bodies have none of their own */
};

struct CUgraphExec_st {
	struct CUgraph_st *graph;      /* its own copy */
	struct cu_exec_memory *memory; /* NULL: it has no need of any */
	struct cu_twin *twin;	       /* which is launched instead; NULL: its nodes are put */
	struct CUgraphNode_st **order;
	unsigned long long flags;
	gantry_ticket last; /* of the newest launch: the next comes after it */
	uint32_t nusers;    /* launches that have given the lock up */
	bool is_put;	    /* a launch of it is, and is not whole yet */
	bool is_dead;
};

struct CUuserObject_st {
	struct CUuserObject_st *next; /* dead ones */
	uint64_t nrefs;
	CUhostFn destroy;
	void *data;
};

/* ---- nodes ---- */
bool cu_nodes_add(struct cu_nodes *nodes, struct CUgraphNode_st *node); /* false: no memory */
bool cu_nodes_set(struct cu_nodes *nodes, struct CUgraphNode_st *const *from, size_t n);
bool cu_nodes_have(const struct cu_nodes *nodes, const struct CUgraphNode_st *node);
/* Those that a program names are alive, and @graph's. */
bool cu_nodes_are_of_locked(const struct CUgraph_st *graph, CUgraphNode const *nodes, size_t n);

/* ---- api_node.c ---- */
/* The beginning of a call that asks a node of @type, not of a library's, for what goes to @output: with the lock on success. */
CUresult cu_node_enter(CUgraphNode node, CUgraphNodeType type, const void *output);

/* ---- work.c ---- */
/* Of what is not owned by @from, such as arguments on the stack. */
CUresult cu_work_copy(const struct cu_work *from, struct cu_work *ret_work);
void cu_work_free(struct cu_work *work);
CUresult cu_work_put_locked(struct CUstream_st *stream, struct cu_work *work);
/* All nodes of @graph, which does not change meanwhile, in order. */
CUresult cu_graph_put_locked(struct CUstream_st *stream, struct CUgraph_st *graph);

/* ---- launch.c ---- */
/* Whether blocks may be grouped so. */
CUresult cu_call_check_groups_locked(const struct cu_device *dev, const struct cu_call *call,
				     uint32_t groups);
/* Room for packed parameters: those of most functions lie with the caller. */
struct cu_args {
	uint8_t *bytes;
	uint8_t few[1024];
};
/* Checks, and packs the parameters into @args, which *ret_call points to; on success they are to be put back. */
CUresult cu_call_make_locked(const struct cu_device *dev, const struct cu_launch *launch,
			     struct cu_args *args, struct cu_call *ret_call);
void cu_args_put(struct cu_args *args); /* zeroed ones too */
CUresult cu_call_put_locked(struct CUstream_st *stream, const struct cu_call *call);

/* ---- graph.c ---- */
CUresult cu_graph_new_locked(struct CUgraph_st **ret_graph);
/* Objects of the program's whose last reference it had are left for cu_userobj_destroy(). */
void cu_graph_free_locked(struct CUgraph_st *graph);
CUresult cu_graph_clone_locked(const struct CUgraph_st *graph, struct CUgraph_st **ret_clone);
/* Copies @work. Nodes of @after are the graph's own. */
CUresult cu_graph_add_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
			     size_t nafter, const struct cu_work *work,
			     struct CUgraphNode_st **ret_node);
void cu_graph_remove_locked(struct CUgraphNode_st *node);
/* An array of all nodes, each behind what it depends on; the caller frees it. INVALID_VALUE: there is a cycle. */
CUresult cu_graph_order_locked(struct CUgraph_st *graph, struct CUgraphNode_st ***ret_order);
/* Marks @node and all that it comes after. */
void cu_graph_mark_locked(struct CUgraphNode_st *node);
void cu_graph_unmark_locked(struct CUgraph_st *graph);

/* ---- twin.c ---- */
/* @graph may be a body. */
CUresult cu_condition_new_locked(struct CUgraph_st *graph, struct CUctx_st *ctx, unsigned int value,
				 unsigned int flags, uint64_t *ret_handle);
/* The work of a node of @graph, with a condition of the graph's that has no node yet. */
CUresult cu_branch_make_locked(struct CUgraph_st *graph, const CUDA_CONDITIONAL_NODE_PARAMS *params,
			       struct cu_work *ret_work);
/* A condition of its has no node. */
bool cu_graph_has_unused_locked(const struct CUgraph_st *graph);
struct cu_twin *cu_twin_get_locked(struct cu_twin *twin);
void cu_twin_put_locked(struct cu_twin *twin); /* NULL is allowed */
/* Once; @graph, which nobody else has, is what the twin becomes. Waits for it, with the lock given up. */
CUresult cu_twin_build_locked(struct cu_twin *twin, struct CUgraph_st *graph);
CUresult cu_twin_launch_locked(struct cu_twin *twin, struct CUstream_st *stream);
/* What is put into a stream that builds one. There is room. */
CUresult cu_twin_put_call_locked(struct CUstream_st *stream, struct gantry_task *task);
CUresult cu_twin_put_copy_locked(struct CUstream_st *stream, gantry_buffer dst, uint64_t dst_off,
				 gantry_buffer src, uint64_t src_off, size_t bytes);
CUresult cu_twin_put_fill_locked(struct CUstream_st *stream, gantry_buffer dst, uint64_t off,
				 size_t bytes, uint32_t value, uint32_t width);
CUresult cu_twin_put_branch_locked(struct CUstream_st *stream, const struct cu_work *work);

/* ---- exec.c ---- */
CUresult cu_exec_new_locked(const struct CUgraph_st *graph, unsigned long long flags,
			    struct CUgraphExec_st **ret_exec);
void cu_exec_end_locked(struct CUgraphExec_st *exec);
CUresult cu_exec_launch_locked(struct CUgraphExec_st *exec, struct CUstream_st *stream);
/* Memory for the next launch, where it wants any. */
CUresult cu_exec_upload_locked(struct CUgraphExec_st *exec, struct CUstream_st *stream);
/* Its node that was made of @node; NULL: none. */
struct CUgraphNode_st *cu_exec_node_locked(const struct CUgraphExec_st *exec,
					   const struct CUgraphNode_st *node);
CUresult cu_exec_update_locked(struct CUgraphExec_st *exec, struct CUgraph_st *graph,
			       CUgraphExecUpdateResultInfo *ret_info);

/* ---- capture.c ---- */
CUresult cu_capture_begin_locked(struct CUstream_st *stream, CUstreamCaptureMode mode,
				 struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
				 size_t nafter);
/* @ret_graph may be NULL: who gave the graph has it. */
CUresult cu_capture_end_locked(struct CUstream_st *stream, struct CUgraph_st **ret_graph);
/* The stream ends: so does its capture, without a graph where it began there. */
void cu_capture_leave_locked(struct CUstream_st *stream);
/* @work becomes a node rather than being done; refused where the program @waits for it, or it cannot be a node. */
CUresult cu_capture_work_locked(struct CUstream_st *stream, const struct cu_work *work, bool waits);
/* Memory that the graph allocates and frees; *@params gets the address. */
CUresult cu_capture_alloc_locked(struct CUstream_st *stream, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cu_capture_free_locked(struct CUstream_st *stream, CUdeviceptr address);
/* A call that must not be while @stream is captured; the capture is good for nothing from then on. */
CUresult cu_capture_refuse_locked(struct CUstream_st *stream);
/* An event that a capture recorded is asked for: it says nothing, and that capture is good for nothing from then on. */
CUresult cu_capture_asked_locked(const struct CUevent_st *event);
/* The same of any stream that this thread has to take care of, for calls that may wait for the device. */
CUresult cu_capture_unsafe_locked(void);
/* Any stream of @ctx. */
bool cu_capture_any_locked(const struct CUctx_st *ctx);
CUresult cu_capture_record_locked(struct CUstream_st *stream, struct CUevent_st *event,
				  bool is_external);
CUresult cu_capture_wait_locked(struct CUstream_st *stream, struct CUevent_st *event,
				bool is_external);
/* The graph ends while it is captured into, as bodies do with their node: those captures are good for nothing. */
void cu_capture_lose_locked(const struct CUgraph_st *graph);
CUstreamCaptureMode cu_capture_mode_exchange(CUstreamCaptureMode mode);
struct cu_capture_state {
	CUstreamCaptureStatus status;
	uint64_t id;
	struct CUgraph_st *graph;
};
void cu_capture_state_locked(const struct CUstream_st *stream, struct cu_capture_state *ret_state);

/* ---- dot.c ---- */
/* @flags: CU_GRAPH_DEBUG_DOT_FLAGS_*. The caller frees *ret_text in every case. */
CUresult cu_dot_text_locked(const struct CUgraph_st *graph, unsigned int flags, char **ret_text,
			    size_t *ret_len);

/* ---- userobj.c ---- */
CUresult cu_userobj_new_locked(void *data, CUhostFn destroy, unsigned int nrefs,
			       struct CUuserObject_st **ret_object);
/* INVALID_VALUE: there are not so many references. */
CUresult cu_userobj_drop_locked(struct CUuserObject_st *object, uint64_t n);
CUresult cu_held_add_locked(struct CUgraph_st *graph, struct CUuserObject_st *object, uint32_t n);
CUresult cu_held_drop_locked(struct CUgraph_st *graph, struct CUuserObject_st *object, uint32_t n);
CUresult cu_held_copy_locked(const struct CUgraph_st *from, struct CUgraph_st *to);
void cu_held_drop_all_locked(struct CUgraph_st *graph);
/* Calls what the program gave for those whose last reference is gone. Without the lock; last of what may have dropped some. */
void cu_userobj_destroy(void);

#endif
