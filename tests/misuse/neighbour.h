/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The honest tenant next door: a thread that computes checksums through a session of its own, all the time, and
 * compares each with one it computed itself.
 *
 * Order of calls: start, any number of check, stop. Threads: the test's own.
 */
#ifndef GANTRY_TESTS_MISUSE_NEIGHBOUR_H
#define GANTRY_TESTS_MISUSE_NEIGHBOUR_H

#include <pthread.h>
#include <stdint.h>

#include "guest-shim/gantry.h"

#define NEIGHBOUR_BYTES 65536u

struct neighbour {
	struct gantry_session *session;
	gantry_queue queue;
	gantry_kernel kernel;
	gantry_buffer data;
	gantry_buffer sum;
	pthread_t thread;
	uint64_t rounds; /* atomic: finished, all bit-exact */
	uint32_t stop;	 /* atomic */
	uint32_t failed; /* atomic; what is below is written before it */
	int status;
	char what[200];
	uint8_t mine[NEIGHBOUR_BYTES];
};

/* @session stays the caller's. Fails the test where it cannot begin. */
void neighbour_start(struct neighbour *n, struct gantry_session *session);
/* Two rounds begun after this call must come out right, within ten seconds. */
void neighbour_check(struct neighbour *n);
void neighbour_stop(struct neighbour *n);

#endif
