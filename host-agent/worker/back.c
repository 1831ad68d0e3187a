/* SPDX-License-Identifier: Apache-2.0 */
/* Where a buffer's bytes are when a task wants them: memory for its first use, its way to the device that wants it, and the range there. */
#include <errno.h>
#include <fcntl.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/memory.h"

static int back_slab_locked(struct wsession *s, struct gantry_ledger_buffer *b, uint64_t len)
{
	if (worker_slab_take_locked(s, len, &b->off) < 0)
		return GANTRY_E_NO_MEMORY;
	/* Pages are taken now, so that a full host is an answer here and not a SIGBUS in a kernel. */
	if (fallocate(s->slab_fd, 0, (off_t)b->off, (off_t)len) < 0) {
		worker_scrub_host(s, b->off, len);
		worker_slab_put_locked(s, b->off, len);
		return GANTRY_E_NO_MEMORY;
	}
	return GANTRY_OK;
}

/*
 * A buffer of its own in host memory is in no pool of a device that has its memory elsewhere: it is charged as host
 * memory, once, whatever uses it later.
 */
int worker_back_own_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj)
{
	struct gantry_ledger_buffer *b = &obj->buffer;
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (b->adopted || b->host_bytes)
		return GANTRY_OK;
	if (b->charged_bytes)
		return worker_has_window(d) ? GANTRY_OK : worker_charge_move(d, s, b);
	status = worker_has_window(d) ? worker_charge_host(s, b)
				      : worker_charge_resident(d, s, len);
	if (status != GANTRY_OK)
		return status;
	status = worker_shared_back(s, obj, len);
	if (status != GANTRY_OK) {
		if (worker_has_window(d))
			worker_refund_host(s, b);
		else
			worker_refund_resident(s, d->index, len);
		return status;
	}
	gantry_store_relaxed(&b->device, d->index);
	if (!worker_has_window(d))
		gantry_store_relaxed(&b->charged_bytes, len);
	return GANTRY_OK;
}

/* First use on a device that works on host memory: charge, then back. */
static int back_host_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b)
{
	uint64_t len = worker_page_up(b->bytes);
	int status = worker_charge_resident(d, s, len);

	if (status != GANTRY_OK)
		return status;
	status = back_slab_locked(s, b, len);
	if (status != GANTRY_OK) {
		worker_refund_resident(s, d->index, len);
		return status;
	}
	gantry_store_relaxed(&b->device, d->index);
	gantry_store_relaxed(&b->place, (uint32_t)GANTRY_PLACE_SLAB);
	gantry_store_relaxed(&b->charged_bytes, len);
	return GANTRY_OK;
}

/* The buffer for a device that works on host memory. */
static int bring_home_locked(struct wdevice *d, struct wsession *s, uint32_t slot, enum wuse use)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	int status;

	if (b->place == GANTRY_PLACE_WINDOW) {
		status = worker_replica_use_host_locked(d, s, slot, use);
		return status == GANTRY_E_UNSUPPORTED ? worker_move_to_host_locked(d, s, slot)
						      : status;
	}
	if (!s->objects[slot].ahead)
		worker_move_forget_locked(s, slot);
	if (!s->slab_mem[d->index])
		return GANTRY_E_UNSUPPORTED;
	if (b->place == GANTRY_PLACE_NONE)
		return back_host_locked(d, s, b);
	if (b->charged_bytes) {
		worker_refund_host(s, b); /* it was to be a copy of what never left */
		return worker_charge_move(d, s, b);
	}
	status = worker_charge_resident(d, s, worker_page_up(b->bytes));
	if (status != GANTRY_OK)
		return status;
	gantry_store_relaxed(&b->device, d->index);
	gantry_store_relaxed(&b->charged_bytes, worker_page_up(b->bytes));
	worker_refund_host(s, b);
	return GANTRY_OK;
}

static bool is_fixed(const struct gantry_ledger_buffer *b)
{
	return b->alloc_flags & GANTRY_ALLOC_FIXED;
}

/* A charge that the pool has no room for: something else may make room, but not for what is to be known at once. */
static int make_room_locked(struct wdevice *d, struct wsession *s,
			    const struct gantry_ledger_buffer *b, int status)
{
	if (status != GANTRY_E_NO_MEMORY || is_fixed(b))
		return status;
	return worker_move_make_room_locked(d, s, worker_page_up(b->bytes), false);
}

/* The first place of a buffer in a window: charged and with an offset, then with slabs behind it. */
static int back_window_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b)
{
	uint64_t len = worker_page_up(b->bytes);
	uint64_t off;
	int status;

	if (!b->charged_bytes) {
		bool whole = b->alloc_flags & GANTRY_ALLOC_WHOLE;

		if (whole && len % s->windows[d->index]->align)
			return GANTRY_E_ARG;
		status = worker_charge_resident(d, s, len);
		if (status != GANTRY_OK)
			return make_room_locked(d, s, b, status);
		if (worker_window_place_locked(s, d->index, len, whole, &off) < 0) {
			worker_refund_resident(s, d->index, len);
			return s->nwashing ? GANTRY_E_AGAIN : GANTRY_E_NO_MEMORY;
		}
		b->off = off;
		gantry_store_relaxed(&b->device, d->index);
		gantry_store_release(&b->charged_bytes, len);
		status = worker_window_want_locked(s, d->index, b->off, len);
		worker_window_placed_locked(s, d->index);
	} else {
		status = worker_window_want_locked(s, d->index, b->off, len);
	}
	if (status == GANTRY_OK)
		gantry_store_release(&b->place, (uint32_t)GANTRY_PLACE_WINDOW);
	return status;
}

/* It is elsewhere: a copy of it, or itself. */
static int bring_elsewhere_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
				  enum wuse use)
{
	int status = worker_replica_use_locked(d, s, slot, use);

	return status == GANTRY_E_UNSUPPORTED ? worker_move_to_window_locked(d, s, slot) : status;
}

static int bring_to_window_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
				  enum wuse use)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (!s->windows[d->index] || !s->windows[d->index]->mem)
		return GANTRY_E_UNSUPPORTED;
	if (b->place == GANTRY_PLACE_NONE && b->charged_bytes && b->device != d->index)
		worker_move_forget_locked(s, slot);
	if (b->place == GANTRY_PLACE_NONE)
		status = back_window_locked(d, s, b);
	else if (b->place == GANTRY_PLACE_WINDOW && b->device == d->index)
		status = worker_window_want_locked(s, d->index, b->off, len);
	else if (is_fixed(b))
		return GANTRY_E_NO_DEVICE;
	else
		status = bring_elsewhere_locked(d, s, slot, use);
	if (status == GANTRY_E_NO_MEMORY && is_fixed(b)) {
		/* Nothing else may go for it, but for what is mapped and nobody's. */
		if (s->nwashing || worker_window_trim_locked(d, s, true))
			status = GANTRY_E_AGAIN;
		else
			worker_move_forget_locked(s, slot);
	} else if (status == GANTRY_E_NO_MEMORY && worker_holds_offset(b)) {
		/* The machine has no slabs left. */
		status = worker_move_make_room_locked(d, s, len, true);
		if (status != GANTRY_E_AGAIN)
			worker_move_forget_locked(s, slot);
	}
	if (status == GANTRY_OK)
		s->objects[slot].dirty |= 1u << d->index;
	return status;
}

int worker_buffer_bring_locked(struct wdevice *d, struct wsession *s, uint32_t slot, uint64_t len,
			       enum wuse use)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];
	struct wobject *rt = &s->objects[slot];
	uint32_t bits;
	int status;

	if (obj->buffer.place == GANTRY_PLACE_RANGE)
		return GANTRY_E_ACCESS; /* what is mapped there has a name of its own */
	if (rt->moving)
		return GANTRY_E_AGAIN;
	if (rt->stuck) {
		status = rt->stuck;
		rt->stuck = GANTRY_OK;
		return status;
	}
	if (obj->buffer.place == GANTRY_PLACE_AWAY || obj->buffer.place == GANTRY_PLACE_LOST)
		return worker_pull_locked(s, slot, len);
	if (obj->buffer.place == GANTRY_PLACE_OWN)
		status = worker_back_own_locked(d, s, obj);
	else if (worker_has_window(d))
		status = bring_to_window_locked(d, s, slot, use);
	else
		status = bring_home_locked(d, s, slot, use);
	if (rt->moving && d->binding) { /* since just now */
		rt->puller = d->binding->slot;
		rt->wanted_bytes = len;
	}
	/* Copies that nobody needs to have are no reason for a refusal. */
	if ((status == GANTRY_E_LIMIT || status == GANTRY_E_NO_MEMORY) &&
	    worker_replica_shed_locked(s, UINT32_MAX))
		return GANTRY_E_AGAIN;
	if (status == GANTRY_OK && use == WUSE_WRITE)
		status = worker_replica_written_locked(d, s, slot);
	if (status != GANTRY_OK)
		return status;
	bits = worker_replica_ready_locked(s, slot, d->index, use == WUSE_WRITE);
	rt->users |= 1u << d->index;
	rt->used = ++s->clock;
	/* Release: a thread that sees the bit finds place, offset and charge. Others ask again, but who reads a copy. */
	if (obj->buffer.adopted ||
	    (obj->buffer.place == GANTRY_PLACE_OWN && obj->buffer.host_bytes))
		bits |= rt->ready;
	gantry_store_release(&rt->ready, bits);
	return GANTRY_OK;
}

static int bring_locked(struct wdevice *d, struct wsession *s, uint32_t slot, uint64_t off,
			uint64_t len, bool write)
{
	int status = worker_buffer_bring_locked(d, s, slot, len, write ? WUSE_WRITE : WUSE_READ);

	if (status == GANTRY_OK && write)
		worker_ahead_written_locked(s, slot, off, len);
	return status;
}

static int bring(struct wdevice *d, struct wsession *s, uint32_t slot, uint64_t off, uint64_t len,
		 bool write)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = bring_locked(d, s, slot, off, len, write);
	pthread_mutex_unlock(&s->lock);
	return status;
}

/* Who has used it, and wrote it last: what a queue owns (migrate.c). Written by threads that use it, each its own bits. */
static void note_use(struct wobject *rt, const struct wqueue *q, bool write)
{
	uint64_t bit = 1ull << q->slot;

	if (!(gantry_load_relaxed(&rt->queues) & bit))
		(void)gantry_fetch_or(&rt->queues, bit);
	if (write)
		gantry_store_relaxed(&rt->writer, GANTRY_TICKET(q->slot, q->led->issued + 1));
}

/* Memory that does not move is used where it is, if this device reaches it there. */
static int range_elsewhere(const struct wdevice *d, struct wsession *s,
			   const struct gantry_ledger_buffer *b, uint64_t off, uint64_t len,
			   struct gantry_range *ret_range)
{
	const struct wdevice *its = s->engine->devices[b->device];

	if (!s->windows[b->device] || !s->windows[b->device]->mem || !s->windows[d->index] ||
	    !worker_are_peers(d, its))
		return GANTRY_E_NO_DEVICE;
	*ret_range = (struct gantry_range){ s->windows[b->device]->mem, b->off + off, len };
	return GANTRY_OK;
}

/* @brings: how what is not ready is made so. */
static int range_by(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj,
		    uint64_t off, uint64_t len, bool write,
		    int (*brings)(struct wdevice *d, struct wsession *s, uint32_t slot,
				  uint64_t off, uint64_t len, bool write),
		    struct gantry_range *ret_range)
{
	struct gantry_ledger_buffer *b = &obj->buffer;
	uint32_t slot = (uint32_t)(obj - s->ledger.objects);
	uint32_t *ready = &s->objects[slot].ready;
	uint32_t place;
	uint64_t end;
	int status;

	if (len == 0 && off < b->bytes)
		len = b->bytes - off;
	if (len == 0 || gantry_add_u64(off, len, &end) < 0 || end > b->bytes)
		return GANTRY_E_SPAN;
	if (gantry_load_relaxed(&b->place) == GANTRY_PLACE_HEAP) {
		*ret_range = (struct gantry_range){ s->heap_mem[d->index], b->off + off, len };
		return GANTRY_OK;
	}
	if (gantry_load_relaxed(&b->place) == GANTRY_PLACE_IMAGE) {
		*ret_range = (struct gantry_range){ s->objects[slot].variable,
						    s->objects[slot].skip + off, len };
		return b->device != d->index ? GANTRY_E_NO_DEVICE
		       : ret_range->mem	     ? GANTRY_OK
					     : GANTRY_E_NOT_FOUND;
	}
	/* Place and device of such a buffer are set once, on the device's thread, before its address is told. */
	if (is_fixed(b) && gantry_load_acquire(&b->place) == GANTRY_PLACE_WINDOW &&
	    b->device != d->index)
		return range_elsewhere(d, s, b, off, len, ret_range);
	/* Acquire: pairs with the release in worker_buffer_bring_locked(). */
	if (!(gantry_load_acquire(ready) >> (d->index + (write ? 8 : 0)) & 1)) {
		status = brings(d, s, slot, off, len, write);
		if (status != GANTRY_OK)
			return status;
	}
	if (d->binds_use)
		note_use(&s->objects[slot], d->binding, write);
	place = gantry_load_relaxed(&b->place);
	if (place == GANTRY_PLACE_OWN) {
		*ret_range = (struct gantry_range){ NULL, off, len };
		return worker_shared_mem(d, s, obj, &ret_range->mem);
	}
	/* Its own place or a copy of it: each device has what it uses at the same offset of its own memory. */
	*ret_range = (struct gantry_range){ worker_has_window(d) ? s->windows[d->index]->mem
								 : s->slab_mem[d->index],
					    b->off + off, len };
	if (s->contents && !is_fixed(b))
		ret_range->contents = worker_contents_use(d->binding, slot, write);
	return GANTRY_OK;
}

int worker_buffer_range(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj,
			uint64_t off, uint64_t len, bool write, struct gantry_range *ret_range)
{
	return range_by(d, s, obj, off, len, write, bring, ret_range);
}

int worker_buffer_range_locked(struct wdevice *d, struct wsession *s,
			       struct gantry_ledger_object *obj, struct gantry_range *ret_range)
{
	d->binds_use = false; /* no task does */
	return range_by(d, s, obj, 0, 0, true, bring_locked, ret_range);
}

int worker_heap_range(struct wdevice *d, struct wsession *s, uint64_t off, uint64_t len,
		      struct gantry_range *ret_range)
{
	void *ptr;

	if (gantry_region_span(&s->heap, off, len, 1, &ptr) < 0)
		return GANTRY_E_SPAN;
	*ret_range = (struct gantry_range){ s->heap_mem[d->index], off, len };
	return GANTRY_OK;
}
