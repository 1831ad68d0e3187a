/* SPDX-License-Identifier: Apache-2.0 */
/* The cuda backend over the fake driver: copies, fills, and host memory, which is pinned in pieces. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/cuda/backend.h"
#include "tests/unit/devices/cuda_fixture.h"
#include "tests/unit/runner.h"

/* ---- memory ---- */

START_TEST(test_fill_of_every_width_at_any_address)
{
	static unsigned char back[512], expected[512];
	const uint64_t patterns[] = { 0x8877665544332211ull, 0x4433221144332211ull,
				      0xabababababababab, 0 };

	open_device(NULL);
	struct gantry_mem *mem = device_mem(512), *host_side = host_mem(back, 512);
	for (uint32_t width = 1; width <= 8; width *= 2) {
		for (uint32_t off = 0; off < 9; off++) {
			uint64_t pattern = patterns[off % GANTRY_ARRAY_SIZE(patterns)];

			memset(expected, 0xee, sizeof(expected));
			for (uint32_t i = 0; i < 23; i++)
				memcpy(expected + off + i * width, &pattern, width);
			run_ok(fill_cmd(mem, 0, 512, 0xee, 1));
			run_ok(fill_cmd(mem, off, 23 * width, pattern, width));
			run_ok(copy_cmd(host_side, 0, mem, 0, 512));
			ck_assert_mem_eq(back, expected, 512);
		}
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_fill_longer_than_its_seed_is_whole)
{
	const uint64_t pattern = 0x0102030405060708ull, len = 3 * MIB + 8;
	uint64_t *back = malloc(len);

	open_device(NULL);
	struct gantry_mem *mem = device_mem(len);
	run_ok(fill_cmd(mem, 0, len, pattern, 8));
	run_ok(copy_cmd(host_mem(back, len), 0, mem, 0, len));
	for (uint64_t i = 0; i < len / 8; i++)
		if (back[i] != pattern)
			ck_abort_msg("word %zu is %#zx", (size_t)i, (size_t)back[i]);
	gantry_device_close(&device);
	free(back);
}
END_TEST

START_TEST(test_copy_of_overlapping_ranges_moves_them)
{
	static unsigned char data[1000], back[1000], expected[1000];

	open_device(NULL);
	struct gantry_mem *mem = device_mem(1000), *in = host_mem(data, 1000),
			  *out = host_mem(back, 1000);
	for (unsigned int i = 0; i < 1000; i++)
		data[i] = (unsigned char)(i * 31);
	for (int shift = -7; shift <= 7; shift += 7) {
		run_ok(copy_cmd(mem, 0, in, 0, 1000));
		run_ok(copy_cmd(mem, (uint64_t)(100 + shift), mem, 100, 800));
		run_ok(copy_cmd(out, 0, mem, 0, 1000));
		memcpy(expected, data, 1000);
		memmove(expected + 100 + shift, expected + 100, 800);
		ck_assert_mem_eq(back, expected, 1000);
	}
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_copy_and_fill_of_nothing_end_well)
{
	open_device(NULL);
	struct gantry_mem *mem = device_mem(64);
	run_ok(fill_cmd(mem, 64, 0, 1, 8));
	run_ok(copy_cmd(mem, 0, mem, 64, 0));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_host_memory_that_cannot_be_pinned_works_and_says_so)
{
	static unsigned char data[4096], back[4096];

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+:2", 1), 0);
	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	struct gantry_mem *mem = device_mem(4096), *in = host_mem(data, 4096);
	ck_assert_ptr_nonnull(strstr(err.text, "not pinned"));
	struct gantry_mem *out = host_mem(back, 4096);
	memset(data, 0x5a, sizeof(data));
	run_ok(copy_cmd(mem, 0, in, 0, 4096));
	run_ok(copy_cmd(out, 0, mem, 0, 4096));
	ck_assert_mem_eq(back, data, 4096);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_kernel_on_host_memory_that_it_cannot_reach_is_refused)
{
	static uint32_t x = 5;

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1+:2", 1), 0);
	open_device(NULL);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ host_mem(&x, 4), 0, 4 };
	cmd.launch.args[1].value.u32 = 2;
	ck_assert_int_eq(submit(&cmd, 1), -EOPNOTSUPP);
	ck_assert_uint_eq(x, 5);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_alloc_is_clean_and_keeps_to_the_pool)
{
	static unsigned char back[4096], zero[4096];
	struct gantry_mem *mem = NULL;

	ck_assert_int_eq(setenv("FAKECUDA_DIRTY", "1", 1), 0);
	open_device(NULL);
	run_ok(copy_cmd(host_mem(back, 4096), 0, device_mem(4096), 0, 4096));
	ck_assert_mem_eq(back, zero, 4096);
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, 1ull << 60, &mem, &err), -ENOMEM);
	ck_assert_ptr_null(mem);
	gantry_device_close(&device);
}
END_TEST

/* ---- host memory that is pinned in pieces ---- */

#define LARGE (80 * MIB)

static unsigned char *large_memory(void)
{
	unsigned char *base = mmap(NULL, LARGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(base, MAP_FAILED);
	return base;
}

/* What is pinned cannot be pinned again. */
static bool is_pinned(void *at)
{
	static CUresult (*pin)(void *, size_t, unsigned int), (*unpin)(void *);
	CUresult result;

	if (!pin) {
		void *driver = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);

		ck_assert_ptr_nonnull(driver);
		*(void **)&pin = dlsym(driver, "cuMemHostRegister_v2");
		*(void **)&unpin = dlsym(driver, "cuMemHostUnregister");
		ck_assert(pin && unpin);
	}
	result = pin(at, 1, 0);
	if (result == CUDA_SUCCESS)
		ck_assert_int_eq(unpin(at), CUDA_SUCCESS);
	else
		ck_assert_int_eq(result, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	return result != CUDA_SUCCESS;
}

/* Which MiB of it are pinned, as ranges of text: "0-31 64-79". */
static const char *pinned(unsigned char *base)
{
	static char text[256];
	size_t used = 0;

	text[0] = '\0';
	for (uint64_t i = 0, from; i < LARGE / MIB; i++) {
		for (from = i; i < LARGE / MIB && is_pinned(base + i * MIB); i++)
			;
		if (i > from)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%d-%d",
						 used ? " " : "", (int)from, (int)i - 1);
	}
	return text;
}

static unsigned char pattern_at(uint64_t i)
{
	return (unsigned char)(i * 31 >> 7);
}

START_TEST(test_host_memory_is_pinned_where_commands_use_it)
{
	unsigned char *base = large_memory();
	const uint64_t len = 40 * MIB;

	open_device(NULL);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(len);
	ck_assert_str_eq(err.text, "");
	ck_assert_str_eq(pinned(base), "");
	run_ok(copy_cmd(mem, 0, large, LARGE - 64, 64));
	ck_assert_str_eq(pinned(base), "64-79");
	run_ok(fill_cmd(large, 0, LARGE, 0x5a, 1)); /* needs no pins */
	ck_assert_str_eq(pinned(base), "64-79");
	run_ok(copy_cmd(mem, 0, large, 2 * MIB, 1));
	run_ok(copy_cmd(mem, 0, large, 3 * MIB, 1));
	ck_assert_str_eq(pinned(base), "0-31 64-79");

	/* From one piece into the third, there and back. */
	for (uint64_t i = 0; i < len; i++)
		base[31 * MIB + i] = pattern_at(i);
	run_ok(copy_cmd(mem, 0, large, 31 * MIB, len));
	ck_assert_str_eq(pinned(base), "0-79");
	memset(base + 31 * MIB, 0, len);
	run_ok(copy_cmd(large, 29 * MIB + 1, mem, 0, len));
	for (uint64_t i = 0; i < len; i++)
		if (base[29 * MIB + 1 + i] != pattern_at(i))
			ck_abort_msg("byte %zu differs", (size_t)i);
	device.backend->mem_free(large);
	ck_assert_str_eq(pinned(base), "");
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

START_TEST(test_kernels_reach_all_pieces_of_their_host_memory)
{
	unsigned char *base = large_memory();
	const uint64_t from = 32 * MIB - 5000, len = 10000;

	open_device(NULL);
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(len);
	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB - 4, 8 };
	run_ok(cmd);
	ck_assert_str_eq(pinned(base), "0-63");

	/* A host function moves across the border too, also at an odd place. */
	for (uint64_t odd = 0; odd < 2; odd++) {
		unsigned char back[10000];

		cmd = launch_cmd(module_image(), "paint", "rw:u8*,w:u8*");
		cmd.launch.args[0].range = (struct gantry_range){ large, from + odd, len };
		cmd.launch.args[1].range = (struct gantry_range){ mem, 0, len };
		run_ok(cmd);
		run_ok(copy_cmd(host_mem(back, len), 0, mem, 0, len));
		for (uint64_t i = 0; i < len; i++)
			ck_assert_uint_eq(back[i], i % 2 ? 0x22 : 0x11);
		ck_assert_mem_eq(back, base + from + odd, len);
	}
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

START_TEST(test_piece_that_cannot_be_pinned_is_copied_all_the_same)
{
	unsigned char *base = large_memory();

	ck_assert_int_eq(setenv("FAKECUDA_FAIL", "cuMemHostRegister:1:2", 1), 0);
	open_device(NULL);
	struct gantry_mem *large = host_mem(base, LARGE), *mem = device_mem(2 * MIB);
	memset(base, 0x3c, LARGE);
	run_ok(copy_cmd(mem, 0, large, 0, 4096)); /* the first try, which is refused */
	err = (struct gantry_err)GANTRY_ERR_NONE;
	device.backend->mem_free(host_mem(base, LARGE));
	ck_assert_ptr_nonnull(strstr(err.text, "not pinned"));
	ck_assert_str_eq(pinned(base), "");
	run_ok(copy_cmd(mem, 0, large, 31 * MIB, 2 * MIB));
	ck_assert_str_eq(pinned(base), "32-63");
	memset(base, 0, LARGE);
	run_ok(copy_cmd(large, 31 * MIB, mem, 0, 2 * MIB));
	for (uint64_t i = 31 * MIB; i < 33 * MIB; i++)
		if (base[i] != 0x3c)
			ck_abort_msg("byte %zu differs", (size_t)i);

	struct gantry_cmd cmd = launch_cmd(ptx_image(), "step", "rw:u32*,u32");
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB - 4, 8 };
	ck_assert_int_eq(submit(&cmd, 1), -EOPNOTSUPP);
	cmd.launch.args[0].range = (struct gantry_range){ large, 32 * MIB, 8 };
	run_ok(cmd);
	gantry_device_close(&device);
	(void)munmap(base, LARGE);
}
END_TEST

/* A copy of a byte by another device than the test's, whose context this thread does not have. */
static void copy_on(struct gantry_device *on, struct gantry_stream *their_stream,
		    struct gantry_mem *dst, struct gantry_mem *src, uint64_t src_off)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)WAIT_NS);
	struct gantry_cmd cmd = copy_cmd(dst, 0, src, src_off, 1);
	struct gantry_done done;

	cmd.tag = 1;
	ck_assert_int_eq(on->backend->submit(their_stream, &cmd), 0);
	while (on->backend->poll(on->dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_int_eq(done.status, GANTRY_OK);
}

START_TEST(test_pieces_of_two_devices_are_pinned_once)
{
	unsigned char *base = large_memory();
	const char *more[] = { "gpu=1", NULL };
	struct gantry_device sister;
	struct gantry_mem *theirs, *there;

	ck_assert_int_eq(setenv("FAKECUDA_DEVICES", "2", 1), 0);
	ck_assert_int_eq(open_with(&sister, more), 0);
	ck_assert_int_eq(sister.backend->thread_enter(sister.dev, &err), 0);
	struct gantry_stream *their_stream = new_stream(&sister, 0);
	ck_assert_int_eq(sister.backend->mem_alloc(sister.dev, 4096, &there, &err), 0);
	open_device(NULL);
	ck_assert_int_eq(sister.backend->mem_host(sister.dev, base, LARGE, &theirs, &err), 0);
	struct gantry_mem *ours = host_mem(base, LARGE), *here = device_mem(4096);
	for (unsigned int i = 0; i < 2; i++) {
		copy_on(&sister, their_stream, there, theirs, 40 * MIB + i);
		run_ok(copy_cmd(here, 0, ours, 40 * MIB + i, 4096));
	}
	copy_on(&sister, their_stream, there, theirs, 65 * MIB);
	ck_assert_str_eq(pinned(base), "32-79");
	sister.backend->mem_free(theirs);
	ck_assert_str_eq(pinned(base), "32-63");
	run_ok(copy_cmd(here, 0, ours, 40 * MIB, 4096));
	device.backend->mem_free(ours);
	ck_assert_str_eq(pinned(base), "");
	gantry_device_close(&device);
	gantry_device_close(&sister);
	(void)munmap(base, LARGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda_memory");
	TCase *memory = gantry_unit_case(suite, "memory");
	TCase *pieces = gantry_unit_case(suite, "pieces");

	tcase_add_test(memory, test_fill_of_every_width_at_any_address);
	tcase_add_test(memory, test_fill_longer_than_its_seed_is_whole);
	tcase_add_test(memory, test_copy_of_overlapping_ranges_moves_them);
	tcase_add_test(memory, test_copy_and_fill_of_nothing_end_well);
	tcase_add_test(memory, test_host_memory_that_cannot_be_pinned_works_and_says_so);
	tcase_add_test(memory, test_kernel_on_host_memory_that_it_cannot_reach_is_refused);
	tcase_add_test(memory, test_alloc_is_clean_and_keeps_to_the_pool);
	tcase_add_test(pieces, test_host_memory_is_pinned_where_commands_use_it);
	tcase_add_test(pieces, test_kernels_reach_all_pieces_of_their_host_memory);
	tcase_add_test(pieces, test_piece_that_cannot_be_pinned_is_copied_all_the_same);
	tcase_add_test(pieces, test_pieces_of_two_devices_are_pinned_once);
	return gantry_unit_run(suite);
}
