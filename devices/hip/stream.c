/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the hip backend: commands in, results out. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "devices/hip/backend.h"

/* Expected of a kernel that never ran, and of a copy besides its bytes; bytes a nanosecond, over the bus and inside the device. */
#define FIRST_ESTIMATE_NS   5000u
#define COPY_ESTIMATE_NS    1000u
#define HOST_BYTES_PER_NS   25u
#define DEVICE_BYTES_PER_NS 1000u
/* A new sample counts an eighth. */
#define MEAN_SHIFT 3
/* What is expected to take longer than this does not wait for more. */
#define GATHER_NS 500000u
/* Without progress of a stream for so long the runtime is asked whether it is well. */
#define QUERY_NS 2000000u

static int make_cells(struct gantry_stream *stream, struct gantry_err *err)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	size_t bytes = (GANTRY_HIP_DEPTH + 1) *
		       sizeof(*stream->cells); /* the word is in the last */
	void *cells = NULL, *address = NULL;
	int r = gantry_hip_err(hip->HostMalloc(&cells, bytes, GANTRY_HIP_HOST_MAPPED),
			       "hipHostMalloc", err);

	if (r < 0)
		return r;
	stream->cells = cells;
	r = gantry_hip_err(hip->HostGetDevicePointer(&address, cells, 0), "hipHostGetDevicePointer",
			   err);
	stream->cells_address = address;
	stream->word = (volatile uint32_t *)&stream->cells[GANTRY_HIP_DEPTH];
	stream->word_address = stream->cells_address + bytes - sizeof(*stream->cells);
	*stream->word = 0;
	return r;
}

/* Once a device: what the runtime lists it need not be able to do, on this GPU and with this memory. */
static int try_words(struct gantry_stream *stream, struct gantry_err *err)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	struct gantry_dev *dev = stream->dev;

	int r = 0;

	if (dev->words_known)
		return 0;
	dev->words = hip->StreamWriteValue32 && hip->StreamQuery &&
		     hip->StreamWriteValue32(stream->native, stream->word_address, 1, 0) ==
			     GANTRY_HIP_SUCCESS &&
		     hip->StreamSynchronize(stream->native) == GANTRY_HIP_SUCCESS &&
		     *stream->word == 1;
	*stream->word = 0;
	if (dev->words)
		r = gantry_watch_start(&dev->watch, &gantry_hip_watch_ops, dev, dev->host, err);
	/* Without who watches them the next stream tries again. */
	dev->words = dev->words && r == 0;
	dev->words_known = r == 0;
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
	gantry_rows_free(stream->rows);
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
	if (r == 0)
		r = try_words(stream, err);
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

/* A thread of the runtime's. @user: the last slot of a batch. */
static void on_complete(struct gantry_hip_stream *native, gantry_hip_result status, void *user)
{
	struct gantry_hip_slot *slot = user;
	struct gantry_dev *dev = slot->stream->dev;
	uint32_t n = slot->nbatch;

	(void)native;
	slot->result = status;
	/* Releases the result to poll(), which may give the slots and their stream away at once. */
	gantry_store_release(&slot->finished, 1u);
	gantry_finished_tell(&dev->finished, n, dev->host);
	gantry_finished_leave(&dev->finished);
}

static int record(struct gantry_stream *stream, struct gantry_hip_event **event)
{
	const struct gantry_hip_driver *hip = stream->dev->hip;
	int r = *event ? 0 : gantry_hip_outcome(hip->EventCreateWithFlags(event, 0));

	return r < 0 ? r : gantry_hip_outcome(hip->EventRecord(*event, stream->native));
}

/* ---- batches ---- */

/* Of what has no callback nothing will ever be heard: as bad as a fault. */
static void cannot_tell(struct gantry_hip_slot *last, gantry_hip_result result)
{
	struct gantry_dev *dev = last->stream->dev;

	last->stream->broken = result;
	if (dev->words)
		return;
	last->result = result;
	gantry_store_release(&last->finished, 1u); /* the same thread reads it */
	gantry_finished_tell(&dev->finished, last->nbatch, dev->host);
}

static void close_batch(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_hip_slot *last = gantry_hip_slot_at(stream, stream->submitted - 1);
	gantry_hip_result result;

	if (stream->submitted == stream->closed)
		return;
	gantry_rows_push(stream->rows);
	last->nbatch = stream->submitted - stream->closed;
	last->timed = record(stream, &last->end) == 0;
	stream->closed = stream->submitted;
	stream->open_ns = 0;
	stream->nbatches++;
	/* A row met the end of the context; a word that is written all the same would tell of what was not sent. */
	if (stream->broken) {
		cannot_tell(last, stream->broken);
		return;
	}
	if (dev->words) {
		result = dev->hip->StreamWriteValue32(stream->native, stream->word_address,
						      stream->closed, 0);
		if (result != GANTRY_HIP_SUCCESS)
			cannot_tell(last, result);
		return;
	}
	gantry_finished_watch(&dev->finished);
	result = dev->hip->StreamAddCallback(stream->native, on_complete, last, 0);
	if (result == GANTRY_HIP_SUCCESS)
		return;
	gantry_finished_leave(&dev->finished);
	cannot_tell(last, result);
}

/* While the device has enough to do for now, more is gathered: poll() closes the batch. */
void gantry_hip_flush(struct gantry_stream *stream)
{
	if (stream->nbatches < 2 || stream->open_ns >= GATHER_NS)
		close_batch(stream);
}

/* ---- submission ---- */

static uint32_t range_estimate(const struct gantry_range *dst, const struct gantry_range *src)
{
	bool over_bus = !dst->mem || !dst->mem->is_window ||
			(src && (!src->mem || !src->mem->is_window));
	uint64_t ns = dst->len / (over_bus ? HOST_BYTES_PER_NS : DEVICE_BYTES_PER_NS);

	return (uint32_t)gantry_min_u64(ns + COPY_ESTIMATE_NS, UINT32_MAX);
}

static uint32_t estimate(const struct gantry_cmd *cmd)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		return cmd->launch.kernel->mean_ns ? cmd->launch.kernel->mean_ns
						   : FIRST_ESTIMATE_NS;
	case GANTRY_CMD_COPY:
		return range_estimate(&cmd->copy.dst, &cmd->copy.src);
	default:
		return range_estimate(&cmd->fill.dst, NULL);
	}
}

/* Long ones have a batch of their own, and those of which nothing is known: should they end the process, nothing else is in doubt. */
static bool is_apart(const struct gantry_cmd *cmd)
{
	return cmd->kind == GANTRY_CMD_LAUNCH &&
	       (cmd->launch.kernel->mean_ns == 0 || cmd->launch.kernel->mean_ns >= GATHER_NS);
}

static int enqueue(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	int r = 0, end;

	if (stream->submitted == stream->closed)
		r = record(stream, &stream->slot->begin);
	if (r == 0 && cmd->kind == GANTRY_CMD_LAUNCH && !cmd->launch.kernel->body)
		r = gantry_hip_keep(stream, &cmd->launch);
	if (r != 0)
		return r < 0 ? r : 0;
	gantry_rows_push(stream->rows);
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
	return r == 0 ? end : r;
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

static void count_begun(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;

	if (!dev->words)
		return;
	if (stream->told + 1 == stream->submitted)
		stream->asked_ns = gantry_now_ns();
	gantry_store_relaxed(&dev->watch.nflight, dev->watch.nflight + 1);
	if (dev->watch.nflight > 1)
		return;
	gantry_store_relaxed(&dev->ended_ns, gantry_now_ns());
	gantry_watch_begin(&dev->watch);
}

int gantry_hip_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	bool apart = is_apart(cmd);
	int r;

	if (gantry_load_relaxed(&dev->lost))
		return -ENODEV;
	if (stream->submitted - stream->told == GANTRY_HIP_DEPTH)
		return -EAGAIN;
	if (apart)
		close_batch(stream);
	slot_begin(stream, cmd->tag);
	if (dev->host->cancelled(dev->host->cookie, cmd->tag)) {
		stream->slot->done.status = GANTRY_E_CANCELLED;
		stream->slot->done.blast = GANTRY_BLAST_CMD;
		r = stream->submitted == stream->closed ? record(stream, &stream->slot->begin) : 0;
	} else {
		stream->slot->estimate_ns = estimate(cmd);
		stream->slot->kernel = cmd->kind == GANTRY_CMD_LAUNCH ? cmd->launch.kernel : NULL;
		r = enqueue(stream, cmd);
	}
	if (r < 0)
		return r;
	stream->open_ns += stream->slot->estimate_ns;
	stream->submitted++;
	count_begun(stream);
	gantry_rows_start(stream->rows, stream->finished);
	if (apart || stream->submitted - stream->closed == GANTRY_HIP_BATCH)
		close_batch(stream);
	return 0;
}

/* ---- what has finished ---- */

static uint64_t batch_ns(const struct gantry_dev *dev, const struct gantry_hip_slot *first,
			 const struct gantry_hip_slot *last)
{
	float ms = 0;

	if (!last->timed || last->result != GANTRY_HIP_SUCCESS ||
	    dev->hip->EventElapsedTime(&ms, first->begin, last->end) != GANTRY_HIP_SUCCESS ||
	    !(ms > 0))
		return 0;
	return (uint64_t)((double)ms * 1e6);
}

static void learn(struct gantry_kernel *kernel, uint64_t ns)
{
	uint32_t sample = (uint32_t)gantry_clamp_u64(ns, 1, UINT32_MAX);

	if (kernel->mean_ns)
		kernel->mean_ns = kernel->mean_ns - (kernel->mean_ns >> MEAN_SHIFT) +
				  (sample >> MEAN_SHIFT);
	else
		kernel->mean_ns = sample;
}

/* The batch's time among its commands. */
static void share_out(struct gantry_stream *stream, uint32_t end, uint64_t ns)
{
	uint64_t sum = 0;

	for (uint32_t i = stream->finished; i != end; i++)
		sum += gantry_hip_slot_at(stream, i)->estimate_ns;
	for (uint32_t i = stream->finished; i != end; i++) {
		struct gantry_hip_slot *slot = gantry_hip_slot_at(stream, i);

		if (slot->estimate_ns == 0)
			continue;
		slot->done.device_ns = (uint64_t)((double)ns * slot->estimate_ns / (double)sum);
		if (slot->kernel && ns)
			learn(slot->kernel, slot->done.device_ns);
	}
}

static void judge(struct gantry_stream *stream, struct gantry_hip_slot *slot, int32_t result)
{
	struct gantry_done *done = &slot->done;
	int32_t verdict;

	if (result != GANTRY_HIP_SUCCESS) {
		done->status = slot->unsent ? GANTRY_E_INTERRUPTED : GANTRY_E_DEVICE_FAULT;
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

/* The last slot of the oldest batch that has not finished; NULL: none is closed. */
static struct gantry_hip_slot *oldest(struct gantry_stream *stream)
{
	for (uint32_t i = stream->finished; i != stream->closed; i++)
		if (gantry_hip_slot_at(stream, i)->nbatch)
			return gantry_hip_slot_at(stream, i);
	return NULL;
}

/* Tells commands that they should stop, if they ask. */
static void pass_cancel(struct gantry_stream *stream)
{
	const struct gantry_device_host *host = stream->dev->host;

	for (uint32_t i = stream->finished; i != stream->submitted; i++) {
		const struct gantry_hip_slot *slot = gantry_hip_slot_at(stream, i);

		if (slot->judged && host->cancelled(host->cookie, slot->done.tag))
			stream->cells[slot - stream->slots].verdict[GANTRY_OPENCL_VERDICT_CANCEL] =
				1;
	}
}

/* A context that has failed writes no words: what is not done shows the error when it is asked for. */
static void ask(struct gantry_stream *stream)
{
	uint64_t now_ns = gantry_now_ns();
	gantry_hip_result result;

	if (now_ns - stream->asked_ns < QUERY_NS)
		return;
	stream->asked_ns = now_ns;
	result = stream->dev->hip->StreamQuery(stream->native);
	if (result != GANTRY_HIP_SUCCESS && result != GANTRY_HIP_NOT_READY)
		stream->broken = result;
}

static bool has_ended(struct gantry_stream *stream, struct gantry_hip_slot *last)
{
	/* Acquire: pairs with the release in on_complete(). */
	if (!stream->dev->words)
		return gantry_load_acquire(&last->finished);
	/* Acquire: pairs with the GPU's write, which comes after all that the commands wrote. */
	if ((int32_t)(gantry_load_acquire(stream->word) - stream->finished - last->nbatch) >= 0)
		return true;
	if (!stream->broken)
		ask(stream);
	last->result = stream->broken;
	return stream->broken != GANTRY_HIP_SUCCESS;
}

static void look(struct gantry_stream *stream)
{
	struct gantry_hip_slot *last;

	while ((last = oldest(stream)) && has_ended(stream, last)) {
		uint32_t end = stream->finished + last->nbatch;

		stream->asked_ns = gantry_now_ns();
		share_out(stream, end,
			  batch_ns(stream->dev, gantry_hip_slot_at(stream, stream->finished),
				   last));
		for (; stream->finished != end; stream->finished++)
			judge(stream, gantry_hip_slot_at(stream, stream->finished), last->result);
		stream->nbatches--;
	}
	if (last)
		pass_cancel(stream);
}

static unsigned reap_stream(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	look(stream);
	gantry_hip_flush(stream);
	while (count < n && stream->told != stream->finished)
		ret_done[count++] = gantry_hip_slot_at(stream, stream->told++)->done;
	if (stream->dev->words && count > 0) {
		gantry_store_relaxed(&stream->dev->watch.nflight,
				     stream->dev->watch.nflight - count);
		gantry_store_relaxed(&stream->dev->ended_ns, gantry_now_ns());
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
	if (!dev->words)
		return gantry_finished_poll(&dev->finished, reap_all, dev, ret_done, n);
	if (n == 0 || dev->watch.nflight == 0)
		return 0;
	gantry_store_relaxed(&dev->watch.polled_at, gantry_now_ns());
	return reap_all(dev, ret_done, n);
}

void gantry_hip_streams_end(struct gantry_dev *dev)
{
	gantry_watch_stop(&dev->watch);
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream)
		(void)dev->hip->StreamSynchronize(stream->native); /* what failed shows no more */
	gantry_finished_drain(&dev->finished);
	gantry_list_for_each_safe(&dev->streams, struct gantry_stream, link, stream)
		stream_free(stream);
}
