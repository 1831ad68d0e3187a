/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_empty, gantry_kernel_endless, gantry_kernel_crash, gantry_kernel_fail,
	gantry_kernel_echo;

static int run_bare(struct test_env *te, gantry_body *kernel)
{
	return env_run(te, kernel, NULL, 0);
}

START_TEST(test_empty_does_nothing)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(run_bare(&te, gantry_kernel_empty), 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_endless_stops_when_cancelled)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	te.asks_left = 3;
	ck_assert_int_eq(run_bare(&te, gantry_kernel_endless), -ECANCELED);
	env_fini(&te);
}
END_TEST

START_TEST(test_crash_faults)
{
	struct test_env te;

	/* The sanitizers handle the signal otherwise, and say much. */
	signal(SIGSEGV, SIG_DFL);
	env_init(&te, ENV_INLINE);
	(void)run_bare(&te, gantry_kernel_crash);
}
END_TEST

START_TEST(test_fail_returns_its_argument)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_fail, I32(-ERANGE)), -ERANGE);
	env_fini(&te);
}
END_TEST

START_TEST(test_echo_tells_every_argument)
{
	uint8_t u8[2] = { 1 };
	int8_t i8[3] = { -2 };
	uint16_t u16[4] = { 3 };
	int16_t i16[5] = { -4 };
	uint32_t u32[6] = { 5 }, increment[2] = { 10, 20 };
	int32_t i32[7] = { -6 };
	uint64_t u64[8] = { 7 }, out[44];
	int64_t i64[9] = { -8 };
	float f32[10] = { 1.5f }, commute[2] = { 0.5f, 1.5f };
	double f64[11] = { 2.5 };
	const union gantry_value args[19] = {
		SPAN(u8, 2),	    SPAN(i8, 3),      SPAN(u16, 4),  SPAN(i16, 5),  SPAN(u32, 6),
		SPAN(i32, 7),	    SPAN(u64, 8),     SPAN(i64, 9),  SPAN(f32, 10), SPAN(f64, 11),
		SPAN(increment, 2), SPAN(commute, 2), SPAN(out, 44), I32(-9),	    U32(10),
		I64(-11),	    U64(12),	      F32(1.5f),     F64(2.5),
	};
	static const uint64_t bits[19] = {
		1,
		0xfe,
		3,
		0xfffc,
		5,
		0xfffffffa,
		7,
		0xfffffffffffffff8,
		0x3fc00000,
		0x4004000000000000,
		10,
		0x3f000000,
		0 /* out: see below */,
		0xfffffff7,
		10,
		0xfffffffffffffff5,
		12,
		0x3fc00000,
		0x4004000000000000,
	};
	struct gantry_call call = {
		.grid = { 1, 2, 3 }, .block = { 4, 5, 6 }, .nargs = 19, .args = args
	};
	struct test_env te;

	memset(out, 0, sizeof(out));
	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(gantry_kernel_echo(&te.env, &call), 0);
	for (size_t i = 0; i < 19; i++) {
		ck_assert_uint_eq(out[2 * i], i < 13 ? args[i].span.len_bytes : 0);
		/* Its own first word had been written by then. */
		ck_assert_uint_eq(out[2 * i + 1], i == 12 ? 2 : bits[i]);
	}
	for (size_t i = 0; i < 6; i++)
		ck_assert_uint_eq(out[38 + i], i + 1);
	ck_assert_uint_eq(increment[1], 21);
	ck_assert_float_eq(commute[1], 2.5f);
	env_fini(&te);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernels/misc");
	TCase *tc = gantry_unit_case(suite, "misc");

	tcase_add_test(tc, test_empty_does_nothing);
	tcase_add_test(tc, test_endless_stops_when_cancelled);
	tcase_add_test_raise_signal(tc, test_crash_faults, SIGSEGV);
	tcase_add_test(tc, test_fail_returns_its_argument);
	tcase_add_test(tc, test_echo_tells_every_argument);
	return gantry_unit_run(suite);
}
