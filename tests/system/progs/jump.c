/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to preload: the time of day jumps by up to ten years, forth and back, whenever somebody asks for it.
 * CLOCK_MONOTONIC and the rest stay what they are: as after settimeofday().
 */
#include <dlfcn.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t jump(void)
{
	static uint32_t calls;
	uint32_t n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) * 2654435761u;

	return (int64_t)(n % 630720000u) - 315360000;
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, clock, ts);

	if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		ts->tv_sec += jump();
	return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;

	(void)tz;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *ret)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}
