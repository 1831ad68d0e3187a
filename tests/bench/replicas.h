/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GANTRY_TESTS_BENCH_REPLICAS_H
#define GANTRY_TESTS_BENCH_REPLICAS_H

#include <stdint.h>

/*
 * @n tasks on two devices in turns, each of which reads a little of a buffer of @mib mebibytes; then with a writer among them.
 * With copies for devices that only read (replicas), and without. Prints figures.
 */
void bench_replicas(uint64_t mib, uint64_t n);

/* Of bench-migrate: ends the program with a sentence unless @r is 0; prints a line a figure. */
void bench_must(int r, const char *what);
void bench_print(const char *name, double value, const char *unit);

#endif
