/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code for the fake driver: what images/guest.cu holds (trap and endless are in every image of that driver), and
 * what module.c launches.
 */
#include <time.h>

#include "tests/fakecuda/kernel.h"

#define ILLEGAL_ADDRESS 700 /* CUDA_ERROR_ILLEGAL_ADDRESS */

#define P(i, type) (*(type *)params[i])

FAKECUDA_KERNEL(
	where, { uint64_t out; }, FAKECUDA_P(where, out))
{
	P(0, uint64_t *)[0] = P(0, uint64_t);
	P(0, uint64_t *)[1] = geometry->grid[0];
	return 0;
}

FAKECUDA_KERNEL(
	affine,
	{
		uint64_t data;
		uint64_t n;
		uint64_t scale;
	},
	FAKECUDA_P(affine, data), FAKECUDA_P(affine, n), FAKECUDA_P(affine, scale))
{
	uint64_t *data = P(0, uint64_t *);

	(void)geometry;
	for (uint64_t i = 0; i < P(1, uint64_t); i++)
		data[i] = data[i] * P(2, uint64_t) + i;
	return 0;
}

FAKECUDA_KERNEL(
	illegal, { uint64_t address; }, FAKECUDA_P(illegal, address))
{
	(void)params;
	(void)geometry;
	return ILLEGAL_ADDRESS;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

FAKECUDA_KERNEL(
	spin_ns, { uint64_t ns; }, FAKECUDA_P(spin_ns, ns))
{
	uint64_t start = now_ns();

	while (now_ns() - start < P(0, uint64_t) && !geometry->ending(geometry->cookie))
		;
	return 0;
}

FAKECUDA_KERNEL(
	until, { uint64_t word; }, FAKECUDA_P(until, word))
{
	const struct timespec pause = { .tv_nsec = 100000 };

	/* Acquire: it waits for the writer and for all that the writer did before. */
	while (__atomic_load_n(P(0, const uint64_t *), __ATOMIC_ACQUIRE) == 0 &&
	       !geometry->ending(geometry->cookie))
		(void)nanosleep(&pause, NULL); /* cut short is a shorter pause */
	return 0;
}

extern const struct fakecuda_param fakecuda_params_nothing[];
const struct fakecuda_param fakecuda_params_nothing[] = { { 0, 0 } };
fakecuda_kernel fakecuda_nothing;
int fakecuda_nothing(void **params, const struct fakecuda_geometry *geometry)
{
	(void)params;
	(void)geometry;
	return 0;
}

FAKECUDA_KERNEL(
	core_fill,
	{
		uint64_t dst;
		uint64_t n;
		uint32_t value;
	},
	FAKECUDA_P(core_fill, dst), FAKECUDA_P(core_fill, n), FAKECUDA_P(core_fill, value))
{
	uint32_t *dst = P(0, uint32_t *);

	(void)geometry;
	for (uint64_t i = 0; i < P(1, uint64_t); i++)
		dst[i] = P(2, uint32_t);
	return 0;
}

static uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Of whole words, which is what the tests have. */
FAKECUDA_KERNEL(
	core_checksum,
	{
		uint64_t bytes;
		uint64_t sum;
		uint64_t n;
	},
	FAKECUDA_P(core_checksum, bytes), FAKECUDA_P(core_checksum, sum),
	FAKECUDA_P(core_checksum, n))
{
	const uint64_t *words = P(0, uint64_t *);
	uint64_t sum = P(2, uint64_t);

	(void)geometry;
	for (uint64_t i = 0; i < P(2, uint64_t) / 8; i++)
		sum += mix64(words[i] + (i + 1) * 0x9e3779b97f4a7c15ull);
	*P(1, uint64_t *) = sum;
	return 0;
}
