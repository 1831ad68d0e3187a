/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose fault a failed context is.
 *
 * A device says that a context failed, not which task did it, and sessions that share the context (pooled) or an MPS
 * server (packed) get the same error. What can be known is who had tasks in flight: the ledgers tell. If that is
 * one session, it gets the fault; which of its tasks, its successor knows (bind.c). If it is several, nobody is blamed:
 * tasks that may run twice do so, the others are in doubt. What is wrong with a kernel mostly shows when it runs first:
 * who alone tried one is served apart from then on, and so are, one by one, all who are suspected again within an
 * hour. There the next fault shows whose it is, and the suspicions become faults.
 */
#include "host-agent/agent/fault.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/device.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/procstat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/share.h"

#define SUSPICION_NS (3600 * GANTRY_NS_PER_S)
#define SPREAD_NS    (3 * GANTRY_NS_PER_S) /* until the last client of a server has seen a fault */
#define TELL_NS \
	(20 * GANTRY_NS_PER_MS) /* for another to find out, and to say what it had finished */

/* Do @w and @other share one context, or one server of contexts? */
static bool shares_fate(const struct gantry_worker *w, const struct gantry_worker *other)
{
	return w == other || (w->mps && w->mps == other->mps);
}

/* One GPU may be several devices: what ends a context there ends it for all of them. */
static bool on_board(const struct gantry_agent *a, uint32_t i, uint32_t device)
{
	if (i == device || i >= a->ndevices || device >= a->ndevices)
		return i == device;
	return a->devices[i].kind == a->devices[device].kind && a->devices[i].id[0] &&
	       strcmp(a->devices[i].id, a->devices[device].id) == 0;
}

/* A task of the session is on the device, as far as anybody knows. */
static bool in_flight(const struct gantry_session *s, uint32_t device)
{
	for (uint32_t i = 1; s->ledger.hdr && i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *q = &s->ledger.queues[i];

		if (on_board(s->agent, gantry_load_relaxed(&q->device), device) &&
		    gantry_load_relaxed(&q->issued) != gantry_load_relaxed(&q->done))
			return true;
	}
	return false;
}

/* Of these a launch is of a kernel that has not ended well yet in this worker. */
static bool tries(const struct gantry_session *s, uint32_t device)
{
	for (uint32_t i = 1; s->ledger.hdr && i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *q = &s->ledger.queues[i];

		if (on_board(s->agent, gantry_load_relaxed(&q->device), device) &&
		    gantry_load_relaxed(&q->untried_below) > gantry_load_relaxed(&q->done))
			return true;
	}
	return false;
}

/* Nothing that it said is still to be read; who leaves by itself has said why. */
static bool is_silent(const struct gantry_worker *w)
{
	char byte;

	return !w->ctl_event || recv(w->ctl_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0;
}

/* It has ended, and as far as is known not by itself; its driver may still be about it, and its mates know before. */
static bool was_killed(const struct gantry_worker *w)
{
	struct pollfd p = { .fd = w->pidfd, .events = POLLIN };
	struct gantry_procstat stat;
	siginfo_t end = { 0 };

	if (w->seen_killed)
		return true;
	if (w->pidfd < 0)
		return false;
	if (poll(&p, 1, 0) <= 0)
		return w->state != GANTRY_WORKER_ENDING && gantry_procstat(w->pid, 0, &stat) == 0 &&
		       stat.ending && is_silent(w);
	/* Not reaped: its burial is on its way. Of one that is the monitor's only that knows. */
	return !w->is_child ||
	       waitid(P_PIDFD, (id_t)w->pidfd, &end, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       end.si_code != CLD_EXITED;
}

/*
 * Under MPS a client that is killed takes its neighbours' contexts along: the fault that they see is none of
 * theirs.
 */
static bool mate_was_killed(const struct gantry_worker *w)
{
	if (w->mate_died_ns && gantry_now_ns() - w->mate_died_ns < SPREAD_NS)
		return true;
	gantry_list_for_each(&w->agent->workers, struct gantry_worker, link, other)
		if (other != w && shares_fate(w, other) && !other->faulted && was_killed(other))
			return true;
	return false;
}

static bool works(const struct gantry_worker *w, uint32_t device)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		if (in_flight(s, device))
			return true;
	return false;
}

bool gantry_fault_may_follow(const struct gantry_worker *w)
{
	for (uint32_t device = 0; device < w->agent->ndevices; device++)
		if (works(w, device))
			return true;
	return false;
}

/* It has tasks to do, if not at this moment. */
static bool is_occupied(const struct gantry_worker *w)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		for (uint32_t i = 1; s->ledger.hdr && i < s->ledger.nqueues; i++)
			if (gantry_load_relaxed(&s->ledger.queues[i].taken) !=
			    gantry_load_relaxed(&s->ledger.queues[i].done))
				return true;
	return false;
}

/* A killed client took the contexts of its server along: who is occupied there is about to say so. */
static void expect_fault(struct gantry_worker *w)
{
	if (!w->mps || w->let_go || !gantry_fault_may_follow(w))
		return;
	gantry_list_for_each(&w->agent->workers, struct gantry_worker, link, other)
		if (other != w && !other->faulted && shares_fate(w, other) && is_occupied(other)) {
			gantry_mps_expect_fault(w->mps);
			return;
		}
}

void gantry_fault_worker_died(struct gantry_worker *w)
{
	uint64_t now_ns = gantry_now_ns();

	if (w->faulted || (w->status_known && WIFEXITED(w->status)))
		return;
	gantry_list_for_each(&w->agent->workers, struct gantry_worker, link, other)
		if (other != w && shares_fate(w, other))
			other->mate_died_ns = now_ns;
	expect_fault(w);
}

struct suspects {
	uint32_t n;
	uint32_t ntrying;
	struct gantry_session *trying; /* the last of them */
};

static struct suspects find_suspects(const struct gantry_worker *w, uint32_t device)
{
	struct suspects found = { 0 };

	gantry_list_for_each(&w->agent->sessions, struct gantry_session, link, s) {
		if (!s->worker || !shares_fate(w, s->worker) || !in_flight(s, device))
			continue;
		found.n++;
		if (tries(s, device)) {
			found.ntrying++;
			found.trying = s;
		}
	}
	return found;
}

/* It is known who it was: the others of its group are suspected no more. */
static void clear_others(const struct gantry_session *culprit)
{
	struct gantry_worker_class class, theirs;

	gantry_tenant_class(culprit->tenant, &class);
	gantry_list_for_each(&culprit->agent->sessions, struct gantry_session, link, s) {
		gantry_tenant_class(s->tenant, &theirs);
		if (s == culprit || strcmp(class.group, theirs.group) != 0)
			continue;
		s->nsuspected = 0;
		s->apart = false; /* which counts when it needs another worker */
	}
}

void gantry_fault_blame(struct gantry_session *s)
{
	if (s->apart && s->nsuspected)
		clear_others(s);
	s->tenant->device_faults++;
	(void)gantry_tenant_faulted(s->tenant); /* it tells who listens */
	/* What it was suspected of was its doing. */
	for (; s->apart && s->nsuspected; s->nsuspected--)
		(void)gantry_tenant_faulted(s->tenant);
}

static void suspect(struct gantry_session *s, bool strongly)
{
	uint64_t now_ns = gantry_now_ns();

	s->tenant->device_faults++;
	if (now_ns - s->suspected_ns >= SUSPICION_NS)
		s->nsuspected = 0;
	s->nsuspected++;
	s->suspected_ns = now_ns;
	if (s->apart || (!strongly && s->nsuspected < 2))
		return;
	s->apart = true;
	gantry_event(s->agent, "session-apart", NULL, s, NULL, "%s: it gets a worker of its own",
		     strongly ? "suspected of a fault, for none but it tried a new kernel"
			      : "suspected of a second fault");
}

enum cause {
	CAUSE_TASK,
	CAUSE_KILL, /* of another client, or of the server */
	CAUSE_DEVICE,
};

/* Of a session whose context failed. */
static int32_t verdict_of(struct gantry_session *s, uint32_t device, enum cause cause,
			  const struct suspects *suspects)
{
	if (cause == CAUSE_KILL || !in_flight(s, device))
		return 0;
	if (cause == CAUSE_DEVICE)
		return GANTRY_E_DEVICE_LOST;
	if (suspects->n > 1) {
		if (suspects->ntrying != 1 || s == suspects->trying)
			suspect(s, suspects->ntrying == 1);
		return 0;
	}
	gantry_fault_blame(s);
	return GANTRY_E_DEVICE_FAULT;
}

static enum cause cause_of(const struct gantry_worker *w, int status)
{
	if (status == GANTRY_E_DEVICE_LOST)
		return CAUSE_DEVICE;
	/* Whose launch it was that did not end has been told so: the others had no part in it. */
	if (status == GANTRY_E_DEADLINE || gantry_mps_server_ended(w) || mate_was_killed(w))
		return CAUSE_KILL;
	return CAUSE_TASK;
}

static void judge_all(struct gantry_worker *w, uint32_t device, int status)
{
	struct gantry_agent *a = w->agent;
	struct suspects suspects = find_suspects(w, device);
	enum cause cause = cause_of(w, status);

	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		if (!s->worker || !shares_fate(w, s->worker) || s->judged)
			continue;
		s->verdict = verdict_of(s, device, cause, &suspects);
		s->judged = true;
	}
	/*
	 * The others of a packed group have the same error and say so soon, or have nothing in flight and do not know:
	 * none of them is of use any more.
	 */
	if (w->mps)
		gantry_mps_fault_came(w->mps);
	gantry_list_for_each(&a->workers, struct gantry_worker, link, other) {
		if (!shares_fate(w, other) || other->faulted)
			continue;
		other->took_mates = cause == CAUSE_KILL && was_killed(other);
		other->faulted = true;
		other->faulted_ns = gantry_now_ns();
		if (other != w && works(other, device))
			gantry_worker_kill_after(other, TELL_NS);
		else
			gantry_worker_kill(other);
	}
}

/* Queues of a lost device go to another one that serves, but memory does not. */
static void mark_orphans(struct gantry_worker *w, uint32_t device)
{
	struct gantry_agent *a = w->agent;

	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (s->worker && shares_fate(w, s->worker))
			s->orphaned = gantry_slabs_any(s, device) ||
				      (s->tenant->device_mask & gantry_devices_serving(a)) == 0;
}

/* @status: of tasks in flight. */
static void fault(struct gantry_worker *w, struct gantry_agent_device *d, int status,
		  const char *text)
{
	struct gantry_agent *a = w->agent;
	struct gantry_session *only = NULL;

	if (w->faulted)
		return; /* judged with the first of its group */
	if (w->killing || w->killed_for_deadline)
		return; /* an MPS server has ended its context, as it was told to */
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		only = w->nsessions == 1 ? s : NULL;
	a->counters.device_faults++;
	if (d)
		d->nfaults++;
	gantry_event_device(a, "device-fault", d ? d->conf.name : "", only, w, "%s: %s",
			    d ? d->conf.name : "a device",
			    gantry_mps_server_ended(w) ? "the MPS server of the group ended"
						       : text);
	judge_all(w, d ? (uint32_t)(d - a->devices) : 0, status);
	if (status == GANTRY_E_DEVICE_LOST && d) {
		gantry_agent_device_lost(a, d, text);
		mark_orphans(w, (uint32_t)(d - a->devices));
	}
}

/* A launch cost a held board its steward, which ends by itself; the others' sessions recover. */
static void blame_at_board(const struct gantry_worker *steward, struct gantry_agent_device *d,
			   uint64_t worker_id, const char *text)
{
	struct gantry_agent *a = steward->agent;
	struct gantry_worker *culprit = NULL;
	struct gantry_session *only = NULL;

	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->id == worker_id)
			culprit = w;
	/* Of several in one worker nobody knows which it was. */
	if (culprit && culprit->nsessions == 1)
		only = gantry_list_entry(culprit->sessions.next, struct gantry_session,
					 worker_link);
	a->counters.device_faults++;
	if (d)
		d->nfaults++;
	gantry_event_device(a, "launch-endless", d ? d->conf.name : "", only, culprit,
			    "%s: %s: of worker %llu%s; it is opened anew",
			    d ? d->conf.name : "a device", text, (unsigned long long)worker_id,
			    culprit ? "" : ", which has ended");
	if (only)
		gantry_fault_blame(only);
}

void gantry_fault_told(struct gantry_worker *w, const Gantry__Worker__DeviceFault *msg)
{
	struct gantry_agent_device *d = gantry_agent_device_find(w->agent, msg->device);
	int status = msg->blast == GANTRY_BLAST_DEVICE	? GANTRY_E_DEVICE_LOST
		     : msg->status == GANTRY_E_DEADLINE ? GANTRY_E_DEADLINE
							: GANTRY_E_DEVICE_FAULT;
	char text[160];

	(void)gantry_str_copy(text, sizeof(text), msg->text); /* for people */
	gantry_str_make_printable(text);
	if (w->class.mode == GANTRY_WORKER_STEWARD) {
		blame_at_board(w, d, msg->worker_id, text);
		return;
	}
	fault(w, d, status, text);
	/*
	 * Nothing of it runs there any more, and the thread that said so says and does nothing else: others have their turn,
	 * while it takes the driver its time to let the process go. Its memory stays its own until then.
	 */
	if (d && d->page)
		(void)gantry_share_bury(d->page, w->owner);
	gantry_worker_kill(w); /* most likely it is gone by now */
}

void gantry_fault_untold(struct gantry_worker *w)
{
	struct gantry_agent_device *d = NULL;

	/* With one device there is no doubt which. */
	for (uint32_t i = 0; i < w->agent->ndevices; i++)
		if (w->agent->devices[i].used)
			d = d ? d : &w->agent->devices[i];
	fault(w, d, GANTRY_E_DEVICE_FAULT, "its context is lost");
}
