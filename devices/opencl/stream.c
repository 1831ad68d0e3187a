/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the opencl backend, which are in-order queues: commands in, results out. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "devices/opencl/backend.h"

int gantry_opencl_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
				struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));
	cl_int result = CL_SUCCESS;

	(void)attr; /* OpenCL 1.2 knows no priorities */
	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	stream->cells = aligned_alloc(sizeof(*stream->cells),
				      GANTRY_OPENCL_DEPTH * sizeof(*stream->cells));
	if (stream->cells)
		stream->queue = dev->cl->CreateCommandQueue(dev->context, dev->target.device,
							    CL_QUEUE_PROFILING_ENABLE, &result);
	if (!stream->cells || result != CL_SUCCESS) {
		free(stream->cells);
		free(stream);
		return result == CL_SUCCESS
			       ? gantry_err_set(err, -ENOMEM, "no memory for a stream")
			       : gantry_opencl_err(result, "clCreateCommandQueue", err);
	}
	gantry_opencl_body_init(stream);
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

static void stream_free(struct gantry_stream *stream)
{
	const struct gantry_opencl_driver *cl = stream->dev->cl;

	gantry_list_remove(&stream->link);
	for (uint32_t i = 0; i < stream->nkernels; i++)
		if (stream->kernels[i])
			(void)cl->ReleaseKernel(stream->kernels[i]);
	gantry_opencl_places_forget(stream);
	(void)cl->ReleaseCommandQueue(stream->queue);
	free(stream->kernels);
	free(stream->cells);
	free(stream);
}

void gantry_opencl_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	assert(stream->told == stream->submitted);
	stream_free(stream);
}

/* ---- one command ---- */

int gantry_opencl_outcome(struct gantry_stream *stream, cl_int result)
{
	int r = gantry_opencl_errno(result);

	(void)stream;
	return r == 0 || r == -EINVAL || r == -ENOMEM ? r : -EIO;
}

static void release_events(struct gantry_stream *stream, struct gantry_opencl_slot *slot)
{
	while (slot->nevents > 0) {
		cl_event event = slot->events[--slot->nevents];

		if (event)
			(void)stream->dev->cl->ReleaseEvent(event);
	}
}

cl_event *gantry_opencl_event_slot(struct gantry_stream *stream)
{
	struct gantry_opencl_slot *slot = stream->slot;
	uint32_t last = GANTRY_OPENCL_EVENTS - 1;

	if (slot->nevents <= last) {
		slot->events[slot->nevents] = NULL;
		return &slot->events[slot->nevents++];
	}
	if (slot->events[last])
		(void)stream->dev->cl->ReleaseEvent(slot->events[last]);
	slot->events[last] = NULL;
	return &slot->events[last];
}

/* A thread of OpenCL's, or the device thread inside clSetEventCallback(). */
static void CL_CALLBACK on_complete(cl_event event, cl_int result, void *user)
{
	struct gantry_opencl_slot *slot = user;
	struct gantry_dev *dev = slot->stream->dev;

	(void)event;
	slot->result = result < 0 ? result : 0;
	/* Releases the result to poll(), which may give the slot and its stream away at once. */
	gantry_store_release(&slot->finished, 1u);
	gantry_finished_tell(&dev->finished, 1, dev->host);
	gantry_finished_leave(&dev->finished);
}

/* Nothing of it is on the device. */
static void finish_at_once(struct gantry_stream *stream)
{
	stream->slot->result = 0;
	gantry_store_release(&stream->slot->finished, 1u); /* the same thread reads it */
	gantry_finished_tell(&stream->dev->finished, 1, stream->dev->host);
}

/* The last event of the command tells its end. */
static int watch(struct gantry_stream *stream)
{
	struct gantry_opencl_slot *slot = stream->slot;
	const struct gantry_opencl_driver *cl = stream->dev->cl;
	int r;

	if (slot->nevents == 0) {
		finish_at_once(stream);
		return 0;
	}
	gantry_finished_watch(&stream->dev->finished);
	r = gantry_opencl_outcome(stream, cl->SetEventCallback(slot->events[slot->nevents - 1],
							       CL_COMPLETE, on_complete, slot));
	if (r < 0) {
		gantry_finished_leave(&stream->dev->finished);
		return r;
	}
	/* What it cannot start shows in the event. */
	(void)cl->Flush(stream->queue);
	return 0;
}

static int enqueue(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	int r, end;

	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		r = gantry_opencl_launch(stream, &cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		r = gantry_opencl_copy(stream, &cmd->copy);
		break;
	default:
		assert(cmd->kind == GANTRY_CMD_FILL);
		r = gantry_opencl_fill(stream, &cmd->fill);
		break;
	}
	end = gantry_opencl_places_end(stream, r == 0);
	return r < 0 ? r : end;
}

int gantry_opencl_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_opencl_slot *slot = &stream->slots[stream->submitted % GANTRY_OPENCL_DEPTH];
	int r;

	if (gantry_load_relaxed(&dev->lost))
		return -ENODEV;
	if (stream->submitted - stream->told == GANTRY_OPENCL_DEPTH)
		return -EAGAIN;
	*slot = (struct gantry_opencl_slot){ .done = { .tag = cmd->tag },
					     .stream = stream,
					     .launched = cmd->kind == GANTRY_CMD_LAUNCH };
	stream->slot = slot;
	stream->nplaces = 0;
	stream->scratch_used = 0;
	if (dev->host->cancelled(dev->host->cookie, cmd->tag)) {
		slot->done.status = GANTRY_E_CANCELLED;
		slot->done.blast = GANTRY_BLAST_CMD;
		finish_at_once(stream);
		stream->submitted++;
		return 0;
	}
	r = enqueue(stream, cmd);
	if (r == 0)
		r = watch(stream);
	if (r < 0) {
		release_events(stream, slot);
		return r;
	}
	stream->submitted++;
	return 0;
}

/* ---- what has finished ---- */

static uint64_t event_time(const struct gantry_dev *dev, cl_event event, cl_profiling_info what)
{
	cl_ulong ns = 0;

	if (!event ||
	    dev->cl->GetEventProfilingInfo(event, what, sizeof(ns), &ns, NULL) != CL_SUCCESS)
		return 0;
	return ns;
}

/* Each event's own time; where some were let go, all from the first of those on. */
static uint64_t device_ns(const struct gantry_dev *dev, const struct gantry_opencl_slot *slot)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < slot->nevents; i++) {
		uint64_t start = event_time(dev, slot->events[i], CL_PROFILING_COMMAND_START);
		uint64_t end = event_time(dev, slot->events[i], CL_PROFILING_COMMAND_END);

		if (i == GANTRY_OPENCL_EVENTS - 1)
			start = event_time(dev, slot->events[i - 1], CL_PROFILING_COMMAND_END);
		sum += end > start ? end - start : 0;
	}
	return sum;
}

static void judge(struct gantry_stream *stream, struct gantry_opencl_slot *slot)
{
	struct gantry_done *done = &slot->done;
	int32_t verdict;

	if (slot->result < 0) {
		/* OpenCL does not say what else is hurt. */
		done->status = GANTRY_E_DEVICE_FAULT;
		done->blast = GANTRY_BLAST_CONTEXT;
		gantry_store_relaxed(&stream->dev->lost, 1u);
		return;
	}
	if (!slot->judged)
		return;
	verdict = stream->cells[slot - stream->slots].words[GANTRY_OPENCL_VERDICT_STATUS];
	if (verdict == 0)
		return;
	done->status = verdict == -ECANCELED ? GANTRY_E_CANCELLED : GANTRY_E_KERNEL;
	done->blast = GANTRY_BLAST_CMD;
}

/* Tells the oldest command that it should stop, if it asks. */
static void pass_cancel(struct gantry_stream *stream, const struct gantry_opencl_slot *slot)
{
	const struct gantry_device_host *host = stream->dev->host;

	if (slot->judged && stream->dev->direct && host->cancelled(host->cookie, slot->done.tag))
		stream->cells[slot - stream->slots].words[GANTRY_OPENCL_VERDICT_CANCEL] = 1;
}

/* What kernels print the driver has written by the time that they have finished. */
static void tell_printed(const struct gantry_dev *dev, uint64_t tag)
{
	const struct gantry_device_host *host = dev->host;

	if (host->print_begin && host->print_begin(host->cookie, tag))
		host->print_end(host->cookie, tag, 0);
}

static unsigned reap_stream(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	bool launched = false;
	unsigned count = 0;

	while (count < n && stream->told != stream->submitted) {
		struct gantry_opencl_slot *slot =
			&stream->slots[stream->told % GANTRY_OPENCL_DEPTH];

		/* Acquire: pairs with the release in on_complete(). */
		if (!gantry_load_acquire(&slot->finished)) {
			pass_cancel(stream, slot);
			break;
		}
		slot->done.device_ns = device_ns(stream->dev, slot);
		judge(stream, slot);
		release_events(stream, slot);
		launched = launched || slot->launched;
		ret_done[count++] = slot->done;
		stream->told++;
	}
	if (launched)
		tell_printed(stream->dev, ret_done[count - 1].tag);
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

unsigned gantry_opencl_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	return gantry_finished_poll(&dev->finished, reap_all, dev, ret_done, n);
}

void gantry_opencl_streams_end(struct gantry_dev *dev)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		(void)dev->cl->Finish(stream->queue); /* what failed shows no more */
	gantry_finished_drain(&dev->finished);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream) {
		for (; stream->told != stream->submitted; stream->told++)
			release_events(stream, &stream->slots[stream->told % GANTRY_OPENCL_DEPTH]);
		stream_free(stream);
	}
}
