/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the stencils and the dynamic programs. */
#include "devices/kernels/core/opencl/body.h"

/*
 * Steps that are launches, each on all of the device. How many there are is a guest's number: more are one group's
 * work, which waits for itself.
 */
#define STEPS_MAX 32u

/* One stencil: its parameters behind (from, to), and the same behind (from, to, spare, verdict, nsteps). */
struct stepper {
	enum ocl_function step;
	enum ocl_function steps;
	uint64_t ncells;
	const struct gantry_opencl_param *params;
	uint32_t nparams;
};

#define PARAMS_MAX 16u

static int step(struct gantry_env *env, const struct stepper *st, ocl_buffer from, ocl_buffer to)
{
	struct gantry_opencl_param params[PARAMS_MAX] = { BUF(from), BUF(to) };

	for (uint32_t i = 0; i < st->nparams; i++)
		params[2 + i] = st->params[i];
	return ocl_launch_items(env, st->step, st->ncells, params, 2 + st->nparams);
}

static int all_steps(struct gantry_env *env, const struct stepper *st, ocl_buffer in,
		     ocl_buffer out, ocl_buffer spare, uint32_t nsteps)
{
	ocl_buffer verdict = ocl_calls(env)->verdict(env);
	struct gantry_opencl_param params[PARAMS_MAX + 4] = { BUF(in), BUF(out), BUF(spare) };

	if (!verdict)
		return -ENOMEM;
	params[3] = BUF(verdict);
	params[4] = (struct gantry_opencl_param)VAL(nsteps);
	for (uint32_t i = 0; i < st->nparams; i++)
		params[5 + i] = st->params[i];
	return ocl_launch_group(env, st->steps, params, 5 + st->nparams);
}

/* @nsteps from @in to @out, which takes turns with scratch memory so that the last step ends in it. */
static int steps_run(struct gantry_env *env, const struct stepper *st, ocl_buffer in,
		     ocl_buffer out, uint32_t nsteps)
{
	ocl_buffer spare = out, from = in;
	int r = 0;

	if (st->ncells == 0)
		return 0;
	if (nsteps == 0)
		return ocl_calls(env)->copy(env, out, in, st->ncells * sizeof(float));
	if (nsteps > 1) {
		spare = SCRATCH(float, env, st->ncells);
		if (!spare)
			return -ENOMEM;
	}
	if (nsteps > STEPS_MAX)
		return all_steps(env, st, in, out, spare, nsteps);
	for (uint32_t left = nsteps; left > 0 && r == 0; left--) {
		ocl_buffer to = left % 2 == 1 ? out : spare;

		r = step(env, st, from, to);
		from = to;
	}
	return r;
}

KERNEL(hotspot)
{
	uint64_t rows = call->args[3].u32, cols = call->args[4].u32, ncells = rows * cols;
	float dt = call->args[6].f32, ambient = call->args[10].f32;
	float per_rx = 1.0f / call->args[7].f32, per_ry = 1.0f / call->args[8].f32;
	float per_rz = 1.0f / call->args[9].f32;
	ocl_buffer power = ARG(float, call, 0, ncells), in = ARG(float, call, 1, ncells);
	ocl_buffer out = ARG(float, call, 2, ncells);
	const struct gantry_opencl_param params[] = {
		power ? BUF(power) : (struct gantry_opencl_param){ 0 },
		VAL(rows),
		VAL(cols),
		VAL(dt),
		VAL(per_rx),
		VAL(per_ry),
		VAL(per_rz),
		VAL(ambient),
	};
	const struct stepper st = { OCL_plate, OCL_plate_steps, ncells, params,
				    GANTRY_ARRAY_SIZE(params) };

	if (!power || !in || !out)
		return -EINVAL;
	return steps_run(env, &st, in, out, call->args[5].u32);
}

KERNEL(hotspot3d)
{
	uint64_t nx = call->args[3].u32, ny = call->args[4].u32, nz = call->args[5].u32, ncells;
	float side_x = call->args[7].f32, side_y = call->args[8].f32, side_z = call->args[9].f32;
	float heat = call->args[10].f32, ambient = call->args[11].f32;
	/* What leaves a cell to its six neighbours and to the air. */
	float here = 1.0f - (2.0f * side_x + 2.0f * side_y + 3.0f * side_z);
	ocl_buffer power, in, out;

	if (!product3(nx, ny, nz, &ncells))
		return -EINVAL;
	power = ARG(float, call, 0, ncells);
	in = ARG(float, call, 1, ncells);
	out = ARG(float, call, 2, ncells);
	if (!power || !in || !out)
		return -EINVAL;
	const struct gantry_opencl_param params[] = {
		BUF(power),  VAL(nx),	  VAL(ny),     VAL(nz),	  VAL(here),
		VAL(side_x), VAL(side_y), VAL(side_z), VAL(heat), VAL(ambient),
	};
	const struct stepper st = { OCL_block, OCL_block_steps, ncells, params,
				    GANTRY_ARRAY_SIZE(params) };

	return steps_run(env, &st, in, out, call->args[6].u32);
}

KERNEL(pathfinder)
{
	uint64_t nrows = call->args[2].u32, cols = call->args[3].u32;
	ocl_buffer wall = ARG(int32_t, call, 0, nrows * cols), result = ARG(int32_t, call, 1, cols);
	ocl_buffer costs, verdict;

	if (!wall || !result || nrows == 0)
		return -EINVAL;
	if (cols == 0)
		return 0;
	costs = SCRATCH(int32_t, env, 2 * cols);
	verdict = ocl_calls(env)->verdict(env);
	if (!costs || !verdict)
		return -ENOMEM;
	return LAUNCH_GROUP(env, OCL_pathfinder, BUF(wall), BUF(result), BUF(costs), BUF(verdict),
			    VAL(nrows), VAL(cols));
}

KERNEL(needleman_wunsch)
{
	uint64_t na = call->args[3].u32, nb = call->args[4].u32, ncells;
	int32_t penalty = call->args[5].i32;
	ocl_buffer a = ARG(uint8_t, call, 0, na), b = ARG(uint8_t, call, 1, nb);
	ocl_buffer score, symbols, verdict;

	if (!a || !b || !product3(na + 1, nb + 1, 1, &ncells))
		return -EINVAL;
	score = ARG(int32_t, call, 2, ncells);
	if (!score)
		return -EINVAL;
	symbols = SCRATCH(uint8_t, env, na + nb + 1);
	verdict = ocl_calls(env)->verdict(env);
	if (!symbols || !verdict)
		return -ENOMEM;
	return LAUNCH_GROUP(env, OCL_needleman, BUF(a), BUF(b), BUF(score), BUF(symbols),
			    BUF(verdict), VAL(na), VAL(nb), VAL(penalty));
}
