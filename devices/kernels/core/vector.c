/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on f32 vectors. Element-wise ones may work in place; other overlaps give unspecified
 * numbers.
 */
#include "devices/kernels/kernel.h"

#define GRAIN 32768u

struct vectors {
	const float *x;
	const float *y;
	float *out;
	float alpha;
};

HOT static void add_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct vectors *v = arg;
	const float *x = v->x, *y = v->y;
	float *out = v->out;

	for (uint64_t i = begin; i < end; i++)
		out[i] = x[i] + y[i];
}

KERNEL(vadd)
{
	uint64_t n = call->args[3].u64;
	struct vectors v = {
		.x = ARG(float, call, 0, n),
		.y = ARG(float, call, 1, n),
		.out = ARG(float, call, 2, n),
	};

	if (!v.x || !v.y || !v.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, add_range, &v);
	return 0;
}

HOT static void scale_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct vectors *v = arg;
	const float *x = v->x;
	float *out = v->out;
	float alpha = v->alpha;

	for (uint64_t i = begin; i < end; i++)
		out[i] = alpha * x[i];
}

KERNEL(vscale)
{
	uint64_t n = call->args[3].u64;
	struct vectors v = {
		.alpha = call->args[0].f32,
		.x = ARG(float, call, 1, n),
		.out = ARG(float, call, 2, n),
	};

	if (!v.x || !v.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, scale_range, &v);
	return 0;
}

HOT static void saxpy_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct vectors *v = arg;
	const float *x = v->x;
	float *out = v->out;
	float alpha = v->alpha;

	for (uint64_t i = begin; i < end; i++)
		out[i] += alpha * x[i];
}

KERNEL(saxpy)
{
	uint64_t n = call->args[3].u64;
	struct vectors v = {
		.alpha = call->args[0].f32,
		.x = ARG(float, call, 1, n),
		.out = ARG(float, call, 2, n),
	};

	if (!v.x || !v.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, saxpy_range, &v);
	return 0;
}

HOT static void square_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct vectors *v = arg;
	const float *x = v->x;
	float *out = v->out;

	for (uint64_t i = begin; i < end; i++)
		out[i] = x[i] * x[i];
}

KERNEL(vsquare)
{
	uint64_t n = call->args[2].u64;
	struct vectors v = { .x = ARG(float, call, 0, n), .out = ARG(float, call, 1, n) };

	if (!v.x || !v.out)
		return -EINVAL;
	env->parallel(env, n, GRAIN, square_range, &v);
	return 0;
}

/* Independent sums, so that the compiler may vectorise without reordering additions on its own. */
#define NSUMS 8u

struct reduction {
	struct reduce_blocks rb;
	const float *x;
	const float *y;
	double partial[REDUCE_BLOCKS_MAX];
};

static inline double sums_join(const double sums[static NSUMS])
{
	return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
	       ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* A function over blocks that adds up TERM of elements x[i] and y[i] in double precision. */
#define REDUCTION(name, TERM)                                                               \
	HOT static void name(void *arg, uint64_t begin, uint64_t end)                       \
	{                                                                                   \
		struct reduction *r = arg;                                                  \
		const float *x = r->x, *y __attribute__((unused)) = r->y;                   \
                                                                                            \
		for (uint64_t b = begin; b < end; b++) {                                    \
			uint64_t i = reduce_begin(&r->rb, b), last = reduce_end(&r->rb, b); \
			double sums[NSUMS] = { 0 };                                         \
                                                                                            \
			for (; i + NSUMS <= last; i += NSUMS)                               \
				for (uint64_t j = 0; j < NSUMS; j++)                        \
					sums[j] += TERM(i + j);                             \
			for (uint64_t j = 0; i < last; i++, j++)                            \
				sums[j] += TERM(i);                                         \
			r->partial[b] = sums_join(sums);                                    \
		}                                                                           \
	}

#define TERM_SUM(i)  ((double)x[i])
#define TERM_DOT(i)  ((double)x[i] * (double)y[i])
#define TERM_DIFF(i) ((double)x[i] - (double)y[i])

REDUCTION(sum_blocks, TERM_SUM)
REDUCTION(dot_blocks, TERM_DOT)
REDUCTION(diff_blocks, TERM_DIFF)

static double reduce(struct gantry_env *env, struct reduction *r,
		     void (*blocks)(void *arg, uint64_t begin, uint64_t end))
{
	double total = 0;

	env->parallel(env, r->rb.nblocks, 1, blocks, r);
	for (uint64_t b = 0; b < r->rb.nblocks; b++)
		total += r->partial[b];
	return total;
}

KERNEL(sum)
{
	uint64_t n = call->args[2].u64;
	struct reduction r = { .rb = reduce_blocks(n), .x = ARG(float, call, 0, n) };
	float *ret_sum = ARG(float, call, 1, 1);

	if (!r.x || !ret_sum)
		return -EINVAL;
	*ret_sum = (float)reduce(env, &r, sum_blocks);
	return 0;
}

KERNEL(dot)
{
	uint64_t n = call->args[3].u64;
	struct reduction r = {
		.rb = reduce_blocks(n),
		.x = ARG(float, call, 0, n),
		.y = ARG(float, call, 1, n),
	};
	float *ret_dot = ARG(float, call, 2, 1);

	if (!r.x || !r.y || !ret_dot)
		return -EINVAL;
	*ret_dot = (float)reduce(env, &r, dot_blocks);
	return 0;
}

KERNEL(vreduce_diff)
{
	uint64_t n = call->args[3].u64;
	struct reduction r = {
		.rb = reduce_blocks(n),
		.x = ARG(float, call, 0, n),
		.y = ARG(float, call, 1, n),
	};
	float *total = ARG(float, call, 2, 1);

	if (!r.x || !r.y || !total)
		return -EINVAL;
	*total = (float)((double)*total + reduce(env, &r, diff_blocks));
	return 0;
}
