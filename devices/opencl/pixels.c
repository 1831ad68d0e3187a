/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenCL's images and samplers, of kernels of guests' own. An image is a range with a description of how pixels lie in it,
 * which is a guest's: all of it is checked here, before a driver hears of it.
 */
#include <errno.h>

#include "devices/opencl/backend.h"

_Static_assert(GANTRY_IMAGE_2D == CL_MEM_OBJECT_IMAGE2D &&
		       GANTRY_IMAGE_1D_BUFFER == CL_MEM_OBJECT_IMAGE1D_BUFFER &&
		       GANTRY_SAMPLER_ADDRESSING == CL_ADDRESS_NONE &&
		       GANTRY_SAMPLER_FILTER == CL_FILTER_NEAREST,
	       "numbers are OpenCL's");

int gantry_opencl_pixels_check(const struct gantry_launch_image *image,
			       const struct gantry_range *range)
{
	uint64_t bytes = gantry_image_bytes(image);
	uintptr_t at;

	if (bytes == 0 || !range->mem || bytes > range->len)
		return -EINVAL;
	/* Kernels read whole pixels. */
	at = (uintptr_t)(range->mem->host.base + range->off);
	return at % gantry_pixel_bytes(image->order, image->channel) == 0 ? 0 : -EINVAL;
}

/* What lies between rows of one row, and between slices of one slice, is not told: drivers have rules for pitches of nothing. */
static cl_image_desc describe(const struct gantry_launch_image *image, bool has_host)
{
	bool has_slices = image->type == GANTRY_IMAGE_3D || gantry_image_has_layers(image->type);
	cl_image_desc desc = { .image_type = image->type, .image_width = image->width };

	if (gantry_image_has_rows(image->type))
		desc.image_height = image->height;
	if (image->type == GANTRY_IMAGE_3D)
		desc.image_depth = image->depth;
	if (gantry_image_has_layers(image->type))
		desc.image_array_size = image->layers;
	if (has_host && image->type != GANTRY_IMAGE_1D && image->type != GANTRY_IMAGE_1D_BUFFER)
		desc.image_row_pitch = image->row_bytes;
	if (has_host && has_slices)
		desc.image_slice_pitch = image->slice_bytes;
	return desc;
}

cl_mem gantry_opencl_pixels_make(struct gantry_dev *dev, const struct gantry_launch_image *image,
				 cl_mem_flags flags, void *host, cl_int *ret_result)
{
	const cl_image_format format = { image->order, image->channel };
	cl_image_desc desc = describe(image, host != NULL);
	cl_mem under = NULL, mem;

	if (image->type == GANTRY_IMAGE_1D_BUFFER) {
		under = dev->cl->CreateBuffer(dev->context, CL_MEM_READ_WRITE | flags,
					      gantry_image_bytes(image), host, ret_result);
		if (*ret_result != CL_SUCCESS)
			return NULL;
		desc.buffer = under;
		flags = 0;
		host = NULL;
	}
	mem = dev->cl->CreateImage(dev->context, CL_MEM_READ_WRITE | flags, &format, &desc, host,
				   ret_result);
	if (under)
		(void)dev->cl->ReleaseMemObject(under); /* the image has it */
	return mem;
}

/* ---- where an image is no host memory ---- */

static void box_of(const struct gantry_launch_image *image, size_t region[3], size_t *row,
		   size_t *slice)
{
	bool is_1d_array = image->type == GANTRY_IMAGE_1D_ARRAY;

	region[0] = image->width;
	region[1] = is_1d_array ? image->layers : image->height;
	region[2] = is_1d_array ? 1 : image->depth * image->layers;
	*row = image->row_bytes;
	*slice = image->type == GANTRY_IMAGE_3D || gantry_image_has_layers(image->type)
			 ? image->slice_bytes
			 : 0;
}

int gantry_opencl_pixels_write(struct gantry_stream *stream,
			       const struct gantry_opencl_place *place)
{
	const size_t origin[3] = { 0 };
	size_t region[3], row, slice;

	box_of(&place->image, region, &row, &slice);
	return gantry_opencl_outcome(stream, stream->dev->cl->EnqueueWriteImage(
						     stream->queue, place->mem, CL_FALSE, origin,
						     region, row, slice, place->host, 0, NULL,
						     gantry_opencl_event_slot(stream)));
}

int gantry_opencl_pixels_read(struct gantry_stream *stream, const struct gantry_opencl_place *place)
{
	const size_t origin[3] = { 0 };
	size_t region[3], row, slice;

	box_of(&place->image, region, &row, &slice);
	return gantry_opencl_outcome(stream, stream->dev->cl->EnqueueReadImage(
						     stream->queue, place->mem, CL_FALSE, origin,
						     region, row, slice, place->host, 0, NULL,
						     gantry_opencl_event_slot(stream)));
}

/* ---- samplers ---- */

/* Made once: a driver may look at one until the last launch that has it is done. NULL: it cannot be, or is refused. */
cl_sampler gantry_opencl_sampler(struct gantry_dev *dev,
				 const struct gantry_launch_sampler *sampler)
{
	int i = gantry_sampler_index(sampler);
	cl_int result = CL_SUCCESS;

	if (i < 0)
		return NULL;
	if (!dev->samplers[i])
		dev->samplers[i] = dev->cl->CreateSampler(dev->context, sampler->is_normalized,
							  sampler->addressing, sampler->filter,
							  &result);
	return result == CL_SUCCESS ? dev->samplers[i] : NULL;
}

void gantry_opencl_samplers_release(struct gantry_dev *dev)
{
	for (uint32_t i = 0; i < GANTRY_SAMPLER_COUNT; i++)
		if (dev->samplers[i])
			(void)dev->cl->ReleaseSampler(dev->samplers[i]);
}
