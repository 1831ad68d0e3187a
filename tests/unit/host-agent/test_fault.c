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
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "migration/ledger.h"
#include "proto/wire.h"
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

/* ---- several in one context ---- */

static struct gantry_quota_page quotas[2]; /* that sessions give back to as they end */
static struct gantry_tenant blue = { .conf.name = "blue" };

/* A session of the culprit's worker with a launch in flight on @device. */
static struct gantry_session *at_work(struct gantry_tenant *t, uint64_t id, uint32_t device)
{
	struct gantry_session *s = gantry_session_blank(a, t, id);
	struct gantry_ledger_queue *q;

	ck_assert_int_eq(gantry_ledger_create(id, t->conf.name, 2, 16, 1 << 20, 1 << 20, &s->ledger,
					      &s->ledger_fd, NULL),
			 0);
	q = &s->ledger.queues[1];
	q->state = GANTRY_QUEUE_OPEN;
	q->device = device;
	q->taken = q->issued = 1;
	gantry_ledger_task(&s->ledger, 1, 0)->desc.op = GANTRY_OP_launch;
	gantry_worker_enlist(culprit, s);
	return s;
}

static void begin_together(void)
{
	begin();
	red.conf.isolation = blue.conf.isolation = GANTRY_POOLED;
	(void)snprintf(red.conf.trust_group, sizeof(red.conf.trust_group), "lab");
	(void)snprintf(blue.conf.trust_group, sizeof(blue.conf.trust_group), "lab");
	red.device_faults = blue.device_faults = 0;
	blue.agent = a;
	red.quota = &quotas[0];
	blue.quota = &quotas[1];
	gantry_list_init(&blue.waiting);
	culprit->class.mode = GANTRY_POOLED;
}

static void context_fails(void)
{
	Gantry__Worker__DeviceFault msg = GANTRY__WORKER__DEVICE_FAULT__INIT;

	msg.device = (char *)(uintptr_t) "gpu0";
	msg.blast = GANTRY_BLAST_CONTEXT;
	msg.text = (char *)(uintptr_t) "an illegal address";
	gantry_fault_told(culprit, &msg);
}

START_TEST(test_fault_of_one_in_flight_is_its_own)
{
	struct gantry_session *s;

	begin_together();
	s = at_work(&red, 8, 0);
	(void)at_work(&blue, 9, 1);
	context_fails();
	ck_assert_int_eq(s->verdict, GANTRY_E_DEVICE_FAULT);
	ck_assert(!s->apart);
	ck_assert_uint_eq(red.device_faults, 1);
	ck_assert_uint_eq(blue.device_faults, 0);
	finish();
}
END_TEST

/* Who finds out first is not for that the one who did it. */
START_TEST(test_fault_of_a_part_is_of_all_who_are_at_work_on_the_gpu)
{
	struct gantry_session *one, *other;

	begin_together();
	for (uint32_t i = 0; i < 2; i++)
		(void)snprintf(a->devices[i].id, sizeof(a->devices[i].id), "GPU-1");
	one = at_work(&red, 8, 0);
	other = at_work(&blue, 9, 1);
	context_fails();
	ck_assert_int_eq(one->verdict, 0);
	ck_assert_int_eq(other->verdict, 0);
	ck_assert_uint_eq(one->nsuspected, 1);
	ck_assert_uint_eq(other->nsuspected, 1);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault");
	TCase *tc = gantry_unit_case(suite, "told");

	tcase_add_test(tc, test_fault_told_gives_up_the_turn_on_its_device_and_no_other);
	tcase_add_test(tc, test_fault_of_a_device_that_nobody_knows_frees_nothing);
	tcase_add_test(tc, test_fault_of_one_in_flight_is_its_own);
	tcase_add_test(tc, test_fault_of_a_part_is_of_all_who_are_at_work_on_the_gpu);
	return gantry_unit_run(suite);
}
