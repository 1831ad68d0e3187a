/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on matrices. */
#include <limits.h>

#include "devices/kernels/core/cuda/body.h"

static int gemm_arguments(const struct gantry_call *call, struct gpu_gemm *ret_gemm)
{
	/* Products of two u32 fit a u64. */
	uint64_t m = call->args[3].u32, n = call->args[4].u32, k = call->args[5].u32;
	struct gpu_gemm g = {
		.a = ARG(float, call, 0, m *k),
		.b = ARG(float, call, 1, k *n),
		.c = ARG(float, call, 2, m *n),
		.m = m,
		.n = n,
		.k = k,
	};

	if (!g.a || !g.b || !g.c)
		return -EINVAL;
	*ret_gemm = g;
	return 0;
}

static int gemm_ours(struct gantry_env *env, const struct gpu_gemm *g)
{
	uint64_t ntiles = gpu_parts(g->m, GPU_GEMM_TILE) * gpu_parts(g->n, GPU_GEMM_TILE);

	return gpu_launch(env, GPU_gemm, ntiles, GPU_THREADS, g);
}

KERNEL(gemm_plain)
{
	struct gpu_gemm g;
	int r = gemm_arguments(call, &g);

	return r < 0 ? r : gemm_ours(env, &g);
}

KERNEL(gemm)
{
	const float one = 1, zero = 0;
	const struct gantry_cublas *blas;
	struct gpu_gemm g;
	int r = gemm_arguments(call, &g);

	if (r < 0 || g.m == 0 || g.n == 0)
		return r;
	blas = env->handle(env, "cublas");
	/* It counts in int, and has no leading dimension of zero. */
	if (!blas || g.k == 0 || g.m > INT_MAX || g.n > INT_MAX || g.k > INT_MAX)
		return gemm_ours(env, &g);
	/* By columns, as the library counts, ours are transposed: c' = b' a'. */
	r = blas->sgemm(blas->handle, 0, 0, (int)g.n, (int)g.m, (int)g.k, &one, g.b, (int)g.n, g.a,
			(int)g.k, &zero, g.c, (int)g.n);
	return r == 0 ? 0 : -EIO;
}

KERNEL(gaussian_fan1)
{
	uint64_t n = call->args[2].u32, t = call->args[3].u32;
	struct gpu_elimination e = {
		.a = ARG(float, call, 0, n *n),
		.m = ARG(float, call, 1, n *n),
		.n = n,
		.t = t,
		.m_stride = n,
	};

	if (!e.a || !e.m || t >= n)
		return -EINVAL;
	e.m += t;
	return gpu_launch_items(env, GPU_fan1, n - t - 1, &e);
}

KERNEL(gaussian_fan2)
{
	uint64_t n = call->args[3].u32, t = call->args[4].u32;
	struct gpu_elimination e = {
		.m = ARG(float, call, 0, n *n),
		.a = ARG(float, call, 1, n *n),
		.b = ARG(float, call, 2, n),
		.n = n,
		.t = t,
		.m_stride = n,
	};

	if (!e.m || !e.a || !e.b || t >= n)
		return -EINVAL;
	e.m += t;
	return gpu_launch(env, GPU_fan2, n - t - 1, GPU_THREADS, &e);
}

KERNEL(gaussian)
{
	uint64_t n = call->args[3].u32;
	struct gpu_elimination e = {
		.a = ARG(float, call, 0, n *n),
		.b = ARG(float, call, 1, n),
		.x = ARG(float, call, 2, n),
		.n = n,
		.m_stride = 1,
	};
	int r;

	if (!e.a || !e.b || !e.x)
		return -EINVAL;
	if (n == 0)
		return 0;
	e.m = SCRATCH(float, env, n);
	e.rest = SCRATCH(float, env, n);
	if (!e.m || !e.rest)
		return -ENOMEM;
	r = gpu_stop_make(env, &e.stop, &e.verdict);
	return r < 0 ? r : gpu_launch_together(env, GPU_eliminate, n, GPU_THREADS, &e);
}
