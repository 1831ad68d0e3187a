/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which functions of libraries are quick, by how long their calls took: those run where they are submitted, the others on a thread of
 * their own (module.c).
 *
 * A function is quick after QUICK_RUNS quick calls in a row, and after twice as many each time that it turned out not to be, 64 at most. A
 * busy machine makes any call slow now and then: one slow call among many quick ones changes nothing; two do, and so does one that took
 * as long as compiling takes.
 *
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_DEVICES_CUDA_CALLS_QUICK_H
#define GANTRY_DEVICES_CUDA_CALLS_QUICK_H

#include <stdbool.h>
#include <stdint.h>

#define GANTRY_QUICK_NS	      200000u  /* a call that took longer is slow */
#define GANTRY_QUICK_LONG_NS  2000000u /* what took longer is never forgiven */
#define GANTRY_QUICK_RUNS     8u
#define GANTRY_QUICK_RUNS_MAX 64u
/* After so many quick calls in a row a slow one is forgiven, once; as many more, and another is. */
#define GANTRY_QUICK_FORGIVEN 64u
#define GANTRY_QUICK_KNOWN \
	4096u /* places for functions, by the low bits of their numbers; a power of two */
#define GANTRY_QUICK_PROBES \
	8u /* places behind its own that a function may have; with all taken it is not known */

struct gantry_quick_function {
	uint64_t id;
	uint32_t nquick; /* in a row; RUNS_MAX and FORGIVEN at most */
	uint32_t wanted; /* of them, to be called quick */
};

/* Zero at first. */
struct gantry_quick {
	struct gantry_quick_function functions[GANTRY_QUICK_KNOWN];
};

/* A call of function @id took @ns. @id is that of a function that there is: places are never given back. */
void gantry_quick_learn(struct gantry_quick *quick, uint64_t id, uint64_t ns);

/* @id may be anything but 0. */
bool gantry_quick_is(struct gantry_quick *quick, uint64_t id);

#endif
