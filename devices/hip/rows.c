/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime's calls as devices/rows.h has them. Graphs are an optional part of it, and whether a node may have a function
 * of a module is only seen when it is tried: older versions refuse that, and launches go one by one.
 */
#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "devices/hip/backend.h"

/* Of the context's end the word behind the batch tells, or that it cannot be written. */
static int result_of(struct gantry_stream *stream, gantry_hip_result result)
{
	if (!gantry_hip_sticky(result))
		return gantry_hip_outcome(result);
	gantry_store_relaxed(&stream->broken, result);
	return GANTRY_ROWS_EARLIER;
}

static void params_of(const struct gantry_rows_call *call, void **params,
		      struct gantry_hip_kernel_node *ret_node)
{
	for (uint32_t i = 0; i < call->nargs; i++)
		params[i] = (void *)(uintptr_t)&call->args[i];
	*ret_node = (struct gantry_hip_kernel_node){
		.block = { call->block[0], call->block[1], call->block[2] },
		.function = call->function,
		.grid = { call->grid[0], call->grid[1], call->grid[2] },
		.params = params,
		.shared_bytes = call->shared_bytes,
	};
}

static int create(struct gantry_stream *stream, void **ret_graph)
{
	struct gantry_hip_graph *graph;
	gantry_hip_result result = stream->dev->hip->GraphCreate(&graph, 0);

	if (result == GANTRY_HIP_SUCCESS)
		*ret_graph = graph;
	return result_of(stream, result);
}

static int add(struct gantry_stream *stream, void *graph, void *after,
	       const struct gantry_rows_call *call, void **ret_node)
{
	void *params[GANTRY_MAX_CMD_ARGS + 1];
	struct gantry_hip_node *before = after, *node;
	struct gantry_hip_kernel_node how;
	gantry_hip_result result;

	params_of(call, params, &how);
	result = stream->dev->hip->GraphAddKernelNode(&node, graph, after ? &before : NULL,
						      after ? 1 : 0, &how);
	if (result == GANTRY_HIP_SUCCESS)
		*ret_node = node;
	return result_of(stream, result);
}

static int instantiate(struct gantry_stream *stream, void *graph, void **ret_exec)
{
	struct gantry_hip_exec *exec;
	gantry_hip_result result = stream->dev->hip->GraphInstantiate(&exec, graph, NULL, NULL, 0);

	if (result == GANTRY_HIP_SUCCESS)
		*ret_exec = exec;
	return result_of(stream, result);
}

static int change(struct gantry_stream *stream, void *exec, void *node,
		  const struct gantry_rows_call *call)
{
	void *params[GANTRY_MAX_CMD_ARGS + 1];
	struct gantry_hip_kernel_node how;

	params_of(call, params, &how);
	return result_of(stream, stream->dev->hip->GraphExecKernelNodeSetParams(exec, node, &how));
}

static int launch(struct gantry_stream *stream, void *exec)
{
	return result_of(stream, stream->dev->hip->GraphLaunch(exec, stream->native));
}

static void destroy(struct gantry_stream *stream, void *graph, void *exec)
{
	if (exec)
		(void)stream->dev->hip->GraphExecDestroy(exec); /* after a fault the process ends */
	if (graph)
		(void)stream->dev->hip->GraphDestroy(graph);
}

static int single(struct gantry_stream *stream, const struct gantry_rows_call *call)
{
	void *params[GANTRY_MAX_CMD_ARGS + 1];
	struct gantry_hip_kernel_node how;

	params_of(call, params, &how);
	return result_of(stream, stream->dev->hip->ModuleLaunchKernel(
					 call->function, how.grid.x, how.grid.y, how.grid.z,
					 how.block.x, how.block.y, how.block.z, how.shared_bytes,
					 stream->native, params, NULL));
}

static void unsent(struct gantry_stream *stream, uint32_t position)
{
	gantry_hip_slot_at(stream, position)->unsent = true;
}

static void refused(struct gantry_stream *stream, uint32_t position, int error)
{
	struct gantry_hip_slot *slot = gantry_hip_slot_at(stream, position);

	gantry_rows_refuse(&slot->done, error);
	stream->gather.flying_ns -= slot->estimate_ns;
	slot->estimate_ns = 0;
}

static const struct gantry_rows_driver driver = {
	.create = create,
	.add = add,
	.instantiate = instantiate,
	.change = change,
	.launch = launch,
	.destroy = destroy,
	.single = single,
	.unsent = unsent,
	.refused = refused,
};

/* ---- keeping ---- */

/* Whether all that the launch uses is reached where it is; its arguments then. */
static bool take_args(const struct gantry_cmd_launch *launch, uint64_t *ret_args)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	assert(launch->nargs == sig->nargs);
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;
		char *address;

		ret_args[i] = 0;
		if (!sig->args[i].mode) {
			/* The runtime reads as many bytes as the kernel's metadata have, which are the signature's. */
			ret_args[i] = launch->args[i].value.u64;
			continue;
		}
		if (!range->mem || range->len == 0)
			continue;
		address = gantry_hip_address(range);
		if (!address)
			return false;
		ret_args[i] = (uintptr_t)address;
	}
	return true;
}

int gantry_hip_keep(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	struct gantry_rows_call *call;
	int r;

	if (!stream->rows)
		stream->rows = gantry_rows_create(&driver, stream, stream->dev->graphs);
	call = gantry_rows_room(stream->rows);
	if (!call || !take_args(launch, call->args))
		return 0;
	r = gantry_hip_check_shape(stream, launch);
	if (r < 0)
		return r;
	call->function = launch->kernel->function;
	call->image = launch->kernel->image;
	call->raw = NULL;
	memcpy(call->grid, launch->grid, sizeof(call->grid));
	memcpy(call->block, launch->block, sizeof(call->block));
	call->shared_bytes = launch->shared_bytes;
	call->nargs = launch->nargs;
	gantry_rows_keep(stream->rows, stream->submitted);
	return 1;
}
