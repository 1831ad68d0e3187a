/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with conditions (cuGraphConditionalHandleCreate), which the driver with the worker has to have as its own: kernels set a condition
 * through a handle that is its graph's. A `texture` operation makes the graph, and others its conditions, whose handles it answers.
 * What builds and launches such a graph are tasks: launches of the kernels below, which an image has that consists of the magic
 * bytes alone. Each takes the graph's buffer first.
 *
 * Between `begin` and the last `end` launches of kernels with raw parameters in the same queue become nodes of the graph, as the operands of `copy` and
 * `fill` do; each node comes after the one before. `branch` is a node with a condition's handle, enum gantry_cuda_branch and so many bodies; what
 * follows `body`, with one of their numbers, goes into that body of the newest branch up to an `end`, and may have branches of its own. The last `end` makes the
 * graph ready, `run` launches it. A graph is built once. What is not possible fails with its task, and so does the last `end` then.
 */
#ifndef GANTRY_PROTO_CUDA_GRAPH_H
#define GANTRY_PROTO_CUDA_GRAPH_H

#define GANTRY_CUDA_GRAPH_MAGIC	      "\177GantryG"
#define GANTRY_CUDA_GRAPH_MAGIC_BYTES 8u

#define GANTRY_CUDA_GRAPH_MAX_NODES	 4096u /* and bodies, in all */
#define GANTRY_CUDA_GRAPH_MAX_CONDITIONS 256u
#define GANTRY_CUDA_GRAPH_MAX_DEPTH	 16u
/* What a graph is charged: the driver has it in the device's memory. */
#define GANTRY_CUDA_GRAPH_BYTES (4ull << 20)

/* Member, name, signature. */
#define GANTRY_CUDA_GRAPH_KERNELS(K)              \
	K(BEGIN, "begin", "rw:u8*")               \
	K(BRANCH, "branch", "rw:u8*,u64,u32,u32") \
	K(BODY, "body", "rw:u8*,u32")             \
	K(COPY, "copy", "rw:u8*,w:u8*,r:u8*")     \
	K(FILL, "fill", "rw:u8*,w:u8*,u32,u32")   \
	K(END, "end", "rw:u8*")                   \
	K(RUN, "run", "rw:u8*")

enum gantry_cuda_graph_kernel {
	GANTRY_CUDA_GRAPH_NONE = 0,
#define GANTRY_CUDA_GRAPH_MEMBER(member, name, signature) GANTRY_CUDA_GRAPH_##member,
	GANTRY_CUDA_GRAPH_KERNELS(GANTRY_CUDA_GRAPH_MEMBER)
#undef GANTRY_CUDA_GRAPH_MEMBER
	GANTRY_CUDA_GRAPH_NKERNELS,
};

/* The driver's numbers. */
enum gantry_cuda_branch {
	GANTRY_CUDA_BRANCH_IF = 0,
	GANTRY_CUDA_BRANCH_WHILE = 1,
	GANTRY_CUDA_BRANCH_SWITCH = 2,
};

#endif
