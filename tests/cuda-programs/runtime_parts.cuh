/* SPDX-License-Identifier: Apache-2.0 */
/* As parts.h, for programs over the Runtime API. */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_RUNTIME_PARTS_CUH
#define GANTRY_TESTS_CUDA_PROGRAMS_RUNTIME_PARTS_CUH

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

static const char *part = "start";

#define OK(call) must(call, cudaSuccess, __LINE__)
#define IS(call, code) must(call, code, __LINE__)
#define CHECK(what)                                                             \
	do {                                                                    \
		if (!(what)) {                                                  \
			printf("FAILED %s, line %d: " #what "\n", part, __LINE__); \
			exit(1);                                                \
		}                                                               \
	} while (0)

static void must(cudaError_t is, cudaError_t wanted, int line)
{
	if (is == wanted)
		return;
	printf("FAILED %s, line %d: %s (%s), not %s\n", part, line, cudaGetErrorName(is),
	       cudaGetErrorString(is), cudaGetErrorName(wanted));
	exit(1);
}

static void end()
{
	printf("ok %s\n", part);
}

#endif
