/* SPDX-License-Identifier: Apache-2.0 */
/* The device code of the contract suite's module for opencl devices. */
__kernel void probe_set(__global uint *out, uint value, ulong count)
{
	for (ulong i = get_global_id(0); i < count; i += get_global_size(0))
		out[i] = value;
}

__kernel void probe_add(__global uint *out, uint value, ulong count)
{
	for (ulong i = get_global_id(0); i < count; i += get_global_size(0))
		out[i] += value;
}

__kernel void probe_answer(__global volatile int *verdict, int value)
{
	verdict[0] = value;
}

__kernel void probe_endless(__global volatile int *verdict)
{
	while (!verdict[1])
		;
	verdict[0] = -125; /* -ECANCELED */
}

/* x = 3 x + 1, so that order shows. OpenCL C has a step() of its own. */
__kernel void probe_step(__global uint *x)
{
	x[0] = 3 * x[0] + 1;
}

/* Grid, block, number of arguments, a, b. */
__kernel void geometry(__global uint *out, double a, int b)
{
	for (uint i = 0; i < 3; i++) {
		out[i] = (uint)get_num_groups(i);
		out[3 + i] = (uint)get_local_size(i);
	}
	out[6] = 3;
	out[7] = (uint)a;
	out[8] = (uint)b;
}
