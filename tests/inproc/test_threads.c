/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device thread serves a session's queues and its control queue when they go from one to another, and that each hears what comes
 * to it, asleep or awake: nothing is lost between two of them.
 */
#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "host-agent/worker/worker.h"
#include "tests/inproc/fixture.h"

static const char *const unlike[] = { "cpu cores=1", "null" };

static uint32_t control_of(const struct fixture *f)
{
	struct wsession *s = worker_session_get(f->h->engine, host_session(f)->id);
	uint32_t device;

	ck_assert_ptr_nonnull(s);
	device = gantry_load_acquire(&s->control);
	worker_session_leave(s);
	return device;
}

static void set_device(const struct fixture *f, gantry_queue q, uint32_t device)
{
	ck_ok(gantry_queue_set(f->s, q, GANTRY_QUEUE_DEVICE_MASK, 1ull << device));
}

/* The queue is there when the first task has run. */
static void go(const struct fixture *f, gantry_queue q, uint32_t device)
{
	set_device(f, q, device);
	ck_assert_int_eq(outcome(f, put_empty(f, q)), GANTRY_OK);
	ck_assert_uint_eq(gantry_load_relaxed(&ledger_queue(f, q)->device), device);
}

static gantry_queue queue_at(const struct fixture *f, uint32_t device)
{
	struct gantry_queue_options options = { .device_mask = 1ull << device };
	gantry_queue q;

	ck_ok(gantry_queue_open(f->s, &options, &q));
	return q;
}

/* ---- who has the control queue ---- */

START_TEST(test_control_queue_goes_with_the_last_queue)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue other = queue_at(&f, 0);

	go(&f, f.q, 0);
	ck_assert_uint_eq(control_of(&f), 0);
	go(&f, other, 1); /* one stays */
	ck_assert_uint_eq(control_of(&f), 0);
	go(&f, f.q, 1);
	ck_assert_uint_eq(control_of(&f), 1);
	go(&f, other, 0);
	ck_assert_uint_eq(control_of(&f), 1);
	go(&f, f.q, 0);
	ck_assert_uint_eq(control_of(&f), 0);
	fixture_end(&f);
}
END_TEST

/* The thread of another kind of device is asked about it: its questions would go to and fro between threads. */
START_TEST(test_control_queue_stays_where_the_other_device_is_no_processor)
{
	struct fixture f = fixture_start(unlike, 2);
	gantry_buffer b = make_buffer(&f, 4096, 0);
	gantry_ticket t;

	set_device(&f, f.q, 1);
	ck_ok(gantry_submit_fill(f.s, f.q, b, 0, 4096, 1, sizeof(uint32_t), &t));
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_assert_uint_eq(gantry_load_relaxed(&ledger_queue(&f, f.q)->device), 1);
	ck_assert_uint_eq(control_of(&f), 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_a_worker_that_takes_over_begins_at_home_and_serves_all)
{
	struct fixture f = fixture_start(two_cpus, 2);

	go(&f, f.q, 1);
	ck_assert_uint_eq(control_of(&f), 1);
	inproc_crash(f.h, f.index);
	ck_assert_int_eq(inproc_recover(f.h, f.index, 0), 0);
	ck_assert_uint_eq(control_of(&f), 0);
	ck_assert_int_eq(outcome(&f, put_empty(&f, f.q)), GANTRY_OK);
	go(&f, f.q, 0);
	go(&f, f.q, 1);
	ck_assert_uint_eq(control_of(&f), 1);
	fixture_end(&f);
}
END_TEST

/* The stand-in answers for the thread that has the control queue now. */
START_TEST(test_control_queue_that_went_is_answered_beside_a_long_kernel)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_ticket t;

	go(&f, f.q, 1);
	t = put_spin(&f, f.q, 3 * GANTRY_NS_PER_S);
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->issued) ==
		   gantry_load_acquire(&ledger_queue(&f, f.q)->done) + 1);
	(void)make_buffer(&f, 4096, GANTRY_ALLOC_DEVICE);
	ck_assert_int_eq(gantry_test(f.s, t), 0);
	set_device(&f, f.q, 0); /* it leaves when the kernel has ended */
	ck_assert_uint_eq(control_of(&f), 1);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	go(&f, f.q, 0);
	ck_assert_uint_eq(control_of(&f), 0);
	fixture_end(&f);
}
END_TEST

/* ---- asleep ---- */

static void nap(void)
{
	const struct timespec some = { .tv_nsec = 3000000 }; /* nobody spins so long */

	(void)nanosleep(&some, NULL);
}

/*
 * A thread that is not woken looks by itself a second later. A machine may be slow now and then, but not most of the time.
 */
struct patience {
	uint32_t n;
	uint32_t nslow;
};

static void count(struct patience *p, uint64_t began_ns)
{
	p->n++;
	p->nslow += gantry_now_ns() - began_ns > 500 * GANTRY_NS_PER_MS;
}

static void nap_and_run(const struct fixture *f, gantry_queue q, struct patience *p)
{
	uint64_t began_ns;

	nap();
	began_ns = gantry_now_ns();
	ck_assert_int_eq(outcome(f, put_empty(f, q)), GANTRY_OK);
	count(p, began_ns);
}

static void nap_and_ask(const struct fixture *f, struct patience *p)
{
	uint64_t began_ns;

	nap();
	began_ns = gantry_now_ns();
	ck_ok(gantry_free(f->s, make_buffer(f, 4096, GANTRY_ALLOC_DEVICE)));
	count(p, began_ns);
}

START_TEST(test_threads_that_sleep_hear_tasks_and_operations_after_each_move)
{
	struct fixture f = fixture_start(two_cpus, 2);
	struct patience p = { 0 };

	for (uint32_t i = 0; i < 20; i++) {
		if (i % 3)
			nap();
		set_device(&f, f.q, i % 2);
		if (i % 2)
			nap_and_ask(&f, &p);
		nap_and_run(&f, f.q, &p);
		nap_and_ask(&f, &p);
	}
	ck_assert_uint_eq(ledger_queue(&f, f.q)->done, 20);
	/* A queue that is opened where the bell was not heard any more. */
	for (uint32_t i = 0; i < 10; i++) {
		gantry_queue fresh = queue_at(&f, i % 2);

		nap_and_run(&f, fresh, &p);
		nap_and_run(&f, f.q, &p);
		ck_ok(gantry_queue_close(f.s, fresh));
	}
	ck_assert_uint_lt(p.nslow, p.n / 4);
	fixture_end(&f);
}
END_TEST

/* The thread that has the control queue is not the one that has to let go. */
START_TEST(test_thread_that_sleeps_is_woken_to_hand_a_queue_over)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue other = queue_at(&f, 1);
	struct patience p = { 0 };

	go(&f, f.q, 0);
	for (uint32_t i = 0; i < 20; i++) {
		uint64_t began_ns;

		nap();
		began_ns = gantry_now_ns();
		set_device(&f, other, i % 2);
		eventually(gantry_load_relaxed(&ledger_queue(&f, other)->device) == i % 2);
		if (i % 2 == 0)
			count(&p, began_ns);
		ck_assert_uint_eq(control_of(&f), 0);
	}
	ck_assert_uint_lt(p.nslow, p.n / 4);
	fixture_end(&f);
}
END_TEST

/* ---- busy ---- */

#define MOVERS	 3u
#define WORDS	 64u
#define PER_WORD 8u

struct mover {
	struct fixture *f;
	gantry_queue q;
	gantry_buffer b;
	uint32_t first; /* device */
	uint64_t nput;
	pthread_t thread;
};

/* Some tasks between two moves, or none; every now and then all are waited for. */
static void *move_to_and_fro(void *arg)
{
	struct mover *m = arg;
	const struct fixture *f = m->f;
	gantry_ticket t = 0;

	for (uint32_t i = 0; i < WORDS * PER_WORD; i++) {
		set_device(f, m->q, (m->first + i) % 2);
		for (uint32_t k = 0; k < i % 4; k++) {
			ck_ok(gantry_submit_fill(f->s, m->q, m->b, i / PER_WORD * 4, 4, i + 1, 4,
						 &t));
			m->nput++;
		}
		if (t && i % 3 == 0)
			ck_assert_int_eq(outcome(f, t), GANTRY_OK);
	}
	ck_assert_int_eq(outcome(f, t), GANTRY_OK);
	return NULL;
}

static void check_words(const struct fixture *f, const struct mover *m)
{
	uint32_t *words;

	ck_ok(gantry_map(f->s, m->b, 0, WORDS * 4, GANTRY_R, LONG_NS, (void **)&words));
	for (uint32_t w = 0; w < WORDS; w++)
		ck_assert_uint_eq(words[w], (w + 1) * PER_WORD); /* the last that was put there */
	ck_ok(gantry_unmap(f->s, words));
	ck_assert_uint_eq(ledger_queue(f, m->q)->done, m->nput);
	ck_assert_uint_eq(ledger_queue(f, m->q)->nfailed, 0);
}

START_TEST(test_no_task_is_lost_where_queues_and_their_control_go_to_and_fro)
{
	struct fixture f = fixture_start(two_cpus, 2);
	struct mover movers[MOVERS];
	uint32_t n = _i + 1; /* alone the control queue goes each time, among others now and then */

	ck_ok(gantry_queue_close(f.s, f.q));
	for (uint32_t i = 0; i < n; i++) {
		movers[i] = (struct mover){ .f = &f, .q = queue_at(&f, i % 2), .first = i };
		movers[i].b = make_buffer(&f, WORDS * 4, GANTRY_ALLOC_HOST);
	}
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(
			pthread_create(&movers[i].thread, NULL, move_to_and_fro, &movers[i]), 0);
	for (uint32_t i = 0; i < 200; i++)
		ck_ok(gantry_free(f.s, make_buffer(&f, 4096, GANTRY_ALLOC_DEVICE)));
	for (uint32_t i = 0; i < n; i++)
		pthread_join(movers[i].thread, NULL);
	for (uint32_t i = 0; i < n; i++)
		check_words(&f, &movers[i]);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *control = gantry_unit_case(suite, "control");
	TCase *asleep = gantry_unit_case(suite, "asleep");
	TCase *busy = gantry_unit_case(suite, "busy");

	tcase_set_timeout(control, 120);
	tcase_set_timeout(asleep, 120);
	tcase_set_timeout(busy, 240);
	tcase_add_test(control, test_control_queue_goes_with_the_last_queue);
	tcase_add_test(control, test_control_queue_stays_where_the_other_device_is_no_processor);
	tcase_add_test(control, test_a_worker_that_takes_over_begins_at_home_and_serves_all);
	tcase_add_test(control, test_control_queue_that_went_is_answered_beside_a_long_kernel);
	tcase_add_test(asleep, test_threads_that_sleep_hear_tasks_and_operations_after_each_move);
	tcase_add_test(asleep, test_thread_that_sleeps_is_woken_to_hand_a_queue_over);
	tcase_add_loop_test(busy, test_no_task_is_lost_where_queues_and_their_control_go_to_and_fro,
			    0, MOVERS);
	return gantry_unit_run(suite);
}
