/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "devices/kernels/core/philox.h"
#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_random_u32, gantry_kernel_random_uniform, gantry_kernel_random_normal;

#define N 100003u

/* Known answers that come with the paper's own library. */
START_TEST(test_philox_gives_published_words)
{
	static const struct {
		uint64_t seed, stream, counter;
		uint32_t words[4];
	} known[] = {
		{ 0, 0, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ UINT64_MAX,
		  UINT64_MAX,
		  UINT64_MAX,
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ 0x299f31d0a4093822,
		  0x0370734413198a2e,
		  0x85a308d3243f6a88,
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		uint32_t words[4];

		philox(known[i].seed, known[i].stream, known[i].counter, words);
		ck_assert_mem_eq(words, known[i].words, sizeof(words));
	}
}
END_TEST

START_TEST(test_random_u32_begins_with_first_counter)
{
	static const uint32_t want[4] = { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 };
	struct test_env te;
	uint32_t x[4];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_u32, SPAN(x, 4), U64(4), U64(0), U64(0)), 0);
	ck_assert_mem_eq(x, want, sizeof(x));
	env_fini(&te);
}
END_TEST

START_TEST(test_random_made_in_parts_equals_whole)
{
	struct test_env te;
	float *whole, *parts;
	size_t half = N / 2 + 3; /* no multiple of four */
	gantry_body *kernel = _i % 2 ? gantry_kernel_random_normal : gantry_kernel_random_uniform;

	env_init(&te, _i < 2 ? ENV_INLINE : ENV_THREADS);
	whole = env_array(&te, N, sizeof(*whole));
	parts = env_array(&te, N, sizeof(*parts));
	ck_assert_int_eq(RUN(&te, kernel, SPAN(whole, N), U64(N), U64(5), U64(11), F32(1), F32(2)),
			 0);
	ck_assert_int_eq(
		RUN(&te, kernel, SPAN(parts, half), U64(half), U64(5), U64(11), F32(1), F32(2)), 0);
	ck_assert_int_eq(RUN(&te, kernel, SPAN(parts + half, N - half), U64(N - half), U64(5),
			     U64(11 + half), F32(1), F32(2)),
			 0);
	ck_assert_mem_eq(whole, parts, N * sizeof(*whole));
	env_fini(&te);
}
END_TEST

static void moments(const float *x, size_t n, double *ret_mean, double *ret_variance)
{
	double sum = 0, squares = 0;

	for (size_t i = 0; i < n; i++) {
		sum += (double)x[i];
		squares += (double)x[i] * (double)x[i];
	}
	*ret_mean = sum / (double)n;
	*ret_variance = squares / (double)n - *ret_mean * *ret_mean;
}

START_TEST(test_random_uniform_is_uniform)
{
	struct test_env te;
	double mean, variance;
	size_t bins[10] = { 0 };
	float *x;

	env_init(&te, ENV_THREADS);
	x = env_array(&te, N, sizeof(*x));
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_uniform, SPAN(x, N), U64(N), U64(42), U64(0),
			     F32(0), F32(1)),
			 0);
	for (size_t i = 0; i < N; i++) {
		ck_assert(x[i] >= 0 && x[i] < 1);
		bins[(size_t)(x[i] * 10)]++;
	}
	/* Five standard errors each. */
	moments(x, N, &mean, &variance);
	ASSERT_NEAR(mean, 0.5, 5 * sqrt(1.0 / 12 / N));
	ASSERT_NEAR(variance, 1.0 / 12, 5 * sqrt(1.0 / 180 / N));
	for (size_t i = 0; i < 10; i++)
		ASSERT_NEAR(bins[i], N * 0.1, 5 * sqrt(N * 0.09));
	env_fini(&te);
}
END_TEST

START_TEST(test_random_normal_has_mean_and_deviation_asked)
{
	struct test_env te;
	double mean, variance;
	size_t within = 0;
	float *x;

	env_init(&te, ENV_THREADS);
	x = env_array(&te, N, sizeof(*x));
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_normal, SPAN(x, N), U64(N), U64(42), U64(0),
			     F32(3), F32(2)),
			 0);
	moments(x, N, &mean, &variance);
	ASSERT_NEAR(mean, 3, 5 * 2 / sqrt(N));
	ASSERT_NEAR(variance, 4, 5 * 4 * sqrt(2.0 / N));
	for (size_t i = 0; i < N; i++)
		within += fabsf(x[i] - 3) < 2;
	ASSERT_NEAR(within, N * 0.682689, 5 * sqrt(N * 0.2166));
	env_fini(&te);
}
END_TEST

START_TEST(test_random_past_span_is_refused)
{
	struct test_env te;
	float x[4] = { 0 };
	uint32_t words[4] = { 0 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_u32, SPAN(words, 4), U64(5), U64(0), U64(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_uniform, SPAN(x, 4), U64(5), U64(0), U64(0),
			     F32(0), F32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_normal, SPAN(x, 4), U64(UINT64_MAX), U64(0),
			     U64(0), F32(0), F32(1)),
			 REFUSED(EINVAL));
	/* The stream's numbers wrap round, no more. */
	ck_assert_int_eq(RUN(&te, gantry_kernel_random_normal, SPAN(x, 4), U64(4), U64(0),
			     U64(UINT64_MAX - 1), F32(0), F32(1)),
			 0);
	env_fini(&te);
}
END_TEST

Suite *kernels_random_suite(void)
{
	Suite *suite = suite_create("kernels/random");
	TCase *tc = env_case(suite, "random");

	tcase_add_test(tc, test_philox_gives_published_words);
	tcase_add_test(tc, test_random_u32_begins_with_first_counter);
	tcase_add_loop_test(tc, test_random_made_in_parts_equals_whole, 0, 4);
	tcase_add_test(tc, test_random_uniform_is_uniform);
	tcase_add_test(tc, test_random_normal_has_mean_and_deviation_asked);
	tcase_add_test(tc, test_random_past_span_is_refused);
	return suite;
}
