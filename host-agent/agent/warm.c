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
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

/* A refill waits this long, so that it does not compete with the attach that took the worker. */
#define REFILL_NS (20 * GANTRY_NS_PER_MS)
/* Sessions of one pooled worker: its engine's own limit is a little higher. */
#define POOLED_SESSIONS_MAX 500u

static bool usable(const struct gantry_worker *w)
{
	return !w->stale && !w->dead &&
	       (w->state == GANTRY_WORKER_WARM || w->state == GANTRY_WORKER_BUSY);
}

static bool starting(const struct gantry_worker *w)
{
	return !w->stale && !w->dead && w->state == GANTRY_WORKER_STARTING;
}

static void spawn(struct gantry_agent *a, uint32_t mode, const char *group)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_worker *w;

	if (gantry_worker_spawn(a, mode, group, &w, &err) < 0)
		gantry_event(a, "worker-failed", NULL, NULL, NULL, "%s", err.text);
}

/* Isolated ones: the configured stock, and one for each session that waits. */
static uint32_t missing_isolated(struct gantry_agent *a)
{
	uint32_t wanted = a->config->agent.warm_workers;
	uint32_t have = 0;
	bool any = false;

	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		any = any || (!t->removed && gantry_tenant_mode(t) == GANTRY_ISOLATED);
	if (!any)
		wanted = 0;
	gantry_list_for_each(&a->wanting, struct gantry_session, want_link, s)
		wanted += gantry_tenant_mode(s->tenant) == GANTRY_ISOLATED;
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		have += w->mode == GANTRY_ISOLATED && w->nsessions == 0 &&
			(starting(w) || (usable(w) && w->state == GANTRY_WORKER_WARM));
	return wanted > have ? wanted - have : 0;
}

static struct gantry_worker *find_pooled(struct gantry_agent *a, const char *group, bool may_start)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->mode == GANTRY_POOLED && strcmp(w->group, group) == 0 &&
		    w->nsessions < POOLED_SESSIONS_MAX && (usable(w) || (may_start && starting(w))))
			return w;
	return NULL;
}

static void fill_pooled(struct gantry_agent *a)
{
	char group[GANTRY_CONFIG_NAME + 8];

	if (a->config->agent.warm_workers == 0)
		return;
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && gantry_tenant_mode(t) == GANTRY_POOLED &&
		    !find_pooled(a, gantry_tenant_group(t, group, sizeof(group)), true))
			spawn(a, GANTRY_POOLED, group);
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
	for (uint32_t n = missing_isolated(a); n > 0; n--)
		spawn(a, GANTRY_ISOLATED, "");
	fill_pooled(a);
	if (a->spawn_not_before_ns > now_ns)
		gantry_warm_fill(a);
}

void gantry_warm_fill(struct gantry_agent *a)
{
	/* Without memory for a timer the next attach or death tries again. */
	(void)gantry_timer_set(a, &a->warm_timer, REFILL_NS, fill_now, a);
}

static struct gantry_worker *take_isolated(struct gantry_agent *a)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->mode == GANTRY_ISOLATED && usable(w) && w->state == GANTRY_WORKER_WARM &&
		    w->nsessions == 0)
			return w;
	return NULL;
}

/* Nobody is warm: start at once, unless starting has failed just now. */
static void hurry(struct gantry_agent *a, uint32_t mode, const char *group)
{
	if (gantry_now_ns() < a->spawn_not_before_ns) {
		gantry_warm_fill(a);
		return;
	}
	if (mode == GANTRY_POOLED && find_pooled(a, group, true))
		return;
	if (mode == GANTRY_ISOLATED && missing_isolated(a) <= a->config->agent.warm_workers)
		fill_now(-1, 0, a);
	else
		spawn(a, mode, group);
}

struct gantry_worker *gantry_warm_take(struct gantry_agent *a, struct gantry_tenant *t)
{
	uint32_t mode = gantry_tenant_mode(t);
	char group[GANTRY_CONFIG_NAME + 8] = "";
	struct gantry_worker *w;

	if (a->stopping)
		return NULL;
	if (mode == GANTRY_ISOLATED) {
		w = take_isolated(a);
	} else {
		(void)gantry_tenant_group(t, group, sizeof(group));
		w = find_pooled(a, group, false);
	}
	if (!w)
		hurry(a, mode, group);
	else if (mode == GANTRY_ISOLATED)
		gantry_warm_fill(a);
	return w;
}
