/* SPDX-License-Identifier: Apache-2.0 */
/* Launches as they are, copies and fills, handed to OpenCL. */
#include <assert.h>
#include <errno.h>

#include "base/checked.h"
#include "devices/opencl/backend.h"

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

static int set_args(struct gantry_stream *stream, cl_kernel kernel,
		    const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	struct gantry_opencl_place *place;
	int r = 0;

	for (uint32_t i = 0; i < launch->nargs && r == 0; i++) {
		const struct gantry_range *range = &launch->args[i].range;
		cl_mem none = NULL;

		if (!sig->args[i].mode) {
			r = set_arg(stream, kernel, i, bytes_of(sig->args[i].type),
				    &launch->args[i].value);
			continue;
		}
		if (!range->mem || range->len == 0) {
			r = set_arg(stream, kernel, i, sizeof(none), &none);
			continue;
		}
		r = gantry_opencl_place_take(stream, range, sig->args[i].mode, &place);
		if (r == 0)
			r = set_arg(stream, kernel, i, sizeof(place->mem), &place->mem);
	}
	return r;
}

static int shape_of(const struct gantry_cmd_launch *launch, size_t *ret_global, size_t *ret_local)
{
	uint64_t nlocal = 1;

	if (launch->shared_bytes != 0)
		return -EINVAL; /* OpenCL's local memory is an argument, or the kernel's own */
	for (unsigned int i = 0; i < 3; i++) {
		uint64_t global;

		if (launch->grid[i] == 0 || launch->block[i] == 0 ||
		    gantry_mul_u64(launch->grid[i], launch->block[i], &global) < 0 ||
		    gantry_mul_u64(nlocal, launch->block[i], &nlocal) < 0)
			return -EINVAL;
		ret_global[i] = global;
		ret_local[i] = launch->block[i];
	}
	return nlocal <= launch->kernel->max_local ? 0 : -EINVAL;
}

int gantry_opencl_launch(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	size_t global[3], local[3];
	cl_kernel kernel;
	int r;

	assert(launch->nargs == launch->kernel->sig->nargs);
	if (launch->kernel->body)
		return gantry_opencl_body_run(stream, launch);
	r = shape_of(launch, global, local);
	if (r < 0)
		return r;
	kernel = gantry_opencl_kernel_of(stream, launch->kernel->image, launch->kernel->function);
	if (!kernel)
		return -ENOMEM;
	r = set_args(stream, kernel, launch);
	if (r < 0)
		return r;
	return gantry_opencl_outcome(stream, stream->dev->cl->EnqueueNDRangeKernel(
						     stream->queue, kernel, 3, NULL, global, local,
						     0, NULL, gantry_opencl_event_slot(stream)));
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

	if (len == 0 || (src->host && src->host == dst->host && stream->dev->direct))
		return 0;
	if (!overlap(stream, dst, src, len))
		return copy_buffer(stream, dst->mem, src->mem, len);
	r = gantry_opencl_place_scratch(stream, len, &between);
	if (r == 0)
		r = copy_buffer(stream, between->mem, src->mem, len);
	return r < 0 ? r : copy_buffer(stream, dst->mem, between->mem, len);
}

int gantry_opencl_copy(struct gantry_stream *stream, const struct gantry_cmd_copy *copy)
{
	struct gantry_opencl_place *dst, *src;
	int r;

	if (copy->dst.len == 0)
		return 0;
	r = gantry_opencl_place_take(stream, &copy->src, GANTRY_R, &src);
	if (r == 0)
		r = gantry_opencl_place_take(stream, &copy->dst, GANTRY_W, &dst);
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
	r = gantry_opencl_place_take(stream, &fill->dst, GANTRY_W, &dst);
	return r < 0 ? r
		     : gantry_opencl_set(stream, dst, 0, fill->dst.len, fill->pattern,
					 fill->pattern_bytes);
}
