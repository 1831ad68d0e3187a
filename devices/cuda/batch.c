/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches on their way to the device: kept until the batch is closed (gantry_cuda_flush(), or a command of another
 * kind), then launched as graphs.
 *
 * The driver takes longer for a launch than short kernels take the device. A graph of kernels in a row is one call, and
 * the device passes from one of its kernels to the next faster; even a graph of one kernel is launched sooner than
 * the kernel (figures: docs/nvidia.md).
 *
 * A batch is cut into rows of 32, 16, 8, 4, 2 and 1. A graph is made once for a length and used again: only those nodes are
 * told to the driver that differ from what they were the last time. Other arguments cost little; another function or size makes
 * the driver send the node to the device anew. So there are several graphs of each length, found by their shape,
 * which is all but the arguments. A short row for which there is none of its shape is launched one by one. To make
 * one takes as long as some twenty launches, so it is made when there were as many that missed it.
 */
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

#define LENGTHS 6u /* 1 to 32 */
#define WAYS	4u /* graphs of a length */
/* Launches that miss a graph before it is made, or an old one is changed to their shape. */
#define WORTH 32u
/* From this length on a graph of another shape is still better than none. */
#define RESHAPED_LENGTH 4u
/* A device that has nothing to do gets these first. */
#define START 4u
/* After so many refusals by the driver the stream uses no more graphs. */
#define MAX_REFUSED 4u

static_assert(1u << (LENGTHS - 1) == GANTRY_CUDA_BATCH, "the longest row is a whole batch");

struct graph {
	uint64_t shape;
	uint64_t used;	  /* gantry_cuda_batch.clock then */
	CUgraph native;	  /* has the nodes, so it stays as long as what was made of it */
	CUgraphExec exec; /* NULL: not made */
	CUgraphNode nodes[GANTRY_CUDA_BATCH];
	struct gantry_cuda_call calls[]; /* as the nodes have them */
};

struct length {
	uint32_t missed;
	struct graph *ways[WAYS]; /* NULL: not made yet */
};

struct gantry_cuda_batch {
	uint32_t n;
	uint32_t nrefused;
	bool stopped; /* the context has failed: the rest stays here */
	uint64_t clock;
	uint32_t positions[GANTRY_CUDA_BATCH]; /* in the stream */
	struct gantry_cuda_call calls[GANTRY_CUDA_BATCH];
	struct length lengths[LENGTHS];
};

/* ---- keeping ---- */

struct gantry_cuda_call *gantry_cuda_batch_room(struct gantry_stream *stream)
{
	struct gantry_cuda_batch *batch = stream->batch;

	if (!batch) {
		batch = calloc(1, sizeof(*batch));
		stream->batch = batch;
	}
	return batch && batch->n < GANTRY_CUDA_BATCH ? &batch->calls[batch->n] : NULL;
}

void gantry_cuda_batch_keep(struct gantry_stream *stream)
{
	struct gantry_cuda_batch *batch = stream->batch;

	batch->positions[batch->n++] = stream->submitted;
}

void gantry_cuda_batch_start(struct gantry_stream *stream)
{
	const struct gantry_cuda_batch *batch = stream->batch;

	if (batch && batch->n == START && batch->positions[0] == stream->finished)
		gantry_cuda_batch_push(stream);
}

/* ---- graphs ---- */

static bool same(const struct gantry_cuda_call *a, const struct gantry_cuda_call *b)
{
	return a->nargs == b->nargs && memcmp(a, b, offsetof(struct gantry_cuda_call, args)) == 0 &&
	       memcmp(a->args, b->args, a->nargs * sizeof(a->args[0])) == 0;
}

/* Of all that comes before the arguments. Equal ones may be of different shapes: that costs time only. */
static uint64_t shape_of(const struct gantry_cuda_call *calls, uint32_t n)
{
	uint64_t shape = n;

	static_assert(offsetof(struct gantry_cuda_call, args) % sizeof(uint64_t) == 0,
		      "whole words");
	for (uint32_t i = 0; i < n; i++) {
		uint64_t words[offsetof(struct gantry_cuda_call, args) / sizeof(uint64_t)];

		memcpy(words, &calls[i], sizeof(words));
		for (uint32_t k = 0; k < sizeof(words) / sizeof(words[0]); k++)
			shape = (shape ^ words[k]) * 0x9e3779b97f4a7c15ull;
		shape ^= shape >> 32;
	}
	return shape;
}

static void params_of(const struct gantry_cuda_call *call, void **params,
		      CUDA_KERNEL_NODE_PARAMS *ret_node)
{
	gantry_cuda_call_params(call, params);
	*ret_node = (CUDA_KERNEL_NODE_PARAMS){
		.func = call->function,
		.gridDimX = call->grid[0],
		.gridDimY = call->grid[1],
		.gridDimZ = call->grid[2],
		.blockDimX = call->block[0],
		.blockDimY = call->block[1],
		.blockDimZ = call->block[2],
		.sharedMemBytes = call->shared_bytes,
		.kernelParams = params,
	};
}

/* A row of kernels, each after the one before. */
static CUresult add_nodes(const struct gantry_cuda_driver *driver, struct graph *graph,
			  const struct gantry_cuda_call *calls, uint32_t n)
{
	CUresult result = CUDA_SUCCESS;

	for (uint32_t i = 0; i < n && result == CUDA_SUCCESS; i++) {
		void *params[GANTRY_MAX_CMD_ARGS];
		CUDA_KERNEL_NODE_PARAMS node;

		params_of(&calls[i], params, &node);
		result = driver->GraphAddKernelNode(&graph->nodes[i], graph->native,
						    i ? &graph->nodes[i - 1] : NULL, i ? 1 : 0,
						    &node);
		graph->calls[i] = calls[i];
	}
	return result;
}

static CUresult graph_make(struct gantry_stream *stream, struct graph *graph,
			   const struct gantry_cuda_call *calls, uint32_t n)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUresult result = driver->GraphCreate(&graph->native, 0);

	if (result != CUDA_SUCCESS) {
		graph->native = NULL;
		return result;
	}
	result = add_nodes(driver, graph, calls, n);
	if (result == CUDA_SUCCESS)
		result = driver->GraphInstantiate(&graph->exec, graph->native, 0);
	if (result != CUDA_SUCCESS)
		graph->exec = NULL;
	return result;
}

/* The nodes that are not as they shall be. */
static CUresult graph_change(struct gantry_stream *stream, struct graph *graph,
			     const struct gantry_cuda_call *calls, uint32_t n)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;

	for (uint32_t i = 0; i < n; i++) {
		void *params[GANTRY_MAX_CMD_ARGS];
		CUDA_KERNEL_NODE_PARAMS node;
		CUresult result;

		if (same(&graph->calls[i], &calls[i]))
			continue;
		params_of(&calls[i], params, &node);
		result = driver->GraphExecKernelNodeSetParams(graph->exec, graph->nodes[i], &node);
		if (result != CUDA_SUCCESS)
			return result;
		graph->calls[i] = calls[i];
	}
	return CUDA_SUCCESS;
}

/* What runs of it ends all the same. */
static void graph_end(struct gantry_stream *stream, struct graph **graph)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;

	if (!*graph)
		return;
	if ((*graph)->exec)
		(void)driver->GraphExecDestroy((*graph)->exec); /* fails with the context */
	if ((*graph)->native)
		(void)driver->GraphDestroy((*graph)->native);
	free(*graph);
	*graph = NULL;
}

static CUresult graph_launch(struct gantry_stream *stream, struct graph *graph,
			     const struct gantry_cuda_call *calls, uint32_t n)
{
	CUresult result = graph->exec ? graph_change(stream, graph, calls, n)
				      : graph_make(stream, graph, calls, n);

	if (result == CUDA_SUCCESS)
		result = stream->dev->driver->GraphLaunch(graph->exec, stream->native);
	return result;
}

/* An unused one, or the one whose use was longest ago. */
static struct graph **oldest(struct length *length)
{
	struct graph **found = &length->ways[0];

	for (uint32_t i = 0; i < WAYS; i++) {
		if (!length->ways[i])
			return &length->ways[i];
		if (length->ways[i]->used < (*found)->used)
			found = &length->ways[i];
	}
	return found;
}

/* NULL: the row is better launched without one. */
static struct graph **graph_for(struct gantry_cuda_batch *batch, uint64_t shape, uint32_t n,
				bool counts)
{
	struct length *length = &batch->lengths[__builtin_ctz(n)];

	for (uint32_t i = 0; i < WAYS; i++)
		if (length->ways[i] && length->ways[i]->shape == shape)
			return &length->ways[i];
	if (counts)
		length->missed += n;
	if (length->missed >= WORTH) {
		length->missed = 0;
		return oldest(length);
	}
	if (n < RESHAPED_LENGTH || !length->ways[0])
		return NULL;
	return length->ways[WAYS - 1] ? oldest(length) : &length->ways[0];
}

/*
 * The driver has answered with an error of the context to the call for the @n from @first on. What comes behind them never
 * got to it, and neither did they where the error is of what ran before.
 */
static void stop(struct gantry_stream *stream, uint32_t first, uint32_t n, CUresult result)
{
	struct gantry_cuda_batch *batch = stream->batch;

	gantry_cuda_fault_note(stream->dev, result);
	batch->stopped = true;
	for (uint32_t i = first + (gantry_cuda_fault_is_earlier(result) ? 0 : n); i < batch->n; i++)
		gantry_cuda_slot_at(stream, batch->positions[i])->unsent = true;
}

/* Whether a graph has taken the row of @n calls from @first on. */
static bool push_graph(struct gantry_stream *stream, uint32_t first, uint32_t n, bool counts)
{
	struct gantry_cuda_batch *batch = stream->batch;
	uint64_t shape = shape_of(&batch->calls[first], n);
	struct graph **graph;
	CUresult result;

	if (batch->nrefused >= MAX_REFUSED)
		return false;
	graph = graph_for(batch, shape, n, counts);
	if (!graph)
		return false;
	if (!*graph)
		*graph = calloc(1, sizeof(**graph) + n * sizeof((*graph)->calls[0]));
	if (!*graph)
		return false;
	(*graph)->shape = shape;
	(*graph)->used = ++batch->clock;
	result = graph_launch(stream, *graph, &batch->calls[first], n);
	if (result == CUDA_SUCCESS)
		return true;
	if (gantry_cuda_sticky(result)) {
		stop(stream, first, n, result);
		return true;
	}
	/* Which of them the driver does not want is seen when they are launched one by one. */
	batch->nrefused++;
	graph_end(stream, graph);
	return false;
}

/* ---- pushing ---- */

static void refuse(struct gantry_stream *stream, uint32_t position, int r)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, position);

	slot->done.status = r == -EINVAL   ? GANTRY_E_ARG
			    : r == -ENOMEM ? GANTRY_E_NO_MEMORY
			    : r == -ENODEV ? GANTRY_E_DEVICE_LOST
					   : GANTRY_E_INTERNAL;
	slot->done.blast = GANTRY_BLAST_CMD;
	stream->flying_ns -= slot->estimate_ns;
	slot->estimate_ns = 0;
}

static void push_one(struct gantry_stream *stream, uint32_t i)
{
	CUresult result = gantry_cuda_call(stream, &stream->batch->calls[i]);

	if (gantry_cuda_sticky(result))
		stop(stream, i, 1, result);
	else if (result != CUDA_SUCCESS)
		refuse(stream, stream->batch->positions[i], gantry_cuda_errno(result));
}

/* @n, a power of two, from @first on. A row that has no graph is halved; its parts are not counted again. */
static void push_row(struct gantry_stream *stream, uint32_t first, uint32_t n, bool counts)
{
	if (push_graph(stream, first, n, counts))
		return;
	if (n == 1) {
		push_one(stream, first);
		return;
	}
	push_row(stream, first, n / 2, false);
	if (!stream->batch->stopped)
		push_row(stream, first + n / 2, n / 2, false);
}

void gantry_cuda_batch_push(struct gantry_stream *stream)
{
	struct gantry_cuda_batch *batch = stream->batch;
	uint32_t done = 0;

	if (!batch)
		return;
	for (uint32_t n = GANTRY_CUDA_BATCH; n > 0 && !batch->stopped; n /= 2) {
		if (!(batch->n & n))
			continue;
		push_row(stream, done, n, true);
		done += n;
	}
	batch->n = 0;
}

uint32_t gantry_cuda_batch_drop(struct gantry_stream *stream)
{
	struct gantry_cuda_batch *batch = stream->batch;

	if (!batch || batch->n == 0)
		return stream->submitted;
	batch->n = 0;
	return batch->positions[0];
}

static bool knows(const struct graph *graph, uint32_t n, const struct gantry_image *image)
{
	for (uint32_t i = 0; graph && i < n; i++)
		if (graph->calls[i].image == image)
			return true;
	return false;
}

void gantry_cuda_batch_forget(struct gantry_stream *stream, const struct gantry_image *image)
{
	for (uint32_t i = 0; stream->batch && i < LENGTHS; i++) {
		struct length *length = &stream->batch->lengths[i];

		for (uint32_t k = 0; k < WAYS; k++)
			if (knows(length->ways[k], 1u << i, image))
				graph_end(stream, &length->ways[k]);
	}
}

void gantry_cuda_batch_fini(struct gantry_stream *stream)
{
	for (uint32_t i = 0; stream->batch && i < LENGTHS; i++)
		for (uint32_t k = 0; k < WAYS; k++)
			graph_end(stream, &stream->batch->lengths[i].ways[k]);
	free(stream->batch);
	stream->batch = NULL;
}
