/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that another process began: their keys, their adoption on another host, what they have.
 *
 * The library that began it kept in its own memory which parts of the heap are in use, which buffers there are and where
 * each queue's ring stood. Here that is found anew: buffers and queues are the host's to tell, the rings are in the segment,
 * and so are the tasks that are not finished, with the parts of the heap that they name.
 */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/control.h"
#include "guest-shim/error.h"
#include "guest-shim/handshake.h"
#include "guest-shim/memory.h"
#include "guest-shim/pause.h"
#include "guest-shim/ranges.h"
#include "proto/codec.h"

/* ---- the key ---- */

int gantry_session_key(struct gantry_session *session, uint8_t ret_key[GANTRY_KEY_BYTES])
{
	struct gantry_door_key msg = { 0 };
	struct gantry_door_keyed answer;
	int r = gantry_session_enter(session);

	static_assert(sizeof(answer.key) == GANTRY_KEY_BYTES, "one key, one size");
	if (r < 0)
		return r;
	if (!ret_key)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the key");
	if (!session->takes_keys)
		return gantry_fail(
			GANTRY_E_UNSUPPORTED,
			"this door gives no keys: behind a stream the program follows by "
			"itself, and an older agent knows none");
	gantry_door_header_init(&msg.h, GANTRY_DOOR_KEY, 0);
	r = gantry_session_request(session, &msg, GANTRY_DOOR_KEYED, &answer);
	if (r < 0)
		return r;
	if (answer.status != 0)
		return gantry_fail_plain(answer.status < 0 ? answer.status : GANTRY_E_INTERNAL);
	memcpy(ret_key, answer.key, GANTRY_KEY_BYTES);
	return 0;
}

/* ---- what lies in the heap ---- */

static struct gantry_range *claim(struct gantry_session *s, uint64_t off, uint64_t bytes)
{
	struct gantry_range *range = calloc(1, sizeof(*range));
	int r = -1;

	if (!range)
		return NULL;
	pthread_mutex_lock(&s->heap_lock);
	r = gantry_heap_claim(&s->heap, off, bytes, &range->block);
	pthread_mutex_unlock(&s->heap_lock);
	if (r < 0) {
		free(range);
		return NULL;
	}
	range->off = off;
	range->bytes = bytes;
	return range;
}

/* Nobody has it until what is in the rings now has finished. Parts that are in use already stay so. */
static int leave_alone(struct gantry_session *s, uint64_t off, uint64_t bytes)
{
	uint64_t free_off, free_bytes;

	uint64_t end;

	if (!gantry_range_inside(off, bytes, s->heap.bytes))
		return 0; /* the task will fail of it */
	end = off + bytes;
	while (off < end &&
	       gantry_heap_find_free(&s->heap, off, end - off, &free_off, &free_bytes)) {
		struct gantry_range *range = claim(s, free_off, free_bytes);

		if (!range)
			return gantry_fail_plain(GANTRY_E_NO_MEMORY);
		off = free_off + free_bytes; /* it may be free again already */
		gantry_range_put(s, range);
	}
	return 0;
}

static int leave_of_task(struct gantry_session *s, const struct gantry_desc *desc, bool is_control)
{
	union gantry_op_any args;
	int r = 0;

	if (desc->len_bytes > 0 && !(desc->flags & GANTRY_DESC_INLINE))
		r = leave_alone(s, desc->off_bytes, desc->len_bytes);
	if (r < 0 || gantry_desc_decode(desc, is_control, s->version, &args) != GANTRY_OK)
		return r; /* what is none fails when its turn comes */
	switch (desc->op) {
	case GANTRY_OP_write:
		return leave_alone(s, args.write.heap_off, args.write.bytes);
	case GANTRY_OP_read:
		return leave_alone(s, args.read.heap_off, args.read.bytes);
	case GANTRY_OP_stamp:
		return leave_alone(s, args.stamp.heap_off, sizeof(uint64_t));
	case GANTRY_OP_await:
		return leave_alone(s, args.await.heap_off, sizeof(uint64_t));
	case GANTRY_OP_image_load:
		r = leave_alone(s, args.image_load.heap_off, args.image_load.bytes);
		return r < 0 ? r
			     : leave_alone(s, args.image_load.log_off, args.image_load.log_bytes);
	default:
		return 0;
	}
}

static int leave_of_queue(struct gantry_session *s, struct gantry_queue_end *q)
{
	const struct gantry_ring_map *map = &q->ring.map;
	int r = 0;

	for (uint64_t pos = gantry_ring_done(map); pos < q->ring.tail && r == 0; pos++) {
		struct gantry_desc desc;

		gantry_region_copy_out(&desc, &map->desc[pos & map->mask], sizeof(desc));
		r = leave_of_task(s, &desc, q->slot == 0);
	}
	return r;
}

/* ---- buffers ---- */

static int ask_next(struct gantry_session *s, bool is_queue, uint32_t slot,
		    struct gantry_reply *ret_reply)
{
	struct gantry_desc desc;

	if (is_queue)
		gantry_desc_put_queue_next(&desc, &(struct gantry_op_queue_next){ .slot = slot });
	else
		gantry_desc_put_buf_next(&desc, &(struct gantry_op_buf_next){ .slot = slot });
	return gantry_control_call(s, &desc, NULL, 0, gantry_session_deadline(s), ret_reply);
}

/* Any task in a ring may use it: which do is not known here. */
static void note_uses(struct gantry_session *s, gantry_buffer buffer)
{
	for (uint32_t i = 1; i < s->nqueues; i++) {
		const struct gantry_queue_end *q = &s->queues[i];

		if (gantry_ring_done(&q->ring.map) < q->ring.tail)
			gantry_uses_note_other(s, buffer, GANTRY_TICKET(i, q->ring.tail));
	}
}

static int add_buffer(struct gantry_session *s, const struct gantry_reply_buffer *b)
{
	struct gantry_buffer_info *info = calloc(1, sizeof(*info));
	int r = 0;

	if (!info)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	info->handle = b->handle;
	info->bytes = b->bytes;
	info->flags = b->alloc_flags;
	if (b->alloc_flags & GANTRY_ALLOC_HOST) {
		info->range = claim(s, b->heap_off, b->bytes);
		if (!info->range)
			r = gantry_control_bad_reply(s, "a buffer where another is");
	}
	if (r == 0)
		r = gantry_memory_add(s, info);
	if (r < 0) {
		free(info->range); /* its block goes with the session's heap */
		free(info);
		return r;
	}
	note_uses(s, b->handle);
	return 0;
}

static bool is_buffer(const struct gantry_reply_buffer *b, uint32_t from)
{
	return GANTRY_HANDLE_TYPE(b->handle) == GANTRY_HANDLE_BUFFER && b->slot >= from &&
	       b->slot < UINT32_MAX && b->bytes > 0 && b->bytes <= GANTRY_MAX_BUFFER_BYTES;
}

static int find_buffers(struct gantry_session *s)
{
	for (uint32_t slot = 0;;) {
		struct gantry_reply_buffer b;
		struct gantry_reply reply;
		int r = ask_next(s, false, slot, &reply);

		if (r < 0)
			return r;
		memcpy(&b, reply.data, sizeof(b));
		if (reply.len_bytes < sizeof(b))
			return gantry_control_bad_reply(s, "a buffer cut short");
		if (b.handle == 0)
			return 0;
		if (!is_buffer(&b, slot))
			return gantry_control_bad_reply(s, "a buffer that is none");
		if (!b.is_dying)
			r = add_buffer(s, &b);
		else if (b.alloc_flags & GANTRY_ALLOC_HOST)
			r = leave_alone(s, b.heap_off, b.bytes);
		if (r < 0)
			return r;
		slot = b.slot + 1;
	}
}

/* ---- queues ---- */

static void add_queue(struct gantry_session *s, const struct gantry_reply_queue_state *state)
{
	struct gantry_queue_end *q = &s->queues[state->slot];

	q->kind = state->kind;
	if (gantry_load_relaxed(&q->ring.map.area->is_own) && !s->copy_queue)
		s->copy_queue = state->handle;
	gantry_store_release(&q->handle, state->handle);
}

static int find_queues(struct gantry_session *s)
{
	for (uint32_t slot = 1;;) {
		struct gantry_reply_queue_state state;
		struct gantry_reply reply;
		int r = ask_next(s, true, slot, &reply);

		if (r < 0)
			return r;
		memcpy(&state, reply.data, sizeof(state));
		if (reply.len_bytes < sizeof(state))
			return gantry_control_bad_reply(s, "a queue cut short");
		if (state.handle == 0)
			return 0;
		if (GANTRY_HANDLE_TYPE(state.handle) != GANTRY_HANDLE_QUEUE ||
		    state.kind >= GANTRY_NKINDS || state.slot < slot || state.slot >= s->nqueues)
			return gantry_control_bad_reply(s, "a queue that is none");
		add_queue(s, &state);
		slot = state.slot + 1;
	}
}

/* ---- adoption ---- */

static int find_all(struct gantry_session *s)
{
	int r = find_buffers(s);

	for (uint32_t i = 0; i < s->nqueues && r == 0; i++)
		r = leave_of_queue(s, &s->queues[i]);
	return r == 0 ? find_queues(s) : r;
}

int gantry_session_adopt_transport(const struct gantry_transport_ops *ops, void *cookie,
				   const struct gantry_door_hello *hello, uint64_t deadline_ns,
				   struct gantry_session **ret_session)
{
	struct gantry_session *s = NULL;
	int r;

	if (ops->is_pumped) {
		ops->close(cookie);
		return gantry_fail(GANTRY_E_UNSUPPORTED,
				   "behind a stream nobody adopts: the program itself follows");
	}
	r = gantry_session_begin(ops, cookie, hello, GANTRY_CALL_TIMEOUT_NS, deadline_ns, &s);
	if (r == GANTRY_HANDSHAKE_ANEW)
		return r;
	if (r == GANTRY_E_PROTOCOL)
		return gantry_fail(GANTRY_E_VERSION,
				   "the agent at this door knows no sessions that are adopted");
	if (r == 0)
		r = find_all(s);
	if (r < 0) {
		gantry_close(s);
		return r;
	}
	*ret_session = s;
	return 0;
}

/*
 * Nobody came within the agent's patience, which may be less than ours; or the agent went: the session, held there or on its way,
 * waits for this key at the next one.
 */
static bool is_worth_another_try(int status, bool was_there, bool waits)
{
	return status == GANTRY_E_TIMEOUT || status == GANTRY_HANDSHAKE_ANEW ||
	       (status == GANTRY_E_NO_AGENT && was_there && waits);
}

int gantry_session_adopt(const char *where, const uint8_t key[GANTRY_KEY_BYTES], int64_t timeout_ns,
			 struct gantry_session **ret_session)
{
	uint64_t deadline_ns = gantry_deadline_ns(timeout_ns ? timeout_ns : GANTRY_CALL_TIMEOUT_NS);
	const struct gantry_transport_ops *ops = NULL;
	struct gantry_pause pause = gantry_pause_until(deadline_ns);
	struct gantry_door_hello hello;
	bool was_there;
	void *cookie;
	int r;

	if (!key || !ret_session || timeout_ns < GANTRY_FOREVER)
		return gantry_fail_plain(GANTRY_E_ARG);
	gantry_session_greeting(NULL, &hello);
	hello.flags = GANTRY_HELLO_ADOPT | (timeout_ns ? GANTRY_HELLO_WAIT : 0);
	memcpy(hello.nonce, key, GANTRY_KEY_BYTES);
	do {
		r = gantry_session_reach(where, deadline_ns, &ops, &cookie);
		was_there = r == 0;
		if (r == 0)
			r = gantry_session_adopt_transport(ops, cookie, &hello, deadline_ns,
							   ret_session);
	} while (is_worth_another_try(r, was_there, timeout_ns != 0) && gantry_pause(&pause));
	if ((r == GANTRY_E_NO_AGENT || r == GANTRY_HANDSHAKE_ANEW) &&
	    gantry_deadline_passed(deadline_ns))
		return gantry_fail(GANTRY_E_TIMEOUT, "no session with this key came in time");
	return r;
}

/* ---- what there is ---- */

int gantry_buffer_next(struct gantry_session *session, gantry_buffer after,
		       struct gantry_buffer_found *ret_found)
{
	const struct gantry_buffer_info *next = NULL;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_found)
		return gantry_fail_plain(GANTRY_E_ARG);
	pthread_mutex_lock(&session->table_lock);
	for (uint32_t i = 0; i < session->buffers.nbuckets; i++)
		for (const struct gantry_buffer_info *b = session->buffers.buckets[i]; b;
		     b = b->next)
			if ((!after || GANTRY_HANDLE_SLOT(b->handle) > GANTRY_HANDLE_SLOT(after)) &&
			    (!next ||
			     GANTRY_HANDLE_SLOT(b->handle) < GANTRY_HANDLE_SLOT(next->handle)))
				next = b;
	if (next)
		*ret_found = (struct gantry_buffer_found){ .buffer = next->handle,
							   .bytes = next->bytes,
							   .flags = next->flags };
	pthread_mutex_unlock(&session->table_lock);
	return next != NULL;
}

int gantry_queue_next(struct gantry_session *session, gantry_queue after,
		      struct gantry_queue_found *ret_found)
{
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (!ret_found)
		return gantry_fail_plain(GANTRY_E_ARG);
	for (uint32_t i = after ? GANTRY_HANDLE_SLOT(after) + 1 : 1; i < session->nqueues; i++) {
		struct gantry_queue_end *q = &session->queues[i];
		gantry_queue handle = gantry_load_acquire(&q->handle);

		if (!handle || handle == gantry_load_relaxed(&session->copy_queue))
			continue;
		*ret_found = (struct gantry_queue_found){
			.queue = handle,
			.submitted = gantry_load_acquire(&q->tail),
			.finished = gantry_ring_done(&q->ring.map),
			.slot = i,
			.kind = gantry_load_relaxed(&q->kind),
		};
		return 1;
	}
	return 0;
}
