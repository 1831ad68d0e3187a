/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic programs over grids. A launch does the whole program: the blocks meet after each pass
 * over the rows (pathfinder) or each diagonal of tiles (Needleman-Wunsch). Sums wrap in 32 bits.
 */
#include "devices/kernels/core/blosum62.h"
#include "devices/kernels/core/cuda/gpu.h"

DEVICE int32_t add_wrapping(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

DEVICE int32_t subtract_wrapping(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a - (uint32_t)b);
}

DEVICE int32_t least(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

DEVICE int32_t most(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/* Columns of a span that a thread has: its index and every GPU_THREADS after. */
#define PATH_COLS (GPU_PATH_SPAN / GPU_THREADS)
/* One row of a span, with room for what is beyond its ends. */
#define PATH_ROW (GPU_PATH_SPAN + 2)

DEVICE void wall_load(const int32_t *row, uint32_t n, int32_t to[PATH_COLS])
{
#pragma unroll
	for (uint32_t e = 0; e < PATH_COLS; e++) {
		uint32_t i = e * GPU_THREADS + thread_idx();

		to[e] = i < n ? row[i] : 0;
	}
}

/*
 * Takes the costs of @tile's columns from the row above @row down @nrows rows. It takes
 * GPU_PATH_HALO columns more of each side along, one of which goes stale per row.
 */
DEVICE void path_tile(const struct gpu_path &p, uint64_t tile, uint64_t row, uint32_t nrows,
		      const int32_t *from, int32_t *to, int32_t *rows)
{
	uint64_t first = tile * GPU_PATH_COLS, left = first == 0 ? 0 : first - GPU_PATH_HALO;
	uint32_t count = (uint32_t)least_u64(GPU_PATH_COLS, p.cols - first);
	uint32_t n = (uint32_t)(least_u64(first + count + GPU_PATH_HALO, p.cols) - left);
	int32_t *above = rows, *below = rows + PATH_ROW, *swap, wall[PATH_COLS];

	/* The tile before may still be read. */
	block_sync();
	/* Nothing comes from beyond the wall. */
	if (thread_idx() < 2)
		rows[thread_idx() * PATH_ROW] = rows[thread_idx() * PATH_ROW + n + 1] = INT32_MAX;
	for (uint32_t i = thread_idx(); i < n; i += GPU_THREADS)
		above[i + 1] = from[left + i];
	wall_load(p.wall + row * p.cols + left, n, wall);
	block_sync();
	for (uint32_t y = 0; y < nrows; y++) {
		int32_t next[PATH_COLS];

		/* The loads of the row after are under way while this one is made. */
		if (y + 1 < nrows)
			wall_load(p.wall + (row + y + 1) * p.cols + left, n, next);
#pragma unroll
		for (uint32_t e = 0; e < PATH_COLS; e++) {
			uint32_t i = e * GPU_THREADS + thread_idx();

			if (i < n)
				below[i + 1] = add_wrapping(
					wall[e], least(least(above[i], above[i + 1]), above[i + 2]));
			wall[e] = next[e];
		}
		block_sync();
		swap = above;
		above = below;
		below = swap;
	}
	for (uint32_t i = thread_idx(); i < count; i += GPU_THREADS)
		to[first + i] = above[first - left + i + 1];
}

/* @rows is 2 or more, @cols 1 or more. */
ENTRY(path, struct gpu_path, GPU_THREADS)
{
	uint64_t ntiles = (a.cols + GPU_PATH_COLS - 1) / GPU_PATH_COLS, pass = 0;
	const int32_t *from = a.wall;
	SHARED(int32_t, rows, 2 * PATH_ROW);

	for (uint64_t row = 1; row < a.rows; row += GPU_PATH_HALO, pass++) {
		uint32_t nrows = (uint32_t)least_u64(GPU_PATH_HALO, a.rows - row);
		bool last = row + nrows == a.rows;
		int32_t *to = last ? a.result : a.costs[pass % 2];

		stop_ask(a.stop, a.verdict, pass);
		for (uint64_t tile = block_idx(); tile < ntiles; tile += grid_blocks())
			path_tile(a, tile, row, nrows, from, to, rows);
		if (last)
			return;
		grid_sync();
		if (stopped(a.stop, pass))
			return;
		from = to;
	}
}

/* What a warp keeps of its tile. */
struct align_tile {
	int32_t score[GPU_ALIGN_ROWS][GPU_ALIGN_COLS + 1];
	int32_t above[GPU_ALIGN_COLS];
	uint8_t symbols[GPU_ALIGN_COLS];
};

/*
 * The cells under row @y and right of column @x of the score. Lane r makes row r, one column behind
 * the lane above, whose last value is thus the one above its own.
 */
DEVICE void align_make(const struct gpu_align &al, const int8_t *similarities, uint64_t y,
		       uint64_t x, struct align_tile *tile)
{
	uint64_t stride = al.nb + 1;
	uint32_t lane = lane_idx(), ncols = (uint32_t)least_u64(GPU_ALIGN_COLS, al.nb - x);
	uint32_t nrows = (uint32_t)least_u64(GPU_ALIGN_ROWS, al.na - y);
	bool mine = lane < nrows;
	const int32_t *corner_at = al.score + y * stride + x;
	const int8_t *similarity = similarities + (mine ? al.a[y + lane] : 0) * BLOSUM62_SYMBOLS;
	int32_t left = mine ? corner_at[(lane + 1) * stride] : 0;
	int32_t corner = mine ? corner_at[lane * stride] : 0;

	for (uint32_t j = lane; j < ncols; j += 32) {
		tile->above[j] = corner_at[j + 1];
		tile->symbols[j] = al.b[x + j];
	}
	warp_sync();
	for (uint32_t step = 0; step < ncols + nrows - 1; step++) {
		/* Of the lane above: its column of the step before is ours of this one. */
		int32_t up = shuffle_up(left, 1);
		uint32_t j = step - lane;

		/* j has wrapped round where this lane has not begun. */
		if (mine && j < ncols) {
			int32_t best = add_wrapping(corner, similarity[tile->symbols[j]]);

			if (lane == 0)
				up = tile->above[j];
			best = most(best, subtract_wrapping(up, al.penalty));
			left = most(best, subtract_wrapping(left, al.penalty));
			tile->score[lane][j] = left;
			corner = up;
		}
	}
	warp_sync();
	for (uint32_t row = 0; row < nrows; row++)
		for (uint32_t j = lane; j < ncols; j += 32)
			al.score[(y + row + 1) * stride + x + 1 + j] = tile->score[row][j];
	/* The next tile overwrites this one. */
	warp_sync();
}

/* Symbols are checked as they are copied: what the guest changes later is not seen. */
DEVICE void symbols_copy(const struct gpu_align &al, const uint8_t *from, uint8_t *to, uint64_t n)
{
	for (uint64_t i = first_item(); i < n; i += item_step()) {
		uint8_t symbol = load_once(from + i);

		if (symbol >= BLOSUM62_SYMBOLS) {
			stop_tell(al.stop, al.verdict, 0, -ERANGE);
			symbol = 0;
		}
		to[i] = symbol;
	}
}

DEVICE void borders_make(const struct gpu_align &al)
{
	for (uint64_t i = first_item(); i <= al.nb; i += item_step())
		al.score[i] = (int32_t)(0u - (uint32_t)i * (uint32_t)al.penalty);
	for (uint64_t i = 1 + first_item(); i <= al.na; i += item_step())
		al.score[i * (al.nb + 1)] = (int32_t)(0u - (uint32_t)i * (uint32_t)al.penalty);
}

ENTRY(align, struct gpu_align, GPU_ALIGN_THREADS)
{
	uint64_t down = (a.na + GPU_ALIGN_ROWS - 1) / GPU_ALIGN_ROWS;
	uint64_t across = (a.nb + GPU_ALIGN_COLS - 1) / GPU_ALIGN_COLS;
	uint64_t ndiagonals = down == 0 || across == 0 ? 0 : down + across - 1;
	/* Neighbouring tiles go to different blocks: a diagonal seldom has one per warp. */
	uint64_t warp = (uint64_t)(thread_idx() / 32) * grid_blocks() + block_idx();
	uint64_t nwarps = (uint64_t)grid_blocks() * GPU_ALIGN_WARPS;
	SHARED(int8_t, similarities, BLOSUM62_SYMBOLS *BLOSUM62_SYMBOLS);
	SHARED(struct align_tile, tiles, GPU_ALIGN_WARPS);

	for (uint32_t i = thread_idx(); i < BLOSUM62_SYMBOLS * BLOSUM62_SYMBOLS; i += block_threads())
		similarities[i] = blosum62[i / BLOSUM62_SYMBOLS][i % BLOSUM62_SYMBOLS];
	stop_ask(a.stop, a.verdict, 0);
	symbols_copy(a, a.from_a, a.a, a.na);
	symbols_copy(a, a.from_b, a.b, a.nb);
	borders_make(a);
	grid_sync();
	if (stopped(a.stop, 0))
		return;
	for (uint64_t d = 0; d < ndiagonals; d++) {
		uint64_t first = d < across ? 0 : d - across + 1, last = least_u64(d, down - 1);

		stop_ask(a.stop, a.verdict, d + 1);
		for (uint64_t row = first + warp; row <= last; row += nwarps)
			align_make(a, similarities, row * GPU_ALIGN_ROWS,
				   (d - row) * GPU_ALIGN_COLS, &tiles[thread_idx() / 32]);
		grid_sync();
		if (stopped(a.stop, d + 1))
			return;
	}
}
