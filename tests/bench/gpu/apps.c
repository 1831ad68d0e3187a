/* SPDX-License-Identifier: Apache-2.0 */
/* See apps.h. Inputs are made by a generator with a fixed seed; nothing is freed between runs but device memory. */
#include "tests/bench/gpu/apps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/gpu/gpu.h"

#define TRY(expression)               \
	do {                          \
		if ((expression) < 0) \
			return -1;    \
	} while (0)

#define ARGS(...) ((const union gpu_arg[]){ __VA_ARGS__ })
#define BUF(b)                \
	{                     \
		.buffer = (b) \
	}
#define U32(v)             \
	{                  \
		.u32 = (v) \
	}
#define U64(v)             \
	{                  \
		.u64 = (v) \
	}
#define I32(v)             \
	{                  \
		.i32 = (v) \
	}
#define F32(v)             \
	{                  \
		.f32 = (v) \
	}

static uint64_t state = 88172645463325252ull;

static uint32_t noise(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

static float unit(void)
{
	return (float)(noise() >> 8) / 16777216.0f;
}

static uint32_t up(uint64_t n, uint32_t by)
{
	return (uint32_t)((n + by - 1) / by);
}

static void *room(uint64_t bytes)
{
	void *ptr = malloc(bytes);

	if (!ptr)
		bench_fail("no memory for %llu bytes", (unsigned long long)bytes);
	else
		memset(ptr, 0, bytes);
	return ptr;
}

static uint64_t sum_of(const void *data, uint64_t bytes)
{
	const uint32_t *words = data;
	uint64_t sum = 14695981039346656037ull;

	for (uint64_t i = 0; i < bytes / 4; i++)
		sum = (sum ^ words[i]) * 1099511628211ull;
	return sum;
}

static int make(gpu_buffer *ret, const void *src, uint64_t bytes)
{
	TRY(gpu_alloc(bytes, ret));
	return src ? gpu_write(*ret, src, bytes) : 0;
}

static int drop(const gpu_buffer *buffers, int n)
{
	for (int i = 0; i < n; i++)
		TRY(gpu_free(buffers[i]));
	return 0;
}

/* ---- hotspot ---- */

static struct {
	uint32_t side, steps;
	float *temp, *power, *out;
	struct gpu_kernel kernel;
} hot;

static int hotspot_prepare(uint32_t scale)
{
	uint64_t n;

	hot.side = scale > 1 ? 256 : 1024;
	hot.steps = 4000 / scale;
	n = (uint64_t)hot.side * hot.side;
	hot.temp = room(4 * n);
	hot.power = room(4 * n);
	hot.out = room(4 * n);
	if (!hot.temp || !hot.power || !hot.out)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		hot.temp[i] = 323.0f + 10.0f * unit();
		hot.power[i] = 0.01f * unit();
	}
	return gpu_kernel("hotspot", "r:f32*,r:f32*,w:f32*,u32,u32,f32,f32,f32,f32,f32",
			  &hot.kernel);
}

static int hotspot_run(uint64_t *ret_checksum)
{
	uint64_t bytes = 4ull * hot.side * hot.side;
	gpu_buffer b[3];

	TRY(make(&b[0], hot.temp, bytes));
	TRY(make(&b[1], NULL, bytes));
	TRY(make(&b[2], hot.power, bytes));
	for (uint32_t i = 0; i < hot.steps; i++)
		TRY(gpu_launch(&hot.kernel,
			       (struct gpu_dim){ up(hot.side, 32), up(hot.side, 8), 1 },
			       (struct gpu_dim){ 32, 8, 1 },
			       ARGS(BUF(b[i % 2]), BUF(b[2]), BUF(b[1 - i % 2]), U32(hot.side),
				    U32(hot.side), F32(0.2f), F32(0.1f), F32(0.1f), F32(0.01f),
				    F32(80.0f))));
	TRY(gpu_read(b[hot.steps % 2], hot.out, bytes));
	*ret_checksum = sum_of(hot.out, bytes);
	return drop(b, 3);
}

/* ---- hotspot3D ---- */

static struct {
	uint32_t side, layers, steps;
	float *temp, *power, *out;
	struct gpu_kernel kernel;
} cube;

static int hotspot3d_prepare(uint32_t scale)
{
	uint64_t n;

	cube.side = scale > 1 ? 128 : 512;
	cube.layers = 8;
	cube.steps = 1000 / scale;
	n = (uint64_t)cube.side * cube.side * cube.layers;
	cube.temp = room(4 * n);
	cube.power = room(4 * n);
	cube.out = room(4 * n);
	if (!cube.temp || !cube.power || !cube.out)
		return -1;
	for (uint64_t i = 0; i < n; i++) {
		cube.temp[i] = 323.0f + 10.0f * unit();
		cube.power[i] = 0.01f * unit();
	}
	return gpu_kernel("hotspot3d", "r:f32*,r:f32*,w:f32*,u32,u32,u32,f32,f32,f32,f32,f32,f32",
			  &cube.kernel);
}

static int hotspot3d_run(uint64_t *ret_checksum)
{
	uint64_t bytes = 4ull * cube.side * cube.side * cube.layers;
	gpu_buffer b[3];

	TRY(make(&b[0], cube.temp, bytes));
	TRY(make(&b[1], NULL, bytes));
	TRY(make(&b[2], cube.power, bytes));
	for (uint32_t i = 0; i < cube.steps; i++)
		TRY(gpu_launch(&cube.kernel,
			       (struct gpu_dim){ up(cube.side, 64), up(cube.side, 4), 1 },
			       (struct gpu_dim){ 64, 4, 1 },
			       ARGS(BUF(b[i % 2]), BUF(b[2]), BUF(b[1 - i % 2]), U32(cube.side),
				    U32(cube.side), U32(cube.layers), F32(0.4f), F32(0.1f),
				    F32(0.1f), F32(0.09f), F32(0.5f), F32(0.5f))));
	TRY(gpu_read(b[cube.steps % 2], cube.out, bytes));
	*ret_checksum = sum_of(cube.out, bytes);
	return drop(b, 3);
}

/* ---- pathfinder ---- */

static struct {
	uint32_t cols, rows;
	int32_t *wall, *out;
	struct gpu_kernel kernel;
} path;

static int pathfinder_prepare(uint32_t scale)
{
	uint64_t n;

	path.cols = 163840;
	path.rows = 1638 / scale;
	n = (uint64_t)path.cols * path.rows;
	path.wall = room(4 * n);
	path.out = room(4ull * path.cols);
	if (!path.wall || !path.out)
		return -1;
	for (uint64_t i = 0; i < n; i++)
		path.wall[i] = (int32_t)(noise() % 10);
	return gpu_kernel("pathfinder", "r:i32*,r:i32*,w:i32*,u32,u32", &path.kernel);
}

static int pathfinder_run(uint64_t *ret_checksum)
{
	uint64_t row = 4ull * path.cols;
	gpu_buffer b[3];

	TRY(make(&b[2], path.wall, row * path.rows));
	TRY(make(&b[0], path.wall, row));
	TRY(make(&b[1], NULL, row));
	for (uint32_t i = 1; i < path.rows; i++)
		TRY(gpu_launch(&path.kernel, (struct gpu_dim){ up(path.cols, 256), 1, 1 },
			       (struct gpu_dim){ 256, 1, 1 },
			       ARGS(BUF(b[2]), BUF(b[(i - 1) % 2]), BUF(b[i % 2]), U32(i),
				    U32(path.cols))));
	TRY(gpu_read(b[(path.rows - 1) % 2], path.out, row));
	*ret_checksum = sum_of(path.out, row);
	return drop(b, 3);
}

/* ---- Gaussian elimination ---- */

static struct {
	uint32_t n;
	float *a, *b, *a_out, *b_out;
	struct gpu_kernel fan1, fan2;
} gauss;

static int gaussian_prepare(uint32_t scale)
{
	uint32_t n = scale > 1 ? 256 : 2048;

	gauss.n = n;
	gauss.a = room(4ull * n * n);
	gauss.a_out = room(4ull * n * n);
	gauss.b = room(4ull * n);
	gauss.b_out = room(4ull * n);
	if (!gauss.a || !gauss.b || !gauss.a_out || !gauss.b_out)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		gauss.b[i] = 1.0f;
		for (uint32_t j = 0; j < n; j++)
			gauss.a[(uint64_t)i * n + j] = 10.0f *
						       expf(-0.01f * fabsf((float)i - (float)j));
	}
	TRY(gpu_kernel("fan1", "r:f32*,rw:f32*,u32,u32", &gauss.fan1));
	return gpu_kernel("fan2", "r:f32*,rw:f32*,rw:f32*,u32,u32", &gauss.fan2);
}

static int gaussian_run(uint64_t *ret_checksum)
{
	uint32_t n = gauss.n;
	uint64_t bytes = 4ull * n * n;
	gpu_buffer b[3];

	TRY(make(&b[0], gauss.a, bytes));
	TRY(make(&b[1], NULL, bytes));
	TRY(make(&b[2], gauss.b, 4ull * n));
	TRY(gpu_fill(b[1], 0, bytes));
	for (uint32_t t = 0; t + 1 < n; t++) {
		TRY(gpu_launch(&gauss.fan1, (struct gpu_dim){ up(n - t - 1, 256), 1, 1 },
			       (struct gpu_dim){ 256, 1, 1 },
			       ARGS(BUF(b[0]), BUF(b[1]), U32(n), U32(t))));
		TRY(gpu_launch(&gauss.fan2, (struct gpu_dim){ up(n - t, 32), up(n - t - 1, 8), 1 },
			       (struct gpu_dim){ 32, 8, 1 },
			       ARGS(BUF(b[1]), BUF(b[0]), BUF(b[2]), U32(n), U32(t))));
	}
	TRY(gpu_read(b[0], gauss.a_out, bytes));
	TRY(gpu_read(b[2], gauss.b_out, 4ull * n));
	*ret_checksum = sum_of(gauss.a_out, bytes) ^ sum_of(gauss.b_out, 4ull * n);
	return drop(b, 3);
}

/* ---- nearest neighbours ---- */

static struct {
	uint64_t n;
	float *records, *distance;
	struct gpu_kernel kernel;
} near;

static int nn_prepare(uint32_t scale)
{
	near.n = (2048ull << 10) / scale;
	near.records = room(8 * near.n);
	near.distance = room(4 * near.n);
	if (!near.records || !near.distance)
		return -1;
	for (uint64_t i = 0; i < 2 * near.n; i++)
		near.records[i] = 180.0f * unit();
	return gpu_kernel("euclid", "r:f32*,w:f32*,u64,f32,f32", &near.kernel);
}

static int nn_run(uint64_t *ret_checksum)
{
	uint64_t best[5] = { 0 };
	gpu_buffer b[2];

	TRY(make(&b[0], near.records, 8 * near.n));
	TRY(make(&b[1], NULL, 4 * near.n));
	TRY(gpu_launch(&near.kernel, (struct gpu_dim){ up(near.n, 256), 1, 1 },
		       (struct gpu_dim){ 256, 1, 1 },
		       ARGS(BUF(b[0]), BUF(b[1]), U64(near.n), F32(30.0f), F32(90.0f))));
	TRY(gpu_read(b[1], near.distance, 4 * near.n));
	for (int k = 0; k < 5; k++) {
		for (uint64_t i = 0; i < near.n; i++)
			if (near.distance[i] < near.distance[best[k]])
				best[k] = i;
		near.distance[best[k]] = INFINITY;
	}
	*ret_checksum = sum_of(best, sizeof(best));
	return drop(b, 2);
}

/* ---- breadth-first search ---- */

static struct {
	uint32_t n, nedges;
	uint32_t *first, *edges;
	uint8_t *start;
	int32_t *cost, *out;
	struct gpu_kernel visit, update;
} graph;

static int bfs_prepare(uint32_t scale)
{
	graph.n = 1000000 / scale;
	graph.nedges = 6 * graph.n;
	graph.first = room(4ull * (graph.n + 1));
	graph.edges = room(4ull * graph.nedges);
	graph.start = room(graph.n);
	graph.cost = room(4ull * graph.n);
	graph.out = room(4ull * graph.n);
	if (!graph.first || !graph.edges || !graph.start || !graph.cost || !graph.out)
		return -1;
	for (uint32_t i = 0; i <= graph.n; i++)
		graph.first[i] = 6 * i;
	for (uint32_t i = 0; i < graph.nedges; i++)
		graph.edges[i] = noise() % graph.n;
	for (uint32_t i = 0; i < graph.n; i++)
		graph.cost[i] = -1;
	graph.cost[0] = 0;
	graph.start[0] = 1;
	TRY(gpu_kernel("bfs_visit", "r:u32*,r:u32*,rw:u8*,rw:u8*,r:u8*,rw:i32*,u32", &graph.visit));
	return gpu_kernel("bfs_update", "rw:u8*,rw:u8*,rw:u8*,rw:u32*,u32", &graph.update);
}

static int bfs_levels(const gpu_buffer *b)
{
	struct gpu_dim grid = { up(graph.n, 256), 1, 1 }, block = { 256, 1, 1 };
	uint32_t more;

	do {
		TRY(gpu_fill(b[6], 0, 4));
		TRY(gpu_launch(&graph.visit, grid, block,
			       ARGS(BUF(b[0]), BUF(b[1]), BUF(b[2]), BUF(b[3]), BUF(b[4]),
				    BUF(b[5]), U32(graph.n))));
		TRY(gpu_launch(&graph.update, grid, block,
			       ARGS(BUF(b[2]), BUF(b[3]), BUF(b[4]), BUF(b[6]), U32(graph.n))));
		TRY(gpu_read(b[6], &more, 4));
	} while (more);
	return 0;
}

static int bfs_run(uint64_t *ret_checksum)
{
	gpu_buffer b[7];

	TRY(make(&b[0], graph.first, 4ull * (graph.n + 1)));
	TRY(make(&b[1], graph.edges, 4ull * graph.nedges));
	TRY(make(&b[2], graph.start, graph.n));
	TRY(make(&b[3], NULL, graph.n));
	TRY(gpu_fill(b[3], 0, graph.n));
	TRY(make(&b[4], graph.start, graph.n));
	TRY(make(&b[5], graph.cost, 4ull * graph.n));
	TRY(make(&b[6], NULL, 4));
	TRY(bfs_levels(b));
	TRY(gpu_read(b[5], graph.out, 4ull * graph.n));
	*ret_checksum = sum_of(graph.out, 4ull * graph.n);
	return drop(b, 7);
}

/* ---- Needleman-Wunsch ---- */

#define TILE 16u

static struct {
	uint32_t n; /* letters; the tables have one row and one column more */
	int32_t *similarity, *score, *out;
	struct gpu_kernel kernel;
} align;

static int nw_prepare(uint32_t scale)
{
	uint64_t cols;

	align.n = scale > 1 ? 1024 : 8192;
	cols = align.n + 1;
	align.similarity = room(4 * cols * cols);
	align.score = room(4 * cols * cols);
	align.out = room(4 * cols * cols);
	if (!align.similarity || !align.score || !align.out)
		return -1;
	for (uint64_t i = 0; i < cols * cols; i++)
		align.similarity[i] = (int32_t)(noise() % 15) - 4;
	for (uint64_t i = 0; i < cols; i++)
		align.score[i] = align.score[i * cols] = -10 * (int32_t)i;
	return gpu_kernel("needle", "r:i32*,rw:i32*,u32,u32,u32,i32", &align.kernel);
}

static int nw_run(uint64_t *ret_checksum)
{
	uint32_t cols = align.n + 1, tiles = align.n / TILE;
	uint64_t bytes = 4ull * cols * cols;
	gpu_buffer b[2];

	TRY(make(&b[0], align.similarity, bytes));
	TRY(make(&b[1], align.score, bytes));
	for (uint32_t d = 0; d < 2 * tiles - 1; d++) {
		uint32_t first = d < tiles ? 0 : d - tiles + 1;
		uint32_t end = d < tiles ? d + 1 : tiles;

		TRY(gpu_launch(&align.kernel, (struct gpu_dim){ end - first, 1, 1 },
			       (struct gpu_dim){ TILE, 1, 1 },
			       ARGS(BUF(b[0]), BUF(b[1]), U32(cols), U32(d), U32(first), I32(10))));
	}
	TRY(gpu_read(b[1], align.out, bytes));
	*ret_checksum = sum_of(align.out, bytes);
	return drop(b, 2);
}

/* ---- LavaMD ---- */

#define PARTICLES 100u

static struct {
	uint32_t side;
	float *position, *charge, *force;
	struct gpu_kernel kernel;
} lava;

static int lavamd_prepare(uint32_t scale)
{
	uint64_t n;

	lava.side = scale > 1 ? 6 : 20;
	n = (uint64_t)lava.side * lava.side * lava.side * PARTICLES;
	lava.position = room(16 * n);
	lava.charge = room(4 * n);
	lava.force = room(16 * n);
	if (!lava.position || !lava.charge || !lava.force)
		return -1;
	for (uint64_t i = 0; i < 4 * n; i++)
		lava.position[i] = 0.1f + unit();
	for (uint64_t i = 0; i < n; i++)
		lava.charge[i] = 0.1f + unit();
	return gpu_kernel("lavamd", "r:f32*,r:f32*,w:f32*,u32,f32", &lava.kernel);
}

static int lavamd_run(uint64_t *ret_checksum)
{
	uint32_t boxes = lava.side * lava.side * lava.side;
	uint64_t n = (uint64_t)boxes * PARTICLES;
	gpu_buffer b[3];

	TRY(make(&b[0], lava.position, 16 * n));
	TRY(make(&b[1], lava.charge, 4 * n));
	TRY(make(&b[2], NULL, 16 * n));
	TRY(gpu_launch(&lava.kernel, (struct gpu_dim){ boxes, 1, 1 }, (struct gpu_dim){ 128, 1, 1 },
		       ARGS(BUF(b[0]), BUF(b[1]), BUF(b[2]), U32(lava.side), F32(0.5f))));
	TRY(gpu_read(b[2], lava.force, 16 * n));
	*ret_checksum = sum_of(lava.force, 16 * n);
	return drop(b, 3);
}

/* ---- particle filter ---- */

static struct {
	uint32_t side, nframes, n;
	uint8_t *frames;
	float *place, *weight, *out;
	uint32_t *seed;
	struct gpu_kernel likelihood, sums, resample;
} filter;

static int particle_prepare(uint32_t scale)
{
	uint64_t pixels;

	filter.side = 128;
	filter.nframes = 100 / scale;
	filter.n = 1000;
	pixels = (uint64_t)filter.side * filter.side;
	filter.frames = room(pixels * filter.nframes);
	filter.place = room(4ull * filter.n);
	filter.weight = room(4ull * filter.n);
	filter.out = room(4ull * filter.n);
	filter.seed = room(4ull * filter.n);
	if (!filter.frames || !filter.place || !filter.weight || !filter.out || !filter.seed)
		return -1;
	for (uint64_t i = 0; i < pixels * filter.nframes; i++)
		filter.frames[i] = (uint8_t)(100 + noise() % 16);
	for (uint32_t i = 0; i < filter.n; i++) {
		filter.place[i] = (float)filter.side / 2;
		filter.weight[i] = 1.0f / (float)filter.n;
		filter.seed[i] = noise();
	}
	TRY(gpu_kernel("pf_likelihood", "r:u8*,rw:f32*,rw:f32*,rw:f32*,rw:u32*,u32,u32,u32",
		       &filter.likelihood));
	TRY(gpu_kernel("pf_sums", "r:f32*,w:f32*,u32", &filter.sums));
	return gpu_kernel("pf_resample", "r:f32*,r:f32*,r:f32*,w:f32*,w:f32*,w:f32*,u32,f32",
			  &filter.resample);
}

/* b: frame, x, y, x', y', weight, cdf, seed */
static int particle_frame(const gpu_buffer *b, uint32_t i)
{
	struct gpu_dim grid = { up(filter.n, 128), 1, 1 }, block = { 128, 1, 1 };
	uint64_t pixels = (uint64_t)filter.side * filter.side;
	const gpu_buffer *from = i % 2 ? b + 3 : b + 1, *to = i % 2 ? b + 1 : b + 3;

	TRY(gpu_write(b[0], filter.frames + i * pixels, pixels));
	TRY(gpu_launch(&filter.likelihood, grid, block,
		       ARGS(BUF(b[0]), BUF(from[0]), BUF(from[1]), BUF(b[5]), BUF(b[7]),
			    U32(filter.n), U32(filter.side), U32(filter.side))));
	TRY(gpu_launch(&filter.sums, (struct gpu_dim){ 1, 1, 1 }, (struct gpu_dim){ 512, 1, 1 },
		       ARGS(BUF(b[5]), BUF(b[6]), U32(filter.n))));
	return gpu_launch(&filter.resample, grid, block,
			  ARGS(BUF(b[6]), BUF(from[0]), BUF(from[1]), BUF(to[0]), BUF(to[1]),
			       BUF(b[5]), U32(filter.n), F32(0.5f / (float)filter.n)));
}

static int particle_run(uint64_t *ret_checksum)
{
	uint64_t bytes = 4ull * filter.n;
	gpu_buffer b[8];

	TRY(make(&b[0], NULL, (uint64_t)filter.side * filter.side));
	TRY(make(&b[1], filter.place, bytes));
	TRY(make(&b[2], filter.place, bytes));
	TRY(make(&b[3], NULL, bytes));
	TRY(make(&b[4], NULL, bytes));
	TRY(make(&b[5], filter.weight, bytes));
	TRY(make(&b[6], NULL, bytes));
	TRY(make(&b[7], filter.seed, bytes));
	for (uint32_t i = 0; i < filter.nframes; i++)
		TRY(particle_frame(b, i));
	TRY(gpu_read(b[filter.nframes % 2 ? 3 : 1], filter.out, bytes));
	*ret_checksum = sum_of(filter.out, bytes);
	return drop(b, 8);
}

const struct app apps[] = {
	{ "hotspot", hotspot_prepare, hotspot_run },
	{ "hotspot3d", hotspot3d_prepare, hotspot3d_run },
	{ "pathfinder", pathfinder_prepare, pathfinder_run },
	{ "gaussian", gaussian_prepare, gaussian_run },
	{ "nn", nn_prepare, nn_run },
	{ "bfs", bfs_prepare, bfs_run },
	{ "nw", nw_prepare, nw_run },
	{ "lavamd", lavamd_prepare, lavamd_run },
	{ "particle", particle_prepare, particle_run },
	{ NULL, NULL, NULL },
};
