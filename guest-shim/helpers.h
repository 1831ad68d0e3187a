/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for one call: the library lives in other people's processes, where no thread of ours may stay behind.
 *
 * Threads: any may call. Blocking: until all is done. Helpers take no signal, and end before the call returns; a child
 * forked meanwhile has none of them.
 */
#ifndef GANTRY_GUEST_SHIM_HELPERS_H
#define GANTRY_GUEST_SHIM_HELPERS_H

#define GANTRY_HELPERS_MAX 8u

/* Runs fn(arg, i) for each i < @n (at most GANTRY_HELPERS_MAX), at the same time as far as threads can be had. */
void gantry_help(unsigned int n, void (*fn)(void *arg, unsigned int i), void *arg);

/* CPUs that the calling thread may use: those of its affinity, and no more than the process's cgroups allow it time of. */
unsigned int gantry_help_cpus(void);

/* How many CPUs' time "QUOTA PERIOD" or "max PERIOD" (cpu.max) is, rounded down, at least 1; 0: no limit, or no such text. */
unsigned int gantry_help_parse_quota(const char *text);

#endif
