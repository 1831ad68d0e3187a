/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device code of the GPU benchmarks: the programs of the Rodinia suite as the Arax paper lists them (Table 4), from
 * their formulas, and small kernels to measure with. The native programs and Gantry's guests load this same image.
 */
#include <cstdint>

#define EXPORT extern "C" __global__

static __device__ unsigned long long at(void)
{
	return blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
}

/* ---- to measure with ---- */

EXPORT void empty(void)
{
}

/* Keeps its blocks busy for so many nanoseconds of the device's clock. */
EXPORT void spin(uint64_t ns)
{
	unsigned long long start, now;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
	do
		asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	while (now - start < ns);
}

EXPORT void touch(uint32_t *data, uint64_t n)
{
	if (at() < n)
		data[at()] += 1;
}

/* ---- hotspot: T += dt (power + (N + S - 2T) / Ry + (E + W - 2T) / Rx + (amb - T) / Rz) ---- */

EXPORT void hotspot(const float *in, const float *power, float *out, uint32_t rows, uint32_t cols,
		    float step, float rx, float ry, float rz, float ambient)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x >= (int)cols || y >= (int)rows)
		return;
	float t = in[(size_t)y * cols + x];
	float north = in[(size_t)max(y - 1, 0) * cols + x];
	float south = in[(size_t)min(y + 1, (int)rows - 1) * cols + x];
	float west = in[(size_t)y * cols + max(x - 1, 0)];
	float east = in[(size_t)y * cols + min(x + 1, (int)cols - 1)];

	out[(size_t)y * cols + x] = t + step * (power[(size_t)y * cols + x] + (north + south - 2 * t) * ry +
						(east + west - 2 * t) * rx + (ambient - t) * rz);
}

/* ---- hotspot3D: a column of layers a thread ---- */

EXPORT void hotspot3d(const float *in, const float *power, float *out, uint32_t nx, uint32_t ny,
		      uint32_t nz, float cc, float cw, float cn, float ct, float heat, float ambient)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

	if (x >= (int)nx || y >= (int)ny)
		return;
	size_t layer = (size_t)nx * ny, c = (size_t)y * nx + x;
	size_t w = (size_t)y * nx + max(x - 1, 0), e = (size_t)y * nx + min(x + 1, (int)nx - 1);
	size_t n = (size_t)max(y - 1, 0) * nx + x, s = (size_t)min(y + 1, (int)ny - 1) * nx + x;
	float below = in[c], here = in[c], above;

	for (uint32_t z = 0; z < nz; z++) {
		size_t o = z * layer;

		above = in[(z + 1 < nz ? o + layer : o) + c];
		out[o + c] = cc * here + cw * (in[o + w] + in[o + e]) + cn * (in[o + n] + in[o + s]) +
			     ct * (below + above) + heat * power[o + c] + ct * ambient;
		below = here;
		here = above;
	}
}

/* ---- pathfinder: a row of the dynamic programme a launch ---- */

EXPORT void pathfinder(const int32_t *wall, const int32_t *before, int32_t *after, uint32_t row,
		       uint32_t cols)
{
	unsigned x = blockIdx.x * blockDim.x + threadIdx.x;

	if (x >= cols)
		return;
	int32_t least = before[x];

	if (x > 0)
		least = min(least, before[x - 1]);
	if (x + 1 < cols)
		least = min(least, before[x + 1]);
	after[x] = least + wall[(size_t)row * cols + x];
}

/* ---- Gaussian elimination ---- */

EXPORT void fan1(const float *a, float *m, uint32_t n, uint32_t t)
{
	unsigned i = t + 1 + blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		m[(size_t)i * n + t] = a[(size_t)i * n + t] / a[(size_t)t * n + t];
}

EXPORT void fan2(const float *m, float *a, float *b, uint32_t n, uint32_t t)
{
	unsigned j = t + blockIdx.x * blockDim.x + threadIdx.x;
	unsigned i = t + 1 + blockIdx.y * blockDim.y + threadIdx.y;

	if (i >= n || j >= n)
		return;
	a[(size_t)i * n + j] -= m[(size_t)i * n + t] * a[(size_t)t * n + j];
	if (j == t)
		b[i] -= m[(size_t)i * n + t] * b[t];
}

/* ---- nearest neighbours ---- */

EXPORT void euclid(const float *records, float *distance, uint64_t n, float lat, float lng)
{
	unsigned long long i = at();

	if (i >= n)
		return;
	float2 r = ((const float2 *)records)[i];

	distance[i] = sqrtf((lat - r.x) * (lat - r.x) + (lng - r.y) * (lng - r.y));
}

/* ---- breadth-first search, a level in two launches ---- */

EXPORT void bfs_visit(const uint32_t *first, const uint32_t *edges, uint8_t *frontier, uint8_t *updating,
		      const uint8_t *visited, int32_t *cost, uint32_t n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n || !frontier[i])
		return;
	frontier[i] = 0;
	for (uint32_t e = first[i]; e < first[i + 1]; e++) {
		uint32_t to = edges[e];

		if (!visited[to]) {
			cost[to] = cost[i] + 1;
			updating[to] = 1;
		}
	}
}

EXPORT void bfs_update(uint8_t *frontier, uint8_t *updating, uint8_t *visited, uint32_t *more, uint32_t n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n || !updating[i])
		return;
	frontier[i] = 1;
	visited[i] = 1;
	updating[i] = 0;
	*more = 1;
}

/* ---- Needleman-Wunsch: tiles of 16 x 16, an anti-diagonal of tiles a launch ---- */

#define TILE 16

EXPORT void needle(const int32_t *similarity, int32_t *score, uint32_t cols, uint32_t diagonal, uint32_t first,
		   int32_t penalty)
{
	__shared__ int32_t t[TILE + 1][TILE + 1];
	unsigned bx = first + blockIdx.x, by = diagonal - bx, lane = threadIdx.x;
	size_t base = (size_t)by * TILE * cols + bx * TILE;

	t[0][lane + 1] = score[base + lane + 1];
	t[lane + 1][0] = score[base + (size_t)(lane + 1) * cols];
	if (lane == 0)
		t[0][0] = score[base];
	__syncthreads();
	for (int d = 0; d < 2 * TILE - 1; d++) {
		int y = d - (int)lane;

		if (y >= 0 && y < TILE) {
			int32_t s = similarity[base + (size_t)(y + 1) * cols + lane + 1];

			t[y + 1][lane + 1] = max(t[y][lane] + s, max(t[y + 1][lane], t[y][lane + 1]) - penalty);
		}
		__syncthreads();
	}
	for (int y = 0; y < TILE; y++)
		score[base + (size_t)(y + 1) * cols + lane + 1] = t[y + 1][lane + 1];
}

/* ---- LavaMD: a box a block, its 27 neighbours with itself ---- */

#define PARTICLES 100

EXPORT void lavamd(const float *position, const float *charge, float *force, uint32_t side, float a2)
{
	__shared__ float4 other[PARTICLES];
	__shared__ float q[PARTICLES];
	unsigned box = blockIdx.x, i = threadIdx.x;
	int bx = box % side, by = box / side % side, bz = box / side / side;
	const float4 *all = (const float4 *)position;
	float4 me = i < PARTICLES ? all[box * PARTICLES + i] : make_float4(0, 0, 0, 0);
	float4 sum = make_float4(0, 0, 0, 0);

	for (int k = 0; k < 27; k++) {
		int x = bx + k % 3 - 1, y = by + k / 3 % 3 - 1, z = bz + k / 9 - 1;

		if (x < 0 || y < 0 || z < 0 || x >= (int)side || y >= (int)side || z >= (int)side)
			continue;
		unsigned neighbour = (z * side + y) * side + x;

		__syncthreads();
		if (i < PARTICLES) {
			other[i] = all[neighbour * PARTICLES + i];
			q[i] = charge[neighbour * PARTICLES + i];
		}
		__syncthreads();
		for (unsigned j = 0; i < PARTICLES && j < PARTICLES; j++) {
			float4 o = other[j];
			float dot = me.x * o.x + me.y * o.y + me.z * o.z;
			float v = __expf(-a2 * (me.w + o.w - dot)), f = 2 * a2 * v * q[j];

			sum.w += q[j] * v;
			sum.x += f * (me.x - o.x);
			sum.y += f * (me.y - o.y);
			sum.z += f * (me.z - o.z);
		}
	}
	if (i < PARTICLES)
		((float4 *)force)[box * PARTICLES + i] = sum;
}

/* ---- particle filter: likelihood, normalised sums, resampling ---- */

static __device__ float uniform(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) * (1.0f / 16777216.0f);
}

EXPORT void pf_likelihood(const uint8_t *frame, float *x, float *y, float *weight, uint32_t *seed,
			  uint32_t n, uint32_t width, uint32_t height)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	uint32_t s = seed[i];
	float px = x[i] + 1 + 5 * (uniform(&s) + uniform(&s) - 1);
	float py = y[i] - 2 + 2 * (uniform(&s) + uniform(&s) - 1);
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
	weight[i] *= __expf(sum / 4900);
}

/* One block: weights become a running sum that ends at 1. */
EXPORT void pf_sums(float *weight, float *cdf, uint32_t n)
{
	__shared__ float part[1024];
	unsigned lane = threadIdx.x, each = (n + blockDim.x - 1) / blockDim.x;
	unsigned begin = min(lane * each, n), end = min(begin + each, n);
	float sum = 0, before = 0, total = 0;

	for (unsigned i = begin; i < end; i++)
		sum += weight[i];
	part[lane] = sum;
	__syncthreads();
	for (unsigned i = 0; i < blockDim.x; i++) {
		if (i < lane)
			before += part[i];
		total += part[i];
	}
	for (unsigned i = begin; i < end; i++) {
		before += weight[i];
		cdf[i] = before / total;
	}
}

EXPORT void pf_resample(const float *cdf, const float *x, const float *y, float *nx, float *ny,
			float *weight, uint32_t n, float u1)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = n - 1;

	if (i >= n)
		return;
	float u = u1 + i / (float)n;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (cdf[middle] < u)
			low = middle + 1;
		else
			high = middle;
	}
	nx[i] = x[low];
	ny[i] = y[low];
	weight[i] = 1.0f / n;
}
