/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of probe.cu for the fake driver, which has "fault" of its own. */
#include <errno.h>

#include "base/atomic.h"
#include "devices/cuda/module.h"
#include "tests/fakecuda/kernel.h"

FAKECUDA_KERNEL(
	probe_step, { uint64_t x; }, FAKECUDA_P(probe_step, x))
{
	uint32_t *x = *(uint32_t **)params[0];

	(void)geometry;
	x[0] = 3 * x[0] + 1;
	return 0;
}

FAKECUDA_KERNEL(
	geometry,
	{
		uint64_t out;
		double a;
		int32_t b;
	},
	FAKECUDA_P(geometry, out), FAKECUDA_P(geometry, a), FAKECUDA_P(geometry, b))
{
	uint32_t *out = *(uint32_t **)params[0];

	for (unsigned int i = 0; i < 3; i++) {
		out[i] = geometry->grid[i];
		out[3 + i] = geometry->block[i];
	}
	out[6] = 3;
	out[7] = (uint32_t) * (double *)params[1];
	out[8] = (uint32_t) * (int32_t *)params[2];
	return 0;
}

FAKECUDA_KERNEL(
	probe_set,
	{
		uint64_t out;
		uint32_t value;
		uint64_t count;
	},
	FAKECUDA_P(probe_set, out), FAKECUDA_P(probe_set, value), FAKECUDA_P(probe_set, count))
{
	uint32_t *out = *(uint32_t **)params[0];

	(void)geometry;
	for (uint64_t i = 0; i < *(uint64_t *)params[2]; i++)
		out[i] = *(uint32_t *)params[1];
	return 0;
}

FAKECUDA_KERNEL(
	probe_add,
	{
		uint64_t out;
		uint32_t value;
		uint64_t count;
	},
	FAKECUDA_P(probe_add, out), FAKECUDA_P(probe_add, value), FAKECUDA_P(probe_add, count))
{
	uint32_t *out = *(uint32_t **)params[0];

	(void)geometry;
	for (uint64_t i = 0; i < *(uint64_t *)params[2]; i++)
		gantry_count_add(&out[i], *(uint32_t *)params[1]);
	return 0;
}

FAKECUDA_KERNEL(
	probe_answer,
	{
		uint64_t verdict;
		int32_t status;
	},
	FAKECUDA_P(probe_answer, verdict), FAKECUDA_P(probe_answer, status))
{
	struct gantry_cuda_verdict *verdict = *(struct gantry_cuda_verdict **)params[0];

	(void)geometry;
	gantry_store_release(&verdict->status, *(int32_t *)params[1]);
	return 0;
}

FAKECUDA_KERNEL(
	probe_endless, { uint64_t verdict; }, FAKECUDA_P(probe_endless, verdict))
{
	struct gantry_cuda_verdict *verdict = *(struct gantry_cuda_verdict **)params[0];

	while (!gantry_load_acquire(&verdict->cancel) && !geometry->ending(geometry->cookie))
		;
	gantry_store_release(&verdict->status, -ECANCELED);
	return 0;
}
