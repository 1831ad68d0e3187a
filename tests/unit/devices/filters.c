/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define MAX_OPTS 6

static unsigned int nwakes;

static void wake(void *cookie)
{
	(void)cookie;
	nwakes++;
}

static const struct gantry_device_host host = { .wake = wake };
static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static uint64_t words[8];
static struct gantry_cmd cmd = { .kind = GANTRY_CMD_FILL };

static int open_backend(const char *backend, const char *first, va_list args)
{
	const char *opts[MAX_OPTS] = { first };
	struct gantry_device_conf conf = { .name = "d0", .backend = backend, .opts = opts };

	for (conf.nopts = 1; (opts[conf.nopts] = va_arg(args, const char *)); conf.nopts++)
		;
	return gantry_device_open(&conf, &host, &device, &err);
}

/* Opens a null device with these options, NULL at the end. */
static int open_null(const char *first, ...)
{
	va_list args;
	int r;

	va_start(args, first);
	r = open_backend("null", first, args);
	va_end(args);
	return r;
}

/* The same of a cpu device with windows. */
static void open_window(const char *first, ...)
{
	va_list args;
	int r;

	if (!gantry_backend_find("cpu"))
		gantry_unit_skip("this build has no cpu backend");
	va_start(args, first);
	r = open_backend("cpu", first, args);
	va_end(args);
	ck_assert_msg(r == 0, "%s", err.text);
}

static void make_stream(void)
{
	const struct gantry_stream_attr attr = { 0 };

	ck_assert_int_eq(device.backend->mem_host(device.dev, words, sizeof(words),
						  &cmd.fill.dst.mem, &err),
			 0);
	cmd.fill.dst.len = 8;
	cmd.fill.pattern_bytes = 8;
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
}

static int submit(uint64_t tag)
{
	cmd.tag = tag;
	return device.backend->submit(stream, &cmd);
}

static unsigned int poll_one(struct gantry_done *ret_done)
{
	return device.backend->poll(device.dev, ret_done, 1);
}

START_TEST(test_error_open_fails_with_the_chosen_errno)
{
	ck_assert_int_eq(open_null("filters=error", "error.open=1:EBUSY", NULL), -EBUSY);
	ck_assert_str_eq(err.text, "device d0: error.open struck");
}
END_TEST

START_TEST(test_error_submit_fails_the_nth_only)
{
	ck_assert_int_eq(open_null("filters=error", "error.submit=2:EAGAIN", NULL), 0);
	make_stream();
	ck_assert_int_eq(submit(1), 0);
	ck_assert_int_eq(submit(2), -EAGAIN);
	ck_assert_int_eq(submit(2), 0);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_error_import_fails_from_the_nth_on)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(open_null("filters=error", "error.import=2+:ENOMEM", NULL), 0);
	ck_assert_int_eq(device.backend->mem_import(device.dev, 0, 0, 8, &mem, &err), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(device.backend->mem_import(device.dev, 0, 0, 8, &mem, &err),
				 -ENOMEM);
	ck_assert_str_eq(err.text, "error.import struck");
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_error_done_changes_status_and_blast)
{
	struct gantry_done done;

	ck_assert_int_eq(open_null("filters=error", "error.done=2:DEVICE_LOST", NULL), 0);
	make_stream();
	ck_assert_int_eq(submit(1), 0);
	ck_assert_uint_eq(poll_one(&done), 1);
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_int_eq(submit(2), 0);
	ck_assert_uint_eq(poll_one(&done), 1);
	ck_assert_int_eq(done.status, GANTRY_E_DEVICE_LOST);
	ck_assert_uint_eq(done.blast, GANTRY_BLAST_DEVICE);
	ck_assert_uint_eq(done.tag, 2);
	gantry_device_close(&device);
}
END_TEST

/* Which of 64 submissions fail, as bits. */
static uint64_t pattern_of(const char *seed)
{
	uint64_t pattern = 0;
	struct gantry_done done;

	ck_assert_int_eq(open_null("filters=error", "error.submit=30%:EIO", seed, NULL), 0);
	make_stream();
	for (unsigned int i = 0; i < 64; i++) {
		if (submit(i) < 0)
			pattern |= 1ull << i;
		else
			ck_assert_uint_eq(poll_one(&done), 1);
	}
	gantry_device_close(&device);
	return pattern;
}

START_TEST(test_error_probability_repeats_with_its_seed)
{
	uint64_t first = pattern_of("error.seed=5");

	ck_assert_uint_eq(pattern_of("error.seed=5"), first);
	ck_assert_uint_ne(pattern_of("error.seed=6"), first);
	ck_assert_int_ge(__builtin_popcountll(first), 8);
	ck_assert_int_le(__builtin_popcountll(first), 32);
}
END_TEST

static const char *const bad_rules[] = {
	"error.submit=5",	 "error.submit=0:EIO",
	"error.submit=x:EIO",	 "error.submit=101%:EIO",
	"error.submit=5:EWHAT",	 "error.done=5:EIO",
	"error.submit=5:KERNEL", "error.submit=:EIO",
	"error.seed=0",		 "error.submit=99999999999999999999999999999999:EIO",
};

START_TEST(test_error_rule_that_is_none_is_refused)
{
	ck_assert_int_eq(open_null("filters=error", bad_rules[_i], NULL), -EINVAL);
	ck_assert_str_ne(err.text, "");
}
END_TEST

START_TEST(test_delay_holds_completions_for_polls)
{
	struct gantry_done done[4];

	ck_assert_int_eq(open_null("filters=delay", "delay.polls=3", NULL), 0);
	make_stream();
	ck_assert_int_eq(submit(1), 0);
	ck_assert_int_eq(submit(2), 0);
	for (unsigned int i = 0; i < 3; i++) {
		ck_assert_uint_eq(device.backend->poll(device.dev, done, 4), 0);
		ck_assert_uint_eq(nwakes, i + 1); /* or the device thread would sleep on it */
	}
	ck_assert_uint_eq(device.backend->poll(device.dev, done, 4), 2);
	ck_assert_uint_eq(done[0].tag, 1);
	ck_assert_uint_eq(done[1].tag, 2);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_delay_holds_completions_for_a_time)
{
	struct gantry_done done;
	uint64_t start;

	ck_assert_int_eq(open_null("filters=delay", "delay.time=2ms", NULL), 0);
	make_stream();
	start = gantry_now_ns();
	ck_assert_int_eq(submit(1), 0);
	while (poll_one(&done) == 0)
		;
	ck_assert_uint_ge(gantry_now_ns() - start, 2 * GANTRY_NS_PER_MS);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_delay_option_that_is_none_is_refused)
{
	ck_assert_int_eq(open_null("filters=delay", "delay.time=soon", NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "delay.time: "));
	ck_assert_int_eq(open_null("filters=delay", "delay.polls=-1", NULL), -EINVAL);
}
END_TEST

START_TEST(test_record_writes_every_call)
{
	static const char expected[] =
		"open d0 backend=null -> 0\n"
		"1 mem_host len=64 -> 0\n"
		"2 stream_create priority=0 -> 0\n"
		"submit stream=2 tag=17 fill dst=1+0:8 pattern=0x0/8 -> 0\n"
		"done tag=17 status=GANTRY_OK blast=0\n"
		"3 image_load path=/x bytes=0 -> 0\n"
		"4 kernel_get image=3 k r:u8*,i8 -> 0\n"
		"submit stream=2 tag=18 launch kernel=4 grid=0,0,0 block=0,0,0"
		" arg=1+8:16 arg=0xff -> 0\n"
		"stream_destroy 2\n"
		"mem_free 1\n"
		"image_unload 3\n"
		"close\n";
	char path[] = "/tmp/gantry-record.XXXXXX", opt[64];
	struct gantry_cmd launch = { .kind = GANTRY_CMD_LAUNCH, .tag = 18 };
	struct gantry_signature sig;
	struct gantry_image *image;
	struct gantry_done done;
	char *text;

	gantry_fd_close(mkstemp(path));
	snprintf(opt, sizeof(opt), "record.file=%s", path);
	ck_assert_int_eq(open_null("filters=record", opt, NULL), 0);
	make_stream();
	ck_assert_int_eq(submit(17), 0);
	ck_assert_uint_eq(poll_one(&done), 1);
	ck_assert_int_eq(device.backend->image_load(device.dev, "/x", NULL, 0, &image, &err), 0);
	ck_assert_int_eq(gantry_signature_parse("r:u8*,i8", &sig, &err), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "k", &sig, &launch.launch.kernel, &err),
			 0);
	launch.launch.nargs = 2;
	launch.launch.args[0].range = (struct gantry_range){ cmd.fill.dst.mem, 8, 16 };
	launch.launch.args[1].value.i64 = -1;
	ck_assert_int_eq(device.backend->submit(stream, &launch), 0);
	device.backend->stream_destroy(stream);
	device.backend->mem_free(cmd.fill.dst.mem);
	device.backend->image_unload(image);
	gantry_device_close(&device);

	ck_assert_int_eq(gantry_file_read(path, 4096, &text, NULL), 0);
	ck_assert_str_eq(text, expected);
	free(text);
	unlink(path);
}
END_TEST

START_TEST(test_record_writes_slabs_and_windows)
{
	static const char expected[] = "open d0 backend=cpu -> 0\n"
				       "slab_create len=2097152 -> 0\n"
				       "1 window_open address=0x0 len=4194304 -> 0\n"
				       "window_map 1 off=2097152 len=2097152 -> 0\n"
				       "slab_scrub len=2097152 -> 0\n"
				       "window_unmap 1 off=2097152 len=2097152\n"
				       "mem_free 1\n"
				       "close\n";
	const uint64_t len = 2 << 20;
	char path[] = "/tmp/gantry-record.XXXXXX", opt[64];
	const struct gantry_backend *backend;
	struct gantry_mem *window;
	char *text;
	int fd;

	gantry_fd_close(mkstemp(path));
	snprintf(opt, sizeof(opt), "record.file=%s", path);
	open_window("filters=contract,record,contract", opt, "window=yes", NULL);
	backend = device.backend;
	ck_assert_int_eq(backend->slab_create(device.dev, len, &fd, &err), 0);
	ck_assert_int_eq(backend->window_open(device.dev, 0, 2 * len, &window, &err), 0);
	ck_assert_int_eq(backend->window_map(window, len, len, fd, &err), 0);
	ck_assert_int_eq(backend->slab_scrub(device.dev, fd, len, &err), 0);
	backend->window_unmap(window, len, len);
	backend->mem_free(window);
	gantry_fd_close(fd);
	gantry_device_close(&device);
	ck_assert_int_eq(gantry_file_read(path, 4096, &text, NULL), 0);
	ck_assert_str_eq(text, expected);
	free(text);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

START_TEST(test_error_fails_slabs_and_windows)
{
	struct gantry_mem *window = NULL;
	int fd = -7;

	open_window("filters=contract,error,contract", "window=yes", "error.slab=1:ENOMEM",
		    "error.scrub=1:EIO", "error.window=1:EBUSY", NULL);
	ck_assert_int_eq(device.backend->slab_create(device.dev, 2 << 20, &fd, &err), -ENOMEM);
	ck_assert_str_eq(err.text, "error.slab struck");
	ck_assert_int_eq(fd, -7);
	ck_assert_int_eq(device.backend->window_open(device.dev, 0, 2 << 20, &window, &err),
			 -EBUSY);
	ck_assert_ptr_null(window);
	ck_assert_int_eq(device.backend->slab_create(device.dev, 2 << 20, &fd, &err), 0);
	ck_assert_int_eq(device.backend->slab_scrub(device.dev, fd, 2 << 20, &err), -EIO);
	ck_assert_int_eq(device.backend->slab_scrub(device.dev, fd, 2 << 20, &err), 0);
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_record_without_a_file_is_refused)
{
	ck_assert_int_eq(open_null("filters=record", NULL), -EINVAL);
	ck_assert_int_eq(open_null("filters=record", "record.file=/nowhere/at/all", NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/at/all"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("filters");
	TCase *tc = gantry_unit_case(suite, "filters");

	tcase_add_test(tc, test_error_open_fails_with_the_chosen_errno);
	tcase_add_test(tc, test_error_submit_fails_the_nth_only);
	tcase_add_test(tc, test_error_import_fails_from_the_nth_on);
	tcase_add_test(tc, test_error_done_changes_status_and_blast);
	tcase_add_test(tc, test_error_probability_repeats_with_its_seed);
	tcase_add_loop_test(tc, test_error_rule_that_is_none_is_refused, 0,
			    (int)(sizeof(bad_rules) / sizeof(bad_rules[0])));
	tcase_add_test(tc, test_delay_holds_completions_for_polls);
	tcase_add_test(tc, test_delay_holds_completions_for_a_time);
	tcase_add_test(tc, test_delay_option_that_is_none_is_refused);
	tcase_add_test(tc, test_record_writes_every_call);
	tcase_add_test(tc, test_record_writes_slabs_and_windows);
	tcase_add_test(tc, test_error_fails_slabs_and_windows);
	tcase_add_test(tc, test_record_without_a_file_is_refused);
	return gantry_unit_run(suite);
}
