/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that set conditions of graphs: an image of their own, for only drivers from CUDA 12.4 on have what they call. */
#include <cuda_runtime.h>

extern "C" {
__global__ void count_down(cudaGraphConditionalHandle condition, unsigned int *left)
{
	cudaGraphSetConditional(condition, --*left);
}

__global__ void choose(cudaGraphConditionalHandle condition, const unsigned int *from)
{
	cudaGraphSetConditional(condition, *from);
}

__global__ void add(unsigned int *to, unsigned int n)
{
	*to += n;
}
}
