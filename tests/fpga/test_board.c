/* SPDX-License-Identifier: Apache-2.0 */
/* The test board by itself, through a driver's table: what its kernels compute, what they refuse, and how many cycles they take. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "devices/board/driver.h"
#include "tests/unit/runner.h"

#define A 0x0u
#define B 0x100000u
#define C 0x200000u

static const struct gantry_board_driver *driver;
static void *board;
static struct gantry_board_info info;

static int load_file(uint32_t region, int fd, char *text, size_t cap)
{
	const struct gantry_board_file file = { .place = region, .fd = fd };

	return driver->load(board, &file, text, cap);
}

static void load(uint32_t region, const char *bitstream)
{
	char path[512], text[128] = "";
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s.bit", BITSTREAMS, bitstream);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_msg(load_file(region, fd, text, sizeof(text)) == 0, "%s", text);
	close(fd);
}

static void board_open(const char *options)
{
	void *library = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
	char text[128] = "";

	ck_assert_msg(library != NULL, "%s", dlerror());
	driver = dlsym(library, GANTRY_BOARD_DRIVER_SYMBOL);
	ck_assert_ptr_nonnull(driver);
	ck_assert_uint_eq(driver->abi, GANTRY_BOARD_ABI);
	ck_assert_uint_eq(driver->bytes, sizeof(*driver));
	ck_assert_msg(driver->open(options, NULL, 0, &board, &info, text, sizeof(text)) == 0, "%s",
		      text);
}

static uint32_t reg(uint32_t window, uint32_t off)
{
	return window * GANTRY_BOARD_WINDOW_BYTES + off;
}

static void set_args(uint32_t region, uint32_t window, const uint64_t *args, unsigned int nargs)
{
	for (unsigned int i = 0; i < nargs; i++)
		driver->write(board, region, reg(window, GANTRY_BOARD_ARGS + 8 * i), args[i]);
}

static void start(uint32_t region, uint32_t window)
{
	driver->write(board, region, reg(window, GANTRY_BOARD_CONTROL), GANTRY_BOARD_START);
}

/* Waits until the unit is done; the cycles it took. *@ret_refused says whether it refused its arguments. */
static uint64_t finish(uint32_t region, uint32_t window, bool *ret_refused)
{
	uint64_t control;

	while (!((control = driver->read(board, region, reg(window, GANTRY_BOARD_CONTROL))) &
		 GANTRY_BOARD_DONE))
		ck_assert_int_ge(driver->wait(board, 1000000), 0);
	*ret_refused = control & GANTRY_BOARD_REFUSED;
	driver->write(board, region, reg(window, GANTRY_BOARD_CONTROL), GANTRY_BOARD_DONE);
	ck_assert_uint_eq(driver->read(board, region, reg(window, GANTRY_BOARD_CONTROL)),
			  GANTRY_BOARD_IDLE);
	return driver->read(board, region, reg(window, GANTRY_BOARD_CYCLES));
}

static uint64_t run(uint32_t region, uint32_t window, const uint64_t *args, unsigned int nargs)
{
	bool refused;
	uint64_t cycles;

	set_args(region, window, args, nargs);
	start(region, window);
	cycles = finish(region, window, &refused);
	ck_assert(!refused);
	return cycles;
}

static int32_t values[65536], results[65536];

static void fill(uint64_t at, uint32_t n, uint32_t factor)
{
	for (uint32_t i = 0; i < n; i++)
		values[i] = (int32_t)(i * factor + 7);
	ck_assert_int_eq(driver->mem_write(board, at, values, 4ull * n), 0);
}

static void fetch(uint64_t at, uint32_t n)
{
	ck_assert_int_eq(driver->mem_read(board, at, results, 4ull * n), 0);
}

START_TEST(test_windows_say_what_they_are)
{
	static const struct {
		const char *bitstream;
		uint32_t windows[2];
	} images[] = { { "vadd", { 7, 0 } },
		       { "scale", { 6, 0 } },
		       { "stencil", { 6, 0 } },
		       { "pair", { 7, 6 } } };

	board_open("");
	ck_assert_str_eq(info.model, "two-regions");
	ck_assert_uint_eq(info.nregions, 2);
	ck_assert_uint_eq(driver->read(board, 0, GANTRY_BOARD_ID), UINT64_MAX);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(images); i++) {
		load(1, images[i].bitstream);
		for (uint32_t w = 0; w < 2; w++) {
			uint64_t id = driver->read(board, 1, reg(w, GANTRY_BOARD_ID));

			ck_assert_uint_eq(id & 0xff, images[i].windows[w]);
			ck_assert_uint_eq(id >> 32,
					  images[i].windows[w] ? GANTRY_BOARD_IDENTITY : 0);
		}
	}
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_vadd_adds_any_number_of_elements_and_touches_no_more)
{
	static const uint32_t counts[] = { 0, 1, 15, 16, 17, 1000, 4096 };

	board_open("");
	load(0, "vadd");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(counts); i++) {
		uint32_t n = counts[i];
		uint64_t args[] = { A, 4ull * n, B, 4ull * n, C, 4ull * n, n };

		fill(A, 8192, 3);
		fill(B, 8192, 1000000007);
		fill(C, 8192, 0); /* all are 7 */
		(void)run(0, 0, args, 7);
		fetch(C, 8192);
		for (uint32_t k = 0; k < 8192; k++)
			ck_assert_int_eq(results[k],
					 k < n ? (int32_t)(k * 3u + 7 + k * 1000000007u + 7) : 7);
	}
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_scale_multiplies)
{
	uint64_t args[] = { A, 4000, C, 4000, (uint32_t)-5, 1000 };

	board_open("");
	load(1, "scale");
	fill(A, 1000, 12345);
	(void)run(1, 0, args, 6);
	fetch(C, 1000);
	for (uint32_t k = 0; k < 1000; k++)
		ck_assert_int_eq(results[k], (int32_t)((k * 12345u + 7) * (uint32_t)-5));
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

static uint32_t at(const int32_t *grid, int w, int h, int x, int y)
{
	return x < 0 || y < 0 || x >= w || y >= h ? 0 : (uint32_t)grid[y * w + x];
}

START_TEST(test_stencil_is_that_of_a_plain_loop)
{
	static const int sizes[][2] = { { 16, 1 }, { 16, 16 }, { 48, 5 }, { 64, 33 } };

	board_open("");
	load(0, "stencil");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(sizes); i++) {
		int w = sizes[i][0], h = sizes[i][1];
		uint64_t bytes = (uint64_t)(4 * w * h);
		uint64_t args[] = { A, bytes, C, bytes, (uint64_t)w, (uint64_t)h };

		fill(A, (uint32_t)(w * h), 2654435761u);
		(void)run(0, 0, args, 6);
		fetch(C, (uint32_t)(w * h));
		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x++)
				ck_assert_uint_eq((uint32_t)results[y * w + x],
						  4 * at(values, w, h, x, y) -
							  at(values, w, h, x - 1, y) -
							  at(values, w, h, x + 1, y) -
							  at(values, w, h, x, y - 1) -
							  at(values, w, h, x, y + 1));
	}
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_units_refuse_what_lies_outside_their_buffers)
{
	static const uint64_t vadd[][7] = {
		{ A, 64, B, 64, C, 60, 16 },
		{ A, 64, B, 63, C, 64, 16 },
		{ A, 64, B, 64, C, 64, 17 },
		{ A, UINT64_MAX, B, UINT64_MAX, C, UINT64_MAX, 1ull << 62 },
	};
	static const uint64_t stencil[][6] = {
		{ A, 1024, C, 1020, 16, 16 },
		{ A, 1024, C, 1024, 17, 15 },
		{ A, 1024, C, 1024, 1u << 16, 1u << 16 },
	};
	bool refused;

	board_open("");
	load(0, "vadd");
	load(1, "stencil");
	fill(C, 1024, 0);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(vadd); i++) {
		set_args(0, 0, vadd[i], 7);
		start(0, 0);
		(void)finish(0, 0, &refused);
		ck_assert(refused);
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(stencil); i++) {
		set_args(1, 0, stencil[i], 6);
		start(1, 0);
		(void)finish(1, 0, &refused);
		ck_assert(refused);
	}
	fetch(C, 1024);
	for (uint32_t k = 0; k < 1024; k++)
		ck_assert_int_eq(results[k], 7);
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_arguments_do_not_change_while_a_unit_works)
{
	uint64_t args[] = { A, 16384, C, 16384, 3, 4096 };
	bool refused;

	board_open("");
	load(0, "scale");
	fill(A, 4096, 1);
	set_args(0, 0, args, 6);
	start(0, 0);
	driver->write(board, 0, reg(0, GANTRY_BOARD_ARGS + 16), B);
	start(0, 0);
	(void)finish(0, 0, &refused);
	ck_assert(!refused);
	fetch(C, 4096);
	for (uint32_t k = 0; k < 4096; k++)
		ck_assert_int_eq(results[k], (int32_t)(3 * (k + 7)));
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

/* Cycles of the board from the start of both units until both are done. */
static uint64_t together(uint32_t region_b, uint32_t window_b, const uint64_t *vadd,
			 const uint64_t *scale)
{
	uint64_t from, a, b, until;
	bool refused;

	set_args(0, 0, vadd, 7);
	set_args(region_b, window_b, scale, 6);
	from = driver->cycles(board);
	start(0, 0);
	start(region_b, window_b);
	a = finish(0, 0, &refused);
	b = finish(region_b, window_b, &refused);
	until = from + 2 + (a > b ? a : b); /* the later one began a cycle after the first */
	ck_assert_uint_le(until, driver->cycles(board));
	return until - from;
}

START_TEST(test_two_kernels_together_take_at_most_seven_tenths_of_their_serial_cycles)
{
	/* The halves take about as long: vadd's beat takes two reads and a write, scale's one and one. */
	uint64_t vadd[] = { A, 65536, B, 65536, C, 65536, 16384 };
	uint64_t scale[] = { A, 131072, 0x300000, 131072, 9, 32768 };
	uint64_t a, b, in_one_image, in_two_regions;

	board_open("");
	load(0, "pair");
	load(1, "scale");
	a = run(0, 0, vadd, 7);
	b = run(0, 1, scale, 6);
	in_one_image = together(0, 1, vadd, scale);
	in_two_regions = together(1, 0, vadd, scale);
	printf("# vadd alone %llu cycles, scale alone %llu; together in one image %llu (%.3f), in two regions %llu (%.3f)\n",
	       (unsigned long long)a, (unsigned long long)b, (unsigned long long)in_one_image,
	       (double)in_one_image / (double)(a + b), (unsigned long long)in_two_regions,
	       (double)in_two_regions / (double)(a + b));
	ck_assert((double)in_one_image <= 0.7 * (double)(a + b));
	ck_assert((double)in_two_regions <= 0.7 * (double)(a + b));
	/* Cycles are exact. */
	ck_assert_uint_eq(run(0, 0, vadd, 7), a);
	ck_assert_uint_eq(together(0, 1, vadd, scale), in_one_image);
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

/* Two launches of one unit that use the same memory, with nobody's help in between; what the first left was copied before the second wrote. */
START_TEST(test_a_launch_follows_another)
{
	const uint64_t first[] = { A, 4096, B, 4096, 5, 1024 },
		       second[] = { A, 4096, B, 4096, 9, 1024 };
	static int32_t between[1024];
	const struct gantry_board_copy copy = { .at = B, .len = sizeof(between), .to = between };
	uint64_t alone, began;
	bool refused;

	board_open("");
	load(0, "scale");
	fill(A, 1024, 3);
	alone = run(0, 0, first, 6);
	ck_assert_int_eq(driver->follow(board, 0, 0, second, 6, &copy, 1), -EAGAIN);
	ck_assert_int_eq(driver->follow(board, 1, 0, second, 6, &copy, 1), -EINVAL);
	set_args(0, 0, first, 6);
	began = driver->cycles(board);
	start(0, 0);
	ck_assert_int_eq(driver->follow(board, 0, 0, second, 6, &copy, 1), 0);
	ck_assert_int_eq(driver->follow(board, 0, 0, second, 6, &copy, 1), -EAGAIN);
	while (driver->cycles(board) - began < 3 * alone)
		ck_assert_int_ge(driver->wait(board, 1000000), 0);
	/* Both have ended: the window is the first one's until that has been seen. */
	ck_assert_uint_eq(driver->read(board, 0, GANTRY_BOARD_CYCLES), alone);
	ck_assert(driver->read(board, 0, GANTRY_BOARD_CONTROL) & GANTRY_BOARD_DONE);
	for (uint32_t i = 0; i < 1024; i++)
		ck_assert_int_eq(between[i], values[i] * 5);
	driver->write(board, 0, GANTRY_BOARD_CONTROL, GANTRY_BOARD_DONE);
	ck_assert_uint_eq(finish(0, 0, &refused), alone);
	fetch(B, 1024);
	for (uint32_t i = 0; i < 1024; i++)
		ck_assert_int_eq(results[i], values[i] * 9);
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_a_region_is_loaded_while_the_other_is_at_work)
{
	uint64_t args[] = { A, 65536, C, 65536, 5, 16384 };
	bool refused;

	board_open("");
	load(0, "scale");
	fill(A, 16384, 1);
	set_args(0, 0, args, 6);
	start(0, 0);
	load(1, "vadd");
	(void)finish(0, 0, &refused);
	fetch(C, 16384);
	for (uint32_t k = 0; k < 16384; k++)
		ck_assert_int_eq(results[k], (int32_t)(5 * (k + 7)));
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_one_process_has_the_board)
{
	char options[128], text[128] = "", path[] = "/tmp/gantry-board-lock-XXXXXX";
	struct gantry_board_info other_info;
	void *other = NULL;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	(void)snprintf(options, sizeof(options), "memory=4096 lock=%s", path);
	board_open(options);
	ck_assert_uint_eq(info.mem_bytes, 4096);
	ck_assert_int_eq(driver->open(options, NULL, 0, &other, &other_info, text, sizeof(text)),
			 -EBUSY);
	ck_assert_str_eq(text, "another process has the board");
	ck_assert_ptr_null(other);
	driver->close(board);
	ck_assert_int_eq(driver->open(options, NULL, 0, &other, &other_info, text, sizeof(text)),
			 0);
	driver->close(other);
	close(fd);
	unlink(path);
	gantry_unit_forgive();
}
END_TEST

START_TEST(test_faults_come_as_they_are_asked_for)
{
	char text[128] = "";
	int fd;

	board_open("fail_loads=1 fail_copies=1 lost_after=2 memory_lost=1");
	fd = open(BITSTREAMS "/vadd.bit", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(driver->mem_write(board, A, values, 64), -EIO);
	ck_assert_int_eq(driver->mem_write(board, A, values, 64), 0);
	ck_assert_int_eq(load_file(0, fd, text, sizeof(text)), -EIO);
	ck_assert_uint_eq(driver->read(board, 0, GANTRY_BOARD_ID), UINT64_MAX);
	ck_assert_int_eq(load_file(0, fd, text, sizeof(text)), 0);
	fetch(A, 16);
	ck_assert_uint_eq((uint32_t)results[15], 0xdbdbdbdb);
	ck_assert_int_eq(load_file(0, fd, text, sizeof(text)), -ENODEV);
	close(fd);
	driver->close(board);
	gantry_unit_forgive();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("test board");
	TCase *tc = gantry_unit_case(suite, "board");

	tcase_add_test(tc, test_windows_say_what_they_are);
	tcase_add_test(tc, test_vadd_adds_any_number_of_elements_and_touches_no_more);
	tcase_add_test(tc, test_scale_multiplies);
	tcase_add_test(tc, test_stencil_is_that_of_a_plain_loop);
	tcase_add_test(tc, test_units_refuse_what_lies_outside_their_buffers);
	tcase_add_test(tc, test_arguments_do_not_change_while_a_unit_works);
	tcase_add_test(tc,
		       test_two_kernels_together_take_at_most_seven_tenths_of_their_serial_cycles);
	tcase_add_test(tc, test_a_launch_follows_another);
	tcase_add_test(tc, test_a_region_is_loaded_while_the_other_is_at_work);
	tcase_add_test(tc, test_one_process_has_the_board);
	tcase_add_test(tc, test_faults_come_as_they_are_asked_for);
	return gantry_unit_run(suite);
}
