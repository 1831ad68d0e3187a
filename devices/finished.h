/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How completions reach the device thread of a backend whose vendor tells them on threads of its own: the vendor's
 * callback marks what has finished and counts it here; poll() reaps, and nobody is woken who still has something to reap.
 *
 * Threads: watch(), poll() and drain() are the device thread's; tell() and leave() any thread's.
 */
#ifndef GANTRY_DEVICES_FINISHED_H
#define GANTRY_DEVICES_FINISHED_H

#include <stdint.h>

#include "devices/device.h"

/* Zero at first. */
struct gantry_finished {
	uint32_t count __attribute__((aligned(64)));  /* vendor's threads add */
	uint32_t reaped __attribute__((aligned(64))); /* the device thread sets */
	uint32_t in_vain;    /* so does it: @count when it last found nothing to reap */
	uint32_t ncallbacks; /* registered and not left; also a futex */
};

/* A callback is about to be registered, whose last act is leave(). */
void gantry_finished_watch(struct gantry_finished *finished);
void gantry_finished_leave(struct gantry_finished *finished);
/* @n more have finished, and are marked so. */
void gantry_finished_tell(struct gantry_finished *finished, uint32_t n,
			  const struct gantry_device_host *host);
/*
 * As gantry_backend.poll(): calls @reap, which writes at most @n and returns how many, until it finds something or nothing
 * has finished meanwhile.
 */
unsigned gantry_finished_poll(struct gantry_finished *finished,
			      unsigned (*reap)(struct gantry_dev *dev, struct gantry_done *ret_done,
					       unsigned n),
			      struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);
/* Waits until all callbacks have left: each is on its way already, and a few instructions long. */
void gantry_finished_drain(struct gantry_finished *finished);

#endif
