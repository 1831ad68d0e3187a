/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of pages between the thread that looks for them, copies and sums, and the one that encrypts and sends: a few, so
 * that they stay in a processor's cache.
 *
 * Threads: fill(), put() and end() are for one thread, take(), done() and stop() for another. Blocking: fill() while all are on
 * their way, take() until one is. Order: what was put first is taken first.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_RUNS_H
#define GANTRY_HOST_AGENT_MOVER_RUNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "migration/image.h"

#define GANTRY_RUN_PAGES (GANTRY_IMAGE_CHUNK / GANTRY_PAGE)
#define GANTRY_NRUNS	 4u

/* Pages that lie one behind the other: copies of them, or zero. */
struct gantry_run {
	uint64_t begin;
	uint64_t bytes;
	bool is_zero;
	uint64_t sums[GANTRY_RUN_PAGES];
	uint8_t *copy; /* GANTRY_IMAGE_CHUNK */
};

struct gantry_runs {
	pthread_mutex_t lock; /* the words below; a run is one side's */
	pthread_cond_t put;   /* one was, or there are no more */
	pthread_cond_t taken; /* one was done with, or no more are wanted */
	bool is_ended, is_stopped;
	uint32_t nruns;	      /* in use */
	uint32_t nput, ndone; /* since ever */
	uint8_t *memory;      /* owned */
	struct gantry_run runs[GANTRY_NRUNS];
};

/* -ENOMEM. */
int gantry_runs_init(struct gantry_runs *r);
/* Nobody uses them. Takes what init() failed with, too. */
void gantry_runs_fini(struct gantry_runs *r);
/*
 * From the beginning: none is on its way. @is_alone: one thread does both, run by run, so that there is only one, which stays in that processor's
 * cache.
 */
void gantry_runs_reset(struct gantry_runs *r, bool is_alone);

/* The next to be filled, its copy as it was left; NULL: no more are wanted. The same one until put(). */
struct gantry_run *gantry_runs_fill(struct gantry_runs *r);
void gantry_runs_put(struct gantry_runs *r);
void gantry_runs_end(struct gantry_runs *r);

/* The oldest that was put; NULL: there are no more. The same one until done(). */
const struct gantry_run *gantry_runs_take(struct gantry_runs *r);
void gantry_runs_done(struct gantry_runs *r);
void gantry_runs_stop(struct gantry_runs *r);

#endif
