/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes: copies within one buffer, and the checksum. */
#include "devices/kernels/core/cuda/gpu.h"

/* Bytes that a thread holds while the others load theirs. */
#define MOVE_BYTES 16u

/*
 * Ranges that overlap: all blocks load a stretch, meet, and store it. Stretches go from the end that
 * is not overwritten first, so a store hits only bytes that were loaded before.
 */
ENTRY(move, struct gpu_move, GPU_THREADS)
{
	uint64_t step = item_step(), stretch = step * MOVE_BYTES;
	uint64_t nstretches = (a.n + stretch - 1) / stretch;
	bool upward = a.dst < a.src;

	for (uint64_t s = 0; s < nstretches; s++) {
		uint64_t begin = (upward ? s : nstretches - 1 - s) * stretch + first_item();
		uint8_t bytes[MOVE_BYTES];

#pragma unroll
		for (uint32_t b = 0; b < MOVE_BYTES; b++)
			if (begin + b * step < a.n)
				bytes[b] = a.src[begin + b * step];
		grid_sync();
#pragma unroll
		for (uint32_t b = 0; b < MOVE_BYTES; b++)
			if (begin + b * step < a.n)
				a.dst[begin + b * step] = bytes[b];
		/* The next stretch loads nothing that this one stores. */
	}
}

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
DEVICE uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Distance of the positions' keys: 2^64 over the golden ratio. */
#define POSITION_STEP 0x9e3779b97f4a7c15ull

/* Little-endian word of @n bytes, the rest zero. */
DEVICE uint64_t word_of_bytes(const uint8_t *bytes, uint32_t n)
{
	uint64_t word = 0;

	for (uint32_t i = 0; i < n; i++)
		word |= (uint64_t)bytes[i] << (8 * i);
	return word;
}

/* Sums modulo 2^64 have no order, so blocks may add theirs as they come. */
ENTRY(checksum, struct gpu_checksum, GPU_THREADS)
{
	uint64_t nwords = a.n / 8, sum = 0;
	bool aligned = (uintptr_t)a.bytes % 8 == 0;
	SHARED(uint64_t, sums, GPU_THREADS / 32);

	for (uint64_t i = first_item(); i < nwords; i += item_step()) {
		uint64_t word = aligned ? ((const uint64_t *)a.bytes)[i] :
					  word_of_bytes(a.bytes + 8 * i, 8);

		sum += mix64(word + (i + 1) * POSITION_STEP);
	}
	if (first_item() == 0) {
		sum += a.n;
		if (a.n % 8 != 0)
			sum += mix64(word_of_bytes(a.bytes + 8 * nwords, (uint32_t)(a.n % 8)) +
				     (nwords + 1) * POSITION_STEP);
	}
	for (uint32_t distance = 16; distance > 0; distance /= 2)
		sum += shuffle_down(sum, distance);
	if (lane_idx() == 0)
		sums[thread_idx() / 32] = sum;
	block_sync();
	if (thread_idx() == 0) {
		for (uint32_t w = 1; w < GPU_THREADS / 32; w++)
			sum += sums[w];
		atomic_add(a.sum, sum);
	}
}
