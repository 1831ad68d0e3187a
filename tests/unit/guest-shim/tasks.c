/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/session.h"
#include "tests/unit/guest-shim/fake_host.h"
#include "tests/unit/runner.h"

#define SHORT_NS 100000000
#define LONG_NS	 5000000000

static struct fake_host host;
static struct gantry_session *session;
static gantry_queue queue;
static gantry_kernel kernel;

static void setup(void)
{
	struct gantry_limits ask = { .call_timeout_ns = LONG_NS };

	fake_host_init(&host);
	fake_host_start(&host);
	ck_assert_int_eq(gantry_open(host.where, &ask, &session), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &queue), 0);
	ck_assert_int_eq(gantry_kernel_find(session, "nothing", NULL, &kernel), 0);
}

static void teardown(void)
{
	gantry_close(session);
	fake_host_stop(&host);
}

static void hold(uint32_t on)
{
	gantry_store_relaxed(&host.hold_tasks, on);
}

/* One launch that will fail with @status, or not with 0. */
static gantry_ticket launch(int status)
{
	struct gantry_task task = { .kernel = kernel, .est_us = (uint32_t)-status };
	gantry_ticket ticket = 0;

	ck_assert_int_eq(gantry_submit(session, queue, &task, 1, &ticket), 0);
	return ticket;
}

/* ---- submit and wait ---- */

START_TEST(test_submit_batch_returns_last_ticket_and_wait_sees_it)
{
	struct gantry_task tasks[10] = { 0 };
	gantry_ticket last;

	for (int i = 0; i < 10; i++)
		tasks[i].kernel = kernel;
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 10, &last), 0);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(last), 10);
	ck_assert_int_eq(gantry_wait(session, &last, 1, GANTRY_FOREVER), 0);
	ck_assert_int_eq(gantry_wait(session, &last, 1, 0), 0);
	ck_assert_int_eq(gantry_test(session, last), 1);
	ck_assert_int_eq(gantry_test(session, 0), 1);
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_launch), 10);
}
END_TEST

START_TEST(test_submit_fields_reach_the_host)
{
	gantry_buffer buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, 77);
	struct gantry_access access = {
		.buffer = buffer, .off = 8, .len = 16, .mode = GANTRY_RW, .arg_off = 0
	};
	uint8_t args[16] = { 1, 2, 3 };
	struct gantry_task task = {
		.kernel = kernel,
		.grid = { 1, 2, 3 },
		.block = { 4, 5, 6 },
		.shared_bytes = 7,
		.args = args,
		.args_bytes = sizeof(args),
		.naccess = 1,
		.access = &access,
		.flags = GANTRY_TASK_IDEMPOTENT,
	};
	struct gantry_op_launch op;
	const struct fake_seen *seen;
	gantry_ticket ticket;

	ck_assert_int_eq(gantry_submit(session, queue, &task, 1, &ticket), 0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	seen = fake_host_last(&host, GANTRY_OP_launch);
	memcpy(&op, seen->desc.imm, sizeof(op));
	ck_assert_uint_eq(op.kernel, kernel);
	ck_assert_uint_eq(op.grid_z, 3);
	ck_assert_uint_eq(op.block_x, 4);
	ck_assert_uint_eq(op.shared_bytes, 7);
	ck_assert_uint_eq(op.task_flags, GANTRY_TASK_IDEMPOTENT);
	ck_assert_uint_eq(seen->desc.flags, GANTRY_DESC_INLINE);
	ck_assert_uint_eq(seen->desc.len_bytes, 48);
	ck_assert_int_eq(memcmp(seen->var, &access, 32), 0);
	ck_assert_int_eq(memcmp(seen->var + 32, args, 16), 0);
}
END_TEST

START_TEST(test_submit_bad_tasks_are_refused_and_put_nothing)
{
	struct gantry_access access = { .buffer = GANTRY_HANDLE(GANTRY_HANDLE_BUFFER, 1, 1),
					.mode = GANTRY_R,
					.arg_off = 0 };
	gantry_ticket unknown = GANTRY_TICKET(3, 9), ticket = 77;
	struct gantry_task tasks[2] = { { .kernel = kernel }, { .kernel = kernel } };
	struct gantry_task *bad = &tasks[1];

	bad->kernel = queue;
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_HANDLE);
	*bad = (struct gantry_task){ .kernel = kernel, .naccess = 33, .access = &access };
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_ARG);
	*bad = (struct gantry_task){ .kernel = kernel,
				     .args_bytes = GANTRY_MAX_ARGS_BYTES + 1,
				     .args = tasks };
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_ARG);
	*bad = (struct gantry_task){ .kernel = kernel, .args_bytes = 8 };
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_ARG);
	*bad = (struct gantry_task){ .kernel = kernel,
				     .naccess = 1,
				     .access = &access }; /* no such argument */
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_ARG);
	*bad = (struct gantry_task){ .kernel = kernel, .flags = 1u << 23 };
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_ARG);
	*bad = (struct gantry_task){ .kernel = kernel, .after = &unknown, .nafter = 1 };
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 2, &ticket), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_submit(session, queue, NULL, 1, &ticket), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_submit(session, queue + 1, tasks, 1, &ticket), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_submit(session, kernel, tasks, 1, &ticket), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_submit(NULL, queue, tasks, 1, &ticket), GANTRY_E_ARG);
	ck_assert_uint_eq(ticket, 77);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(launch(0)), 1);
}
END_TEST

START_TEST(test_wait_unknown_tickets_returns_handle)
{
	gantry_ticket beyond = launch(0) + 1, control = GANTRY_TICKET(0, 1),
		      far = GANTRY_TICKET(200, 1);

	ck_assert_int_eq(gantry_wait(session, &beyond, 1, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_wait(session, &control, 1, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_wait(session, &far, 1, 0), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_test(session, far), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_wait(session, NULL, 1, 0), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_wait(session, NULL, 0, 0), 0);
}
END_TEST

START_TEST(test_wait_held_queue_times_out)
{
	gantry_ticket ticket;
	uint64_t before;

	hold(1);
	ticket = launch(0);
	ck_assert_int_eq(gantry_test(session, ticket), 0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, 0), GANTRY_E_TIMEOUT);
	before = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, SHORT_NS), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(gantry_now_ns() - before, SHORT_NS);
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
}
END_TEST

static unsigned int release_us = 700;

static void *release_soon(void *arg)
{
	(void)arg;
	(void)usleep(release_us);
	hold(0);
	return NULL;
}

/* Begins to wait while the host holds the queue for some hundred microseconds. */
static void wait_a_while(void)
{
	gantry_ticket ticket;
	pthread_t thread;

	hold(1);
	ticket = launch(0);
	ck_assert_int_eq(pthread_create(&thread, NULL, release_soon, NULL), 0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* How long waits take is learnt where it is used: of devices that work by themselves, with processors to spare. */
START_TEST(test_wait_on_a_device_learns_how_long_it_takes)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA };
	const struct gantry_queue_end *any = &session->queues[GANTRY_HANDLE_SLOT(queue)];
	const struct gantry_queue_end *q;
	gantry_ticket ticket;
	uint64_t before;

	session->ncpus = 64;
	wait_a_while();
	ck_assert_uint_eq(any->wait_cycles, 0);
	ck_assert_int_eq(gantry_queue_open(session, &options, &queue), 0);
	q = &session->queues[GANTRY_HANDLE_SLOT(queue)];
	for (unsigned int i = 0; i < 20; i++)
		wait_a_while();
	ck_assert_uint_gt(q->wait_cycles, 0);
	/* It spins for that long at most: a deadline is kept, and so is the processor. */
	hold(1);
	ticket = launch(0);
	before = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, SHORT_NS), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(gantry_now_ns() - before, SHORT_NS);
	session->ncpus = 2;
	before = q->wait_cycles;
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_uint_eq(q->wait_cycles, before);
}
END_TEST

/* Waits that take longer than is spun for are slept through, in their end as in their middle: none is lost, none too long. */
START_TEST(test_wait_that_takes_long_ends_when_its_task_does)
{
	const struct gantry_queue_options options = { .kind = GANTRY_KIND_CUDA };
	gantry_ticket ticket;
	uint64_t before;

	session->ncpus = 64;
	ck_assert_int_eq(gantry_queue_open(session, &options, &queue), 0);
	for (unsigned int i = 0; i < 12; i++) {
		release_us = i < 8 ? 8000 : i % 2 ? 700 : 20000;
		before = gantry_now_ns();
		wait_a_while();
		ck_assert_uint_ge(gantry_now_ns() - before, release_us * GANTRY_NS_PER_US);
	}
	/* A deadline before the usual end is kept. */
	hold(1);
	ticket = launch(0);
	before = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_NS_PER_MS), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(gantry_now_ns() - before, GANTRY_NS_PER_MS);
	/* And one after it. */
	before = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, 40 * GANTRY_NS_PER_MS), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(gantry_now_ns() - before, 40 * GANTRY_NS_PER_MS);
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
}
END_TEST

START_TEST(test_submit_full_ring_returns_again_and_names_last)
{
	struct gantry_limits ask = { .call_timeout_ns = LONG_NS };
	struct gantry_task tasks[20] = { 0 };
	struct gantry_session *s;
	struct fake_host h;
	gantry_ticket last;
	gantry_queue q;

	fake_host_init(&h);
	fake_host_start(&h);
	ck_assert_int_eq(gantry_open(h.where, &ask, &s), 0);
	ck_assert_int_eq(gantry_queue_open(s, NULL, &q), 0);
	gantry_store_relaxed(&h.hold_tasks, 1);
	s->call_timeout_ns = SHORT_NS; /* from here on: to attach may take longer */
	ck_assert_int_eq(gantry_submit(s, q, tasks, 20, &last), GANTRY_E_AGAIN);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(last), 16);
	gantry_store_relaxed(&h.hold_tasks, 0);
	ck_assert_int_eq(gantry_wait(s, &last, 1, GANTRY_FOREVER), 0);
	gantry_close(s);
	fake_host_stop(&h);
}
END_TEST

START_TEST(test_submit_more_than_ring_goes_round)
{
	struct gantry_task tasks[1000] = { 0 };
	gantry_ticket last;

	ck_assert_int_eq(gantry_submit(session, queue, tasks, 1000, &last), 0);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(last), 1000);
	ck_assert_int_eq(gantry_wait(session, &last, 1, GANTRY_FOREVER), 0);
}
END_TEST

/* ---- failures ---- */

START_TEST(test_wait_failures_over_many_wraps_are_all_remembered)
{
	gantry_ticket tickets[500];

	for (int i = 0; i < 500; i++)
		tickets[i] = launch(i % 5 == 2	 ? GANTRY_E_KERNEL
				    : i % 5 == 4 ? GANTRY_E_DEVICE_FAULT
						 : 0);
	ck_assert_int_eq(gantry_wait(session, tickets, 500, GANTRY_FOREVER), GANTRY_E_KERNEL);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 500; i++) {
			int want = i % 5 == 2	? GANTRY_E_KERNEL
				   : i % 5 == 4 ? GANTRY_E_DEVICE_FAULT
						: 0;

			ck_assert_int_eq(gantry_wait(session, &tickets[i], 1, 0), want);
			ck_assert_int_eq(gantry_test(session, tickets[i]), want ? want : 1);
		}
	ck_assert_ptr_nonnull(strstr(gantry_last_error(), "task 500"));
}
END_TEST

static void *wait_forever(void *arg)
{
	gantry_ticket *ticket = arg;

	return (void *)(intptr_t)gantry_wait(session, ticket, 1, GANTRY_FOREVER);
}

START_TEST(test_wait_two_threads_on_one_ticket_both_see_its_status)
{
	gantry_ticket ticket;
	pthread_t threads[2];
	void *status;

	hold(1);
	ticket = launch(GANTRY_E_KERNEL);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, wait_forever, &ticket);
	hold(0);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &status);
		ck_assert_int_eq((int)(intptr_t)status, GANTRY_E_KERNEL);
	}
}
END_TEST

static void *submit_many(void *arg)
{
	(void)arg;
	for (int i = 0; i < 300; i++) {
		gantry_ticket ticket = launch(i % 3 ? 0 : GANTRY_E_SPAN);

		if (gantry_wait(session, &ticket, 1, GANTRY_FOREVER) != (i % 3 ? 0 : GANTRY_E_SPAN))
			return (void *)1;
	}
	return NULL;
}

START_TEST(test_submit_threads_on_one_queue_get_their_own_statuses)
{
	pthread_t threads[4];
	void *bad;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, submit_many, NULL);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &bad);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

/* ---- order between queues ---- */

START_TEST(test_submit_after_puts_as_few_waits_as_needed)
{
	gantry_ticket after[10], done = launch(0), mine;
	struct gantry_task task = { .after = after, .nafter = 10 };
	gantry_queue others[2];
	struct gantry_op_wait wait;
	gantry_ticket ticket;

	ck_assert_int_eq(gantry_wait(session, &done, 1, GANTRY_FOREVER), 0);
	hold(1);
	mine = launch(0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(gantry_queue_open(session, NULL, &others[i]), 0);
	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(gantry_submit_marker(session, others[i % 2], &after[i]), 0);
	after[7] = 0;
	after[8] = mine;
	after[9] = done;
	task.kernel = kernel;
	ck_assert_int_eq(gantry_submit(session, queue, &task, 1, &ticket), 0);
	/* done, mine, two waits for seven tickets, the task */
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(ticket), 5);
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_wait), 2);
	memcpy(&wait, fake_host_last(&host, GANTRY_OP_wait)->desc.imm, sizeof(wait));
	ck_assert_uint_eq(wait.ticket0, after[6]);
	ck_assert_uint_eq(wait.ticket1, 0);
}
END_TEST

START_TEST(test_submit_wait_finished_tickets_needs_no_operation)
{
	gantry_ticket ticket = launch(0), wait = 99;
	gantry_queue other;

	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &other), 0);
	ck_assert_int_eq(gantry_submit_wait(session, other, &ticket, 1, &wait), 0);
	ck_assert_uint_eq(wait, 0);
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_wait), 0);
}
END_TEST

/* ---- large arguments ---- */

START_TEST(test_submit_large_arguments_go_through_the_heap_many_times)
{
	struct gantry_task task = { .kernel = kernel };
	uint8_t args[4096];
	gantry_ticket ticket;

	for (int i = 0; i < 400; i++) {
		const struct fake_seen *seen;

		memset(args, i, sizeof(args));
		task.args = args;
		task.args_bytes = 193 + (uint32_t)(i * 977) % 3900;
		ck_assert_int_eq(gantry_submit(session, queue, &task, 1, &ticket), 0);
		if (i % 10)
			continue;
		ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
		seen = fake_host_last(&host, GANTRY_OP_launch);
		ck_assert_uint_eq(seen->desc.flags, 0);
		ck_assert_uint_eq(seen->desc.len_bytes, task.args_bytes);
		ck_assert_uint_eq(seen->var[0], (uint8_t)i);
		ck_assert_uint_eq(seen->var[192], (uint8_t)i);
	}
	/* Closing gives the records' memory back. */
	ck_assert_int_eq(gantry_queue_close(session, queue), 0);
	ck_assert_uint_eq(session->heap.free_bytes, session->heap.bytes);
}
END_TEST

static int submit_bytes(uint32_t n, gantry_ticket *ret_ticket)
{
	static uint8_t args[GANTRY_MAX_ARGS_BYTES + 1];
	const struct gantry_task task = { .kernel = kernel, .args = args, .args_bytes = n };

	memset(args, (int)(n % 251), n);
	return gantry_submit(session, queue, &task, 1, ret_ticket);
}

static void check_bytes(gantry_ticket ticket, uint32_t n)
{
	const struct fake_seen *seen;

	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	seen = fake_host_last(&host, GANTRY_OP_launch);
	ck_assert_uint_eq(seen->desc.len_bytes, n);
	ck_assert_uint_eq(seen->var[511], n % 251);
}

START_TEST(test_submit_the_largest_arguments_find_room_in_a_crowded_heap)
{
	const uint64_t left = 48 << 10;
	gantry_ticket ticket;
	gantry_buffer most;

	ck_assert_int_eq(submit_bytes(GANTRY_MAX_ARGS_BYTES + 1, &ticket), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_alloc(session, session->heap.free_bytes - left, GANTRY_ALLOC_HOST,
				      &most),
			 0);
	/* The piece of the heap for such is small at first, and grows when that is too small. */
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t n = i % 8 == 7 ? GANTRY_MAX_ARGS_BYTES - i : 600 + i;

		ck_assert_int_eq(submit_bytes(n, &ticket), 0);
		if (i % 4 == 3)
			check_bytes(ticket, n);
	}
	ck_assert_int_eq(gantry_queue_close(session, queue), 0);
	ck_assert_uint_eq(session->heap.free_bytes, left);
}
END_TEST

START_TEST(test_submit_arguments_that_the_heap_has_no_room_for_are_refused_and_others_go_on)
{
	gantry_ticket ticket;
	gantry_buffer most;

	ck_assert_int_eq(gantry_alloc(session, session->heap.free_bytes - (16 << 10),
				      GANTRY_ALLOC_HOST, &most),
			 0);
	ck_assert_int_eq(submit_bytes(600, &ticket), 0);
	check_bytes(ticket, 600);
	ck_assert_int_eq(submit_bytes(GANTRY_MAX_ARGS_BYTES, NULL), GANTRY_E_NO_MEMORY);
	ck_assert_int_eq(submit_bytes(700, &ticket), 0);
	check_bytes(ticket, 700);
}
END_TEST

/* ---- queues ---- */

START_TEST(test_queue_close_keeps_tickets_and_reuse_goes_on_counting)
{
	gantry_ticket failed = launch(GANTRY_E_KERNEL), ticket;
	gantry_queue again;

	ck_assert_int_eq(gantry_queue_close(session, queue), 0);
	ck_assert_int_eq(gantry_queue_close(session, queue), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_submit_marker(session, queue, &ticket), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_wait(session, &failed, 1, 0), GANTRY_E_KERNEL);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &again), 0);
	ck_assert_int_eq(gantry_submit_marker(session, again, &ticket), 0);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(ticket), 2);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_int_eq(gantry_wait(session, &failed, 1, 0), GANTRY_E_KERNEL);
}
END_TEST

START_TEST(test_queue_open_beyond_limit_says_what_the_host_said)
{
	gantry_queue q;

	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(gantry_queue_open(session, NULL, &q), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &q), GANTRY_E_LIMIT);
	ck_assert_str_eq(gantry_last_error(), "the fake host says -8");
}
END_TEST

START_TEST(test_program_with_every_queue_open_reads_and_writes_device_memory)
{
	uint32_t word = 0x1234, got = 0;
	gantry_buffer buffer;
	gantry_queue q;

	ck_assert_int_eq(gantry_alloc(session, 4096, GANTRY_ALLOC_DEVICE, &buffer), 0);
	while (gantry_queue_open(session, NULL, &q) == 0)
		continue;
	ck_assert_int_eq(gantry_write(session, buffer, 8, &word, sizeof(word)), 0);
	ck_assert_int_eq(gantry_read(session, buffer, 8, &got, sizeof(got)), 0);
	ck_assert_uint_eq(got, word);
}
END_TEST

START_TEST(test_program_of_a_session_whose_host_memory_is_the_devices_has_every_queue)
{
	gantry_queue q;

	gantry_close(session);
	fake_host_stop(&host);
	fake_host_init(&host);
	host.props = GANTRY_PROP_HOST_DIRECT;
	fake_host_start(&host);
	ck_assert_int_eq(gantry_open(host.where, NULL, &session), 0);
	/* Nothing is the devices' that is not shared with them. */
	for (int i = 0; i < (fake_host_shares_memory() ? 7 : 6); i++)
		ck_assert_int_eq(gantry_queue_open(session, NULL, &q), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &q), GANTRY_E_LIMIT);
}
END_TEST

START_TEST(test_queue_calls_check_their_arguments)
{
	struct gantry_queue_options options = { .kind = GANTRY_NKINDS },
				    reserved = { .reserved = { 0, 1 } };
	gantry_queue q;

	ck_assert_int_eq(gantry_queue_open(session, &options, &q), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_queue_open(session, &reserved, &q), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_queue_set(session, queue, 9, 0), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_queue_set(session, kernel, GANTRY_QUEUE_PRIORITY, 0),
			 GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_queue_set(session, queue, GANTRY_QUEUE_PRIORITY, -3), 0);
	ck_assert_int_eq(gantry_cancel(session, queue), 0);
	ck_assert_uint_eq(fake_host_count(&host, GANTRY_OP_queue_cancel), 1);
}
END_TEST

START_TEST(test_props_and_stats_come_from_the_host)
{
	struct gantry_props props;
	struct gantry_stats stats;

	launch(0);
	ck_assert_int_eq(gantry_props_get(session, GANTRY_KIND_ANY, &props), 0);
	ck_assert_str_eq(props.name, "fake");
	ck_assert_uint_eq(props.session_id, 42);
	ck_assert_int_eq(gantry_props_get(session, 99, &props), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_stats_get(session, &stats), 0);
	ck_assert_uint_eq(stats.tasks_finished, 7);
	ck_assert_uint_eq(stats.tasks_submitted, 1);
}
END_TEST

/* ---- the end of a session ---- */

START_TEST(test_control_call_silent_host_times_out)
{
	struct gantry_limits ask = { .call_timeout_ns = LONG_NS };
	struct gantry_session *s;
	struct gantry_props props;
	struct fake_host h;

	fake_host_init(&h);
	fake_host_start(&h);
	ck_assert_int_eq(gantry_open(h.where, &ask, &s), 0);
	gantry_store_relaxed(&h.hold_control, 1);
	s->call_timeout_ns = SHORT_NS;
	ck_assert_int_eq(gantry_props_get(s, 0, &props), GANTRY_E_TIMEOUT);
	s->call_timeout_ns = LONG_NS;
	gantry_store_relaxed(&h.hold_control, 0);
	ck_assert_int_eq(gantry_props_get(s, 0, &props), 0);
	gantry_close(s);
	fake_host_stop(&h);
}
END_TEST

static void *detach_soon(void *arg)
{
	int how = *(int *)arg;

	while (gantry_load_acquire(&host.rings[1].map.area->waiters) == 0)
		gantry_cpu_relax();
	if (how == 0)
		fake_host_detach(&host, GANTRY_E_PROTOCOL, false);
	else if (how == 1)
		fake_host_hang_up(&host);
	else if (how == 2)
		fake_host_notice(&host, GANTRY_E_DETACHED, "go home");
	else
		fake_host_detach(&host, GANTRY_E_LIMIT, true);
	return NULL;
}

START_TEST(test_wait_session_ends_meanwhile_returns_why)
{
	const int want[] = { GANTRY_E_PROTOCOL, GANTRY_E_DETACHED, GANTRY_E_DETACHED,
			     GANTRY_E_DETACHED };
	const char *text[] = { "rules", "hung up", "go home", "limit" };
	struct gantry_task task = { 0 };
	gantry_ticket finished, ticket;
	pthread_t thread;
	int how = _i;

	finished = launch(0);
	ck_assert_int_eq(gantry_wait(session, &finished, 1, GANTRY_FOREVER), 0);
	hold(1);
	ticket = launch(0);
	pthread_create(&thread, NULL, detach_soon, &how);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), want[_i]);
	pthread_join(thread, NULL);
	ck_assert_msg(strstr(gantry_last_error(), text[_i]), "%s", gantry_last_error());

	/* The end is final, and what had finished stays finished. */
	ck_assert_int_eq(gantry_submit(session, queue, &task, 1, NULL), want[_i]);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &queue), want[_i]);
	ck_assert_int_eq(gantry_test(session, ticket), want[_i]);
	ck_assert_int_eq(gantry_wait(session, &finished, 1, 0), 0);
}
END_TEST

START_TEST(test_host_that_finishes_too_much_ends_session_not_program)
{
	struct gantry_task tasks[64] = { 0 };

	hold(1);
	gantry_ring_complete(&host.rings[1], 1000000);
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 64, NULL), GANTRY_E_PROTOCOL);
	ck_assert_int_eq(gantry_submit(session, queue, tasks, 1, NULL), GANTRY_E_PROTOCOL);
}
END_TEST

START_TEST(test_recovering_session_keeps_waiting)
{
	gantry_ticket ticket;

	hold(1);
	gantry_store_relaxed(&host.header->state, GANTRY_SESSION_RECOVERING);
	ticket = launch(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, SHORT_NS), GANTRY_E_TIMEOUT);
	gantry_store_relaxed(&host.header->state, GANTRY_SESSION_ATTACHED);
	hold(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
}
END_TEST

START_TEST(test_kick_full_bell_never_blocks)
{
	uint64_t full = UINT64_MAX - 1;
	gantry_ticket ticket;

	/* The host made a blocking eventfd; the guest must not hang on one that is full. */
	ck_assert_int_gt(write(host.bell, &full, sizeof(full)), 0);
	for (int i = 0; i < 10; i++)
		ticket = launch(0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
}
END_TEST

/* ---- kernels ---- */

START_TEST(test_kernel_find_sends_name_and_signature)
{
	const char sig[] = "f32,r:f32*,rw:f32*,u64";
	struct gantry_op_kernel_get op;
	const struct fake_seen *seen;
	char long_sig[500];
	gantry_kernel k;

	ck_assert_int_eq(gantry_kernel_find(session, "saxpy", sig, &k), 0);
	seen = fake_host_last(&host, GANTRY_OP_kernel_get);
	memcpy(&op, seen->desc.imm, sizeof(op));
	ck_assert_uint_eq(op.name_bytes, 6);
	ck_assert_uint_eq(op.sig_bytes, sizeof(sig));
	ck_assert_str_eq((const char *)seen->var, "saxpy");
	ck_assert_str_eq((const char *)seen->var + 6, sig);

	memset(long_sig, 'x', sizeof(long_sig));
	long_sig[499] = '\0';
	ck_assert_int_eq(gantry_kernel_find(session, "saxpy", long_sig, &k), 0);
	seen = fake_host_last(&host, GANTRY_OP_kernel_get);
	ck_assert_uint_eq(seen->desc.flags, 0); /* too long to go inline */
	ck_assert_str_eq((const char *)seen->var + 6, long_sig);
	ck_assert_int_eq(gantry_kernel_free(session, k), 0);
}
END_TEST

START_TEST(test_kernel_and_image_calls_check_their_arguments)
{
	gantry_image image;
	char name[100];

	memset(name, 'n', sizeof(name));
	name[99] = '\0';
	ck_assert_int_eq(gantry_kernel_find(session, NULL, NULL, &kernel), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_kernel_find(session, "", NULL, &kernel), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_kernel_find(session, name, NULL, &kernel), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_kernel_from(session, kernel, "k", NULL, &kernel), GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_image_load(session, GANTRY_KIND_CPU, "x", 1, &image),
			 GANTRY_E_UNSUPPORTED);
	ck_assert_int_eq(gantry_image_load(session, 0, "x", 1, &image), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_image_load(session, GANTRY_KIND_CUDA, "x", 0, &image),
			 GANTRY_E_ARG);
	ck_assert_int_eq(gantry_image_load(session, GANTRY_KIND_CUDA, "ptx", 3, &image), 0);
	ck_assert_int_eq(gantry_kernel_variant(session, kernel, image, "k", GANTRY_KIND_CUDA), 0);
	ck_assert_int_eq(gantry_kernel_variant(session, kernel, kernel, "k", GANTRY_KIND_CUDA),
			 GANTRY_E_HANDLE);
	ck_assert_int_eq(gantry_image_free(session, image), 0);
	ck_assert_int_eq(gantry_image_find(session, "core", &image), 0);
	ck_assert_uint_eq(session->heap.free_bytes, session->heap.bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/tasks");
	TCase *tc = gantry_unit_case(suite, "tasks");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_submit_batch_returns_last_ticket_and_wait_sees_it);
	tcase_add_test(tc, test_submit_fields_reach_the_host);
	tcase_add_test(tc, test_submit_bad_tasks_are_refused_and_put_nothing);
	tcase_add_test(tc, test_wait_unknown_tickets_returns_handle);
	tcase_add_test(tc, test_wait_held_queue_times_out);
	if (fake_host_shares_memory()) {
		tcase_add_test(tc, test_wait_on_a_device_learns_how_long_it_takes);
		tcase_add_test(tc, test_wait_that_takes_long_ends_when_its_task_does);
	}
	tcase_add_test(tc, test_submit_full_ring_returns_again_and_names_last);
	tcase_add_test(tc, test_submit_more_than_ring_goes_round);
	tcase_add_test(tc, test_wait_failures_over_many_wraps_are_all_remembered);
	tcase_add_test(tc, test_wait_two_threads_on_one_ticket_both_see_its_status);
	tcase_add_test(tc, test_submit_threads_on_one_queue_get_their_own_statuses);
	tcase_add_test(tc, test_submit_after_puts_as_few_waits_as_needed);
	tcase_add_test(tc, test_submit_wait_finished_tickets_needs_no_operation);
	tcase_add_test(tc, test_submit_large_arguments_go_through_the_heap_many_times);
	/* Over a stream arguments go along with their task: no heap has to have room for them. */
	if (fake_host_shares_memory()) {
		tcase_add_test(tc, test_submit_the_largest_arguments_find_room_in_a_crowded_heap);
		tcase_add_test(
			tc,
			test_submit_arguments_that_the_heap_has_no_room_for_are_refused_and_others_go_on);
	}
	tcase_add_test(tc, test_queue_close_keeps_tickets_and_reuse_goes_on_counting);
	tcase_add_test(tc, test_queue_open_beyond_limit_says_what_the_host_said);
	tcase_add_test(tc, test_program_with_every_queue_open_reads_and_writes_device_memory);
	tcase_add_test(tc,
		       test_program_of_a_session_whose_host_memory_is_the_devices_has_every_queue);
	tcase_add_test(tc, test_queue_calls_check_their_arguments);
	tcase_add_test(tc, test_props_and_stats_come_from_the_host);
	tcase_add_test(tc, test_control_call_silent_host_times_out);
	tcase_add_loop_test(tc, test_wait_session_ends_meanwhile_returns_why, 0, 4);
	if (fake_host_shares_memory())
		tcase_add_test(tc, test_host_that_finishes_too_much_ends_session_not_program);
	tcase_add_test(tc, test_recovering_session_keeps_waiting);
	tcase_add_test(tc, test_kick_full_bell_never_blocks);
	tcase_add_test(tc, test_kernel_find_sends_name_and_signature);
	tcase_add_test(tc, test_kernel_and_image_calls_check_their_arguments);
	return gantry_unit_run(suite);
}
