/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/opencl.h"

#include <string.h>

#include "base/array.h"
#include "base/checked.h"

/* ---- pixels ---- */

static uint32_t channels_of(uint32_t order)
{
	switch (order) {
	case 0x10B0: /* CL_R */
	case 0x10B1: /* CL_A */
	case 0x10B8: /* CL_INTENSITY */
	case 0x10B9: /* CL_LUMINANCE */
		return 1;
	case 0x10B2: /* CL_RG */
	case 0x10B3: /* CL_RA */
		return 2;
	case 0x10B5: /* CL_RGBA */
	case 0x10B6: /* CL_BGRA */
	case 0x10B7: /* CL_ARGB */
		return 4;
	default:
		return 0;
	}
}

static uint32_t channel_bytes(uint32_t channel)
{
	switch (channel) {
	case 0x10D0: /* CL_SNORM_INT8 */
	case 0x10D2: /* CL_UNORM_INT8 */
	case 0x10D7: /* CL_SIGNED_INT8 */
	case 0x10DA: /* CL_UNSIGNED_INT8 */
		return 1;
	case 0x10D1: /* CL_SNORM_INT16 */
	case 0x10D3: /* CL_UNORM_INT16 */
	case 0x10D8: /* CL_SIGNED_INT16 */
	case 0x10DB: /* CL_UNSIGNED_INT16 */
	case 0x10DD: /* CL_HALF_FLOAT */
		return 2;
	case 0x10D9: /* CL_SIGNED_INT32 */
	case 0x10DC: /* CL_UNSIGNED_INT32 */
	case 0x10DE: /* CL_FLOAT */
		return 4;
	default:
		return 0;
	}
}

uint32_t gantry_pixel_bytes(uint32_t order, uint32_t channel)
{
	return channels_of(order) * channel_bytes(channel);
}

/* ---- images ---- */

bool gantry_image_has_rows(uint32_t type)
{
	return type == GANTRY_IMAGE_2D || type == GANTRY_IMAGE_3D || type == GANTRY_IMAGE_2D_ARRAY;
}

bool gantry_image_has_layers(uint32_t type)
{
	return type == GANTRY_IMAGE_1D_ARRAY || type == GANTRY_IMAGE_2D_ARRAY;
}

static bool is_shaped(const struct gantry_launch_image *image)
{
	return image->type >= GANTRY_IMAGE_2D && image->type <= GANTRY_IMAGE_1D_BUFFER &&
	       image->zero == 0 && image->width && image->height && image->depth && image->layers &&
	       (image->height == 1 || gantry_image_has_rows(image->type)) &&
	       (image->depth == 1 || image->type == GANTRY_IMAGE_3D) &&
	       (image->layers == 1 || gantry_image_has_layers(image->type));
}

uint64_t gantry_image_bytes(const struct gantry_launch_image *image)
{
	uint64_t pixel = gantry_pixel_bytes(image->order, image->channel);
	uint64_t slices = image->depth * image->layers; /* one of them is 1 */
	uint64_t row, slice, all;

	if (!is_shaped(image) || pixel == 0 || gantry_mul_u64(image->width, pixel, &row) < 0 ||
	    image->row_bytes < row || image->row_bytes % pixel != 0 ||
	    gantry_mul_u64(image->row_bytes, image->height, &slice) < 0 ||
	    image->slice_bytes < slice || image->slice_bytes % image->row_bytes != 0 ||
	    gantry_mul_u64(image->slice_bytes, slices, &all) < 0 || all > INT64_MAX)
		return 0;
	return all;
}

/* ---- samplers ---- */

int gantry_sampler_index(const struct gantry_launch_sampler *sampler)
{
	uint32_t addressing = sampler->addressing - GANTRY_SAMPLER_ADDRESSING;
	uint32_t filter = sampler->filter - GANTRY_SAMPLER_FILTER;

	if (sampler->is_normalized > 1 || addressing >= GANTRY_SAMPLER_NADDRESSING ||
	    filter >= GANTRY_SAMPLER_NFILTERS || sampler->zero)
		return -1;
	return (int)((sampler->is_normalized * GANTRY_SAMPLER_NADDRESSING + addressing) *
			     GANTRY_SAMPLER_NFILTERS +
		     filter);
}

/* ---- parts of devices ---- */

bool gantry_part_of(const struct gantry_launch_range *range, struct gantry_launch_part *ret_part)
{
	uint32_t domain = range->domain;

	if ((domain & ~GANTRY_PART_DOMAINS) || (domain & (domain - 1)))
		return false;
	if (!domain && range->index)
		return false;
	if (!range->count && range->first)
		return false;
	*ret_part = (struct gantry_launch_part){ range->domain, range->index, range->first,
						 range->count };
	return true;
}

/* ---- types ---- */

uint32_t gantry_opencl_type_bytes(const char *type)
{
	static const struct {
		const char *name;
		uint32_t bytes;
	} types[] = { { "char", 1 },  { "uchar", 1 },  { "short", 2 }, { "ushort", 2 },
		      { "int", 4 },   { "uint", 4 },   { "long", 8 },  { "ulong", 8 },
		      { "float", 4 }, { "double", 8 }, { "half", 2 } };

	/* How many values a vector has room for, by the digits of its name. */
	static const struct {
		const char *digits;
		uint32_t n;
	} widths[] = { { "", 1 }, { "2", 2 }, { "3", 4 }, { "4", 4 }, { "8", 8 }, { "16", 16 } };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(types); i++) {
		size_t n = strlen(types[i].name);

		for (size_t w = 0; w < GANTRY_ARRAY_SIZE(widths); w++)
			if (strncmp(type, types[i].name, n) == 0 &&
			    strcmp(type + n, widths[w].digits) == 0)
				return types[i].bytes * widths[w].n;
	}
	return 0;
}
