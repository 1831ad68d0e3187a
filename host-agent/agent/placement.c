/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/policy_child.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"

#define MOVES_AT_ONCE 64u /* of one decision; the next one has the rest */

static void tick(evutil_socket_t fd, short what, void *arg);

/* ---- domains ---- */

struct gantry_domain *gantry_placement_domain(struct gantry_placement *p,
					      const struct gantry_tenant *t)
{
	for (uint32_t i = 1; i < p->ndomains; i++)
		if (strcmp(p->domains[i].name, t->conf.group) == 0)
			return &p->domains[i];
	return &p->domains[0];
}

static bool decides(const struct gantry_domain *d)
{
	return d->child || d->used != &gantry_policy_static;
}

static bool anybody_decides(const struct gantry_placement *p)
{
	for (uint32_t i = 0; i < p->ndomains; i++)
		if (decides(&p->domains[i]))
			return true;
	return false;
}

static void forget_policy(struct gantry_domain *d)
{
	if (d->used && d->used->destroy)
		d->used->destroy(d->state);
	d->used = NULL;
	d->state = NULL;
}

static void forget_domain(struct gantry_domain *d)
{
	gantry_policy_child_free(d->child);
	d->child = NULL;
	forget_policy(d);
}

/* Names and options were checked with the configuration; without memory queues stay where they are. */
static void use_policy(struct gantry_domain *d, const char *name, const char *options)
{
	const struct gantry_policy *policy = gantry_policy_find(name);
	char text[GANTRY_ERR_TEXT_MAX] = "";

	forget_policy(d);
	d->used = policy ? policy : &gantry_policy_static;
	if (d->used->create && d->used->create(options, &d->state, text, sizeof(text)) < 0) {
		gantry_log(GANTRY_LOG_ERR, "policy %s: %s; queues stay where they are", name, text);
		d->used = &gantry_policy_static;
	}
}

static void apply_domain(struct gantry_placement *p, struct gantry_domain *d, const char *name,
			 const char *policy, const char *options)
{
	const struct gantry_policy_section *loaded = gantry_config_policy(p->agent->config, policy);
	bool known = d->used && strcmp(d->name, name) == 0 && strcmp(d->policy, policy) == 0 &&
		     strcmp(d->options, options) == 0 && (loaded != NULL) == (d->child != NULL) &&
		     (!loaded || memcmp(loaded, &d->loaded, sizeof(*loaded)) == 0);

	if (known)
		return;
	forget_domain(d);
	*d = (struct gantry_domain){ 0 };
	/* They are as long as these. */
	(void)gantry_str_copy(d->name, sizeof(d->name), name);
	(void)gantry_str_copy(d->policy, sizeof(d->policy), policy);
	(void)gantry_str_copy(d->options, sizeof(d->options), options);
	use_policy(d, loaded ? loaded->fallback : policy, loaded ? "" : options);
	if (!loaded)
		return;
	d->loaded = *loaded;
	d->child = gantry_policy_child_new(p, d, loaded);
	if (!d->child)
		gantry_log(GANTRY_LOG_ERR, "policy %s: no memory; %s decides", policy,
			   loaded->fallback);
}

void gantry_placement_apply(struct gantry_agent *a)
{
	const struct gantry_config *c = a->config;
	struct gantry_placement *p = a->placement;

	if (!p)
		return;
	apply_domain(p, &p->domains[0], "", c->agent.policy, c->agent.policy_options);
	for (uint32_t i = 0; i < c->ngroups; i++)
		apply_domain(p, &p->domains[1 + i], c->groups[i].name, c->groups[i].policy,
			     c->groups[i].options);
	for (uint32_t i = 1 + c->ngroups; i < p->ndomains; i++)
		forget_domain(&p->domains[i]);
	p->ndomains = 1 + c->ngroups;
	gantry_placement_wake(a);
}

/* ---- decisions ---- */

static void send_queue(struct gantry_placement *p, struct gantry_domain *d,
		       const struct gantry_view_ref *ref, uint32_t from,
		       const struct gantry_policy_choice *choice, uint64_t now_ns)
{
	struct gantry_session *s = gantry_session_find(p->agent, ref->session);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_queue_sample *q;

	/* A policy in a process of its own may have taken its time. */
	if (!s || !s->sample || ref->slot >= s->sample->nqueues ||
	    s->sample->queues[ref->slot].gen != ref->gen)
		return;
	q = &s->sample->queues[ref->slot];
	/* Refused: the worker has just died, or the like. The next decision sees what is. */
	if (gantry_queue_migrate(p->agent, s, ref->slot, choice->device, choice->why, &err) < 0)
		return;
	q->asked = choice->device + 1;
	q->asked_ns = now_ns;
	gantry_event(p->agent, "queue-placed", NULL, s, NULL, "queue %u to %s: %s", ref->slot,
		     p->agent->devices[choice->device].conf.name, choice->why);
	d->nmoves++;
	p->nmoves++;
	/* cut is better than unsaid */
	(void)gantry_str_format(d->why, sizeof(d->why), "%llu:%u from %s to %s: %s",
				(unsigned long long)ref->session, ref->slot,
				p->agent->devices[from].conf.name,
				p->agent->devices[choice->device].conf.name, choice->why);
}

int gantry_placement_carry_out(struct gantry_placement *p, struct gantry_domain *d,
			       struct gantry_view_store *store, struct gantry_err *err)
{
	int r = gantry_policy_check(&store->view, store->choices, err);
	uint64_t now_ns = gantry_now_ns();
	uint32_t nmoves = 0;

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < store->view.nqueues && nmoves < MOVES_AT_ONCE; i++) {
		uint32_t from = store->queues[i].device;

		if (store->choices[i].device == from)
			continue;
		send_queue(p, d, &store->refs[i], from, &store->choices[i], now_ns);
		nmoves++;
	}
	return 0;
}

static uint32_t count_usable(const struct gantry_policy_view *view)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < view->ndevices; i++)
		n += view->devices[i].usable;
	return n;
}

/* With what is built in. A policy of ours that cannot decide, or decides what may not be, leaves queues where they are. */
static void decide_here(struct gantry_placement *p, struct gantry_domain *d,
			struct gantry_view_store *store)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	gantry_policy_stay(&store->view, store->choices);
	if (d->used->place(d->state, &store->view, store->choices) < 0)
		return;
	gantry_policy_enforce(&store->view, store->choices);
	if (gantry_placement_carry_out(p, d, store, &err) < 0)
		gantry_log(GANTRY_LOG_ERR, "policy %s: %s", d->used->name, err.text);
}

static void decide(struct gantry_placement *p, struct gantry_domain *d, uint64_t now_ns)
{
	uint64_t took_ns;

	gantry_placement_view(p, d, now_ns, &p->store);
	/* With one device there is nothing to decide; queues leave one that does not serve by themselves. */
	if (p->store.view.nqueues == 0 || count_usable(&p->store.view) < 2)
		return;
	if (!d->child || !gantry_policy_child_ask(d->child, &p->store))
		decide_here(p, d, &p->store);
	took_ns = gantry_now_ns() - now_ns;
	d->ndecisions++;
	d->decide_ns += took_ns;
	p->ndecisions++;
	p->decide_ns += took_ns;
}

/* ---- the loop ---- */

static void watch_devices(struct gantry_placement *p, uint64_t now_ns)
{
	for (uint32_t i = 0; i < p->agent->ndevices; i++) {
		if (gantry_share_is_busy(p->agent->devices[i].page))
			p->idle_since_ns[i] = 0;
		else if (p->idle_since_ns[i] == 0)
			p->idle_since_ns[i] = now_ns;
	}
}

/* From now on workers tell when work comes. False: some has come already. */
static bool may_sleep(struct gantry_placement *p)
{
	for (uint32_t i = 0; i < p->agent->ndevices; i++)
		gantry_share_watch(p->agent->devices[i].page);
	for (uint32_t i = 0; i < p->agent->ndevices; i++)
		if (p->agent->devices[i].used && gantry_share_is_busy(p->agent->devices[i].page))
			return false;
	return true;
}

static void tick(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_placement *p = a->placement;
	uint64_t now_ns = gantry_now_ns();
	uint32_t nactive;

	(void)fd;
	(void)what;
	p->running = false;
	if (a->stopping || !anybody_decides(p))
		return;
	nactive = gantry_placement_sample(p, now_ns);
	watch_devices(p, now_ns);
	p->looked_ns = now_ns;
	p->nlooks++;
	for (uint32_t i = 0; i < p->ndomains; i++)
		if (decides(&p->domains[i]))
			decide(p, &p->domains[i], now_ns);
	if (nactive == 0 && may_sleep(p))
		return;
	/* it exists: no memory needed */
	p->running = gantry_timer_set(a, &p->timer, GANTRY_PLACEMENT_PERIOD_NS, tick, a) == 0;
}

void gantry_placement_wake(struct gantry_agent *a)
{
	struct gantry_placement *p = a->placement;

	if (p && !p->running && !a->stopping && anybody_decides(p))
		p->running = gantry_timer_set(a, &p->timer, 0, tick, a) == 0;
}

void gantry_placement_look(struct gantry_agent *a)
{
	if (a->placement && anybody_decides(a->placement))
		tick(-1, 0, a);
}

int gantry_placement_start(struct gantry_agent *a)
{
	struct gantry_placement *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->agent = a;
	gantry_list_init(&p->processes);
	a->placement = p;
	return 0;
}

void gantry_placement_stop(struct gantry_agent *a)
{
	struct gantry_placement *p = a->placement;

	if (!p)
		return;
	for (uint32_t i = 0; i < p->ndomains; i++)
		forget_domain(&p->domains[i]);
	gantry_policy_children_end(p);
	gantry_event_free(&p->timer);
	free(p);
	a->placement = NULL;
}
