/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps a session on its host: memory that another session there uses too, and addresses that its program knows. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/list.h"
#include "guest-shim/gantry.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/session.h"
#include "tests/unit/runner.h"

#define SESSIONS 65u

static struct gantry_agent agent;
static struct gantry_ledger_header header;
static struct gantry_session *sessions[SESSIONS];
static struct gantry_err err;

static void set_up(void)
{
	gantry_list_init(&agent.sessions);
	gantry_list_init(&agent.handovers);
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(sessions); i++) {
		struct gantry_session *s = calloc(1, sizeof(*s));

		s->agent = &agent;
		s->id = i + 1;
		s->ledger.hdr = &header;
		s->ledger.objects = calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*s->ledger.objects));
		gantry_list_init(&s->link);
		gantry_list_push_back(&agent.sessions, &s->link);
		sessions[i] = s;
	}
}

static void tear_down(void)
{
	for (uint32_t i = 0; i < GANTRY_ARRAY_SIZE(sessions); i++) {
		free(sessions[i]->ledger.objects);
		free(sessions[i]);
	}
}

static void own(uint32_t session, uint32_t slot, uint64_t share_id)
{
	sessions[session]->ledger.objects[slot] = (struct gantry_ledger_object){
		.state = GANTRY_OBJECT_LIVE,
		.type = GANTRY_HANDLE_BUFFER,
		.buffer = { .place = GANTRY_PLACE_OWN,
			    .share_id = share_id,
			    .bytes = 1,
			    .alloc_flags = GANTRY_ALLOC_SHARED },
	};
}

static int ties(void)
{
	memset(&err, 0, sizeof(err));
	return gantry_handover_ties(sessions[0], &err);
}

START_TEST(test_ties_of_a_session_that_shares_with_nobody_are_none)
{
	ck_assert_int_eq(ties(), 0);
	own(0, 3, 33);
	own(0, 4, 32);
	own(0, GANTRY_LEDGER_NOBJECTS - 1, 35);
	own(5, 7, 34);
	ck_assert_int_eq(ties(), 0);
	ck_assert_str_eq(err.text, "");
}
END_TEST

START_TEST(test_ties_name_the_buffer_and_the_session_that_stays)
{
	for (uint32_t i = 0; i < 100; i++)
		own(0, i, 1000 - i);
	own(64, 8191, 1000 - 73);
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err.text, "its buffer 73 is shared with session 65"));
	own(64, 8191, 1000 - 100);
	ck_assert_int_eq(ties(), 0);
}
END_TEST

START_TEST(test_ties_of_memory_adopted_twice_name_both_buffers)
{
	own(0, 20, 9);
	own(0, 4, 7);
	own(0, 11, 9);
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err.text, "its buffers 11 and 20 are the same memory"));
}
END_TEST

START_TEST(test_ties_of_addresses_that_a_program_knows)
{
	own(0, 6, 9);
	sessions[0]->ledger.objects[6].buffer.place = GANTRY_PLACE_WINDOW;
	ck_assert_int_eq(ties(), 0);
	sessions[0]->ledger.objects[6].buffer.alloc_flags = GANTRY_ALLOC_FIXED;
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err.text, "buffer 6 has a device address"));
	sessions[0]->ledger.objects[6].buffer.alloc_flags = 0;
	sessions[0]->ledger.objects[6].buffer.place = GANTRY_PLACE_IMAGE;
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
	sessions[0]->ledger.objects[6].buffer.place = GANTRY_PLACE_RANGE;
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
}
END_TEST

START_TEST(test_ties_of_devices_that_have_each_other_s_numbers)
{
	header.places = gantry_ledger_exchange(0, 0, 1);
	ck_assert_int_eq(ties(), GANTRY_ADMIN_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err.text, "numbers are exchanged"));
	header.places = gantry_ledger_exchange(header.places, 0, 1);
	ck_assert_int_eq(ties(), 0);
}
END_TEST

static uint64_t cpu_ns(void)
{
	struct timespec t;

	ck_assert_int_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * GANTRY_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* All objects of each session were looked at for each buffer: the agent did nothing else for seconds. */
START_TEST(test_ties_of_thousands_of_buffers_beside_many_sessions_take_no_time)
{
	uint64_t one, all;

	own(0, 0, 1);
	one = cpu_ns();
	ck_assert_int_eq(ties(), 0);
	one = cpu_ns() - one;
	for (uint32_t i = 0; i < 4000; i++)
		own(0, i, i + 1);
	all = cpu_ns();
	ck_assert_int_eq(ties(), 0);
	all = cpu_ns() - all;
	ck_assert_msg(all < 20 * one + GANTRY_NS_PER_S / 10,
		      "%llu us for one buffer, %llu for 4000", (unsigned long long)one / 1000,
		      (unsigned long long)all / 1000);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ties");
	TCase *tc = gantry_unit_case(suite, "ties");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, test_ties_of_a_session_that_shares_with_nobody_are_none);
	tcase_add_test(tc, test_ties_name_the_buffer_and_the_session_that_stays);
	tcase_add_test(tc, test_ties_of_memory_adopted_twice_name_both_buffers);
	tcase_add_test(tc, test_ties_of_addresses_that_a_program_knows);
	tcase_add_test(tc, test_ties_of_devices_that_have_each_other_s_numbers);
	tcase_add_test(tc, test_ties_of_thousands_of_buffers_beside_many_sessions_take_no_time);
	return gantry_unit_run(suite);
}
