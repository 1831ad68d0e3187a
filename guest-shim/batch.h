/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting operations into a ring: begin, then any number of slots, then end. All that was filled
 * goes to the host at once, with one ring of the bell and at most one system call.
 *
 * A slot is filled only when the task that had it before has finished and its status was looked at.
 * Room is waited for at most the call timeout.
 * Threads: begin takes the queue's lock, end gives it back. Blocking: begin and slot, for the lock
 * and for room.
 */
#ifndef GANTRY_GUEST_SHIM_BATCH_H
#define GANTRY_GUEST_SHIM_BATCH_H

#include <stdint.h>

#include "guest-shim/session.h"
#include "proto/codec.h"

struct gantry_batch {
	struct gantry_session *session;
	struct gantry_queue_end *queue;
	uint64_t deadline_ns; /* 0: not needed so far */
	uint32_t nfilled;     /* slots filled and not given to the host */
};

/* What is left of the calls below where something has to be waited for, or to be woken. */
int gantry_batch_wait_room(struct gantry_batch *b);
void gantry_batch_kick(struct gantry_batch *b);

/*
 * @deadline_ns 0: the call timeout, from when something has to be waited for. AGAIN: others held
 * the queue that long.
 */
int gantry_batch_begin(struct gantry_batch *b, struct gantry_session *s, struct gantry_queue_end *q,
		       uint64_t deadline_ns);

/* The sequence number of the slot filled last, or of the queue's last task if none was. */
static inline uint64_t gantry_batch_seq(const struct gantry_batch *b)
{
	return b->queue->ring.tail + b->nfilled;
}

/*
 * Room for one more slot. A finished task's slot has been read: what the area shows as head may be older than that, and
 * is not asked.
 */
static inline int gantry_batch_reserve(struct gantry_batch *b)
{
	return __builtin_expect(gantry_batch_seq(b) < b->queue->room_end, 1)
		       ? 0
		       : gantry_batch_wait_room(b);
}

static inline void gantry_batch_take_slot(struct gantry_batch *b, struct gantry_desc **ret_desc,
					  struct gantry_inline **ret_inl)
{
	*ret_desc = gantry_ring_desc(&b->queue->ring, b->nfilled);
	*ret_inl = gantry_ring_inline(&b->queue->ring, b->nfilled);
	b->nfilled++;
}

/*
 * The next slot, which counts as filled from now on. AGAIN: no room came in time; what was filled
 * before has been given to the host. Or why the session ended.
 */
static inline int gantry_batch_slot(struct gantry_batch *b, struct gantry_desc **ret_desc,
				    struct gantry_inline **ret_inl)
{
	int r = gantry_batch_reserve(b);

	if (r < 0)
		return r;
	gantry_batch_take_slot(b, ret_desc, ret_inl);
	return 0;
}

/*
 * The same, with @len_bytes in the heap for the slot's variable part, which are free again when the
 * task has finished. NO_MEMORY: the heap has no room for any record.
 */
int gantry_batch_slot_record(struct gantry_batch *b, uint32_t len_bytes,
			     struct gantry_desc **ret_desc, uint8_t **ret_record,
			     uint64_t *ret_heap_off);

/* Whether gantry_batch_slot() would not wait. */
bool gantry_batch_has_room(struct gantry_batch *b);

/* Gives what was filled to the host. */
static inline void gantry_batch_flush(struct gantry_batch *b)
{
	const struct gantry_session *s = b->session;
	struct gantry_queue_end *q = b->queue;
	uint32_t n = b->nfilled;

	if (n == 0)
		return;
	b->nfilled = 0;
	/*
	 * Release: pairs with the acquires of tail in failures.c and wait.c. Before the ring's own
	 * tail, so that nobody sees more tasks finished than put.
	 */
	gantry_store_release(&q->tail, q->ring.tail + n);
	gantry_session_order(s);
	(void)gantry_ring_publish(&q->ring, n);
	(void)gantry_fetch_add(&s->header->bell, 1);
	if (gantry_ring_must_kick(&q->ring.map))
		gantry_batch_kick(b);
}

/* The same, and the lock back. */
static inline void gantry_batch_end(struct gantry_batch *b)
{
	struct gantry_queue_end *q = b->queue;

	gantry_batch_flush(b);
	gantry_lock_put(&q->lock);
}

#endif
