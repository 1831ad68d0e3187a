/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wakes a device thread that sleeps while its commands run, where their ends are words that the GPU writes (stream.c).
 *
 * Nothing wakes a thread for a word. So a thread has the device thread look: at short intervals first, then at longer ones, so that
 * it comes late by a sixteenth of the wait. A device thread that polls by itself is not disturbed. With nothing in flight
 * for a while the watcher sleeps for good; the next submission wakes it.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex.h"
#include "devices/hip/backend.h"

enum watch {
	WATCH_ASLEEP = 0,
	WATCH_AWAKE = 1,
	WATCH_STOP = 2,
};

#define TICK_MIN_NS (50 * GANTRY_NS_PER_US)
#define TICK_MAX_NS (500 * GANTRY_NS_PER_US)
#define LINGER_NS   (10 * GANTRY_NS_PER_MS) /* without commands, before going to sleep */

/* Until there is something in flight. */
static void sleep_long(struct gantry_dev *dev)
{
	uint32_t awake = WATCH_AWAKE;

	if (!gantry_cas(&dev->watch, &awake, WATCH_ASLEEP))
		return; /* to stop */
	/* Full fence: pairs with the one in gantry_hip_watch_begin(). */
	gantry_fence_full();
	while (gantry_load_acquire(&dev->watch) == WATCH_ASLEEP) {
		uint32_t asleep = WATCH_ASLEEP;

		if (gantry_load_relaxed(&dev->nflight))
			(void)gantry_cas(&dev->watch, &asleep, WATCH_AWAKE);
		else
			(void)gantry_futex_wait(&dev->watch, WATCH_ASLEEP, GANTRY_DEADLINE_NEVER);
	}
}

static void watch_flight(struct gantry_dev *dev)
{
	uint64_t polled_ns = gantry_load_relaxed(&dev->polled_ns);
	uint64_t waited_ns = gantry_now_ns() - gantry_load_relaxed(&dev->ended_ns);

	/* Woken early only to stop. */
	(void)gantry_futex_wait(&dev->watch, WATCH_AWAKE,
				gantry_deadline_ns((int64_t)gantry_clamp_u64(
					waited_ns / 16, TICK_MIN_NS, TICK_MAX_NS)));
	if (gantry_load_relaxed(&dev->polled_ns) == polled_ns)
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

void gantry_hip_watch_begin(struct gantry_dev *dev)
{
	uint32_t asleep = WATCH_ASLEEP;

	/* Full fence: pairs with the one in sleep_long(); it sees nflight, or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&dev->watch) == WATCH_ASLEEP &&
	    gantry_cas(&dev->watch, &asleep, WATCH_AWAKE))
		(void)gantry_futex_wake(&dev->watch, 1);
}

int gantry_hip_watch_start(struct gantry_dev *dev, struct gantry_err *err)
{
	sigset_t all, before;
	int r;

	dev->watch = WATCH_AWAKE;
	/* Signals are the device thread's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&dev->watcher, NULL, watch_main, dev);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return gantry_err_set_errno(err, r, "starting the thread that watches the device");
	dev->watching = true;
	return 0;
}

void gantry_hip_watch_stop(struct gantry_dev *dev)
{
	if (!dev->watching)
		return;
	(void)gantry_exchange(&dev->watch, WATCH_STOP);
	(void)gantry_futex_wake(&dev->watch, 1);
	(void)pthread_join(dev->watcher, NULL); /* ours, and not joined before */
	dev->watching = false;
}
