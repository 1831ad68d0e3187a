/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the test of the fake driver. */
#include <time.h>

#include "tests/fakecuda/kernel.h"

/* *x = *x * factor + 1 */
FAKECUDA_KERNEL(
	step,
	{
		uint64_t x;
		uint32_t factor;
	},
	FAKECUDA_P(step, x), FAKECUDA_P(step, factor))
{
	uint32_t *x = *(uint32_t **)params[0];

	(void)geometry;
	*x = *x * *(uint32_t *)params[1] + 1;
	return 0;
}

FAKECUDA_KERNEL(
	geometry, { uint64_t out; }, FAKECUDA_P(geometry, out))
{
	uint32_t *out = *(uint32_t **)params[0];

	for (unsigned int i = 0; i < 3; i++) {
		out[i] = geometry->grid[i];
		out[3 + i] = geometry->block[i];
	}
	return 0;
}

/* Says so when it ends, which takes a while. */
FAKECUDA_KERNEL(
	linger, { uint64_t out; }, FAKECUDA_P(linger, out))
{
	const struct timespec while_ns = { .tv_nsec = 50000000 };

	(void)geometry;
	(void)nanosleep(&while_ns, NULL);
	**(uint32_t **)params[0] = 1;
	return 0;
}

FAKECUDA_KERNEL(print, { uint32_t none; }, { 0, 0 })
{
	(void)params;
	geometry->print(geometry->cookie, "a kernel prints\n");
	return 0;
}
