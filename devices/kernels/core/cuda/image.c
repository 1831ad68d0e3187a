/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on photographs. */
#include <math.h>

#include "devices/kernels/core/cuda/body.h"

static void weights_make(struct gpu_blur *b, double sigma)
{
	double weights[GPU_BLUR_RADIUS_MAX + 1], sum = 0;

	for (uint32_t i = 0; i <= b->radius; i++) {
		weights[i] = exp(-(double)(i * i) / (2 * sigma * sigma));
		sum += i == 0 ? weights[i] : 2 * weights[i];
	}
	for (uint32_t i = 0; i <= b->radius; i++)
		b->weights[i] = (float)(weights[i] / sum);
}

KERNEL(gaussian_blur)
{
	struct gpu_blur b = {
		.width = call->args[2].u32,
		.height = call->args[3].u32,
		.channels = call->args[4].u32,
		.radius = call->args[5].u32,
	};
	float sigma = call->args[6].f32;
	uint64_t count, stride = b.width * b.channels;
	int r;

	if (b.channels == 0 || b.channels > GPU_CHANNELS_MAX || b.radius > GPU_BLUR_RADIUS_MAX ||
	    !(sigma > 0 && isfinite(sigma)) || !product3(b.width, b.height, b.channels, &count))
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
	r = gpu_launch(env, GPU_blur_columns,
		       gpu_parts(stride, GPU_BLUR_COLS) * gpu_parts(b.height, GPU_BLUR_ROWS),
		       GPU_THREADS, &b);
	if (r < 0)
		return r;
	return gpu_launch(env, GPU_blur_rows, gpu_parts(stride, GPU_THREADS) * b.height,
			  GPU_THREADS, &b);
}

KERNEL(grayscale)
{
	struct gpu_image im = { .n = call->args[2].u64 };
	uint64_t nbytes;

	if (gantry_mul_u64(im.n, 3, &nbytes) < 0)
		return -EINVAL;
	im.a = ARG(uint8_t, call, 0, nbytes);
	im.dst = ARG(uint8_t, call, 1, im.n);
	if (!im.a || !im.dst)
		return -EINVAL;
	return gpu_launch_items(env, GPU_grayscale, gpu_parts(im.n, 4), &im);
}

KERNEL(sobel)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	const struct gpu_image im = {
		.a = ARG(uint8_t, call, 0, width * height),
		.dst = ARG(uint8_t, call, 1, width * height),
		.width = width,
		.height = height,
	};

	if (!im.a || !im.dst)
		return -EINVAL;
	return gpu_launch(env, GPU_sobel, gpu_parts(width, GPU_THREADS) * height, GPU_THREADS, &im);
}

KERNEL(unsharp)
{
	uint64_t n = call->args[3].u64;
	const struct gpu_image im = {
		.a = ARG(uint8_t, call, 0, n),
		.b = ARG(uint8_t, call, 1, n),
		.dst = ARG(uint8_t, call, 2, n),
		.n = n,
		.amount = call->args[4].f32,
	};

	if (!im.a || !im.b || !im.dst)
		return -EINVAL;
	return gpu_launch_items(env, GPU_unsharp, gpu_parts(n, 4), &im);
}

KERNEL(combine)
{
	struct gpu_image im = { .n = call->args[4].u64, .channels = call->args[5].u32 };
	uint64_t count;

	if (im.channels == 0 || im.channels > GPU_CHANNELS_MAX ||
	    gantry_mul_u64(im.n, im.channels, &count) < 0)
		return -EINVAL;
	im.a = ARG(uint8_t, call, 0, count);
	im.b = ARG(uint8_t, call, 1, count);
	im.mask = ARG(uint8_t, call, 2, im.n);
	im.dst = ARG(uint8_t, call, 3, count);
	if (!im.a || !im.b || !im.mask || !im.dst)
		return -EINVAL;
	return gpu_launch_items(env, GPU_combine, count, &im);
}
