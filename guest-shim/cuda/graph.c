/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as the program builds them. */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/cuda/graphmem.h"

/* ---- sets of nodes ---- */

bool cu_nodes_have(const struct cu_nodes *nodes, const struct CUgraphNode_st *node)
{
	for (uint32_t i = 0; i < nodes->n; i++)
		if (nodes->node[i] == node)
			return true;
	return false;
}

bool cu_nodes_are_of_locked(const struct CUgraph_st *graph, CUgraphNode const *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!cu_handle_is_locked(nodes[i], CU_KIND_NODE) || nodes[i]->graph != graph)
			return false;
	return true;
}

bool cu_nodes_add(struct cu_nodes *nodes, struct CUgraphNode_st *node)
{
	struct CUgraphNode_st **grown;

	if (nodes->n == nodes->cap) {
		uint32_t cap = nodes->cap ? 2 * nodes->cap : 4;

		grown = realloc(nodes->node, cap * sizeof(*grown));
		if (!grown)
			return false;
		nodes->node = grown;
		nodes->cap = cap;
	}
	nodes->node[nodes->n++] = node;
	return true;
}

bool cu_nodes_set(struct cu_nodes *nodes, struct CUgraphNode_st *const *from, size_t n)
{
	struct cu_nodes made = { 0 };

	for (size_t i = 0; i < n; i++)
		if (!cu_nodes_have(&made, from[i]) && !cu_nodes_add(&made, from[i])) {
			free(made.node);
			return false;
		}
	free(nodes->node);
	*nodes = made;
	return true;
}

static void nodes_remove(struct cu_nodes *nodes, const struct CUgraphNode_st *node)
{
	for (uint32_t i = 0; i < nodes->n; i++)
		if (nodes->node[i] == node)
			nodes->node[i--] = nodes->node[--nodes->n];
}

/* ---- life ---- */

CUresult cu_graph_new_locked(struct CUgraph_st **ret_graph)
{
	struct CUgraph_st *graph = calloc(1, sizeof(*graph));

	if (!graph || !cu_handle_add_locked(graph, CU_KIND_GRAPH)) {
		free(graph);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	graph->end = &graph->first;
	*ret_graph = graph;
	return CUDA_SUCCESS;
}

static void node_free(struct CUgraphNode_st *node)
{
	cu_handle_remove_locked(node);
	cu_work_free(&node->work);
	free(node->after.node);
	free(node->params);
	free(node);
}

void cu_graph_free_locked(struct CUgraph_st *graph)
{
	cu_handle_remove_locked(graph);
	if (graph->ncaptures)
		cu_capture_lose_locked(graph);
	while (graph->first) {
		struct CUgraphNode_st *node = graph->first;

		graph->first = node->next;
		node_free(node);
	}
	cu_held_drop_all_locked(graph);
	cu_graph_memory_put_locked(graph->memory);
	cu_twin_put_locked(graph->twin);
	free(graph);
}

CUresult cu_graph_add_locked(struct CUgraph_st *graph, struct CUgraphNode_st *const *after,
			     size_t nafter, const struct cu_work *work,
			     struct CUgraphNode_st **ret_node)
{
	struct CUgraphNode_st *node = calloc(1, sizeof(*node));
	CUresult result = node ? cu_work_copy(work, &node->work) : CUDA_ERROR_OUT_OF_MEMORY;

	if (result != CUDA_SUCCESS) {
		free(node);
		return result;
	}
	if (!cu_nodes_set(&node->after, after, nafter) ||
	    !cu_handle_add_locked(node, CU_KIND_NODE)) {
		node_free(node);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	node->graph = graph;
	for (uint32_t i = 0;
	     node->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < node->work.branch.n; i++)
		node->work.branch.bodies[i]->body_of = node;
	*graph->end = node;
	graph->end = &node->next;
	graph->nnodes++;
	*ret_node = node;
	return CUDA_SUCCESS;
}

void cu_graph_remove_locked(struct CUgraphNode_st *node)
{
	struct CUgraph_st *graph = node->graph;
	struct CUgraphNode_st **at = &graph->first;

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	if (graph->end == &node->next)
		graph->end = at;
	graph->nnodes--;
	for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
		nodes_remove(&n->after, node);
	node_free(node);
}

/* ---- copies ---- */

static CUresult clone_nodes(const struct CUgraph_st *graph, struct CUgraph_st *clone)
{
	for (struct CUgraphNode_st *from = graph->first; from; from = from->next) {
		CUresult result = cu_graph_add_locked(clone, NULL, 0, &from->work, &from->made);

		if (result != CUDA_SUCCESS)
			return result;
		from->made->copy_of = from;
		from->made->is_disabled = from->is_disabled;
	}
	for (struct CUgraphNode_st *from = graph->first; from; from = from->next)
		for (uint32_t i = 0; i < from->after.n; i++)
			if (!cu_nodes_add(&from->made->after, from->after.node[i]->made))
				return CUDA_ERROR_OUT_OF_MEMORY;
	return CUDA_SUCCESS;
}

CUresult cu_graph_clone_locked(const struct CUgraph_st *graph, struct CUgraph_st **ret_clone)
{
	struct CUgraph_st *clone;
	CUresult result = cu_graph_new_locked(&clone);

	if (result != CUDA_SUCCESS)
		return result;
	result = clone_nodes(graph, clone);
	if (result == CUDA_SUCCESS)
		result = cu_held_copy_locked(graph, clone);
	if (result != CUDA_SUCCESS) {
		cu_graph_free_locked(clone);
		return result;
	}
	*ret_clone = clone;
	return CUDA_SUCCESS;
}

/* ---- order ---- */

/* Whoever has nothing left to wait for comes next; of those the one that was added first. */
CUresult cu_graph_order_locked(struct CUgraph_st *graph, struct CUgraphNode_st ***ret_order)
{
	struct CUgraphNode_st **order = calloc(graph->nnodes ? graph->nnodes : 1, sizeof(*order));
	uint32_t n = 0, before;

	if (!order)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cu_graph_unmark_locked(graph);
	do {
		before = n;
		for (struct CUgraphNode_st *node = graph->first; node; node = node->next) {
			bool is_ready = !node->is_marked;

			for (uint32_t i = 0; is_ready && i < node->after.n; i++)
				is_ready = node->after.node[i]->is_marked;
			if (!is_ready)
				continue;
			node->is_marked = true;
			order[n++] = node;
		}
	} while (n > before && n < graph->nnodes);
	cu_graph_unmark_locked(graph);
	if (n < graph->nnodes) {
		free(order);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_order = order;
	return CUDA_SUCCESS;
}

void cu_graph_unmark_locked(struct CUgraph_st *graph)
{
	for (struct CUgraphNode_st *node = graph->first; node; node = node->next)
		node->is_marked = false;
}

/* A chain of thousands is no reason for as deep a stack. */
void cu_graph_mark_locked(struct CUgraphNode_st *node)
{
	struct CUgraphNode_st *todo = node;

	node->todo = NULL;
	node->is_marked = true;
	while (todo) {
		struct CUgraphNode_st *n = todo;

		todo = n->todo;
		for (uint32_t i = 0; i < n->after.n; i++) {
			struct CUgraphNode_st *before = n->after.node[i];

			if (before->is_marked)
				continue;
			before->is_marked = true;
			before->todo = todo;
			todo = before;
		}
	}
}
