/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in for AMD's runtime runs in place of machine code: a launch as a whole. */
#include <stdint.h>

#include "tests/fakecuda/kernel.h"

FAKECUDA_KERNEL(
	kinds_vadd,
	{
		const uint32_t *x;
		const uint32_t *y;
		uint32_t *out;
		uint64_t n;
	},
	FAKECUDA_P(kinds_vadd, x), FAKECUDA_P(kinds_vadd, y), FAKECUDA_P(kinds_vadd, out),
	FAKECUDA_P(kinds_vadd, n))
{
	const uint32_t *x = *(const uint32_t **)params[0], *y = *(const uint32_t **)params[1];
	uint32_t *out = *(uint32_t **)params[2];

	(void)geometry;
	for (uint64_t i = 0; i < *(uint64_t *)params[3]; i++)
		out[i] = x[i] + y[i];
	return 0;
}

FAKECUDA_KERNEL(
	kinds_scale,
	{
		const uint32_t *x;
		uint32_t *out;
		uint32_t factor;
		uint64_t n;
	},
	FAKECUDA_P(kinds_scale, x), FAKECUDA_P(kinds_scale, out), FAKECUDA_P(kinds_scale, factor),
	FAKECUDA_P(kinds_scale, n))
{
	const uint32_t *x = *(const uint32_t **)params[0];
	uint32_t *out = *(uint32_t **)params[1], factor = *(uint32_t *)params[2];

	(void)geometry;
	for (uint64_t i = 0; i < *(uint64_t *)params[3]; i++)
		out[i] = x[i] * factor;
	return 0;
}
