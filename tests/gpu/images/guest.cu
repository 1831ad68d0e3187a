/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a guest's own image: as source for NVRTC, and compiled into PTX, cubin and fatbin by the build. */
typedef unsigned long long u64;

/* out[0]: where the buffer is on the device; out[1]: the grid's size */
extern "C" __global__ void where(u64 *out)
{
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		out[0] = (u64)out;
		out[1] = gridDim.x;
	}
}

/* data[i] = data[i] * scale + i */
extern "C" __global__ void affine(u64 *data, u64 n, u64 scale)
{
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
		data[i] = data[i] * scale + i;
}

/* Far from anything that a session has: an illegal address. */
extern "C" __global__ void illegal(u64 address)
{
	*(volatile u64 *)address = 1;
}

extern "C" __global__ void trap(void)
{
	__trap();
}

/* Until the process ends: the clock is never 0, and no compiler knows it. */
extern "C" __global__ void endless(void)
{
	u64 now;

	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now != 0);
}

extern "C" __global__ void spin_ns(u64 ns)
{
	u64 start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - start < ns);
}

/* Until somebody writes something there: host memory. */
extern "C" __global__ void until(const u64 *word)
{
	while (*(const volatile u64 *)word == 0)
		;
}

/* More threads a block than any device has: used with a block that is out of range. */
extern "C" __global__ void nothing(void)
{
}
