/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/renew.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/procstat.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/link.h"
#include "migration/ledger.h"

#define LOOK_NS (2 * GANTRY_NS_PER_MS)
/* A task that takes longer keeps its worker. */
#define REST_NS (60 * GANTRY_NS_PER_S)
/* And where the service ends: less than the monitor waits. */
#define LEAVE_NS (8 * GANTRY_NS_PER_S)

static void look(evutil_socket_t fd, short what, void *arg);

bool gantry_renew_is_other(const struct gantry_worker *w)
{
	return w->program != 0 && w->program != w->agent->worker_identity;
}

/* ---- standing still ---- */

void gantry_hold(struct gantry_session *s, bool on)
{
	for (uint32_t slot = 0; slot < s->ledger.nqueues; slot++) {
		uint32_t *paused = &s->ledger.queues[slot].paused;

		if (on)
			(void)gantry_fetch_or(paused, GANTRY_LEDGER_EXCHANGED);
		else
			(void)gantry_fetch_and(paused, ~GANTRY_LEDGER_EXCHANGED);
	}
}

void gantry_hold_none(struct gantry_agent *a)
{
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (s->ledger.hdr)
			gantry_hold(s, false);
}

bool gantry_hold_at_rest(const struct gantry_session *s)
{
	for (uint32_t slot = 0; slot < s->ledger.nqueues; slot++) {
		const struct gantry_ledger_queue *q = &s->ledger.queues[slot];

		if (gantry_load_acquire(&q->issued) != gantry_load_acquire(&q->done))
			return false;
	}
	return true;
}

/* One that is gone does nothing either. */
static bool is_stopped(pid_t pid, pid_t tid)
{
	struct gantry_procstat stat;
	int r = gantry_procstat(pid, tid, &stat);

	return r == -ESRCH || (r == 0 && strchr("TtZX", stat.state));
}

/* A signal to stop reaches each thread when that is next on a processor. */
static bool all_threads_stopped(pid_t pid)
{
	char path[32];
	struct dirent *entry;
	bool all = true;
	DIR *dir;

	(void)gantry_str_format(path, sizeof(path), "/proc/%d/task", (int)pid); /* fits */
	dir = opendir(path);
	if (!dir)
		return false;
	while (all && (entry = readdir(dir)))
		all = entry->d_name[0] == '.' || is_stopped(pid, atoi(entry->d_name));
	(void)closedir(dir); /* it was read */
	return all;
}

/* ---- one worker ---- */

static void again(struct gantry_agent *a)
{
	if (gantry_timer_set(a, &a->renew.timer, LOOK_NS, look, a) == 0)
		return;
	gantry_hold_none(a);
	gantry_workers_nudge(a);
	gantry_upgrade_moved(a, "no memory to exchange more workers");
}

static bool is_to_go(const struct gantry_worker *w)
{
	return gantry_renew_is_other(w) && !w->renew_kept && !w->dead && w->nsessions > 0;
}

static void hold_all(struct gantry_worker *w, bool on)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		gantry_hold(s, on);
	gantry_workers_nudge(w->agent);
}

static void begin(struct gantry_worker *w)
{
	struct gantry_renew *n = &w->agent->renew;

	gantry_failpoint(GANTRY_FAILPOINT_RENEW_BEGIN);
	n->worker_id = w->id;
	n->stopped = false;
	n->ending = false;
	n->since_ns = gantry_now_ns();
	n->until_ns = n->since_ns + REST_NS;
	w->stale = true; /* nobody new */
	hold_all(w, true);
}

static void keep(struct gantry_worker *w, const char *why)
{
	struct gantry_renew *n = &w->agent->renew;

	if (n->stopped) /* or it is gone */
		(void)pidfd_send_signal(w->pidfd, SIGCONT, NULL, 0);
	hold_all(w, false);
	w->renew_kept = true;
	n->nkept += w->nsessions;
	n->worker_id = 0;
	gantry_event(w->agent, "worker-kept", NULL, NULL, w, "it goes on with its build: %s", why);
}

/* Values of variables of its images and of its arrays are with the device and its worker only: the next would begin with those of the file. */
static bool has_variables(const struct gantry_session *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_IMAGE)
			return true;
	}
	return false;
}

/* True: it is at rest, and was kept. */
static bool keep_for_variables(struct gantry_worker *w)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s) {
		char why[96];

		if (!has_variables(s))
			continue;
		(void)gantry_str_format(
			why, sizeof(why), /* fits */
			"variables and arrays of session %llu's program would lose their values",
			(unsigned long long)s->id);
		keep(w, why);
		return true;
	}
	return false;
}

static bool at_rest(const struct gantry_worker *w)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		if (s->phase != GANTRY_PHASE_ATTACHED || !gantry_hold_at_rest(s))
			return false;
	return true;
}

/*
 * That nothing is issued and unfinished is certain only of a worker that cannot issue: it is stopped, looked at once
 * more, and ended there or let run on.
 */
static void exchange(struct gantry_worker *w)
{
	struct gantry_renew *n = &w->agent->renew;

	if (n->ending)
		return;
	if (gantry_now_ns() >= n->until_ns) {
		char why[64];

		(void)gantry_str_format(why, sizeof(why), /* fits */
					"a task of it has not ended within %llu s",
					(unsigned long long)(REST_NS / GANTRY_NS_PER_S));
		keep(w, why);
		return;
	}
	if (!n->stopped) {
		if (at_rest(w) && keep_for_variables(w))
			return;
		n->stopped = at_rest(w) && pidfd_send_signal(w->pidfd, SIGSTOP, NULL, 0) == 0;
		return;
	}
	if (!all_threads_stopped(w->pid))
		return;
	if (at_rest(w)) {
		if (keep_for_variables(w)) /* made just before it was stopped */
			return;
		gantry_failpoint(GANTRY_FAILPOINT_RENEW_STOPPED);
		n->nmoved += w->nsessions;
		n->ending = true;
		w->renewing = true;
		gantry_worker_kill(w);
		return;
	}
	n->stopped = false;
	(void)pidfd_send_signal(w->pidfd, SIGCONT, NULL, 0); /* or it is gone already */
}

/* Its worker is gone: another may issue what was held. True: all of them are served again. */
static bool let_go(struct gantry_agent *a)
{
	bool served = true;

	gantry_failpoint(GANTRY_FAILPOINT_RENEW_LET_GO);
	gantry_hold_none(a);
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		served = served && s->phase != GANTRY_PHASE_RECOVERING;
	return served || gantry_now_ns() >= a->renew.until_ns;
}

/* ---- all of them ---- */

static void finish(struct gantry_agent *a)
{
	struct gantry_renew *n = &a->renew;
	char text[96] = "";

	gantry_event_free(&n->timer);
	/*
	 * Those that serve nobody, and stewards: what these were doing is asked of the next again. One that holds a device of
	 * sessions stays until they have ended.
	 */
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w)
		if (gantry_renew_is_other(w) && w->nsessions == 0 && !gantry_steward_is_needed(w))
			gantry_worker_quit(w);
	gantry_warm_fill(a);
	gantry_event(a, "workers-renewed", NULL, NULL, NULL,
		     "%u sessions have workers of version %s, %u go on with theirs", n->nmoved,
		     gantry_build_version, n->nkept);
	if (n->nkept > 0)
		(void)gantry_str_format(text, sizeof(text),
					"%u sessions keep their workers, which events say why",
					n->nkept); /* fits */
	gantry_upgrade_moved(a, text);
}

static void look(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_renew *n = &a->renew;
	struct gantry_worker *w = n->worker_id ? gantry_worker_find(a, n->worker_id) : NULL;

	(void)fd;
	(void)what;
	if (w) {
		exchange(w);
		again(a);
		return;
	}
	if (n->worker_id && !let_go(a)) {
		again(a);
		return;
	}
	n->worker_id = 0;
	gantry_list_for_each(&a->workers, struct gantry_worker, link, next) {
		if (next->querying) {
			again(a); /* it has not said yet what it is */
			return;
		}
		if (!w && is_to_go(next))
			w = next;
	}
	if (!w) {
		finish(a);
		return;
	}
	begin(w);
	again(a);
}

void gantry_renew_start(struct gantry_agent *a)
{
	a->renew.worker_id = 0;
	a->renew.nmoved = 0;
	a->renew.nkept = 0;
	again(a);
}

void gantry_renew_fini(struct gantry_agent *a)
{
	gantry_event_free(&a->renew.timer);
}

/* ---- leaving ---- */

static void leave_now(struct gantry_agent *a)
{
	/*
	 * What is held stays held until the next agent has it: a worker may live for a moment yet. It dies with what it
	 * had done in the ledger.
	 */
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		gantry_worker_kill_now(w);
	gantry_journal_now(a);
	gantry_keep_tell(a, GANTRY_MONITOR_BYE, 0, -EBADF);
	_exit(EXIT_SUCCESS); /* what is alive is not ours to end */
}

static void look_leave(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	bool resting = true;

	(void)fd;
	(void)what;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		resting = resting && gantry_hold_at_rest(s);
	if (!resting && gantry_now_ns() < a->renew.until_ns &&
	    gantry_timer_set(a, &a->renew.timer, LOOK_NS, look_leave, a) == 0)
		return;
	leave_now(a);
}

void gantry_renew_leave(struct gantry_agent *a)
{
	if (a->stopping)
		return;
	a->stopping = true;
	gantry_keep_notify(a, GANTRY_MONITOR_STOPPING);
	gantry_event(a, "stopping", NULL, NULL, NULL,
		     "told to end; %zu sessions stay with systemd for the next agent",
		     gantry_list_count(&a->sessions));
	gantry_doors_listen(a, false);
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		gantry_hold(s, true);
	gantry_workers_nudge(a);
	a->renew.until_ns = gantry_now_ns() + LEAVE_NS;
	look_leave(-1, 0, a);
}
