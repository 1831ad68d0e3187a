/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on bytes, vectors, random numbers and options. */
#include "devices/kernels/core/opencl/body.h"

KERNEL(empty)
{
	static const uint32_t none;

	return LAUNCH_GROUP(env, OCL_empty, VAL(none));
}

#define NS_PER_MS 1000000u

/* Rounds of a loop, as device code has no clock: what the device does for others meanwhile is not in the time. */
KERNEL(spin)
{
	const struct gantry_opencl_calls *calls = ocl_calls(env);
	uint64_t ns = call->args[0].u64, nrounds;
	ocl_buffer verdict = calls->verdict(env);

	if (!verdict)
		return -ENOMEM;
	/* Ages are as good as for ever. */
	if (gantry_mul_u64(ns / NS_PER_MS, calls->rounds_per_ms, &nrounds) < 0 ||
	    gantry_add_u64(nrounds, ns % NS_PER_MS * calls->rounds_per_ms / NS_PER_MS, &nrounds) <
		    0)
		nrounds = UINT64_MAX;
	return LAUNCH_GROUP(env, OCL_spin, BUF(verdict), VAL(nrounds));
}

KERNEL(fill)
{
	uint64_t n = call->args[1].u64;
	ocl_buffer dst = ARG(uint32_t, call, 0, n);

	if (!dst)
		return -EINVAL;
	return n == 0 ? 0
		      : ocl_calls(env)->set(env, dst, 0, call->args[2].u32, sizeof(uint32_t), n);
}

KERNEL(copy)
{
	uint64_t n = call->args[2].u64;
	ocl_buffer src = ARG(uint8_t, call, 0, n), dst = ARG(uint8_t, call, 1, n);

	if (!src || !dst)
		return -EINVAL;
	return n == 0 ? 0 : ocl_calls(env)->copy(env, dst, src, n);
}

/* Blocks as on the cpu, so that sums have the same bits. */
KERNEL(checksum)
{
	uint64_t n = call->args[2].u64;
	struct reduce_blocks rb = reduce_blocks(n / 8);
	ocl_buffer bytes = ARG(uint8_t, call, 0, n), sum = ARG(uint64_t, call, 1, 1);
	ocl_buffer partial;
	int r;

	if (!bytes || !sum)
		return -EINVAL;
	partial = SCRATCH(uint64_t, env, REDUCE_BLOCKS_MAX);
	if (!partial)
		return -ENOMEM;
	r = LAUNCH_ITEMS(env, OCL_checksum, rb.nblocks, BUF(bytes), BUF(partial), VAL(rb.n),
			 VAL(rb.block), VAL(rb.nblocks));
	if (r < 0)
		return r;
	return LAUNCH_GROUP(env, OCL_checksum_join, BUF(bytes), BUF(partial), BUF(sum), VAL(n),
			    VAL(rb.nblocks));
}

KERNEL(vadd)
{
	uint64_t n = call->args[3].u64;
	ocl_buffer x = ARG(float, call, 0, n), y = ARG(float, call, 1, n);
	ocl_buffer out = ARG(float, call, 2, n);

	if (!x || !y || !out)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_vadd, n, BUF(x), BUF(y), BUF(out), VAL(n));
}

/* vscale and saxpy differ in what they do with the last vector. */
static int map_scaled(struct gantry_env *env, const struct gantry_call *call,
		      enum ocl_function function)
{
	uint64_t n = call->args[3].u64;
	float alpha = call->args[0].f32;
	ocl_buffer x = ARG(float, call, 1, n), out = ARG(float, call, 2, n);

	if (!x || !out)
		return -EINVAL;
	return LAUNCH_ITEMS(env, function, n, VAL(alpha), BUF(x), BUF(out), VAL(n));
}

KERNEL(vscale)
{
	return map_scaled(env, call, OCL_vscale);
}

KERNEL(saxpy)
{
	return map_scaled(env, call, OCL_saxpy);
}

KERNEL(vsquare)
{
	uint64_t n = call->args[2].u64;
	ocl_buffer x = ARG(float, call, 0, n), out = ARG(float, call, 1, n);

	if (!x || !out)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_vsquare, n, BUF(x), BUF(out), VAL(n));
}

/* The same words as in vector.cl. */
enum term {
	TERM_SUM = 0,
	TERM_DOT = 1,
	TERM_DIFF = 2,
};

static int reduce(struct gantry_env *env, enum term which, ocl_buffer x, ocl_buffer y,
		  ocl_buffer out, uint64_t n)
{
	struct reduce_blocks rb = reduce_blocks(n);
	uint32_t term = which, adds = which == TERM_DIFF;
	ocl_buffer partial;
	int r;

	if (!x || !y || !out)
		return -EINVAL;
	partial = SCRATCH(double, env, REDUCE_BLOCKS_MAX);
	if (!partial)
		return -ENOMEM;
	r = LAUNCH_ITEMS(env, OCL_reduce, rb.nblocks, BUF(x), BUF(y), BUF(partial), VAL(rb.n),
			 VAL(rb.block), VAL(rb.nblocks), VAL(term));
	if (r < 0)
		return r;
	return LAUNCH_GROUP(env, OCL_reduce_join, BUF(partial), BUF(out), VAL(rb.nblocks),
			    VAL(adds));
}

KERNEL(sum)
{
	uint64_t n = call->args[2].u64;
	ocl_buffer x = ARG(float, call, 0, n);

	return reduce(env, TERM_SUM, x, x, ARG(float, call, 1, 1), n);
}

KERNEL(dot)
{
	uint64_t n = call->args[3].u64;

	return reduce(env, TERM_DOT, ARG(float, call, 0, n), ARG(float, call, 1, n),
		      ARG(float, call, 2, 1), n);
}

KERNEL(vreduce_diff)
{
	uint64_t n = call->args[3].u64;

	return reduce(env, TERM_DIFF, ARG(float, call, 0, n), ARG(float, call, 1, n),
		      ARG(float, call, 2, 1), n);
}

/* Groups of four numbers, which are a counter's words, that @n numbers from @offset on touch. */
static uint64_t counters(uint64_t offset, uint64_t n)
{
	return n / 4 + (offset % 4 + n % 4 + 3) / 4;
}

KERNEL(random_u32)
{
	uint64_t n = call->args[1].u64, seed = call->args[2].u64, offset = call->args[3].u64;
	uint64_t ncounters = counters(offset, n);
	ocl_buffer out = ARG(uint32_t, call, 0, n);

	if (!out)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_random_u32, n == 0 ? 0 : ncounters, BUF(out), VAL(n),
			    VAL(seed), VAL(offset), VAL(ncounters));
}

static int floats(struct gantry_env *env, const struct gantry_call *call,
		  enum ocl_function function)
{
	uint64_t n = call->args[1].u64, seed = call->args[2].u64, offset = call->args[3].u64;
	uint64_t ncounters = counters(offset, n);
	float shift = call->args[4].f32, scale = call->args[5].f32;
	ocl_buffer out = ARG(float, call, 0, n);

	if (!out)
		return -EINVAL;
	return LAUNCH_ITEMS(env, function, n == 0 ? 0 : ncounters, BUF(out), VAL(n), VAL(seed),
			    VAL(offset), VAL(ncounters), VAL(shift), VAL(scale));
}

KERNEL(random_uniform)
{
	return floats(env, call, OCL_random_uniform);
}

KERNEL(random_normal)
{
	return floats(env, call, OCL_random_normal);
}

KERNEL(black_scholes)
{
	uint64_t n = call->args[2].u64;
	double rate = call->args[3].f64, volatility = call->args[4].f64;
	double years = call->args[5].f64, strike = call->args[6].f64;
	ocl_buffer spot = ARG(double, call, 0, n), price = ARG(double, call, 1, n);

	if (!spot || !price)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_option, n, BUF(spot), BUF(price), VAL(n), VAL(rate),
			    VAL(volatility), VAL(years), VAL(strike));
}

KERNEL(black_scholes_book)
{
	uint64_t n = call->args[5].u64;
	float rate = call->args[6].f32, volatility = call->args[7].f32;
	ocl_buffer spot = ARG(float, call, 0, n), strike = ARG(float, call, 1, n);
	ocl_buffer years = ARG(float, call, 2, n), calls = ARG(float, call, 3, n);
	ocl_buffer puts = ARG(float, call, 4, n);

	if (!spot || !strike || !years || !calls || !puts)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_book, n, BUF(spot), BUF(strike), BUF(years), BUF(calls),
			    BUF(puts), VAL(n), VAL(rate), VAL(volatility));
}
