/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver, what the contract suite cannot ask of every backend: opening, and health. The others are
 * cuda_memory.c, cuda_windows.c, cuda_launch.c, cuda_streams.c and cuda_faults.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "devices/cuda/backend.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

/* ---- opening ---- */

START_TEST(test_open_tells_what_the_device_is)
{
	const struct gantry_device_info *info = &device.info;

	open_device(NULL);
	ck_assert_uint_eq(info->kind, GANTRY_KIND_CUDA);
	ck_assert_uint_ne(info->caps & GANTRY_CAP_WINDOW, 0);
	ck_assert_uint_ne(info->caps & GANTRY_CAP_PEER, 0);
	ck_assert_uint_eq(info->slab_align, 2 * MIB);
	ck_assert_str_eq(info->arch, "sm_90");
	ck_assert_int_eq(strncmp(info->id, "GPU-66616b65-", 13), 0); /* "fake" */
	ck_assert_uint_eq(strlen(info->id), 40);
	ck_assert_uint_eq(strlen(info->pci), 12);
	ck_assert_uint_gt(info->units, 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_open_finds_a_gpu_by_any_of_its_names)
{
	char gpu[80];

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "3", 1), 0);
	const char *more[] = { "gpu=2", NULL };
	open_device(more);
	struct gantry_device_info info = device.info;
	gantry_device_close(&device);

	const char *names[] = { info.id, info.pci, info.pci + 5 /* without its domain */ };
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
		snprintf(gpu, sizeof(gpu), "gpu=%s", names[i]);
		more[0] = gpu;
		open_device(more);
		ck_assert_str_eq(device.info.id, info.id);
		gantry_device_close(&device);
	}
}
END_TEST

START_TEST(test_open_of_what_is_not_there_says_so)
{
	static const char *const absent[][2] = {
		{ "gpu=7", NULL },
		{ "gpu=GPU-00000000-0000-0000-0000-000000000000", NULL },
		{ "gpu=00ff:1f:1f.7", NULL },
		{ "gpu=nonsense", NULL },
	};

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(absent); i++) {
		ck_assert_int_eq(open_with(&device, absent[i]), -ENODEV);
		ck_assert_ptr_nonnull(strstr(err.text, "gpu: "));
	}
}
END_TEST

START_TEST(test_open_without_a_driver_is_no_device)
{
	const char *opts[] = { "driver=/nonexistent/libcuda.so.1" };
	struct gantry_device_conf conf = {
		.name = "c", .backend = "cuda", .opts = opts, .nopts = 1
	};

	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "no NVIDIA driver"));
	/* A library that is none does not do either. */
	opts[0] = "driver=" CUDA_KERNELS;
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "12.4 or newer"));
}
END_TEST

START_TEST(test_open_without_gpus_is_no_device)
{
	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "0", 1), 0);
	ck_assert_int_eq(open_with(&device, NULL), -ENODEV);
	ck_assert_ptr_nonnull(strstr(err.text, "CUDA_ERROR_NO_DEVICE"));
}
END_TEST

START_TEST(test_open_refuses_options_it_does_not_know)
{
	static const char *const wrong[][2] = { { "cores=2", NULL }, { "scratch=much", NULL } };

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++)
		ck_assert_int_eq(open_with(&device, wrong[i]), -EINVAL);
}
END_TEST

START_TEST(test_open_gives_out_no_more_than_the_gpu_has)
{
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML };
	struct gantry_device_conf conf = {
		.name = "c", .backend = "cuda", .opts = opts, .nopts = 2
	};

	ck_assert_int_eq(setenv("FAKECUDA_MEM", "1073741824", 1), 0);
	conf.mem_bytes = 1025 * MIB;
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "mem: the GPU has 1024 MiB, of which 1025 MiB"));
	conf.mem_bytes = 1024 * MIB;
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), 0);
	ck_assert_uint_eq(device.info.mem_bytes, 1024 * MIB);
	ck_assert_uint_eq(device.info.board_bytes, 1024 * MIB);
	gantry_device_close(&device);
	conf.mem_bytes = MIB;
	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), 0);
	ck_assert_uint_eq(device.info.mem_bytes, MIB);
	ck_assert_uint_eq(device.info.board_bytes, 1024 * MIB);
	gantry_device_close(&device);
}
END_TEST

/* A failure at any step leaves nothing behind; the runner looks for threads, descriptors and memory. */
START_TEST(test_open_that_fails_halfway_cleans_up)
{
	static const char *const steps[] = {
		"cuDevicePrimaryCtxRetain:1:2",	     "cuStreamCreateWithPriority:1:2",
		"cuMemGetAllocationGranularity:1:1", "cuMemHostAlloc:1:2",
		"cuMemHostGetDevicePointer:1:1",
	};
	ck_assert_int_eq(setenv("FAKECUDA_FAIL", steps[_i], 1), 0);
	ck_assert_int_lt(open_with(&device, NULL), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "CUDA_ERROR_"));
}
END_TEST

START_TEST(test_probe_names_what_can_be_opened)
{
	const struct gantry_backend *backend = gantry_backend_find("cuda");
	struct gantry_device_conf confs[4];

	/* This machine may have a driver or none; a test cannot know, but no failure may come of it. */
	int n = backend->probe(confs, 4, &err);
	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++) {
		ck_assert_str_eq(confs[i].backend, "cuda");
		ck_assert_ptr_nonnull(gantry_device_opt(&confs[i], "gpu"));
	}
	ck_assert(n > 0 || err.text[0] != '\0');
}
END_TEST

START_TEST(test_list_names_instances_in_place_of_a_divided_gpu)
{
	static const char text[] = "mig=3\n";
	char path[] = "/tmp/gantry-unit-nvml-XXXXXX";
	char names[8][80];

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(setenv("FAKECUDA_NVML", path, 1), 0);
	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 8, &err), 2);
	ck_assert_int_eq(strncmp(names[0], "GPU-", 4), 0);
	ck_assert_int_eq(gantry_file_replace(path, text, sizeof(text) - 1, 0600), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 8, &err), 4);
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_int_eq(strncmp(names[i], "MIG-", 4), 0);
	ck_assert_int_eq(strncmp(names[3], "GPU-", 4), 0);
	ck_assert_int_eq(gantry_cuda_nvml_list(FAKE_NVML, names, 2, &err), 2);
	ck_assert_int_eq(gantry_cuda_nvml_list("/nonexistent", names, 2, &err), -ENODEV);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* The driver is told of an instance before it starts, and of another one never again. */
START_TEST(test_process_of_one_instance_serves_no_other)
{
	const char *first[] = { "gpu=MIG-66616b65-0000-0000-0000-000000000001", NULL };
	const char *second[] = { "gpu=MIG-66616b65-0000-0000-0000-000000000002", NULL };

	ck_assert_int_eq(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
	open_device(first);
	ck_assert_str_eq(getenv("CUDA_VISIBLE_DEVICES"), first[0] + 4);
	ck_assert_str_eq(device.info.id, first[0] + 4);
	gantry_device_close(&device);
	ck_assert_int_eq(open_with(&device, second), -EBUSY);
	ck_assert_ptr_nonnull(strstr(err.text, "one MIG instance"));
	ck_assert_int_eq(open_with(&device, NULL), -EBUSY);
	open_device(first);
	gantry_device_close(&device);
}
END_TEST

/* ---- health ---- */

START_TEST(test_health_tells_what_nvml_says)
{
	static const char text[] = "temperature=61\nsm_clock=1500\nmem_clock=2600\nused=1000\n"
				   "total=5000\necc=3\n";
	static const char event[] = "xid=79\nxid_count=1\n";
	char path[] = "/tmp/gantry-unit-nvml-XXXXXX";
	struct gantry_device_health health;

	gantry_fd_close(mkstemp(path));
	ck_assert_int_eq(setenv("FAKECUDA_NVML", path, 1), 0);
	ck_assert_int_eq(gantry_file_replace(path, text, sizeof(text) - 1, 0600), 0);
	open_device(NULL);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	ck_assert_uint_eq(health.known, GANTRY_HEALTH_TEMPERATURE | GANTRY_HEALTH_CLOCKS |
						GANTRY_HEALTH_MEM | GANTRY_HEALTH_ECC |
						GANTRY_HEALTH_FAULTS);
	ck_assert_int_eq(health.temperature_c, 61);
	ck_assert_uint_eq(health.clock_mhz, 1500);
	ck_assert_uint_eq(health.mem_clock_mhz, 2600);
	ck_assert_uint_eq(health.mem_used, 1000);
	ck_assert_uint_eq(health.mem_total, 5000);
	ck_assert_uint_eq(health.ecc_uncorrected, 3);
	ck_assert_uint_eq(health.nfaults, 0);

	ck_assert_int_eq(gantry_file_replace(path, event, sizeof(event) - 1, 0600), 0);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), -EIO);
	ck_assert_ptr_nonnull(strstr(err.text, "Xid 79"));
	ck_assert_uint_eq(health.nfaults, 1);
	ck_assert_uint_eq(health.last_fault, 79);
	ck_assert_int_eq(unlink(path), 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_health_without_nvml_knows_nothing)
{
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=none" };
	struct gantry_device_conf conf = {
		.name = "c", .backend = "cuda", .opts = opts, .nopts = 2
	};
	struct gantry_device_health health;

	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), 0);
	ck_assert_int_eq(device.backend->health(device.dev, &health, &err), 0);
	ck_assert_uint_eq(health.known, 0);
	gantry_device_close(&device);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda");
	TCase *life = gantry_unit_case(suite, "life");

	tcase_add_test(life, test_open_tells_what_the_device_is);
	tcase_add_test(life, test_open_finds_a_gpu_by_any_of_its_names);
	tcase_add_test(life, test_open_of_what_is_not_there_says_so);
	tcase_add_test(life, test_open_without_a_driver_is_no_device);
	tcase_add_test(life, test_open_without_gpus_is_no_device);
	tcase_add_test(life, test_open_refuses_options_it_does_not_know);
	tcase_add_test(life, test_open_gives_out_no_more_than_the_gpu_has);
	tcase_add_loop_test(life, test_open_that_fails_halfway_cleans_up, 0, 5);
	tcase_add_test(life, test_probe_names_what_can_be_opened);
	tcase_add_test(life, test_list_names_instances_in_place_of_a_divided_gpu);
	tcase_add_test(life, test_process_of_one_instance_serves_no_other);
	tcase_add_test(life, test_health_tells_what_nvml_says);
	tcase_add_test(life, test_health_without_nvml_knows_nothing);
	return gantry_unit_run(suite);
}
