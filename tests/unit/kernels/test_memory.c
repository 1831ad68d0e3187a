/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_fill, gantry_kernel_copy, gantry_kernel_checksum;

/* Past several ranges, and no multiple of anything. */
#define N 200003u

START_TEST(test_fill_writes_n_elements_and_no_more)
{
	struct test_env te;
	uint32_t *x;

	env_init(&te, (enum env_mode)_i);
	x = env_array(&te, N + 1, sizeof(*x));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN(x, N + 1), U64(N), U32(0xdeadbeef)), 0);
	for (size_t i = 0; i < N; i++)
		ck_assert_uint_eq(x[i], 0xdeadbeef);
	ck_assert_uint_eq(x[N], 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_fill_past_span_is_refused)
{
	struct test_env te;
	uint32_t *x;

	env_init(&te, ENV_INLINE);
	x = env_array(&te, 8, sizeof(*x));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN(x, 8), U64(9), U32(1)), REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN(x, 8), U64(UINT64_MAX), U32(1)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN(x, 8), U64(UINT64_MAX / 4 + 2), U32(1)),
			 REFUSED(EINVAL));
	ck_assert_uint_eq(x[0], 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_fill_misaligned_span_is_refused)
{
	struct test_env te;
	uint8_t *bytes;

	env_init(&te, ENV_INLINE);
	bytes = env_array(&te, 64, 1);
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN(bytes + 1, 63), U64(4), U32(1)),
			 REFUSED(EINVAL));
	ck_assert_uint_eq(bytes[1], 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_fill_nothing_of_null_span_succeeds)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN((uint32_t *)NULL, 0), U64(0), U32(1)),
			 0);
	/* Such a span no task can have. */
	if (env_is_inside())
		ck_assert_int_eq(RUN(&te, gantry_kernel_fill, SPAN((uint32_t *)NULL, 9), U64(1),
				     U32(1)),
				 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

START_TEST(test_copy_apart_and_overlapping_equals_memmove)
{
	struct test_env te;
	uint8_t *x, *y;
	uint32_t state = 7;

	env_init(&te, (enum env_mode)_i);
	x = env_array(&te, 4 * N, 1);
	y = env_array(&te, 4 * N, 1);
	for (size_t i = 0; i < 4 * N; i++)
		x[i] = (uint8_t)env_random(&state);

	ck_assert_int_eq(RUN(&te, gantry_kernel_copy, SPAN(x, 4 * N), SPAN(y, 4 * N), U64(4 * N)),
			 0);
	ck_assert_mem_eq(x, y, 4 * N);
	ck_assert_int_eq(
		RUN(&te, gantry_kernel_copy, SPAN(x, 3 * N), SPAN(x + N, 3 * N), U64(3 * N)), 0);
	ck_assert_mem_eq(x + N, y, 3 * N);
	ck_assert_int_eq(RUN(&te, gantry_kernel_copy, SPAN(x, N), SPAN(y, N - 1), U64(N)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

/* As docs/kernels.md defines it. */
static uint64_t plain_checksum(const uint8_t *bytes, uint64_t n)
{
	uint64_t sum = n;

	for (uint64_t at = 0; at < n; at += 8) {
		uint64_t z = 0;

		for (uint64_t i = 0; i < 8 && at + i < n; i++)
			z |= (uint64_t)bytes[at + i] << (8 * i);
		z += (at / 8 + 1) * 0x9e3779b97f4a7c15ull;
		z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ z >> 27) * 0x94d049bb133111ebull;
		sum += z ^ z >> 31;
	}
	return sum;
}

START_TEST(test_checksum_equals_plain_definition)
{
	static const uint64_t lengths[] = { 0, 1, 7, 8, 9, 4096 * 8, 4096 * 8 + 5, 4 * N - 1 };
	struct test_env te;
	uint8_t *x;
	uint32_t state = 9;

	env_init(&te, (enum env_mode)_i);
	x = env_array(&te, 4 * N, 1);
	for (size_t i = 0; i < 4 * N; i++)
		x[i] = (uint8_t)env_random(&state);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		uint64_t sum = 1;

		ck_assert_int_eq(RUN(&te, gantry_kernel_checksum, SPAN(x, lengths[i]),
				     SPAN(&sum, 1), U64(lengths[i])),
				 0);
		ck_assert_uint_eq(sum, plain_checksum(x, lengths[i]));
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_checksum_sees_swapped_words_and_trailing_zeros)
{
	struct test_env te;
	uint64_t x[3] = { 1, 2, 0 }, swapped[3] = { 2, 1, 0 }, sum, other;

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_checksum, SPAN(x, 3), SPAN(&sum, 1), U64(16)), 0);
	ck_assert_int_eq(
		RUN(&te, gantry_kernel_checksum, SPAN(swapped, 3), SPAN(&other, 1), U64(16)), 0);
	ck_assert_uint_ne(sum, other);
	ck_assert_int_eq(RUN(&te, gantry_kernel_checksum, SPAN(x, 3), SPAN(&other, 1), U64(17)), 0);
	ck_assert_uint_ne(sum, other);
	ck_assert_int_eq(RUN(&te, gantry_kernel_checksum, SPAN(x, 3), SPAN(&other, 1), U64(25)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_checksum, SPAN(x, 3), SPAN(&other, 0), U64(8)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

Suite *kernels_memory_suite(void)
{
	Suite *suite = suite_create("kernels/memory");
	TCase *tc = env_case(suite, "memory");

	tcase_add_loop_test(tc, test_fill_writes_n_elements_and_no_more, 0, ENV_NMODES);
	tcase_add_test(tc, test_fill_past_span_is_refused);
	tcase_add_test(tc, test_fill_misaligned_span_is_refused);
	tcase_add_test(tc, test_fill_nothing_of_null_span_succeeds);
	tcase_add_loop_test(tc, test_copy_apart_and_overlapping_equals_memmove, 0, ENV_NMODES);
	tcase_add_loop_test(tc, test_checksum_equals_plain_definition, 0, ENV_NMODES);
	tcase_add_test(tc, test_checksum_sees_swapped_words_and_trailing_zeros);
	return suite;
}
