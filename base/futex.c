/* SPDX-License-Identifier: Apache-2.0 */
#include "base/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

int gantry_futex_wait(const uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / GANTRY_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % GANTRY_NS_PER_S),
	};
	const struct timespec *timeout = deadline_ns == GANTRY_DEADLINE_NEVER ? NULL : &until;

	/* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time; FUTEX_WAIT a relative one. */
	if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET, expected, timeout, NULL,
		    FUTEX_BITSET_MATCH_ANY) < 0)
		return -errno;
	return 0;
}

int gantry_futex_wake(uint32_t *word, int n)
{
	long woken = syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);

	return woken < 0 ? -errno : (int)woken;
}
