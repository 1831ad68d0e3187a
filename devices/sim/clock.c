/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/sim/clock.h"

#include <errno.h>
#include <stdlib.h>

void gantry_sim_clock_init(struct gantry_sim_clock *clock)
{
	*clock = (struct gantry_sim_clock){ 0 };
}

void gantry_sim_clock_fini(struct gantry_sim_clock *clock)
{
	free(clock->heap);
	*clock = (struct gantry_sim_clock){ 0 };
}

static bool earlier(const struct gantry_sim_event *a, const struct gantry_sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->seq < b->seq;
}

static void swap(struct gantry_sim_event *a, struct gantry_sim_event *b)
{
	struct gantry_sim_event held = *a;

	*a = *b;
	*b = held;
}

static void sift_up(struct gantry_sim_event *heap, uint32_t idx)
{
	while (idx > 0 && earlier(&heap[idx], &heap[(idx - 1) / 2])) {
		swap(&heap[idx], &heap[(idx - 1) / 2]);
		idx = (idx - 1) / 2;
	}
}

static void sift_down(struct gantry_sim_event *heap, uint32_t count)
{
	uint32_t idx = 0;

	for (;;) {
		uint32_t least = idx;

		for (uint32_t child = 2 * idx + 1; child <= 2 * idx + 2 && child < count; child++)
			if (earlier(&heap[child], &heap[least]))
				least = child;
		if (least == idx)
			return;
		swap(&heap[idx], &heap[least]);
		idx = least;
	}
}

static int grow(struct gantry_sim_clock *clock)
{
	uint32_t cap = clock->cap ? 2 * clock->cap : 64;
	struct gantry_sim_event *grown;

	if (clock->nevents < clock->cap)
		return 0;
	grown = realloc(clock->heap, cap * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	clock->heap = grown;
	clock->cap = cap;
	return 0;
}

int gantry_sim_clock_add(struct gantry_sim_clock *clock, uint64_t after_ns, void *what)
{
	uint64_t at_ns;

	if (grow(clock) < 0)
		return -ENOMEM;
	if (__builtin_add_overflow(clock->now_ns, after_ns, &at_ns))
		at_ns = UINT64_MAX;
	clock->heap[clock->nevents] =
		(struct gantry_sim_event){ .at_ns = at_ns, .seq = ++clock->last_seq, .what = what };
	sift_up(clock->heap, clock->nevents++);
	return 0;
}

void *gantry_sim_clock_next(struct gantry_sim_clock *clock)
{
	struct gantry_sim_event first;

	if (clock->nevents == 0)
		return NULL;
	first = clock->heap[0];
	clock->heap[0] = clock->heap[--clock->nevents];
	sift_down(clock->heap, clock->nevents);
	clock->now_ns = first.at_ns;
	return first.what;
}

bool gantry_sim_clock_due(const struct gantry_sim_clock *clock)
{
	return clock->nevents > 0 && clock->heap[0].at_ns == clock->now_ns;
}
