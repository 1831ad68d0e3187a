/* SPDX-License-Identifier: Apache-2.0 */
/* Order, turns, pauses, cancellation and placement of queues and sessions in one engine. */
#include <sys/resource.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/device.h"
#include "guest-shim/session.h"
#include "tests/inproc/fixture.h"

#define N 1024u

START_TEST(test_schedule_statuses_in_order_on_two_lanes)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	gantry_ticket t[200];

	for (int i = 0; i < 200; i++)
		t[i] = i % 3 == 0   ? put_fail(&f, f.q)
		       : i % 7 == 0 ? put_spin(&f, f.q, 100000)
				    : put_empty(&f, f.q);
	ck_assert_int_eq(outcome(&f, t[199]), GANTRY_OK);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(gantry_test(f.s, t[i]), i % 3 == 0 ? GANTRY_E_KERNEL : 1);
	fixture_end(&f);
}
END_TEST

static void keep_lane(const struct fixture *f, gantry_queue q, uint32_t lane)
{
	gantry_store_relaxed(&ledger_queue(f, q)->lane, GANTRY_LEDGER_LANE(0, lane));
}

static bool holds(const struct fixture *f, uint32_t lane)
{
	return gantry_load_relaxed(&f->h->pages[0]->lanes[lane]) != 0;
}

START_TEST(test_schedule_queue_keeps_the_lane_that_it_is_told)
{
	struct fixture f = fixture_start(wide_cpu, 1);

	f.h->pages[0]->hdr.nlanes = 4;
	for (uint32_t i = 0; i < 12; i++) {
		uint32_t lane = i * 3 % 4;
		gantry_ticket t;

		keep_lane(&f, f.q, lane);
		t = put_spin(&f, f.q, 20 * GANTRY_NS_PER_MS);
		eventually(holds(&f, lane));
		for (uint32_t k = 0; k < 4; k++)
			ck_assert(k == lane || !holds(&f, k));
		ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	}
	/* One that the device has not is any. */
	keep_lane(&f, f.q, 60);
	ck_assert_int_eq(outcome(&f, put_empty(&f, f.q)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_queues_change_lanes_in_mid_work_and_lose_nothing)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	gantry_ticket t[2][400];
	gantry_queue q[2];

	f.h->pages[0]->hdr.nlanes = 2;
	q[0] = f.q;
	ck_ok(gantry_queue_open(f.s, NULL, &q[1]));
	/* At times on one lane, at times on two; each change finds some in flight. */
	for (uint32_t i = 0; i < 400; i++)
		for (uint32_t k = 0; k < 2; k++) {
			if (i % 16 == 5 + k)
				keep_lane(&f, q[k], (i / 16 + k * (i / 64)) % 2);
			t[k][i] = i % 3 == 0 ? put_fail(&f, q[k]) : put_empty(&f, q[k]);
		}
	for (uint32_t k = 0; k < 2; k++)
		ck_assert_int_eq(outcome(&f, t[k][399]), GANTRY_E_KERNEL);
	for (uint32_t i = 0; i < 400; i++)
		for (uint32_t k = 0; k < 2; k++)
			ck_assert_int_eq(gantry_test(f.s, t[k][i]),
					 i % 3 == 0 ? GANTRY_E_KERNEL : 1);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_fail_stop_runs_nothing_after_the_failure)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	const struct gantry_queue_options stop = { .fail_stop = 1 };
	gantry_buffer b = make_buffer(&f, N * 4, GANTRY_ALLOC_DEVICE);
	gantry_queue q;
	gantry_ticket bad, after, last;
	uint32_t out[N];

	ck_assert_int_eq(outcome(&f, put_fill(&f, f.q, b, N, 1)), GANTRY_OK);
	ck_ok(gantry_queue_open(f.s, &stop, &q));
	pause_queue(&f, q, 1);
	(void)put_spin(&f, q, 1000000);
	bad = put_fail(&f, q);
	after = put_fill(&f, q, b, N, 2);
	last = put_empty(&f, q);
	pause_queue(&f, q, 0);
	ck_assert_int_eq(outcome(&f, last), GANTRY_E_INTERRUPTED);
	ck_assert_int_eq(outcome(&f, bad), GANTRY_E_KERNEL);
	ck_assert_int_eq(outcome(&f, after), GANTRY_E_INTERRUPTED);
	ck_ok(gantry_read(f.s, b, 0, out, sizeof(out)));
	ck_assert_uint_eq(out[0], 1);
	ck_ok(gantry_queue_set(f.s, q, GANTRY_QUEUE_FAIL_STOP, 0));
	ck_assert_int_eq(outcome(&f, put_empty(&f, q)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_cancel_of_a_paused_queue_finishes_its_tasks)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_ticket t[20];

	pause_queue(&f, f.q, 1);
	for (int i = 0; i < 20; i++)
		t[i] = put_spin(&f, f.q, 1000);
	ck_ok(gantry_cancel(f.s, f.q));
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(outcome(&f, t[i]), GANTRY_E_CANCELLED);
	pause_queue(&f, f.q, 0);
	ck_assert_int_eq(outcome(&f, put_empty(&f, f.q)), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_paused_queue_waits_and_others_go_on)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_ticket held, free;
	gantry_queue q;

	ck_ok(gantry_queue_open(f.s, NULL, &q));
	pause_queue(&f, f.q, 1);
	held = put_empty(&f, f.q);
	free = put_empty(&f, q);
	ck_assert_int_eq(outcome(&f, free), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, held), 0);
	pause_queue(&f, f.q, 0);
	ck_assert_int_eq(outcome(&f, held), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_administrators_pause_is_another)
{
	struct fixture f = fixture_start(one_cpu, 1);
	gantry_ticket t;

	gantry_store_relaxed(&ledger_queue(&f, f.q)->paused, 1u);
	t = put_empty(&f, f.q);
	await_taken(&f, f.q, 1);
	ck_assert_int_eq(gantry_test(f.s, t), 0);
	gantry_store_relaxed(&ledger_queue(&f, f.q)->paused, 0u);
	gantry_engine_nudge(f.h->engine);
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_urgent_queue_overtakes)
{
	struct fixture f = fixture_start(one_cpu, 1);
	const struct gantry_queue_options urgent = { .priority = 10 };
	gantry_ticket slow = 0, soon = 0;
	gantry_queue q;

	ck_ok(gantry_queue_open(f.s, &urgent, &q));
	pause_queue(&f, f.q, 1);
	pause_queue(&f, q, 1);
	for (int i = 0; i < 100; i++)
		slow = put_spin(&f, f.q, 1000000);
	for (int i = 0; i < 20; i++)
		soon = put_spin(&f, q, 1000000);
	pause_queue(&f, f.q, 0);
	pause_queue(&f, q, 0);
	ck_assert_int_eq(outcome(&f, soon), GANTRY_OK);
	ck_assert_int_eq(gantry_test(f.s, slow), 0);
	ck_assert_int_eq(outcome(&f, slow), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* Each round trip took a second while a thread that finished a task did not wake the one that waited for it. */
START_TEST(test_schedule_waits_across_devices_are_woken)
{
	struct fixture f = fixture_start(two_cpus, 2);
	const struct gantry_queue_options first = { .device_mask = 1 };
	const struct gantry_queue_options second = { .device_mask = 2 };
	struct gantry_task task = { .kernel = find(&f, "empty"), .nafter = 1 };
	uint64_t ns = 200000; /* longer than the other thread spins */
	struct gantry_task slow = {
		.kernel = find(&f, "spin"), .args = &ns, .args_bytes = 8, .nafter = 1
	};
	gantry_ticket t;
	gantry_queue q[2];

	ck_ok(gantry_queue_open(f.s, &first, &q[0]));
	ck_ok(gantry_queue_open(f.s, &second, &q[1]));
	t = put_empty(&f, q[1]);
	for (int i = 0; i < 200; i++) {
		gantry_ticket before = t;

		slow.after = &before;
		ck_ok(gantry_submit(f.s, q[i % 2], &slow, 1, &t));
		before = t;
		task.after = &before;
		ck_ok(gantry_submit(f.s, q[(i + 1) % 2], &task, 1, &t));
	}
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

/* Waits that fill the limit on unfinished tasks must not keep out the task that they wait for. */
START_TEST(test_schedule_inflight_limit_takes_one_task_of_each_queue)
{
	struct fixture f = fixture_start(two_cpus, 2);
	const struct gantry_queue_options first = { .device_mask = 1 };
	const struct gantry_queue_options second = { .device_mask = 2 };
	struct fixture other = { .h = f.h };
	gantry_queue q[2], busy;
	gantry_ticket t, last = 0;

	fixture_session(&other, NULL);
	ck_ok(gantry_queue_open(other.s, &second, &busy));
	ck_ok(gantry_queue_open(f.s, &first, &q[0]));
	ck_ok(gantry_queue_open(f.s, &second, &q[1]));
	gantry_store_relaxed(&f.h->quota->inflight, 2u);
	t = put_spin(&other, busy, 50000000);
	eventually(gantry_load_acquire(&ledger_queue(&other, busy)->issued) == 1);
	t = put_empty(&f, q[1]); /* its thread is busy: put, not taken */
	for (int i = 0; i < 8; i++)
		ck_ok(gantry_submit_wait(f.s, q[0], &t, 1, &last));
	await_taken(&f, q[0], 2);
	ck_assert_int_eq(outcome(&f, last), GANTRY_OK);
	gantry_close(other.s);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_queue_moves_between_devices_while_it_runs)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_buffer b = make_buffer(&f, 1 << 20, GANTRY_ALLOC_DEVICE);
	gantry_ticket t = 0;
	uint32_t out;

	for (uint32_t i = 0; i < 200; i++) {
		for (int k = 0; k < 4; k++)
			t = put_fill(&f, f.q, b, 256, i);
		ck_ok(gantry_queue_set(f.s, f.q, GANTRY_QUEUE_DEVICE_MASK, 1 + i % 2));
	}
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	ck_ok(gantry_read(f.s, b, 0, &out, sizeof(out)));
	ck_assert_uint_eq(out, 199);
	ck_assert_uint_eq(gantry_load_relaxed(&f.h->pages[0]->hdr.mem_used) +
				  gantry_load_relaxed(&f.h->pages[1]->hdr.mem_used),
			  1 << 20);
	ck_assert_int_eq(gantry_queue_set(f.s, f.q, GANTRY_QUEUE_DEVICE_MASK, 4),
			 GANTRY_E_NO_DEVICE);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_device_taken_away_gives_its_queues_up)
{
	struct fixture f = fixture_start(two_cpus, 2);
	gantry_queue q[6];
	gantry_ticket t[6];

	for (int i = 0; i < 6; i++)
		ck_ok(gantry_queue_open(f.s, NULL, &q[i]));
	gantry_store_release(&host_session(&f)->ledger.hdr->device_allowed, (uint64_t)2);
	gantry_engine_nudge(f.h->engine);
	for (int i = 0; i < 6; i++)
		eventually(gantry_load_acquire(&ledger_queue(&f, q[i])->device) == 1);
	for (int i = 0; i < 6; i++)
		t[i] = put_spin(&f, q[i], 1000);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(outcome(&f, t[i]), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_tenants_get_time_by_weight)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture heavy = { .h = f.h };
	gantry_ticket t = 0, last = 0;

	gantry_share_set_tenant(f.h->pages[0], 1, 3 * GANTRY_SHARE_WEIGHT_DEFAULT);
	f.h->next_tenant = 1;
	fixture_session(&heavy, NULL);
	pause_queue(&f, f.q, 1);
	pause_queue(&heavy, heavy.q, 1);
	for (int i = 0; i < 200; i++) {
		last = put_spin(&f, f.q, 1000000);
		t = put_spin(&heavy, heavy.q, 1000000);
	}
	pause_queue(&f, f.q, 0);
	pause_queue(&heavy, heavy.q, 0);
	ck_assert_int_eq(outcome(&heavy, t), GANTRY_OK);
	/* A third of 200, give or take slices, and some while this thread is kept from looking. */
	ck_assert_uint_lt(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 150);
	ck_assert_uint_gt(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 30);
	ck_assert_int_eq(outcome(&f, last), GANTRY_OK);
	gantry_close(heavy.s);
	fixture_end(&f);
}
END_TEST

/* A device whose share page is a GPU's: two parties take turns, and a session's queues share its lane. */
START_TEST(test_schedule_gpu_page_parties_get_time_by_weight)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture heavy = { .h = f.h };
	struct gantry_share_page *page = f.h->pages[0];
	gantry_ticket t = 0, last = 0, beside = 0;
	gantry_queue second;

	gantry_share_set_gpu(page, true, 0);
	gantry_share_set_tenant(page, 1, 3 * GANTRY_SHARE_WEIGHT_DEFAULT);
	f.h->next_tenant = 1;
	fixture_session(&heavy, NULL);
	for (uint32_t i = 0; i < GANTRY_SHARE_NSESSIONS; i++)
		gantry_share_set_party(page, i, page->sessions[i].tenant);
	ck_ok(gantry_queue_open(heavy.s, NULL, &second));
	pause_queue(&f, f.q, 1);
	pause_queue(&heavy, heavy.q, 1);
	for (int i = 0; i < 200; i++) {
		last = put_spin(&f, f.q, 1000000);
		t = put_spin(&heavy, heavy.q, 1000000);
	}
	beside = put_spin(&heavy, second, 1000000);
	pause_queue(&f, f.q, 0);
	pause_queue(&heavy, heavy.q, 0);
	ck_assert_int_eq(outcome(&heavy, t), GANTRY_OK);
	ck_assert_uint_lt(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 150);
	ck_assert_uint_gt(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 30);
	ck_assert_int_eq(outcome(&heavy, beside), GANTRY_OK);
	ck_assert_int_eq(outcome(&f, last), GANTRY_OK);
	gantry_close(heavy.s);
	fixture_end(&f);
}
END_TEST

/* An agent of a newer build makes a GPU's page of it. Who has a lane of a queue then gives it back, and nobody counts below nothing. */
START_TEST(test_schedule_page_becomes_a_gpus_under_work)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture other = { .h = f.h };
	struct gantry_share_page *page = f.h->pages[0];
	gantry_ticket last[2] = { 0 };

	f.h->next_tenant = 1;
	fixture_session(&other, NULL);
	for (uint32_t i = 0; i < GANTRY_SHARE_NSESSIONS; i++)
		gantry_share_set_party(page, i, page->sessions[i].tenant);
	for (int i = 0; i < 100; i++) {
		last[0] = put_spin(&f, f.q, 1000000);
		last[1] = put_spin(&other, other.q, 1000000);
	}
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->done) >= 5);
	gantry_share_set_gpu(page, true, 0);
	ck_assert_int_eq(outcome(&f, last[0]), GANTRY_OK);
	ck_assert_int_eq(outcome(&other, last[1]), GANTRY_OK);
	/* No lane is left behind. */
	eventually(!gantry_share_is_busy(page));
	gantry_close(other.s);
	fixture_end(&f);
}
END_TEST

/* Long tasks of one session do not keep the control queue of another waiting for all of them. */
START_TEST(test_schedule_control_is_served_between_long_tasks)
{
	struct fixture f = fixture_start(one_cpu, 1);
	struct fixture g = { .h = f.h };
	gantry_ticket last = 0;

	fixture_session(&g, NULL);
	pause_queue(&f, f.q, 1);
	for (int i = 0; i < 60; i++)
		last = put_spin(&f, f.q, 20000000);
	pause_queue(&f, f.q, 0);
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->done) >= 1);
	(void)make_buffer(&g, 64, GANTRY_ALLOC_DEVICE);
	ck_assert_uint_lt(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 50);
	ck_ok(gantry_cancel(f.s, f.q));
	ck_assert_int_eq(outcome(&f, last), GANTRY_E_CANCELLED);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

static void many_sessions(const char *const *devices, uint32_t n)
{
	struct fixture f = fixture_start(devices, n);
	struct fixture g[12];
	gantry_ticket t[12];

	for (int i = 0; i < 12; i++) {
		g[i] = (struct fixture){ .h = f.h };
		fixture_session(&g[i],
				&(struct gantry_limits){ .heap_bytes = 1 << 20, .nslots = 64 });
	}
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 12; i++)
			t[i] = put_spin(&g[i], g[i].q, 20000);
		for (int i = 0; i < 12; i++)
			ck_assert_int_eq(outcome(&g[i], t[i]), GANTRY_OK);
	}
	for (int i = 0; i < 12; i++)
		gantry_close(g[i].s);
	fixture_end(&f);
}

START_TEST(test_schedule_many_sessions_on_one_engine)
{
	many_sessions(one_cpu, 1);
	many_sessions(wide_cpu, 1);
	many_sessions(two_cpus, 2);
}
END_TEST

static void detach_while_endless(const char *const *devices, uint32_t n)
{
	struct fixture f = fixture_start(devices, n);
	struct fixture g = { .h = f.h };
	/* Both at once: with one core nothing of the session is served while it runs. */
	struct gantry_task tasks[2] = { { .kernel = find(&f, "endless") },
					{ .kernel = find(&f, "empty") } };
	gantry_ticket t;

	fixture_session(&g, NULL);
	ck_ok(gantry_submit(f.s, f.q, tasks, 2, &t));
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->issued) >= 1);
	inproc_detach(f.h, f.index);
	ck_assert_int_ne(outcome(&f, t),
			 GANTRY_OK); /* cancelled, or the session's end was seen first */
	ck_assert_int_eq(outcome(&g, put_empty(&g, g.q)), GANTRY_OK);
	gantry_close(g.s);
	fixture_end(&f);
}

START_TEST(test_schedule_detach_ends_a_task_that_asks)
{
	detach_while_endless(one_cpu, 1);
	detach_while_endless(wide_cpu, 1);
}
END_TEST

static uint64_t process_cpu_ns(void)
{
	struct rusage u;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &u), 0);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * GANTRY_NS_PER_S +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * GANTRY_NS_PER_US;
}

/* A thread that wants a lane while another of its queues has the only one sleeps: one core is busy, not two. */
START_TEST(test_schedule_thread_that_wants_a_lane_sleeps)
{
#ifdef GANTRY_ATOMIC_UNDER_TSAN
	gantry_unit_skip("a look at the share page takes longer than the spin here");
#endif
	struct fixture f = fixture_start(wide_cpu, 1);
	struct fixture g = { .h = f.h };
	uint64_t cpu_ns, wall_ns;
	gantry_ticket t;

	gantry_store_relaxed(&f.h->pages[0]->hdr.nlanes, 1u);
	fixture_session(&g, NULL);
	(void)put_flags(&f, f.q, "endless", NULL, 0, 0);
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->issued) == 1);
	t = put_empty(&g, g.q);
	await_taken(&g, g.q, 1);
	cpu_ns = process_cpu_ns();
	wall_ns = gantry_now_ns();
	ck_assert_int_eq(gantry_wait(g.s, &t, 1, 400000000), GANTRY_E_TIMEOUT);
	cpu_ns = process_cpu_ns() - cpu_ns;
	wall_ns = gantry_now_ns() - wall_ns;
	ck_assert_msg(cpu_ns < wall_ns + wall_ns * 2 / 3, "%llu us of CPU in %llu us",
		      (unsigned long long)cpu_ns / 1000, (unsigned long long)wall_ns / 1000);
	inproc_detach(f.h, f.index);
	ck_assert_int_eq(outcome(&g, t), GANTRY_OK);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

/* What needs no device does not wait for one: another session's long kernel has the only lane. */
START_TEST(test_schedule_satisfied_await_needs_no_lane)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	struct fixture g = { .h = f.h };
	uint64_t at, *word;
	gantry_ticket t;

	gantry_store_relaxed(&f.h->pages[0]->hdr.nlanes, 1u);
	fixture_session(&g, NULL);
	ck_ok(gantry_map(g.s, make_buffer(&g, 64, GANTRY_ALLOC_HOST), 0, 64, GANTRY_RW,
			 GANTRY_FOREVER, (void **)&word));
	at = (uint64_t)((uint8_t *)word - g.s->heap_region.base);
	gantry_store_release(word, (uint64_t)7);
	(void)put_flags(&f, f.q, "endless", NULL, 0, 0);
	eventually(gantry_load_acquire(&ledger_queue(&f, f.q)->issued) == 1);
	ck_ok(gantry_submit_await(g.s, g.q, at, 7, &t));
	ck_assert_int_eq(outcome(&g, t), GANTRY_OK);
	ck_assert_uint_eq(gantry_load_acquire(&ledger_queue(&f, f.q)->done), 0);
	inproc_detach(f.h, f.index);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

/* Another session, as it seems, has the one lane; the queue's tasks run in the other. */
static void run_beside_lane(struct fixture *f, uint32_t lane)
{
	uint32_t *lanes = f->h->pages[0]->lanes;
	gantry_ticket t = 0;

	eventually(gantry_load_acquire(&lanes[lane]) == 0);
	gantry_store_release(&lanes[lane], INPROC_MAX_SESSIONS);
	for (int i = 0; i < 50; i++)
		t = put_spin(f, f->q, 1000000);
	eventually(gantry_load_acquire(&lanes[1 - lane]) == f->index + 1);
	ck_assert_uint_eq(gantry_load_acquire(&lanes[lane]), INPROC_MAX_SESSIONS);
	ck_assert_int_eq(outcome(f, t), GANTRY_OK);
	gantry_store_release(&lanes[lane], 0u);
}

START_TEST(test_schedule_queue_goes_on_in_another_lane_when_its_own_is_taken)
{
	struct fixture f = fixture_start(wide_cpu, 1);

	for (uint32_t i = 0; i < 6; i++)
		run_beside_lane(&f, i % 2);
	ck_assert_uint_eq(ledger_queue(&f, f.q)->nfailed, 0);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_engine_stops_with_tasks_running)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	struct fixture g = { .h = f.h };

	fixture_session(&g, NULL);
	(void)put_flags(&f, f.q, "endless", NULL, 0, 0);
	(void)put_flags(&g, g.q, "endless", NULL, 0,
			0); /* two lanes and a device thread that runs neither */
	eventually(gantry_load_acquire(&ledger_queue(&g, g.q)->issued) == 1);
	gantry_engine_stop(f.h->engine); /* detaches both by itself */
	f.h->engine = NULL;
	ck_assert_uint_eq(gantry_load_acquire(&host_session(&f)->detached), 1);
	ck_assert_uint_eq(gantry_load_acquire(&host_session(&g)->detached), 1);
	gantry_close(g.s);
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_queue_slots_are_used_again)
{
	struct fixture f = fixture_start(two_cpus, 2);

	for (int i = 0; i < 100; i++) {
		gantry_queue q;
		gantry_ticket t;

		ck_ok(gantry_queue_open(f.s, NULL, &q));
		t = put_empty(&f, q);
		ck_ok(gantry_queue_close(f.s, q));
		ck_assert_int_eq(gantry_test(f.s, t), 1);
	}
	fixture_end(&f);
}
END_TEST

START_TEST(test_schedule_rescan_while_tasks_run)
{
	struct fixture f = fixture_start(wide_cpu, 1);
	struct gantry_err err = { 0 };
	gantry_ticket t = 0;

	for (int i = 0; i < 50; i++) {
		t = put_spin(&f, f.q, 10000);
		ck_assert_int_eq(gantry_engine_rescan(f.h->engine, &err), 0);
	}
	ck_assert_int_eq(outcome(&f, t), GANTRY_OK);
	fixture_end(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("schedule");
	TCase *tc = gantry_unit_case(suite, "schedule");

	tcase_add_test(tc, test_schedule_statuses_in_order_on_two_lanes);
	tcase_add_test(tc, test_schedule_queue_keeps_the_lane_that_it_is_told);
	tcase_add_test(tc, test_schedule_queues_change_lanes_in_mid_work_and_lose_nothing);
	tcase_add_test(tc, test_schedule_fail_stop_runs_nothing_after_the_failure);
	tcase_add_test(tc, test_schedule_cancel_of_a_paused_queue_finishes_its_tasks);
	tcase_add_test(tc, test_schedule_paused_queue_waits_and_others_go_on);
	tcase_add_test(tc, test_schedule_administrators_pause_is_another);
	tcase_add_test(tc, test_schedule_urgent_queue_overtakes);
	tcase_add_test(tc, test_schedule_waits_across_devices_are_woken);
	tcase_add_test(tc, test_schedule_inflight_limit_takes_one_task_of_each_queue);
	tcase_add_test(tc, test_schedule_queue_moves_between_devices_while_it_runs);
	tcase_add_test(tc, test_schedule_device_taken_away_gives_its_queues_up);
	tcase_add_test(tc, test_schedule_tenants_get_time_by_weight);
	tcase_add_test(tc, test_schedule_gpu_page_parties_get_time_by_weight);
	tcase_add_test(tc, test_schedule_page_becomes_a_gpus_under_work);
	tcase_add_test(tc, test_schedule_control_is_served_between_long_tasks);
	tcase_add_test(tc, test_schedule_many_sessions_on_one_engine);
	tcase_add_test(tc, test_schedule_detach_ends_a_task_that_asks);
	tcase_add_test(tc, test_schedule_thread_that_wants_a_lane_sleeps);
	tcase_add_test(tc, test_schedule_satisfied_await_needs_no_lane);
	tcase_add_test(tc, test_schedule_queue_goes_on_in_another_lane_when_its_own_is_taken);
	tcase_add_test(tc, test_schedule_engine_stops_with_tasks_running);
	tcase_add_test(tc, test_schedule_queue_slots_are_used_again);
	tcase_add_test(tc, test_schedule_rescan_while_tasks_run);
	return gantry_unit_run(suite);
}
