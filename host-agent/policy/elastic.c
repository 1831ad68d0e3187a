/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elastic policy: who has many queues gets idle devices, and gives them back when somebody more urgent comes.
 *
 * Queues are looked at by priority, the most urgent first. Those of one priority are a class, which has the devices that
 * no class before it is on. Inside a class:
 *   1. Each tenant's share of these devices, in devices: by weight, at most as many as it has queues for (and may have),
 *      what one cannot use going to the others (water-filling). Of max_devices, min_devices and the option slo see want_of().
 *   2. The whole devices of a share are the tenant's alone; parts of one it has on devices that are nobody's alone, where the
 *      share page divides time by weight.
 *   3. Who finds no device, or fewer than min_devices, gets the least used ones of the classes before it, too.
 *   4. Queues that are not where they may be go to the least loaded device; then single queues move from more to less loaded ones
 *      for as long as that gains something that is worth a move.
 *
 * Load of a device is the sum of its queues' demands, each as much greater as the queue's tasks take longer there
 * than on the fastest device; so queues go to a slower device as far as they would not finish later for it.
 *
 * Against flapping: a queue that has moved stays for a while; a move has to gain an eighth of the queue's time at
 * least; and it has to pay for itself: what it gains in the time that the queue is expected to go on must be twice its
 * cost. What is expected is the greater of the work that is queued and the time that the queue has worked for, as half of those
 * that have run for T run for another T (Harchol-Balter, Downey: Exploiting process lifetime distributions for
 * dynamic load balancing, 1997). What must go (a drained device, a missing kernel, a more urgent class) goes at once.
 *
 * Arax (the paper's elasticity) moves queues to idle accelerators and back at the arrival of a higher
 * priority; its code does that by queue count alone. FlexyRR's formula for an objective is in want_of().
 */
#include "host-agent/policy/builtin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE	     GANTRY_POLICY_WHOLE
#define LEAST_DEMAND 50u  /* of a queue that hardly has work: it is somewhere all the same */
#define CLAIM	     100u /* demand of a class on a device that keeps less urgent ones off */
#define LEAST_GAIN   8u	  /* an n-th of the queue's time */
#define NO_DEVICE    GANTRY_POLICY_MAX_DEVICES
/* Of a class and decision, so that a decision over many queues takes little; the next has the rest. */
#define MOVES_AT_ONCE 32u
#define SLOWEST	      1e6 /* times as slow as the fastest: slower is the same */

struct elastic {
	uint64_t stay_ns;
	uint64_t slo_ns; /* 0: none */
};

static const struct gantry_policy_option options_known[] = {
	{ "stay", true, offsetof(struct elastic, stay_ns), GANTRY_POLICY_STAY_MAX_NS },
	{ "slo", true, offsetof(struct elastic, slo_ns), GANTRY_POLICY_STAY_MAX_NS },
	{ 0 },
};

/* One class of one view, on the way to a placement. */
struct plan {
	const struct elastic *options;
	const struct gantry_policy_view *view;
	struct gantry_policy_choice *choices;
	int32_t priority;
	uint64_t usable;			   /* devices */
	uint64_t taken;				   /* of classes before this one */
	uint64_t load[GANTRY_POLICY_MAX_DEVICES];  /* of them and of this one */
	uint64_t claim[GANTRY_POLICY_MAX_DEVICES]; /* demand of this class */
	/* tenants */
	double want
		[GANTRY_POLICY_MAX_TENANTS]; /* devices that it could use; 0: it is not of this class */
	double share[GANTRY_POLICY_MAX_TENANTS];
	uint64_t may[GANTRY_POLICY_MAX_TENANTS];  /* where its queues may be, by what it is due */
	uint64_t used[GANTRY_POLICY_MAX_TENANTS]; /* where its more urgent ones are */
	uint64_t allow[GANTRY_POLICY_MAX_QUEUES];
};

static bool of_class(const struct plan *p, uint32_t queue)
{
	return p->view->queues[queue].priority == p->priority;
}

static uint64_t demand_of(const struct gantry_policy_queue *q)
{
	return q->demand > LEAST_DEMAND ? q->demand : LEAST_DEMAND;
}

/* What the queue adds to the load of @device. */
static uint64_t load_on(const struct plan *p, const struct gantry_policy_queue *q, uint32_t device)
{
	uint64_t here = gantry_policy_run_ns(p->view, q, device);
	uint64_t best = here;

	for (uint32_t d = 0; d < p->view->ndevices; d++)
		if (q->run_ns[d] && q->run_ns[d] < best)
			best = q->run_ns[d];
	if (!best)
		return demand_of(q);
	return (uint64_t)((double)demand_of(q) * ((double)here < (double)best * SLOWEST
							  ? (double)here / (double)best
							  : SLOWEST));
}

/* ---- shares ---- */

static uint64_t tenant_reach(const struct plan *p, uint32_t tenant)
{
	uint64_t reach = 0;

	for (uint32_t i = 0; i < p->view->nqueues; i++)
		if (of_class(p, i) && p->view->queues[i].tenant == tenant)
			reach |= p->view->queues[i].allowed;
	return reach & p->usable;
}

/* FlexyRR (Arax): accelerators needed to meet an objective are the sum of mean time x queued tasks, by the objective. */
static double needed_for(const struct plan *p, uint32_t tenant)
{
	double queued_ns = 0;
	double needed;

	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];

		if (of_class(p, i) && q->tenant == tenant)
			queued_ns += (double)gantry_policy_run_ns(p->view, q, q->device) *
				     (double)q->backlog;
	}
	needed = queued_ns / (double)p->options->slo_ns;
	return needed > (double)(uint64_t)needed ? (double)((uint64_t)needed + 1) : needed;
}

/* How many devices the tenant could use. */
static double want_of(const struct plan *p, uint32_t tenant)
{
	const struct gantry_policy_tenant *t = &p->view->tenants[tenant];
	uint64_t demand = 0;
	double want, reach;

	for (uint32_t i = 0; i < p->view->nqueues; i++)
		if (of_class(p, i) && p->view->queues[i].tenant == tenant)
			demand += demand_of(&p->view->queues[i]);
	if (demand == 0)
		return 0;
	want = (double)((demand + WHOLE - 1) / WHOLE);
	if (p->options->slo_ns && needed_for(p, tenant) < want)
		want = needed_for(p, tenant);
	if (want < 1)
		want = 1;
	if (want < t->min_devices)
		want = t->min_devices;
	if (t->max_devices && want > t->max_devices)
		want = t->max_devices;
	reach = __builtin_popcountll(tenant_reach(p, tenant));
	return want < reach ? want : reach;
}

/* By weight, nobody more than it wants: what is left over is divided again among those who want more. */
static void fill_shares(struct plan *p, double ndevices)
{
	uint32_t n = p->view->ntenants;
	double left = ndevices;

	for (uint32_t round = 0; round <= n && left > 1e-9; round++) {
		double weights = 0, given = 0;

		for (uint32_t t = 0; t < n; t++)
			if (p->share[t] < p->want[t])
				weights += p->view->tenants[t].weight;
		if (weights == 0)
			return;
		for (uint32_t t = 0; t < n; t++) {
			double more = left * p->view->tenants[t].weight / weights;

			if (p->share[t] >= p->want[t])
				continue;
			if (more > p->want[t] - p->share[t])
				more = p->want[t] - p->share[t];
			p->share[t] += more;
			given += more;
		}
		left -= given;
	}
}

/* ---- whose devices are whose ---- */

/* Demand of the tenant's queues of this class that are on @device now. */
static uint64_t demand_there(const struct plan *p, uint32_t tenant, uint32_t device)
{
	uint64_t demand = 0;

	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];

		if (of_class(p, i) && q->tenant == tenant && q->device == device)
			demand += demand_of(q);
	}
	return demand;
}

/* Of @mask the device where it has most work already; then the least loaded, then the first. */
static uint32_t best_for(const struct plan *p, uint32_t tenant, uint64_t mask)
{
	uint64_t best_there = 0;
	uint32_t best = NO_DEVICE;

	for (uint32_t d = 0; d < p->view->ndevices; d++) {
		uint64_t there;

		if (!gantry_policy_may(mask, d))
			continue;
		there = demand_there(p, tenant, d);
		if (best == NO_DEVICE || there > best_there ||
		    (there == best_there && p->load[d] < p->load[best])) {
			best = d;
			best_there = there;
		}
	}
	return best;
}

/* The whole devices of its share, of those in *free, which it takes them from. */
static void give_own(struct plan *p, uint32_t tenant, uint64_t *free_mask)
{
	uint32_t whole = (uint32_t)(p->share[tenant] + 1e-6);

	for (; whole > 0; whole--) {
		uint32_t d = best_for(p, tenant, *free_mask & tenant_reach(p, tenant));

		if (d == NO_DEVICE)
			return;
		p->may[tenant] |= 1ull << d;
		*free_mask &= ~(1ull << d);
	}
}

/* Half a queue's worth less where the tenant is already: of two devices alike each keeps whom it has. */
static uint64_t load_for(const struct plan *p, uint32_t tenant, uint32_t device)
{
	uint64_t load = p->load[device];

	if (demand_there(p, tenant, device))
		load = load > WHOLE / 2 ? load - WHOLE / 2 : 0;
	return load;
}

/* Who has too few devices of its own class shares the least loaded of others, up to what it is to have at least. */
static void give_least(struct plan *p, uint32_t tenant)
{
	uint32_t least = p->view->tenants[tenant].min_devices;
	uint64_t reach = tenant_reach(p, tenant);

	if (least < 1)
		least = 1;
	while ((uint32_t)__builtin_popcountll(p->may[tenant] & reach) < least) {
		uint32_t best = NO_DEVICE;

		for (uint32_t d = 0; d < p->view->ndevices; d++)
			if (gantry_policy_may(reach & ~p->may[tenant], d) &&
			    (best == NO_DEVICE ||
			     load_for(p, tenant, d) < load_for(p, tenant, best)))
				best = d;
		if (best == NO_DEVICE)
			return;
		p->may[tenant] |= 1ull << best;
	}
}

/* No more than max_devices together with those that its more urgent queues are on. */
static uint64_t bound(const struct plan *p, uint32_t tenant, uint64_t may)
{
	uint32_t most = p->view->tenants[tenant].max_devices;
	uint32_t nused = (uint32_t)__builtin_popcountll(p->used[tenant]);

	if (!most)
		return may;
	if (nused >= most)
		return p->used[tenant] & tenant_reach(p, tenant);
	return (may & p->used[tenant]) |
	       gantry_policy_narrow(p->view, tenant, may & ~p->used[tenant], most - nused);
}

/* Which tenants have queues of the class, and what they could use. Each queue is of one class: all classes together are cheap. */
static void find_tenants(struct plan *p)
{
	for (uint32_t t = 0; t < p->view->ntenants; t++) {
		p->share[t] = 0;
		p->may[t] = 0;
		p->want[t] = 0;
	}
	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		uint32_t t = p->view->queues[i].tenant;

		if (of_class(p, i) && p->want[t] == 0)
			p->want[t] = want_of(p, t);
	}
}

static void divide(struct plan *p)
{
	uint64_t free_mask = p->usable & ~p->taken;
	uint64_t shared;

	find_tenants(p);
	fill_shares(p, __builtin_popcountll(free_mask));
	for (uint32_t t = 0; t < p->view->ntenants; t++)
		if (p->want[t] > 0)
			give_own(p, t, &free_mask);
	shared = free_mask;
	for (uint32_t t = 0; t < p->view->ntenants; t++) {
		double own = (double)__builtin_popcountll(p->may[t]);

		if (p->want[t] == 0)
			continue;
		/* A part of a device it has among all that are nobody's alone. */
		if (p->share[t] > own + 1e-6)
			p->may[t] |= shared;
		give_least(p, t);
		p->may[t] = bound(p, t, p->may[t] & tenant_reach(p, t));
	}
}

/* ---- queues ---- */

static void put(struct plan *p, uint32_t queue, uint32_t device)
{
	const struct gantry_policy_queue *q = &p->view->queues[queue];

	p->load[device] += load_on(p, q, device);
	p->claim[device] += demand_of(q);
}

static void take_off(struct plan *p, uint32_t queue, uint32_t device)
{
	const struct gantry_policy_queue *q = &p->view->queues[queue];

	p->load[device] -= load_on(p, q, device);
	p->claim[device] -= demand_of(q);
}

static uint32_t least_loaded(const struct plan *p, const struct gantry_policy_queue *q,
			     uint64_t mask)
{
	uint32_t best = NO_DEVICE;
	uint64_t best_load = 0;

	for (uint32_t d = 0; d < p->view->ndevices; d++) {
		uint64_t load;

		if (!gantry_policy_may(mask, d))
			continue;
		load = p->load[d] + load_on(p, q, d);
		if (best == NO_DEVICE || load < best_load ||
		    (load == best_load && gantry_policy_cost_ns(p->view, q, d) <
						  gantry_policy_cost_ns(p->view, q, best))) {
			best = d;
			best_load = load;
		}
	}
	return best;
}

/* For how long the queue is expected to go on. */
static uint64_t horizon_ns(const struct plan *p, const struct gantry_policy_queue *q)
{
	uint64_t queued_ns;

	if (__builtin_mul_overflow(q->backlog, gantry_policy_run_ns(p->view, q, q->device),
				   &queued_ns))
		queued_ns = UINT64_MAX;
	return q->age_ns > queued_ns ? q->age_ns : queued_ns;
}

/* Whether a part @gain (of 1) of the queue's time is worth a move to @to. */
static bool pays(const struct plan *p, const struct gantry_policy_queue *q, uint32_t to,
		 double gain)
{
	if (q->stayed_ns < p->options->stay_ns || gain * LEAST_GAIN < 1)
		return false;
	return gain * (double)horizon_ns(p, q) > 2 * (double)gantry_policy_cost_ns(p->view, q, to);
}

/* Queues that may stay where they are; the others' places are decided by send_on(). */
static void keep_in_place(struct plan *p)
{
	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];

		if (!of_class(p, i))
			continue;
		p->allow[i] = q->allowed & p->may[q->tenant];
		/* Its kernel is on other devices only: there, unless the tenant may not be on more. */
		if (!p->allow[i] && !p->view->tenants[q->tenant].max_devices)
			p->allow[i] = q->allowed & p->usable;
		if (!p->allow[i] || gantry_policy_may(p->allow[i], q->device))
			put(p, i, q->device);
	}
}

static const char *why_leave(const struct plan *p, const struct gantry_policy_queue *q)
{
	if (!gantry_policy_may(p->usable, q->device))
		return "its device is out of service";
	if (!gantry_policy_may(q->allowed, q->device))
		return "its device has not its kernel";
	if (gantry_policy_may(p->taken, q->device))
		return "more urgent work is on its device";
	return NULL; /* the device is due to another of its class */
}

static void send_on(struct plan *p, uint32_t i)
{
	const struct gantry_policy_queue *q = &p->view->queues[i];
	const char *why = why_leave(p, q);
	uint32_t to = least_loaded(p, q, p->allow[i]);

	/* Among equals there is time: the move is to pay, or to be an order of the configuration. */
	if (to == NO_DEVICE ||
	    (!why && !p->view->tenants[q->tenant].max_devices && !pays(p, q, to, 1.0 / 4))) {
		put(p, i, q->device);
		return;
	}
	put(p, i, to);
	gantry_policy_choose(&p->choices[i], to, "%s", why ? why : "its tenant's share is there");
}

/* The move of one queue of this class that gains most. NO_DEVICE: none does. */
static uint32_t best_move(const struct plan *p, uint32_t *ret_queue)
{
	uint32_t best = NO_DEVICE;
	double best_gain = 0;

	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];
		uint32_t from = p->choices[i].device;
		uint32_t to;
		double gain;

		/* Once a decision is enough for each: what it leads to is seen at the next. */
		if (!of_class(p, i) || from != q->device || p->load[from] == 0)
			continue;
		to = least_loaded(p, q, p->allow[i] & ~(1ull << from));
		if (to == NO_DEVICE)
			continue;
		gain = 1 - (double)(p->load[to] + load_on(p, q, to)) / (double)p->load[from];
		if (gain > best_gain && pays(p, q, to, gain)) {
			best_gain = gain;
			best = to;
			*ret_queue = i;
		}
	}
	return best;
}

static void even_out(struct plan *p)
{
	uint32_t queue = 0;
	uint32_t to;

	for (uint32_t n = 0; n < MOVES_AT_ONCE; n++) {
		to = best_move(p, &queue);
		if (to == NO_DEVICE)
			return;
		take_off(p, queue, p->choices[queue].device);
		put(p, queue, to);
		gantry_policy_choose(&p->choices[queue], to, "%s has less to do",
				     p->view->devices[to].name);
	}
}

static void place_class(struct plan *p)
{
	memset(p->claim, 0, sizeof(p->claim));
	divide(p);
	keep_in_place(p);
	for (uint32_t i = 0; i < p->view->nqueues; i++)
		if (of_class(p, i) && p->allow[i] &&
		    !gantry_policy_may(p->allow[i], p->view->queues[i].device))
			send_on(p, i);
	even_out(p);
	for (uint32_t i = 0; i < p->view->nqueues; i++)
		if (of_class(p, i))
			p->used[p->view->queues[i].tenant] |= 1ull << p->choices[i].device;
	for (uint32_t d = 0; d < p->view->ndevices; d++)
		if (p->claim[d] >= CLAIM)
			p->taken |= 1ull << d;
}

static int elastic_place(void *state, const struct gantry_policy_view *view,
			 struct gantry_policy_choice *ret_choices)
{
	struct plan *p = calloc(1, sizeof(*p));
	int64_t below = INT64_MAX;

	if (!p)
		return -ENOMEM;
	p->options = state;
	p->view = view;
	p->choices = ret_choices;
	for (uint32_t d = 0; d < view->ndevices; d++) {
		p->usable |= view->devices[d].usable ? 1ull << d : 0;
		p->load[d] = view->devices[d].foreign;
	}
	while (gantry_policy_next_class(view, below, &p->priority)) {
		below = p->priority;
		place_class(p);
	}
	free(p);
	return 0;
}

static int elastic_create(const char *options, void **ret_state, char *text, size_t cap)
{
	static const struct elastic defaults = { .stay_ns = GANTRY_POLICY_STAY_NS };

	return gantry_policy_create(&defaults, sizeof(defaults), options_known, options, ret_state,
				    text, cap);
}

const struct gantry_policy gantry_policy_elastic = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "elastic",
	.summary = "queues spread over idle devices, and are drawn together for more urgent ones",
	.create = elastic_create,
	.destroy = free,
	.place = elastic_place,
};
