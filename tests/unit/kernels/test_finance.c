/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_black_scholes, gantry_kernel_black_scholes_book;

#define N 5003u

START_TEST(test_black_scholes_gives_prices_of_the_suite)
{
	static const double spots[] = { 59.5, 60, 60.5 };
	static const double prices[] = { 9.098568, 9.426783, 9.760077 };
	struct test_env te;
	double got[3];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes, SPAN(spots, 3), SPAN(got, 3), U64(3),
			     F64(0.08), F64(0.3), F64(1), F64(60)),
			 0);
	for (size_t i = 0; i < 3; i++)
		ASSERT_NEAR(got[i], prices[i], 1e-6);
	env_fini(&te);
}
END_TEST

static double exact_phi(double d)
{
	return 0.5 * erfc(-d / sqrt(2));
}

static double exact_call(double spot, double strike, double rate, double volatility, double years)
{
	double spread = volatility * sqrt(years);
	double d1 = (log(spot / strike) + (rate + volatility * volatility / 2) * years) / spread;

	return spot * exact_phi(d1) - strike * exp(-rate * years) * exact_phi(d1 - spread);
}

START_TEST(test_black_scholes_is_near_exact_distribution)
{
	struct test_env te;
	double *spot, *price;

	env_init(&te, (enum env_mode)_i);
	spot = env_array(&te, N, sizeof(*spot));
	price = env_array(&te, N, sizeof(*price));
	for (size_t i = 0; i < N; i++)
		spot[i] = 20 + 0.02 * (double)i;
	ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes, SPAN(spot, N), SPAN(price, N),
			     U64(N), F64(0.05), F64(0.25), F64(0.5), F64(70)),
			 0);
	/* The polynomial errs by 7.5e-8 on each side. */
	for (size_t i = 0; i < N; i++)
		ASSERT_NEAR(price[i], exact_call(spot[i], 70, 0.05, 0.25, 0.5), 2e-5);
	env_fini(&te);
}
END_TEST

START_TEST(test_black_scholes_book_prices_calls_and_puts)
{
	struct test_env te;
	float *spot, *strike, *years, *call, *put;

	env_init(&te, (enum env_mode)_i);
	spot = env_floats(&te, N, 1);
	strike = env_floats(&te, N, 2);
	years = env_floats(&te, N, 3);
	call = env_array(&te, N, sizeof(*call));
	put = env_array(&te, N, sizeof(*put));
	for (size_t i = 0; i < N; i++) {
		spot[i] = 60 + 30 * spot[i];
		strike[i] = 60 + 30 * strike[i];
		years[i] = 1.5f + years[i];
	}
	ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes_book, SPAN(spot, N), SPAN(strike, N),
			     SPAN(years, N), SPAN(call, N), SPAN(put, N), U64(N), F32(0.02f),
			     F32(0.3f)),
			 0);
	for (size_t i = 0; i < N; i++) {
		double s = (double)spot[i], k = (double)strike[i], t = (double)years[i];
		double want = exact_call(s, k, 0.02, 0.3, t);

		ASSERT_NEAR(call[i], want, 2e-4);
		ASSERT_NEAR(put[i], want - s + k * exp(-0.02 * t), 2e-4);
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_finance_counts_past_spans_are_refused)
{
	struct test_env te;
	double d[4] = { 0 };
	float f[4] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes, SPAN(d, 4), SPAN(d, 3), U64(4),
			     F64(0), F64(1), F64(1), F64(1)),
			 REFUSED(EINVAL));
	for (size_t narrow = 0; narrow < 5; narrow++)
		ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes_book,
				     SPAN(f, 4 - (narrow == 0)), SPAN(f, 4 - (narrow == 1)),
				     SPAN(f, 4 - (narrow == 2)), SPAN(f, 4 - (narrow == 3)),
				     SPAN(f, 4 - (narrow == 4)), U64(4), F32(0), F32(1)),
				 REFUSED(EINVAL));
	/* Nonsense is not misuse: whatever number comes of it. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_black_scholes, SPAN(d, 4), SPAN(d, 4), U64(4),
			     F64(NAN), F64(0), F64(-1), F64(0)),
			 0);
	env_fini(&te);
}
END_TEST

Suite *kernels_finance_suite(void)
{
	Suite *suite = suite_create("kernels/finance");
	TCase *tc = env_case(suite, "finance");

	tcase_add_test(tc, test_black_scholes_gives_prices_of_the_suite);
	tcase_add_loop_test(tc, test_black_scholes_is_near_exact_distribution, 0, ENV_NMODES);
	tcase_add_loop_test(tc, test_black_scholes_book_prices_calls_and_puts, 0, ENV_NMODES);
	tcase_add_test(tc, test_finance_counts_past_spans_are_refused);
	return suite;
}
