/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

#include "base/atomic.h"

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts = { 0, 0 };

	(void)clock_gettime(clock, &ts); /* cannot fail with the two clocks used here */
	return (uint64_t)ts.tv_sec * GANTRY_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t gantry_now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t gantry_thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

struct sample {
	uint64_t ns;
	uint64_t cycles;
};

/* Both clocks at one moment: of a few tries the one that was interrupted least. */
static struct sample sample_both(void)
{
	struct sample best = { 0, 0 };
	uint64_t best_gap = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t before = gantry_cycles();
		uint64_t ns = gantry_now_ns();
		uint64_t gap = gantry_cycles() - before;

		if (gap < best_gap) {
			best_gap = gap;
			best.ns = ns;
			best.cycles = before + gap / 2;
		}
	}
	return best;
}

uint64_t gantry_cycles_per_us(void)
{
	static uint64_t cached;
	/* Relaxed: threads that race here measure the same number. */
	uint64_t rate = gantry_load_relaxed(&cached);
	struct sample start, end;

	if (rate)
		return rate;
	start = sample_both();
	while (gantry_now_ns() - start.ns < 50 * GANTRY_NS_PER_US)
		gantry_cpu_relax();
	end = sample_both();
	rate = (end.cycles - start.cycles) * GANTRY_NS_PER_US / (end.ns - start.ns);
	if (rate == 0)
		rate = 1;
	gantry_store_relaxed(&cached, rate);
	return rate;
}

uint64_t gantry_deadline_ns(int64_t timeout_ns)
{
	uint64_t deadline;

	if (timeout_ns < 0)
		return GANTRY_DEADLINE_NEVER;
	if (__builtin_add_overflow(gantry_now_ns(), (uint64_t)timeout_ns, &deadline))
		return GANTRY_DEADLINE_NEVER;
	return deadline;
}

uint64_t gantry_deadline_left_ns(uint64_t deadline_ns)
{
	uint64_t now;

	if (deadline_ns == GANTRY_DEADLINE_NEVER)
		return UINT64_MAX;
	now = gantry_now_ns();
	return deadline_ns > now ? deadline_ns - now : 0;
}

bool gantry_deadline_passed(uint64_t deadline_ns)
{
	return gantry_deadline_left_ns(deadline_ns) == 0;
}

int gantry_deadline_poll_ms(uint64_t deadline_ns)
{
	uint64_t left = gantry_deadline_left_ns(deadline_ns);
	uint64_t ms;

	if (left == UINT64_MAX)
		return -1;
	ms = left / GANTRY_NS_PER_MS + (left % GANTRY_NS_PER_MS != 0);
	return ms > INT_MAX ? INT_MAX : (int)ms;
}
