/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the cuda backend: commands in, batches closed by a write, words read. Whose the device's time was is found in
 * devices/devtime.c.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "devices/cuda/backend.h"

/* Bytes a nanosecond, roughly: over the bus, and inside the device. */
#define HOST_BYTES_PER_NS   50u
#define DEVICE_BYTES_PER_NS 1500u

/*
 * Which launch it was that a context failed at is known where a write ends just before it and the next just behind. From
 * here on a launch is worth that: two writes are less than a hundredth of it.
 */
#define APART_NS 500000u

/* Without progress of a stream for so long the driver is asked whether the context is well. */
#define QUERY_US 2000u

#define DRAIN_NS       (5 * GANTRY_NS_PER_S)
#define DRAIN_SLEEP_US 50u

/* ---- life ---- */

static int native_create(struct gantry_dev *dev, int32_t priority, CUstream *ret_native,
			 struct gantry_err *err)
{
	/* The driver's numbers run the other way: the least priority is 0, greater ones are below it. */
	int64_t wanted = -(int64_t)priority;
	int native = wanted < dev->greatest_priority ? dev->greatest_priority
		     : wanted > dev->least_priority  ? dev->least_priority
						     : (int)wanted;

	return gantry_cuda_check(
		dev,
		dev->driver->StreamCreateWithPriority(ret_native, CU_STREAM_NON_BLOCKING, native),
		"cuStreamCreateWithPriority", err);
}

int gantry_cuda_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	r = gantry_watch_place_take(&dev->watch, &stream->place);
	if (r < 0) {
		free(stream);
		return gantry_err_set(err, r, "all %u streams of the device are in use",
				      GANTRY_WATCH_PLACES);
	}
	/* Before anything else can fail: the watcher takes a word that is not as it was seen for news. */
	stream->cell = &dev->cells[stream->place];
	gantry_store_relaxed(&stream->cell->word, 0u);
	r = native_create(dev, attr->priority, &stream->native, err);
	if (r < 0) {
		gantry_watch_place_give(&dev->watch, stream->place);
		free(stream);
		return r;
	}
	stream->dev = dev;
	stream->time.of = &dev->time;
	stream->time.stream = stream;
	stream->marks.driver = &gantry_cuda_marks;
	stream->marks.stream = stream;
	stream->marks.watch = &dev->watch;
	stream->owner = attr->owner;
	stream->keep = attr->keep;
	stream->is_alone = attr->is_alone;
	stream->compile = attr->compile;
	stream->compile_cookie = attr->compile_cookie;
	stream->ncareful = attr->ncareful;
	gantry_cuda_body_init(stream);
	gantry_list_init(&stream->active);
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

void gantry_cuda_stream_destroy(struct gantry_stream *stream)
{
	struct gantry_dev *dev;

	if (!stream)
		return;
	dev = stream->dev;
	assert(stream->told == stream->submitted);
	/* A mark was faster than the word behind it, and the word's cell is another stream's next. */
	if (gantry_load_acquire(&stream->cell->word) != stream->marks.written &&
	    !gantry_load_relaxed(&dev->fault))
		(void)dev->driver->StreamSynchronize(stream->native); /* fails with the context */
	gantry_marks_fini(&stream->marks);
	gantry_rows_free(stream->rows);
	gantry_devtime_fini(&stream->time);
	gantry_cuda_stamp_fini(stream);
	gantry_cuda_fills_fini(stream);
	gantry_cuda_aside_fini(stream);
	gantry_cuda_body_fini(stream);
	(void)dev->driver->StreamDestroy(stream->native); /* idle; refused after a fault only */
	gantry_watch_place_give(&dev->watch, stream->place);
	gantry_list_remove(&stream->active);
	gantry_list_remove(&stream->link);
	free(stream);
}

/* ---- device time ---- */

static void busy_begin(struct gantry_stream *stream)
{
	gantry_devtime_start(&stream->time);
	stream->asked_at = stream->dev->time.busy_at;
}

/* A host function that runs aside is all that the stream has in flight: the device's time is the others'. */
static void busy_pause(struct gantry_stream *stream)
{
	gantry_devtime_pause(&stream->time);
	stream->off_device = true;
}

/*
 * The host function that ran aside has left nothing on the device, as those that answer from the host do: its time is known, and
 * how late somebody looks for its end is not part of it.
 */
static void note_nothing(struct gantry_stream *stream)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, stream->finished);

	if (slot->estimate_ns == 0 ||
	    stream->dev->driver->StreamQuery(stream->native) != CUDA_SUCCESS)
		return;
	stream->gather.flying_ns -= slot->estimate_ns;
	slot->estimate_ns = 0;
	slot->done.device_ns = GANTRY_DEVTIME_FLOOR_NS;
	if (slot->kernel)
		gantry_devtime_learn(&slot->kernel->mean_ns, GANTRY_DEVTIME_FLOOR_NS);
}

/* It has ended, and the device has what it enqueued. */
static void busy_resume(struct gantry_stream *stream)
{
	if (!stream->off_device)
		return;
	stream->off_device = false;
	busy_begin(stream);
	note_nothing(stream);
}

/* ---- submission ---- */

static uint32_t range_estimate(const struct gantry_range *dst, const struct gantry_range *src)
{
	bool over_bus = dst->mem->base || (src && src->mem->base);

	return gantry_devtime_of_bytes(dst->len,
				       over_bus ? HOST_BYTES_PER_NS : DEVICE_BYTES_PER_NS);
}

/* Commands that turn out to need no device, or are refused, are expected to take nothing after all. */
static void expect(const struct gantry_cmd *cmd, struct gantry_cuda_slot *slot)
{
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		slot->kernel = cmd->launch.kernel;
		slot->estimate_ns = gantry_devtime_of_kernel(slot->kernel->mean_ns);
		break;
	case GANTRY_CMD_COPY:
		slot->estimate_ns = range_estimate(&cmd->copy.dst, &cmd->copy.src);
		break;
	case GANTRY_CMD_FILL:
		slot->estimate_ns = range_estimate(&cmd->fill.dst, NULL);
		break;
	}
}

static bool wants_mark(const struct gantry_cmd_copy *copy)
{
	return gantry_marks_want(copy->src.mem->base != NULL, copy->dst.mem->base != NULL,
				 copy->dst.len);
}

/* Its host function runs on a thread of the session's. */
static bool is_aside(const struct gantry_cmd *cmd)
{
	const struct gantry_cuda_module *module;

	if (cmd->kind != GANTRY_CMD_LAUNCH || !cmd->launch.kernel->body)
		return false;
	module = cmd->launch.kernel->image->installed;
	return module && (module->flags & GANTRY_CUDA_ASIDE);
}

/* What a host function returned is told in order, behind what it may have enqueued before it failed. */
static int run_aside(struct gantry_stream *stream, const struct gantry_cmd *cmd,
		     struct gantry_cuda_slot *slot)
{
	int result = 0;
	int r = gantry_cuda_aside_run(stream, &cmd->launch, cmd->tag, &result);

	if (r == 1)
		gantry_cuda_body_ended(stream, slot, result);
	return r < 0 ? r : 0;
}

/* A function of the device's, which is launched rather than taken into a graph. */
static bool is_for_device(const struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	return cmd->kind == GANTRY_CMD_LAUNCH && cmd->launch.kernel->function && !stream->builds;
}

static int enqueue(struct gantry_stream *stream, const struct gantry_cmd *cmd,
		   struct gantry_cuda_slot *slot)
{
	expect(cmd, slot);
	stream->launched = stream->launched || cmd->kind == GANTRY_CMD_LAUNCH;
	if (stream->submitted == stream->flushed && !is_aside(cmd))
		gantry_devtime_open(&stream->time, stream->submitted, slot->estimate_ns,
				    cmd->kind == GANTRY_CMD_COPY,
				    stream->finished == stream->submitted);
	stream->marks.wanted = cmd->kind == GANTRY_CMD_COPY && wants_mark(&cmd->copy);
	if (is_for_device(stream, cmd))
		return gantry_cuda_launch(stream, &cmd->launch, slot);
	gantry_rows_push(stream->rows);
	switch (cmd->kind) {
	case GANTRY_CMD_LAUNCH:
		if (cmd->launch.kernel->graph)
			return gantry_cuda_graph_run(stream, &cmd->launch, slot);
		if (!cmd->launch.kernel->body)
			return gantry_cuda_graph_take(stream, &cmd->launch, slot);
		if (is_aside(cmd))
			return run_aside(stream, cmd, slot);
		return gantry_cuda_body_run(stream, &cmd->launch, slot);
	case GANTRY_CMD_COPY:
		return gantry_cuda_copy(stream, &cmd->copy);
	case GANTRY_CMD_FILL:
		return gantry_cuda_fill(stream, &cmd->fill);
	case GANTRY_CMD_STAMP:
		return gantry_cuda_stamp_put(stream, slot);
	default:
		assert(!"a kind of command that device.h does not have");
		return -EINVAL;
	}
}

static void accept(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	bool was_idle = stream->finished == stream->submitted;

	gantry_gather_add(&stream->gather,
			  gantry_cuda_slot_at(stream, stream->submitted)->estimate_ns);
	stream->submitted++;
	if (was_idle)
		busy_begin(stream);
	if (was_idle && gantry_cuda_aside_is_busy(stream))
		busy_pause(stream);
	if (!gantry_list_is_empty(&stream->active))
		return;
	gantry_list_push_back(&dev->active, &stream->active);
	gantry_watch_begin(&dev->watch);
}

/* Runs on a thread of the driver, in the order of the stream. */
static void host_write(void *arg)
{
	const struct gantry_cuda_host_write *write = arg;

	/* Release: pairs with the acquire in look(); copies to host memory come first. */
	gantry_store_release(write->word, write->value);
}

static CUresult write_word(struct gantry_stream *stream)
{
	const struct gantry_cuda_driver *driver = stream->dev->driver;
	struct gantry_cuda_host_write *write;

	if (stream->dev->mem_ops)
		return driver->StreamWriteValue32(stream->native,
						  (CUdeviceptr)(uintptr_t)&stream->cell->word,
						  stream->submitted, CU_STREAM_WRITE_VALUE_DEFAULT);
	write = &stream->writes[stream->submitted % GANTRY_CUDA_DEPTH];
	*write = (struct gantry_cuda_host_write){ &stream->cell->word, stream->submitted };
	return driver->LaunchHostFunc(stream->native, host_write, write);
}

/* Two batches are with the device, and what comes is gathered. */
static bool joins_more(struct gantry_stream *stream)
{
	return (int32_t)(stream->flushed_before - stream->finished) > 0 &&
	       stream->submitted - stream->flushed < GANTRY_CUDA_BATCH &&
	       gantry_gather_waits(&stream->gather, &stream->time, stream->finished,
				   stream->flushed);
}

/* Without the write nothing of the stream may ever be seen to finish: as bad as a fault. */
static void put_word(struct gantry_stream *stream)
{
	CUresult result = write_word(stream);

	if (result != CUDA_SUCCESS)
		gantry_cuda_fault_note(stream->dev, result);
	stream->marks.written = stream->submitted;
	gantry_cuda_slot_at(stream, stream->submitted - 1)->closed = true;
}

/*
 * Whether it is to be known of this launch whether it began and ended. Of one that never ended here it is most needed:
 * what is wrong with a kernel mostly shows at once.
 */
static bool is_apart(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	uint32_t mean_ns;

	if (cmd->kind != GANTRY_CMD_LAUNCH)
		return false;
	mean_ns = cmd->launch.kernel->mean_ns;
	if (mean_ns == 0 || mean_ns >= APART_NS)
		return true;
	if (stream->ncareful == 0)
		return false;
	stream->ncareful--;
	return true;
}

/* Everything goes to the device: what follows tells its end. False: the context has failed, and nothing may tell that. */
static bool send(struct gantry_stream *stream)
{
	gantry_rows_push(stream->rows);
	if (gantry_load_relaxed(&stream->dev->fault))
		return false;
	gantry_devtime_close(&stream->time, stream->submitted);
	return true;
}

static void sent(struct gantry_stream *stream, bool unwritten)
{
	gantry_marks_sent(&stream->marks, unwritten);
	stream->flushed_before = stream->flushed;
	stream->flushed = stream->submitted;
	stream->gather.gathered_ns = 0;
}

void gantry_cuda_close_batch(struct gantry_stream *stream)
{
	if (stream->finished == stream->submitted || stream->marks.written == stream->submitted ||
	    gantry_load_relaxed(&stream->dev->fault) || gantry_cuda_aside_is_busy(stream))
		return;
	if (!send(stream))
		return;
	put_word(stream);
	sent(stream, false);
}

void gantry_cuda_flush(struct gantry_stream *stream)
{
	bool follows = stream->finished != stream->flushed;
	bool marked;

	if (stream->flushed == stream->submitted || gantry_load_relaxed(&stream->dev->fault) ||
	    gantry_cuda_aside_is_busy(stream) || joins_more(stream))
		return;
	if (!send(stream))
		return;
	marked = follows && gantry_marks_put(&stream->marks, stream->submitted);
	if (!marked || gantry_marks_need_word(stream->gather.flying_ns)) {
		put_word(stream);
		marked = false;
	}
	sent(stream, marked);
}

/* What is in flight is seen to end soon enough where it is little. */
void gantry_cuda_boundary(struct gantry_stream *stream)
{
	if (gantry_gather_is_much(&stream->gather))
		gantry_cuda_close_batch(stream);
}

int gantry_cuda_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	const struct gantry_device_host *host = stream->dev->host;
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, stream->submitted);
	bool apart;
	int r = 0;

	/* Whoever sleeps when a round found nothing must not sleep past its end. */
	if (gantry_cuda_aside_look(stream))
		busy_resume(stream);
	if (stream->submitted - stream->told == GANTRY_CUDA_DEPTH ||
	    gantry_cuda_aside_is_busy(stream))
		return -EAGAIN;
	apart = is_apart(stream, cmd);
	if (apart)
		gantry_cuda_close_batch(stream);
	slot->done = (struct gantry_done){ .tag = cmd->tag };
	slot->kernel = NULL;
	slot->judged = false;
	slot->closed = false;
	slot->unsent = false;
	slot->stamped = false;
	slot->estimate_ns = 0;
	/* After a fault everything is accepted, and told of with the fault by poll(). */
	if (host->cancelled(host->cookie, cmd->tag)) {
		slot->done.status = GANTRY_E_CANCELLED;
		slot->done.blast = GANTRY_BLAST_CMD;
	} else if (!gantry_load_relaxed(&stream->dev->fault)) {
		r = enqueue(stream, cmd, slot);
	} else {
		slot->unsent = true;
	}
	if (r < 0)
		return r;
	if (r > 0)
		slot->estimate_ns = 0;
	stream->njudged += slot->judged;
	accept(stream);
	gantry_rows_start(stream->rows, stream->finished);
	if (apart)
		gantry_cuda_close_batch(stream);
	else if (stream->submitted - stream->flushed >= GANTRY_CUDA_BATCH)
		gantry_cuda_flush(stream);
	return 0;
}

/* ---- completion ---- */

/* Device code has said that a body's work failed. */
static void judge(struct gantry_stream *stream, uint32_t position)
{
	struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, position);
	const struct gantry_cuda_verdict *verdict =
		&stream->cell->verdicts[position % GANTRY_CUDA_DEPTH];
	int32_t status = gantry_load_relaxed(&verdict->status);

	stream->njudged--;
	if (status == 0)
		return;
	slot->done.status = status == -ECANCELED ? GANTRY_E_CANCELLED : GANTRY_E_KERNEL;
	slot->done.blast = GANTRY_BLAST_CMD;
}

static void finish(struct gantry_stream *stream, uint32_t end)
{
	gantry_devtime_account(&stream->time, stream->finished, end);
	stream->asked_at = stream->dev->time.busy_at;
	for (; stream->finished != end; stream->finished++) {
		struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, stream->finished);

		stream->gather.flying_ns -= slot->estimate_ns;
		if (slot->judged)
			judge(stream, stream->finished);
		if (slot->stamped)
			gantry_cuda_stamp_read(stream, slot);
	}
	if (stream->finished == stream->submitted)
		gantry_devtime_stop(&stream->time);
	else if (stream->finished == stream->submitted - 1 && gantry_cuda_aside_is_busy(stream))
		busy_pause(stream);
}

/* The session of running work is gone: device code that asks now and then learns it. */
static void pass_cancel(struct gantry_stream *stream)
{
	const struct gantry_device_host *host = stream->dev->host;
	uint64_t tag = gantry_cuda_slot_at(stream, stream->finished)->done.tag;

	if (!host->cancelled(host->cookie, tag))
		return;
	for (uint32_t i = stream->finished; i != stream->submitted; i++)
		gantry_store_relaxed(&stream->cell->verdicts[i % GANTRY_CUDA_DEPTH].cancel, 1u);
}

/*
 * A context that has failed writes no words. What is not done shows the error when it is asked for; a stream
 * that is idle need not.
 */
static void ask(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	uint64_t now = gantry_load_relaxed(&dev->watch.polled_at);
	CUresult result;

	if ((int64_t)(now - stream->asked_at) < (int64_t)(QUERY_US * gantry_cycles_per_us()))
		return;
	stream->asked_at = now;
	result = dev->driver->StreamQuery(stream->native);
	if (gantry_cuda_sticky(result))
		gantry_cuda_fault_note(dev, result);
}

static uint32_t look_at_word(struct gantry_stream *stream)
{
	/* Acquire: pairs with the device's write, which comes after all that the commands wrote. */
	uint32_t word = gantry_load_acquire(&stream->cell->word);

	/* Device code of a guest can write here too, and harms its own worker only. */
	if (word != stream->finished &&
	    word - stream->finished <= stream->flushed - stream->finished)
		finish(stream, word);
	return word;
}

static void look(struct gantry_stream *stream)
{
	uint32_t before = stream->finished;
	uint32_t word = look_at_word(stream);
	uint32_t marked;

	marked = gantry_marks_look(&stream->marks, stream->finished);
	if (marked != stream->finished)
		finish(stream, marked);
	gantry_marks_seen(&stream->marks, stream->place, word, stream->finished,
			  stream->finished == stream->flushed);
	if (stream->finished == before && stream->njudged)
		pass_cancel(stream);
	if (stream->finished != stream->submitted)
		ask(stream);
}

/*
 * All that may have been at work ends with the fault: up to the first write that never came, or to what the device never
 * had. The rest never began.
 */
static void fail(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	bool began = true, failed = false;
	uint32_t kept;

	/* What came before the fault is there by now, and may not have been when the stream was looked at. */
	(void)look_at_word(stream);
	if (stream->finished == stream->submitted)
		return;
	gantry_marks_drop(&stream->marks);
	kept = gantry_rows_drop(stream->rows, stream->submitted);
	for (uint32_t i = stream->finished; i != stream->submitted; i++) {
		struct gantry_cuda_slot *slot = gantry_cuda_slot_at(stream, i);

		slot->judged = false;
		began = began && i != kept && !slot->unsent;
		/* Of one that was refused behind one that failed that cannot be told: they end in order. */
		failed = failed || slot->done.status == GANTRY_OK;
		if (failed)
			gantry_cuda_fault_done(dev, &slot->done);
		if (!began && slot->done.blast >= GANTRY_BLAST_CONTEXT)
			slot->done.status = GANTRY_E_INTERRUPTED;
		began = began && !slot->closed;
	}
	gantry_devtime_drop(&stream->time);
	gantry_devtime_account(&stream->time, stream->finished, stream->submitted);
	stream->flushed = stream->submitted;
	stream->finished = stream->submitted;
	stream->gather = (struct gantry_gather){ 0 };
	stream->njudged = 0;
	gantry_devtime_stop(&stream->time);
}

static unsigned tell(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	struct gantry_dev *dev = stream->dev;
	unsigned count = 0;

	while (count < n && stream->told != stream->finished)
		ret_done[count++] = gantry_cuda_slot_at(stream, stream->told++)->done;
	if (stream->told == stream->submitted) {
		gantry_list_remove(&stream->active);
		gantry_watch_end(&dev->watch);
	}
	return count;
}

unsigned gantry_cuda_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	if (n == 0 || gantry_list_is_empty(&dev->active))
		return 0;
	gantry_store_relaxed(&dev->watch.polled_at, gantry_cycles());
	gantry_list_for_each_safe(&dev->active, struct gantry_stream, active, stream) {
		if (count == n)
			break;
		if (gantry_cuda_aside_look(stream))
			busy_resume(stream);
		else
			gantry_cuda_aside_tell(stream);
		gantry_cuda_flush(stream);
		look(stream);
		/* What runs aside ends, and meets the fault. */
		if (gantry_load_relaxed(&dev->fault) && !gantry_cuda_aside_is_busy(stream))
			fail(stream);
		if (stream->launched && stream->told != stream->finished)
			gantry_cuda_output_tell(stream);
		count += tell(stream, ret_done + count, n - count);
	}
	/* The next call begins with another stream, so that a small @n starves none. */
	if (count > 0 && !gantry_list_is_empty(&dev->active))
		gantry_list_push_back(&dev->active, gantry_list_pop_front(&dev->active));
	return count;
}

bool gantry_cuda_drain(struct gantry_dev *dev)
{
	uint64_t deadline = gantry_deadline_ns((int64_t)DRAIN_NS);
	struct gantry_done done[16];

	while (!gantry_list_is_empty(&dev->active) && !gantry_load_relaxed(&dev->fault)) {
		if (gantry_cuda_poll(dev, done, 16) > 0)
			continue;
		if (gantry_deadline_passed(deadline))
			return false;
		(void)usleep(
			DRAIN_SLEEP_US); /* at the end of a device nobody waits for microseconds */
	}
	return !gantry_load_relaxed(&dev->fault);
}

static bool write_number(void *cookie, uint32_t number)
{
	const struct gantry_dev *dev = cookie;

	return dev->driver->StreamWriteValue32(dev->own,
					       (CUdeviceptr)(uintptr_t)&dev->cells[0].word, number,
					       CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
}

void gantry_cuda_stream_calibrate(struct gantry_dev *dev)
{
	dev->time.driver = &gantry_cuda_devtime;
	dev->mem_ops = gantry_devtime_calibrate(&dev->time, write_number, dev, &dev->cells[0].word);
	(void)dev->driver->StreamSynchronize(
		dev->own); /* a write that comes late finds no stream there */
	gantry_store_relaxed(&dev->cells[0].word, 0u);
}
