/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/registry.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "tests/unit/runner.h"

static const struct gantry_device_host nobody;

static int open_with(const char *backend, const char *opt, struct gantry_device *ret_device,
		     struct gantry_err *err)
{
	const char *const opts[] = { opt };
	const struct gantry_device_conf conf = {
		.name = "d0", .backend = backend, .nopts = opt ? 1 : 0, .opts = opts
	};

	return gantry_device_open(&conf, &nobody, ret_device, err);
}

START_TEST(test_backends_are_found_by_name)
{
	for (const struct gantry_backend *const *b = gantry_backends; *b; b++) {
		ck_assert_ptr_eq(gantry_backend_find((*b)->name), *b);
		ck_assert_uint_eq((*b)->abi, GANTRY_BACKEND_ABI);
		ck_assert_uint_eq((*b)->size, sizeof(struct gantry_backend));
	}
	ck_assert_ptr_null(gantry_backend_find("abacus"));
}
END_TEST

START_TEST(test_device_opt_finds_whole_keys_only)
{
	static const char *const opts[] = { "coresx=1", "cores=2", "empty=", "flag" };
	const struct gantry_device_conf conf = { .nopts = GANTRY_ARRAY_SIZE(opts), .opts = opts };

	ck_assert_str_eq(gantry_device_opt(&conf, "cores"), "2");
	ck_assert_str_eq(gantry_device_opt(&conf, "empty"), "");
	ck_assert_ptr_null(gantry_device_opt(&conf, "core"));
	ck_assert_ptr_null(gantry_device_opt(&conf, "flag"));
}
END_TEST

START_TEST(test_device_opts_check_names_the_unknown_one)
{
	static const char *const keys[] = { "cores", NULL };
	static const char *const good[] = { "cores=1", "filters=a,b", "delay.time=1s" };
	static const char *const unknown[] = { "cores=1", "coers=2" };
	static const char *const bare[] = { "cores" };
	struct gantry_device_conf conf = { .backend = "x", .nopts = 3, .opts = good };
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_device_opts_check(&conf, keys, &err), 0);
	conf.nopts = 2;
	conf.opts = unknown;
	ck_assert_int_eq(gantry_device_opts_check(&conf, keys, &err), -EINVAL);
	ck_assert_str_eq(err.text, "the x backend has no option \"coers=2\"");
	conf.nopts = 1;
	conf.opts = bare;
	ck_assert_int_eq(gantry_device_opts_check(&conf, keys, &err), -EINVAL);
}
END_TEST

START_TEST(test_open_of_an_unknown_backend_names_device_and_backend)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with("abacus", NULL, &device, &err), -ENODEV);
	ck_assert_str_eq(err.text, "device d0: this build has no backend \"abacus\"");
}
END_TEST

START_TEST(test_open_with_an_unknown_filter_names_it)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with("null", "filters=contract,sieve", &device, &err), -EINVAL);
	ck_assert_str_eq(err.text, "device d0: filters: this build has no \"sieve\"");
	ck_assert_int_eq(open_with("null", "filters=,contract", &device, &err), -EINVAL);
	ck_assert_int_eq(open_with("null",
				   "filters=contract,contract,contract,contract,contract,contract,"
				   "contract,contract,contract",
				   &device, &err),
			 -EINVAL);
	ck_assert_str_eq(err.text, "device d0: filters: more than 8");
}
END_TEST

START_TEST(test_open_stacks_filters_and_close_takes_them_down)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_device device;

	ck_assert_int_eq(open_with("null", "filters=contract,delay,contract", &device, &err), 0);
	ck_assert_str_eq(device.backend->name, "null");
	ck_assert_uint_eq(device.info.kind, GANTRY_KIND_NULL);
	gantry_device_close(&device);
	ck_assert_ptr_null(device.backend);
	gantry_device_close(&device);
	gantry_device_close(NULL);
}
END_TEST

START_TEST(test_probe_finds_the_host)
{
	const struct gantry_backend *cpu = gantry_backend_find("cpu");
	struct gantry_device_conf conf;
	struct gantry_err err = GANTRY_ERR_NONE;

	if (!cpu)
		gantry_unit_skip("this build has no cpu backend");
	ck_assert_int_eq(cpu->probe(&conf, 0, &err), 0);
	ck_assert_int_eq(cpu->probe(&conf, 1, &err), 1);
	ck_assert_str_eq(conf.backend, "cpu");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry");
	TCase *tc = gantry_unit_case(suite, "registry");

	tcase_add_test(tc, test_backends_are_found_by_name);
	tcase_add_test(tc, test_device_opt_finds_whole_keys_only);
	tcase_add_test(tc, test_device_opts_check_names_the_unknown_one);
	tcase_add_test(tc, test_open_of_an_unknown_backend_names_device_and_backend);
	tcase_add_test(tc, test_open_with_an_unknown_filter_names_it);
	tcase_add_test(tc, test_open_stacks_filters_and_close_takes_them_down);
	tcase_add_test(tc, test_probe_finds_the_host);
	return gantry_unit_run(suite);
}
