/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of core-cuda.so's host functions, with its device code in the emulator. Host and device share
 * their memory, so that the address sanitizer sees what both do.
 */
#include "devices/cuda/module.h"
#include "devices/kernels/core/cuda/body.h"
#include "tests/unit/kernels/emulator.h"
#include "tests/unit/kernels/env.h"

#define FUNCTION(name) void emulated_##name(const void *args);
#include "devices/kernels/core/cuda/functions.def"
#undef FUNCTION

static emulator_entry *const entries[] = {
#define FUNCTION(name) emulated_##name,
#include "devices/kernels/core/cuda/functions.def"
#undef FUNCTION
};

static struct gantry_cuda_verdict verdict;

static int call_launch(struct gantry_env *env, const struct gantry_cuda_launch *launch)
{
	(void)env;
	ck_assert_uint_lt(launch->function, GPU_NFUNCTIONS);
	ck_assert_uint_eq(launch->nparams, 1);
	ck_assert(launch->grid[1] == 1 && launch->grid[2] == 1);
	ck_assert(launch->block[1] == 1 && launch->block[2] == 1);
	emulator_run(entries[launch->function], launch->grid[0], launch->block[0],
		     launch->flags & GANTRY_CUDA_TOGETHER, launch->params[0]);
	return 0;
}

static int call_set(struct gantry_env *env, void *dst, uint32_t value, uint32_t elem_bytes,
		    uint64_t count)
{
	(void)env;
	ck_assert_uint_eq((uintptr_t)dst % elem_bytes, 0);
	for (uint64_t i = 0; i < count; i++)
		memcpy((char *)dst + i * elem_bytes, &value, elem_bytes);
	return 0;
}

static int call_copy(struct gantry_env *env, void *dst, const void *src, uint64_t bytes)
{
	(void)env;
	memcpy(dst, src, bytes);
	return 0;
}

static int call_occupancy(struct gantry_env *env, uint32_t function, uint32_t nthreads,
			  uint32_t shared_bytes)
{
	(void)env;
	(void)function;
	(void)nthreads;
	(void)shared_bytes;
	return (int)EMULATOR_OCCUPANCY;
}

static struct gantry_cuda_verdict *call_verdict(struct gantry_env *env)
{
	(void)env;
	return &verdict;
}

static struct gantry_cuda_calls calls = {
	.size = sizeof(calls),
	.nunits = EMULATOR_UNITS,
	.launch = call_launch,
	.set = call_set,
	.copy = call_copy,
	.occupancy = call_occupancy,
	.verdict = call_verdict,
};

static float at(const float *matrix, int ld, int op, int row, int col)
{
	return op == 0 ? matrix[(size_t)col * (size_t)ld + (size_t)row]
		       : matrix[(size_t)row * (size_t)ld + (size_t)col];
}

/* By columns, as cuBLAS does it. */
static int plain_sgemm(void *handle, int op_a, int op_b, int m, int n, int k, const float *alpha,
		       const float *a, int lda, const float *b, int ldb, const float *beta,
		       float *c, int ldc)
{
	ck_assert_ptr_eq(handle, &calls);
	ck_assert(lda >= 1 && ldb >= 1 && ldc >= m);
	for (int j = 0; j < n; j++)
		for (int i = 0; i < m; i++) {
			float *to = &c[(size_t)j * (size_t)ldc + (size_t)i], sum = 0;

			for (int l = 0; l < k; l++)
				sum += at(a, lda, op_a, i, l) * at(b, ldb, op_b, l, j);
			*to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);
		}
	return 0;
}

static struct gantry_cublas cublas = {
	.size = sizeof(cublas),
	.handle = &calls,
	.sgemm = plain_sgemm,
};

static void *emulated_handle(struct test_env *te, const char *library)
{
	(void)te;
	if (strcmp(library, "cuda") == 0)
		return &calls;
	return strcmp(library, "cublas") == 0 ? &cublas : NULL;
}

static int emulated_run(struct test_env *te, gantry_body *kernel, const struct gantry_call *call)
{
	int r;

	verdict = (struct gantry_cuda_verdict){ .cancel = te->asks_left >= 0 };
	r = kernel(&te->env, call);
	return r < 0 ? r : verdict.status;
}

static const struct env_device emulated = {
	.run = emulated_run,
	.handle = emulated_handle,
	.is_inside = true,
};

const struct env_device *const env_device = &emulated;
