/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a device, over PoCL with four compute units: what runs where, in which order, and what is none. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S  120
#define UNITS	   4u
#define MANY_UNITS 8u /* more parts than a stream has queues for */
#define SPINS	   200000u
#define MEET_TRIES 100 /* a busy machine may run one unit's thread after the other's */

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static struct gantry_image *image;
static struct gantry_signature sig;
static struct gantry_mem *mem;
static uint32_t words[4096];

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	(void)tag;
	return 0;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static const char source[] =
	"__kernel void meet(__global volatile uint *x, uint spins)\n"
	"{\n"
	"	uint g = get_group_id(0), n = get_num_groups(0), all = 0;\n"
	"	atomic_xchg(x + g, 1u);\n"
	"	for (uint i = 0; i < spins && !all; i++) {\n"
	"		all = 1;\n"
	"		for (uint j = 0; j < n; j++) all &= atomic_add(x + j, 0u);\n"
	"	}\n"
	"	x[n + g] = all;\n"
	"}\n"
	"__kernel void hold(__global volatile uint *x, uint at)\n"
	"{ while (atomic_add(x + at, 0u) == 0) ; }\n"
	"__kernel void go_on(__global uint *x, uint add)\n"
	"{ size_t i = get_global_id(0); x[i] = x[i] * 1664525u + add; }\n";

/* What the tests' layer adds to PoCL, by its words. */
static void with_layer(const char *what)
{
	if (!OPENCL_MORE_LAYER[0] || access(OPENCL_MORE_LAYER, R_OK) < 0)
		gantry_unit_skip("the layer was not built: no CL/cl_layer.h");
	ck_assert_int_eq(setenv("OPENCL_LAYERS", OPENCL_MORE_LAYER, 1), 0);
	ck_assert_int_eq(setenv("OPENCL_MORE", what, 1), 0);
}

static void open_units(const char *memory, uint32_t units)
{
	const char *opts[] = { "platform=Portable Computing Language", "guest_code=yes", memory };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = 3, .opts = opts
	};
	const struct gantry_stream_attr attr = { 0 };
	char number[12];
	int r;

	(void)snprintf(number, sizeof(number), "%u", units);
	ck_assert_int_eq(setenv("POCL_MAX_PTHREAD_COUNT", number, 1), 0);
	r = gantry_device_open(&conf, &host, &device, &err);
	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
	if (device.info.units != units)
		gantry_unit_skip("this PoCL does not take a number of units");
	r = device.backend->image_load(device.dev, NULL, source, sizeof(source) - 1, &image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	ck_assert_int_eq(device.backend->mem_host(device.dev, words, sizeof(words), &mem, &err), 0);
	ck_assert_int_eq(device.backend->stream_create(device.dev, &attr, &stream, &err), 0);
	ck_assert_int_eq(gantry_signature_parse("range,rw:u32*,u32", &sig, &err), 0);
}

static void open_device(const char *memory)
{
	open_units(memory, UNITS);
}

static void close_device(void)
{
	device.backend->stream_destroy(stream);
	device.backend->mem_free(mem);
	gantry_device_close(&device);
}

static struct gantry_kernel *get(const char *name)
{
	struct gantry_kernel *kernel;

	ck_assert_int_eq(device.backend->kernel_get(image, name, &sig, &kernel, &err), 0);
	return kernel;
}

/* submit()'s answer. */
static int put(struct gantry_kernel *kernel, uint32_t groups,
	       const struct gantry_launch_range *range, uint32_t value)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH, .tag = 7 };

	cmd.launch.kernel = kernel;
	cmd.launch.grid[0] = groups;
	cmd.launch.grid[1] = cmd.launch.grid[2] = 1;
	cmd.launch.block[0] = cmd.launch.block[1] = cmd.launch.block[2] = 1;
	cmd.launch.nargs = 3;
	cmd.launch.args[0].raw = (struct gantry_raw){ range, sizeof(*range) };
	cmd.launch.args[1].range = (struct gantry_range){ mem, 0, sizeof(words) };
	cmd.launch.args[2].value.u32 = value;
	return device.backend->submit(stream, &cmd);
}

static void drain(uint32_t n)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_done done;

	while (n > 0) {
		ck_assert(!gantry_deadline_passed(deadline));
		if (device.backend->poll(device.dev, &done, 1) == 0)
			continue;
		ck_assert_int_eq(done.status, GANTRY_OK);
		n--;
	}
}

/* How many of @groups were at work while all were. */
static uint32_t met(struct gantry_kernel *kernel, const struct gantry_launch_range *range,
		    uint32_t groups)
{
	uint32_t n = 0;

	memset(words, 0, sizeof(words));
	ck_assert_int_eq(put(kernel, groups, range, SPINS), 0);
	drain(1);
	for (uint32_t i = 0; i < groups; i++)
		n += words[groups + i];
	return n;
}

static void check_units(struct gantry_kernel *kernel, const struct gantry_launch_range *range,
			uint32_t units)
{
	uint32_t n = 0;

	for (int i = 0; i < MEET_TRIES && n < units; i++)
		n = met(kernel, range, units);
	ck_assert_uint_eq(n, units);
	ck_assert_uint_lt(met(kernel, range, units + 1), units + 1);
}

START_TEST(test_launch_runs_on_as_many_units_as_its_part_has)
{
	static const struct {
		uint16_t first, count;
		uint32_t units;
	} parts[] = {
		{ 0, 1, 1 },
		{ 3, 1, 1 },
		{ 1, 2, 2 },
		{ 0, 3, 3 },
		{ 0, 4, 4 },
		{ 0, 0, 4 },
		/* Of a device with more units: as many as there are, and as near. */
		{ 9, 2, 2 },
		{ 0, 9, 4 },
		{ 65535, 65535, 4 },
	};
	struct gantry_kernel *meet;

	open_device("memory=direct");
	meet = get("meet");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(parts); i++) {
		const struct gantry_launch_range range = { .ndims = 3,
							   .first = parts[i].first,
							   .count = parts[i].count };

		check_units(meet, &range, parts[i].units);
	}
	close_device();
}
END_TEST

static void drain_all(uint32_t *n)
{
	drain(*n);
	*n = 0;
}

/* More parts than a stream has queues for, and no two commands in a row on the same. */
static void check_order(const char *memory)
{
	struct gantry_kernel *go_on;
	uint32_t want = 0, n = 0;

	open_units(memory, MANY_UNITS);
	go_on = get("go_on");
	memset(words, 0, sizeof(words));
	for (uint32_t turn = 0; turn < 12; turn++)
		for (uint16_t first = 0; first < MANY_UNITS; first++)
			for (uint16_t count = 0; count <= MANY_UNITS - first; count++) {
				const struct gantry_launch_range range = {
					.ndims = 1, .first = count ? first : 0, .count = count
				};
				int r = put(go_on, 16, &range, turn + first);

				if (r == -EAGAIN) {
					drain_all(&n);
					r = put(go_on, 16, &range, turn + first);
				}
				ck_assert_int_eq(r, 0);
				want = want * 1664525u + turn + first;
				if (++n == 64)
					drain_all(&n);
			}
	drain_all(&n);
	for (int i = 0; i < 16; i++)
		ck_assert_uint_eq(words[i], want);
	ck_assert_uint_eq(words[16], 0);
	close_device();
}

/* Which part the @i-th of those with less than all units is. */
static struct gantry_launch_range part_at(uint32_t i)
{
	uint16_t count = 1;

	for (; i >= MANY_UNITS - count + 1u; count++)
		i -= MANY_UNITS - count + 1u;
	return (struct gantry_launch_range){ .ndims = 1, .first = (uint16_t)i, .count = count };
}

/* The thread that submits is everybody's: how long a kernel takes is its guest's affair. */
START_TEST(test_part_in_use_is_not_waited_for_when_another_wants_its_place)
{
	struct gantry_launch_range range = part_at(0);
	struct gantry_kernel *hold, *go_on;
	uint32_t n = 1;
	int r = 0;

	open_units("memory=direct", MANY_UNITS);
	hold = get("hold");
	go_on = get("go_on");
	memset(words, 0, sizeof(words));
	ck_assert_int_eq(put(hold, 1, &range, 100), 0);
	for (; n < 20; n++) {
		range = part_at(n);
		r = put(go_on, 16, &range, n);
		if (r < 0)
			break;
	}
	ck_assert_uint_eq(n, GANTRY_OPENCL_PARTS);
	ck_assert_int_eq(r, -EAGAIN);
	/* What needs no place goes on. */
	range = part_at(3);
	ck_assert_int_eq(put(go_on, 16, &range, 0), 0);
	range = part_at(n);
	ck_assert_int_eq(put(go_on, 16, &range, n), -EAGAIN);
	gantry_store_release(&words[100], 1u);
	drain(n + 1);
	ck_assert_int_eq(put(go_on, 16, &range, n), 0);
	drain(1);
	close_device();
}
END_TEST

/* ---- a thread of the driver's that takes its time at the end of an event ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	void(CL_CALLBACK *tell)(cl_event, cl_int, void *);
	void *user;
	cl_device_id device; /* of the event */
	bool is_inside, goes_on;
	bool released; /* its device */
} late = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static struct gantry_opencl_driver driver;
static const struct gantry_opencl_driver *real;

static void CL_CALLBACK be_late(cl_event event, cl_int result, void *user)
{
	(void)user;
	late.tell(event, result, late.user);
	pthread_mutex_lock(&late.lock);
	late.is_inside = true;
	pthread_cond_signal(&late.changed);
	while (!late.goes_on)
		pthread_cond_wait(&late.changed, &late.lock);
	pthread_mutex_unlock(&late.lock);
}

/* The first event's thread is late. */
static cl_int CL_API_CALL set_event_callback(cl_event event, cl_int type,
					     void(CL_CALLBACK *tell)(cl_event, cl_int, void *),
					     void *user)
{
	cl_command_queue queue;

	if (late.device)
		return real->SetEventCallback(event, type, tell, user);
	ck_assert_int_eq(real->GetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof(queue), &queue,
					    NULL),
			 CL_SUCCESS);
	ck_assert_int_eq(real->GetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(late.device),
						   &late.device, NULL),
			 CL_SUCCESS);
	late.tell = tell;
	late.user = user;
	return real->SetEventCallback(event, type, be_late, NULL);
}

static cl_int CL_API_CALL release_device(cl_device_id of)
{
	late.released = late.released || of == late.device;
	return real->ReleaseDevice(of);
}

static void use_late_driver(void)
{
	real = device.dev->cl;
	driver = *real;
	driver.SetEventCallback = set_event_callback;
	driver.ReleaseDevice = release_device;
	device.dev->cl = &driver;
}

static void wait_until_inside(void)
{
	pthread_mutex_lock(&late.lock);
	while (!late.is_inside)
		pthread_cond_wait(&late.changed, &late.lock);
	pthread_mutex_unlock(&late.lock);
}

static void go_on_now(void)
{
	pthread_mutex_lock(&late.lock);
	late.goes_on = true;
	pthread_cond_signal(&late.changed);
	pthread_mutex_unlock(&late.lock);
}

/* One launch on the @i-th part. */
static void run_on(struct gantry_kernel *kernel, uint32_t i)
{
	const struct gantry_launch_range range = part_at(i);

	ck_assert_int_eq(put(kernel, 16, &range, i), 0);
	drain(1);
}

/* The first launch is at work until its callback is certain to be called by the driver's thread, which is then late. */
static void run_and_be_late(void)
{
	const struct gantry_launch_range range = part_at(0);

	memset(words, 0, sizeof(words));
	ck_assert_int_eq(put(get("hold"), 1, &range, 100), 0);
	gantry_store_release(&words[100], 1u);
	drain(1);
	wait_until_inside();
}

/* PoCL looks at the device of an event again when all that OpenCL promises about its end is true. */
START_TEST(test_part_that_a_thread_of_the_driver_may_look_at_is_released_when_it_has_left)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_kernel *go_on;
	uint32_t i = 1;

	open_units("memory=direct", MANY_UNITS);
	use_late_driver();
	run_and_be_late();
	go_on = get("go_on");
	for (; i < 2 * GANTRY_OPENCL_PARTS; i++)
		run_on(go_on, i);
	ck_assert(!late.released);
	go_on_now();
	for (; !late.released; i++) {
		ck_assert(!gantry_deadline_passed(deadline));
		run_on(go_on, 1 + i % (2 * GANTRY_OPENCL_PARTS));
	}
	close_device();
}
END_TEST

START_TEST(test_part_that_the_driver_may_look_at_outlives_its_stream_and_device)
{
	struct gantry_kernel *go_on;

	open_units("memory=direct", MANY_UNITS);
	use_late_driver();
	run_and_be_late();
	close_device();
	ck_assert(!late.released);
	go_on_now();
	/* Whoever lets go of a part next sees to it. */
	for (uint32_t i = 1; !late.released; i++) {
		open_units("memory=direct", MANY_UNITS);
		go_on = get("go_on");
		run_on(go_on, i % MANY_UNITS);
		close_device();
	}
}
END_TEST

/* @units: what the command is told to have had. */
static void check_told(struct gantry_kernel *kernel, const struct gantry_launch_range *range,
		       uint32_t units)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_done done;

	ck_assert_int_eq(put(kernel, 16, range, 1), 0);
	while (device.backend->poll(device.dev, &done, 1) == 0)
		ck_assert(!gantry_deadline_passed(deadline));
	ck_assert_int_eq(done.status, GANTRY_OK);
	ck_assert_uint_eq(done.units, units);
}

START_TEST(test_command_is_told_with_the_units_that_it_was_kept_to)
{
	static const struct {
		struct gantry_launch_range range;
		uint32_t units;
	} parts[] = {
		{ { .ndims = 1, .first = 3, .count = 1 }, 1 },
		{ { .ndims = 1, .first = 1, .count = 2 }, 2 },
		{ { .ndims = 1 }, 0 },
		{ { .ndims = 1, .count = 4 }, 0 },
		{ { .ndims = 1, .first = 9, .count = 3 }, 3 },
		{ { .ndims = 1, .domain = 1, .index = 1 }, 3 },
		{ { .ndims = 1, .domain = 1, .index = 1, .count = 2 }, 2 },
		{ { .ndims = 1, .domain = 1, .index = 1, .count = 9 }, 3 },
	};
	struct gantry_kernel *go_on;

	with_layer("domains");
	open_device("memory=direct");
	go_on = get("go_on");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(parts); i++)
		check_told(go_on, &parts[i].range, parts[i].units);
	close_device();
}
END_TEST

START_TEST(test_commands_on_many_parts_are_done_in_the_order_that_they_were_put)
{
	check_order("memory=direct");
}
END_TEST

START_TEST(test_commands_on_many_parts_are_done_in_order_where_memory_is_staged)
{
	check_order("memory=staged");
}
END_TEST

START_TEST(test_part_that_cannot_be_is_refused)
{
	static const struct gantry_launch_range wrong[] = {
		{ .ndims = 1, .first = 1 },
		{ .ndims = 1, .index = 1 },
		{ .ndims = 1, .index = 1, .count = 1 },
		{ .ndims = 1, .domain = 3 },
		{ .ndims = 1, .domain = 0x20 },
		{ .ndims = 1, .domain = 0x80, .count = 1 },
		{ .ndims = 1, .domain = 1, .first = 1 },
		{ .ndims = 0, .count = 1 },
		{ .ndims = 4, .count = 1 },
		{ .ndims = 255 },
	};
	const struct gantry_launch_range none = { .ndims = 1, .domain = 1, .index = 7, .count = 1 };
	struct gantry_kernel *go_on;

	open_device("memory=direct");
	go_on = get("go_on");
	memset(words, 0, sizeof(words));
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++)
		ck_assert_int_eq(put(go_on, 1, &wrong[i], 5), -EINVAL);
	ck_assert_uint_eq(words[0], 0);
	/* A domain that this device does not have is all of it. */
	ck_assert_int_eq(put(go_on, 1, &none, 5), 0);
	drain(1);
	ck_assert_uint_eq(words[0], 5);
	close_device();
}
END_TEST

START_TEST(test_description_says_how_the_device_is_divided)
{
	open_device("memory=direct");
	ck_assert_ptr_nonnull(strstr(device.info.about, "\npartition 3\n"));
	ck_assert_ptr_null(strstr(device.info.about, "\ndomain "));
	close_device();
}
END_TEST

START_TEST(test_part_of_a_domain_has_the_domains_units)
{
	static const struct {
		uint8_t domain;
		uint16_t index, first, count;
		uint32_t units;
	} parts[] = {
		{ 1, 0, 0, 0, 1 },
		{ 1, 1, 0, 0, 3 },
		{ 4, 3, 0, 0, 1 },
		/* Units of a domain; and what there is not, as near as it goes. */
		{ 1, 1, 1, 2, 2 },
		{ 1, 1, 7, 2, 2 },
		{ 1, 1, 0, 9, 3 },
		{ 1, 7, 0, 0, 3 },
	};
	struct gantry_kernel *meet;

	with_layer("domains");
	open_device("memory=direct");
	ck_assert_ptr_nonnull(strstr(device.info.about, "\npartition 3\n"));
	ck_assert_ptr_nonnull(strstr(device.info.about, "\ndomain 1 1 3\n"));
	ck_assert_ptr_nonnull(strstr(device.info.about, "\ndomain 4 1 1 1 1\n"));
	meet = get("meet");
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(parts); i++) {
		const struct gantry_launch_range range = { .ndims = 3,
							   .domain = parts[i].domain,
							   .index = parts[i].index,
							   .first = parts[i].first,
							   .count = parts[i].count };

		check_units(meet, &range, parts[i].units);
	}
	close_device();
}
END_TEST

/* Its sub-devices would need contexts of their own. */
START_TEST(test_device_whose_parts_get_no_queue_has_none_and_runs_what_was_meant_for_them)
{
	const struct gantry_launch_range range = { .ndims = 3, .first = 1, .count = 1 };

	with_layer("domains no-queues");
	open_device("memory=direct");
	ck_assert_ptr_null(strstr(device.info.about, "\npartition "));
	ck_assert_ptr_null(strstr(device.info.about, "\ndomain "));
	check_units(get("meet"), &range, UNITS);
	close_device();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl_parts");
	TCase *parts = gantry_unit_case(suite, "parts");

	tcase_set_timeout(parts, TIMEOUT_S);
	tcase_add_test(parts, test_launch_runs_on_as_many_units_as_its_part_has);
	tcase_add_test(parts, test_commands_on_many_parts_are_done_in_the_order_that_they_were_put);
	tcase_add_test(parts, test_commands_on_many_parts_are_done_in_order_where_memory_is_staged);
	tcase_add_test(parts, test_part_in_use_is_not_waited_for_when_another_wants_its_place);
	tcase_add_test(
		parts,
		test_part_that_a_thread_of_the_driver_may_look_at_is_released_when_it_has_left);
	tcase_add_test(parts, test_part_that_the_driver_may_look_at_outlives_its_stream_and_device);
	tcase_add_test(parts, test_command_is_told_with_the_units_that_it_was_kept_to);
	tcase_add_test(parts, test_part_that_cannot_be_is_refused);
	tcase_add_test(parts, test_description_says_how_the_device_is_divided);
	tcase_add_test(parts, test_part_of_a_domain_has_the_domains_units);
	tcase_add_test(
		parts,
		test_device_whose_parts_get_no_queue_has_none_and_runs_what_was_meant_for_them);
	return gantry_unit_run(suite);
}
