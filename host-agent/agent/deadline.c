/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that run past their tenant's deadline. Looking once a deadline is enough to be exact: a
 * task that
 * began after the last look cannot be due before the next one.
 */
#include "host-agent/agent/deadline.h"

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/list.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

#define SOONEST_NS GANTRY_NS_PER_MS

static uint64_t first_seen_ns(struct gantry_session *s, uint32_t slot, uint64_t done,
			      uint64_t now_ns)
{
	struct gantry_oldest *oldest = &s->oldest[slot];

	if (oldest->seen_ns == 0 || oldest->done != done)
		*oldest = (struct gantry_oldest){ .done = done, .seen_ns = now_ns };
	return oldest->seen_ns;
}

/*
 * When the queue's oldest task began; 0: there is none that a deadline runs for. A worker writes that down under a deadline only: of a task that
 * was running when the tenant got one, it counts from when we first see it.
 */
static uint64_t oldest_began_ns(struct gantry_session *s, uint32_t slot, uint64_t now_ns)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	uint64_t began_ns = gantry_load_relaxed(&led->issued_at_ns);
	uint64_t done = gantry_load_relaxed(&led->done);
	struct gantry_oldest *oldest = &s->oldest[slot];

	if (began_ns == GANTRY_LEDGER_OFF_DEVICE)
		began_ns = 0;
	else if (began_ns == 0 && gantry_load_relaxed(&led->issued) != done)
		return first_seen_ns(s, slot, done, now_ns);
	oldest->seen_ns = 0;
	return began_ns;
}

/* When the session's oldest task is due; now or earlier: it is over time. */
static uint64_t due_ns(struct gantry_session *s, uint64_t now_ns)
{
	uint64_t deadline_ns = s->tenant->conf.deadline_ns;
	uint64_t due;

	if (gantry_add_u64(now_ns, deadline_ns, &due) < 0)
		return UINT64_MAX;
	for (uint32_t q = 0; q < s->ledger.nqueues; q++) {
		uint64_t began_ns = oldest_began_ns(s, q, now_ns);
		uint64_t end_ns;

		if (began_ns != 0 && gantry_add_u64(began_ns, deadline_ns, &end_ns) == 0)
			due = gantry_min_u64(due, end_ns);
	}
	return due;
}

static void end_worker(struct gantry_session *s)
{
	struct gantry_worker *w = s->worker;

	if (!w->killed_for_deadline)
		gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, other)
			other->verdict = 0;
	s->verdict = GANTRY_E_DEADLINE;
	w->killed_for_deadline = true;
	gantry_event(s->agent, "task-deadline", NULL, s, w,
		     "a task ran longer than the tenant's deadline");
	gantry_worker_kill(w);
}

static void look(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	uint64_t now_ns = gantry_now_ns();
	uint64_t next_ns = UINT64_MAX;

	(void)fd;
	(void)what;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		uint64_t due;

		if (s->tenant->conf.deadline_ns == 0 || s->phase != GANTRY_PHASE_ATTACHED ||
		    !s->worker)
			continue;
		due = due_ns(s, now_ns);
		if (due <= now_ns && !s->worker->dead)
			end_worker(s);
		else
			next_ns = gantry_min_u64(next_ns, due);
	}
	if (next_ns == UINT64_MAX)
		return; /* no such session: the next attach arms the timer again */
	next_ns = next_ns > now_ns + SOONEST_NS ? next_ns - now_ns : SOONEST_NS;
	/* it exists: no memory needed */
	(void)gantry_timer_set(a, &a->deadline_timer, next_ns, look, a);
}

void gantry_deadline_arm(struct gantry_agent *a)
{
	look(-1, 0, a);
}
