/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: slabs, windows, and devices of one process. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "devices/cuda/backend.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

/* ---- slabs and windows ---- */

static int new_slab(uint64_t len)
{
	int fd;

	ck_assert_msg(device.backend->slab_create(device.dev, len, &fd, &err) == 0, "%s", err.text);
	return fd;
}

static struct gantry_mem *new_window(uint64_t address, uint64_t len)
{
	struct gantry_mem *window;

	ck_assert_msg(device.backend->window_open(device.dev, address, len, &window, &err) == 0,
		      "%s", err.text);
	return window;
}

static void map(struct gantry_mem *window, uint64_t off, uint64_t len, int fd)
{
	ck_assert_msg(device.backend->window_map(window, off, len, fd, &err) == 0, "%s", err.text);
}

START_TEST(test_slab_is_clean_and_keeps_its_bytes_in_its_descriptor)
{
	static unsigned char back[64], expected[64];

	ck_assert_int_eq(setenv("FAKECUDA_DIRTY", "1", 1), 0);
	open_device(NULL);
	int fd = new_slab(4 * MIB);
	struct gantry_mem *window = new_window(0, 64 * MIB), *out = host_mem(back, 64);

	map(window, 8 * MIB, 4 * MIB, fd);
	run_ok(copy_cmd(out, 0, window, 12 * MIB - 64, 64));
	ck_assert_mem_eq(back, expected, 64);
	run_ok(fill_cmd(window, 8 * MIB, 64, 0x77, 1));
	device.backend->window_unmap(window, 8 * MIB, 4 * MIB);
	map(window, 32 * MIB, 4 * MIB, fd);
	memset(expected, 0x77, 64);
	run_ok(copy_cmd(out, 0, window, 32 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);

	ck_assert_msg(device.backend->slab_scrub(device.dev, fd, 4 * MIB, &err) == 0, "%s",
		      err.text);
	memset(expected, 0, 64);
	run_ok(copy_cmd(out, 0, window, 32 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);
	gantry_fd_close(fd);
	gantry_device_close(&device); /* with the slab mapped */
}
END_TEST

START_TEST(test_slab_of_a_window_lies_in_a_range_too)
{
	static unsigned char back[64], expected[64];

	open_device(NULL);
	int fd = new_slab(4 * MIB);
	struct gantry_mem *window = new_window(0, 64 * MIB), *range = new_window(0, 64 * MIB);
	struct gantry_mem *out = host_mem(back, 64);
	const struct gantry_backend *be = device.backend;

	map(window, 8 * MIB, 4 * MIB, fd);
	gantry_fd_close(fd); /* nobody needs it for that */
	run_ok(fill_cmd(window, 8 * MIB, 64, 0x77, 1));
	memset(expected, 0x77, 64);
	ck_assert_int_eq(be->window_alias(range, 0, window, 8 * MIB, 4 * MIB, &err), 0);
	ck_assert_int_eq(be->window_rights(range, 0, 4 * MIB, GANTRY_R, &err), 0);
	run_ok(copy_cmd(out, 0, range, 0, 64));
	ck_assert_mem_eq(back, expected, 64);
	be->window_unmap(window, 8 * MIB, 4 * MIB);
	run_ok(copy_cmd(out, 0, range, 0, 64)); /* its memory lives on there */
	ck_assert_mem_eq(back, expected, 64);
	ck_assert_int_eq(be->window_rights(range, 0, 4 * MIB, 0, &err), 0);
	gantry_device_close(&device);
}
END_TEST

/* Two windows, each with a slab of its own device's: of device 0 at 8 MiB, of device 1 at 16 MiB. */
struct pair {
	struct gantry_device device[2];
	struct gantry_mem *window[2];
	uint64_t address[2];
	int fd[2];
};

static uint64_t address_in(const struct gantry_device *of, struct gantry_mem *window)
{
	const struct gantry_question question = { .what = GANTRY_QUESTION_ADDRESS,
						  .range = { window, 0, 64 * MIB } };
	uint8_t answer[GANTRY_ANSWER_BYTES];
	uint64_t address;

	ck_assert_int_gt(of->backend->ask(of->dev, &question, answer, &err), 0);
	memcpy(&address, answer, sizeof(address));
	return address;
}

/* @failing: of the driver's calls; the first four cuMemMap() are over when this returns. */
static void open_pair_of(struct pair *pair, const char *ngpus, const char *failing)
{
	const char *gpu[2][2] = { { "gpu=0", NULL },
				  { ngpus[0] == '2' ? "gpu=1" : "gpu=0", NULL } };

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", ngpus, 1), 0);
	if (failing)
		ck_assert_int_eq(setenv("FAKECUDA_FAIL", failing, 1), 0);
	for (uint64_t i = 0; i < 2; i++) {
		struct gantry_device *d = &pair->device[i];

		ck_assert_msg(open_with(d, gpu[i]) == 0, "%s", err.text);
		ck_assert_int_eq(d->backend->thread_enter(d->dev, &err), 0);
		ck_assert_int_eq(d->backend->slab_create(d->dev, 4 * MIB, &pair->fd[i], &err), 0);
		ck_assert_int_eq(
			d->backend->window_open(d->dev, 0, 64 * MIB, &pair->window[i], &err), 0);
		ck_assert_int_eq(d->backend->window_map(pair->window[i], (i + 1) * 8 * MIB, 4 * MIB,
							pair->fd[i], &err),
				 0);
		pair->address[i] = address_in(d, pair->window[i]);
		memset((void *)(uintptr_t)(pair->address[i] + (i + 1) * 8 * MIB), 0x70 + (int)i,
		       64);
	}
}

static void open_pair(struct pair *pair, const char *failing)
{
	open_pair_of(pair, "2", failing);
}

/* The bytes of window @i lie at its offset from @address, and nothing where the other's would. */
static void expect_at(const struct pair *pair, uint64_t i, uint64_t address)
{
	unsigned char expected[64];

	memset(expected, 0x70 + (int)i, sizeof(expected));
	ck_assert_uint_eq(address_in(&pair->device[i], pair->window[i]), address);
	ck_assert_mem_eq((const void *)(uintptr_t)(address + (i + 1) * 8 * MIB), expected,
			 sizeof(expected));
}

static void close_pair(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		gantry_fd_close(pair->fd[i]);
		gantry_device_close(&pair->device[i]);
	}
}

/* Of two GPUs, and of one that is two devices, which the driver says does not reach itself. */
START_TEST(test_windows_of_two_devices_exchange_their_addresses)
{
	struct pair pair;

	if (_i)
		ck_assert_int_eq(setenv("FAKECUDA_PEERS", "0", 1), 0);
	open_pair_of(&pair, _i ? "1" : "2", NULL);
	for (int n = 0; n < 3; n++) {
		const struct gantry_device *d = &pair.device[n % 2];

		ck_assert_msg(d->backend->window_swap(pair.window[n % 2], pair.window[1 - n % 2],
						      &err) == 0,
			      "%s", err.text);
		expect_at(&pair, 0, pair.address[1 - n % 2]);
		expect_at(&pair, 1, pair.address[n % 2]);
	}
	/* What is mapped can be taken away, and other slabs come. */
	pair.device[0].backend->window_unmap(pair.window[0], 8 * MIB, 4 * MIB);
	ck_assert_int_eq(pair.device[0].backend->window_map(pair.window[0], 32 * MIB, 4 * MIB,
							    pair.fd[0], &err),
			 0);
	ck_assert_uint_eq(*(const uint8_t *)(uintptr_t)(pair.address[1] + 32 * MIB), 0x70);
	close_pair(&pair);
}
END_TEST

START_TEST(test_exchange_of_addresses_that_fails_leaves_all_as_it_was)
{
	static const char *const failing[] = { "cuMemMap:5:2", "cuMemMap:6:2",
					       "cuMemSetAccess:6:2" };
	struct pair pair;

	open_pair(&pair, failing[_i]);
	ck_assert_int_lt(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 0);
	ck_assert_int_ne(err.code, -ENOTRECOVERABLE);
	expect_at(&pair, 0, pair.address[0]);
	expect_at(&pair, 1, pair.address[1]);
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 0);
	expect_at(&pair, 0, pair.address[1]);
	close_pair(&pair);
}
END_TEST

START_TEST(test_exchange_of_addresses_without_a_way_back_says_so)
{
	struct pair pair;

	open_pair(&pair, "cuMemMap:5+:2");
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 -ENOTRECOVERABLE);
	ck_assert_int_eq(pair.device[1].backend->window_swap(pair.window[1], pair.window[0], &err),
			 -ENOTRECOVERABLE);
	close_pair(&pair);
}
END_TEST

START_TEST(test_record_writes_what_lies_in_a_range_too)
{
	static const char expected[] = "window_alias 2 off=0 of=1 from=2097152 len=2097152 -> 0\n"
				       "window_rights 2 off=0 len=2097152 rights=1 -> 0\n"
				       "window_unmap 2 off=0 len=2097152\n";
	char path[] = "/tmp/gantry-record.XXXXXX", file[64];
	const char *opts[] = { "driver=" FAKE_DRIVER, "nvml=" FAKE_NVML,
			       "filters=contract,record,contract", file };
	const struct gantry_device_conf conf = {
		.name = "cuda0", .backend = "cuda", .opts = opts, .nopts = 4
	};
	struct gantry_mem *window, *range;
	const struct gantry_backend *be;
	char *text;

	gantry_fd_close(mkstemp(path));
	snprintf(file, sizeof(file), "record.file=%s", path);
	ck_assert_msg(gantry_device_open(&conf, &host, &device, &err) == 0, "%s", err.text);
	be = device.backend;
	ck_assert_int_eq(be->thread_enter(device.dev, &err), 0);
	int fd = new_slab(2 * MIB);
	window = new_window(0, 4 * MIB);
	range = new_window(0, 4 * MIB);
	map(window, 2 * MIB, 2 * MIB, fd);
	gantry_fd_close(fd);
	ck_assert_int_eq(be->window_alias(range, 0, window, 2 * MIB, 2 * MIB, &err), 0);
	ck_assert_int_eq(be->window_rights(range, 0, 2 * MIB, GANTRY_R, &err), 0);
	be->window_unmap(range, 0, 2 * MIB);
	gantry_device_close(&device);
	ck_assert_int_eq(gantry_file_read(path, 4096, &text, NULL), 0);
	ck_assert_msg(strstr(text, expected) != NULL, "%s", text);
	free(text);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(test_slab_survives_the_device_that_made_it)
{
	static unsigned char back[64], expected[64];

	open_device(NULL);
	int fd = new_slab(2 * MIB);
	struct gantry_mem *window = new_window(0, 4 * MIB);
	map(window, 0, 2 * MIB, fd);
	run_ok(fill_cmd(window, 0, 64, 0x42, 1));
	gantry_device_close(&device);

	open_device(NULL);
	window = new_window(0, 4 * MIB);
	map(window, 2 * MIB, 2 * MIB, fd);
	memset(expected, 0x42, 64);
	run_ok(copy_cmd(host_mem(back, 64), 0, window, 2 * MIB, 64));
	ck_assert_mem_eq(back, expected, 64);
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

/* A place where nothing is, also under sanitizers, which have their own ideas of the address space. */
static uint64_t free_address(uint64_t len)
{
	void *at = mmap(NULL, len + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	ck_assert_int_eq(munmap(at, len + 2 * MIB), 0);
	return ((uint64_t)(uintptr_t)at + 2 * MIB - 1) & ~(2 * MIB - 1);
}

START_TEST(test_window_at_an_address_that_is_taken_is_refused)
{
	struct gantry_mem *second = NULL;

	open_device(NULL);
	const uint64_t address = free_address(64 * MIB);
	struct gantry_mem *first = new_window(address, 64 * MIB);
	ck_assert_int_eq(device.backend->window_open(device.dev, address, 64 * MIB, &second, &err),
			 -EADDRINUSE);
	ck_assert_ptr_null(second);
	device.backend->mem_free(first);
	device.backend->mem_free(new_window(address, 64 * MIB));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_slab_past_the_memory_is_refused)
{
	int fd = -7;

	open_device(NULL);
	ck_assert_int_eq(device.backend->slab_create(device.dev, 1ull << 50, &fd, &err), -ENOMEM);
	ck_assert_int_eq(fd, -7);
	ck_assert_ptr_nonnull(strstr(err.text, "cuMemCreate"));
	gantry_device_close(&device);
}
END_TEST

/* Every call on the way may fail; what was made before it goes. */
START_TEST(test_slab_and_map_that_fail_halfway_leave_nothing)
{
	static const char *const steps[] = {
		"cuMemAddressReserve:1:2", "cuMemMap:1:2",
		"cuMemSetAccess:1:1",	   "cuMemExportToShareableHandle:1:304",
		"cuMemsetD8Async:1:1",
	};
	static unsigned char back[64];
	int fd = -7;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", steps[_i], 1), 0);
	open_device(NULL);
	ck_assert_int_lt(device.backend->slab_create(device.dev, 2 * MIB, &fd, &err), 0);
	ck_assert_int_eq(fd, -7);
	fd = new_slab(2 * MIB); /* the second time it works */
	struct gantry_mem *window = new_window(0, 2 * MIB);
	map(window, 0, 2 * MIB, fd);
	run_ok(copy_cmd(host_mem(back, 64), 0, window, 0, 64));
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_map_of_what_is_no_slab_is_refused)
{
	open_device(NULL);
	struct gantry_mem *window = new_window(0, 4 * MIB);
	ck_assert_int_lt(device.backend->window_map(window, 0, 2 * MIB, STDIN_FILENO, &err), 0);
	ck_assert_ptr_nonnull(strstr(err.text, "cuMemImport"));
	gantry_device_close(&device);
}
END_TEST

/* Nor one between two devices that are one GPU, where the driver's call for two contexts is not made. */
START_TEST(test_copy_between_sisters_needs_no_host)
{
	static unsigned char back[4096], expected[4096];
	const char *more[] = { _i ? "gpu=0" : "gpu=1", NULL };
	struct gantry_device sister;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", _i ? "1" : "2", 1), 0);
	if (_i)
		ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemcpyPeerAsync:1+:1", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	struct gantry_mem *theirs;
	ck_assert_int_eq(sister.backend->mem_alloc(sister.dev, 4096, &theirs, &err), 0);
	open_device(NULL);
	struct gantry_mem *ours = device_mem(4096);

	memset(expected, 0x3c, 4096);
	run_ok(fill_cmd(ours, 0, 4096, 0x3c, 1));
	run_ok(copy_cmd(theirs, 0, ours, 0, 4096));
	run_ok(fill_cmd(ours, 0, 4096, 0, 1));
	run_ok(copy_cmd(ours, 0, theirs, 0, 4096));
	run_ok(copy_cmd(host_mem(back, 4096), 0, ours, 0, 4096));
	ck_assert_mem_eq(back, expected, 4096);
	gantry_device_close(&device);
	gantry_device_close(&sister);
}
END_TEST

/* The slab of the one that is a GPU by itself is mapped for the other's once, whatever devices that is. */
START_TEST(test_devices_of_one_gpu_and_another_reach_each_other)
{
	static const char *const names[3] = { "gpu=0", "gpu=0", "gpu=1" };
	struct gantry_device devices[3];
	struct gantry_mem *windows[3];
	int fds[3];

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	for (int i = 0; i < 3; i++) {
		const char *more[] = { names[i], NULL };

		ck_assert_msg(open_with(&devices[i], more) == 0, "%s", err.text);
		ck_assert_int_eq(devices[i].backend->thread_enter(devices[i].dev, &err), 0);
	}
	for (int i = 0; i < 3; i++) {
		const struct gantry_backend *be = devices[i].backend;

		ck_assert_int_eq(be->slab_create(devices[i].dev, 4 * MIB, &fds[i], &err), 0);
		ck_assert_int_eq(be->window_open(devices[i].dev, 0, 64 * MIB, &windows[i], &err),
				 0);
		ck_assert_msg(be->window_map(windows[i], 0, 4 * MIB, fds[i], &err) == 0, "%s",
			      err.text);
		gantry_fd_close(fds[i]);
	}
	for (int i = 0; i < 3; i++)
		ck_assert_msg(devices[i].backend->window_swap(windows[i], windows[(i + 1) % 3],
							      &err) == 0,
			      "%s", err.text);
	for (int i = 0; i < 3; i++)
		gantry_device_close(&devices[i]);
}
END_TEST

static uint64_t ask_limit(const struct gantry_device *of, uint64_t bytes)
{
	const struct gantry_question question = { .what = GANTRY_QUESTION_LIMIT,
						  .number = { CU_LIMIT_STACK_SIZE, bytes } };
	uint8_t answer[GANTRY_ANSWER_BYTES];
	uint64_t value;

	ck_assert_int_gt(of->backend->ask(of->dev, &question, answer, &err), 0);
	memcpy(&value, answer, sizeof(value));
	return value;
}

START_TEST(test_limit_of_a_gpu_is_not_lowered_under_its_other_device)
{
	struct gantry_device devices[2];

	for (int i = 0; i < 2; i++) {
		const struct gantry_device *d = &devices[i];

		ck_assert_msg(open_with(&devices[i], NULL) == 0, "%s", err.text);
		ck_assert_int_eq(d->backend->thread_enter(d->dev, &err), 0);
		ck_assert_uint_eq(ask_limit(d, 65536), 65536);
		ck_assert_uint_eq(ask_limit(d, 8192), i == 0 ? 8192 : 65536);
	}
	for (int i = 0; i < 2; i++)
		gantry_device_close(&devices[i]);
}
END_TEST

/* A session's heap comes to each of the worker's devices; the driver pins a range once. */
START_TEST(test_host_memory_of_two_devices_is_pinned_once)
{
	static unsigned char data[4096], back[4096];
	const char *more[] = { "gpu=1", NULL };
	struct gantry_device sister;
	struct gantry_mem *theirs;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	ck_assert_int_eq(sister.backend->mem_host(sister.dev, data, 4096, &theirs, &err), 0);
	ck_assert_str_eq(err.text, "");
	struct gantry_mem *ours = host_mem(data, 4096);
	ck_assert_str_eq(err.text, "");
	sister.backend->mem_free(theirs);

	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ ours, 0, 4 };
	run_ok(cmd);
	ck_assert_uint_eq(data[0], 1);
	run_ok(copy_cmd(host_mem(back, 4096), 0, ours, 0, 4096));
	gantry_device_close(&device);
	gantry_device_close(&sister);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_windows");
	TCase *windows = gantry_unit_case(suite, "windows");

	tcase_add_test(windows, test_slab_is_clean_and_keeps_its_bytes_in_its_descriptor);
	tcase_add_test(windows, test_slab_of_a_window_lies_in_a_range_too);
	tcase_add_test(windows, test_record_writes_what_lies_in_a_range_too);
	tcase_add_loop_test(windows, test_windows_of_two_devices_exchange_their_addresses, 0, 2);
	tcase_add_loop_test(windows, test_exchange_of_addresses_that_fails_leaves_all_as_it_was, 0,
			    3);
	tcase_add_test(windows, test_exchange_of_addresses_without_a_way_back_says_so);
	tcase_add_test(windows, test_slab_survives_the_device_that_made_it);
	tcase_add_test(windows, test_window_at_an_address_that_is_taken_is_refused);
	tcase_add_test(windows, test_slab_past_the_memory_is_refused);
	tcase_add_loop_test(windows, test_slab_and_map_that_fail_halfway_leave_nothing, 0, 5);
	tcase_add_test(windows, test_map_of_what_is_no_slab_is_refused);
	tcase_add_loop_test(windows, test_copy_between_sisters_needs_no_host, 0, 2);
	tcase_add_test(windows, test_devices_of_one_gpu_and_another_reach_each_other);
	tcase_add_test(windows, test_limit_of_a_gpu_is_not_lowered_under_its_other_device);
	tcase_add_test(windows, test_host_memory_of_two_devices_is_pinned_once);
	return gantry_unit_run(suite);
}
