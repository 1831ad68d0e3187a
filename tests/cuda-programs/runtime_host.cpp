// SPDX-License-Identifier: Apache-2.0
// Code of the host alone, as a library: which runtime nvcc linked with it is what gantryctl doctor is asked.
#include <cuda_runtime_api.h>

extern "C" int count_devices(void)
{
	int n = 0;

	return cudaGetDeviceCount(&n) == cudaSuccess ? n : -1;
}
