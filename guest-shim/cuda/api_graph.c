/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: graphs and their nodes, what is made of them, and objects that they keep. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graphmem.h"

/* ---- entering; with the lock on success ---- */

static CUresult enter_handle(const void *object, enum cu_kind kind, const void *output)
{
	CUresult result = output ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_handle_is_locked(object, kind) ? CUDA_SUCCESS
						 : cu_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult enter_graph(CUgraph graph)
{
	return enter_handle(graph, CU_KIND_GRAPH, graph);
}

/* What may have dropped the program's objects ends so. */
static CUresult leave_graph(CUresult result)
{
	(void)cu_leave(result);
	cu_userobj_destroy();
	return result;
}

/* ---- graphs ---- */

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
						CUcontext ctx, unsigned int value,
						unsigned int flags)
{
	CUresult result = flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT
				  ? CUDA_ERROR_INVALID_VALUE
				  : enter_handle(graph, CU_KIND_GRAPH, handle);
	uint64_t made;

	if (result == CUDA_SUCCESS && !ctx)
		result = cu_ctx_current_locked(&ctx);
	else if (result == CUDA_SUCCESS && !cu_handle_is_locked(ctx, CU_KIND_CTX))
		result = CUDA_ERROR_INVALID_VALUE;
	else if (result != CUDA_SUCCESS)
		return result;
	if (result == CUDA_SUCCESS)
		result = cu_condition_new_locked(graph, ctx, value, flags, &made);
	if (result == CUDA_SUCCESS)
		*handle = made;
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	CUresult result = graph && flags == 0 ? cu_check() : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_leave(cu_graph_new_locked(graph));
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph)
{
	CUresult result = enter_graph(graph);

	if (result != CUDA_SUCCESS)
		return result;
	if (graph->is_inner || graph->body_of || graph->ncaptures)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	cu_graph_free_locked(graph);
	return leave_graph(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphClone(CUgraph *clone, CUgraph graph)
{
	CUresult result = enter_handle(graph, CU_KIND_GRAPH, clone);

	if (result != CUDA_SUCCESS)
		return result;
	/* Addresses are one graph's, and so are conditions. */
	if (cu_graph_has_memory_locked(graph) || graph->twin || graph->body_of)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return leave_graph(cu_graph_clone_locked(graph, clone));
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *ret_node, CUgraphNode node, CUgraph clone)
{
	CUresult result = enter_handle(clone, CU_KIND_GRAPH, ret_node);

	if (result != CUDA_SUCCESS)
		return result;
	for (CUgraphNode n = clone->first; n; n = n->next)
		if (n->copy_of == node) {
			*ret_node = n;
			return cu_leave(CUDA_SUCCESS);
		}
	return cu_leave(CUDA_ERROR_INVALID_VALUE);
}

/* One after the other into an array of the program's, or counted only. */
struct list {
	void *at; /* NULL: only counted */
	size_t room;
	size_t n;
};

static void list_add(struct list *list, CUgraphNode node)
{
	if (list->at && list->n < list->room)
		((CUgraphNode *)list->at)[list->n] = node;
	list->n++;
}

static CUresult list_end(struct list *list, size_t *ret_n)
{
	if (!list->at) {
		*ret_n = list->n;
		return CUDA_SUCCESS;
	}
	for (size_t i = list->n; i < list->room; i++)
		((CUgraphNode *)list->at)[i] = NULL;
	*ret_n = list->n < list->room ? list->n : list->room;
	return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n, bool roots_only)
{
	CUresult result = enter_handle(graph, CU_KIND_GRAPH, n);
	struct list list = { .at = nodes };

	if (result != CUDA_SUCCESS)
		return result;
	list.room = nodes ? *n : 0;
	for (CUgraphNode node = graph->first; node; node = node->next)
		if (!roots_only || node->after.n == 0)
			list_add(&list, node);
	return cu_leave(list_end(&list, n));
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return list_nodes(graph, nodes, n, false);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return list_nodes(graph, nodes, n, true);
}

/* Edges have no data: all of a node comes before anything of the next. */
static void clear_edges(CUgraphEdgeData *edges, size_t n)
{
	if (edges)
		memset(edges, 0, n * sizeof(*edges));
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
				 CUgraphEdgeData *edges, size_t *n)
{
	CUresult result = !from == !to ? enter_handle(graph, CU_KIND_GRAPH, n)
				       : CUDA_ERROR_INVALID_VALUE;
	struct list before = { .at = from }, after = { .at = to };

	if (result != CUDA_SUCCESS)
		return result;
	before.room = after.room = from ? *n : 0;
	for (CUgraphNode node = graph->first; node; node = node->next)
		for (uint32_t i = 0; i < node->after.n; i++) {
			list_add(&before, node->after.node[i]);
			list_add(&after, node);
		}
	(void)list_end(&before, n);
	*n = before.room ? before.room : *n;
	result = list_end(&after, n);
	clear_edges(from ? edges : NULL, *n);
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
	CUresult result = enter_handle(node, CU_KIND_NODE, type);

	if (result != CUDA_SUCCESS)
		return result;
	*type = node->work.type;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes,
					    CUgraphEdgeData *edges, size_t *n)
{
	CUresult result = enter_handle(node, CU_KIND_NODE, n);
	struct list list = { .at = nodes };

	if (result != CUDA_SUCCESS)
		return result;
	list.room = nodes ? *n : 0;
	for (uint32_t i = 0; i < node->after.n; i++)
		list_add(&list, node->after.node[i]);
	result = list_end(&list, n);
	clear_edges(nodes ? edges : NULL, *n);
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes,
					      CUgraphEdgeData *edges, size_t *n)
{
	CUresult result = enter_handle(node, CU_KIND_NODE, n);
	struct list list = { .at = nodes };

	if (result != CUDA_SUCCESS)
		return result;
	list.room = nodes ? *n : 0;
	for (CUgraphNode other = node->graph->first; other; other = other->next)
		if (cu_nodes_have(&other->after, node))
			list_add(&list, other);
	result = list_end(&list, n);
	clear_edges(nodes ? edges : NULL, *n);
	return cu_leave(result);
}

static CUresult change_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
			     size_t n, bool adds)
{
	CUresult result = (from && to) || !n ? enter_graph(graph) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	/* Which allocation lies where is decided by what comes after what. */
	if (!cu_nodes_are_of_locked(graph, from, n) || !cu_nodes_are_of_locked(graph, to, n) ||
	    (!adds && graph->memory))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++) {
		struct cu_nodes *after = &to[i]->after;

		if (from[i] == to[i] || cu_nodes_have(after, from[i]) == adds)
			return cu_leave(CUDA_ERROR_INVALID_VALUE);
		if (adds && !cu_nodes_add(after, from[i]))
			return cu_leave(CUDA_ERROR_OUT_OF_MEMORY);
		for (uint32_t k = 0; !adds && k < after->n; k++)
			if (after->node[k] == from[i])
				after->node[k--] = after->node[--after->n];
	}
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from,
					const CUgraphNode *to, const CUgraphEdgeData *edges,
					size_t n)
{
	(void)edges;
	return change_edges(graph, from, to, n, true);
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from,
					   const CUgraphNode *to, const CUgraphEdgeData *edges,
					   size_t n)
{
	(void)edges;
	return change_edges(graph, from, to, n, false);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode node)
{
	CUresult result = enter_handle(node, CU_KIND_NODE, node);

	if (result != CUDA_SUCCESS)
		return result;
	if (node->graph->ncaptures || node->graph->is_inner || node->graph->memory)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	cu_graph_remove_locked(node);
	return leave_graph(CUDA_SUCCESS);
}

/* ---- what can be launched ---- */

#define FLAGS                                                                   \
	((unsigned long long)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | \
			      CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY |   \
			      CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
					     unsigned long long flags)
{
	CUresult result = enter_handle(graph, CU_KIND_GRAPH, exec);

	if (result != CUDA_SUCCESS)
		return result;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return cu_leave(cu_unsupported("cuGraphInstantiate for launches by the device"));
	/* One that was moved into a node is launched with it. */
	if ((flags & ~FLAGS) || (graph->is_inner && cu_graph_has_memory_locked(graph)) ||
	    graph->body_of || cu_graph_has_unused_locked(graph))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return leave_graph(cu_exec_new_locked(graph, flags, exec));
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec)
{
	CUresult result = enter_handle(exec, CU_KIND_EXEC, exec);

	if (result != CUDA_SUCCESS)
		return result;
	cu_exec_end_locked(exec);
	return leave_graph(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
	CUresult result = enter_handle(exec, CU_KIND_EXEC, flags);

	if (result != CUDA_SUCCESS)
		return result;
	*flags = exec->flags;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
				   CUgraphExecUpdateResultInfo *info)
{
	CUresult result = enter_handle(exec, CU_KIND_EXEC, exec);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return leave_graph(cu_exec_update_locked(exec, graph, info));
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	CUresult result = enter_handle(exec, CU_KIND_EXEC, exec);

	if (result != CUDA_SUCCESS)
		return result;
	if (exec->twin)
		return cu_leave(
			cu_unsupported("changes of what was made of a graph with conditions"));
	node = cu_exec_node_locked(exec, node);
	if (!node || (node->work.type != CU_GRAPH_NODE_TYPE_KERNEL &&
		      node->work.type != CU_GRAPH_NODE_TYPE_MEMCPY &&
		      node->work.type != CU_GRAPH_NODE_TYPE_MEMSET))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	node->is_disabled = !enabled;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
	CUresult result = enter_handle(exec, CU_KIND_EXEC, enabled);

	if (result != CUDA_SUCCESS)
		return result;
	node = cu_exec_node_locked(exec, node);
	if (!node)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	*enabled = !node->is_disabled;
	return cu_leave(CUDA_SUCCESS);
}

/* ---- objects of the program's ---- */

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy,
				    unsigned int nrefs, unsigned int flags)
{
	CUresult result = object && destroy && nrefs > 0 && nrefs <= INT32_MAX &&
					  flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
				  ? cu_check()
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	(void)pthread_mutex_lock(&cu.lock);
	return cu_leave(cu_userobj_new_locked(data, destroy, nrefs, object));
}

static CUresult enter_object(CUuserObject object, unsigned int n)
{
	return n > 0 && n <= INT32_MAX ? enter_handle(object, CU_KIND_USER_OBJECT, object)
				       : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int n)
{
	CUresult result = enter_object(object, n);

	if (result != CUDA_SUCCESS)
		return result;
	object->nrefs += n;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int n)
{
	CUresult result = enter_object(object, n);

	return result == CUDA_SUCCESS ? leave_graph(cu_userobj_drop_locked(object, n)) : result;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int n,
					 unsigned int flags)
{
	CUresult result = flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE
				  ? CUDA_ERROR_INVALID_VALUE
				  : enter_object(object, n);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	/* The program's own references go to the graph, or there are more. */
	if ((flags & CU_GRAPH_USER_OBJECT_MOVE) && n > object->nrefs)
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	result = cu_held_add_locked(graph, object, n);
	if (result == CUDA_SUCCESS && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
		object->nrefs += n;
	return cu_leave(result);
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int n)
{
	CUresult result = enter_object(object, n);

	if (result != CUDA_SUCCESS)
		return result;
	if (!cu_handle_is_locked(graph, CU_KIND_GRAPH))
		return cu_leave(CUDA_ERROR_INVALID_VALUE);
	return leave_graph(cu_held_drop_locked(graph, object, n));
}
