/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the hip backend: commands in, results out. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "devices/hip/backend.h"

static int make_cells(struct gantry_stream *stream, struct gantry_err *err)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	size_t bytes = GANTRY_HIP_DEPTH * sizeof(*stream->cells);
	void *cells = NULL, *address = NULL;
	int r = gantry_hip_err(hip->HostMalloc(&cells, bytes, GANTRY_HIP_HOST_MAPPED),
			       "hipHostMalloc", err);

	if (r < 0)
		return r;
	stream->cells = cells;
	r = gantry_hip_err(hip->HostGetDevicePointer(&address, cells, 0), "hipHostGetDevicePointer",
			   err);
	stream->cells_address = address;
	return r;
}

/* HIP counts priorities downwards. */
static int native_priority(const struct gantry_dev *dev, int32_t priority)
{
	int least = 0, greatest = 0;

	if (dev->hip->DeviceGetStreamPriorityRange(&least, &greatest) != GANTRY_HIP_SUCCESS)
		return 0;
	if (priority <= 0)
		return priority < 0 ? least : 0;
	return priority > -greatest ? greatest : -priority;
}

static void stream_free(struct gantry_stream *stream)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;

	for (uint32_t i = 0; i < GANTRY_HIP_DEPTH; i++) {
		if (stream->slots[i].begin)
			(void)hip->EventDestroy(stream->slots[i].begin);
		if (stream->slots[i].end)
			(void)hip->EventDestroy(stream->slots[i].end);
	}
	gantry_hip_arena_end(stream);
	if (stream->native)
		(void)hip->StreamDestroy(stream->native);
	if (stream->cells)
		(void)hip->HostFree(stream->cells);
	gantry_list_remove(&stream->link);
	free(stream);
}

int gantry_hip_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	stream->dev = dev;
	gantry_list_push_back(&dev->streams, &stream->link);
	r = make_cells(stream, err);
	if (r == 0)
		r = gantry_hip_err(dev->hip->StreamCreateWithPriority(
					   &stream->native, GANTRY_HIP_STREAM_NON_BLOCKING,
					   native_priority(dev, attr->priority)),
				   "hipStreamCreateWithPriority", err);
	if (r < 0) {
		stream_free(stream);
		return r;
	}
	gantry_hip_body_init(stream);
	*ret_stream = stream;
	return 0;
}

void gantry_hip_stream_destroy(struct gantry_stream *stream)
{
	if (!stream)
		return;
	assert(stream->told == stream->submitted);
	stream_free(stream);
}

/* ---- one command ---- */

int gantry_hip_outcome(gantry_hip_result result)
{
	int r = gantry_hip_errno(result);

	return r == 0 || r == -EINVAL || r == -ENOMEM ? r : -EIO;
}

/* A thread of the runtime's. */
static void on_complete(struct gantry_hip_stream *native, gantry_hip_result status, void *user)
{
	struct gantry_hip_slot *slot = user;
	struct gantry_dev *dev = slot->stream->dev;

	(void)native;
	slot->result = status;
	/* Releases the result to poll(), which may give the slot and its stream away at once. */
	gantry_store_release(&slot->finished, 1u);
	gantry_finished_tell(&dev->finished, dev->host);
	gantry_finished_leave(&dev->finished);
}

/* Nothing of it is on the device. */
static void finish_at_once(struct gantry_stream *stream)
{
	gantry_store_release(&stream->slot->finished, 1u); /* the same thread reads it */
	gantry_finished_tell(&stream->dev->finished, stream->dev->host);
}

static int watch(struct gantry_stream *stream)
{
	int r;

	gantry_finished_watch(&stream->dev->finished);
	r = gantry_hip_outcome(
		stream->dev->hip->StreamAddCallback(stream->native, on_complete, stream->slot, 0));
	if (r < 0)
		gantry_finished_leave(&stream->dev->finished);
	return r;
}

static int record(struct gantry_stream *stream, struct gantry_hip_event **event)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	int r = *event ? 0 : gantry_hip_outcome(hip->EventCreateWithFlags(event, 0));

	return r < 0 ? r : gantry_hip_outcome(hip->EventRecord(*event, stream->native));
}

static int enqueue(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_hip_slot *slot = stream->slot;
	int r = record(stream, &slot->begin), end;

	if (r < 0)
		return r;
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		r = gantry_hip_launch(stream, &cmd->launch);
		break;
	case GANTRY_CMD_COPY:
		r = gantry_hip_copy(stream, &cmd->copy);
		break;
	default:
		assert(cmd->kind == GANTRY_CMD_FILL);
		r = gantry_hip_fill(stream, &cmd->fill);
		break;
	}
	end = gantry_hip_places_end(stream, r == 0);
	if (r == 0)
		r = end;
	if (r == 0)
		r = record(stream, &slot->end);
	slot->timed = r == 0;
	return r;
}

static void slot_begin(struct gantry_stream *stream, uint64_t tag)
{
	uint32_t at = stream->submitted % GANTRY_HIP_DEPTH;
	struct gantry_hip_slot *slot = &stream->slots[at];

	*slot = (struct gantry_hip_slot){
		.done = { .tag = tag },
		.stream = stream,
		.begin = slot->begin,
		.end = slot->end,
	};
	stream->cells[at].verdict[GANTRY_OPENCL_VERDICT_STATUS] = 0;
	stream->cells[at].verdict[GANTRY_OPENCL_VERDICT_CANCEL] = 0;
	stream->slot = slot;
}

int gantry_hip_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	int r;

	if (gantry_load_relaxed(&dev->lost))
		return -ENODEV;
	if (stream->submitted - stream->told == GANTRY_HIP_DEPTH)
		return -EAGAIN;
	slot_begin(stream, cmd->tag);
	if (dev->host->cancelled(dev->host->cookie, cmd->tag)) {
		stream->slot->done.status = GANTRY_E_CANCELLED;
		stream->slot->done.blast = GANTRY_BLAST_CMD;
		finish_at_once(stream);
		stream->submitted++;
		return 0;
	}
	r = enqueue(stream, cmd);
	if (r == 0)
		r = watch(stream);
	if (r == 0)
		stream->submitted++;
	return r;
}

/* ---- what has finished ---- */

static uint64_t device_ns(const struct gantry_dev *dev, const struct gantry_hip_slot *slot)
{
	float ms = 0;

	if (!slot->timed ||
	    dev->hip->EventElapsedTime(&ms, slot->begin, slot->end) != GANTRY_HIP_SUCCESS ||
	    !(ms > 0))
		return 0;
	return (uint64_t)((double)ms * 1e6);
}

static void judge(struct gantry_stream *stream, struct gantry_hip_slot *slot)
{
	struct gantry_done *done = &slot->done;
	int32_t verdict;

	if (slot->result != GANTRY_HIP_SUCCESS) {
		done->status = GANTRY_E_DEVICE_FAULT;
		done->blast = GANTRY_BLAST_CONTEXT;
		gantry_store_relaxed(&stream->dev->lost, 1u);
		return;
	}
	if (!slot->judged)
		return;
	verdict = stream->cells[slot - stream->slots].verdict[GANTRY_OPENCL_VERDICT_STATUS];
	if (verdict == 0)
		return;
	done->status = verdict == -ECANCELED ? GANTRY_E_CANCELLED : GANTRY_E_KERNEL;
	done->blast = GANTRY_BLAST_CMD;
}

/* Tells the oldest command that it should stop, if it asks. */
static void pass_cancel(struct gantry_stream *stream, const struct gantry_hip_slot *slot)
{
	const struct gantry_device_host *host = stream->dev->host;

	if (slot->judged && host->cancelled(host->cookie, slot->done.tag))
		stream->cells[slot - stream->slots].verdict[GANTRY_OPENCL_VERDICT_CANCEL] = 1;
}

static unsigned reap_stream(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	while (count < n && stream->told != stream->submitted) {
		struct gantry_hip_slot *slot = &stream->slots[stream->told % GANTRY_HIP_DEPTH];

		/* Acquire: pairs with the release in on_complete(). */
		if (!gantry_load_acquire(&slot->finished)) {
			pass_cancel(stream, slot);
			break;
		}
		slot->done.device_ns = device_ns(stream->dev, slot);
		judge(stream, slot);
		ret_done[count++] = slot->done;
		stream->told++;
	}
	if (count > 0 && stream->told == stream->submitted)
		gantry_hip_arena_trim(stream);
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

unsigned gantry_hip_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	return gantry_finished_poll(&dev->finished, reap_all, dev, ret_done, n);
}

void gantry_hip_streams_end(struct gantry_dev *dev)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		(void)dev->hip->StreamSynchronize(stream->native); /* what failed shows no more */
	gantry_finished_drain(&dev->finished);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream)
		stream_free(stream);
}
