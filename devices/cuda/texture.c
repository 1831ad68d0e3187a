/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays, and the textures and surfaces that kernels see them through. Only the driver knows how an array lies in memory; to
 * commands it is its elements row after row and plane after plane, and a copy of some of that is at most five boxes: the rest of a
 * row, rows, planes, and the same backwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/cuda/backend.h"
#include "proto/cuda_graph.h"

#define MAX_EXTENT \
	(1ull << 28) /* of linear textures; what a device takes is less, and the driver's to say */
#define MAX_BYTES   (1ull << 46)
#define MAX_LEVELS  32u
#define CLEAN_BYTES (4ull << 20) /* as much is cleared at once */
#define ARRAY_FLAGS                                                                \
	(CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | \
	 CUDA_ARRAY3D_TEXTURE_GATHER)
#define SAMPLING_FLAGS                                                             \
	(CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB | \
	 CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP)
/* How arrays lie in memory is not documented: blocks of 64 bytes and 8 rows, in pages of 64 KiB, cover what was seen. */
#define BLOCK_BYTES 64u
#define BLOCK_ROWS  8u
#define PAGE_BYTES  (64u << 10)

/* ---- what may be asked for ---- */

static uint32_t channel_bytes(uint32_t format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

/* 0, -EINVAL, or -EOPNOTSUPP of a format that there may be elsewhere. */
static int element_bytes(uint32_t format, uint32_t channels, uint32_t *ret_bytes)
{
	uint32_t bytes = channel_bytes(format);

	if (bytes == 0)
		return -EOPNOTSUPP;
	if (channels != 1 && channels != 2 && channels != 4)
		return -EINVAL;
	*ret_bytes = bytes * channels;
	return 0;
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

static int check_array(const struct gantry_wire_texture *spec, uint32_t *ret_element)
{
	if (spec->width == 0 || spec->width > MAX_EXTENT || spec->height > MAX_EXTENT ||
	    spec->depth > MAX_EXTENT || spec->levels > MAX_LEVELS)
		return -EINVAL;
	if (spec->flags & ~(uint32_t)ARRAY_FLAGS)
		return -EOPNOTSUPP;
	return element_bytes(spec->format, spec->channels, ret_element);
}

int gantry_cuda_texture_bytes(uint32_t what, const struct gantry_wire_texture *spec,
			      uint64_t *ret_bytes)
{
	uint64_t bytes = 0, rows = 0;
	uint32_t element;
	int r;

	*ret_bytes = what == GANTRY_TEXTURE_GRAPH ? GANTRY_CUDA_GRAPH_BYTES : 0;
	if (what != GANTRY_TEXTURE_ARRAY)
		return 0;
	r = check_array(spec, &element);
	if (r < 0)
		return r;
	/* No sum overflows: extents have 28 bits. */
	(void)gantry_align_up(spec->width * element, BLOCK_BYTES, &bytes);
	(void)gantry_align_up(at_least_one(spec->height), BLOCK_ROWS, &rows);
	if (gantry_mul_u64(bytes, rows, &bytes) < 0 ||
	    gantry_mul_u64(bytes, at_least_one(spec->depth), &bytes) < 0 || bytes > MAX_BYTES)
		return -EINVAL;
	/* Levels are a third of it, or as much again where one dimension shrinks only; and none is smaller than a block. */
	if (spec->levels > 1)
		bytes = 2 * bytes + (uint64_t)spec->levels * BLOCK_BYTES * BLOCK_ROWS *
					    at_least_one(spec->depth);
	return gantry_align_up(bytes, PAGE_BYTES, ret_bytes) < 0 ? -EINVAL : 0;
}

static bool is_float(float value)
{
	return value == value && value - value == 0; /* finite */
}

static bool sampling_fits(const struct gantry_wire_texture *spec)
{
	for (int i = 0; i < 3; i++)
		if (spec->address_mode[i] > CU_TR_ADDRESS_MODE_BORDER)
			return false;
	for (int i = 0; i < 4; i++)
		if (!is_float(spec->border[i]))
			return false;
	return spec->filter <= CU_TR_FILTER_MODE_LINEAR &&
	       spec->level_filter <= CU_TR_FILTER_MODE_LINEAR && spec->anisotropy <= 16 &&
	       !(spec->sampling & ~(uint32_t)SAMPLING_FLAGS) && is_float(spec->level_bias) &&
	       is_float(spec->level_min) && is_float(spec->level_max);
}

/* ---- arrays ---- */

static struct gantry_mem *mem_new(struct gantry_dev *dev, uint32_t what)
{
	struct gantry_cuda_texture *texture = calloc(1, sizeof(*texture));
	struct gantry_mem *mem;

	if (!texture)
		return NULL;
	gantry_list_init(&texture->link);
	gantry_list_init(&texture->made);
	texture->what = what;
	/* It has no addresses. */
	mem = gantry_cuda_mem_new(dev, GANTRY_CUDA_MEM_TEXTURE, 0);
	if (mem)
		mem->texture = texture;
	else
		free(texture);
	return mem;
}

static uint64_t array_bytes(const struct gantry_cuda_texture *texture)
{
	return texture->row_bytes * texture->rows * texture->planes;
}

/* Layers do not shrink; they are planes as depth is. */
static void shape(struct gantry_cuda_texture *texture, uint32_t level, uint32_t element)
{
	bool layered = texture->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t depth = layered ? texture->size[2] : texture->size[2] >> level;

	texture->element = element;
	texture->row_bytes = at_least_one(texture->size[0] >> level) * element;
	texture->rows = at_least_one(texture->size[1] >> level);
	texture->planes = at_least_one(depth);
}

static CUresult create(struct gantry_dev *dev, struct gantry_cuda_texture *texture)
{
	const CUDA_ARRAY3D_DESCRIPTOR desc = {
		.Width = texture->size[0],
		.Height = texture->size[1],
		.Depth = texture->size[2],
		.Format = (CUarray_format)texture->format,
		.NumChannels = texture->channels,
		.Flags = texture->flags,
	};

	return texture->nlevels ? dev->driver->MipmappedArrayCreate(&texture->mipmap, &desc,
								    texture->nlevels)
				: dev->driver->Array3DCreate(&texture->array, &desc);
}

static CUresult copy_span(const struct gantry_cuda_driver *driver, CUstream native,
			  const struct gantry_cuda_texture *texture, uint64_t off,
			  CUDA_MEMCPY3D other, uint64_t len, bool in, bool *begun);

static CUresult clean_one(struct gantry_dev *dev, const struct gantry_cuda_texture *texture,
			  CUdeviceptr zeroes)
{
	const CUDA_MEMCPY3D from = { .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = zeroes };
	uint64_t all = array_bytes(texture), len;
	CUresult result = CUDA_SUCCESS;
	bool begun = false;

	for (uint64_t off = 0; off < all && result == CUDA_SUCCESS; off += len) {
		len = gantry_min_u64(all - off, CLEAN_BYTES);
		result = copy_span(dev->driver, dev->own, texture, off, from, len, true, &begun);
	}
	return result;
}

static CUresult clean_all(struct gantry_dev *dev, struct gantry_cuda_texture *texture,
			  uint32_t element, CUdeviceptr zeroes)
{
	struct gantry_cuda_texture level = *texture;
	CUresult result = CUDA_SUCCESS;

	if (!texture->nlevels)
		return clean_one(dev, texture, zeroes);
	for (uint32_t i = 0; i < texture->nlevels && result == CUDA_SUCCESS; i++) {
		shape(&level, i, element);
		result = dev->driver->MipmappedArrayGetLevel(&level.array, texture->mipmap, i);
		if (result == CUDA_SUCCESS)
			result = clean_one(dev, &level, zeroes);
	}
	return result;
}

/* What another tenant of this process has freed may be given out again. */
static CUresult clean(struct gantry_dev *dev, struct gantry_cuda_texture *texture, uint32_t element)
{
	const struct gantry_cuda_driver *driver = dev->driver;
	CUresult result = CUDA_SUCCESS, ended;

	/* It is kept: to free memory waits for all that runs. But guests' kernels reach it: it is made zero each time. */
	if (!dev->zeroes)
		result = driver->MemAlloc(&dev->zeroes, CLEAN_BYTES);
	if (result == CUDA_SUCCESS)
		result = driver->MemsetD8Async(dev->zeroes, 0, CLEAN_BYTES, dev->own);
	if (result == CUDA_SUCCESS)
		result = clean_all(dev, texture, element, dev->zeroes);
	ended = driver->StreamSynchronize(dev->own);
	return result == CUDA_SUCCESS ? ended : result;
}

static int make_array(struct gantry_dev *dev, const struct gantry_wire_texture *spec,
		      struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_cuda_texture *texture;
	struct gantry_mem *mem;
	uint32_t element;
	int r = check_array(spec, &element);

	if (r < 0)
		return gantry_err_set(err, r, "the device has no such array");
	mem = mem_new(dev, GANTRY_TEXTURE_ARRAY);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for an array");
	texture = mem->texture;
	texture->size[0] = spec->width;
	texture->size[1] = spec->height;
	texture->size[2] = spec->depth;
	texture->format = spec->format;
	texture->channels = spec->channels;
	texture->flags = spec->flags;
	texture->nlevels = spec->levels;
	shape(texture, 0, element);
	r = gantry_cuda_check(dev, create(dev, texture), "making an array", err);
	if (r == 0)
		r = gantry_cuda_check(dev, clean(dev, texture, element), "clearing an array", err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	*ret_mem = mem;
	return 0;
}

static int make_level(struct gantry_dev *dev, const struct gantry_wire_texture *spec,
		      struct gantry_cuda_texture *of, struct gantry_mem **ret_mem,
		      struct gantry_err *err)
{
	struct gantry_mem *mem;
	uint32_t element;
	int r;

	if (!of || of->what != GANTRY_TEXTURE_ARRAY || !of->mipmap || spec->levels >= of->nlevels)
		return gantry_err_set(err, -EINVAL, "the array has no such level");
	mem = mem_new(dev, GANTRY_TEXTURE_LEVEL);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for an array");
	memcpy(mem->texture->size, of->size, sizeof(of->size));
	mem->texture->format = of->format;
	mem->texture->channels = of->channels;
	mem->texture->flags = of->flags;
	r = element_bytes(of->format, of->channels, &element);
	if (r == 0)
		r = gantry_cuda_check(dev,
				      dev->driver->MipmappedArrayGetLevel(&mem->texture->array,
									  of->mipmap, spec->levels),
				      "cuMipmappedArrayGetLevel", err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	shape(mem->texture, spec->levels, element);
	gantry_list_push_back(&of->made, &mem->texture->link);
	*ret_mem = mem;
	return 0;
}

/* ---- textures and surfaces ---- */

static int resource_linear(const struct gantry_dev *dev, const struct gantry_wire_texture *spec,
			   CUDA_RESOURCE_DESC *ret_desc)
{
	uint64_t bytes;
	uint32_t element;
	int r = element_bytes(spec->format, spec->channels, &element);

	if (r < 0)
		return r;
	if (spec->width == 0 || spec->width > MAX_EXTENT || spec->height > MAX_EXTENT)
		return -EINVAL;
	bytes = spec->width * element;
	if (spec->height) {
		if (spec->pitch < bytes || spec->pitch > MAX_EXTENT)
			return -EINVAL;
		bytes = spec->pitch * (spec->height - 1) + bytes;
		ret_desc->resType = CU_RESOURCE_TYPE_PITCH2D;
		ret_desc->res.pitch2D.devPtr = spec->address;
		ret_desc->res.pitch2D.format = (CUarray_format)spec->format;
		ret_desc->res.pitch2D.numChannels = spec->channels;
		ret_desc->res.pitch2D.width = spec->width;
		ret_desc->res.pitch2D.height = spec->height;
		ret_desc->res.pitch2D.pitchInBytes = spec->pitch;
	} else {
		ret_desc->resType = CU_RESOURCE_TYPE_LINEAR;
		ret_desc->res.linear.devPtr = spec->address;
		ret_desc->res.linear.format = (CUarray_format)spec->format;
		ret_desc->res.linear.numChannels = spec->channels;
		ret_desc->res.linear.sizeInBytes = bytes;
	}
	return gantry_cuda_mem_is(dev, spec->address, bytes) ? 0 : -EINVAL;
}

static int resource_of(const struct gantry_dev *dev, const struct gantry_wire_texture *spec,
		       const struct gantry_cuda_texture *of, CUDA_RESOURCE_DESC *ret_desc)
{
	*ret_desc = (CUDA_RESOURCE_DESC){ 0 };
	if (!of)
		return resource_linear(dev, spec, ret_desc);
	if (of->mipmap) {
		ret_desc->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
		ret_desc->res.mipmap.hMipmappedArray = of->mipmap;
		return 0;
	}
	ret_desc->resType = CU_RESOURCE_TYPE_ARRAY;
	ret_desc->res.array.hArray = of->array;
	return of->array ? 0 : -EINVAL;
}

static CUresult create_texture(const struct gantry_cuda_driver *driver,
			       const struct gantry_wire_texture *spec,
			       const CUDA_RESOURCE_DESC *resource, CUtexObject *ret_texture)
{
	const CUDA_TEXTURE_DESC sampling = {
		.addressMode = { (CUaddress_mode)spec->address_mode[0],
				 (CUaddress_mode)spec->address_mode[1],
				 (CUaddress_mode)spec->address_mode[2] },
		.filterMode = (CUfilter_mode)spec->filter,
		.flags = spec->sampling,
		.maxAnisotropy = spec->anisotropy,
		.mipmapFilterMode = (CUfilter_mode)spec->level_filter,
		.mipmapLevelBias = spec->level_bias,
		.minMipmapLevelClamp = spec->level_min,
		.maxMipmapLevelClamp = spec->level_max,
		.borderColor = { spec->border[0], spec->border[1], spec->border[2],
				 spec->border[3] },
	};
	const CUDA_RESOURCE_VIEW_DESC view = {
		.format = (CUresourceViewFormat)spec->view_format,
		.width = spec->view[0],
		.height = spec->view[1],
		.depth = spec->view[2],
		.firstMipmapLevel = spec->view_level[0],
		.lastMipmapLevel = spec->view_level[1],
		.firstLayer = spec->view_layer[0],
		.lastLayer = spec->view_layer[1],
	};

	return driver->TexObjectCreate(ret_texture, resource, &sampling,
				       spec->view_format ? &view : NULL);
}

static int make_object(struct gantry_dev *dev, uint32_t what,
		       const struct gantry_wire_texture *spec, struct gantry_cuda_texture *of,
		       struct gantry_mem **ret_mem, struct gantry_err *err)
{
	CUDA_RESOURCE_DESC resource;
	struct gantry_mem *mem;
	CUresult result;
	int r;

	if (what == GANTRY_TEXTURE_TEXTURE ? !sampling_fits(spec) : !of || of->mipmap)
		return gantry_err_set(err, -EINVAL, "no way to see an array");
	if (of && of->what != GANTRY_TEXTURE_ARRAY && of->what != GANTRY_TEXTURE_LEVEL)
		return gantry_err_set(err, -EINVAL, "what is seen is no array");
	r = resource_of(dev, spec, of, &resource);
	if (r < 0)
		return gantry_err_set(err, r, "the memory is not the session's, or no texture's");
	mem = mem_new(dev, what);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a texture");
	result = what == GANTRY_TEXTURE_SURFACE
			 ? dev->driver->SurfObjectCreate(&mem->texture->native, &resource)
			 : create_texture(dev->driver, spec, &resource, &mem->texture->native);
	r = gantry_cuda_check(dev, result, "making a texture", err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	if (of)
		gantry_list_push_back(&of->made, &mem->texture->link);
	*ret_mem = mem;
	return 0;
}

/* ---- graphs and their conditions ---- */

static int make_graph(struct gantry_dev *dev, const struct gantry_cuda_texture *of,
		      struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_mem *mem = of ? NULL : mem_new(dev, GANTRY_TEXTURE_GRAPH);
	int r;

	if (!mem)
		return gantry_err_set(err, of ? -EINVAL : -ENOMEM, "no such graph");
	r = gantry_cuda_graph_new(dev, &mem->texture->graph, err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	*ret_mem = mem;
	return 0;
}

static int make_condition(struct gantry_dev *dev, const struct gantry_wire_texture *spec,
			  struct gantry_cuda_texture *of, struct gantry_mem **ret_mem,
			  struct gantry_err *err)
{
	struct gantry_mem *mem;
	int r;

	if (!of || !of->graph)
		return gantry_err_set(err, -EINVAL, "a condition is a graph's");
	mem = mem_new(dev, GANTRY_TEXTURE_CONDITION);
	if (!mem)
		return gantry_err_set(err, -ENOMEM, "no memory for a condition");
	r = gantry_cuda_graph_condition(of->graph, spec->width, spec->flags, &mem->texture->native,
					err);
	if (r < 0) {
		gantry_cuda_mem_free(mem);
		return r;
	}
	gantry_list_push_back(&of->made, &mem->texture->link);
	*ret_mem = mem;
	return 0;
}

int gantry_cuda_texture_make(struct gantry_dev *dev, uint32_t what,
			     const struct gantry_wire_texture *spec, struct gantry_mem *of,
			     struct gantry_mem **ret_mem, uint64_t *ret_len, uint64_t *ret_value,
			     struct gantry_err *err)
{
	struct gantry_cuda_texture *parent = of ? of->texture : NULL;
	int r;

	if (of && !parent)
		return gantry_err_set(err, -EINVAL, "what is seen is no array");
	if (what == GANTRY_TEXTURE_ARRAY)
		r = make_array(dev, spec, ret_mem, err);
	else if (what == GANTRY_TEXTURE_LEVEL)
		r = make_level(dev, spec, parent, ret_mem, err);
	else if (what == GANTRY_TEXTURE_GRAPH)
		r = make_graph(dev, parent, ret_mem, err);
	else if (what == GANTRY_TEXTURE_CONDITION)
		r = make_condition(dev, spec, parent, ret_mem, err);
	else
		r = make_object(dev, what, spec, parent, ret_mem, err);
	if (r < 0)
		return r;
	*ret_len = (*ret_mem)->texture->array ? array_bytes((*ret_mem)->texture) : 1;
	*ret_value = (*ret_mem)->texture->native;
	return 0;
}

/* ---- the end ---- */

/* After a fault the driver refuses all of this, and the end of the process does it. */
static void end(const struct gantry_cuda_driver *driver, struct gantry_cuda_texture *texture)
{
	gantry_list_for_each_safe(&texture->made, struct gantry_cuda_texture, link, made)
		end(driver, made);
	gantry_list_remove(&texture->link);
	gantry_list_init(&texture->link);
	if (texture->native && texture->what == GANTRY_TEXTURE_TEXTURE)
		(void)driver->TexObjectDestroy(texture->native);
	else if (texture->native && texture->what == GANTRY_TEXTURE_SURFACE)
		(void)driver->SurfObjectDestroy(texture->native);
	if (texture->mipmap)
		(void)driver->MipmappedArrayDestroy(texture->mipmap);
	else if (texture->array && texture->what == GANTRY_TEXTURE_ARRAY)
		(void)driver->ArrayDestroy(texture->array);
	gantry_cuda_graph_free(texture->graph);
	texture->graph = NULL;
	texture->native = 0;
	texture->mipmap = NULL;
	texture->array = NULL;
}

void gantry_cuda_texture_end(struct gantry_mem *mem)
{
	if (!mem->texture)
		return;
	end(mem->dev->driver, mem->texture);
	free(mem->texture);
}

/* ---- copies ---- */

/* Elements row after row from @off on, and @len of them, as one box where that is possible. */
static uint64_t next_box(const struct gantry_cuda_texture *texture, uint64_t off, uint64_t len,
			 CUDA_MEMCPY3D *box, uint64_t at[3])
{
	uint64_t row = texture->row_bytes, plane = row * texture->rows;

	at[0] = off % row;
	at[1] = off % plane / row;
	at[2] = off / plane;
	box->WidthInBytes = row;
	box->Height = 1;
	box->Depth = 1;
	if (at[0] != 0 || len < row) {
		box->WidthInBytes = gantry_min_u64(row - at[0], len);
	} else if (at[1] != 0 || len < plane) {
		box->Height = gantry_min_u64(texture->rows - at[1], len / row);
	} else {
		box->Height = texture->rows;
		box->Depth = len / plane;
	}
	return box->WidthInBytes * box->Height * box->Depth;
}

/* @other says where the other end is; @in: into the array. *begun: some of it is with the device. */
static CUresult copy_span(const struct gantry_cuda_driver *driver, CUstream native,
			  const struct gantry_cuda_texture *texture, uint64_t off,
			  CUDA_MEMCPY3D other, uint64_t len, bool in, bool *begun)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t at[3], n;

	for (; len > 0 && result == CUDA_SUCCESS; len -= n, off += n) {
		CUDA_MEMCPY3D box = other;

		n = next_box(texture, off, len, &box, at);
		if (in) {
			box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
			box.dstArray = texture->array;
			box.dstXInBytes = at[0];
			box.dstY = at[1];
			box.dstZ = at[2];
			box.srcPitch = box.WidthInBytes;
			box.srcHeight = box.Height;
		} else {
			box.srcMemoryType = CU_MEMORYTYPE_ARRAY;
			box.srcArray = texture->array;
			box.srcXInBytes = at[0];
			box.srcY = at[1];
			box.srcZ = at[2];
			box.dstPitch = box.WidthInBytes;
			box.dstHeight = box.Height;
		}
		result = driver->Memcpy3DAsync(&box, native);
		*begun = *begun || result == CUDA_SUCCESS;
		other.srcDevice += in && other.srcMemoryType == CU_MEMORYTYPE_DEVICE ? n : 0;
		other.dstDevice += !in && other.dstMemoryType == CU_MEMORYTYPE_DEVICE ? n : 0;
		if (other.srcHost)
			other.srcHost = (const char *)other.srcHost + n;
		if (other.dstHost)
			other.dstHost = (char *)other.dstHost + n;
	}
	return result;
}

/* One end is an array; of the other as much as one piece of pinned memory has. */
static CUresult copy_plain(struct gantry_stream *stream, const struct gantry_range *array,
			   const struct gantry_range *plain, bool in, bool *begun)
{
	CUresult result = CUDA_SUCCESS;
	uint64_t len;

	for (uint64_t done = 0; done < plain->len && result == CUDA_SUCCESS; done += len) {
		uint64_t off = plain->off + done;
		CUDA_MEMCPY3D other = { 0 };

		len = plain->len - done;
		if (plain->mem->base) {
			unsigned char *host = plain->mem->base + off;

			len = gantry_cuda_mem_use(plain->mem, off, len);
			*(in ? &other.srcMemoryType : &other.dstMemoryType) = CU_MEMORYTYPE_HOST;
			if (in)
				other.srcHost = host;
			else
				other.dstHost = host;
		} else {
			*(in ? &other.srcMemoryType : &other.dstMemoryType) = CU_MEMORYTYPE_DEVICE;
			*(in ? &other.srcDevice : &other.dstDevice) = plain->mem->address + off;
		}
		result = copy_span(stream->dev->driver, stream->native, array->mem->texture,
				   array->off + done, other, len, in, begun);
	}
	return result;
}

/* Their rows need not be as long: by way of memory that has none. */
static CUresult copy_arrays(struct gantry_stream *stream, const struct gantry_range *dst,
			    const struct gantry_range *src, bool *begun)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	CUDA_MEMCPY3D to = { .dstMemoryType = CU_MEMORYTYPE_DEVICE },
		      from = { .srcMemoryType = CU_MEMORYTYPE_DEVICE };
	uint64_t step = gantry_min_u64(dst->len, CLEAN_BYTES), len;
	CUdeviceptr between;
	CUresult result = driver->MemAllocAsync(&between, step, stream->native);

	if (result != CUDA_SUCCESS)
		return result;
	to.dstDevice = between;
	from.srcDevice = between;
	for (uint64_t done = 0; done < dst->len && result == CUDA_SUCCESS; done += len) {
		len = gantry_min_u64(dst->len - done, step);
		result = copy_span(driver, stream->native, src->mem->texture, src->off + done, to,
				   len, false, begun);
		if (result == CUDA_SUCCESS)
			result = copy_span(driver, stream->native, dst->mem->texture,
					   dst->off + done, from, len, true, begun);
	}
	(void)driver->MemFreeAsync(between,
				   stream->native); /* the first failure is the one to tell */
	return result;
}

/* An array that is gone has no elements; the driver refuses parts of one, and not before it has begun with what is whole. */
static bool is_possible(const struct gantry_range *range)
{
	const struct gantry_cuda_texture *texture = range->mem->texture;

	return !texture || (texture->array && range->off % texture->element == 0 &&
			    range->len % texture->element == 0);
}

/*
 * A command that is refused has not begun. One whose later boxes are refused is taken, and fails in its turn: the device has
 * its first ones by then.
 */
static int outcome(struct gantry_stream *stream, CUresult result, bool begun)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, stream->submitted);
	int r = gantry_cuda_check(stream->dev, result, "", NULL);

	if (gantry_cuda_sticky(result)) /* told by poll() */
		return 0;
	if (r == 0 || !begun)
		return r;
	slot->done.status = r == -ENOMEM ? GANTRY_E_NO_MEMORY : GANTRY_E_INTERNAL;
	slot->done.blast = GANTRY_BLAST_CMD;
	return 0;
}

int gantry_cuda_texture_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *cmd)
{
	bool begun = false;
	CUresult result;

	if (!is_possible(&cmd->dst) || !is_possible(&cmd->src))
		return -EINVAL;
	if (!cmd->src.mem->texture)
		result = copy_plain(stream, &cmd->dst, &cmd->src, true, &begun);
	else if (!cmd->dst.mem->texture)
		result = copy_plain(stream, &cmd->src, &cmd->dst, false, &begun);
	else
		result = copy_arrays(stream, &cmd->dst, &cmd->src, &begun);
	return outcome(stream, result, begun);
}
