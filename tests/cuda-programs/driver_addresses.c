/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of device memory are good for life: the worker dies while this waits for the file argv[2] to end. With a further argument
 * it has a variable of its image, which has its value as long as its worker lives.
 */
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "tests/cuda-programs/attributes.h"
#include "tests/cuda-programs/parts.h"

#define N 1024

/* So many floats as @x has, added to *@out by a kernel that knows of either its address alone. */
static float sum(CUfunction kernel, CUdeviceptr x, CUdeviceptr out)
{
	int32_t n = N;
	void *params[] = { &x, &n, &out };
	float result = 0;

	OK(cuLaunchKernel(kernel, 1, 1, 1, N, 1, 1, 0, 0, params,
			  NULL)); /* one thread for each of them */
	OK(cuMemcpyDtoH(&result, out, sizeof(result)));
	return result;
}

static void wait_for_end(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char byte;

	CHECK(fd >= 0);
	printf("waiting\n");
	CHECK(read(fd, &byte, 1) == 0);
	(void)close(fd);
}

int main(int argc, char **argv)
{
	CUdeviceptr large, small, out, factor = 0;
	uint32_t value = 0;
	CUfunction kernel;
	size_t bytes;
	CUmodule module;
	CUcontext ctx;

	if (argc != 3 && argc != 4)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	begin("addresses");
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&kernel, module, "sum"));
	set_attributes(kernel);
	OK(cuMemAlloc(&large, 4 << 20));
	OK(cuMemAlloc(&small, N * sizeof(float)));
	OK(cuMemAlloc(&out, sizeof(float)));
	OK(cuMemsetD32(out, 0, 1));
	OK(cuMemsetD32(large, 0x3f800000, N)); /* 1.0 */
	OK(cuMemsetD32(small, 0x40000000, N)); /* 2.0 */
	CHECK(sum(kernel, large, out) == N);
	if (argc == 4) {
		OK(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
		OK(cuMemsetD32(factor, 7, 1));
	}
	wait_for_end(argv[2]);
	check_attributes(kernel);
	if (argc == 4) {
		OK(cuMemcpyDtoH(&value, factor, sizeof(value)));
		CHECK(value == 7);
	}
	CHECK(sum(kernel, large, out) == 2 * N);
	CHECK(sum(kernel, small, out) == 4 * N);
	end();
	return 0;
}
