/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices of several kinds: each queue goes where its work would be finished first.
 *
 * A queue's finish on a device is the work of all that is there and not less urgent, plus its own at the speed that its tasks have there,
 * plus what the move costs: earliest finish time, as list schedulers for heterogeneous machines have it (HEFT), but from
 * where queues are, one move after the other, the one that gains most first, so that what is good enough stays. Arax' Heterogeneous
 * asks only whether a device has the kernel, which here is in what a queue is allowed; Parla's authors name
 * awareness of speeds as future work. What a kernel takes on a kind of device where it never ran is hoped to be the best that
 * was seen, so that it is tried there once and known from then on.
 */
#include "host-agent/policy/builtin.h"

#include <errno.h>
#include <stdlib.h>

struct heterogeneous {
	uint64_t stay_ns;
	uint64_t gain; /* percent of a queue's time that a move has to save */
};

static const struct gantry_policy_option options_known[] = {
	{ "stay", true, offsetof(struct heterogeneous, stay_ns), GANTRY_POLICY_STAY_MAX_NS },
	{ "gain", false, offsetof(struct heterogeneous, gain), 100 },
	{ 0 },
};

#define NO_DEVICE     GANTRY_POLICY_MAX_DEVICES
#define MOVES_AT_ONCE 32u /* of a class and decision; the next has the rest */

struct plan {
	const struct heterogeneous *options;
	const struct gantry_policy_view *view;
	struct gantry_policy_choice *choices;
	int32_t priority;			     /* of the class that is being placed */
	double finish_ns[GANTRY_POLICY_MAX_DEVICES]; /* of it and of more urgent ones */
	uint64_t mask[GANTRY_POLICY_MAX_QUEUES];
};

static uint64_t best_run_ns(const struct gantry_policy_view *view,
			    const struct gantry_policy_queue *q)
{
	uint64_t best = 0;

	for (uint32_t d = 0; d < view->ndevices; d++)
		if (q->run_ns[d] && (!best || q->run_ns[d] < best))
			best = q->run_ns[d];
	return best ? best : 1;
}

/*
 * What the queue has to do, at the speed of @device: what is queued; or, if it has worked for longer, as much again as it would have
 * done in that time where it is fastest (who has lived long lives on; see elastic.c).
 */
static double work_ns(const struct plan *p, const struct gantry_policy_queue *q, uint32_t device)
{
	double best_ns = (double)best_run_ns(p->view, q);
	double run_ns = (double)gantry_policy_run_ns(p->view, q, device);
	double tasks = (double)(q->backlog ? q->backlog : 1);
	double lasting_ns = (double)q->age_ns * q->demand / GANTRY_POLICY_WHOLE;

	if (lasting_ns / best_ns > tasks)
		tasks = lasting_ns / best_ns;
	return tasks * (run_ns > 0 ? run_ns : 1);
}

/* When it would be finished on @device, where it is not yet. */
static double arrival_ns(const struct plan *p, const struct gantry_policy_queue *q, uint32_t device)
{
	return p->finish_ns[device] + work_ns(p, q, device) +
	       (double)gantry_policy_cost_ns(p->view, q, device);
}

static uint32_t earliest(const struct plan *p, uint32_t i, uint64_t mask)
{
	const struct gantry_policy_queue *q = &p->view->queues[i];
	uint32_t best = NO_DEVICE;

	for (uint32_t d = 0; d < p->view->ndevices; d++)
		if (gantry_policy_may(mask, d) &&
		    (best == NO_DEVICE || arrival_ns(p, q, d) < arrival_ns(p, q, best)))
			best = d;
	return best;
}

static void put(struct plan *p, uint32_t i, uint32_t to, bool must)
{
	p->finish_ns[to] += work_ns(p, &p->view->queues[i], to);
	if (must)
		gantry_policy_choose(&p->choices[i], to, "it may not stay");
	else
		gantry_policy_choose(&p->choices[i], to, "%s finishes it first",
				     p->view->devices[to].name);
}

/* The move of the class that brings a queue's finish forward by the greatest part of it. NO_DEVICE: none by enough. */
static uint32_t best_move(const struct plan *p, uint32_t *ret_queue)
{
	double best_gain = (double)p->options->gain / 100;
	uint32_t best = NO_DEVICE;

	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];
		uint32_t to;
		double gain;

		if (q->priority != p->priority || p->choices[i].device != q->device ||
		    q->stayed_ns < p->options->stay_ns)
			continue;
		to = earliest(p, i, p->mask[i] & ~(1ull << q->device));
		if (to == NO_DEVICE)
			continue;
		gain = 1 - arrival_ns(p, q, to) / p->finish_ns[q->device];
		if (gain > best_gain) {
			best_gain = gain;
			best = to;
			*ret_queue = i;
		}
	}
	return best;
}

/* The queue on @from, free to move, that would gain most (or lose least) by @to: of comparative advantage. */
static int64_t keenest(const struct plan *p, uint32_t from, uint32_t to)
{
	double best_ratio = 0;
	int64_t best = -1;

	for (uint32_t i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];
		double ratio;

		if (q->priority != p->priority || p->choices[i].device != q->device ||
		    q->device != from || q->stayed_ns < p->options->stay_ns ||
		    !gantry_policy_may(p->mask[i], to))
			continue;
		ratio = work_ns(p, q, to) / work_ns(p, q, from);
		if (best < 0 || ratio < best_ratio) {
			best_ratio = ratio;
			best = i;
		}
	}
	return best;
}

/* Two queues change places where that brings the later of two devices forward: none of them might gain alone. */
static bool swap(struct plan *p, uint32_t a, uint32_t b)
{
	int64_t x = keenest(p, a, b), y = keenest(p, b, a);
	const struct gantry_policy_queue *qx, *qy;
	double a_ns, b_ns, then_ns, now_ns;

	if (x < 0 || y < 0)
		return false;
	qx = &p->view->queues[x];
	qy = &p->view->queues[y];
	a_ns = p->finish_ns[a] - work_ns(p, qx, a);
	b_ns = p->finish_ns[b] - work_ns(p, qy, b);
	now_ns = p->finish_ns[a] > p->finish_ns[b] ? p->finish_ns[a] : p->finish_ns[b];
	then_ns = a_ns + work_ns(p, qy, a) + (double)gantry_policy_cost_ns(p->view, qy, a);
	if (then_ns < b_ns + work_ns(p, qx, b) + (double)gantry_policy_cost_ns(p->view, qx, b))
		then_ns = b_ns + work_ns(p, qx, b) + (double)gantry_policy_cost_ns(p->view, qx, b);
	if (then_ns >= now_ns * (1 - (double)p->options->gain / 100))
		return false;
	p->finish_ns[a] = a_ns;
	p->finish_ns[b] = b_ns;
	put(p, (uint32_t)x, b, false);
	put(p, (uint32_t)y, a, false);
	return true;
}

static void swap_all(struct plan *p)
{
	for (uint32_t a = 0; a < p->view->ndevices; a++)
		for (uint32_t b = 0; b < a; b++)
			for (uint32_t n = 0; n < MOVES_AT_ONCE && swap(p, a, b); n++)
				;
}

static void place_class(struct plan *p)
{
	uint32_t i, to;

	for (i = 0; i < p->view->nqueues; i++) {
		const struct gantry_policy_queue *q = &p->view->queues[i];

		if (q->priority != p->priority)
			continue;
		p->mask[i] = gantry_policy_candidates(p->view, i);
		if (gantry_policy_may(p->mask[i], q->device) || !p->mask[i])
			p->finish_ns[q->device] += work_ns(p, q, q->device);
	}
	for (i = 0; i < p->view->nqueues; i++)
		if (p->view->queues[i].priority == p->priority && p->mask[i] &&
		    !gantry_policy_may(p->mask[i], p->view->queues[i].device))
			put(p, i, earliest(p, i, p->mask[i]), true);
	for (uint32_t n = 0; n < MOVES_AT_ONCE && (to = best_move(p, &i)) != NO_DEVICE; n++) {
		p->finish_ns[p->view->queues[i].device] -= work_ns(p, &p->view->queues[i],
								   p->view->queues[i].device);
		put(p, i, to, false);
	}
	swap_all(p);
}

static int heterogeneous_place(void *state, const struct gantry_policy_view *view,
			       struct gantry_policy_choice *ret_choices)
{
	struct plan *p = calloc(1, sizeof(*p));
	int64_t below = INT64_MAX;

	if (!p)
		return -ENOMEM;
	p->options = state;
	p->view = view;
	p->choices = ret_choices;
	while (gantry_policy_next_class(view, below, &p->priority)) {
		below = p->priority;
		place_class(p);
	}
	free(p);
	return 0;
}

static int heterogeneous_create(const char *options, void **ret_state, char *text, size_t cap)
{
	static const struct heterogeneous defaults = {
		.stay_ns = GANTRY_POLICY_STAY_NS,
		.gain = 10,
	};

	return gantry_policy_create(&defaults, sizeof(defaults), options_known, options, ret_state,
				    text, cap);
}

const struct gantry_policy gantry_policy_heterogeneous = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "heterogeneous",
	.summary = "each queue on the device that would finish its work first, by measured speeds",
	.create = heterogeneous_create,
	.destroy = free,
	.place = heterogeneous_place,
};
