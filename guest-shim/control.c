/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/str.h"
#include "guest-shim/batch.h"
#include "guest-shim/error.h"
#include "guest-shim/ranges.h"
#include "guest-shim/wait.h"

/* Between two tries of an operation that was answered with AGAIN. */
#define RETRY_FIRST_NS (100 * GANTRY_NS_PER_US)
#define RETRY_MAX_NS   (10 * GANTRY_NS_PER_MS)

/* ---- freed buffers ---- */

static struct gantry_buffer_info *pop_free(struct gantry_session *s)
{
	struct gantry_buffer_info *info;

	pthread_mutex_lock(&s->table_lock);
	info = s->frees;
	if (info) {
		s->frees = info->next;
		if (!s->frees)
			s->frees_end = &s->frees;
		gantry_store_relaxed(&s->nfrees, s->nfrees - 1);
	}
	pthread_mutex_unlock(&s->table_lock);
	return info;
}

/* One freed buffer, into a slot that is there. False if there was no room or no free. */
static bool tell_free(struct gantry_batch *b, bool may_wait, int *ret_status)
{
	struct gantry_buffer_info *info;
	struct gantry_desc *desc;
	struct gantry_inline *inl;

	*ret_status = 0;
	if (gantry_load_relaxed(&b->session->nfrees) == 0)
		return false;
	if (!may_wait && !gantry_batch_has_room(b))
		return false;
	*ret_status = gantry_batch_slot(b, &desc, &inl);
	if (*ret_status < 0)
		return false;
	info = pop_free(b->session);
	/* Frees are popped under the control queue's lock only, so it is still there. */
	gantry_desc_put_buf_free(desc, &(struct gantry_op_buf_free){ .buffer = info->handle });
	free(info);
	return true;
}

/*
 * Whoever adds a free and finds the queue busy leaves it to the holder, so the holder looks again
 * afterwards.
 */
static void tell_frees_if_idle(struct gantry_session *s)
{
	struct gantry_queue_end *q = &s->queues[0];
	bool told = true;

	for (;;) {
		struct gantry_batch b = { .session = s, .queue = q };
		int status;

		/* Pairs with itself: the free is listed before the lock is tried. */
		gantry_fence_full();
		if (!told || gantry_load_relaxed(&s->nfrees) == 0 || !gantry_lock_try(&q->lock))
			return;
		told = false;
		while (tell_free(&b, false, &status))
			told = true;
		gantry_batch_end(&b);
	}
}

void gantry_control_free_buffer(struct gantry_session *s, struct gantry_buffer_info *info)
{
	pthread_mutex_lock(&s->table_lock);
	info->next = NULL;
	*s->frees_end = info;
	s->frees_end = &info->next;
	gantry_store_relaxed(&s->nfrees, s->nfrees + 1);
	pthread_mutex_unlock(&s->table_lock);
	tell_frees_if_idle(s);
}

/* ---- calls ---- */

int gantry_control_bad_reply(struct gantry_session *s, const char *what)
{
	char text[GANTRY_DOOR_TEXT];

	(void)gantry_str_format(text, sizeof(text), "the host's reply makes no sense: %s", what);
	return gantry_session_end(s, GANTRY_E_PROTOCOL, text);
}

static int timed_out(int status)
{
	if (status != GANTRY_E_TIMEOUT && status != GANTRY_E_AGAIN)
		return status;
	return gantry_fail(GANTRY_E_TIMEOUT, "the host did not answer in time");
}

/* The slot's block, copied out and made safe to read. */
static void copy_reply(struct gantry_queue_end *q, uint64_t seq, struct gantry_reply *reply)
{
	const struct gantry_ring_map *map = &q->ring.map;
	int status = gantry_ring_status(map, seq - 1);

	gantry_region_copy_out(reply, map->inl[(seq - 1) & map->mask].bytes, sizeof(*reply));
	reply->text[sizeof(reply->text) - 1] = '\0';
	if (reply->len_bytes > sizeof(reply->data))
		reply->len_bytes = sizeof(reply->data);
	if (status != 0)
		reply->status = status;
	if (reply->status > 0)
		reply->status = GANTRY_E_INTERNAL;
}

static int put_locked(struct gantry_batch *b, const struct gantry_desc *desc, const void *var,
		      uint32_t var_bytes, const struct gantry_range *record)
{
	struct gantry_desc *slot;
	struct gantry_inline *inl;
	int r;

	/* In their order: a range of the heap that @desc names may be one that a free gave back. */
	while (tell_free(b, true, &r))
		;
	if (r < 0)
		return r;
	r = gantry_batch_slot(b, &slot, &inl);
	if (r < 0)
		return r;
	*slot = *desc;
	if (record) {
		gantry_region_copy_in(gantry_range_ptr(b->session, record), var, var_bytes);
		gantry_desc_set_heap(slot, record->off, var_bytes);
	} else if (var_bytes > 0) {
		gantry_region_copy_in(inl->bytes, var, var_bytes);
		gantry_desc_set_inline(slot, var_bytes);
	}
	gantry_batch_flush(b);
	return 0;
}

static int call_once(struct gantry_session *s, const struct gantry_desc *desc, const void *var,
		     uint32_t var_bytes, const struct gantry_range *record, uint64_t deadline_ns,
		     struct gantry_reply *reply)
{
	struct gantry_queue_end *q = &s->queues[0];
	struct gantry_batch b;
	int r = gantry_batch_begin(&b, s, q, deadline_ns);

	if (r < 0)
		return timed_out(r);
	r = put_locked(&b, desc, var, var_bytes, record);
	if (r == 0)
		r = gantry_wait_seq(s, q, gantry_batch_seq(&b), deadline_ns);
	if (r == 0)
		copy_reply(q, gantry_batch_seq(&b), reply);
	gantry_batch_end(&b);
	tell_frees_if_idle(s);
	return timed_out(r);
}

/*
 * The host says AGAIN when memory of freed buffers is not back yet; no word in the segment tells
 * when it is, so this asks again after a while, at most @deadline_ns.
 */
static int call_until(struct gantry_session *s, const struct gantry_desc *desc, const void *var,
		      uint32_t var_bytes, const struct gantry_range *record, uint64_t deadline_ns,
		      struct gantry_reply *reply)
{
	const struct gantry_ring_map *map = &s->queues[0].ring.map;
	uint64_t pause_ns = RETRY_FIRST_NS;

	for (;;) {
		uint64_t now, until_ns;
		int r = call_once(s, desc, var, var_bytes, record, deadline_ns, reply);

		if (r < 0)
			return r;
		now = gantry_now_ns();
		if (reply->status != GANTRY_E_AGAIN || now >= deadline_ns)
			break;
		until_ns = gantry_min_u64(now + pause_ns, deadline_ns);
		gantry_wait_sleep(s, map, UINT64_MAX, until_ns); /* early is fine */
		pause_ns = gantry_min_u64(pause_ns * 2, RETRY_MAX_NS);
	}
	if (reply->status < 0)
		return gantry_fail(reply->status, "%s",
				   reply->text[0] ? reply->text
						  : gantry_status_text(reply->status));
	return 0;
}

int gantry_control_call(struct gantry_session *s, const struct gantry_desc *desc, const void *var,
			uint32_t var_bytes, uint64_t deadline_ns, struct gantry_reply *ret_reply)
{
	struct gantry_range *record = NULL;
	struct gantry_reply reply;
	int r = gantry_session_alive(s);

	if (r < 0)
		return r;
	if (var_bytes > GANTRY_INLINE_BYTES) {
		r = gantry_range_take(s, var_bytes, GANTRY_LINE, deadline_ns, &record);
		if (r < 0)
			return r;
	}
	r = call_until(s, desc, var, var_bytes, record, deadline_ns, &reply);
	gantry_range_put(s, record);
	if (r < 0)
		return r;
	*ret_reply = reply;
	return 0;
}

int gantry_control_call_handle(struct gantry_session *s, const struct gantry_desc *desc,
			       const void *var, uint32_t var_bytes, enum gantry_handle_type type,
			       uint64_t deadline_ns, uint64_t *ret_handle)
{
	struct gantry_reply_handle handle; /* every reply with a handle starts with it */
	struct gantry_reply reply;
	int r = gantry_control_call(s, desc, var, var_bytes, deadline_ns, &reply);

	if (r < 0)
		return r;
	memcpy(&handle, reply.data, sizeof(handle));
	if (reply.len_bytes < sizeof(handle) || GANTRY_HANDLE_TYPE(handle.handle) != type)
		return gantry_control_bad_reply(s, "not the handle that was asked for");
	*ret_handle = handle.handle;
	return 0;
}
