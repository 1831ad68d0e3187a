/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "host-agent/worker/affinity.h"
#include "proto/vocab.h"
#include "tests/unit/runner.h"

static const struct gantry_device_info nowhere = { .kind = GANTRY_KIND_CUDA, .numa_node = -1 };

/* One that this thread may use, as a list of one. */
static int first_allowed(void)
{
	cpu_set_t set;
	int cpu = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	return cpu;
}

START_TEST(test_list_names_processors)
{
	cpu_set_t set;

	ck_assert_int_eq(gantry_cpulist_parse("0-3,8\n", &set), 0);
	ck_assert_int_eq(CPU_COUNT(&set), 5);
	ck_assert(CPU_ISSET(0, &set) && CPU_ISSET(3, &set) && CPU_ISSET(8, &set));
	ck_assert_int_eq(gantry_cpulist_parse("7", &set), 0);
	ck_assert_int_eq(CPU_COUNT(&set), 1);
}
END_TEST

START_TEST(test_list_that_is_none_is_refused_and_nothing_is_written)
{
	static const char *const bad[] = { "", ",", "1,", "3-1", "a", "1-", "-1", "1 2", "0x1" };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(5, &set);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(gantry_cpulist_parse(bad[i], &set) == -EINVAL, "\"%s\"", bad[i]);
	ck_assert_int_eq(gantry_cpulist_parse("99999", &set), -ERANGE);
	ck_assert_int_eq(gantry_cpulist_parse("99999999999999999999", &set), -ERANGE);
	ck_assert_int_eq(CPU_COUNT(&set), 1);
	ck_assert(CPU_ISSET(5, &set));
}
END_TEST

START_TEST(test_thread_is_bound_to_what_a_list_says)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int cpu = first_allowed();
	cpu_set_t set;
	char list[16];

	(void)snprintf(list, sizeof(list), "%d", cpu);
	ck_assert_int_eq(gantry_affinity_apply(list, &nowhere, &err), 1);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert_int_eq(CPU_COUNT(&set), 1);
	ck_assert(CPU_ISSET(cpu, &set));
}
END_TEST

static void expect_unbound(const char *setting, const struct gantry_device_info *info)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	cpu_set_t before, after;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(before), &before), 0);
	ck_assert_int_eq(gantry_affinity_apply(setting, info, &err), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(after), &after), 0);
	ck_assert(CPU_EQUAL(&before, &after));
}

START_TEST(test_thread_stays_unbound_where_nothing_is_known_or_wanted)
{
	const struct gantry_device_info lost = { .kind = GANTRY_KIND_CUDA,
						 .numa_node = 4000,
						 .id = "ffff:ff:1f.7" };
	const struct gantry_device_info cpu = { .kind = GANTRY_KIND_CPU, .numa_node = 0 };

	expect_unbound("off", &nowhere);
	expect_unbound("auto", &nowhere);
	expect_unbound(NULL, &nowhere);
	expect_unbound("auto", &lost);
	expect_unbound("auto", &cpu);
	expect_unbound("1000-1001", &nowhere); /* not allowed: no such processors */
}
END_TEST

START_TEST(test_list_that_is_none_binds_nothing)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_affinity_apply("many", &nowhere, &err), -EINVAL);
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(test_node_of_this_machine_has_processors)
{
	cpu_set_t set;
	int r = gantry_topology_near(NULL, 0, &set);

	if (r == -ENOENT)
		gantry_unit_skip("this machine tells of no memory node");
	ck_assert_int_eq(r, 0);
	ck_assert_int_gt(CPU_COUNT(&set), 0);
	ck_assert_int_eq(gantry_topology_near("nonsense", -1, &set), -EINVAL);
	ck_assert_int_eq(gantry_topology_near("ffff:ff:1f.7", -1, &set), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("affinity");
	TCase *tc = gantry_unit_case(suite, "affinity");

	tcase_add_test(tc, test_list_names_processors);
	tcase_add_test(tc, test_list_that_is_none_is_refused_and_nothing_is_written);
	tcase_add_test(tc, test_thread_is_bound_to_what_a_list_says);
	tcase_add_test(tc, test_thread_stays_unbound_where_nothing_is_known_or_wanted);
	tcase_add_test(tc, test_list_that_is_none_binds_nothing);
	tcase_add_test(tc, test_node_of_this_machine_has_processors);
	return gantry_unit_run(suite);
}
