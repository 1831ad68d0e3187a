/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/kernels/core/cuda/body.h"

static int launch(struct gantry_env *env, enum gpu_function function, uint32_t nblocks,
		  uint32_t nthreads, uint32_t flags, const void *args)
{
	const struct gantry_cuda_launch l = {
		.function = function,
		.flags = flags,
		.grid = { nblocks, 1, 1 },
		.block = { nthreads, 1, 1 },
		.nparams = 1,
		.params = &args,
	};

	return gpu_calls(env)->launch(env, &l);
}

int gpu_launch(struct gantry_env *env, enum gpu_function function, uint64_t nblocks,
	       uint32_t nthreads, const void *args)
{
	if (nblocks == 0)
		return 0;
	return launch(env, function, (uint32_t)gantry_min_u64(nblocks, GPU_BLOCKS_MAX), nthreads, 0,
		      args);
}

int gpu_launch_items(struct gantry_env *env, enum gpu_function function, uint64_t nitems,
		     const void *args)
{
	uint64_t most = (uint64_t)gpu_calls(env)->nunits * GPU_BLOCKS_PER_UNIT;

	return gpu_launch(env, function, gantry_min_u64(gpu_parts(nitems, GPU_THREADS), most),
			  GPU_THREADS, args);
}

int gpu_launch_together(struct gantry_env *env, enum gpu_function function, uint64_t nblocks,
			uint32_t nthreads, const void *args)
{
	const struct gantry_cuda_calls *calls = gpu_calls(env);
	int per_unit = calls->occupancy(env, function, nthreads, 0);

	if (per_unit < 0)
		return per_unit;
	nblocks = gantry_min_u64(nblocks, (uint64_t)per_unit * calls->nunits);
	return launch(env, function, (uint32_t)nblocks, nthreads, GANTRY_CUDA_TOGETHER, args);
}

int gpu_stop_make(struct gantry_env *env, struct gpu_stop **ret_stop,
		  struct gantry_cuda_verdict **ret_verdict)
{
	const struct gantry_cuda_calls *calls = gpu_calls(env);
	struct gpu_stop *stop = SCRATCH(struct gpu_stop, env, 1);
	struct gantry_cuda_verdict *verdict;
	int r;

	if (!stop)
		return -ENOMEM;
	verdict = calls->verdict(env);
	if (!verdict)
		return -EAGAIN;
	r = calls->set(env, stop, 0, sizeof(uint32_t), sizeof(*stop) / sizeof(uint32_t));
	if (r < 0)
		return r;
	*ret_stop = stop;
	*ret_verdict = verdict;
	return 0;
}
