/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on matrices. */
#include "devices/kernels/core/opencl/body.h"

/* Columns that one work-item makes; the same as in matrix.cl. */
#define GEMM_COLS 16u

static int product(struct gantry_env *env, const struct gantry_call *call)
{
	/* Products of two u32 fit a u64. */
	uint64_t m = call->args[3].u32, n = call->args[4].u32, k = call->args[5].u32;
	uint64_t strips = (n + GEMM_COLS - 1) / GEMM_COLS;
	ocl_buffer a = ARG(float, call, 0, m *k), b = ARG(float, call, 1, k *n);
	ocl_buffer c = ARG(float, call, 2, m *n);

	if (!a || !b || !c)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_gemm, m * strips, BUF(a), BUF(b), BUF(c), VAL(m), VAL(n),
			    VAL(k), VAL(strips));
}

KERNEL(gemm_plain)
{
	return product(env, call);
}

/* OpenCL has no library of its own for it. */
KERNEL(gemm)
{
	return product(env, call);
}

KERNEL(gaussian_fan1)
{
	uint64_t n = call->args[2].u32, t = call->args[3].u32;
	ocl_buffer a = ARG(float, call, 0, n *n), m = ARG(float, call, 1, n *n);

	if (!a || !m || t >= n)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_fan1, n - t - 1, BUF(a), BUF(m), VAL(n), VAL(t));
}

KERNEL(gaussian_fan2)
{
	uint64_t n = call->args[3].u32, t = call->args[4].u32;
	ocl_buffer m = ARG(float, call, 0, n *n), a = ARG(float, call, 1, n *n);
	ocl_buffer b = ARG(float, call, 2, n);

	if (!m || !a || !b || t >= n)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_fan2, (n - t - 1) * (n - t), BUF(m), BUF(a), BUF(b), VAL(n),
			    VAL(t));
}

KERNEL(gaussian)
{
	uint64_t n = call->args[3].u32;
	ocl_buffer a = ARG(float, call, 0, n *n), b = ARG(float, call, 1, n);
	ocl_buffer x = ARG(float, call, 2, n), m, verdict;

	if (!a || !b || !x)
		return -EINVAL;
	if (n == 0)
		return 0;
	m = SCRATCH(float, env, n);
	verdict = ocl_calls(env)->verdict(env);
	if (!m || !verdict)
		return -ENOMEM;
	return LAUNCH_GROUP(env, OCL_gaussian, BUF(a), BUF(b), BUF(x), BUF(m), BUF(verdict),
			    VAL(n));
}
