/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of tensors, and clusters of blocks; the image at argv[1] has the kernels of kernels.cuh. */
#include <stdint.h>
#include <string.h>

#include "tests/cuda-programs/parts.h"

#define ROWS	40u
#define COLUMNS 100u
#define PITCH	(112u * 4)
#define HIGH	8u
#define WIDE	16u

static CUfunction tile, saxpy;
static CUdeviceptr matrix, out;

static const cuuint64_t dims[] = { COLUMNS, ROWS }, strides[] = { PITCH };
static const cuuint32_t box[] = { WIDE, HIGH }, steps[] = { 1, 1 };

static CUresult encode(CUtensorMap *map, CUdeviceptr address)
{
	return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
				      (void *)(uintptr_t)address, dims, strides, box, steps,
				      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
				      CU_TENSOR_MAP_L2_PROMOTION_NONE,
				      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static float at(int row, int column)
{
	if (row < 0 || row >= (int)ROWS || column < 0 || column >= (int)COLUMNS)
		return 0;
	return (float)(1000 * row + column);
}

static void take(CUtensorMap *map, int x, int y)
{
	void *params[] = { map, &x, &y, &out };
	float got[HIGH][WIDE];

	OK(cuMemsetD8(out, 0xff, sizeof(got)));
	OK(cuLaunchKernel(tile, 1, 1, 1, 32, 1, 1, 0, 0, params, NULL));
	OK(cuMemcpyDtoH(got, out, sizeof(got)));
	for (int row = 0; row < (int)HIGH; row++)
		for (int column = 0; column < (int)WIDE; column++)
			CHECK(got[row][column] == at(y + row, x + column));
}

static void tiles(void)
{
	static float rows[ROWS][PITCH / 4];
	CUtensorMap map, same, other;
	int has = 0;

	begin("tiles");
	OK(cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0));
	CHECK(has == 1);
	for (unsigned int row = 0; row < ROWS; row++)
		for (unsigned int column = 0; column < PITCH / 4; column++)
			rows[row][column] = column < COLUMNS ? at((int)row, (int)column) : -7;
	OK(cuMemcpyHtoD(matrix, rows, sizeof(rows)));
	OK(encode(&map, matrix));
	take(&map, 4, 3);
	take(&map, 0, 0);
	/* What lies outside is zero. A piece begins at a multiple of 16 bytes: elsewhere the instruction is illegal. */
	take(&map, COLUMNS - 4, ROWS - 3);
	take(&map, -4, -2);
	OK(encode(&same, matrix));
	CHECK(!memcmp(&map, &same, sizeof(map)));
	OK(encode(&other, matrix + PITCH));
	CHECK(memcmp(&map, &other, sizeof(map)) != 0);
	end();
}

/* More of them than are remembered, each its own. */
static void many(void)
{
	static CUtensorMap maps[200];
	CUtensorMap again;

	begin("many");
	for (unsigned int i = 0; i < 200; i++)
		OK(encode(&maps[i], matrix + 16 * i));
	for (unsigned int i = 0; i < 200; i++) {
		OK(encode(&again, matrix + 16 * i));
		CHECK(!memcmp(&again, &maps[i], sizeof(again)));
		CHECK(i == 0 || memcmp(&maps[i], &maps[i - 1], sizeof(again)) != 0);
	}
	end();
}

static void columns_of_images(void)
{
	const cuuint64_t sides[] = { 32, 10, 9, 2 }, bytes[] = { 64, 640, 5760 };
	const cuuint32_t each[] = { 1, 1, 1, 1 };
	const int lower[] = { -1, -1 }, upper[] = { 0, 0 }, wrong[] = { -1, -2 };
	CUtensorMap map, same, other;

	begin("columns of images");
#define IM2COL(map, rank, lower, channels)                                                       \
	cuTensorMapEncodeIm2col(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, rank,                      \
				(void *)(uintptr_t)matrix, sides, bytes, lower, upper, channels, \
				16, each, CU_TENSOR_MAP_INTERLEAVE_NONE,                         \
				CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,   \
				CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
	OK(IM2COL(&map, 4, lower, 32));
	OK(IM2COL(&same, 4, lower, 32));
	CHECK(!memcmp(&map, &same, sizeof(map)));
	OK(IM2COL(&other, 4, wrong, 32));
	CHECK(memcmp(&map, &other, sizeof(map)) != 0);
	IS(IM2COL(&map, 2, lower, 32), INVALID_VALUE);
	IS(IM2COL(&map, 4, lower, 0), INVALID_VALUE);
	BAD(IM2COL(&map, 4, NULL, 32), INVALID_VALUE);
	BAD(IM2COL(NULL, 4, lower, 32), INVALID_VALUE);
	end();
}

#define TILED(map, type, rank, address, dims, strides, box, steps)                                \
	cuTensorMapEncodeTiled(map, type, rank, (void *)(uintptr_t)(address), dims, strides, box, \
			       steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,  \
			       CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)

static void misused(void)
{
	const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
	const cuuint64_t none[] = { COLUMNS, 0 }, odd[] = { PITCH + 4 }, far[] = { 1ull << 40 };
	const cuuint64_t high[] = { COLUMNS, 1ull << 32 };
	const cuuint32_t nothing[] = { WIDE, 0 }, large[] = { WIDE, 257 }, narrow[] = { 3, 8 };
	const cuuint32_t fast[] = { 1, 9 };
	CUtensorMap maps[2], before;

	begin("misused");
	memset(maps, 7, sizeof(maps));
	before = maps[0];
	BAD(TILED(NULL, type, 2, matrix, dims, strides, box, steps), INVALID_VALUE);
	BAD(TILED((CUtensorMap *)(void *)((char *)maps + 16), type, 2, matrix, dims, strides, box,
		  steps),
	    INVALID_VALUE);
	IS(TILED(maps, type, 0, matrix, dims, strides, box, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 6, matrix, dims, strides, box, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 2, matrix, NULL, strides, box, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 2, matrix, dims, NULL, box, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 2, matrix, dims, strides, NULL, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 2, matrix, dims, strides, box, NULL), INVALID_VALUE);
	IS(TILED(maps, (CUtensorMapDataType)99, 2, matrix, dims, strides, box, steps),
	   INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix + 4, dims, strides, box, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, none, strides, box, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, odd, box, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, far, box, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, strides, nothing, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, strides, large, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, strides, narrow, steps), INVALID_VALUE);
	IS(TILED(maps, type, 2, matrix, dims, strides, box, fast), INVALID_VALUE);
	/* No memory of the device's. */
	BAD(TILED(maps, type, 2, 0x1000, dims, strides, box, steps), INVALID_VALUE);
	BAD(TILED(maps, type, 2, (uintptr_t)maps & ~15ull, high, strides, box, steps),
	    INVALID_VALUE);
	CHECK(!memcmp(&maps[0], &before, sizeof(before)));
	end();
}

static void clusters(void)
{
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
					.value.clusterDim = { 2, 1, 1 } };
	CUlaunchConfig config = { .gridDimX = 64,
				  .gridDimY = 1,
				  .gridDimZ = 1,
				  .blockDimX = 128,
				  .blockDimY = 1,
				  .blockDimZ = 1,
				  .attrs = &attribute,
				  .numAttrs = 1 };
	int two = 0, four = 0, most = 0, untouched = 77;

	begin("clusters");
	OK(cuOccupancyMaxActiveClusters(&two, saxpy, &config));
	attribute.value.clusterDim.y = 2;
	config.gridDimY = 2;
	OK(cuOccupancyMaxActiveClusters(&four, saxpy, &config));
	CHECK(two > 0 && four > 0 && four <= two);
	attribute.value.clusterDim.x = 64;
	BAD(cuOccupancyMaxActiveClusters(&untouched, saxpy, &config), INVALID_VALUE);
	attribute.value.clusterDim.x = 0;
	BAD(cuOccupancyMaxActiveClusters(&untouched, saxpy, &config), INVALID_VALUE);
	config.numAttrs = 0;
	config.gridDimY = 1;
	OK(cuOccupancyMaxPotentialClusterSize(&most, saxpy, &config));
	CHECK(most >= 1 && most <= 16);
	config.blockDimX = 2048;
	BAD(cuOccupancyMaxPotentialClusterSize(&untouched, saxpy, &config), INVALID_VALUE);
	BAD(cuOccupancyMaxActiveClusters(&untouched, saxpy, NULL), INVALID_VALUE);
	BAD(cuOccupancyMaxActiveClusters(NULL, saxpy, &config), INVALID_VALUE);
	CHECK(untouched == 77);
	end();
}

int main(int argc, char **argv)
{
	CUmodule module;

	if (argc != 2 && argc != 3)
		return 2;
	is_native = argc == 3;
	(void)set_out();
	OK(cuModuleLoad(&module, argv[1]));
	OK(cuModuleGetFunction(&tile, module, "tile"));
	OK(cuModuleGetFunction(&saxpy, module, "saxpy"));
	OK(cuMemAlloc(&matrix, (size_t)(ROWS + 8) * PITCH));
	OK(cuMemAlloc(&out, 4ul * HIGH * WIDE));
	tiles();
	many();
	columns_of_images();
	misused();
	clusters();
	return 0;
}
