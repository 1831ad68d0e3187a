/* SPDX-License-Identifier: Apache-2.0 */
/* What cuda_aside_module.c, an installed module that runs aside, tells its test: the object aside_state. */
#ifndef GANTRY_TESTS_UNIT_DEVICES_CUDA_ASIDE_H
#define GANTRY_TESTS_UNIT_DEVICES_CUDA_ASIDE_H

#include <stdint.h>

#define ASIDE_OWNERS 8u

struct aside_state {
	/* Atomic. */
	uint32_t nentered; /* functions that began */
	uint32_t nwaiting; /* functions of kernel "hold" that have begun and not gone on */
	uint32_t ngo;	   /* so many of them may go on */
	uint32_t nleft;	   /* owners that were told to have left */
	uint32_t nlost;
	uint64_t owners[ASIDE_OWNERS]; /* in the order that they left */
	uint64_t last;		       /* who ran "hold" last */
	uint32_t is_quick;	       /* what the module says of any call */
	uint32_t refused;	       /* calls that are not there, of kernel "offer" */
	uint32_t here;		       /* and those that are, and did what they should */
};

#endif
