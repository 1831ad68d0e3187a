/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as an image of their own. */
#include "kernels.cuh"

/* Of those, only the image has these: most programs say nothing. */
#include <cassert>
#include <cstdio>

extern "C" {
__global__ void speak(int from, int n)
{
	for (int i = 0; i < n; i++)
		printf("kernel line %d\n", from + i);
}

/* As wide as a kernel's parameters may be, but for four bytes. */
struct most {
	int numbers[8188];
};

__global__ void widest(struct most m, int *out)
{
	*out = m.numbers[8187];
}

__global__ void must_be(int value)
{
	assert(value);
}
}
