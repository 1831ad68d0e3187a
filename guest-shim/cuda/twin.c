/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs with conditions. A condition's handle is the host's driver's, so a graph that gets a condition has at once a graph of that
 * driver's, its twin (proto/cuda_graph.h). The program's own graph stays here until it is made ready: then its nodes go to the twin, in an order
 * that the edges allow, as they would into a stream.
 */
#include <stdlib.h>

#include "guest-shim/cuda/graphmem.h"
#include "guest-shim/cuda/vmm.h"
#include "proto/cuda_graph.h"

struct cu_twin {
	uint32_t nrefs; /* the graph, and what was made of it */
	bool is_built;
	CUresult built; /* what came of that */
	uint32_t nhandles;
	struct CUctx_st *ctx; /* its address; it may have ended */
	gantry_buffer buffer;
	uint64_t handles[GANTRY_CUDA_GRAPH_MAX_CONDITIONS];
};

static gantry_kernel kernels[GANTRY_CUDA_GRAPH_NKERNELS];

/* ---- the host's kernels ---- */

static int find_kernels(void)
{
	static const char *const names[][2] = {
#define NAME(member, name, signature) [GANTRY_CUDA_GRAPH_##member] = { (name), (signature) },
		GANTRY_CUDA_GRAPH_KERNELS(NAME)
#undef NAME
	};
	static gantry_image image;
	int r = image ? 0
		      : gantry_image_load(cu.session, GANTRY_KIND_CUDA, GANTRY_CUDA_GRAPH_MAGIC,
					  GANTRY_CUDA_GRAPH_MAGIC_BYTES, &image);

	for (uint32_t i = 1; r == 0 && i < GANTRY_CUDA_GRAPH_NKERNELS; i++)
		if (!kernels[i])
			r = gantry_kernel_from(cu.session, image, names[i][0], names[i][1],
					       &kernels[i]);
	return r;
}

/* A launch of one of them, on the twin and what else it accesses. */
static CUresult put(struct CUstream_st *stream, const struct cu_twin *twin,
		    enum gantry_cuda_graph_kernel which, const void *args, uint32_t args_bytes,
		    const struct gantry_access *more, uint32_t nmore)
{
	struct gantry_access access[3] = { { .buffer = twin->buffer, .mode = GANTRY_RW } };
	const struct gantry_task task = { .kernel = kernels[which],
					  .args = args,
					  .args_bytes = args_bytes,
					  .naccess = 1 + nmore,
					  .access = access };
	CUresult result = cu_stream_room_locked(stream);
	gantry_ticket ticket = 0;
	int r;

	for (uint32_t i = 0; i < nmore; i++)
		access[1 + i] = more[i];
	if (result == CUDA_SUCCESS)
		result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	do
		r = gantry_submit(cu.session, stream->queue, &task, 1, &ticket);
	while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

static CUresult put_plain(struct CUstream_st *stream, const struct cu_twin *twin,
			  enum gantry_cuda_graph_kernel which)
{
	const uint64_t slot = 0;

	return put(stream, twin, which, &slot, sizeof(slot), NULL, 0);
}

/* ---- life ---- */

static CUresult twin_new(struct CUctx_st *ctx, struct cu_twin **ret_twin)
{
	struct cu_twin *twin = calloc(1, sizeof(*twin));
	const struct gantry_wire_texture none = { 0 };
	struct gantry_reply_variable made;
	int r = twin ? find_kernels() : GANTRY_E_NO_MEMORY;

	if (r == 0)
		r = gantry_device_texture(cu.session, ctx->dev->index, GANTRY_TEXTURE_GRAPH, 0,
					  &none, &made);
	if (r < 0) {
		free(twin);
		/* A host from before there were such graphs takes the image for a text, or does not know the operation. */
		return r == GANTRY_E_IMAGE || r == GANTRY_E_ARG || r == GANTRY_E_UNSUPPORTED
			       ? cu_unsupported("graphs with conditions on this host")
			       : cu_result(r);
	}
	twin->nrefs = 1;
	twin->ctx = ctx;
	twin->buffer = made.handle;
	*ret_twin = twin;
	return CUDA_SUCCESS;
}

void cu_twin_put_locked(struct cu_twin *twin)
{
	if (!twin || --twin->nrefs > 0)
		return;
	/* It goes when what was submitted before has finished. */
	(void)gantry_free(cu.session, twin->buffer);
	free(twin);
}

/* ---- conditions ---- */

static struct CUgraph_st *outermost(struct CUgraph_st *graph)
{
	while (graph->body_of)
		graph = graph->body_of->graph;
	return graph;
}

static bool has_node(const struct CUgraph_st *graph, uint64_t handle)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		if (n->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		if (n->work.branch.handle == handle)
			return true;
		for (uint32_t i = 0; i < n->work.branch.n; i++)
			if (has_node(n->work.branch.bodies[i], handle))
				return true;
	}
	return false;
}

bool cu_graph_has_unused_locked(const struct CUgraph_st *graph)
{
	for (uint32_t i = 0; graph->twin && i < graph->twin->nhandles; i++)
		if (!has_node(graph, graph->twin->handles[i]))
			return true;
	return false;
}

CUresult cu_condition_new_locked(struct CUgraph_st *graph, struct CUctx_st *ctx, unsigned int value,
				 unsigned int flags, uint64_t *ret_handle)
{
	const struct gantry_wire_texture spec = { .width = value, .flags = flags };
	struct gantry_reply_variable made;
	struct cu_twin *twin;
	CUresult result = CUDA_SUCCESS;
	int r;

	/* The driver has one graph for it and for what lies in its bodies. */
	graph = outermost(graph);
	if (graph->is_inner)
		return CUDA_ERROR_INVALID_VALUE;
	if (!graph->twin)
		result = twin_new(ctx, &graph->twin);
	if (result != CUDA_SUCCESS)
		return result;
	twin = graph->twin;
	if (twin->ctx != ctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (twin->is_built)
		return cu_unsupported("conditions of a graph that has been instantiated");
	if (twin->nhandles == GANTRY_CUDA_GRAPH_MAX_CONDITIONS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = gantry_device_texture(cu.session, ctx->dev->index, GANTRY_TEXTURE_CONDITION,
				  twin->buffer, &spec, &made);
	if (r < 0)
		return cu_result(r);
	/* The condition stays with the graph. */
	(void)gantry_free(cu.session, made.handle);
	twin->handles[twin->nhandles++] = made.address;
	*ret_handle = made.address;
	return CUDA_SUCCESS;
}

static bool is_size(CUgraphConditionalNodeType type, unsigned int n)
{
	switch (type) {
	case CU_GRAPH_COND_TYPE_IF:
		return n == 1 || n == 2;
	case CU_GRAPH_COND_TYPE_WHILE:
		return n == 1;
	case CU_GRAPH_COND_TYPE_SWITCH:
		return n >= 1 && n < GANTRY_CUDA_GRAPH_MAX_NODES;
	default:
		return false;
	}
}

CUresult cu_branch_make_locked(struct CUgraph_st *graph, const CUDA_CONDITIONAL_NODE_PARAMS *params,
			       struct cu_work *ret_work)
{
	struct cu_twin *twin;

	graph = outermost(graph);
	twin = graph->twin;
	if (!twin || !is_size(params->type, params->size) ||
	    (params->ctx && params->ctx != twin->ctx) || has_node(graph, params->handle))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < twin->nhandles; i++)
		if (twin->handles[i] == params->handle) {
			*ret_work = (struct cu_work){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
						      .branch = { .handle = params->handle,
								  .type = params->type,
								  .n = params->size } };
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}

/* ---- building ---- */

static bool is_drivers_end(CUmemorytype type, const void *host, CUdeviceptr device)
{
	CUdeviceptr at = type == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)host : device;

	return type != CU_MEMORYTYPE_ARRAY &&
	       (cu_alloc_find_locked(at) || cu_mapped_bytes_locked(at, 1) == 1);
}

/* Neither arrays nor pageable memory, as far as its beginnings tell. */
static bool is_drivers_copy(const CUDA_MEMCPY3D *c)
{
	return is_drivers_end(c->dstMemoryType, c->dstHost, c->dstDevice) &&
	       is_drivers_end(c->srcMemoryType, c->srcHost, c->srcDevice);
}

/* What the driver does itself. The rest is done here between tasks, or by a library with the worker. */
static bool is_drivers(const struct cu_work *work)
{
	switch (work->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return !work->is_library && !work->call.groups;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return is_drivers_copy(&work->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_GRAPH:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return true;
	default:
		return false;
	}
}

static bool are_drivers(const struct CUgraph_st *graph)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		if (!is_drivers(&n->work))
			return false;
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH && !are_drivers(n->work.child))
			return false;
		if (n->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		for (uint32_t i = 0; i < n->work.branch.n; i++)
			if (!are_drivers(n->work.branch.bodies[i]))
				return false;
	}
	return true;
}

CUresult cu_twin_put_call_locked(struct CUstream_st *stream, struct gantry_task *task)
{
	const struct gantry_access access = { .buffer = stream->builds->buffer,
					      .mode = GANTRY_RW,
					      .arg_off = GANTRY_NO_ARG };
	gantry_ticket ticket = 0;
	int r;

	/* With the worker its graph is lost: then this must not run, for nothing takes it there. */
	task->access = &access;
	task->naccess = 1;
	do
		r = gantry_submit(cu.session, stream->queue, task, 1, &ticket);
	while (r == GANTRY_E_AGAIN);
	task->access = NULL;
	return cu_stream_put_locked(stream, r, ticket);
}

CUresult cu_twin_put_copy_locked(struct CUstream_st *stream, gantry_buffer dst, uint64_t dst_off,
				 gantry_buffer src, uint64_t src_off, size_t bytes)
{
	const uint64_t slots[3] = { 0 };
	const struct gantry_access ends[2] = {
		{ .buffer = dst, .off = dst_off, .len = bytes, .mode = GANTRY_W, .arg_off = 8 },
		{ .buffer = src, .off = src_off, .len = bytes, .mode = GANTRY_R, .arg_off = 16 },
	};

	return put(stream, stream->builds, GANTRY_CUDA_GRAPH_COPY, slots, sizeof(slots), ends, 2);
}

CUresult cu_twin_put_fill_locked(struct CUstream_st *stream, gantry_buffer dst, uint64_t off,
				 size_t bytes, uint32_t value, uint32_t width)
{
	const struct {
		uint64_t slots[2];
		uint32_t value;
		uint32_t width;
	} args = { .value = value, .width = width };
	const struct gantry_access at = {
		.buffer = dst, .off = off, .len = bytes, .mode = GANTRY_W, .arg_off = 8
	};

	return put(stream, stream->builds, GANTRY_CUDA_GRAPH_FILL, &args, sizeof(args), &at, 1);
}

CUresult cu_twin_put_branch_locked(struct CUstream_st *stream, const struct cu_work *work)
{
	const struct cu_twin *twin = stream->builds;
	const struct {
		uint64_t slot;
		uint64_t handle;
		uint32_t type;
		uint32_t n;
	} args = { 0, work->branch.handle, work->branch.type, work->branch.n };
	CUresult result = put(stream, twin, GANTRY_CUDA_GRAPH_BRANCH, &args, sizeof(args), NULL, 0);

	for (uint32_t i = 0; i < work->branch.n && result == CUDA_SUCCESS; i++) {
		const uint64_t which[2] = { 0, i };

		if (work->branch.bodies[i]->nnodes == 0)
			continue;
		result = put(stream, twin, GANTRY_CUDA_GRAPH_BODY, which, sizeof(which), NULL, 0);
		if (result == CUDA_SUCCESS)
			result = cu_graph_put_locked(stream, work->branch.bodies[i]);
		if (result == CUDA_SUCCESS)
			result = put_plain(stream, twin, GANTRY_CUDA_GRAPH_END);
	}
	return result;
}

static CUresult build(struct CUstream_st *stream, struct cu_twin *twin, struct CUgraph_st *graph)
{
	CUresult result = put_plain(stream, twin, GANTRY_CUDA_GRAPH_BEGIN);

	if (result == CUDA_SUCCESS)
		result = cu_graph_put_locked(stream, graph);
	if (result == CUDA_SUCCESS)
		result = put_plain(stream, twin, GANTRY_CUDA_GRAPH_END);
	return result == CUDA_SUCCESS ? cu_stream_wait_locked(stream) : result;
}

CUresult cu_twin_build_locked(struct cu_twin *twin, struct CUgraph_st *graph)
{
	struct CUstream_st *stream;
	CUresult result;

	if (!cu_handle_is_locked(twin->ctx, CU_KIND_CTX))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (twin->is_built && twin->built != CUDA_SUCCESS)
		return twin->built;
	if (twin->is_built)
		return cu_unsupported("a second cuGraphInstantiate of a graph with conditions");
	if (!are_drivers(graph))
		return cu_unsupported(
			"functions of the host's, events, words, groups, memory, arrays, "
			"pageable copies or libraries in a graph with conditions");
	result = cu_stream_new_locked(twin->ctx, CU_STREAM_NON_BLOCKING, 0, &stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->shares_queue) {
		cu_stream_end_locked(stream);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	twin->is_built = true;
	stream->builds = twin;
	result = twin->built = build(stream, twin, graph);
	/* The lock was given up: the stream may be gone with its context, and another be where it was. */
	if (cu_handle_is_locked(stream, CU_KIND_STREAM) && stream->builds == twin)
		cu_stream_end_locked(stream);
	return result;
}

CUresult cu_twin_launch_locked(struct cu_twin *twin, struct CUstream_st *stream)
{
	cu_output_due();
	return put_plain(stream, twin, GANTRY_CUDA_GRAPH_RUN);
}

struct cu_twin *cu_twin_get_locked(struct cu_twin *twin)
{
	twin->nrefs++;
	return twin;
}
