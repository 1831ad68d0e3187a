/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the watcher wakes the device thread: when a command has finished, and now and then, because only poll() finds out that
 * the context has failed. The driver's own ways of waiting cost a call for each batch.
 */
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "devices/cuda/backend.h"

#define TICK_MIN_NS  (50 * GANTRY_NS_PER_US)
#define TICK_BUSY_NS (200 * GANTRY_NS_PER_US) /* while the device thread polls by itself */
#define TICK_MAX_NS  (500 * GANTRY_NS_PER_US)
#define PATIENCE_NS  (4 * GANTRY_NS_PER_MS) /* of a device thread that sleeps, between two polls */

/* Or may have: only poll() can tell of copies, which are to take a millisecond at most. */
static bool anything_finished(const struct gantry_dev *dev)
{
	uint32_t nplaces = gantry_load_relaxed(&dev->nplaces);

	if (gantry_load_relaxed(&dev->nunwritten))
		return true;

	for (uint32_t i = 0; i < nplaces; i++)
		if (gantry_load_relaxed(&dev->cells[i].word) != gantry_load_relaxed(&dev->seen[i]))
			return true;
	return false;
}

static uint64_t unpolled_ns(const struct gantry_dev *dev)
{
	uint64_t polled_at = gantry_load_relaxed(&dev->watch.polled_at);
	uint64_t now = gantry_cycles();

	return now > polled_at ? (now - polled_at) * GANTRY_NS_PER_US / gantry_cycles_per_us() : 0;
}

/* A sixteenth of the wait. */
static uint64_t tick_ns(const struct gantry_dev *dev)
{
	uint64_t gap_ns = unpolled_ns(dev);

	if (gap_ns < TICK_MIN_NS)
		return TICK_BUSY_NS;
	return gantry_clamp_u64(gap_ns / 16, TICK_MIN_NS, TICK_MAX_NS);
}

static bool worth(const struct gantry_dev *dev)
{
	return anything_finished(dev) || unpolled_ns(dev) >= PATIENCE_NS;
}

const struct gantry_watch_ops gantry_cuda_watch_ops = {
	.tick_ns = tick_ns,
	.worth = worth,
};
