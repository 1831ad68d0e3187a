/* SPDX-License-Identifier: Apache-2.0 */
/* Workers kept ready, so that attach is milliseconds where opening devices is not. */
#include "host-agent/agent/warm.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

/* A refill waits this long, so that it does not compete with the attach that took the worker. */
#define REFILL_NS (20 * GANTRY_NS_PER_MS)
/* One that nobody came for is kept so long: who has just left may come back. */
#define SURPLUS_NS (10 * GANTRY_NS_PER_S)
/* Sessions of one pooled worker: its engine's own limit is a little higher. */
#define POOLED_SESSIONS_MAX 500u

static bool usable(const struct gantry_worker *w)
{
	return !w->stale && !w->dead && !w->faulted &&
	       !(w->mps && gantry_mps_expects_fault(w->mps)) &&
	       (w->state == GANTRY_WORKER_WARM || w->state == GANTRY_WORKER_BUSY);
}

static bool starting(const struct gantry_worker *w)
{
	return !w->stale && !w->dead && !w->faulted && w->state == GANTRY_WORKER_STARTING;
}

/* One that can take a session of @class now; or, @may_start, once it has started. */
static bool fits(const struct gantry_worker *w, const struct gantry_worker_class *class,
		 bool may_start)
{
	if (!gantry_worker_class_equal(&w->class, class) ||
	    !(usable(w) || (may_start && starting(w))))
		return false;
	return class->mode == GANTRY_POOLED ? w->nsessions < POOLED_SESSIONS_MAX
					    : w->nsessions == 0 && w->state != GANTRY_WORKER_BUSY;
}

static struct gantry_worker *find(struct gantry_agent *a, const struct gantry_tenant *t,
				  const struct gantry_worker_class *class)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (fits(w, class, false) &&
		    !(w->unusable & t->device_mask & gantry_devices_serving(a)))
			return w;
	return NULL;
}

/*
 * How many are to be there beside those that sessions wait for. A context on a GPU is dear, and those of a group take
 * places of its MPS server: few of a packed class, as many as programs that come at once should find.
 */
static uint32_t stock(const struct gantry_agent *a, const struct gantry_worker_class *class)
{
	const struct gantry_agent_conf *conf = &a->config->agent;

	if (conf->warm_workers == 0)
		return 0;
	if (class->mode == GANTRY_ISOLATED) /* one, where only one tenant has a use for it */
		return class->group[0] ? 1 : conf->warm_workers;
	return class->mode == GANTRY_PACKED ? conf->warm_packed : 1;
}

bool gantry_warm_is_wanted(struct gantry_agent *a, const struct gantry_worker_class *class)
{
	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, s) {
		struct gantry_worker_class theirs;

		gantry_session_class(s, &theirs);
		if (gantry_worker_class_equal(&theirs, class))
			return true;
	}
	return false;
}

static void fill_now(evutil_socket_t fd, short what, void *arg);

static bool waits_for_others(const struct gantry_session *s)
{
	return s->apart || s->others_first;
}

/*
 * Innocent ones stand still, and starting workers are in each other's way: who is kept apart comes after them, and whose
 * worker's end has taken theirs along.
 */
static bool others_first(struct gantry_agent *a, const struct gantry_session *s)
{
	if (!waits_for_others(s))
		return false;
	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, other)
		if (other->phase == GANTRY_PHASE_RECOVERING && !waits_for_others(other))
			return true;
	return false;
}

static uint32_t have(struct gantry_agent *a, const struct gantry_worker_class *class)
{
	uint32_t n = 0;

	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		n += fits(w, class, true);
	return n;
}

static uint32_t missing(struct gantry_agent *a, const struct gantry_worker_class *class)
{
	uint32_t wanted = 0, there = have(a, class);
	bool urgent = false;

	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, s) {
		struct gantry_worker_class theirs;

		gantry_session_class(s, &theirs);
		if (!gantry_worker_class_equal(&theirs, class) || others_first(a, s))
			continue;
		wanted++;
		urgent = urgent || s->phase == GANTRY_PHASE_RECOVERING;
	}
	/* Whose tasks stand still comes first: starting workers are in each other's way. */
	wanted += urgent ? 0 : stock(a, class);
	if (class->mode == GANTRY_POOLED)
		wanted = wanted > 0;
	return wanted > there ? wanted - there : 0;
}

static void fill_class(struct gantry_agent *a, const struct gantry_worker_class *class)
{
	for (uint32_t n = missing(a, class); n > 0; n--) {
		struct gantry_err err = GANTRY_ERR_NONE;
		struct gantry_worker *w;

		int r = gantry_worker_spawn(a, class, &w, &err);

		if (r == -EAGAIN || r == -ENOSPC)
			return; /* an MPS server comes, or loses a client: this is called again */
		if (r < 0) {
			gantry_event(a, "worker-failed", NULL, NULL, NULL, "%s", err.text);
			return;
		}
	}
}

/* Kept for tenants that are gone, or are served otherwise now. */
static void retire_needless(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		bool needed = w->state != GANTRY_WORKER_WARM || w->nsessions > 0 || w->querying ||
			      w->class.mode == GANTRY_STEWARD;

		gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
			struct gantry_worker_class class;

			if (needed)
				break;
			if (t->removed)
				continue;
			gantry_tenant_class(t, &class);
			needed = gantry_worker_class_equal(&w->class, &class);
		}
		if (!needed)
			gantry_worker_quit(w);
	}
}

/* Sessions that were ended, or went elsewhere, while a worker was started for them; or fewer are to be kept now. */
static bool is_surplus(struct gantry_agent *a, const struct gantry_worker *w)
{
	return w->state == GANTRY_WORKER_WARM && w->nsessions == 0 && !w->querying &&
	       w->class.mode != GANTRY_WORKER_STEWARD && w->class.mode != GANTRY_POOLED &&
	       fits(w, &w->class, false) && !gantry_warm_is_wanted(a, &w->class) &&
	       have(a, &w->class) > stock(a, &w->class);
}

static void retire_surplus(struct gantry_agent *a, uint64_t now_ns)
{
	bool some = !gantry_list_is_empty(&a->wanting);

	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (!is_surplus(a, w))
			continue;
		if (now_ns - w->ready_ns >= SURPLUS_NS)
			gantry_worker_quit(w);
		else
			some = true;
	}
	/* Without memory for a timer the next attach or death looks again. */
	if (some)
		(void)gantry_timer_set(a, &a->warm_timer, SURPLUS_NS, fill_now, a);
}

static void fill_now(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	uint64_t now_ns = gantry_now_ns();

	(void)fd;
	(void)what;
	if (a->stopping || a->ndevices == 0)
		return;
	if (now_ns < a->spawn_not_before_ns) {
		(void)gantry_timer_set(a, &a->warm_timer, a->spawn_not_before_ns - now_ns, fill_now,
				       a);
		return;
	}
	retire_needless(a);
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		struct gantry_worker_class class;

		if (t->removed)
			continue;
		gantry_tenant_class(t, &class);
		fill_class(a, &class); /* a second tenant of a class finds nothing missing */
	}
	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, s) {
		struct gantry_worker_class class;

		gantry_session_class(s, &class);
		if (others_first(a, s))
			continue; /* this is called again when they are served */
		/* Of one that is kept apart; the others find nothing missing. */
		fill_class(a, &class);
	}
	retire_surplus(a, now_ns);
	if (a->spawn_not_before_ns > now_ns)
		gantry_warm_fill(a);
}

static bool any_stands_still(struct gantry_agent *a)
{
	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, s)
		if (s->phase == GANTRY_PHASE_RECOVERING)
			return true;
	return false;
}

void gantry_warm_fill(struct gantry_agent *a)
{
	/* Without memory for a timer the next attach or death tries again. */
	(void)gantry_timer_set(a, &a->warm_timer, any_stands_still(a) ? 0 : REFILL_NS, fill_now, a);
}

struct gantry_worker *gantry_warm_take(struct gantry_agent *a, const struct gantry_session *s)
{
	struct gantry_worker_class class;
	struct gantry_worker *w;

	if (a->stopping)
		return NULL;
	gantry_session_class(s, &class);
	w = s->others_first && others_first(a, s) ? NULL : find(a, s->tenant, &class);
	if (w && class.mode == GANTRY_POOLED)
		return w;
	/* Nobody is warm: start at once, unless starting has failed just now. */
	if (w || gantry_now_ns() < a->spawn_not_before_ns || others_first(a, s))
		gantry_warm_fill(a);
	else
		fill_class(a, &class);
	return w;
}
