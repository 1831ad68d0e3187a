/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of tensors: what was said is in them as it is, behind a word that says what they are. What the documentation asks of the
 * arguments is asked for.
 */
#include <stdint.h>
#include <string.h>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/tensor.h"

static const uint8_t element_bytes[] = { 1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4 };

static int is_tensor(const CUtensorMap *map, uint32_t type, uint32_t rank, const void *address,
		     const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps)
{
	if (!map || (uintptr_t)map % 64 || type >= sizeof(element_bytes) || rank < 1 || rank > 5 ||
	    !address || (uintptr_t)address % 16 || !dims || (rank > 1 && !strides) || !steps)
		return 0;
	for (uint32_t i = 0; i < rank; i++)
		if (dims[i] == 0 || dims[i] > 1ull << 32 || steps[i] == 0 || steps[i] > 8)
			return 0;
	for (uint32_t i = 0; i + 1 < rank; i++)
		if (strides[i] % 16 || strides[i] >= 1ull << 40)
			return 0;
	return 1;
}

static int are_modes(uint32_t interleave, uint32_t swizzle, uint32_t promotion, uint32_t fill)
{
	return interleave <= CU_TENSOR_MAP_INTERLEAVE_32B &&
	       swizzle <= CU_TENSOR_MAP_SWIZZLE_128B &&
	       promotion <= CU_TENSOR_MAP_L2_PROMOTION_L2_256B &&
	       fill <= CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
}

static struct fakecuda_tensor base(uint32_t kind, uint32_t type, uint32_t rank, const void *address,
				   const cuuint64_t *dims, const cuuint64_t *strides)
{
	struct fakecuda_tensor tensor = { .magic = FAKECUDA_TENSOR,
					  .kind = (uint8_t)kind,
					  .type = (uint8_t)type,
					  .rank = (uint8_t)rank,
					  .element_bytes = element_bytes[type],
					  .address = (uintptr_t)address };

	for (uint32_t i = 0; i < rank; i++)
		tensor.dims[i] = (uint32_t)(dims[i] - 1);
	for (uint32_t i = 0; i + 1 < rank; i++)
		tensor.strides[i] = strides[i];
	return tensor;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
				void *address, const cuuint64_t *dims, const cuuint64_t *strides,
				const cuuint32_t *box, const cuuint32_t *steps,
				CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct fakecuda_tensor tensor;

	if (!is_tensor(map, type, rank, address, dims, strides, steps) || !box ||
	    !are_modes(interleave, swizzle, promotion, fill))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < rank; i++)
		if (box[i] == 0 || box[i] > 256)
			return CUDA_ERROR_INVALID_VALUE;
	if (interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && box[0] * element_bytes[type] % 16)
		return CUDA_ERROR_INVALID_VALUE;
	tensor = base(FAKECUDA_TENSOR_TILED, type, rank, address, dims, strides);
	for (uint32_t i = 0; i < rank; i++)
		tensor.box[i] = (uint16_t)box[i];
	tensor.swizzle = (uint8_t)swizzle;
	tensor.fill = (uint8_t)fill;
	memcpy(map, &tensor, sizeof(tensor));
	return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
				 void *address, const cuuint64_t *dims, const cuuint64_t *strides,
				 const int *lower, const int *upper, cuuint32_t channels,
				 cuuint32_t pixels, const cuuint32_t *steps,
				 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
				 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
	struct fakecuda_tensor tensor;

	if (rank < 3 || !is_tensor(map, type, rank, address, dims, strides, steps) || !lower ||
	    !upper || channels == 0 || channels > 256 || pixels == 0 || pixels > 1024 ||
	    !are_modes(interleave, swizzle, promotion, fill))
		return CUDA_ERROR_INVALID_VALUE;
	tensor = base(FAKECUDA_TENSOR_IM2COL, type, rank, address, dims, strides);
	for (uint32_t i = 0; i + 2 < rank; i++) {
		tensor.box[i] = (uint16_t)(int16_t)lower[i];
		tensor.upper[i] = (int16_t)upper[i];
	}
	tensor.channels = (uint16_t)channels;
	tensor.pixels = (uint16_t)pixels;
	memcpy(map, &tensor, sizeof(tensor));
	return CUDA_SUCCESS;
}
