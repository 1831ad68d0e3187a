/* SPDX-License-Identifier: Apache-2.0 */
/* Forces between particles of neighbouring boxes, and the filter that follows a bright spot. */
#include "devices/kernels/core/cuda/gpu.h"
#include "devices/kernels/core/philox.h"

/* Boxes of a block between two questions whether the task was cancelled. */
#define BOXES_PER_ASK 8u

/* What @count particles of a neighbour do to the one @here. */
DEVICE void attract(const struct gpu_particle *theirs, uint32_t count, double two_alpha2,
		    struct gpu_particle here, struct gpu_particle *sum)
{
	for (uint32_t j = 0; j < count; j++) {
		double dx = here.x - theirs[j].x, dy = here.y - theirs[j].y;
		double dz = here.z - theirs[j].z;
		double v = exp(-two_alpha2 * fma(dx, dx, fma(dy, dy, dz * dz)));
		double weight = v * theirs[j].charge, pull = 2 * weight;

		sum->charge += weight;
		sum->x = fma(pull, dx, sum->x);
		sum->y = fma(pull, dy, sum->y);
		sum->z = fma(pull, dz, sum->z);
	}
}

/* All of box @other on particle @here; the block meets here, threads without a particle too. */
DEVICE void box_attract(const struct gpu_lava &a, uint64_t other, bool active,
			struct gpu_particle here, struct gpu_particle *theirs,
			struct gpu_particle *sum)
{
	double two_alpha2 = 2 * a.alpha * a.alpha;

	for (uint64_t begin = 0; begin < a.per_box; begin += GPU_LAVA_THREADS) {
		uint32_t count = (uint32_t)least_u64(GPU_LAVA_THREADS, a.per_box - begin);

		block_sync();
		if (thread_idx() < count)
			theirs[thread_idx()] =
				a.particles[other * a.per_box + begin + thread_idx()];
		block_sync();
		if (active)
			attract(theirs, count, two_alpha2, here, sum);
	}
}

DEVICE bool is_side(int32_t at, uint32_t side)
{
	return at >= 0 && at < (int32_t)side;
}

/* The forces on up to GPU_LAVA_THREADS particles of @box, from @begin on. */
DEVICE void box_part(const struct gpu_lava &a, uint32_t box, uint64_t begin,
		     struct gpu_particle *theirs)
{
	uint32_t side = a.boxes1d;
	int32_t bx = (int32_t)(box % side), by = (int32_t)(box / side % side);
	int32_t bz = (int32_t)(box / side / side);
	uint64_t at = box * a.per_box + begin + thread_idx();
	bool active = begin + thread_idx() < a.per_box;
	struct gpu_particle here = { 0, 0, 0, 0 }, sum = { 0, 0, 0, 0 };

	if (active)
		here = a.particles[at];
	for (int32_t neighbour = 0; neighbour < 27; neighbour++) {
		int32_t x = bx + neighbour % 3 - 1, y = by + neighbour / 3 % 3 - 1;
		int32_t z = bz + neighbour / 9 - 1;

		if (is_side(x, side) && is_side(y, side) && is_side(z, side))
			box_attract(a, (uint64_t)((z * (int32_t)side + y) * (int32_t)side + x),
				    active, here, theirs, &sum);
	}
	if (active)
		a.forces[at] = sum;
}

/* At most 2^24 boxes. */
ENTRY(lava, struct gpu_lava, GPU_LAVA_THREADS)
{
	uint32_t nboxes = a.boxes1d * a.boxes1d * a.boxes1d, ndone = 0;
	SHARED(struct gpu_particle, theirs, GPU_LAVA_THREADS);
	SHARED(uint32_t, cancelled, 1);

	for (uint32_t box = block_idx(); box < nboxes; box += grid_blocks(), ndone++) {
		block_sync();
		if (thread_idx() == 0)
			cancelled[0] = ndone % BOXES_PER_ASK == 0 && load_once(&a.verdict->cancel);
		block_sync();
		if (cancelled[0]) {
			store_once(&a.verdict->status, -ECANCELED);
			return;
		}
		for (uint64_t begin = 0; begin < a.per_box; begin += GPU_LAVA_THREADS)
			box_part(a, box, begin, theirs);
	}
}

/* The spot, and how it moves: see devices/kernels/core/particles.c. */
#define DISK_RADIUS 5
#define DISK_PIXELS 81
#define BACKGROUND  100
#define FOREGROUND  228
#define DRIFT_X	    1.0
#define DRIFT_Y	    (-2.0)
#define ERROR_X	    5.0
#define ERROR_Y	    2.0

DEVICE int64_t pixel_near(double at, uint64_t size)
{
	/* Clamped as a number first: a conversion out of range is undefined. NaN becomes 0. */
	double clamped = at > 0 ? at : 0;

	return (int64_t)(clamped < (double)(size - 1) ? clamped + 0.5 : (double)(size - 1));
}

DEVICE int64_t clamp_index(int64_t at, uint64_t size)
{
	return at < 0 ? 0 : at < (int64_t)size ? at : (int64_t)size - 1;
}

/* The logarithm of how well the pixels around (@x, @y) fit the spot rather than the background. */
DEVICE double likelihood(const struct gpu_filter &f, const uint8_t *frame, double x, double y)
{
	int64_t cx = pixel_near(x, f.width), cy = pixel_near(y, f.height);
	int32_t sum = 0;

	for (int32_t dy = -DISK_RADIUS; dy <= DISK_RADIUS; dy++) {
		const uint8_t *row = frame + clamp_index(cy + dy, f.height) * (int64_t)f.width;

#pragma unroll
		for (int32_t dx = -DISK_RADIUS; dx <= DISK_RADIUS; dx++) {
			int32_t value;

			if (dx * dx + dy * dy > DISK_RADIUS * DISK_RADIUS)
				continue;
			value = row[clamp_index(cx + dx, f.width)];
			sum += (value - BACKGROUND) * (value - BACKGROUND) -
			       (value - FOREGROUND) * (value - FOREGROUND);
		}
	}
	return (double)sum / 50.0 / (double)DISK_PIXELS;
}

/* The greatest of the block's values, for all its threads. @values has 32 elements. */
DEVICE double block_most(double value, double *values)
{
	double other;

	for (uint32_t distance = 16; distance > 0; distance /= 2) {
		other = shuffle_down(value, distance);
		value = other > value ? other : value;
	}
	block_sync();
	if (lane_idx() == 0)
		values[thread_idx() / 32] = value;
	block_sync();
	value = values[0];
	for (uint32_t w = 1; w < block_threads() / 32; w++)
		value = values[w] > value ? values[w] : value;
	return value;
}

/* The sum of the values of this thread and those before it. @sums has 32 elements. */
DEVICE double block_running(double value, double *sums)
{
	uint32_t warp = thread_idx() / 32;
	double before = 0;

	for (uint32_t distance = 1; distance < 32; distance *= 2) {
		double below = shuffle_up(value, distance);

		if (lane_idx() >= distance)
			value += below;
	}
	block_sync();
	if (lane_idx() == 31)
		sums[warp] = value;
	block_sync();
	for (uint32_t w = 0; w < warp; w++)
		before += sums[w];
	return before + value;
}

/* Moves the particles of the block's chunks and judges each. */
DEVICE void filter_move(const struct gpu_filter &f, uint64_t idx, uint64_t nchunks, double *shared)
{
	const uint8_t *frame = f.frames + idx * f.width * f.height;
	double *x = f.x[idx % 2], *y = f.y[idx % 2];

	for (uint64_t chunk = block_idx(); chunk < nchunks; chunk += grid_blocks()) {
		uint64_t end = least_u64((chunk + 1) * GPU_FILTER_CHUNK, f.n);
		double best = -INFINITY;

		for (uint64_t i = chunk * GPU_FILTER_CHUNK + thread_idx(); i < end;
		     i += block_threads()) {
			uint32_t words[4];
			float normal[2];

			philox(f.seed, idx + 1, i, words);
			words_to_normal(words, normal);
			x[i] += DRIFT_X + ERROR_X * (double)normal[0];
			y[i] += DRIFT_Y + ERROR_Y * (double)normal[1];
			f.weight[i] = likelihood(f, frame, x[i], y[i]);
			best = f.weight[i] > best ? f.weight[i] : best;
		}
		best = block_most(best, shared);
		if (thread_idx() == 0)
			f.best[chunk] = best;
	}
}

/* Particles of a chunk that a thread takes, side by side. */
#define CHUNK_PART (GPU_FILTER_CHUNK / GPU_THREADS)

/* The weights of chunks, their running sums, and the sums that make the estimate. */
DEVICE void filter_weigh(const struct gpu_filter &f, uint64_t idx, uint64_t nchunks, double *shared)
{
	const double *x = f.x[idx % 2], *y = f.y[idx % 2];
	double best = -INFINITY;

	for (uint64_t i = thread_idx(); i < nchunks; i += block_threads())
		best = f.best[i] > best ? f.best[i] : best;
	best = block_most(best, shared);
	for (uint64_t chunk = block_idx(); chunk < nchunks; chunk += grid_blocks()) {
		uint64_t begin = chunk * GPU_FILTER_CHUNK + thread_idx() * CHUNK_PART;
		uint64_t end = least_u64(begin + CHUNK_PART, f.n);
		double sum = 0, sum_x = 0, sum_y = 0, running;

		for (uint64_t i = begin; i < end; i++) {
			double weight = exp(f.weight[i] - best);

			sum += weight;
			sum_x += weight * x[i];
			sum_y += weight * y[i];
			f.cdf[i] = sum;
		}
		running = block_running(sum, shared);
		for (uint64_t i = begin; i < end; i++)
			f.cdf[i] += running - sum;
		/* The last thread's running sum is the chunk's. */
		if (thread_idx() == block_threads() - 1)
			f.sum[chunk] = running;
		sum_x = block_sum(sum_x, shared);
		sum_y = block_sum(sum_y, shared);
		if (thread_idx() == 0) {
			f.sum_x[chunk] = sum_x;
			f.sum_y[chunk] = sum_y;
		}
	}
}

/* One block: sums of chunks become running sums; the estimate is the weighted mean. */
DEVICE void filter_estimate(const struct gpu_filter &f, uint64_t idx, uint64_t nchunks,
			    double *shared)
{
	double x = 0, y = 0, before = 0, total;

	for (uint64_t i = thread_idx(); i < nchunks; i += block_threads()) {
		x += f.sum_x[i];
		y += f.sum_y[i];
	}
	x = block_sum(x, shared);
	y = block_sum(y, shared);
	for (uint64_t base = 0; base < nchunks; base += block_threads()) {
		uint64_t i = base + thread_idx();
		double running = block_running(i < nchunks ? f.sum[i] : 0, shared);

		if (i < nchunks)
			f.sum[i] = before + running;
		/* All threads need the last one's for the next round. */
		block_sync();
		if (thread_idx() == block_threads() - 1)
			shared[0] = running;
		block_sync();
		before += shared[0];
	}
	total = before;
	if (thread_idx() == 0) {
		f.estimates[2 * idx] = (float)(x / total);
		f.estimates[2 * idx + 1] = (float)(y / total);
	}
}

/* The first of [0, @n) whose @base + @running reaches @level; the last if none does. */
DEVICE uint64_t first_reaching(const double *running, double base, uint64_t n, double level)
{
	uint64_t low = 0, high = n - 1;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (base + running[middle] < level)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Systematic: one random number, then steps of 1/n of all weight. */
DEVICE void filter_resample(const struct gpu_filter &f, uint64_t idx, uint64_t nchunks)
{
	const double *x = f.x[idx % 2], *y = f.y[idx % 2];
	double *next_x = f.x[(idx + 1) % 2], *next_y = f.y[(idx + 1) % 2];
	double total = f.sum[nchunks - 1], start;
	uint32_t words[4];

	philox(f.seed, idx + 1, UINT64_MAX, words);
	start = (double)word_to_uniform(words[0]);
	for (uint64_t i = first_item(); i < f.n; i += item_step()) {
		double level = (start + (double)i) / (double)f.n * total;
		uint64_t chunk = first_reaching(f.sum, 0, nchunks, level);
		uint64_t begin = chunk * GPU_FILTER_CHUNK;
		uint64_t count = least_u64(GPU_FILTER_CHUNK, f.n - begin);
		double base = chunk == 0 ? 0 : f.sum[chunk - 1];
		uint64_t at = begin + first_reaching(f.cdf + begin, base, count, level);

		next_x[i] = x[at];
		next_y[i] = y[at];
	}
}

ENTRY(filter, struct gpu_filter, GPU_THREADS)
{
	uint64_t nchunks = (a.n + GPU_FILTER_CHUNK - 1) / GPU_FILTER_CHUNK;
	SHARED(double, shared, 32);

	for (uint64_t i = first_item(); i < a.n; i += item_step()) {
		a.x[0][i] = (double)a.start_x;
		a.y[0][i] = (double)a.start_y;
	}
	grid_sync();
	for (uint64_t frame = 0; frame < a.nframes; frame++) {
		stop_ask(a.stop, a.verdict, frame);
		filter_move(a, frame, nchunks, shared);
		grid_sync();
		if (stopped(a.stop, frame))
			return;
		filter_weigh(a, frame, nchunks, shared);
		grid_sync();
		if (block_idx() == 0)
			filter_estimate(a, frame, nchunks, shared);
		grid_sync();
		filter_resample(a, frame, nchunks);
		grid_sync();
	}
}
