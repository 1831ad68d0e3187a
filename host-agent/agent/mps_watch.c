/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/mps_watch.h"

#include <event2/event.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/list.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/procstat.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/worker.h"

#define LOOK_NS (10 * GANTRY_NS_PER_MS)
#define IDLE_NS (100 * GANTRY_NS_PER_MS)

static bool has_mates(const struct gantry_worker *w)
{
	gantry_list_for_each(&w->agent->workers, struct gantry_worker, link, other)
		if (other != w && other->mps == w->mps && !other->dead)
			return true;
	return false;
}

/* Its end would be felt, and nobody has seen to it yet. */
static bool is_watched(const struct gantry_worker *w)
{
	return w->mps && w->pid > 0 && !w->dead && !w->faulted && !w->seen_killed && has_mates(w);
}

/* One that leaves by itself has said why before. */
static void ending(struct gantry_worker *w)
{
	if (!gantry_worker_hear(w) || w->faulted)
		return;
	w->seen_killed = true;
	gantry_worker_kill(w); /* which tells its server */
}

static void look(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_worker *ends = NULL;
	bool any = false, work = false;

	(void)fd;
	(void)what;
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w) {
		struct gantry_procstat stat;

		if (!is_watched(w))
			continue;
		any = true;
		if (!gantry_fault_may_follow(w))
			continue;
		work = true;
		if (gantry_procstat(w->pid, 0, &stat) == 0 && stat.ending)
			ends = w;
	}
	/* Without memory the next client's coming tries again. */
	if (any)
		(void)gantry_timer_set(a, &a->mps_watch_timer, work ? LOOK_NS : IDLE_NS, look, a);
	else
		gantry_event_free(&a->mps_watch_timer);
	if (ends)
		ending(ends); /* another's is found next time */
}

void gantry_mps_watch(struct gantry_agent *a)
{
	if (!a->mps_watch_timer)
		(void)gantry_timer_set(a, &a->mps_watch_timer, IDLE_NS, look, a); /* likewise */
}

void gantry_mps_watch_fini(struct gantry_agent *a)
{
	gantry_event_free(&a->mps_watch_timer);
}
