/* SPDX-License-Identifier: Apache-2.0 */
/* What stays on a device whose memory is apart: when it is brought there, found there and fetched. Over PoCL, whose copies are counted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"
#include "devices/registry.h"
#include "tests/unit/runner.h"

#define TIMEOUT_S 120 /* compilers take their time on a busy machine */
#define US	  1000u
#define N	  1024u
#define BYTES	  (N * sizeof(uint32_t))

static struct gantry_err err;
static struct gantry_device device;
static struct gantry_stream *streams[2];
static struct gantry_kernel *add, *half;
static struct gantry_signature sig, half_sig;
static struct gantry_mem *mem;
static uint32_t words[4 * N];
static uint64_t cancelled_tag = UINT64_MAX;

/* ---- OpenCL, counted, and made to fail ---- */

static struct gantry_opencl_driver driver;
static const struct gantry_opencl_driver *real;
static unsigned int nwrites, nreads, nmakes, makes_fail, writes_fail;
static bool reads_fail;

static cl_int CL_API_CALL enqueue_write(cl_command_queue queue, cl_mem to, cl_bool blocking,
					size_t off, size_t bytes, const void *from, cl_uint n,
					const cl_event *list, cl_event *event)
{
	nwrites++;
	if (writes_fail > 0) {
		writes_fail--;
		return CL_MEM_OBJECT_ALLOCATION_FAILURE;
	}
	return real->EnqueueWriteBuffer(queue, to, blocking, off, bytes, from, n, list, event);
}

static cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem from, cl_bool blocking,
				       size_t off, size_t bytes, void *to, cl_uint n,
				       const cl_event *list, cl_event *event)
{
	nreads++;
	if (reads_fail)
		return CL_OUT_OF_RESOURCES;
	return real->EnqueueReadBuffer(queue, from, blocking, off, bytes, to, n, list, event);
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes,
					void *host, cl_int *result)
{
	nmakes++;
	if (makes_fail > 0) {
		makes_fail--;
		*result = CL_MEM_OBJECT_ALLOCATION_FAILURE;
		return NULL;
	}
	return real->CreateBuffer(context, flags, bytes, host, result);
}

static unsigned int nfinishes;
static bool launches_fail;

static cl_int CL_API_CALL finish_queue(cl_command_queue queue)
{
	nfinishes++;
	return real->Finish(queue);
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint ndims,
					 const size_t *offset, const size_t *global,
					 const size_t *local, cl_uint n, const cl_event *list,
					 cl_event *event)
{
	if (launches_fail)
		return CL_INVALID_WORK_GROUP_SIZE;
	return real->EnqueueNDRangeKernel(queue, kernel, ndims, offset, global, local, n, list,
					  event);
}

/* ---- the device ---- */

static void wake(void *cookie)
{
	(void)cookie;
}

static int cancelled(void *cookie, uint64_t tag)
{
	(void)cookie;
	return tag == cancelled_tag;
}

static const struct gantry_device_host host = { wake, cancelled, NULL };

static struct gantry_kernel *kernel_of(struct gantry_image *image, const char *name,
				       const char *text, struct gantry_signature *to)
{
	struct gantry_kernel *kernel;

	ck_assert_int_eq(gantry_signature_parse(text, to, &err), 0);
	ck_assert_int_eq(device.backend->kernel_get(image, name, to, &kernel, &err), 0);
	kernel->mean_ns = US; /* so that it has no batch of its own */
	return kernel;
}

/* add: @to[i] += @from[i]. half: words of @to from @at on become @value. */
static void setup(const char *keep)
{
	static const char text[] = "__kernel void add(__global const uint *from, __global uint *to)"
				   " { uint i = get_global_id(0); to[i] += from[i]; }"
				   "__kernel void half_of(__global uint *to, uint at, uint value)"
				   " { to[at + get_global_id(0)] = value; }";
	const char *opts[] = { "platform=Portable Computing Language", "guest_code=yes",
			       "memory=staged", keep };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = keep ? 4 : 3, .opts = opts
	};
	const struct gantry_stream_attr attr = { 0 };
	struct gantry_image *image;
	int r = gantry_device_open(&conf, &host, &device, &err);

	if (r == -ENODEV)
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	gantry_unit_forgive(); /* PoCL's threads, and the builder */
	r = device.backend->image_load(device.dev, NULL, text, sizeof(text) - 1, &image, &err);
	if (r == -EOPNOTSUPP && strstr(err.text, "Landlock"))
		gantry_unit_skip(err.text);
	ck_assert_msg(r == 0, "%s", err.text);
	add = kernel_of(image, "add", "r:u32*,rw:u32*", &sig);
	half = kernel_of(image, "half_of", "w:u32*,u32,u32", &half_sig);
	ck_assert_int_eq(device.backend->mem_host(device.dev, words, sizeof(words), &mem, &err), 0);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(streams); i++)
		ck_assert_int_eq(
			device.backend->stream_create(device.dev, &attr, &streams[i], &err), 0);
	for (uint32_t i = 0; i < 4 * N; i++)
		words[i] = 1;
	real = device.dev->cl;
	driver = *real;
	driver.EnqueueWriteBuffer = enqueue_write;
	driver.EnqueueReadBuffer = enqueue_read;
	driver.CreateBuffer = create_buffer;
	driver.Finish = finish_queue;
	driver.EnqueueNDRangeKernel = enqueue_kernel;
	device.dev->cl = &driver;
}

static void end(void)
{
	device.dev->cl = real;
	gantry_device_close(&device);
}

/* @n words from @at on, and the number of what is in them. */
static struct gantry_range part(uint32_t at, uint32_t n, uint64_t contents)
{
	return (struct gantry_range){ mem, at * sizeof(uint32_t), n * sizeof(uint32_t), contents };
}

static struct gantry_cmd launch_of(struct gantry_kernel *kernel, uint32_t n, uint64_t makes)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_LAUNCH };

	cmd.launch.kernel = kernel;
	cmd.launch.nargs = kernel->sig->nargs;
	cmd.launch.makes = makes;
	cmd.launch.grid[0] = n;
	cmd.launch.grid[1] = cmd.launch.grid[2] = 1;
	cmd.launch.block[0] = cmd.launch.block[1] = cmd.launch.block[2] = 1;
	return cmd;
}

static int put_add(struct gantry_stream *stream, struct gantry_range from, struct gantry_range to,
		   uint64_t makes)
{
	struct gantry_cmd cmd = launch_of(add, (uint32_t)(to.len / sizeof(uint32_t)), makes);

	cmd.launch.args[0].range = from;
	cmd.launch.args[1].range = to;
	return device.backend->submit(stream, &cmd);
}

static int put_half(struct gantry_stream *stream, struct gantry_range to, uint32_t at, uint32_t n,
		    uint32_t value, uint64_t makes)
{
	struct gantry_cmd cmd = launch_of(half, n, makes);

	cmd.launch.args[0].range = to;
	cmd.launch.args[1].value.u32 = at;
	cmd.launch.args[2].value.u32 = value;
	return device.backend->submit(stream, &cmd);
}

static void drain(unsigned int n, int32_t status)
{
	uint64_t deadline = gantry_deadline_ns(60 * (int64_t)GANTRY_NS_PER_S);
	struct gantry_done done;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(streams); i++)
		device.backend->flush(streams[i]);
	while (n > 0) {
		unsigned int got = device.backend->poll(device.dev, &done, 1);

		ck_assert(got || !gantry_deadline_passed(deadline));
		if (got)
			ck_assert_int_eq(done.status, status);
		n -= got;
	}
	ck_assert_uint_eq(device.backend->poll(device.dev, &done, 1), 0);
}

static void run_add(struct gantry_range from, struct gantry_range to, uint64_t makes)
{
	ck_assert_int_eq(put_add(streams[0], from, to, makes), 0);
	drain(1, GANTRY_OK);
}

static void all_are(uint32_t at, uint32_t n, uint32_t value)
{
	for (uint32_t i = at; i < at + n; i++)
		if (words[i] != value)
			ck_abort_msg("word %u is %u, not %u", i, words[i], value);
}

/* ---- what is brought, and what is found ---- */

/* An iterative program: its inputs once, its results once a launch at most. */
START_TEST(test_what_launches_use_again_is_brought_once)
{
	const uint32_t rounds = 10;

	setup(NULL);
	for (uint32_t i = 0; i < rounds; i++)
		run_add(part(0, N, 7), part(N, N, 100 + i), 101 + i);
	ck_assert_uint_eq(nwrites, 2);
	ck_assert_uint_eq(nreads, rounds);
	ck_assert_uint_eq(device.dev->copied_in, 2 * BYTES);
	ck_assert_uint_eq(device.dev->kept, (2 * rounds - 2) * BYTES);
	ck_assert_uint_eq(device.dev->copied_out, rounds * BYTES);
	all_are(N, N, 1 + rounds);
	end();
}
END_TEST

/* Nobody is told of one without the others: the last one's results are those of all. */
START_TEST(test_what_a_batch_writes_again_and_again_is_fetched_once)
{
	const uint32_t rounds = 10;

	setup(NULL);
	for (uint32_t i = 0; i < rounds; i++)
		ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100 + i), 101 + i),
				 0);
	ck_assert_uint_eq(nreads, 0);
	drain(rounds, GANTRY_OK);
	ck_assert_uint_eq(nwrites, 2);
	ck_assert_uint_eq(nreads, 1);
	all_are(N, N, 1 + rounds);
	end();
}
END_TEST

/* Where that would take longer than the launches do they are told together, long ones too. */
START_TEST(test_long_launches_are_gathered_while_reading_back_takes_longer)
{
	static uint32_t large[1u << 20];
	struct gantry_range to = { .len = sizeof(large) };
	uint32_t ns = _i ? 2000 * US : 600 * US; /* to fetch 4 MiB is taken for 800 us */

	setup(NULL);
	ck_assert_int_eq(device.backend->mem_host(device.dev, large, sizeof(large), &to.mem, &err),
			 0);
	for (uint32_t i = 0; i < 6; i++) {
		half->mean_ns = ns;
		ck_assert_int_eq(put_half(streams[0], to, i, 1, 7 + i, 0), 0);
	}
	ck_assert_uint_eq(nreads, _i ? 6 : 0);
	drain(6, GANTRY_OK);
	ck_assert_uint_eq(nreads, _i ? 6 : 1);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_uint_eq(large[i], 7 + i);
	/* What is learned of a kernel is its own time. */
	ck_assert_uint_lt(half->mean_ns, ns);
	end();
}
END_TEST

/* As of memory that guests reach: whoever was told of the last use may have written it. */
START_TEST(test_what_nobody_knows_is_brought_for_each_that_begins_anew)
{
	setup(NULL);
	for (uint32_t i = 0; i < 3; i++) {
		words[0] = 5 + i;
		run_add(part(0, N, 0), part(N, N, 0), 0);
	}
	ck_assert_uint_eq(nwrites, 6);
	ck_assert_uint_eq(nmakes, 2);
	ck_assert_uint_eq(words[N], 1 + 5 + 6 + 7);
	ck_assert_uint_eq(device.dev->kept, 0);
	/* What is under way and unread has it alone. */
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(put_add(streams[0], part(0, N, 0), part(N, N, 0), 0), 0);
	drain(3, GANTRY_OK);
	ck_assert_uint_eq(words[N + 1], 7);
	end();
}
END_TEST

START_TEST(test_new_contents_are_brought_and_known_ones_believed)
{
	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	words[0] = 50; /* unseen: the number promises that nobody does this */
	run_add(part(0, N, 7), part(N, N, 101), 102);
	ck_assert_uint_eq(words[N], 3);
	run_add(part(0, N, 8), part(N, N, 102), 103);
	ck_assert_uint_eq(words[N], 53);
	/* Another device wrote the result meanwhile. */
	words[N] = 1000;
	run_add(part(0, N, 8), part(N, N, 200), 201);
	ck_assert_uint_eq(words[N], 1050);
	end();
}
END_TEST

START_TEST(test_command_that_is_cancelled_leaves_nothing_to_be_found)
{
	struct gantry_cmd cmd;

	setup(NULL);
	cmd = launch_of(add, N, 101);
	cmd.launch.args[0].range = part(0, N, 7);
	cmd.launch.args[1].range = part(N, N, 100);
	cmd.tag = cancelled_tag = 5;
	ck_assert_int_eq(device.backend->submit(streams[0], &cmd), 0);
	drain(1, GANTRY_E_CANCELLED);
	words[N] = 9;
	run_add(part(0, N, 7), part(N, N, 101), 102);
	ck_assert_uint_eq(words[N], 10);
	end();
}
END_TEST

START_TEST(test_nothing_stays_where_it_is_not_wanted)
{
	setup("keep=no");
	ck_assert(!(device.info.caps & GANTRY_CAP_KEEPS));
	run_add(part(0, N, 0), part(N, N, 0), 0);
	ck_assert_uint_eq(device.dev->ntwins, 0);
	run_add(part(0, N, 0), part(N, N, 0), 0);
	ck_assert_uint_eq(nwrites, 4);
	all_are(N, N, 3);
	end();
}
END_TEST

/* ---- ranges that cut through each other ---- */

START_TEST(test_range_that_cuts_through_what_is_unread_waits_for_it)
{
	setup(NULL);
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100), 101), 0);
	/* Words from the middle of one to the middle of another. */
	ck_assert_int_eq(put_add(streams[0], part(N + N / 2, N, 101), part(3 * N, N, 300), 301),
			 -EAGAIN);
	drain(1, GANTRY_OK);
	ck_assert_int_eq(put_add(streams[0], part(N + N / 2, N, 101), part(3 * N, N, 300), 301), 0);
	drain(1, GANTRY_OK);
	all_are(3 * N, N / 2, 3);
	all_are(3 * N + N / 2, N / 2, 2);
	end();
}
END_TEST

START_TEST(test_writing_a_part_makes_other_parts_stale)
{
	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	/* The whole of it is on the device as 101; a part becomes 102. */
	run_add(part(0, N / 2, 7), part(N, N / 2, 101), 102);
	run_add(part(0, N, 7), part(N, N, 102), 103);
	all_are(N, N / 2, 4);
	all_are(N + N / 2, N / 2, 3);
	end();
}
END_TEST

/* Each has what host memory has; what both wrote is the later one's, and nobody finds either on the device. */
START_TEST(test_command_whose_own_ranges_cut_through_each_other_is_done)
{
	setup(NULL);
	run_add(part(0, N, 7), part(N / 2, N, 7), 8);
	all_are(N / 2, N, 2);
	all_are(0, N / 2, 1);
	run_add(part(0, N, 8), part(2 * N, N, 300), 301);
	all_are(2 * N, N / 2, 2);
	all_are(2 * N + N / 2, N / 2, 3);
	end();
}
END_TEST

START_TEST(test_streams_that_write_halves_of_one_range_both_count)
{
	setup(NULL);
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(put_half(streams[0], part(0, N, 0), 0, N / 2, i, 0), 0);
		ck_assert_int_eq(put_half(streams[1], part(0, N, 0), N / 2, N / 2, i + 1, 0), 0);
		drain(2, GANTRY_OK);
		all_are(0, N / 2, i);
		all_are(N / 2, N / 2, i + 1);
	}
	end();
}
END_TEST

/* ---- copies and fills ---- */

static int put_copy(struct gantry_range from, struct gantry_range to, uint64_t makes)
{
	struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY };

	cmd.copy.src = from;
	cmd.copy.dst = to;
	cmd.copy.makes = makes;
	return device.backend->submit(streams[0], &cmd);
}

START_TEST(test_copy_between_what_the_device_has_stays_there)
{
	setup(NULL);
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100), 101), 0);
	ck_assert_int_eq(put_copy(part(N, N, 101), part(2 * N, N, 200), 201), 0);
	ck_assert_int_eq(put_add(streams[0], part(2 * N, N, 201), part(N, N, 101), 102), 0);
	drain(3, GANTRY_OK);
	ck_assert_uint_eq(nwrites, 2);
	ck_assert_uint_eq(nreads, 2);
	all_are(2 * N, N, 2);
	all_are(N, N, 4);
	end();
}
END_TEST

/* Host memory has it, and nothing is under way: no device is needed. */
START_TEST(test_copy_and_fill_of_what_the_host_has_move_nothing_to_the_device)
{
	struct gantry_cmd fill = { .kind = GANTRY_CMD_FILL };

	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	ck_assert_int_eq(put_copy(part(N, N, 101), part(2 * N, N, 0), 0), 0);
	drain(1, GANTRY_OK);
	all_are(2 * N, N, 2);
	fill.fill.dst = part(N, N, 101);
	fill.fill.makes = 102;
	fill.fill.pattern_bytes = 4;
	fill.fill.pattern = 40;
	ck_assert_int_eq(device.backend->submit(streams[0], &fill), 0);
	drain(1, GANTRY_OK);
	ck_assert_uint_eq(nwrites, 2);
	ck_assert_uint_eq(nreads, 1);
	run_add(part(0, N, 7), part(N, N, 102), 103);
	all_are(N, N, 41);
	end();
}
END_TEST

/* ---- room ---- */

START_TEST(test_what_was_not_used_for_longest_makes_room)
{
	char keep[32];

	(void)snprintf(keep, sizeof(keep), "keep=%zu", 3 * BYTES);
	setup(keep);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	run_add(part(0, N, 7), part(2 * N, N, 200), 201);
	ck_assert_uint_eq(device.dev->ntwins, 3);
	ck_assert_uint_eq(nwrites, 3);
	run_add(part(0, N, 7), part(3 * N, N, 300), 301); /* what has 101 goes */
	ck_assert_uint_eq(nwrites, 4);
	run_add(part(0, N, 7), part(2 * N, N, 201), 202);
	ck_assert_uint_eq(nwrites, 4);
	run_add(part(0, N, 7), part(N, N, 101), 102);
	ck_assert_uint_eq(nwrites, 5);
	ck_assert_uint_le(device.dev->twin_bytes, 3 * BYTES);
	all_are(N, N, 3);
	end();
}
END_TEST

START_TEST(test_command_that_needs_more_than_stays_is_done)
{
	setup("keep=4K");
	run_add(part(0, 2 * N, 7), part(2 * N, 2 * N, 100), 101);
	all_are(2 * N, 2 * N, 2);
	ck_assert_uint_le(device.dev->twin_bytes, 4096);
	end();
}
END_TEST

/* What the device says of room is found out late by some: when an object is first used. */
START_TEST(test_device_without_room_gets_some_from_what_only_stays)
{
	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	*(_i ? &writes_fail : &makes_fail) = 1;
	run_add(part(2 * N, N, 200), part(3 * N, N, 300), 301);
	all_are(3 * N, N, 2);
	ck_assert_uint_eq(device.dev->ntwins, 2);
	/* And waits for what is under way, once nothing else is left. */
	ck_assert_int_eq(put_add(streams[0], part(2 * N, N, 200), part(3 * N, N, 301), 302), 0);
	*(_i ? &writes_fail : &makes_fail) = 2;
	ck_assert_int_eq(put_add(streams[1], part(0, N, 7), part(N, N, 101), 102), -EAGAIN);
	drain(1, GANTRY_OK);
	*(_i ? &writes_fail : &makes_fail) = 2;
	ck_assert_int_eq(put_add(streams[1], part(0, N, 7), part(N, N, 101), 102), -ENOMEM);
	ck_assert_int_eq(put_add(streams[1], part(0, N, 7), part(N, N, 101), 102), 0);
	drain(1, GANTRY_OK);
	all_are(N, N, 3);
	end();
}
END_TEST

/* Nor does it cost others what stays for them. */
START_TEST(test_what_the_device_never_has_room_for_is_refused)
{
	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	device.dev->most_bytes = 2 * BYTES;
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(0, 3 * N, 300), 301), -ENOMEM);
	device.dev->most_bytes = UINT64_MAX;
	device.dev->device_bytes = 3 * BYTES;
	ck_assert_int_eq(put_add(streams[0], part(0, 2 * N, 8), part(2 * N, 2 * N, 300), 301),
			 -ENOMEM);
	ck_assert_uint_ge(device.dev->ntwins, 2);
	nwrites = 0;
	run_add(part(0, N, 7), part(N, N, 101), 102);
	ck_assert_uint_eq(nwrites, 0);
	end();
}
END_TEST

START_TEST(test_memory_and_streams_that_go_take_along_what_they_have)
{
	struct gantry_mem *other;

	setup(NULL);
	run_add(part(0, N, 7), part(N, N, 100), 101);
	ck_assert_int_eq(put_half(streams[1], part(2 * N, N, 9), 0, N, 3, 10), 0);
	drain(1, GANTRY_OK);
	device.backend->stream_destroy(streams[1]);
	streams[1] = streams[0];
	run_add(part(2 * N, N, 10), part(N, N, 101), 102);
	all_are(N, N, 5);
	ck_assert_uint_eq(device.dev->ntwins, 3);
	device.backend->mem_free(mem);
	ck_assert_uint_eq(device.dev->ntwins, 0);
	ck_assert_uint_eq(device.dev->twin_bytes, 0);
	/* The next has nothing of it, whatever it is called. */
	ck_assert_int_eq(device.backend->mem_host(device.dev, words, sizeof(words), &other, &err),
			 0);
	mem = other;
	words[0] = 6;
	run_add(part(0, N, 7), part(N, N, 102), 103);
	ck_assert_uint_eq(words[N], 11);
	end();
}
END_TEST

/* ---- failures ---- */

/* What cannot be fetched was not done, as far as anybody is told. */
START_TEST(test_batch_that_cannot_be_read_back_has_failed)
{
	setup(NULL);
	reads_fail = true;
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100 + i), 101 + i),
				 0);
	drain(3, GANTRY_E_DEVICE_FAULT);
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 103), 104), -ENODEV);
	end();
}
END_TEST

START_TEST(test_refused_command_leaves_nothing_to_be_found)
{
	struct gantry_cmd cmd;

	setup(NULL);
	cmd = launch_of(add, N, 101);
	cmd.launch.args[0].range = part(0, N, 7);
	cmd.launch.args[1].range = part(N, N, 100);
	cmd.launch.block[0] = 1u << 30; /* no device does it */
	ck_assert_int_eq(device.backend->submit(streams[0], &cmd), -EINVAL);
	words[0] = 4;
	run_add(part(0, N, 7), part(N, N, 100), 101);
	ck_assert_uint_eq(words[N], 5);
	end();
}
END_TEST

/* What it began reads host memory, which may be gone as soon as the stream is. */
START_TEST(test_stream_that_goes_waits_for_what_a_refused_command_began)
{
	setup(NULL);
	launches_fail = true;
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100), 101), -EINVAL);
	nfinishes = 0;
	device.backend->stream_destroy(streams[0]);
	ck_assert_uint_gt(nfinishes, 0);
	streams[0] = streams[1];
	device.backend->mem_free(mem);
	end();
}
END_TEST

/* Nor does it write what another stream has brought since. */
START_TEST(test_what_a_refused_command_began_is_not_shared_with_other_streams)
{
	setup(NULL);
	launches_fail = true;
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100), 101), -EINVAL);
	launches_fail = false;
	nmakes = 0;
	ck_assert_int_eq(put_add(streams[0], part(0, N, 7), part(N, N, 100), 101), 0);
	drain(1, GANTRY_OK);
	ck_assert_uint_eq(nmakes, 0);
	launches_fail = true;
	ck_assert_int_eq(put_add(streams[0], part(0, N, 8), part(N, N, 102), 103), -EINVAL);
	launches_fail = false;
	ck_assert_int_eq(put_add(streams[1], part(0, N, 8), part(N, N, 102), 104), 0);
	drain(1, GANTRY_OK);
	ck_assert_uint_eq(nmakes, 2);
	all_are(N, N, 3);
	end();
}
END_TEST

START_TEST(test_option_keep_is_a_size_or_no)
{
	const char *opts[] = { "platform=Portable Computing Language", "keep=much" };
	const struct gantry_device_conf conf = {
		.name = "test", .backend = "opencl", .nopts = 2, .opts = opts
	};

	ck_assert_int_eq(gantry_device_open(&conf, &host, &device, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "keep"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl_twin");
	TCase *tc = gantry_unit_case(suite, "twins");

	tcase_set_timeout(tc, TIMEOUT_S);
	tcase_add_test(tc, test_what_launches_use_again_is_brought_once);
	tcase_add_test(tc, test_what_a_batch_writes_again_and_again_is_fetched_once);
	tcase_add_loop_test(tc, test_long_launches_are_gathered_while_reading_back_takes_longer, 0,
			    2);
	tcase_add_test(tc, test_what_nobody_knows_is_brought_for_each_that_begins_anew);
	tcase_add_test(tc, test_new_contents_are_brought_and_known_ones_believed);
	tcase_add_test(tc, test_command_that_is_cancelled_leaves_nothing_to_be_found);
	tcase_add_test(tc, test_nothing_stays_where_it_is_not_wanted);
	tcase_add_test(tc, test_range_that_cuts_through_what_is_unread_waits_for_it);
	tcase_add_test(tc, test_writing_a_part_makes_other_parts_stale);
	tcase_add_test(tc, test_command_whose_own_ranges_cut_through_each_other_is_done);
	tcase_add_test(tc, test_streams_that_write_halves_of_one_range_both_count);
	tcase_add_test(tc, test_copy_between_what_the_device_has_stays_there);
	tcase_add_test(tc, test_copy_and_fill_of_what_the_host_has_move_nothing_to_the_device);
	tcase_add_test(tc, test_what_was_not_used_for_longest_makes_room);
	tcase_add_test(tc, test_command_that_needs_more_than_stays_is_done);
	tcase_add_loop_test(tc, test_device_without_room_gets_some_from_what_only_stays, 0, 2);
	tcase_add_test(tc, test_what_the_device_never_has_room_for_is_refused);
	tcase_add_test(tc, test_memory_and_streams_that_go_take_along_what_they_have);
	tcase_add_test(tc, test_batch_that_cannot_be_read_back_has_failed);
	tcase_add_test(tc, test_refused_command_leaves_nothing_to_be_found);
	tcase_add_test(tc, test_stream_that_goes_waits_for_what_a_refused_command_began);
	tcase_add_test(tc, test_what_a_refused_command_began_is_not_shared_with_other_streams);
	tcase_add_test(tc, test_option_keep_is_a_size_or_no);
	return gantry_unit_run(suite);
}
