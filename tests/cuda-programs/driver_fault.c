/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel that strays, in a program that has variables of its image; the image at argv[1] has those of kernels.cuh. */
#include <stdint.h>

#include "tests/cuda-programs/parts.h"

int main(int argc, char **argv)
{
	CUdeviceptr factor, counter, p, nowhere = 16;
	void *params[] = { &nowhere };
	CUfunction stray;
	CUmodule module;
	CUcontext ctx;
	size_t bytes;
	int n;

	if (argc != 2)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	begin("fault");
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
	CHECK(bytes >= 4);
	OK(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
	CHECK(counter != factor);
	OK(cuMemsetD32(counter, 3, 1));
	OK(cuMemAlloc(&p, 1 << 20));
	OK(cuCtxSynchronize());
	OK(cuModuleGetFunction(&stray, module, "stray"));
	OK(cuLaunchKernel(stray, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL));
	IS(cuCtxSynchronize(), ILLEGAL_ADDRESS);
	/* From now on everything says so. */
	IS(cuMemAlloc(&p, 16), ILLEGAL_ADDRESS);
	IS(cuStreamSynchronize(0), ILLEGAL_ADDRESS);
	IS(cuLaunchKernel(stray, 1, 1, 1, 1, 1, 1, 0, 0, params, NULL), ILLEGAL_ADDRESS);
	IS(cuDeviceGetCount(&n), ILLEGAL_ADDRESS);
	end();
	return 0;
}
