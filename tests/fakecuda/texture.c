/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays, textures and surfaces. Elements lie row after row; nothing filters. */
#include <stdlib.h>
#include <string.h>

#include "tests/fakecuda/fake.h"

#define DIRT	     0x5a
#define MAX_EXTENT   65536u
#define FIRST_NUMBER 1u

static uint64_t element_bytes(CUarray_format format, unsigned int channels)
{
	uint64_t bytes =
		format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8 ? 1
		: format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16 ||
				format == CU_AD_FORMAT_HALF
			? 2
		: format == CU_AD_FORMAT_UNSIGNED_INT32 || format == CU_AD_FORMAT_SIGNED_INT32 ||
				format == CU_AD_FORMAT_FLOAT
			? 4
			: 0;

	return channels == 1 || channels == 2 || channels == 4 ? bytes * channels : 0;
}

/* ---- arrays ---- */

static bool fits(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	bool cube = desc->Flags & CUDA_ARRAY3D_CUBEMAP;

	if (desc->Width == 0 || desc->Width > 2 * MAX_EXTENT || desc->Height > MAX_EXTENT ||
	    desc->Depth > MAX_EXTENT)
		return false;
	if ((desc->Flags & CUDA_ARRAY3D_LAYERED) && desc->Depth == 0)
		return false;
	if (!(desc->Flags & CUDA_ARRAY3D_LAYERED) && desc->Height == 0 && desc->Depth != 0)
		return false;
	if (cube && (desc->Width != desc->Height || desc->Depth % 6 || desc->Depth == 0))
		return false;
	return element_bytes(desc->Format, desc->NumChannels) != 0;
}

static size_t one(size_t n)
{
	return n ? n : 1;
}

static CUresult array_new_locked(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				 struct CUmipmappedArray_st *of, struct CUarray_st **ret_array)
{
	struct CUarray_st *array = calloc(1, sizeof(*array));
	CUresult r;

	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->ctx = ctx;
	array->of = of;
	array->desc = *desc;
	array->desc.Height = one(desc->Height);
	array->desc.Depth = one(desc->Depth);
	array->element_bytes = element_bytes(desc->Format, desc->NumChannels);
	array->len = array->desc.Width * array->desc.Height * array->desc.Depth *
		     array->element_bytes;
	r = fake_charge(ctx->ordinal, array->len);
	array->bytes = r == CUDA_SUCCESS ? malloc(array->len) : NULL;
	if (!array->bytes) {
		free(array);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	memset(array->bytes, fake.dirty ? DIRT : 0, array->len);
	array->next = fake.arrays;
	fake.arrays = array;
	*ret_array = array;
	return CUDA_SUCCESS;
}

static struct CUarray_st **array_at_locked(const struct CUarray_st *array)
{
	struct CUarray_st **at = &fake.arrays;

	while (*at && *at != array)
		at = &(*at)->next;
	return at;
}

static void array_end_locked(struct CUarray_st **at)
{
	struct CUarray_st *array = *at;

	*at = array->next;
	fake.used[array->ctx->ordinal] -= array->len;
	free(array->bytes);
	free(array);
}

CUresult cuArray3DCreate(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS || !fits(desc))
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	r = array_new_locked(ctx, desc, NULL, ret_array);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuArrayDestroy(CUarray array)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct CUarray_st **at;

	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	at = array_at_locked(array);
	if (*at && !array->of)
		array_end_locked(at);
	else
		r = CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static void mipmap_end_locked(struct CUmipmappedArray_st *mipmap)
{
	for (unsigned int i = 0; i < mipmap->nlevels; i++)
		array_end_locked(array_at_locked(mipmap->levels[i]));
	free(mipmap);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret_mipmap, const CUDA_ARRAY3D_DESCRIPTOR *desc,
				unsigned int nlevels)
{
	struct CUmipmappedArray_st *mipmap;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS || !fits(desc) || nlevels == 0 || nlevels > 32)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	mipmap = calloc(1, sizeof(*mipmap));
	if (!mipmap)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake.lock);
	for (unsigned int i = 0; i < nlevels && r == CUDA_SUCCESS; i++) {
		CUDA_ARRAY3D_DESCRIPTOR level = *desc;

		level.Width = one(desc->Width >> i);
		level.Height = desc->Height ? one(desc->Height >> i) : 0;
		if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
			level.Depth = desc->Depth ? one(desc->Depth >> i) : 0;
		r = array_new_locked(ctx, &level, mipmap, &mipmap->levels[i]);
		if (r == CUDA_SUCCESS)
			mipmap->nlevels++;
	}
	if (r == CUDA_SUCCESS)
		*ret_mipmap = mipmap;
	else
		mipmap_end_locked(mipmap);
	pthread_mutex_unlock(&fake.lock);
	return r;
}

CUresult cuMipmappedArrayGetLevel(CUarray *ret_array, CUmipmappedArray mipmap, unsigned int level)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r != CUDA_SUCCESS || level >= mipmap->nlevels)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
	*ret_array = mipmap->levels[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);

	if (r == CUDA_SUCCESS)
		r = cuCtxSynchronize();
	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	mipmap_end_locked(mipmap);
	pthread_mutex_unlock(&fake.lock);
	return CUDA_SUCCESS;
}

void fake_textures_end(struct CUctx_st *ctx)
{
	for (struct CUarray_st **at = &fake.arrays; *at;)
		if ((*at)->ctx == ctx)
			array_end_locked(at);
		else
			at = &(*at)->next;
	for (struct fake_texture **at = &fake.textures; *at;) {
		struct fake_texture *texture = *at;

		if (texture->ctx != ctx) {
			at = &texture->next;
			continue;
		}
		*at = texture->next;
		free(texture);
	}
}

/* ---- copies ---- */

/* Where row @y of plane @z of one end begins; NULL: it is not inside. */
static unsigned char *row_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
			     size_t pitch, size_t height, size_t x, size_t y, size_t z,
			     size_t bytes)
{
	uintptr_t base = type == CU_MEMORYTYPE_HOST ? (uintptr_t)host : device;
	uint64_t row;

	if (type != CU_MEMORYTYPE_ARRAY)
		return (unsigned char *)(base + (z * height + y) * pitch + x);
	row = array->desc.Width * array->element_bytes;
	if (y >= array->desc.Height || z >= array->desc.Depth || x + bytes > row)
		return NULL;
	return array->bytes + (z * array->desc.Height + y) * row + x;
}

CUresult fake_run_box(const CUDA_MEMCPY3D *c)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < c->Height * c->Depth && r == CUDA_SUCCESS; i++) {
		size_t y = i % c->Height, z = i / c->Height;
		unsigned char *dst = row_of(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray,
					    c->dstPitch, c->dstHeight, c->dstXInBytes, c->dstY + y,
					    c->dstZ + z, c->WidthInBytes);
		const unsigned char *src = row_of(c->srcMemoryType, c->srcHost, c->srcDevice,
						  c->srcArray, c->srcPitch, c->srcHeight,
						  c->srcXInBytes, c->srcY + y, c->srcZ + z,
						  c->WidthInBytes);

		if (!dst || !src)
			r = CUDA_ERROR_ILLEGAL_ADDRESS;
		else
			memmove(dst, src, c->WidthInBytes);
	}
	pthread_mutex_unlock(&fake.lock);
	return r;
}

static bool end_fits(const CUDA_MEMCPY3D *c, CUmemorytype type, CUarray array, size_t pitch,
		     size_t height, size_t x, size_t y, size_t z)
{
	bool is;

	if (type != CU_MEMORYTYPE_ARRAY)
		return (c->Height == 1 && c->Depth == 1) ||
		       (pitch >= c->WidthInBytes + x && (c->Depth == 1 || height >= c->Height + y));
	pthread_mutex_lock(&fake.lock);
	is = *array_at_locked(array) != NULL;
	pthread_mutex_unlock(&fake.lock);
	return is && x % array->element_bytes == 0 && c->WidthInBytes % array->element_bytes == 0 &&
	       x + c->WidthInBytes <= array->desc.Width * array->element_bytes &&
	       y + c->Height <= array->desc.Height && z + c->Depth <= array->desc.Depth;
}

CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D *c, CUstream stream)
{
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(__func__, &ctx);
	struct fake_cmd *cmd;

	if (r != CUDA_SUCCESS || c->WidthInBytes == 0 || c->Height == 0 || c->Depth == 0)
		return r;
	if (!end_fits(c, c->dstMemoryType, c->dstArray, c->dstPitch, c->dstHeight, c->dstXInBytes,
		      c->dstY, c->dstZ) ||
	    !end_fits(c, c->srcMemoryType, c->srcArray, c->srcPitch, c->srcHeight, c->srcXInBytes,
		      c->srcY, c->srcZ))
		return CUDA_ERROR_INVALID_VALUE;
	cmd = fake_cmd_new(FAKE_BOX);
	if (!cmd)
		return CUDA_ERROR_OUT_OF_MEMORY;
	cmd->box = *c;
	return fake_put(stream, ctx, cmd);
}

/* ---- textures and surfaces ---- */

static CUresult texture_new(const char *call, const CUDA_RESOURCE_DESC *resource,
			    const CUDA_TEXTURE_DESC *sampling, bool is_surface,
			    unsigned long long *ret_number)
{
	struct fake_texture *texture;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	if (resource->resType == CU_RESOURCE_TYPE_ARRAY &&
	    !*array_at_locked(resource->res.array.hArray))
		r = CUDA_ERROR_INVALID_HANDLE;
	else if (is_surface &&
		 (resource->resType != CU_RESOURCE_TYPE_ARRAY ||
		  !(resource->res.array.hArray->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST)))
		r = CUDA_ERROR_INVALID_VALUE;
	texture = r == CUDA_SUCCESS ? calloc(1, sizeof(*texture)) : NULL;
	if (texture) {
		texture->ctx = ctx;
		texture->number = FIRST_NUMBER + fake.next_texture++;
		texture->is_surface = is_surface;
		texture->resource = *resource;
		if (sampling)
			texture->sampling = *sampling;
		texture->next = fake.textures;
		fake.textures = texture;
		*ret_number = texture->number;
	}
	pthread_mutex_unlock(&fake.lock);
	return r == CUDA_SUCCESS && !texture ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

static CUresult texture_end(const char *call, unsigned long long number, bool is_surface)
{
	struct fake_texture **at = &fake.textures, *texture;
	struct CUctx_st *ctx;
	CUresult r = fake_enter_ctx(call, &ctx);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&fake.lock);
	while (*at && ((*at)->number != number || (*at)->is_surface != is_surface))
		at = &(*at)->next;
	texture = *at;
	if (texture)
		*at = texture->next;
	pthread_mutex_unlock(&fake.lock);
	free(texture);
	return texture ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectCreate(CUtexObject *ret_texture, const CUDA_RESOURCE_DESC *resource,
			   const CUDA_TEXTURE_DESC *sampling, const CUDA_RESOURCE_VIEW_DESC *view)
{
	(void)view;
	return texture_new(__func__, resource, sampling, false, ret_texture);
}

CUresult cuTexObjectDestroy(CUtexObject texture)
{
	return texture_end(__func__, texture, false);
}

CUresult cuSurfObjectCreate(CUsurfObject *ret_surface, const CUDA_RESOURCE_DESC *resource)
{
	return texture_new(__func__, resource, NULL, true, ret_surface);
}

CUresult cuSurfObjectDestroy(CUsurfObject surface)
{
	return texture_end(__func__, surface, true);
}

/* ---- for kernels ---- */

/* What a texture is seen through: elements of @bytes, @size of them. */
struct seen {
	unsigned char *base;
	uint64_t bytes;
	uint64_t pitch;
	uint64_t size[3];
};

static struct seen see_locked(const struct fake_texture *texture)
{
	const CUDA_RESOURCE_DESC *r = &texture->resource;
	const struct CUarray_st *array = r->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
						 ? r->res.mipmap.hMipmappedArray->levels[0]
						 : r->res.array.hArray;
	struct seen seen = { 0 };

	if (r->resType == CU_RESOURCE_TYPE_LINEAR) {
		seen.base = (unsigned char *)(uintptr_t)r->res.linear.devPtr;
		seen.bytes = element_bytes(r->res.linear.format, r->res.linear.numChannels);
		seen.size[0] = r->res.linear.sizeInBytes / seen.bytes;
		seen.size[1] = seen.size[2] = 1;
	} else if (r->resType == CU_RESOURCE_TYPE_PITCH2D) {
		seen.base = (unsigned char *)(uintptr_t)r->res.pitch2D.devPtr;
		seen.bytes = element_bytes(r->res.pitch2D.format, r->res.pitch2D.numChannels);
		seen.pitch = r->res.pitch2D.pitchInBytes;
		seen.size[0] = r->res.pitch2D.width;
		seen.size[1] = r->res.pitch2D.height;
		seen.size[2] = 1;
	} else {
		seen.base = array->bytes;
		seen.bytes = array->element_bytes;
		seen.pitch = array->desc.Width * array->element_bytes;
		seen.size[0] = array->desc.Width;
		seen.size[1] = array->desc.Height;
		seen.size[2] = array->desc.Depth;
	}
	return seen;
}

/* -1: outside, and that is what its mode says. */
static int64_t bring_in(int64_t at, uint64_t size, CUaddress_mode mode)
{
	int64_t n = (int64_t)size;

	if (at >= 0 && at < n)
		return at;
	if (mode == CU_TR_ADDRESS_MODE_WRAP)
		return ((at % n) + n) % n;
	return mode == CU_TR_ADDRESS_MODE_CLAMP ? (at < 0 ? 0 : n - 1) : -1;
}

static struct fake_texture *find_locked(unsigned long long number, bool is_surface)
{
	struct fake_texture *texture = fake.textures;

	while (texture && (texture->number != number || texture->is_surface != is_surface))
		texture = texture->next;
	return texture;
}

static unsigned char *element_locked(const struct fake_texture *texture, const int64_t at[3],
				     uint64_t *ret_bytes)
{
	struct seen seen = see_locked(texture);
	int64_t inside[3];

	*ret_bytes = seen.bytes;
	for (int i = 0; i < 3; i++) {
		inside[i] = bring_in(at[i], seen.size[i],
				     texture->is_surface ? CU_TR_ADDRESS_MODE_BORDER
							 : texture->sampling.addressMode[i]);
		if (inside[i] < 0)
			return NULL;
	}
	return seen.base + ((uint64_t)inside[2] * seen.size[1] + (uint64_t)inside[1]) * seen.pitch +
	       (uint64_t)inside[0] * seen.bytes;
}

unsigned int fake_texture_read(unsigned long long number, int64_t x, int64_t y, int64_t z,
			       void *ret_element)
{
	const int64_t at[3] = { x, y, z };
	struct fake_texture *texture;
	unsigned char *element;
	uint64_t bytes = 0;

	pthread_mutex_lock(&fake.lock);
	texture = find_locked(number, false);
	if (!texture)
		texture = find_locked(number, true);
	element = texture ? element_locked(texture, at, &bytes) : NULL;
	if (element)
		memcpy(ret_element, element, bytes);
	else if (texture && !texture->is_surface)
		memcpy(ret_element, texture->sampling.borderColor, bytes);
	else
		bytes = 0;
	pthread_mutex_unlock(&fake.lock);
	return (unsigned int)bytes;
}

unsigned int fake_surface_write(unsigned long long number, int64_t x, int64_t y, int64_t z,
				const void *element)
{
	const int64_t at[3] = { x, y, z };
	struct fake_texture *surface;
	unsigned char *to;
	uint64_t bytes;

	pthread_mutex_lock(&fake.lock);
	surface = find_locked(number, true);
	to = surface ? element_locked(surface, at, &bytes) : NULL;
	if (to)
		memcpy(to, element, bytes);
	pthread_mutex_unlock(&fake.lock);
	return to != NULL;
}
