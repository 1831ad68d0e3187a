/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels.cuh does, for the fake driver. */
#include <stdint.h>
#include <stdio.h>

#include "tests/fakecuda/kernel.h"
#include "tests/fakecuda/tensor.h"

FAKECUDA_KERNEL(
	saxpy,
	{
		int32_t n;
		float a;
		uint64_t x;
		uint64_t y;
	},
	FAKECUDA_P(saxpy, n), FAKECUDA_P(saxpy, a), FAKECUDA_P(saxpy, x), FAKECUDA_P(saxpy, y))
{
	const float *x = *(float **)params[2];
	float *y = *(float **)params[3];

	(void)geometry;
	for (int32_t i = 0; i < *(int32_t *)params[0]; i++)
		y[i] = *(float *)params[1] * x[i] + y[i];
	return 0;
}

struct pair {
	float *x;
	int32_t first;
	char pad[3];
};

FAKECUDA_KERNEL(
	number,
	{
		struct pair p;
		int32_t n;
	},
	FAKECUDA_P(number, p), FAKECUDA_P(number, n))
{
	const struct pair *p = params[0];

	(void)geometry;
	for (int32_t i = 0; i < *(int32_t *)params[1]; i++)
		p->x[i] = (float)(p->first + i);
	return 0;
}

FAKECUDA_KERNEL(
	tile,
	{
		struct fakecuda_tensor map;
		int32_t x;
		int32_t y;
		uint64_t out;
	},
	FAKECUDA_P(tile, map), FAKECUDA_P(tile, x), FAKECUDA_P(tile, y), FAKECUDA_P(tile, out))
{
	const struct fakecuda_tensor *map = params[0];
	float *out = *(float **)params[3];

	(void)geometry;
	if (map->magic != FAKECUDA_TENSOR || map->kind != FAKECUDA_TENSOR_TILED || map->rank != 2)
		return 700;
	for (int32_t row = 0; row < map->box[1]; row++)
		for (int32_t column = 0; column < map->box[0]; column++) {
			int64_t y = *(int32_t *)params[2] + row, x = *(int32_t *)params[1] + column;
			const char *from = (const char *)(uintptr_t)map->address +
					   y * (int64_t)map->strides[0] + x * 4;

			*out++ = x >= 0 && y >= 0 && x <= map->dims[0] && y <= map->dims[1]
					 ? *(const float *)(const void *)from
					 : 0;
		}
	return 0;
}

struct many {
	int numbers[1200];
};

FAKECUDA_KERNEL(
	wide,
	{
		struct many m;
		uint64_t out;
	},
	FAKECUDA_P(wide, m), FAKECUDA_P(wide, out))
{
	(void)geometry;
	**(int **)params[1] = ((const struct many *)params[0])->numbers[0];
	return 0;
}

struct most {
	int numbers[8188];
};

FAKECUDA_KERNEL(
	widest,
	{
		struct most m;
		uint64_t out;
	},
	FAKECUDA_P(widest, m), FAKECUDA_P(widest, out))
{
	(void)geometry;
	**(int **)params[1] = ((const struct most *)params[0])->numbers[8187];
	return 0;
}

FAKECUDA_KERNEL(
	sum,
	{
		uint64_t x;
		int32_t n;
		uint64_t out;
	},
	FAKECUDA_P(sum, x), FAKECUDA_P(sum, n), FAKECUDA_P(sum, out))
{
	const float *x = *(float **)params[0];
	float *out = *(float **)params[2];

	(void)geometry;
	for (int32_t i = 0; i < *(int32_t *)params[1]; i++)
		*out += x[i];
	return 0;
}

FAKECUDA_KERNEL(
	transpose,
	{
		uint64_t in;
		uint64_t out;
		int32_t rows;
		int32_t columns;
	},
	FAKECUDA_P(transpose, in), FAKECUDA_P(transpose, out), FAKECUDA_P(transpose, rows),
	FAKECUDA_P(transpose, columns))
{
	const float *in = *(float **)params[0];
	float *out = *(float **)params[1];
	int32_t rows = *(int32_t *)params[2], columns = *(int32_t *)params[3];

	(void)geometry;
	for (int32_t y = 0; y < rows; y++)
		for (int32_t x = 0; x < columns; x++)
			out[x * rows + y] = in[y * columns + x];
	return 0;
}

FAKECUDA_KERNEL(
	groups, { uint64_t out; }, FAKECUDA_P(groups, out))
{
	uint32_t *out = *(uint32_t **)params[0];

	for (int i = 0; i < 3; i++)
		out[i] = geometry->cluster[i] ? geometry->cluster[i] : 1;
	out[3] = geometry->grid[0];
	return 0;
}

/* Variables of the image, of 8 bytes each. */
extern uint64_t fakecuda_global_factor, fakecuda_global_counter;
uint64_t fakecuda_global_factor, fakecuda_global_counter;

/* Managed ones, with their sizes. They have their first values when they are asked for after the object was loaded anew. */
#define TABLE 20000
extern int fakecuda_global_managed_count;
extern double fakecuda_global_managed_table[TABLE];
extern int *fakecuda_global_managed_pointer;
extern const uint64_t fakecuda_managed_managed_count, fakecuda_managed_managed_table,
	fakecuda_managed_managed_pointer;
int fakecuda_global_managed_count = 7;
double fakecuda_global_managed_table[TABLE];
int *fakecuda_global_managed_pointer;
const uint64_t fakecuda_managed_managed_count = sizeof(fakecuda_global_managed_count);
const uint64_t fakecuda_managed_managed_table = sizeof(fakecuda_global_managed_table);
const uint64_t fakecuda_managed_managed_pointer = sizeof(fakecuda_global_managed_pointer);

FAKECUDA_KERNEL(
	managed_bump, { int32_t by; }, FAKECUDA_P(managed_bump, by))
{
	(void)geometry;
	fakecuda_global_managed_count += *(int32_t *)params[0];
	return 0;
}

FAKECUDA_KERNEL(
	managed_scale,
	{
		int32_t from;
		int32_t n;
		double by;
	},
	FAKECUDA_P(managed_scale, from), FAKECUDA_P(managed_scale, n),
	FAKECUDA_P(managed_scale, by))
{
	int32_t from = *(int32_t *)params[0];

	(void)geometry;
	for (int32_t i = 0; i < *(int32_t *)params[1]; i++)
		fakecuda_global_managed_table[from + i] *= *(double *)params[2];
	return 0;
}

FAKECUDA_KERNEL(
	managed_where, { uint64_t out; }, FAKECUDA_P(managed_where, out))
{
	uint64_t *out = *(uint64_t **)params[0];

	(void)geometry;
	out[0] = (uintptr_t)&fakecuda_global_managed_count;
	out[1] = (uintptr_t)fakecuda_global_managed_table;
	return 0;
}

FAKECUDA_KERNEL(
	managed_follow, { int32_t value; }, FAKECUDA_P(managed_follow, value))
{
	(void)geometry;
	*fakecuda_global_managed_pointer = *(int32_t *)params[0];
	return 0;
}

FAKECUDA_KERNEL(
	stray, { uint64_t x; }, FAKECUDA_P(stray, x))
{
	(void)params;
	(void)geometry;
	return 700; /* CUDA_ERROR_ILLEGAL_ADDRESS */
}

/* ---- of runtime_textures.cu ---- */

#define FAKE_READ(name)                                                                           \
	FAKECUDA_KERNEL(                                                                          \
		name,                                                                             \
		{                                                                                 \
			uint64_t texture;                                                         \
			uint64_t out;                                                             \
			int32_t size[3];                                                          \
			int32_t shift;                                                            \
		},                                                                                \
		FAKECUDA_P(name, texture), FAKECUDA_P(name, out), FAKECUDA_P(name, size),         \
		FAKECUDA_P(name, shift))                                                          \
	{                                                                                         \
		const int32_t *size = params[2];                                                  \
		float *out = *(float **)params[1];                                                \
                                                                                                  \
		for (int32_t z = 0; z < size[2]; z++)                                             \
			for (int32_t y = 0; y < size[1]; y++)                                     \
				for (int32_t x = 0; x < size[0]; x++) {                           \
					float element[4];                                         \
                                                                                                  \
					if (!geometry->texture_read(*(uint64_t *)params[0],       \
								    x + *(int32_t *)params[3], y, \
								    z, element))                  \
						return 716;                                       \
					*out++ = element[0];                                      \
				}                                                                 \
		return 0;                                                                         \
	}
FAKE_READ(read_linear)
FAKE_READ(read_plane)
FAKE_READ(read_space)
FAKE_READ(read_layers)

FAKECUDA_KERNEL(
	twice,
	{
		uint64_t surface;
		int32_t width;
		int32_t height;
	},
	FAKECUDA_P(twice, surface), FAKECUDA_P(twice, width), FAKECUDA_P(twice, height))
{
	uint64_t surface = *(uint64_t *)params[0];

	for (int32_t y = 0; y < *(int32_t *)params[2]; y++)
		for (int32_t x = 0; x < *(int32_t *)params[1]; x++) {
			float element[4];

			if (!geometry->texture_read(surface, x, y, 0, element))
				return 716;
			element[0] *= 2;
			if (!geometry->surface_write(surface, x, y, 0, element))
				return 716;
		}
	return 0;
}

FAKECUDA_KERNEL(
	speak,
	{
		int32_t from;
		int32_t n;
	},
	FAKECUDA_P(speak, from), FAKECUDA_P(speak, n))
{
	for (int32_t i = 0; i < *(int32_t *)params[1]; i++) {
		char line[64];

		(void)snprintf(line, sizeof(line), "kernel line %d\n", *(int32_t *)params[0] + i);
		geometry->print(geometry->cookie, line);
	}
	return 0;
}

FAKECUDA_KERNEL(
	must_be, { int32_t value; }, FAKECUDA_P(must_be, value))
{
	(void)geometry;
	return *(int32_t *)params[0] ? 0 : 710;
}

FAKECUDA_KERNEL(
	linked, { uint64_t out; }, FAKECUDA_P(linked, out))
{
	(void)geometry;
	**(int **)params[0] = 42;
	return 0;
}
