/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of f32. A thread writes only elements that it alone reads, so maps work in place. */
#include "devices/kernels/core/cuda/gpu.h"

/* out[i] = f(x[i], y[i]), four at a time where the ranges allow. */
template <class F>
DEVICE void map(const float *x, const float *y, float *out, uint64_t n, F f)
{
	uint64_t nwide = is_wide(x) && is_wide(y) && is_wide(out) ? n / 4 : 0;

	for (uint64_t i = first_item(); i < nwide; i += item_step()) {
		float4 p = ((const float4 *)x)[i], q = ((const float4 *)y)[i];

		((float4 *)out)[i] =
			make_float4(f(p.x, q.x), f(p.y, q.y), f(p.z, q.z), f(p.w, q.w));
	}
	for (uint64_t i = 4 * nwide + first_item(); i < n; i += item_step())
		out[i] = f(x[i], y[i]);
}

/* The same with one input: the second load would cost, as the compiler cannot know it is the first's. */
template <class F> DEVICE void map(const float *x, float *out, uint64_t n, F f)
{
	uint64_t nwide = is_wide(x) && is_wide(out) ? n / 4 : 0;

	for (uint64_t i = first_item(); i < nwide; i += item_step()) {
		float4 p = ((const float4 *)x)[i];

		((float4 *)out)[i] = make_float4(f(p.x), f(p.y), f(p.z), f(p.w));
	}
	for (uint64_t i = 4 * nwide + first_item(); i < n; i += item_step())
		out[i] = f(x[i]);
}

ENTRY(vadd, struct gpu_vectors, GPU_THREADS)
{
	map(a.x, a.y, a.out, a.n, [](float x, float y) { return x + y; });
}

ENTRY(vscale, struct gpu_vectors, GPU_THREADS)
{
	float alpha = a.alpha;

	map(a.x, a.out, a.n, [=](float x) { return alpha * x; });
}

ENTRY(saxpy, struct gpu_vectors, GPU_THREADS)
{
	float alpha = a.alpha;

	map(a.x, a.out, a.out, a.n, [=](float x, float y) { return y + alpha * x; });
}

ENTRY(vsquare, struct gpu_vectors, GPU_THREADS)
{
	map(a.x, a.out, a.n, [](float x) { return x * x; });
}

/* One partial sum per block of threads, over one stretch of the vector. */
template <class F> DEVICE void reduce(const struct gpu_reduce &a, F term)
{
	uint64_t begin = block_idx() * a.block, end = least_u64(begin + a.block, a.n);
	bool wide = is_wide(a.x) && is_wide(a.y);
	uint64_t nwide = wide ? (end - begin) / 4 : 0;
	const float4 *x = (const float4 *)(a.x + begin), *y = (const float4 *)(a.y + begin);
	double sum = 0, other = 0;
	SHARED(double, sums, 32);

	for (uint64_t i = thread_idx(); i < nwide; i += block_threads()) {
		float4 p = x[i], q = y[i];

		sum += term(p.x, q.x) + term(p.y, q.y);
		other += term(p.z, q.z) + term(p.w, q.w);
	}
	for (uint64_t i = begin + 4 * nwide + thread_idx(); i < end; i += block_threads())
		sum += term(a.x[i], a.y[i]);
	sum = block_sum(sum + other, sums);
	if (thread_idx() == 0)
		a.partial[block_idx()] = sum;
}

ENTRY(reduce_sum, struct gpu_reduce, GPU_THREADS)
{
	/* y is x here, and the second load the same. */
	reduce(a, [](float x, float) { return (double)x; });
}

ENTRY(reduce_dot, struct gpu_reduce, GPU_THREADS)
{
	reduce(a, [](float x, float y) { return (double)x * (double)y; });
}

ENTRY(reduce_diff, struct gpu_reduce, GPU_THREADS)
{
	reduce(a, [](float x, float y) { return (double)x - (double)y; });
}

/* One block. */
ENTRY(reduce_join, struct gpu_join, GPU_THREADS)
{
	double sum = 0;
	SHARED(double, sums, 32);

	for (uint32_t i = thread_idx(); i < a.npartial; i += block_threads())
		sum += a.partial[i];
	sum = block_sum(sum, sums);
	if (thread_idx() == 0)
		*a.out = (float)(a.adds ? (double)*a.out + sum : sum);
}
