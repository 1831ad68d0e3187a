/* SPDX-License-Identifier: Apache-2.0 */
/* Policies that count and compare, and know neither speeds nor priorities. */
#include "host-agent/policy/builtin.h"

#include <errno.h>
#include <stdlib.h>

static int place_static(void *state, const struct gantry_policy_view *view,
			struct gantry_policy_choice *ret_choices)
{
	(void)state;
	(void)view;
	(void)ret_choices; /* all stay, as they are filled */
	return 0;
}

const struct gantry_policy gantry_policy_static = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "static",
	.summary = "queues stay where they were opened, but for a device out of service",
	.place = place_static,
};

/*
 * GrCUDA's Round-Robin and Arax' of that name: the next device for the next queue. The n-th queue of a session goes to the n-th device
 * that it may be on, the session's number on top, so that no queue moves because another ends.
 */
static int place_round_robin(void *state, const struct gantry_policy_view *view,
			     struct gantry_policy_choice *ret_choices)
{
	(void)state;
	for (uint32_t i = 0; i < view->nqueues; i++) {
		const struct gantry_policy_queue *q = &view->queues[i];
		uint64_t mask = gantry_policy_candidates(view, i);
		uint32_t n = (uint32_t)__builtin_popcountll(mask);
		uint64_t turn;

		if (n == 0)
			continue;
		for (turn = (q->session + q->slot) % n; turn > 0; turn--)
			mask &= mask - 1;
		gantry_policy_choose(&ret_choices[i], (uint32_t)__builtin_ctzll(mask),
				     "its turn among %u devices", n);
	}
	return 0;
}

const struct gantry_policy gantry_policy_round_robin = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "round-robin",
	.summary = "queues go round the devices, whatever these have to do",
	.place = place_round_robin,
};

/* ---- by a count of what is on each device ---- */

typedef uint64_t count_fn(const struct gantry_policy_queue *q);

static uint64_t count_queue(const struct gantry_policy_queue *q)
{
	(void)q;
	return 1;
}

static uint64_t count_tasks(const struct gantry_policy_queue *q)
{
	return q->backlog ? q->backlog : 1;
}

static void count_all(const struct gantry_policy_view *view,
		      const struct gantry_policy_choice *choices, count_fn *count,
		      uint64_t counts[GANTRY_POLICY_MAX_DEVICES])
{
	for (uint32_t d = 0; d < GANTRY_POLICY_MAX_DEVICES; d++)
		counts[d] = 0;
	for (uint32_t i = 0; i < view->nqueues; i++)
		counts[choices[i].device] += count(&view->queues[i]);
}

static uint32_t least(const uint64_t counts[GANTRY_POLICY_MAX_DEVICES], uint64_t mask)
{
	uint32_t best = (uint32_t)__builtin_ctzll(mask);

	for (mask &= mask - 1; mask; mask &= mask - 1)
		if (counts[__builtin_ctzll(mask)] < counts[best])
			best = (uint32_t)__builtin_ctzll(mask);
	return best;
}

/*
 * Each queue goes where the count is least, if it is less there with the queue than it is here. Tasks come and go
 * faster than queues should, so of them the difference has to be more than a quarter, and the queue has to have stayed a while.
 */
static int level(const struct gantry_policy_view *view, count_fn *count, bool hasty,
		 const char *what, struct gantry_policy_choice *ret_choices)
{
	uint64_t counts[GANTRY_POLICY_MAX_DEVICES];

	count_all(view, ret_choices, count, counts);
	for (uint32_t i = 0; i < view->nqueues; i++) {
		const struct gantry_policy_queue *q = &view->queues[i];
		uint64_t mask = gantry_policy_candidates(view, i);
		uint64_t mine = count(q);
		bool must = !gantry_policy_may(mask, q->device);
		uint64_t most = hasty ? counts[q->device] : counts[q->device] / 4 * 3;
		uint32_t to;

		if (!mask || (!must && q->stayed_ns < GANTRY_POLICY_STAY_NS))
			continue;
		to = least(counts, mask);
		if (to == q->device || (!must && counts[to] + mine >= most))
			continue;
		counts[q->device] -= mine;
		counts[to] += mine;
		gantry_policy_choose(&ret_choices[i], to, "%s", must ? "it may not stay" : what);
	}
	return 0;
}

static int place_spread(void *state, const struct gantry_policy_view *view,
			struct gantry_policy_choice *ret_choices)
{
	(void)state;
	return level(view, count_queue, true, "the device with the fewest queues", ret_choices);
}

const struct gantry_policy gantry_policy_spread = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "spread",
	.summary = "as many queues on each device as on any other",
	.place = place_spread,
};

/* Arax' LoadBalance (fewest jobs); GrCUDA's Stream-Aware with tasks for streams, and counts that are never stale. */
static int place_least_loaded(void *state, const struct gantry_policy_view *view,
			      struct gantry_policy_choice *ret_choices)
{
	(void)state;
	return level(view, count_tasks, false, "the device with the fewest tasks", ret_choices);
}

const struct gantry_policy gantry_policy_least_loaded = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "least-loaded",
	.summary = "as many waiting tasks on each device as on any other",
	.place = place_least_loaded,
};

/* ---- as few devices as will do ---- */

struct pack {
	uint64_t fill; /* queues of a device; 0: as many as it has lanes */
};

static const struct gantry_policy_option pack_options[] = {
	{ "fill", false, offsetof(struct pack, fill), GANTRY_POLICY_MAX_QUEUES },
	{ 0 },
};

static int pack_create(const char *options, void **ret_state, char *text, size_t cap)
{
	static const struct pack defaults = { .fill = 0 };

	return gantry_policy_create(&defaults, sizeof(defaults), pack_options, options, ret_state,
				    text, cap);
}

static int place_pack(void *state, const struct gantry_policy_view *view,
		      struct gantry_policy_choice *ret_choices)
{
	uint64_t fill = ((const struct pack *)state)->fill;
	uint64_t counts[GANTRY_POLICY_MAX_DEVICES] = { 0 };

	for (uint32_t i = 0; i < view->nqueues; i++) {
		uint64_t mask = gantry_policy_candidates(view, i);
		uint64_t open = 0;
		uint32_t to;

		if (!mask)
			continue;
		for (uint32_t d = 0; d < view->ndevices; d++)
			if (counts[d] < (fill ? fill : view->devices[d].lanes))
				open |= 1ull << d;
		/* The first with room; where none has any, they fill up evenly. */
		to = mask & open ? (uint32_t)__builtin_ctzll(mask & open) : least(counts, mask);
		counts[to]++;
		gantry_policy_choose(&ret_choices[i], to, "the first device with room");
	}
	return 0;
}

const struct gantry_policy gantry_policy_pack = {
	.abi = GANTRY_POLICY_ABI,
	.bytes = sizeof(struct gantry_policy),
	.name = "pack",
	.summary = "as few devices as have room, so that others stay idle",
	.create = pack_create,
	.destroy = free,
	.place = place_pack,
};
