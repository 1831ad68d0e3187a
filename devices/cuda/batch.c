/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's calls as devices/rows.h has them. A sticky error is noted as a fault. */
#include "devices/cuda/backend.h"

static int result_of(struct gantry_stream *stream, CUresult result)
{
	if (!gantry_cuda_sticky(result))
		return gantry_cuda_errno(result);
	gantry_cuda_fault_note(stream->dev, result);
	return gantry_cuda_fault_is_earlier(result) ? GANTRY_ROWS_EARLIER : GANTRY_ROWS_FAILED;
}

static void params_of(const struct gantry_rows_call *call, void **params,
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

static int create(struct gantry_stream *stream, void **ret_graph)
{
	CUgraph graph;
	CUresult result = stream->dev->driver->GraphCreate(&graph, 0);

	if (result == CUDA_SUCCESS)
		*ret_graph = graph;
	return result_of(stream, result);
}

static int add(struct gantry_stream *stream, void *graph, void *after,
	       const struct gantry_rows_call *call, void **ret_node)
{
	void *params[GANTRY_MAX_CMD_ARGS];
	CUgraphNode before = after, node;
	CUDA_KERNEL_NODE_PARAMS how;
	CUresult result;

	params_of(call, params, &how);
	result = stream->dev->driver->GraphAddKernelNode(&node, graph, after ? &before : NULL,
							 after ? 1 : 0, &how);
	if (result == CUDA_SUCCESS)
		*ret_node = node;
	return result_of(stream, result);
}

static int instantiate(struct gantry_stream *stream, void *graph, void **ret_exec)
{
	CUgraphExec exec;
	CUresult result = stream->dev->driver->GraphInstantiate(&exec, graph, 0);

	if (result == CUDA_SUCCESS)
		*ret_exec = exec;
	return result_of(stream, result);
}

static int change(struct gantry_stream *stream, void *exec, void *node,
		  const struct gantry_rows_call *call)
{
	void *params[GANTRY_MAX_CMD_ARGS];
	CUDA_KERNEL_NODE_PARAMS how;

	params_of(call, params, &how);
	return result_of(stream,
			 stream->dev->driver->GraphExecKernelNodeSetParams(exec, node, &how));
}

static int launch(struct gantry_stream *stream, void *exec)
{
	return result_of(stream, stream->dev->driver->GraphLaunch(exec, stream->native));
}

static void destroy(struct gantry_stream *stream, void *graph, void *exec)
{
	if (exec)
		(void)stream->dev->driver->GraphExecDestroy(exec); /* fails with the context */
	if (graph)
		(void)stream->dev->driver->GraphDestroy(graph);
}

static int single(struct gantry_stream *stream, const struct gantry_rows_call *call)
{
	return result_of(stream, gantry_cuda_call(stream, call));
}

static void unsent(struct gantry_stream *stream, uint32_t position)
{
	gantry_cuda_slot_at(stream, position)->unsent = true;
}

static void refused(struct gantry_stream *stream, uint32_t position, int error)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, position);

	gantry_rows_refuse(&slot->done, error);
	stream->gather.flying_ns -= slot->estimate_ns;
	slot->estimate_ns = 0;
}

const struct gantry_rows_driver gantry_cuda_rows = {
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
