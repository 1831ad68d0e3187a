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

/*
 * @deadline_ns 0: the call timeout, from when something has to be waited for. AGAIN: others held
 * the queue that long.
 */
int gantry_batch_begin(struct gantry_batch *b, struct gantry_session *s, struct gantry_queue_end *q,
		       uint64_t deadline_ns);

/*
 * The next slot, which counts as filled from now on. AGAIN: no room came in time; what was filled
 * before has been given to the host. Or why the session ended.
 */
int gantry_batch_slot(struct gantry_batch *b, struct gantry_desc **ret_desc,
		      struct gantry_inline **ret_inl);

/*
 * The same, with @len_bytes in the heap for the slot's variable part, which are free again when the
 * task has finished. NO_MEMORY: the heap has no room for any record.
 */
int gantry_batch_slot_record(struct gantry_batch *b, uint32_t len_bytes,
			     struct gantry_desc **ret_desc, uint8_t **ret_record,
			     uint64_t *ret_heap_off);

/* The sequence number of the slot filled last, or of the queue's last task if none was. */
static inline uint64_t gantry_batch_seq(const struct gantry_batch *b)
{
	return b->queue->ring.tail + b->nfilled;
}

/* Whether gantry_batch_slot() would not wait. */
bool gantry_batch_has_room(struct gantry_batch *b);

/* Gives what was filled to the host. */
void gantry_batch_flush(struct gantry_batch *b);

/* The same, and the lock back. */
void gantry_batch_end(struct gantry_batch *b);

#endif
