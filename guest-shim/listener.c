/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/listener.h"

#include <limits.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"

/* A wake-up that is lost, as all are once somebody has harmed the device, is not waited for longer. */
#define SLICE_NS (20 * GANTRY_NS_PER_MS)

void gantry_listener_init(struct gantry_listener *l)
{
	pthread_mutex_init(&l->lock, NULL);
	l->nheard = 0;
}

void gantry_listener_sleep(struct gantry_listener *l, struct gantry_listening what,
			   void (*listen)(void *arg, const struct gantry_listening *what),
			   void *arg)
{
	/* Acquire: pairs with the listener's addition. */
	uint32_t nheard = gantry_load_acquire(&l->nheard);
	uint64_t slice_ns = gantry_deadline_ns(SLICE_NS);

	if (slice_ns < what.deadline_ns)
		what.deadline_ns = slice_ns;
	if (gantry_load_relaxed(what.word) != what.seen) /* it changed before anybody listened */
		return;
	if (pthread_mutex_trylock(&l->lock) != 0) {
		(void)gantry_futex_wait(&l->nheard, nheard, what.deadline_ns); /* early is fine */
		return;
	}
	listen(arg, &what);
	pthread_mutex_unlock(&l->lock);
	/* Woken or not: another has to listen from now on, and what came may be for anybody. */
	(void)gantry_fetch_add(&l->nheard, 1);
	(void)gantry_futex_wake(&l->nheard, INT_MAX);
}
