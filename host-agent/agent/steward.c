/* SPDX-License-Identifier: Apache-2.0 */
/* Stewards: started where devices need them, started again when they die, asked for health. */
#include "host-agent/agent/steward.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/registry.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/worker.h"

#define BACKOFF_MIN_NS	  (50 * GANTRY_NS_PER_MS)
#define BACKOFF_MAX_SHIFT 7u
/* One that lived so long died of something new: no back-off. */
#define HEALTHY_NS     (10 * GANTRY_NS_PER_S)
#define HEALTH_NS      (5 * GANTRY_NS_PER_S)  /* between questions while sessions are attached */
#define HEALTH_IDLE_NS (60 * GANTRY_NS_PER_S) /* and while none is */
#define ANSWER_NS      (10 * GANTRY_NS_PER_S)

/* ---- which ---- */

static bool has_option(const struct gantry_device_section *conf, const char *option)
{
	for (uint32_t i = 0; i < conf->nopts; i++)
		if (strcmp(conf->opts[i], option) == 0)
			return true;
	return false;
}

bool gantry_steward_serves(const struct gantry_device_section *conf)
{
	const struct gantry_backend *backend = gantry_backend_find(conf->backend);

	if (!backend || !backend->slab_create)
		return false;
	/* A cpu device's memory is the host's, unless it plays at having its own; an AMD GPU's runtime may have no other. */
	if (backend->kind == GANTRY_KIND_CPU)
		return has_option(conf, "window=yes");
	return backend->kind != GANTRY_KIND_HIP || !has_option(conf, "memory=staged");
}

static struct gantry_worker *find_any(struct gantry_agent *a, const char *backend)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->class.mode == GANTRY_WORKER_STEWARD && !w->dead &&
		    strcmp(w->class.group, backend) == 0)
			return w;
	return NULL;
}

struct gantry_worker *gantry_steward_find(struct gantry_agent *a, uint32_t idx)
{
	const struct gantry_agent_device *d = &a->devices[idx];
	struct gantry_worker *w = d->used && gantry_steward_serves(&d->conf)
					  ? find_any(a, d->conf.backend)
					  : NULL;

	return w && w->state == GANTRY_WORKER_WARM && !w->querying && !w->stale &&
			       (w->served >> idx & 1)
		       ? w
		       : NULL;
}

static struct gantry_steward_tries *tries_of(struct gantry_agent *a, const char *backend)
{
	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++) {
		struct gantry_steward_tries *t = &a->stewards[i];

		if (t->backend[0] == '\0')
			/* the same size */
			(void)gantry_str_copy(t->backend, sizeof(t->backend), backend);
		if (strcmp(t->backend, backend) == 0)
			return t;
	}
	return &a->stewards
			[0]; /* more backends than devices, over the years: they share a back-off */
}

/* ---- start ---- */

static void failed(struct gantry_steward_tries *t)
{
	uint32_t shift = t->nfailed < BACKOFF_MAX_SHIFT ? t->nfailed : BACKOFF_MAX_SHIFT;

	t->nfailed++;
	t->not_before_ns = gantry_now_ns() + (BACKOFF_MIN_NS << shift);
}

/* When to try again: 0 at once. */
static uint64_t fill_one(struct gantry_agent *a, const char *backend)
{
	struct gantry_steward_tries *t = tries_of(a, backend);
	struct gantry_err err = GANTRY_ERR_NONE;
	uint64_t now_ns = gantry_now_ns();
	struct gantry_worker_class class = { .mode = GANTRY_WORKER_STEWARD };
	struct gantry_worker *w;

	if (find_any(a, backend))
		return UINT64_MAX;
	if (now_ns < t->not_before_ns)
		return t->not_before_ns - now_ns;
	(void)gantry_str_copy(class.group, sizeof(class.group), backend); /* it fits */
	if (gantry_worker_spawn(a, &class, &w, &err) == 0)
		return UINT64_MAX;
	gantry_event(a, "worker-failed", NULL, NULL, NULL, "steward of %s: %s", backend, err.text);
	failed(t);
	return t->not_before_ns - now_ns;
}

static void fill_later(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_stewards_fill(arg);
}

void gantry_stewards_fill(struct gantry_agent *a)
{
	uint64_t wait_ns = UINT64_MAX;

	if (a->stopping)
		return;
	for (uint32_t i = 0; i < a->ndevices; i++) {
		uint64_t ns;

		if (!a->devices[i].used || !gantry_steward_serves(&a->devices[i].conf))
			continue;
		ns = fill_one(a, a->devices[i].conf.backend);
		wait_ns = ns < wait_ns ? ns : wait_ns;
	}
	if (wait_ns != UINT64_MAX)
		/* without memory for a timer the next change tries again */
		(void)gantry_timer_set(a, &a->steward_timer, wait_ns, fill_later, a);
}

void gantry_stewards_stop(struct gantry_agent *a)
{
	gantry_event_free(&a->steward_timer);
	gantry_event_free(&a->health_timer);
}

/* ---- life ---- */

static void tick(evutil_socket_t fd, short what, void *arg);

static void arm_health(struct gantry_agent *a)
{
	bool busy = !gantry_list_is_empty(&a->sessions);

	/* without memory for a timer health is asked when somebody looks */
	(void)gantry_timer_set(a, &a->health_timer, busy ? HEALTH_NS : HEALTH_IDLE_NS, tick, a);
}

void gantry_steward_ready(struct gantry_worker *w, const Gantry__Worker__Ready *ready)
{
	struct gantry_agent *a = w->agent;

	w->served = 0;
	for (size_t i = 0; i < ready->n_devices && i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];

		if (!d->used || strcmp(ready->devices[i]->name, d->conf.name) != 0)
			continue;
		if (ready->devices[i]->error[0] == '\0')
			w->served |= 1ull << i;
		else
			gantry_slabs_device_failed(a, (uint32_t)i);
	}
	gantry_slabs_pump(a);
	gantry_health_ask(a, 0);
}

void gantry_steward_died(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	struct gantry_steward_tries *t = tries_of(a, w->class.group);
	bool in_order = w->stale || a->stopping;
	uint64_t lived_ns = gantry_now_ns() - w->started_ns;

	if (lived_ns > HEALTHY_NS || in_order)
		t->nfailed = 0;
	t->not_before_ns = 0;
	if (!in_order)
		failed(t);
	gantry_worker_free(w);
	gantry_stewards_fill(a);
}

/* ---- health ---- */

static void told(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_worker *w = arg;
	struct gantry_agent *a = w->agent;

	gantry_fd_close(fd);
	if (!answer || answer->body_case != GANTRY__WORKER__FROM_WORKER__BODY_HEALTH)
		return; /* it died, or is stuck: what it makes has a time-out that ends it */
	for (size_t i = 0; i < answer->health->n_devices && i < a->ndevices; i++)
		if (w->served >> i & 1)
			gantry_device_health_learn(a, (uint32_t)i, answer->health->devices[i]);
}

void gantry_health_ask(struct gantry_agent *a, uint64_t max_age_ns)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__AskHealth ask = GANTRY__WORKER__ASK_HEALTH__INIT;
	uint64_t now_ns = gantry_now_ns();

	if (a->stopping || (a->health_asked_ns && now_ns - a->health_asked_ns < max_age_ns))
		return;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_ASK_HEALTH;
	msg.ask_health = &ask;
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (w->class.mode != GANTRY_WORKER_STEWARD || w->dead || w->served == 0 ||
		    w->state != GANTRY_WORKER_WARM)
			continue;
		a->health_asked_ns = now_ns;
		gantry_call_forget(w, w); /* one question at a time */
		(void)gantry_call(w, &msg, NULL, 0, ANSWER_NS, told, w); /* or it is dead */
		arm_health(a);
	}
}

static void tick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_health_ask(arg, 0);
}
