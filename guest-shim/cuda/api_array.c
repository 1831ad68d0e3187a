/* SPDX-License-Identifier: Apache-2.0 */
/* Exported: arrays, textures and surfaces, but for what goes into streams. */
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/graph.h"

/* ---- arrays ---- */

CUresult CUDAAPI cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct CUctx_st *ctx;
	CUresult result = array && desc ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_capture_unsafe_locked();
	return cu_leave(result == CUDA_SUCCESS ? cu_array_new_locked(ctx, desc, array) : result);
}

CUresult CUDAAPI cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	CUDA_ARRAY3D_DESCRIPTOR whole;

	if (!desc)
		return CUDA_ERROR_INVALID_VALUE;
	whole = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = desc->Width,
					   .Height = desc->Height,
					   .Format = desc->Format,
					   .NumChannels = desc->NumChannels };
	return cuArray3DCreate(array, &whole);
}

/* With the lock where it is an array. */
static CUresult enter_array(CUarray array)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result == CUDA_SUCCESS && !cu_handle_is_locked(array, CU_KIND_ARRAY))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult CUDAAPI cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array)
{
	CUresult result = desc ? enter_array(array) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*desc = array->desc;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR *desc, CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR whole;
	CUresult result = desc ? cuArray3DGetDescriptor(&whole, array) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		*desc = (CUDA_ARRAY_DESCRIPTOR){ .Width = whole.Width,
						 .Height = whole.Height,
						 .Format = whole.Format,
						 .NumChannels = whole.NumChannels };
	return result;
}

CUresult CUDAAPI cuArrayDestroy(CUarray array)
{
	CUresult result = enter_array(array);

	return result == CUDA_SUCCESS ? cu_leave(cu_array_end_locked(array)) : result;
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
					const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int nlevels)
{
	struct CUctx_st *ctx;
	CUresult result = mipmap && desc ? cu_enter(&ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	result = cu_capture_unsafe_locked();
	return cu_leave(result == CUDA_SUCCESS ? cu_mipmap_new_locked(ctx, desc, nlevels, mipmap)
					       : result);
}

static CUresult enter_mipmap(CUmipmappedArray mipmap)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result == CUDA_SUCCESS && !cu_handle_is_locked(mipmap, CU_KIND_MIPMAP))
		return cu_leave(CUDA_ERROR_INVALID_HANDLE);
	return result;
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap,
					  unsigned int level)
{
	CUresult result = array ? enter_mipmap(mipmap) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cu_leave(cu_mipmap_level_locked(mipmap, level, array))
				      : result;
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
	CUresult result = enter_mipmap(mipmap);

	if (result != CUDA_SUCCESS)
		return result;
	cu_mipmap_end_locked(mipmap);
	return cu_leave(CUDA_SUCCESS);
}

/* ---- textures and surfaces ---- */

CUresult CUDAAPI cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
				   const CUDA_TEXTURE_DESC *sampling,
				   const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct cu_texture asked = { .has_view = view };
	uint64_t number;
	CUresult result = texture && resource && sampling ? cu_enter(&asked.ctx)
							  : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	asked.resource = *resource;
	asked.sampling = *sampling;
	if (view)
		asked.view = *view;
	result = cu_texture_new_locked(&asked, &number);
	if (result == CUDA_SUCCESS)
		*texture = number;
	return cu_leave(result);
}

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject *surface, const CUDA_RESOURCE_DESC *resource)
{
	struct cu_texture asked = { .is_surface = true };
	uint64_t number;
	CUresult result = surface && resource ? cu_enter(&asked.ctx) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	asked.resource = *resource;
	result = cu_texture_new_locked(&asked, &number);
	if (result == CUDA_SUCCESS)
		*surface = number;
	return cu_leave(result);
}

/* With the lock where there is one. */
static CUresult enter_texture(uint64_t number, bool is_surface, struct cu_texture **ret_texture)
{
	struct CUctx_st *ctx;
	CUresult result = cu_enter(&ctx);

	if (result != CUDA_SUCCESS)
		return result;
	*ret_texture = cu_texture_find_locked(ctx, number, is_surface);
	return *ret_texture ? CUDA_SUCCESS : cu_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult destroy(uint64_t number, bool is_surface)
{
	struct cu_texture *texture;
	CUresult result = enter_texture(number, is_surface, &texture);

	if (result != CUDA_SUCCESS)
		return result;
	cu_texture_end_locked(texture);
	return cu_leave(CUDA_SUCCESS);
}

/* NULL is none, and no error, as natively. */
CUresult CUDAAPI cuTexObjectDestroy(CUtexObject texture)
{
	return texture ? destroy(texture, false) : cu_check();
}

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject surface)
{
	return surface ? destroy(surface, true) : cu_check();
}

static CUresult get_resource(CUDA_RESOURCE_DESC *resource, uint64_t number, bool is_surface)
{
	struct cu_texture *texture;
	CUresult result = resource ? enter_texture(number, is_surface, &texture)
				   : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*resource = texture->resource;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject texture)
{
	return get_resource(resource, texture, false);
}

CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject surface)
{
	return get_resource(resource, surface, true);
}

CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *sampling, CUtexObject number)
{
	struct cu_texture *texture;
	CUresult result = sampling ? enter_texture(number, false, &texture)
				   : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	*sampling = texture->sampling;
	return cu_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject number)
{
	struct cu_texture *texture;
	CUresult result = view ? enter_texture(number, false, &texture) : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	if (texture->has_view)
		*view = texture->view;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	return cu_leave(result);
}
