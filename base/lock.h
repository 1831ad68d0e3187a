/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock that costs two instructions to take and to put where nobody else wants it, and that can be waited for until
 * a deadline. pthread_mutex_t is for what is not on the road of a task.
 *
 * Threads: any of one process. Not recursive, not fair, owned by nobody: putting a lock that is not held is a bug. In a
 * forked child it is as the parent had it. Blocking: take and until, for whoever holds it; try and put never.
 * A zeroed lock is free.
 */
#ifndef GANTRY_BASE_LOCK_H
#define GANTRY_BASE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gantry_lock_state {
	GANTRY_LOCK_FREE = 0,
	GANTRY_LOCK_HELD = 1,
	GANTRY_LOCK_WANTED = 2, /* held, and somebody may sleep for it */
};

struct gantry_lock {
	uint32_t state; /* enum gantry_lock_state; the futex that waiters sleep on */
};

/* What is left to do where the lock was not free, or where somebody waits for it. */
int gantry_lock_wait(struct gantry_lock *lock, uint64_t deadline_ns);
void gantry_lock_wake(struct gantry_lock *lock);

/* Whether it was free and is the caller's now. */
static inline bool gantry_lock_try(struct gantry_lock *lock)
{
	uint32_t state = GANTRY_LOCK_FREE;

	return gantry_cas(&lock->state, &state, (uint32_t)GANTRY_LOCK_HELD);
}

/* 0, or -ETIMEDOUT once @deadline_ns (GANTRY_DEADLINE_NEVER for none) has passed; a free lock is taken even then. */
static inline int gantry_lock_until(struct gantry_lock *lock, uint64_t deadline_ns)
{
	return gantry_lock_try(lock) ? 0 : gantry_lock_wait(lock, deadline_ns);
}

static inline void gantry_lock_take(struct gantry_lock *lock)
{
	(void)gantry_lock_until(lock, GANTRY_DEADLINE_NEVER); /* cannot time out */
}

static inline void gantry_lock_put(struct gantry_lock *lock)
{
	if (gantry_exchange(&lock->state, (uint32_t)GANTRY_LOCK_FREE) == GANTRY_LOCK_WANTED)
		gantry_lock_wake(lock);
}

#ifdef __cplusplus
}
#endif

#endif
