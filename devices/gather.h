/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a batch of commands goes to the device, for backends that have it tell the end of batches: by a word that it writes, or
 * a callback. Each of those costs the device a microsecond or more. While it has two batches, the older soon to end, what comes is
 * gathered: fewer and larger batches cost less, and the other one keeps the device busy meanwhile.
 *
 * Threads: the device thread's.
 */
#ifndef GANTRY_DEVICES_GATHER_H
#define GANTRY_DEVICES_GATHER_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/devtime.h"

/* Of a stream; zero at first. */
struct gantry_gather {
	uint64_t flying_ns;   /* what is not seen finished is expected to take */
	uint64_t gathered_ns; /* at most; what is in no batch yet was expected to */
};

/* A command was accepted. That it is seen finished, or turns out to be none, is taken from flying_ns. */
void gantry_gather_add(struct gantry_gather *gather, uint32_t estimate_ns);
/* A command that is expected to take so long has a batch of its own: it holds up none of those before it. */
bool gantry_gather_is_long(uint32_t estimate_ns);
/* So much is in flight that the device thread may sleep, and look late. */
bool gantry_gather_is_much(const struct gantry_gather *gather);
/*
 * Two batches are with the device: whether what was submitted waits for more. From command @from up to @to the device has
 * all that is in flight.
 */
bool gantry_gather_waits(const struct gantry_gather *gather, struct gantry_devtime_stream *time,
			 uint32_t from, uint32_t to);

#endif
