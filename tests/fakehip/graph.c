/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: kernels in a row, launched by one call, and changed between launches. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakehip/fake.h"

#define MAX_NODES 64

struct gantry_hip_node {
	struct fake_op *op; /* owned */
};

struct gantry_hip_graph {
	size_t nnodes;
	struct gantry_hip_node nodes[MAX_NODES];
};

/* Has operations of its own: what is changed in it is not changed in the graph. */
struct gantry_hip_exec {
	const struct gantry_hip_graph *graph;
	size_t nops;
	struct fake_op *ops[MAX_NODES]; /* owned */
};

static gantry_hip_result op_of(const struct gantry_hip_kernel_node *node, struct fake_op **ret_op)
{
#ifdef FAKEHIP_ROCM5
	/* It knew functions that a program was linked with, and no others. */
	(void)node;
	(void)ret_op;
	return GANTRY_HIP_INVALID_DEVICE_FUNCTION;
#else
	if (node->extra)
		return GANTRY_HIP_INVALID_VALUE;
	return fake_launch_new(node->function, node->grid, node->block, node->shared_bytes,
			       node->params, ret_op);
#endif
}

static struct fake_op *copy_of(const struct fake_op *op)
{
	struct fake_op *copy = fake_op_new(op->run);

	if (copy) {
		*copy = *op;
		copy->next = NULL;
	}
	return copy;
}

gantry_hip_result hipGraphCreate(struct gantry_hip_graph **ret_graph, unsigned flags)
{
	if (flags)
		return GANTRY_HIP_INVALID_VALUE;
	*ret_graph = calloc(1, sizeof(**ret_graph));
	return *ret_graph ? GANTRY_HIP_SUCCESS : GANTRY_HIP_OUT_OF_MEMORY;
}

gantry_hip_result hipGraphDestroy(struct gantry_hip_graph *graph)
{
	for (size_t i = 0; i < graph->nnodes; i++)
		free(graph->nodes[i].op);
	free(graph);
	return GANTRY_HIP_SUCCESS;
}

/* A row is all that there is: each node comes after the one that was added before. */
gantry_hip_result hipGraphAddKernelNode(struct gantry_hip_node **ret_node,
					struct gantry_hip_graph *graph,
					struct gantry_hip_node *const *after, size_t nafter,
					const struct gantry_hip_kernel_node *params)
{
	struct gantry_hip_node *node = &graph->nodes[graph->nnodes];
	gantry_hip_result r;

	if (graph->nnodes == MAX_NODES || nafter != (graph->nnodes ? 1 : 0) ||
	    (nafter && *after != node - 1))
		return GANTRY_HIP_NOT_SUPPORTED;
	r = op_of(params, &node->op);
	if (r != GANTRY_HIP_SUCCESS)
		return r;
	graph->nnodes++;
	*ret_node = node;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGraphExecDestroy(struct gantry_hip_exec *exec)
{
	for (size_t i = 0; i < exec->nops; i++)
		free(exec->ops[i]);
	free(exec);
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGraphInstantiate(struct gantry_hip_exec **ret_exec,
				      struct gantry_hip_graph *graph, struct gantry_hip_node **at,
				      char *log, size_t log_bytes)
{
	struct gantry_hip_exec *exec = calloc(1, sizeof(*exec));

	(void)at;
	(void)log;
	(void)log_bytes;
	if (!exec)
		return GANTRY_HIP_OUT_OF_MEMORY;
	exec->graph = graph;
	for (; exec->nops < graph->nnodes; exec->nops++) {
		exec->ops[exec->nops] = copy_of(graph->nodes[exec->nops].op);
		if (!exec->ops[exec->nops]) {
			(void)hipGraphExecDestroy(exec);
			return GANTRY_HIP_OUT_OF_MEMORY;
		}
	}
	*ret_exec = exec;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGraphExecKernelNodeSetParams(struct gantry_hip_exec *exec,
						  struct gantry_hip_node *node,
						  const struct gantry_hip_kernel_node *params)
{
	size_t i = (size_t)(node - exec->graph->nodes);
	struct fake_op *op;
	gantry_hip_result r;

	if (i >= exec->nops)
		return GANTRY_HIP_INVALID_VALUE;
	r = op_of(params, &op);
	if (r != GANTRY_HIP_SUCCESS)
		return r;
	free(exec->ops[i]);
	exec->ops[i] = op;
	return GANTRY_HIP_SUCCESS;
}

gantry_hip_result hipGraphLaunch(struct gantry_hip_exec *exec, struct gantry_hip_stream *stream)
{
	gantry_hip_result r = GANTRY_HIP_SUCCESS;

	for (size_t i = 0; i < exec->nops && r == GANTRY_HIP_SUCCESS; i++)
		r = fake_put(stream, copy_of(exec->ops[i]));
	return r;
}
