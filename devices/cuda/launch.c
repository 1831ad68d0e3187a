/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of device functions as they are: arguments by the signature, geometry by the device's limits. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "devices/cuda/backend.h"

/* Dynamic shared memory that every function may have without being told. */
#define SHARED_ALWAYS (48u << 10)

static bool fits(const uint32_t size[3], const uint32_t max[3])
{
	for (unsigned int i = 0; i < 3; i++)
		if (size[i] == 0 || size[i] > max[i])
			return false;
	return true;
}

/* -EINVAL for a geometry that the device, or the function on it, cannot do. */
static int check_geometry(const struct gantry_dev *dev, const struct gantry_kernel *kernel,
			  const struct gantry_cmd_launch *launch)
{
	uint64_t nthreads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

	if (!fits(launch->grid, dev->max_grid) || !fits(launch->block, dev->max_block))
		return -EINVAL;
	/* Each is at most max_block, so the product did not wrap. */
	if (nthreads > kernel->max_threads)
		return -EINVAL;
	if (launch->shared_bytes > dev->max_shared ||
	    kernel->static_shared > dev->max_shared - launch->shared_bytes)
		return -EINVAL;
	return 0;
}

/* More than what every function may have has to be allowed first, once. */
static int allow_shared(struct gantry_dev *dev, struct gantry_kernel *kernel, uint32_t bytes)
{
	CUresult result;

	if (bytes <= SHARED_ALWAYS || bytes <= kernel->dyn_shared)
		return 0;
	result = dev->driver->FuncSetAttribute(
		kernel->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes);
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "", NULL);
	kernel->dyn_shared = bytes;
	return 0;
}

int gantry_cuda_launch_check(struct gantry_dev *dev, const struct gantry_cmd_launch *launch)
{
	struct gantry_kernel *kernel = launch->kernel;
	int r = check_geometry(dev, kernel, launch);

	if (r == 0)
		r = allow_shared(dev, kernel, launch->shared_bytes);
	return r == 0 && kernel->sig->is_raw && launch->raw_bytes != kernel->params_bytes ? -EINVAL
											  : r;
}

/* Many or long parameters as they are: none of the calls that are kept has room for them. */
static bool is_long(const struct gantry_cmd_launch *launch)
{
	return launch->raw_bytes > sizeof(((struct gantry_rows_call *)0)->args) ||
	       launch->kernel->nparams > GANTRY_MAX_CMD_ARGS;
}

static int take_raw(const struct gantry_cmd_launch *launch, struct gantry_rows_call *ret_call)
{
	const struct gantry_kernel *kernel = launch->kernel;

	ret_call->raw = kernel;
	ret_call->nargs = (launch->raw_bytes + 7) / 8;
	if (ret_call->nargs > 0)
		ret_call->args[ret_call->nargs - 1] = 0;
	memcpy(ret_call->args, launch->raw, launch->raw_bytes);
	return 0;
}

/* The arguments as the device has them; those of buffers become addresses. */
static int take_args(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
		     uint64_t *ret_args)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	assert(launch->nargs == sig->nargs);
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode) {
			/* The value's bytes come first, whatever its width: all of these hosts are little-endian. */
			ret_args[i] = launch->args[i].value.u64;
			continue;
		}
		/* An address that the device does not reach would end the context. */
		if (range->mem && !gantry_cuda_mem_reach(dev, range))
			return -EOPNOTSUPP;
		ret_args[i] = range->mem ? range->mem->address + range->off : 0;
	}
	return 0;
}

static int make_call(struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
		     struct gantry_rows_call *ret_call)
{
	struct gantry_kernel *kernel = launch->kernel;
	int r = gantry_cuda_launch_check(dev, launch);

	ret_call->raw = NULL;
	ret_call->nargs = launch->nargs;
	if (r == 0 && !kernel->sig->is_raw)
		r = take_args(dev, launch, ret_call->args);
	else if (r == 0 && !is_long(launch))
		r = take_raw(launch, ret_call);
	if (r < 0)
		return r;
	ret_call->function = kernel->function;
	ret_call->image = kernel->image;
	memcpy(ret_call->grid, launch->grid, sizeof(ret_call->grid));
	memcpy(ret_call->block, launch->block, sizeof(ret_call->block));
	ret_call->shared_bytes = launch->shared_bytes;
	return 0;
}

CUresult gantry_cuda_call(struct gantry_stream *stream, const struct gantry_rows_call *call)
{
	void *params[GANTRY_MAX_CMD_ARGS];

	gantry_cuda_call_params(call, params);
	return stream->dev->driver->LaunchKernel(call->function, call->grid[0], call->grid[1],
						 call->grid[2], call->block[0], call->block[1],
						 call->block[2], call->shared_bytes, stream->native,
						 params, NULL);
}

void gantry_cuda_call_params(const struct gantry_rows_call *call, void **ret_params)
{
	const struct gantry_kernel *raw = call->raw;

	for (uint32_t i = 0; raw && i < raw->nparams; i++)
		ret_params[i] = (char *)(uintptr_t)call->args + raw->layout[i].off;
	for (uint32_t i = 0; !raw && i < call->nargs; i++)
		ret_params[i] = (void *)(uintptr_t)&call->args[i];
}

/* What the driver is told of @groups; returns how many attributes that are, or -EINVAL. */
static int attributes_of(uint32_t groups, CUlaunchAttribute *ret_attributes)
{
	uint32_t size[3];
	int n = 0;

	for (unsigned int i = 0; i < 3; i++)
		size[i] = GANTRY_TASK_CLUSTER_OF(groups, i);
	if (groups & GANTRY_TASK_TOGETHER) {
		ret_attributes[n].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		ret_attributes[n++].value.cooperative = 1;
	}
	if (!(groups & ~GANTRY_TASK_TOGETHER))
		return n;
	/* Each is at most 31, so the product does not wrap. */
	if (size[0] * size[1] * size[2] == 0 || size[0] * size[1] * size[2] > 16)
		return -EINVAL;
	ret_attributes[n].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
	ret_attributes[n].value.clusterDim.x = size[0];
	ret_attributes[n].value.clusterDim.y = size[1];
	ret_attributes[n++].value.clusterDim.z = size[2];
	return n;
}

/* Launched at once, from the caller's bytes: long parameters, and what a kept call has no room to say. */
static int launch_now(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	struct gantry_rows_call call;
	size_t bytes = launch->raw_bytes;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)(uintptr_t)launch->raw,
			  CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	CUlaunchAttribute attributes[2] = { 0 };
	CUlaunchConfig config = { .hStream = stream->native, .attrs = attributes };
	int r = make_call(stream->dev, launch, &call), n = 0;
	CUresult result;

	if (r == 0)
		n = attributes_of(launch->groups, attributes);
	if (r < 0 || n < 0)
		return r < 0 ? r : n;
	config.gridDimX = call.grid[0];
	config.gridDimY = call.grid[1];
	config.gridDimZ = call.grid[2];
	config.blockDimX = call.block[0];
	config.blockDimY = call.block[1];
	config.blockDimZ = call.block[2];
	config.sharedMemBytes = call.shared_bytes;
	config.numAttrs = (unsigned int)n;
	gantry_rows_push(stream->rows);
	result = stream->dev->driver->LaunchKernelEx(&config, call.function, NULL,
						     bytes ? extra : NULL);
	r = gantry_cuda_check(stream->dev, result, "", NULL);
	return gantry_cuda_sticky(result) ? 0 : r;
}

int gantry_cuda_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
		       struct gantry_cuda_slot *slot)
{
	struct gantry_rows_call *kept;
	struct gantry_rows_call now;
	CUresult result;
	int r;

	(void)slot; /* nothing is known of the outcome yet */
	if (launch->kernel->sig->is_raw && (launch->groups || is_long(launch)))
		return launch_now(stream, launch);
	if (!stream->rows)
		stream->rows = gantry_rows_create(&gantry_cuda_rows, stream, true);
	kept = gantry_rows_room(stream->rows);
	r = make_call(stream->dev, launch, kept ? kept : &now);
	if (r < 0)
		return r;
	if (kept) {
		gantry_rows_keep(stream->rows, stream->submitted);
		return 0;
	}
	gantry_rows_push(stream->rows);
	result = gantry_cuda_call(stream, &now);
	r = gantry_cuda_check(stream->dev, result, "", NULL);
	return gantry_cuda_sticky(result) ? 0 : r;
}
