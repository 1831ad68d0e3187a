/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting in every wrong way: twice, from many threads, for what never comes, in circles. Nobody hangs. */
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "tests/misuse/world.h"

#define SOON_NS (50 * (int64_t)GANTRY_NS_PER_MS)
/* Enough for calls that are answered, on a busy machine. */
#define HASTE_NS (600 * (int64_t)GANTRY_NS_PER_MS)
#define LIMIT_NS (10 * (int64_t)GANTRY_NS_PER_S)
#define NWAITERS 6

static struct gantry_session *s;
static gantry_queue queue;

static void open_session(int64_t call_timeout_ns)
{
	const struct gantry_limits ask = { .call_timeout_ns = call_timeout_ns, .nslots = 16 };
	char door[108];
	uint32_t index;

	if (world.kind == WORLD_ENGINE) {
		ck_assert_int_eq(inproc_open(world.host, &ask, &s, &index), GANTRY_OK);
	} else {
		world_door(door, "red");
		ck_assert_int_eq(gantry_open(door, &ask, &s), GANTRY_OK);
	}
	ck_assert_int_eq(gantry_queue_open(s, NULL, &queue), GANTRY_OK);
}

static void begin(void)
{
	open_session(LIMIT_NS);
}

static void finish(void)
{
	gantry_close(s);
}

static gantry_ticket submit(const char *name, const void *args, uint32_t bytes)
{
	struct gantry_task task = { .args = args, .args_bytes = bytes };
	gantry_ticket t = 0;

	ck_assert_int_eq(gantry_kernel_find(s, name, NULL, &task.kernel), GANTRY_OK);
	ck_assert_int_eq(gantry_submit(s, queue, &task, 1, &t), GANTRY_OK);
	return t;
}

static void pause_queue(int64_t paused)
{
	ck_assert_int_eq(gantry_queue_set(s, queue, GANTRY_QUEUE_PAUSED, paused), GANTRY_OK);
}

START_TEST(test_wait_twice_says_the_same_twice)
{
	/* In Arax the second wait for a task hangs. */
	const int32_t answer[2] = { -22, 0 };
	gantry_ticket good = submit("empty", NULL, 0), bad = submit("fail", answer, 8);

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(gantry_wait(s, &good, 1, LIMIT_NS), GANTRY_OK);
		ck_assert_int_eq(gantry_wait(s, &bad, 1, LIMIT_NS), GANTRY_E_KERNEL);
		ck_assert(gantry_last_error()[0] != '\0');
		ck_assert_int_eq(gantry_test(s, good), 1);
		ck_assert_int_eq(gantry_test(s, bad), GANTRY_E_KERNEL);
	}
}
END_TEST

struct waiter {
	pthread_t thread;
	gantry_ticket ticket;
	int64_t timeout_ns;
	int result;
	uint32_t started; /* atomic */
};

static void *wait_in_thread(void *arg)
{
	struct waiter *w = arg;

	gantry_store_release(&w->started, 1u);
	w->result = gantry_wait(s, &w->ticket, 1, w->timeout_ns);
	return NULL;
}

static void start_waiters(struct waiter *w, int n, gantry_ticket ticket, int64_t timeout_ns)
{
	for (int i = 0; i < n; i++) {
		w[i] = (struct waiter){ .ticket = ticket, .timeout_ns = timeout_ns };
		ck_assert_int_eq(pthread_create(&w[i].thread, NULL, wait_in_thread, &w[i]), 0);
	}
	for (int i = 0; i < n; i++)
		while (!gantry_load_acquire(&w[i].started))
			(void)poll(NULL, 0, 1);
}

static void join_waiters(struct waiter *w, int n, int result)
{
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(pthread_join(w[i].thread, NULL), 0);
		ck_assert_int_eq(w[i].result, result);
	}
}

START_TEST(test_wait_from_many_threads_wakes_them_all)
{
	struct waiter w[NWAITERS];
	uint64_t ns = 50000000;

	start_waiters(w, NWAITERS, submit("spin", &ns, sizeof(ns)), GANTRY_FOREVER);
	join_waiters(w, NWAITERS, GANTRY_OK);
}
END_TEST

START_TEST(test_wait_from_many_threads_ends_when_the_task_is_cancelled)
{
	struct waiter w[NWAITERS];

	pause_queue(1);
	start_waiters(w, NWAITERS, submit("empty", NULL, 0), GANTRY_FOREVER);
	ck_assert_int_eq(gantry_cancel(s, queue), GANTRY_OK);
	pause_queue(0);
	join_waiters(w, NWAITERS, GANTRY_E_CANCELLED);
}
END_TEST

START_TEST(test_cancel_reaches_a_paused_queue)
{
	gantry_ticket t;

	pause_queue(1);
	t = submit("empty", NULL, 0);
	ck_assert_int_eq(gantry_cancel(s, queue), GANTRY_OK);
	/* The tasks that a pause holds back were not issued: nothing keeps them from finishing as cancelled. */
	ck_assert_int_eq(gantry_wait(s, &t, 1, LIMIT_NS), GANTRY_E_CANCELLED);
}
END_TEST

START_TEST(test_wait_for_a_ticket_nobody_submitted_is_refused_at_once)
{
	const gantry_ticket never[] = {
		GANTRY_TICKET(1, 1000), GANTRY_TICKET(60, 1), GANTRY_TICKET(255, 1),
		GANTRY_TICKET(0, 1),	UINT64_MAX,	      1
	};

	for (unsigned int i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		ck_assert_int_eq(gantry_wait(s, &never[i], 1, GANTRY_FOREVER), GANTRY_E_HANDLE);
		ck_assert_int_eq(gantry_test(s, never[i]), GANTRY_E_HANDLE);
		ck_assert(gantry_last_error()[0] != '\0');
	}
}
END_TEST

START_TEST(test_wait_for_what_cannot_come_now_ends_at_its_timeout)
{
	uint64_t before;
	gantry_ticket t;

	pause_queue(1);
	t = submit("empty", NULL, 0);
	before = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(s, &t, 1, SOON_NS), GANTRY_E_TIMEOUT);
	ck_assert_uint_ge(gantry_now_ns() - before, (uint64_t)SOON_NS);
	ck_assert_int_eq(gantry_wait(s, &t, 1, 0), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_test(s, t), 0);
	ck_assert_int_eq(gantry_wait(s, &t, 1, -2), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_wait(s, NULL, 1, SOON_NS), GANTRY_E_ARG);
	ck_assert_int_eq(gantry_wait(s, NULL, 0, GANTRY_FOREVER), GANTRY_OK);
	pause_queue(0);
	ck_assert_int_eq(gantry_wait(s, &t, 1, LIMIT_NS), GANTRY_OK);
}
END_TEST

START_TEST(test_calls_that_wait_for_a_paused_queue_end_at_the_call_timeout)
{
	struct gantry_task task[17];
	gantry_ticket last = 0;
	gantry_buffer b;
	uint8_t byte;
	void *ptr;

	gantry_close(s);
	open_session(HASTE_NS);
	memset(task, 0, sizeof(task));
	ck_assert_int_eq(gantry_kernel_find(s, "empty", NULL, &task[0].kernel), GANTRY_OK);
	for (int i = 1; i < 17; i++)
		task[i] = task[0];
	ck_assert_int_eq(gantry_alloc(s, 4096, GANTRY_ALLOC_DEVICE, &b), GANTRY_OK);
	pause_queue(1);
	ck_assert_int_eq(gantry_submit_fill(s, queue, b, 0, 4096, 1, 1, NULL), GANTRY_OK);
	/* A ring of 16 takes 15 more, and says how far it came. */
	ck_assert_int_eq(gantry_submit(s, queue, task, 17, &last), GANTRY_E_AGAIN);
	ck_assert_uint_eq(GANTRY_TICKET_SEQ(last), 16);
	ck_assert_int_eq(gantry_map(s, b, 0, 4096, GANTRY_R, SOON_NS, &ptr), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_read(s, b, 0, &byte, 1), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_queue_close(s, queue), GANTRY_E_TIMEOUT);
	neighbour_check(&world.neighbour);
}
END_TEST

START_TEST(test_queue_order_within_one_ring_cannot_be_made_a_circle)
{
	gantry_ticket t, other = GANTRY_TICKET(2, 1);
	gantry_queue second;

	/* The library refuses tickets that do not exist yet, so an honest guest makes no circle. */
	ck_assert_int_eq(gantry_queue_open(s, NULL, &second), GANTRY_OK);
	ck_assert_int_lt(gantry_submit_wait(s, queue, &other, 1, NULL), 0);
	ck_assert_int_eq(gantry_submit_marker(s, second, &t), GANTRY_OK);
	ck_assert_int_eq(gantry_wait(s, &t, 1, LIMIT_NS), GANTRY_OK);
}
END_TEST

/* ---- circles, by a guest that makes them with its own hands ---- */

struct circle {
	struct hostile h;
	uint32_t slot[3];
	uint64_t handle[3];
};

static void set_paused(struct circle *c, int i, uint64_t paused)
{
	struct gantry_op_queue_set op = { .queue = c->handle[i],
					  .key = GANTRY_QUEUE_PAUSED,
					  .value = paused };
	struct gantry_desc desc;

	gantry_desc_put_queue_set(&desc, &op);
	ck_assert_int_eq(hostile_control(&c->h, &desc, NULL, 0, NULL), GANTRY_OK);
}

/* Queue 0 waits for the first task of queue 1, that for queue 2, that for queue 0. */
static void make_circle(struct circle *c, int n)
{
	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(hostile_queue(&c->h, &c->slot[i], &c->handle[i]), GANTRY_OK);
		set_paused(c, i, 1);
	}
	for (int i = 0; i < n; i++) {
		int next = (i + 1) % n;
		struct gantry_op_wait op = { .ticket0 = GANTRY_TICKET(c->slot[next], 1) };
		struct gantry_desc desc;

		gantry_desc_put_wait(&desc, &op);
		ck_assert_uint_eq(hostile_put(&c->h, c->slot[i], &desc, NULL, 0), 1);
	}
	for (int i = 0; i < n; i++)
		set_paused(c, i, 0);
}

static void cancel_circle(struct circle *c, int n)
{
	struct gantry_op_queue_cancel op = { .queue = c->handle[0] };
	struct gantry_desc desc;

	gantry_desc_put_queue_cancel(&desc, &op);
	ck_assert_int_eq(hostile_control(&c->h, &desc, NULL, 0, NULL), GANTRY_OK);
	ck_assert_int_eq(hostile_wait(&c->h, c->slot[0], 1, HOSTILE_WAIT_MS), GANTRY_E_CANCELLED);
	/* Its end frees the others, which asked for order and not for success. */
	for (int i = 1; i < n; i++)
		ck_assert_int_eq(hostile_wait(&c->h, c->slot[i], 1, HOSTILE_WAIT_MS), GANTRY_OK);
}

START_TEST(test_circle_of_queues_waits_alone_until_it_is_cancelled)
{
	struct circle c;
	uint32_t free_slot;
	int n = _i + 1;

	world_hostile(&c.h);
	make_circle(&c, n);
	if (n == 1) {
		/* A task that waits for itself is told so. */
		ck_assert_int_eq(hostile_wait(&c.h, c.slot[0], 1, HOSTILE_WAIT_MS), GANTRY_E_ARG);
	} else {
		ck_assert_int_eq(hostile_wait(&c.h, c.slot[0], 1, 100), HOSTILE_TIMEOUT);
		/* Other queues of the session go on, and so does everybody else. */
		ck_assert_int_eq(hostile_queue(&c.h, &free_slot, NULL), GANTRY_OK);
		ck_assert_int_eq(hostile_ping(&c.h, free_slot), GANTRY_OK);
		neighbour_check(&world.neighbour);
		cancel_circle(&c, n);
	}
	world_hostile_end(&c.h);
}
END_TEST

START_TEST(test_circle_of_queues_does_not_outlive_its_guest)
{
	struct circle c;

	world_hostile(&c.h);
	make_circle(&c, 3);
	world_hostile_end(&c.h);
	neighbour_check(&world.neighbour);
}
END_TEST

static void add_tests(Suite *suite, const char *name, enum world_kind kind)
{
	TCase *tc = world_case(suite, name, kind);

	tcase_add_checked_fixture(tc, begin, finish);
	tcase_add_test(tc, test_wait_twice_says_the_same_twice);
	tcase_add_test(tc, test_wait_from_many_threads_wakes_them_all);
	tcase_add_test(tc, test_wait_from_many_threads_ends_when_the_task_is_cancelled);
	tcase_add_test(tc, test_cancel_reaches_a_paused_queue);
	tcase_add_test(tc, test_wait_for_a_ticket_nobody_submitted_is_refused_at_once);
	tcase_add_test(tc, test_wait_for_what_cannot_come_now_ends_at_its_timeout);
	tcase_add_test(tc, test_calls_that_wait_for_a_paused_queue_end_at_the_call_timeout);
	tcase_add_test(tc, test_queue_order_within_one_ring_cannot_be_made_a_circle);
	tcase_add_loop_test(tc, test_circle_of_queues_waits_alone_until_it_is_cancelled, 0, 3);
	tcase_add_test(tc, test_circle_of_queues_does_not_outlive_its_guest);
}

int main(void)
{
	Suite *suite = suite_create("misuse-waits");

	add_tests(suite, "engine", WORLD_ENGINE);
	add_tests(suite, "agent", WORLD_AGENT);
	return gantry_unit_run(suite);
}
