/* SPDX-License-Identifier: Apache-2.0 */
/* When the watcher wakes the device thread, where the ends of commands are words (stream.c): whenever that has not looked. */
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "devices/hip/backend.h"

#define TICK_MIN_NS (50 * GANTRY_NS_PER_US)
#define TICK_MAX_NS (500 * GANTRY_NS_PER_US)

/* A sixteenth of the wait. */
static uint64_t tick_ns(const struct gantry_dev *dev)
{
	uint64_t waited_ns = gantry_now_ns() - gantry_load_relaxed(&dev->ended_ns);

	return gantry_clamp_u64(waited_ns / 16, TICK_MIN_NS, TICK_MAX_NS);
}

static bool worth(const struct gantry_dev *dev)
{
	(void)dev;
	return true;
}

const struct gantry_watch_ops gantry_hip_watch_ops = {
	.tick_ns = tick_ns,
	.worth = worth,
};
