/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: kernels in a row, or one fill, launched by one call, and changed between launches. */
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

static void unref_locked(struct CUgraph_st *graph)
{
	if (--graph->nrefs > 0)
		return;
	for (size_t i = 0; i < graph->nnodes; i++)
		fake_cmd_free(graph->nodes[i].cmd);
	free(graph);
}

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
CUresult cuGraphAddKernelNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			      size_t nafter, const CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult r = fake_enter(__func__);
	struct CUgraphNode_st *node;

	if (r != CUDA_SUCCESS)
		return r;
	if (graph->nnodes == FAKE_MAX_NODES)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (graph->nnodes == 0 ? nafter != 0
			       : nafter != 1 || *after != &graph->nodes[graph->nnodes - 1])
		return CUDA_ERROR_NOT_SUPPORTED;
	node = &graph->nodes[graph->nnodes];
	r = cmd_of(params, &node->cmd);
	if (r != CUDA_SUCCESS)
		return r;
	graph->nnodes++;
	*ret_node = node;
	return CUDA_SUCCESS;
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

/* Alone, or not at all. */
CUresult cuGraphAddMemsetNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *after,
			      size_t nafter, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	CUresult r = fake_enter(__func__);

	(void)after;
	if (r != CUDA_SUCCESS)
		return r;
	if (!ctx)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (graph->nnodes != 0 || nafter != 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	r = set_cmd_of(params, &graph->nodes[0].cmd);
	if (r != CUDA_SUCCESS)
		return r;
	graph->nnodes = 1;
	*ret_node = &graph->nodes[0];
	return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult r = fake_enter(__func__);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < exec->nnodes; i++)
		fake_cmd_free(exec->cmds[i]);
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
	exec->graph = graph;
	graph->nrefs++;
	for (; r == CUDA_SUCCESS && exec->nnodes < graph->nnodes; exec->nnodes++) {
		exec->cmds[exec->nnodes] = fake_cmd_copy(graph->nodes[exec->nnodes].cmd);
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

CUresult cuGraphLaunch(CUgraphExec exec, CUstream native)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUstream_st *stream;

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	stream = fake_stream_locked(ctx, native);
	for (size_t i = 0; i < exec->nnodes && r == CUDA_SUCCESS; i++) {
		struct fake_cmd *cmd = fake_cmd_copy(exec->cmds[i]);

		r = cmd ? fake_put_locked(stream, cmd) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}
