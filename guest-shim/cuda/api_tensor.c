/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exported: descriptors that kernels copy parts of tensors with. Their bytes are the driver's own: the worker's makes them, of what
 * is said here. They hold for the device of the current context, or the first.
 */
#include <string.h>

#include "guest-shim/cuda/core.h"

static_assert(sizeof(CUtensorMap) == GANTRY_TENSOR_PARTS * GANTRY_TENSOR_PART_BYTES,
	      "a descriptor comes in so many parts");

/* Frameworks make the same ones again and again. */
#define NKNOWN 64u
static struct {
	struct cu_device *dev; /* NULL: free */
	struct gantry_wire_tensor spec;
	CUtensorMap map;
} known[NKNOWN];
static uint32_t next_known;

static CUresult ask(const struct cu_device *dev, const struct gantry_wire_tensor *spec,
		    CUtensorMap *ret_map)
{
	uint8_t bytes[sizeof(*ret_map)];
	int r = gantry_device_tensor(cu.session, dev->index, spec, bytes);

	if (r == GANTRY_E_UNSUPPORTED)
		return cu_unsupported("cuTensorMapEncode on this host");
	if (r == 0)
		memcpy(ret_map, bytes, sizeof(*ret_map));
	return cu_result(r);
}

static CUresult encode(const struct gantry_wire_tensor *spec, CUtensorMap *ret_map)
{
	struct CUctx_st *ctx;
	struct cu_device *dev;
	CUresult result;

	(void)pthread_mutex_lock(&cu.lock);
	dev = cu_ctx_current_locked(&ctx) == CUDA_SUCCESS ? ctx->dev : &cu.devices[0];
	for (uint32_t i = 0; i < NKNOWN; i++)
		if (known[i].dev == dev && !memcmp(&known[i].spec, spec, sizeof(*spec))) {
			*ret_map = known[i].map;
			return cu_leave(CUDA_SUCCESS);
		}
	if (!dev->attributes[CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED])
		return cu_leave(CUDA_ERROR_NOT_SUPPORTED);
	result = ask(dev, spec, ret_map);
	if (result == CUDA_SUCCESS) {
		uint32_t i = next_known++ % NKNOWN;

		known[i].dev = dev;
		known[i].spec = *spec;
		known[i].map = *ret_map;
	}
	return cu_leave(result);
}

/* What both sorts have. */
static CUresult begin(CUtensorMapDataType type, cuuint32_t rank, const void *address,
		      const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps,
		      struct gantry_wire_tensor *ret_spec)
{
	CUresult result = rank >= 1 && rank <= GANTRY_TENSOR_RANK && dims && steps &&
					  (strides || rank == 1)
				  ? cu_check()
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*ret_spec = (struct gantry_wire_tensor){ .address = (uintptr_t)address,
						 .type = type,
						 .rank = rank };
	memcpy(ret_spec->dims, dims, rank * sizeof(*dims));
	if (rank > 1)
		memcpy(ret_spec->strides, strides, (rank - 1) * sizeof(*strides));
	memcpy(ret_spec->steps, steps, rank * sizeof(*steps));
	return CUDA_SUCCESS;
}

static bool is_map(const CUtensorMap *map)
{
	return map && (uintptr_t)map % 64 == 0;
}

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
					void *address, const cuuint64_t *dims,
					const cuuint64_t *strides, const cuuint32_t *box,
					const cuuint32_t *steps, CUtensorMapInterleave interleave,
					CUtensorMapSwizzle swizzle,
					CUtensorMapL2promotion promotion,
					CUtensorMapFloatOOBfill fill)
{
	struct gantry_wire_tensor spec;
	CUresult result = is_map(map) && box
				  ? begin(type, rank, address, dims, strides, steps, &spec)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	spec.mode = GANTRY_TENSOR_TILED;
	memcpy(spec.box, box, rank * sizeof(*box));
	spec.interleave = interleave;
	spec.swizzle = swizzle;
	spec.promotion = promotion;
	spec.fill = fill;
	return encode(&spec, map);
}

CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type,
					 cuuint32_t rank, void *address, const cuuint64_t *dims,
					 const cuuint64_t *strides, const int *lower,
					 const int *upper, cuuint32_t channels, cuuint32_t pixels,
					 const cuuint32_t *steps, CUtensorMapInterleave interleave,
					 CUtensorMapSwizzle swizzle,
					 CUtensorMapL2promotion promotion,
					 CUtensorMapFloatOOBfill fill)
{
	struct gantry_wire_tensor spec;
	CUresult result = is_map(map) && lower && upper && rank >= 3
				  ? begin(type, rank, address, dims, strides, steps, &spec)
				  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	spec.mode = GANTRY_TENSOR_IM2COL;
	memcpy(spec.box, lower, (rank - 2) * sizeof(*lower));
	memcpy(spec.box + 3, upper, (rank - 2) * sizeof(*upper));
	spec.channels = channels;
	spec.pixels = pixels;
	spec.interleave = interleave;
	spec.swizzle = swizzle;
	spec.promotion = promotion;
	spec.fill = fill;
	return encode(&spec, map);
}
