/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of core-cuda.so's host functions, with its device code in the emulator. Host and device share
 * their memory, so that the address sanitizer sees what both do.
 */
#include <math.h>

#include "devices/cuda/module.h"
#include "devices/kernels/core/cuda/body.h"
#include "tests/unit/kernels/emulator.h"
#include "tests/unit/kernels/env.h"

#define FUNCTION(name, type) void emulated_##name(const void *args);
#include "devices/kernels/core/cuda/functions.def"
#undef FUNCTION

static emulator_entry *const entries[] = {
#define FUNCTION(name, type) emulated_##name,
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

/* cuFFT by the definition of the transform; a plan is the number of its place here. */
#define PLANS_MAX  16
#define WORK_BYTES 4096u

static struct {
	int kind, n, batch;
	char *work;
} plans[PLANS_MAX];
static int nplans;

static int plain_plan(void *cache, int kind, int n, int batch, int *ret_plan,
		      uint64_t *ret_work_bytes)
{
	ck_assert_ptr_eq(cache, plans);
	ck_assert_int_lt(nplans, PLANS_MAX);
	plans[nplans].kind = kind;
	plans[nplans].n = n;
	plans[nplans].batch = batch;
	*ret_plan = nplans++;
	*ret_work_bytes = WORK_BYTES;
	return 0;
}

static int plain_work(int plan, void *memory)
{
	plans[plan].work = memory;
	return 0;
}

/* Point @k of the transform of @n points from @in. */
static void plain_point(const float *in, int n, int k, int direction, float ret_point[2])
{
	double re = 0, im = 0;

	for (int j = 0; j < n; j++) {
		double angle = direction * 2 * M_PI * (double)((int64_t)j * k % n) / n;
		double x = (double)in[2 * j], y = (double)in[2 * j + 1];

		re += x * cos(angle) - y * sin(angle);
		im += x * sin(angle) + y * cos(angle);
	}
	ret_point[0] = (float)re;
	ret_point[1] = (float)im;
}

static void plan_used(int plan, int kind)
{
	ck_assert_int_eq(plans[plan].kind, kind);
	/* All of it is there. */
	memset(plans[plan].work, 0x5a, WORK_BYTES);
}

static int plain_c2c(int plan, void *in, void *out, int direction)
{
	int n = plans[plan].n;

	plan_used(plan, GANTRY_CUFFT_C2C);
	for (int b = 0; b < plans[plan].batch; b++)
		for (int k = 0; k < n; k++)
			plain_point((float *)in + 2 * n * b, n, k, direction,
				    (float *)out + 2 * (n * b + k));
	return 0;
}

static int plain_r2c(int plan, float *in, void *out)
{
	int n = plans[plan].n, half = n / 2 + 1;
	float *points = calloc((size_t)n, 2 * sizeof(*points));

	plan_used(plan, GANTRY_CUFFT_R2C);
	ck_assert_ptr_nonnull(points);
	for (int b = 0; b < plans[plan].batch; b++) {
		for (int i = 0; i < n; i++)
			points[2 * i] = in[n * b + i];
		for (int k = 0; k < half; k++)
			plain_point(points, n, k, -1, (float *)out + 2 * (half * b + k));
	}
	free(points);
	return 0;
}

static int plain_c2r(int plan, void *in, float *out)
{
	int n = plans[plan].n, half = n / 2 + 1;
	float *points = calloc((size_t)n, 2 * sizeof(*points)), point[2];

	plan_used(plan, GANTRY_CUFFT_C2R);
	ck_assert_ptr_nonnull(points);
	for (int b = 0; b < plans[plan].batch; b++) {
		const float *from = (float *)in + 2 * half * b;

		for (int i = 0; i < n; i++) {
			points[2 * i] = from[2 * (i < half ? i : n - i)];
			points[2 * i + 1] = i < half ? from[2 * i + 1] : -from[2 * (n - i) + 1];
		}
		points[1] = 0;
		if (n % 2 == 0)
			points[n + 1] = 0;
		for (int k = 0; k < n; k++) {
			plain_point(points, n, k, 1, point);
			out[n * b + k] = point[0];
		}
	}
	free(points);
	return 0;
}

static struct gantry_cufft cufft = {
	.size = sizeof(cufft),
	.cache = plans,
	.plan = plain_plan,
	.work = plain_work,
	.c2c = plain_c2c,
	.r2c = plain_r2c,
	.c2r = plain_c2r,
};

static void *emulated_handle(struct test_env *te, const char *library)
{
	(void)te;
	if (strcmp(library, "cuda") == 0)
		return &calls;
	if (strcmp(library, "cufft") == 0)
		return &cufft;
	return strcmp(library, "cublas") == 0 ? &cublas : NULL;
}

static int emulated_run(struct test_env *te, gantry_body *kernel, const struct gantry_call *call)
{
	int r;

	verdict = (struct gantry_cuda_verdict){ .cancel = te->asks_left >= 0 };
	nplans = 0;
	r = kernel(&te->env, call);
	return r < 0 ? r : verdict.status;
}

static const struct env_device emulated = {
	.run = emulated_run,
	.handle = emulated_handle,
	.is_inside = true,
};

const struct env_device *const env_device = &emulated;
