/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/copy.h"

#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/str.h"
#include "guest-shim/error.h"
#include "guest-shim/helpers.h"
#include "guest-shim/queue.h"
#include "guest-shim/wait.h"
#include "proto/region.h"

/*
 * Filling 2 MiB takes one core some 160 us (12.6 GB/s into a memfd), an operation some 10 us: large
 * enough to hide the latter, small enough that four of them are no burden to the heap.
 */
#define CHUNK_MAX_BYTES (2ull << 20)
#define CHUNK_MIN_BYTES (4ull << 10)
#define NCHUNKS		4u
/* To fill as much takes less time than another operation would. */
#define WHOLE_BYTES (64ull << 10)

/*
 * One core fills memory slower than a bus empties it (12.6 GB/s against 55; four cores: 39.7, eight no more). Large
 * transfers are cut into lanes, each with a thread for the time of the call, where there are CPUs to spare: the host needs
 * some too. A thread costs some 30 us, a lane of LANE_MIN_BYTES takes one core 330.
 */
#define NLANES	       4u
#define LANE_MIN_BYTES (4ull << 20)
#define LANE_NCHUNKS   3u

/* A transfer, or a lane of one: what one thread moves. */
struct transfer {
	struct gantry_session *s;
	gantry_buffer buffer;
	uint64_t off; /* in the buffer */
	uint64_t len;
	bool is_write;
	struct gantry_range *range;
	uint64_t range_off; /* of its part of the range */
	uint64_t chunk_bytes;
	uint32_t nchunks;
	gantry_ticket tickets[NCHUNKS]; /* 0: the chunk is idle */
};

struct lanes {
	uint32_t n;
	const uint8_t *src;
	uint8_t *dst;
	uint32_t failed; /* atomic: the others stop */
	struct lane {
		struct transfer t;
		uint64_t first; /* byte of the whole transfer */
		int status;
		char text[256]; /* errors are a thread's own: carried over */
	} lane[NLANES];
};

/* ---- the copy queue ---- */

/*
 * The copy queue is opened for any device. Where some work by themselves, its waits are like those on a queue that was opened
 * for them (wait.c).
 */
static int open_queue(struct gantry_session *s)
{
	struct gantry_props props;
	struct gantry_queue_end *q;
	gantry_queue queue;
	uint32_t others;
	int r = gantry_queue_end_open(s, NULL, gantry_session_deadline(s), &queue);

	if (r < 0)
		return r;
	gantry_store_relaxed(&s->copy_queue, queue);
	r = gantry_props_get(s, GANTRY_KIND_ANY, &props);
	if (r < 0)
		return r;
	others = props.kinds & ~(1u << GANTRY_KIND_CPU);
	q = &s->queues[GANTRY_HANDLE_SLOT(s->copy_queue)];
	gantry_store_relaxed(&q->ring.map.area->is_own, 1u);
	if (others)
		gantry_store_relaxed(&q->kind, (uint32_t)__builtin_ctz(others));
	return 0;
}

/* Of the session's queues, the control queue aside. */
static uint32_t nfree(const struct gantry_session *s)
{
	uint32_t n = 0;

	for (uint32_t i = 1; i < s->nqueues; i++)
		n += gantry_load_relaxed(&s->queues[i].handle) == 0;
	return n;
}

int gantry_copy_open_beside(struct gantry_session *s, const struct gantry_queue_options *options,
			    uint64_t deadline_ns, gantry_queue *ret_queue)
{
	bool alone = (s->props & GANTRY_PROP_HOST_DIRECT) || s->nqueues <= 2;
	int r = 0;

	if (alone || gantry_load_relaxed(&s->copy_queue))
		return gantry_queue_end_open(s, options, deadline_ns, ret_queue);
	/* Held over both, or two threads would take the last two. */
	if (gantry_lock_until(&s->copy_lock, deadline_ns) < 0)
		return gantry_fail(GANTRY_E_TIMEOUT, "transfers took the time given");
	if (s->copy_queue == 0 && nfree(s) <= 2)
		r = open_queue(s);
	if (r == 0)
		r = gantry_queue_end_open(s, options, deadline_ns, ret_queue);
	gantry_lock_put(&s->copy_lock);
	return r;
}

/* Takes copy_lock and makes what follows on the queue start after what was submitted so far and uses @buffer. */
static int begin(struct gantry_session *s, gantry_buffer buffer, uint64_t deadline_ns)
{
	gantry_ticket tickets[GANTRY_MAX_QUEUES];
	uint64_t tails[GANTRY_MAX_QUEUES];
	unsigned n = 0;
	int r = 0;

	if (gantry_lock_until(&s->copy_lock, deadline_ns) < 0)
		return gantry_fail(GANTRY_E_TIMEOUT, "other transfers took the time given");
	if (s->copy_queue == 0)
		r = open_queue(s);
	gantry_uses_snapshot(s, buffer, tails);
	for (uint32_t i = 1; i < s->nqueues; i++)
		if (tails[i])
			tickets[n++] = GANTRY_TICKET(i, tails[i]);
	if (r == 0 && n > 0)
		r = gantry_submit_wait(s, s->copy_queue, tickets, n, NULL);
	if (r < 0)
		gantry_lock_put(&s->copy_lock);
	return r;
}

static void end(struct gantry_session *s)
{
	gantry_lock_put(&s->copy_lock);
}

static int put_op(struct gantry_session *s, bool is_write, gantry_buffer buffer, uint64_t off,
		  uint64_t heap_off, uint64_t bytes, gantry_ticket *ret_ticket)
{
	struct gantry_desc *desc;
	struct gantry_inline *inl;
	struct gantry_batch b;
	int r = gantry_queue_begin(&b, s, s->copy_queue, 0);

	if (r < 0)
		return r;
	r = gantry_batch_slot(&b, &desc, &inl);
	if (r == 0 && is_write)
		gantry_desc_put_write(desc, &(struct gantry_op_write){ .buffer = buffer,
								       .off = off,
								       .heap_off = heap_off,
								       .bytes = bytes });
	else if (r == 0)
		gantry_desc_put_read(desc, &(struct gantry_op_read){ .buffer = buffer,
								     .off = off,
								     .heap_off = heap_off,
								     .bytes = bytes });
	if (r == 0)
		*ret_ticket = GANTRY_TICKET(b.queue->slot, gantry_batch_seq(&b));
	gantry_batch_end(&b);
	return r;
}

/* Until the operation has finished, and how. */
static int wait_op(struct gantry_session *s, gantry_ticket ticket, uint64_t deadline_ns)
{
	struct gantry_queue_end *q = &s->queues[GANTRY_TICKET_QUEUE(ticket)];
	int r = gantry_wait_seq(s, q, GANTRY_TICKET_SEQ(ticket), deadline_ns);

	if (r == 0)
		r = gantry_ticket_status(q, GANTRY_TICKET_SEQ(ticket));
	else
		return r;
	return r < 0 ? gantry_fail(r, "the transfer: %s", gantry_status_text(r)) : 0;
}

/* ---- whole pieces ---- */

static int copy_range(struct gantry_session *s, bool is_write, gantry_buffer buffer, uint64_t off,
		      const struct gantry_range *range, uint64_t len, uint64_t deadline_ns)
{
	gantry_ticket ticket;
	int r = begin(s, buffer, deadline_ns);

	if (r < 0)
		return r;
	r = put_op(s, is_write, buffer, off, range->off, len, &ticket);
	end(s); /* the next transfer queues up behind this one */
	return r < 0 ? r : wait_op(s, ticket, deadline_ns);
}

int gantry_copy_from_range(struct gantry_session *s, gantry_buffer buffer, uint64_t off,
			   const struct gantry_range *range, uint64_t len, uint64_t deadline_ns)
{
	return copy_range(s, true, buffer, off, range, len, deadline_ns);
}

int gantry_copy_to_range(struct gantry_session *s, gantry_buffer buffer, uint64_t off,
			 const struct gantry_range *range, uint64_t len, uint64_t deadline_ns)
{
	return copy_range(s, false, buffer, off, range, len, deadline_ns);
}

/* ---- chunk by chunk ---- */

/* The largest pieces that the heap has room for; only the smallest are waited for. */
static int take_chunks(struct transfer *t)
{
	uint64_t part = t->len <= WHOLE_BYTES ? t->len - 1 : t->len / NCHUNKS;
	uint64_t chunk = GANTRY_MIN(CHUNK_MAX_BYTES,
				    (part + CHUNK_MIN_BYTES) & ~(CHUNK_MIN_BYTES - 1));
	int r;

	for (;; chunk = (chunk / 2) & ~(CHUNK_MIN_BYTES - 1)) {
		bool is_last = chunk / 2 < CHUNK_MIN_BYTES;

		t->chunk_bytes = chunk;
		t->nchunks = (uint32_t)GANTRY_MIN((uint64_t)NCHUNKS, (t->len + chunk - 1) / chunk);
		r = gantry_range_take(t->s, chunk * t->nchunks, CHUNK_MIN_BYTES,
				      is_last ? gantry_session_deadline(t->s) : 0, &t->range);
		if (r != GANTRY_E_NO_MEMORY || is_last)
			return r;
	}
}

static uint64_t nsteps(const struct transfer *t)
{
	return (t->len + t->chunk_bytes - 1) / t->chunk_bytes;
}

static uint64_t step_bytes(const struct transfer *t, uint64_t step)
{
	return GANTRY_MIN(t->chunk_bytes, t->len - step * t->chunk_bytes);
}

static void *chunk_ptr(const struct transfer *t, uint64_t step)
{
	return (uint8_t *)gantry_range_ptr(t->s, t->range) + t->range_off +
	       step % t->nchunks * t->chunk_bytes;
}

static int start_step(struct transfer *t, uint64_t step)
{
	return put_op(t->s, t->is_write, t->buffer, t->off + step * t->chunk_bytes,
		      t->range->off + t->range_off + step % t->nchunks * t->chunk_bytes,
		      step_bytes(t, step), &t->tickets[step % t->nchunks]);
}

/* Until the chunk of @step is idle. */
static int finish_step(struct transfer *t, uint64_t step)
{
	gantry_ticket ticket = t->tickets[step % t->nchunks];

	t->tickets[step % t->nchunks] = 0;
	return ticket ? wait_op(t->s, ticket, gantry_session_deadline(t->s)) : 0;
}

static int run_write(struct transfer *t, const uint8_t *src)
{
	uint64_t n = nsteps(t);
	int r = 0;

	for (uint64_t step = 0; step < n && r == 0; step++) {
		r = finish_step(t, step);
		if (r < 0)
			break;
		gantry_region_copy_in(chunk_ptr(t, step), src + step * t->chunk_bytes,
				      step_bytes(t, step));
		r = start_step(t, step);
	}
	for (uint64_t step = n; step < n + t->nchunks && r == 0; step++)
		r = finish_step(t, step);
	return r;
}

static int run_read(struct transfer *t, uint8_t *dst)
{
	uint64_t n = nsteps(t);
	int r = 0;

	for (uint64_t step = 0; step < t->nchunks && r == 0; step++)
		r = start_step(t, step);
	for (uint64_t step = 0; step < n && r == 0; step++) {
		r = finish_step(t, step);
		if (r < 0)
			break;
		gantry_region_copy_out(dst + step * t->chunk_bytes, chunk_ptr(t, step),
				       step_bytes(t, step));
		if (step + t->nchunks < n)
			r = start_step(t, step + t->nchunks);
	}
	return r;
}

/* ---- lanes ---- */

static uint32_t lanes_for(const struct transfer *t)
{
	uint64_t most = GANTRY_MIN((uint64_t)NLANES, t->len / LANE_MIN_BYTES);

	if (most < 2)
		return 1;
	if (t->s->copy_lanes)
		return (uint32_t)GANTRY_MIN(most, (uint64_t)t->s->copy_lanes);
	return (uint32_t)GANTRY_MIN(most, (uint64_t)GANTRY_MAX(gantry_help_cpus() / 2, 1u));
}

static void run_lane(void *arg, unsigned int i)
{
	struct lanes *l = arg;
	struct lane *lane = &l->lane[i];

	if (gantry_load_relaxed(&l->failed))
		return;
	lane->status = lane->t.is_write ? run_write(&lane->t, l->src + lane->first)
					: run_read(&lane->t, l->dst + lane->first);
	if (lane->status == 0)
		return;
	(void)gantry_str_copy(lane->text, sizeof(lane->text), gantry_last_error());
	gantry_store_relaxed(&l->failed, 1u);
}

/* Even parts, of whole chunks; the last has what is left. */
static void cut(struct lanes *l, const struct transfer *t)
{
	uint64_t part = t->len / l->n & ~(CHUNK_MAX_BYTES - 1);

	for (uint32_t i = 0; i < l->n; i++) {
		struct lane *lane = &l->lane[i];

		lane->t = *t;
		lane->first = i * part;
		lane->t.off += lane->first;
		lane->t.len = i + 1 < l->n ? part : t->len - lane->first;
		lane->t.chunk_bytes = CHUNK_MAX_BYTES;
		lane->t.nchunks = LANE_NCHUNKS;
		lane->t.range_off = i * LANE_NCHUNKS * CHUNK_MAX_BYTES;
		lane->status = 0;
	}
}

/* 1: the heap has no room for lanes. */
static int run_lanes(struct transfer *t, const void *src, void *dst)
{
	struct lanes l = { .n = lanes_for(t), .src = src, .dst = dst };

	if (l.n < 2 || gantry_range_take(t->s, l.n * LANE_NCHUNKS * CHUNK_MAX_BYTES,
					 CHUNK_MIN_BYTES, 0, &t->range) < 0)
		return 1;
	cut(&l, t);
	gantry_help(l.n, run_lane, &l);
	gantry_range_put(t->s, t->range); /* as in run() */
	for (uint32_t i = 0; i < l.n; i++)
		if (l.lane[i].status < 0)
			return gantry_fail(l.lane[i].status, "%s", l.lane[i].text);
	return 0;
}

static int run(struct transfer *t, const void *src, void *dst)
{
	int r = begin(t->s, t->buffer, gantry_session_deadline(t->s));

	if (r < 0)
		return r;
	r = run_lanes(t, src, dst);
	if (r <= 0) {
		end(t->s);
		return r;
	}
	r = take_chunks(t);
	if (r == 0) {
		r = t->is_write ? run_write(t, src) : run_read(t, dst);
		gantry_range_put(
			t->s,
			t->range); /* after a failure operations may still use it: put knows */
	}
	end(t->s);
	return r;
}

int gantry_copy_in(struct gantry_session *s, gantry_buffer buffer, uint64_t off, const void *src,
		   uint64_t len)
{
	struct transfer t = { .s = s, .buffer = buffer, .off = off, .len = len, .is_write = true };

	return run(&t, src, NULL);
}

int gantry_copy_out(struct gantry_session *s, gantry_buffer buffer, uint64_t off, void *dst,
		    uint64_t len)
{
	struct transfer t = { .s = s, .buffer = buffer, .off = off, .len = len };

	return run(&t, NULL, dst);
}
