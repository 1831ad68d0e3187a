/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host functions of core-cuda.so share: how they get at their arguments is as on the cpu
 * (devices/kernels/kernel.h), how they start device code is here.
 *
 * Trust, threads: devices/cuda/module.h.
 * Errors: what the calls of the backend return goes on to the caller.
 */
#ifndef GANTRY_DEVICES_KERNELS_CORE_CUDA_BODY_H
#define GANTRY_DEVICES_KERNELS_CORE_CUDA_BODY_H

#include "devices/cuda/module.h"
#include "devices/kernels/core/cuda/args.h"
#include "devices/kernels/kernel.h"

enum gpu_function {
#define FUNCTION(name, type) GPU_##name,
#include "devices/kernels/core/cuda/functions.def"
#undef FUNCTION
	GPU_NFUNCTIONS,
};

/* Never NULL on a cuda device, for which alone this module is. */
static inline const struct gantry_cuda_calls *gpu_calls(struct gantry_env *env)
{
	return env->handle(env, "cuda");
}

/* Blocks that are enough to fill any device, and leave none of it idle while the last ones run. */
#define GPU_BLOCKS_PER_UNIT 32u
/* Where the hardware is to share out the blocks; past this they take several turns. */
#define GPU_BLOCKS_MAX (1u << 24)

/* @args is the address of the function's structure. @nblocks is cut to GPU_BLOCKS_MAX; 0: nothing. */
int gpu_launch(struct gantry_env *env, enum gpu_function function, uint64_t nblocks,
	       uint32_t nthreads, const void *args);
/* For loops over @nitems by all threads. */
int gpu_launch_items(struct gantry_env *env, enum gpu_function function, uint64_t nitems,
		     const void *args);
/* All blocks at the same time: as many as @nblocks, 1 or more, and fit. */
int gpu_launch_together(struct gantry_env *env, enum gpu_function function, uint64_t nblocks,
			uint32_t nthreads, const void *args);

/*
 * The two ways for device code to end early. The words in *ret_stop are zero when what is enqueued
 * next begins. -ENOMEM: no scratch memory; -EAGAIN: no verdict is free.
 */
int gpu_stop_make(struct gantry_env *env, struct gpu_stop **ret_stop,
		  struct gantry_cuda_verdict **ret_verdict);

static inline uint64_t gpu_parts(uint64_t n, uint64_t part)
{
	return n / part + (n % part != 0);
}

#endif
