/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a worker's death: what it held is freed, its sessions get successors, the culprit gets the
 * error.
 */
#include "host-agent/agent/recover.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/restore.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"
#include "host-agent/control/packet.h"
#include "host-agent/shared/share.h"
#include "proto/wire.h"

/* So many deaths, each within the span of the one before, end a session that has a part in them: it will not get better. */
#define GIVE_UP_AFTER 8u
#define GIVE_UP_NS    (10 * GANTRY_NS_PER_S)

static bool is_fault(const struct gantry_worker *w)
{
	if (!w->status_known || !WIFSIGNALED(w->status))
		return false;
	switch (WTERMSIG(w->status)) {
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGABRT:
	case SIGSYS: /* the system call filter: a kernel did what kernels do not */
		return true;
	default:
		return false;
	}
}

static const char *describe_end(const struct gantry_worker *w, char *buf, size_t cap)
{
	if (!w->status_known)
		(void)gantry_str_copy(buf, cap, "how is not known"); /* for people */
	else if (WIFSIGNALED(w->status))
		(void)gantry_str_format(buf, cap, "signal %d (%s)%s", WTERMSIG(w->status),
					strsignal(WTERMSIG(w->status)),
					w->killed_for_deadline ? ", for a task past its deadline"
							       : "");
	else
		(void)gantry_str_format(buf, cap, "status %d", WEXITSTATUS(w->status));
	return buf;
}

/* Before the lanes are freed: had this session work on a device? */
static bool held_lane(const struct gantry_session *s)
{
	for (uint32_t i = 0; i < s->agent->ndevices; i++)
		for (uint32_t lane = 0; lane < GANTRY_SHARE_NLANES; lane++)
			if (gantry_load_relaxed(&s->agent->devices[i].page->lanes[lane]) ==
			    s->share_slot + 1)
				return true;
	return false;
}

static void judge(struct gantry_worker *w, struct gantry_session *s)
{
	bool culprit = is_fault(w) && (w->class.mode != GANTRY_POOLED || held_lane(s));

	if (s->judged) {
		s->judged = false;
		return;
	}
	if (culprit)
		gantry_fault_blame(s);
	if (w->killed_for_deadline)
		return; /* deadline.c has judged */
	s->verdict = culprit ? GANTRY_E_DEVICE_FAULT : 0;
}

/* The fence: from the new epoch on the dead worker could write nothing that anyone believes. */
static void next_epoch(struct gantry_session *s)
{
	uint64_t epoch = s->ledger.hdr->epoch + 1;

	gantry_store_release(&s->ledger.hdr->epoch, epoch);
	gantry_store_relaxed(&s->segment->epoch, epoch);
	gantry_store_release(&s->segment->state, (uint32_t)GANTRY_SESSION_RECOVERING);
	(void)gantry_futex_wake(&s->segment->state, INT_MAX); /* nobody may be asleep */
}

static bool too_often(struct gantry_session *s)
{
	uint64_t finished = gantry_load_relaxed(&s->ledger.hdr->tasks_finished);
	uint64_t now_ns = gantry_now_ns();

	/* Others' faults, and whoever kills workers, are no reason while its own work goes on. */
	if (s->verdict == 0 && finished != s->finished)
		s->recoveries = 0;
	s->finished = finished;
	s->recoveries = s->died_ns && now_ns - s->died_ns < GIVE_UP_NS ? s->recoveries + 1 : 1;
	s->died_ns = now_ns;
	return s->recoveries > GIVE_UP_AFTER;
}

void gantry_recover_session(struct gantry_session *s)
{
	if (s->phase != GANTRY_PHASE_DETACHING &&
	    (gantry_handover_worker_gone(s) || gantry_adopt_worker_gone(s)))
		return;
	if (s->phase == GANTRY_PHASE_DETACHING) {
		/* nobody is left to be asked: gantry_detach() finishes */
		s->phase = GANTRY_PHASE_WAITING;
		gantry_detach(s, s->reason, "the session is ending");
		return;
	}
	if (s->orphaned) {
		gantry_detach(s, GANTRY_E_DEVICE_LOST, "its device is gone, and what it had there");
		return;
	}
	if (too_often(s)) {
		gantry_detach(s, GANTRY_E_DEVICE_FAULT, "its workers died again and again");
		return;
	}
	next_epoch(s);
	if (s->welcomed) {
		s->phase = GANTRY_PHASE_RECOVERING;
		s->tenant->worker_restarts++;
		s->agent->counters.worker_restarts++;
	} else {
		s->phase = GANTRY_PHASE_WAITING;
	}
	gantry_attach_want(s);
}

static void free_lanes(struct gantry_worker *w)
{
	for (uint32_t i = 0; i < w->agent->ndevices; i++)
		/* how many does not matter */
		(void)gantry_share_bury(w->agent->devices[i].page, w->owner);
}

static void note_death(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	char how[96];

	if (w->state == GANTRY_WORKER_ENDING && w->nsessions == 0)
		return;
	if (w->renewing) {
		gantry_event(a, "worker-renewed", NULL, NULL, w,
			     "pid %d of version %s ends at rest; its %u sessions get another",
			     (int)w->pid, w->version, w->nsessions);
		return;
	}
	gantry_event(a, "worker-died", NULL, NULL, w, "pid %d with %u sessions: %s", (int)w->pid,
		     w->nsessions, describe_end(w, how, sizeof(how)));
	if (w->state != GANTRY_WORKER_STARTING || w->class.mode == GANTRY_WORKER_STEWARD)
		return; /* a steward's back-off is its own */
	a->spawn_not_before_ns = gantry_now_ns() +
				 (50 * GANTRY_NS_PER_MS << GANTRY_MIN(a->spawn_failures, 7u));
	a->spawn_failures++;
}

void gantry_recover(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	struct gantry_list orphans;
	bool takes_others;

	w->dead = true;
	note_death(w);
	if (!w->faulted && w->status_known && WIFEXITED(w->status) &&
	    WEXITSTATUS(w->status) == GANTRY_WORKER_EXIT_FAULT)
		gantry_fault_untold(w);
	gantry_fault_worker_died(w);
	takes_others = w->took_mates || (w->mps && !w->faulted && gantry_mps_expects_fault(w->mps));
	if (!w->unusable)
		gantry_devices_room_again(a); /* its contexts are gone */
	if (w->class.mode == GANTRY_WORKER_STEWARD) {
		gantry_steward_died(w);
		gantry_restore_settle(a);
		return;
	}
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s) {
		judge(w, s);
		if (w->renewing) /* not the death of anything that was wrong */
			s->recoveries = 0;
	}
	free_lanes(w);
	gantry_list_init(&orphans);
	gantry_list_for_each_safe(&w->sessions, struct gantry_session, worker_link, s) {
		s->faulted_ns = w->faulted_ns;
		s->others_first = takes_others;
		gantry_call_forget(w, s);
		gantry_migrations_worker_died(s);
		gantry_slabs_worker_gone(s);
		gantry_pull_worker_gone(s);
		gantry_worker_release(w, s);
		gantry_list_push_back(&orphans, &s->worker_link);
	}
	gantry_worker_free(w);
	gantry_restore_settle(a);
	while (!gantry_list_is_empty(&orphans)) {
		struct gantry_session *s = gantry_list_entry(orphans.next, struct gantry_session,
							     worker_link);

		gantry_list_remove(&s->worker_link);
		gantry_recover_session(s);
	}
	gantry_warm_fill(a);
}
