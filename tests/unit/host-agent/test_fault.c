/* SPDX-License-Identifier: Apache-2.0 */
/* What a fault that is told sets free at once, and what only the end of the process does. */
#include <event2/event.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "devices/device.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

#define CULPRIT	 2u /* owners in the share pages */
#define INNOCENT 3u

static struct gantry_agent agent;
static struct gantry_agent *const a = &agent;
static struct gantry_tenant red = { .conf.name = "red" };
static struct gantry_worker *culprit;

static void new_device(uint32_t i, const char *name)
{
	struct gantry_agent_device *d = &a->devices[i];

	*d = (struct gantry_agent_device){ .used = true, .state = GANTRY_DEVICE_ENABLED };
	(void)snprintf(d->conf.name, sizeof(d->conf.name), "%s", name);
	ck_assert_int_eq(gantry_share_create(name, 1, 0, &d->page, &d->page_fd, NULL), 0);
	gantry_share_set_gpu(d->page, true, 0);
	for (uint32_t session = 0; session < 2; session++) {
		gantry_share_admit(d->page, session, 0, session ? INNOCENT : CULPRIT);
		gantry_share_set_party(d->page, session, session + 1);
	}
}

static void begin(void)
{
	const struct gantry_worker_class class = { .mode = GANTRY_ISOLATED };
	struct gantry_session *s;

	agent = (struct gantry_agent){ .base = event_base_new(), .ndevices = 2 };
	gantry_agent_blank(&agent);
	agent.events = calloc(GANTRY_EVENTS_KEPT, sizeof(*agent.events));
	agent.config = gantry_config_new();
	gantry_store_init(&agent.handed, true);
	red.agent = a;
	gantry_list_init(&red.waiting);
	new_device(0, "gpu0");
	new_device(1, "gpu1");
	culprit = gantry_worker_new(a, 1, CULPRIT, &class);
	culprit->state = GANTRY_WORKER_BUSY;
	s = gantry_session_blank(a, &red, 7);
	gantry_worker_enlist(culprit, s);
}

static void finish(void)
{
	gantry_list_for_each_safe(&culprit->sessions, struct gantry_session, worker_link, s)
		gantry_worker_release(culprit, s);
	gantry_worker_free(culprit);
	gantry_list_for_each_safe(&a->sessions, struct gantry_session, link, s)
		gantry_session_free(s);
	for (uint32_t i = 0; i < a->ndevices; i++) {
		gantry_share_close(a->devices[i].page);
		gantry_fd_close(a->devices[i].page_fd);
	}
	gantry_event_free(&a->journal_event);
	gantry_event_free(&a->warm_timer);
	gantry_store_fini(&a->handed);
	gantry_store_fini(&a->kept);
	gantry_config_free(a->config);
	free(a->events);
	event_base_free(a->base);
}

static int take(uint32_t device, uint32_t session)
{
	gantry_share_want(a->devices[device].page, session, 0);
	return gantry_share_take(a->devices[device].page, session);
}

/* Its process may be in the driver's hands for long; whose turn it is on the device need not wait for that. */
START_TEST(test_fault_told_gives_up_the_turn_on_its_device_and_no_other)
{
	Gantry__Worker__DeviceFault msg = GANTRY__WORKER__DEVICE_FAULT__INIT;

	begin();
	ck_assert_int_ge(take(0, 0), 0);
	ck_assert_int_ge(take(1, 0), 0);
	ck_assert_int_lt(take(0, 1), 0);
	ck_assert_int_lt(take(1, 1), 0);
	msg.device = (char *)(uintptr_t) "gpu0";
	msg.blast = GANTRY_BLAST_CONTEXT;
	msg.text = (char *)(uintptr_t) "an illegal address";
	gantry_fault_told(culprit, &msg);
	ck_assert(culprit->faulted && culprit->faulted_ns > 0);
	ck_assert(!culprit->dead);
	ck_assert_uint_eq(culprit->nsessions, 1);
	ck_assert_int_ge(take(0, 1), 0);
	/* Another device's thread of the worker may be at work there until the process is gone. */
	ck_assert_int_lt(take(1, 1), 0);
	finish();
}
END_TEST

/* A name that the agent does not have: the worker is faulted all the same, and nobody's turn ends. */
START_TEST(test_fault_of_a_device_that_nobody_knows_frees_nothing)
{
	Gantry__Worker__DeviceFault msg = GANTRY__WORKER__DEVICE_FAULT__INIT;

	begin();
	ck_assert_int_ge(take(0, 0), 0);
	msg.device = (char *)(uintptr_t) "gpu7";
	msg.blast = GANTRY_BLAST_CONTEXT;
	msg.text = (char *)(uintptr_t) "";
	gantry_fault_told(culprit, &msg);
	ck_assert(culprit->faulted);
	ck_assert_int_lt(take(0, 1), 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault");
	TCase *tc = gantry_unit_case(suite, "told");

	tcase_add_test(tc, test_fault_told_gives_up_the_turn_on_its_device_and_no_other);
	tcase_add_test(tc, test_fault_of_a_device_that_nobody_knows_frees_nothing);
	return gantry_unit_run(suite);
}
