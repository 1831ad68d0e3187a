/* SPDX-License-Identifier: Apache-2.0 */
/* Gaussian elimination without pivoting (after Rodinia's gaussian), step by step or as a whole. */
#include "devices/kernels/core/cuda/gpu.h"

/* m[i] = a[i,t] / a[t,t] for i > t. */
DEVICE void multipliers(const struct gpu_elimination &e, uint64_t t)
{
	float pivot = e.a[t * e.n + t];

	for (uint64_t i = t + 1 + first_item(); i < e.n; i += item_step())
		e.m[i * e.m_stride] = e.a[i * e.n + t] / pivot;
}

/* a[i,j] -= m[i] a[t,j] and b[i] -= m[i] b[t] for i > t, j >= t; a block takes whole rows. */
DEVICE void subtract(const struct gpu_elimination &e, uint64_t t)
{
	const float *pivot_row = e.a + t * e.n;

	for (uint64_t i = t + 1 + block_idx(); i < e.n; i += grid_blocks()) {
		float factor = e.m[i * e.m_stride], *row = e.a + i * e.n;

		for (uint64_t j = t + thread_idx(); j < e.n; j += block_threads())
			row[j] -= factor * pivot_row[j];
		if (thread_idx() == 0)
			e.b[i] -= factor * e.b[t];
	}
}

ENTRY(fan1, struct gpu_elimination, GPU_THREADS)
{
	multipliers(a, a.t);
}

ENTRY(fan2, struct gpu_elimination, GPU_THREADS)
{
	subtract(a, a.t);
}

/* Unknowns that one block solves alone before all blocks take them out of the rows above. */
#define PANEL 32u

/* One warp: x[begin, end) from the triangle of these rows and columns; lane l has row begin + l. */
DEVICE void panel_solve(const struct gpu_elimination &e, uint64_t begin, uint32_t count)
{
	uint32_t lane = lane_idx();
	const float *row = e.a + (begin + lane) * e.n + begin;
	float rest = lane < count ? e.rest[begin + lane] : 0;

	for (uint32_t i = count; i-- > 0;) {
		float x = lane == i ? rest / row[i] : 0;

		x = shuffle(x, i);
		if (lane < i)
			rest -= row[i] * x;
		if (lane == i)
			e.x[begin + i] = x;
	}
}

/* rest[row] -= a[row, begin..] x[begin..] for all rows above; a warp per row. */
DEVICE void panel_apply(const struct gpu_elimination &e, uint64_t begin, uint32_t count)
{
	uint32_t lane = lane_idx();
	uint64_t nwarps = item_step() / 32;
	float x = lane < count ? e.x[begin + lane] : 0;

	for (uint64_t i = first_item() / 32; i < begin; i += nwarps) {
		float product = lane < count ? e.a[i * e.n + begin + lane] * x : 0;

		for (uint32_t distance = 16; distance > 0; distance /= 2)
			product += shuffle_down(product, distance);
		if (lane == 0)
			e.rest[i] -= product;
	}
}

DEVICE void substitute(const struct gpu_elimination &e)
{
	for (uint64_t i = first_item(); i < e.n; i += item_step())
		e.rest[i] = e.b[i];
	grid_sync();
	for (uint64_t end = e.n; end > 0;) {
		uint32_t count = end % PANEL ? (uint32_t)(end % PANEL) : PANEL;

		end -= count;
		if (first_item() < 32)
			panel_solve(e, end, count);
		grid_sync();
		panel_apply(e, end, count);
		grid_sync();
	}
}

ENTRY(eliminate, struct gpu_elimination, GPU_THREADS)
{
	for (uint64_t t = 0; t + 1 < a.n; t++) {
		stop_ask(a.stop, a.verdict, t);
		multipliers(a, t);
		grid_sync();
		if (stopped(a.stop, t))
			return;
		subtract(a, t);
		grid_sync();
	}
	substitute(a);
}
