/* SPDX-License-Identifier: Apache-2.0 */
/* Launches: what CUDA refuses at the call is refused here, and the parameters are packed as the image lays them out. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/graph.h"

static bool in_range(const uint32_t size[3], const int32_t *max)
{
	for (unsigned int i = 0; i < 3; i++)
		if (size[i] == 0 || (max[i] > 0 && size[i] > (uint32_t)max[i]))
			return false;
	return true;
}

static CUresult check(const struct cu_device *dev, const struct cu_launch *launch)
{
	const struct CUfunc_st *func = launch->func;
	uint64_t nthreads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
	int64_t shared = (int64_t)launch->shared_bytes +
			 func->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES];
	int32_t max = func->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];

	if (!in_range(launch->grid, &dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X]) ||
	    !in_range(launch->block, &dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X]))
		return CUDA_ERROR_INVALID_VALUE;
	if (nthreads > (uint64_t)dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	if (max > 0 && nthreads > (uint64_t)max)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	/* More than what every function may have has to be allowed first. */
	if (launch->shared_bytes > 48 * 1024 &&
	    (int64_t)launch->shared_bytes >
		    func->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		return CUDA_ERROR_INVALID_VALUE;
	if (shared > dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] &&
	    shared > dev->attributes[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK])
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* CU_LAUNCH_PARAM_*: pairs of a name and a pointer. */
static CUresult pack_extra(const struct CUfunc_st *func, void **extra, uint8_t *args)
{
	const void *bytes = NULL;
	size_t len = 0;

	for (unsigned int i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			bytes = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			memcpy(&len, extra[i + 1], sizeof(len));
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if ((!bytes && func->params_bytes) || len < func->params_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (func->params_bytes)
		memcpy(args, bytes, func->params_bytes);
	return CUDA_SUCCESS;
}

static CUresult pack(const struct cu_launch *launch, uint8_t *args)
{
	const struct CUfunc_st *func = launch->func;

	if (launch->params && launch->extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (launch->extra)
		return pack_extra(func, launch->extra, args);
	if (!launch->params && func->nparams > 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < func->nparams; i++) {
		if (!launch->params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(args + func->params[i].off, launch->params[i], func->params[i].bytes);
	}
	return CUDA_SUCCESS;
}

/* Blocks that wait for each other have to be there all at once; what a multiprocessor holds of them is asked once. */
static CUresult check_together(const struct cu_device *dev, const struct cu_launch *launch)
{
	struct CUfunc_st *func = launch->func;
	uint32_t nthreads = launch->block[0] * launch->block[1] * launch->block[2];
	uint64_t nblocks = (uint64_t)launch->grid[0] * launch->grid[1];
	uint32_t per_unit = 0;
	CUresult result;

	if (func->per_unit == 0 || func->asked_device != dev->index ||
	    func->asked_threads != nthreads || func->asked_shared != launch->shared_bytes) {
		result = cu_func_ask(dev, func, GANTRY_ASK_OCCUPANCY, nthreads,
				     launch->shared_bytes, &per_unit, sizeof(per_unit));
		if (result != CUDA_SUCCESS)
			return result;
		func->asked_device = dev->index;
		func->asked_threads = nthreads;
		func->asked_shared = launch->shared_bytes;
		func->per_unit = per_unit;
	}
	if (gantry_mul_u64(nblocks, launch->grid[2], &nblocks) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	return nblocks > (uint64_t)func->per_unit *
				       (uint32_t)dev->attributes
					       [CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT]
		       ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
		       : CUDA_SUCCESS;
}

/* A cluster has at most 16 blocks, and the grid is whole clusters. */
static CUresult check_cluster(const struct cu_launch *launch)
{
	uint32_t n = 1;

	for (unsigned int i = 0; i < 3; i++) {
		uint32_t size = GANTRY_TASK_CLUSTER_OF(launch->groups, i);

		if (size == 0 || launch->grid[i] % size)
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		n *= size;
	}
	return n <= 16 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

static CUresult check_groups(const struct cu_device *dev, const struct cu_launch *launch)
{
	CUresult result = CUDA_SUCCESS;

	if (launch->groups & ~GANTRY_TASK_TOGETHER)
		result = check_cluster(launch);
	if (result == CUDA_SUCCESS && (launch->groups & GANTRY_TASK_TOGETHER))
		result = check_together(dev, launch);
	return result;
}

CUresult cu_call_check_groups_locked(const struct cu_device *dev, const struct cu_call *call,
				     uint32_t groups)
{
	return check_groups(
		dev,
		&(struct cu_launch){ .func = call->func,
				     .grid = { call->grid[0], call->grid[1], call->grid[2] },
				     .block = { call->block[0], call->block[1], call->block[2] },
				     .shared_bytes = call->shared_bytes,
				     .groups = groups });
}

void cu_args_put(struct cu_args *args)
{
	if (args->bytes != args->few)
		free(args->bytes);
	args->bytes = NULL;
}

static CUresult args_take(struct cu_args *args, const struct cu_launch *launch)
{
	size_t bytes = launch->func->params_bytes;
	CUresult result;

	args->bytes = bytes <= sizeof(args->few) ? args->few : malloc(bytes);
	if (!args->bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = pack(launch, args->bytes);
	if (result != CUDA_SUCCESS)
		cu_args_put(args);
	return result;
}

CUresult cu_call_make_locked(const struct cu_device *dev, const struct cu_launch *launch,
			     struct cu_args *args, struct cu_call *ret_call)
{
	CUresult result = check(dev, launch);

	if (result == CUDA_SUCCESS)
		result = check_groups(dev, launch);
	if (result == CUDA_SUCCESS)
		result = args_take(args, launch);
	if (result != CUDA_SUCCESS)
		return result;
	*ret_call = (struct cu_call){
		.func = launch->func,
		.grid = { launch->grid[0], launch->grid[1], launch->grid[2] },
		.block = { launch->block[0], launch->block[1], launch->block[2] },
		.shared_bytes = launch->shared_bytes,
		.groups = launch->groups,
		.args = args->bytes,
	};
	return CUDA_SUCCESS;
}

CUresult cu_call_put_locked(struct CUstream_st *stream, const struct cu_call *call)
{
	struct gantry_task task = {
		.kernel = call->func->kernel,
		.grid = { call->grid[0], call->grid[1], call->grid[2] },
		.block = { call->block[0], call->block[1], call->block[2] },
		.shared_bytes = call->shared_bytes,
		.args = call->args,
		.args_bytes = call->func->params_bytes,
		.flags = call->groups,
	};
	gantry_ticket ticket = 0;
	CUresult result = CUDA_SUCCESS;
	int r;

	cu_output_due();
	if (!cu_module_runs_on(call->func->module, stream->ctx->dev))
		result = cu_unsupported(
			"kernels of one image with managed variables on two devices");
	if (result == CUDA_SUCCESS)
		result = cu_stream_begin_locked(stream);
	if (result != CUDA_SUCCESS)
		return result;
	if (stream->builds)
		return cu_twin_put_call_locked(stream, &task);
	do
		r = gantry_submit(cu.session, stream->queue, &task, 1, &ticket);
	while (r == GANTRY_E_AGAIN);
	return cu_stream_put_locked(stream, r, ticket);
}

CUresult cu_launch_locked(struct CUstream_st *stream, const struct cu_launch *launch)
{
	struct cu_args args;
	struct cu_work work = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	CUresult result = cu_call_make_locked(stream->ctx->dev, launch, &args, &work.call);

	if (result != CUDA_SUCCESS)
		return result;
	result = stream->capture ? cu_capture_work_locked(stream, &work, false)
				 : cu_call_put_locked(stream, &work.call);
	cu_args_put(&args);
	return result;
}
