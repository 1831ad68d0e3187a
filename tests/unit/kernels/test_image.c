/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_gaussian_blur, gantry_kernel_grayscale, gantry_kernel_sobel,
	gantry_kernel_unsharp, gantry_kernel_combine;

static uint8_t *noise(struct test_env *te, size_t count, uint32_t seed)
{
	uint8_t *bytes = env_array(te, count, 1);

	for (size_t i = 0; i < count; i++)
		bytes[i] = (uint8_t)(env_random(&seed) >> 8);
	return bytes;
}

static int clamp(int at, int size)
{
	return at < 0 ? 0 : at < size ? at : size - 1;
}

/* The full two-dimensional sum, in double. */
static double blurred(const uint8_t *src, int width, int height, int channels, int radius,
		      double sigma, int x, int y, int c)
{
	double sum = 0, weights = 0;

	for (int dy = -radius; dy <= radius; dy++)
		for (int dx = -radius; dx <= radius; dx++) {
			double weight = exp(-(dx * dx + dy * dy) / (2 * sigma * sigma));

			sum += weight * src[(clamp(y + dy, height) * width + clamp(x + dx, width)) *
						    channels +
					    c];
			weights += weight;
		}
	return sum / weights;
}

static const struct {
	int width, height, channels, radius;
	float sigma;
} blurs[] = {
	{ 1, 1, 1, 3, 1 },	{ 5, 3, 3, 4, 2 },   { 67, 41, 3, 5, 1.7f },
	{ 700, 3, 1, 2, 0.8f }, { 31, 29, 4, 0, 1 }, { 9, 40, 2, 4, 1e-20f },
};

START_TEST(test_gaussian_blur_equals_two_dimensional_sum)
{
	int width = blurs[_i].width, height = blurs[_i].height, channels = blurs[_i].channels;
	size_t count = (size_t)(width * height * channels);
	struct test_env te;
	uint8_t *src, *dst;

	env_init(&te, ENV_THREADS);
	src = noise(&te, count, 3);
	dst = env_array(&te, count, 1);
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_blur, SPAN(src, count), SPAN(dst, count),
			     U32((uint32_t)width), U32((uint32_t)height), U32((uint32_t)channels),
			     U32((uint32_t)blurs[_i].radius), F32(blurs[_i].sigma)),
			 0);
	for (int i = 0; i < (int)count; i++)
		/* Half a step of rounding. */
		ASSERT_NEAR(dst[i],
			    blurred(src, width, height, channels, blurs[_i].radius,
				    (double)blurs[_i].sigma, i / channels % width,
				    i / channels / width, i % channels),
			    0.501);
	env_fini(&te);
}
END_TEST

START_TEST(test_gaussian_blur_keeps_even_picture)
{
	struct test_env te;
	uint8_t *src, *dst;

	env_init(&te, ENV_INLINE);
	src = env_array(&te, 300 * 20, 1);
	dst = env_array(&te, 300 * 20, 1);
	memset(src, 255, 300 * 20);
	ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_blur, SPAN(src, 300 * 20),
			     SPAN(dst, 300 * 20), U32(300), U32(20), U32(1), U32(100), F32(30)),
			 0);
	ck_assert_mem_eq(src, dst, 300 * 20);
	env_fini(&te);
}
END_TEST

START_TEST(test_gaussian_blur_misuse_is_refused)
{
	static const struct {
		uint32_t width, height, channels, radius;
		float sigma;
	} wrong[] = {
		{ 5, 4, 1, 1, 1 },	    { 4, 5, 1, 1, 1 },
		{ 4, 4, 2, 1, 1 },	    { 4, 4, 0, 1, 1 },
		{ 2, 2, 5, 1, 1 },	    { 4, 4, 1, 257, 1 },
		{ 4, 4, 1, 1, 0 },	    { 4, 4, 1, 1, -1 },
		{ 4, 4, 1, 1, NAN },	    { 4, 4, 1, 1, INFINITY },
		{ 4, 4, 1, UINT32_MAX, 1 }, { UINT32_MAX, UINT32_MAX, 4, 1, 1 },
	};
	struct test_env te;
	uint8_t *src, *dst;

	env_init(&te, ENV_INLINE);
	src = noise(&te, 16, 1);
	dst = env_array(&te, 16, 1);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_blur, SPAN(src, 16), SPAN(dst, 16),
				     U32(wrong[i].width), U32(wrong[i].height),
				     U32(wrong[i].channels), U32(wrong[i].radius),
				     F32(wrong[i].sigma)),
				 REFUSED(EINVAL));
	if (env_is_inside()) {
		te.scratch_limit_bytes = 16;
		ck_assert_int_eq(RUN(&te, gantry_kernel_gaussian_blur, SPAN(src, 16), SPAN(dst, 16),
				     U32(4), U32(4), U32(1), U32(1), F32(1)),
				 REFUSED(ENOMEM));
	}
	for (size_t i = 0; i < 16; i++)
		ck_assert_uint_eq(dst[i], 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_grayscale_weighs_channels)
{
	static const uint8_t rgb[] = { 255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255 };
	struct test_env te;
	uint8_t gray[5];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_grayscale, SPAN(rgb, 15), SPAN(gray, 5), U64(5)),
			 0);
	ck_assert_uint_eq(gray[0], 255);
	ck_assert_uint_eq(gray[1], 0);
	ASSERT_NEAR(gray[2], 0.299 * 255, 1);
	ASSERT_NEAR(gray[3], 0.587 * 255, 1);
	ASSERT_NEAR(gray[4], 0.114 * 255, 1);
	ck_assert_int_eq(RUN(&te, gantry_kernel_grayscale, SPAN(rgb, 14), SPAN(gray, 5), U64(5)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_grayscale, SPAN(rgb, 15), SPAN(gray, 4), U64(5)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_grayscale, SPAN(rgb, 15), SPAN(gray, 5),
			     U64(UINT64_MAX / 3 + 2)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

static double gradient(const uint8_t *src, int width, int height, int x, int y)
{
	static const int kernel[3][3] = { { -1, 0, 1 }, { -2, 0, 2 }, { -1, 0, 1 } };
	int across = 0, along = 0;

	for (int dy = -1; dy <= 1; dy++)
		for (int dx = -1; dx <= 1; dx++) {
			int value = src[clamp(y + dy, height) * width + clamp(x + dx, width)];

			across += kernel[dy + 1][dx + 1] * value;
			along += kernel[dx + 1][dy + 1] * value;
		}
	return fmin(255, sqrt(across * across + along * along));
}

START_TEST(test_sobel_equals_three_by_three_sum)
{
	static const int sizes[][2] = { { 1, 1 }, { 1, 9 }, { 9, 1 }, { 2, 2 }, { 101, 37 } };

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		int width = sizes[s][0], height = sizes[s][1];
		size_t count = (size_t)(width * height);
		struct test_env te;
		uint8_t *src, *dst;

		env_init(&te, (enum env_mode)_i);
		src = noise(&te, count, 5);
		dst = env_array(&te, count, 1);
		ck_assert_int_eq(RUN(&te, gantry_kernel_sobel, SPAN(src, count), SPAN(dst, count),
				     U32((uint32_t)width), U32((uint32_t)height)),
				 0);
		for (int i = 0; i < (int)count; i++)
			ASSERT_NEAR(dst[i], gradient(src, width, height, i % width, i / width),
				    0.501);
		ck_assert_int_eq(RUN(&te, gantry_kernel_sobel, SPAN(src, count), SPAN(dst, count),
				     U32((uint32_t)width + 1), U32((uint32_t)height)),
				 REFUSED(EINVAL));
		env_fini(&te);
	}
}
END_TEST

START_TEST(test_unsharp_clamps_and_survives_nan)
{
	static const uint8_t src[] = { 100, 200, 10, 50 }, soft[] = { 80, 100, 60, 50 };
	struct test_env te;
	uint8_t dst[4];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_unsharp, SPAN(src, 4), SPAN(soft, 4), SPAN(dst, 4),
			     U64(4), F32(1.5f)),
			 0);
	ck_assert_uint_eq(dst[0], 130);
	ck_assert_uint_eq(dst[1], 255);
	ck_assert_uint_eq(dst[2], 0);
	ck_assert_uint_eq(dst[3], 50);
	ck_assert_int_eq(RUN(&te, gantry_kernel_unsharp, SPAN(src, 4), SPAN(soft, 4), SPAN(dst, 4),
			     U64(4), F32(NAN)),
			 0);
	ck_assert_uint_eq(dst[0], 0);
	ck_assert_int_eq(RUN(&te, gantry_kernel_unsharp, SPAN(src, 4), SPAN(soft, 3), SPAN(dst, 4),
			     U64(4), F32(1)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

START_TEST(test_combine_mixes_by_mask)
{
	static const uint8_t a[] = { 10, 20, 30, 40, 50, 60, 255, 255, 255 };
	static const uint8_t b[] = { 110, 120, 130, 140, 150, 160, 0, 0, 0 };
	static const uint8_t mask[] = { 255, 0, 128 };
	static const uint8_t want[] = { 10, 20, 30, 140, 150, 160, 128, 128, 128 };
	struct test_env te;
	uint8_t dst[9];

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_combine, SPAN(a, 9), SPAN(b, 9), SPAN(mask, 3),
			     SPAN(dst, 9), U64(3), U32(3)),
			 0);
	ck_assert_mem_eq(dst, want, 9);
	ck_assert_int_eq(RUN(&te, gantry_kernel_combine, SPAN(a, 9), SPAN(b, 9), SPAN(mask, 2),
			     SPAN(dst, 9), U64(3), U32(3)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_combine, SPAN(a, 9), SPAN(b, 9), SPAN(mask, 3),
			     SPAN(dst, 9), U64(3), U32(0)),
			 REFUSED(EINVAL));
	ck_assert_int_eq(RUN(&te, gantry_kernel_combine, SPAN(a, 9), SPAN(b, 9), SPAN(mask, 3),
			     SPAN(dst, 9), U64(UINT64_MAX / 2), U32(4)),
			 REFUSED(EINVAL));
	env_fini(&te);
}
END_TEST

Suite *kernels_image_suite(void)
{
	Suite *suite = suite_create("kernels/image");
	TCase *tc = env_case(suite, "image");

	tcase_add_loop_test(tc, test_gaussian_blur_equals_two_dimensional_sum, 0,
			    (int)(sizeof(blurs) / sizeof(blurs[0])));
	tcase_add_test(tc, test_gaussian_blur_keeps_even_picture);
	tcase_add_test(tc, test_gaussian_blur_misuse_is_refused);
	tcase_add_test(tc, test_grayscale_weighs_channels);
	tcase_add_loop_test(tc, test_sobel_equals_three_by_three_sum, 0, ENV_NMODES);
	tcase_add_test(tc, test_unsharp_clamps_and_survives_nan);
	tcase_add_test(tc, test_combine_mixes_by_mask);
	return suite;
}
