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

/* Bytes a nanosecond, roughly: over the bus, and inside the device. */
#define HOST_BYTES_PER_NS   25u
#define DEVICE_BYTES_PER_NS 1000u
/* Without progress of a stream for so long the runtime is asked whether it is well. */
#define QUERY_US 2000u

/* ---- words ---- */

static int host_memory(const struct gantry_hip_driver *hip, size_t bytes, void **ret_memory,
		       char **ret_address, struct gantry_err *err)
{
	void *address = NULL;
	int r = gantry_hip_err(hip->HostMalloc(ret_memory, bytes, GANTRY_HIP_HOST_MAPPED),
			       "hipHostMalloc", err);

	if (r < 0)
		return r;
	memset(*ret_memory, 0, bytes);
	r = gantry_hip_err(hip->HostGetDevicePointer(&address, *ret_memory, 0),
			   "hipHostGetDevicePointer", err);
	*ret_address = address;
	return r;
}

static bool write_number(void *cookie, uint32_t number)
{
	const struct gantry_dev *dev = cookie;

	return dev->hip->StreamWriteValue32(dev->own, dev->words_address, number, 0) ==
	       GANTRY_HIP_SUCCESS;
}

/* What the runtime lists it need not be able to do, on this GPU and with this memory. */
static bool can_write_words(struct gantry_dev *dev)
{
	bool can = dev->hip->StreamWriteValue32 && dev->hip->StreamQuery &&
		   gantry_devtime_calibrate(&dev->time, write_number, dev, &dev->words->word) &&
		   dev->hip->StreamSynchronize(dev->own) == GANTRY_HIP_SUCCESS &&
		   gantry_load_acquire(&dev->words->word) != 0;

	gantry_store_relaxed(&dev->words->word, 0u);
	return can;
}

int gantry_hip_streams_begin(struct gantry_dev *dev, struct gantry_err *err)
{
	void *words = NULL;
	int r = host_memory(dev->hip, GANTRY_WATCH_PLACES * sizeof(*dev->words), &words,
			    &dev->words_address, err);

	dev->words = words;
	dev->time.driver = &gantry_hip_devtime;
	if (r < 0)
		return r;
	dev->writes = can_write_words(dev);
	if (!dev->writes)
		return 0;
	return gantry_watch_start(&dev->watch, dev->words, sizeof(*dev->words), dev->host, err);
}

/* ---- life ---- */

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

	gantry_marks_fini(&stream->marks);
	gantry_devtime_fini(&stream->time);
	gantry_rows_free(stream->rows);
	gantry_hip_arena_end(stream);
	if (stream->native)
		(void)hip->StreamDestroy(stream->native);
	if (stream->cells)
		(void)hip->HostFree(stream->cells);
	gantry_watch_place_give(&stream->dev->watch, stream->place);
	gantry_list_remove(&stream->active);
	gantry_list_remove(&stream->link);
	free(stream);
}

int gantry_hip_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			     struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));
	void *cells = NULL;
	int r;

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	r = gantry_watch_place_take(&dev->watch, &stream->place);
	if (r < 0) {
		free(stream);
		return gantry_err_set(err, r, "all %u streams of the device are in use",
				      GANTRY_WATCH_PLACES);
	}
	stream->dev = dev;
	stream->time.of = &dev->time;
	stream->time.stream = stream;
	stream->marks.driver = &gantry_hip_marks;
	stream->marks.stream = stream;
	stream->marks.watch = &dev->watch;
	stream->word = &dev->words[stream->place].word;
	stream->word_address = dev->words_address + stream->place * sizeof(*dev->words);
	gantry_store_relaxed(stream->word, 0u);
	gantry_list_init(&stream->active);
	gantry_list_push_back(&dev->streams, &stream->link);
	r = host_memory(dev->hip, GANTRY_HIP_DEPTH * sizeof(*stream->cells), &cells,
			&stream->cells_address, err);
	stream->cells = cells;
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
	/* A mark was faster than the word behind it, and the word is another stream's next. */
	if (gantry_load_acquire(stream->word) != stream->marks.written &&
	    !gantry_load_relaxed(&stream->broken))
		(void)stream->dev->hip->StreamSynchronize(stream->native); /* fails with the GPU */
	stream_free(stream);
}

/* ---- one command ---- */

int gantry_hip_outcome(gantry_hip_result result)
{
	int r = gantry_hip_errno(result);

	return r == 0 || r == -EINVAL || r == -ENOMEM ? r : -EIO;
}

/* A thread of the runtime's, where it writes no words. @user: the last slot of a batch. */
static void on_complete(struct gantry_hip_stream *native, gantry_hip_result status, void *user)
{
	const struct gantry_hip_slot *slot = user;
	struct gantry_stream *stream = slot->stream;
	struct gantry_dev *dev = stream->dev;
	uint32_t n = slot->nbatch;

	(void)native;
	if (status != GANTRY_HIP_SUCCESS)
		gantry_store_relaxed(&stream->broken, status);
	/* Release: pairs with the acquire in look(), which may give the slots and their stream away at once. */
	gantry_store_release(stream->word, slot->end);
	gantry_finished_tell(&dev->finished, n, dev->host);
	gantry_finished_leave(&dev->finished);
}

/* ---- batches ---- */

static gantry_hip_result ask_for_callback(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_hip_slot *last = gantry_hip_slot_at(stream, stream->submitted - 1);
	gantry_hip_result result;

	last->nbatch = stream->submitted - stream->closed;
	last->end = stream->submitted;
	gantry_finished_watch(&dev->finished);
	result = dev->hip->StreamAddCallback(stream->native, on_complete, last, 0);
	if (result == GANTRY_HIP_SUCCESS)
		return result;
	gantry_finished_leave(&dev->finished);
	gantry_finished_tell(&dev->finished, last->nbatch, dev->host);
	return result;
}

static void put_word(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	gantry_hip_result result = GANTRY_HIP_SUCCESS;

	/* A row may have met the end of the context: a word that is written all the same would tell of what was not sent. */
	if (gantry_load_relaxed(&stream->broken))
		gantry_finished_tell(&dev->finished, stream->submitted - stream->closed, dev->host);
	else if (dev->writes)
		result = dev->hip->StreamWriteValue32(stream->native, stream->word_address,
						      stream->submitted, 0);
	else
		result = ask_for_callback(stream);
	/* Of what nothing tells the end nothing will ever be heard: as bad as a fault. */
	if (result != GANTRY_HIP_SUCCESS)
		gantry_store_relaxed(&stream->broken, result);
	stream->marks.written = stream->submitted;
}

/* Everything goes to the device: a word tells its end, or a mark where that @will_do. */
static void send(struct gantry_stream *stream, bool will_do)
{
	bool marked;

	gantry_rows_push(stream->rows);
	gantry_devtime_close(&stream->time, stream->submitted);
	marked = will_do && !gantry_load_relaxed(&stream->broken) &&
		 gantry_marks_put(&stream->marks, stream->submitted);
	if (!marked || gantry_marks_need_word(stream->gather.flying_ns)) {
		put_word(stream);
		marked = false;
	}
	gantry_marks_sent(&stream->marks, marked);
	stream->closed_before = stream->closed;
	stream->closed = stream->submitted;
	stream->gather.gathered_ns = 0;
	gantry_hip_slot_at(stream, stream->submitted - 1)->closed = true;
}

static void close_batch(struct gantry_stream *stream)
{
	if (stream->finished != stream->submitted && stream->marks.written != stream->submitted)
		send(stream, false);
}

/* Two batches are with the device, and what comes is gathered: poll() sends it. */
static bool joins_more(struct gantry_stream *stream)
{
	return (int32_t)(stream->closed_before - stream->finished) > 0 &&
	       stream->submitted - stream->closed < GANTRY_HIP_BATCH &&
	       gantry_gather_waits(&stream->gather, &stream->time, stream->finished,
				   stream->closed);
}

void gantry_hip_flush(struct gantry_stream *stream)
{
	if (stream->submitted != stream->closed && !joins_more(stream))
		send(stream, stream->finished != stream->closed);
}

/* What is in flight is seen to end soon enough where it is little. */
void gantry_hip_boundary(struct gantry_stream *stream)
{
	if (gantry_gather_is_much(&stream->gather))
		close_batch(stream);
}

/* ---- submission ---- */

static uint32_t range_estimate(const struct gantry_range *dst, const struct gantry_range *src)
{
	bool over_bus = !dst->mem || !dst->mem->is_window ||
			(src && (!src->mem || !src->mem->is_window));

	return gantry_devtime_of_bytes(dst->len,
				       over_bus ? HOST_BYTES_PER_NS : DEVICE_BYTES_PER_NS);
}

static uint32_t estimate(const struct gantry_cmd *cmd)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		return gantry_devtime_of_kernel(cmd->launch.kernel->mean_ns);
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
	       (cmd->launch.kernel->mean_ns == 0 ||
		gantry_gather_is_long(cmd->launch.kernel->mean_ns));
}

static bool wants_mark(const struct gantry_cmd_copy *copy)
{
	return gantry_marks_want(!copy->src.mem->is_window, !copy->dst.mem->is_window,
				 copy->dst.len);
}

static int enqueue(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	int r = 0, end;

	stream->marks.wanted = cmd->kind == GANTRY_CMD_COPY && wants_mark(&cmd->copy);
	if (stream->submitted == stream->closed)
		gantry_devtime_open(&stream->time, stream->submitted, stream->slot->estimate_ns,
				    cmd->kind != GANTRY_CMD_LAUNCH,
				    stream->finished == stream->submitted);
	if (cmd->kind == GANTRY_CMD_LAUNCH && !cmd->launch.kernel->body)
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
	};
	stream->cells[at].verdict[GANTRY_OPENCL_VERDICT_STATUS] = 0;
	stream->cells[at].verdict[GANTRY_OPENCL_VERDICT_CANCEL] = 0;
	stream->slot = slot;
}

static void accept(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;

	gantry_gather_add(&stream->gather, stream->slot->estimate_ns);
	stream->njudged += stream->slot->judged;
	if (stream->finished == stream->submitted++) {
		gantry_devtime_start(&stream->time);
		stream->asked_at = dev->time.busy_at;
	}
	if (!gantry_list_is_empty(&stream->active))
		return;
	gantry_list_push_back(&dev->active, &stream->active);
	gantry_watch_begin(&dev->watch);
}

int gantry_hip_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	bool apart = is_apart(cmd);
	int r = 0;

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
	} else {
		stream->slot->estimate_ns = estimate(cmd);
		stream->slot->kernel = cmd->kind == GANTRY_CMD_LAUNCH ? cmd->launch.kernel : NULL;
		r = enqueue(stream, cmd);
	}
	if (r < 0)
		return r;
	accept(stream);
	gantry_rows_start(stream->rows, stream->finished);
	if (apart)
		close_batch(stream);
	else if (stream->submitted - stream->closed == GANTRY_HIP_BATCH)
		gantry_hip_flush(stream);
	return 0;
}

/* ---- what has finished ---- */

static void judge(struct gantry_stream *stream, struct gantry_hip_slot *slot)
{
	struct gantry_done *done = &slot->done;
	int32_t verdict;

	if (!slot->judged)
		return;
	verdict = stream->cells[slot - stream->slots].verdict[GANTRY_OPENCL_VERDICT_STATUS];
	stream->njudged--;
	if (verdict == 0)
		return;
	done->status = verdict == -ECANCELED ? GANTRY_E_CANCELLED : GANTRY_E_KERNEL;
	done->blast = GANTRY_BLAST_CMD;
}

static void fail(struct gantry_stream *stream, struct gantry_hip_slot *slot)
{
	slot->done.status = slot->unsent ? GANTRY_E_INTERRUPTED : GANTRY_E_DEVICE_FAULT;
	slot->done.blast = GANTRY_BLAST_CONTEXT;
	stream->njudged -= slot->judged;
	gantry_store_relaxed(&stream->dev->lost, 1u);
}

static void finish(struct gantry_stream *stream, uint32_t end, bool failed)
{
	gantry_devtime_account(&stream->time, stream->finished, end);
	stream->asked_at = stream->dev->time.busy_at;
	for (; stream->finished != end; stream->finished++) {
		struct gantry_hip_slot *slot = gantry_hip_slot_at(stream, stream->finished);

		stream->gather.flying_ns -= slot->estimate_ns;
		if (failed)
			fail(stream, slot);
		else
			judge(stream, slot);
	}
	if (stream->finished == stream->submitted)
		gantry_devtime_stop(&stream->time);
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
	struct gantry_dev *dev = stream->dev;
	uint64_t now = gantry_load_relaxed(&dev->watch.polled_at);
	gantry_hip_result result;

	if (!dev->writes ||
	    (int64_t)(now - stream->asked_at) < (int64_t)(QUERY_US * gantry_cycles_per_us()))
		return;
	stream->asked_at = now;
	result = dev->hip->StreamQuery(stream->native);
	if (result != GANTRY_HIP_SUCCESS && result != GANTRY_HIP_NOT_READY)
		gantry_store_relaxed(&stream->broken, result);
}

static bool is_broken(const struct gantry_stream *stream)
{
	return gantry_load_relaxed(&stream->broken) != GANTRY_HIP_SUCCESS;
}

/* What the word tells, and the marks. */
static void look_at_ends(struct gantry_stream *stream, uint32_t word)
{
	uint32_t marked;

	/* Code of a guest's can write here too, and harms its own worker only. */
	if (word != stream->finished &&
	    word - stream->finished <= stream->closed - stream->finished)
		finish(stream, word, false);
	marked = gantry_marks_look(&stream->marks, stream->finished);
	if (marked != stream->finished)
		finish(stream, marked, false);
}

static void look(struct gantry_stream *stream)
{
	uint32_t before = stream->finished;
	/* Acquire: pairs with the GPU's write, which comes after all that the commands wrote, or with the release in on_complete(). */
	uint32_t word = gantry_load_acquire(stream->word);

	if (!is_broken(stream))
		look_at_ends(stream, word);
	if (is_broken(stream) && stream->finished != stream->closed) {
		gantry_marks_drop(&stream->marks);
		finish(stream, stream->closed, true);
	} else if (stream->finished == before && stream->njudged) {
		pass_cancel(stream);
	}
	gantry_marks_seen(&stream->marks, stream->place, word, stream->finished,
			  stream->finished == stream->closed);
	if (stream->finished != stream->closed)
		ask(stream);
}

static unsigned reap_stream(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	/* Before the look: what it finds ended makes room, and what comes then goes with what was gathered. */
	gantry_hip_flush(stream);
	look(stream);
	if (is_broken(stream)) {
		close_batch(stream);
		look(stream); /* what was closed now has ended, too */
	}
	while (count < n && stream->told != stream->finished)
		ret_done[count++] = gantry_hip_slot_at(stream, stream->told++)->done;
	if (stream->told != stream->submitted)
		return count;
	gantry_list_remove(&stream->active);
	gantry_watch_end(&stream->dev->watch);
	gantry_hip_arena_trim(stream);
	return count;
}

static unsigned reap_all(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	gantry_list_for_each_safe(&dev->active, struct gantry_stream, active, stream) {
		if (count == n)
			break;
		count += reap_stream(stream, ret_done + count, n - count);
	}
	/* The next call begins with another stream, so that a small @n starves none. */
	if (count > 0 && !gantry_list_is_empty(&dev->active))
		gantry_list_push_back(&dev->active, gantry_list_pop_front(&dev->active));
	return count;
}

unsigned gantry_hip_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	if (n == 0 || gantry_list_is_empty(&dev->active))
		return 0;
	gantry_store_relaxed(&dev->watch.polled_at, gantry_cycles());
	if (!dev->writes)
		return gantry_finished_poll(&dev->finished, reap_all, dev, ret_done, n);
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
	if (dev->words)
		(void)dev->hip->HostFree(dev->words);
}
