/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with conditions (proto/cuda_graph.h). All other graphs of guests stay with them. This one is the driver's, for a kernel sets a
 * condition through a handle that only the driver can make and follow. It is built as tasks say, each operand checked as for the
 * command that would do the same at once, and launched by one call.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"
#include "devices/signature.h"
#include "proto/cuda_graph.h"

/* The graph itself, or a body that is being filled. */
struct level {
	CUgraph native;
	CUgraphNode last; /* what the next node comes after; NULL: nothing */
	CUgraph *bodies;  /* of the newest branch, NULL once it is filled; owned */
	uint32_t nbodies;
};

struct condition {
	CUgraphConditionalHandle handle;
	bool has_node;
};

enum state {
	NEW = 0,
	BUILDING,
	READY,
	FAILED,
};

struct gantry_cuda_graph {
	struct gantry_dev *dev;
	CUgraph native;
	CUgraphExec exec; /* NULL: it is not ready, or a kernel's image is gone */
	enum state state;
	int error;	 /* what went wrong first */
	uint32_t nnodes; /* and bodies */
	uint32_t nconditions;
	uint32_t depth;
	uint32_t nimages;
	const struct gantry_image **images; /* that its kernels are of */
	struct level levels[GANTRY_CUDA_GRAPH_MAX_DEPTH];
	struct condition conditions[GANTRY_CUDA_GRAPH_MAX_CONDITIONS];
};

static const char *const names[GANTRY_CUDA_GRAPH_NKERNELS] = {
#define NAME(member, name, signature) [GANTRY_CUDA_GRAPH_##member] = (name),
	GANTRY_CUDA_GRAPH_KERNELS(NAME)
#undef NAME
};

static const char *const signatures[GANTRY_CUDA_GRAPH_NKERNELS] = {
#define SIGNATURE(member, name, signature) [GANTRY_CUDA_GRAPH_##member] = (signature),
	GANTRY_CUDA_GRAPH_KERNELS(SIGNATURE)
#undef SIGNATURE
};

int gantry_cuda_graph_kernel(const char *symbol, const struct gantry_signature *sig,
			     uint32_t *ret_kernel, struct gantry_err *err)
{
	struct gantry_signature wanted;

	for (uint32_t i = 1; i < GANTRY_CUDA_GRAPH_NKERNELS; i++) {
		if (strcmp(symbol, names[i]) != 0)
			continue;
		if (gantry_signature_parse(signatures[i], &wanted, err) < 0 ||
		    !gantry_signature_same(sig, &wanted))
			return gantry_err_set(err, -EINVAL, "the signature of %s is %s", symbol,
					      signatures[i]);
		*ret_kernel = i;
		return 0;
	}
	return gantry_err_set(err, -ENOENT, "graphs have no kernel %.100s", symbol);
}

/* ---- life ---- */

int gantry_cuda_graph_new(struct gantry_dev *dev, struct gantry_cuda_graph **ret_graph,
			  struct gantry_err *err)
{
	struct gantry_cuda_graph *graph = calloc(1, sizeof(*graph));
	int r;

	if (!graph)
		return gantry_err_set(err, -ENOMEM, "no memory for a graph");
	graph->dev = dev;
	r = gantry_cuda_check(dev, dev->driver->GraphCreate(&graph->native, 0), "cuGraphCreate",
			      err);
	if (r < 0) {
		free(graph);
		return r;
	}
	*ret_graph = graph;
	return 0;
}

static struct level *top(struct gantry_cuda_graph *graph)
{
	return &graph->levels[graph->depth - 1];
}

static void leave(struct gantry_cuda_graph *graph)
{
	free(top(graph)->bodies);
	graph->depth--;
}

/* It can be launched no more. What was launched of it goes on. */
static void disarm(struct gantry_cuda_graph *graph)
{
	if (graph->exec)
		(void)graph->dev->driver->GraphExecDestroy(
			graph->exec); /* fails with the context */
	graph->exec = NULL;
}

void gantry_cuda_graph_free(struct gantry_cuda_graph *graph)
{
	if (!graph)
		return;
	gantry_list_for_each(&graph->dev->streams, struct gantry_stream, link, stream)
		if (stream->builds == graph)
			stream->builds = NULL;
	disarm(graph);
	while (graph->depth > 0)
		leave(graph);
	(void)graph->dev->driver->GraphDestroy(graph->native);
	free(graph->images);
	free(graph);
}

static bool has_image(const struct gantry_cuda_graph *graph, const struct gantry_image *image)
{
	for (uint32_t i = 0; i < graph->nimages; i++)
		if (graph->images[i] == image)
			return true;
	return false;
}

void gantry_cuda_graphs_forget(struct gantry_dev *dev, const struct gantry_image *image)
{
	gantry_list_for_each(&dev->mems, struct gantry_mem, link, mem) {
		struct gantry_cuda_graph *graph = mem->texture ? mem->texture->graph : NULL;

		/* One that is being built takes what comes to its end, and is not made. */
		if (graph && has_image(graph, image)) {
			graph->error = -ENOENT;
			disarm(graph);
		}
	}
}

int gantry_cuda_graph_condition(struct gantry_cuda_graph *graph, uint64_t value, uint32_t flags,
				unsigned long long *ret_handle, struct gantry_err *err)
{
	struct gantry_dev *dev = graph->dev;
	CUgraphConditionalHandle handle = 0;
	CUresult result;

	if (value > UINT32_MAX || (flags & ~(uint32_t)CU_GRAPH_COND_ASSIGN_DEFAULT) ||
	    graph->state != NEW)
		return gantry_err_set(err, -EINVAL, "no such condition, or its graph is built");
	if (graph->nconditions == GANTRY_CUDA_GRAPH_MAX_CONDITIONS)
		return gantry_err_set(err, -EDQUOT, "a graph has %u conditions at most",
				      GANTRY_CUDA_GRAPH_MAX_CONDITIONS);
	result = dev->driver->GraphConditionalHandleCreate(&handle, graph->native, dev->context,
							   (unsigned int)value, flags);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuGraphConditionalHandleCreate", err);
	graph->conditions[graph->nconditions++].handle = handle;
	*ret_handle = handle;
	return 0;
}

/* ---- building ---- */

/* What the driver said of a call that adds something. */
static int outcome(const struct gantry_cuda_graph *graph, CUresult result)
{
	return gantry_cuda_check(graph->dev, result, "", NULL);
}

/* Room for @n more. */
static int take_nodes(struct gantry_cuda_graph *graph, uint32_t n)
{
	if (n > GANTRY_CUDA_GRAPH_MAX_NODES - graph->nnodes)
		return -ENOMEM;
	graph->nnodes += n;
	return 0;
}

static int begin(struct gantry_cuda_graph *graph, struct gantry_stream *stream)
{
	if (graph->state != NEW || stream->builds)
		return -EINVAL;
	graph->state = BUILDING;
	graph->levels[0] = (struct level){ .native = graph->native };
	graph->depth = 1;
	stream->builds = graph;
	return 0;
}

static bool is_size(uint32_t type, uint32_t n)
{
	switch (type) {
	case GANTRY_CUDA_BRANCH_IF:
		return n == 1 || n == 2;
	case GANTRY_CUDA_BRANCH_WHILE:
		return n == 1;
	case GANTRY_CUDA_BRANCH_SWITCH:
		return n >= 1;
	default:
		return false;
	}
}

/* Of this graph, and of no node yet: the driver believes any number. */
static struct condition *find_condition(struct gantry_cuda_graph *graph, uint64_t handle)
{
	for (uint32_t i = 0; i < graph->nconditions; i++)
		if (graph->conditions[i].handle == handle && !graph->conditions[i].has_node)
			return &graph->conditions[i];
	return NULL;
}

static int branch(struct gantry_cuda_graph *graph, uint64_t handle, uint32_t type, uint32_t n)
{
	struct condition *condition = find_condition(graph, handle);
	CUgraphNodeParams params = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL };
	struct level *level = top(graph);
	CUgraphNode node;
	CUgraph *bodies;
	CUresult result;

	if (!condition || !is_size(type, n))
		return -EINVAL;
	if (n >= GANTRY_CUDA_GRAPH_MAX_NODES || take_nodes(graph, n + 1) < 0)
		return -ENOMEM;
	bodies = calloc(n, sizeof(CUgraph));
	if (!bodies)
		return -ENOMEM;
	params.conditional.handle = handle;
	params.conditional.type = (CUgraphConditionalNodeType)type;
	params.conditional.size = n;
	params.conditional.ctx = graph->dev->context;
	result = graph->dev->driver->GraphAddNode(&node, level->native,
						  level->last ? &level->last : NULL, NULL,
						  level->last ? 1 : 0, &params);
	if (result != CUDA_SUCCESS) {
		free(bodies);
		return outcome(graph, result);
	}
	memcpy(bodies, params.conditional.phGraph_out, n * sizeof(CUgraph));
	condition->has_node = true;
	level->last = node;
	free(level->bodies);
	level->bodies = bodies;
	level->nbodies = n;
	return 0;
}

static int body(struct gantry_cuda_graph *graph, uint32_t i)
{
	struct level *level = top(graph);

	if (i >= level->nbodies || !level->bodies[i] || graph->depth == GANTRY_CUDA_GRAPH_MAX_DEPTH)
		return -EINVAL;
	graph->levels[graph->depth++] = (struct level){ .native = level->bodies[i] };
	level->bodies[i] = NULL;
	return 0;
}

static int end(struct gantry_cuda_graph *graph, struct gantry_stream *stream)
{
	CUgraphExec exec;
	CUresult result;

	leave(graph);
	if (graph->depth > 0)
		return 0;
	stream->builds = NULL;
	graph->state = FAILED;
	if (graph->error)
		return graph->error;
	result = graph->dev->driver->GraphInstantiate(&exec, graph->native, 0);
	if (result != CUDA_SUCCESS)
		return outcome(graph, result);
	graph->exec = exec;
	graph->state = READY;
	return 0;
}

/* Plain memory of this device, or the host's. */
static bool is_plain(const struct gantry_cuda_graph *graph, const struct gantry_range *range)
{
	return range->mem && !range->mem->texture && range->mem->dev == graph->dev &&
	       range->len > 0 && gantry_cuda_mem_reach(graph->dev, range);
}

static CUresult add_copy(struct gantry_cuda_graph *graph, CUDA_MEMCPY3D *params)
{
	struct level *level = top(graph);

	params->Height = 1;
	params->Depth = 1;
	return graph->dev->driver->GraphAddMemcpyNode(&level->last, level->native,
						      level->last ? &level->last : NULL,
						      level->last ? 1 : 0, params,
						      graph->dev->context);
}

/* The driver copies within one pinned piece of the host's memory at a time. */
static int copy_host(struct gantry_cuda_graph *graph, const struct gantry_range *host,
		     CUdeviceptr address, bool in)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t len;

	for (uint64_t done = 0; done < host->len && result == CUDA_SUCCESS; done += len) {
		CUDA_MEMCPY3D params = { 0 };

		len = gantry_cuda_mem_use(host->mem, host->off + done, host->len - done);
		params.WidthInBytes = len;
		params.srcMemoryType = in ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		params.dstMemoryType = in ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
		params.srcHost = in ? host->mem->base + host->off + done : NULL;
		params.dstHost = in ? NULL : host->mem->base + host->off + done;
		params.srcDevice = in ? 0 : address + done;
		params.dstDevice = in ? address + done : 0;
		if (take_nodes(graph, 1) < 0)
			return -ENOMEM;
		result = add_copy(graph, &params);
	}
	return outcome(graph, result);
}

static int copy(struct gantry_cuda_graph *graph, const struct gantry_range *dst,
		const struct gantry_range *src)
{
	CUDA_MEMCPY3D params = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				 .dstMemoryType = CU_MEMORYTYPE_DEVICE };
	CUdeviceptr to, from;

	if (!is_plain(graph, dst) || !is_plain(graph, src) || (dst->mem->base && src->mem->base))
		return -EOPNOTSUPP;
	to = dst->mem->address + dst->off;
	from = src->mem->address + src->off;
	if (dst->len != src->len || (to < from + src->len && from < to + dst->len))
		return -EINVAL;
	if (src->mem->base)
		return copy_host(graph, src, to, true);
	if (dst->mem->base)
		return copy_host(graph, dst, from, false);
	if (take_nodes(graph, 1) < 0)
		return -ENOMEM;
	params.dstDevice = to;
	params.srcDevice = from;
	params.WidthInBytes = dst->len;
	return outcome(graph, add_copy(graph, &params));
}

static int fill(struct gantry_cuda_graph *graph, const struct gantry_range *dst, uint32_t value,
		uint32_t width)
{
	struct level *level = top(graph);
	CUDA_MEMSET_NODE_PARAMS params = { .value = value, .elementSize = width, .height = 1 };

	if (!is_plain(graph, dst))
		return -EOPNOTSUPP;
	params.dst = dst->mem->address + dst->off;
	if ((width != 1 && width != 2 && width != 4) || params.dst % width || dst->len % width)
		return -EINVAL;
	if (take_nodes(graph, 1) < 0)
		return -ENOMEM;
	params.width = dst->len / width;
	return outcome(graph,
		       graph->dev->driver->GraphAddMemsetNode(
			       &level->last, level->native, level->last ? &level->last : NULL,
			       level->last ? 1 : 0, &params, graph->dev->context));
}

static int note_image(struct gantry_cuda_graph *graph, const struct gantry_image *image)
{
	const struct gantry_image **grown;

	if (has_image(graph, image))
		return 0;
	grown = realloc(graph->images, (graph->nimages + 1) * sizeof(struct gantry_image *));
	if (!grown)
		return -ENOMEM;
	graph->images = grown;
	grown[graph->nimages++] = image;
	return 0;
}

static int kernel(struct gantry_cuda_graph *graph, const struct gantry_cmd_launch *launch)
{
	struct level *level = top(graph);
	size_t bytes = launch->raw_bytes;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)launch->raw,
			  CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	const CUDA_KERNEL_NODE_PARAMS params = {
		.func = launch->kernel->function,
		.gridDimX = launch->grid[0],
		.gridDimY = launch->grid[1],
		.gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0],
		.blockDimY = launch->block[1],
		.blockDimZ = launch->block[2],
		.sharedMemBytes = launch->shared_bytes,
		.extra = bytes ? extra : NULL,
	};
	int r;

	/* Installed kernels enqueue; and a node's attributes, as those of groups, are other calls of the driver's. */
	if (!launch->kernel->function || !launch->kernel->sig->is_raw || launch->groups)
		return -EOPNOTSUPP;
	r = gantry_cuda_launch_check(graph->dev, launch);
	if (r == 0)
		r = take_nodes(graph, 1);
	if (r == 0)
		r = note_image(graph, launch->kernel->image);
	if (r < 0)
		return r;
	return outcome(graph,
		       graph->dev->driver->GraphAddKernelNode(&level->last, level->native,
							      level->last ? &level->last : NULL,
							      level->last ? 1 : 0, &params));
}

/* ---- tasks ---- */

static int32_t status_of(int r)
{
	switch (r) {
	case -EINVAL:
		return GANTRY_E_ARG;
	case -ENOMEM:
		return GANTRY_E_NO_MEMORY;
	case -ENOENT:
		return GANTRY_E_NOT_FOUND;
	case -EOPNOTSUPP:
		return GANTRY_E_UNSUPPORTED;
	default:
		return GANTRY_E_INTERNAL;
	}
}

/* It is told with the task; the device has nothing of it. */
static int told(struct gantry_cuda_slot *slot, int r)
{
	if (r < 0) {
		slot->done.status = status_of(r);
		slot->done.blast = GANTRY_BLAST_CMD;
	}
	return 1;
}

/* What fails while a graph is built is the graph's too. */
static int built(struct gantry_cuda_graph *graph, struct gantry_cuda_slot *slot, int r)
{
	if (r < 0 && graph->error == 0)
		graph->error = r;
	return told(slot, r);
}

static int build(struct gantry_cuda_graph *graph, struct gantry_stream *stream,
		 const struct gantry_cmd_launch *launch)
{
	switch (launch->kernel->graph) {
	case GANTRY_CUDA_GRAPH_BRANCH:
		return branch(graph, launch->args[1].value.u64, launch->args[2].value.u32,
			      launch->args[3].value.u32);
	case GANTRY_CUDA_GRAPH_BODY:
		return body(graph, launch->args[1].value.u32);
	case GANTRY_CUDA_GRAPH_COPY:
		return copy(graph, &launch->args[1].range, &launch->args[2].range);
	case GANTRY_CUDA_GRAPH_FILL:
		return fill(graph, &launch->args[1].range, launch->args[2].value.u32,
			    launch->args[3].value.u32);
	case GANTRY_CUDA_GRAPH_END:
		return end(graph, stream);
	default:
		return -EINVAL;
	}
}

static int run(const struct gantry_cuda_graph *graph, struct gantry_stream *stream,
	       struct gantry_cuda_slot *slot)
{
	CUresult result;
	int r;

	if (!graph->exec)
		return told(slot, graph->error ? graph->error : -EINVAL);
	result = graph->dev->driver->GraphLaunch(graph->exec, stream->native);
	r = gantry_cuda_check(graph->dev, result, "", NULL);
	if (r < 0 && !gantry_cuda_sticky(result))
		return told(slot, r);
	return 0; /* a sticky one is told by poll() */
}

int gantry_cuda_graph_run(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			  struct gantry_cuda_slot *slot)
{
	const struct gantry_mem *mem = launch->args[0].range.mem;
	struct gantry_cuda_graph *graph = mem && mem->texture ? mem->texture->graph : NULL;

	if (!graph || graph->dev != stream->dev)
		return told(slot, -EINVAL);
	if (launch->kernel->graph == GANTRY_CUDA_GRAPH_RUN)
		return run(graph, stream, slot);
	if (launch->kernel->graph == GANTRY_CUDA_GRAPH_BEGIN)
		return told(slot, begin(graph, stream));
	if (stream->builds != graph)
		return told(slot, graph->error ? graph->error : -EINVAL);
	return built(graph, slot, build(graph, stream, launch));
}

int gantry_cuda_graph_take(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
			   struct gantry_cuda_slot *slot)
{
	return built(stream->builds, slot, kernel(stream->builds, launch));
}
