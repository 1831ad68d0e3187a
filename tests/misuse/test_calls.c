/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are wrong in one thing each: every answer is a status, and the session and its neighbour go on. */
#include <string.h>

#include "base/array.h"
#include "devices/manifest.h"
#include "tests/misuse/world.h"

static struct hostile h;
static uint32_t queue;
static uint64_t queue_handle;

static void begin(void)
{
	world_hostile(&h);
	ck_assert_int_eq(hostile_queue(&h, &queue, &queue_handle), GANTRY_OK);
}

static void finish(void)
{
	/* Whatever was asked, the session still works. */
	ck_assert_int_eq(hostile_ping(&h, queue), GANTRY_OK);
	world_hostile_end(&h);
}

#define expect(call, status)                                                                      \
	do {                                                                                      \
		int seen_ = (call);                                                               \
		ck_assert_msg(seen_ == (status), "%s: %s, not %s", #call,                         \
			      seen_ == HOSTILE_TIMEOUT ? "no answer" : gantry_status_name(seen_), \
			      gantry_status_name(status));                                        \
	} while (0)

static uint64_t kernel(const char *name)
{
	uint64_t k;

	ck_assert_int_eq(hostile_kernel(&h, name, NULL, &k, NULL), GANTRY_OK);
	return k;
}

static uint64_t buffer(uint64_t bytes, unsigned int flags)
{
	uint64_t b;

	ck_assert_int_eq(hostile_buffer(&h, bytes, flags, &b), GANTRY_OK);
	return b;
}

static int wait_for(uint64_t seq)
{
	return hostile_wait(&h, queue, seq, HOSTILE_WAIT_MS);
}

/* ---- kernels and signatures ---- */

START_TEST(test_kernel_that_is_unknown_is_refused_with_a_sentence)
{
	struct gantry_reply reply;
	uint64_t k;

	expect(hostile_kernel(&h, "no_such_kernel", NULL, &k, &reply), GANTRY_E_NO_KERNEL);
	ck_assert(reply.text[0] != '\0');
	ck_assert(memchr(reply.text, '\0', sizeof(reply.text)) != NULL);
	expect(hostile_kernel(&h, "", NULL, &k, &reply), GANTRY_E_NO_KERNEL);
	expect(hostile_kernel(&h, "../core", NULL, &k, &reply), GANTRY_E_NO_KERNEL);
	expect(hostile_kernel(&h, "%s%n%s%n", NULL, &k, &reply), GANTRY_E_NO_KERNEL);
}
END_TEST

START_TEST(test_kernel_with_another_signature_is_refused_with_the_right_one)
{
	struct gantry_reply reply;
	uint64_t k;

	expect(hostile_kernel(&h, "checksum", "r:u8*,u64", &k, &reply), GANTRY_E_SIGNATURE);
	ck_assert(strstr(reply.text, "u64*") != NULL);
	expect(hostile_kernel(&h, "checksum", "nonsense(", &k, &reply), GANTRY_E_SIGNATURE);
	ck_assert(reply.text[0] != '\0');
}
END_TEST

START_TEST(test_kernel_name_with_lengths_that_lie_is_refused)
{
	static const struct {
		uint16_t name, sig;
		uint32_t len;
	} lies[] = { { 9, 0, 8 }, { 8, 1, 9 }, { 96, 0, 96 }, { 1, 0, 192 }, { 9, 100, 109 } };
	char text[GANTRY_INLINE_BYTES];
	struct gantry_desc desc;

	memset(text, 'x', sizeof(text)); /* no NUL anywhere */
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(lies); i++) {
		struct gantry_op_kernel_get op = { .name_bytes = lies[i].name,
						   .sig_bytes = lies[i].sig };

		gantry_desc_put_kernel_get(&desc, &op);
		gantry_desc_set_inline(&desc, lies[i].len);
		expect(hostile_control(&h, &desc, text, sizeof(text), NULL), GANTRY_E_ARG);
	}
}
END_TEST

START_TEST(test_launch_with_wrong_argument_size_is_refused)
{
	uint64_t k = kernel("spin"), args[4] = { 0 };

	expect(wait_for(hostile_launch(&h, queue, k, NULL, 0, NULL, 0)), GANTRY_E_SIGNATURE);
	expect(wait_for(hostile_launch(&h, queue, k, NULL, 0, args, 4)), GANTRY_E_SIGNATURE);
	expect(wait_for(hostile_launch(&h, queue, k, NULL, 0, args, 32)), GANTRY_E_SIGNATURE);
}
END_TEST

static struct gantry_wire_access good_access[2];
static uint64_t good_args[3] = { 0, 0, 64 };
static uint64_t checksum;

static void good_launch(void)
{
	uint64_t b = buffer(128, GANTRY_ALLOC_DEVICE);

	checksum = kernel("checksum");
	good_access[0] = (struct gantry_wire_access){
		.buffer = b, .len = 64, .mode = GANTRY_R, .arg_off = 0
	};
	good_access[1] = (struct gantry_wire_access){
		.buffer = b, .off = 64, .len = 8, .mode = GANTRY_W, .arg_off = 8
	};
	expect(wait_for(hostile_launch(&h, queue, checksum, good_access, 2, good_args, 24)),
	       GANTRY_OK);
}

static int launch_with(struct gantry_wire_access second)
{
	struct gantry_wire_access access[2] = { good_access[0], second };

	return wait_for(hostile_launch(&h, queue, checksum, access, 2, good_args, 24));
}

START_TEST(test_launch_with_wrong_argument_kind_is_refused)
{
	struct gantry_wire_access a;

	good_launch();
	a = good_access[1];
	a.mode = GANTRY_R; /* the kernel writes there */
	expect(launch_with(a), GANTRY_E_SIGNATURE);
	a.mode = 0;
	expect(launch_with(a), GANTRY_E_ARG);
	a.mode = 77;
	expect(launch_with(a), GANTRY_E_ARG);
	a = good_access[1];
	a.arg_off = 16; /* a scalar's place */
	expect(launch_with(a), GANTRY_E_SIGNATURE);
	a.arg_off = 4;
	expect(launch_with(a), GANTRY_E_ARG);
	a.arg_off = 24;
	expect(launch_with(a), GANTRY_E_ARG);
	a.arg_off = 0xfff8;
	expect(launch_with(a), GANTRY_E_ARG);
	a.arg_off = GANTRY_ARG_NONE;
	expect(launch_with(a), GANTRY_E_SIGNATURE);
	a = good_access[1];
	a.reserved = 1;
	expect(launch_with(a), GANTRY_E_ARG);
	expect(wait_for(hostile_launch(&h, queue, checksum, good_access, 1, good_args, 24)),
	       GANTRY_E_SIGNATURE);
}
END_TEST

START_TEST(test_launch_counting_past_its_own_range_is_refused_by_the_kernel)
{
	good_launch();
	good_args[2] = 1u << 20; /* elements; the range holds 64 */
	expect(wait_for(hostile_launch(&h, queue, checksum, good_access, 2, good_args, 24)),
	       GANTRY_E_KERNEL);
	good_args[2] = UINT64_MAX;
	expect(wait_for(hostile_launch(&h, queue, checksum, good_access, 2, good_args, 24)),
	       GANTRY_E_KERNEL);
	good_args[2] = 64;
	good_access[1].len = 4; /* less than the sum needs */
	expect(wait_for(hostile_launch(&h, queue, checksum, good_access, 2, good_args, 24)),
	       GANTRY_E_KERNEL);
}
END_TEST

/* ---- handles ---- */

START_TEST(test_handle_forged_is_unknown)
{
	uint64_t seed = 1, b, good;
	struct gantry_wire_access a;

	good_launch();
	good = good_access[1].buffer;
	a = good_access[1];
	for (int i = 0; i < 300; i++) {
		switch (i % 6) {
		case 0:
			b = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, hostile_random(&seed),
					  hostile_random(&seed));
			break;
		case 1:
			b = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER,
					  GANTRY_HANDLE_GEN(good) + 1 + (uint32_t)i,
					  GANTRY_HANDLE_SLOT(good));
			break;
		case 2:
			b = GANTRY_HANDLE(GANTRY_HANDLE_KERNEL, GANTRY_HANDLE_GEN(good),
					  GANTRY_HANDLE_SLOT(good));
			break;
		case 3:
			b = checksum; /* a good handle of another type */
			break;
		case 4:
			b = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, GANTRY_HANDLE_GEN(good),
					  0xffffff - i);
			break;
		default:
			b = 0;
			break;
		}
		a.buffer = b;
		expect(launch_with(a), GANTRY_E_HANDLE);
	}
	/* Kernels: the decoder sees the type, the table the rest. */
	expect(wait_for(hostile_launch(&h, queue, good, good_access, 2, good_args, 24)),
	       GANTRY_E_HANDLE);
	expect(wait_for(hostile_launch(&h, queue, checksum + (1ull << 24), good_access, 2,
				       good_args, 24)),
	       GANTRY_E_HANDLE);
}
END_TEST

START_TEST(test_handle_stale_is_refused_at_once_and_twice)
{
	struct gantry_wire_access a;
	uint64_t b = buffer(64, GANTRY_ALLOC_DEVICE);

	good_launch();
	a = good_access[1];
	a.off = 0;
	a.buffer = b;
	expect(launch_with(a), GANTRY_OK);
	expect(hostile_buffer_free(&h, b), GANTRY_OK);
	expect(launch_with(a), GANTRY_E_HANDLE);
	expect(hostile_buffer_free(&h, b), GANTRY_E_HANDLE);
	/* The slot's next owner has another handle. */
	for (int i = 0; i < 50; i++) {
		uint64_t next = buffer(64, GANTRY_ALLOC_DEVICE);

		ck_assert_uint_ne(next, b);
		expect(hostile_buffer_free(&h, next), GANTRY_OK);
	}
	expect(launch_with(a), GANTRY_E_HANDLE);
}
END_TEST

START_TEST(test_handle_freed_while_a_task_that_uses_it_waits_still_serves_that_task)
{
	uint64_t ns = 20000000, seq;

	good_launch();
	(void)hostile_launch(&h, queue, kernel("spin"), NULL, 0, &ns, sizeof(ns));
	seq = hostile_launch(&h, queue, checksum, good_access, 2, good_args, 24);
	expect(hostile_buffer_free(&h, good_access[0].buffer), GANTRY_OK);
	expect(wait_for(seq), GANTRY_OK);
	expect(launch_with(good_access[1]), GANTRY_E_HANDLE);
}
END_TEST

START_TEST(test_handle_of_another_session_means_nothing_here)
{
	struct gantry_wire_access a;
	struct hostile other;
	uint64_t theirs = 0;

	good_launch();
	world_hostile(&other);
	/* More than we have, so that their last one is none of ours by accident. */
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(hostile_buffer(&other, 64, GANTRY_ALLOC_DEVICE, &theirs),
				 GANTRY_OK);
	a = good_access[1];
	a.off = 0;
	a.buffer = theirs;
	expect(launch_with(a), GANTRY_E_HANDLE);
	expect(hostile_buffer_free(&h, theirs), GANTRY_E_HANDLE);
	expect(hostile_buffer_free(&other, theirs), GANTRY_OK);
	world_hostile_end(&other);
}
END_TEST

START_TEST(test_handle_of_the_wrong_type_is_refused_by_every_operation)
{
	uint64_t b = buffer(64, GANTRY_ALLOC_DEVICE), k = kernel("empty");
	struct gantry_op_queue_close close_op = { .queue = k };
	struct gantry_op_queue_cancel cancel = { .queue = b };
	struct gantry_op_object_free free_op = { .object = b };
	struct gantry_desc desc;

	gantry_desc_put_queue_close(&desc, &close_op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
	gantry_desc_put_queue_cancel(&desc, &cancel);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
	gantry_desc_put_object_free(&desc, &free_op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
	free_op.object = queue_handle;
	gantry_desc_put_object_free(&desc, &free_op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
	expect(hostile_buffer_free(&h, queue_handle), GANTRY_E_HANDLE);
	close_op.queue = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, 0,
				       0); /* the control queue is nobody's to close */
	gantry_desc_put_queue_close(&desc, &close_op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
	close_op.queue = GANTRY_HANDLE(GANTRY_HANDLE_QUEUE, 1, 63);
	gantry_desc_put_queue_close(&desc, &close_op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
}
END_TEST

START_TEST(test_queue_closed_twice_is_stale)
{
	struct gantry_op_queue_close op;
	struct gantry_desc desc;
	uint32_t slot;

	ck_assert_int_eq(hostile_queue(&h, &slot, &op.queue), GANTRY_OK);
	gantry_desc_put_queue_close(&desc, &op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_OK);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_HANDLE);
}
END_TEST

/* ---- spans ---- */

START_TEST(test_span_past_the_end_of_a_buffer_is_refused)
{
	static const struct {
		uint64_t off, len;
	} spans[] = { { 0, 129 },
		      { 128, 1 },
		      { 129, 0 },
		      { UINT64_MAX, 2 },
		      { UINT64_MAX - 7, 8 },
		      { 8, UINT64_MAX - 7 },
		      { 1ull << 63, 1ull << 63 },
		      { 64, UINT64_MAX } };
	struct gantry_wire_access a;

	good_launch();
	a = good_access[1];
	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(spans); i++) {
		struct gantry_op_fill fill = { .buffer = a.buffer,
					       .off = spans[i].off,
					       .bytes = spans[i].len,
					       .pattern_bytes = 1 };
		struct gantry_desc desc;

		a.off = spans[i].off;
		a.len = spans[i].len;
		expect(launch_with(a), GANTRY_E_SPAN);
		if (spans[i].len) {
			gantry_desc_put_fill(&desc, &fill);
			expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_SPAN);
		}
	}
}
END_TEST

START_TEST(test_span_past_the_end_of_the_heap_is_refused)
{
	uint64_t b = buffer(1 << 20, GANTRY_ALLOC_DEVICE);
	const uint64_t offs[] = { h.heap.bytes - 4032, h.heap.bytes, UINT64_MAX - 100, 1ull << 63,
				  h.header.segment_bytes };
	struct gantry_desc desc;

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(offs); i++) {
		struct gantry_op_write w = { .buffer = b, .heap_off = offs[i], .bytes = 4096 };
		struct gantry_op_read r = { .buffer = b, .heap_off = offs[i], .bytes = 4096 };
		struct gantry_op_buf_alloc alloc = { .bytes = 4096,
						     .heap_off = offs[i] & ~63ull,
						     .alloc_flags = GANTRY_ALLOC_HOST };
		struct gantry_op_image_load image = { .heap_off = offs[i],
						      .bytes = 4096,
						      .kind = GANTRY_KIND_CPU };
		struct gantry_op_launch launch = { .args_bytes = 4096 };

		gantry_desc_put_write(&desc, &w);
		expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_SPAN);
		gantry_desc_put_read(&desc, &r);
		expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_SPAN);
		gantry_desc_put_buf_alloc(&desc, &alloc);
		expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_SPAN);
		gantry_desc_put_image_load(&desc, &image);
		expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_SPAN);
		gantry_desc_put_launch(&desc, &launch);
		gantry_desc_set_heap(&desc, offs[i] & ~7ull, 4096);
		expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_SPAN);
	}
}
END_TEST

START_TEST(test_variable_part_of_a_wrong_length_or_place_is_refused)
{
	struct gantry_op_launch op = { .args_bytes = 8 };
	struct gantry_desc desc;
	static const struct {
		uint16_t flags;
		uint32_t len;
		uint64_t off;
	} parts[] = { { 1, 16, 0 },
		      { 1, 193, 0 },
		      { 1, 8, 8 },
		      { 0, 8, 4 },
		      { 0, 0, 64 },
		      { 2, 8, 0 },
		      { 0, GANTRY_MAX_VAR_BYTES + 1, 0 },
		      { 0, UINT32_MAX, 0 },
		      { 1, 0, 0 },
		      { 0, 0, 0 } };

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(parts); i++) {
		gantry_desc_put_launch(&desc, &op);
		desc.flags = parts[i].flags;
		desc.len_bytes = parts[i].len;
		desc.off_bytes = parts[i].off;
		expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG);
	}
}
END_TEST

/* ---- limits and devices ---- */

START_TEST(test_device_kind_that_is_absent_is_refused_by_name_only)
{
	/* In Arax a legal request for an absent type of device crashed the server. */
	struct gantry_op_queue_open open_op = { .kind = GANTRY_KIND_FPGA };
	struct gantry_op_props props = { .kind = GANTRY_KIND_CUDA };
	struct gantry_reply reply;
	struct gantry_desc desc;

	gantry_desc_put_queue_open(&desc, &open_op);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_E_NO_DEVICE);
	ck_assert(reply.text[0] != '\0');
	gantry_desc_put_props(&desc, &props);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_E_NO_DEVICE);
	props.kind = 8; /* no kind at all */
	gantry_desc_put_props(&desc, &props);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_E_ARG);
	open_op = (struct gantry_op_queue_open){ .device_mask = 1ull << 63 };
	gantry_desc_put_queue_open(&desc, &open_op);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_E_NO_DEVICE);
	/* And it works afterwards. */
	open_op = (struct gantry_op_queue_open){ .kind = GANTRY_KIND_CPU };
	gantry_desc_put_queue_open(&desc, &open_op);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_OK);
}
END_TEST

START_TEST(test_queue_set_to_an_absent_device_is_refused_and_the_queue_goes_on)
{
	struct gantry_op_queue_set op = { .queue = queue_handle,
					  .key = GANTRY_QUEUE_DEVICE_MASK,
					  .value = 1ull << 40 };
	struct gantry_desc desc;

	gantry_desc_put_queue_set(&desc, &op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_NO_DEVICE);
	expect(hostile_ping(&h, queue), GANTRY_OK);
	expect(wait_for(hostile_launch(&h, queue, kernel("empty"), NULL, 0, NULL, 0)), GANTRY_OK);
}
END_TEST

START_TEST(test_allocation_over_the_limit_is_refused)
{
	uint64_t b;

	expect(hostile_buffer(&h, 0, GANTRY_ALLOC_DEVICE, &b), GANTRY_E_ARG);
	expect(hostile_buffer(&h, GANTRY_MAX_BUFFER_BYTES + 1, GANTRY_ALLOC_DEVICE, &b),
	       GANTRY_E_ARG);
	expect(hostile_buffer(&h, UINT64_MAX, GANTRY_ALLOC_DEVICE, &b), GANTRY_E_ARG);
	expect(hostile_buffer(&h, GANTRY_MAX_BUFFER_BYTES, GANTRY_ALLOC_DEVICE, &b),
	       GANTRY_E_LIMIT);
	expect(hostile_buffer(&h, GANTRY_MAX_BUFFER_BYTES,
			      GANTRY_ALLOC_SHARED | GANTRY_ALLOC_DEVICE, &b),
	       GANTRY_E_LIMIT);
	expect(hostile_buffer(&h, 64, GANTRY_ALLOC_HOST | GANTRY_ALLOC_DEVICE, &b), GANTRY_E_ARG);
	expect(hostile_buffer(&h, 64, 0x80, &b), GANTRY_E_ARG);
	/* Output of kernels comes to the heap, and needs room for its counts. */
	expect(hostile_buffer(&h, 8192, GANTRY_ALLOC_OUTPUT, &b), GANTRY_E_ARG);
	expect(hostile_buffer(&h, 8192, GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_OUTPUT, &b),
	       GANTRY_E_ARG);
	expect(hostile_buffer(&h, GANTRY_OUTPUT_MIN_BYTES - 64,
			      GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT, &b),
	       GANTRY_E_ARG);
}
END_TEST

START_TEST(test_memory_used_over_the_limit_fails_the_task_that_uses_it)
{
	/* Virtual is larger than resident memory: the allocation is lawful, its use is not. */
	uint64_t bytes = world.kind == WORLD_ENGINE ? 12ull << 30 : 200ull << 20;
	uint64_t b = buffer(bytes, GANTRY_ALLOC_DEVICE), small = buffer(64, GANTRY_ALLOC_DEVICE);
	struct gantry_op_fill fill = { .buffer = b, .bytes = bytes, .pattern_bytes = 8 };
	struct gantry_desc desc;

	gantry_desc_put_fill(&desc, &fill);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_LIMIT);
	fill = (struct gantry_op_fill){ .buffer = small, .bytes = 64, .pattern_bytes = 8 };
	gantry_desc_put_fill(&desc, &fill);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_OK);
	expect(hostile_buffer_free(&h, b), GANTRY_OK);
}
END_TEST

START_TEST(test_virtual_memory_is_counted_over_all_buffers_and_given_back)
{
	uint64_t each = world.kind == WORLD_ENGINE ? 3ull << 30 : 50ull << 20;
	uint64_t b[6];
	int status = GANTRY_OK, n = 0;

	while (n < 6 &&
	       (status = hostile_buffer(&h, each, GANTRY_ALLOC_DEVICE, &b[n])) == GANTRY_OK)
		n++;
	expect(status, GANTRY_E_LIMIT);
	ck_assert_int_eq(n, 5);
	for (int i = 0; i < n; i++)
		expect(hostile_buffer_free(&h, b[i]), GANTRY_OK);
	/* A free takes effect at once where no task stands before it. */
	do
		status = hostile_buffer(&h, each, GANTRY_ALLOC_DEVICE, &b[0]);
	while (status == GANTRY_E_AGAIN);
	expect(status, GANTRY_OK);
}
END_TEST

START_TEST(test_objects_without_end_are_refused_and_given_back)
{
	static uint64_t handles[70000];
	unsigned int n = 0;
	int status = GANTRY_OK;

	while (n < GANTRY_ARRAY_SIZE(handles) &&
	       (status = hostile_buffer(&h, 1, GANTRY_ALLOC_DEVICE, &handles[n])) == GANTRY_OK)
		n++;
	expect(status, GANTRY_E_LIMIT);
	expect(hostile_kernel(&h, "empty", NULL, &handles[n], NULL), GANTRY_E_LIMIT);
	neighbour_check(&world.neighbour);
	for (unsigned int i = 0; i < n; i++)
		expect(hostile_buffer_free(&h, handles[i]), GANTRY_OK);
	expect(hostile_kernel(&h, "empty", NULL, &handles[0], NULL), GANTRY_OK);
}
END_TEST

START_TEST(test_queues_without_end_are_refused)
{
	uint32_t slot;
	int status = GANTRY_OK, n = 0;

	while (n < 100 && (status = hostile_queue(&h, &slot, NULL)) == GANTRY_OK)
		n++;
	expect(status, GANTRY_E_LIMIT);
	ck_assert_uint_lt(n, h.header.nqueues);
}
END_TEST

/* ---- images ---- */

START_TEST(test_image_that_is_no_image_is_refused)
{
	uint64_t seed = 2, off = hostile_heap(&h, 4096);
	struct gantry_op_image_load op = { .heap_off = off,
					   .bytes = 4096,
					   .kind = GANTRY_KIND_CPU };
	struct gantry_desc desc;
	struct gantry_reply reply;
	int status;

	for (uint32_t kind = 0; kind < GANTRY_NKINDS; kind++) {
		hostile_noise(&seed, hostile_heap_at(&h, off), 4096);
		if (kind & 1)
			memcpy(hostile_heap_at(&h, off), "\177ELF\2\1\1", 7);
		op.kind = kind;
		gantry_desc_put_image_load(&desc, &op);
		status = hostile_control(&h, &desc, NULL, 0, &reply);
		ck_assert_msg(status == GANTRY_E_UNSUPPORTED || status == GANTRY_E_IMAGE ||
				      status == GANTRY_E_ARG || status == GANTRY_E_NO_DEVICE,
			      "kind %u: %s", kind, gantry_status_name(status));
	}
	op.bytes = GANTRY_MAX_IMAGE_BYTES + 1;
	gantry_desc_put_image_load(&desc, &op);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_image_by_a_name_that_is_no_module_is_not_found)
{
	static const char *const names[] = { "nothing", "../core", "/etc/passwd", "core.so", "" };
	struct gantry_op_image_load op = { .by_name = 1 };
	char text[GANTRY_INLINE_BYTES] = { 0 };
	struct gantry_desc desc;

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
		strcpy(text, names[i]);
		gantry_desc_put_image_load(&desc, &op);
		gantry_desc_set_inline(&desc, (uint32_t)strlen(text) + 1);
		expect(hostile_control(&h, &desc, text, sizeof(text), NULL), GANTRY_E_NOT_FOUND);
	}
}
END_TEST

/* ---- operations in the wrong place ---- */

START_TEST(test_operations_of_the_other_sort_of_queue_are_unsupported)
{
	for (uint16_t op = 0; op < 64; op++) {
		const struct gantry_op_info *info = gantry_op_info(op);
		struct gantry_desc desc = { .op = op };

		if (!info || (info->flags & GANTRY_OPF_CTL))
			expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)),
			       GANTRY_E_UNSUPPORTED);
		if (!info || (info->flags & GANTRY_OPF_TASK))
			expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_UNSUPPORTED);
	}
}
END_TEST

START_TEST(test_copy_and_fill_with_bad_fields_are_refused)
{
	uint64_t b = buffer(4096, GANTRY_ALLOC_DEVICE);
	struct gantry_op_copy copy = { .dst = b, .src = b, .src_off = 10, .bytes = 100 };
	struct gantry_op_fill fill = { .buffer = b, .bytes = 10, .pattern_bytes = 3 };
	struct gantry_desc desc;

	gantry_desc_put_copy(&desc, &copy);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG); /* overlap */
	copy = (struct gantry_op_copy){ .dst = b, .src = b, .src_off = 2048, .bytes = 0 };
	gantry_desc_put_copy(&desc, &copy);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG);
	copy = (struct gantry_op_copy){
		.dst = b, .src = b, .src_off = 2048, .bytes = 2048, .reserved = 1
	};
	gantry_desc_put_copy(&desc, &copy);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG);
	copy = (struct gantry_op_copy){
		.dst = b, .src = b, .src_off = UINT64_MAX - 10, .dst_off = 5, .bytes = 20
	};
	gantry_desc_put_copy(&desc, &copy);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_SPAN);
	gantry_desc_put_fill(&desc, &fill);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG);
	fill.pattern_bytes = 4; /* 10 is no multiple */
	gantry_desc_put_fill(&desc, &fill);
	expect(wait_for(hostile_put(&h, queue, &desc, NULL, 0)), GANTRY_E_ARG);
}
END_TEST

START_TEST(test_priority_over_the_cap_is_capped_and_past_its_range_refused)
{
	struct gantry_op_queue_open op = { .priority = INT32_MAX };
	struct gantry_op_queue_set set = { .key = GANTRY_QUEUE_PRIORITY, .value = INT32_MAX };
	struct gantry_reply_queue answer;
	struct gantry_reply reply;
	struct gantry_desc desc;

	gantry_desc_put_queue_open(&desc, &op);
	expect(hostile_control(&h, &desc, NULL, 0, &reply), GANTRY_OK);
	memcpy(&answer, reply.data, sizeof(answer));
	set.queue = answer.handle;
	gantry_desc_put_queue_set(&desc, &set);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_OK);
	set.value = (uint64_t)INT64_MIN;
	gantry_desc_put_queue_set(&desc, &set);
	expect(hostile_control(&h, &desc, NULL, 0, NULL), GANTRY_E_ARG);
	/* However loud it shouted, the neighbour is served. */
	for (int i = 0; i < 100; i++)
		(void)hostile_launch(&h, answer.slot, kernel("empty"), NULL, 0, NULL, 0);
	neighbour_check(&world.neighbour);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_checked_fixture(tc, begin, finish);
	tcase_add_test(tc, test_kernel_that_is_unknown_is_refused_with_a_sentence);
	tcase_add_test(tc, test_kernel_with_another_signature_is_refused_with_the_right_one);
	tcase_add_test(tc, test_kernel_name_with_lengths_that_lie_is_refused);
	tcase_add_test(tc, test_launch_with_wrong_argument_size_is_refused);
	tcase_add_test(tc, test_launch_with_wrong_argument_kind_is_refused);
	tcase_add_test(tc, test_launch_counting_past_its_own_range_is_refused_by_the_kernel);
	tcase_add_test(tc, test_handle_forged_is_unknown);
	tcase_add_test(tc, test_handle_stale_is_refused_at_once_and_twice);
	tcase_add_test(tc,
		       test_handle_freed_while_a_task_that_uses_it_waits_still_serves_that_task);
	tcase_add_test(tc, test_handle_of_another_session_means_nothing_here);
	tcase_add_test(tc, test_handle_of_the_wrong_type_is_refused_by_every_operation);
	tcase_add_test(tc, test_queue_closed_twice_is_stale);
	tcase_add_test(tc, test_span_past_the_end_of_a_buffer_is_refused);
	tcase_add_test(tc, test_span_past_the_end_of_the_heap_is_refused);
	tcase_add_test(tc, test_variable_part_of_a_wrong_length_or_place_is_refused);
	tcase_add_test(tc, test_device_kind_that_is_absent_is_refused_by_name_only);
	tcase_add_test(tc, test_queue_set_to_an_absent_device_is_refused_and_the_queue_goes_on);
	tcase_add_test(tc, test_allocation_over_the_limit_is_refused);
	tcase_add_test(tc, test_memory_used_over_the_limit_fails_the_task_that_uses_it);
	tcase_add_test(tc, test_virtual_memory_is_counted_over_all_buffers_and_given_back);
	tcase_add_test(tc, test_objects_without_end_are_refused_and_given_back);
	tcase_add_test(tc, test_queues_without_end_are_refused);
	tcase_add_test(tc, test_image_that_is_no_image_is_refused);
	tcase_add_test(tc, test_image_by_a_name_that_is_no_module_is_not_found);
	tcase_add_test(tc, test_operations_of_the_other_sort_of_queue_are_unsupported);
	tcase_add_test(tc, test_copy_and_fill_with_bad_fields_are_refused);
	tcase_add_test(tc, test_priority_over_the_cap_is_capped_and_past_its_range_refused);
}

int main(void)
{
	Suite *suite = suite_create("misuse-calls");

	add_tests(world_case(suite, "engine", WORLD_ENGINE));
	add_tests(world_case(suite, "agent", WORLD_AGENT));
	return gantry_unit_run(suite);
}
