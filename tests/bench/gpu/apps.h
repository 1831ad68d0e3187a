/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole programs in the manner of the Rodinia suite (capabilities of the Arax paper, Table 4): each makes its input
 * once, and can then be run again and again: allocate, copy in, compute, copy out, free.
 */
#ifndef GANTRY_TESTS_BENCH_GPU_APPS_H
#define GANTRY_TESTS_BENCH_GPU_APPS_H

#include <stdint.h>

struct app {
	const char *name;
	/* Finds kernels, makes input; @scale 1: the paper's size, n: about 1/n of it. 0 or -1 after bench_fail(). */
	int (*prepare)(uint32_t scale);
	/* One run, from host memory to host memory. *ret_checksum is of the results. */
	int (*run)(uint64_t *ret_checksum);
};

/* NULL-terminated by name. */
extern const struct app apps[];

#endif
