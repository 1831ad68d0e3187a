/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes a device thread that sleeps while its commands run, where their ends are words that the device writes: nothing wakes a
 * thread for a word. So a thread of its own looks: at short intervals first, then at longer ones, so that it comes late by
 * a fraction of the wait. A device thread that polls by itself is not disturbed. With nothing in flight for a while
 * the watcher sleeps for good; the next submission wakes it.
 *
 * Threads: start(), stop() and begin() are the device thread's; tick_ns() and worth() are called on the watcher's, which
 * has all signals blocked.
 */
#ifndef GANTRY_DEVICES_WATCH_H
#define GANTRY_DEVICES_WATCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/device.h"

struct gantry_watch_ops {
	/* How long until the next look, in nanoseconds. */
	uint64_t (*tick_ns)(const struct gantry_dev *dev);
	/* Whether to wake the device thread, which has not polled for that long. */
	bool (*worth)(const struct gantry_dev *dev);
};

/* The counts are the device thread's, which writes them by atomic stores; the rest is set by start(). Zero at first. */
struct gantry_watch {
	uint32_t nflight;   /* what is in flight; nothing: the watcher may sleep */
	uint64_t polled_at; /* changes with every poll(); its unit is the backend's */

	const struct gantry_watch_ops *ops;
	const struct gantry_dev *dev;
	const struct gantry_device_host *host;
	pthread_t thread;
	bool running;
	uint32_t state; /* the watcher sleeps on this word */
};

/* -EAGAIN: no thread. */
int gantry_watch_start(struct gantry_watch *watch, const struct gantry_watch_ops *ops,
		       const struct gantry_dev *dev, const struct gantry_device_host *host,
		       struct gantry_err *err);
/* Returns when the thread has ended. What was not started may be stopped. */
void gantry_watch_stop(struct gantry_watch *watch);
/* @nflight has become nonzero. */
void gantry_watch_begin(struct gantry_watch *watch);

#endif
