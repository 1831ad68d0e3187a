/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device code here shares. It uses these names in place of CUDA's own, so that the same
 * text also runs without a GPU: tests/unit/kernels/emulator.h, included first, brings the few that
 * need the hardware (GPU_EMULATED), one thread after another.
 *
 * Grids and blocks are lines. Blocks have a multiple of 32 threads. Barriers, shuffles and votes are
 * reached by all threads of the grid, the block or the warp.
 */
#ifndef GANTRY_DEVICES_KERNELS_CORE_CUDA_GPU_H
#define GANTRY_DEVICES_KERNELS_CORE_CUDA_GPU_H

#include <errno.h>
#include <math.h>
#include <stdint.h>

#include "devices/kernels/core/cuda/args.h"

#ifndef GPU_EMULATED
#include <cooperative_groups.h>

#define DEVICE static __device__ __forceinline__

/* Opens the definition of device function @name, which takes one @type as "a". */
#define ENTRY(name, type, nthreads) \
	extern "C" __global__ void __launch_bounds__(nthreads) name(const type a)

/* An array of the block. */
#define SHARED(type, name, count) __shared__ type name[count]

DEVICE uint32_t thread_idx(void)
{
	return threadIdx.x;
}

DEVICE uint32_t block_idx(void)
{
	return blockIdx.x;
}

DEVICE uint32_t block_threads(void)
{
	return blockDim.x;
}

DEVICE uint32_t grid_blocks(void)
{
	return gridDim.x;
}

DEVICE void block_sync(void)
{
	__syncthreads();
}

DEVICE void warp_sync(void)
{
	__syncwarp();
}

/* Only in functions that are launched GANTRY_CUDA_TOGETHER. */
DEVICE void grid_sync(void)
{
	cooperative_groups::this_grid().sync();
}

#define ALL_LANES 0xffffffffu

template <class T> DEVICE T shuffle(T value, uint32_t lane)
{
	return __shfl_sync(ALL_LANES, value, (int)lane);
}

/* Of the lane @distance below; the lowest lanes get their own. */
template <class T> DEVICE T shuffle_up(T value, uint32_t distance)
{
	return __shfl_up_sync(ALL_LANES, value, distance);
}

template <class T> DEVICE T shuffle_down(T value, uint32_t distance)
{
	return __shfl_down_sync(ALL_LANES, value, distance);
}

DEVICE uint32_t vote(bool yes)
{
	return __ballot_sync(ALL_LANES, yes);
}

DEVICE uint32_t atomic_add(uint32_t *word, uint32_t value)
{
	return atomicAdd(word, value);
}

DEVICE uint64_t atomic_add(uint64_t *word, uint64_t value)
{
	return atomicAdd((unsigned long long *)word, (unsigned long long)value);
}

DEVICE uint32_t atomic_or(uint32_t *word, uint32_t value)
{
	return atomicOr(word, value);
}

DEVICE uint32_t count_bits(uint32_t word)
{
	return (uint32_t)__popc(word);
}

DEVICE uint64_t clock_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

DEVICE uint32_t float_bits(float value)
{
	return __float_as_uint(value);
}

DEVICE float bits_float(uint32_t bits)
{
	return __uint_as_float(bits);
}
#endif

/* One load that is neither repeated nor split: for what a guest, or another block, may be changing. */
template <class T> DEVICE T load_once(const T *from)
{
	return *(const volatile T *)from;
}

template <class T> DEVICE void store_once(T *to, T value)
{
	*(volatile T *)to = value;
}

DEVICE uint32_t lane_idx(void)
{
	return thread_idx() % 32;
}

/* The loop over [0, n) by all threads: for (i = first_item(); i < n; i += item_step()). */
DEVICE uint64_t first_item(void)
{
	return (uint64_t)block_idx() * block_threads() + thread_idx();
}

DEVICE uint64_t item_step(void)
{
	return (uint64_t)grid_blocks() * block_threads();
}

DEVICE uint64_t least_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Whether elements may be loaded 16 bytes at a time. */
DEVICE bool is_wide(const void *ptr)
{
	return (uintptr_t)ptr % 16 == 0;
}

/*
 * Before a barrier of the whole grid: one thread asks whether the task was cancelled, if @step says
 * that it is time. After the barrier all threads read the same answer from stopped().
 */
#define STEPS_PER_ASK 32u

DEVICE void stop_tell(struct gpu_stop *stop, struct gantry_cuda_verdict *verdict, uint64_t step,
		      int32_t status)
{
	store_once(&verdict->status, status);
	store_once(&stop->now[step % 2], 1u);
}

DEVICE void stop_ask(struct gpu_stop *stop, struct gantry_cuda_verdict *verdict, uint64_t step)
{
	if (step % STEPS_PER_ASK == 0 && first_item() == 0 && load_once(&verdict->cancel))
		stop_tell(stop, verdict, step, -ECANCELED);
}

DEVICE bool stopped(const struct gpu_stop *stop, uint64_t step)
{
	return load_once(&stop->now[step % 2]) != 0;
}

/* The sum of the block's values, in thread 0; the same order each time. @sums has 32 elements. */
DEVICE double block_sum(double value, double *sums)
{
	for (uint32_t distance = 16; distance > 0; distance /= 2)
		value += shuffle_down(value, distance);
	/* The array may still be read for an earlier sum. */
	block_sync();
	if (lane_idx() == 0)
		sums[thread_idx() / 32] = value;
	block_sync();
	if (thread_idx() < 32) {
		value = lane_idx() < block_threads() / 32 ? sums[lane_idx()] : 0;
		for (uint32_t distance = 16; distance > 0; distance /= 2)
			value += shuffle_down(value, distance);
	}
	return value;
}

#endif
