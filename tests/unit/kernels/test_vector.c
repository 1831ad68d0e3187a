/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_vadd, gantry_kernel_vscale, gantry_kernel_saxpy, gantry_kernel_vsquare,
	gantry_kernel_vreduce_diff, gantry_kernel_dot, gantry_kernel_sum;

#define N 100003u

START_TEST(test_elementwise_kernels_equal_plain_loops)
{
	struct test_env te;
	float *x, *y, *out;

	env_init(&te, (enum env_mode)_i);
	x = env_floats(&te, N, 1);
	y = env_floats(&te, N, 2);
	out = env_array(&te, N, sizeof(*out));

	ck_assert_int_eq(RUN(&te, gantry_kernel_vadd, SPAN(x, N), SPAN(y, N), SPAN(out, N), U64(N)),
			 0);
	for (size_t i = 0; i < N; i++)
		ck_assert_float_eq(out[i], x[i] + y[i]);
	ck_assert_int_eq(
		RUN(&te, gantry_kernel_vscale, F32(-2.5f), SPAN(x, N), SPAN(out, N), U64(N)), 0);
	for (size_t i = 0; i < N; i++)
		ck_assert_float_eq(out[i], -2.5f * x[i]);
	ck_assert_int_eq(RUN(&te, gantry_kernel_vsquare, SPAN(y, N), SPAN(out, N), U64(N)), 0);
	for (size_t i = 0; i < N; i++)
		ck_assert_float_eq(out[i], y[i] * y[i]);
	ck_assert_int_eq(RUN(&te, gantry_kernel_saxpy, F32(0.5f), SPAN(x, N), SPAN(out, N), U64(N)),
			 0);
	for (size_t i = 0; i < N; i++) {
		float square = y[i] * y[i], half = 0.5f * x[i];

		ck_assert_float_eq(out[i], square + half);
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_vsquare_in_place_is_right)
{
	struct test_env te;
	float *x, *want;

	env_init(&te, ENV_THREADS);
	x = env_floats(&te, N, 3);
	want = env_floats(&te, N, 3);
	ck_assert_int_eq(RUN(&te, gantry_kernel_vsquare, SPAN(x, N), SPAN(x, N), U64(N)), 0);
	for (size_t i = 0; i < N; i++)
		ck_assert_float_eq(x[i], want[i] * want[i]);
	env_fini(&te);
}
END_TEST

START_TEST(test_reductions_equal_double_sums)
{
	static const size_t counts[] = { 0, 1, 7, 8, 4095, 4096, 4097, N };
	struct test_env te;
	float *x, *y;

	env_init(&te, (enum env_mode)_i);
	x = env_floats(&te, N, 4);
	y = env_floats(&te, N, 5);
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		size_t n = counts[c];
		double sum = 0, dot = 0, diff = 3;
		float got_sum = -1, got_dot = -1, got_diff = 3;

		for (size_t i = 0; i < n; i++) {
			sum += (double)x[i];
			dot += (double)x[i] * (double)y[i];
			diff += (double)x[i] - (double)y[i];
		}
		ck_assert_int_eq(RUN(&te, gantry_kernel_sum, SPAN(x, n), SPAN(&got_sum, 1), U64(n)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_dot, SPAN(x, n), SPAN(y, n),
				     SPAN(&got_dot, 1), U64(n)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_vreduce_diff, SPAN(x, n), SPAN(y, n),
				     SPAN(&got_diff, 1), U64(n)),
				 0);
		ASSERT_NEAR(got_sum, sum, 1e-5 * (1 + fabs(sum)));
		ASSERT_NEAR(got_dot, dot, 1e-5 * (1 + fabs(dot)));
		ASSERT_NEAR(got_diff, diff, 1e-5 * (1 + fabs(diff)));
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_reductions_give_same_bits_with_and_without_threads)
{
	float got[ENV_NMODES];

	for (int mode = 0; mode < ENV_NMODES; mode++) {
		struct test_env te;
		float *x;

		env_init(&te, (enum env_mode)mode);
		x = env_floats(&te, N, 6);
		ck_assert_int_eq(RUN(&te, gantry_kernel_dot, SPAN(x, N), SPAN(x, N),
				     SPAN(&got[mode], 1), U64(N)),
				 0);
		env_fini(&te);
	}
	ck_assert_mem_eq(&got[0], &got[1], sizeof(float));
}
END_TEST

/*
 * The VEC suite: x = 1/(i+1), y = 2/(i+1), the sum of x^2 - y^2 in 16 parts is -3 sum 1/k^2 ->
 * -pi^2 / 2.
 */
START_TEST(test_vec_suite_converges_to_minus_half_pi_squared)
{
	const size_t n = 1600000, nparts = 16, part = n / nparts;
	struct test_env te;
	float *x, *y;
	double total = 0;

	env_init(&te, (enum env_mode)_i);
	x = env_array(&te, part, sizeof(*x));
	y = env_array(&te, part, sizeof(*y));
	for (size_t p = 0; p < nparts; p++) {
		float res = 0;

		for (size_t i = 0; i < part; i++) {
			x[i] = 1.0f / (float)(p * part + i + 1);
			y[i] = 2.0f / (float)(p * part + i + 1);
		}
		ck_assert_int_eq(RUN(&te, gantry_kernel_vsquare, SPAN(x, part), SPAN(x, part),
				     U64(part)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_vsquare, SPAN(y, part), SPAN(y, part),
				     U64(part)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_vreduce_diff, SPAN(x, part), SPAN(y, part),
				     SPAN(&res, 1), U64(part)),
				 0);
		total += (double)res;
	}
	/* What is missing of the series is 3 / n. */
	ASSERT_NEAR(total, -M_PI * M_PI / 2, 5e-6);
	env_fini(&te);
}
END_TEST

START_TEST(test_vector_counts_past_any_span_are_refused)
{
	struct test_env te;
	float *x, *y, *out;

	env_init(&te, ENV_INLINE);
	x = env_floats(&te, 8, 1);
	y = env_floats(&te, 8, 1);
	out = env_array(&te, 8, sizeof(*out));
	for (size_t narrow = 0; narrow < 3; narrow++) {
		size_t nx = 8 - (narrow == 0), ny = 8 - (narrow == 1), nout = 8 - (narrow == 2);
		size_t nright = narrow == 1 ? 7 : nout;

		ck_assert_int_eq(RUN(&te, gantry_kernel_vadd, SPAN(x, nx), SPAN(y, ny),
				     SPAN(out, nout), U64(8)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, gantry_kernel_vscale, F32(1), SPAN(x, nx),
				     SPAN(out, nright), U64(8)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, gantry_kernel_saxpy, F32(1), SPAN(x, nx),
				     SPAN(out, nright), U64(8)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, gantry_kernel_vsquare, SPAN(x, nx), SPAN(out, nright),
				     U64(8)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, gantry_kernel_dot, SPAN(x, nx), SPAN(y, ny),
				     SPAN(out, narrow == 2 ? 0 : 1), U64(8)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, gantry_kernel_vreduce_diff, SPAN(x, nx), SPAN(y, ny),
				     SPAN(out, narrow == 2 ? 0 : 1), U64(8)),
				 REFUSED(EINVAL));
	}
	ck_assert_int_eq(RUN(&te, gantry_kernel_sum, SPAN(x, 8), SPAN(out, 1), U64(9)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_sum, SPAN(x, 8), SPAN(out, 0), U64(8)),
			 REFUSED(EINVAL));
	for (size_t i = 0; i < 8; i++)
		ck_assert_float_eq(out[i], 0);
	env_fini(&te);
}
END_TEST

Suite *kernels_vector_suite(void)
{
	Suite *suite = suite_create("kernels/vector");
	TCase *tc = env_case(suite, "vector");

	tcase_add_loop_test(tc, test_elementwise_kernels_equal_plain_loops, 0, ENV_NMODES);
	tcase_add_test(tc, test_vsquare_in_place_is_right);
	tcase_add_loop_test(tc, test_reductions_equal_double_sums, 0, ENV_NMODES);
	tcase_add_test(tc, test_reductions_give_same_bits_with_and_without_threads);
	tcase_add_loop_test(tc, test_vec_suite_converges_to_minus_half_pi_squared, 0, ENV_NMODES);
	tcase_add_test(tc, test_vector_counts_past_any_span_are_refused);
	return suite;
}
