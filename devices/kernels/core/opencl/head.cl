/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device code of core-opencl.so, in OpenCL C 1.2. Its files are one text, this one first.
 *
 * Trust: the host function has checked counts against buffers; what buffers hold is checked here.
 * The same operations in the same order as on the cpu, and nothing contracted, so that sums have the same bits.
 */
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define ERANGE	  34
#define ECANCELED 125

/* Work-items take every so many-th item. */
#define FOR_ITEMS(i, n) for (ulong i = get_global_id(0); i < (n); i += get_global_size(0))
/*
 * The same inside the only group. Two of these want a barrier between them: PoCL 3.1 confuses how often work-items go
 * round one and the other.
 */
#define FOR_LOCALS(i, n) for (ulong i = get_local_id(0); i < (n); i += get_local_size(0))

/* Shall the group stop? All of its work-items ask at once, and hear the same. */
static int group_stops(__global volatile int *verdict, __local int *said)
{
	int stop;

	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	if (get_local_id(0) == 0) {
		*said = verdict[1];
		if (*said)
			verdict[0] = -ECANCELED;
	}
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	stop = *said;
	return stop;
}

__kernel void core_empty(uint nothing)
{
	(void)nothing;
}

/* One work-item: @nrounds that need each other. What a round takes the backend has measured (devices/opencl/module.h). */
__kernel void core_spin(__global volatile int *verdict, ulong nrounds)
{
	ulong state = 88172645463325252ul;

	if (get_global_id(0) != 0)
		return;
	for (ulong i = 0; i < nrounds; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		if (i % 1024 == 0 && verdict[1]) {
			verdict[0] = -ECANCELED;
			return;
		}
	}
	/* Never so; but compilers do not know it, and leave the loop in. */
	if (state == 0)
		verdict[0] = -ERANGE;
}
