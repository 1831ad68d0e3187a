/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/watch.h"

#include <errno.h>
#include <sys/prctl.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/thread.h"

enum {
	ASLEEP = 0,
	AWAKE = 1,
	STOP = 2,
};

#define LINGER_NS (10 * GANTRY_NS_PER_MS) /* with nothing in flight, before going to sleep */

#define TICK_MIN_NS  (50 * GANTRY_NS_PER_US)
#define TICK_BUSY_NS (200 * GANTRY_NS_PER_US) /* while the device thread polls by itself */
#define TICK_MAX_NS  (500 * GANTRY_NS_PER_US)
#define PATIENCE_NS  (4 * GANTRY_NS_PER_MS) /* of a device thread that sleeps, between two polls */

/* Or may have: only poll() can tell of copies, which are to take a millisecond at most. */
static bool anything_finished(const struct gantry_watch *watch)
{
	uint32_t nplaces = gantry_load_relaxed(&watch->nplaces);

	if (gantry_load_relaxed(&watch->nunwritten))
		return true;
	for (uint32_t i = 0; i < nplaces; i++) {
		const uint32_t *word = (const uint32_t *)(watch->words + i * watch->stride);

		if (gantry_load_relaxed(word) != gantry_load_relaxed(&watch->seen[i]))
			return true;
	}
	return false;
}

static uint64_t unpolled_ns(const struct gantry_watch *watch)
{
	uint64_t polled_at = gantry_load_relaxed(&watch->polled_at);
	uint64_t now = gantry_cycles();

	return now > polled_at ? (now - polled_at) * GANTRY_NS_PER_US / gantry_cycles_per_us() : 0;
}

/* A sixteenth of the wait. */
static uint64_t tick_of(const struct gantry_watch *watch)
{
	uint64_t gap_ns = unpolled_ns(watch);

	if (gap_ns < TICK_MIN_NS)
		return TICK_BUSY_NS;
	return gantry_clamp_u64(gap_ns / 16, TICK_MIN_NS, TICK_MAX_NS);
}

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
	uint64_t tick_ns = tick_of(watch);

	/* Woken early only to stop. */
	(void)gantry_futex_wait(&watch->state, AWAKE, gantry_deadline_ns((int64_t)tick_ns));
	if (gantry_load_relaxed(&watch->polled_at) != polled_at)
		return;
	if (anything_finished(watch) || unpolled_ns(watch) >= PATIENCE_NS)
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

	gantry_store_relaxed(&watch->nflight, watch->nflight + 1);
	if (watch->nflight > 1)
		return;
	gantry_store_relaxed(&watch->polled_at, gantry_cycles());
	/* Full fence: pairs with the one in sleep_long(); it sees nflight, or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&watch->state) == ASLEEP &&
	    gantry_cas(&watch->state, &asleep, AWAKE))
		(void)gantry_futex_wake(&watch->state, 1);
}

void gantry_watch_end(struct gantry_watch *watch)
{
	gantry_store_relaxed(&watch->nflight, watch->nflight - 1);
}

int gantry_watch_place_take(struct gantry_watch *watch, uint32_t *ret_place)
{
	for (uint32_t i = 0; i < GANTRY_WATCH_PLACES / 64; i++) {
		uint32_t place;

		if (~watch->places[i] == 0)
			continue;
		place = 64 * i + (uint32_t)__builtin_ctzll(~watch->places[i]);
		watch->places[i] |= 1ull << (place % 64);
		gantry_store_relaxed(&watch->seen[place], 0u);
		if (place >= watch->nplaces)
			gantry_store_relaxed(&watch->nplaces, place + 1);
		*ret_place = place;
		return 0;
	}
	return -EAGAIN;
}

void gantry_watch_place_give(struct gantry_watch *watch, uint32_t place)
{
	watch->places[place / 64] &= ~(1ull << (place % 64));
}

int gantry_watch_start(struct gantry_watch *watch, const void *words, size_t stride,
		       const struct gantry_device_host *host, struct gantry_err *err)
{
	int r;

	watch->words = words;
	watch->stride = stride;
	watch->host = host;
	watch->state = AWAKE;
	r = gantry_thread_start(&watch->thread, watch_main, watch);
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
