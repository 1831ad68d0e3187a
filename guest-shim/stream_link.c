/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/stream_link.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"

#define LOADING_NS GANTRY_NS_PER_S

/* ---- memory ---- */

static int map_memory(struct gantry_link *l, uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return -ENOMEM;
	l->segment = (struct gantry_region){ base, bytes };
	return madvise(base, bytes, MADV_DONTFORK) < 0 ? -errno : 0;
}

int gantry_link_init(struct gantry_link *l, const struct gantry_door_welcome *w)
{
	struct gantry_segment_layout layout;
	int r;

	*l = (struct gantry_link){ 0 };
	if (gantry_segment_layout_of(w->nqueues, w->nslots, w->segment_bytes, &layout) < 0)
		return -EPROTO;
	r = map_memory(l, layout.segment_bytes);
	if (r < 0)
		return r;
	l->heap = (struct gantry_region){ l->segment.base + layout.heap_off, layout.heap_bytes };
	l->header = (struct gantry_segment_header *)l->segment.base;
	l->nqueues = layout.nqueues;
	l->nslots = layout.nslots;
	gantry_segment_header_init(l->header, &layout, w->version, w->session_id);
	for (uint32_t i = 0; i < l->nqueues; i++) {
		if (gantry_ring_map_init(&l->queues[i].map, &l->segment, layout.queues_off, i,
					 l->nslots) < 0)
			return -EPROTO;
		/* For good: whatever is put has to be sent, so the transport is told each time. */
		gantry_store_relaxed(&l->queues[i].map.area->parked, 1u);
	}
	return 0;
}

void gantry_link_fini(struct gantry_link *l, bool is_ours)
{
	if (l->segment.base && is_ours)
		(void)munmap(l->segment.base, l->segment.bytes); /* a mapping of ours */
	l->segment = (struct gantry_region){ 0 };
}

/* ---- positions ---- */

int gantry_link_put_positions(const struct gantry_link *l, struct gantry_stream_tx *tx)
{
	uint32_t bytes =
		(uint32_t)(sizeof(struct gantry_stream_positions) + l->nqueues * sizeof(uint64_t));
	struct gantry_stream_positions *p = gantry_stream_tx_room(tx, bytes);
	uint64_t *at;

	if (!p)
		return -EAGAIN;
	*p = (struct gantry_stream_positions){ .nqueues = l->nqueues };
	gantry_stream_header_init(&p->h, GANTRY_STREAM_POSITIONS, bytes, 0);
	at = (uint64_t *)(p + 1);
	for (uint32_t i = 0; i < l->nqueues; i++)
		at[i] = gantry_ring_done(&l->queues[i].map);
	gantry_stream_tx_add(tx, bytes);
	return 0;
}

int gantry_link_restart(struct gantry_link *l, const struct gantry_stream_positions *p)
{
	const uint64_t *at = (const uint64_t *)(p + 1);

	if (p->nqueues != l->nqueues || p->heap_bytes != l->heap.bytes ||
	    p->h.len_bytes != sizeof(*p) + l->nqueues * sizeof(*at))
		return -EPROTO;
	/* What it says it has was sent once, and what finished it must have had. */
	for (uint32_t i = 0; i < l->nqueues; i++)
		if (at[i] > l->queues[i].sent || at[i] < gantry_ring_done(&l->queues[i].map))
			return -EPROTO;
	for (uint32_t i = 0; i < l->nqueues; i++) {
		gantry_store_relaxed(&l->queues[i].sent, at[i]);
		l->queues[i].data_sent = 0;
	}
	l->control_end = at[0];
	return 0;
}

/* ---- sending ---- */

static uint64_t tail_of(const struct gantry_link_queue *q)
{
	/* Acquire: pairs with the release in gantry_ring_publish(); the slots before tail are filled. */
	return gantry_load_acquire(&q->map.area->tail);
}

/* Whether the tasks that a wait names have gone, where they are this session's. */
static bool waited_for_went(const struct gantry_link *l, const struct gantry_link_queue *q,
			    const struct gantry_desc *desc)
{
	struct gantry_op_wait wait;
	uint64_t tickets[sizeof(wait) / sizeof(uint64_t)];

	if (desc->op != GANTRY_OP_wait)
		return true;
	memcpy(tickets, desc->imm, sizeof(tickets));
	for (size_t i = 0; i < sizeof(tickets) / sizeof(tickets[0]); i++) {
		uint32_t slot = GANTRY_TICKET_QUEUE(tickets[i]);
		const struct gantry_link_queue *other = &l->queues[slot % GANTRY_MAX_QUEUES];
		uint64_t seq = GANTRY_TICKET_SEQ(tickets[i]);

		/* What is not put is the host's to refuse. */
		if (slot < l->nqueues && other != q && seq > other->sent && seq <= tail_of(other))
			return false;
	}
	return true;
}

/* Control operations that are put now come after all tasks that are put now. */
static bool control_may_go(struct gantry_link *l, uint64_t tail)
{
	struct gantry_link_queue *control = &l->queues[0];

	if (control->sent == l->control_end) {
		l->control_end = tail;
		for (uint32_t i = 1; i < l->nqueues; i++)
			l->queues[i].barrier = tail_of(&l->queues[i]);
	}
	for (uint32_t i = 1; i < l->nqueues; i++)
		if (l->queues[i].sent < l->queues[i].barrier)
			return false;
	return true;
}

/* Both sides use it at once: a copy counts only if nothing changed meanwhile. */
static bool is_loading(const struct gantry_link *l, const struct gantry_desc *desc)
{
	uint64_t imm[sizeof(l->loading) / sizeof(l->loading[0])];
	bool is_it = true;
	uint64_t until_ns;

	if (desc->op != GANTRY_OP_image_load)
		return false;
	memcpy(imm, desc->imm, sizeof(imm));
	/* Acquire: pairs with the release in note_loading(). */
	until_ns = gantry_load_acquire(&l->loading_until_ns);
	for (size_t i = 0; i < sizeof(imm) / sizeof(imm[0]); i++)
		is_it &= gantry_load_acquire(&l->loading[i]) == imm[i];
	return is_it && until_ns == gantry_load_relaxed(&l->loading_until_ns) &&
	       until_ns > gantry_now_ns();
}

/* The part of the heap that is to go next for @desc, of which @skip bytes went. false: all went. */
static bool next_piece(const struct gantry_link *l, const struct gantry_desc *desc, uint64_t skip,
		       struct gantry_stream_range *ret_piece)
{
	struct gantry_stream_range ranges[GANTRY_STREAM_NRANGES];
	unsigned int n;

	if (is_loading(l, desc))
		return false;
	n = gantry_stream_reads(desc, l->heap.bytes, ranges);
	for (unsigned int i = 0; i < n; i++) {
		if (skip < ranges[i].bytes) {
			ret_piece->off = ranges[i].off + skip;
			ret_piece->bytes = gantry_min_u64(ranges[i].bytes - skip,
							  GANTRY_STREAM_CHUNK);
			return true;
		}
		skip -= ranges[i].bytes;
	}
	return false;
}

static int put_piece(struct gantry_link *l, struct gantry_link_queue *q,
		     const struct gantry_stream_range *piece, struct gantry_stream_tx *tx)
{
	int r = gantry_stream_tx_data(tx, piece->off, l->heap.base + piece->off,
				      (uint32_t)piece->bytes);

	if (r < 0)
		return r;
	q->data_sent += piece->bytes;
	l->bytes_out += piece->bytes;
	return 1;
}

static uint32_t task_bytes(const struct gantry_desc *desc)
{
	uint32_t inl = desc->flags & GANTRY_DESC_INLINE ? desc->len_bytes : 0;

	return (uint32_t)sizeof(*desc) + gantry_stream_pad(inl);
}

/* As many tasks as go in one frame: the first, and what follows without data of its own and without a wait ahead of others. */
static int put_tasks(struct gantry_link *l, struct gantry_link_queue *q, uint64_t end,
		     struct gantry_stream_tx *tx)
{
	struct gantry_stream_range piece;
	struct gantry_stream_put *put;
	uint32_t bytes = sizeof(*put);
	uint64_t pos = q->sent;
	uint8_t *at;

	put = gantry_stream_tx_room(tx, bytes + sizeof(struct gantry_desc) + GANTRY_INLINE_BYTES);
	if (!put)
		return -EAGAIN;
	at = (uint8_t *)(put + 1);
	do {
		const struct gantry_desc *desc = &q->map.desc[pos & q->map.mask];
		uint32_t inl = task_bytes(desc) - (uint32_t)sizeof(*desc);

		if (pos > q->sent &&
		    (next_piece(l, desc, 0, &piece) || !waited_for_went(l, q, desc) ||
		     !gantry_stream_tx_room(tx, bytes + task_bytes(desc)) ||
		     bytes + task_bytes(desc) > GANTRY_STREAM_FRAME_MAX))
			break;
		memcpy(at, desc, sizeof(*desc));
		if (inl > 0) {
			memset(at + sizeof(*desc) + inl - 8, 0, 8);
			memcpy(at + sizeof(*desc), q->map.inl[pos & q->map.mask].bytes,
			       desc->len_bytes);
		}
		at += task_bytes(desc);
		bytes += task_bytes(desc);
		pos++;
	} while (pos < end);
	gantry_stream_header_init(&put->h, GANTRY_STREAM_PUT, bytes, (uint32_t)(q - l->queues));
	put->pos = q->sent;
	gantry_stream_tx_add(tx, bytes);
	gantry_store_relaxed(&q->sent, pos);
	q->data_sent = 0;
	return 1;
}

static int put_queue(struct gantry_link *l, struct gantry_link_queue *q,
		     struct gantry_stream_tx *tx)
{
	uint64_t tail = tail_of(q);
	struct gantry_stream_range piece;
	const struct gantry_desc *desc = &q->map.desc[q->sent & q->map.mask];

	if (q->sent == tail)
		return 0;
	if (q == l->queues) {
		if (!control_may_go(l, tail))
			return 0;
		tail = l->control_end;
	}
	if (!waited_for_went(l, q, desc))
		return 0;
	if (next_piece(l, desc, q->data_sent, &piece))
		return put_piece(l, q, &piece, tx);
	return put_tasks(l, q, tail, tx);
}

int gantry_link_put_next(struct gantry_link *l, struct gantry_stream_tx *tx)
{
	for (uint32_t i = 0; i < l->nqueues; i++) {
		uint32_t slot = (l->next + i) % l->nqueues;
		int r = put_queue(l, &l->queues[slot], tx);

		if (r > 0)
			l->next = slot + 1;
		if (r != 0)
			return r;
	}
	return 0;
}

bool gantry_link_has_more(const struct gantry_link *l)
{
	for (uint32_t i = 0; i < l->nqueues; i++)
		if (tail_of(&l->queues[i]) != gantry_load_relaxed(&l->queues[i].sent))
			return true;
	return false;
}

/* ---- receiving ---- */

void *gantry_link_place(struct gantry_link *l, uint64_t heap_off, uint32_t bytes)
{
	void *ptr;

	return gantry_region_span(&l->heap, heap_off, bytes, 1, &ptr) < 0 ? NULL : ptr;
}

static void forget_loading(struct gantry_link *l)
{
	gantry_store_relaxed(&l->loading_until_ns, 0u);
	gantry_fence_full(); /* before any word changes: pairs with the acquires in is_loading() */
}

static void note_loading(struct gantry_link *l, const struct gantry_desc *desc)
{
	uint64_t imm[sizeof(l->loading) / sizeof(l->loading[0])];

	memcpy(imm, desc->imm, sizeof(imm));
	for (size_t i = 0; i < sizeof(imm) / sizeof(imm[0]); i++)
		gantry_store_relaxed(&l->loading[i], imm[i]);
	/* Release: pairs with the acquire in is_loading(). */
	gantry_store_release(&l->loading_until_ns, gantry_now_ns() + LOADING_NS);
}

/* Replies of the control queue; one that says "ask again" about an image is remembered. */
static void take_replies(struct gantry_link *l, const struct gantry_stream_done *d,
			 const uint8_t *replies, const uint32_t *statuses)
{
	const struct gantry_ring_map *map = &l->queues[0].map;

	for (uint32_t i = 0; i < d->n; i++) {
		uint32_t slot = (uint32_t)(d->pos + i) & map->mask;
		const struct gantry_desc *desc = &map->desc[slot];

		memcpy(map->inl[slot].bytes, replies + i * sizeof(struct gantry_reply),
		       sizeof(struct gantry_reply));
		if (desc->op != GANTRY_OP_image_load)
			continue;
		forget_loading(l);
		if (d->nstatuses && statuses[i] == (uint32_t)-GANTRY_E_AGAIN)
			note_loading(l, desc);
	}
}

static int take_done(struct gantry_link *l, const struct gantry_stream_done *d)
{
	const uint32_t *statuses = (const uint32_t *)(d + 1);
	uint32_t status_bytes = gantry_stream_pad(d->nstatuses * (uint32_t)sizeof(uint32_t));
	uint32_t reply_bytes = d->h.tag == 0 ? d->n * (uint32_t)sizeof(struct gantry_reply) : 0;
	struct gantry_ring_map *map;
	uint64_t done;

	if (d->h.tag >= l->nqueues || d->n == 0 || d->n > l->nslots ||
	    (d->nstatuses != 0 && d->nstatuses != d->n) ||
	    d->h.len_bytes != sizeof(*d) + status_bytes + reply_bytes)
		return -EPROTO;
	map = &l->queues[d->h.tag].map;
	done = gantry_ring_done(map);
	if (d->pos != done || done + d->n > gantry_load_relaxed(&l->queues[d->h.tag].sent))
		return -EPROTO;
	for (uint32_t i = 0; i < d->n; i++)
		gantry_store_relaxed(&map->status[(done + i) & map->mask],
				     d->nstatuses ? statuses[i] : 0);
	if (d->h.tag == 0)
		take_replies(l, d, (const uint8_t *)statuses + status_bytes, statuses);
	gantry_store_relaxed(&map->area->nfailed, d->nfailed);
	gantry_store_release(&map->area->head, done + d->n);
	/* Release: pairs with the acquire in gantry_ring_done(); what it wrote came before. */
	gantry_store_release(&map->area->done, done + d->n);
	return 0;
}

static int take_state(struct gantry_link *l, const struct gantry_stream_state *s)
{
	if (s->state > GANTRY_SESSION_DETACHED)
		return -EPROTO;
	gantry_store_relaxed(&l->header->epoch, s->epoch);
	gantry_store_relaxed(&l->header->reason, s->reason);
	/* Release: pairs with the acquire in gantry_session_alive(); the reason is written before it. */
	gantry_store_release(&l->header->state, s->state);
	return 0;
}

int gantry_link_take(struct gantry_link *l, const struct gantry_door_header *frame)
{
	if (frame->kind == GANTRY_STREAM_DONE)
		return take_done(l, (const void *)frame);
	if (frame->kind == GANTRY_STREAM_STATE)
		return take_state(l, (const void *)frame);
	return -EPROTO;
}
