/* SPDX-License-Identifier: Apache-2.0 */
/* Images and samplers: every kind of image, and every way to move pixels. What is printed is the same on every platform. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/system/guests/opencl_probe.h"

#define W	   13u
#define H	   7u
#define D	   5u
#define MOST_BYTES (W * H * D * 16u)

static const char text[] =
	"__constant sampler_t near = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"
	"__kernel void turn(read_only image2d_t in, write_only image2d_t out)\n"
	"{ int x = get_global_id(0), y = get_global_id(1);\n"
	"  write_imagef(out, (int2)(get_image_width(out) - 1 - x, y), read_imagef(in, near, (int2)(x, y)) * 0.5f); }\n"
	"__kernel void whole(read_only image2d_t in, write_only image2d_t out, uint more)\n"
	"{ int2 at = (int2)(get_global_id(0), get_global_id(1)); write_imageui(out, at, read_imageui(in, near, at) + more); }\n"
	"__kernel void sampled(read_only image2d_t in, sampler_t how, __global float4 *out, float scale, float shift)\n"
	"{ size_t w = get_global_size(0); float2 at = (float2)(get_global_id(0), get_global_id(1)) * scale + shift;\n"
	"  out[get_global_id(1) * w + get_global_id(0)] = read_imagef(in, how, at); }\n"
	"__kernel void sizes(read_only image3d_t v, read_only image2d_array_t a, read_only image1d_array_t r,\n"
	"                    read_only image1d_t l, read_only image1d_buffer_t b, __global int *out)\n"
	"{ out[0] = get_image_width(v); out[1] = get_image_height(v); out[2] = get_image_depth(v);\n"
	"  out[3] = get_image_width(a); out[4] = get_image_height(a); out[5] = get_image_array_size(a);\n"
	"  out[6] = get_image_width(r); out[7] = get_image_array_size(r); out[8] = get_image_width(l); out[9] = 0;\n"
	"  out[10] = get_image_channel_order(v); out[11] = get_image_channel_data_type(v); }\n"
	"__kernel void pick(read_only image3d_t v, read_only image2d_array_t a, read_only image1d_array_t r,\n"
	"                   read_only image1d_t l, read_only image1d_buffer_t b, __global uint4 *out)\n"
	"{ int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);\n"
	"  size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;\n"
	"  out[at] = read_imageui(v, near, (int4)(x, y, z, 0)) + 3 * read_imageui(a, near, (int4)(x, y, z, 0)) +\n"
	"    5 * read_imageui(r, near, (int2)(x, z)) + 7 * read_imageui(l, near, x) + 11 * read_imageui(b, x); }\n";

static const cl_image_format rgba_float = { CL_RGBA, CL_FLOAT };
static const cl_image_format rgba_u8 = { CL_RGBA, CL_UNSIGNED_INT8 };

/* Bytes that are numbers in any format: floats and halves too are finite and of a middle size. */
static void fill_bytes(unsigned char *bytes, size_t n, const cl_image_format *format, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		bytes[i] = (unsigned char)(seed >> 24);
	}
	if (format->image_channel_data_type == CL_FLOAT)
		for (size_t i = 3; i < n; i += 4)
			bytes[i] = 0x3f;
	if (format->image_channel_data_type == CL_HALF_FLOAT)
		for (size_t i = 1; i < n; i += 2)
			bytes[i] = 0x38 | (bytes[i] & 3);
}

static cl_mem image_of(const struct world *w, cl_mem_flags flags, const cl_image_format *format,
		       const cl_image_desc *desc, void *host)
{
	cl_int result;
	cl_mem mem = cl.CreateImage(w->context, flags, format, desc, host, &result);

	must(result, "clCreateImage");
	return mem;
}

static cl_image_desc flat(size_t width, size_t height)
{
	return (cl_image_desc){ .image_type = CL_MEM_OBJECT_IMAGE2D,
				.image_width = width,
				.image_height = height };
}

/* All of an image without gaps. */
static void read_all(const struct world *w, cl_mem mem, const size_t region[3], void *to)
{
	const size_t zero[3] = { 0 };

	must(cl.EnqueueReadImage(w->queue, mem, CL_TRUE, zero, region, 0, 0, to, 0, NULL, NULL),
	     "clEnqueueReadImage");
}

static void show_image(const struct world *w, cl_mem mem, const size_t region[3], const char *name)
{
	static unsigned char bytes[MOST_BYTES];
	size_t pixel = 0;

	must(cl.GetImageInfo(mem, CL_IMAGE_ELEMENT_SIZE, sizeof(pixel), &pixel, NULL),
	     "clGetImageInfo");
	read_all(w, mem, region, bytes);
	show_bytes(name, bytes, pixel * region[0] * region[1] * region[2]);
}

/* ---- formats ---- */

static void fill_box(const struct world *w, cl_mem mem, const cl_image_format *format)
{
	const size_t origin[3] = { 2, 1, 0 }, region[3] = { 5, 4, 1 };
	const float floats[4] = { 0.25f, -0.5f, 1.5f, 0.75f }, ends[4] = { 0, -1, 1.5f, 1 };
	const cl_int ints[4] = { -3, 70000, 100, -200000 };
	const cl_uint uints[4] = { 3, 70000, 100, 255 };
	cl_channel_type type = format->image_channel_data_type;
	const void *color = floats;

	if (type >= CL_SIGNED_INT8 && type <= CL_SIGNED_INT32)
		color = ints;
	else if (type <= CL_UNORM_INT16)
		color = ends; /* PoCL does not round as the standard prefers */
	else if (type >= CL_UNSIGNED_INT8 && type <= CL_UNSIGNED_INT32)
		color = uints;
	must(cl.EnqueueFillImage(w->queue, mem, color, origin, region, 0, NULL, NULL),
	     "clEnqueueFillImage");
}

/* Made of bytes, written in a box, filled in another. */
static void one_format(const struct world *w, const cl_image_format *format)
{
	const size_t whole[3] = { W, H, 1 }, origin[3] = { 3, 2, 0 }, region[3] = { 6, 3, 1 };
	unsigned char bytes[W * H * 16], box[20 * 16 * 3];
	const cl_image_desc desc = flat(W, H);
	char name[64];
	size_t pixel;
	cl_mem mem;

	fill_bytes(bytes, sizeof(bytes), format, 7);
	fill_bytes(box, sizeof(box), format, 99);
	mem = image_of(w, CL_MEM_COPY_HOST_PTR, format, &desc, bytes);
	must(cl.GetImageInfo(mem, CL_IMAGE_ELEMENT_SIZE, sizeof(pixel), &pixel, NULL),
	     "clGetImageInfo");
	must(cl.EnqueueWriteImage(w->queue, mem, CL_TRUE, origin, region, 20 * pixel, 0, box, 0,
				  NULL, NULL),
	     "clEnqueueWriteImage");
	(void)snprintf(name, sizeof(name), "format %x %x of %zu written",
		       format->image_channel_order, format->image_channel_data_type, pixel);
	show_image(w, mem, whole, name);
	fill_box(w, mem, format);
	(void)snprintf(name, sizeof(name), "format %x %x filled", format->image_channel_order,
		       format->image_channel_data_type);
	show_image(w, mem, whole, name);
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

static void all_formats(const struct world *w)
{
	static const cl_mem_flags uses[] = { CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY,
					     CL_MEM_READ_WRITE };
	cl_image_format formats[256];
	cl_uint n = 0;

	for (cl_mem_object_type type = CL_MEM_OBJECT_IMAGE2D; type <= CL_MEM_OBJECT_IMAGE1D_BUFFER;
	     type++)
		for (int use = 0; use < 3; use++) {
			must(cl.GetSupportedImageFormats(w->context, uses[use], type, 256, formats,
							 &n),
			     "clGetSupportedImageFormats");
			show_bytes("formats", formats, n * sizeof(formats[0]));
		}
	/* Not 0, which means the same: NVIDIA's refuses that. */
	must(cl.GetSupportedImageFormats(w->context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 256,
					 formats, &n),
	     "clGetSupportedImageFormats");
	show("formats", n);
	for (cl_uint i = 0; i < n; i++)
		one_format(w, &formats[i]);
}

/* ---- kernels ---- */

static void set(cl_kernel kernel, cl_uint i, size_t size, const void *value)
{
	must(cl.SetKernelArg(kernel, i, size, value), "clSetKernelArg");
}

static cl_kernel kernel_in(cl_program program, const char *name)
{
	cl_int result;
	cl_kernel kernel = cl.CreateKernel(program, name, &result);

	must(result, name);
	return kernel;
}

static void run(const struct world *w, cl_kernel kernel, cl_uint ndims, const size_t *global)
{
	must(cl.EnqueueNDRangeKernel(w->queue, kernel, ndims, NULL, global, NULL, 0, NULL, NULL),
	     "clEnqueueNDRangeKernel");
	must(cl.Finish(w->queue), "clFinish");
	must(cl.ReleaseKernel(kernel), "clReleaseKernel");
}

static void turned(const struct world *w, cl_program program, const cl_image_format *format,
		   const char *name)
{
	const size_t whole[3] = { W, H, 1 };
	const cl_image_desc desc = flat(W, H);
	unsigned char bytes[W * H * 16];
	cl_kernel kernel = kernel_in(program, "turn");
	cl_mem in, out;

	fill_bytes(bytes, sizeof(bytes), format, 5);
	in = image_of(w, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, format, &desc, bytes);
	out = image_of(w, CL_MEM_WRITE_ONLY, format, &desc, NULL);
	set(kernel, 0, sizeof(in), &in);
	set(kernel, 1, sizeof(out), &out);
	run(w, kernel, 2, whole);
	show_image(w, out, whole, name);
	must(cl.ReleaseMemObject(in), "clReleaseMemObject");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
}

static void turned_all(const struct world *w, cl_program program)
{
	static const cl_image_format formats[] = {
		{ CL_RGBA, CL_FLOAT },	    { CL_R, CL_FLOAT },		{ CL_RGBA, CL_UNORM_INT8 },
		{ CL_BGRA, CL_UNORM_INT8 }, { CL_RGBA, CL_HALF_FLOAT }, { CL_RGBA, CL_UNORM_INT16 },
	};
	char name[64];

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		(void)snprintf(name, sizeof(name), "turned %x %x", formats[i].image_channel_order,
			       formats[i].image_channel_data_type);
		turned(w, program, &formats[i], name);
	}
}

/* Every sampler that may be, over one image. */
static void samplers(const struct world *w, cl_program program)
{
	const cl_image_desc desc = flat(W, H);
	const size_t n[2] = { 9, 9 };
	unsigned char bytes[W * H * 16];
	float out[81 * 4];
	cl_int result;
	cl_mem in, to;

	fill_bytes(bytes, sizeof(bytes), &rgba_float, 11);
	in = image_of(w, CL_MEM_COPY_HOST_PTR, &rgba_float, &desc, bytes);
	to = cl.CreateBuffer(w->context, 0, sizeof(out), NULL, &result);
	must(result, "clCreateBuffer");
	for (cl_uint how = 0; how < 20; how++) {
		cl_bool normalized = how >= 10;
		cl_addressing_mode addressing = CL_ADDRESS_NONE + how / 2 % 5;
		cl_filter_mode filter = CL_FILTER_NEAREST + how % 2;
		float scale = normalized ? 0.21f : 2.3f, shift = normalized ? -0.3f : -2.1f;
		cl_kernel kernel;
		cl_sampler sampler;
		char name[32];

		if (!normalized && addressing >= CL_ADDRESS_REPEAT)
			continue;
		if (addressing == CL_ADDRESS_NONE) { /* inside only */
			scale = normalized ? 0.05f : 0.4f;
			shift = normalized ? 0.2f : 1.5f;
		}
		sampler = cl.CreateSampler(w->context, normalized, addressing, filter, &result);
		must(result, "clCreateSampler");
		kernel = kernel_in(program, "sampled");
		set(kernel, 0, sizeof(in), &in);
		set(kernel, 1, sizeof(sampler), &sampler);
		set(kernel, 2, sizeof(to), &to);
		set(kernel, 3, sizeof(scale), &scale);
		set(kernel, 4, sizeof(shift), &shift);
		run(w, kernel, 2, n);
		must(cl.EnqueueReadBuffer(w->queue, to, CL_TRUE, 0, sizeof(out), out, 0, NULL,
					  NULL),
		     "clEnqueueReadBuffer");
		(void)snprintf(name, sizeof(name), "sampler %u", how);
		show_bytes(name, out, sizeof(out));
		must(cl.ReleaseSampler(sampler), "clReleaseSampler");
	}
	must(cl.ReleaseMemObject(in), "clReleaseMemObject");
	must(cl.ReleaseMemObject(to), "clReleaseMemObject");
}

/* A volume, an array of planes, an array of lines, a line, and a line over a buffer. */
struct shapes {
	cl_mem buffer, image[5];
};

static void make_shapes(const struct world *w, struct shapes *s)
{
	static const cl_image_desc descs[5] = {
		{ .image_type = CL_MEM_OBJECT_IMAGE3D,
		  .image_width = W,
		  .image_height = H,
		  .image_depth = D },
		{ .image_type = CL_MEM_OBJECT_IMAGE2D_ARRAY,
		  .image_width = W,
		  .image_height = H,
		  .image_array_size = D },
		{ .image_type = CL_MEM_OBJECT_IMAGE1D_ARRAY,
		  .image_width = W,
		  .image_array_size = D },
		{ .image_type = CL_MEM_OBJECT_IMAGE1D, .image_width = W },
		{ .image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = W },
	};
	unsigned char bytes[W * H * D * 4 + 16]; /* each image begins at another of them */
	cl_image_desc desc;
	cl_int result;

	fill_bytes(bytes, sizeof(bytes), &rgba_u8, 3);
	s->buffer = cl.CreateBuffer(w->context, CL_MEM_COPY_HOST_PTR, W * 4 + 20, bytes + 9,
				    &result);
	must(result, "clCreateBuffer");
	for (int i = 0; i < 5; i++) {
		desc = descs[i];
		if (i == 4)
			desc.buffer = s->buffer;
		s->image[i] = image_of(w, i == 4 ? 0 : CL_MEM_COPY_HOST_PTR, &rgba_u8, &desc,
				       i == 4 ? NULL : bytes + i);
	}
}

static void free_shapes(struct shapes *s)
{
	for (int i = 0; i < 5; i++)
		must(cl.ReleaseMemObject(s->image[i]), "clReleaseMemObject");
	must(cl.ReleaseMemObject(s->buffer), "clReleaseMemObject");
}

static void kernels_of_shapes(const struct world *w, cl_program program)
{
	static const char *const names[] = { "sizes", "pick" };
	const size_t global[2][3] = { { 1, 1, 1 }, { W, H, D } };
	static unsigned char out[MOST_BYTES];
	cl_int result;
	struct shapes s;
	cl_mem to = cl.CreateBuffer(w->context, 0, sizeof(out), NULL, &result);

	must(result, "clCreateBuffer");
	make_shapes(w, &s);
	for (int k = 0; k < 2; k++) {
		cl_kernel kernel = kernel_in(program, names[k]);

		for (cl_uint i = 0; i < 5; i++)
			set(kernel, i, sizeof(cl_mem), &s.image[i]);
		set(kernel, 5, sizeof(to), &to);
		run(w, kernel, 3, global[k]);
		must(cl.EnqueueReadBuffer(w->queue, to, CL_TRUE, 0, k ? sizeof(out) : 48, out, 0,
					  NULL, NULL),
		     "clEnqueueReadBuffer");
		show_bytes(names[k], out, k ? sizeof(out) : 48);
	}
	must(cl.ReleaseMemObject(to), "clReleaseMemObject");
	free_shapes(&s);
}

/* What a kernel writes into an image is in the buffer under it, and the other way. */
static void over_a_buffer(const struct world *w, cl_program program)
{
	const cl_image_desc desc = flat(4, 4);
	const size_t line[3] = { W, 1, 1 }, square[3] = { 4, 4, 1 };
	struct shapes s;
	unsigned char bytes[W * 4 + 20];
	cl_kernel kernel = kernel_in(program, "whole");
	cl_uint more = 1;
	cl_mem in, out;

	make_shapes(w, &s);
	memset(bytes, 9, sizeof(bytes));
	must(cl.EnqueueWriteBuffer(w->queue, s.buffer, CL_TRUE, 0, 8, bytes, 0, NULL, NULL),
	     "clEnqueueWriteBuffer");
	show_image(w, s.image[4], line, "a line after its buffer was written");
	must(cl.EnqueueWriteImage(w->queue, s.image[4], CL_TRUE, (size_t[]){ 5, 0, 0 },
				  (size_t[]){ 3, 1, 1 }, 0, 0, bytes, 0, NULL, NULL),
	     "clEnqueueWriteImage");
	must(cl.EnqueueReadBuffer(w->queue, s.buffer, CL_TRUE, 0, sizeof(bytes), bytes, 0, NULL,
				  NULL),
	     "clEnqueueReadBuffer");
	show_bytes("a buffer after its line was written", bytes, sizeof(bytes));
	in = image_of(w, CL_MEM_COPY_HOST_PTR, &rgba_u8, &desc, bytes);
	out = image_of(w, 0, &rgba_u8, &desc, NULL);
	set(kernel, 0, sizeof(in), &in);
	set(kernel, 1, sizeof(out), &out);
	set(kernel, 2, sizeof(more), &more);
	run(w, kernel, 2, square);
	show_image(w, out, square, "whole numbers");
	must(cl.ReleaseMemObject(in), "clReleaseMemObject");
	must(cl.ReleaseMemObject(out), "clReleaseMemObject");
	free_shapes(&s);
}

/* ---- moving pixels ---- */

static void copies(const struct world *w)
{
	const size_t volume[3] = { W, H, D }, lines[3] = { W, D, 1 };
	const size_t a[3] = { 1, 2, 1 }, b[3] = { 4, 0, 2 }, n[3] = { 5, 4, 2 };
	static unsigned char bytes[W * H * D * 4];
	struct shapes s;
	cl_int result;
	cl_mem buffer = cl.CreateBuffer(w->context, 0, sizeof(bytes), NULL, &result);

	must(result, "clCreateBuffer");
	make_shapes(w, &s);
	must(cl.EnqueueCopyImage(w->queue, s.image[0], s.image[1], a, b, n, 0, NULL, NULL),
	     "clEnqueueCopyImage");
	show_image(w, s.image[1], volume, "from a volume to planes");
	must(cl.EnqueueCopyImage(w->queue, s.image[1], s.image[1], (size_t[]){ 0, 0, 0 },
				 (size_t[]){ 6, 3, 0 }, n, 0, NULL, NULL),
	     "clEnqueueCopyImage");
	show_image(w, s.image[1], volume, "within an image");
	must(cl.EnqueueFillBuffer(w->queue, buffer, "\7", 1, 0, sizeof(bytes), 0, NULL, NULL),
	     "clEnqueueFillBuffer");
	must(cl.EnqueueCopyImageToBuffer(w->queue, s.image[0], buffer, a, n, 3, 0, NULL, NULL),
	     "clEnqueueCopyImageToBuffer");
	must(cl.EnqueueReadBuffer(w->queue, buffer, CL_TRUE, 0, sizeof(bytes), bytes, 0, NULL,
				  NULL),
	     "clEnqueueReadBuffer");
	show_bytes("from a volume to a buffer", bytes, sizeof(bytes));
	must(cl.EnqueueCopyBufferToImage(w->queue, buffer, s.image[1], 5, b, n, 0, NULL, NULL),
	     "clEnqueueCopyBufferToImage");
	show_image(w, s.image[1], volume, "from a buffer to planes");
	must(cl.EnqueueCopyBufferToImage(w->queue, buffer, s.image[2], 0, (size_t[]){ 2, 1, 0 },
					 (size_t[]){ 4, 3, 1 }, 0, NULL, NULL),
	     "clEnqueueCopyBufferToImage");
	show_image(w, s.image[2], lines, "from a buffer to lines");
	/* Rows of a plane become lines, and lines rows. */
	must(cl.EnqueueCopyImage(w->queue, s.image[1], s.image[2], (size_t[]){ 2, 1, 0 },
				 (size_t[]){ 3, 1, 0 }, (size_t[]){ 6, 4, 1 }, 0, NULL, NULL),
	     "clEnqueueCopyImage");
	show_image(w, s.image[2], lines, "from a plane to lines");
	must(cl.EnqueueCopyImage(w->queue, s.image[2], s.image[1], (size_t[]){ 0, 2, 0 },
				 (size_t[]){ 5, 3, 1 }, (size_t[]){ 7, 3, 1 }, 0, NULL, NULL),
	     "clEnqueueCopyImage");
	show_image(w, s.image[1], volume, "from lines to a plane");
	must(cl.ReleaseMemObject(buffer), "clReleaseMemObject");
	free_shapes(&s);
}

static void maps(const struct world *w)
{
	const size_t origin[3] = { 2, 1, 1 }, n[3] = { 6, 4, 3 }, volume[3] = { W, H, D };
	size_t row = 0, slice = 0;
	struct shapes s;
	unsigned char *at;
	cl_int result;

	make_shapes(w, &s);
	at = cl.EnqueueMapImage(w->queue, s.image[0], CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, origin,
				n, &row, &slice, 0, NULL, NULL, &result);
	must(result, "clEnqueueMapImage");
	for (size_t z = 0; z < n[2]; z++)
		for (size_t y = 0; y < n[1]; y++)
			for (size_t x = 0; x < n[0] * 4; x++)
				at[z * slice + y * row + x] ^= (unsigned char)(x + y + z);
	must(cl.EnqueueUnmapMemObject(w->queue, s.image[0], at, 0, NULL, NULL),
	     "clEnqueueUnmapMemObject");
	show_image(w, s.image[0], volume, "after a map");
	at = cl.EnqueueMapImage(w->queue, s.image[3], CL_TRUE, CL_MAP_READ, (size_t[]){ 3, 0, 0 },
				(size_t[]){ 4, 1, 1 }, &row, NULL, 0, NULL, NULL, &result);
	must(result, "clEnqueueMapImage");
	show_bytes("a mapped line", at, 16);
	must(cl.EnqueueUnmapMemObject(w->queue, s.image[3], at, 0, NULL, NULL),
	     "clEnqueueUnmapMemObject");
	free_shapes(&s);
}

/* While a box waits to be mapped and is written, what lies beside it changes, and stays changed. */
static void map_beside(const struct world *w)
{
	const size_t whole[3] = { W, H, 1 }, origin[3] = { 4, 2, 0 }, n[3] = { 3, 3, 1 };
	const cl_uint color[4] = { 1, 2, 3, 4 };
	const cl_image_desc desc = flat(W, H);
	unsigned char bytes[W * H * 4] = { 0 };
	cl_mem mem = image_of(w, CL_MEM_COPY_HOST_PTR, &rgba_u8, &desc, bytes);
	size_t row;
	cl_int result;
	unsigned char *at = cl.EnqueueMapImage(w->queue, mem, CL_TRUE, CL_MAP_WRITE, origin, n,
					       &row, NULL, 0, NULL, NULL, &result);

	must(result, "clEnqueueMapImage");
	must(cl.EnqueueFillImage(w->queue, mem, color, (size_t[]){ 8, 2, 0 }, (size_t[]){ 2, 3, 1 },
				 0, NULL, NULL),
	     "clEnqueueFillImage");
	must(cl.Finish(w->queue), "clFinish");
	for (size_t y = 0; y < n[1]; y++)
		memset(at + y * row, 7, n[0] * 4);
	must(cl.EnqueueUnmapMemObject(w->queue, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	show_image(w, mem, whole, "beside a map");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

/* The program's own memory, with more between rows than pixels. */
static void own_memory(const struct world *w)
{
	const size_t whole[3] = { W, H, 1 }, zero[3] = { 0 };
	cl_image_desc desc = flat(W, H);
	static unsigned char bytes[(W + 5) * H * 4] __attribute__((aligned(64)));
	size_t row = 0, told = 0;
	cl_int result;
	cl_mem mem;
	void *at;

	fill_bytes(bytes, sizeof(bytes), &rgba_u8, 21);
	desc.image_row_pitch = (W + 5) * 4;
	mem = image_of(w, CL_MEM_USE_HOST_PTR, &rgba_u8, &desc, bytes);
	must(cl.GetImageInfo(mem, CL_IMAGE_ROW_PITCH, sizeof(told), &told, NULL), "clGetImageInfo");
	show("row pitch", told);
	show_image(w, mem, whole, "the program's memory");
	at = cl.EnqueueMapImage(w->queue, mem, CL_TRUE, CL_MAP_WRITE, zero, whole, &row, NULL, 0,
				NULL, NULL, &result);
	must(result, "clEnqueueMapImage");
	expect_true(at == bytes, "an image of the program's memory is mapped there");
	show("mapped row pitch", row);
	bytes[(W + 5) * 4] = 1;
	must(cl.EnqueueUnmapMemObject(w->queue, mem, at, 0, NULL, NULL), "clEnqueueUnmapMemObject");
	show_image(w, mem, whole, "after it was mapped");
	must(cl.ReleaseMemObject(mem), "clReleaseMemObject");
}

static void questions(const struct world *w)
{
	static const cl_image_info sizes[] = { CL_IMAGE_ELEMENT_SIZE, CL_IMAGE_ROW_PITCH,
					       CL_IMAGE_SLICE_PITCH,  CL_IMAGE_WIDTH,
					       CL_IMAGE_HEIGHT,	      CL_IMAGE_DEPTH,
					       CL_IMAGE_ARRAY_SIZE };
	cl_mem_object_type type = 0;
	struct shapes s;
	size_t value;
	cl_mem under;

	make_shapes(w, &s);
	for (int i = 0; i < 4; i++) { /* PoCL has pitches of its own for lines over buffers */
		must(cl.GetMemObjectInfo(s.image[i], CL_MEM_TYPE, sizeof(type), &type, NULL),
		     "clGetMemObjectInfo");
		show("type", type);
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			char name[32];

			value = 0;
			must(cl.GetImageInfo(s.image[i], sizes[k], sizeof(value), &value, NULL),
			     "clGetImageInfo");
			(void)snprintf(name, sizeof(name), "of %d: %x", i, sizes[k]);
			show(name, value);
		}
	}
	must(cl.GetImageInfo(s.image[4], CL_IMAGE_BUFFER, sizeof(under), &under, NULL),
	     "clGetImageInfo");
	expect_true(under == s.buffer, "the buffer under a line");
	free_shapes(&s);
}

void probe_images(const struct world *w)
{
	cl_program program;
	cl_bool has = CL_FALSE;

	must(cl.GetDeviceInfo(w->device, CL_DEVICE_IMAGE_SUPPORT, sizeof(has), &has, NULL),
	     "clGetDeviceInfo");
	show("images", has);
	if (!has)
		return;
	program = program_of(w, text, "");
	all_formats(w);
	turned_all(w, program);
	samplers(w, program);
	kernels_of_shapes(w, program);
	over_a_buffer(w, program);
	copies(w);
	maps(w);
	map_beside(w);
	own_memory(w);
	questions(w);
	must(cl.ReleaseProgram(program), "clReleaseProgram");
}
