/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: memory objects whose bytes are pixels, row by row. How they lie there is said with each launch (proto/opencl.h);
 * all else that is done with them is done here and in image_transfer.c, as with buffers.
 */
#include <stdlib.h>

#include "base/array.h"
#include "guest-shim/opencl/calls.h"

#define ORDERS_BEGIN   CL_R
#define ORDERS_END     CL_ABGR
#define CHANNELS_BEGIN CL_SNORM_INT8
#define CHANNELS_END   CL_UNORM_INT24

/* ---- formats ---- */

const struct _cl_device_id *icd_context_images(const struct _cl_context *context)
{
	for (uint32_t i = 0; i < context->ndevices; i++)
		if (context->devices[i]->nformats)
			return context->devices[i];
	return NULL;
}

static uint32_t use_of(cl_mem_flags flags)
{
	return flags & CL_MEM_READ_ONLY ? 0 : flags & CL_MEM_WRITE_ONLY ? 1 : 2;
}

static bool is_type(cl_mem_object_type type)
{
	return type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
}

static bool serves(const struct icd_format *format, cl_mem_flags flags, cl_mem_object_type type)
{
	return format->types[use_of(flags)] >> (type - CL_MEM_OBJECT_IMAGE2D) & 1;
}

cl_int CL_API_CALL icd_clGetSupportedImageFormats(cl_context handle, cl_mem_flags flags,
						  cl_mem_object_type type, cl_uint n,
						  cl_image_format *formats, cl_uint *ret_n)
{
	const struct _cl_device_id *device = NULL;
	const struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;
	cl_uint found = 0;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = is_type(type) && !(n == 0 && formats) ? icd_mem_check_flags(flags)
							       : CL_INVALID_VALUE;
	if (result == CL_SUCCESS)
		device = icd_context_images(context);
	for (uint32_t i = 0; device && i < device->nformats; i++) {
		if (!serves(&device->formats[i], flags, type))
			continue;
		if (formats && found < n)
			formats[found] = device->formats[i].format;
		found++;
	}
	if (result == CL_SUCCESS && ret_n)
		*ret_n = found;
	icd_gate_unlock();
	return result;
}

/* Whether the standard has it, whatever devices take. */
static bool is_format(const cl_image_format *format)
{
	cl_channel_order order = format->image_channel_order;
	cl_channel_type channel = format->image_channel_data_type;
	bool is_packed = channel >= CL_UNORM_SHORT_565 && channel <= CL_UNORM_INT_101010;

	if (order < ORDERS_BEGIN || order > ORDERS_END || channel < CHANNELS_BEGIN ||
	    channel > CHANNELS_END)
		return false;
	if (is_packed || order == CL_RGB || order == CL_RGBx)
		return is_packed && (order == CL_RGB || order == CL_RGBx);
	if (order == CL_INTENSITY || order == CL_LUMINANCE)
		return channel <= CL_UNORM_INT16 || channel == CL_HALF_FLOAT || channel == CL_FLOAT;
	if (order == CL_ARGB || order == CL_BGRA)
		return channel == CL_SNORM_INT8 || channel == CL_UNORM_INT8 ||
		       channel == CL_SIGNED_INT8 || channel == CL_UNSIGNED_INT8;
	return true;
}

static cl_int check_format(const struct _cl_device_id *device, const cl_image_format *format,
			   cl_mem_flags flags, cl_mem_object_type type)
{
	if (!format || !is_format(format))
		return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	for (uint32_t i = 0; i < device->nformats; i++)
		if (device->formats[i].format.image_channel_order == format->image_channel_order &&
		    device->formats[i].format.image_channel_data_type ==
			    format->image_channel_data_type &&
		    serves(&device->formats[i], flags, type))
			return CL_SUCCESS;
	return CL_IMAGE_FORMAT_NOT_SUPPORTED;
}

/* ---- shapes ---- */

/* What each type has of sizes, and which number of a device bounds it; NULL: it has none. */
static const struct {
	const char *width, *height, *depth, *layers;
} limits[GANTRY_IMAGE_NTYPES] = {
	{ "image2d_width", "image2d_height", NULL, NULL },
	{ "image3d_width", "image3d_height", "image3d_depth", NULL },
	{ "image2d_width", "image2d_height", NULL, "image_array" },
	{ "image2d_width", NULL, NULL, NULL },
	{ "image2d_width", NULL, NULL, "image_array" },
	{ "image_buffer", NULL, NULL, NULL },
};

/* *ret_n: 1 where the type has no such size. */
static cl_int take_size(const struct _cl_device_id *device, const char *limit, size_t told,
			uint64_t *ret_n)
{
	uint64_t most = limit ? icd_device_number(device, limit) : 0;

	*ret_n = 1;
	if (!limit)
		return CL_SUCCESS;
	if (told == 0)
		return CL_INVALID_IMAGE_DESCRIPTOR;
	*ret_n = told;
	return most && told > most ? CL_INVALID_IMAGE_SIZE : CL_SUCCESS;
}

static cl_int take_sizes(const struct _cl_device_id *device, const cl_image_desc *desc,
			 struct gantry_launch_image *image)
{
	uint32_t i = image->type - GANTRY_IMAGE_2D;
	cl_int result = take_size(device, limits[i].width, desc->image_width, &image->width);

	if (result == CL_SUCCESS)
		result = take_size(device, limits[i].height, desc->image_height, &image->height);
	if (result == CL_SUCCESS)
		result = take_size(device, limits[i].depth, desc->image_depth, &image->depth);
	if (result == CL_SUCCESS)
		result = take_size(device, limits[i].layers, desc->image_array_size,
				   &image->layers);
	return result;
}

/* The program's pitches are those of its memory, and the image's then too, so that it lies there as here. */
static cl_int take_pitches(const cl_image_desc *desc, bool has_host, uint32_t pixel_bytes,
			   struct gantry_launch_image *image)
{
	bool has_slices = image->type == GANTRY_IMAGE_3D || gantry_image_has_layers(image->type);
	uint64_t row = image->width * pixel_bytes, slice;

	if (!has_host && (desc->image_row_pitch || desc->image_slice_pitch))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	image->row_bytes = desc->image_row_pitch ? desc->image_row_pitch : row;
	if (image->row_bytes < row || image->row_bytes % pixel_bytes != 0 ||
	    __builtin_mul_overflow(image->row_bytes, image->height, &slice))
		return CL_INVALID_IMAGE_DESCRIPTOR;
	image->slice_bytes = has_slices && desc->image_slice_pitch ? desc->image_slice_pitch
								   : slice;
	return gantry_image_bytes(image) ? CL_SUCCESS : CL_INVALID_IMAGE_DESCRIPTOR;
}

static cl_int take_shape(const struct _cl_context *context, cl_mem_flags flags,
			 const cl_image_format *format, const cl_image_desc *desc, bool has_host,
			 struct gantry_launch_image *image)
{
	const struct _cl_device_id *device = icd_context_images(context);
	cl_int result;

	*image = (struct gantry_launch_image){ 0 };
	if (!device)
		return CL_INVALID_OPERATION;
	if (!desc || !is_type(desc->image_type) || desc->num_mip_levels || desc->num_samples ||
	    !desc->buffer != (desc->image_type != CL_MEM_OBJECT_IMAGE1D_BUFFER))
		return format ? CL_INVALID_IMAGE_DESCRIPTOR : CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
	result = check_format(device, format, flags, desc->image_type);
	if (result != CL_SUCCESS)
		return result;
	image->type = desc->image_type;
	image->order = format->image_channel_order;
	image->channel = format->image_channel_data_type;
	result = take_sizes(device, desc, image);
	if (result == CL_SUCCESS)
		result = take_pitches(desc, has_host,
				      gantry_pixel_bytes(image->order, image->channel), image);
	return result;
}

/* ---- making ---- */

static struct _cl_mem *image_new(struct _cl_context *context, cl_mem_flags flags,
				 const struct gantry_launch_image *image)
{
	struct _cl_mem *mem = icd_mem_new(context, flags, gantry_image_bytes(image));

	if (!mem)
		return NULL;
	mem->image = *image;
	mem->pixel_bytes = gantry_pixel_bytes(image->order, image->channel);
	return mem;
}

/* Of memory of its own. */
static cl_int make_image(struct _cl_context *context, cl_mem_flags flags,
			 const struct gantry_launch_image *image, void *host_ptr,
			 struct _cl_mem **ret_mem)
{
	struct _cl_mem *mem;
	cl_int result;

	if (gantry_image_bytes(image) > icd_context_alloc_bytes(context))
		return CL_INVALID_IMAGE_SIZE;
	mem = image_new(context, flags, image);
	if (!mem)
		return CL_OUT_OF_HOST_MEMORY;
	result = icd_status(icd_mem_back(mem, host_ptr));
	if (result != CL_SUCCESS) {
		icd_object_throw_away(mem);
		return result;
	}
	if (flags & CL_MEM_USE_HOST_PTR)
		mem->host_ptr = host_ptr;
	*ret_mem = mem;
	return CL_SUCCESS;
}

/* Over a buffer, whose bytes are its pixels. */
static cl_int make_over(struct _cl_context *context, cl_mem_flags flags,
			const struct gantry_launch_image *image, struct _cl_mem *buffer,
			struct _cl_mem **ret_mem)
{
	struct _cl_mem *mem;

	if (gantry_image_bytes(image) > buffer->bytes)
		return CL_INVALID_IMAGE_DESCRIPTOR;
	if (icd_mem_inherit(buffer, &flags) != CL_SUCCESS)
		return CL_INVALID_VALUE;
	mem = image_new(context, flags, image);
	if (!mem)
		return CL_OUT_OF_HOST_MEMORY;
	mem->parent = buffer;
	mem->origin = buffer->origin;
	mem->buffer = buffer->buffer;
	mem->host_ptr = buffer->host_ptr;
	icd_object_hold(buffer);
	*ret_mem = mem;
	return CL_SUCCESS;
}

static cl_int create(cl_context handle, cl_mem_flags flags, const cl_image_format *format,
		     const cl_image_desc *desc, void *host_ptr, struct _cl_mem **ret_mem)
{
	bool wants_ptr = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
	struct _cl_context *context = icd_object_get(handle, ICD_CONTEXT);
	struct gantry_launch_image image;
	struct _cl_mem *buffer;
	cl_int result;

	if (!context)
		return CL_INVALID_CONTEXT;
	result = icd_mem_check_flags(flags);
	if (result == CL_SUCCESS)
		result = take_shape(context, flags, format, desc, host_ptr != NULL, &image);
	if (result == CL_SUCCESS && !host_ptr != !wants_ptr)
		result = CL_INVALID_HOST_PTR;
	if (result != CL_SUCCESS)
		return result;
	if (image.type != GANTRY_IMAGE_1D_BUFFER)
		return make_image(context, flags, &image, host_ptr, ret_mem);
	buffer = icd_buffer_get(desc->buffer);
	if (!buffer || buffer->context != context)
		return CL_INVALID_MEM_OBJECT;
	return make_over(context, flags, &image, buffer, ret_mem);
}

cl_mem CL_API_CALL icd_clCreateImage(cl_context context, cl_mem_flags flags,
				     const cl_image_format *format, const cl_image_desc *desc,
				     void *host_ptr, cl_int *ret)
{
	struct _cl_mem *mem = NULL;
	cl_int result;

	icd_gate_lock();
	result = create(context, flags, format, desc, host_ptr, &mem);
	icd_gate_unlock();
	return icd_result(ret, result, mem);
}

cl_mem CL_API_CALL icd_clCreateImageWithProperties(
	cl_context context, const cl_mem_properties *properties, cl_mem_flags flags,
	const cl_image_format *format, const cl_image_desc *desc, void *host_ptr, cl_int *ret)
{
	if (properties && *properties)
		return icd_result(ret, CL_INVALID_PROPERTY, NULL);
	return icd_clCreateImage(context, flags, format, desc, host_ptr, ret);
}

/* OpenCL 1.1 had one word for sizes and pitches that are wrong. */
static cl_mem create_old(cl_context context, cl_mem_flags flags, const cl_image_format *format,
			 const cl_image_desc *desc, void *host_ptr, cl_int *ret)
{
	cl_int result;
	cl_mem mem = icd_clCreateImage(context, flags, format, desc, host_ptr, &result);

	return icd_result(
		ret, result == CL_INVALID_IMAGE_DESCRIPTOR ? CL_INVALID_IMAGE_SIZE : result, mem);
}

cl_mem CL_API_CALL icd_clCreateImage2D(cl_context context, cl_mem_flags flags,
				       const cl_image_format *format, size_t width, size_t height,
				       size_t row_pitch, void *host_ptr, cl_int *ret)
{
	const cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE2D,
				     .image_width = width,
				     .image_height = height,
				     .image_row_pitch = row_pitch };

	return create_old(context, flags, format, &desc, host_ptr, ret);
}

cl_mem CL_API_CALL icd_clCreateImage3D(cl_context context, cl_mem_flags flags,
				       const cl_image_format *format, size_t width, size_t height,
				       size_t depth, size_t row_pitch, size_t slice_pitch,
				       void *host_ptr, cl_int *ret)
{
	const cl_image_desc desc = { .image_type = CL_MEM_OBJECT_IMAGE3D,
				     .image_width = width,
				     .image_height = height,
				     .image_depth = depth,
				     .image_row_pitch = row_pitch,
				     .image_slice_pitch = slice_pitch };

	return create_old(context, flags, format, &desc, host_ptr, ret);
}

/* ---- questions ---- */

static cl_int info(const struct _cl_mem *mem, cl_image_info what, const struct icd_to *to)
{
	const struct gantry_launch_image *image = &mem->image;
	const cl_image_format format = { image->order, image->channel };
	bool is_3d = image->type == GANTRY_IMAGE_3D;
	bool is_over = image->type == GANTRY_IMAGE_1D_BUFFER;

	switch (what) {
	case CL_IMAGE_FORMAT:
		return icd_answer(to, &format, sizeof(format));
	case CL_IMAGE_ELEMENT_SIZE:
		return ICD_ANSWER(to, size_t, mem->pixel_bytes);
	case CL_IMAGE_ROW_PITCH:
		return ICD_ANSWER(to, size_t, image->row_bytes);
	case CL_IMAGE_SLICE_PITCH:
		return ICD_ANSWER(to, size_t,
				  is_3d || gantry_image_has_layers(image->type) ? image->slice_bytes
										: 0);
	case CL_IMAGE_WIDTH:
		return ICD_ANSWER(to, size_t, image->width);
	case CL_IMAGE_HEIGHT:
		return ICD_ANSWER(to, size_t,
				  gantry_image_has_rows(image->type) ? image->height : 0);
	case CL_IMAGE_DEPTH:
		return ICD_ANSWER(to, size_t, is_3d ? image->depth : 0);
	case CL_IMAGE_ARRAY_SIZE:
		return ICD_ANSWER(to, size_t,
				  gantry_image_has_layers(image->type) ? image->layers : 0);
	case CL_IMAGE_BUFFER:
		return ICD_ANSWER(to, cl_mem, is_over ? mem->parent : NULL);
	case CL_IMAGE_NUM_MIP_LEVELS:
	case CL_IMAGE_NUM_SAMPLES:
		return ICD_ANSWER(to, cl_uint, 0);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetImageInfo(cl_mem handle, cl_image_info what, size_t size, void *value,
				      size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	const struct _cl_mem *mem;
	cl_int result = CL_INVALID_MEM_OBJECT;

	icd_gate_lock();
	mem = icd_image_get(handle);
	if (mem)
		result = info(mem, what, &to);
	icd_gate_unlock();
	return result;
}
