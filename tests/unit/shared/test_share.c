/* SPDX-License-Identifier: Apache-2.0 */
/* Single steps of the share page, on a clock that the test sets. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

uint64_t gantry_test_now_ns(void);

static uint64_t now_ns;
static struct gantry_share_page *page;
static int page_fd = -EBADF;

uint64_t gantry_test_now_ns(void)
{
	return now_ns;
}

/* One lane; sessions 0, 1 of tenant 0 and 2, 3 of tenant 1, each in a worker of its own number. */
static void setup(void)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	now_ns = 1000 * GANTRY_NS_PER_S;
	ck_assert_msg(gantry_share_create("sim0", 1, 1 << 20, &page, &page_fd, &err) == 0, "%s",
		      err.text);
	gantry_share_set_tenant(page, 0, 100);
	gantry_share_set_tenant(page, 1, 100);
	for (uint32_t i = 0; i < 4; i++)
		gantry_share_admit(page, i, i / 2, i);
}

static void teardown(void)
{
	gantry_share_close(page);
	page_fd = gantry_fd_close(page_fd);
}

static int want_and_take(uint32_t session, int32_t priority)
{
	gantry_share_want(page, session, priority);
	return gantry_share_take(page, session);
}

/* Whether @worker was called since @ticket. */
static bool was_called(uint32_t worker, uint32_t ticket)
{
	return gantry_share_ticket(page, worker) != ticket;
}

START_TEST(test_create_lanes_out_of_range_refused)
{
	struct gantry_share_page *other = NULL;
	int fd = -7;

	ck_assert_int_eq(gantry_share_create("x", 0, 0, &other, &fd, NULL), -EINVAL);
	ck_assert_int_eq(gantry_share_create("x", 65, 0, &other, &fd, NULL), -EINVAL);
	ck_assert_ptr_null(other);
	ck_assert_int_eq(fd, -7);
}
END_TEST

START_TEST(test_open_sees_what_create_made)
{
	struct gantry_share_page *other = NULL;

	ck_assert_int_eq(gantry_share_open(page_fd, &other, NULL), 0);
	ck_assert_uint_eq(other->hdr.nlanes, 1);
	ck_assert_uint_eq(other->hdr.mem_bytes, 1 << 20);
	ck_assert_uint_eq(other->hdr.nsessions, 4);
	gantry_share_close(other);
	gantry_share_close(NULL);
}
END_TEST

START_TEST(test_open_damaged_page_refused)
{
	struct gantry_share_page *other = NULL;

	page->hdr.nlanes = 65;
	ck_assert_int_eq(gantry_share_open(page_fd, &other, NULL), -EINVAL);
	page->hdr.nlanes = 1;
	page->hdr.magic++;
	ck_assert_int_eq(gantry_share_open(page_fd, &other, NULL), -EINVAL);
}
END_TEST

START_TEST(test_open_unsealed_or_small_memfd_refused)
{
	struct gantry_share_page *other = NULL;
	int fd = -EBADF;

	ck_assert_int_eq(gantry_memfd_create("x", sizeof(*page), 0, &fd), 0);
	ck_assert_int_eq(gantry_share_open(fd, &other, NULL), -EPERM);
	fd = gantry_fd_close(fd);
	ck_assert_int_eq(gantry_memfd_create("x", 4096, GANTRY_MEMFD_SEALED, &fd), 0);
	ck_assert_int_eq(gantry_share_open(fd, &other, NULL), -ERANGE);
	gantry_fd_close(fd);
}
END_TEST

START_TEST(test_take_free_lane_runs)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_uint_eq(page->lanes[0], 1);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_RUNNING);
	ck_assert_uint_eq(page->tenants[0].nactive, 1);
	gantry_share_give(page, 0, 0, false);
	ck_assert_uint_eq(page->lanes[0], 0);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_IDLE);
	ck_assert_uint_eq(page->tenants[0].nactive, 0);
}
END_TEST

START_TEST(test_take_held_lane_refused)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(2, 9), -EAGAIN);
	ck_assert_uint_eq(page->sessions[2].state, GANTRY_SHARE_WAITING);
}
END_TEST

START_TEST(test_take_orders_by_priority_tenant_session_index)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_charge(page, 0, 1000);
	gantry_share_charge(page, 3, 10);
	gantry_share_want(page, 1, 0);
	gantry_share_want(page, 3, 0);
	gantry_share_want(page, 2, 0);
	gantry_share_give(page, 0, 0, true);

	/* Tenant 1 used less; of its sessions 2 used less. */
	ck_assert_int_eq(gantry_share_take(page, 0), -EAGAIN);
	ck_assert_int_eq(gantry_share_take(page, 1), -EAGAIN);
	ck_assert_int_eq(gantry_share_take(page, 3), -EAGAIN);
	/* Unless somebody is more urgent. */
	gantry_share_want(page, 1, 5);
	ck_assert_int_eq(gantry_share_take(page, 2), -EAGAIN);
	ck_assert_int_eq(gantry_share_take(page, 1), 0);
	gantry_share_give(page, 1, 0, false);
	ck_assert_int_eq(gantry_share_take(page, 3), -EAGAIN);
	ck_assert_int_eq(gantry_share_take(page, 2), 0);
}
END_TEST

START_TEST(test_take_equals_lower_index_first)
{
	gantry_share_want(page, 3, 0);
	gantry_share_want(page, 2, 0);
	ck_assert_int_eq(gantry_share_take(page, 3), -EAGAIN);
	ck_assert_int_eq(gantry_share_take(page, 2), 0);
}
END_TEST

START_TEST(test_give_calls_best_waiter_only)
{
	uint32_t ticket1;
	uint32_t ticket2;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(1, 0), -EAGAIN);
	ck_assert_int_eq(want_and_take(2, 1), -EAGAIN);
	ticket1 = gantry_share_ticket(page, 1);
	ticket2 = gantry_share_ticket(page, 2);
	gantry_share_give(page, 0, 0, false);
	ck_assert(!was_called(1, ticket1));
	ck_assert(was_called(2, ticket2));
}
END_TEST

START_TEST(test_give_foreign_lane_ignored)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_give(page, 2, 0, false);
	gantry_share_give(page, 0, -1, false);
	gantry_share_give(page, 0, 64, false);
	gantry_share_give(page, 0, INT32_MAX, false);
	ck_assert_uint_eq(page->lanes[0], 1);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_RUNNING);
}
END_TEST

START_TEST(test_leave_passes_the_turn_on)
{
	uint32_t ticket;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(2, 1), -EAGAIN);
	ck_assert_int_eq(want_and_take(1, 0), -EAGAIN);
	gantry_share_give(page, 0, 0, false);
	ticket = gantry_share_ticket(page, 1);
	gantry_share_leave(page, 2);
	ck_assert(was_called(1, ticket));
	ck_assert_uint_eq(page->sessions[2].state, GANTRY_SHARE_IDLE);
	ck_assert_int_eq(gantry_share_take(page, 1), 0);
}
END_TEST

START_TEST(test_take_refused_calls_who_comes_first)
{
	uint32_t ticket;

	gantry_share_want(page, 2, 1);
	ticket = gantry_share_ticket(page, 2);
	ck_assert_int_eq(want_and_take(0, 0), -EAGAIN);
	ck_assert(was_called(2, ticket));
}
END_TEST

START_TEST(test_take_best_waiter_absent_passed_over_after_patience)
{
	gantry_share_want(page, 2, 1);
	ck_assert_int_eq(want_and_take(0, 0), -EAGAIN);
	now_ns += GANTRY_SHARE_PATIENCE_NS - 10 * GANTRY_NS_PER_US;
	ck_assert_int_eq(gantry_share_take(page, 0), -EAGAIN);
	now_ns += 20 * GANTRY_NS_PER_US;
	ck_assert_int_eq(gantry_share_take(page, 0), 0);
}
END_TEST

START_TEST(test_take_best_waiter_that_answers_keeps_its_turn)
{
	page->hdr.nlanes = 2;
	ck_assert_int_eq(want_and_take(1, 0), 0);
	gantry_share_want(page, 2, 1);
	ck_assert_int_eq(want_and_take(0, 0), -EAGAIN);
	now_ns += GANTRY_SHARE_PATIENCE_NS - 10 * GANTRY_NS_PER_US;
	gantry_share_want(page, 2, 1);
	now_ns += 20 * GANTRY_NS_PER_US;
	ck_assert_int_eq(gantry_share_take(page, 0), -EAGAIN);
	ck_assert_int_ge(gantry_share_take(page, 2), 0);
}
END_TEST

START_TEST(test_take_after_absence_has_no_credit)
{
	gantry_share_want(page, 2, 0);
	gantry_share_charge(page, 0, 1); /* so that it comes after 2 */
	ck_assert_int_eq(want_and_take(0, 0), -EAGAIN);
	now_ns += 2 * GANTRY_SHARE_PATIENCE_NS;
	ck_assert_int_eq(gantry_share_take(page, 0), 0);
	gantry_share_charge(page, 0, GANTRY_NS_PER_S);
	ck_assert_int_eq(gantry_share_take(page, 2), -EAGAIN);
	ck_assert_uint_ge(page->tenants[1].vtime_ns, GANTRY_NS_PER_S);
}
END_TEST

START_TEST(test_want_after_idleness_lifts_to_least_active)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_charge(page, 0, 5000);
	gantry_share_want(page, 2, 0);
	ck_assert_uint_eq(page->tenants[1].vtime_ns, 5000);
	/* Never lowered; its tenant is active now, so only the session moves. */
	gantry_share_charge(page, 2, 700);
	gantry_share_want(page, 3, 0);
	ck_assert_uint_eq(page->tenants[1].vtime_ns, 5700);
	ck_assert_uint_eq(page->sessions[3].vtime_ns, 700);
}
END_TEST

START_TEST(test_want_nobody_active_starts_at_greatest)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_charge(page, 0, 5000);
	gantry_share_give(page, 0, 0, false);
	gantry_share_want(page, 2, 0);
	/* Tenant 0 used what nobody else wanted: it owes tenant 1 nothing for that. */
	ck_assert_uint_eq(page->tenants[1].vtime_ns, 5000);
	gantry_share_want(page, 1, 0);
	ck_assert_uint_eq(page->sessions[1].vtime_ns, 5000);
}
END_TEST

START_TEST(test_charge_divides_by_weight_and_is_bounded)
{
	gantry_share_set_tenant(page, 0, 300);
	gantry_share_charge(page, 0, 3000);
	ck_assert_uint_eq(page->tenants[0].vtime_ns, 1000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 3000);
	ck_assert_uint_eq(page->sessions[0].vtime_ns, 3000);
	gantry_share_charge(page, 0, UINT64_MAX);
	ck_assert_uint_lt(page->tenants[0].vtime_ns, UINT64_MAX / 2);
	/* A page that lies about the weight divides by no zero. */
	page->tenants[0].weight = 0;
	gantry_share_charge(page, 0, 1);
	page->tenants[0].weight = UINT32_MAX;
	gantry_share_charge(page, 0, 1);
}
END_TEST

START_TEST(test_charge_of_a_part_is_its_part_while_nobody_waits)
{
	gantry_share_charge_part(page, 0, 4000, 3000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 1000);
	ck_assert_uint_eq(page->sessions[0].vtime_ns, 1000);
	/* A part of no more than there was. */
	gantry_share_charge_part(page, 0, 4000, 4001);
	ck_assert_uint_eq(page->tenants[0].device_ns, 5000);
	/* Another wants a lane, and was not refused yet. */
	gantry_share_want(page, 1, 0);
	gantry_share_charge_part(page, 0, 4000, 3000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 6000);
}
END_TEST

START_TEST(test_charge_of_a_part_is_all_where_others_wait_for_the_lane)
{
	gantry_share_want(page, 0, 0);
	while (gantry_share_take(page, 0) >= 0)
		gantry_share_want(page, 0, 0);
	/* What it wants itself and does not get is nobody else's. */
	gantry_share_charge_part(page, 0, 4000, 3000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 1000);
	gantry_share_want(page, 1, 0);
	ck_assert_int_lt(gantry_share_take(page, 1), 0);
	gantry_share_charge_part(page, 0, 4000, 3000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 5000);
	gantry_share_leave(page, 1);
	gantry_share_charge_part(page, 0, 4000, 3000);
	ck_assert_uint_eq(page->tenants[0].device_ns, 6000);
}
END_TEST

START_TEST(test_must_yield_nobody_waits_is_false_and_quiet)
{
	uint32_t seen = 0;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	ck_assert_uint_eq(seen, page->hdr.arrivals);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_must_yield_higher_priority_waits_is_true)
{
	uint32_t seen = 0;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_want(page, 2, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
	ck_assert(gantry_share_must_yield(page, 0, &seen));
	gantry_share_want(page, 2, -1);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_want(page, 2, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
	gantry_share_leave(page, 2);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_must_yield_tenant_lead_past_slice_is_true)
{
	uint32_t seen = 0;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_want(page, 2, 0);
	gantry_share_charge(page, 0, GANTRY_SHARE_SLICE_NS);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_charge(page, 0, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_must_yield_session_lead_past_slice_is_true)
{
	uint32_t seen = 0;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_want(page, 1, 0);
	gantry_share_charge(page, 0, GANTRY_SHARE_SLICE_NS);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_charge(page, 0, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_must_yield_same_worker_shorter_slice)
{
	uint32_t seen = 0;

	gantry_share_admit(page, 2, 1, 0);
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_want(page, 2, 0);
	gantry_share_charge(page, 0, GANTRY_SHARE_SLICE_SAME_WORKER_NS);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_charge(page, 0, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_must_yield_lane_free_for_waiter_is_false)
{
	uint32_t seen = 0;

	page->hdr.nlanes = 2;
	ck_assert_int_eq(want_and_take(0, 0), 0);
	gantry_share_want(page, 2, 1);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_want(page, 3, 1);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
}
END_TEST

START_TEST(test_lanes_one_session_holds_several)
{
	page->hdr.nlanes = 3;
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(0, 0), 1);
	gantry_share_give(page, 0, 0, false);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_RUNNING);
	gantry_share_want(page, 0, 0);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_RUNNING);
	gantry_share_give(page, 0, 1, false);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_WAITING);
	gantry_share_leave(page, 0);
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_IDLE);
	ck_assert_uint_eq(page->tenants[0].nactive, 0);
}
END_TEST

START_TEST(test_give_two_lanes_calls_two_waiters)
{
	uint32_t ticket1;
	uint32_t ticket2;

	page->hdr.nlanes = 2;
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(0, 0), 1);
	ck_assert_int_eq(want_and_take(2, 0), -EAGAIN);
	ck_assert_int_eq(want_and_take(1, 0), -EAGAIN);
	ticket1 = gantry_share_ticket(page, 1);
	ticket2 = gantry_share_ticket(page, 2);
	gantry_share_give(page, 0, 0, false);
	gantry_share_give(page, 0, 1, false);
	ck_assert(was_called(1, ticket1));
	ck_assert(was_called(2, ticket2));
}
END_TEST

START_TEST(test_bury_frees_lanes_and_calls_waiters)
{
	uint32_t ticket;

	page->hdr.nlanes = 2;
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(0, 0), 1);
	gantry_share_want(page, 0, 0);
	ck_assert_int_eq(want_and_take(2, 0), -EAGAIN);
	ticket = gantry_share_ticket(page, 2);
	ck_assert_uint_eq(gantry_share_bury(page, 0), 2);
	ck_assert(was_called(2, ticket));
	ck_assert_uint_eq(page->sessions[0].state, GANTRY_SHARE_IDLE);
	ck_assert_int_eq(gantry_share_take(page, 2), 0);
	ck_assert_uint_eq(gantry_share_bury(page, 0), 0);
	ck_assert_uint_eq(gantry_share_bury(page, UINT32_MAX), 0);
}
END_TEST

START_TEST(test_dismiss_frees_lane_and_entry)
{
	ck_assert_int_eq(want_and_take(3, 0), 0);
	gantry_share_dismiss(page, 3);
	ck_assert_uint_eq(page->lanes[0], 0);
	ck_assert_uint_eq(page->hdr.nsessions, 3);
	ck_assert_uint_eq(page->tenants[1].nactive, 0);
	gantry_share_dismiss(page, 1);
	ck_assert_uint_eq(page->hdr.nsessions, 3);
	gantry_share_dismiss(page, 2);
	ck_assert_uint_eq(page->hdr.nsessions, 1);
}
END_TEST

START_TEST(test_watch_the_first_who_wants_tells_and_only_that_one)
{
	uint32_t held, waiting;

	ck_assert(!gantry_share_is_busy(page));
	gantry_share_watch(page);
	ck_assert(!gantry_share_is_busy(page));
	gantry_share_want(page, 0, 0);
	ck_assert(gantry_share_tells(page));
	ck_assert(!gantry_share_tells(page));
	gantry_share_want(page, 1, 0);
	ck_assert(!gantry_share_tells(page));
	/* Who asks to be told looks afterwards: of those that are there already nobody tells. */
	gantry_share_watch(page);
	ck_assert(gantry_share_is_busy(page));
	ck_assert_int_ge(gantry_share_take(page, 0), 0);
	gantry_share_count(page, &held, &waiting);
	ck_assert_uint_eq(held, 1);
	ck_assert_uint_eq(waiting, 1);
}
END_TEST

START_TEST(test_disable_nobody_takes_and_holders_yield)
{
	uint32_t seen = 0;
	uint32_t ticket;

	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert(!gantry_share_must_yield(page, 0, &seen));
	gantry_share_disable(page, true);
	ck_assert(gantry_share_must_yield(page, 0, &seen));
	gantry_share_give(page, 0, 0, true);
	ck_assert_int_eq(gantry_share_take(page, 0), -EAGAIN);
	ticket = gantry_share_ticket(page, 0);
	gantry_share_disable(page, false);
	ck_assert(was_called(0, ticket));
	ck_assert_int_eq(gantry_share_take(page, 0), 0);
}
END_TEST

START_TEST(test_page_lies_numbers_are_bounded)
{
	page->hdr.nlanes = UINT32_MAX;
	page->hdr.nsessions = UINT32_MAX;
	page->sessions[0].tenant = UINT32_MAX;
	page->sessions[0].worker = UINT32_MAX;
	page->sessions[2].worker = UINT32_MAX;
	for (uint32_t i = 0; i < GANTRY_SHARE_NLANES; i++)
		page->lanes[i] = UINT32_MAX;
	ck_assert_int_eq(want_and_take(0, 0), -EAGAIN);
	page->lanes[63] = 0;
	gantry_share_want(page, 2, 0);
	ck_assert_int_eq(gantry_share_take(page, 0), 63);
	gantry_share_charge(page, 0, 1);
	gantry_share_give(page, 0, 63, true);
	gantry_share_nudge(page, UINT32_MAX);
}
END_TEST

START_TEST(test_wait_counted_only_when_refused)
{
	ck_assert_int_eq(want_and_take(0, 0), 0);
	ck_assert_int_eq(want_and_take(2, 0), -EAGAIN);
	now_ns += 12345;
	gantry_share_give(page, 0, 0, false);
	ck_assert_int_eq(gantry_share_take(page, 2), 0);
	ck_assert_uint_eq(page->sessions[0].waits, 0);
	ck_assert_uint_eq(page->sessions[2].waits, 1);
	ck_assert_uint_eq(page->sessions[2].wait_ns, 12345);
}
END_TEST

/* Waits for lane @lane and no other. */
static int want_lane(uint32_t session, uint32_t lane, int32_t priority)
{
	gantry_share_accept(page, session, 1ull << lane);
	gantry_share_want(page, session, priority);
	return gantry_share_take_of(page, session, 1ull << lane);
}

START_TEST(test_take_of_takes_that_lane)
{
	page->hdr.nlanes = 3;
	ck_assert_int_eq(want_lane(0, 2, 0), 2);
	ck_assert_int_eq(want_and_take(1, 0), 0);
	ck_assert_int_eq(want_lane(2, 2, 0), -EAGAIN);
	ck_assert_uint_eq(page->lanes[1], 0);
	gantry_share_give(page, 0, 2, false);
	ck_assert_int_eq(gantry_share_take_of(page, 2, 1u << 2), 2);
}
END_TEST

START_TEST(test_take_nobody_stands_back_for_one_whose_lane_is_held)
{
	uint32_t ticket;

	page->hdr.nlanes = 2;
	ck_assert_int_eq(want_lane(0, 0, 0), 0);
	ck_assert_int_eq(want_lane(2, 0, 5), -EAGAIN);
	ticket = gantry_share_ticket(page, 2);
	ck_assert_int_eq(want_and_take(1, 0), 1);
	gantry_share_give(page, 1, 1, false);
	ck_assert(!was_called(2, ticket));
	gantry_share_give(page, 0, 0, false);
	ck_assert(was_called(2, ticket));
	/* Now it comes first, and others do stand back. */
	ck_assert_int_eq(want_and_take(1, 0), 1);
	ck_assert_int_eq(want_and_take(3, 0), -EAGAIN);
	ck_assert_int_eq(gantry_share_take_of(page, 2, 1), 0);
}
END_TEST

START_TEST(test_must_yield_only_who_holds_the_lane_that_is_waited_for)
{
	uint32_t seen[2] = { 0, 0 };

	page->hdr.nlanes = 3;
	ck_assert_int_eq(want_lane(0, 0, 0), 0);
	ck_assert_int_eq(want_and_take(1, 0), 1);
	ck_assert_int_eq(want_lane(2, 0, 5), -EAGAIN);
	ck_assert(gantry_share_must_yield(page, 0, &seen[0]));
	ck_assert(!gantry_share_must_yield(page, 1, &seen[1]));
	/* It will do with any by now: one is free. */
	gantry_share_accept(page, 2, 0);
	ck_assert(!gantry_share_must_yield(page, 0, &seen[0]));
	ck_assert_int_eq(gantry_share_take(page, 2), 2);
}
END_TEST

START_TEST(test_sleep_after_call_returns_at_once)
{
	uint32_t ticket = gantry_share_ticket(page, 0);

	/* The test's clock is in the kernel's past or future: only the ticket can end this. */
	now_ns = GANTRY_DEADLINE_NEVER - GANTRY_NS_PER_S;
	gantry_share_nudge(page, 0);
	gantry_share_sleep(page, 0, ticket, GANTRY_DEADLINE_NEVER);
	ck_assert_uint_eq(page->workers[0].asleep, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share");
	TCase *tc = gantry_unit_case(suite, "steps");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_create_lanes_out_of_range_refused);
	tcase_add_test(tc, test_open_sees_what_create_made);
	tcase_add_test(tc, test_open_damaged_page_refused);
	tcase_add_test(tc, test_open_unsealed_or_small_memfd_refused);
	tcase_add_test(tc, test_take_free_lane_runs);
	tcase_add_test(tc, test_take_held_lane_refused);
	tcase_add_test(tc, test_take_orders_by_priority_tenant_session_index);
	tcase_add_test(tc, test_take_equals_lower_index_first);
	tcase_add_test(tc, test_give_calls_best_waiter_only);
	tcase_add_test(tc, test_give_foreign_lane_ignored);
	tcase_add_test(tc, test_leave_passes_the_turn_on);
	tcase_add_test(tc, test_take_refused_calls_who_comes_first);
	tcase_add_test(tc, test_take_best_waiter_absent_passed_over_after_patience);
	tcase_add_test(tc, test_take_best_waiter_that_answers_keeps_its_turn);
	tcase_add_test(tc, test_take_after_absence_has_no_credit);
	tcase_add_test(tc, test_want_after_idleness_lifts_to_least_active);
	tcase_add_test(tc, test_want_nobody_active_starts_at_greatest);
	tcase_add_test(tc, test_charge_divides_by_weight_and_is_bounded);
	tcase_add_test(tc, test_charge_of_a_part_is_its_part_while_nobody_waits);
	tcase_add_test(tc, test_charge_of_a_part_is_all_where_others_wait_for_the_lane);
	tcase_add_test(tc, test_must_yield_nobody_waits_is_false_and_quiet);
	tcase_add_test(tc, test_must_yield_higher_priority_waits_is_true);
	tcase_add_test(tc, test_must_yield_tenant_lead_past_slice_is_true);
	tcase_add_test(tc, test_must_yield_session_lead_past_slice_is_true);
	tcase_add_test(tc, test_must_yield_same_worker_shorter_slice);
	tcase_add_test(tc, test_must_yield_lane_free_for_waiter_is_false);
	tcase_add_test(tc, test_take_of_takes_that_lane);
	tcase_add_test(tc, test_take_nobody_stands_back_for_one_whose_lane_is_held);
	tcase_add_test(tc, test_must_yield_only_who_holds_the_lane_that_is_waited_for);
	tcase_add_test(tc, test_lanes_one_session_holds_several);
	tcase_add_test(tc, test_give_two_lanes_calls_two_waiters);
	tcase_add_test(tc, test_bury_frees_lanes_and_calls_waiters);
	tcase_add_test(tc, test_dismiss_frees_lane_and_entry);
	tcase_add_test(tc, test_watch_the_first_who_wants_tells_and_only_that_one);
	tcase_add_test(tc, test_disable_nobody_takes_and_holders_yield);
	tcase_add_test(tc, test_page_lies_numbers_are_bounded);
	tcase_add_test(tc, test_wait_counted_only_when_refused);
	tcase_add_test(tc, test_sleep_after_call_returns_at_once);
	return gantry_unit_run(suite);
}
