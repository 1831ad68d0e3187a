/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/queue.h"

#include <string.h>

#include "base/array.h"
#include "base/atomic.h"
#include "guest-shim/control.h"
#include "guest-shim/copy.h"
#include "guest-shim/error.h"
#include "guest-shim/ranges.h"
#include "guest-shim/wait.h"

static struct gantry_queue_end *find(struct gantry_session *s, gantry_queue queue)
{
	struct gantry_queue_end *guess = gantry_queue_guess(s, queue);

	if (GANTRY_HANDLE_TYPE(queue) != GANTRY_HANDLE_QUEUE)
		return NULL;
	/* Acquire: pairs with the release in adopt_queue(); the queue end is ready. */
	if (gantry_load_acquire(&guess->handle) == queue)
		return guess;
	for (uint32_t i = 1; i < s->nqueues; i++)
		if (gantry_load_acquire(&s->queues[i].handle) == queue)
			return &s->queues[i];
	return NULL;
}

static int bad_handle(gantry_queue queue)
{
	return gantry_fail(GANTRY_E_HANDLE, "0x%llx is no open queue", (unsigned long long)queue);
}

int gantry_queue_begin_slowly(struct gantry_batch *b, struct gantry_session *s, gantry_queue queue,
			      uint64_t deadline_ns)
{
	struct gantry_queue_end *q = find(s, queue);
	int r;

	if (!q)
		return bad_handle(queue);
	r = gantry_batch_begin(b, s, q, deadline_ns);
	if (r < 0)
		return r;
	if (gantry_load_relaxed(&q->handle) != queue) { /* closed meanwhile */
		gantry_batch_end(b);
		return bad_handle(queue);
	}
	return 0;
}

/* ---- open ---- */

static int check_options(const struct gantry_queue_options *options)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(options->reserved); i++)
		if (options->reserved[i])
			return gantry_fail(GANTRY_E_ARG,
					   "a reserved field of the options is not 0");
	if (options->kind >= GANTRY_NKINDS || options->fail_stop > 1)
		return gantry_fail(GANTRY_E_ARG,
				   "the options' kind or fail_stop is out of its range");
	return 0;
}

/* The queue area that the host assigned, if that is one that can be. */
static int adopt_queue(struct gantry_session *s, const struct gantry_reply *reply, uint32_t kind,
		       gantry_queue *ret_queue)
{
	struct gantry_reply_queue opened;
	struct gantry_queue_end *q;

	memcpy(&opened, reply->data, sizeof(opened));
	if (reply->len_bytes < sizeof(opened) ||
	    GANTRY_HANDLE_TYPE(opened.handle) != GANTRY_HANDLE_QUEUE || opened.slot == 0 ||
	    opened.slot >= s->nqueues)
		return gantry_control_bad_reply(s, "a queue outside the segment");
	q = &s->queues[opened.slot];

	gantry_lock_take(&q->lock);
	if (gantry_load_relaxed(&q->handle) || opened.next_seq != q->ring.tail + 1) {
		gantry_lock_put(&q->lock);
		return gantry_control_bad_reply(s, "a queue that is in use, or goes on elsewhere");
	}
	gantry_failures_restart(&q->failures, &q->ring.map, q->ring.tail);
	q->room_end = q->ring.tail + q->ring.map.nslots;
	gantry_store_relaxed(&q->kind, kind);
	gantry_store_relaxed(&q->wait_cycles, (uint64_t)0);
	gantry_store_relaxed(&q->ring.map.area->is_own, 0u); /* of the slot's queue before */
	/* Release: pairs with the acquire in find(). */
	gantry_store_release(&q->handle, opened.handle);
	gantry_lock_put(&q->lock);
	*ret_queue = opened.handle;
	return 0;
}

int gantry_queue_end_open(struct gantry_session *s, const struct gantry_queue_options *options,
			  uint64_t deadline_ns, gantry_queue *ret_queue)
{
	struct gantry_op_queue_open args = { 0 };
	struct gantry_desc desc;
	struct gantry_reply reply;
	int r;

	if (options) {
		args.priority = options->priority;
		args.window_us = options->window_us;
		args.device_mask = options->device_mask;
		args.fail_stop = options->fail_stop;
		args.kind = options->kind;
	}
	gantry_desc_put_queue_open(&desc, &args);
	r = gantry_control_call(s, &desc, NULL, 0, deadline_ns, &reply);
	return r < 0 ? r : adopt_queue(s, &reply, args.kind, ret_queue);
}

int gantry_queue_open(struct gantry_session *session, const struct gantry_queue_options *options,
		      gantry_queue *ret_queue)
{
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_queue)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the queue");
	r = options ? check_options(options) : 0;
	if (r < 0)
		return r;
	return gantry_copy_open_beside(session, options, gantry_session_deadline(session),
				       ret_queue);
}

/* ---- the rest of its life ---- */

/* An operation on an open queue whose reply says nothing but how it went. */
static int call_on(struct gantry_session *s, gantry_queue queue, const struct gantry_desc *desc,
		   uint64_t deadline_ns)
{
	struct gantry_reply reply;

	if (!find(s, queue))
		return bad_handle(queue);
	return gantry_control_call(s, desc, NULL, 0, deadline_ns, &reply);
}

int gantry_queue_set(struct gantry_session *session, gantry_queue queue, int key, int64_t value)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (key < GANTRY_QUEUE_PRIORITY || key > GANTRY_QUEUE_PAUSED)
		return gantry_fail(GANTRY_E_ARG, "a queue has no property %d", key);
	gantry_desc_put_queue_set(&desc, &(struct gantry_op_queue_set){
						 .queue = queue,
						 .value = (uint64_t)value,
						 .key = (uint32_t)key,
					 });
	return call_on(session, queue, &desc, gantry_session_deadline(session));
}

int gantry_cancel(struct gantry_session *session, gantry_queue queue)
{
	struct gantry_desc desc;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	gantry_desc_put_queue_cancel(&desc, &(struct gantry_op_queue_cancel){ .queue = queue });
	return call_on(session, queue, &desc, gantry_session_deadline(session));
}

/* Nobody can submit to it from here on; 0 and how much was submitted. */
static int shut(struct gantry_session *s, gantry_queue queue, uint64_t deadline_ns,
		struct gantry_queue_end **ret_queue, uint64_t *ret_tail)
{
	struct gantry_batch b;
	int r = gantry_queue_begin(&b, s, queue, deadline_ns);

	if (r < 0)
		return r;
	gantry_store_relaxed(&b.queue->handle, 0);
	*ret_queue = b.queue;
	*ret_tail = b.queue->ring.tail;
	gantry_batch_end(&b);
	return 0;
}

int gantry_queue_close(struct gantry_session *session, gantry_queue queue)
{
	struct gantry_queue_end *q;
	struct gantry_reply reply;
	struct gantry_desc desc;
	uint64_t deadline_ns, tail;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	deadline_ns = gantry_session_deadline(session);
	r = shut(session, queue, deadline_ns, &q, &tail);
	if (r < 0)
		return r;
	r = gantry_wait_seq(session, q, tail, deadline_ns);
	if (r == 0) {
		gantry_desc_put_queue_close(&desc,
					    &(struct gantry_op_queue_close){ .queue = queue });
		r = gantry_control_call(session, &desc, NULL, 0, deadline_ns, &reply);
	}
	if (r < 0) { /* still open, and may be closed again */
		gantry_store_release(&q->handle, queue);
		return r;
	}
	gantry_lock_take(&q->lock);
	gantry_range_put(session, gantry_arena_fini(&q->arena));
	gantry_lock_put(&q->lock);
	return 0;
}
