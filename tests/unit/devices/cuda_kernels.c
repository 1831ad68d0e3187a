/* SPDX-License-Identifier: Apache-2.0 */
/* Device functions of the cuda backend's test, for the fake driver. */
#include <time.h>

#include "base/atomic.h"
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

/* --*left, which becomes the condition's value. */
FAKECUDA_KERNEL(
	count_down,
	{
		uint64_t condition;
		uint64_t left;
	},
	FAKECUDA_P(count_down, condition), FAKECUDA_P(count_down, left))
{
	uint32_t *left = *(uint32_t **)params[1];

	return geometry->set_condition(*(uint64_t *)params[0], --*left) ? 700 : 0;
}

FAKECUDA_KERNEL(
	nap, { uint32_t ms; }, FAKECUDA_P(nap, ms))
{
	const struct timespec time = { .tv_nsec = *(uint32_t *)params[0] * 1000000l };

	(void)geometry;
	(void)nanosleep(&time, NULL); /* cut short is a shorter nap */
	return 0;
}

/* Runs for as long as its context is there. */
FAKECUDA_KERNEL(
	stay, { uint32_t unused; }, FAKECUDA_P(stay, unused))
{
	const struct timespec tick = { .tv_nsec = 1000000 };

	(void)params;
	while (!geometry->ending(geometry->cookie))
		(void)nanosleep(&tick, NULL);
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Works for so long, and says in *took_us how long that was on a busy machine. */
FAKECUDA_KERNEL(
	busy,
	{
		uint64_t took_us;
		uint32_t us;
	},
	FAKECUDA_P(busy, took_us), FAKECUDA_P(busy, us))
{
	uint64_t start = now_ns(), us;

	(void)geometry;
	do
		us = (now_ns() - start) / 1000;
	while (us < *(uint32_t *)params[1]);
	**(uint32_t **)params[0] = (uint32_t)us;
	return 0;
}

/* Stores -errno where it was told to, as device code of an installed module does. */
FAKECUDA_KERNEL(
	judge,
	{
		uint64_t status;
		int32_t value;
	},
	FAKECUDA_P(judge, status), FAKECUDA_P(judge, value))
{
	(void)geometry;
	**(int32_t **)params[0] = *(int32_t *)params[1];
	return 0;
}

/* Ends with this CUresult. */
FAKECUDA_KERNEL(
	result, { uint32_t code; }, FAKECUDA_P(result, code))
{
	(void)geometry;
	return (int)*(uint32_t *)params[0];
}

/* Runs until its cell says that it should stop; then it says so itself. */
FAKECUDA_KERNEL(
	linger, { uint64_t verdict; }, FAKECUDA_P(linger, verdict))
{
	uint32_t *cell = *(uint32_t **)params[0];
	const struct timespec tick = { .tv_nsec = 1000000 };

	while (!gantry_load_relaxed(&cell[1]) && !geometry->ending(geometry->cookie))
		(void)nanosleep(&tick, NULL);
	gantry_store_relaxed(&cell[0], (uint32_t)-125); /* -ECANCELED */
	return 0;
}
