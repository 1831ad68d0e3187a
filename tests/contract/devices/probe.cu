/* SPDX-License-Identifier: Apache-2.0 */
/* Device code of the contract suite for NVIDIA GPUs; probe_cuda_fake.c has the same for the fake driver. */
#include <stdint.h>

#include "devices/cuda/module.h"

extern "C" __global__ void probe_step(uint32_t *x)
{
	x[0] = 3 * x[0] + 1;
}

extern "C" __global__ void geometry(uint32_t *out, double a, int32_t b)
{
	if (threadIdx.x || threadIdx.y || threadIdx.z || blockIdx.x || blockIdx.y || blockIdx.z)
		return;
	out[0] = gridDim.x;
	out[1] = gridDim.y;
	out[2] = gridDim.z;
	out[3] = blockDim.x;
	out[4] = blockDim.y;
	out[5] = blockDim.z;
	out[6] = 3;
	out[7] = (uint32_t)a;
	out[8] = (uint32_t)b;
}

extern "C" __global__ void probe_set(uint32_t *out, uint32_t value, uint64_t count)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
	     i += (uint64_t)gridDim.x * blockDim.x)
		out[i] = value;
}

extern "C" __global__ void probe_add(uint32_t *out, uint32_t value, uint64_t count)
{
	for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < count;
	     i += (uint64_t)gridDim.x * blockDim.x)
		atomicAdd(&out[i], value);
}

extern "C" __global__ void probe_answer(struct gantry_cuda_verdict *verdict, int32_t status)
{
	verdict->status = status;
}

extern "C" __global__ void probe_endless(volatile struct gantry_cuda_verdict *verdict)
{
	while (!verdict->cancel)
		;
	verdict->status = -125; /* -ECANCELED */
}

/* An address that nothing is mapped at: the context fails, and all that shares it. */
extern "C" __global__ void fault(void)
{
	*(volatile uint32_t *)0x10 = 1;
}
