/* SPDX-License-Identifier: Apache-2.0 */
/* Textures and surfaces: the Runtime API's words for them become the Driver API's, and back. */
#include "guest-shim/cuda/runtime/array.h"

#include <string.h>

/* ---- what is seen ---- */

static CUresult take_resource(const struct cudaResourceDesc *from, CUDA_RESOURCE_DESC *ret_to)
{
	memset(ret_to, 0, sizeof(*ret_to));
	ret_to->flags = from->flags;
	switch (from->resType) {
	case cudaResourceTypeArray:
		ret_to->resType = CU_RESOURCE_TYPE_ARRAY;
		ret_to->res.array.hArray = rt_array(from->res.array.array);
		return CUDA_SUCCESS;
	case cudaResourceTypeMipmappedArray:
		ret_to->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
		ret_to->res.mipmap.hMipmappedArray = (CUmipmappedArray)from->res.mipmap.mipmap;
		return CUDA_SUCCESS;
	case cudaResourceTypeLinear:
		ret_to->resType = CU_RESOURCE_TYPE_LINEAR;
		ret_to->res.linear.devPtr = (CUdeviceptr)(uintptr_t)from->res.linear.devPtr;
		ret_to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
		return rt_format(&from->res.linear.desc, &ret_to->res.linear.format,
				 &ret_to->res.linear.numChannels)
			       ? CUDA_SUCCESS
			       : (CUresult)cudaErrorInvalidChannelDescriptor;
	case cudaResourceTypePitch2D:
		ret_to->resType = CU_RESOURCE_TYPE_PITCH2D;
		ret_to->res.pitch2D.devPtr = (CUdeviceptr)(uintptr_t)from->res.pitch2D.devPtr;
		ret_to->res.pitch2D.width = from->res.pitch2D.width;
		ret_to->res.pitch2D.height = from->res.pitch2D.height;
		ret_to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
		return rt_format(&from->res.pitch2D.desc, &ret_to->res.pitch2D.format,
				 &ret_to->res.pitch2D.numChannels)
			       ? CUDA_SUCCESS
			       : (CUresult)cudaErrorInvalidChannelDescriptor;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static void give_resource(const CUDA_RESOURCE_DESC *from, struct cudaResourceDesc *ret_to)
{
	memset(ret_to, 0, sizeof(*ret_to));
	switch (from->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		ret_to->resType = cudaResourceTypeArray;
		ret_to->res.array.array = (cudaArray_t)from->res.array.hArray;
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		ret_to->resType = cudaResourceTypeMipmappedArray;
		ret_to->res.mipmap.mipmap = (cudaMipmappedArray_t)from->res.mipmap.hMipmappedArray;
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		ret_to->resType = cudaResourceTypeLinear;
		ret_to->res.linear.devPtr = (void *)(uintptr_t)from->res.linear.devPtr;
		ret_to->res.linear.sizeInBytes = from->res.linear.sizeInBytes;
		ret_to->res.linear.desc = rt_channels(from->res.linear.format,
						      from->res.linear.numChannels);
		break;
	default:
		ret_to->resType = cudaResourceTypePitch2D;
		ret_to->res.pitch2D.devPtr = (void *)(uintptr_t)from->res.pitch2D.devPtr;
		ret_to->res.pitch2D.width = from->res.pitch2D.width;
		ret_to->res.pitch2D.height = from->res.pitch2D.height;
		ret_to->res.pitch2D.pitchInBytes = from->res.pitch2D.pitchInBytes;
		ret_to->res.pitch2D.desc = rt_channels(from->res.pitch2D.format,
						       from->res.pitch2D.numChannels);
	}
}

/* ---- how ---- */

static void take_sampling(const struct cudaTextureDesc *from, CUDA_TEXTURE_DESC *ret_to)
{
	memset(ret_to, 0, sizeof(*ret_to));
	for (int i = 0; i < 3; i++)
		ret_to->addressMode[i] = (CUaddress_mode)from->addressMode[i];
	ret_to->filterMode = (CUfilter_mode)from->filterMode;
	ret_to->flags = (from->readMode == cudaReadModeElementType ? CU_TRSF_READ_AS_INTEGER : 0) |
			(from->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0) |
			(from->sRGB ? CU_TRSF_SRGB : 0) |
			(from->disableTrilinearOptimization ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
							    : 0) |
			(from->seamlessCubemap ? CU_TRSF_SEAMLESS_CUBEMAP : 0);
	ret_to->maxAnisotropy = from->maxAnisotropy;
	ret_to->mipmapFilterMode = (CUfilter_mode)from->mipmapFilterMode;
	ret_to->mipmapLevelBias = from->mipmapLevelBias;
	ret_to->minMipmapLevelClamp = from->minMipmapLevelClamp;
	ret_to->maxMipmapLevelClamp = from->maxMipmapLevelClamp;
	memcpy(ret_to->borderColor, from->borderColor, sizeof(ret_to->borderColor));
}

static void give_sampling(const CUDA_TEXTURE_DESC *from, struct cudaTextureDesc *ret_to)
{
	memset(ret_to, 0, sizeof(*ret_to));
	for (int i = 0; i < 3; i++)
		ret_to->addressMode[i] = (enum cudaTextureAddressMode)from->addressMode[i];
	ret_to->filterMode = (enum cudaTextureFilterMode)from->filterMode;
	ret_to->readMode = from->flags & CU_TRSF_READ_AS_INTEGER ? cudaReadModeElementType
								 : cudaReadModeNormalizedFloat;
	ret_to->normalizedCoords = !!(from->flags & CU_TRSF_NORMALIZED_COORDINATES);
	ret_to->sRGB = !!(from->flags & CU_TRSF_SRGB);
	ret_to->disableTrilinearOptimization = !!(from->flags &
						  CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION);
	ret_to->seamlessCubemap = !!(from->flags & CU_TRSF_SEAMLESS_CUBEMAP);
	ret_to->maxAnisotropy = from->maxAnisotropy;
	ret_to->mipmapFilterMode = (enum cudaTextureFilterMode)from->mipmapFilterMode;
	ret_to->mipmapLevelBias = from->mipmapLevelBias;
	ret_to->minMipmapLevelClamp = from->minMipmapLevelClamp;
	ret_to->maxMipmapLevelClamp = from->maxMipmapLevelClamp;
	memcpy(ret_to->borderColor, from->borderColor, sizeof(ret_to->borderColor));
}

/* ---- exported ---- */

static CUresult make(cudaTextureObject_t *texture, const struct cudaResourceDesc *resource,
		     const struct cudaTextureDesc *sampling,
		     const struct cudaResourceViewDesc *view)
{
	CUDA_RESOURCE_VIEW_DESC seen = { 0 };
	CUDA_RESOURCE_DESC what;
	CUDA_TEXTURE_DESC how;
	CUresult result = resource && sampling ? take_resource(resource, &what)
					       : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	take_sampling(sampling, &how);
	if (view) {
		seen.format = (CUresourceViewFormat)view->format; /* the same numbers */
		seen.width = view->width;
		seen.height = view->height;
		seen.depth = view->depth;
		seen.firstMipmapLevel = view->firstMipmapLevel;
		seen.lastMipmapLevel = view->lastMipmapLevel;
		seen.firstLayer = view->firstLayer;
		seen.lastLayer = view->lastLayer;
	}
	return cuTexObjectCreate((CUtexObject *)texture, &what, &how, view ? &seen : NULL);
}

cudaError_t CUDARTAPI cudaCreateTextureObject(cudaTextureObject_t *texture,
					      const struct cudaResourceDesc *resource,
					      const struct cudaTextureDesc *sampling,
					      const struct cudaResourceViewDesc *view)
{
	return RT(make(texture, resource, sampling, view));
}

cudaError_t CUDARTAPI cudaDestroyTextureObject(cudaTextureObject_t texture)
{
	return RT(cuTexObjectDestroy(texture));
}

static CUresult get_resource(struct cudaResourceDesc *resource, unsigned long long number,
			     CUresult (*get)(CUDA_RESOURCE_DESC *resource,
					     unsigned long long number))
{
	CUDA_RESOURCE_DESC what;
	CUresult result = resource ? get(&what, number) : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		give_resource(&what, resource);
	return result;
}

cudaError_t CUDARTAPI cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *resource,
						       cudaTextureObject_t texture)
{
	return RT(get_resource(resource, texture, cuTexObjectGetResourceDesc));
}

static CUresult get_sampling(struct cudaTextureDesc *sampling, cudaTextureObject_t texture)
{
	CUDA_TEXTURE_DESC how;
	CUresult result = sampling ? cuTexObjectGetTextureDesc(&how, texture)
				   : CUDA_ERROR_INVALID_VALUE;

	if (result == CUDA_SUCCESS)
		give_sampling(&how, sampling);
	return result;
}

cudaError_t CUDARTAPI cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *sampling,
						      cudaTextureObject_t texture)
{
	return RT(get_sampling(sampling, texture));
}

static CUresult get_view(struct cudaResourceViewDesc *view, cudaTextureObject_t texture)
{
	CUDA_RESOURCE_VIEW_DESC seen;
	CUresult result = view ? cuTexObjectGetResourceViewDesc(&seen, texture)
			       : CUDA_ERROR_INVALID_VALUE;

	if (result != CUDA_SUCCESS)
		return result;
	memset(view, 0, sizeof(*view));
	view->format = (enum cudaResourceViewFormat)seen.format;
	view->width = seen.width;
	view->height = seen.height;
	view->depth = seen.depth;
	view->firstMipmapLevel = seen.firstMipmapLevel;
	view->lastMipmapLevel = seen.lastMipmapLevel;
	view->firstLayer = seen.firstLayer;
	view->lastLayer = seen.lastLayer;
	return CUDA_SUCCESS;
}

cudaError_t CUDARTAPI cudaGetTextureObjectResourceViewDesc(struct cudaResourceViewDesc *view,
							   cudaTextureObject_t texture)
{
	return RT(get_view(view, texture));
}

static CUresult make_surface(cudaSurfaceObject_t *surface, const struct cudaResourceDesc *resource)
{
	CUDA_RESOURCE_DESC what;
	CUresult result = resource ? take_resource(resource, &what) : CUDA_ERROR_INVALID_VALUE;

	return result == CUDA_SUCCESS ? cuSurfObjectCreate((CUsurfObject *)surface, &what) : result;
}

cudaError_t CUDARTAPI cudaCreateSurfaceObject(cudaSurfaceObject_t *surface,
					      const struct cudaResourceDesc *resource)
{
	return RT(make_surface(surface, resource));
}

cudaError_t CUDARTAPI cudaDestroySurfaceObject(cudaSurfaceObject_t surface)
{
	return RT(cuSurfObjectDestroy(surface));
}

cudaError_t CUDARTAPI cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *resource,
						       cudaSurfaceObject_t surface)
{
	return RT(get_resource(resource, surface, cuSurfObjectGetResourceDesc));
}
