/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on bytes, vectors, random numbers and options, and of those that measure. */
#include "devices/kernels/core/cuda/body.h"

/* Elements that one thread of a map takes at a time. */
#define MAP_PART 4u

KERNEL(empty)
{
	const struct gpu_nothing nothing = { 0 };

	return gpu_launch(env, GPU_empty, 1, 32, &nothing);
}

KERNEL(spin)
{
	struct gpu_spin s = {
		.ns = call->args[0].u64,
		.verdict = gpu_calls(env)->verdict(env),
	};

	if (!s.verdict)
		return -EAGAIN;
	return gpu_launch(env, GPU_spin, 1, 32, &s);
}

KERNEL(fill)
{
	uint64_t n = call->args[1].u64;
	uint32_t *dst = ARG(uint32_t, call, 0, n);

	if (!dst)
		return -EINVAL;
	return n == 0 ? 0 : gpu_calls(env)->set(env, dst, call->args[2].u32, sizeof(*dst), n);
}

KERNEL(copy)
{
	uint64_t n = call->args[2].u64;
	struct gpu_move m = {
		.src = ARG(uint8_t, call, 0, n),
		.dst = ARG(uint8_t, call, 1, n),
		.n = n,
	};
	uintptr_t src = (uintptr_t)m.src, dst = (uintptr_t)m.dst;

	if (!m.src || !m.dst)
		return -EINVAL;
	if (n == 0 || src == dst)
		return 0;
	if (src < dst + n && dst < src + n)
		return gpu_launch_together(env, GPU_move, gpu_parts(n, GPU_THREADS * 16u),
					   GPU_THREADS, &m);
	return gpu_calls(env)->copy(env, m.dst, m.src, n);
}

KERNEL(checksum)
{
	uint64_t n = call->args[2].u64;
	struct gpu_checksum c = {
		.bytes = ARG(uint8_t, call, 0, n),
		.sum = ARG(uint64_t, call, 1, 1),
		.n = n,
	};
	int r;

	if (!c.bytes || !c.sum)
		return -EINVAL;
	r = gpu_calls(env)->set(env, c.sum, 0, sizeof(uint32_t), 2);
	if (r < 0)
		return r;
	return gpu_launch_items(env, GPU_checksum, n / 8 + 1, &c);
}

static int map(struct gantry_env *env, enum gpu_function function, const struct gpu_vectors *v)
{
	return gpu_launch_items(env, function, gpu_parts(v->n, MAP_PART), v);
}

KERNEL(vadd)
{
	uint64_t n = call->args[3].u64;
	const struct gpu_vectors v = {
		.x = ARG(float, call, 0, n),
		.y = ARG(float, call, 1, n),
		.out = ARG(float, call, 2, n),
		.n = n,
	};

	return v.x && v.y && v.out ? map(env, GPU_vadd, &v) : -EINVAL;
}

/* vscale and saxpy differ in what they do with the last vector. */
static int map_scaled(struct gantry_env *env, const struct gantry_call *call,
		      enum gpu_function function)
{
	uint64_t n = call->args[3].u64;
	const struct gpu_vectors v = {
		.alpha = call->args[0].f32,
		.x = ARG(float, call, 1, n),
		.out = ARG(float, call, 2, n),
		.n = n,
	};

	return v.x && v.out ? map(env, function, &v) : -EINVAL;
}

KERNEL(vscale)
{
	return map_scaled(env, call, GPU_vscale);
}

KERNEL(saxpy)
{
	return map_scaled(env, call, GPU_saxpy);
}

KERNEL(vsquare)
{
	uint64_t n = call->args[2].u64;
	const struct gpu_vectors v = {
		.x = ARG(float, call, 0, n),
		.out = ARG(float, call, 1, n),
		.n = n,
	};

	return v.x && v.out ? map(env, GPU_vsquare, &v) : -EINVAL;
}

/* @x, @y and @out are checked. */
static int reduce(struct gantry_env *env, enum gpu_function function, const float *x,
		  const float *y, float *out, uint64_t n, bool adds)
{
	uint64_t block = gantry_max_u64(n / GPU_REDUCE_BLOCKS_MAX + 1, GPU_REDUCE_BLOCK_MIN);
	struct gpu_reduce part = { .x = x, .y = y, .n = n };
	struct gpu_join join = { .out = out, .adds = adds };
	int r;

	part.block = gpu_parts(block, 4) * 4;
	part.partial = SCRATCH(double, env, GPU_REDUCE_BLOCKS_MAX);
	if (!part.partial)
		return -ENOMEM;
	join.partial = part.partial;
	join.npartial = (uint32_t)gpu_parts(n, part.block);
	r = gpu_launch(env, function, join.npartial, GPU_THREADS, &part);
	return r < 0 ? r : gpu_launch(env, GPU_reduce_join, 1, GPU_THREADS, &join);
}

KERNEL(sum)
{
	uint64_t n = call->args[2].u64;
	const float *x = ARG(float, call, 0, n);
	float *out = ARG(float, call, 1, 1);

	return x && out ? reduce(env, GPU_reduce_sum, x, x, out, n, false) : -EINVAL;
}

KERNEL(dot)
{
	uint64_t n = call->args[3].u64;
	const float *x = ARG(float, call, 0, n), *y = ARG(float, call, 1, n);
	float *out = ARG(float, call, 2, 1);

	return x && y && out ? reduce(env, GPU_reduce_dot, x, y, out, n, false) : -EINVAL;
}

KERNEL(vreduce_diff)
{
	uint64_t n = call->args[3].u64;
	const float *x = ARG(float, call, 0, n), *y = ARG(float, call, 1, n);
	float *total = ARG(float, call, 2, 1);

	return x && y && total ? reduce(env, GPU_reduce_diff, x, y, total, n, true) : -EINVAL;
}

/* Numbers that one thread makes at a time: four counters' words. */
#define NUMBERS_PART 16u

static int numbers(struct gantry_env *env, const struct gantry_call *call,
		   enum gpu_function function, bool scaled)
{
	uint64_t n = call->args[1].u64;
	const struct gpu_numbers nb = {
		.out = ARG(uint32_t, call, 0, n),
		.n = n,
		.seed = call->args[2].u64,
		.offset = call->args[3].u64,
		.shift = scaled ? call->args[4].f32 : 0,
		.scale = scaled ? call->args[5].f32 : 0,
	};

	if (!nb.out)
		return -EINVAL;
	/* A range that begins inside a counter may touch one more; every thread loops. */
	return gpu_launch_items(env, function, gpu_parts(n, NUMBERS_PART), &nb);
}

KERNEL(random_u32)
{
	return numbers(env, call, GPU_random_u32, false);
}

KERNEL(random_uniform)
{
	return numbers(env, call, GPU_random_uniform, true);
}

KERNEL(random_normal)
{
	return numbers(env, call, GPU_random_normal, true);
}

KERNEL(black_scholes)
{
	uint64_t n = call->args[2].u64;
	const struct gpu_option o = {
		.spot = ARG(double, call, 0, n),
		.price = ARG(double, call, 1, n),
		.n = n,
		.rate = call->args[3].f64,
		.volatility = call->args[4].f64,
		.years = call->args[5].f64,
		.strike = call->args[6].f64,
	};

	return o.spot && o.price ? gpu_launch_items(env, GPU_option, n, &o) : -EINVAL;
}

KERNEL(black_scholes_book)
{
	uint64_t n = call->args[5].u64;
	const struct gpu_book b = {
		.spot = ARG(float, call, 0, n),
		.strike = ARG(float, call, 1, n),
		.years = ARG(float, call, 2, n),
		.call = ARG(float, call, 3, n),
		.put = ARG(float, call, 4, n),
		.n = n,
		.rate = call->args[6].f32,
		.volatility = call->args[7].f32,
	};

	if (!b.spot || !b.strike || !b.years || !b.call || !b.put)
		return -EINVAL;
	return gpu_launch_items(env, GPU_book, n, &b);
}
