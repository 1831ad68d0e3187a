/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat in a chip, in two and three dimensions (after Rodinia's hotspot and hotspot3D). Beyond an
 * edge lies the edge's own temperature: no heat leaves sideways.
 */
#include <string.h>

#include "devices/kernels/kernel.h"

#define ROW_GRAIN 16u

struct plate {
	const float *power;
	const float *from;
	float *to;
	uint64_t rows, cols;
	float dt, per_rx, per_ry, per_rz, ambient;
};

static inline float plate_cell(const struct plate *p, float here, float power, float north,
			       float south, float west, float east)
{
	float flow = power + (north + south - 2.0f * here) * p->per_ry +
		     (east + west - 2.0f * here) * p->per_rx + (p->ambient - here) * p->per_rz;

	return here + p->dt * flow;
}

HOT static void plate_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct plate p = *(const struct plate *)arg;
	uint64_t cols = p.cols, last = cols - 1;

	for (uint64_t y = begin; y < end; y++) {
		const float *here = p.from + y * cols, *power = p.power + y * cols;
		const float *north = y == 0 ? here : here - cols;
		const float *south = y + 1 == p.rows ? here : here + cols;
		float *to = p.to + y * cols;

		to[0] = plate_cell(&p, here[0], power[0], north[0], south[0], here[0],
				   here[last > 0 ? 1 : 0]);
		for (uint64_t x = 1; x < last; x++)
			to[x] = plate_cell(&p, here[x], power[x], north[x], south[x], here[x - 1],
					   here[x + 1]);
		if (last > 0)
			to[last] = plate_cell(&p, here[last], power[last], north[last], south[last],
					      here[last - 1], here[last]);
	}
}

struct block {
	const float *power;
	const float *from;
	float *to;
	uint64_t nx, ny, nz;
	float here, side_x, side_y, side_z, heat, ambient;
};

static inline float block_cell(const struct block *b, float here, float power, float west,
			       float east, float north, float south, float below, float above)
{
	return b->here * here + b->side_x * (west + east) + b->side_y * (north + south) +
	       b->side_z * (below + above) + b->heat * power + b->side_z * b->ambient;
}

/* Rows counted through all layers. */
HOT static void block_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct block b = *(const struct block *)arg;
	uint64_t nx = b.nx, layer = b.nx * b.ny, last = nx - 1;

	for (uint64_t row = begin; row < end; row++) {
		uint64_t z = row / b.ny, y = row % b.ny;
		const float *here = b.from + row * nx, *power = b.power + row * nx;
		const float *north = y == 0 ? here : here - nx;
		const float *south = y + 1 == b.ny ? here : here + nx;
		const float *below = z == 0 ? here : here - layer;
		const float *above = z + 1 == b.nz ? here : here + layer;
		float *to = b.to + row * nx;

		to[0] = block_cell(&b, here[0], power[0], here[0], here[last > 0 ? 1 : 0], north[0],
				   south[0], below[0], above[0]);
		for (uint64_t x = 1; x < last; x++)
			to[x] = block_cell(&b, here[x], power[x], here[x - 1], here[x + 1],
					   north[x], south[x], below[x], above[x]);
		if (last > 0)
			to[last] = block_cell(&b, here[last], power[last], here[last - 1],
					      here[last], north[last], south[last], below[last],
					      above[last]);
	}
}

/* One stencil: where it reads and writes, and its rows. */
struct stepper {
	const float **from;
	float **to;
	uint64_t nrows;
	uint64_t ncells;
	void (*rows)(void *arg, uint64_t begin, uint64_t end);
	void *arg;
};

/*
 * @nsteps from @in to @out, which takes turns with scratch memory so that the last step ends in it.
 */
static int steps_run(struct gantry_env *env, struct stepper *st, const float *in, float *out,
		     uint32_t nsteps)
{
	float *spare = out;

	if (st->ncells == 0)
		return 0;
	if (nsteps == 0) {
		memmove(out, in, st->ncells * sizeof(*out));
		return 0;
	}
	if (nsteps > 1) {
		spare = SCRATCH(float, env, st->ncells);
		if (!spare)
			return -ENOMEM;
	}
	*st->from = in;
	for (uint32_t step = nsteps; step > 0; step--) {
		if (env->cancelled(env))
			return -ECANCELED;
		*st->to = step % 2 == 1 ? out : spare;
		env->parallel(env, st->nrows, ROW_GRAIN, st->rows, st->arg);
		*st->from = *st->to;
	}
	return 0;
}

KERNEL(hotspot)
{
	uint64_t rows = call->args[3].u32, cols = call->args[4].u32, ncells = rows * cols;
	const float *in = ARG(float, call, 1, ncells);
	float *out = ARG(float, call, 2, ncells);
	struct plate p = {
		.power = ARG(float, call, 0, ncells),
		.rows = rows,
		.cols = cols,
		.dt = call->args[6].f32,
		.per_rx = 1.0f / call->args[7].f32,
		.per_ry = 1.0f / call->args[8].f32,
		.per_rz = 1.0f / call->args[9].f32,
		.ambient = call->args[10].f32,
	};
	struct stepper st = {
		.from = &p.from,
		.to = &p.to,
		.nrows = rows,
		.ncells = ncells,
		.rows = plate_rows,
		.arg = &p,
	};

	if (!p.power || !in || !out)
		return -EINVAL;
	return steps_run(env, &st, in, out, call->args[5].u32);
}

KERNEL(hotspot3d)
{
	uint64_t nx = call->args[3].u32, ny = call->args[4].u32, nz = call->args[5].u32, ncells;
	struct block b = {
		.nx = nx,
		.ny = ny,
		.nz = nz,
		.side_x = call->args[7].f32,
		.side_y = call->args[8].f32,
		.side_z = call->args[9].f32,
		.heat = call->args[10].f32,
		.ambient = call->args[11].f32,
	};
	struct stepper st = { .from = &b.from, .to = &b.to, .rows = block_rows, .arg = &b };
	const float *in;
	float *out;

	if (!product3(nx, ny, nz, &ncells))
		return -EINVAL;
	b.power = ARG(float, call, 0, ncells);
	in = ARG(float, call, 1, ncells);
	out = ARG(float, call, 2, ncells);
	if (!b.power || !in || !out)
		return -EINVAL;
	/* What leaves a cell to its six neighbours and to the air. */
	b.here = 1.0f - (2.0f * b.side_x + 2.0f * b.side_y + 3.0f * b.side_z);
	st.nrows = ny * nz;
	st.ncells = ncells;
	return steps_run(env, &st, in, out, call->args[6].u32);
}
