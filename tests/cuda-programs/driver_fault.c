/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel that strays; the image at argv[1] has those of kernels.cuh. argv[2]: "alone", in a program that has variables of its image, and what
 * every call says from then on; "told" and "told with variables", where others are at work too: prints what the program is told;
 * "behind others", the same with good kernels before and behind it in the stream. "stays" and a file: a kernel that is in flight until the file
 * has ended.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda-programs/parts.h"

static CUmodule module;
static CUfunction stray;
static CUdeviceptr nowhere = 16;

static void look_at_variables(void)
{
	CUdeviceptr factor, counter;
	size_t bytes;

	OK(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
	CHECK(bytes >= 4);
	OK(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
	CHECK(counter != factor);
	OK(cuMemsetD32(counter, 3, 1));
}

static CUresult put(CUfunction function, void *first)
{
	void *params[] = { first };

	return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL);
}

static void alone(void)
{
	CUdeviceptr p;
	int n;

	begin("fault");
	look_at_variables();
	OK(cuMemAlloc(&p, 1 << 20));
	OK(cuCtxSynchronize());
	OK(put(stray, &nowhere));
	IS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	/* From now on everything says so. */
	IS(cuMemAlloc(&p, 16), ILLEGAL_ADDRESS);
	IS(cuStreamSynchronize(0), ILLEGAL_ADDRESS);
	IS(put(stray, &nowhere), ILLEGAL_ADDRESS);
	IS(cuDeviceGetCount(&n), ILLEGAL_ADDRESS);
	end();
}

static void tell(CUresult result)
{
	const char *name = "?";

	(void)cuGetErrorName(result, &name);
	printf("told %s\n", name);
}

/* Good ones before and behind the one that strays. */
static void behind_others(void)
{
	CUfunction transpose;
	CUdeviceptr p;
	int one = 1;
	void *params[] = { &p, &p, &one, &one };

	OK(cuModuleGetFunction(&transpose, module, "transpose"));
	OK(cuMemAlloc(&p, 4096));
	for (unsigned int i = 0; i < 20; i++) {
		OK(cuLaunchKernel(transpose, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
		if (i == 10)
			OK(put(stray, &nowhere));
	}
}

static void stays(const char *path)
{
	CUfunction stay;
	int *pinned, fd;
	CUdeviceptr at;
	char byte;

	OK(cuMemHostAlloc((void **)&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	*(volatile int *)pinned = 0;
	OK(cuMemHostGetDevicePointer(&at, pinned, 0));
	OK(cuModuleGetFunction(&stay, module, "stay"));
	OK(put(stay, &at));
	printf("stays\n");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	while (read(fd, &byte, 1) > 0)
		;
	(void)close(fd);
	*(volatile int *)pinned = 1;
	tell(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	(void)set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&stray, module, "stray"));
	if (strcmp(argv[2], "alone") == 0) {
		alone();
	} else if (strcmp(argv[2], "stays") == 0 && argc > 3) {
		stays(argv[3]);
	} else {
		if (strcmp(argv[2], "told with variables") == 0)
			look_at_variables();
		if (strcmp(argv[2], "behind others") == 0)
			behind_others();
		else
			OK(put(stray, &nowhere));
		tell(cuCtxSynchronize());
	}
	return 0;
}
