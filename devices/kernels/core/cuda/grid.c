/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the stencils and the dynamic programs. */
#include "devices/kernels/core/cuda/body.h"

/* No steps are a copy; more than one needs a spare grid and a way to stop. */
static int steps_prepare(struct gantry_env *env, uint64_t ncells, uint32_t nsteps,
			 float **ret_spare, struct gpu_stop **ret_stop,
			 struct gantry_cuda_verdict **ret_verdict)
{
	float *spare;
	int r;

	if (nsteps == 1)
		return 0;
	spare = SCRATCH(float, env, ncells);
	if (!spare)
		return -ENOMEM;
	r = gpu_stop_make(env, ret_stop, ret_verdict);
	if (r < 0)
		return r;
	*ret_spare = spare;
	return 0;
}

static int steps_launch(struct gantry_env *env, enum gpu_function function, uint64_t nblocks,
			uint32_t nsteps, const void *args)
{
	if (nsteps == 1)
		return gpu_launch(env, function, nblocks, GPU_THREADS, args);
	return gpu_launch_together(env, function, nblocks, GPU_THREADS, args);
}

static int grid_copy(struct gantry_env *env, const float *in, float *out, uint64_t ncells)
{
	return in == out ? 0 : gpu_calls(env)->copy(env, out, in, ncells * sizeof(*in));
}

KERNEL(hotspot)
{
	uint64_t rows = call->args[3].u32, cols = call->args[4].u32, ncells = rows * cols;
	struct gpu_plate p = {
		.power = ARG(float, call, 0, ncells),
		.in = ARG(float, call, 1, ncells),
		.out = ARG(float, call, 2, ncells),
		.rows = rows,
		.cols = cols,
		.nsteps = call->args[5].u32,
		.dt = call->args[6].f32,
		.per_rx = 1.0f / call->args[7].f32,
		.per_ry = 1.0f / call->args[8].f32,
		.per_rz = 1.0f / call->args[9].f32,
		.ambient = call->args[10].f32,
	};
	int r;

	if (!p.power || !p.in || !p.out)
		return -EINVAL;
	if (ncells == 0)
		return 0;
	if (p.nsteps == 0)
		return grid_copy(env, p.in, p.out, ncells);
	r = steps_prepare(env, ncells, p.nsteps, &p.spare, &p.stop, &p.verdict);
	if (r < 0)
		return r;
	return steps_launch(env, GPU_plate,
			    gpu_parts(cols, GPU_THREADS) * gpu_parts(rows, GPU_DOWN), p.nsteps, &p);
}

KERNEL(hotspot3d)
{
	struct gpu_block b = {
		.nx = call->args[3].u32,
		.ny = call->args[4].u32,
		.nz = call->args[5].u32,
		.nsteps = call->args[6].u32,
		.side_x = call->args[7].f32,
		.side_y = call->args[8].f32,
		.side_z = call->args[9].f32,
		.heat = call->args[10].f32,
		.ambient = call->args[11].f32,
	};
	uint64_t ncells, nplanes;
	int r;

	if (!product3(b.nx, b.ny, b.nz, &ncells))
		return -EINVAL;
	b.power = ARG(float, call, 0, ncells);
	b.in = ARG(float, call, 1, ncells);
	b.out = ARG(float, call, 2, ncells);
	if (!b.power || !b.in || !b.out)
		return -EINVAL;
	if (ncells == 0)
		return 0;
	if (b.nsteps == 0)
		return grid_copy(env, b.in, b.out, ncells);
	/* What leaves a cell to its six neighbours and to the air. */
	b.here = 1.0f - (2.0f * b.side_x + 2.0f * b.side_y + 3.0f * b.side_z);
	r = steps_prepare(env, ncells, b.nsteps, &b.spare, &b.stop, &b.verdict);
	if (r < 0)
		return r;
	nplanes = gpu_parts(b.nx, GPU_ACROSS) * gpu_parts(b.ny, GPU_BESIDES);
	return steps_launch(env, GPU_block, nplanes * gpu_parts(b.nz, GPU_DOWN), b.nsteps, &b);
}

KERNEL(pathfinder)
{
	uint64_t rows = call->args[2].u32, cols = call->args[3].u32;
	struct gpu_path p = {
		.wall = ARG(int32_t, call, 0, rows * cols),
		.result = ARG(int32_t, call, 1, cols),
		.rows = rows,
		.cols = cols,
	};
	int r;

	if (!p.wall || !p.result || rows == 0)
		return -EINVAL;
	if (cols == 0)
		return 0;
	if (rows == 1)
		return gpu_calls(env)->copy(env, p.result, p.wall, cols * sizeof(*p.wall));
	p.costs[0] = SCRATCH(int32_t, env, cols);
	p.costs[1] = SCRATCH(int32_t, env, cols);
	if (!p.costs[0] || !p.costs[1])
		return -ENOMEM;
	r = gpu_stop_make(env, &p.stop, &p.verdict);
	if (r < 0)
		return r;
	return gpu_launch_together(env, GPU_path, gpu_parts(cols, GPU_PATH_COLS), GPU_THREADS, &p);
}

KERNEL(needleman_wunsch)
{
	uint64_t na = call->args[3].u32, nb = call->args[4].u32, ncells, ntiles;
	struct gpu_align al = {
		.from_a = ARG(uint8_t, call, 0, na),
		.from_b = ARG(uint8_t, call, 1, nb),
		.na = na,
		.nb = nb,
		.penalty = call->args[5].i32,
	};
	int r;

	if (!al.from_a || !al.from_b || !product3(na + 1, nb + 1, 1, &ncells))
		return -EINVAL;
	al.score = ARG(int32_t, call, 2, ncells);
	if (!al.score)
		return -EINVAL;
	al.a = SCRATCH(uint8_t, env, na + 1);
	al.b = SCRATCH(uint8_t, env, nb + 1);
	if (!al.a || !al.b)
		return -ENOMEM;
	r = gpu_stop_make(env, &al.stop, &al.verdict);
	if (r < 0)
		return r;
	/* No diagonal has more tiles than this: one per block while there are blocks. */
	ntiles = gantry_min_u64(gpu_parts(na, GPU_ALIGN_ROWS), gpu_parts(nb, GPU_ALIGN_COLS));
	return gpu_launch_together(env, GPU_align, gantry_max_u64(ntiles, 1), GPU_ALIGN_THREADS,
				   &al);
}
