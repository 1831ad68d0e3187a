/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the opencl backend: mappings, and what OpenCL gets of them for one command. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "devices/opencl/backend.h"

#define MOST_ALIGN 128u

static int take_host(struct gantry_dev *dev, struct gantry_hostmem *host, int r,
		     struct gantry_mem **ret_mem)
{
	if (r < 0)
		return r;
	*ret_mem = gantry_container_of(host, struct gantry_mem, host);
	(*ret_mem)->dev = dev;
	return 0;
}

int gantry_opencl_mem_import(struct gantry_dev *dev, int fd, uint64_t off, uint64_t len,
			     struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r = gantry_hostmem_import(sizeof(struct gantry_mem), &dev->mems, fd, off, len, &host,
				      err);

	return take_host(dev, host, r, ret_mem);
}

int gantry_opencl_mem_host(struct gantry_dev *dev, void *base, uint64_t len,
			   struct gantry_mem **ret_mem, struct gantry_err *err)
{
	struct gantry_hostmem *host;
	int r = gantry_hostmem_new(sizeof(struct gantry_mem), &dev->mems, base, len, &host, err);

	return take_host(dev, host, r, ret_mem);
}

void gantry_opencl_mem_free(struct gantry_mem *mem)
{
	if (!mem)
		return;
	gantry_opencl_twins_leave_mem(mem);
	gantry_hostmem_free(&mem->host);
}

/* ---- is it the same memory? ---- */

/* Fills host memory by way of @mem's queue, and looks whether the bytes themselves changed. */
static bool fill_shows(struct gantry_dev *dev, cl_command_queue queue, cl_mem mem,
		       const unsigned char *host, size_t len)
{
	const unsigned char pattern = 0x5a;

	if (dev->cl->EnqueueFillBuffer(queue, mem, &pattern, 1, 0, len, 0, NULL, NULL) !=
		    CL_SUCCESS ||
	    dev->cl->Finish(queue) != CL_SUCCESS)
		return false;
	for (size_t i = 0; i < len; i++)
		if (host[i] != pattern)
			return false;
	return true;
}

/* Changes host memory behind OpenCL's back, and looks whether a copy through it has the new bytes. */
static bool store_shows(struct gantry_dev *dev, cl_command_queue queue, cl_mem mem,
			unsigned char *host, unsigned char *copy, size_t len)
{
	for (size_t i = 0; i < len; i++)
		host[i] = (unsigned char)(i * 7 + 1);
	if (dev->cl->EnqueueReadBuffer(queue, mem, CL_TRUE, 0, len, copy, 0, NULL, NULL) !=
	    CL_SUCCESS)
		return false;
	for (size_t i = 0; i < len; i++)
		if (copy[i] != (unsigned char)(i * 7 + 1))
			return false;
	return true;
}

bool gantry_opencl_mem_is_direct(struct gantry_dev *dev)
{
	/* An odd start and length: ranges of guests are no better. */
	static unsigned char memory[4096 + 3], copy[4096];
	const size_t len = sizeof(copy) - 5;
	cl_int result = CL_SUCCESS;
	cl_command_queue queue;
	bool direct = false;
	cl_mem mem;

	if (!(dev->kind_bits & CL_DEVICE_TYPE_CPU) ||
	    !gantry_opencl_number(dev->cl, dev->target.device, CL_DEVICE_HOST_UNIFIED_MEMORY, 0))
		return false;
	queue = dev->cl->CreateCommandQueue(dev->context, dev->target.device, 0, &result);
	if (result != CL_SUCCESS)
		return false;
	mem = dev->cl->CreateBuffer(dev->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, len,
				    memory + 3, &result);
	if (result == CL_SUCCESS) {
		direct = fill_shows(dev, queue, mem, memory + 3, len) &&
			 store_shows(dev, queue, mem, memory + 3, copy, len);
		(void)dev->cl->ReleaseMemObject(mem);
	}
	(void)dev->cl->ReleaseCommandQueue(queue);
	return direct;
}

/* ---- places ---- */

static uint32_t align_of(const void *address)
{
	uintptr_t bits = (uintptr_t)address | MOST_ALIGN;

	return (uint32_t)(bits & -bits);
}

static struct gantry_opencl_place *place_next(struct gantry_stream *stream, uint64_t len)
{
	struct gantry_opencl_place *place;

	if (stream->nplaces == GANTRY_OPENCL_PLACES)
		return NULL;
	place = &stream->places[stream->nplaces];
	*place =
		(struct gantry_opencl_place){ .buffer = { .len_bytes = len, .align = MOST_ALIGN } };
	return place;
}

static int object_make(struct gantry_stream *stream, const struct gantry_launch_image *image,
		       uint64_t len, cl_mem_flags flags, void *host, cl_mem *ret_mem)
{
	struct gantry_dev *dev = stream->dev;
	cl_int result = CL_SUCCESS;
	cl_mem mem;

	if (image->type)
		mem = gantry_opencl_pixels_make(dev, image, flags, host, &result);
	else
		mem = dev->cl->CreateBuffer(dev->context, CL_MEM_READ_WRITE | flags, len, host,
					    &result);
	if (result != CL_SUCCESS)
		return result == CL_INVALID_BUFFER_SIZE ? -ENOMEM
							: gantry_opencl_outcome(stream, result);
	*ret_mem = mem;
	return 0;
}

int gantry_opencl_object_make(struct gantry_stream *stream, const struct gantry_launch_image *image,
			      uint64_t len, cl_mem *ret_mem)
{
	return object_make(stream, image, len, 0, NULL, ret_mem);
}

static int place_make(struct gantry_stream *stream, struct gantry_opencl_place *place,
		      cl_mem_flags flags, void *host)
{
	int r = object_make(stream, &place->image, place->buffer.len_bytes, flags, host,
			    &place->mem);

	stream->nplaces += r == 0;
	return r;
}

/* By another place of the present command. */
static bool kept_is_used(const struct gantry_stream *stream, cl_mem mem)
{
	for (uint32_t i = 0; i < stream->nplaces; i++)
		if (stream->places[i].mem == mem)
			return true;
	return false;
}

static struct gantry_opencl_kept *find_kept(struct gantry_stream *stream,
					    const struct gantry_opencl_place *place)
{
	for (uint32_t i = 0; i < GANTRY_OPENCL_KEPT; i++) {
		struct gantry_opencl_kept *kept = &stream->kept[i];

		if (kept->mem && kept->host == place->host &&
		    kept->len == place->buffer.len_bytes &&
		    memcmp(&kept->image, &place->image, sizeof(kept->image)) == 0)
			return kept;
	}
	return NULL;
}

/* Over the bytes as they are: nothing of them is in the object, so one that was made for other commands will do. */
static int place_direct(struct gantry_stream *stream, struct gantry_opencl_place *place)
{
	struct gantry_opencl_kept *kept = find_kept(stream, place);
	int r;

	place->is_kept = true;
	if (kept) {
		place->mem = kept->mem;
		stream->nplaces++;
		return 0;
	}
	r = place_make(stream, place, CL_MEM_USE_HOST_PTR, place->host);
	if (r < 0)
		return r;
	kept = &stream->kept[stream->next_kept++ % GANTRY_OPENCL_KEPT];
	/* A command that uses it keeps it, but one that is being put together does not yet. */
	if (kept->mem && kept_is_used(stream, kept->mem)) {
		place->is_kept = false;
		return 0;
	}
	if (kept->mem)
		(void)stream->dev->cl->ReleaseMemObject(kept->mem);
	*kept = (struct gantry_opencl_kept){ place->mem, place->host, place->buffer.len_bytes,
					     place->image };
	return 0;
}

void gantry_opencl_places_forget(struct gantry_stream *stream)
{
	for (uint32_t i = 0; i < GANTRY_OPENCL_KEPT; i++)
		if (stream->kept[i].mem)
			(void)stream->dev->cl->ReleaseMemObject(stream->kept[i].mem);
}

int gantry_opencl_place_write(struct gantry_stream *stream, const struct gantry_opencl_place *place)
{
	if (place->image.type)
		return gantry_opencl_pixels_write(stream, place);
	return gantry_opencl_outcome(stream, stream->dev->cl->EnqueueWriteBuffer(
						     stream->queue, place->mem, CL_FALSE, 0,
						     place->buffer.len_bytes, place->host, 0, NULL,
						     gantry_opencl_event_slot(stream)));
}

int gantry_opencl_place_read(struct gantry_stream *stream, const struct gantry_opencl_place *place)
{
	if (place->image.type)
		return gantry_opencl_pixels_read(stream, place);
	return gantry_opencl_outcome(
		stream, stream->dev->cl->EnqueueReadBuffer(stream->queue, place->mem, CL_FALSE, 0,
							   place->buffer.len_bytes, place->host, 0,
							   NULL, gantry_opencl_event_slot(stream)));
}

/* @fresh: nothing of what is there is looked at. What a launch writes only is: it may leave some of it as it is. */
static int place_staged(struct gantry_stream *stream, struct gantry_opencl_place *place,
			const struct gantry_range *range, bool fresh)
{
	int r = gantry_opencl_twin_take(stream, range, &place->image, fresh, &place->twin);

	if (r < 0)
		return r;
	place->mem = place->twin->mem;
	place->is_kept = true;
	place->contents = range->contents;
	stream->nplaces++;
	return 0;
}

static int place_of_range(struct gantry_stream *stream, const struct gantry_range *range,
			  const struct gantry_launch_image *image, bool writes, bool fresh,
			  struct gantry_opencl_place **ret_place)
{
	struct gantry_opencl_place *place = place_next(stream, range->len);
	bool direct = stream->dev->direct;
	int r;

	if (!place)
		return -EINVAL;
	if (image)
		place->image = *image;
	place->host = range->mem->host.base + range->off;
	place->buffer.align = align_of(place->host);
	place->read_back = !direct && writes;
	r = direct ? place_direct(stream, place) : place_staged(stream, place, range, fresh);
	if (r == 0)
		*ret_place = place;
	return r;
}

int gantry_opencl_place_image(struct gantry_stream *stream, const struct gantry_range *range,
			      const struct gantry_launch_image *image, uint32_t mode,
			      struct gantry_opencl_place **ret_place)
{
	return place_of_range(stream, range, image, mode != GANTRY_R, false, ret_place);
}

int gantry_opencl_place_take(struct gantry_stream *stream, const struct gantry_range *range,
			     uint32_t mode, struct gantry_opencl_place **ret_place)
{
	return place_of_range(stream, range, NULL, mode != GANTRY_R, false, ret_place);
}

int gantry_opencl_place_over(struct gantry_stream *stream, const struct gantry_range *range,
			     struct gantry_opencl_place **ret_place)
{
	return place_of_range(stream, range, NULL, true, true, ret_place);
}

int gantry_opencl_place_scratch(struct gantry_stream *stream, uint64_t bytes,
				struct gantry_opencl_place **ret_place)
{
	struct gantry_opencl_place *place = place_next(stream, bytes);
	int r;

	if (!place || !gantry_range_inside(stream->scratch_used, bytes, stream->dev->scratch_bytes))
		return -ENOMEM;
	r = place_make(stream, place, 0, NULL);
	if (r < 0)
		return r;
	stream->scratch_used += bytes;
	*ret_place = place;
	return 0;
}

int gantry_opencl_place_verdict(struct gantry_stream *stream,
				struct gantry_opencl_place **ret_place)
{
	struct gantry_opencl_slot *slot = stream->slot;
	struct gantry_opencl_cell *cell = &stream->cells[slot - stream->slots];
	struct gantry_opencl_place *place;
	bool direct = stream->dev->direct;
	int r;

	for (uint32_t i = 0; i < stream->nplaces; i++)
		if (stream->places[i].is_verdict) {
			*ret_place = &stream->places[i];
			return 0;
		}
	place = place_next(stream, sizeof(*cell));
	if (!place)
		return -ENOMEM;
	cell->words[GANTRY_OPENCL_VERDICT_STATUS] = 0;
	cell->words[GANTRY_OPENCL_VERDICT_CANCEL] = 0;
	place->host = (unsigned char *)(uintptr_t)cell->words;
	place->read_back = !direct;
	place->is_verdict = true;
	r = direct ? place_make(stream, place, CL_MEM_USE_HOST_PTR, place->host)
		   : place_make(stream, place, 0, NULL);
	if (r == 0 && !direct)
		r = gantry_opencl_place_write(stream, place);
	if (r < 0)
		return r;
	slot->judged = true;
	*ret_place = place;
	return 0;
}

int gantry_opencl_places_end(struct gantry_stream *stream, bool ok, uint64_t makes)
{
	int r = 0;

	/* A verdict; what else is written has twins. */
	for (uint32_t i = 0; i < stream->nplaces && ok && r == 0; i++)
		if (stream->places[i].read_back && !stream->places[i].twin)
			r = gantry_opencl_place_read(stream, &stream->places[i]);
	if (!stream->dev->direct)
		gantry_opencl_twins_used(stream, ok && r == 0, makes);
	/* OpenCL keeps each for as long as a command uses it. */
	while (stream->nplaces > 0)
		if (!stream->places[--stream->nplaces].is_kept)
			(void)stream->dev->cl->ReleaseMemObject(
				stream->places[stream->nplaces].mem);
	return r;
}
