/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/batch.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "guest-shim/error.h"
#include "guest-shim/ranges.h"
#include "guest-shim/wait.h"

/* Holds hundreds of common records, and one of the largest. */
#define ARENA_BYTES	(64u << 10)
#define ARENA_MIN_BYTES (8u << 10) /* more than one of most */

static_assert(ARENA_BYTES >= GANTRY_MAX_VAR_BYTES, "an arena with room holds every record");

static uint64_t deadline_of(struct gantry_batch *b)
{
	if (b->deadline_ns == 0)
		b->deadline_ns = gantry_session_deadline(b->session);
	return b->deadline_ns;
}

int gantry_batch_begin(struct gantry_batch *b, struct gantry_session *s, struct gantry_queue_end *q,
		       uint64_t deadline_ns)
{
	*b = (struct gantry_batch){ .session = s, .queue = q, .deadline_ns = deadline_ns };
	if (!gantry_lock_try(&q->lock) && gantry_lock_until(&q->lock, deadline_of(b)) < 0)
		return gantry_fail(GANTRY_E_AGAIN, "other threads wait for room in this queue");
	return 0;
}

void gantry_batch_kick(struct gantry_batch *b)
{
	gantry_count_add(&b->session->nwakeups, 1);
	b->session->transport->kick(b->session->cookie);
}

static int host_lies(struct gantry_session *s)
{
	return gantry_session_end(s, GANTRY_E_PROTOCOL,
				  "the host finished tasks that were never submitted");
}

/* Sees how far the slots may be filled now. */
static int look_for_room(struct gantry_batch *b)
{
	struct gantry_queue_end *q = b->queue;
	uint64_t seen;

	if (gantry_failures_harvest(&q->failures, &q->ring.map, &q->tail, &seen) < 0)
		return host_lies(b->session);
	q->room_end = seen + q->ring.map.nslots;
	return 0;
}

/*
 * Until the first @seq tasks have finished. What was filled goes to the host first: it may be what
 * is waited for.
 */
static int wait_for(struct gantry_batch *b, uint64_t seq)
{
	int r;

	gantry_batch_flush(b);
	r = gantry_wait_seq(b->session, b->queue, seq, deadline_of(b));
	if (r == GANTRY_E_TIMEOUT)
		return gantry_fail(GANTRY_E_AGAIN,
				   "no room in the queue's ring: the tasks in it take their time");
	return r;
}

bool gantry_batch_has_room(struct gantry_batch *b)
{
	return gantry_batch_seq(b) < b->queue->room_end ||
	       (look_for_room(b) == 0 && gantry_batch_seq(b) < b->queue->room_end);
}

int gantry_batch_wait_room(struct gantry_batch *b)
{
	struct gantry_queue_end *q = b->queue;
	int r = look_for_room(b);

	if (r < 0 || gantry_batch_seq(b) < q->room_end)
		return r;
	/*
	 * Half a ring at a time: waking up for every single slot would cost a system call a task.
	 * At least one must come free, so that the oldest half is waited for whatever was flushed
	 * just now.
	 */
	r = wait_for(b, gantry_batch_seq(b) - q->ring.map.nslots / 2);
	if (r < 0)
		return r;
	return look_for_room(b);
}

/* A small arena, and a record that it never holds: its tasks end first. */
static int close_arena(struct gantry_batch *b)
{
	struct gantry_queue_end *q = b->queue;
	int r = q->arena.range ? wait_for(b, gantry_batch_seq(b)) : 0;

	if (r == 0 && q->arena.range)
		gantry_range_put(b->session, gantry_arena_fini(&q->arena));
	return r;
}

/* The queue's first big record, of @len_bytes. A crowded heap gives a small arena. */
static int open_arena(struct gantry_batch *b, uint32_t len_bytes)
{
	struct gantry_session *s = b->session;
	struct gantry_queue_end *q = b->queue;
	uint64_t least = GANTRY_MAX(ARENA_MIN_BYTES, ((uint64_t)len_bytes + GANTRY_LINE - 1) /
							     GANTRY_LINE * GANTRY_LINE);
	uint64_t bytes = GANTRY_MAX(least, GANTRY_MIN(ARENA_BYTES, s->heap_region.bytes / 16));
	struct gantry_range *range;
	int r = close_arena(b);

	if (r < 0)
		return r;
	gantry_batch_flush(b); /* what is waited for may be among it */
	r = gantry_range_take(s, bytes, GANTRY_LINE, deadline_of(b), &range);
	if (r < 0 && bytes > least) {
		bytes = least;
		r = gantry_range_take(s, bytes, GANTRY_LINE, deadline_of(b), &range);
	}
	if (r < 0)
		return r;
	if (gantry_arena_init(&q->arena, range, gantry_range_ptr(s, range), range->off, bytes,
			      q->ring.map.nslots) < 0) {
		gantry_range_put(s, range);
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	}
	return 0;
}

int gantry_batch_slot_record(struct gantry_batch *b, uint32_t len_bytes,
			     struct gantry_desc **ret_desc, uint8_t **ret_record,
			     uint64_t *ret_heap_off)
{
	struct gantry_queue_end *q = b->queue;
	struct gantry_inline *inl;
	uint64_t oldest;
	int r = q->arena.range && len_bytes <= q->arena.bytes ? 0 : open_arena(b, len_bytes);

	if (r == 0)
		r = gantry_batch_reserve(b);
	while (r == 0) {
		r = gantry_arena_put(&q->arena, gantry_batch_seq(b), gantry_ring_done(&q->ring.map),
				     len_bytes, ret_record, ret_heap_off, &oldest);
		if (r == 0)
			break;
		if (r == -ENOSPC)
			return gantry_fail_plain(GANTRY_E_ARG);
		r = wait_for(b, oldest + 1);
	}
	if (r < 0)
		return r;
	gantry_batch_take_slot(b, ret_desc, &inl);
	return 0;
}
