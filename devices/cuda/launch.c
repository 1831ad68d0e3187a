/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of device functions as they are: arguments by the signature, geometry by the device's limits. */
#include <assert.h>
#include <errno.h>

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

/* Addresses of the arguments; those of buffers become device addresses in @addresses. */
static int take_args(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
		     CUdeviceptr *addresses, void **params)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	assert(launch->nargs == sig->nargs);
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode) {
			/* The value's bytes come first, whatever its width: all of these hosts are little-endian. */
			params[i] = (void *)(uintptr_t)&launch->args[i].value;
			continue;
		}
		/* An address that the device does not reach would end the context. */
		if (range->mem && !gantry_cuda_mem_reach(dev, range))
			return -EOPNOTSUPP;
		addresses[i] = range->mem ? range->mem->address + range->off : 0;
		params[i] = &addresses[i];
	}
	return 0;
}

int gantry_cuda_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
		       struct gantry_cuda_slot *slot)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_kernel *kernel = launch->kernel;
	CUdeviceptr addresses[GANTRY_MAX_CMD_ARGS];
	void *params[GANTRY_MAX_CMD_ARGS];
	CUresult result;
	int r;

	(void)slot; /* nothing is known of the outcome yet */
	r = check_geometry(dev, kernel, launch);
	if (r == 0)
		r = allow_shared(dev, kernel, launch->shared_bytes);
	if (r == 0)
		r = take_args(dev, launch, addresses, params);
	if (r < 0)
		return r;
	result = dev->driver->LaunchKernel(kernel->function, launch->grid[0], launch->grid[1],
					   launch->grid[2], launch->block[0], launch->block[1],
					   launch->block[2], launch->shared_bytes, stream->native,
					   params, NULL);
	r = gantry_cuda_check(dev, result, "", NULL);
	return gantry_cuda_sticky(result) ? 0 : r;
}
