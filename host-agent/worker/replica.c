/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies for devices that only read. A buffer has one place, its own, and beside it the windows of other devices may have
 * the same bytes at the same offset: replicas. Of host memory that is the buffer's host copy. Who reads uses the copy of its
 * device. Who writes has the buffer's own place, and all copies are stale from the moment its task is bound: whoever is to see
 * what it writes is bound after it, by its ticket; who is not may see either.
 *
 * A stale copy keeps its memory, so that the next reader costs the copying alone. A device that has a good copy becomes the
 * buffer's place without any copying.
 *
 * The ledger says which devices are charged for a copy; whether it is good is known to the worker alone (wobject.clean),
 * so that a worker's death ends all copies and none of the buffers.
 *
 * A copy is made only where somebody at the buffer's place uses the buffer too, else the buffer moves; and only while a
 * quarter of the device's pool and of the limits is left. Where anything else wants memory, copies go first, and none is
 * made for a second. All of this is under the lock.
 */
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/memory.h"

#define PAUSE_NS GANTRY_NS_PER_S

static struct gantry_ledger_buffer *buffer_of(struct wsession *s, uint32_t slot)
{
	return &s->ledger.objects[slot].buffer;
}

static uint32_t bit(uint32_t device)
{
	return 1u << device;
}

/* Devices that work on host memory, as bits. */
static uint32_t on_host(const struct wsession *s)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (!worker_has_window(s->engine->devices[i]))
			mask |= bit(i);
	return mask;
}

/* ---- who may do what ---- */

uint32_t worker_replica_ready_locked(const struct wsession *s, uint32_t slot, uint32_t device,
				     bool write)
{
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	const struct wobject *rt = &s->objects[slot];
	bool clean_host = b->host_copy == GANTRY_HOST_COPY_CLEAN;
	uint32_t same = 0;

	if (b->place == GANTRY_PLACE_WINDOW && !rt->ahead && !write) {
		same = rt->clean | bit(b->device);
		if (clean_host)
			same |= on_host(s);
	}
	same = (rt->ready & same) | bit(device);
	return rt->clean || clean_host || rt->ahead ? same : same | 0x100u << device;
}

/* What was used by queues of these devices, as long as they are there. */
static bool is_used_by(const struct wsession *s, uint32_t slot, uint32_t devices)
{
	uint64_t queues = gantry_load_relaxed(&s->objects[slot].queues);

	for (; devices; devices &= devices - 1)
		if (gantry_load_relaxed(&s->served[__builtin_ctz(devices)]) & queues)
			return true;
	return false;
}

static bool has_room(const uint64_t *used, const uint64_t *limit, uint64_t bytes)
{
	uint64_t most = gantry_load_relaxed(limit);
	uint64_t now = gantry_load_relaxed(used);

	most -= most / 4;
	return now <= most && bytes <= most - now;
}

static bool may_be_made(const struct wsession *s, const struct wobject *rt)
{
	return !rt->ahead && !(gantry_load_relaxed(&s->quota->wishes) & GANTRY_QUOTA_NO_REPLICAS) &&
	       gantry_now_ns() >= s->replicas_after_ns;
}

void worker_replica_pause_locked(struct wsession *s)
{
	s->replicas_after_ns = gantry_now_ns() + PAUSE_NS;
}

/* ---- memory ---- */

/* UNSUPPORTED: there is not so much that a copy would be right. */
static int charge_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	uint64_t len = worker_page_up(b->bytes);

	if (b->replicas & bit(d->index))
		return GANTRY_OK;
	if (!gantry_range_inside(b->off, len, s->windows[d->index]->bytes) ||
	    !has_room(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, len) ||
	    !has_room(&s->quota->mem_used, &s->quota->mem_bytes, len) ||
	    !has_room(&s->ledger.hdr->resident_used, &s->ledger.hdr->mem_bytes, len) ||
	    worker_charge_resident(d, s, len) != GANTRY_OK)
		return GANTRY_E_UNSUPPORTED;
	gantry_store_release(&b->replicas, b->replicas | bit(d->index));
	s->nreplicas++;
	return GANTRY_OK;
}

static void uncharge_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];

	rt->clean &= ~bit(device);
	if (!(b->replicas & bit(device)))
		return;
	gantry_store_release(&b->replicas, b->replicas & ~bit(device));
	s->nreplicas--;
	worker_refund_resident(s, device, worker_page_up(b->bytes));
	gantry_count_add(&s->quota->replicas_dropped, 1);
}

void worker_replica_absorb_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];
	uint64_t len = worker_page_up(b->bytes);

	/* The pool's charge is that of `to` now. */
	gantry_store_release(&b->replicas, b->replicas & ~bit(device));
	gantry_quota_refund(&s->quota->mem_used, len);
	gantry_quota_refund(&s->ledger.hdr->resident_used, len);
	s->nreplicas--;
	rt->clean &= ~bit(device);
	gantry_store_relaxed(&rt->ready, rt->ready & ~(bit(device) | 0x100u << device));
}

uint32_t worker_replica_forget_locked(struct wsession *s, uint32_t slot)
{
	uint32_t had = buffer_of(s, slot)->replicas;

	for (uint32_t left = had; left; left &= left - 1)
		uncharge_locked(s, slot, (uint32_t)__builtin_ctz(left));
	return had;
}

/* ---- making them ---- */

/* In host memory, for devices that work on that or that cannot read the window it is in. */
static int copy_to_host_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);

	if (b->host_copy == GANTRY_HOST_COPY_NONE) {
		if (worker_charge_host(s, b) != GANTRY_OK)
			return GANTRY_E_UNSUPPORTED;
		gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_FILLING);
	}
	return worker_move_copy_locked(s, slot, b->device, CARRY_SPILL);
}

static int copy_to_window_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
				 enum wcarry_way way)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	int status = charge_locked(d, s, slot);

	if (status == GANTRY_OK)
		status = worker_window_want_locked(s, d->index, b->off, worker_page_up(b->bytes));
	if (status != GANTRY_OK && status != GANTRY_E_AGAIN && (b->replicas & bit(d->index))) {
		/* The machine has none left. */
		uncharge_locked(s, slot, d->index);
		worker_replica_pause_locked(s);
		return GANTRY_E_UNSUPPORTED;
	}
	return status == GANTRY_OK ? worker_move_copy_locked(s, slot, d->index, way) : status;
}

/* The device, whose copy is good, becomes the buffer's place, and what was is a copy. */
static void set_place_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];
	uint32_t was = b->device;

	/* In this order: the bit of the device that has it counts for nothing, whichever that is. */
	gantry_store_release(&b->replicas, b->replicas | bit(was));
	gantry_store_release(&b->device, device);
	gantry_store_release(&b->replicas, b->replicas & ~bit(device));
	rt->clean = (rt->clean & ~bit(device)) | bit(was);
}

static int take_over_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	if (!worker_move_claim_locked(d, s, slot))
		return GANTRY_E_AGAIN;
	worker_move_forget_locked(s, slot);
	set_place_locked(s, slot, d->index);
	return GANTRY_OK;
}

/* In a window, but not in that of @d. */
static int use_elsewhere_locked(struct wdevice *d, struct wsession *s, uint32_t slot, enum wuse use)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	bool good = s->objects[slot].clean & bit(d->index);

	if (good && use == WUSE_READ)
		return worker_window_want_locked(s, d->index, b->off, worker_page_up(b->bytes));
	if (good)
		return take_over_locked(d, s, slot);
	if (use != WUSE_READ || !is_used_by(s, slot, bit(b->device)))
		return GANTRY_E_UNSUPPORTED;
	if (!worker_move_claim_locked(d, s, slot))
		return GANTRY_E_AGAIN;
	if (worker_are_peers(d, s->engine->devices[b->device]))
		return copy_to_window_locked(d, s, slot, CARRY_PEER);
	if (b->host_copy == GANTRY_HOST_COPY_CLEAN)
		return copy_to_window_locked(d, s, slot, CARRY_FETCH);
	return copy_to_host_locked(s, slot);
}

int worker_replica_use_locked(struct wdevice *d, struct wsession *s, uint32_t slot, enum wuse use)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	const struct wobject *rt = &s->objects[slot];

	if (!may_be_made(s, rt) && !((rt->clean & bit(d->index)) && !rt->ahead))
		return GANTRY_E_UNSUPPORTED;
	if (b->place == GANTRY_PLACE_WINDOW)
		return use_elsewhere_locked(d, s, slot, use);
	/* It moves to the window, and what is in host memory stays good for those who work there. */
	if (b->place == GANTRY_PLACE_SLAB && use == WUSE_READ && !b->host_bytes &&
	    is_used_by(s, slot, on_host(s)))
		(void)worker_charge_host(s, b); /* else they come and get it */
	return GANTRY_E_UNSUPPORTED;
}

int worker_replica_use_host_locked(struct wdevice *d, struct wsession *s, uint32_t slot,
				   enum wuse use)
{
	const struct gantry_ledger_buffer *b = buffer_of(s, slot);

	const struct wobject *rt = &s->objects[slot];

	if (use != WUSE_READ || !s->slab_mem[d->index] || rt->ahead ||
	    (gantry_load_relaxed(&s->quota->wishes) & GANTRY_QUOTA_NO_REPLICAS) ||
	    !is_used_by(s, slot, bit(b->device)))
		return GANTRY_E_UNSUPPORTED;
	if (b->host_copy == GANTRY_HOST_COPY_CLEAN)
		return GANTRY_OK;
	if (!may_be_made(s, rt))
		return GANTRY_E_UNSUPPORTED;
	return worker_move_claim_locked(d, s, slot) ? copy_to_host_locked(s, slot) : GANTRY_E_AGAIN;
}

void worker_replica_made_locked(struct wsession *s, uint32_t slot, uint32_t device,
				enum wcarry_way way, uint64_t bytes)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];

	if (way == CARRY_SPILL) {
		gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_CLEAN);
	} else {
		rt->clean |= bit(device);
		rt->dirty |= bit(device);
	}
	gantry_count_add(&s->quota->replicas_made, 1);
	gantry_count_add(&s->quota->replica_bytes, bytes);
}

/* ---- writing ---- */

void worker_replica_host_gone_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);

	/* Tasks that read it may be under way. It is worth nothing to others, and is filled anew or goes with the buffer. */
	if (s->objects[slot].users & on_host(s))
		gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_FILLING);
	else
		worker_move_drop_copy_locked(s, b);
}

int worker_replica_written_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct wobject *rt = &s->objects[slot];
	bool clean_host = buffer_of(s, slot)->host_copy == GANTRY_HOST_COPY_CLEAN;

	if (rt->clean == 0 && !clean_host)
		return GANTRY_OK;
	if (worker_move_is_others_locked(d, s, slot))
		return GANTRY_E_AGAIN;
	rt->clean = 0;
	if (clean_host)
		worker_replica_host_gone_locked(s, slot);
	return GANTRY_OK;
}

/* ---- dropping them ---- */

static void drop_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	struct wobject *rt = &s->objects[slot];

	rt->clean &= ~bit(device);
	/* Who has not seen that yet is visited. */
	gantry_store_relaxed(&rt->ready, rt->ready & ~(bit(device) | 0x100u << device));
	/* Without memory for that, it stays for now. */
	(void)worker_move_drop_locked(s, slot, device);
}

static bool is_replica(const struct wsession *s, uint32_t slot, uint32_t device)
{
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	return worker_is_buffer(obj) && (obj->buffer.replicas >> device & 1) &&
	       obj->buffer.device != device && obj->buffer.to != device + 1;
}

void worker_replica_dropped_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	uncharge_locked(s, slot, device);
	s->objects[slot].users &= ~bit(device);
}

bool worker_replica_shed_locked(struct wsession *s, uint32_t devices)
{
	bool any = false;

	if (s->nreplicas == 0)
		return false;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		for (uint32_t left = devices & buffer_of(s, i)->replicas; left; left &= left - 1) {
			uint32_t device = (uint32_t)__builtin_ctz(left);
			const struct wobject *rt = &s->objects[i];

			if (!is_replica(s, i, device))
				continue;
			if (!rt->moving && !worker_ahead_holds_locked(s, i))
				drop_locked(s, i, device);
			any = any || rt->moving;
		}
	if (any)
		worker_replica_pause_locked(s);
	return any;
}

void worker_replica_left(struct wdevice *d, struct wsession *s)
{
	uint64_t here = gantry_load_relaxed(&s->served[d->index]);

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; s->nreplicas && i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wobject *rt = &s->objects[i];

		if (is_replica(s, i, d->index) && !rt->moving && !worker_ahead_holds_locked(s, i) &&
		    !(gantry_load_relaxed(&rt->queues) & here))
			drop_locked(s, i, d->index);
	}
	pthread_mutex_unlock(&s->lock);
}

int worker_replica_yield_locked(struct wsession *s, uint32_t slot)
{
	uint32_t from = buffer_of(s, slot)->device;

	worker_move_forget_locked(s, slot);
	set_place_locked(s, slot, (uint32_t)__builtin_ctz(s->objects[slot].clean));
	drop_locked(s, slot, from);
	return s->objects[slot].moving ? GANTRY_E_AGAIN : GANTRY_E_NO_MEMORY;
}
