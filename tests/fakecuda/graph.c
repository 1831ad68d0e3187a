/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: kernels, fills and copies in a row, launched by one call, and changed between launches; and nodes with conditions, whose
 * bodies are such graphs too.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

static CUresult cmd_of(const CUDA_KERNEL_NODE_PARAMS *params, struct fake_cmd **ret_cmd)
{
	const struct fakecuda_geometry geometry = {
		{ params->gridDimX, params->gridDimY, params->gridDimZ },
		{ params->blockDimX, params->blockDimY, params->blockDimZ },
		params->sharedMemBytes,
	};

	return fake_launch_new(params->func, &geometry, params->kernelParams, params->extra,
			       ret_cmd);
}

/* Of no use as an address, and no small number. */
#define CONDITION_NUMBER(n) (0xc0de000000000001ull + ((n) << 8))

static struct fake_condition *condition_locked(uint64_t number)
{
	struct fake_condition *condition = fake.conditions;

	while (condition && condition->number != number)
		condition = condition->next;
	return condition;
}

static void drop_conditions_locked(const struct CUgraph_st *graph)
{
	for (struct fake_condition **at = &fake.conditions; *at;) {
		struct fake_condition *condition = *at;

		if (condition->graph != graph) {
			at = &condition->next;
			continue;
		}
		*at = condition->next;
		free(condition);
	}
}

static void unref_locked(struct CUgraph_st *graph)
{
	if (--graph->nrefs > 0)
		return;
	drop_conditions_locked(graph);
	for (size_t i = 0; i < graph->nnodes; i++) {
		struct CUgraphNode_st *node = &graph->nodes[i];

		for (uint32_t k = 0; k < node->nbodies; k++)
			unref_locked(node->bodies[k]);
		free(node->bodies);
		fake_cmd_free(node->cmd);
	}
	free(graph);
}

/* ---- conditions ---- */

int fake_condition_set(uint64_t number, uint32_t value)
{
	struct fake_condition *condition;

	pthread_mutex_lock(&fake.lock);
	condition = condition_locked(number);
	if (condition)
		condition->value = value;
	pthread_mutex_unlock(&fake.lock);
	return condition ? 0 : -1;
}

uint32_t fake_condition_get(uint64_t number)
{
	const struct fake_condition *condition;
	uint32_t value;

	pthread_mutex_lock(&fake.lock);
	condition = condition_locked(number);
	value = condition ? condition->value : 0;
	pthread_mutex_unlock(&fake.lock);
	return value;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *ret_handle, CUgraph graph,
					CUcontext ctx, unsigned int first, unsigned int flags)
{
	CUresult r = fake_enter(__func__);
	struct fake_condition *condition;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx || (flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT))
		return CUDA_ERROR_INVALID_VALUE;
	condition = calloc(1, sizeof(*condition));
	if (!condition)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	condition->graph = graph;
	condition->first = condition->value = first;
	condition->assigns = flags & CU_GRAPH_COND_ASSIGN_DEFAULT;
	condition->number = CONDITION_NUMBER(++fake.next_condition);
	condition->next = fake.conditions;
	fake.conditions = condition;
	*ret_handle = condition->number;
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

/* ---- graphs ---- */

CUresult cuGraphCreate(CUgraph *ret_graph, unsigned int flags)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_graph = calloc(1, sizeof(**ret_graph));
	if (!*ret_graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(*ret_graph)->nrefs = 1;
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	graph->destroyed = true;
	unref_locked(graph);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

/* A row is all that there is: each node comes after the one that was added before. */
static CUresult check_place(const struct CUgraph_st *graph, const CUgraphNode *after, size_t nafter)
{
	if (graph->nnodes == FAKE_MAX_NODES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (graph->nnodes == 0 ? nafter != 0
			       : nafter != 1 || *after != &graph->nodes[graph->nnodes - 1])
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* What its parameters came to. */
static CUresult add(CUgraphNode *ret_node, CUgraph graph, struct fake_cmd *cmd, CUresult r)
{
	if (r != CUDA_SUCCESS)
		return r;
	*ret_node = &graph->nodes[graph->nnodes++];
	(*ret_node)->cmd = cmd;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			      size_t nafter, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult r = fake_enter(__func__);
	struct fake_cmd *cmd = NULL;

	if (r == CUDA_SUCCESS)
		r = check_place(graph, after, nafter);
	if (r == CUDA_SUCCESS)
		r = cmd_of(params, &cmd);
	return add(ret_node, graph, cmd, r);
}

static CUresult set_cmd_of(const CUDA_MEMSET_NODE_PARAMS *params, struct fake_cmd **ret_cmd)
{
	struct fake_cmd *cmd;

	if (params->height != 1 || params->width == 0)
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(FAKE_SET);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->set.dst = params->dst;
	cmd->set.count = params->width;
	cmd->set.value = params->value;
	cmd->set.width = params->elementSize;
	*ret_cmd = cmd;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			      size_t nafter, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	CUresult r = fake_enter(__func__);
	struct fake_cmd *cmd = NULL;

	if (r == CUDA_SUCCESS && !ctx)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = check_place(graph, after, nafter);
	if (r == CUDA_SUCCESS)
		r = set_cmd_of(params, &cmd);
	return add(ret_node, graph, cmd, r);
}

/* Of one row, between a device and what its kernels reach. */
static CUresult copy_cmd_of(const CUDA_MEMCPY3D *params, struct fake_cmd **ret_cmd)
{
	struct fake_cmd *cmd;

	if (params->Height != 1 || params->Depth != 1 || params->WidthInBytes == 0 ||
	    params->srcMemoryType == CU_MEMORYTYPE_ARRAY ||
	    params->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(FAKE_COPY);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->copy.dst = params->dstMemoryType == CU_MEMORYTYPE_HOST
				? (uint64_t)(uintptr_t)params->dstHost
				: params->dstDevice;
	cmd->copy.src = params->srcMemoryType == CU_MEMORYTYPE_HOST
				? (uint64_t)(uintptr_t)params->srcHost
				: params->srcDevice;
	cmd->copy.len = params->WidthInBytes;
	*ret_cmd = cmd;
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			      size_t nafter, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	CUresult r = fake_enter(__func__);
	struct fake_cmd *cmd = NULL;

	if (r == CUDA_SUCCESS && !ctx)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = check_place(graph, after, nafter);
	if (r == CUDA_SUCCESS)
		r = copy_cmd_of(params, &cmd);
	return add(ret_node, graph, cmd, r);
}

static bool has_size(const CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	switch (params->type) {
	case CU_GRAPH_COND_TYPE_IF:
		return params->size == 1 || params->size == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return params->size == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return params->size > 0;
	default:
		return false;
	}
}

static bool make_bodies(struct CUgraphNode_st *node, struct CUgraph_st *graph, uint32_t n)
{
	node->bodies = calloc(n, sizeof(struct CUgraph_st *));
	for (uint32_t i = 0; node->bodies && i < n; i++) {
		node->bodies[i] = calloc(1, sizeof(struct CUgraph_st));
		if (!node->bodies[i])
			return false;
		node->nbodies++;
		node->bodies[i]->nrefs = 1;
		node->bodies[i]->of = graph->of ? graph->of : graph;
	}
	return node->bodies != NULL;
}

static CUresult take_condition(const struct CUgraph_st *graph, uint64_t number)
{
	struct fake_condition *condition;
	bool fits;

	pthread_mutex_lock(&fake.lock);
	condition = condition_locked(number);
	fits = condition && !condition->has_node &&
	       (condition->graph == graph || condition->graph == graph->of);
	if (fits)
		condition->has_node = true;
	pthread_mutex_unlock(&fake.lock);
	return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Nodes with conditions are added so; the others have calls of their own. */
CUresult cuGraphAddNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			const CUgraphEdgeData *edges, size_t nafter, CUgraphNodeParams *params)
{
	CUDA_CONDITIONAL_NODE_PARAMS *own = &params->conditional;
	CUresult r = fake_enter(__func__);
	struct CUgraphNode_st *node;

	if (r != CUDA_SUCCESS)
		return r;
	if (edges || params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = check_place(graph, after, nafter);
	if (r == CUDA_SUCCESS && (!own->ctx || !has_size(own)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = take_condition(graph, own->handle);
	if (r != CUDA_SUCCESS)
		return r;
	node = &graph->nodes[graph->nnodes];
	node->cmd = fake_cmd_new(FAKE_BRANCH);
	if (!node->cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	node->cmd->branch.number = own->handle;
	node->cmd->branch.type = own->type;
	node->cmd->branch.n = own->size;
	graph->nnodes++;
	if (!make_bodies(node, graph, own->size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	own->phGraph_out = node->bodies;
	*ret_node = node;
	return CUDA_SUCCESS;
}

/* ---- what is launched ---- */

/* The command of a node as a launch has it: with its bodies. */
static struct fake_cmd *made_of_locked(const struct CUgraphNode_st *node)
{
	struct fake_cmd *cmd = fake_cmd_copy(node->cmd);

	for (uint32_t i = 0; cmd && i < node->nbodies; i++) {
		struct fake_cmd **at = &cmd->branch.bodies[i];

		for (size_t k = 0; k < node->bodies[i]->nnodes; k++) {
			*at = made_of_locked(&node->bodies[i]->nodes[k]);
			if (!*at) {
				fake_cmd_free(cmd);
				return NULL;
			}
			at = &(*at)->next;
		}
	}
	return cmd;
}

static bool has_conditions_locked(const struct CUgraph_st *graph)
{
	for (const struct fake_condition *c = fake.conditions; c; c = c->next)
		if (c->graph == graph)
			return true;
	return false;
}

static bool has_unused_locked(const struct CUgraph_st *graph)
{
	for (const struct fake_condition *c = fake.conditions; c; c = c->next)
		if (c->graph == graph && !c->has_node)
			return true;
	return false;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < exec->nnodes; i++)
		fake_cmd_free(exec->cmds[i]);
	exec->graph->has_exec = false;
	unref_locked(exec->graph);
	free(exec);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags)
{
	CUresult r = fake_enter(__func__);
	struct CUgraphExec_st *exec;

	if (r != CUDA_SUCCESS)
		return r;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	if (graph->of || has_unused_locked(graph) ||
	    (graph->has_exec && has_conditions_locked(graph))) {
		pthread_mutex_unlock(&fake.lock);
		free(exec);
		return CUDA_ERROR_INVALID_VALUE;
	}
	exec->graph = graph;
	graph->nrefs++;
	graph->has_exec = true;
	for (; r == CUDA_SUCCESS && exec->nnodes < graph->nnodes; exec->nnodes++) {
		exec->cmds[exec->nnodes] = made_of_locked(&graph->nodes[exec->nnodes]);
		if (!exec->cmds[exec->nnodes])
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&fake.lock);
	*ret_exec = exec;
	return r;
}

/* Takes @cmd in any case. */
static CUresult replace(CUgraphExec exec, CUgraphNode node, struct fake_cmd *cmd)
{
	size_t i = (size_t)(node - exec->graph->nodes);
	struct fake_cmd *old = cmd;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&fake.lock);
	if (!exec->graph->destroyed && i < exec->nnodes && exec->cmds[i]->kind == cmd->kind) {
		old = exec->cmds[i];
		exec->cmds[i] = cmd;
		r = CUDA_SUCCESS;
	}
	fake_cmd_free(old);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult r = fake_enter(__func__);
	struct fake_cmd *cmd;

	if (r == CUDA_SUCCESS)
		r = cmd_of(params, &cmd);
	return r == CUDA_SUCCESS ? replace(exec, node, cmd) : r;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
					const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	CUresult r = fake_enter(__func__);
	struct fake_cmd *cmd;

	if (r == CUDA_SUCCESS && !ctx)
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = set_cmd_of(params, &cmd);
	return r == CUDA_SUCCESS ? replace(exec, node, cmd) : r;
}

/* Conditions that have their first value at each launch. */
static CUresult assign_locked(struct CUstream_st *stream, const struct CUgraph_st *graph)
{
	CUresult r = CUDA_SUCCESS;

	for (const struct fake_condition *c = fake.conditions; c && r == CUDA_SUCCESS;
	     c = c->next) {
		struct fake_cmd *cmd;

		if (c->graph != graph || !c->assigns)
			continue;
		cmd = fake_cmd_new(FAKE_ASSIGN);
		if (!cmd)
			return CUDA_ERROR_OUT_OF_MEMORY;
		cmd->assign.number = c->number;
		cmd->assign.value = c->first;
		r = fake_put_locked(stream, cmd);
	}
	return r;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream native)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUstream_st *stream;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	stream = fake_stream_locked(ctx, native);
	r = assign_locked(stream, exec->graph);
	for (size_t i = 0; i < exec->nnodes && r == CUDA_SUCCESS; i++) {
		struct fake_cmd *cmd = fake_cmd_copy(exec->cmds[i]);

		r = cmd ? fake_put_locked(stream, cmd) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}
