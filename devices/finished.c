/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/finished.h"

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

#define LEAVE_NS (100 * GANTRY_NS_PER_MS)

void gantry_finished_watch(struct gantry_finished *finished)
{
	(void)gantry_fetch_add(&finished->ncallbacks, 1);
}

void gantry_finished_leave(struct gantry_finished *finished)
{
	/* Releases the device: it may be gone after this, so whoever waits looks again by himself. */
	(void)gantry_fetch_sub(&finished->ncallbacks, 1);
}

void gantry_finished_tell(struct gantry_finished *finished, uint32_t n,
			  const struct gantry_device_host *host)
{
	/*
	 * The addition is a full barrier and pairs with the fence in poll(): either poll() sees this count, or we see what
	 * it has reaped, or seen in vain: what is told behind something that is not may come before it. A thread that
	 * still has something to reap needs no call.
	 */
	uint32_t before = gantry_fetch_add(&finished->count, n);

	if (before == gantry_load_relaxed(&finished->reaped) ||
	    before == gantry_load_relaxed(&finished->in_vain))
		host->wake(host->cookie);
}

unsigned gantry_finished_poll(struct gantry_finished *finished,
			      unsigned (*reap)(struct gantry_dev *dev, struct gantry_done *ret_done,
					       unsigned n),
			      struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	uint32_t before;
	unsigned count;

	if (n == 0)
		return 0;
	do {
		before = gantry_load_acquire(&finished->count);
		count = reap(dev, ret_done, n);
		if (count > 0)
			break;
		gantry_store_relaxed(&finished->in_vain, before);
		gantry_fence_full(); /* pairs with the addition in tell() */
	} while (gantry_load_acquire(&finished->count) != before);
	gantry_store_relaxed(&finished->reaped, finished->reaped + count);
	return count;
}

void gantry_finished_drain(struct gantry_finished *finished)
{
	uint32_t n;

	while ((n = gantry_load_acquire(&finished->ncallbacks)) != 0)
		(void)gantry_futex_wait(&finished->ncallbacks, n, gantry_deadline_ns(LEAVE_NS));
}
