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

/* A session of the culprit's worker with a task of @op in flight on gpu0. */
static struct gantry_session *at_work(struct gantry_tenant *t, uint64_t id, uint16_t op,
				      bool may_be_tried)
{
	struct gantry_session *s = gantry_session_blank(a, t, id);
	struct gantry_ledger_queue *q;

	ck_assert_int_eq(gantry_ledger_create(id, t->conf.name, 2, 16, 1 << 20, 1 << 20, &s->ledger,
					      &s->ledger_fd, NULL),
			 0);
	q = &s->ledger.queues[1];
	q->state = GANTRY_QUEUE_OPEN;
	q->taken = q->issued = 1;
	q->trial = may_be_tried;
	gantry_ledger_task(&s->ledger, 1, 0)->desc.op = op;
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

START_TEST(test_fault_of_one_in_flight_is_its_own_and_nobody_is_tried)
{
	struct gantry_session *s;

	begin_together();
	s = at_work(&red, 8, GANTRY_OP_launch, true);
	context_fails();
	ck_assert_int_eq(s->verdict, GANTRY_E_DEVICE_FAULT);
	ck_assert(!s->apart && s->on_trial == GANTRY_TRIAL_NONE);
	ck_assert_uint_eq(red.device_faults, 1);
	finish();
}
END_TEST

/* What the one is found guilty of counts once, and the other is suspected no more. */
START_TEST(test_fault_of_several_is_tried_and_counts_once)
{
	struct gantry_session *guilty, *other;

	begin_together();
	guilty = at_work(&red, 8, GANTRY_OP_launch, true);
	other = at_work(&blue, 9, GANTRY_OP_launch, true);
	context_fails();
	ck_assert_int_eq(guilty->verdict, GANTRY_E_IN_DOUBT);
	ck_assert_int_eq(other->verdict, GANTRY_E_IN_DOUBT);
	ck_assert(guilty->apart && other->apart);
	ck_assert_uint_eq(red.device_faults, 1);
	ck_assert_uint_eq(guilty->nsuspected, 1);
	/* Its launch is in doubt, runs again in another worker, and faults there. */
	guilty->ledger.queues[1].doubt_below = 1;
	gantry_fault_blame(guilty);
	ck_assert_uint_eq(red.device_faults, 1);
	ck_assert_uint_eq(guilty->nsuspected, 0);
	ck_assert(!other->apart);
	ck_assert_uint_eq(other->nsuspected, 0);
	ck_assert_uint_eq(blue.device_faults, 1);
	/* The next one is another. */
	gantry_fault_blame(guilty);
	ck_assert_uint_eq(red.device_faults, 2);
	finish();
}
END_TEST

/* A fault behind the trial is one of its own. */
START_TEST(test_fault_after_a_trial_that_went_well_counts_anew)
{
	struct gantry_session *s;

	begin_together();
	s = at_work(&red, 8, GANTRY_OP_launch, true);
	(void)at_work(&blue, 9, GANTRY_OP_launch, true);
	context_fails();
	s->ledger.queues[1].doubt_below = 1;
	s->ledger.queues[1].done = 1;
	gantry_fault_blame(s);
	ck_assert_uint_ge(red.device_faults, 2);
	finish();
}
END_TEST

START_TEST(test_nobody_is_tried_who_does_not_permit_it_or_for_whom_it_proves_nothing)
{
	struct gantry_session *copies, *asks_not, *with_variables;
	struct gantry_ledger_object *variable;

	begin_together();
	copies = at_work(&red, 8, GANTRY_OP_copy, true);
	asks_not = at_work(&blue, 9, GANTRY_OP_launch, false);
	with_variables = at_work(&blue, 10, GANTRY_OP_launch, true);
	variable = &with_variables->ledger.objects[3];
	variable->state = GANTRY_OBJECT_LIVE;
	variable->type = GANTRY_HANDLE_BUFFER;
	variable->buffer.place = GANTRY_PLACE_IMAGE;
	context_fails();
	ck_assert_int_eq(copies->verdict, 0);
	ck_assert_int_eq(asks_not->verdict, 0);
	ck_assert_int_eq(with_variables->verdict, 0);
	ck_assert(!copies->apart && !asks_not->apart && !with_variables->apart);
	ck_assert_uint_eq(asks_not->nsuspected, 1);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault");
	TCase *tc = gantry_unit_case(suite, "told");

	tcase_add_test(tc, test_fault_told_gives_up_the_turn_on_its_device_and_no_other);
	tcase_add_test(tc, test_fault_of_a_device_that_nobody_knows_frees_nothing);
	tcase_add_test(tc, test_fault_of_one_in_flight_is_its_own_and_nobody_is_tried);
	tcase_add_test(tc, test_fault_of_several_is_tried_and_counts_once);
	tcase_add_test(tc, test_fault_after_a_trial_that_went_well_counts_anew);
	tcase_add_test(tc,
		       test_nobody_is_tried_who_does_not_permit_it_or_for_whom_it_proves_nothing);
	return gantry_unit_run(suite);
}
