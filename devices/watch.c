/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/watch.h"

#include <signal.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

enum {
	ASLEEP = 0,
	AWAKE = 1,
	STOP = 2,
};

#define LINGER_NS (10 * GANTRY_NS_PER_MS) /* with nothing in flight, before going to sleep */

/* Until there is something in flight. */
static void sleep_long(struct gantry_watch *watch)
{
	uint32_t awake = AWAKE;

	if (!gantry_cas(&watch->state, &awake, ASLEEP))
		return; /* to stop */
	/* Full fence: pairs with the one in gantry_watch_begin(). */
	gantry_fence_full();
	while (gantry_load_acquire(&watch->state) == ASLEEP) {
		uint32_t asleep = ASLEEP;

		if (gantry_load_relaxed(&watch->nflight))
			(void)gantry_cas(&watch->state, &asleep, AWAKE);
		else
			(void)gantry_futex_wait(&watch->state, ASLEEP, GANTRY_DEADLINE_NEVER);
	}
}

static void watch_flight(struct gantry_watch *watch)
{
	uint64_t polled_at = gantry_load_relaxed(&watch->polled_at);
	uint64_t tick_ns = watch->ops->tick_ns(watch->dev);

	/* Woken early only to stop. */
	(void)gantry_futex_wait(&watch->state, AWAKE, gantry_deadline_ns((int64_t)tick_ns));
	if (gantry_load_relaxed(&watch->polled_at) != polled_at)
		return;
	if (watch->ops->worth(watch->dev))
		watch->host->wake(watch->host->cookie);
}

static void *watch_main(void *arg)
{
	struct gantry_watch *watch = arg;
	uint64_t idle_ns = 0; /* when there was nothing in flight first */

	(void)prctl(PR_SET_TIMERSLACK, 1000); /* refused: ticks are coarser */
	while (gantry_load_acquire(&watch->state) != STOP) {
		if (gantry_load_relaxed(&watch->nflight)) {
			idle_ns = 0;
			watch_flight(watch);
			continue;
		}
		idle_ns = idle_ns ? idle_ns : gantry_now_ns();
		if (gantry_now_ns() - idle_ns >= LINGER_NS)
			sleep_long(watch);
		else
			(void)gantry_futex_wait(&watch->state, AWAKE,
						gantry_deadline_ns(GANTRY_NS_PER_MS));
	}
	return NULL;
}

void gantry_watch_begin(struct gantry_watch *watch)
{
	uint32_t asleep = ASLEEP;

	/* Full fence: pairs with the one in sleep_long(); it sees nflight, or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&watch->state) == ASLEEP &&
	    gantry_cas(&watch->state, &asleep, AWAKE))
		(void)gantry_futex_wake(&watch->state, 1);
}

int gantry_watch_start(struct gantry_watch *watch, const struct gantry_watch_ops *ops,
		       const struct gantry_dev *dev, const struct gantry_device_host *host,
		       struct gantry_err *err)
{
	sigset_t all, before;
	int r;

	watch->ops = ops;
	watch->dev = dev;
	watch->host = host;
	watch->state = AWAKE;
	/* Signals are the device thread's. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&watch->thread, NULL, watch_main, watch);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r < 0)
		return gantry_err_set_errno(err, r, "starting the thread that watches the device");
	watch->running = true;
	return 0;
}

void gantry_watch_stop(struct gantry_watch *watch)
{
	if (!watch->running)
		return;
	(void)gantry_exchange(&watch->state, STOP);
	(void)gantry_futex_wake(&watch->state, 1);
	(void)pthread_join(watch->thread, NULL); /* ours, and not joined before */
	watch->running = false;
}
