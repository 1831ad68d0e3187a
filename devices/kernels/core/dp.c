/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic programs over grids: pathfinder (row by row) and Needleman-Wunsch (diagonal by diagonal).
 * Sums wrap in 32 bits: a guest's numbers may not make ours undefined.
 */
#include <limits.h>
#include <string.h>

#include "devices/kernels/core/blosum62.h"
#include "devices/kernels/kernel.h"

static inline int32_t add_wrapping(int32_t a, int32_t b)
{
	return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t least(int32_t a, int32_t b)
{
	return a < b ? a : b;
}

static inline int32_t most(int32_t a, int32_t b)
{
	return a > b ? a : b;
}

/*
 * A tile of columns goes HALO rows down without asking its neighbours; it takes HALO columns more
 * of each side along, one of which goes stale per row.
 */
#define HALO	  32u
#define TILE_COLS 2048u
#define TILE_SPAN (TILE_COLS + 2 * HALO)

struct path {
	const int32_t *wall;
	const int32_t *from; /* costs of the row above the pass */
	int32_t *to;	     /* costs of its last row */
	uint64_t cols;
	uint64_t row; /* first of the pass */
	uint64_t nrows;
};

/* to[i] = wall[i] + the least of the three above; from[-1] and from[n] are there. */
HOT static void path_row(const int32_t *wall, const int32_t *from, int32_t *to, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = add_wrapping(wall[i], least(least(from[i - 1], from[i]), from[i + 1]));
}

static void path_tiles(void *arg, uint64_t begin, uint64_t end)
{
	const struct path *p = arg;
	int32_t rows[2][TILE_SPAN + 2];

	for (uint64_t tile = begin; tile < end; tile++) {
		uint64_t first = tile * TILE_COLS;
		uint64_t count = gantry_min_u64(TILE_COLS, p->cols - first);
		uint64_t left = first > HALO ? first - HALO : 0;
		uint64_t n = gantry_min_u64(first + count + HALO, p->cols) - left;

		/* Nothing comes from beyond the wall. */
		for (unsigned int side = 0; side < 2; side++)
			rows[side][0] = rows[side][n + 1] = INT32_MAX;
		memcpy(rows[0] + 1, p->from + left, n * sizeof(int32_t));
		for (uint64_t y = 0; y < p->nrows; y++)
			path_row(p->wall + (p->row + y) * p->cols + left, rows[y % 2] + 1,
				 rows[(y + 1) % 2] + 1, n);
		memcpy(p->to + first, rows[p->nrows % 2] + 1 + (first - left),
		       count * sizeof(int32_t));
	}
}

KERNEL(pathfinder)
{
	uint64_t nrows = call->args[2].u32, cols = call->args[3].u32;
	struct path p = { .wall = ARG(int32_t, call, 0, nrows * cols), .cols = cols };
	int32_t *result = ARG(int32_t, call, 1, cols), *costs[2];

	if (!p.wall || !result || nrows == 0)
		return -EINVAL;
	if (cols == 0)
		return 0;
	costs[0] = SCRATCH(int32_t, env, cols);
	costs[1] = SCRATCH(int32_t, env, cols);
	if (!costs[0] || !costs[1])
		return -ENOMEM;

	memcpy(costs[0], p.wall, cols * sizeof(int32_t));
	for (p.row = 1; p.row < nrows; p.row += p.nrows) {
		int32_t *to = costs[1];

		if (env->cancelled(env))
			return -ECANCELED;
		p.nrows = gantry_min_u64(HALO, nrows - p.row);
		p.from = costs[0];
		p.to = to;
		env->parallel(env, cols / TILE_COLS + (cols % TILE_COLS != 0), 1, path_tiles, &p);
		costs[1] = costs[0];
		costs[0] = to;
	}
	memcpy(result, costs[0], cols * sizeof(int32_t));
	return 0;
}

#define NW_TILE 64u

struct alignment {
	const uint8_t *a; /* our copies, every symbol below BLOSUM62_SYMBOLS */
	const uint8_t *b;
	int32_t *score;
	uint64_t na, nb;
	uint64_t stride;
	int32_t penalty;
	uint64_t diagonal; /* of tiles */
	uint64_t first;	   /* tile row that the range's 0 stands for */
};

/*
 * Cells [x, x + n) of row y + 1 of the score, given the row above and the cell at the left of the
 * first.
 */
static inline void score_row(const struct alignment *al, uint64_t y, uint64_t x, uint64_t n)
{
	const int8_t *similarity = blosum62[al->a[y]];
	const uint8_t *b = al->b + x;
	const int32_t *above = al->score + y * al->stride + x;
	int32_t *row = al->score + (y + 1) * al->stride + x;
	int32_t left = row[0], corner = above[0], penalty = al->penalty;

	for (uint64_t i = 0; i < n; i++) {
		int32_t up = above[i + 1];
		int32_t best = add_wrapping(corner, similarity[b[i]]);

		best = most(best, (int32_t)((uint32_t)up - (uint32_t)penalty));
		left = most(best, (int32_t)((uint32_t)left - (uint32_t)penalty));
		row[i + 1] = left;
		corner = up;
	}
}

static void score_tiles(void *arg, uint64_t begin, uint64_t end)
{
	const struct alignment *al = arg;

	for (uint64_t i = begin; i < end; i++) {
		uint64_t y = (al->first + i) * NW_TILE;
		uint64_t x = (al->diagonal - al->first - i) * NW_TILE;
		uint64_t bottom = gantry_min_u64(y + NW_TILE, al->na);
		uint64_t n = gantry_min_u64(NW_TILE, al->nb - x);

		for (; y < bottom; y++)
			score_row(al, y, x, n);
	}
}

/* Copies @n symbols while checking them. -ERANGE: one is none of the table's. */
static int symbols_copy(const uint8_t *from, uint8_t *to, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		uint8_t symbol = GANTRY_LOAD_ONCE(from[i]);

		if (symbol >= BLOSUM62_SYMBOLS)
			return -ERANGE;
		to[i] = symbol;
	}
	return 0;
}

static int score_all(struct gantry_env *env, struct alignment *al)
{
	uint64_t down = (al->na + NW_TILE - 1) / NW_TILE, across = (al->nb + NW_TILE - 1) / NW_TILE;

	for (uint64_t i = 0; i <= al->nb; i++)
		al->score[i] = (int32_t)(0u - (uint32_t)i * (uint32_t)al->penalty);
	for (uint64_t i = 1; i <= al->na; i++)
		al->score[i * al->stride] = (int32_t)(0u - (uint32_t)i * (uint32_t)al->penalty);
	if (down == 0 || across == 0)
		return 0;

	for (al->diagonal = 0; al->diagonal < down + across - 1; al->diagonal++) {
		uint64_t last = gantry_min_u64(al->diagonal, down - 1);

		if (env->cancelled(env))
			return -ECANCELED;
		al->first = al->diagonal < across ? 0 : al->diagonal - across + 1;
		env->parallel(env, last - al->first + 1, 1, score_tiles, al);
	}
	return 0;
}

KERNEL(needleman_wunsch)
{
	uint64_t na = call->args[3].u32, nb = call->args[4].u32, ncells;
	const uint8_t *from_a = ARG(uint8_t, call, 0, na), *from_b = ARG(uint8_t, call, 1, nb);
	struct alignment al = {
		.na = na, .nb = nb, .stride = nb + 1, .penalty = call->args[5].i32
	};
	uint8_t *symbols;
	int r;

	if (!from_a || !from_b || !product3(na + 1, nb + 1, 1, &ncells))
		return -EINVAL;
	al.score = ARG(int32_t, call, 2, ncells);
	if (!al.score)
		return -EINVAL;
	symbols = SCRATCH(uint8_t, env, na + nb + 1);
	if (!symbols)
		return -ENOMEM;

	r = symbols_copy(from_a, symbols, na);
	if (r == 0)
		r = symbols_copy(from_b, symbols + na, nb);
	if (r < 0)
		return r;
	al.a = symbols;
	al.b = symbols + na;
	return score_all(env, &al);
}
