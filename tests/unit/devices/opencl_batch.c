/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of the opencl backend over PoCL: who tells their end, and when. Callbacks come when the test says so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S 120 /* compilers take their time on a busy machine */
#define MAX_HELD  64u
#define US	  1000u

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *stream;
static struct gantry_cmd step;
static struct gantry_signature sig;
static uint32_t word;
static uint64_t cancelled_tag = UINT64_MAX;

/* ---- OpenCL, as far as it is told what to say ---- */

static struct gantry_opencl_driver driver;
static const struct gantry_opencl_driver *real;
static struct {
	cl_event event;
	void(CL_CALLBACK *tell)(cl_event, cl_int, void *);
	void *user;
} held[MAX_HELD];
static unsigned int nheld, nflushes, nasked;
static unsigned int fails_at; /* the event that is asked for so often says that it failed */
static bool refuses;

static cl_int CL_API_CALL set_event_callback(cl_event event, cl_int type,
					     void(CL_CALLBACK *tell)(cl_event, cl_int, void *),
					     void *user)
{
	ck_assert_int_eq(type, CL_COMPLETE);
	if (refuses)
		return CL_OUT_OF_HOST_MEMORY;
	ck_assert_uint_lt(nheld, MAX_HELD);
	held[nheld].event = event;
	held[nheld].tell = tell;
	held[nheld++].user = user;
	return CL_SUCCESS;
}

static cl_int CL_API_CALL flush(cl_command_queue queue)
{
	nflushes++;
	return real->Flush(queue);
}

static cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info what, size_t room, void *to,
					 size_t *ret_bytes)
{
	cl_int result = real->GetEventInfo(event, what, room, to, ret_bytes);

	if (++nasked == fails_at)
		*(cl_int *)to = CL_MEM_OBJECT_ALLOCATION_FAILURE;
	return result;
}

/* All that was enqueued has ended, and of the batches from @from up to @to that is told. */
static void tell(unsigned int from, unsigned int to)
{
	(void)real->Finish(stream->queue);
	for (unsigned int i = from; i < to; i++)
		held[i].tell(held[i].event, CL_COMPLETE, held[i].user);
}

/* ---- the device ---- */

static unsigned int nwakes;

static void wake(void *cookie)
{
	(void)cookie;
	nwakes++;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	return tag == cancelled_tag;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static void setup(void)
{
	static const char text[] = "__kernel void count(__global uint *x) { x[0] += 1; }";
	const char *opts[] = { "platform=Portable Computing Language", "guest_code=yes" };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = 2, .opts = opts
	};
	const struct gantry_stream_attr attr = { 0 };
	const struct gantry_backend *be;
	struct gantry_image *image;
	struct gantry_mem *mem;
	int r = gantry_device_open(&conf, &host, &device, &err);

	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
	be = device.backend;
	r = be->image_load(device.dev, NULL, text, sizeof(text) - 1, &image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	step = (struct gantry_cmd){ .kind = GANTRY_CMD_LAUNCH };
	ck_assert_int_eq(gantry_signature_parse("rw:u32*", &sig, &err), 0);
	ck_assert_int_eq(be->kernel_get(image, "count", &sig, &step.launch.kernel, &err), 0);
	ck_assert_int_eq(be->mem_host(device.dev, &word, sizeof(word), &mem, &err), 0);
	ck_assert_int_eq(be->stream_create(device.dev, &attr, &stream, &err), 0);
	for (unsigned int i = 0; i < 3; i++)
		step.launch.grid[i] = step.launch.block[i] = 1;
	step.launch.nargs = 1;
	step.launch.args[0].range = (struct gantry_range){ mem, 0, sizeof(word) };
	real = device.dev->cl;
	driver = *real;
	driver.SetEventCallback = set_event_callback;
	driver.Flush = flush;
	driver.GetEventInfo = get_event_info;
	device.dev->cl = &driver;
}

static void end(void)
{
	device.dev->cl = real;
	gantry_device_close(&device);
}

static void submit(uint64_t tag)
{
	step.tag = tag;
	ck_assert_int_eq(device.backend->submit(stream, &step), 0);
	device.backend->flush(stream);
}

/* Commands from @from up to @to, and no more, are told, in order. */
static void wait_for(uint64_t from, uint64_t to)
{
	struct gantry_done done;

	for (; from < to; from++) {
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
		ck_assert_uint_eq(done.tag, from);
		ck_assert_int_eq(done.status, GANTRY_OK);
	}
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
}

START_TEST(test_what_comes_while_two_batches_are_under_way_is_told_together)
{
	setup();
	step.launch.kernel->mean_ns = US;
	for (unsigned int i = 0; i < 20; i++)
		submit(i);
	ck_assert_uint_eq(nheld, 2);
	ck_assert_uint_eq(nflushes, 2);
	wait_for(0, 0);
	tell(0, 1);
	wait_for(0, 1);
	/* The rest has gone off, and nobody had to say so. */
	ck_assert_uint_eq(nheld, 3);
	tell(1, 3);
	wait_for(1, 20);
	ck_assert_uint_eq(word, 20);
	end();
}
END_TEST

START_TEST(test_batches_are_told_in_order_whoever_comes_first)
{
	setup();
	step.launch.kernel->mean_ns = US;
	submit(0);
	submit(1);
	ck_assert_uint_eq(nheld, 2);
	tell(1, 2);
	wait_for(0, 0);
	/* Who has looked in vain is called again. */
	nwakes = 0;
	tell(0, 1);
	ck_assert_uint_eq(nwakes, 1);
	wait_for(0, 2);
	end();
}
END_TEST

START_TEST(test_batch_is_closed_when_it_is_full)
{
	setup();
	step.launch.kernel->mean_ns = US;
	for (unsigned int i = 0; i < 2 + GANTRY_OPENCL_BATCH; i++)
		submit(i);
	ck_assert_uint_eq(nheld, 3);
	tell(0, 3);
	wait_for(0, 2 + GANTRY_OPENCL_BATCH);
	end();
}
END_TEST

/* What takes long holds up nothing that came before it; nor does what nobody knows. */
START_TEST(test_long_command_has_a_batch_of_its_own)
{
	setup();
	step.launch.kernel->mean_ns = US;
	for (unsigned int i = 0; i < 4; i++)
		submit(i);
	ck_assert_uint_eq(nheld, 2);
	step.launch.kernel->mean_ns = _i ? 0 : 2000 * US;
	submit(4);
	ck_assert_uint_eq(nheld, 4);
	tell(0, 4);
	wait_for(0, 5);
	end();
}
END_TEST

START_TEST(test_boundary_is_told_without_what_follows)
{
	setup();
	step.launch.kernel->mean_ns = 300 * US;
	for (unsigned int i = 0; i < 8; i++)
		submit(i);
	step.launch.kernel->mean_ns = US;
	submit(8);
	ck_assert_uint_eq(stream->closed, 8);
	device.backend->boundary(stream);
	ck_assert_uint_eq(stream->closed, 9);
	device.backend->boundary(stream);
	tell(0, nheld);
	wait_for(0, 9);
	device.backend->boundary(stream);
	end();
}
END_TEST

/* Nothing of them is on the device, and they end in their turn. */
START_TEST(test_commands_that_do_nothing_end_behind_those_before_them)
{
	struct gantry_cmd nothing = { .kind = GANTRY_CMD_FILL, .fill = { .pattern_bytes = 1 } };
	struct gantry_done done;

	setup();
	step.launch.kernel->mean_ns = US;
	submit(0);
	nothing.tag = 1;
	ck_assert_int_eq(device.backend->submit(stream, &nothing), 0);
	device.backend->flush(stream);
	cancelled_tag = 2;
	submit(2);
	wait_for(0, 0);
	tell(0, 1);
	for (unsigned int i = 0; i < 3; i++) {
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
		ck_assert_uint_eq(done.tag, i);
		ck_assert_int_eq(done.status, i == 2 ? GANTRY_E_CANCELLED : GANTRY_OK);
	}
	wait_for(3, 3);
	ck_assert_uint_eq(word, 1);
	end();
}
END_TEST

/* Each command has its own result, also where one callback tells of many. */
START_TEST(test_command_that_failed_is_told_as_that_and_those_before_it_not)
{
	struct gantry_done done;

	setup();
	step.launch.kernel->mean_ns = US;
	for (unsigned int i = 0; i < 6; i++)
		submit(i);
	tell(0, 2);
	wait_for(0, 2);
	nasked = 0;
	fails_at = 3;
	tell(2, 3);
	for (unsigned int i = 2; i < 6; i++) {
		ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 1);
		ck_assert_int_eq(done.status, i == 4 ? GANTRY_E_DEVICE_FAULT : GANTRY_OK);
	}
	step.tag = 6;
	ck_assert_int_eq(device.backend->submit(stream, &step), -ENODEV);
	end();
}
END_TEST

START_TEST(test_batch_whose_end_nobody_tells_is_waited_for)
{
	setup();
	refuses = true;
	submit(0);
	wait_for(0, 1);
	ck_assert_uint_eq(word, 1);
	end();
}
END_TEST

/* A worker that ends does not wait for its guests. */
START_TEST(test_device_is_closed_over_batches_that_nobody_was_told_of)
{
	setup();
	step.launch.kernel->mean_ns = US;
	for (unsigned int i = 0; i < 10; i++)
		submit(i);
	tell(0, nheld);
	end();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl_batch");
	TCase *tc = gantry_unit_case(suite, "batches");

	tcase_set_timeout(tc, TIMEOUT_S);
	tcase_add_test(tc, test_what_comes_while_two_batches_are_under_way_is_told_together);
	tcase_add_test(tc, test_batches_are_told_in_order_whoever_comes_first);
	tcase_add_test(tc, test_batch_is_closed_when_it_is_full);
	tcase_add_loop_test(tc, test_long_command_has_a_batch_of_its_own, 0, 2);
	tcase_add_test(tc, test_boundary_is_told_without_what_follows);
	tcase_add_test(tc, test_commands_that_do_nothing_end_behind_those_before_them);
	tcase_add_test(tc, test_command_that_failed_is_told_as_that_and_those_before_it_not);
	tcase_add_test(tc, test_batch_whose_end_nobody_tells_is_waited_for);
	tcase_add_test(tc, test_device_is_closed_over_batches_that_nobody_was_told_of);
	return gantry_unit_run(suite);
}
