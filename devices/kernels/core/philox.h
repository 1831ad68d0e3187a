/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC 2011):
 * four words from a counter and a key. No state, so any part of a stream can be made anywhere,
 * twice.
 */
#ifndef GANTRY_DEVICES_KERNELS_CORE_PHILOX_H
#define GANTRY_DEVICES_KERNELS_CORE_PHILOX_H

#include <math.h>
#include <stdint.h>

/* CUDA kernels use the same. */
#ifdef __CUDACC__
#define PHILOX_INLINE static __device__ inline
#else
#define PHILOX_INLINE static inline
#endif

/* The words of counter @counter (its upper 64 bits are @stream) under key @seed. */
PHILOX_INLINE void philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t ret_words[4])
{
	uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
	uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

#ifdef __CUDACC__
#pragma unroll
#else
#pragma GCC unroll 10
#endif
	for (int round = 0; round < 10; round++) {
		uint64_t p0 = 0xd2511f53ull * c0, p1 = 0xcd9e8d57ull * c2;

		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)p1;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)p0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	ret_words[0] = c0;
	ret_words[1] = c1;
	ret_words[2] = c2;
	ret_words[3] = c3;
}

/* In [0, 1), a multiple of 2^-24. */
PHILOX_INLINE float word_to_uniform(uint32_t word)
{
	return (float)(word >> 8) * 0x1p-24f;
}

/*
 * Two normal numbers from two words (Box, Muller 1958); their size is at most sqrt(48 ln 2) = 5.77.
 */
PHILOX_INLINE void words_to_normal(const uint32_t words[2], float ret_normal[2])
{
	/* One more than in word_to_uniform(): in (0, 1], as the logarithm needs. */
	float radius = sqrtf(-2.0f * logf((float)((words[0] >> 8) + 1) * 0x1p-24f));
	float angle = 6.283185307f * word_to_uniform(words[1]);

	ret_normal[0] = radius * cosf(angle);
	ret_normal[1] = radius * sinf(angle);
}

#endif
