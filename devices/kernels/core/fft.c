/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms of any length: Stockham's for powers of two, Bluestein's chirps around it for
 * others. Sums are in double precision, so what comes out is right to the last bit or two of an f32.
 */
#include <limits.h>
#include <math.h>

#include "devices/kernels/kernel.h"

#define TABLE_GRAIN 4096u
/* Points that one slot transforms between two questions whether the task was cancelled. */
#define POINTS_PER_ASK (1u << 20)
/* What the libraries of other devices want; a buffer's start has it. */
#define ALIGN 16u

struct point {
	double re, im;
};

enum shape {
	COMPLEX,
	REAL_TO_COMPLEX,
	COMPLEX_TO_REAL,
};

struct fft {
	enum shape shape;
	const float *in;
	float *out;
	uint64_t n, batch;
	int sign;
	/* What Stockham's transform is made of: n itself, or a power of two of 2 n - 1 and more. */
	uint64_t m;
	struct point *roots; /* m / 2 of the m-th roots of 1 */
	int roots_sign;
	struct point *chirp;  /* n, only where n is no power of two */
	struct point *filter; /* m: the transform of the conjugate chirp */
	struct point *slots;  /* 2 m each */
	uint64_t nslots;
	uint64_t first, end; /* of the transforms of this round */
};

static inline struct point times(struct point a, struct point b)
{
	return (struct point){ a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re };
}

static inline struct point conjugate(struct point a)
{
	return (struct point){ a.re, -a.im };
}

/* e^(i pi part / whole) to the power of @sign. */
static struct point root(uint64_t part, uint64_t whole, int sign)
{
	double angle = M_PI * (double)part / (double)whole;

	return (struct point){ cos(angle), sign * sin(angle) };
}

static void roots_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct fft *f = arg;

	for (uint64_t i = begin; i < end; i++)
		f->roots[i] = root(2 * i, f->m, f->roots_sign);
}

static void chirp_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct fft *f = arg;

	/* The square modulo a whole turn keeps the angle small, and thus exact. */
	for (uint64_t i = begin; i < end; i++)
		f->chirp[i] = root(i * i % (2 * f->n), f->n, f->sign);
}

/*
 * The transform of x[m]; y[m] is used up. Returns which of the two holds the result. Each pass halves
 * the length of the transforms and doubles their number, and writes them in their final order.
 */
HOT static struct point *stockham(const struct fft *f, struct point *x, struct point *y)
{
	for (uint64_t half = f->m / 2, stride = 1; half > 0; half /= 2, stride *= 2) {
		struct point *swap = x;

		for (uint64_t p = 0; p < half; p++) {
			struct point w = f->roots[p * stride];
			const struct point *low = x + stride * p;
			const struct point *high = x + stride * (p + half);
			struct point *to = y + stride * 2 * p;

			for (uint64_t q = 0; q < stride; q++) {
				struct point a = low[q], b = high[q];
				struct point difference = { a.re - b.re, a.im - b.im };

				to[q] = (struct point){ a.re + b.re, a.im + b.im };
				to[stride + q] = times(difference, w);
			}
		}
		x = y;
		y = swap;
	}
	return x;
}

/*
 * j k = (j^2 + k^2 - (k - j)^2) / 2 makes the transform a convolution with a chirp. @x holds the n
 * points; the result is as of stockham().
 */
static struct point *bluestein(const struct fft *f, struct point *x, struct point *y)
{
	struct point *from, *to;

	for (uint64_t i = 0; i < f->n; i++)
		x[i] = times(x[i], f->chirp[i]);
	for (uint64_t i = f->n; i < f->m; i++)
		x[i] = (struct point){ 0, 0 };
	from = stockham(f, x, y);
	/* Backwards is forwards of the conjugate, conjugated. */
	for (uint64_t i = 0; i < f->m; i++)
		from[i] = conjugate(times(from[i], f->filter[i]));
	to = stockham(f, from, from == x ? y : x);
	for (uint64_t i = 0; i < f->n; i++) {
		struct point sum = { to[i].re / (double)f->m, -to[i].im / (double)f->m };

		to[i] = times(sum, f->chirp[i]);
	}
	return to;
}

static uint64_t half_of(uint64_t n)
{
	return n / 2 + 1;
}

static void points_load(const struct fft *f, uint64_t idx, struct point *x)
{
	const float *in = f->in;

	if (f->shape == REAL_TO_COMPLEX) {
		in += idx * f->n;
		for (uint64_t i = 0; i < f->n; i++)
			x[i] = (struct point){ (double)in[i], 0 };
		return;
	}
	in += 2 * idx * (f->shape == COMPLEX ? f->n : half_of(f->n));
	for (uint64_t i = 0; i < f->n; i++) {
		/* Of real numbers' transform the second half mirrors the first. */
		bool mirrored = f->shape == COMPLEX_TO_REAL && i >= half_of(f->n);
		uint64_t at = mirrored ? f->n - i : i;
		struct point p = { (double)in[2 * at], (double)in[2 * at + 1] };

		x[i] = mirrored ? conjugate(p) : p;
	}
	if (f->shape == COMPLEX_TO_REAL) {
		/* These are real, whatever stands there. */
		x[0].im = 0;
		if (f->n % 2 == 0)
			x[f->n / 2].im = 0;
	}
}

static void points_store(const struct fft *f, uint64_t idx, const struct point *x)
{
	uint64_t count = f->shape == REAL_TO_COMPLEX ? half_of(f->n) : f->n;
	float *out = f->out + idx * count * (f->shape == COMPLEX_TO_REAL ? 1 : 2);

	for (uint64_t i = 0; i < count; i++) {
		if (f->shape == COMPLEX_TO_REAL) {
			out[i] = (float)x[i].re;
			continue;
		}
		out[2 * i] = (float)x[i].re;
		out[2 * i + 1] = (float)x[i].im;
	}
}

/* Each slot has memory for one transform at a time and takes every nslots-th. */
static void slots_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct fft *f = arg;

	for (uint64_t slot = begin; slot < end; slot++) {
		struct point *x = f->slots + 2 * f->m * slot, *y = x + f->m;

		for (uint64_t idx = f->first + slot; idx < f->end; idx += f->nslots) {
			points_load(f, idx, x);
			points_store(f, idx, f->chirp ? bluestein(f, x, y) : stockham(f, x, y));
		}
	}
}

/* The conjugate chirp for distances of both signs, round the m points, transformed. */
static void filter_make(const struct fft *f)
{
	struct point *x = f->slots, *y = x + f->m, *made;

	for (uint64_t i = 0; i < f->m; i++)
		x[i] = (struct point){ 0, 0 };
	for (uint64_t i = 0; i < f->n; i++)
		x[i] = x[(f->m - i) % f->m] = conjugate(f->chirp[i]);
	made = stockham(f, x, y);
	for (uint64_t i = 0; i < f->m; i++)
		f->filter[i] = made[i];
}

static bool is_power_of_two(uint64_t n)
{
	return (n & (n - 1)) == 0;
}

static int tables_make(struct gantry_env *env, struct fft *f)
{
	bool chirps = !is_power_of_two(f->n);

	f->m = f->n;
	f->roots_sign = f->sign;
	if (chirps) {
		for (f->m = 1; f->m < 2 * f->n - 1;)
			f->m *= 2;
		f->roots_sign = -1;
		f->chirp = SCRATCH(struct point, env, f->n);
		f->filter = SCRATCH(struct point, env, f->m);
	}
	f->roots = SCRATCH(struct point, env, f->m / 2 + 1);
	f->nslots = gantry_min_u64(f->batch, env->nlanes);
	f->slots = SCRATCH(struct point, env, 2 * f->m * f->nslots);
	if (!f->slots) {
		/* One after another, then. */
		f->nslots = 1;
		f->slots = SCRATCH(struct point, env, 2 * f->m);
	}
	if (!f->roots || !f->slots || (chirps && (!f->chirp || !f->filter)))
		return -ENOMEM;
	env->parallel(env, f->m / 2, TABLE_GRAIN, roots_range, f);
	if (chirps) {
		env->parallel(env, f->n, TABLE_GRAIN, chirp_range, f);
		filter_make(f);
	}
	return 0;
}

/* @f's ranges are to be set. */
static int fft_run(struct gantry_env *env, struct fft *f)
{
	uint64_t round;
	int r = tables_make(env, f);

	if (r < 0)
		return r;
	round = f->nslots * (POINTS_PER_ASK / f->m + 1);
	for (f->first = 0; f->first < f->batch; f->first = f->end) {
		if (env->cancelled(env))
			return -ECANCELED;
		f->end = gantry_min_u64(f->batch, f->first + round);
		env->parallel(env, f->nslots, 1, slots_range, f);
	}
	return 0;
}

/* Per transform: @nin floats come in, @nout go out. */
static int fft_call(struct gantry_env *env, const struct gantry_call *call, struct fft *f,
		    uint64_t nin, uint64_t nout)
{
	if (f->n == 0 || f->batch == 0)
		return 0;
	/* Libraries of other devices count in int. */
	if (f->n * f->batch > INT_MAX || (f->sign != 1 && f->sign != -1))
		return -EINVAL;
	f->in = kernel_arg(call, 0, nin * f->batch, sizeof(float), ALIGN);
	f->out = kernel_arg(call, 1, nout * f->batch, sizeof(float), ALIGN);
	if (!f->in || !f->out)
		return -EINVAL;
	return fft_run(env, f);
}

KERNEL(fft)
{
	struct fft f = {
		.shape = COMPLEX,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = call->args[4].i32,
	};

	return fft_call(env, call, &f, 2 * f.n, 2 * f.n);
}

KERNEL(fft_r2c)
{
	struct fft f = {
		.shape = REAL_TO_COMPLEX,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = -1,
	};

	return fft_call(env, call, &f, f.n, 2 * half_of(f.n));
}

KERNEL(fft_c2r)
{
	struct fft f = {
		.shape = COMPLEX_TO_REAL,
		.n = call->args[2].u32,
		.batch = call->args[3].u32,
		.sign = 1,
	};

	return fft_call(env, call, &f, 2 * half_of(f.n), f.n);
}
