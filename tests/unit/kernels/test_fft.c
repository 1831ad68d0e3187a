/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_fft, gantry_kernel_fft_r2c, gantry_kernel_fft_c2r;

/* Devices elsewhere do it by a library that the machine may lack. */
static void want_transforms(void)
{
	struct test_env te;
	float *x, *y;
	int r;

	if (env_is_inside())
		return;
	env_init(&te, ENV_INLINE);
	x = env_array(&te, 4, sizeof(*x));
	y = env_array(&te, 4, sizeof(*y));
	r = RUN(&te, gantry_kernel_fft, SPAN(x, 4), SPAN(y, 4), U32(2), U32(1), I32(1));
	env_fini(&te);
	if (r == ENV_REFUSED)
		gantry_unit_skip("the device has no library for transforms");
}

/* The definition: point @k of the transform of @n points. */
static void plain_point(const float *in, size_t n, size_t k, int sign, double ret_point[2])
{
	double re = 0, im = 0;

	for (size_t j = 0; j < n; j++) {
		double angle = sign * 2 * M_PI * (double)(j * k % n) / (double)n;
		double x = (double)in[2 * j], y = (double)in[2 * j + 1];

		re += x * cos(angle) - y * sin(angle);
		im += x * sin(angle) + y * cos(angle);
	}
	ret_point[0] = re;
	ret_point[1] = im;
}

/* Powers of two, primes, products of small and of large ones. */
static const uint32_t lengths[] = { 1, 2, 3, 4, 5, 7, 8, 12, 64, 97, 100, 243, 1000, 1024, 2018 };
#define NLENGTHS (sizeof(lengths) / sizeof(lengths[0]))

/* Of a transform's points, whose size grows as the root of their number. */
static double tolerance(size_t n)
{
	return 4e-6 * sqrt((double)n) + 1e-6;
}

START_TEST(test_fft_equals_definition_both_ways)
{
	want_transforms();
	for (size_t s = 0; s < NLENGTHS; s++) {
		size_t n = lengths[s], batch = 3, count = 2 * n * batch;
		int sign = s % 2 ? 1 : -1;
		struct test_env te;
		float *in, *out;

		env_init(&te, (enum env_mode)_i);
		in = env_floats(&te, count, 1);
		out = env_array(&te, count, sizeof(*out));
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(in, count), SPAN(out, count),
				     U32((uint32_t)n), U32((uint32_t)batch), I32(sign)),
				 0);
		for (size_t b = 0; b < batch; b++)
			for (size_t k = 0; k < n; k += 1 + n / 50) {
				double want[2];

				plain_point(in + 2 * n * b, n, k, sign, want);
				ASSERT_NEAR(out[2 * (n * b + k)], want[0], tolerance(n));
				ASSERT_NEAR(out[2 * (n * b + k) + 1], want[1], tolerance(n));
			}
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_fft_there_and_back_is_n_times_the_input)
{
	want_transforms();
	for (size_t s = 0; s < NLENGTHS; s++) {
		size_t n = lengths[s], count = 2 * n;
		struct test_env te;
		float *in, *there, *back;

		env_init(&te, ENV_INLINE);
		in = env_floats(&te, count, 2);
		there = env_array(&te, count, sizeof(*there));
		back = env_array(&te, count, sizeof(*back));
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(in, count), SPAN(there, count),
				     U32((uint32_t)n), U32(1), I32(-1)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(there, count), SPAN(back, count),
				     U32((uint32_t)n), U32(1), I32(1)),
				 0);
		for (size_t i = 0; i < count; i++)
			ASSERT_NEAR(back[i] / (float)n, in[i], 4e-6);
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_real_transforms_equal_complex_ones)
{
	want_transforms();
	for (size_t s = 0; s < NLENGTHS; s++) {
		size_t n = lengths[s], half = n / 2 + 1, batch = 2;
		struct test_env te;
		float *in, *points, *out, *back, *wide;

		env_init(&te, (enum env_mode)_i);
		in = env_floats(&te, n * batch, 3);
		points = env_array(&te, 2 * half * batch, sizeof(*points));
		back = env_array(&te, n * batch, sizeof(*back));
		wide = env_array(&te, 2 * n * batch, sizeof(*wide));
		out = env_array(&te, 2 * n * batch, sizeof(*out));
		for (size_t i = 0; i < n * batch; i++)
			wide[2 * i] = in[i];
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(wide, 2 * n * batch),
				     SPAN(out, 2 * n * batch), U32((uint32_t)n),
				     U32((uint32_t)batch), I32(-1)),
				 0);
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft_r2c, SPAN(in, n * batch),
				     SPAN(points, 2 * half * batch), U32((uint32_t)n),
				     U32((uint32_t)batch)),
				 0);
		for (size_t b = 0; b < batch; b++)
			for (size_t i = 0; i < 2 * half; i++)
				ASSERT_NEAR(points[2 * half * b + i], out[2 * n * b + i],
					    tolerance(n));
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft_c2r, SPAN(points, 2 * half * batch),
				     SPAN(back, n * batch), U32((uint32_t)n), U32((uint32_t)batch)),
				 0);
		for (size_t i = 0; i < n * batch; i++)
			ASSERT_NEAR(back[i] / (float)n, in[i], 4e-6);
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_fft_misuse_is_refused)
{
	struct test_env te;
	float *x, *y;

	env_init(&te, ENV_INLINE);
	x = env_array(&te, 64, sizeof(*x));
	y = env_array(&te, 64, sizeof(*y));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x, 63), SPAN(y, 64), U32(16), U32(2),
			     I32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x, 64), SPAN(y, 63), U32(16), U32(2),
			     I32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x, 64), SPAN(y, 64), U32(16), U32(2),
			     I32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x, 64), SPAN(y, 64), U32(UINT32_MAX),
			     U32(UINT32_MAX), I32(1)),
			 REFUSED(EINVAL));
	/* A start that vector loads of a library might not bear. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x + 1, 63), SPAN(y, 64), U32(8), U32(1),
			     I32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft_r2c, SPAN(x, 64), SPAN(y, 63), U32(31), U32(2)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fft_c2r, SPAN(x, 63), SPAN(y, 64), U32(31), U32(2)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(
		RUN(&te, gantry_kernel_fft, SPAN(x, 0), SPAN(y, 0), U32(0), U32(9), I32(1)), 0);
	if (env_is_inside()) {
		te.scratch_limit_bytes = 16;
		ck_assert_int_eq(RUN(&te, gantry_kernel_fft, SPAN(x, 64), SPAN(y, 64), U32(16),
				     U32(2), I32(1)),
				 REFUSED(ENOMEM));
		te.scratch_limit_bytes = 1u << 20;
	}
	te.asks_left = 0;
	ASSERT_CANCELLED(
		RUN(&te, gantry_kernel_fft, SPAN(x, 64), SPAN(y, 64), U32(16), U32(2), I32(1)));
	env_fini(&te);
}
END_TEST

Suite *kernels_fft_suite(void)
{
	Suite *suite = suite_create("kernels/fft");
	TCase *tc = env_case(suite, "fft");

	tcase_add_loop_test(tc, test_fft_equals_definition_both_ways, 0, ENV_NMODES);
	tcase_add_test(tc, test_fft_there_and_back_is_n_times_the_input);
	tcase_add_loop_test(tc, test_real_transforms_equal_complex_ones, 0, ENV_NMODES);
	tcase_add_test(tc, test_fft_misuse_is_refused);
	return suite;
}
