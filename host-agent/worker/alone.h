/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a kernel takes with nobody beside it on a GPU, learnt from a few runs of which that is known to be so.
 *
 * Such runs are rare: once the first few have been seen nobody stands aside for more, and what they told is what the
 * session pays by for long. The first of all pays for loading as well, so that it counts only until there is a
 * second; the mean of the next few is what is believed, and each later one moves it by an eighth.
 *
 * Threads: one. Zeroed memory is a beginning.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_ALONE_H
#define GANTRY_HOST_AGENT_WORKER_ALONE_H

#include <stdbool.h>
#include <stdint.h>

#define WORKER_ALONE_RUNS 5u /* with the first, that are asked for */
#define WORKER_ALONE_SPAN 8u /* runs that the mean is over, from there on */

struct walone {
	uint64_t mean_ns; /* 0: nothing is known */
	uint32_t nruns;	  /* seen, to WORKER_ALONE_SPAN at most */
};

/* A run of @ns, above 0, with nobody beside. */
static inline void worker_alone_add(struct walone *alone, uint64_t ns)
{
	uint32_t weight = alone->nruns > 1 ? alone->nruns : 1;

	alone->mean_ns = (alone->mean_ns * (weight - 1) + ns) / weight;
	if (alone->nruns < WORKER_ALONE_SPAN)
		alone->nruns++;
}

/* More runs alone would tell more. */
static inline bool worker_alone_wants(const struct walone *alone)
{
	return alone->nruns < WORKER_ALONE_RUNS;
}

#endif
