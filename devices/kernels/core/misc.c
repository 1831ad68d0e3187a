/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that measure the machinery around kernels. */
#include <time.h>

#include "devices/kernels/kernel.h"

#define NS_PER_S 1000000000ull

KERNEL(empty)
{
	return 0;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	/* Cannot fail: the clock of the calling thread always exists. */
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/*
 * Processor time, not wall time: a lane that shares its core must not seem to have worked
 * meanwhile.
 */
KERNEL(spin)
{
	uint64_t duration_ns = call->args[0].u64, start_ns = thread_cpu_ns();

	while (thread_cpu_ns() - start_ns < duration_ns)
		if (env->cancelled(env))
			return -ECANCELED;
	return 0;
}
