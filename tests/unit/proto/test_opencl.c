/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/opencl.h"

#include "base/array.h"
#include "tests/unit/runner.h"

#define RGBA	 0x10B5
#define UINT8	 0x10DA
#define FLOAT	 0x10DE
#define UINT8_PX 4u

static const struct gantry_launch_image plane = { .type = GANTRY_IMAGE_2D,
						  .order = RGBA,
						  .channel = UINT8,
						  .width = 10,
						  .height = 4,
						  .depth = 1,
						  .layers = 1,
						  .row_bytes = 48,
						  .slice_bytes = 192 };

START_TEST(test_image_takes_its_rows_and_slices_with_what_is_between)
{
	struct gantry_launch_image image = plane;

	ck_assert_uint_eq(gantry_image_bytes(&image), 192);
	image.type = GANTRY_IMAGE_3D;
	image.depth = 5;
	image.slice_bytes = 240;
	ck_assert_uint_eq(gantry_image_bytes(&image), 1200);
	image.type = GANTRY_IMAGE_2D_ARRAY;
	image.depth = 1;
	image.layers = 7;
	ck_assert_uint_eq(gantry_image_bytes(&image), 1680);
	image.type = GANTRY_IMAGE_1D_ARRAY;
	image.height = 1;
	image.slice_bytes = 48;
	ck_assert_uint_eq(gantry_image_bytes(&image), 336);
}
END_TEST

/* One number that is wrong in a description that is right. */
static const struct {
	size_t off;
	bool is_wide;
	uint64_t value;
} wrong[] = {
#define NARROW(field, value)                                              \
	{                                                                 \
		offsetof(struct gantry_launch_image, field), false, value \
	}
#define WIDE(field, value)                                               \
	{                                                                \
		offsetof(struct gantry_launch_image, field), true, value \
	}
	NARROW(type, 0),
	NARROW(type, 0x10F0), /* a buffer */
	NARROW(type, 0x10F7),
	NARROW(type, UINT32_MAX),
	NARROW(type, GANTRY_IMAGE_1D), /* with a height */
	NARROW(order, 0),
	NARROW(order, 0x10B4), /* RGB: of packed channels only */
	NARROW(channel, 0),
	NARROW(channel, UINT32_MAX),
	NARROW(channel, FLOAT), /* a row is longer then */
	NARROW(zero, 1),
	WIDE(width, 0),
	WIDE(width, 13), /* longer than from row to row */
	WIDE(width, UINT64_MAX),
	WIDE(width, UINT64_MAX / 4 + 2), /* bytes overflow to few */
	WIDE(height, 0),
	WIDE(height, 5), /* higher than a slice */
	WIDE(height, UINT64_MAX),
	WIDE(depth, 0),
	WIDE(depth, 2),
	WIDE(layers, 0),
	WIDE(layers, 2),
	WIDE(row_bytes, 0),
	WIDE(row_bytes, 39),
	WIDE(row_bytes, 46), /* within a pixel */
	WIDE(row_bytes, UINT64_MAX - 3),
	WIDE(slice_bytes, 0),
	WIDE(slice_bytes, 191),
	WIDE(slice_bytes, 200), /* within a row */
	WIDE(slice_bytes, UINT64_MAX / 48 * 48),
};

START_TEST(test_image_that_cannot_be_has_no_size)
{
	struct gantry_launch_image image = plane;
	unsigned char *at = (unsigned char *)&image + wrong[_i].off;

	if (wrong[_i].is_wide)
		*(uint64_t *)(void *)at = wrong[_i].value;
	else
		*(uint32_t *)(void *)at = (uint32_t)wrong[_i].value;
	ck_assert_uint_eq(gantry_image_bytes(&image), 0);
}
END_TEST

/* Products of three sizes that fit one by one. */
START_TEST(test_image_whose_product_overflows_has_no_size)
{
	struct gantry_launch_image image = plane;

	image.type = GANTRY_IMAGE_3D;
	image.width = 1ull << 20;
	image.row_bytes = 1ull << 22;
	image.height = 1ull << 20;
	image.slice_bytes = 1ull << 42;
	image.depth = 1ull << 22;
	ck_assert_uint_eq(gantry_image_bytes(&image), 0);
	image.depth = 1ull << 20;
	ck_assert_uint_eq(gantry_image_bytes(&image), 1ull << 62);
}
END_TEST

START_TEST(test_pixels_have_sizes_of_powers_of_two_or_none)
{
	ck_assert_uint_eq(gantry_pixel_bytes(RGBA, UINT8), UINT8_PX);
	ck_assert_uint_eq(gantry_pixel_bytes(RGBA, FLOAT), 16);
	ck_assert_uint_eq(gantry_pixel_bytes(0x10B0, 0x10DD), 2);
	for (uint32_t order = 0x10A0; order < 0x10D0; order++)
		for (uint32_t channel = 0x10C0; channel < 0x10F0; channel++) {
			uint32_t n = gantry_pixel_bytes(order, channel);

			ck_assert((n & (n - 1)) == 0 && n <= 16);
		}
}
END_TEST

START_TEST(test_every_sampler_has_a_place_of_its_own)
{
	bool seen[GANTRY_SAMPLER_COUNT] = { false };
	struct gantry_launch_sampler s = { 0 };

	for (s.is_normalized = 0; s.is_normalized < 2; s.is_normalized++)
		for (uint32_t a = 0; a < GANTRY_SAMPLER_NADDRESSING; a++)
			for (uint32_t f = 0; f < GANTRY_SAMPLER_NFILTERS; f++) {
				int i;

				s.addressing = GANTRY_SAMPLER_ADDRESSING + a;
				s.filter = GANTRY_SAMPLER_FILTER + f;
				i = gantry_sampler_index(&s);
				ck_assert(i >= 0 && i < (int)GANTRY_SAMPLER_COUNT && !seen[i]);
				seen[i] = true;
			}
}
END_TEST

static const struct gantry_launch_sampler no_samplers[] = {
	{ 2, GANTRY_SAMPLER_ADDRESSING, GANTRY_SAMPLER_FILTER, 0 },
	{ UINT32_MAX, GANTRY_SAMPLER_ADDRESSING, GANTRY_SAMPLER_FILTER, 0 },
	{ 1, GANTRY_SAMPLER_ADDRESSING - 1, GANTRY_SAMPLER_FILTER, 0 },
	{ 1, GANTRY_SAMPLER_ADDRESSING + GANTRY_SAMPLER_NADDRESSING, GANTRY_SAMPLER_FILTER, 0 },
	{ 1, 0, GANTRY_SAMPLER_FILTER, 0 },
	{ 1, GANTRY_SAMPLER_ADDRESSING, GANTRY_SAMPLER_FILTER + 2, 0 },
	{ 1, GANTRY_SAMPLER_ADDRESSING, 0, 0 },
	{ 1, GANTRY_SAMPLER_ADDRESSING, GANTRY_SAMPLER_FILTER, 1 },
};

START_TEST(test_sampler_that_cannot_be_has_no_place)
{
	ck_assert_int_eq(gantry_sampler_index(&no_samplers[_i]), -1);
}
END_TEST

START_TEST(test_types_of_opencl_have_sizes_and_others_none)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = {
		{ "int", 4 },	{ "uchar16", 16 }, { "float3", 16 },  { "double8", 64 },
		{ "half2", 4 }, { "ulong", 8 },	   { "int5", 0 },     { "int 2", 0 },
		{ "int2x", 0 }, { "", 0 },	   { "struct s", 0 }, { "sampler_t", 0 },
		{ "int1", 0 },	{ "int-2", 0 },	   { "floats", 0 },
	};

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(types); i++)
		ck_assert_msg(gantry_opencl_type_bytes(types[i].name) == types[i].bytes, "%s",
			      types[i].name);
}
END_TEST

START_TEST(test_part_is_a_domain_or_units_or_the_whole)
{
	static const struct gantry_launch_range good[] = {
		{ .ndims = 1 },
		{ .ndims = 1, .count = 1 },
		{ .ndims = 1, .first = 7, .count = 65535 },
		{ .ndims = 1, .domain = 16, .index = 9 },
		{ .ndims = 1, .domain = 1, .index = 9, .first = 2, .count = 3 },
	};
	static const struct gantry_launch_range bad[] = {
		{ .first = 1 },
		{ .index = 1 },
		{ .index = 1, .count = 1 },
		{ .domain = 3 },
		{ .domain = 32, .count = 1 },
		{ .domain = 255 },
		{ .domain = 1, .first = 1 },
	};
	struct gantry_launch_part part;

	ck_assert_uint_eq(sizeof(struct gantry_launch_range), 32);
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(good); i++) {
		ck_assert(gantry_part_of(&good[i], &part));
		ck_assert_uint_eq(part.domain, good[i].domain);
		ck_assert_uint_eq(part.index, good[i].index);
		ck_assert_uint_eq(part.first, good[i].first);
		ck_assert_uint_eq(part.count, good[i].count);
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(bad); i++) {
		part.count = 77;
		ck_assert(!gantry_part_of(&bad[i], &part));
		ck_assert_uint_eq(part.count, 77);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl");
	TCase *images = gantry_unit_case(suite, "images");
	TCase *samplers = gantry_unit_case(suite, "samplers");
	TCase *types = gantry_unit_case(suite, "types");
	TCase *parts = gantry_unit_case(suite, "parts");

	tcase_add_test(images, test_image_takes_its_rows_and_slices_with_what_is_between);
	tcase_add_loop_test(images, test_image_that_cannot_be_has_no_size, 0,
			    GANTRY_ARRAY_SIZE(wrong));
	tcase_add_test(images, test_image_whose_product_overflows_has_no_size);
	tcase_add_test(images, test_pixels_have_sizes_of_powers_of_two_or_none);
	tcase_add_test(samplers, test_every_sampler_has_a_place_of_its_own);
	tcase_add_loop_test(samplers, test_sampler_that_cannot_be_has_no_place, 0,
			    GANTRY_ARRAY_SIZE(no_samplers));
	tcase_add_test(types, test_types_of_opencl_have_sizes_and_others_none);
	tcase_add_test(parts, test_part_is_a_domain_or_units_or_the_whole);
	return gantry_unit_run(suite);
}
