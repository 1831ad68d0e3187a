/* SPDX-License-Identifier: Apache-2.0 */
/* Colours as pixels: what clEnqueueFillImage() makes of the four numbers that it gets. */
#include <math.h>
#include <string.h>

#include "guest-shim/opencl/icd.h"

/* The nearest half, ties to even; what is too large becomes infinite. */
static uint16_t half_of(float value)
{
	uint32_t bits, sign, mantissa, rest, half;
	int exponent, shift = 13;

	memcpy(&bits, &value, sizeof(bits));
	sign = bits >> 16 & 0x8000;
	exponent = (int)(bits >> 23 & 0xff) - 127;
	mantissa = bits & 0x7fffff;
	if (exponent == 128)
		return (uint16_t)(sign | 0x7c00 | (mantissa ? 0x200 | mantissa >> 13 : 0));
	if (exponent > 15)
		return (uint16_t)(sign | 0x7c00);
	if (exponent < -25)
		return (uint16_t)sign;
	if (exponent < -14) { /* no leading one of its own */
		mantissa |= 0x800000;
		shift = -1 - exponent;
		exponent = -15;
	}
	half = (uint32_t)(exponent + 15) << 10 | mantissa >> shift;
	rest = mantissa & ((1u << shift) - 1);
	half += rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && (half & 1));
	return (uint16_t)(sign | half); /* a carry goes into the exponent, as it has to */
}

/* @value times @most, to the nearest, ties to even, between @least and @most; what is no number becomes 0. */
static int32_t normalized(float value, float least, float most)
{
	double scaled = isnan(value) ? 0 : (double)value * (double)most, rest;
	int32_t whole;

	scaled = scaled < (double)least ? (double)least : scaled;
	scaled = scaled > (double)most ? (double)most : scaled;
	whole = (int32_t)scaled;
	rest = scaled - whole;
	if (rest > 0.5 || (rest == 0.5 && (whole & 1)))
		return whole + 1;
	if (rest < -0.5 || (rest == -0.5 && (whole & 1)))
		return whole - 1;
	return whole;
}

static int32_t clamped(int32_t value, int32_t least, int32_t most)
{
	return value < least ? least : value > most ? most : value;
}

/* One channel, of the number at @from: a float, int or uint as the channel is. Returns its bytes. */
static size_t put_channel(unsigned char *at, cl_channel_type channel, const unsigned char *from)
{
	uint32_t whole;
	int32_t number;
	float value;

	memcpy(&whole, from, sizeof(whole));
	memcpy(&number, from, sizeof(number));
	memcpy(&value, from, sizeof(value));
	switch (channel) {
	case CL_SNORM_INT8:
		*at = (unsigned char)normalized(value, -128, 127);
		return 1;
	case CL_UNORM_INT8:
		*at = (unsigned char)normalized(value, 0, 255);
		return 1;
	case CL_SIGNED_INT8:
		*at = (unsigned char)clamped(number, INT8_MIN, INT8_MAX);
		return 1;
	case CL_UNSIGNED_INT8:
		*at = (unsigned char)(whole > UINT8_MAX ? UINT8_MAX : whole);
		return 1;
	case CL_SNORM_INT16:
		number = normalized(value, -32768, 32767);
		break;
	case CL_UNORM_INT16:
		number = normalized(value, 0, 65535);
		break;
	case CL_SIGNED_INT16:
		number = clamped(number, INT16_MIN, INT16_MAX);
		break;
	case CL_UNSIGNED_INT16:
		number = (int32_t)(whole > UINT16_MAX ? UINT16_MAX : whole);
		break;
	case CL_HALF_FLOAT:
		number = half_of(value);
		break;
	default: /* 32 bits, as they are */
		memcpy(at, from, 4);
		return 4;
	}
	memcpy(at, &number, 2); /* little-endian: the low bytes come first */
	return 2;
}

/* Which of the four numbers each channel is, in the order of memory. */
static const char *channels_of(cl_channel_order order)
{
	switch (order) {
	case CL_A:
		return "\3";
	case CL_RG:
		return "\0\1";
	case CL_RA:
		return "\0\3";
	case CL_BGRA:
		return "\2\1\0\3";
	case CL_ARGB:
		return "\3\0\1\2";
	default: /* CL_RGBA; the first of it is what CL_R, CL_INTENSITY and CL_LUMINANCE have */
		return "\0\1\2\3";
	}
}

void icd_color_to_pixel(const cl_image_format *format, const void *color,
			unsigned char ret_pixel[16])
{
	const char *channels = channels_of(format->image_channel_order);
	uint32_t bytes = gantry_pixel_bytes(format->image_channel_order,
					    format->image_channel_data_type);

	memset(ret_pixel, 0, 16);
	for (size_t at = 0, i = 0; at < bytes; i++)
		at += put_channel(ret_pixel + at, format->image_channel_data_type,
				  (const unsigned char *)color + 4 * (size_t)channels[i]);
}
