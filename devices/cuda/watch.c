/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes a device thread that sleeps while its commands run: when one has finished, and now and then, because only
 * poll() finds out that the context has failed.
 *
 * The device cannot wake a thread by writing a word, and the driver's own ways of waiting cost a call for each
 * batch. So a thread looks at the words: at short intervals first, then longer ones, so that a
 * wake-up comes late by a sixteenth of the wait. A device thread that polls does not need it, and is not
 * disturbed. With nothing in flight for a while the thread sleeps for good; the next submission wakes it.
 */
#include <errno.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex.h"
#include "devices/cuda/backend.h"

enum watch {
	WATCH_ASLEEP = 0,
	WATCH_AWAKE = 1,
	WATCH_STOP = 2,
};

#define TICK_MIN_NS  (50 * GANTRY_NS_PER_US)
#define TICK_BUSY_NS (200 * GANTRY_NS_PER_US) /* while the device thread polls by itself */
#define TICK_MAX_NS  (500 * GANTRY_NS_PER_US)
#define LINGER_NS    (10 * GANTRY_NS_PER_MS) /* without commands, before going to sleep */
#define PATIENCE_NS  (4 * GANTRY_NS_PER_MS)  /* of a device thread that sleeps, between two polls */

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

/* How long to sleep when the device thread polled @gap_ns ago. */
static uint64_t tick_ns(uint64_t gap_ns)
{
	if (gap_ns < TICK_MIN_NS)
		return TICK_BUSY_NS;
	return gantry_clamp_u64(gap_ns / 16, TICK_MIN_NS, TICK_MAX_NS);
}

/* Until there is something in flight. */
static void sleep_long(struct gantry_dev *dev)
{
	uint32_t awake = WATCH_AWAKE;

	if (!gantry_cas(&dev->watch, &awake, WATCH_ASLEEP))
		return; /* to stop */
	/* Full fence: pairs with the one in gantry_cuda_watch_begin(). */
	gantry_fence_full();
	while (gantry_load_acquire(&dev->watch) == WATCH_ASLEEP) {
		uint32_t asleep = WATCH_ASLEEP;

		if (gantry_load_relaxed(&dev->nflight))
			(void)gantry_cas(&dev->watch, &asleep, WATCH_AWAKE);
		else
			(void)gantry_futex_wait(&dev->watch, WATCH_ASLEEP, GANTRY_DEADLINE_NEVER);
	}
}

static uint64_t since_ns(uint64_t cycles)
{
	uint64_t now = gantry_cycles();

	return now > cycles ? (now - cycles) * GANTRY_NS_PER_US / gantry_cycles_per_us() : 0;
}

static void watch_flight(struct gantry_dev *dev)
{
	uint64_t polled_at = gantry_load_relaxed(&dev->polled_at);

	/* Woken early only to stop. */
	(void)gantry_futex_wait(&dev->watch, WATCH_AWAKE,
				gantry_deadline_ns((int64_t)tick_ns(since_ns(polled_at))));
	if (gantry_load_relaxed(&dev->polled_at) != polled_at)
		return;
	if (anything_finished(dev) || since_ns(polled_at) >= PATIENCE_NS)
		dev->host->wake(dev->host->cookie);
}

static void *watch_main(void *arg)
{
	struct gantry_dev *dev = arg;
	uint64_t idle_ns = 0; /* when there was nothing in flight first */

	(void)prctl(PR_SET_TIMERSLACK, 1000); /* refused: ticks are coarser */
	while (gantry_load_acquire(&dev->watch) != WATCH_STOP) {
		if (gantry_load_relaxed(&dev->nflight)) {
			idle_ns = 0;
			watch_flight(dev);
			continue;
		}
		idle_ns = idle_ns ? idle_ns : gantry_now_ns();
		if (gantry_now_ns() - idle_ns >= LINGER_NS)
			sleep_long(dev);
		else
			(void)gantry_futex_wait(&dev->watch, WATCH_AWAKE,
						gantry_deadline_ns(GANTRY_NS_PER_MS));
	}
	return NULL;
}

void gantry_cuda_watch_begin(struct gantry_dev *dev)
{
	uint32_t asleep = WATCH_ASLEEP;

	/* Full fence: pairs with the one in sleep_long(); it sees nflight, or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&dev->watch) == WATCH_ASLEEP &&
	    gantry_cas(&dev->watch, &asleep, WATCH_AWAKE))
		(void)gantry_futex_wake(&dev->watch, 1);
}

int gantry_cuda_watch_start(struct gantry_dev *dev, struct gantry_err *err)
{
	int r;

	dev->watch = WATCH_AWAKE;
	r = -pthread_create(&dev->watcher, NULL, watch_main, dev);
	if (r < 0)
		return gantry_err_set_errno(err, r, "starting the thread that watches the device");
	dev->watching = true;
	return 0;
}

void gantry_cuda_watch_stop(struct gantry_dev *dev)
{
	if (!dev->watching)
		return;
	(void)gantry_exchange(&dev->watch, WATCH_STOP);
	(void)gantry_futex_wake(&dev->watch, 1);
	(void)pthread_join(dev->watcher, NULL); /* ours, and not joined before */
	dev->watching = false;
}
