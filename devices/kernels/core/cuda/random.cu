/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers by position, as on cpu devices: number p is word p mod 4 of counter p / 4 of
 * Philox4x32-10 with the seed as its key, which is where curand_init(seed, 0, p) points.
 */
#include "devices/kernels/core/cuda/gpu.h"
#include "devices/kernels/core/philox.h"

#ifndef GPU_EMULATED
#include <curand_kernel.h>

struct counters {
	curandStatePhilox4_32_10_t state;
};

DEVICE struct counters counters_from(uint64_t seed, uint64_t counter)
{
	struct counters c;

	curand_init(seed, 0, counter * 4, &c.state);
	return c;
}

DEVICE uint4 counters_next(struct counters *c)
{
	return curand4(&c->state);
}
#else
struct counters {
	uint64_t seed, counter;
};

DEVICE struct counters counters_from(uint64_t seed, uint64_t counter)
{
	return { seed, counter };
}

DEVICE uint4 counters_next(struct counters *c)
{
	uint32_t words[4];

	philox(c->seed, 0, c->counter++, words);
	return make_uint4(words[0], words[1], words[2], words[3]);
}
#endif

/*
 * Counters that a thread takes one after another: cuRAND makes one more than is used, so a few at a
 * time, and not so many that the threads' stores lie far apart.
 */
#define COUNTERS 4u

DEVICE uint4 four(const uint32_t made[4])
{
	return make_uint4(made[0], made[1], made[2], made[3]);
}

/*
 * Writes what @make makes of the words of each counter: four elements of 32 bits. The range begins at
 * number @offset of the stream, perhaps inside a counter; positions wrap round.
 */
template <class F> DEVICE void numbers(const struct gpu_numbers &a, F make)
{
	uint64_t skip = a.offset % 4, first = a.offset / 4, ncounters = (a.n + skip + 3) / 4;
	uint32_t *out = (uint32_t *)a.out;
	bool wide = skip == 0 && is_wide(out);

	for (uint64_t i = first_item() * COUNTERS; i < ncounters; i += item_step() * COUNTERS) {
		/* There are 2^62 counters of four numbers. */
		struct counters c = counters_from(a.seed, (first + i) & (UINT64_MAX >> 2));

		for (uint64_t counter = i; counter < i + COUNTERS; counter++) {
			uint4 words = counters_next(&c);
			uint64_t at = 4 * counter;
			uint32_t made[4];

			make(words, made);
			if (wide && at + 4 <= a.n) {
				((uint4 *)out)[counter] = four(made);
				continue;
			}
#pragma unroll
			for (uint32_t e = 0; e < 4; e++)
				if (at + e >= skip && at + e - skip < a.n)
					out[at + e - skip] = made[e];
		}
	}
}

ENTRY(random_u32, struct gpu_numbers, GPU_THREADS)
{
	numbers(a, [](uint4 w, uint32_t *made) {
		made[0] = w.x;
		made[1] = w.y;
		made[2] = w.z;
		made[3] = w.w;
	});
}

ENTRY(random_uniform, struct gpu_numbers, GPU_THREADS)
{
	float shift = a.shift, scale = a.scale;

	numbers(a, [=](uint4 w, uint32_t *made) {
		made[0] = float_bits(shift + scale * word_to_uniform(w.x));
		made[1] = float_bits(shift + scale * word_to_uniform(w.y));
		made[2] = float_bits(shift + scale * word_to_uniform(w.z));
		made[3] = float_bits(shift + scale * word_to_uniform(w.w));
	});
}

ENTRY(random_normal, struct gpu_numbers, GPU_THREADS)
{
	float shift = a.shift, scale = a.scale;

	numbers(a, [=](uint4 w, uint32_t *made) {
		uint32_t words[4] = { w.x, w.y, w.z, w.w };
		float normals[4];

		words_to_normal(words, normals);
		words_to_normal(words + 2, normals + 2);
		for (uint32_t e = 0; e < 4; e++)
			made[e] = float_bits(shift + scale * normals[e]);
	});
}
