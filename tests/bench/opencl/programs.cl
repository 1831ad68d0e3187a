/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code of the OpenCL benchmarks: the programs of tests/bench/gpu/apps.cu in OpenCL C, by the same names and arguments,
 * so that the same host programs run them.
 */

/* ---- hotspot ---- */

__kernel void hotspot(__global const float *in, __global const float *power, __global float *out, uint rows, uint cols,
		      float dt, float rx, float ry, float rz, float ambient)
{
	int x = get_global_id(0), y = get_global_id(1);

	if (x >= (int)cols || y >= (int)rows)
		return;
	float t = in[(size_t)y * cols + x];
	float north = in[(size_t)max(y - 1, 0) * cols + x];
	float south = in[(size_t)min(y + 1, (int)rows - 1) * cols + x];
	float west = in[(size_t)y * cols + max(x - 1, 0)];
	float east = in[(size_t)y * cols + min(x + 1, (int)cols - 1)];

	out[(size_t)y * cols + x] = t + dt * (power[(size_t)y * cols + x] + (north + south - 2 * t) * ry +
					      (east + west - 2 * t) * rx + (ambient - t) * rz);
}

/* ---- hotspot3D: a column of layers a work-item ---- */

__kernel void hotspot3d(__global const float *in, __global const float *power, __global float *out, uint nx, uint ny,
			uint nz, float cc, float cw, float cn, float ct, float heat, float ambient)
{
	int x = get_global_id(0), y = get_global_id(1);

	if (x >= (int)nx || y >= (int)ny)
		return;
	size_t layer = (size_t)nx * ny, c = (size_t)y * nx + x;
	size_t w = (size_t)y * nx + max(x - 1, 0), e = (size_t)y * nx + min(x + 1, (int)nx - 1);
	size_t n = (size_t)max(y - 1, 0) * nx + x, s = (size_t)min(y + 1, (int)ny - 1) * nx + x;
	float below = in[c], here = in[c], above;

	for (uint z = 0; z < nz; z++) {
		size_t o = z * layer;

		above = in[(z + 1 < nz ? o + layer : o) + c];
		out[o + c] = cc * here + cw * (in[o + w] + in[o + e]) + cn * (in[o + n] + in[o + s]) +
			     ct * (below + above) + heat * power[o + c] + ct * ambient;
		below = here;
		here = above;
	}
}

/* ---- pathfinder: a row of the dynamic programme a launch ---- */

__kernel void pathfinder(__global const int *wall, __global const int *before, __global int *after, uint row, uint cols)
{
	uint x = get_global_id(0);

	if (x >= cols)
		return;
	int least = before[x];

	if (x > 0)
		least = min(least, before[x - 1]);
	if (x + 1 < cols)
		least = min(least, before[x + 1]);
	after[x] = least + wall[(size_t)row * cols + x];
}

/* ---- Gaussian elimination ---- */

__kernel void fan1(__global const float *a, __global float *m, uint n, uint t)
{
	uint i = t + 1 + get_global_id(0);

	if (i < n)
		m[(size_t)i * n + t] = a[(size_t)i * n + t] / a[(size_t)t * n + t];
}

__kernel void fan2(__global const float *m, __global float *a, __global float *b, uint n, uint t)
{
	uint j = t + get_global_id(0), i = t + 1 + get_global_id(1);

	if (i >= n || j >= n)
		return;
	a[(size_t)i * n + j] -= m[(size_t)i * n + t] * a[(size_t)t * n + j];
	if (j == t)
		b[i] -= m[(size_t)i * n + t] * b[t];
}

/* ---- nearest neighbours ---- */

__kernel void euclid(__global const float2 *records, __global float *to, ulong n, float lat, float lng)
{
	size_t i = get_global_id(0);

	if (i >= n)
		return;
	float2 r = records[i];

	to[i] = sqrt((lat - r.x) * (lat - r.x) + (lng - r.y) * (lng - r.y));
}

/* ---- breadth-first search, a level in two launches ---- */

__kernel void bfs_visit(__global const uint *first, __global const uint *edges, __global uchar *frontier,
			__global uchar *updating, __global const uchar *visited, __global int *cost, uint n)
{
	uint i = get_global_id(0);

	if (i >= n || !frontier[i])
		return;
	frontier[i] = 0;
	for (uint e = first[i]; e < first[i + 1]; e++) {
		uint to = edges[e];

		if (!visited[to]) {
			cost[to] = cost[i] + 1;
			updating[to] = 1;
		}
	}
}

__kernel void bfs_update(__global uchar *frontier, __global uchar *updating, __global uchar *visited, __global uint *more,
			 uint n)
{
	uint i = get_global_id(0);

	if (i >= n || !updating[i])
		return;
	frontier[i] = 1;
	visited[i] = 1;
	updating[i] = 0;
	*more = 1;
}

/* ---- Needleman-Wunsch: tiles of 16 x 16, an anti-diagonal of tiles a launch ---- */

#define TILE 16

__kernel void needle(__global const int *similarity, __global int *score, uint cols, uint diagonal, uint first, int penalty)
{
	__local int t[TILE + 1][TILE + 1];
	uint bx = first + get_group_id(0), by = diagonal - bx, lane = get_local_id(0);
	size_t base = (size_t)by * TILE * cols + bx * TILE;

	t[0][lane + 1] = score[base + lane + 1];
	t[lane + 1][0] = score[base + (size_t)(lane + 1) * cols];
	if (lane == 0)
		t[0][0] = score[base];
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int d = 0; d < 2 * TILE - 1; d++) {
		int y = d - (int)lane;

		if (y >= 0 && y < TILE) {
			int s = similarity[base + (size_t)(y + 1) * cols + lane + 1];

			t[y + 1][lane + 1] = max(t[y][lane] + s, max(t[y + 1][lane], t[y][lane + 1]) - penalty);
		}
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	for (int y = 0; y < TILE; y++)
		score[base + (size_t)(y + 1) * cols + lane + 1] = t[y + 1][lane + 1];
}

/* ---- LavaMD: a box a work-group, its 27 neighbours with itself ---- */

#define PARTICLES 100

__kernel void lavamd(__global const float4 *all, __global const float *charge, __global float4 *force, uint side, float a2)
{
	__local float4 other[PARTICLES];
	__local float q[PARTICLES];
	uint box = get_group_id(0), i = get_local_id(0);
	int bx = box % side, by = box / side % side, bz = box / side / side;
	float4 me = i < PARTICLES ? all[box * PARTICLES + i] : (float4)(0);
	float4 sum = (float4)(0);

	for (int k = 0; k < 27; k++) {
		int x = bx + k % 3 - 1, y = by + k / 3 % 3 - 1, z = bz + k / 9 - 1;
		int outside = x < 0 || y < 0 || z < 0 || x >= (int)side || y >= (int)side || z >= (int)side;
		uint neighbour = outside ? 0 : (z * side + y) * side + x;

		barrier(CLK_LOCAL_MEM_FENCE);
		if (i < PARTICLES && !outside) {
			other[i] = all[neighbour * PARTICLES + i];
			q[i] = charge[neighbour * PARTICLES + i];
		}
		barrier(CLK_LOCAL_MEM_FENCE);
		for (uint j = 0; i < PARTICLES && !outside && j < PARTICLES; j++) {
			float4 o = other[j];
			float product = me.x * o.x + me.y * o.y + me.z * o.z;
			float v = native_exp(-a2 * (me.w + o.w - product)), f = 2 * a2 * v * q[j];

			sum.w += q[j] * v;
			sum.x += f * (me.x - o.x);
			sum.y += f * (me.y - o.y);
			sum.z += f * (me.z - o.z);
		}
	}
	if (i < PARTICLES)
		force[box * PARTICLES + i] = sum;
}

/* ---- particle filter: likelihood, normalised sums, resampling ---- */

static float chance(uint *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) * (1.0f / 16777216.0f);
}

__kernel void pf_likelihood(__global const uchar *frame, __global float *x, __global float *y, __global float *weight,
			    __global uint *seed, uint n, uint width, uint height)
{
	uint i = get_global_id(0);

	if (i >= n)
		return;
	uint s = seed[i];
	float a = chance(&s), b = chance(&s), c = chance(&s), d = chance(&s);
	float px = x[i] + 1 + 5 * (a + b - 1), py = y[i] - 2 + 2 * (c + d - 1);
	float sum = 0;

	for (int dy = -4; dy <= 4; dy++)
		for (int dx = -4; dx <= 4; dx++) {
			int cx = min(max((int)px + dx, 0), (int)width - 1);
			int cy = min(max((int)py + dy, 0), (int)height - 1);
			float v = frame[cy * width + cx];

			if (dx * dx + dy * dy <= 16)
				sum += ((v - 100) * (v - 100) - (v - 228) * (v - 228)) / 50;
		}
	x[i] = px;
	y[i] = py;
	seed[i] = s;
	weight[i] *= native_exp(sum / 4900);
}

/* One work-group: weights become a running sum that ends at 1. */
__kernel void pf_sums(__global const float *weight, __global float *cdf, uint n)
{
	__local float part[1024];
	uint lane = get_local_id(0), lanes = get_local_size(0), each = (n + lanes - 1) / lanes;
	uint begin = min(lane * each, n), end = min(begin + each, n);
	float sum = 0, before = 0, total = 0;

	for (uint i = begin; i < end; i++)
		sum += weight[i];
	part[lane] = sum;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (uint i = 0; i < lanes; i++) {
		if (i < lane)
			before += part[i];
		total += part[i];
	}
	for (uint i = begin; i < end; i++) {
		before += weight[i];
		cdf[i] = before / total;
	}
}

__kernel void pf_resample(__global const float *cdf, __global const float *x, __global const float *y, __global float *nx,
			  __global float *ny, __global float *weight, uint n, float u1)
{
	uint i = get_global_id(0), low = 0, high = n - 1;

	if (i >= n)
		return;
	float u = u1 + i / (float)n;

	while (low < high) {
		uint middle = (low + high) / 2;

		if (cdf[middle] < u)
			low = middle + 1;
		else
			high = middle;
	}
	nx[i] = x[low];
	ny[i] = y[low];
	weight[i] = 1.0f / n;
}
