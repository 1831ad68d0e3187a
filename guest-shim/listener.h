/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that wait for different words, and one descriptor that says when some of them have changed: one thread listens
 * to it, the others sleep until it has heard something, and then one of those listens.
 *
 * Threads: any. Blocking: until the deadline, and no longer than a slice: what wakes may get lost.
 */
#ifndef GANTRY_GUEST_SHIM_LISTENER_H
#define GANTRY_GUEST_SHIM_LISTENER_H

#include <pthread.h>
#include <stdint.h>

struct gantry_listener {
	pthread_mutex_t lock; /* who listens */
	uint32_t nheard;      /* futex word of the others */
};

/* What is waited for: *@word not being @seen any more. */
struct gantry_listening {
	const uint64_t *word;
	uint64_t seen;
	uint64_t deadline_ns;
};

void gantry_listener_init(struct gantry_listener *l);

/* One sleep, by @listen(@arg) or until another thread's is over; may come back early. */
void gantry_listener_sleep(struct gantry_listener *l, struct gantry_listening what,
			   void (*listen)(void *arg, const struct gantry_listening *what),
			   void *arg);

#endif
