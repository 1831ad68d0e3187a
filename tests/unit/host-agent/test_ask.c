/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "host-agent/agent/ask.h"
#include "tests/unit/runner.h"

static struct gantry_door_hello hello;
static struct gantry_tenant_conf tenant;

static void set_up(void)
{
	memset(&hello, 0, sizeof(hello));
	hello.version_min = GANTRY_WIRE_VERSION_MIN;
	hello.version_max = GANTRY_WIRE_VERSION_MAX;
	gantry_tenant_conf_init(&tenant, "red", "test");
}

static int bound(uint64_t used, struct gantry_shape *ret_shape, struct gantry_err *err)
{
	uint32_t version;

	return gantry_ask_bound(&hello, &tenant, used, ret_shape, &version, err);
}

START_TEST(test_ask_nothing_gets_the_tenants_defaults)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_shape shape;

	ck_assert_int_eq(bound(0, &shape, &err), 0);
	ck_assert_uint_eq(shape.segment.nqueues, tenant.queues + 1);
	ck_assert_uint_eq(shape.segment.nslots, GANTRY_DEFAULT_SLOTS);
	ck_assert_uint_ge(shape.segment.heap_bytes, tenant.heap_bytes);
	ck_assert_uint_eq(shape.virtual_bytes, tenant.virtual_bytes);
	ck_assert_uint_eq(shape.mem_bytes, tenant.mem_bytes);
	ck_assert_uint_ge(shape.slab_bytes, shape.virtual_bytes);
}
END_TEST

START_TEST(test_ask_more_than_allowed_gets_what_is_allowed)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_shape shape, whole;

	ck_assert_int_eq(bound(0, &whole, &err), 0);
	hello.nqueues = UINT32_MAX;
	hello.nslots = UINT32_MAX;
	hello.heap_bytes = hello.virtual_bytes = hello.mem_bytes = UINT64_MAX;
	ck_assert_int_eq(bound(0, &shape, &err), 0);
	ck_assert_uint_eq(shape.segment.nqueues, whole.segment.nqueues);
	ck_assert_uint_eq(shape.segment.nslots, GANTRY_MAX_SLOTS);
	ck_assert_uint_eq(shape.virtual_bytes, whole.virtual_bytes);
	ck_assert_uint_eq(shape.mem_bytes, whole.mem_bytes);
}
END_TEST

START_TEST(test_ask_odd_slots_are_rounded_to_a_power_of_two_below)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_shape shape;

	hello.nslots = 100;
	hello.nqueues = 1; /* the control queue alone serves nobody */
	ck_assert_int_eq(bound(0, &shape, &err), 0);
	ck_assert_uint_eq(shape.segment.nslots, 64);
	ck_assert_uint_eq(shape.segment.nqueues, 2);
}
END_TEST

START_TEST(test_ask_past_host_memory_is_refused_with_numbers)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_shape shape;

	ck_assert_int_eq(bound(tenant.host_mem_bytes - 4096, &shape, &err), GANTRY_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "red"));
	ck_assert_int_eq(bound(UINT64_MAX, &shape, &err), GANTRY_E_LIMIT);
}
END_TEST

START_TEST(test_ask_without_a_common_version_is_refused)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_shape shape;

	hello.version_min = hello.version_max = GANTRY_WIRE_VERSION_MAX + 1;
	ck_assert_int_eq(bound(0, &shape, &err), GANTRY_E_VERSION);
	hello.version_min = 1;
	hello.version_max = 99;
	ck_assert_int_eq(bound(0, &shape, &err), 0);
}
END_TEST

#define MIB (1ull << 20)

START_TEST(test_ask_address_takes_the_lowest_gap_that_is_large_enough)
{
	const struct gantry_address_range range = { 0x7e8000000000ull,
						    0x7e8000000000ull + 64 * MIB };
	const struct gantry_address_range taken[] = {
		{ range.begin + 16 * MIB, range.begin + 24 * MIB },
		{ range.begin, range.begin + 4 * MIB },
		{ range.begin + 8 * MIB, range.begin + 15 * MIB },
	};

	ck_assert_uint_eq(gantry_ask_address(&range, NULL, 0, 64 * MIB), range.begin);
	ck_assert_uint_eq(gantry_ask_address(&range, taken, 3, 4 * MIB), range.begin + 4 * MIB);
	/* 15 to 16 is free, but nothing starts there. */
	ck_assert_uint_eq(gantry_ask_address(&range, taken, 3, 5 * MIB), range.begin + 24 * MIB);
	ck_assert_uint_eq(gantry_ask_address(&range, taken, 3, 40 * MIB), range.begin + 24 * MIB);
}
END_TEST

START_TEST(test_ask_address_full_or_empty_range_gives_none)
{
	const struct gantry_address_range range = { 0x7e8000000000ull,
						    0x7e8000000000ull + 64 * MIB };
	const struct gantry_address_range taken = { range.begin + 2 * MIB, range.end - 2 * MIB };
	const struct gantry_address_range none = { 0, 0 };

	ck_assert_uint_eq(gantry_ask_address(&range, &taken, 1, 4 * MIB), 0);
	ck_assert_uint_eq(gantry_ask_address(&range, &taken, 1, 2 * MIB), range.begin);
	ck_assert_uint_eq(gantry_ask_address(&range, NULL, 0, 64 * MIB + 1), 0);
	ck_assert_uint_eq(gantry_ask_address(&none, NULL, 0, 4096), 0);
	ck_assert_uint_eq(gantry_ask_address(&none, NULL, 0, 0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ask");
	TCase *tc = gantry_unit_case(suite, "bound");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, test_ask_nothing_gets_the_tenants_defaults);
	tcase_add_test(tc, test_ask_more_than_allowed_gets_what_is_allowed);
	tcase_add_test(tc, test_ask_odd_slots_are_rounded_to_a_power_of_two_below);
	tcase_add_test(tc, test_ask_past_host_memory_is_refused_with_numbers);
	tcase_add_test(tc, test_ask_without_a_common_version_is_refused);
	tcase_add_test(tc, test_ask_address_takes_the_lowest_gap_that_is_large_enough);
	tcase_add_test(tc, test_ask_address_full_or_empty_range_gives_none);
	return gantry_unit_run(suite);
}
