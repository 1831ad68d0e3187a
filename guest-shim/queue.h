/* SPDX-License-Identifier: Apache-2.0 */
/* Queues by handle. Threads: any. */
#ifndef GANTRY_GUEST_SHIM_QUEUE_H
#define GANTRY_GUEST_SHIM_QUEUE_H

#include "guest-shim/batch.h"
#include "guest-shim/session.h"

/* gantry_queue_begin() where the queue is not where handles say, or its lock is not free. */
int gantry_queue_begin_slowly(struct gantry_batch *b, struct gantry_session *s, gantry_queue queue,
			      uint64_t deadline_ns);

/* Hosts number handles and queue areas alike; a guess that is wrong costs a search. */
static inline struct gantry_queue_end *gantry_queue_guess(struct gantry_session *s,
							  gantry_queue queue)
{
	return &s->queues[GANTRY_HANDLE_SLOT(queue) % GANTRY_MAX_QUEUES];
}

/*
 * How many tasks of @q are done, as far as can be told. The memory of a device that was unplugged, or is being reset before
 * that, reads as all ones on some machines: more than was ever put, which tells nothing. (Of what another thread is putting
 * just now, too, for a moment.)
 */
static inline uint64_t gantry_queue_done(const struct gantry_queue_end *q)
{
	uint64_t done = gantry_ring_done(&q->ring.map);

	/* Acquire: pairs with the release in gantry_batch_flush(). */
	return done <= gantry_load_acquire(&q->tail) ? done : 0;
}

/* gantry_batch_begin() on an open queue. HANDLE. */
static inline int gantry_queue_begin(struct gantry_batch *b, struct gantry_session *s,
				     gantry_queue queue, uint64_t deadline_ns)
{
	struct gantry_queue_end *q = gantry_queue_guess(s, queue);

	*b = (struct gantry_batch){ .session = s, .queue = q, .deadline_ns = deadline_ns };
	if (__builtin_expect(gantry_lock_try(&q->lock), 1)) {
		/* The control queue has no handle. */
		if (__builtin_expect(queue && gantry_load_relaxed(&q->handle) == queue, 1))
			return 0;
		gantry_lock_put(&q->lock);
	}
	return gantry_queue_begin_slowly(b, s, queue, deadline_ns);
}

/* gantry_queue_open() after its checks; the library's own queue is opened by it too. */
int gantry_queue_end_open(struct gantry_session *s, const struct gantry_queue_options *options,
			  uint64_t deadline_ns, gantry_queue *ret_queue);

#endif
