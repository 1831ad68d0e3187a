/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binaries of the stand-in for a GPU: a text that looks like PTX from outside, with PoCL's container (without intermediate
 * code: a worker runs no compiler) as digits in its comments, and two NULs behind it.
 *
 * Threads: any.
 */
#ifndef GANTRY_TESTS_OPENCL_GPU_H
#define GANTRY_TESTS_OPENCL_GPU_H

#include <stddef.h>

/* Of PoCL's container @binary; returns how many bytes it has, which @dst (NULL: only count) has room for. */
size_t gpu_ptx(const unsigned char *binary, size_t n, unsigned char *dst);
/* The container in @ptx, malloc'd; NULL: there is none. */
unsigned char *gpu_inside(const unsigned char *ptx, size_t n, size_t *ret_n);

#endif
