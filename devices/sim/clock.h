/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual clock: events in order of time, and of their making where times are equal, so every run
 * is the same.
 *
 * Threads: one clock belongs to one thread.
 */
#ifndef GANTRY_DEVICES_SIM_CLOCK_H
#define GANTRY_DEVICES_SIM_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct gantry_sim_event {
	uint64_t at_ns;
	uint64_t seq; /* the clock's; decides between equal times */
	void *what;   /* the caller's */
};

struct gantry_sim_clock {
	uint64_t now_ns;
	uint64_t last_seq;
	uint32_t nevents;
	uint32_t cap;
	struct gantry_sim_event *heap; /* owned; the earliest first */
};

/* A zeroed clock is fine too. */
void gantry_sim_clock_init(struct gantry_sim_clock *clock);
void gantry_sim_clock_fini(struct gantry_sim_clock *clock);

/* @what happens @after_ns from now (saturating). -ENOMEM. */
int gantry_sim_clock_add(struct gantry_sim_clock *clock, uint64_t after_ns, void *what);

/*
 * Moves the clock to the next event and returns what it is; NULL: there is none, time stands still.
 */
void *gantry_sim_clock_next(struct gantry_sim_clock *clock);

/* Is there an event at this very moment? */
bool gantry_sim_clock_due(const struct gantry_sim_clock *clock);

#endif
