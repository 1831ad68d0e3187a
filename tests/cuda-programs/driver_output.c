/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print, among what the program prints: driver_output IMAGE PART [FILE]. The image has the kernels of kernels.cu. Standard
 * output is buffered as it is for any program, so that what does not go through stdio comes out of order.
 */
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

static CUmodule module;
static CUfunction speak;

static void say(int from, int n, CUstream stream)
{
	void *params[] = { &from, &n };

	OK(cuLaunchKernel(speak, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void CUDA_CB told(void *data)
{
	printf("function %s\n", (const char *)data);
}

/* Whatever CUDA shows it at. */
static void in_order(void)
{
	CUdeviceptr p;
	CUstream stream;
	CUevent event;
	unsigned int value;

	OK(cuMemAlloc(&p, 4096));
	OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&event, 0));
	printf("program 1\n");
	say(1, 2, 0);
	OK(cuCtxSynchronize());
	printf("program 2\n");
	say(3, 1, stream);
	OK(cuStreamSynchronize(stream));
	printf("program 3\n");
	say(4, 1, stream);
	OK(cuEventRecord(event, stream));
	OK(cuEventSynchronize(event));
	printf("program 4\n");
	say(5, 1, 0);
	OK(cuMemcpyDtoH(&value, p, 4));
	printf("program 5\n");
	say(6, 1, stream);
	OK(cuLaunchHostFunc(stream, told, (void *)(uintptr_t) "1"));
	OK(cuStreamSynchronize(stream));
	printf("program 6\n");
	OK(cuEventDestroy(event));
	OK(cuStreamDestroy(stream));
	OK(cuMemFree(p));
}

/* As much as many kernels in a row say. */
static void much(void)
{
	for (int i = 0; i < 200; i++)
		say(i * 50, 50, 0);
	OK(cuCtxSynchronize());
}

/* The driver keeps 1 MiB, or as much as is asked for where that is more; what is older is gone. */
static void limited(void)
{
	size_t bytes = 0;

	OK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 4096));
	OK(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
	CHECK(bytes >= 4096);
	say(0, 100000, 0);
	OK(cuCtxSynchronize());
}

/* Where nobody can tell whose it is. */
static void for_nobody(void)
{
	for (int i = 0; i < 600; i++) {
		say(i, 1, 0);
		OK(cuCtxSynchronize());
	}
	printf("program 1\n");
}

/* Waits for the end of FILE in between. */
static void twice(const char *path)
{
	FILE *file;

	say(1, 1, 0);
	OK(cuCtxSynchronize());
	printf("waiting\n");
	(void)fflush(stdout);
	file = fopen(path, "re");
	while (file && fgetc(file) != EOF)
		;
	if (file)
		(void)fclose(file);
	say(2, 1, 0);
	OK(cuCtxSynchronize());
}

static void asserted(void)
{
	CUfunction must_be;
	int value = 1;
	void *params[] = { &value };

	OK(cuModuleGetFunction(&must_be, module, "must_be"));
	OK(cuLaunchKernel(must_be, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	OK(cuCtxSynchronize());
	say(1, 1, 0);
	value = 0;
	OK(cuLaunchKernel(must_be, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	IS(cuCtxSynchronize(), ASSERT);
	IS(cuCtxSynchronize(), ASSERT);
	printf("program 1\n");
}

/* The same where nobody can tell whose it is, nor what it was that failed. */
static void asserted_for_nobody(void)
{
	CUfunction must_be;
	int value = 0;
	void *params[] = { &value };

	OK(cuModuleGetFunction(&must_be, module, "must_be"));
	OK(cuLaunchKernel(must_be, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	CHECK(cuCtxSynchronize() != CUDA_SUCCESS);
	printf("program 1\n");
}

int main(int argc, char **argv)
{
	CUcontext ctx;

	if (argc < 3)
		return 2;
	begin(argv[2]);
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&speak, module, "speak"));
	if (strcmp(argv[2], "order") == 0)
		in_order();
	else if (strcmp(argv[2], "much") == 0)
		much();
	else if (strcmp(argv[2], "limit") == 0)
		limited();
	else if (strcmp(argv[2], "nobody") == 0)
		for_nobody();
	else if (strcmp(argv[2], "assert") == 0)
		asserted();
	else if (strcmp(argv[2], "assert-nobody") == 0)
		asserted_for_nobody();
	else if (argc > 3)
		twice(argv[3]);
	end();
	return 0;
}
