/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/relay/bridge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/cleanup.h"

GANTRY_DEFINE_CLEANUP(struct gantry_bridge *, gantry_bridge_free);

/* ---- life ---- */

/*
 * Where the segment is: a session that had another relay, or another host, goes on. What was put is in its slots; all
 * that is finished may have been told. The segment is as far as the worker's word goes, no further.
 */
static int take_up(struct gantry_bridge_queue *q)
{
	uint64_t tail = gantry_load_relaxed(&q->map.area->tail);
	uint64_t done = gantry_ring_done(&q->map);

	if (tail - done > q->map.nslots)
		return -EINVAL;
	q->tail = tail;
	q->told = done;
	for (uint64_t pos = tail - gantry_min_u64(tail, q->map.nslots); pos < tail; pos++)
		gantry_region_copy_out(&q->desc[pos & q->map.mask], &q->map.desc[pos & q->map.mask],
				       sizeof(*q->desc));
	return 0;
}

static int init_queues(struct gantry_bridge *b, uint64_t queues_off)
{
	for (uint32_t i = 0; i < b->nqueues; i++) {
		struct gantry_bridge_queue *q = &b->queues[i];

		if (gantry_ring_map_init(&q->map, &b->segment, queues_off, i, b->nslots) < 0)
			return -EINVAL;
		q->desc = calloc(b->nslots, sizeof(*q->desc));
		if (!q->desc)
			return -ENOMEM;
		if (take_up(q) < 0)
			return -EINVAL;
	}
	return 0;
}

struct gantry_bridge *gantry_bridge_new(void *base, const struct gantry_segment_layout *layout,
					uint32_t grace_ms,
					const struct gantry_bridge_events *events)
{
	_cleanup_(gantry_bridge_freep) struct gantry_bridge *b =
		aligned_alloc(_Alignof(struct gantry_bridge), sizeof(*b));

	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	b->segment = (struct gantry_region){ base, layout->segment_bytes };
	b->heap = (struct gantry_region){ (uint8_t *)base + layout->heap_off, layout->heap_bytes };
	b->header = base;
	b->nqueues = layout->nqueues;
	b->nslots = layout->nslots;
	b->grace_ms = grace_ms;
	b->events = events;
	b->sock = -EBADF;
	if (init_queues(b, layout->queues_off) < 0)
		return NULL;
	return GANTRY_TAKE_PTR(b);
}

void gantry_bridge_free(struct gantry_bridge *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->nqueues; i++)
		free(b->queues[i].desc);
	free(b);
}

/* ---- the stream ---- */

static void put_positions(struct gantry_bridge *b)
{
	uint32_t bytes =
		(uint32_t)(sizeof(struct gantry_stream_positions) + b->nqueues * sizeof(uint64_t));
	struct gantry_stream_positions *p = gantry_stream_tx_room(&b->tx, bytes);
	uint64_t *at;

	gantry_stream_header_init(&p->h, GANTRY_STREAM_POSITIONS, bytes, 0);
	p->heap_bytes = b->heap.bytes;
	p->nqueues = b->nqueues;
	p->grace_ms = b->grace_ms;
	at = (uint64_t *)(p + 1);
	for (uint32_t i = 0; i < b->nqueues; i++)
		at[i] = b->queues[i].tail;
	gantry_stream_tx_add(&b->tx, bytes);
}

void gantry_bridge_connect(struct gantry_bridge *b, int sock,
			   const struct gantry_door_welcome *welcome)
{
	gantry_stream_rx_init(&b->rx);
	gantry_stream_tx_init(&b->tx);
	b->sock = sock;
	b->in_step = false;
	/* An empty buffer has room for both. */
	(void)gantry_stream_tx_put(&b->tx, welcome, sizeof(*welcome));
	put_positions(b);
}

void gantry_bridge_disconnect(struct gantry_bridge *b)
{
	b->sock = -EBADF;
	b->in_step = false;
}

static int complain(struct gantry_bridge *b, const char *text)
{
	b->complaint = text;
	return -EPROTO;
}

/* ---- from the guest ---- */

static void *payload_place(void *cookie, uint64_t heap_off, uint32_t bytes)
{
	struct gantry_bridge *b = cookie;
	void *ptr;

	if (!b->in_step || gantry_region_span(&b->heap, heap_off, bytes, 1, &ptr) < 0) {
		(void)complain(b, "data for a place outside the heap");
		return NULL;
	}
	b->bytes_in += bytes;
	return ptr;
}

/* What it has seen finished is not told again; what it has not seen is, from the segment, where it still is. */
static int take_positions(struct gantry_bridge *b, const struct gantry_stream_positions *p)
{
	const uint64_t *at = (const uint64_t *)(p + 1);

	if (b->in_step || p->heap_bytes != 0 || p->grace_ms != 0 || p->nqueues != b->nqueues ||
	    p->h.tag != 0 || p->h.len_bytes != sizeof(*p) + b->nqueues * sizeof(*at))
		return complain(b, "positions that are none of this session's");
	for (uint32_t i = 0; i < b->nqueues; i++)
		if (at[i] > b->queues[i].told || at[i] + b->nslots < b->queues[i].tail)
			return complain(b, "tasks that it was never told of are finished for it");
	for (uint32_t i = 0; i < b->nqueues; i++) {
		b->queues[i].told = at[i];
		b->queues[i].data_sent = 0;
	}
	b->in_step = true;
	b->state = UINT32_MAX; /* it is told anew */
	return 0;
}

/* One task of a PUT into its slot. Bytes it takes of the frame, or -EPROTO. */
static int take_task(struct gantry_bridge *b, struct gantry_bridge_queue *q, uint64_t pos,
		     const uint8_t *at, uint32_t left)
{
	uint32_t slot = (uint32_t)pos & q->map.mask;
	struct gantry_desc *desc = &q->desc[slot];
	uint32_t inl = 0;

	if (left < sizeof(*desc))
		return complain(b, "a task that is cut short");
	if (pos >= q->told + b->nslots)
		return complain(b, "more tasks than its ring has slots");
	memcpy(desc, at, sizeof(*desc));
	if (desc->flags & GANTRY_DESC_INLINE) {
		inl = desc->len_bytes;
		if (inl > GANTRY_INLINE_BYTES || gantry_stream_pad(inl) > left - sizeof(*desc))
			return complain(b, "an inline part that is cut short");
		gantry_region_copy_in(q->map.inl[slot].bytes, at + sizeof(*desc), inl);
	}
	gantry_region_copy_in(&q->map.desc[slot], desc, sizeof(*desc));
	return (int)(sizeof(*desc) + gantry_stream_pad(inl));
}

static void publish(struct gantry_bridge *b, struct gantry_bridge_queue *q, uint64_t tail)
{
	b->tasks += tail - q->tail;
	q->tail = tail;
	/* Release: pairs with the acquire in gantry_ring_ready(); the slots before tail are filled. */
	gantry_store_release(&q->map.area->tail, tail);
	(void)gantry_fetch_add(&b->header->bell, 1);
	if (gantry_ring_must_kick(&q->map))
		b->events->ring_bell(b->events->cookie);
}

static int take_put(struct gantry_bridge *b, const struct gantry_stream_put *put)
{
	const uint8_t *at = (const uint8_t *)(put + 1);
	uint32_t left = put->h.len_bytes - (uint32_t)sizeof(*put);
	struct gantry_bridge_queue *q;
	uint64_t pos = put->pos;

	if (put->h.tag >= b->nqueues)
		return complain(b, "tasks for a queue that it does not have");
	q = &b->queues[put->h.tag];
	if (pos != q->tail)
		return complain(b, "tasks at a place that is not the next");
	while (left > 0) {
		int used = take_task(b, q, pos, at, left);

		if (used < 0)
			return used;
		at += used;
		left -= (uint32_t)used;
		pos++;
	}
	publish(b, q, pos);
	return 0;
}

/* One that comes again after the stream broke is the same one: it is answered, not asked twice. */
static int take_request(struct gantry_bridge *b, const struct gantry_door_header *msg)
{
	if (msg->tag == 0)
		return complain(b, "a request without a tag");
	if (msg->tag == b->request) {
		b->answer_is_due = b->answer_bytes > 0;
		return 0;
	}
	if (msg->tag < b->request)
		return complain(b, "a request with a tag of before");
	b->request = msg->tag;
	b->answer_bytes = 0;
	return b->events->request(b->events->cookie, msg) < 0
		       ? complain(b, "a request that cannot be passed on")
		       : 0;
}

static int take_frame(void *cookie, const struct gantry_door_header *frame)
{
	struct gantry_bridge *b = cookie;
	uint16_t kind;

	if (frame->kind == GANTRY_STREAM_POSITIONS)
		return take_positions(b, (const void *)frame);
	if (!b->in_step)
		return complain(b, "a frame before its positions");
	if (frame->kind == GANTRY_STREAM_PUT)
		return take_put(b, (const void *)frame);
	if (frame->kind == GANTRY_STREAM_BYE) {
		b->is_left = true;
		return 0;
	}
	if ((frame->kind == GANTRY_DOOR_SHARE || frame->kind == GANTRY_DOOR_ADOPT) &&
	    gantry_door_check(frame, frame->len_bytes, &kind) == 0)
		return take_request(b, frame);
	return complain(b, "a frame that guests do not send");
}

int gantry_bridge_receive(struct gantry_bridge *b)
{
	const struct gantry_stream_sink sink = {
		.cookie = b,
		.payload = payload_place,
		.frame = take_frame,
	};
	int r;

	b->complaint = NULL;
	r = gantry_stream_receive(&b->rx, b->sock, false, &sink);
	if (r == -EPROTO && !b->complaint)
		b->complaint = "a frame that is none";
	return r;
}

/* ---- to the guest ---- */

/* Finished tasks, bounded by what was put: it may be a broken worker's word. */
static uint64_t done_of(const struct gantry_bridge_queue *q)
{
	return gantry_min_u64(gantry_ring_done(&q->map), q->tail);
}

/* What the task at @pos wrote to the heap. */
static uint64_t writes_of(const struct gantry_bridge *b, const struct gantry_bridge_queue *q,
			  uint64_t pos, struct gantry_stream_range *ret_range)
{
	if (gantry_stream_writes(&q->desc[pos & q->map.mask], gantry_ring_status(&q->map, pos),
				 b->heap.bytes, ret_range) == 0)
		return 0;
	return ret_range->bytes;
}

static int put_state(struct gantry_bridge *b)
{
	/* Acquire: pairs with the host's release of the state; the reason is written before it. */
	uint32_t state = gantry_load_acquire(&b->header->state);
	uint64_t epoch = gantry_load_relaxed(&b->header->epoch);
	struct gantry_stream_state msg = {
		.state = state,
		.reason = gantry_load_relaxed(&b->header->reason),
		.epoch = epoch,
	};
	int r;

	if (state == b->state && epoch == b->epoch)
		return 0;
	gantry_stream_header_init(&msg.h, GANTRY_STREAM_STATE, sizeof(msg), 0);
	r = gantry_stream_tx_put(&b->tx, &msg, sizeof(msg));
	if (r < 0)
		return r;
	b->state = state;
	b->epoch = epoch;
	return 0;
}

/* The next piece of what the oldest untold task wrote. */
static int put_piece(struct gantry_bridge *b, struct gantry_bridge_queue *q,
		     const struct gantry_stream_range *range)
{
	uint64_t off = range->off + q->data_sent;
	uint64_t bytes = gantry_min_u64(range->bytes - q->data_sent, GANTRY_STREAM_CHUNK);
	int r = gantry_stream_tx_data(&b->tx, off, b->heap.base + off, (uint32_t)bytes);

	if (r < 0)
		return r;
	q->data_sent += bytes;
	b->bytes_out += bytes;
	return 1;
}

/* How many from ->told on can be told in one frame: up to one whose data has yet to go. */
static uint32_t run_length(const struct gantry_bridge *b, const struct gantry_bridge_queue *q,
			   uint64_t done, bool *ret_any_status)
{
	uint32_t each = sizeof(uint32_t) + (q == b->queues ? sizeof(struct gantry_reply) : 0);
	uint32_t most = (GANTRY_STREAM_FRAME_MAX - sizeof(struct gantry_stream_done) - 8) / each;
	struct gantry_stream_range range;
	uint32_t n = 0;

	*ret_any_status = false;
	while (n < most && q->told + n < done) {
		if (n > 0 && writes_of(b, q, q->told + n, &range) > 0)
			break;
		*ret_any_status |= gantry_ring_status(&q->map, q->told + n) != 0;
		n++;
	}
	return n;
}

static int put_done(struct gantry_bridge *b, struct gantry_bridge_queue *q, uint64_t done)
{
	bool any_status;
	uint32_t n = run_length(b, q, done, &any_status);
	uint32_t nstatuses = any_status ? n : 0;
	uint32_t statuses = gantry_stream_pad(nstatuses * (uint32_t)sizeof(uint32_t));
	uint32_t replies = q == b->queues ? n * (uint32_t)sizeof(struct gantry_reply) : 0;
	uint32_t bytes = (uint32_t)sizeof(struct gantry_stream_done) + statuses + replies;
	struct gantry_stream_done *msg = gantry_stream_tx_room(&b->tx, bytes);
	uint32_t *status;
	uint8_t *reply;

	if (!msg)
		return -EAGAIN;
	gantry_stream_header_init(&msg->h, GANTRY_STREAM_DONE, bytes, (uint32_t)(q - b->queues));
	msg->pos = q->told;
	msg->nfailed = gantry_ring_nfailed(&q->map);
	msg->n = n;
	msg->nstatuses = nstatuses;
	status = (uint32_t *)(msg + 1);
	memset(status, 0, statuses);
	for (uint32_t i = 0; i < nstatuses; i++)
		status[i] = (uint32_t)-gantry_ring_status(&q->map, q->told + i);
	reply = (uint8_t *)status + statuses;
	for (uint32_t i = 0; i < n && replies > 0; i++, reply += sizeof(struct gantry_reply))
		gantry_region_copy_out(reply, q->map.inl[(q->told + i) & q->map.mask].bytes,
				       sizeof(struct gantry_reply));
	gantry_stream_tx_add(&b->tx, bytes);
	q->told += n;
	q->data_sent = 0;
	return 1;
}

/* A piece of one queue's news: 1; 0: it has none; -EAGAIN. */
static int put_news(struct gantry_bridge *b, struct gantry_bridge_queue *q)
{
	uint64_t done = done_of(q);
	struct gantry_stream_range range;

	if (done <= q->told)
		return 0;
	if (writes_of(b, q, q->told, &range) > q->data_sent)
		return put_piece(b, q, &range);
	return put_done(b, q, done);
}

/* By turns: large data of one queue does not hold up the others. 0: nothing is left to say. */
static int put_next(struct gantry_bridge *b)
{
	for (uint32_t i = 0; i < b->nqueues; i++) {
		uint32_t slot = (b->next + i) % b->nqueues;
		int r = put_news(b, &b->queues[slot]);

		if (r > 0)
			b->next = slot + 1;
		if (r != 0)
			return r;
	}
	return 0;
}

static int put_door(struct gantry_bridge *b)
{
	int r = 0;

	if (b->answer_is_due)
		r = gantry_stream_tx_put(&b->tx, b->answer, b->answer_bytes);
	if (r == 0)
		b->answer_is_due = false;
	if (r == 0 && b->notice_is_due)
		r = gantry_stream_tx_put(&b->tx, &b->notice, sizeof(b->notice));
	if (r == 0)
		b->notice_is_due = false;
	return r;
}

/* Fills the buffer. 0: with all there is to say. */
static int put_all(struct gantry_bridge *b)
{
	int r;

	if (!b->in_step)
		return 0;
	r = put_door(b);
	if (r == 0)
		r = put_state(b);
	if (r == 0)
		do {
			r = put_next(b);
		} while (r > 0);
	return r;
}

int gantry_bridge_send(struct gantry_bridge *b)
{
	for (;;) {
		int filled = put_all(b);
		int r = gantry_stream_flush(&b->tx, b->sock);

		if (r < 0 || filled == 0)
			return r;
	}
}

void gantry_bridge_forward(struct gantry_bridge *b, const struct gantry_door_header *msg)
{
	if (msg->kind == GANTRY_DOOR_NOTICE && msg->len_bytes == sizeof(b->notice)) {
		memcpy(&b->notice, msg, sizeof(b->notice));
		b->notice_is_due = true;
	} else if (msg->tag == b->request && msg->len_bytes <= sizeof(b->answer)) {
		memcpy(b->answer, msg, msg->len_bytes);
		b->answer_bytes = msg->len_bytes;
		b->answer_is_due = true;
	}
}

/* ---- waiting ---- */

bool gantry_bridge_has_news(const struct gantry_bridge *b)
{
	if (!b->in_step)
		return false;
	if (b->answer_is_due || b->notice_is_due)
		return true;
	if (gantry_load_acquire(&b->header->state) != b->state ||
	    gantry_load_relaxed(&b->header->epoch) != b->epoch)
		return true;
	for (uint32_t i = 0; i < b->nqueues; i++)
		if (done_of(&b->queues[i]) > b->queues[i].told)
			return true;
	return false;
}

bool gantry_bridge_is_busy(const struct gantry_bridge *b)
{
	for (uint32_t i = 0; i < b->nqueues; i++)
		if (b->queues[i].tail > b->queues[i].told)
			return true;
	return false;
}

bool gantry_bridge_wait_enter(struct gantry_bridge *b)
{
	if (!b->is_waiting)
		for (uint32_t i = 0; i < b->nqueues; i++)
			gantry_store_relaxed(&b->queues[i].map.area->waiters, 1u);
	b->is_waiting = true;
	/* Full fence: pairs with the one in gantry_ring_must_wake(). The host sees us wait or we see done. */
	gantry_fence_full();
	return !gantry_bridge_has_news(b);
}

void gantry_bridge_wait_leave(struct gantry_bridge *b)
{
	if (b->is_waiting)
		for (uint32_t i = 0; i < b->nqueues; i++)
			gantry_store_relaxed(&b->queues[i].map.area->waiters, 0u);
	b->is_waiting = false;
}
