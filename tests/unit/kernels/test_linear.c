/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_gaussian_fan1, gantry_kernel_gaussian_fan2, gantry_kernel_gaussian;

/* Rodinia's matrix: a_ij = 10 e^(-0.01 |i - j|), b = 1. */
static float *matrix(struct test_env *te, size_t n)
{
	float *a = env_array(te, n * n, sizeof(*a));

	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++)
			a[i * n + j] = (float)(10 * exp(-0.01 * fabs((double)i - (double)j)));
	return a;
}

static float *ones(struct test_env *te, size_t n)
{
	float *b = env_array(te, n, sizeof(*b));

	for (size_t i = 0; i < n; i++)
		b[i] = 1;
	return b;
}

static double residual(const float *a, const float *x, size_t n)
{
	double worst = 0;

	for (size_t i = 0; i < n; i++) {
		double sum = -1;

		for (size_t j = 0; j < n; j++)
			sum += (double)a[i * n + j] * (double)x[j];
		worst = fmax(worst, fabs(sum));
	}
	return worst;
}

START_TEST(test_gaussian_leaves_small_residual)
{
	static const uint32_t sizes[] = { 1, 2, 17, 256 };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint32_t n = sizes[s];
		size_t nn = (size_t)n * n;
		struct test_env te;
		float *a, *kept, *b, *x;

		env_init(&te, (enum env_mode)_i);
		a = matrix(&te, n);
		kept = matrix(&te, n);
		b = ones(&te, n);
		x = env_array(&te, n, sizeof(*x));
		ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian, SPAN(a, nn), SPAN(b, n),
				     SPAN(x, n), U32(n)),
				 0);
		ck_assert_double_lt(residual(kept, x, n), 1e-4);
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_gaussian_fans_step_by_step_equal_whole_elimination)
{
	const uint32_t n = 70;
	const size_t nn = (size_t)n * n;
	struct test_env te;
	float *a, *whole_a, *m, *b, *whole_b, *x;

	env_init(&te, (enum env_mode)_i);
	a = matrix(&te, n);
	whole_a = matrix(&te, n);
	m = env_array(&te, nn, sizeof(*m));
	b = ones(&te, n);
	whole_b = ones(&te, n);
	x = env_array(&te, n, sizeof(*x));
	for (uint32_t t = 0; t < n - 1; t++) {
		ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan1, SPAN(a, nn), SPAN(m, nn),
				     U32(n), U32(t)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan2, SPAN(m, nn), SPAN(a, nn),
				     SPAN(b, n), U32(n), U32(t)),
				 0);
	}
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian, SPAN(whole_a, nn), SPAN(whole_b, n),
			     SPAN(x, n), U32(n)),
			 0);
	ck_assert_mem_eq(a, whole_a, nn * sizeof(*a));
	ck_assert_mem_eq(b, whole_b, n * sizeof(*b));
	/* Below the diagonal all is cleared. */
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			ASSERT_NEAR(a[i * n + j], 0, 1e-5);
	env_fini(&te);
}
END_TEST

START_TEST(test_gaussian_misuse_is_refused)
{
	struct test_env te;
	float a[16] = { 0 }, m[16] = { 0 }, b[4] = { 0 }, x[4] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan1, SPAN(a, 15), SPAN(m, 16), U32(4),
			     U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan1, SPAN(a, 16), SPAN(m, 15), U32(4),
			     U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan1, SPAN(a, 16), SPAN(m, 16), U32(4),
			     U32(4)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan1, SPAN(a, 16), SPAN(m, 16), U32(0),
			     U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan2, SPAN(m, 16), SPAN(a, 16), SPAN(b, 3),
			     U32(4), U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_fan2, SPAN(m, 16), SPAN(a, 16), SPAN(b, 4),
			     U32(4), U32(UINT32_MAX)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian, SPAN(a, 16), SPAN(b, 4), SPAN(x, 3),
			     U32(4)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian, SPAN(a, 16), SPAN(b, 4), SPAN(x, 4),
			     U32(UINT32_MAX)),
			 REFUSED(EINVAL));
	/* A singular matrix is no misuse: NaN comes out. */
	ck_assert_int_eq(
		RUN(&te, gantry_kernel_gaussian, SPAN(a, 16), SPAN(b, 4), SPAN(x, 4), U32(4)), 0);
	te.asks_left = 1;
	ASSERT_CANCELLED(
		RUN(&te, gantry_kernel_gaussian, SPAN(a, 16), SPAN(b, 4), SPAN(x, 4), U32(4)));
	env_fini(&te);
}
END_TEST

Suite *kernels_linear_suite(void)
{
	Suite *suite = suite_create("kernels/linear");
	TCase *tc = env_case(suite, "linear");

	tcase_add_loop_test(tc, test_gaussian_leaves_small_residual, 0, ENV_NMODES);
	tcase_add_loop_test(tc, test_gaussian_fans_step_by_step_equal_whole_elimination, 0,
			    ENV_NMODES);
	tcase_add_test(tc, test_gaussian_misuse_is_refused);
	return suite;
}
