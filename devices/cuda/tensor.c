/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that kernels copy parts of tensors with: bytes that only the driver knows, made of what a guest says. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"

static_assert(sizeof(CUtensorMap) == GANTRY_TENSOR_PARTS * GANTRY_TENSOR_PART_BYTES,
	      "a descriptor is answered in so many parts");

/* Bits of an element; 0: there is none such. */
static uint32_t element_bits(uint32_t type)
{
	static const uint8_t bits[] = {
		[CU_TENSOR_MAP_DATA_TYPE_UINT8] = 8,
		[CU_TENSOR_MAP_DATA_TYPE_UINT16] = 16,
		[CU_TENSOR_MAP_DATA_TYPE_UINT32] = 32,
		[CU_TENSOR_MAP_DATA_TYPE_INT32] = 32,
		[CU_TENSOR_MAP_DATA_TYPE_UINT64] = 64,
		[CU_TENSOR_MAP_DATA_TYPE_INT64] = 64,
		[CU_TENSOR_MAP_DATA_TYPE_FLOAT16] = 16,
		[CU_TENSOR_MAP_DATA_TYPE_FLOAT32] = 32,
		[CU_TENSOR_MAP_DATA_TYPE_FLOAT64] = 64,
		[CU_TENSOR_MAP_DATA_TYPE_BFLOAT16] = 16,
		[CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ] = 32,
		[CU_TENSOR_MAP_DATA_TYPE_TFLOAT32] = 32,
		[CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ] = 32,
		/* Packed ones of 4 and 6 bits: no more than a byte each. */
		8,
		8,
		8,
	};

	return type < sizeof(bits) ? bits[type] : 0;
}

/* What it reaches from its address on, at most. */
static int bytes_of(const struct gantry_wire_tensor *spec, uint64_t *ret_bytes)
{
	uint64_t bytes = spec->dims[0] * element_bits(spec->type) / 8;

	for (uint32_t i = 1; i < spec->rank; i++) {
		uint64_t part;

		if (gantry_mul_u64(spec->dims[i] - 1, spec->strides[i - 1], &part) < 0 ||
		    gantry_add_u64(bytes, part, &bytes) < 0)
			return -EINVAL;
	}
	*ret_bytes = bytes;
	return 0;
}

/* The driver checks the rest; it looks into arrays as long as the rank says. */
static int check(const struct gantry_dev *dev, const struct gantry_wire_tensor *spec,
		 struct gantry_err *err)
{
	uint64_t bytes;

	if (spec->rank < 1 || spec->rank > GANTRY_TENSOR_RANK || !element_bits(spec->type) ||
	    spec->mode > GANTRY_TENSOR_IM2COL)
		return gantry_err_set(err, -EINVAL, "no such tensor");
	/* Corners are of its dimensions but two. */
	if (spec->mode == GANTRY_TENSOR_IM2COL && spec->rank < 3)
		return gantry_err_set(err, -EINVAL, "im2col takes tensors of rank 3 to 5");
	for (uint32_t i = 0; i < spec->rank; i++)
		if (spec->dims[i] == 0 || spec->dims[i] > 1ull << 32)
			return gantry_err_set(err, -EINVAL, "a tensor's side is 1 to 2^32");
	if (bytes_of(spec, &bytes) < 0 || !gantry_cuda_mem_is(dev, spec->address, bytes))
		return gantry_err_set(err, -EINVAL, "the tensor does not lie in memory");
	return 0;
}

static CUresult encode(const struct gantry_cuda_driver *driver,
		       const struct gantry_wire_tensor *spec, CUtensorMap *ret_map)
{
	void *address = (void *)(uintptr_t)spec->address;

	if (spec->mode == GANTRY_TENSOR_TILED)
		return driver->TensorMapEncodeTiled(ret_map, (CUtensorMapDataType)spec->type,
						    spec->rank, address, spec->dims, spec->strides,
						    (const cuuint32_t *)spec->box, spec->steps,
						    (CUtensorMapInterleave)spec->interleave,
						    (CUtensorMapSwizzle)spec->swizzle,
						    (CUtensorMapL2promotion)spec->promotion,
						    (CUtensorMapFloatOOBfill)spec->fill);
	return driver->TensorMapEncodeIm2col(
		ret_map, (CUtensorMapDataType)spec->type, spec->rank, address, spec->dims,
		spec->strides, spec->box, spec->box + 3, spec->channels, spec->pixels, spec->steps,
		(CUtensorMapInterleave)spec->interleave, (CUtensorMapSwizzle)spec->swizzle,
		(CUtensorMapL2promotion)spec->promotion, (CUtensorMapFloatOOBfill)spec->fill);
}

int gantry_cuda_ask_tensor(struct gantry_dev *dev, const struct gantry_question *question,
			   void *ret_answer, struct gantry_err *err)
{
	uint64_t part = question->number[0];
	CUtensorMap map;
	CUresult result;
	int r;

	if (!question->tensor || part >= GANTRY_TENSOR_PARTS)
		return -EINVAL;
	r = check(dev, question->tensor, err);
	if (r < 0)
		return r;
	memset(&map, 0, sizeof(map));
	result = encode(dev->driver, question->tensor, &map);
	if (result == CUDA_ERROR_INVALID_VALUE)
		return -EINVAL;
	if (result == CUDA_ERROR_NOT_SUPPORTED)
		return -EOPNOTSUPP;
	if (result != CUDA_SUCCESS)
		return gantry_cuda_check(dev, result, "cuTensorMapEncode", err);
	memcpy(ret_answer, (const uint8_t *)&map + part * GANTRY_TENSOR_PART_BYTES,
	       GANTRY_TENSOR_PART_BYTES);
	return GANTRY_TENSOR_PART_BYTES;
}
