/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker asks a board about images for a kernel, and what it remembers of the answers. */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "host-agent/worker/image.h"
#include "tests/unit/runner.h"

static struct {
	int load, get; /* what the board answers */
	uint32_t nloads, ngets;
} board;

/* So many calls from now on one of calloc() finds no memory; 0: none. */
static uint32_t memory_short_at;

void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_calloc(size_t n, size_t bytes)
{
	if (memory_short_at > 0 && --memory_short_at == 0)
		return NULL;
	return __real_calloc(n, bytes);
}

static int load(struct gantry_dev *dev, const char *path, const void *bytes, size_t nbytes,
		struct gantry_image **ret_image, struct gantry_err *err)
{
	(void)dev;
	(void)path;
	(void)bytes;
	(void)nbytes;
	(void)err;
	board.nloads++;
	if (board.load == 0)
		*ret_image = (struct gantry_image *)&board;
	return board.load;
}

static void unload(struct gantry_image *image)
{
	ck_assert_ptr_eq(image, &board);
}

static int get(struct gantry_image *image, const char *symbol, const struct gantry_signature *sig,
	       struct gantry_kernel **ret_kernel, struct gantry_err *err)
{
	(void)image;
	(void)symbol;
	(void)sig;
	(void)err;
	board.ngets++;
	if (board.get == 0)
		*ret_kernel = (struct gantry_kernel *)&board;
	return board.get;
}

static const struct gantry_backend backend = { .image_load = load,
					       .image_unload = unload,
					       .kernel_get = get };
static struct gantry_engine engine;
static struct wdevice device;
static struct wkernel kernel;
static char path[] = "/images/a.bit", name[] = "scale";

static void begin(void)
{
	struct gantry_engine_conf conf = { 0 };

	board.load = board.get = 0;
	board.nloads = board.ngets = 0;
	engine = (struct gantry_engine){ 0 };
	pthread_mutex_init(&engine.module_lock, NULL);
	gantry_list_init(&engine.kernels);
	ck_assert_int_eq(worker_modules_open(&engine, &conf, NULL), 0);
	device = (struct wdevice){ .engine = &engine, .device.backend = &backend };
	device.device.info.kind = GANTRY_KIND_FPGA;
	gantry_list_init(&device.images);
	kernel = (struct wkernel){ .name = name };
	kernel.image_paths[GANTRY_KIND_FPGA] = path;
}

static void end(void)
{
	worker_images_free(&device);
	worker_modules_free(&engine);
	pthread_mutex_destroy(&engine.module_lock);
}

static int ask(void)
{
	struct gantry_kernel *form;

	return worker_kernel_on(&device, &kernel, &form);
}

START_TEST(test_image_that_a_board_refuses_is_not_asked_for_again_until_there_may_be_another)
{
	begin();
	board.load = -ENOEXEC;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ask(), GANTRY_E_IMAGE);
	ck_assert_uint_eq(board.nloads, 1);
	ck_assert_int_eq(worker_modules_rescan(&engine, NULL), 0);
	ck_assert_int_eq(ask(), GANTRY_E_IMAGE);
	ck_assert_uint_eq(board.nloads, 2);
	board.load = 0;
	ck_assert_int_eq(ask(), GANTRY_E_IMAGE);
	ck_assert_int_eq(worker_modules_rescan(&engine, NULL), 0);
	ck_assert_int_eq(ask(), GANTRY_OK);
	ck_assert_int_eq(ask(), GANTRY_OK);
	ck_assert_uint_eq(board.nloads, 3);
	ck_assert_uint_eq(board.ngets, 1);
	end();
}
END_TEST

START_TEST(test_kernel_that_an_image_lacks_is_not_asked_for_again_either)
{
	begin();
	board.get = -ENOENT;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ask(), GANTRY_E_NO_KERNEL);
	ck_assert_uint_eq(board.ngets, 1);
	board.get = 0;
	ck_assert_int_eq(worker_modules_rescan(&engine, NULL), 0);
	ck_assert_int_eq(ask(), GANTRY_OK);
	end();
}
END_TEST

START_TEST(test_what_a_board_cannot_do_just_now_is_asked_for_again)
{
	static const int passing[] = { -ENOMEM, -EMFILE, -ETIMEDOUT, -ECONNRESET, -EIO };

	begin();
	for (size_t i = 0; i < 5; i++) {
		board.load = passing[i];
		ck_assert_int_eq(ask(), GANTRY_E_IMAGE);
	}
	board.load = 0;
	board.get = -ENOMEM;
	ck_assert_int_eq(ask(), GANTRY_E_NO_KERNEL);
	board.get = 0;
	ck_assert_int_eq(ask(), GANTRY_OK);
	ck_assert_uint_eq(board.nloads, 6);
	end();
}
END_TEST

START_TEST(test_memory_that_was_short_is_not_taken_for_the_boards_answer)
{
	begin();
	memory_short_at = 1;
	ck_assert_int_eq(ask(), GANTRY_E_NO_MEMORY);
	ck_assert_uint_eq(memory_short_at, 0);
	ck_assert_uint_eq(board.nloads, 0);
	ck_assert_int_eq(ask(), GANTRY_OK);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernel");
	TCase *tc = gantry_unit_case(suite, "kernel");

	tcase_add_test(
		tc,
		test_image_that_a_board_refuses_is_not_asked_for_again_until_there_may_be_another);
	tcase_add_test(tc, test_kernel_that_an_image_lacks_is_not_asked_for_again_either);
	tcase_add_test(tc, test_what_a_board_cannot_do_just_now_is_asked_for_again);
	tcase_add_test(tc, test_memory_that_was_short_is_not_taken_for_the_boards_answer);
	return gantry_unit_run(suite);
}
