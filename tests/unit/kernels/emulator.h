/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs CUDA device code without a GPU: each thread of a grid is a coroutine on this thread's core, and
 * they take turns at barriers. Slow, the same each time, and seen by the address sanitizer. Device
 * code includes this before devices/kernels/core/cuda/gpu.h, which uses it in place of CUDA.
 *
 * A barrier that not all threads reach ends the process with a message. Races between barriers are
 * not found, as nothing runs at the same time.
 *
 * Threads: one at a time in a process.
 */
#ifndef GANTRY_TESTS_UNIT_KERNELS_EMULATOR_H
#define GANTRY_TESTS_UNIT_KERNELS_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <string.h>
extern "C" {
#endif

/* Multiprocessors of the emulated device, and blocks that each holds. */
#define EMULATOR_UNITS	   3u
#define EMULATOR_OCCUPANCY 2u

/* A device function with its argument's type removed. */
typedef void emulator_entry(const void *args);

/* Runs the grid to its end. @together: all blocks at the same time. */
void emulator_run(emulator_entry *entry, uint32_t nblocks, uint32_t nthreads, int together,
		  const void *args);

/* Whether such a grid can run together. */
int emulator_holds(uint32_t nblocks, uint32_t nthreads);

/* For device code. */
uint32_t thread_idx(void);
uint32_t block_idx(void);
uint32_t block_threads(void);
uint32_t grid_blocks(void);
void block_sync(void);
void warp_sync(void);
void grid_sync(void);
uint64_t clock_ns(void);
uint32_t count_bits(uint32_t word);
uint32_t vote(int yes);
/* Memory of the running block for the declaration that @key stands for; contents undefined. */
void *emulator_shared(const void *key, size_t bytes);
/* All lanes give @value and get that of lane @from. At most 8 bytes. */
void emulator_exchange(const void *value, void *ret_value, size_t bytes, uint32_t from);

#ifdef __cplusplus
}

#define GPU_EMULATED
#define DEVICE static inline

#define ENTRY(name, type, nthreads)                               \
	static void name##_body(const type a);                    \
	extern "C" void emulated_##name(const void *args);        \
	extern "C" void emulated_##name(const void *args)         \
	{                                                         \
		static_assert(nthreads % 32 == 0, "whole warps"); \
		name##_body(*static_cast<const type *>(args));    \
	}                                                         \
	static void name##_body([[maybe_unused]] const type a)

#define SHARED(type, name, count) \
	static char name##_key;   \
	type *const name = static_cast<type *>(emulator_shared(&name##_key, sizeof(type) * (count)))

struct alignas(16) float4 {
	float x, y, z, w;
};

struct alignas(16) uint4 {
	uint32_t x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
	return { x, y, z, w };
}

static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return { x, y, z, w };
}

template <class T> static inline T emulator_shuffle(T value, uint32_t from)
{
	T got;

	emulator_exchange(&value, &got, sizeof(T), from);
	return got;
}

template <class T> static inline T shuffle(T value, uint32_t lane)
{
	return emulator_shuffle(value, lane % 32);
}

template <class T> static inline T shuffle_up(T value, uint32_t distance)
{
	uint32_t lane = thread_idx() % 32;

	return emulator_shuffle(value, lane < distance ? lane : lane - distance);
}

template <class T> static inline T shuffle_down(T value, uint32_t distance)
{
	uint32_t lane = thread_idx() % 32;

	return emulator_shuffle(value, lane + distance > 31 ? lane : lane + distance);
}

template <class T> static inline T atomic_add(T *word, T value)
{
	T before = *word;

	*word += value;
	return before;
}

static inline uint32_t atomic_or(uint32_t *word, uint32_t value)
{
	uint32_t before = *word;

	*word |= value;
	return before;
}

static inline uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float bits_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}
#endif

#endif
