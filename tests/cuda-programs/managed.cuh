/* SPDX-License-Identifier: Apache-2.0 */
/* Managed variables, and kernels that use them; for the fake driver the same ones are in fake_kernels.c. */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_MANAGED_CUH
#define GANTRY_TESTS_CUDA_PROGRAMS_MANAGED_CUH

#define TABLE 20000

extern "C" {
__managed__ int managed_count = 7;
__managed__ double managed_table[TABLE];
__managed__ int *managed_pointer;

__global__ void managed_bump(int by)
{
	managed_count += by;
}

__global__ void managed_scale(int from, int n, double by)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		managed_table[from + i] *= by;
}

/* Where they are, as kernels have it. */
__global__ void managed_where(unsigned long long *out)
{
	out[0] = (unsigned long long)&managed_count;
	out[1] = (unsigned long long)&managed_table;
}

__global__ void managed_follow(int value)
{
	*managed_pointer = value;
}
}

#endif
