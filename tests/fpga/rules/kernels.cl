// SPDX-License-Identifier: Apache-2.0
// Kernels of images for boards under tests/fpga/rules: single work-items, as compilers for FPGAs like them. A parameter behind each
// buffer's has its length, so that a kernel keeps to the bytes that it was given.
#ifdef WITH_board_vadd
__kernel void board_vadd(__global const int *a, ulong a_bytes, __global const int *b, ulong b_bytes, __global int *c,
			 ulong c_bytes, ulong n)
{
	n = min(n, min(a_bytes, min(b_bytes, c_bytes)) / 4);
	for (ulong i = 0; i < n; i++)
		c[i] = a[i] + b[i];
}
#endif

#ifdef WITH_board_scale
__kernel void board_scale(__global const int *a, ulong a_bytes, __global int *c, ulong c_bytes, int factor, ulong n)
{
	n = min(n, min(a_bytes, c_bytes) / 4);
	for (ulong i = 0; i < n; i++)
		c[i] = a[i] * factor;
}
#endif

// A work-item for each element: its manifest says ndrange.
#ifdef WITH_board_grid
__kernel void board_grid(__global int *c, ulong c_bytes, int factor)
{
	ulong i = get_global_id(0) + get_global_size(0) * get_global_id(1);

	if (i < c_bytes / 4)
		c[i] = (int)i * factor + (int)get_local_size(0);
}
#endif

// Without lengths: whoever wrote it answers for it. The same for all programs of the workloads; what they take is a rule's affair.
#define PROGRAM(name)                                                  \
	__kernel void name(__global const int *a, __global int *c, uint n) \
	{                                                              \
		for (uint i = 0; i < n; i++)                           \
			c[i] = a[i] + 1;                               \
	}
#ifdef WITH_gaussian
PROGRAM(gaussian)
#endif
#ifdef WITH_lava
PROGRAM(lava)
#endif
#ifdef WITH_gaussian_small
PROGRAM(gaussian_small)
#endif
#ifdef WITH_lava_small
PROGRAM(lava_small)
#endif
#ifdef WITH_nw
PROGRAM(nw)
#endif
#ifdef WITH_pathfinder
PROGRAM(pathfinder)
#endif
#ifdef WITH_particle
PROGRAM(particle)
#endif
// Not the kernel that is run once when an image is loaded, though its name begins so.
#ifdef WITH_gantry_loaded_x
PROGRAM(gantry_loaded_x)
#endif
#ifdef WITH_hotspot
PROGRAM(hotspot)
#endif

// On the board an image is when a kernel of it has run.
#ifdef WITH_FIRST
__kernel void gantry_loaded(void)
{
}
#endif

// What tests/fpga/rules/rules.h reads.
__kernel void RULES(void)
{
}
