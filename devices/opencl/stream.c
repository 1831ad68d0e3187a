/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the opencl backend, which are in-order queues: commands in, results out. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "devices/opencl/backend.h"

/* Bytes a nanosecond that a copy or fill does, roughly. */
#define BYTES_PER_NS 5u

static struct gantry_opencl_slot *slot_at(struct gantry_stream *stream, uint32_t position)
{
	return &stream->slots[position % GANTRY_OPENCL_DEPTH];
}

/* ---- life ---- */

/* OpenCL has times of its own: of devtime.h it is expectations that count. */
static struct gantry_devtime_cmd cmd_at(struct gantry_stream *stream, uint32_t position)
{
	const struct gantry_opencl_slot *slot = slot_at(stream, position);

	return (struct gantry_devtime_cmd){ .estimate_ns = slot->estimate_ns,
					    .closes = slot->closed };
}

static const struct gantry_devtime_driver times = { .cmd_at = cmd_at };

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
		stream->whole = dev->cl->CreateCommandQueue(dev->context, dev->target.device,
							    CL_QUEUE_PROFILING_ENABLE, &result);
	stream->queue = stream->whole;
	if (!stream->cells || result != CL_SUCCESS) {
		free(stream->cells);
		free(stream);
		return result == CL_SUCCESS
			       ? gantry_err_set(err, -ENOMEM, "no memory for a stream")
			       : gantry_opencl_err(result, "clCreateCommandQueue", err);
	}
	stream->time.of = &dev->time;
	stream->time.stream = stream;
	dev->time.driver = &times;
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
	gantry_opencl_twins_leave_stream(stream);
	gantry_opencl_parts_end(stream);
	(void)cl->ReleaseCommandQueue(stream->whole);
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

/* ---- batches ---- */

/* A thread of OpenCL's, or the device thread inside clSetEventCallback(). @user: the first slot of a batch. */
static void CL_CALLBACK on_complete(cl_event event, cl_int result, void *user)
{
	struct gantry_opencl_slot *first = user;
	struct gantry_dev *dev = first->stream->dev;
	uint32_t n = first->nbatch;

	(void)event;
	(void)result; /* each command's own is asked for */
	/* Release: pairs with the acquire in look(), which may give the slots and their stream away at once. */
	gantry_store_release(&first->finished, 1u);
	gantry_finished_tell(&dev->finished, n, dev->host);
	gantry_finished_leave(&dev->finished);
}

static cl_event last_event_since(struct gantry_stream *stream, uint32_t begin)
{
	for (uint32_t i = stream->submitted; i != begin; i--) {
		const struct gantry_opencl_slot *slot = slot_at(stream, i - 1);

		if (slot->nevents)
			return slot->events[slot->nevents - 1];
	}
	return NULL;
}

cl_event gantry_opencl_last_event(struct gantry_stream *stream)
{
	return last_event_since(stream, stream->ended);
}

static void ask_for_callback(struct gantry_stream *stream, struct gantry_opencl_slot *first,
			     cl_event last)
{
	const struct gantry_opencl_driver *cl = stream->dev->cl;

	gantry_finished_watch(&stream->dev->finished);
	if (cl->SetEventCallback(last, CL_COMPLETE, on_complete, first) == CL_SUCCESS) {
		/* What it cannot start shows in the event. */
		(void)cl->Flush(stream->queue);
		return;
	}
	/* Nobody will tell; what failed shows in the events. */
	(void)cl->Finish(stream->queue);
	on_complete(last, CL_COMPLETE, first);
}

/* What it wrote is read back first; where that cannot be, none of it can be said to have been done. */
static void read_back(struct gantry_stream *stream)
{
	if (gantry_opencl_twins_read_back(stream, slot_at(stream, stream->submitted - 1)) == 0)
		return;
	for (uint32_t i = stream->closed; i != stream->submitted; i++)
		slot_at(stream, i)->unread = true;
}

void gantry_opencl_close_batch(struct gantry_stream *stream)
{
	struct gantry_opencl_slot *first = slot_at(stream, stream->closed);
	/* Of the open batch; NULL: nothing of it is on the device. */
	cl_event last = last_event_since(stream, stream->closed);

	/* What does nothing ends behind what does: poll() closes it. */
	if (stream->submitted == stream->closed || (!last && stream->ended != stream->closed))
		return;
	if (stream->ndirty) {
		read_back(stream);
		last = last_event_since(stream, stream->closed);
	}
	first->nbatch = stream->submitted - stream->closed;
	slot_at(stream, stream->submitted - 1)->closed = true;
	stream->closed_before = stream->closed;
	stream->closed = stream->submitted;
	stream->gather.gathered_ns = 0;
	if (last) {
		ask_for_callback(stream, first, last);
		return;
	}
	gantry_store_release(&first->finished, 1u); /* the same thread reads it */
	gantry_finished_tell(&stream->dev->finished, first->nbatch, stream->dev->host);
}

void gantry_opencl_close_batches(struct gantry_dev *dev)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		gantry_opencl_close_batch(stream);
}

/* What the open batch wrote takes so long to read back, whatever else it does. */
static uint64_t read_back_ns(const struct gantry_stream *stream)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < stream->ndirty; i++)
		bytes += stream->dirty[i]->len;
	return bytes / BYTES_PER_NS;
}

static bool waits(struct gantry_stream *stream)
{
	return stream->gather.gathered_ns < read_back_ns(stream) ||
	       gantry_gather_waits(&stream->gather, &stream->time, stream->ended, stream->closed);
}

void gantry_opencl_flush(struct gantry_stream *stream)
{
	bool two = (int32_t)(stream->closed_before - stream->ended) > 0;

	if (!two || !waits(stream))
		gantry_opencl_close_batch(stream);
}

/* What is in flight is seen to end soon enough where it is little. */
void gantry_opencl_boundary(struct gantry_stream *stream)
{
	if (gantry_gather_is_much(&stream->gather))
		gantry_opencl_close_batch(stream);
}

/* ---- submission ---- */

static uint32_t estimate(const struct gantry_cmd *cmd)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		return gantry_devtime_of_kernel(cmd->launch.kernel->mean_ns);
	case GANTRY_CMD_COPY:
		return gantry_devtime_of_bytes(cmd->copy.dst.len, BYTES_PER_NS);
	default:
		return gantry_devtime_of_bytes(cmd->fill.dst.len, BYTES_PER_NS);
	}
}

/*
 * Long ones have a batch of their own, and kernels of which nothing is known; but not while it would take longer to read back
 * what the others have written, which this one may write again.
 */
static bool is_apart(const struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	uint32_t ns = estimate(cmd);

	return (gantry_gather_is_long(ns) && ns >= read_back_ns(stream)) ||
	       (cmd->kind == GANTRY_CMD_LAUNCH && cmd->launch.kernel->mean_ns == 0);
}

/* The number of what it leaves. */
static uint64_t made_by(const struct gantry_cmd *cmd)
{
	return cmd->kind == GANTRY_CMD_LAUNCH ? cmd->launch.makes
	       : cmd->kind == GANTRY_CMD_COPY ? cmd->copy.makes
					      : cmd->fill.makes;
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
	end = gantry_opencl_places_end(stream, r == 0, made_by(cmd));
	return r < 0 ? r : end;
}

static void slot_begin(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	stream->slot = slot_at(stream, stream->submitted);
	*stream->slot = (struct gantry_opencl_slot){
		.done = { .tag = cmd->tag },
		.stream = stream,
		.kernel = cmd->kind == GANTRY_CMD_LAUNCH ? cmd->launch.kernel : NULL,
	};
	stream->nplaces = 0;
	stream->scratch_used = 0;
	stream->wanted_bytes = 0;
	stream->hopeless = false;
	stream->dev->nattempts++;
}

static bool is_busy(struct gantry_dev *dev)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		if (stream->ended != stream->submitted)
			return true;
	return false;
}

/* Where the device has no room, what only stays there goes; then what is in flight, in time. */
static int enqueue_somehow(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	uint32_t estimate_ns = stream->slot->estimate_ns;
	int r = enqueue(stream, cmd);

	if (r != -ENOMEM || dev->direct || stream->hopeless)
		return r;
	if (gantry_opencl_twins_make_way(dev)) {
		release_events(stream, stream->slot);
		slot_begin(stream, cmd);
		stream->slot->estimate_ns = estimate_ns;
		r = enqueue(stream, cmd);
	}
	if (r != -ENOMEM || stream->hopeless || !is_busy(dev))
		return r;
	gantry_opencl_close_batches(dev);
	return -EAGAIN;
}

static void accept(struct gantry_stream *stream)
{
	gantry_gather_add(&stream->gather, stream->slot->estimate_ns);
	stream->njudged += stream->slot->judged;
	stream->submitted++;
}

int gantry_opencl_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	bool apart = is_apart(stream, cmd);
	int r = 0;

	if (gantry_load_relaxed(&dev->lost))
		return -ENODEV;
	if (stream->submitted - stream->told == GANTRY_OPENCL_DEPTH)
		return -EAGAIN;
	if (apart || stream->ndirty > GANTRY_OPENCL_DIRTY - GANTRY_OPENCL_PLACES)
		gantry_opencl_close_batch(stream);
	slot_begin(stream, cmd);
	if (dev->host->cancelled(dev->host->cookie, cmd->tag)) {
		stream->slot->done.status = GANTRY_E_CANCELLED;
		stream->slot->done.blast = GANTRY_BLAST_CMD;
	} else {
		stream->slot->estimate_ns = estimate(cmd);
		r = enqueue_somehow(stream, cmd);
	}
	if (r < 0) {
		release_events(stream, stream->slot);
		return r;
	}
	accept(stream);
	if ((apart && is_apart(stream, cmd)) ||
	    stream->submitted - stream->closed >= GANTRY_OPENCL_BATCH)
		gantry_opencl_close_batch(stream);
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

/*
 * Each event's own time; where some were let go, all from the first of those on. @ret_own_ns: without the copies of twins. Commands of a
 * stream run one after the other, but a driver may say that one began some microseconds before the one ahead of it ended (NVIDIA's): no
 * time counts twice.
 */
static uint64_t device_ns(struct gantry_stream *stream, const struct gantry_opencl_slot *slot,
			  uint64_t *ret_own_ns)
{
	const struct gantry_dev *dev = stream->dev;
	uint64_t sum = 0, copies = 0;

	for (uint32_t i = 0; i < slot->nevents; i++) {
		uint64_t start = event_time(dev, slot->events[i], CL_PROFILING_COMMAND_START);
		uint64_t end = event_time(dev, slot->events[i], CL_PROFILING_COMMAND_END);
		uint64_t ns;

		if (i == GANTRY_OPENCL_EVENTS - 1)
			start = event_time(dev, slot->events[i - 1], CL_PROFILING_COMMAND_END);
		start = gantry_max_u64(start, stream->time_end_ns);
		ns = end > start ? end - start : 0;
		sum += ns;
		copies += slot->copies >> i & 1 ? ns : 0;
		stream->time_end_ns = gantry_max_u64(end, stream->time_end_ns);
	}
	*ret_own_ns = sum - copies;
	return sum;
}

/* How the command ended by OpenCL's word. */
static bool failed(const struct gantry_dev *dev, const struct gantry_opencl_slot *slot)
{
	bool bad = slot->unread;

	for (uint32_t i = 0; i < slot->nevents && !bad; i++) {
		cl_int status = CL_COMPLETE;

		bad = slot->events[i] &&
		      (dev->cl->GetEventInfo(slot->events[i], CL_EVENT_COMMAND_EXECUTION_STATUS,
					     sizeof(status), &status, NULL) != CL_SUCCESS ||
		       status != CL_COMPLETE);
	}
	return bad;
}

static void judge(struct gantry_stream *stream, struct gantry_opencl_slot *slot)
{
	struct gantry_done *done = &slot->done;
	int32_t verdict;

	if (failed(stream->dev, slot)) {
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

static void finish(struct gantry_stream *stream, struct gantry_opencl_slot *slot)
{
	uint64_t own_ns;

	stream->gather.flying_ns -= slot->estimate_ns;
	stream->njudged -= slot->judged;
	slot->done.device_ns = device_ns(stream, slot, &own_ns) + slot->host_ns;
	if (slot->kernel && own_ns)
		gantry_devtime_learn(&slot->kernel->mean_ns, own_ns);
	judge(stream, slot);
	release_events(stream, slot);
}

/* Tells commands that they should stop, if they ask. */
static void pass_cancel(struct gantry_stream *stream)
{
	const struct gantry_device_host *host = stream->dev->host;

	for (uint32_t i = stream->ended; i != stream->submitted; i++) {
		const struct gantry_opencl_slot *slot = slot_at(stream, i);

		if (slot->judged && host->cancelled(host->cookie, slot->done.tag))
			stream->cells[slot - stream->slots].words[GANTRY_OPENCL_VERDICT_CANCEL] = 1;
	}
}

/* Host memory has what all of a batch did or cannot be said to have any of it: one that failed has failed as a whole. */
static void judge_batch(struct gantry_stream *stream, uint32_t end)
{
	bool bad = false;

	for (uint32_t i = stream->ended; i != end && !bad; i++)
		bad = failed(stream->dev, slot_at(stream, i));
	for (uint32_t i = stream->ended; i != end && bad; i++)
		slot_at(stream, i)->unread = true;
}

static void look(struct gantry_stream *stream)
{
	while (stream->ended != stream->closed) {
		const struct gantry_opencl_slot *first = slot_at(stream, stream->ended);
		uint32_t end = stream->ended + first->nbatch;

		/* Acquire: pairs with the release in on_complete(). */
		if (!gantry_load_acquire(&first->finished))
			break;
		if (!stream->dev->direct)
			judge_batch(stream, end);
		for (; stream->ended != end; stream->ended++)
			finish(stream, slot_at(stream, stream->ended));
		gantry_opencl_twins_trim(stream->dev);
	}
	if (stream->njudged && stream->dev->direct)
		pass_cancel(stream);
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

	look(stream);
	gantry_opencl_flush(stream);
	while (count < n && stream->told != stream->ended) {
		const struct gantry_opencl_slot *slot = slot_at(stream, stream->told++);

		launched = launched || slot->kernel;
		ret_done[count++] = slot->done;
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
		for (uint32_t i = stream->ended; i != stream->submitted; i++)
			release_events(stream, slot_at(stream, i));
		stream_free(stream);
	}
}
