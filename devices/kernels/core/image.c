/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels on photographs: rows of 8-bit pixels, 1 to 4 channels side by side, no padding. Beyond an
 * edge the edge's pixel repeats.
 */
#include <math.h>
#include <string.h>

#include "devices/kernels/kernel.h"

#define PIXEL_GRAIN  16384u
#define ROW_GRAIN    8u
#define CHANNELS_MAX 4u
/* Keeps the weights on the stack; past 3 sigma of 80 pixels nobody blurs a photograph this way. */
#define RADIUS_MAX 256u
/* Elements summed at once: they stay in the first-level cache while the taps pass over them. */
#define STRIP 512u

/* NaN becomes 0. */
static inline uint8_t to_byte(float value)
{
	value += 0.5f;
	value = value > 0.0f ? value : 0.0f;
	return (uint8_t)(value < 255.0f ? value : 255.0f);
}

struct blur {
	const uint8_t *src;
	float *between; /* after the vertical pass */
	uint8_t *dst;
	int64_t width, height, channels, radius;
	float weights[RADIUS_MAX + 1]; /* by distance */
};

HOT static void add_bytes(float *sum, const uint8_t *row, float weight, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += weight * (float)row[i];
}

HOT static void add_floats(float *sum, const float *row, float weight, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		sum[i] += weight * row[i];
}

static void blur_columns(void *arg, uint64_t begin, uint64_t end)
{
	const struct blur *b = arg;
	int64_t stride = b->width * b->channels;

	memset(b->between + begin * (uint64_t)stride, 0,
	       (end - begin) * (uint64_t)stride * sizeof(*b->between));
	for (int64_t y = (int64_t)begin; y < (int64_t)end; y++)
		for (int64_t tap = -b->radius; tap <= b->radius; tap++)
			add_bytes(b->between + y * stride,
				  b->src + clamp_index(y + tap, b->height) * stride,
				  b->weights[tap < 0 ? -tap : tap], stride);
}

/* Elements [begin, end) of a row, all of whose taps stay inside it. */
HOT static void blur_row_inside(const struct blur *b, const float *row, uint8_t *out, int64_t begin,
				int64_t end)
{
	for (int64_t at = begin; at < end; at += STRIP) {
		int64_t n = end - at < (int64_t)STRIP ? end - at : (int64_t)STRIP;
		float sum[STRIP] = { 0 };

		for (int64_t tap = -b->radius; tap <= b->radius; tap++)
			add_floats(sum, row + at + tap * b->channels,
				   b->weights[tap < 0 ? -tap : tap], n);
		for (int64_t i = 0; i < n; i++)
			out[at + i] = to_byte(sum[i]);
	}
}

/* Pixels [begin, end) of a row, near its edges. */
static void blur_row_edge(const struct blur *b, const float *row, uint8_t *out, int64_t begin,
			  int64_t end)
{
	for (int64_t x = begin; x < end; x++)
		for (int64_t c = 0; c < b->channels; c++) {
			float sum = 0;

			for (int64_t tap = -b->radius; tap <= b->radius; tap++)
				sum += b->weights[tap < 0 ? -tap : tap] *
				       row[clamp_index(x + tap, b->width) * b->channels + c];
			out[x * b->channels + c] = to_byte(sum);
		}
}

static void blur_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct blur *b = arg;
	int64_t stride = b->width * b->channels;
	bool has_inside = b->width > 2 * b->radius;
	int64_t left = has_inside ? b->radius : b->width;
	int64_t right = has_inside ? b->width - b->radius : b->width;

	for (int64_t y = (int64_t)begin; y < (int64_t)end; y++) {
		const float *row = b->between + y * stride;
		uint8_t *out = b->dst + y * stride;

		blur_row_edge(b, row, out, 0, left);
		blur_row_inside(b, row, out, left * b->channels, right * b->channels);
		blur_row_edge(b, row, out, right, b->width);
	}
}

static void weights_make(struct blur *b, double sigma)
{
	double weights[RADIUS_MAX + 1], sum = 0;

	for (int64_t i = 0; i <= b->radius; i++) {
		weights[i] = exp(-(double)(i * i) / (2 * sigma * sigma));
		sum += i == 0 ? weights[i] : 2 * weights[i];
	}
	for (int64_t i = 0; i <= b->radius; i++)
		b->weights[i] = (float)(weights[i] / sum);
}

KERNEL(gaussian_blur)
{
	uint32_t width = call->args[2].u32, height = call->args[3].u32;
	uint32_t channels = call->args[4].u32, radius = call->args[5].u32;
	float sigma = call->args[6].f32;
	struct blur b = {
		.width = width, .height = height, .channels = channels, .radius = radius
	};
	uint64_t count;

	if (channels == 0 || channels > CHANNELS_MAX || radius > RADIUS_MAX ||
	    !(sigma > 0 && isfinite(sigma)) || !product3(width, height, channels, &count))
		return -EINVAL;
	b.src = ARG(uint8_t, call, 0, count);
	b.dst = ARG(uint8_t, call, 1, count);
	if (!b.src || !b.dst)
		return -EINVAL;
	if (count == 0)
		return 0;
	b.between = SCRATCH(float, env, count);
	if (!b.between)
		return -ENOMEM;

	weights_make(&b, (double)sigma);
	env->parallel(env, height, ROW_GRAIN, blur_columns, &b);
	if (env->cancelled(env))
		return -ECANCELED;
	env->parallel(env, height, ROW_GRAIN, blur_rows, &b);
	return 0;
}

struct image {
	const uint8_t *src;
	uint8_t *dst;
	uint64_t width, height;
};

HOT static void gray_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct image *im = arg;
	const uint8_t *rgb = im->src;
	uint8_t *gray = im->dst;

	/* The luma of BT.601 in 1/256. */
	for (uint64_t i = begin; i < end; i++)
		gray[i] = (uint8_t)((77u * rgb[3 * i] + 150u * rgb[3 * i + 1] +
				     29u * rgb[3 * i + 2] + 128u) >>
				    8);
}

KERNEL(grayscale)
{
	uint64_t n = call->args[2].u64, nbytes;
	struct image im = { 0 };

	if (gantry_mul_u64(n, 3, &nbytes) < 0)
		return -EINVAL;
	im.src = ARG(uint8_t, call, 0, nbytes);
	im.dst = ARG(uint8_t, call, 1, n);
	if (!im.src || !im.dst)
		return -EINVAL;
	env->parallel(env, n, PIXEL_GRAIN, gray_range, &im);
	return 0;
}

static inline uint8_t gradient(const uint8_t *up, const uint8_t *mid, const uint8_t *down,
			       uint64_t left, uint64_t x, uint64_t right)
{
	int across = up[right] + 2 * mid[right] + down[right] - up[left] - 2 * mid[left] -
		     down[left];
	int along = down[left] + 2 * down[x] + down[right] - up[left] - 2 * up[x] - up[right];

	return to_byte(sqrtf((float)(across * across + along * along)));
}

HOT static void sobel_rows(void *arg, uint64_t begin, uint64_t end)
{
	const struct image *im = arg;
	uint64_t width = im->width, last = width - 1;

	for (uint64_t y = begin; y < end; y++) {
		const uint8_t *mid = im->src + y * width;
		const uint8_t *up = y == 0 ? mid : mid - width;
		const uint8_t *down = y + 1 == im->height ? mid : mid + width;
		uint8_t *out = im->dst + y * width;

		out[0] = gradient(up, mid, down, 0, 0, width > 1 ? 1 : 0);
		for (uint64_t x = 1; x < last; x++)
			out[x] = gradient(up, mid, down, x - 1, x, x + 1);
		if (last > 0)
			out[last] = gradient(up, mid, down, last - 1, last, last);
	}
}

KERNEL(sobel)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	struct image im = {
		.src = ARG(uint8_t, call, 0, width * height),
		.dst = ARG(uint8_t, call, 1, width * height),
		.width = width,
		.height = height,
	};

	if (!im.src || !im.dst)
		return -EINVAL;
	if (width != 0)
		env->parallel(env, height, ROW_GRAIN, sobel_rows, &im);
	return 0;
}

struct sharpen {
	const uint8_t *src;
	const uint8_t *blurred;
	uint8_t *dst;
	float amount;
};

HOT static void sharpen_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct sharpen *s = arg;
	const uint8_t *src = s->src, *blurred = s->blurred;
	uint8_t *dst = s->dst;
	float amount = s->amount;

	for (uint64_t i = begin; i < end; i++) {
		float value = (float)src[i];

		dst[i] = to_byte(value + amount * (value - (float)blurred[i]));
	}
}

KERNEL(unsharp)
{
	uint64_t n = call->args[3].u64;
	struct sharpen s = {
		.src = ARG(uint8_t, call, 0, n),
		.blurred = ARG(uint8_t, call, 1, n),
		.dst = ARG(uint8_t, call, 2, n),
		.amount = call->args[4].f32,
	};

	if (!s.src || !s.blurred || !s.dst)
		return -EINVAL;
	env->parallel(env, n, PIXEL_GRAIN, sharpen_range, &s);
	return 0;
}

struct combine {
	const uint8_t *a, *b, *mask;
	uint8_t *dst;
	uint64_t channels;
};

HOT static void combine_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct combine *m = arg;
	uint64_t channels = m->channels;

	for (uint64_t i = begin; i < end; i++) {
		uint32_t share = m->mask[i];

		for (uint64_t j = i * channels; j < (i + 1) * channels; j++)
			m->dst[j] = (uint8_t)((m->a[j] * share + m->b[j] * (255u - share) + 127u) /
					      255u);
	}
}

KERNEL(combine)
{
	uint64_t npixels = call->args[4].u64, channels = call->args[5].u32, count;
	struct combine m = { .channels = channels };

	if (channels == 0 || channels > CHANNELS_MAX ||
	    gantry_mul_u64(npixels, channels, &count) < 0)
		return -EINVAL;
	m.a = ARG(uint8_t, call, 0, count);
	m.b = ARG(uint8_t, call, 1, count);
	m.mask = ARG(uint8_t, call, 2, npixels);
	m.dst = ARG(uint8_t, call, 3, count);
	if (!m.a || !m.b || !m.mask || !m.dst)
		return -EINVAL;
	env->parallel(env, npixels, PIXEL_GRAIN, combine_range, &m);
	return 0;
}
