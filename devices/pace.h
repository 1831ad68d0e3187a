/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast a device goes round a loop: for kernels that shall take a time on devices whose code has no clock.
 *
 * Threads: any. Blocking: measuring takes some ten milliseconds of the device.
 */
#ifndef GANTRY_DEVICES_PACE_H
#define GANTRY_DEVICES_PACE_H

#include <stdint.h>

/*
 * Has @go make so many rounds, and wait for their end, until it is known how many the device makes in a millisecond: 1
 * or more. 0, or what @go returned below 0. The fastest of a few trials counts, as others may use the device meanwhile.
 */
int gantry_pace_measure(int (*go)(void *cookie, uint64_t nrounds), void *cookie,
			uint64_t *ret_rounds_per_ms);

#endif
