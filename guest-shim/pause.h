/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a word that nobody wakes for: pauses that grow with the wait, so that what is short is noticed at once, and
 * what is long is noticed late by a quarter of its length at most, or by a millisecond.
 *
 * Threads: any; each wait has its own struct. Blocking: as long as a pause.
 */
#ifndef GANTRY_GUEST_SHIM_PAUSE_H
#define GANTRY_GUEST_SHIM_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

struct gantry_pause {
	uint64_t start_ns; /* 0: nothing was waited for so far */
	uint64_t deadline_ns;
};

static inline struct gantry_pause gantry_pause_until(uint64_t deadline_ns)
{
	return (struct gantry_pause){ .deadline_ns = deadline_ns };
}

/* One pause; false, without one, once the deadline has passed. */
bool gantry_pause(struct gantry_pause *p);

#endif
