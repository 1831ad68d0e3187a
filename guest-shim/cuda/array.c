/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, and arrays with levels. */
#include "guest-shim/cuda/array.h"

#include <stdlib.h>

#include "base/checked.h"

#define KNOWN_FLAGS                                                                \
	(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | \
	 CUDA_ARRAY3D_TEXTURE_GATHER)
#define MAX_EXTENT (1ull << 28)

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

uint32_t cu_element_bytes(CUarray_format format, unsigned int channels)
{
	uint32_t bytes = 0;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		bytes = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		bytes = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		bytes = 4;
		break;
	default:
		break;
	}
	return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

uint64_t cu_array_bytes(const struct CUarray_st *array)
{
	return array->row_bytes * array->rows * array->planes;
}

CUresult cu_texture_result(int status)
{
	return status == GANTRY_E_TIMEOUT ? CUDA_ERROR_OUT_OF_MEMORY : cu_result(status);
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	bool cube = desc->Flags & CUDA_ARRAY3D_CUBEMAP,
	     layered = desc->Flags & CUDA_ARRAY3D_LAYERED;

	if (desc->Width == 0 || desc->Width > MAX_EXTENT || desc->Height > MAX_EXTENT ||
	    desc->Depth > MAX_EXTENT)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->NumChannels != 1 && desc->NumChannels != 2 && desc->NumChannels != 4)
		return CUDA_ERROR_INVALID_VALUE;
	if (layered ? desc->Depth == 0 : desc->Height == 0 && desc->Depth != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (cube && (desc->Width != desc->Height || desc->Depth == 0 ||
		     (layered ? desc->Depth % 6 : desc->Depth != 6)))
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->Flags & ~(unsigned int)KNOWN_FLAGS)
		return cu_unsupported("arrays that are sparse, or for graphics");
	return cu_element_bytes(desc->Format, desc->NumChannels)
		       ? CUDA_SUCCESS
		       : cu_unsupported("arrays of planes or compressed blocks");
}

static struct gantry_wire_texture spec_of(const CUDA_ARRAY3D_DESCRIPTOR *desc, uint32_t nlevels)
{
	return (struct gantry_wire_texture){
		.width = desc->Width,
		.height = desc->Height,
		.depth = desc->Depth,
		.format = desc->Format,
		.channels = desc->NumChannels,
		.flags = desc->Flags,
		.levels = nlevels,
	};
}

/* Its handle, around memory that is there; on failure the memory goes. */
static CUresult handle_new_locked(const struct CUarray_st *made, struct CUarray_st **ret_array)
{
	struct CUarray_st *array = calloc(1, sizeof(*array));
	uint64_t rows = at_least_one(made->desc.Height), planes = at_least_one(made->desc.Depth);

	if (!array || !cu_handle_add_locked(array, CU_KIND_ARRAY)) {
		free(array);
		(void)gantry_free(cu.session,
				  made->buffer); /* the first failure is the one to tell */
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*array = *made;
	array->element_bytes = cu_element_bytes(made->desc.Format, made->desc.NumChannels);
	array->row_bytes = made->desc.Width * array->element_bytes;
	array->rows = rows;
	array->planes = planes;
	*ret_array = array;
	return CUDA_SUCCESS;
}

CUresult cu_array_new_locked(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
			     struct CUarray_st **ret_array)
{
	const struct gantry_wire_texture spec = spec_of(desc, 0);
	struct gantry_reply_variable made = { 0 };
	CUresult result = check(desc);

	if (result == CUDA_SUCCESS)
		result = cu_texture_result(gantry_device_texture(
			cu.session, ctx->dev->index, GANTRY_TEXTURE_ARRAY, 0, &spec, &made));
	return result == CUDA_SUCCESS
		       ? handle_new_locked(&(struct CUarray_st){ .ctx = ctx,
								 .buffer = made.handle,
								 .desc = *desc },
					   ret_array)
		       : result;
}

static void array_free_locked(struct CUarray_st *array)
{
	cu_handle_remove_locked(array);
	/* Its memory goes when what was submitted before has finished. */
	(void)gantry_free(cu.session, array->buffer);
	free(array);
}

CUresult cu_array_end_locked(struct CUarray_st *array)
{
	if (array->mipmap)
		return CUDA_ERROR_INVALID_HANDLE;
	array_free_locked(array);
	return CUDA_SUCCESS;
}

/* ---- levels ---- */

CUresult cu_mipmap_new_locked(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
			      unsigned int nlevels, struct CUmipmappedArray_st **ret_mipmap)
{
	uint64_t largest = GANTRY_MAX(desc->Width, desc->Height);
	struct CUmipmappedArray_st *mipmap;
	struct gantry_wire_texture spec;
	struct gantry_reply_variable made;
	uint32_t most = 1;
	CUresult result = check(desc);

	if (result != CUDA_SUCCESS)
		return result;
	if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		largest = GANTRY_MAX(largest, desc->Depth);
	while (largest >>= 1)
		most++;
	if (nlevels == 0)
		return CUDA_ERROR_INVALID_VALUE;
	nlevels = GANTRY_MIN(nlevels, most); /* as CUDA has it */
	mipmap = calloc(1, sizeof(*mipmap));
	if (!mipmap || !cu_handle_add_locked(mipmap, CU_KIND_MIPMAP)) {
		free(mipmap);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	spec = spec_of(desc, nlevels);
	result = cu_texture_result(gantry_device_texture(cu.session, ctx->dev->index,
							 GANTRY_TEXTURE_ARRAY, 0, &spec, &made));
	if (result != CUDA_SUCCESS) {
		cu_handle_remove_locked(mipmap);
		free(mipmap);
		return result;
	}
	*mipmap = (struct CUmipmappedArray_st){
		.ctx = ctx, .buffer = made.handle, .desc = *desc, .nlevels = nlevels
	};
	*ret_mipmap = mipmap;
	return CUDA_SUCCESS;
}

static size_t shrunk(size_t n, unsigned int level)
{
	return n ? at_least_one(n >> level) : 0;
}

CUresult cu_mipmap_level_locked(struct CUmipmappedArray_st *mipmap, unsigned int level,
				struct CUarray_st **ret_array)
{
	const struct gantry_wire_texture spec = { .levels = level };
	struct CUarray_st array = { .ctx = mipmap->ctx, .desc = mipmap->desc, .mipmap = mipmap };
	struct gantry_reply_variable made;
	CUresult result;

	if (level >= mipmap->nlevels)
		return CUDA_ERROR_INVALID_VALUE;
	if (mipmap->levels[level]) {
		*ret_array = mipmap->levels[level];
		return CUDA_SUCCESS;
	}
	array.desc.Width = shrunk(mipmap->desc.Width, level);
	array.desc.Height = shrunk(mipmap->desc.Height, level);
	if (!(mipmap->desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
		array.desc.Depth = shrunk(mipmap->desc.Depth, level);
	result = cu_texture_result(gantry_device_texture(cu.session, mipmap->ctx->dev->index,
							 GANTRY_TEXTURE_LEVEL, mipmap->buffer,
							 &spec, &made));
	if (result != CUDA_SUCCESS)
		return result;
	array.buffer = made.handle;
	result = handle_new_locked(&array, &mipmap->levels[level]);
	if (result == CUDA_SUCCESS)
		*ret_array = mipmap->levels[level];
	return result;
}

void cu_mipmap_end_locked(struct CUmipmappedArray_st *mipmap)
{
	for (uint32_t i = 0; i < mipmap->nlevels; i++)
		if (mipmap->levels[i])
			array_free_locked(mipmap->levels[i]);
	cu_handle_remove_locked(mipmap);
	(void)gantry_free(cu.session, mipmap->buffer);
	free(mipmap);
}

void cu_array_end_all_locked(const struct CUctx_st *ctx)
{
	const void *found;

	cu_texture_end_all_locked(ctx);
	/* One that ends leaves its place in the table: what follows stays where it is. */
	for (uint32_t at = 0; (found = cu_handle_next_locked(CU_KIND_MIPMAP, &at));) {
		struct CUmipmappedArray_st *mipmap = (struct CUmipmappedArray_st *)(uintptr_t)found;

		if (mipmap->ctx == ctx)
			cu_mipmap_end_locked(mipmap);
	}
	for (uint32_t at = 0; (found = cu_handle_next_locked(CU_KIND_ARRAY, &at));) {
		struct CUarray_st *array = (struct CUarray_st *)(uintptr_t)found;

		if (array->ctx == ctx)
			(void)cu_array_end_locked(array); /* levels have gone with theirs */
	}
}
