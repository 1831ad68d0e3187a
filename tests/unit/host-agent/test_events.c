/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of what happens, and how much of it one tenant may have told. */
#include "host-agent/agent/events.h"

#include <string.h>

#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/tenant.h"
#include "tests/unit/runner.h"

static struct gantry_agent agent;
static struct gantry_tenant red, blue;
static struct gantry_event_entry entries[GANTRY_EVENTS_KEPT];

static void set_up(void)
{
	agent.events = entries;
	(void)gantry_str_copy(red.conf.name, sizeof(red.conf.name), "red");
	(void)gantry_str_copy(blue.conf.name, sizeof(blue.conf.name), "blue");
}

START_TEST(test_event_of_a_device_names_it)
{
	gantry_event_device(&agent, "device-changed", "gpu0", NULL, NULL, "%s is off", "gpu0");
	gantry_event(&agent, "image-added", NULL, NULL, NULL, "one");
	ck_assert_uint_eq(agent.nevents, 2);
	ck_assert_str_eq(agent.events[0].kind, "device-changed");
	ck_assert_str_eq(agent.events[0].device, "gpu0");
	ck_assert_str_eq(agent.events[0].text, "gpu0 is off");
	ck_assert_str_eq(agent.events[1].device, "");
}
END_TEST

/* Each session may name 64 functions, and a tenant have as many sessions as it likes, one after the other. */
START_TEST(test_events_that_guests_provoke_leave_room_for_others)
{
	static const char *const kinds[] = { "call-missing", "attach-failed" };

	gantry_event(&agent, "image-added", NULL, NULL, NULL, "one");
	for (uint32_t i = 0; i < 2 * GANTRY_EVENTS_KEPT; i++)
		gantry_event(&agent, kinds[_i], &red, NULL, NULL, "function %u", i);
	ck_assert_uint_lt(agent.nevents, GANTRY_EVENTS_KEPT);
	ck_assert_str_eq(agent.events[0].kind, "image-added");
	gantry_event(&agent, kinds[_i], &blue, NULL, NULL, "of another");
	ck_assert_str_eq(agent.events[agent.nevents - 1].tenant, "blue");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("events");
	TCase *tc = gantry_unit_case(suite, "events");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, test_event_of_a_device_names_it);
	tcase_add_loop_test(tc, test_events_that_guests_provoke_leave_room_for_others, 0, 2);
	return gantry_unit_run(suite);
}
