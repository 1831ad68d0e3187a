/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands on images. A box of an image is a box of its buffer whose rows are pixels: what buffers have for boxes does the rest.
 */
#include <string.h>

#include "guest-shim/opencl/transfer.h"

#define PATTERN_ON_DEVICE 8u
/* Rows apart from each other that are tasks of their own; more are done by this processor. */
#define ROWS_ON_DEVICE 256u

/* ---- boxes of images ---- */

/*
 * Where a box of the image lies: bytes from the image's first to the box's and to the end of its last, bytes of a row, rows,
 * slices. A 1-D array counts its layers in the second number; they are slices here.
 */
struct box {
	uint64_t off, bytes;
	size_t region[3], pitch[2];
};

/* The image's origin and region as a 3-D image would have them. false: they have numbers that the type has not. */
static bool spread(const struct gantry_launch_image *image, const size_t *origin,
		   const size_t *region, size_t from[3], size_t n[3])
{
	memcpy(from, origin, 3 * sizeof(size_t));
	memcpy(n, region, 3 * sizeof(size_t));
	if (image->type == GANTRY_IMAGE_1D_ARRAY) {
		if (from[2] != 0 || n[2] != 1)
			return false;
		from[2] = from[1];
		n[2] = n[1];
		from[1] = 0;
		n[1] = 1;
	}
	return true;
}

static bool is_inside(size_t from, size_t n, uint64_t all)
{
	return n > 0 && from < all && n <= all - from;
}

static cl_int box_of(const struct _cl_mem *mem, const size_t *origin, const size_t *region,
		     struct box *box)
{
	const struct gantry_launch_image *image = &mem->image;
	size_t from[3], n[3];

	/* One of height, depth and layers is 1 where the type does not have it. */
	if (!origin || !region || !spread(image, origin, region, from, n) ||
	    !is_inside(from[0], n[0], image->width) || !is_inside(from[1], n[1], image->height) ||
	    !is_inside(from[2], n[2], image->depth * image->layers))
		return CL_INVALID_VALUE;
	box->pitch[0] = image->row_bytes;
	box->pitch[1] = image->slice_bytes;
	box->region[0] = n[0] * mem->pixel_bytes;
	box->region[1] = n[1];
	box->region[2] = n[2];
	box->off = from[2] * image->slice_bytes + from[1] * image->row_bytes +
		   from[0] * mem->pixel_bytes;
	box->bytes = (n[2] - 1) * image->slice_bytes + (n[1] - 1) * image->row_bytes +
		     box->region[0];
	return CL_SUCCESS;
}

static void work_on(struct icd_work *work, const struct box *box)
{
	work->off = box->off;
	work->bytes = box->bytes;
	memcpy(work->region, box->region, sizeof(work->region));
	memcpy(work->pitch, box->pitch, sizeof(work->pitch));
}

/* As icd_transfer_check(), of an image. */
static cl_int check_image(cl_command_queue handle, cl_mem mem_handle, const struct icd_waits *waits,
			  struct _cl_command_queue **ret_q, struct _cl_mem **ret_mem)
{
	cl_int result = icd_transfer_check_any(handle, mem_handle, waits, ret_q, ret_mem);

	return result == CL_SUCCESS && !(*ret_mem)->image.type ? CL_INVALID_MEM_OBJECT : result;
}

/* ---- reading and writing ---- */

/* Pitches of the program's memory: 0 is what the box takes. Slices have one where the type has some. */
static cl_int take_host(struct icd_work *work, const struct gantry_launch_image *image, size_t row,
			size_t slice)
{
	bool has_slices = image->type == GANTRY_IMAGE_3D || gantry_image_has_layers(image->type);
	uint64_t least;

	row = row ? row : work->region[0];
	if (row < work->region[0] || (slice && !has_slices) ||
	    __builtin_mul_overflow((uint64_t)row, work->region[1], &least))
		return CL_INVALID_VALUE;
	slice = slice ? slice : least;
	work->other_pitch[0] = row;
	work->other_pitch[1] = slice;
	return slice >= least && !__builtin_mul_overflow((uint64_t)slice, work->region[2], &least)
		       ? CL_SUCCESS
		       : CL_INVALID_VALUE;
}

/* Where a box lies in an image and in the program's memory. */
struct place {
	const size_t *origin, *region;
	size_t row, slice;
	void *ptr;
};

static cl_int take_place(struct icd_work *work, const struct _cl_mem *mem,
			 const struct place *place)
{
	struct box box;
	cl_int result = place->ptr ? box_of(mem, place->origin, place->region, &box)
				   : CL_INVALID_VALUE;

	if (result != CL_SUCCESS)
		return result;
	work_on(work, &box);
	work->ptr = place->ptr;
	return take_host(work, &mem->image, place->row, place->slice);
}

static cl_int transfer(cl_command_queue handle, cl_mem mem_handle, bool is_blocking, bool is_write,
		       const struct place *place, const struct icd_waits *waits,
		       cl_event *ret_event)
{
	struct icd_work work = { .on_host = is_write ? icd_transfer_write_box
						     : icd_transfer_read_box };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	cl_int result;

	icd_gate_lock();
	result = check_image(handle, mem_handle, waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = take_place(&work, mem, place);
	if (result == CL_SUCCESS &&
	    !icd_transfer_host_may(mem, is_write ? CL_MEM_HOST_READ_ONLY : CL_MEM_HOST_WRITE_ONLY))
		result = CL_INVALID_OPERATION;
	if (result == CL_SUCCESS) {
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(q, is_write ? CL_COMMAND_WRITE_IMAGE : CL_COMMAND_READ_IMAGE,
				     &work, is_blocking, waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueReadImage(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
					  const size_t *origin, const size_t *region, size_t row,
					  size_t slice, void *ptr, cl_uint n, const cl_event *list,
					  cl_event *ret_event)
{
	return transfer(q, mem, is_blocking, false,
			&(struct place){ origin, region, row, slice, ptr },
			&(struct icd_waits){ n, list }, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueWriteImage(cl_command_queue q, cl_mem mem, cl_bool is_blocking,
					   const size_t *origin, const size_t *region, size_t row,
					   size_t slice, const void *ptr, cl_uint n,
					   const cl_event *list, cl_event *ret_event)
{
	return transfer(q, mem, is_blocking, true,
			&(struct place){ origin, region, row, slice, (void *)(uintptr_t)ptr },
			&(struct icd_waits){ n, list }, ret_event);
}

/* ---- from one memory to another ---- */

static bool same_format(const struct _cl_mem *a, const struct _cl_mem *b)
{
	return a->image.order == b->image.order && a->image.channel == b->image.channel;
}

static bool spans_meet(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

/* Of one image: whether a pixel is in both boxes. Of two over one buffer: whether their bytes may meet. */
static bool boxes_meet(const struct _cl_mem *mem, const struct box *a, const struct _cl_mem *other,
		       const struct box *b)
{
	uint64_t slice = mem->image.slice_bytes, row = mem->image.row_bytes;

	if (mem->buffer != other->buffer ||
	    !spans_meet(mem->origin + a->off, a->bytes, other->origin + b->off, b->bytes))
		return false;
	return mem != other ||
	       (spans_meet(a->off / slice, a->region[2], b->off / slice, b->region[2]) &&
		spans_meet(a->off % slice / row, a->region[1], b->off % slice / row,
			   b->region[1]) &&
		spans_meet(a->off % row, a->region[0], b->off % row, b->region[0]));
}

static cl_int put(struct _cl_command_queue *q, cl_command_type command, struct icd_work *work,
		  struct _cl_mem *from, struct _cl_mem *to, const struct icd_waits *waits,
		  cl_event *ret_event)
{
	work->on_device = icd_transfer_copy_box;
	icd_transfer_use(work, from, to);
	return icd_enqueue(q, command, work, false, waits, ret_event);
}

cl_int CL_API_CALL icd_clEnqueueCopyImage(cl_command_queue handle, cl_mem from_handle,
					  cl_mem to_handle, const size_t *origin,
					  const size_t *to_origin, const size_t *region, cl_uint n,
					  const cl_event *list, cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = { 0 };
	struct _cl_command_queue *q;
	struct _cl_mem *from, *to;
	struct box a, b;
	cl_int result;

	icd_gate_lock();
	result = check_image(handle, from_handle, &waits, &q, &from);
	if (result == CL_SUCCESS)
		result = check_image(handle, to_handle, &waits, &q, &to);
	if (result == CL_SUCCESS && !same_format(from, to))
		result = CL_IMAGE_FORMAT_MISMATCH;
	if (result == CL_SUCCESS)
		result = box_of(from, origin, region, &a);
	if (result == CL_SUCCESS)
		result = box_of(to, to_origin, region, &b);
	/* Layers of a 1-D array go to rows of another type, and the other way: both have as many pixels in as many rows. */
	if (result == CL_SUCCESS && boxes_meet(from, &a, to, &b))
		result = CL_MEM_COPY_OVERLAP;
	if (result == CL_SUCCESS) {
		work_on(&work, &a);
		work.other_off = b.off;
		memcpy(work.other_pitch, b.pitch, sizeof(work.other_pitch));
		if (a.region[1] != b.region[1]) {
			/* What is a slice in one is a row in the other. */
			bool from_rows = a.region[1] != 1;

			work.region[1] = from_rows ? a.region[1] : b.region[1];
			work.region[2] = 1;
			if (from_rows)
				work.other_pitch[0] = b.pitch[1];
			else
				work.pitch[0] = a.pitch[1];
		}
		result = put(q, CL_COMMAND_COPY_IMAGE, &work, from, to, &waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

/* A box of an image, and its pixels without anything between them in a buffer. */
static cl_int copy_flat(cl_command_queue handle, cl_mem image_handle, cl_mem buffer_handle,
			bool to_image, const size_t *origin, const size_t *region, size_t off,
			const struct icd_waits *waits, cl_event *ret_event)
{
	struct icd_work work = { 0 };
	struct _cl_command_queue *q;
	struct _cl_mem *image, *buffer;
	uint64_t flat;
	struct box box;
	cl_int result;

	icd_gate_lock();
	result = check_image(handle, image_handle, waits, &q, &image);
	if (result == CL_SUCCESS)
		result = icd_transfer_check(handle, buffer_handle, waits, &q, &buffer);
	if (result == CL_SUCCESS)
		result = box_of(image, origin, region, &box);
	if (result == CL_SUCCESS) {
		flat = box.region[0] * box.region[1] * box.region[2];
		result = icd_transfer_check_range(buffer, off, flat);
	}
	if (result == CL_SUCCESS && image->buffer == buffer->buffer &&
	    spans_meet(image->origin + box.off, box.bytes, buffer->origin + off, flat))
		result = CL_MEM_COPY_OVERLAP;
	if (result == CL_SUCCESS) {
		size_t pitch[2] = { box.region[0], box.region[0] * box.region[1] };

		work_on(&work, &box);
		memcpy(work.other_pitch, pitch, sizeof(pitch));
		work.other_off = off;
		if (to_image) {
			work.bytes = flat;
			work.off = off;
			work.other_off = box.off;
			memcpy(work.pitch, pitch, sizeof(pitch));
			memcpy(work.other_pitch, box.pitch, sizeof(pitch));
		}
		result = put(q,
			     to_image ? CL_COMMAND_COPY_BUFFER_TO_IMAGE
				      : CL_COMMAND_COPY_IMAGE_TO_BUFFER,
			     &work, to_image ? buffer : image, to_image ? image : buffer, waits,
			     ret_event);
	}
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clEnqueueCopyImageToBuffer(cl_command_queue q, cl_mem from, cl_mem to,
						  const size_t *origin, const size_t *region,
						  size_t off, cl_uint n, const cl_event *list,
						  cl_event *ret_event)
{
	return copy_flat(q, from, to, false, origin, region, off, &(struct icd_waits){ n, list },
			 ret_event);
}

cl_int CL_API_CALL icd_clEnqueueCopyBufferToImage(cl_command_queue q, cl_mem from, cl_mem to,
						  size_t off, const size_t *origin,
						  const size_t *region, cl_uint n,
						  const cl_event *list, cl_event *ret_event)
{
	return copy_flat(q, to, from, true, origin, region, off, &(struct icd_waits){ n, list },
			 ret_event);
}

/* ---- filling ---- */

static int run_fill(struct _cl_event *event, struct icd_work *work, const gantry_ticket *after,
		    unsigned nafter, gantry_ticket *ret_ticket)
{
	int r = icd_transfer_wait(event, after, nafter);

	for (size_t z = 0; z < work->region[2]; z++)
		for (size_t y = 0; y < work->region[1] && r >= 0; y++)
			r = gantry_submit_fill(icd_transfer_session(event),
					       event->queue->line->queue, work->mem->buffer,
					       work->mem->origin + work->off + z * work->pitch[1] +
						       y * work->pitch[0],
					       work->region[0], work->pattern[0],
					       work->pattern_bytes, ret_ticket);
	return r;
}

/* Pixels longer than a task's pattern, and many rows apart from each other. */
static cl_int run_long_fill(struct _cl_event *event, struct icd_work *work)
{
	struct gantry_session *session = icd_transfer_session(event);
	void *at;
	int r = gantry_map(session, work->mem->buffer, work->mem->origin + work->off, work->bytes,
			   GANTRY_RW, GANTRY_FOREVER, &at);

	if (r < 0)
		return icd_status(r);
	for (size_t z = 0; z < work->region[2]; z++)
		for (size_t y = 0; y < work->region[1]; y++)
			for (size_t x = 0; x < work->region[0]; x += work->pattern_bytes)
				memcpy((char *)at + z * work->pitch[1] + y * work->pitch[0] + x,
				       work->pattern, work->pattern_bytes);
	return icd_status(gantry_unmap(session, at));
}

cl_int CL_API_CALL icd_clEnqueueFillImage(cl_command_queue handle, cl_mem mem_handle,
					  const void *color, const size_t *origin,
					  const size_t *region, cl_uint n, const cl_event *list,
					  cl_event *ret_event)
{
	const struct icd_waits waits = { n, list };
	struct icd_work work = { 0 };
	struct _cl_command_queue *q;
	struct _cl_mem *mem;
	struct box box;
	cl_int result;

	icd_gate_lock();
	result = check_image(handle, mem_handle, &waits, &q, &mem);
	if (result == CL_SUCCESS)
		result = color ? box_of(mem, origin, region, &box) : CL_INVALID_VALUE;
	if (result == CL_SUCCESS) {
		const cl_image_format format = { mem->image.order, mem->image.channel };

		work_on(&work, &box);
		icd_color_to_pixel(&format, color, (unsigned char *)work.pattern);
		work.pattern_bytes = mem->pixel_bytes;
		icd_transfer_merge(work.region, work.pitch, work.pitch);
		if (mem->pixel_bytes <= PATTERN_ON_DEVICE &&
		    work.region[1] * work.region[2] <= ROWS_ON_DEVICE)
			work.on_device = run_fill;
		else
			work.on_host = run_long_fill;
		icd_transfer_use(&work, mem, NULL);
		result = icd_enqueue(q, CL_COMMAND_FILL_IMAGE, &work, false, &waits, ret_event);
	}
	icd_gate_unlock();
	return result;
}

/* ---- mapping ---- */

cl_int icd_image_map_box(const struct _cl_mem *mem, const size_t *origin, const size_t *region,
			 struct icd_mapped *ret_mapped)
{
	struct box box;
	cl_int result = box_of(mem, origin, region, &box);

	if (result != CL_SUCCESS)
		return result;
	icd_transfer_merge(box.region, box.pitch, box.pitch);
	/* In one piece it is as a buffer's. */
	if (box.region[1] == 1 && box.region[2] == 1)
		box.region[0] = 0;
	*ret_mapped = (struct icd_mapped){ .off = box.off, .bytes = box.bytes };
	memcpy(ret_mapped->region, box.region, sizeof(box.region));
	memcpy(ret_mapped->pitch, box.pitch, sizeof(box.pitch));
	return CL_SUCCESS;
}
