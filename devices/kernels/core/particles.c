/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Particles: forces between those of neighbouring boxes (after Rodinia's lavaMD), and a filter that
 * follows a bright spot through frames (after Rodinia's particlefilter).
 */
#include <math.h>
#include <string.h>

#include "devices/kernels/core/philox.h"
#include "devices/kernels/kernel.h"

/*
 * A particle as the guest passes it; the force has the same layout, its charge's place holding the
 * potential.
 */
struct particle {
	double x, y, z, charge;
};

/* Boxes between two questions whether the task was cancelled. */
#define BOXES_PER_ASK 1024u
/* 16 M boxes: far past what memory holds, and their count fits every type here. */
#define BOXES1D_MAX 256u

struct lava {
	const struct particle *particles;
	struct particle *forces;
	int64_t boxes1d;
	uint64_t per_box;
	double alpha;
	uint64_t first; /* box that the range's 0 stands for */
};

static void box_pair(const struct lava *lv, uint64_t home, uint64_t other)
{
	const struct particle *ours = lv->particles + home * lv->per_box;
	const struct particle *theirs = lv->particles + other * lv->per_box;
	struct particle *forces = lv->forces + home * lv->per_box;
	double two_alpha2 = 2 * lv->alpha * lv->alpha;

	for (uint64_t i = 0; i < lv->per_box; i++) {
		struct particle here = ours[i], sum = { 0 };

		for (uint64_t j = 0; j < lv->per_box; j++) {
			double dx = here.x - theirs[j].x, dy = here.y - theirs[j].y;
			double dz = here.z - theirs[j].z, charge = theirs[j].charge;
			double v = exp(-two_alpha2 * (dx * dx + dy * dy + dz * dz));
			double pull = 2 * v * charge;

			sum.charge += charge * v;
			sum.x += pull * dx;
			sum.y += pull * dy;
			sum.z += pull * dz;
		}
		forces[i].charge += sum.charge;
		forces[i].x += sum.x;
		forces[i].y += sum.y;
		forces[i].z += sum.z;
	}
}

static void lava_boxes(void *arg, uint64_t begin, uint64_t end)
{
	const struct lava *lv = arg;
	int64_t side = lv->boxes1d;

	for (uint64_t box = lv->first + begin; box < lv->first + end; box++) {
		int64_t bx = (int64_t)box % side, by = (int64_t)box / side % side;
		int64_t bz = (int64_t)box / side / side;

		memset(lv->forces + box * lv->per_box, 0, lv->per_box * sizeof(*lv->forces));
		for (int64_t neighbour = 0; neighbour < 27; neighbour++) {
			int64_t x = bx + neighbour % 3 - 1, y = by + neighbour / 3 % 3 - 1;
			int64_t z = bz + neighbour / 9 - 1;

			if (x >= 0 && x < side && y >= 0 && y < side && z >= 0 && z < side)
				box_pair(lv, box, (uint64_t)((z * side + y) * side + x));
		}
	}
}

KERNEL(lavamd)
{
	uint64_t boxes1d = call->args[2].u32, per_box = call->args[3].u32;
	struct lava lv = {
		.boxes1d = (int64_t)boxes1d,
		.per_box = per_box,
		.alpha = call->args[4].f64,
	};
	uint64_t nboxes = boxes1d * boxes1d * boxes1d;

	if (boxes1d > BOXES1D_MAX)
		return -EINVAL;
	lv.particles = ARG(struct particle, call, 0, nboxes * per_box);
	lv.forces = ARG(struct particle, call, 1, nboxes * per_box);
	if (!lv.particles || !lv.forces)
		return -EINVAL;
	if (per_box == 0)
		return 0;

	for (lv.first = 0; lv.first < nboxes; lv.first += BOXES_PER_ASK) {
		if (env->cancelled(env))
			return -ECANCELED;
		env->parallel(env, gantry_min_u64(BOXES_PER_ASK, nboxes - lv.first), 1, lava_boxes,
			      &lv);
	}
	return 0;
}

/* The spot: a disk of DISK_RADIUS pixels, brighter than what is around it. Rodinia's numbers. */
#define DISK_RADIUS 5
#define BACKGROUND  100
#define FOREGROUND  228
/* The spot moves by this in each frame, give or take a normal error of this deviation. */
#define DRIFT_X	       1.0
#define DRIFT_Y	       (-2.0)
#define ERROR_X	       5.0
#define ERROR_Y	       2.0
#define PARTICLE_GRAIN 256u

struct filter {
	const uint8_t *frame;
	int64_t width, height;
	uint64_t n;
	uint64_t seed;
	uint64_t frame_idx;
	double *x, *y, *weight, *cdf;
	double *next_x, *next_y;
};

static inline int64_t pixel_near(double at, int64_t size)
{
	/* Clamped as a number first: a conversion out of range is undefined. NaN becomes 0. */
	double clamped = at > 0 ? at : 0;

	return (int64_t)(clamped < (double)(size - 1) ? clamped + 0.5 : (double)(size - 1));
}

/* The logarithm of how well the pixels around (@x, @y) fit the spot rather than the background. */
static double likelihood(const struct filter *f, double x, double y)
{
	int64_t cx = pixel_near(x, f->width), cy = pixel_near(y, f->height);
	int64_t sum = 0, count = 0;

	for (int64_t dy = -DISK_RADIUS; dy <= DISK_RADIUS; dy++)
		for (int64_t dx = -DISK_RADIUS; dx <= DISK_RADIUS; dx++) {
			int64_t value;

			if (dx * dx + dy * dy > DISK_RADIUS * DISK_RADIUS)
				continue;
			value = f->frame[clamp_index(cy + dy, f->height) * f->width +
					 clamp_index(cx + dx, f->width)];
			sum += (value - BACKGROUND) * (value - BACKGROUND) -
			       (value - FOREGROUND) * (value - FOREGROUND);
			count++;
		}
	return (double)sum / 50.0 / (double)count;
}

static void likelihood_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct filter *f = arg;

	for (uint64_t i = begin; i < end; i++) {
		uint32_t words[4];
		float normal[2];

		philox(f->seed, f->frame_idx + 1, i, words);
		words_to_normal(words, normal);
		f->x[i] += DRIFT_X + ERROR_X * (double)normal[0];
		f->y[i] += DRIFT_Y + ERROR_Y * (double)normal[1];
		f->weight[i] = likelihood(f, f->x[i], f->y[i]);
	}
}

/*
 * Log likelihoods to weights of sum 1 and their running sum; the estimate is their mean position.
 */
static void normalise(struct filter *f, float ret_estimate[2])
{
	double best = f->weight[0], sum = 0, x = 0, y = 0, running = 0;

	for (uint64_t i = 1; i < f->n; i++)
		best = f->weight[i] > best ? f->weight[i] : best;
	for (uint64_t i = 0; i < f->n; i++) {
		/* At least one is exp(0), so the sum is no less than 1. */
		f->weight[i] = exp(f->weight[i] - best);
		sum += f->weight[i];
	}
	for (uint64_t i = 0; i < f->n; i++) {
		double weight = f->weight[i] / sum;

		x += weight * f->x[i];
		y += weight * f->y[i];
		running += weight;
		f->cdf[i] = running;
	}
	ret_estimate[0] = (float)x;
	ret_estimate[1] = (float)y;
}

/* Systematic: one random number, then steps of 1/n; both sequences rise, so one pass finds all. */
static void resample(struct filter *f)
{
	uint32_t words[4];
	double start, *swap;
	uint64_t at = 0;

	philox(f->seed, f->frame_idx + 1, UINT64_MAX, words);
	start = (double)word_to_uniform(words[0]);
	for (uint64_t i = 0; i < f->n; i++) {
		double level = (start + (double)i) / (double)f->n;

		while (at + 1 < f->n && f->cdf[at] < level)
			at++;
		f->next_x[i] = f->x[at];
		f->next_y[i] = f->y[at];
	}
	swap = f->x;
	f->x = f->next_x;
	f->next_x = swap;
	swap = f->y;
	f->y = f->next_y;
	f->next_y = swap;
}

static int filter_memory(struct gantry_env *env, struct filter *f)
{
	double **arrays[] = { &f->x, &f->y, &f->weight, &f->cdf, &f->next_x, &f->next_y };

	for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
		*arrays[i] = SCRATCH(double, env, f->n);
		if (!*arrays[i])
			return -ENOMEM;
	}
	return 0;
}

KERNEL(particle_filter)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	uint64_t nframes = call->args[4].u32, nbytes;
	struct filter f = {
		.width = (int64_t)width,
		.height = (int64_t)height,
		.n = call->args[5].u32,
		.seed = call->args[6].u64,
	};
	float start_x = call->args[7].f32, start_y = call->args[8].f32;
	float *estimates = ARG(float, call, 1, 2 * nframes);
	const uint8_t *frames;

	if (width == 0 || height == 0 || f.n == 0 || !isfinite(start_x) || !isfinite(start_y) ||
	    !product3(width, height, nframes, &nbytes))
		return -EINVAL;
	frames = ARG(uint8_t, call, 0, nbytes);
	if (!frames || !estimates)
		return -EINVAL;
	if (filter_memory(env, &f) < 0)
		return -ENOMEM;

	for (uint64_t i = 0; i < f.n; i++) {
		f.x[i] = (double)start_x;
		f.y[i] = (double)start_y;
	}
	for (f.frame_idx = 0; f.frame_idx < nframes; f.frame_idx++) {
		if (env->cancelled(env))
			return -ECANCELED;
		f.frame = frames + f.frame_idx * width * height;
		env->parallel(env, f.n, PARTICLE_GRAIN, likelihood_range, &f);
		normalise(&f, estimates + 2 * f.frame_idx);
		resample(&f);
	}
	return 0;
}
