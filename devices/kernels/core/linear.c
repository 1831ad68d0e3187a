/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gaussian elimination without pivoting, of row-major f32 (after Rodinia's gaussian: Fan1 makes the
 * multipliers of one column, Fan2 applies them). A zero pivot gives infinities and NaN, as on any
 * device.
 */
#include "devices/kernels/kernel.h"

#define FAN1_GRAIN 4096u
/* Elements that make a range of rows worth another lane. */
#define FAN2_GRAIN 16384u

struct elimination {
	float *a;
	float *b;
	float *m;
	uint64_t n;
	uint64_t t; /* the column being cleared */
	/* Where multiplier i is: m[i * m_stride]. */
	uint64_t m_stride;
};

/* Ranges count rows from t + 1. */
static void fan1_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct elimination *e = arg;
	float pivot = e->a[e->t * e->n + e->t];

	for (uint64_t i = begin + e->t + 1; i < end + e->t + 1; i++)
		e->m[i * e->m_stride] = e->a[i * e->n + e->t] / pivot;
}

HOT static void subtract_row(float *row, const float *pivot_row, float factor, uint64_t n)
{
	for (uint64_t j = 0; j < n; j++)
		row[j] -= factor * pivot_row[j];
}

static void fan2_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct elimination *e = arg;
	const float *pivot_row = e->a + e->t * e->n + e->t;
	float pivot_b = e->b[e->t];

	for (uint64_t i = begin + e->t + 1; i < end + e->t + 1; i++) {
		float factor = e->m[i * e->m_stride];

		subtract_row(e->a + i * e->n + e->t, pivot_row, factor, e->n - e->t);
		e->b[i] -= factor * pivot_b;
	}
}

static void fan2(struct gantry_env *env, struct elimination *e)
{
	uint64_t grain = FAN2_GRAIN / (e->n - e->t) + 1;

	env->parallel(env, e->n - e->t - 1, grain, fan2_range, e);
}

KERNEL(gaussian_fan1)
{
	uint64_t n = call->args[2].u32, t = call->args[3].u32, nn = n * n;
	float *m = ARG(float, call, 1, nn);
	struct elimination e = {
		.a = ARG(float, call, 0, nn),
		.n = n,
		.t = t,
		.m_stride = n,
	};

	if (!e.a || !m || t >= n)
		return -EINVAL;
	e.m = m + t;
	env->parallel(env, n - t - 1, FAN1_GRAIN, fan1_range, &e);
	return 0;
}

KERNEL(gaussian_fan2)
{
	uint64_t n = call->args[3].u32, t = call->args[4].u32, nn = n * n;
	float *m = ARG(float, call, 0, nn);
	struct elimination e = {
		.a = ARG(float, call, 1, nn),
		.b = ARG(float, call, 2, n),
		.n = n,
		.t = t,
		.m_stride = n,
	};

	if (!m || !e.a || !e.b || t >= n)
		return -EINVAL;
	e.m = m + t;
	fan2(env, &e);
	return 0;
}

static void substitute_back(const struct elimination *e, float *x)
{
	for (uint64_t i = e->n; i-- > 0;) {
		const float *row = e->a + i * e->n;
		float rest = e->b[i];

		for (uint64_t j = i + 1; j < e->n; j++)
			rest -= row[j] * x[j];
		x[i] = rest / row[i];
	}
}

KERNEL(gaussian)
{
	uint64_t n = call->args[3].u32, nn = n * n;
	float *x = ARG(float, call, 2, n);
	struct elimination e = {
		.a = ARG(float, call, 0, nn),
		.b = ARG(float, call, 1, n),
		.n = n,
		.m_stride = 1,
	};

	if (!e.a || !e.b || !x)
		return -EINVAL;
	e.m = SCRATCH(float, env, n + 1);
	if (!e.m)
		return -ENOMEM;

	for (e.t = 0; e.t + 1 < n; e.t++) {
		if (env->cancelled(env))
			return -ECANCELED;
		env->parallel(env, n - e.t - 1, FAN1_GRAIN, fan1_range, &e);
		fan2(env, &e);
	}
	substitute_back(&e, x);
	return 0;
}
