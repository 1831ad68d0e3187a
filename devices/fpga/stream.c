/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the fpga backend: the rings between the device thread and the board's. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"
#include "devices/fpga/fpga.h"

int gantry_fpga_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream;

	if (dev->nstreams == GANTRY_FPGA_MAX_STREAMS)
		return gantry_err_set(err, -EAGAIN, "the device has its %u streams",
				      GANTRY_FPGA_MAX_STREAMS);
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	stream->priority = attr->priority;
	(void)pthread_mutex_lock(&dev->lock);
	gantry_list_push_back(&dev->streams, &stream->link);
	dev->nstreams++;
	stream->made = dev->nmade++;
	(void)pthread_mutex_unlock(&dev->lock);
	*ret_stream = stream;
	return 0;
}

void gantry_fpga_stream_destroy(struct gantry_stream *stream)
{
	struct gantry_dev *dev;

	if (!stream)
		return;
	dev = stream->dev;
	(void)pthread_mutex_lock(&dev->lock);
	assert(!dev->started || stream->submitted == stream->finished);
	gantry_list_remove(&stream->link);
	dev->nstreams--;
	(void)pthread_mutex_unlock(&dev->lock);
	free(stream);
}

/* A board's kernels know no grid, if their manifest does not say so: their arguments say all. */
static bool has_shape(const struct gantry_cmd_launch *launch)
{
	for (unsigned int i = 0; i < 3 && !launch->kernel->ndrange; i++)
		if (launch->grid[i] > 1 || launch->block[i] > 1)
			return true;
	return launch->shared_bytes > 0;
}

/* What cannot be taken off a board has to end. */
static bool is_too_large(const struct gantry_cmd_launch *launch)
{
	uint64_t items = 1;

	for (unsigned int i = 0; i < 3 && launch->kernel->ndrange; i++)
		if (gantry_mul_u64(items, launch->grid[i] ? launch->grid[i] : 1, &items) < 0 ||
		    gantry_mul_u64(items, launch->block[i] ? launch->block[i] : 1, &items) < 0)
			return true;
	return launch->kernel->ndrange && items > launch->kernel->max_items;
}

int gantry_fpga_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	int r = 0;

	if (cmd->kind == GANTRY_CMD_LAUNCH &&
	    (has_shape(&cmd->launch) || is_too_large(&cmd->launch)))
		return -EINVAL;
	(void)pthread_mutex_lock(&dev->lock);
	if (dev->lost) {
		/* Of a launch that did not end poll() tells, and what has not begun begins elsewhere. */
		r = dev->endless ? -EAGAIN : -ENODEV;
	} else if (stream->submitted - stream->reaped == GANTRY_FPGA_DEPTH) {
		r = -EAGAIN;
	} else {
		stream->slots[stream->submitted % GANTRY_FPGA_DEPTH].cmd = *cmd;
		stream->submitted++;
	}
	(void)pthread_mutex_unlock(&dev->lock);
	if (r == 0)
		gantry_fpga_wake(dev);
	return r;
}

unsigned gantry_fpga_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	(void)pthread_mutex_lock(&dev->lock);
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		while (count < n && stream->reaped != stream->finished)
			ret_done[count++] =
				stream->slots[stream->reaped++ % GANTRY_FPGA_DEPTH].done;
	}
	(void)pthread_mutex_unlock(&dev->lock);
	return count;
}

void gantry_fpga_finish_locked(struct gantry_stream *stream, int status, uint32_t blast,
			       uint64_t device_ns)
{
	struct gantry_fpga_slot *slot = &stream->slots[stream->finished % GANTRY_FPGA_DEPTH];

	slot->done = (struct gantry_done){ .tag = slot->cmd.tag,
					   .status = status,
					   .blast = blast,
					   .device_ns = device_ns + stream->spoilt_ns };
	stream->spoilt_ns = 0;
	stream->running -= stream->running > 0;
	stream->finished++;
}

void gantry_fpga_finish(struct gantry_stream *stream, int status, uint32_t blast,
			uint64_t device_ns)
{
	struct gantry_dev *dev = stream->dev;
	const struct gantry_device_host *host = dev->host;

	(void)pthread_mutex_lock(&dev->lock);
	gantry_fpga_finish_locked(stream, status, blast, device_ns);
	(void)pthread_mutex_unlock(&dev->lock);
	/* The stream may be gone by now. */
	host->wake(host->cookie);
}
