/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes a device thread that sleeps while its commands run, where their ends are words that the device writes: nothing wakes a
 * thread for a word. So a thread of its own looks: at short intervals first, then at longer ones, so that it comes late by
 * a fraction of the wait. A device thread that polls by itself is not disturbed, nor one whose words are as it has seen
 * them. With nothing in flight for a while the watcher sleeps for good; the next submission wakes it.
 *
 * Each stream has a place, which is that of its word.
 *
 * Threads: the device thread's; the watcher has all signals blocked.
 */
#ifndef GANTRY_DEVICES_WATCH_H
#define GANTRY_DEVICES_WATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"

/* Streams of a device. */
#define GANTRY_WATCH_PLACES 1024u

/* What is above the blank line is the device thread's, which writes it by atomic stores; the rest is set by start(). Zero at first. */
struct gantry_watch {
	uint32_t nflight;    /* streams with commands in flight; none: the watcher may sleep */
	uint64_t polled_at;  /* cycles of the time stamp counter, at the last poll() */
	uint32_t nunwritten; /* streams in flight whose end no word will tell, but poll() only */
	uint32_t nplaces;    /* places that were ever in use */
	uint32_t seen[GANTRY_WATCH_PLACES];	   /* by place: the word as poll() last saw it */
	uint64_t places[GANTRY_WATCH_PLACES / 64]; /* bit set: taken */

	const char *words; /* the first */
	size_t stride;	   /* bytes to the next */
	const struct gantry_device_host *host;
	pthread_t thread;
	bool running;
	uint32_t state; /* the watcher sleeps on this word */
};

/* -EAGAIN: no thread. */
int gantry_watch_start(struct gantry_watch *watch, const void *words, size_t stride,
		       const struct gantry_device_host *host, struct gantry_err *err);
/* Returns when the thread has ended. What was not started may be stopped. */
void gantry_watch_stop(struct gantry_watch *watch);
/* A stream that was idle has something in flight; or, end, has no more. */
void gantry_watch_begin(struct gantry_watch *watch);
void gantry_watch_end(struct gantry_watch *watch);

/* -EAGAIN: there are GANTRY_WATCH_PLACES streams. The word there has to be 0. */
int gantry_watch_place_take(struct gantry_watch *watch, uint32_t *ret_place);
void gantry_watch_place_give(struct gantry_watch *watch, uint32_t place);

#endif
