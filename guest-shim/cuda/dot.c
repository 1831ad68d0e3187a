/* SPDX-License-Identifier: Apache-2.0 */
/* A graph as a text for Graphviz: a box for each node, an arrow for each edge, a cluster for each graph inside a node. */
#include <stdio.h>

#include "guest-shim/cuda/graph.h"

struct dot {
	FILE *out;
	unsigned int flags;
	unsigned int ngraphs;
};

static bool says(const struct dot *dot, unsigned int flag)
{
	return dot->flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE);
}

/* Names are the program's: what would end the string, or the text, is left out. */
static void write_name(FILE *out, const char *name)
{
	for (; *name; name++)
		if (*name >= ' ' && *name <= '~' && *name != '"' && *name != '\\')
			(void)fputc(*name, out);
}

static void write_kernel(const struct dot *dot, const struct cu_call *call)
{
	/* A module that has been unloaded took its functions along. */
	bool is_there = cu_handle_is_locked(call->func, CU_KIND_FUNC);

	(void)fputs("KERNEL ", dot->out);
	write_name(dot->out, is_there ? call->func->name : "of a module that is gone");
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
		(void)fprintf(dot->out, "\\ngrid %u,%u,%u block %u,%u,%u shared %u", call->grid[0],
			      call->grid[1], call->grid[2], call->block[0], call->block[1],
			      call->block[2], call->shared_bytes);
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_ATTRIBUTES))
		(void)fprintf(dot->out, "\\ncooperative %u cluster %u,%u,%u priority %d",
			      (call->groups & GANTRY_TASK_TOGETHER) != 0,
			      GANTRY_TASK_CLUSTER_OF(call->groups, 0),
			      GANTRY_TASK_CLUSTER_OF(call->groups, 1),
			      GANTRY_TASK_CLUSTER_OF(call->groups, 2), call->said.priority);
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
		(void)fprintf(dot->out, "\\nfunction %p", (const void *)call->func);
}

static void write_end(const struct dot *dot, const char *name, CUmemorytype type, const void *host,
		      CUdeviceptr device, CUarray array)
{
	if (type == CU_MEMORYTYPE_ARRAY)
		(void)fprintf(dot->out, "\\n%s array %p", name, (const void *)array);
	else if (type == CU_MEMORYTYPE_HOST)
		(void)fprintf(dot->out, "\\n%s host %p", name, host);
	else
		(void)fprintf(dot->out, "\\n%s %#llx", name, (unsigned long long)device);
}

static void write_copy(const struct dot *dot, const CUDA_MEMCPY3D *copy)
{
	(void)fputs("MEMCPY", dot->out);
	if (!says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
		return;
	(void)fprintf(dot->out, "\\n%zu x %zu x %zu bytes", copy->WidthInBytes, copy->Height,
		      copy->Depth);
	write_end(dot, "from", copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray);
	write_end(dot, "to", copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray);
}

static void write_fill(const struct dot *dot, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	(void)fputs("MEMSET", dot->out);
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
		(void)fprintf(dot->out, "\\n%zu x %zu of %u bytes, pitch %zu\\nto %#llx, value %#x",
			      fill->width, fill->height, fill->elementSize, fill->pitch,
			      (unsigned long long)fill->dst, fill->value);
}

static void write_event(const struct dot *dot, const char *name, const struct CUevent_st *event)
{
	(void)fputs(name, dot->out);
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS))
		(void)fprintf(dot->out, "\\nevent %p", (const void *)event);
}

static void write_alloc(const struct dot *dot, const CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
	(void)fputs("MEM_ALLOC", dot->out);
	if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
		(void)fprintf(dot->out, "\\n%zu bytes at %#llx", alloc->bytesize,
			      (unsigned long long)alloc->dptr);
}

static const char *branch_name(CUgraphConditionalNodeType type)
{
	return type == CU_GRAPH_COND_TYPE_IF	  ? "IF"
	       : type == CU_GRAPH_COND_TYPE_WHILE ? "WHILE"
						  : "SWITCH";
}

static void write_label(const struct dot *dot, const struct cu_work *work)
{
	if (work->is_library) {
		(void)fputs("KERNEL of a library", dot->out);
		return;
	}
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		write_kernel(dot, &work->call);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		write_copy(dot, &work->copy);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		write_fill(dot, &work->fill);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
		(void)fputs("HOST", dot->out);
		if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS))
			(void)fprintf(dot->out, "\\nfunction %#llx on %p",
				      (unsigned long long)(uintptr_t)work->host.fn,
				      work->host.userData);
		break;
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		write_event(dot, "EVENT_RECORD", work->event);
		break;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		write_event(dot, "EVENT_WAIT", work->event);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		(void)fputs("CHILD_GRAPH", dot->out);
		break;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		(void)fputs("BATCH_MEM_OP", dot->out);
		if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS))
			(void)fprintf(dot->out, "\\n%u operations", work->memops.count);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		write_alloc(dot, &work->alloc);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		(void)fputs("MEM_FREE", dot->out);
		if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
			(void)fprintf(dot->out, "\\n%#llx", (unsigned long long)work->freed);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		(void)fputs("CONDITIONAL", dot->out);
		if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS))
			(void)fprintf(dot->out, "\\n%s of %u, handle %#llx",
				      branch_name(work->branch.type), work->branch.n,
				      (unsigned long long)work->branch.handle);
		break;
	default:
		(void)fputs("EMPTY", dot->out);
		break;
	}
}

static unsigned int place_of(const struct CUgraph_st *graph, const struct CUgraphNode_st *wanted)
{
	unsigned int place = 0;

	for (const struct CUgraphNode_st *n = graph->first; n && n != wanted; n = n->next)
		place++;
	return place;
}

static unsigned int write_graph(struct dot *dot, const struct CUgraph_st *graph);

/* A graph inside node @place of graph @number. */
static void write_inside(struct dot *dot, unsigned int number, unsigned int place,
			 const struct CUgraph_st *graph)
{
	(void)fprintf(dot->out, "\"graph_%u_node_%u\" -> \"graph_%u_node_0\"[style=dashed];\n",
		      number, place, write_graph(dot, graph));
}

static unsigned int write_graph(struct dot *dot, const struct CUgraph_st *graph)
{
	unsigned int number = dot->ngraphs++;
	unsigned int place = 0;

	(void)fprintf(dot->out, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", number, number);
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next, place++) {
		(void)fprintf(dot->out, "\"graph_%u_node_%u\"[shape=box label=\"%u\\n", number,
			      place, place);
		write_label(dot, &n->work);
		if (says(dot, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES))
			(void)fprintf(dot->out, "\\nnode %p", (const void *)n);
		(void)fputs("\"];\n", dot->out);
		for (uint32_t i = 0; i < n->after.n; i++)
			(void)fprintf(dot->out, "\"graph_%u_node_%u\" -> \"graph_%u_node_%u\";\n",
				      number, place_of(graph, n->after.node[i]), number, place);
	}
	place = 0;
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next, place++) {
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH && !n->work.is_library)
			write_inside(dot, number, place, n->work.child);
		for (uint32_t i = 0;
		     n->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL && i < n->work.branch.n; i++)
			write_inside(dot, number, place, n->work.branch.bodies[i]);
	}
	(void)fputs("}\n", dot->out);
	return number;
}

CUresult cu_dot_text_locked(const struct CUgraph_st *graph, unsigned int flags, char **ret_text,
			    size_t *ret_len)
{
	struct dot dot = { .out = open_memstream(ret_text, ret_len), .flags = flags };
	bool failed;

	if (!dot.out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	(void)fputs("digraph dot {\n", dot.out);
	(void)write_graph(&dot, graph);
	(void)fputs("}\n", dot.out);
	failed = ferror(dot.out);
	failed = fclose(dot.out) != 0 || failed;
	return failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
