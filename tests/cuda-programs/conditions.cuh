/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that set conditions of graphs, apart from the others, for only drivers from CUDA 12.4 on have what they call. For the fake driver
 * they are in fake_conditions.c, which FAKE_SO names as in kernels.cuh.
 */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_CONDITIONS_CUH
#define GANTRY_TESTS_CUDA_PROGRAMS_CONDITIONS_CUH

#include <cuda_runtime.h>

extern "C" {
__global__ void count_down(cudaGraphConditionalHandle condition, unsigned int *left)
{
#ifdef FAKE_SO
	asm volatile(".pragma \"FAKECUDA so=" FAKE_SO " arch=sm_90\";");
#endif
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

#endif
