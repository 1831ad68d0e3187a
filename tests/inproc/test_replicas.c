/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that several devices read: each has a copy, until somebody writes. Bytes that were copied are counted. */
#include <stdlib.h>

#include "tests/inproc/bytes.h"

#define BYTES MIB

static const char *const two_windows[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes" };
static const char *const host_and_window[] = { "cpu cores=1", "cpu cores=1 window=yes" };
static const char *const three[] = { "cpu cores=1 window=yes", "cpu cores=1 window=yes",
				     "cpu cores=1" };

/* A session with a buffer that a queue of each device has used, and whose place is device 0. */
struct shared {
	struct fixture f;
	gantry_queue q[3];
	gantry_buffer b;
};

static struct shared shared_start(const char *const *devices, uint32_t n)
{
	struct shared x = { .f = fixture_start(devices, n) };

	x.b = make_buffer(&x.f, BYTES, GANTRY_ALLOC_DEVICE);
	for (uint32_t i = 0; i < n; i++)
		x.q[i] = queue_on(&x.f, i);
	paint(&x.f, x.q[0], x.b, BYTES, 1);
	return x;
}

static uint64_t moved(const struct shared *x)
{
	return gantry_load_relaxed(&header(&x->f)->moved_bytes);
}

static const struct gantry_ledger_buffer *ledger_buffer(const struct shared *x)
{
	return &ledger_object(&x->f, x->b)->buffer;
}

static uint64_t pool(const struct shared *x, uint32_t device)
{
	return gantry_load_relaxed(&x->f.h->pages[device]->hdr.mem_used);
}

START_TEST(test_many_readers_on_two_devices_copy_a_buffer_once)
{
	struct shared x = shared_start(two_windows, 2);

	for (uint32_t i = 0; i < 20; i++)
		check(&x.f, x.q[i % 2], x.b, BYTES, 1);
	ck_assert_uint_eq(moved(&x), BYTES);
	ck_assert_uint_eq(ledger_buffer(&x)->device, 0);
	ck_assert_uint_eq(ledger_buffer(&x)->replicas, 2);
	ck_assert_uint_eq(pool(&x, 0), BYTES);
	ck_assert_uint_eq(pool(&x, 1), BYTES);
	ck_assert_uint_eq(header(&x.f)->resident_used, 2 * BYTES);
	ck_assert_uint_eq(x.f.h->quota->replicas_made, 1);
	ck_assert_uint_eq(x.f.h->quota->replica_bytes, BYTES);
	ck_ok(gantry_free(x.f.s, x.b));
	eventually(pool(&x, 0) == 0 && pool(&x, 1) == 0);
	ck_assert_uint_eq(x.f.h->quota->replicas_dropped, 1);
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_without_copies_every_change_of_device_moves_the_buffer)
{
	struct shared x = shared_start(two_windows, 2);

	gantry_store_relaxed(&x.f.h->quota->wishes, (uint32_t)GANTRY_QUOTA_NO_REPLICAS);
	for (uint32_t i = 0; i < 20; i++)
		check(&x.f, x.q[i % 2], x.b, BYTES, 1);
	ck_assert_uint_eq(moved(&x), 19 * BYTES);
	ck_assert_uint_eq(ledger_buffer(&x)->replicas, 0);
	ck_assert_uint_eq(header(&x.f)->resident_used, BYTES);
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_writer_makes_the_copies_of_others_stale)
{
	struct shared x = shared_start(two_windows, 2);

	check(&x.f, x.q[1], x.b, BYTES, 1);
	for (uint32_t i = 2; i < 8; i++) {
		uint64_t before = moved(&x);

		paint(&x.f, x.q[0], x.b, BYTES, i);
		ck_assert_uint_eq(moved(&x), before);
		for (uint32_t k = 0; k < 4; k++)
			check(&x.f, x.q[1], x.b, BYTES, i);
		ck_assert_uint_eq(moved(&x), before + BYTES);
		check(&x.f, x.q[0], x.b, BYTES, i);
		ck_assert_uint_eq(moved(&x), before + BYTES);
	}
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_writer_with_a_good_copy_has_the_buffer_without_copying)
{
	struct shared x = shared_start(two_windows, 2);
	uint64_t before;

	check(&x.f, x.q[1], x.b, BYTES, 1);
	before = moved(&x);
	paint(&x.f, x.q[1], x.b, BYTES, 2);
	ck_assert_uint_eq(moved(&x), before);
	ck_assert_uint_eq(ledger_buffer(&x)->device, 1);
	ck_assert_uint_eq(ledger_buffer(&x)->replicas, 1);
	check(&x.f, x.q[0], x.b, BYTES, 2);
	ck_assert_uint_eq(moved(&x), before + BYTES);
	check(&x.f, x.q[1], x.b, BYTES, 2);
	ck_assert_uint_eq(moved(&x), before + BYTES);
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_buffer_that_nobody_here_uses_moves)
{
	struct fixture f = fixture_start(two_windows, 2);
	gantry_queue there = queue_on(&f, 1);
	gantry_buffer b = make_buffer(&f, BYTES, GANTRY_ALLOC_DEVICE);
	gantry_queue here = queue_on(&f, 0);

	paint(&f, here, b, BYTES, 1);
	ck_ok(gantry_queue_close(f.s, here));
	eventually(gantry_load_relaxed(&ledger_queue(&f, here)->state) == GANTRY_QUEUE_CLOSED);
	check(&f, there, b, BYTES, 1);
	ck_assert_uint_eq(ledger_object(&f, b)->buffer.device, 1);
	ck_assert_uint_eq(f.h->pages[0]->hdr.mem_used, 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_copies_go_with_the_last_queue_that_used_them)
{
	struct shared x = shared_start(two_windows, 2);

	check(&x.f, x.q[1], x.b, BYTES, 1);
	ck_assert_uint_eq(pool(&x, 1), BYTES);
	ck_ok(gantry_queue_close(x.f.s, x.q[1]));
	eventually(pool(&x, 1) == 0);
	check(&x.f, x.q[0], x.b, BYTES, 1);
	ck_assert_uint_eq(moved(&x), BYTES);
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_host_memory_and_a_window_are_copies_of_each_other)
{
	struct shared x = shared_start(host_and_window, 2);

	/* In host memory, and used there: it goes to the window and stays here too. */
	for (uint32_t i = 0; i < 10; i++)
		check(&x.f, x.q[1 - i % 2], x.b, BYTES, 1);
	ck_assert_uint_eq(moved(&x), BYTES);
	ck_assert_uint_eq(ledger_buffer(&x)->host_copy, GANTRY_HOST_COPY_CLEAN);
	/* Written in the window: the host's is stale, and made anew once. */
	paint(&x.f, x.q[1], x.b, BYTES, 2);
	for (uint32_t i = 0; i < 10; i++)
		check(&x.f, x.q[i % 2], x.b, BYTES, 2);
	ck_assert_uint_eq(moved(&x), 2 * BYTES);
	/* Written on the host: all of it is there, so that nothing is copied. */
	paint(&x.f, x.q[0], x.b, BYTES, 3);
	ck_assert_uint_eq(moved(&x), 2 * BYTES);
	for (uint32_t i = 0; i < 10; i++)
		check(&x.f, x.q[1 - i % 2], x.b, BYTES, 3);
	ck_assert_uint_eq(moved(&x), 3 * BYTES);
	fixture_end(&x.f);
}
END_TEST

START_TEST(test_copies_make_room_for_what_is_needed)
{
	struct fixture f = { .h = inproc_start(two_windows, 2) };
	gantry_queue q[2];
	gantry_buffer b, other;

	f.h->pages[1]->hdr.mem_bytes = 16 * MIB;
	fixture_session(&f, NULL);
	q[0] = queue_on(&f, 0);
	q[1] = queue_on(&f, 1);
	b = make_buffer(&f, 8 * MIB, GANTRY_ALLOC_DEVICE);
	other = make_buffer(&f, 12 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, q[0], b, 8 * MIB, 1);
	check(&f, q[1], b, 8 * MIB, 1);
	ck_assert_uint_eq(f.h->pages[1]->hdr.mem_used, 8 * MIB);
	paint(&f, q[1], other, 12 * MIB, 2);
	ck_assert_uint_eq(f.h->pages[1]->hdr.mem_used, 12 * MIB);
	ck_assert_uint_eq(header(&f)->host_used, 0); /* nothing was brought to host memory for it */
	check(&f, q[0], b, 8 * MIB, 1);
	check(&f, q[1], other, 12 * MIB, 2);
	fixture_end(&f);
}
END_TEST

START_TEST(test_copies_are_no_reason_for_a_refusal_by_the_tenants_limit)
{
	struct fixture f = { .h = inproc_start(two_windows, 2) };
	gantry_buffer b, other;
	gantry_queue q[2];

	f.h->quota->mem_bytes = 24 * MIB;
	fixture_session(&f, NULL);
	q[0] = queue_on(&f, 0);
	q[1] = queue_on(&f, 1);
	b = make_buffer(&f, 8 * MIB, GANTRY_ALLOC_DEVICE);
	other = make_buffer(&f, 16 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, q[0], b, 8 * MIB, 1);
	check(&f, q[1], b, 8 * MIB, 1);
	ck_assert_uint_eq(f.h->quota->mem_used, 16 * MIB);
	paint(&f, q[0], other, 16 * MIB, 2);
	ck_assert_uint_eq(f.h->quota->mem_used, 24 * MIB);
	/* Full: now it moves, as it would without copies. */
	check(&f, q[1], b, 8 * MIB, 1);
	check(&f, q[0], b, 8 * MIB, 1);
	ck_assert_uint_eq(f.h->quota->mem_used, 24 * MIB);
	fixture_end(&f);
}
END_TEST

START_TEST(test_over_committed_device_lets_go_of_what_another_has_too)
{
	struct fixture f = { .h = inproc_start(two_windows, 2) };
	gantry_buffer b, other;
	gantry_queue q[2];
	uint64_t before;

	f.h->pages[0]->hdr.mem_bytes = 16 * MIB;
	fixture_session(&f, NULL);
	q[0] = queue_on(&f, 0);
	q[1] = queue_on(&f, 1);
	b = make_buffer(&f, 8 * MIB, GANTRY_ALLOC_DEVICE);
	other = make_buffer(&f, 12 * MIB, GANTRY_ALLOC_DEVICE);
	paint(&f, q[0], b, 8 * MIB, 1);
	check(&f, q[1], b, 8 * MIB, 1);
	before = header(&f)->moved_bytes;
	paint(&f, q[0], other, 12 * MIB, 2);
	ck_assert_uint_eq(header(&f)->moved_bytes, before); /* its place is the other device now */
	ck_assert_uint_eq(ledger_object(&f, b)->buffer.device, 1);
	ck_assert_uint_eq(f.h->pages[0]->hdr.mem_used, 12 * MIB);
	check(&f, q[1], b, 8 * MIB, 1);
	fixture_end(&f);
}
END_TEST

START_TEST(test_recovery_forgets_copies_and_keeps_buffers)
{
	struct shared x = shared_start(three, 3);

	for (uint32_t i = 0; i < 3; i++) {
		for (uint32_t k = 0; k < 3; k++)
			check(&x.f, x.q[k], x.b, BYTES, 1 + i);
		ck_assert_uint_eq(header(&x.f)->resident_used, 2 * BYTES);
		crash_and_recover(&x.f);
		ck_assert_uint_eq(ledger_buffer(&x)->replicas, 0);
		ck_assert_uint_eq(header(&x.f)->resident_used, BYTES);
		ck_assert_uint_eq(pool(&x, 0) + pool(&x, 1), BYTES);
		for (uint32_t k = 0; k < 3; k++)
			check(&x.f, x.q[2 - k], x.b, BYTES, 1 + i);
		paint(&x.f, x.q[i], x.b, BYTES, 2 + i);
	}
	fixture_end(&x.f);
}
END_TEST

/* Chance reads and writes some buffers from queues of three devices; the library waits for what a task needs. */
START_TEST(test_random_readers_and_writers_find_every_byte)
{
	enum {
		N = 5
	};
	struct fixture f = fixture_start(three, 3);
	gantry_buffer b[N];
	uint32_t seeds[N];
	gantry_queue q[3];
	unsigned chance = 20261123u + (unsigned)_i;

	for (uint32_t i = 0; i < 3; i++)
		q[i] = queue_on(&f, i);
	for (uint32_t i = 0; i < N; i++) {
		b[i] = make_buffer(&f, (i + 1) * 300000 & ~3ull, GANTRY_ALLOC_DEVICE);
		paint(&f, q[i % 3], b[i], (i + 1) * 300000 & ~3ull, seeds[i] = i);
	}
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t k = (uint32_t)rand_r(&chance) % N;
		uint32_t d = (uint32_t)rand_r(&chance) % 3;
		uint64_t bytes = (k + 1) * 300000 & ~3ull;

		if (rand_r(&chance) % 4 == 0)
			paint(&f, q[d], b[k], bytes, seeds[k] = i);
		else
			check(&f, q[d], b[k], bytes, seeds[k]);
		if (rand_r(&chance) % 70 == 0)
			crash_and_recover(&f);
	}
	ck_assert_uint_gt(f.h->quota->replicas_made, 0);
	fixture_end(&f);
}
END_TEST

/* Tasks of two devices that read one buffer at once, while it is written in between, in the order of their tickets. */
START_TEST(test_readers_at_once_see_what_was_written_before_them)
{
	const uint64_t words = BYTES / 4;
	struct shared x = shared_start(two_windows, 2);
	gantry_buffer out[2][8];
	gantry_ticket t[2][8], w;
	uint64_t wrong = 0;

	for (uint32_t d = 0; d < 2; d++)
		for (uint32_t i = 0; i < 8; i++)
			out[d][i] = make_buffer(&x.f, BYTES, GANTRY_ALLOC_DEVICE);
	for (uint32_t i = 0; i < 8; i++) {
		struct gantry_task fence = { .flags = 0 };
		gantry_ticket after[2];

		w = put_fill(&x.f, x.q[i % 2], x.b, words, 1000 + i);
		for (uint32_t d = 0; d < 2; d++) {
			fence.after = &w;
			fence.nafter = 1;
			ck_ok(gantry_submit(x.f.s, x.q[d], &fence, 1, &after[d]));
			ck_ok(gantry_submit_copy(x.f.s, x.q[d], out[d][i], 0, x.b, 0, BYTES,
						 &t[d][i]));
		}
		/* The next writer comes after both. */
		after[0] = t[0][i];
		after[1] = t[1][i];
		fence.after = after;
		fence.nafter = 2;
		ck_ok(gantry_submit(x.f.s, x.q[(i + 1) % 2], &fence, 1, &w));
	}
	for (uint32_t d = 0; d < 2; d++)
		for (uint32_t i = 0; i < 8; i++) {
			gantry_buffer staged;
			uint32_t *got = stage(&x.f, BYTES, &staged);

			ck_assert_int_eq(outcome(&x.f, t[d][i]), GANTRY_OK);
			ck_ok(gantry_unmap(x.f.s, got));
			ck_ok(gantry_submit_copy(x.f.s, x.q[d], staged, 0, out[d][i], 0, BYTES,
						 &w));
			ck_assert_int_eq(outcome(&x.f, w), GANTRY_OK);
			ck_ok(gantry_map(x.f.s, staged, 0, BYTES, GANTRY_R, LONG_NS,
					 (void **)&got));
			/* Not an assertion a word: each of those is written down. */
			for (uint64_t k = 0; k < words; k++)
				wrong += got[k] != 1000 + i;
			ck_ok(gantry_unmap(x.f.s, got));
			ck_ok(gantry_free(x.f.s, staged));
		}
	ck_assert_uint_eq(wrong, 0);
	fixture_end(&x.f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("replicas");
	TCase *memory = gantry_unit_case(suite, "memory");
	TCase *copies = gantry_unit_case(suite, "copies");

	tcase_set_timeout(memory, 60);
	tcase_set_timeout(copies, 60);
	tcase_add_test(copies, test_many_readers_on_two_devices_copy_a_buffer_once);
	tcase_add_test(copies, test_without_copies_every_change_of_device_moves_the_buffer);
	tcase_add_test(copies, test_writer_makes_the_copies_of_others_stale);
	tcase_add_test(copies, test_writer_with_a_good_copy_has_the_buffer_without_copying);
	tcase_add_test(copies, test_buffer_that_nobody_here_uses_moves);
	tcase_add_test(copies, test_copies_go_with_the_last_queue_that_used_them);
	tcase_add_test(copies, test_host_memory_and_a_window_are_copies_of_each_other);
	tcase_add_test(memory, test_copies_make_room_for_what_is_needed);
	tcase_add_test(memory, test_copies_are_no_reason_for_a_refusal_by_the_tenants_limit);
	tcase_add_test(memory, test_over_committed_device_lets_go_of_what_another_has_too);
	tcase_add_test(copies, test_recovery_forgets_copies_and_keeps_buffers);
	tcase_add_loop_test(copies, test_random_readers_and_writers_find_every_byte, 0, 2);
	tcase_add_test(copies, test_readers_at_once_see_what_was_written_before_them);
	return gantry_unit_run(suite);
}
