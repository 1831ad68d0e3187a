/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as they are, copies and fills, handed to OpenCL. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "devices/opencl/backend.h"

/* What this thread moves at most for one command, for it is all sessions'. */
#define MOST_MOVED (2u << 20)

/* ---- launches ---- */

static int set_arg(struct gantry_stream *stream, cl_kernel kernel, uint32_t i, size_t bytes,
		   const void *value)
{
	return gantry_opencl_outcome(stream,
				     stream->dev->cl->SetKernelArg(kernel, i, bytes, value));
}

static size_t bytes_of(uint8_t type)
{
	switch (type) {
	case GANTRY_ARG_U8:
	case GANTRY_ARG_I8:
		return 1;
	case GANTRY_ARG_U16:
	case GANTRY_ARG_I16:
		return 2;
	case GANTRY_ARG_U32:
	case GANTRY_ARG_I32:
	case GANTRY_ARG_F32:
		return 4;
	default:
		return 8;
	}
}

static int set_buffer(struct gantry_stream *stream, cl_kernel kernel, uint32_t i,
		      const struct gantry_range *range, uint32_t mode)
{
	struct gantry_opencl_place *place;
	cl_mem none = NULL;
	int r;

	if (!range->mem || range->len == 0)
		return set_arg(stream, kernel, i, sizeof(none), &none);
	r = gantry_opencl_place_take(stream, range, mode, &place);
	return r < 0 ? r : set_arg(stream, kernel, i, sizeof(place->mem), &place->mem);
}

/* Local memory: its slot says how much; 0: the parameter is a buffer's, and there is none. Either is refused for the other. */
static int set_local(struct gantry_stream *stream, cl_kernel kernel, uint32_t i,
		     const struct gantry_raw *raw)
{
	cl_mem none = NULL;
	uint64_t bytes;

	memcpy(&bytes, raw->bytes, sizeof(bytes));
	return bytes ? set_arg(stream, kernel, i, bytes, NULL)
		     : set_arg(stream, kernel, i, sizeof(none), &none);
}

static int set_image(struct gantry_stream *stream, cl_kernel kernel, uint32_t i,
		     const struct gantry_range *range, const struct gantry_raw *raw, uint32_t mode)
{
	struct gantry_launch_image image;
	struct gantry_opencl_place *place;
	int r;

	memcpy(&image, raw->bytes, sizeof(image));
	r = gantry_opencl_pixels_check(&image, range);
	if (r == 0)
		r = gantry_opencl_place_image(stream, range, &image, mode, &place);
	return r < 0 ? r : set_arg(stream, kernel, i, sizeof(place->mem), &place->mem);
}

static int set_sampler(struct gantry_stream *stream, cl_kernel kernel, uint32_t i,
		       const struct gantry_raw *raw)
{
	struct gantry_launch_sampler wanted;
	cl_sampler sampler;

	memcpy(&wanted, raw->bytes, sizeof(wanted));
	sampler = gantry_opencl_sampler(stream->dev, &wanted);
	return sampler ? set_arg(stream, kernel, i, sizeof(sampler), &sampler) : -EINVAL;
}

static bool is_image(const struct gantry_sig_arg *arg)
{
	return !arg->mode && arg->type == GANTRY_ARG_IMAGE;
}

static int set_args(struct gantry_stream *stream, cl_kernel kernel,
		    const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	uint32_t first = gantry_opencl_first_param(sig), to = 0;
	int r = 0;

	for (uint32_t i = first; i < launch->nargs && r == 0; i++, to++) {
		const struct gantry_sig_arg *arg = &sig->args[i];

		/* A signature has a buffer behind each. */
		if (is_image(arg)) {
			r = set_image(stream, kernel, to, &launch->args[i + 1].range,
				      &launch->args[i].raw, arg[1].mode);
			i++;
		} else if (arg->mode)
			r = set_buffer(stream, kernel, to, &launch->args[i].range, arg->mode);
		else if (arg->type == GANTRY_ARG_BYTES)
			r = set_arg(stream, kernel, to, launch->args[i].raw.len,
				    launch->args[i].raw.bytes);
		else if (arg->type == GANTRY_ARG_LOCAL)
			r = set_local(stream, kernel, to, &launch->args[i].raw);
		else if (arg->type == GANTRY_ARG_SAMPLER)
			r = set_sampler(stream, kernel, to, &launch->args[i].raw);
		else
			r = set_arg(stream, kernel, to, bytes_of(arg->type),
				    &launch->args[i].value);
	}
	return r;
}

struct shape {
	struct gantry_launch_part part;
	cl_uint ndims;
	size_t offset[3];
	size_t global[3];
	size_t local[3];
};

/* Three dimensions without offsets, unless the signature has a range. */
static int take_range(const struct gantry_cmd_launch *launch, struct shape *shape)
{
	struct gantry_launch_range range;

	*shape = (struct shape){ .ndims = 3 };
	if (gantry_opencl_first_param(launch->kernel->sig) == 0)
		return 0;
	memcpy(&range, launch->args[0].raw.bytes, sizeof(range));
	if (range.ndims < 1 || range.ndims > 3 || !gantry_part_of(&range, &shape->part))
		return -EINVAL;
	shape->ndims = range.ndims;
	for (unsigned int i = 0; i < 3; i++)
		shape->offset[i] = range.offset[i];
	return 0;
}

static int shape_of(const struct gantry_cmd_launch *launch, struct shape *shape)
{
	uint64_t nlocal = 1;

	if (launch->shared_bytes != 0 || take_range(launch, shape) < 0)
		return -EINVAL; /* OpenCL's local memory is an argument, or the kernel's own */
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t global, end;

		if (launch->grid[i] == 0 || launch->block[i] == 0 ||
		    gantry_mul_u64(launch->grid[i], launch->block[i], &global) < 0 ||
		    gantry_add_u64(shape->offset[i], global, &end) < 0 ||
		    gantry_mul_u64(nlocal, launch->block[i], &nlocal) < 0)
			return -EINVAL;
		if (i >= shape->ndims && (global != 1 || shape->offset[i] != 0))
			return -EINVAL;
		if (launch->kernel->only[0] && launch->block[i] != launch->kernel->only[i])
			return -EINVAL;
		shape->global[i] = global;
		shape->local[i] = launch->block[i];
	}
	return nlocal <= launch->kernel->max_local ? 0 : -EINVAL;
}

int gantry_opencl_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	static const struct gantry_launch_part whole;
	struct shape shape;
	cl_kernel kernel;
	int r;

	assert(launch->nargs == launch->kernel->sig->nargs);
	if (launch->kernel->body) {
		r = gantry_opencl_part_use(stream, &whole);
		return r < 0 ? r : gantry_opencl_body_run(stream, launch);
	}
	r = shape_of(launch, &shape);
	if (r == 0)
		r = gantry_opencl_part_use(stream, &shape.part);
	if (r < 0)
		return r;
	kernel = gantry_opencl_kernel_of(stream, launch->kernel->image, launch->kernel->function);
	if (!kernel)
		return -ENOMEM;
	r = set_args(stream, kernel, launch);
	if (r < 0)
		return r;
	return gantry_opencl_outcome(stream, stream->dev->cl->EnqueueNDRangeKernel(
						     stream->queue, kernel, shape.ndims,
						     shape.offset, shape.global, shape.local, 0,
						     NULL, gantry_opencl_event_slot(stream)));
}

/* ---- moving bytes ---- */

static int copy_buffer(struct gantry_stream *stream, cl_mem dst, cl_mem src, uint64_t len)
{
	return gantry_opencl_outcome(
		stream, stream->dev->cl->EnqueueCopyBuffer(stream->queue, src, dst, 0, 0, len, 0,
							   NULL, gantry_opencl_event_slot(stream)));
}

/* Staged places never overlap: each has a buffer of its own. */
static bool overlap(const struct gantry_stream *stream, const struct gantry_opencl_place *a,
		    const struct gantry_opencl_place *b, uint64_t len)
{
	uintptr_t at = (uintptr_t)a->host, other = (uintptr_t)b->host;

	return stream->dev->direct && at && other && at < other + len && other < at + len;
}

int gantry_opencl_move(struct gantry_stream *stream, struct gantry_opencl_place *dst,
		       struct gantry_opencl_place *src, uint64_t len)
{
	struct gantry_opencl_place *between;
	int r;

	if (len == 0 || src->mem == dst->mem ||
	    (src->host && src->host == dst->host && stream->dev->direct))
		return 0;
	if (!overlap(stream, dst, src, len))
		return copy_buffer(stream, dst->mem, src->mem, len);
	r = gantry_opencl_place_scratch(stream, len, &between);
	if (r == 0)
		r = copy_buffer(stream, between->mem, src->mem, len);
	return r < 0 ? r : copy_buffer(stream, dst->mem, between->mem, len);
}

/*
 * Whether this thread is to move host memory, or *ret_r says why it cannot be moved yet: it has everything, and the device nothing of
 * the stream to do before. To bring it to the device and fetch it again would take longer. @src NULL: of a fill.
 */
static bool does_host(struct gantry_stream *stream, const struct gantry_range *src,
		      const struct gantry_range *dst, int *ret_r)
{
	bool newer = false, from = false;

	*ret_r = 0;
	if (stream->dev->direct || dst->len > MOST_MOVED || gantry_opencl_last_event(stream))
		return false;
	*ret_r = gantry_opencl_twin_look(stream, dst, &newer);
	if (*ret_r == 0 && src)
		*ret_r = gantry_opencl_twin_look(stream, src, &from);
	return *ret_r < 0 || (!newer && !from);
}

static int move_here(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	uint64_t began = gantry_now_ns();

	gantry_hostmem_move(cmd);
	stream->slot->host_ns = gantry_now_ns() - began;
	return 0;
}

int gantry_opencl_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy)
{
	struct gantry_opencl_place *dst, *src;
	int r;

	if (copy->dst.len == 0)
		return 0;
	if (does_host(stream, &copy->src, &copy->dst, &r)) {
		const struct gantry_cmd cmd = { .kind = GANTRY_CMD_COPY, .copy = *copy };

		return r < 0 ? r : move_here(stream, &cmd);
	}
	r = gantry_opencl_place_take(stream, &copy->src, GANTRY_R, &src);
	if (r == 0)
		r = gantry_opencl_place_over(stream, &copy->dst, &dst);
	return r < 0 ? r : gantry_opencl_move(stream, dst, src, copy->dst.len);
}

int gantry_opencl_set(struct gantry_stream *stream, const struct gantry_opencl_place *dst,
		      uint64_t off, uint64_t len, uint64_t pattern, uint32_t pattern_bytes)
{
	/* Little-endian, as hosts are: the low bytes come first. */
	return gantry_opencl_outcome(
		stream, stream->dev->cl->EnqueueFillBuffer(stream->queue, dst->mem, &pattern,
							   pattern_bytes, off, len, 0, NULL,
							   gantry_opencl_event_slot(stream)));
}

int gantry_opencl_fill(struct gantry_stream *stream, const struct gantry_cmd_fill *fill)
{
	struct gantry_opencl_place *dst;
	int r;

	if (fill->dst.len == 0)
		return 0;
	if (does_host(stream, NULL, &fill->dst, &r)) {
		const struct gantry_cmd cmd = { .kind = GANTRY_CMD_FILL, .fill = *fill };

		return r < 0 ? r : move_here(stream, &cmd);
	}
	r = gantry_opencl_place_over(stream, &fill->dst, &dst);
	return r < 0 ? r
		     : gantry_opencl_set(stream, dst, 0, fill->dst.len, fill->pattern,
					 fill->pattern_bytes);
}
