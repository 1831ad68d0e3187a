/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of a seat: launches handed to the holder, copies and fills done here, each stream in its order. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "devices/seat/client.h"

#define BOUNCE_MIN (64u << 10)

static struct gantry_seat_slot *slot_at(struct gantry_stream *stream, uint32_t position)
{
	return &stream->slots[position % GANTRY_SEAT_DEPTH];
}

/* ---- life ---- */

/* Of its priority if there is one, and with few others. NULL: the seat has none. */
static struct gantry_seat_line *line_to_share(struct gantry_dev *dev, int32_t priority)
{
	struct gantry_seat_line *best = NULL;

	for (uint32_t i = 0; i < GANTRY_SEAT_MAX_STREAMS; i++) {
		struct gantry_seat_line *line = &dev->lines[i];

		if (!line->id)
			continue;
		if (!best || (line->priority == priority) > (best->priority == priority) ||
		    ((line->priority == priority) == (best->priority == priority) &&
		     line->nusers < best->nusers))
			best = line;
	}
	return best;
}

static int line_take(struct gantry_dev *dev, int32_t priority, struct gantry_seat_line **ret_line,
		     struct gantry_err *err)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_STREAM, .number = priority };
	struct gantry_seat_answer answer;
	struct gantry_seat_line *line = dev->lines;
	int r = -EAGAIN;

	while (line < dev->lines + GANTRY_SEAT_MAX_STREAMS && line->id)
		line++;
	if (line < dev->lines + GANTRY_SEAT_MAX_STREAMS)
		r = gantry_seat_ask(dev, &ask, -EBADF, &answer, NULL, err);
	if (r == 0)
		*line = (struct gantry_seat_line){ .id = answer.id, .priority = priority };
	else if (r == -EAGAIN)
		line = line_to_share(dev, priority);
	if (r < 0 && (r != -EAGAIN || !line))
		return r;
	line->nusers++;
	*ret_line = line;
	return 0;
}

static void line_put(struct gantry_dev *dev, struct gantry_seat_line *line)
{
	if (--line->nusers > 0)
		return;
	gantry_seat_say(dev, GANTRY_SEAT_STREAM_END, line->id);
	line->id = 0;
}

int gantry_seat_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return gantry_err_set(err, -ENOMEM, "no memory for a stream");
	r = line_take(dev, attr->priority, &stream->line, err);
	if (r < 0) {
		free(stream);
		return r;
	}
	stream->dev = dev;
	gantry_list_push_back(&dev->streams, &stream->link);
	*ret_stream = stream;
	return 0;
}

static void bounce_end(struct gantry_stream *stream)
{
	if (!stream->bounce)
		return;
	gantry_seat_say(stream->dev, GANTRY_SEAT_MEM_END, stream->bounce_id);
	stream->dev->npieces--;
	stream->dev->bounce_bytes -= stream->bounce_bytes;
	(void)munmap(stream->bounce,
		     stream->bounce_bytes); /* cannot fail for what mmap() returned */
	stream->bounce = NULL;
	stream->bounce_bytes = 0;
}

void gantry_seat_stream_destroy(struct gantry_stream *stream)
{
	struct gantry_dev *dev;

	if (!stream)
		return;
	dev = stream->dev;
	assert(stream->told == stream->submitted);
	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		if (dev->owners[i] == stream)
			dev->owners[i] = NULL, dev->tasks[i] = NULL;
	line_put(dev, stream->line);
	bounce_end(stream);
	if (dev->waits == stream)
		dev->waits = NULL;
	gantry_list_remove(&stream->link);
	free(stream);
}

/* ---- private buffers ---- */

static bool is_private(const struct gantry_range *range)
{
	return range->mem && range->mem->id == 0 && range->len > 0;
}

/* A buffer that is several arguments is bounced once. */
static bool is_same(const struct gantry_range *a, const struct gantry_range *b)
{
	return a->mem == b->mem && a->off == b->off && a->len == b->len;
}

/* Where in the bounce argument @arg lies, if it lies there; with all arguments counted, how long the bounce is. -EOVERFLOW. */
static int place_of(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
		    uint32_t arg, uint64_t *ret_at)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	uint64_t at = 0, len;

	for (uint32_t i = 0; i < arg; i++) {
		const struct gantry_range *range = &launch->args[i].range;
		bool is_new = sig->args[i].mode && is_private(range);

		if (is_new && arg < launch->nargs && is_same(range, &launch->args[arg].range))
			break;
		for (uint32_t j = 0; j < i && is_new; j++)
			is_new = !sig->args[j].mode || !is_same(range, &launch->args[j].range);
		if (is_new && (gantry_align_up(range->len, dev->mem_align, &len) < 0 ||
			       gantry_add_u64(at, len, &at) < 0))
			return -EOVERFLOW;
	}
	*ret_at = at;
	return 0;
}

static uint64_t bounced_at(const struct gantry_dev *dev, const struct gantry_cmd_launch *launch,
			   uint32_t arg)
{
	uint64_t at = 0;

	(void)place_of(dev, launch, arg, &at); /* all of it was counted */
	return at;
}

static bool has_private(const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	for (uint32_t i = 0; i < launch->nargs; i++)
		if (sig->args[i].mode && is_private(&launch->args[i].range))
			return true;
	return false;
}

static bool bounce_fits(const struct gantry_dev *dev, uint64_t bytes)
{
	/* Together no more than the board has, which one alone does not exceed. */
	return dev->npieces < GANTRY_SEAT_MAX_MEMS &&
	       (dev->bounce_bytes == 0 || dev->bounce_bytes + bytes <= dev->mem_bytes);
}

/* What streams that use none keep. */
static void give_back_idle(struct gantry_dev *dev, uint64_t bytes)
{
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, other) {
		if (bounce_fits(dev, bytes))
			return;
		if (other->ended == other->next)
			bounce_end(other);
	}
}

static int bounce_new(struct gantry_stream *stream, uint64_t bytes)
{
	struct gantry_seat_ask ask = { .what = GANTRY_SEAT_MEM, .len = bytes };
	struct gantry_seat_answer answer;
	struct gantry_err err;
	void *base;
	int fd, r;

	r = gantry_memfd_create("gantry-bounce", bytes, GANTRY_MEMFD_SEALED, &fd);
	if (r < 0)
		return r;
	r = gantry_hostmem_map(fd, 0, bytes, &base, &err);
	if (r == 0) {
		r = gantry_seat_ask(stream->dev, &ask, fd, &answer, NULL, &err);
		if (r < 0)
			(void)munmap(base, bytes); /* cannot fail for what mmap() returned */
	}
	gantry_fd_close(fd);
	if (r < 0)
		return r;
	stream->bounce = base;
	stream->bounce_bytes = bytes;
	stream->bounce_id = answer.id;
	stream->dev->npieces++;
	stream->dev->bounce_bytes += bytes;
	return 0;
}

/* The stream's bounce has room for @bytes; nothing uses it. -EAGAIN: others have to end first. */
static int bounce_ready(struct gantry_stream *stream, uint64_t bytes)
{
	struct gantry_dev *dev = stream->dev;
	uint64_t len;

	if (bytes > dev->mem_bytes || gantry_align_up(bytes, BOUNCE_MIN, &len) < 0)
		return -ENOMEM; /* the board would refuse it, after all the copying */
	if (dev->waits && dev->waits != stream)
		return -EAGAIN;
	if (bytes > stream->bounce_bytes) {
		bounce_end(stream);
		give_back_idle(dev, len);
		if (!bounce_fits(dev, len)) {
			dev->waits = stream;
			return -EAGAIN;
		}
		dev->waits = NULL;
		return bounce_new(stream, len);
	}
	dev->waits = NULL;
	return 0;
}

/* ---- handing over ---- */

static struct gantry_seat_task *free_task(struct gantry_dev *dev, uint32_t *ret_number)
{
	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		if (!dev->tasks[i]) {
			*ret_number = i;
			return &dev->page->worker.tasks[i];
		}
	return NULL;
}

static void fill_task(struct gantry_stream *stream, const struct gantry_cmd_launch *launch,
		      struct gantry_seat_task *task)
{
	const struct gantry_signature *sig = launch->kernel->sig;
	uint64_t at;

	task->stream = stream->line->id;
	task->kernel = launch->kernel->id;
	memcpy(task->grid, launch->grid, sizeof(task->grid));
	memcpy(task->block, launch->block, sizeof(task->block));
	task->shared_bytes = launch->shared_bytes;
	task->nargs = launch->nargs;
	task->makes = launch->makes;
	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;
		struct gantry_seat_arg *arg = &task->args[i];

		*arg = (struct gantry_seat_arg){ 0 };
		if (!sig->args[i].mode) {
			arg->off = launch->args[i].value.u64;
			continue;
		}
		if (!range->mem)
			continue;
		arg->len = range->len;
		if (!is_private(range)) {
			arg->mem = range->len ? range->mem->id : 0;
			arg->off = range->off;
			arg->contents = range->contents;
			continue;
		}
		/* Also what is only written: what the kernel leaves comes back as it was. */
		at = bounced_at(stream->dev, launch, i);
		memcpy(stream->bounce + at, range->mem->host.base + range->off, range->len);
		arg->mem = stream->bounce_id;
		arg->off = at;
	}
}

static void copy_back(struct gantry_stream *stream, const struct gantry_cmd_launch *launch)
{
	const struct gantry_signature *sig = launch->kernel->sig;

	for (uint32_t i = 0; i < launch->nargs; i++) {
		const struct gantry_range *range = &launch->args[i].range;

		if (!sig->args[i].mode || !is_private(range))
			continue;
		if (sig->args[i].mode != GANTRY_R)
			memcpy(range->mem->host.base + range->off,
			       stream->bounce + bounced_at(stream->dev, launch, i), range->len);
	}
}

static void ring(struct gantry_dev *dev)
{
	gantry_fence_full(); /* pairs with the fence of a holder that goes to sleep */
	if (gantry_load_relaxed(&dev->page->holder.asleep))
		gantry_seat_ring(dev);
}

static void end_here(struct gantry_seat_slot *slot, int status, uint64_t device_ns)
{
	slot->done.status = status;
	slot->done.blast = status == GANTRY_OK ? GANTRY_BLAST_NONE : GANTRY_BLAST_CMD;
	slot->done.device_ns = device_ns;
	slot->state = GANTRY_SEAT_ENDED;
}

static int status_of(int r)
{
	return r == -ENOMEM || r == -EOVERFLOW ? GANTRY_E_NO_MEMORY : GANTRY_E_DEVICE_FAULT;
}

/* false: not now. */
static bool hand(struct gantry_stream *stream, struct gantry_seat_slot *slot)
{
	struct gantry_dev *dev = stream->dev;
	const struct gantry_cmd_launch *launch = &slot->cmd.launch;
	struct gantry_seat_task *task;
	uint64_t bytes = 0;
	uint32_t number;
	int r = place_of(dev, launch, launch->nargs, &bytes);

	if (r == 0 && bytes && stream->ended != stream->next)
		return false;
	task = free_task(dev, &number);
	if (!task)
		return false;
	if (r == 0 && bytes)
		r = bounce_ready(stream, bytes);
	if (r == -EAGAIN)
		return false;
	if (r < 0 && gantry_load_acquire(&dev->lost))
		return false;
	if (r < 0) {
		end_here(slot, status_of(r), 0);
		return true;
	}
	fill_task(stream, launch, task);
	gantry_store_relaxed(&dev->page->worker.cancel[number], 0u);
	dev->page->worker.queue[dev->put % GANTRY_SEAT_TASKS] = number;
	dev->tasks[number] = slot;
	dev->owners[number] = stream;
	slot->state = GANTRY_SEAT_HANDED;
	slot->task = number;
	slot->bounced = bytes > 0;
	/* Release: pairs with the acquire in the holder's take(). */
	gantry_store_release(&dev->page->worker.put, ++dev->put);
	ring(dev);
	return true;
}

/* ---- what is done here ---- */

static void move(struct gantry_seat_slot *slot)
{
	const struct gantry_cmd *cmd = &slot->cmd;
	uint64_t began_ns = gantry_now_ns();

	gantry_hostmem_move(cmd);
	end_here(slot, GANTRY_OK, gantry_now_ns() - began_ns);
}

/* ---- each stream in its order ---- */

static void count_ended(struct gantry_stream *stream)
{
	while (stream->ended != stream->next &&
	       slot_at(stream, stream->ended)->state == GANTRY_SEAT_ENDED)
		stream->ended++;
}

/* Is a launch with private buffers under way? Then nothing follows it. */
static bool is_alone(struct gantry_stream *stream)
{
	const struct gantry_seat_slot *before = slot_at(stream, stream->next - 1);

	return stream->ended != stream->next && before->state == GANTRY_SEAT_HANDED &&
	       before->bounced;
}

/* false: what is next has to wait. */
static bool advance(struct gantry_stream *stream)
{
	const struct gantry_device_host *host = stream->dev->host;
	struct gantry_seat_slot *slot = slot_at(stream, stream->next);

	if (is_alone(stream))
		return false;
	if (host->cancelled(host->cookie, slot->done.tag)) {
		end_here(slot, GANTRY_E_CANCELLED, 0);
		if (stream->dev->waits == stream)
			stream->dev->waits = NULL;
	} else if (slot->cmd.kind != GANTRY_CMD_LAUNCH) {
		if (stream->ended != stream->next)
			return false;
		move(slot);
	} else if (!hand(stream, slot)) {
		return false;
	}
	stream->next++;
	count_ended(stream);
	return true;
}

int gantry_seat_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd)
{
	struct gantry_dev *dev = stream->dev;
	struct gantry_seat_slot *slot;

	if (gantry_load_acquire(&dev->lost) == GANTRY_SEAT_REFUSED)
		return -ENODEV;
	if (stream->submitted - stream->told == GANTRY_SEAT_DEPTH)
		return -EAGAIN;
	slot = slot_at(stream, stream->submitted);
	*slot = (struct gantry_seat_slot){ .cmd = *cmd, .done = { .tag = cmd->tag } };
	stream->submitted++;
	/* What is copied here is poll()'s: submitting takes no time. */
	if (cmd->kind == GANTRY_CMD_LAUNCH && stream->next + 1 == stream->submitted &&
	    !has_private(&cmd->launch))
		(void)advance(stream);
	if (stream->next != stream->submitted || stream->ended == stream->submitted)
		dev->host->wake(dev->host->cookie);
	return 0;
}

/* ---- ends ---- */

static void take_ends(struct gantry_dev *dev)
{
	/* Acquire: pairs with the release in the holder's tell(). */
	uint32_t ended = gantry_load_acquire(&dev->page->holder.ended);

	for (; dev->ended != ended; dev->ended++) {
		struct gantry_seat_end end = dev->page->holder.ends[dev->ended % GANTRY_SEAT_TASKS];
		struct gantry_seat_slot *slot = end.slot < GANTRY_SEAT_TASKS ? dev->tasks[end.slot]
									     : NULL;

		if (!slot)
			continue; /* a holder tells only what it was given */
		slot->done.status = end.status;
		slot->done.blast = end.blast;
		slot->done.device_ns = end.device_ns;
		slot->state = GANTRY_SEAT_ENDED;
		if (slot->bounced && end.status == GANTRY_OK)
			copy_back(dev->owners[end.slot], &slot->cmd.launch);
		dev->tasks[end.slot] = NULL;
		count_ended(dev->owners[end.slot]);
	}
}

static void pass_cancels(struct gantry_dev *dev)
{
	bool any = false;

	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++) {
		const struct gantry_seat_slot *slot = dev->tasks[i];

		if (!slot || gantry_load_relaxed(&dev->page->worker.cancel[i]) ||
		    !dev->host->cancelled(dev->host->cookie, slot->done.tag))
			continue;
		gantry_store_relaxed(&dev->page->worker.cancel[i], 1u);
		any = true;
	}
	if (any) /* whether it sleeps or not: it looks at these when something wakes it */
		gantry_seat_ring(dev);
}

/* The holder has taken the seat away: what it had may or may not have run. */
static void refuse_all(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;

	for (uint32_t i = 0; i < GANTRY_SEAT_TASKS; i++)
		if (dev->owners[i] == stream)
			dev->owners[i] = NULL, dev->tasks[i] = NULL;
	for (; stream->ended != stream->submitted; stream->ended++) {
		struct gantry_seat_slot *slot = slot_at(stream, stream->ended);

		if (slot->state == GANTRY_SEAT_ENDED)
			continue;
		slot->done.status = slot->state == GANTRY_SEAT_HANDED ? GANTRY_E_DEVICE_FAULT
								      : GANTRY_E_INTERRUPTED;
		slot->done.blast = GANTRY_BLAST_CONTEXT;
		slot->state = GANTRY_SEAT_ENDED;
	}
	stream->next = stream->submitted;
}

static unsigned reap(struct gantry_stream *stream, struct gantry_done *ret_done, unsigned n)
{
	unsigned count = 0;

	while (stream->next != stream->submitted && advance(stream))
		;
	while (count < n && stream->told != stream->ended)
		ret_done[count++] = slot_at(stream, stream->told++)->done;
	return count;
}

unsigned gantry_seat_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n)
{
	bool refused = gantry_load_acquire(&dev->lost) == GANTRY_SEAT_REFUSED;
	unsigned count = 0;

	if (n == 0)
		return 0;
	take_ends(dev);
	pass_cancels(dev);
	gantry_list_for_each(&dev->streams, struct gantry_stream, link, stream) {
		if (count == n)
			break;
		if (refused)
			refuse_all(stream);
		count += reap(stream, ret_done + count, n - count);
	}
	/* The next call begins with another stream, so that a small @n starves none. */
	if (count > 0)
		gantry_list_push_back(&dev->streams, gantry_list_pop_front(&dev->streams));
	return count;
}
