/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time: monotonic nanoseconds, CPU time of a thread, cycles, deadlines.
 *
 * A deadline is an absolute CLOCK_MONOTONIC time in nanoseconds; GANTRY_DEADLINE_NEVER is no
 * deadline.
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_BASE_CLOCK_H
#define GANTRY_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_NS_PER_US 1000ull
#define GANTRY_NS_PER_MS 1000000ull
#define GANTRY_NS_PER_S	 1000000000ull

#define GANTRY_DEADLINE_NEVER UINT64_MAX

/* Nanoseconds of CLOCK_MONOTONIC. Comparable between processes of one host, not between hosts. */
uint64_t gantry_now_ns(void);

/* CPU time that the calling thread has used. A system call. */
uint64_t gantry_thread_cpu_ns(void);

/* The time stamp counter: a few ns, never a system call, unlike clock_gettime() on some guests. */
static inline uint64_t gantry_cycles(void)
{
	return __builtin_ia32_rdtsc();
}

/*
 * Time stamp counter ticks in a microsecond, at least 1. Measured once a process (about 50 us),
 * then cached.
 */
uint64_t gantry_cycles_per_us(void);

/* Now + @timeout_ns; negative means never. Saturates. */
uint64_t gantry_deadline_ns(int64_t timeout_ns);

bool gantry_deadline_passed(uint64_t deadline_ns);

/* Nanoseconds until @deadline_ns: 0 when passed, UINT64_MAX for never. */
uint64_t gantry_deadline_left_ns(uint64_t deadline_ns);

/* The same for poll() and epoll_wait(): milliseconds rounded up, -1 for never. */
int gantry_deadline_poll_ms(uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
