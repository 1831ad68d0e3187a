/* SPDX-License-Identifier: Apache-2.0 */
/* How long commands in flight are watched, when they are slept through, and what is learnt of copies. */
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/worker/thread.h"
#include "tests/unit/runner.h"

#define BOUND_NS 2000000u
#define LONG_NS	 (100 * GANTRY_NS_PER_S)
#define MIB	 (1ull << 20)

static struct gantry_quota_page quota;
static struct gantry_ledger_queue led;
static struct wqueue queues[2];
static struct wsession session;
static struct wdevice device;

/* One command in flight on queue 1, expected to take @est_ns (0: unknown), since @flown_ns. */
static void fly(uint64_t est_ns, uint64_t flown_ns)
{
	quota.spin_ns = BOUND_NS;
	led = (struct gantry_ledger_queue){ .issued = 1 };
	queues[1] = (struct wqueue){ .session = &session,
				     .slot = 1,
				     .open = true,
				     .led = &led,
				     .window_ns = est_ns,
				     .nunknown = est_ns == 0 };
	session.quota = &quota;
	session.queues = queues;
	session.served[0] = 2;
	device.sessions[0] = &session;
	device.nsessions = 1;
	device.flight_since = gantry_cycles() -
			      flown_ns * gantry_cycles_per_us() / GANTRY_NS_PER_US;
}

/* Who watches it may take the processor from what computes. */
START_TEST(test_flight_of_an_opencl_device_is_watched_while_it_is_short)
{
	device.device.info.kind = GANTRY_KIND_OPENCL;
	fly(100000, 0);
	ck_assert_uint_gt(worker_flight_watch_ns(&device), 2 * 100000);
	fly(400000, 0);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 500000);
	fly(0, 0);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 500000);
	fly(BOUND_NS - 1, 0);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	quota.spin_ns = 1000;
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
}
END_TEST

START_TEST(test_riders_end_with_the_command_before_them)
{
	struct wqueue *q = &queues[1];

	fly(1000, 0);
	worker_ride(q);
	worker_ride(q);
	ck_assert_uint_eq(led.issued, 3);
	ck_assert_uint_eq(led.done, 0);
	worker_finish(q, GANTRY_OK, 0);
	ck_assert_uint_eq(led.done, 3);
	ck_assert_uint_eq(led.issued, 3);
	ck_assert_uint_eq(q->nriders, 0);
}
END_TEST

START_TEST(test_riders_behind_a_command_that_never_began_are_issued_again)
{
	struct wqueue *q = &queues[1];

	fly(1000, 0);
	worker_ride(q);
	led.issued++; /* a second command */
	worker_ride(q);
	worker_unissue(q);
	ck_assert_uint_eq(led.issued, 2);
	ck_assert_uint_eq(q->nriders, 1);
	worker_finish(q, GANTRY_OK, 0);
	ck_assert_uint_eq(led.done, 2);
	led.issued++; /* the second again; nothing of before rides behind it */
	led.issued++;
	worker_finish(q, GANTRY_OK, 0);
	ck_assert_uint_eq(led.done, 3);
}
END_TEST

/* An image that has ended takes its kernels along: what is looked for in flight has to be in flight. */
START_TEST(test_rider_has_no_kernel_of_an_earlier_lap)
{
	struct wqueue *q = &queues[1];
	static struct wkernel gone;

	fly(1000, 0);
	q->inflight_kernel[1] = &gone;
	q->copies[1].bytes = MIB;
	worker_ride(q);
	ck_assert_ptr_null(q->inflight_kernel[1]);
	ck_assert_uint_eq(q->copies[1].bytes, 0);
}
END_TEST

START_TEST(test_call_off_the_device_fills_none_of_it_whatever_rides_behind)
{
	struct wqueue *q = &queues[1];
	int fd;

	fly(1000, 0);
	ck_assert_int_eq(gantry_share_create("gpu0", 1, 0, &device.page, &fd, NULL), 0);
	gantry_share_set_gpu(device.page, true, 0);
	gantry_share_set_tenant(device.page, 0, GANTRY_SHARE_WEIGHT_DEFAULT);
	gantry_share_admit(device.page, 0, 0, 0);
	device.cmd.kind = GANTRY_CMD_COPY;
	worker_gpu_submitted(&device, q);
	ck_assert_uint_gt(device.page->sessions[0].units, 0);
	worker_ride(q);
	worker_gpu_off_device(&device, q, true);
	ck_assert_uint_eq(device.page->sessions[0].units, 0);
	worker_gpu_off_device(&device, q, false);
	ck_assert_uint_gt(device.page->sessions[0].units, 0);
	gantry_share_close(device.page);
	device.page = NULL;
	gantry_fd_close(fd);
}
END_TEST

/* ---- a lane of a GPU with nothing in flight ---- */

/* The session has a lane, and another party waits. */
static int hold_lane(uint32_t turn_pause_us)
{
	struct wgpu *g = &session.gpu[0];
	int fd;

	fly(1000, 0);
	led.done = 1;
	ck_assert_int_eq(gantry_share_create("gpu0", 1, 0, &device.page, &fd, NULL), 0);
	gantry_share_set_gpu(device.page, true, 0);
	gantry_share_set_turn_pause(device.page, turn_pause_us);
	for (uint32_t i = 0; i < 2; i++) {
		gantry_share_set_tenant(device.page, i, GANTRY_SHARE_WEIGHT_DEFAULT);
		gantry_share_admit(device.page, i, i, i);
		gantry_share_set_party(device.page, i, i);
		gantry_share_want(device.page, i, 0);
	}
	*g = (struct wgpu){ .lane = gantry_share_take(device.page, 0) + 1 };
	ck_assert_int_gt(g->lane, 0);
	device.nlanes_held = 1;
	gantry_spin_init(&device.spin, 50000, 2);
	return fd;
}

static void let_go(int fd)
{
	gantry_share_close(device.page);
	device.page = NULL;
	device.nlanes_held = 0;
	memset(&session.gpu[0], 0, sizeof(session.gpu[0]));
	gantry_fd_close(fd);
}

static void pass_us(uint64_t us)
{
	uint64_t until_ns = gantry_now_ns() + us * GANTRY_NS_PER_US;

	while (gantry_now_ns() < until_ns)
		;
}

START_TEST(test_lane_of_a_gpu_is_kept_for_a_pause_that_is_paid_for)
{
	int fd = hold_lane(1000);

	/* However slow this machine is just now, it is within the pause or behind it. */
	ck_assert(worker_gpu_keeps(&device) || gantry_now_ns() - session.gpu[0].rest_ns >= 1000000);
	worker_gpu_rest(&device, &session);
	pass_us(1000);
	ck_assert(!worker_gpu_keeps(&device));
	worker_gpu_rest(&device, &session);
	ck_assert_int_eq(session.gpu[0].lane, 0);
	ck_assert_uint_ge(device.page->tenants[0].device_ns, 1000000);
	ck_assert_int_ge(gantry_share_take(device.page, 1), 0);
	let_go(fd);
}
END_TEST

/* What needs no device, or the control queue, can keep the thread at work for ever: it never looks for sleep, where lanes go back. */
START_TEST(test_lane_of_a_gpu_is_held_for_nothing_by_no_busy_thread)
{
	int fd = hold_lane(0);

	ck_assert(!worker_gpu_keeps(&device));
	worker_gpu_rest(&device, &session);
	pass_us(100);
	worker_gpu_rest(&device, &session);
	ck_assert_int_eq(session.gpu[0].lane, 0);
	ck_assert_uint_eq(device.nlanes_held, 0);
	ck_assert_uint_ge(device.page->tenants[0].device_ns, 100000);
	ck_assert_int_ge(gantry_share_take(device.page, 1), 0);
	let_go(fd);
}
END_TEST

START_TEST(test_lane_of_a_gpu_is_not_watched_over_where_nobody_may_spin)
{
	int fd = hold_lane(1000);

	gantry_spin_init(&device.spin, 0, 2);
	ck_assert(!worker_gpu_keeps(&device));
	let_go(fd);
}
END_TEST

/* ---- a lane of another device ---- */

/* The queue has the only lane and nothing in flight; another session waits. */
static int hold_only_lane(void)
{
	int fd;

	fly(1000, 0);
	led.done = 1;
	ck_assert_int_eq(gantry_share_create("cpu0", 1, 0, &device.page, &fd, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		gantry_share_set_tenant(device.page, i, GANTRY_SHARE_WEIGHT_DEFAULT);
		gantry_share_admit(device.page, i, i, i);
		gantry_share_want(device.page, i, 0);
	}
	queues[1].lane = gantry_share_take(device.page, 0);
	ck_assert_int_eq(queues[1].lane, 0);
	ck_assert_int_lt(gantry_share_take(device.page, 1), 0);
	device.nlanes_held = 1;
	return fd;
}

START_TEST(test_lane_is_held_for_nothing_by_no_busy_thread)
{
	int fd = hold_only_lane();

	worker_lane_rest(&device, &queues[1]);
	pass_us(100);
	worker_lane_rest(&device, &queues[1]);
	ck_assert_int_eq(queues[1].lane, -1);
	ck_assert_uint_eq(device.nlanes_held, 0);
	ck_assert_int_ge(gantry_share_take(device.page, 1), 0);
	let_go(fd);
}
END_TEST

START_TEST(test_lane_is_kept_while_it_is_used)
{
	int fd = hold_only_lane();

	/* However long: the command is there. */
	led.issued = 2;
	worker_lane_rest(&device, &queues[1]);
	pass_us(100);
	worker_lane_rest(&device, &queues[1]);
	ck_assert_int_eq(queues[1].lane, 0);
	led.done = 2;
	worker_lane_rest(&device, &queues[1]); /* the rest begins now */
	ck_assert_int_eq(queues[1].lane, 0);
	let_go(fd);
}
END_TEST

/* What is at work beside the device is not told with the fault: its queue stays as it is, and is alone in that. */
START_TEST(test_what_never_began_is_counted_back_in_each_queue_that_was_told)
{
	static struct gantry_ledger_queue leds[2];
	struct gantry_done failed[4];

	memset(queues, 0, sizeof(queues));
	for (int i = 0; i < 2; i++) {
		leds[i] = (struct gantry_ledger_queue){ .done = 4, .issued = 7 };
		queues[i] = (struct wqueue){ .session = &session, .led = &leds[i] };
	}
	worker_ride(&queues[0]);
	for (int i = 0; i < 4; i++)
		failed[i] = (struct gantry_done){
			.tag = (uint64_t)(uintptr_t)&queues[i == 1],
			.status = i < 2 ? GANTRY_E_DEVICE_FAULT : GANTRY_E_INTERRUPTED,
			.blast = GANTRY_BLAST_CONTEXT,
		};
	worker_count_back(failed, 4);
	ck_assert_uint_eq(leds[0].issued, 5);
	ck_assert_uint_eq(leds[0].sorted, 1);
	ck_assert_uint_eq(queues[0].nriders, 0);
	ck_assert_uint_eq(leds[1].issued, 7);
	ck_assert_uint_eq(leds[1].sorted, 0);
}
END_TEST

START_TEST(test_nothing_in_flight_is_not_watched)
{
	fly(1000, 0);
	led.done = 1;
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	ck_assert_int_eq(worker_flight_park_ms(&device), 1000);
}
END_TEST

START_TEST(test_short_flights_are_watched_for_twice_as_long_within_the_bound)
{
	fly(100000, 0);
	ck_assert_uint_gt(worker_flight_watch_ns(&device), 2 * 100000);
	ck_assert_uint_lt(worker_flight_watch_ns(&device), BOUND_NS);
	fly(1500000, 0);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), BOUND_NS);
	fly(0, 0); /* of unknown length */
	ck_assert_uint_eq(worker_flight_watch_ns(&device), BOUND_NS);
	ck_assert_int_eq(worker_flight_park_ms(&device), 1000);
}
END_TEST

START_TEST(test_long_flight_is_slept_through_but_for_its_end)
{
	fly(LONG_NS, 0);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	fly(LONG_NS, LONG_NS - GANTRY_NS_PER_S / 2);
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	ck_assert_int_le(worker_flight_park_ms(&device), 500);
	fly(LONG_NS, LONG_NS + GANTRY_NS_PER_S); /* its end is nobody's guess any more */
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	ck_assert_int_eq(worker_flight_park_ms(&device), 1000);
}
END_TEST

START_TEST(test_end_of_a_long_flight_is_watched)
{
	fly(LONG_NS, LONG_NS - GANTRY_NS_PER_MS);
	quota.spin_ns = UINT64_MAX; /* the worker's own bound counts */
	ck_assert_uint_le(worker_flight_watch_ns(&device), 2 * BOUND_NS);
	fly(LONG_NS, LONG_NS - GANTRY_NS_PER_MS);
	quota.spin_ns = 0; /* whose tenant may not spin sleeps */
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	ck_assert_int_eq(worker_flight_park_ms(&device), 1000);
}
END_TEST

START_TEST(test_length_of_a_kernel_is_what_it_took_in_the_queue_then_anywhere)
{
	static struct wqueue ours, other;
	static struct wkernel spin;
	struct wdevice d = { .index = 1 };

	ck_assert_uint_eq(worker_flight_expect_ns(&d, &ours, &spin), 0);
	worker_flight_learn_kernel(&d, &other, &spin, 200);
	ck_assert_uint_eq(worker_flight_expect_ns(&d, &ours, &spin), 200);
	worker_flight_learn_kernel(&d, &ours, &spin, 20000000);
	for (int i = 0; i < 100; i++)
		worker_flight_learn_kernel(&d, &other, &spin, 200);
	ck_assert_uint_eq(worker_flight_expect_ns(&d, &ours, &spin), 20000000);
	ck_assert_uint_lt(worker_flight_expect_ns(&d, &other, &spin), 300);
}
END_TEST

START_TEST(test_queue_forgets_the_length_of_the_kernel_that_shares_a_place)
{
	static struct wqueue ours;
	static struct wkernel many[WORKER_LENGTHS + 1];
	struct wdevice d = { .index = 0 };

	for (uint32_t i = 0; i <= WORKER_LENGTHS; i++) {
		worker_flight_learn_kernel(&d, &ours, &many[i], 1000 + i);
		worker_flight_learn_kernel(&d, &ours, &many[i], 1000 + i);
	}
	many[0].avg_ns[0] = 7;
	ck_assert_uint_eq(worker_flight_expect_ns(&d, &ours, &many[0]), 7);
	for (uint32_t i = 1; i <= WORKER_LENGTHS; i++)
		ck_assert_uint_eq(worker_flight_expect_ns(&d, &ours, &many[i]), 1000 + i);
}
END_TEST

/* Queue 1 is of device 0 and has a suspect; queue 2 is of device 1 and has none. */
START_TEST(test_suspects_of_one_device_are_stepped_through_whatever_another_does)
{
	struct gantry_ledger_queue leds[3] = { { .done = 0 } };
	struct wqueue many[3] = { { .led = &leds[0] },
				  { .led = &leds[1], .suspect_below = 2 },
				  { .led = &leds[2] } };
	struct wsession s = { .queues = many, .stepping = 1 };
	struct wdevice first = { .index = 0 }, second = { .index = 1 };

	s.ledger.nqueues = 3;
	s.served[0] = 2;
	s.served[1] = 4;
	s.gpu[0].nflying = s.gpu[1].nflying = 1;
	ck_assert(worker_flight_may_step(&second, &s));
	ck_assert_uint_eq(s.stepping, 1);
	ck_assert(!worker_flight_may_step(&first, &s));
	s.gpu[0].nflying = 0;
	ck_assert(worker_flight_may_step(&first, &s));
	ck_assert_uint_eq(s.stepping, 1);
	leds[1].done = 2;
	s.gpu[0].nflying = 1;
	ck_assert(worker_flight_may_step(&second, &s));
	ck_assert_uint_eq(s.stepping, 0);
	ck_assert(worker_flight_may_step(&first, &s));
}
END_TEST

START_TEST(test_rate_of_copies_is_learnt_from_large_ones_that_end_well)
{
	struct gantry_done done = { .status = GANTRY_OK, .device_ns = GANTRY_NS_PER_MS };
	struct wcopy large = { 64 * MIB, WCOPY_OVER_BUS }, small = { 64 << 10, WCOPY_OVER_BUS };
	const uint64_t *per_s = &device.copied_per_s[WCOPY_OVER_BUS];

	memset(device.copied_per_s, 0, sizeof(device.copied_per_s));
	worker_flight_learn(&device, small, &done);
	ck_assert_uint_eq(*per_s, 0);
	worker_flight_learn(&device, large, &done);
	ck_assert_uint_eq(*per_s, 64 * MIB * 1000);
	done.device_ns *= 2;
	worker_flight_learn(&device, large, &done);
	ck_assert_uint_lt(*per_s, 64 * MIB * 1000);
	ck_assert_uint_gt(*per_s, 32 * MIB * 1000);
	done.status = GANTRY_E_DEVICE_FAULT;
	done.device_ns = 1;
	worker_flight_learn(&device, large, &done);
	ck_assert_uint_lt(*per_s, 64 * MIB * 1000);
}
END_TEST

/* A device's own memory is a hundred times as fast as the bus: expected as that, few copies would be in flight. */
START_TEST(test_copies_within_a_device_say_nothing_of_its_bus)
{
	struct gantry_done done = { .status = GANTRY_OK, .device_ns = GANTRY_NS_PER_MS };

	memset(device.copied_per_s, 0, sizeof(device.copied_per_s));
	worker_flight_learn(&device, (struct wcopy){ 2048 * MIB, WCOPY_WITHIN }, &done);
	ck_assert_uint_eq(device.copied_per_s[WCOPY_WITHIN], 2048 * MIB * 1000);
	ck_assert_uint_eq(device.copied_per_s[WCOPY_OVER_BUS], 0);
	worker_flight_learn(&device, (struct wcopy){ 64 * MIB, WCOPY_OVER_BUS }, &done);
	ck_assert_uint_eq(device.copied_per_s[WCOPY_WITHIN], 2048 * MIB * 1000);
}
END_TEST

/* Its own process has the next launch. */
START_TEST(test_flights_of_boards_are_slept_through_unless_they_are_over_before_anybody_wakes)
{
	fly(LONG_NS, LONG_NS - 100000);
	ck_assert_uint_gt(worker_flight_watch_ns(&device), 0);
	device.device.info.kind = GANTRY_KIND_FPGA;
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	fly(LONG_NS, LONG_NS - 50 * GANTRY_NS_PER_MS);
	ck_assert_int_eq(worker_flight_park_ms(&device), 1000);
	fly(0, 0); /* nobody knows */
	ck_assert_uint_eq(worker_flight_watch_ns(&device), 0);
	fly(100000, 0);
	ck_assert_uint_gt(worker_flight_watch_ns(&device), 0);
	device.device.info.kind = 0;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("flight");
	TCase *tc = gantry_unit_case(suite, "flight");

	tcase_add_test(tc, test_length_of_a_kernel_is_what_it_took_in_the_queue_then_anywhere);
	tcase_add_test(tc, test_queue_forgets_the_length_of_the_kernel_that_shares_a_place);
	tcase_add_test(tc, test_suspects_of_one_device_are_stepped_through_whatever_another_does);
	tcase_add_test(tc, test_riders_end_with_the_command_before_them);
	tcase_add_test(tc, test_riders_behind_a_command_that_never_began_are_issued_again);
	tcase_add_test(tc, test_rider_has_no_kernel_of_an_earlier_lap);
	tcase_add_test(tc, test_call_off_the_device_fills_none_of_it_whatever_rides_behind);
	tcase_add_test(tc, test_lane_of_a_gpu_is_kept_for_a_pause_that_is_paid_for);
	tcase_add_test(tc, test_lane_of_a_gpu_is_held_for_nothing_by_no_busy_thread);
	tcase_add_test(tc, test_lane_of_a_gpu_is_not_watched_over_where_nobody_may_spin);
	tcase_add_test(tc, test_lane_is_held_for_nothing_by_no_busy_thread);
	tcase_add_test(tc, test_lane_is_kept_while_it_is_used);
	tcase_add_test(tc, test_what_never_began_is_counted_back_in_each_queue_that_was_told);
	tcase_add_test(tc, test_nothing_in_flight_is_not_watched);
	tcase_add_test(tc, test_short_flights_are_watched_for_twice_as_long_within_the_bound);
	tcase_add_test(tc, test_flight_of_an_opencl_device_is_watched_while_it_is_short);
	tcase_add_test(tc, test_long_flight_is_slept_through_but_for_its_end);
	tcase_add_test(tc, test_end_of_a_long_flight_is_watched);
	tcase_add_test(tc, test_rate_of_copies_is_learnt_from_large_ones_that_end_well);
	tcase_add_test(tc, test_copies_within_a_device_say_nothing_of_its_bus);
	tcase_add_test(
		tc,
		test_flights_of_boards_are_slept_through_unless_they_are_over_before_anybody_wakes);
	return gantry_unit_run(suite);
}
