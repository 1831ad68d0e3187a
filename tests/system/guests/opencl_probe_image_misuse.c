/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about images and samplers that are wrong, with the result that the standard names for each. */
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

static const cl_image_format rgba = { CL_RGBA, CL_UNSIGNED_INT8 };
static const cl_image_desc square = { .image_type = CL_MEM_OBJECT_IMAGE2D,
				      .image_width = 8,
				      .image_height = 8 };
static const size_t zero[3] = { 0, 0, 0 }, some[3] = { 4, 4, 1 };

static cl_int create(const struct world *w, cl_mem_flags flags, const cl_image_format *format,
		     const cl_image_desc *desc, void *host)
{
	cl_int result;
	cl_mem mem = cl.CreateImage(w->context, flags, format, desc, host, &result);

	if (mem)
		must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	return result;
}

static void formats(const struct world *w)
{
	const cl_image_format none = { 0, 0 }, packed = { CL_RGBA, CL_UNORM_SHORT_565 },
			      gray = { CL_LUMINANCE, CL_SIGNED_INT32 },
			      rare = { CL_RGB, CL_UNORM_SHORT_565 };
	cl_image_format got;
	cl_uint n = 0;

	expect(create(w, 0, NULL, &square, NULL), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
	       "an image of no format");
	expect(create(w, 0, &none, &square, NULL), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
	       "a format that is none");
	expect(create(w, 0, &packed, &square, NULL), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
	       "packed channels of another order");
	expect(create(w, 0, &gray, &square, NULL), CL_INVALID_IMAGE_FORMAT_DESCRIPTOR,
	       "whole numbers of luminance");
	expect(create(w, 0, &rare, &square, NULL), CL_IMAGE_FORMAT_NOT_SUPPORTED,
	       "a format that the device has not");
	expect(cl.GetSupportedImageFormats(w->context, 0, CL_MEM_OBJECT_BUFFER, 1, &got, &n),
	       CL_INVALID_VALUE, "formats of buffers");
	expect(cl.GetSupportedImageFormats(w->context, 1ull << 40, CL_MEM_OBJECT_IMAGE2D, 1, &got,
					   &n),
	       CL_INVALID_VALUE, "formats for a use that is none");
	expect(cl.GetSupportedImageFormats(w->context, 0, CL_MEM_OBJECT_IMAGE2D, 0, &got, &n),
	       CL_INVALID_VALUE, "formats into no room");
}

/* One number of a description that is right is wrong. */
static void shapes(const struct world *w, cl_mem buffer)
{
	char memory[1024] = { 0 };
	void *host = memory, *none = NULL;
	cl_image_desc desc;

#define WRONG(field, number, from, code, name)                                                   \
	do {                                                                                     \
		desc = square;                                                                   \
		desc.field = (number);                                                           \
		expect(create(w, (from) ? CL_MEM_COPY_HOST_PTR : 0, &rgba, &desc, (from)), code, \
		       name);                                                                    \
	} while (0)
	expect(create(w, 0, &rgba, NULL, NULL), CL_INVALID_IMAGE_DESCRIPTOR,
	       "an image of no description");
	WRONG(image_type, CL_MEM_OBJECT_BUFFER, none, CL_INVALID_IMAGE_DESCRIPTOR,
	      "an image that is a buffer");
	WRONG(image_width, 0, none, CL_INVALID_IMAGE_DESCRIPTOR, "an image of no width");
	WRONG(image_height, 0, none, CL_INVALID_IMAGE_DESCRIPTOR, "an image of no height");
	WRONG(image_width, SIZE_MAX, none, CL_INVALID_IMAGE_SIZE, "an image of all widths");
	WRONG(image_height, (size_t)1 << 40, none, CL_INVALID_IMAGE_SIZE, "an image too high");
	WRONG(num_mip_levels, 1, none, CL_INVALID_IMAGE_DESCRIPTOR, "an image with mip levels");
	WRONG(num_samples, 4, none, CL_INVALID_IMAGE_DESCRIPTOR, "an image with samples");
	WRONG(image_row_pitch, 64, none, CL_INVALID_IMAGE_DESCRIPTOR, "a pitch of no memory");
	WRONG(image_row_pitch, 31, host, CL_INVALID_IMAGE_DESCRIPTOR,
	      "a pitch shorter than a row of pixels");
	WRONG(image_row_pitch, 33, host, CL_INVALID_IMAGE_DESCRIPTOR, "a pitch within a pixel");
	WRONG(image_row_pitch, SIZE_MAX - 3, host, CL_INVALID_IMAGE_DESCRIPTOR,
	      "a pitch that overflows");
	WRONG(buffer, buffer, none, CL_INVALID_IMAGE_DESCRIPTOR, "a plane over a buffer");
#undef WRONG
	expect(create(w, CL_MEM_COPY_HOST_PTR, &rgba, &square, NULL), CL_INVALID_HOST_PTR,
	       "pixels at NULL");
	expect(create(w, 0, &rgba, &square, host), CL_INVALID_HOST_PTR,
	       "pixels that no flag wants");
	expect(create(w, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, &rgba, &square, NULL),
	       CL_INVALID_VALUE, "an image of two kinds of access");
}

static void lines(const struct world *w, cl_mem buffer, cl_mem image)
{
	cl_image_desc line = { .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 8 };

	expect(create(w, 0, &rgba, &line, NULL), CL_INVALID_IMAGE_DESCRIPTOR,
	       "a line over no buffer");
	line.buffer = image;
	expect(create(w, 0, &rgba, &line, NULL), CL_INVALID_MEM_OBJECT, "a line over an image");
	line.buffer = buffer;
	line.image_width = 257;
	expect(create(w, 0, &rgba, &line, NULL), CL_INVALID_IMAGE_DESCRIPTOR,
	       "a line longer than its buffer");
}

static cl_int read_box(const struct world *w, cl_mem mem, const size_t *origin,
		       const size_t *region, size_t row, size_t slice, void *to)
{
	return cl.EnqueueReadImage(w->queue, mem, CL_TRUE, origin, region, row, slice, to, 0, NULL,
				   NULL);
}

static void boxes(const struct world *w, cl_mem buffer, cl_mem image)
{
	const size_t right[3] = { 5, 0, 0 }, deep[3] = { 0, 0, 1 }, none[3] = { 4, 0, 1 },
		     far[3] = { SIZE_MAX, 0, 0 }, inner[3] = { 2, 2, 0 };
	const cl_image_format other = { CL_RGBA, CL_SIGNED_INT8 };
	unsigned char bytes[256] = { 0 };
	size_t row, slice;
	cl_int result;
	cl_mem strange = cl.CreateImage(w->context, 0, &other, &square, NULL, &result);

	must(result, "clCreateImage");
	expect(read_box(w, image, right, some, 0, 0, bytes), CL_INVALID_VALUE,
	       "a box past the edge");
	expect(read_box(w, image, far, some, 0, 0, bytes), CL_INVALID_VALUE,
	       "a box whose edge overflows");
	expect(read_box(w, image, deep, some, 0, 0, bytes), CL_INVALID_VALUE,
	       "a box deeper than a plane");
	expect(read_box(w, image, zero, none, 0, 0, bytes), CL_INVALID_VALUE, "a box of nothing");
	expect(read_box(w, image, NULL, some, 0, 0, bytes), CL_INVALID_VALUE, "a box at no place");
	expect(read_box(w, image, zero, NULL, 0, 0, bytes), CL_INVALID_VALUE, "a box of no size");
	expect(read_box(w, image, zero, some, 15, 0, bytes), CL_INVALID_VALUE,
	       "memory with a pitch shorter than a row");
	expect(read_box(w, image, zero, some, 0, 64, bytes), CL_INVALID_VALUE,
	       "memory with slices of a plane");
	expect(read_box(w, image, zero, some, 0, 0, NULL), CL_INVALID_VALUE, "pixels to NULL");
	expect(read_box(w, buffer, zero, some, 0, 0, bytes), CL_INVALID_MEM_OBJECT,
	       "pixels of a buffer");
	expect(cl.EnqueueReadBuffer(w->queue, image, CL_TRUE, 0, 4, bytes, 0, NULL, NULL),
	       CL_INVALID_MEM_OBJECT, "bytes of an image");
	(void)cl.CreateSubBuffer(image, 0, CL_BUFFER_CREATE_TYPE_REGION,
				 &(cl_buffer_region){ 0, 16 }, &result);
	expect(result, CL_INVALID_MEM_OBJECT, "a part of an image");
	expect(cl.EnqueueCopyImage(w->queue, image, image, zero, inner, some, 0, NULL, NULL),
	       CL_MEM_COPY_OVERLAP, "a copy of pixels onto themselves");
	expect(cl.EnqueueCopyImage(w->queue, image, strange, zero, zero, some, 0, NULL, NULL),
	       CL_IMAGE_FORMAT_MISMATCH, "a copy to another format");
	expect(cl.EnqueueCopyImageToBuffer(w->queue, image, buffer, zero, some, 1000, 0, NULL,
					   NULL),
	       CL_INVALID_VALUE, "pixels past a buffer's end");
	expect(cl.EnqueueCopyBufferToImage(w->queue, buffer, image, SIZE_MAX, zero, some, 0, NULL,
					   NULL),
	       CL_INVALID_VALUE, "pixels from where no buffer is");
	expect(cl.EnqueueFillImage(w->queue, image, NULL, zero, some, 0, NULL, NULL),
	       CL_INVALID_VALUE, "a fill with no colour");
	(void)cl.EnqueueMapImage(w->queue, image, CL_TRUE, CL_MAP_READ, zero, some, NULL, &slice, 0,
				 NULL, NULL, &result);
	expect(result, CL_INVALID_VALUE, "a map whose pitch nobody wants");
	(void)cl.EnqueueMapImage(w->queue, image, CL_TRUE, 0, zero, some, &row, &slice, 0, NULL,
				 NULL, &result);
	expect(result, CL_INVALID_VALUE, "a map for nothing");
	(void)cl.EnqueueMapImage(w->queue, image, CL_TRUE, CL_MAP_READ, right, some, &row, &slice,
				 0, NULL, NULL, &result);
	expect(result, CL_INVALID_VALUE, "a map past the edge");
	must(cl.ReleaseMemObject(strange), "clReleaseMemObject");
}

static const char text[] =
	"__kernel void k(read_only image2d_t in, write_only image2d_t out, sampler_t s, __global int *b)\n"
	"{ write_imageui(out, (int2)(0, 0), read_imageui(in, s, (int2)(b[0], 0))); }\n";

static void arguments(const struct world *w, cl_mem buffer, cl_mem image)
{
	const cl_image_desc line = { .image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = 8 };
	cl_program program = program_of(w, text, "");
	cl_int result;
	cl_kernel k = cl.CreateKernel(program, "k", &result);
	cl_mem narrow = cl.CreateImage(w->context, 0, &rgba, &line, NULL, &result);
	cl_mem written = cl.CreateImage(w->context, CL_MEM_WRITE_ONLY, &rgba, &square, NULL,
					&result);
	cl_sampler s = cl.CreateSampler(w->context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST,
					&result);
	const uint64_t stray = 77;
	const void *nothing = NULL;
	size_t one = 1;

	must(result, "clCreateSampler");
	expect(cl.SetKernelArg(k, 0, sizeof(buffer), &buffer), CL_INVALID_MEM_OBJECT,
	       "a buffer for an image");
	expect(cl.SetKernelArg(k, 3, sizeof(image), &image), CL_INVALID_MEM_OBJECT,
	       "an image for a buffer");
	expect(cl.SetKernelArg(k, 0, sizeof(cl_mem), &stray), CL_INVALID_MEM_OBJECT,
	       "a number for an image");
	expect(cl.SetKernelArg(k, 0, sizeof(cl_mem), &nothing), CL_INVALID_MEM_OBJECT,
	       "no image for an image");
	expect(cl.SetKernelArg(k, 0, sizeof(cl_mem), NULL), CL_INVALID_ARG_VALUE,
	       "an image at NULL");
	expect(cl.SetKernelArg(k, 0, 4, &image), CL_INVALID_ARG_SIZE, "half of an image's handle");
	expect(cl.SetKernelArg(k, 0, sizeof(narrow), &narrow), CL_INVALID_ARG_VALUE,
	       "a line for a plane");
	expect(cl.SetKernelArg(k, 0, sizeof(written), &written), CL_INVALID_ARG_VALUE,
	       "reading an image that is written only");
	expect(cl.SetKernelArg(k, 2, sizeof(cl_sampler), &stray), CL_INVALID_SAMPLER,
	       "a number for a sampler");
	expect(cl.SetKernelArg(k, 2, 4, &s), CL_INVALID_ARG_SIZE, "half of a sampler's handle");
	expect(cl.SetKernelArg(k, 2, sizeof(image), &image), CL_INVALID_SAMPLER,
	       "an image for a sampler");
	must(cl.SetKernelArg(k, 0, sizeof(image), &image), "clSetKernelArg");
	must(cl.SetKernelArg(k, 1, sizeof(written), &written), "clSetKernelArg");
	must(cl.SetKernelArg(k, 2, sizeof(s), &s), "clSetKernelArg");
	expect(cl.EnqueueNDRangeKernel(w->queue, k, 1, NULL, &one, NULL, 0, NULL, NULL),
	       CL_INVALID_KERNEL_ARGS, "a launch without its buffer");
	must(cl.SetKernelArg(k, 3, sizeof(buffer), &buffer), "clSetKernelArg");
	must(cl.ReleaseMemObject(written), "clReleaseMemObject");
	expect(cl.EnqueueNDRangeKernel(w->queue, k, 1, NULL, &one, NULL, 0, NULL, NULL),
	       CL_INVALID_KERNEL_ARGS, "a launch with an image that was released");
	must(cl.ReleaseSampler(s), "clReleaseSampler");
	must(cl.ReleaseMemObject(narrow), "clReleaseMemObject");
	must(cl.ReleaseKernel(k), "clReleaseKernel");
	must(cl.ReleaseProgram(program), "clReleaseProgram");
}

static void samplers(const struct world *w)
{
	cl_filter_mode filter = 0;
	cl_int result;
	cl_sampler s;

	(void)cl.CreateSampler(w->context, CL_TRUE, 0x1200, CL_FILTER_LINEAR, &result);
	expect(result, CL_INVALID_VALUE, "a sampler of no addressing");
	(void)cl.CreateSampler(w->context, CL_TRUE, CL_ADDRESS_CLAMP, 7, &result);
	expect(result, CL_INVALID_VALUE, "a sampler of no filter");
	(void)cl.CreateSampler(w->context, CL_FALSE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &result);
	expect(result, CL_INVALID_VALUE, "a repetition of whole coordinates");
	s = cl.CreateSampler(w->context, CL_TRUE, CL_ADDRESS_REPEAT, CL_FILTER_LINEAR, &result);
	must(result, "clCreateSampler");
	expect(cl.GetSamplerInfo(s, CL_SAMPLER_FILTER_MODE, sizeof(filter), &filter, NULL),
	       CL_SUCCESS, "a sampler's filter");
	expect_true(filter == CL_FILTER_LINEAR, "is what it was made with");
	expect(cl.GetSamplerInfo(s, 0xffff, sizeof(filter), &filter, NULL), CL_INVALID_VALUE,
	       "a question that no sampler has");
	must(cl.RetainSampler(s), "clRetainSampler");
	must(cl.ReleaseSampler(s), "clReleaseSampler");
	must(cl.ReleaseSampler(s), "clReleaseSampler");
}

static void flags(const struct world *w)
{
	cl_int result;
	unsigned char bytes[64];
	cl_mem mem = cl.CreateImage(w->context, CL_MEM_HOST_WRITE_ONLY, &rgba, &square, NULL,
				    &result);

	must(result, "clCreateImage");
	expect(read_box(w, mem, zero, some, 0, 0, bytes), CL_INVALID_OPERATION,
	       "reading an image that the host only writes");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
	expect(cl.GetImageInfo(mem, CL_IMAGE_WIDTH, sizeof(bytes), bytes, NULL),
	       CL_INVALID_MEM_OBJECT, "an image that was released");
	(void)cl.CreateImage2D(w->context, 0, &rgba, 0, 4, 0, NULL, &result);
	expect(result, CL_INVALID_IMAGE_SIZE, "an image of no width by the old call");
}

void probe_image_misuse(const struct world *w)
{
	cl_int result;
	cl_mem buffer = cl.CreateBuffer(w->context, 0, 1024, NULL, &result), image;

	must(result, "clCreateBuffer");
	image = cl.CreateImage(w->context, 0, &rgba, &square, NULL, &result);
	must(result, "clCreateImage");
	formats(w);
	shapes(w, buffer);
	lines(w, buffer, image);
	boxes(w, buffer, image);
	arguments(w, buffer, image);
	samplers(w);
	flags(w);
	must(cl.Finish(w->queue), "clFinish");
	must(cl.ReleaseMemObject(image), "clReleaseMemObject");
	must(cl.ReleaseMemObject(buffer), "clReleaseMemObject");
}
