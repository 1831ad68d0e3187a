/* SPDX-License-Identifier: Apache-2.0 */
/* Programs over the Driver API in parts: each prints "ok NAME" when it went well, or what did not, and ends with 1. */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_PARTS_H
#define GANTRY_TESTS_CUDA_PROGRAMS_PARTS_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

static const char *part = "start";

static void must(CUresult is, CUresult wanted, int line)
{
	const char *name = "?";

	if (is == wanted)
		return;
	(void)cuGetErrorName(is, &name);
	printf("FAILED %s, line %d: %d %s, not %d\n", part, line, (int)is, name, (int)wanted);
	exit(1);
}
#define OK(call)	   must(call, CUDA_SUCCESS, __LINE__)
#define IS(call, expected) must(call, CUDA_ERROR_##expected, __LINE__)
/*
 * The same with a handle that is none, or was destroyed: NVIDIA's libraries look into it, so a comparison with them (a further
 * argument on the command line) leaves it out.
 */
static int is_native __attribute__((unused));
#define BAD(call, expected)                 \
	do {                                \
		if (!is_native)             \
			IS(call, expected); \
	} while (0)

static void check(int holds, const char *what, int line)
{
	if (holds)
		return;
	printf("FAILED %s, line %d: %s\n", part, line, what);
	exit(1);
}
#define CHECK(what) check(what, #what, __LINE__)

/* First of all: lines come out one by one, and the first device's context is current. */
static inline CUcontext set_out(void)
{
	CUcontext ctx;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	return ctx;
}

static void begin(const char *name)
{
	part = name;
}

static void end(void)
{
	printf("ok %s\n", part);
}

#endif
