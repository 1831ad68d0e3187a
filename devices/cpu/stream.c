/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the cpu backend: commands in, results out, and which stream is served next. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cpu/cpu.h"

static struct gantry_cpu_cmd *slot_at(struct gantry_stream *stream, uint32_t position)
{
	return &stream->slots[position % GANTRY_CPU_DEPTH];
}

int gantry_cpu_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	stream->priority = attr->priority;
	gantry_list_init(&stream->ready);
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

void gantry_cpu_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	assert(stream->reaped == stream->submitted);
	gantry_list_remove(&stream->link);
	free(stream);
}

void gantry_cpu_ready_push(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_list *after = dev->ready.prev;

	/* From the end: streams of one priority take turns, and most have the same. */
	while (after != &dev->ready &&
	       gantry_list_entry(after, struct gantry_stream, ready)->priority < stream->priority)
		after = after->prev;
	gantry_list_insert_after(after, &stream->ready);
}

struct gantry_stream *gantry_cpu_ready_pop(struct gantry_dev *dev)
{
	struct gantry_list *link = gantry_list_pop_front(&dev->ready);

	return link ? gantry_list_entry(link, struct gantry_stream, ready) : NULL;
}

static unsigned char *resolve(const struct gantry_range *range)
{
	return range->mem->base + range->off;
}

static void take_launch(struct gantry_cpu_cmd *slot, const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	assert(launch->nargs == sig->nargs);
	slot->kernel = launch->kernel;
	memcpy(slot->call.grid, launch->grid, sizeof(slot->call.grid));
	memcpy(slot->call.block, launch->block, sizeof(slot->call.block));
	slot->call.nargs = launch->nargs;
	slot->call.args = slot->args;
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode)
			slot->args[i] = launch->args[i].value;
		else
			slot->args[i].span = (struct gantry_span){
				/* No memory: a buffer argument left empty. */
				.ptr = range->mem ? resolve(range) : NULL,
				.len_bytes = range->mem ? range->len : 0,
			};
	}
}

static void take_cmd(struct gantry_cpu_cmd *slot, const struct gantry_cmd *cmd)
{
	slot->kind = cmd->kind;
	slot->done.tag = cmd->tag;
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		take_launch(slot, &cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		slot->dst = resolve(&cmd->copy.dst);
		slot->src = resolve(&cmd->copy.src);
		slot->len = cmd->copy.dst.len;
		break;
	case GANTRY_CMD_FILL:
		slot->dst = resolve(&cmd->fill.dst);
		slot->len = cmd->fill.dst.len;
		slot->pattern = cmd->fill.pattern;
		slot->pattern_bytes = cmd->fill.pattern_bytes;
		break;
	default:
		assert(!"a kind of command that device.h does not have");
	}
}

int gantry_cpu_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;

	if (stream->submitted - stream->reaped == GANTRY_CPU_DEPTH)
		return -EAGAIN;
	take_cmd(slot_at(stream, stream->submitted), cmd);
	stream->submitted++;
	if (dev->ncores == 1) {
		if (stream->pending++ == 0)
			gantry_cpu_ready_push(stream);
		return 0;
	}
	/* Releases the slot to the lane that counts this command down (lanes.c). */
	if (gantry_fetch_add(&stream->pending, 1) == 0)
		gantry_cpu_lanes_schedule(stream);
	return 0;
}

/* One core: runs the next command here and now. */
static unsigned poll_and_run(struct gantry_dev *dev, struct gantry_done *ret_done)
{
	struct gantry_stream *stream = gantry_cpu_ready_pop(dev);
	struct gantry_cpu_cmd *slot;

	if (!stream)
		return 0;
	slot = slot_at(stream, stream->run++);
	gantry_cpu_run(&dev->lanes[0], slot);
	stream->reaped++;
	if (--stream->pending > 0)
		gantry_cpu_ready_push(stream);
	*ret_done = slot->done;
	return 1;
}

/* What the lanes have finished of @stream and poll() has not told. */
static unsigned reap_stream(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	/* Acquire: pairs with the count-down in lanes.c; results written before it are visible. */
	uint32_t finished = stream->submitted - gantry_load_acquire(&stream->pending);
	unsigned count = 0;

	while (count < n && stream->reaped != finished)
		ret_done[count++] = slot_at(stream, stream->reaped++)->done;
	return count;
}

static unsigned reap_all(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		if (count == n)
			break;
		count += reap_stream(stream, ret_done + count, n - count);
	}
	/* The next call begins with another stream, so that a small @n starves none. */
	if (count > 0)
		gantry_list_push_back(&dev->streams, gantry_list_pop_front(&dev->streams));
	return count;
}

/*
 * A lane wakes the device thread only when its command is the first one not reaped, so before this
 * says that there is nothing it must be sure that the lanes see what it has reaped: the fence, and
 * another look.
 */
static unsigned poll_lanes(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	uint32_t finished;
	unsigned count;

	do {
		finished = gantry_load_acquire(&dev->nfinished);
		count = finished != dev->nreaped ? reap_all(dev, ret_done, n) : 0;
		if (count > 0)
			break;
		gantry_fence_full(); /* pairs with the count in lanes.c */
	} while (gantry_load_acquire(&dev->nfinished) != finished);

	gantry_store_relaxed(&dev->nreaped, dev->nreaped + count);
	return count;
}

unsigned gantry_cpu_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	if (n == 0)
		return 0;
	return dev->ncores == 1 ? poll_and_run(dev, ret_done) : poll_lanes(dev, ret_done, n);
}
