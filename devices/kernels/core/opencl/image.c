/* SPDX-License-Identifier: Apache-2.0 */
/* Host side of the kernels on photographs. */
#include <math.h>

#include "devices/kernels/core/opencl/body.h"

#define CHANNELS_MAX 4u
#define RADIUS_MAX   256u

KERNEL(gaussian_blur)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	uint64_t channels = call->args[4].u32;
	uint32_t radius = call->args[5].u32;
	float sigma = call->args[6].f32;
	ocl_buffer src, dst, between, weights;
	uint64_t count;
	int r;

	if (channels == 0 || channels > CHANNELS_MAX || radius > RADIUS_MAX ||
	    !(sigma > 0 && isfinite(sigma)) || !product3(width, height, channels, &count))
		return -EINVAL;
	src = ARG(uint8_t, call, 0, count);
	dst = ARG(uint8_t, call, 1, count);
	if (!src || !dst)
		return -EINVAL;
	if (count == 0)
		return 0;
	between = SCRATCH(float, env, count);
	weights = SCRATCH(float, env, RADIUS_MAX + 1);
	if (!between || !weights)
		return -ENOMEM;
	r = LAUNCH_GROUP(env, OCL_blur_weights, BUF(weights), VAL(radius), VAL(sigma));
	if (r == 0)
		r = LAUNCH_ITEMS(env, OCL_blur_columns, count, BUF(src), BUF(between), BUF(weights),
				 VAL(width), VAL(height), VAL(channels), VAL(radius));
	if (r == 0)
		r = LAUNCH_ITEMS(env, OCL_blur_rows, count, BUF(between), BUF(dst), BUF(weights),
				 VAL(width), VAL(height), VAL(channels), VAL(radius));
	return r;
}

KERNEL(grayscale)
{
	uint64_t n = call->args[2].u64, nbytes;
	ocl_buffer rgb, gray;

	if (gantry_mul_u64(n, 3, &nbytes) < 0)
		return -EINVAL;
	rgb = ARG(uint8_t, call, 0, nbytes);
	gray = ARG(uint8_t, call, 1, n);
	if (!rgb || !gray)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_grayscale, n, BUF(rgb), BUF(gray), VAL(n));
}

KERNEL(sobel)
{
	uint64_t width = call->args[2].u32, height = call->args[3].u32;
	ocl_buffer src = ARG(uint8_t, call, 0, width * height);
	ocl_buffer dst = ARG(uint8_t, call, 1, width * height);

	if (!src || !dst)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_sobel, width * height, BUF(src), BUF(dst), VAL(width),
			    VAL(height));
}

KERNEL(unsharp)
{
	uint64_t n = call->args[3].u64;
	float amount = call->args[4].f32;
	ocl_buffer src = ARG(uint8_t, call, 0, n), blurred = ARG(uint8_t, call, 1, n);
	ocl_buffer dst = ARG(uint8_t, call, 2, n);

	if (!src || !blurred || !dst)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_unsharp, n, BUF(src), BUF(blurred), BUF(dst), VAL(n),
			    VAL(amount));
}

KERNEL(combine)
{
	uint64_t npixels = call->args[4].u64, channels = call->args[5].u32, count;
	ocl_buffer a, b, mask, dst;

	if (channels == 0 || channels > CHANNELS_MAX ||
	    gantry_mul_u64(npixels, channels, &count) < 0)
		return -EINVAL;
	a = ARG(uint8_t, call, 0, count);
	b = ARG(uint8_t, call, 1, count);
	mask = ARG(uint8_t, call, 2, npixels);
	dst = ARG(uint8_t, call, 3, count);
	if (!a || !b || !mask || !dst)
		return -EINVAL;
	return LAUNCH_ITEMS(env, OCL_combine, count, BUF(a), BUF(b), BUF(mask), BUF(dst),
			    VAL(count), VAL(channels));
}
