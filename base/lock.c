/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <errno.h>

#include "base/futex.h"

int gantry_lock_wait(struct gantry_lock *lock, uint64_t deadline_ns)
{
	/*
	 * Whoever comes by here leaves the lock wanted, also as its holder: there may be others asleep. A wake-up for
	 * nobody is the price of one that gave up.
	 */
	while (gantry_exchange(&lock->state, (uint32_t)GANTRY_LOCK_WANTED) != GANTRY_LOCK_FREE)
		if (gantry_futex_wait(&lock->state, GANTRY_LOCK_WANTED, deadline_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
	return 0;
}

void gantry_lock_wake(struct gantry_lock *lock)
{
	(void)gantry_futex_wake(&lock->state, 1); /* fails only for memory that is gone */
}
