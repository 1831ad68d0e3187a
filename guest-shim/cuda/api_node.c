/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: nodes of each sort: added, asked, changed in graphs and in what was made of them. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/cuda/memop.h"

/* What a program says of a node becomes work; @args has the parameters of a kernel for so long. */
typedef CUresult make_fn(const void *params, struct cu_args *args, struct cu_work *ret_work);

static CUresult make_kernel(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	const CUDA_KERNEL_NODE_PARAMS *p = params;
	const struct cu_launch launch = {
		.func = p->func ? p->func : (CUfunction)p->kern,
		.grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
		.block = { p->blockDimX, p->blockDimY, p->blockDimZ },
		.shared_bytes = p->sharedMemBytes,
		.params = p->kernelParams,
		.extra = p->extra,
	};
	struct CUctx_st *ctx;
	CUresult result = cu_ctx_current_locked(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(launch.func, CU_KIND_FUNC))
		return CUDA_ERROR_INVALID_HANDLE;
	ret_work->type = CU_GRAPH_NODE_TYPE_KERNEL;
	return cu_call_make_locked(ctx->dev, &launch, args, &ret_work->call);
}

static CUresult make_copy(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	const CUDA_MEMCPY3D *p = params;

	(void)args;
	if ((p->srcMemoryType == CU_MEMORYTYPE_ARRAY &&
	     !cu_handle_is_locked(p->srcArray, CU_KIND_ARRAY)) ||
	    (p->dstMemoryType == CU_MEMORYTYPE_ARRAY &&
	     !cu_handle_is_locked(p->dstArray, CU_KIND_ARRAY)))
		return CUDA_ERROR_INVALID_HANDLE;
	if (p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	ret_work->type = CU_GRAPH_NODE_TYPE_MEMCPY;
	ret_work->copy = *p;
	return CUDA_SUCCESS;
}

static CUresult make_fill(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	const CUDA_MEMSET_NODE_PARAMS *p = params;

	(void)args;
	if ((p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !p->dst)
		return CUDA_ERROR_INVALID_VALUE;
	ret_work->type = CU_GRAPH_NODE_TYPE_MEMSET;
	ret_work->fill = *p;
	return CUDA_SUCCESS;
}

static CUresult make_host(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	(void)args;
	ret_work->type = CU_GRAPH_NODE_TYPE_HOST;
	ret_work->host = *(const CUDA_HOST_NODE_PARAMS *)params;
	return ret_work->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_child(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	(void)args;
	ret_work->type = CU_GRAPH_NODE_TYPE_GRAPH;
	ret_work->child = *(CUgraph const *)params;
	/* What allocates is not copied, nor are conditions. */
	return cu_handle_is_locked(ret_work->child, CU_KIND_GRAPH) && !ret_work->child->twin &&
			       !ret_work->child->body_of &&
			       !cu_graph_has_memory_locked(ret_work->child)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

/* A graph of the program's that nobody else has, nor anything that was made of it. */
static CUresult make_moved(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	const struct CUgraph_st *child = *(CUgraph const *)params;

	(void)args;
	ret_work->type = CU_GRAPH_NODE_TYPE_GRAPH;
	ret_work->child = *(CUgraph const *)params;
	ret_work->is_moved = true;
	return cu_handle_is_locked(child, CU_KIND_GRAPH) && !child->is_inner && !child->twin &&
			       !child->body_of && child->ncaptures == 0 &&
			       !(child->memory && child->memory->has_exec)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_event(const void *params, CUgraphNodeType type, struct cu_work *ret_work)
{
	ret_work->type = type;
	ret_work->event = *(CUevent const *)params;
	return cu_handle_is_locked(ret_work->event, CU_KIND_EVENT) ? CUDA_SUCCESS
								   : CUDA_ERROR_INVALID_VALUE;
}

static CUresult make_record(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	(void)args;
	return make_event(params, CU_GRAPH_NODE_TYPE_EVENT_RECORD, ret_work);
}

static CUresult make_wait(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	(void)args;
	return make_event(params, CU_GRAPH_NODE_TYPE_WAIT_EVENT, ret_work);
}

static CUresult make_empty(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	(void)params;
	(void)args;
	ret_work->type = CU_GRAPH_NODE_TYPE_EMPTY;
	return CUDA_SUCCESS;
}

static CUresult make_memops(const void *params, struct cu_args *args, struct cu_work *ret_work)
{
	const CUDA_BATCH_MEM_OP_NODE_PARAMS *p = params;

	(void)args;
	ret_work->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	ret_work->memops = *p;
	return cu_memops_check(p->paramArray, p->count, p->flags);
}

/* ---- adding ---- */

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t nafter,
		    make_fn *make, const void *params)
{
	struct cu_args args = { .bytes = NULL };
	struct cu_work work = { 0 };
	CUresult result = node && params && (after || !nafter) ? cu_check()
							       : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH) || graph->is_inner)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	if (!cu_nodes_are_of_locked(graph, after, nafter))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = make(params, &args, &work);
	if (result == CUDA_SUCCESS && work.is_moved && work.child == graph)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = cu_graph_add_locked(graph, after, nafter, &work, node);
	cu_args_put(&args);
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				      size_t nafter, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return add(node, graph, after, nafter, make_kernel, params);
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				      size_t nafter, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	(void)ctx; /* addresses say which device they are of */
	return add(node, graph, after, nafter, make_copy, params);
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				      size_t nafter, const CUDA_MEMSET_NODE_PARAMS *params,
				      CUcontext ctx)
{
	(void)ctx;
	return add(node, graph, after, nafter, make_fill, params);
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				    size_t nafter, const CUDA_HOST_NODE_PARAMS *params)
{
	return add(node, graph, after, nafter, make_host, params);
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph,
					  const CUgraphNode *after, size_t nafter, CUgraph child)
{
	return add(node, graph, after, nafter, make_child, &child);
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				     size_t nafter)
{
	return add(node, graph, after, nafter, make_empty, &graph);
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
					   const CUgraphNode *after, size_t nafter, CUevent event)
{
	return add(node, graph, after, nafter, make_record, &event);
}

CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
					 size_t nafter, CUevent event)
{
	return add(node, graph, after, nafter, make_wait, &event);
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph,
					  const CUgraphNode *after, size_t nafter,
					  const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return add(node, graph, after, nafter, make_memops, params);
}

/* The sort of node that @params are of, and where in them that sort's own are. */
static make_fn *maker(const CUgraphNodeParams *params, const void **ret_params,
		      CUDA_MEMSET_NODE_PARAMS *fill)
{
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		*ret_params = &params->kernel;
		return make_kernel;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		*ret_params = &params->memcpy.copyParams;
		return make_copy;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		*fill = (CUDA_MEMSET_NODE_PARAMS){ .dst = params->memset.dst,
						   .pitch = params->memset.pitch,
						   .value = params->memset.value,
						   .elementSize = params->memset.elementSize,
						   .width = params->memset.width,
						   .height = params->memset.height };
		*ret_params = fill;
		return make_fill;
	case CU_GRAPH_NODE_TYPE_HOST:
		*ret_params = &params->host;
		return make_host;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		*ret_params = &params->graph.graph;
		return params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE ? make_moved
										      : make_child;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		*ret_params = &params->memOp; /* laid out the same */
		return make_memops;
	case CU_GRAPH_NODE_TYPE_EMPTY:
		*ret_params = params;
		return make_empty;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		*ret_params = &params->eventRecord.event;
		return make_record;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		*ret_params = &params->eventWait.event;
		return make_wait;
	default:
		return NULL;
	}
}

static CUresult add_alloc(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t nafter,
			  CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
	CUDA_MEM_ALLOC_NODE_PARAMS own = { .poolProps = params->poolProps,
					   .accessDescs = params->accessDescs,
					   .accessDescCount = params->accessDescCount,
					   .bytesize = params->bytesize };
	CUresult result = cuGraphAddMemAllocNode(node, graph, after, nafter, &own);

	if (result == CUDA_SUCCESS)
		params->dptr = own.dptr;
	return result;
}

/* A condition is of the graph that the node is added to, or of one that this is a body in. */
static CUresult add_branch(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
			   size_t nafter, CUDA_CONDITIONAL_NODE_PARAMS *params)
{
	CUresult result = node && (after || !nafter) ? cu_check() : CUDA_ERROR_INVALID_VALUE;
	struct cu_work work;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH) || graph->is_inner ||
	    !cu_nodes_are_of_locked(graph, after, nafter))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = cu_branch_make_locked(graph, params, &work);
	if (result == CUDA_SUCCESS)
		result = cu_graph_add_locked(graph, after, nafter, &work, node);
	if (result == CUDA_SUCCESS)
		params->phGraph_out = (*node)->work.branch.bodies;
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				const CUgraphEdgeData *edges, size_t nafter,
				CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	const void *own;
	make_fn *make;

	(void)edges; /* what may begin sooner begins when all is done */
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return add_alloc(node, graph, after, nafter, &params->alloc);
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return cuGraphAddMemFreeNode(node, graph, after, nafter, params->free.dptr);
	if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return add_branch(node, graph, after, nafter, &params->conditional);
	make = maker(params, &own, &fill);
	return make ? add(node, graph, after, nafter, make, own)
		    : cu_unsupported("cuGraphAddNode of semaphores");
}

/* ---- asking ---- */

CUresult cu_node_enter(CUgraphNode node, CUgraphNodeType type, const void *output)
{
	CUresult result = output ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (!cu_handle_is_locked(node, CU_KIND_NODE) || node->work.type != type ||
	    node->work.is_library)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

/* Pointers to the node's own copy of each parameter, good until the node changes. */
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_KERNEL, params);
	const struct cu_call *call;
	void **list;

	if (result != CUDA_SUCCESS)
		return result;
	call = &node->work.call;
	if (!cu_handle_is_locked(call->func, CU_KIND_FUNC))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	list = realloc(node->params, (call->func->nparams + 1) * sizeof(*list));
	if (!list)
		return cu_leave(CUDA_ERROR_OUT_OF_MEMORY);
	node->params = list;
	for (uint32_t i = 0; i < call->func->nparams; i++)
		list[i] = call->args + call->func->params[i].off;
	*params = (CUDA_KERNEL_NODE_PARAMS){
		.func = call->func,
		.gridDimX = call->grid[0],
		.gridDimY = call->grid[1],
		.gridDimZ = call->grid[2],
		.blockDimX = call->block[0],
		.blockDimY = call->block[1],
		.blockDimZ = call->block[2],
		.sharedMemBytes = call->shared_bytes,
		.kernelParams = list,
	};
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_MEMCPY, params);

	if (result != CUDA_SUCCESS)
		return result;
	*params = node->work.copy;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_MEMSET, params);

	if (result != CUDA_SUCCESS)
		return result;
	*params = node->work.fill;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_HOST, params);

	if (result != CUDA_SUCCESS)
		return result;
	*params = node->work.host;
	return cu_leave(CUDA_SUCCESS);
}

/* The node's own operations, good until the node changes. */
CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode node,
						CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, params);

	if (result != CUDA_SUCCESS)
		return result;
	*params = node->work.memops;
	return cu_leave(CUDA_SUCCESS);
}

/* The node's own copy, which stays the node's. */
CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
	CUresult result = cu_node_enter(node, CU_GRAPH_NODE_TYPE_GRAPH, child);

	if (result != CUDA_SUCCESS)
		return result;
	*child = node->work.child;
	return cu_leave(CUDA_SUCCESS);
}

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
	CUresult result = cu_node_enter(node, type, event);

	if (result != CUDA_SUCCESS)
		return result;
	*event = node->work.event;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

/* ---- changing ---- */

/* Parameters that are set anew leave a node its attributes. */
static CUresult keep_attributes(struct cu_call *call, const struct cu_call *had)
{
	struct CUctx_st *ctx;
	CUresult result = cu_ctx_current_locked(&ctx);

	if (result == CUDA_SUCCESS)
		result = cu_call_check_groups_locked(ctx->dev, call, had->groups);
	call->groups = had->groups;
	call->said = had->said;
	return result;
}

/* What can be launched keeps as many operations, of the same sorts. */
static bool are_alike(const CUDA_BATCH_MEM_OP_NODE_PARAMS *a,
		      const CUDA_BATCH_MEM_OP_NODE_PARAMS *b)
{
	for (unsigned int i = 0; i < a->count && a->count == b->count; i++)
		if (a->paramArray[i].operation != b->paramArray[i].operation)
			return false;
	return a->count == b->count;
}

/* @node, of a graph or (@exec) what was made of it, does this instead. */
static CUresult change(CUgraphExec exec, CUgraphNode node, make_fn *make, const void *params)
{
	struct cu_args args = { .bytes = NULL };
	struct cu_work work = { 0 }, own;
	CUresult result = params ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	if (exec && cu_handle_is_locked(exec, CU_KIND_EXEC) && exec->twin)
		return cu_leave(
			cu_unsupported("changes of what was made of a graph with conditions"));
	if (exec && cu_handle_is_locked(exec, CU_KIND_EXEC) && exec->nusers == 0)
		node = cu_exec_node_locked(exec, node);
	else if (exec || !cu_handle_is_locked(node, CU_KIND_NODE) || node->graph->is_inner)
		node = NULL;
	if (!node)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = make(params, &args, &work);
	if (result == CUDA_SUCCESS && (work.type != node->work.type || node->work.is_library))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && exec && work.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP &&
	    !are_alike(&work.memops, &node->work.memops))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS && work.type == CU_GRAPH_NODE_TYPE_KERNEL)
		result = keep_attributes(&work.call, &node->work.call);
	if (result == CUDA_SUCCESS)
		result = cu_work_copy(&work, &own);
	cu_args_put(&args);
	if (result != CUDA_SUCCESS)
		return cu_leave(result);
	cu_work_free(&node->work);
	node->work = own;
	return cu_leave(CUDA_SUCCESS);
}

/* What has to be something: a null one is refused before it is taken for "none". */
static CUresult change_made(CUgraphExec exec, CUgraphNode node, make_fn *make, const void *params)
{
	return exec ? change(exec, node, make, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	return change(NULL, node, make_kernel, params);
}

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
	return change(NULL, node, make_copy, params);
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
	return change(NULL, node, make_fill, params);
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	return change(NULL, node, make_host, params);
}

CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	return change(NULL, node, make_record, &event);
}

CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	return change(NULL, node, make_wait, &event);
}

CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
						const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return change(NULL, node, make_memops, params);
}

CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
						    const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
	return change_made(exec, node, make_memops, params);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
						const CUDA_KERNEL_NODE_PARAMS *params)
{
	return change_made(exec, node, make_kernel, params);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
						const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	(void)ctx;
	return change_made(exec, node, make_copy, params);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
						const CUDA_MEMSET_NODE_PARAMS *params,
						CUcontext ctx)
{
	(void)ctx;
	return change_made(exec, node, make_fill, params);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
					      const CUDA_HOST_NODE_PARAMS *params)
{
	return change_made(exec, node, make_host, params);
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node,
						    CUgraph child)
{
	return change_made(exec, node, make_child, &child);
}

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
						    CUevent event)
{
	return change_made(exec, node, make_record, &event);
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	return change_made(exec, node, make_wait, &event);
}

static CUresult change_any(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	const void *own;
	make_fn *make;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	make = maker(params, &own, &fill);
	return make && make != make_moved ? change(exec, node, make, own)
					  : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return change_any(NULL, node, params);
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
					  CUgraphNodeParams *params)
{
	return exec ? change_any(exec, node, params) : CUDA_ERROR_INVALID_VALUE;
}
