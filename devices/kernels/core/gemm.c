/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products C = A B of row-major f32: our own, and OpenBLAS's where the device has it. */
#include <limits.h>
#include <string.h>

#include "devices/kernels/kernel.h"
#include "devices/kernels/openblas.h"

/*
 * A panel of B of DEPTH x WIDTH floats is 128 KiB: it stays in a second-level cache while rows pass
 * over it.
 */
#define DEPTH 128u
#define WIDTH 256u
/* Rows between two questions whether the task was cancelled. */
#define ROWS_PER_ASK 512u
#define ROW_GRAIN    8u

struct gemm {
	const float *a;
	const float *b;
	float *c;
	uint64_t m, n, k;
	uint64_t row; /* where the range begins that lanes count from */
};

/* c[0, width) += a[0, depth) * b[0, depth)[0, width), rows of b being @stride apart. */
HOT static void row_by_panel(const float *a, const float *b, uint64_t stride, float *c,
			     uint64_t depth, uint64_t width)
{
	float acc[WIDTH];

	memcpy(acc, c, width * sizeof(*c));
	for (uint64_t l = 0; l < depth; l++) {
		const float *row = b + l * stride;
		float factor = a[l];

		for (uint64_t j = 0; j < width; j++)
			acc[j] += factor * row[j];
	}
	memcpy(c, acc, width * sizeof(*c));
}

static void gemm_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct gemm *g = arg;

	begin += g->row;
	end += g->row;
	memset(g->c + begin * g->n, 0, (end - begin) * g->n * sizeof(*g->c));

	for (uint64_t l = 0; l < g->k; l += DEPTH) {
		uint64_t depth = gantry_min_u64(DEPTH, g->k - l);

		for (uint64_t j = 0; j < g->n; j += WIDTH) {
			uint64_t width = gantry_min_u64(WIDTH, g->n - j);

			for (uint64_t i = begin; i < end; i++)
				row_by_panel(g->a + i * g->k + l, g->b + l * g->n + j, g->n,
					     g->c + i * g->n + j, depth, width);
		}
	}
}

static int gemm_arguments(const struct gantry_call *call, struct gemm *ret_gemm)
{
	/* Products of two u32 fit a u64. */
	uint64_t m = call->args[3].u32, n = call->args[4].u32, k = call->args[5].u32;
	uint64_t na = m * k, nb = k * n, nc = m * n;
	struct gemm g = {
		.a = ARG(float, call, 0, na),
		.b = ARG(float, call, 1, nb),
		.c = ARG(float, call, 2, nc),
		.m = m,
		.n = n,
		.k = k,
	};

	if (!g.a || !g.b || !g.c)
		return -EINVAL;
	*ret_gemm = g;
	return 0;
}

static int gemm_ours(struct gantry_env *env, struct gemm *g)
{
	for (g->row = 0; g->n != 0 && g->row < g->m; g->row += ROWS_PER_ASK) {
		uint64_t rows = gantry_min_u64(ROWS_PER_ASK, g->m - g->row);

		if (env->cancelled(env))
			return -ECANCELED;
		env->parallel(env, rows, ROW_GRAIN, gemm_rows, g);
	}
	return 0;
}

KERNEL(gemm_plain)
{
	struct gemm g;
	int r = gemm_arguments(call, &g);

	return r < 0 ? r : gemm_ours(env, &g);
}

struct blas_gemm {
	struct gemm g;
	const struct gantry_openblas *blas;
};

static void blas_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct blas_gemm *bg = arg;
	const struct gemm *g = &bg->g;

	bg->blas->sgemm(GANTRY_CBLAS_ROW_MAJOR, GANTRY_CBLAS_NO_TRANS, GANTRY_CBLAS_NO_TRANS,
			(int)(end - begin), (int)g->n, (int)g->k, 1.0f, g->a + begin * g->k,
			(int)g->k, g->b, (int)g->n, 0.0f, g->c + begin * g->n, (int)g->n);
}

KERNEL(gemm)
{
	struct blas_gemm bg;
	int r = gemm_arguments(call, &bg.g);

	if (r < 0)
		return r;
	bg.blas = env->handle(env, "openblas");
	/* The LP64 library counts in int, and has no leading dimension of zero. */
	if (!bg.blas || bg.g.k == 0 || bg.g.n == 0 || bg.g.m > INT_MAX || bg.g.n > INT_MAX ||
	    bg.g.k > INT_MAX)
		return gemm_ours(env, &bg.g);
	env->parallel(env, bg.g.m, 64, blas_rows, &bg);
	return 0;
}
