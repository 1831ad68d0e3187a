/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat in two and three dimensions. A launch does all steps: the blocks meet after each. A thread
 * goes down a few rows (or layers) of one column and keeps what it has read of the column.
 */
#include "devices/kernels/core/cuda/gpu.h"

DEVICE float plate_cell(const struct gpu_plate &p, float here, float power, float north, float south,
			float west, float east)
{
	float flow = power + (north + south - 2.0f * here) * p.per_ry +
		     (east + west - 2.0f * here) * p.per_rx + (p.ambient - here) * p.per_rz;

	return here + p.dt * flow;
}

/* Up to GPU_DOWN rows of a column. What other blocks wrote in the step before comes from memory. */
DEVICE void plate_column(const struct gpu_plate &p, const float *from, float *to, uint64_t top,
			 uint64_t x)
{
	uint64_t cols = p.cols, bottom = least_u64(top + GPU_DOWN, p.rows);
	uint64_t left = x == 0 ? 0 : x - 1, right = x + 1 == cols ? x : x + 1;
	float north = from[(top == 0 ? 0 : top - 1) * cols + x], here = from[top * cols + x];

	for (uint64_t y = top; y < bottom; y++) {
		const float *row = from + y * cols;
		float south = y + 1 == p.rows ? here : row[cols + x];

		to[y * cols + x] = plate_cell(p, here, p.power[y * cols + x], north, south,
					      row[left], row[right]);
		north = here;
		here = south;
	}
}

DEVICE void plate_step(const struct gpu_plate &p, const float *from, float *to)
{
	uint64_t across = (p.cols + GPU_THREADS - 1) / GPU_THREADS;
	uint64_t ntiles = across * ((p.rows + GPU_DOWN - 1) / GPU_DOWN);

	for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks()) {
		uint64_t x = tile % across * GPU_THREADS + thread_idx();

		if (x < p.cols)
			plate_column(p, from, to, tile / across * GPU_DOWN, x);
	}
}

/*
 * @steps is 1 or more. The last step must end in out, so that odd numbers of steps to go write there.
 */
template <class S, class F> DEVICE void run_steps(const S &a, F step)
{
	const float *from = a.in;

	for (uint32_t left = a.nsteps; left > 0; left--) {
		float *to = left % 2 == 1 ? a.out : a.spare;

		if (left == 1) {
			step(from, to);
			return;
		}
		stop_ask(a.stop, a.verdict, left);
		step(from, to);
		grid_sync();
		if (stopped(a.stop, left))
			return;
		from = to;
	}
}

ENTRY(plate, struct gpu_plate, GPU_THREADS)
{
	run_steps(a, [&](const float *from, float *to) { plate_step(a, from, to); });
}

DEVICE float block_cell(const struct gpu_block &b, float here, float power, float west, float east,
			float north, float south, float below, float above)
{
	return b.here * here + b.side_x * (west + east) + b.side_y * (north + south) +
	       b.side_z * (below + above) + b.heat * power + b.side_z * b.ambient;
}

/* Up to GPU_DOWN layers of a column. */
DEVICE void block_column(const struct gpu_block &b, const float *from, float *to, uint64_t x,
			 uint64_t y, uint64_t bottom)
{
	uint64_t layer = b.nx * b.ny, top = least_u64(bottom + GPU_DOWN, b.nz), at = y * b.nx + x;
	uint64_t west = x == 0 ? at : at - 1, east = x + 1 == b.nx ? at : at + 1;
	uint64_t north = y == 0 ? at : at - b.nx, south = y + 1 == b.ny ? at : at + b.nx;
	float below = from[(bottom == 0 ? 0 : bottom - 1) * layer + at];
	float here = from[bottom * layer + at];

	for (uint64_t z = bottom; z < top; z++) {
		const float *plane = from + z * layer;
		float above = z + 1 == b.nz ? here : plane[layer + at];

		to[z * layer + at] = block_cell(b, here, b.power[z * layer + at], plane[west],
						plane[east], plane[north], plane[south], below,
						above);
		below = here;
		here = above;
	}
}

DEVICE void block_step(const struct gpu_block &b, const float *from, float *to)
{
	uint64_t across = (b.nx + GPU_ACROSS - 1) / GPU_ACROSS, beside = (b.ny + GPU_BESIDES - 1) / GPU_BESIDES;
	uint64_t ntiles = across * beside * ((b.nz + GPU_DOWN - 1) / GPU_DOWN);

	for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks()) {
		uint64_t x = tile % across * GPU_ACROSS + thread_idx() % GPU_ACROSS;
		uint64_t y = tile / across % beside * GPU_BESIDES + thread_idx() / GPU_ACROSS;

		if (x < b.nx && y < b.ny)
			block_column(b, from, to, x, y, tile / across / beside * GPU_DOWN);
	}
}

ENTRY(block, struct gpu_block, GPU_THREADS)
{
	run_steps(a, [&](const float *from, float *to) { block_step(a, from, to); });
}
