/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix product c = a b by our own loops: a block makes 128 x 128 elements of c, a thread 8 x 8
 * of them, from slices of a and b in shared memory. The next slices load while these are used.
 */
#include "devices/kernels/core/cuda/gpu.h"

#define TILE  GPU_GEMM_TILE
#define DEPTH 8u
/* Elements of each slice that a thread loads: TILE * DEPTH / GPU_THREADS, side by side. */
#define LOADS 4u

struct slices {
	float a[LOADS];
	float b[LOADS];
};

/* Thread t has 4 elements of row t / 2 of a's slice, and of row t / 32 of b's; 0 past the edges. */
DEVICE void slices_load(const struct gpu_gemm &g, uint64_t row, uint64_t col, uint64_t depth,
			struct slices *to)
{
	uint64_t i = row + thread_idx() / 2, k = depth + thread_idx() % 2 * LOADS;
	uint64_t l = depth + thread_idx() / 32, j = col + thread_idx() % 32 * LOADS;

#pragma unroll
	for (uint32_t e = 0; e < LOADS; e++) {
		to->a[e] = i < g.m && k + e < g.k ? g.a[i * g.k + k + e] : 0.0f;
		to->b[e] = l < g.k && j + e < g.n ? g.b[l * g.n + j + e] : 0.0f;
	}
}

/* a's slice is stored by columns, so that a thread reads its rows side by side. */
DEVICE void slices_store(const struct slices *from, float *slice_a, float *slice_b)
{
	uint32_t i = thread_idx() / 2, k = thread_idx() % 2 * LOADS;
	uint32_t l = thread_idx() / 32, j = thread_idx() % 32 * LOADS;

#pragma unroll
	for (uint32_t e = 0; e < LOADS; e++) {
		slice_a[(k + e) * TILE + i] = from->a[e];
		slice_b[l * TILE + j + e] = from->b[e];
	}
}

/* The first of four neighbouring rows (or columns) out of thread @t's eight; @half: which four. */
DEVICE uint32_t four_of(uint32_t t, uint32_t half)
{
	return half * (TILE / 2) + 4 * t;
}

DEVICE void tile_make(const struct gpu_gemm &g, uint64_t row, uint64_t col, float *slice_a,
		      float *slice_b)
{
	uint32_t ty = thread_idx() / 16, tx = thread_idx() % 16;
	float sum[8][8] = { { 0 } };
	struct slices next;

	slices_load(g, row, col, 0, &next);
	for (uint64_t depth = 0; depth < g.k; depth += DEPTH) {
		block_sync();
		slices_store(&next, slice_a, slice_b);
		block_sync();
		/* Past the end this loads nothing. */
		slices_load(g, row, col, depth + DEPTH, &next);
#pragma unroll
		for (uint32_t l = 0; l < DEPTH; l++) {
			float left[8], right[8];

#pragma unroll
			for (uint32_t e = 0; e < 8; e++) {
				left[e] = slice_a[l * TILE + four_of(ty, e / 4) + e % 4];
				right[e] = slice_b[l * TILE + four_of(tx, e / 4) + e % 4];
			}
#pragma unroll
			for (uint32_t i = 0; i < 8; i++)
#pragma unroll
				for (uint32_t j = 0; j < 8; j++)
					sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
		}
	}
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		uint64_t y = row + four_of(ty, i / 4) + i % 4;

#pragma unroll
		for (uint32_t j = 0; j < 8; j++) {
			uint64_t x = col + four_of(tx, j / 4) + j % 4;

			if (y < g.m && x < g.n)
				g.c[y * g.n + x] = sum[i][j];
		}
	}
}

ENTRY(gemm, struct gpu_gemm, GPU_THREADS)
{
	uint64_t across = (a.n + TILE - 1) / TILE, ntiles = across * ((a.m + TILE - 1) / TILE);
	SHARED(float4, slice_a, DEPTH * TILE / 4);
	SHARED(float4, slice_b, DEPTH * TILE / 4);

	for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks())
		tile_make(a, tile / across * TILE, tile % across * TILE, (float *)slice_a,
			  (float *)slice_b);
}
