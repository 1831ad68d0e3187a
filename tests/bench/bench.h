/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of the benchmarks share: commands by line, samples and their quantiles, and the CPU to run on.
 *
 * A program reads a command a line from its standard input and answers each with one JSON object a line. So the
 * driver (tests/bench/run) keeps programs alive and lets them take turns: A B A B.
 * Threads: one. Nothing here is called between the first and the last clock reading of a measurement, but for
 * bench_sample().
 */
#ifndef GANTRY_TESTS_BENCH_BENCH_H
#define GANTRY_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

/* ---- commands ---- */

struct bench_args {
	int n;
	char **words; /* the command's own word is not among them */
};

/* The @i-th argument as a number, or @otherwise when there are fewer. */
uint64_t bench_arg(const struct bench_args *args, int i, uint64_t otherwise);

struct bench_command {
	const char *name;
	void (*run)(const struct bench_args *args); /* prints one line */
};

/* Says {"ready":PID}, serves commands until standard input ends. The table ends with a NULL name. */
int bench_serve(const struct bench_command *commands);

/* For main() of every bench program: the command "pin CPU", "pin -1" for all that the process began with. */
void bench_pin(const struct bench_args *args);

/* Runs the calling thread on @cpu alone; negative: on all that the process began with. False: not permitted. */
bool bench_run_on(int cpu);

/* One line {"error":"..."}, for a command that cannot be done. */
void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- samples ---- */

/* Intervals in ticks of the time stamp counter. */
struct bench_samples {
	uint64_t *ticks; /* owned */
	size_t n;
	size_t cap;
};

/* Room for @cap samples, touched. Exits when there is no memory. */
void bench_samples_init(struct bench_samples *s, size_t cap);
void bench_samples_fini(struct bench_samples *s);

static inline void bench_sample(struct bench_samples *s, uint64_t ticks)
{
	if (s->n < s->cap)
		s->ticks[s->n++] = ticks;
}

double bench_ns(uint64_t ticks);

/* Sorts. The value below which @share of the samples lie, in nanoseconds; 0 when there are none. */
double bench_quantile(struct bench_samples *s, double share);

/*
 * Prints "n":..,"p50":..,"p90":..,"p99":..,"p999":..,"min":..,"mean":..,"cdf":[[ns,share],..] without braces.
 */
void bench_samples_print(struct bench_samples *s);

/* The same from several threads' words: waits until CLOCK_MONOTONIC shows @at_ns. Sleeps, then spins the last 100 us. */
void bench_wait_until(uint64_t at_ns);

#endif
