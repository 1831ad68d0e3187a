/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of these programs. For the fake driver the same ones are in fake_kernels.c, and FAKE_SO names them: the line goes
 * into the PTX as a pragma, where that driver looks for it.
 */
#ifndef GANTRY_TESTS_CUDA_PROGRAMS_KERNELS_CUH
#define GANTRY_TESTS_CUDA_PROGRAMS_KERNELS_CUH

#include <cuda.h>

struct pair {
	float *x; /* a pointer inside a structure, as programs have them */
	int first;
	char pad[3];
};

extern "C" {
__constant__ float factor;
__device__ int counter;

__global__ void saxpy(int n, float a, const float *x, float *y)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

#ifdef FAKE_SO
	asm volatile(".pragma \"FAKECUDA so=" FAKE_SO " arch=sm_90\";");
#endif
	if (i < n)
		y[i] = a * x[i] + y[i];
}

/* Each element becomes its number, from first on. */
__global__ void number(struct pair p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		p.x[i] = (float)(p.first + i);
}

/* More than 4096 bytes, which is what kernels could have before CUDA 12.1. */
struct many {
	int numbers[1200];
};

__global__ void wide(struct many m, int *out)
{
	*out = m.numbers[threadIdx.x];
}

/* 16 x 8 numbers from column x (a multiple of 4: 16 bytes) and row y on, as the descriptor has them; devices before 9.0 have no such thing. */
__global__ void tile(const __grid_constant__ CUtensorMap map, int x, int y, float *out)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	__shared__ alignas(128) float part[8 * 16];
	__shared__ alignas(8) unsigned long long barrier;
	unsigned int at = (unsigned int)__cvta_generic_to_shared(&barrier);
	unsigned int into = (unsigned int)__cvta_generic_to_shared(part);

	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
			     "r"((unsigned int)sizeof(part))
			     : "memory");
		asm volatile(
			"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
				into),
			"l"(&map), "r"(x), "r"(y), "r"(at)
			: "memory");
	}
	asm volatile("{\n.reg .pred done;\nagain%=:\n"
		     "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
		     "@!done bra again%=;\n}" ::"r"(at)
		     : "memory");
	for (int i = threadIdx.x; i < 8 * 16; i += blockDim.x)
		out[i] = part[i];
#endif
}

__global__ void sum(const float *x, int n, float *out)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		atomicAdd(out, x[i]);
}

__global__ void transpose(const float *in, float *out, int rows, int columns)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x < columns && y < rows)
		out[x * rows + y] = in[y * columns + x];
}
}

/* The size of the cluster, and how many blocks have met the others of the grid. */
#include <cooperative_groups.h>
extern "C" __global__ void groups(unsigned int *out)
{
#if __CUDA_ARCH__ >= 900
	dim3 size = cooperative_groups::this_cluster().dim_blocks();
#else
	dim3 size(1, 1, 1);
#endif

	if (blockIdx.x == 0 && threadIdx.x == 0) {
		out[0] = size.x;
		out[1] = size.y;
		out[2] = size.z;
	}
	if (threadIdx.x == 0)
		atomicAdd(out + 3, 1u);
}

#ifndef FAKE_SO
/* These use variables of the image, which the fake driver has not. */
extern "C" __global__ void scale_and_count(float *x, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		x[i] *= factor;
		atomicAdd(&counter, 1);
	}
}

/* Turned round inside each block, through shared memory. */
extern "C" __global__ void reverse(float *x)
{
	extern __shared__ float held[];

	held[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
	__syncthreads();
	x[blockIdx.x * blockDim.x + threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void stray(int *x)
{
	*x = 1;
}
#endif

#endif
