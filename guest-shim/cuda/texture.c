/* SPDX-License-Identifier: Apache-2.0 */
/* Textures and surfaces: what the program says of them becomes what the host's device is asked for. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "guest-shim/cuda/array.h"
#include "guest-shim/cuda/vmm.h"

static struct cu_texture *textures;

#define MAX_LINEAR \
	(1u        \
	 << 28) /* elements, of CUDA's table of compute capabilities: of devices that tell none of their own */

static CUresult linear(const struct cu_device *dev, const CUDA_RESOURCE_DESC *resource,
		       struct gantry_wire_texture *spec)
{
	uint32_t element = cu_element_bytes(resource->res.linear.format,
					    resource->res.linear.numChannels);
	const struct cu_alloc *alloc = cu_alloc_find_locked(resource->res.linear.devPtr);
	int32_t most = dev->attributes[CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH];
	uint64_t bytes;

	if (!element || !alloc || cu_alloc_is_far(alloc) ||
	    resource->res.linear.sizeInBytes / element > (most > 0 ? (uint32_t)most : MAX_LINEAR))
		return CUDA_ERROR_INVALID_VALUE;
	/* CUDA takes one that is longer than its memory. Here it ends with that: what lies behind it is nobody's, and reads as 0. */
	bytes = alloc->kind == CU_MEMORY_MAPPED
			? cu_mapped_bytes_locked(resource->res.linear.devPtr,
						 resource->res.linear.sizeInBytes)
			: alloc->bytes - (resource->res.linear.devPtr - alloc->address);
	bytes = gantry_min_u64(resource->res.linear.sizeInBytes, bytes);
	if (bytes < element)
		return CUDA_ERROR_INVALID_VALUE;
	spec->address = resource->res.linear.devPtr;
	spec->format = resource->res.linear.format;
	spec->channels = resource->res.linear.numChannels;
	spec->width = bytes / element;
	return CUDA_SUCCESS;
}

static CUresult rows(const CUDA_RESOURCE_DESC *resource, struct gantry_wire_texture *spec)
{
	uint32_t element = cu_element_bytes(resource->res.pitch2D.format,
					    resource->res.pitch2D.numChannels);
	const struct cu_alloc *alloc = cu_alloc_find_locked(resource->res.pitch2D.devPtr);

	/* The host looks whether all of it is the session's. */
	if (!element || resource->res.pitch2D.height == 0 || resource->res.pitch2D.width == 0 ||
	    !alloc || cu_alloc_is_far(alloc))
		return CUDA_ERROR_INVALID_VALUE;
	spec->address = resource->res.pitch2D.devPtr;
	spec->format = resource->res.pitch2D.format;
	spec->channels = resource->res.pitch2D.numChannels;
	spec->width = resource->res.pitch2D.width;
	spec->height = resource->res.pitch2D.height;
	spec->pitch = resource->res.pitch2D.pitchInBytes;
	return CUDA_SUCCESS;
}

/* What is seen: an array (*ret_of), or linear memory. */
static CUresult take_resource(const struct cu_texture *asked, gantry_buffer *ret_of,
			      struct gantry_wire_texture *spec)
{
	const CUDA_RESOURCE_DESC *resource = &asked->resource;
	struct CUarray_st *array = resource->res.array.hArray;
	struct CUmipmappedArray_st *mipmap = resource->res.mipmap.hMipmappedArray;

	if (resource->flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	switch (resource->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		if (!cu_handle_is_locked(array, CU_KIND_ARRAY))
			return CUDA_ERROR_INVALID_HANDLE;
		if (asked->is_surface && !(array->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST))
			return CUDA_ERROR_INVALID_VALUE;
		*ret_of = array->buffer;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		if (asked->is_surface || !cu_handle_is_locked(mipmap, CU_KIND_MIPMAP))
			return asked->is_surface ? CUDA_ERROR_INVALID_VALUE
						 : CUDA_ERROR_INVALID_HANDLE;
		*ret_of = mipmap->buffer;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR:
		return asked->is_surface ? CUDA_ERROR_INVALID_VALUE
					 : linear(asked->ctx->dev, resource, spec);
	case CU_RESOURCE_TYPE_PITCH2D:
		return asked->is_surface ? CUDA_ERROR_INVALID_VALUE : rows(resource, spec);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

static void take_sampling(const struct cu_texture *asked, struct gantry_wire_texture *spec)
{
	const CUDA_TEXTURE_DESC *s = &asked->sampling;

	for (int i = 0; i < 3; i++)
		spec->address_mode[i] = (uint32_t)s->addressMode[i];
	spec->filter = (uint32_t)s->filterMode;
	spec->sampling = s->flags;
	spec->anisotropy = s->maxAnisotropy;
	spec->level_filter = (uint32_t)s->mipmapFilterMode;
	spec->level_bias = s->mipmapLevelBias;
	spec->level_min = s->minMipmapLevelClamp;
	spec->level_max = s->maxMipmapLevelClamp;
	memcpy(spec->border, s->borderColor, sizeof(spec->border));
}

static void take_view(const CUDA_RESOURCE_VIEW_DESC *view, struct gantry_wire_texture *spec)
{
	spec->view_format = (uint32_t)view->format;
	spec->view[0] = view->width;
	spec->view[1] = view->height;
	spec->view[2] = view->depth;
	spec->view_level[0] = view->firstMipmapLevel;
	spec->view_level[1] = view->lastMipmapLevel;
	spec->view_layer[0] = view->firstLayer;
	spec->view_layer[1] = view->lastLayer;
}

CUresult cu_texture_new_locked(const struct cu_texture *asked, uint64_t *ret_number)
{
	struct gantry_wire_texture spec = { 0 };
	struct gantry_reply_variable made;
	struct cu_texture *texture;
	gantry_buffer of = 0;
	CUresult result = take_resource(asked, &of, &spec);

	if (result != CUDA_SUCCESS)
		return result;
	take_sampling(asked, &spec);
	if (asked->has_view)
		take_view(&asked->view, &spec);
	texture = malloc(sizeof(*texture));
	if (!texture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = cu_texture_result(gantry_device_texture(cu.session, asked->ctx->dev->index,
							 asked->is_surface ? GANTRY_TEXTURE_SURFACE
									   : GANTRY_TEXTURE_TEXTURE,
							 of, &spec, &made));
	if (result != CUDA_SUCCESS) {
		free(texture);
		return result;
	}
	*texture = *asked;
	texture->number = made.address;
	texture->buffer = made.handle;
	texture->next = textures;
	textures = texture;
	*ret_number = texture->number;
	return CUDA_SUCCESS;
}

struct cu_texture *cu_texture_find_locked(const struct CUctx_st *ctx, uint64_t number,
					  bool is_surface)
{
	struct cu_texture *texture = textures;

	while (texture && (texture->number != number || texture->is_surface != is_surface ||
			   texture->ctx->dev != ctx->dev))
		texture = texture->next;
	return texture;
}

static void end(struct cu_texture **at)
{
	struct cu_texture *texture = *at;

	*at = texture->next;
	/* It goes when what was submitted before has finished. */
	(void)gantry_free(cu.session, texture->buffer);
	free(texture);
}

void cu_texture_end_locked(struct cu_texture *texture)
{
	struct cu_texture **at = &textures;

	while (*at != texture)
		at = &(*at)->next;
	end(at);
}

void cu_texture_end_all_locked(const struct CUctx_st *ctx)
{
	for (struct cu_texture **at = &textures; *at;)
		if ((*at)->ctx == ctx)
			end(at);
		else
			at = &(*at)->next;
}
