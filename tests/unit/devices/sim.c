/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "devices/registry.h"
#include "devices/sim/clock.h"
#include "devices/sim/machine.h"
#include "tests/unit/runner.h"

/* The clock. */

START_TEST(test_clock_orders_by_time_then_by_making)
{
	static const uint64_t after[] = { 50, 10, 30, 10, 0, 50, 20 };
	static const unsigned int order[] = { 4, 1, 3, 6, 2, 0, 5 };
	static char what[GANTRY_ARRAY_SIZE(after)];
	struct gantry_sim_clock clock;

	gantry_sim_clock_init(&clock);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(after); i++)
		ck_assert_int_eq(gantry_sim_clock_add(&clock, after[i], &what[i]), 0);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(order); i++) {
		ck_assert_ptr_eq(gantry_sim_clock_next(&clock), &what[order[i]]);
		ck_assert_uint_eq(clock.now_ns, after[order[i]]);
	}
	ck_assert_ptr_null(gantry_sim_clock_next(&clock));
	ck_assert_uint_eq(clock.now_ns, 50);
	gantry_sim_clock_fini(&clock);
}
END_TEST

START_TEST(test_clock_counts_from_now_and_never_back)
{
	enum {
		N = 10000
	};
	struct gantry_sim_clock clock;
	uint64_t last = 0, random = 1;
	static char what;

	gantry_sim_clock_init(&clock);
	for (unsigned int i = 0; i < N; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		ck_assert_int_eq(gantry_sim_clock_add(&clock, random >> 54, &what), 0);
		if (i % 3 == 0)
			(void)gantry_sim_clock_next(&clock);
		if (clock.now_ns < last)
			ck_abort_msg("time went back");
		last = clock.now_ns;
	}
	while (gantry_sim_clock_next(&clock)) {
		if (clock.now_ns < last)
			ck_abort_msg("time went back");
		last = clock.now_ns;
	}
	gantry_sim_clock_fini(&clock);
}
END_TEST

START_TEST(test_clock_due_and_saturation)
{
	struct gantry_sim_clock clock;
	static char what;

	gantry_sim_clock_init(&clock);
	ck_assert(!gantry_sim_clock_due(&clock));
	gantry_sim_clock_add(&clock, 5, &what);
	gantry_sim_clock_add(&clock, 5, &what);
	gantry_sim_clock_add(&clock, UINT64_MAX, &what);
	ck_assert(!gantry_sim_clock_due(&clock));
	gantry_sim_clock_next(&clock);
	ck_assert(gantry_sim_clock_due(&clock));
	gantry_sim_clock_next(&clock);
	ck_assert(!gantry_sim_clock_due(&clock));
	gantry_sim_clock_add(&clock, UINT64_MAX, &what);
	gantry_sim_clock_next(&clock);
	ck_assert_uint_eq(clock.now_ns, UINT64_MAX);
	gantry_sim_clock_fini(&clock);
}
END_TEST

/* The machine. */

static const char machine_text[] = "# two GPUs and a board\n"
				   "device g0 cuda 16G lanes 2 copies 1\n"
				   "device g1 cuda 16G\n"
				   "device f0 fpga 4G\n"
				   "link host g0 20 1us\n"
				   "link host g1 10\n"
				   "link g0 g1 200 2us\n"
				   "link g0 g0 1000\n"
				   "kernel * any 9us\n"
				   "kernel * cuda 8us\n"
				   "kernel * g1 7us\n"
				   "kernel add any 6us\n"
				   "kernel add cuda 5us 0.5 2\n"
				   "kernel add g0 4us 0.25\n";

static struct gantry_sim_machine *parse(const char *text)
{
	struct gantry_sim_machine *machine;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_msg(gantry_sim_machine_parse(text, strlen(text), &machine, &err) == 0, "%s",
		      err.text);
	return machine;
}

START_TEST(test_machine_parse_reads_devices)
{
	struct gantry_sim_machine *m = parse(machine_text);

	ck_assert_uint_eq(m->ndevices, 3);
	ck_assert_int_eq(gantry_sim_device_find(m, "g1"), 1);
	ck_assert_int_eq(gantry_sim_device_find(m, "g2"), -ENOENT);
	ck_assert_int_eq(m->devices[2].kind, GANTRY_KIND_FPGA);
	ck_assert_uint_eq(m->devices[0].mem_bytes, 16ull << 30);
	ck_assert_uint_eq(m->devices[0].nlanes, 2);
	ck_assert_uint_eq(m->devices[0].ncopies, 1);
	ck_assert_uint_eq(m->devices[1].nlanes, 1);
	ck_assert_uint_eq(m->devices[1].ncopies, 2);
	free(m);
}
END_TEST

START_TEST(test_copy_ns_follows_links_and_detours)
{
	struct gantry_sim_machine *m = parse(machine_text);
	const uint32_t host = GANTRY_SIM_HOST;

	ck_assert_uint_eq(gantry_sim_copy_ns(m, host, 0, 20000), 1000 + 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, 0, host, 20000), 1000 + 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, host, 0, 0), 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, host, 1, 11), 2); /* 1.1 ns, rounded up */
	ck_assert_uint_eq(gantry_sim_copy_ns(m, 0, 1, 200000), 2000 + 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, 0, 0, 1000000), 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, host, host, 100000), 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, 1, 1, 100000), 1000);
	/* No link: the default to the host; from g0 to f0 through it. */
	ck_assert_uint_eq(gantry_sim_copy_ns(m, host, 2, 10000), 1000);
	ck_assert_uint_eq(gantry_sim_copy_ns(m, 0, 2, 20000), 1000 + 1000 + 2000);
	free(m);
}
END_TEST

START_TEST(test_kernel_ns_takes_the_most_specific_line)
{
	struct gantry_sim_machine *m = parse(machine_text);
	struct gantry_sim_machine *empty = parse("device x cpu 1G\n");

	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 0, "add", 100, 10), 4000 + 25);
	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 1, "add", 100, 10), 5000 + 50 + 20);
	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 2, "add", 100, 10), 6000);
	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 0, "mul", 100, 10), 8000);
	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 1, "mul", 100, 10), 7000);
	ck_assert_uint_eq(gantry_sim_kernel_ns(m, 2, "mul", 100, 10), 9000);
	ck_assert_uint_eq(gantry_sim_kernel_ns(empty, 0, "mul", 1, 1), 10000);
	free(m);
	free(empty);
}
END_TEST

static const struct {
	const char *text;
	const char *sentence;
} bad[] = {
	{ "robot r2\n", "line 1: \"robot\" is not device, link or kernel" },
	{ "device a cpu\n", "line 1: write \"device NAME KIND MEMORY [lanes N] [copies N]\"" },
	{ "device host cpu 1G\n", "line 1: \"host\" cannot be a device's name" },
	{ "device cpu cpu 1G\n", "line 1: \"cpu\" cannot be a device's name" },
	{ "device a tpu 1G\n", "line 1: \"tpu\" is no kind of device" },
	{ "device a cpu 1G\ndevice a cpu 1G\n", "line 2: device a stands there twice" },
	{ "device a cpu 1G lanes\n", "line 1: a number is missing after \"lanes\"" },
	{ "device a cpu 1G lanes 65\n", "line 1: \"65\" is not from 1 to 64" },
	{ "device a cpu 1G wings 2\n", "line 1: \"wings\" is not lanes or copies" },
	{ "link a host 1\n", "line 1: \"a\" is no device above, nor host" },
	{ "link host host\n", "line 1: write \"link A B GB/S [LATENCY]\"" },
	{ "link host host fast\n", "line 1: \"fast\" is no number" },
	{ "link host host -1\n", "line 1: \"-1\" is no number" },
	{ "link host host inf\n", "line 1: \"inf\" is no number" },
	{ "link host host nan\n", "line 1: \"nan\" is no number" },
	{ "link host host 0\n", "line 1: a link of no speed: leave it out" },
	{ "kernel k any\n", "line 1: write \"kernel NAME WHERE TIME [NS/BYTE [NS/ELEMENT]]\"" },
	{ "kernel k moon 1us\n", "line 1: \"moon\" is no device above, no kind, nor any" },
	{ "kernel k any 1us 1x\n", "line 1: \"1x\" is no number" },
	{ "a b c d e f g h i j k\n", "line 1: too many words" },
};

START_TEST(test_machine_parse_names_the_line_that_is_wrong)
{
	struct gantry_sim_machine *m = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_sim_machine_parse(bad[_i].text, strlen(bad[_i].text), &m, &err),
			 -EINVAL);
	ck_assert_str_eq(err.text, bad[_i].sentence);
	ck_assert_ptr_null(m);
}
END_TEST

/* The backend. */

static const struct gantry_device_host nobody;
static struct gantry_device device;
static struct gantry_err err;
static char path[] = "/tmp/gantry-machine.XXXXXX";

static void open_sim(const char *name)
{
	char file[64];
	const char *const opts[] = { file, "filters=contract" };
	const struct gantry_device_conf conf = {
		.name = name, .backend = "sim", .nopts = 2, .opts = opts
	};
	int fd = mkstemp(path);

	if (!gantry_backend_find("sim"))
		gantry_unit_skip("this build has no sim backend");
	ck_assert_int_eq(gantry_write_all(fd, machine_text, strlen(machine_text)), 0);
	gantry_fd_close(fd);
	snprintf(file, sizeof(file), "file=%s", path);
	ck_assert_msg(gantry_device_open(&conf, &nobody, &device, &err) == 0, "%s", err.text);
	unlink(path);
}

static struct gantry_stream *stream_of(int32_t priority)
{
	const struct gantry_stream_attr attr = { .priority = priority };
	struct gantry_stream *stream;

	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
	return stream;
}

static struct gantry_mem *memory(uint64_t bytes)
{
	struct gantry_mem *mem;

	ck_assert_int_eq(device.backend->mem_alloc(device.dev, bytes, &mem, &err), 0);
	return mem;
}

static void submit_fill(struct gantry_stream *stream, struct gantry_mem *mem, uint64_t tag,
			uint64_t bytes)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_FILL, .tag = tag };

	cmd.fill.dst = (struct gantry_range){ mem, 0, bytes };
	cmd.fill.pattern_bytes = 1;
	ck_assert_int_eq(device.backend->submit(stream, &cmd), 0);
}

START_TEST(test_sim_open_tells_what_the_file_says)
{
	open_sim("g0");
	ck_assert_uint_eq(device.info.kind, GANTRY_KIND_CUDA);
	ck_assert_uint_eq(device.info.lanes, 2);
	ck_assert_uint_eq(device.info.mem_bytes, 16ull << 30);
	ck_assert_uint_ne(device.info.caps & GANTRY_CAP_VIRTUAL_TIME, 0);
	ck_assert_uint_gt(device.info.bytes_per_s, 19900000000);
	ck_assert_uint_le(device.info.bytes_per_s, 20000000000);
	ck_assert_str_eq(device.info.name, "simulated cuda g0");
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_memory_is_counted)
{
	struct gantry_mem *mem, *more = NULL;

	open_sim("f0");
	mem = memory(4ull << 30);
	ck_assert_int_eq(device.backend->mem_alloc(device.dev, 1, &more, &err), -ENOMEM);
	device.backend->mem_free(mem);
	device.backend->mem_free(memory(4ull << 30));
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_import_of_more_than_the_device_has_takes_none_of_its_memory)
{
	struct gantry_mem *imported = NULL;
	int fd;

	open_sim("f0");
	ck_assert_int_eq(gantry_memfd_create("slab", 64ull << 30, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(
		device.backend->mem_import(device.dev, fd, 0, 64ull << 30, &imported, &err), 0);
	device.backend->mem_free(memory(4ull << 30));
	device.backend->mem_free(imported);
	gantry_fd_close(fd);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_two_lanes_run_three_streams_in_virtual_time)
{
	struct gantry_done done[3];

	open_sim("g0"); /* 1000 bytes a nanosecond, two lanes */
	struct gantry_mem *mem = memory(1 << 20);
	submit_fill(stream_of(0), mem, 1, 300000);
	submit_fill(stream_of(0), mem, 2, 100000);
	submit_fill(stream_of(0), mem, 3, 100000);
	/* 2 ends at 100, 3 takes its lane and ends at 200, 1 ends at 300. */
	for (unsigned int i = 0; i < 3; i++)
		ck_assert_uint_eq(device.backend->poll(device.dev, &done[i], 3), 1);
	ck_assert_uint_eq(done[0].tag, 2);
	ck_assert_uint_eq(done[1].tag, 3);
	ck_assert_uint_eq(done[2].tag, 1);
	ck_assert_uint_eq(done[0].device_ns, 100);
	ck_assert_uint_eq(done[2].device_ns, 300);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_equal_ends_are_told_together)
{
	struct gantry_done done[3];

	open_sim("g0");
	struct gantry_mem *mem = memory(1 << 20);
	submit_fill(stream_of(0), mem, 1, 1000);
	submit_fill(stream_of(0), mem, 2, 1000);
	ck_assert_uint_eq(device.backend->poll(device.dev, done, 3), 2);
	ck_assert_uint_eq(done[0].tag, 1);
	ck_assert_uint_eq(done[1].tag, 2);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_priority_takes_the_free_lane)
{
	struct gantry_done done;

	open_sim("g1"); /* one lane */
	struct gantry_mem *mem = memory(1 << 20);
	submit_fill(stream_of(0), mem, 1, 1000);
	submit_fill(stream_of(0), mem, 2, 1000);
	submit_fill(stream_of(3), mem, 3, 1000);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
	ck_assert_uint_eq(done.tag, 3);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
	ck_assert_uint_eq(done.tag, 1);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_copies_overlap_with_kernels)
{
	static unsigned char host[20000];
	struct gantry_cmd copy = { .kind = GANTRY_CMD_COPY, .tag = 2 };
	struct gantry_mem *host_mem, *mem;
	struct gantry_done done;

	open_sim("g1");
	mem = memory(1 << 20);
	ck_assert_int_eq(device.backend->mem_host(device.dev, host, sizeof(host), &host_mem, &err),
			 0);
	submit_fill(stream_of(0), mem, 1, 1 << 20); /* 10486 ns on the only lane */
	copy.copy.dst = (struct gantry_range){ mem, 0, 20000 };
	copy.copy.src = (struct gantry_range){ host_mem, 0, 20000 };
	ck_assert_int_eq(device.backend->submit(stream_of(0), &copy), 0);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
	ck_assert_uint_eq(done.tag, 2);
	ck_assert_uint_eq(done.device_ns, 2000);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
	ck_assert_uint_eq(done.device_ns, 10486);
	gantry_device_close(&device);
}
END_TEST

START_TEST(test_sim_kernel_takes_its_modelled_time)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 1 };
	struct gantry_signature sig;
	struct gantry_image *image;
	struct gantry_done done;

	open_sim("g1");
	ck_assert_int_eq(gantry_signature_parse("r:f32*,w:f32*,u32", &sig, &err), 0);
	ck_assert_int_eq(device.backend->image_load(device.dev, "/none", NULL, 0, &image, &err), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, "add", &sig, &cmd.launch.kernel, &err),
			 0);
	cmd.launch.nargs = 3;
	cmd.launch.args[0].range = (struct gantry_range){ memory(4096), 0, 4000 };
	cmd.launch.args[1].range = (struct gantry_range){ memory(4096), 0, 2000 };
	ck_assert_int_eq(device.backend->submit(stream_of(0), &cmd), 0);
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
	/* 5 us, half a nanosecond for each of 6000 bytes, two for each of 1000 elements. */
	ck_assert_uint_eq(done.device_ns, 5000 + 3000 + 2000);
	gantry_device_close(&device);
}
END_TEST

static const struct {
	const char *opt;
	int r;
} bad_options[] = {
	{ "file=/nowhere/at/all", -EINVAL },
	{ "file=/dev/null", -ENODEV },
	{ "work=magic", -EINVAL },
	{ "wrok=cpu", -EINVAL },
};

START_TEST(test_sim_open_refuses_bad_options)
{
	const struct gantry_device_conf conf = {
		.name = "s", .backend = "sim", .nopts = 1, .opts = &bad_options[_i].opt
	};

	if (!gantry_backend_find("sim"))
		gantry_unit_skip("this build has no sim backend");
	ck_assert_int_eq(gantry_device_open(&conf, &nobody, &device, &err), bad_options[_i].r);
	ck_assert_str_ne(err.text, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim");
	TCase *clock = gantry_unit_case(suite, "clock");
	TCase *machine = gantry_unit_case(suite, "machine");
	TCase *backend = gantry_unit_case(suite, "backend");

	tcase_add_test(clock, test_clock_orders_by_time_then_by_making);
	tcase_add_test(clock, test_clock_counts_from_now_and_never_back);
	tcase_add_test(clock, test_clock_due_and_saturation);
	tcase_add_test(machine, test_machine_parse_reads_devices);
	tcase_add_test(machine, test_copy_ns_follows_links_and_detours);
	tcase_add_test(machine, test_kernel_ns_takes_the_most_specific_line);
	tcase_add_loop_test(machine, test_machine_parse_names_the_line_that_is_wrong, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(backend, test_sim_open_tells_what_the_file_says);
	tcase_add_test(backend, test_sim_memory_is_counted);
	tcase_add_test(backend,
		       test_sim_import_of_more_than_the_device_has_takes_none_of_its_memory);
	tcase_add_test(backend, test_sim_two_lanes_run_three_streams_in_virtual_time);
	tcase_add_test(backend, test_sim_equal_ends_are_told_together);
	tcase_add_test(backend, test_sim_priority_takes_the_free_lane);
	tcase_add_test(backend, test_sim_copies_overlap_with_kernels);
	tcase_add_test(backend, test_sim_kernel_takes_its_modelled_time);
	tcase_add_loop_test(backend, test_sim_open_refuses_bad_options, 0,
			    (int)GANTRY_ARRAY_SIZE(bad_options));
	return gantry_unit_run(suite);
}
