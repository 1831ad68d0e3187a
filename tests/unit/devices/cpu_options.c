/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

static const struct gantry_device_host nobody;

static int open_with(const char *opt, uint32_t lanes, struct gantry_device *ret_device,
		     struct gantry_err *err)
{
	const char *const opts[] = { opt };
	const struct gantry_device_conf conf = {
		.name = "cpu0", .backend = "cpu", .lanes = lanes, .nopts = opt ? 1 : 0, .opts = opts
	};

	if (!gantry_backend_find("cpu"))
		gantry_unit_skip("this build has no cpu backend");
	return gantry_device_open(&conf, &nobody, ret_device, err);
}

static const struct {
	const char *opt;
	const char *sentence;
} bad[] = {
	{ "cores=0", "device cpu0: cores: \"0\" is not from 1 to 256" },
	{ "cores=257", "device cpu0: cores: \"257\" is not from 1 to 256" },
	{ "cores=two", "device cpu0: cores: \"two\" is not a whole number" },
	{ "cpus=", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "cpus=3-1", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "cpus=0,", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "cpus=1024", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "cpus=-1", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "cpus= 1", "device cpu0: cpus: not a list of CPUs such as \"0-3,6\"" },
	{ "speed=11", "device cpu0: the cpu backend has no option \"speed=11\"" },
};

START_TEST(test_open_with_a_bad_option_names_it)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with(bad[_i].opt, 0, &device, &err), -EINVAL);
	ck_assert_str_eq(err.text, bad[_i].sentence);
}
END_TEST

START_TEST(test_open_with_a_bad_scratch_size_names_it)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with("scratch=lots", 0, &device, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "scratch: "));
}
END_TEST

START_TEST(test_open_with_one_core_runs_on_the_caller)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	unsigned int nthreads =
		gantry_unit_count_threads(); /* a sanitizer may have one of its own */
	struct gantry_device device;

	ck_assert_int_eq(open_with(NULL, 0, &device, &err), 0);
	ck_assert_uint_ne(device.info.caps & GANTRY_CAP_CALLER_RUNS, 0);
	ck_assert_uint_eq(device.info.lanes, 1);
	ck_assert_uint_eq(gantry_unit_count_threads(), nthreads);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_open_with_lanes_starts_threads)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with(NULL, 3, &device, &err), 0);
	ck_assert_uint_eq(device.info.caps & GANTRY_CAP_CALLER_RUNS, 0);
	ck_assert_uint_eq(device.info.lanes, 3);
	ck_assert_uint_ge(gantry_unit_count_threads(), 4);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_thread_enter_pins_the_caller)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;
	cpu_set_t set;
	char opt[32];
	int cpu = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	while (!CPU_ISSET(cpu, &set))
		cpu++;
	snprintf(opt, sizeof(opt), "cpus=%d", cpu);
	ck_assert_int_eq(open_with(opt, 0, &device, &err), 0);
	ck_assert_int_eq(device.backend->thread_enter(device.dev, &err), 0);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert_int_eq(CPU_COUNT(&set), 1);
	ck_assert(CPU_ISSET(cpu, &set));
	gantry_device_close(&device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cpu options");
	TCase *tc = gantry_unit_case(suite, "options");

	tcase_add_loop_test(tc, test_open_with_a_bad_option_names_it, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(tc, test_open_with_a_bad_scratch_size_names_it);
	tcase_add_test(tc, test_open_with_one_core_runs_on_the_caller);
	tcase_add_test(tc, test_open_with_lanes_starts_threads);
	tcase_add_test(tc, test_thread_enter_pins_the_caller);
	return gantry_unit_run(suite);
}
