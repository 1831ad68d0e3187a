/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects and buffers of a session: the handle table in the ledger, memory charged before it is backed, and given
 * back scrubbed.
 *
 * Lifetimes: a freed buffer is DYING, its handle stale for tasks put after the free, until every queue has finished
 * what it had been given by then. Dying buffers carry that snapshot (wobject.tails).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "host-agent/worker/worker.h"

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

/* ---- handles ---- */

/*
 * The lock: the snapshot goes away with the buffer, on whichever thread gives it back. Not inlined: rare, and
 * its registers would be saved for every live handle.
 */
static __attribute__((noinline)) bool used_before_free(struct wsession *s, uint64_t handle,
						       const struct wqueue *q, uint64_t pos)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	const uint64_t *tails;
	bool used;

	if (!q)
		return false;
	pthread_mutex_lock(&s->lock);
	tails = s->objects[slot].tails;
	used = tails && s->ledger.objects[slot].gen == GANTRY_HANDLE_GEN(handle) &&
	       pos < tails[q->slot];
	pthread_mutex_unlock(&s->lock);
	return used;
}

struct gantry_ledger_object *worker_object_get(struct wsession *s, uint64_t handle, uint32_t type,
					       const struct wqueue *q, uint64_t pos)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	struct gantry_ledger_object *obj;
	uint8_t state;

	if (slot >= GANTRY_LEDGER_NOBJECTS || GANTRY_HANDLE_TYPE(handle) != type)
		return NULL;
	obj = &s->ledger.objects[slot];
	/* Acquire: pairs with the release in worker_object_publish(); gen, type and body are in place. */
	state = gantry_load_acquire(&obj->state);
	if (state == GANTRY_OBJECT_FREE ||
	    gantry_load_relaxed(&obj->gen) != GANTRY_HANDLE_GEN(handle) ||
	    gantry_load_relaxed(&obj->type) != type)
		return NULL;
	if (state == GANTRY_OBJECT_DYING && !used_before_free(s, handle, q, pos))
		return NULL;
	return obj;
}

int worker_object_new_locked(struct wsession *s, uint32_t type, uint32_t *ret_slot)
{
	uint32_t n = GANTRY_LEDGER_NOBJECTS;
	uint32_t limit = gantry_load_relaxed(&s->quota->nobjects);

	if (limit && limit < n)
		n = limit;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = (s->next_object + i) % n;
		struct gantry_ledger_object *obj = &s->ledger.objects[slot];

		if (obj->state != GANTRY_OBJECT_FREE)
			continue;
		s->next_object = slot + 1;
		gantry_store_relaxed(&obj->gen, obj->gen + 1);
		gantry_store_relaxed(&obj->type, (uint8_t)type);
		obj->variant_kind = 0;
		obj->variant_of = 0;
		memset(&obj->buffer, 0,
		       sizeof(*obj) - offsetof(struct gantry_ledger_object, buffer));
		*ret_slot = slot;
		return GANTRY_OK;
	}
	return GANTRY_E_LIMIT;
}

uint64_t worker_object_handle(const struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	return GANTRY_HANDLE(obj->type, obj->gen, slot);
}

void worker_object_publish(struct wsession *s, uint32_t slot, uint64_t made_by)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	obj->made_by = made_by;
	/* Release: pairs with the acquire in worker_object_get(). */
	gantry_store_release(&obj->state, (uint8_t)GANTRY_OBJECT_LIVE);
}

void worker_object_end_locked(struct wsession *s, uint32_t slot)
{
	for (uint32_t i = 0; i < GANTRY_NKINDS; i++)
		gantry_store_relaxed(&s->objects[slot].kernel[i], NULL);
	gantry_store_release(&s->ledger.objects[slot].state, (uint8_t)GANTRY_OBJECT_FREE);
}

/* ---- the slab's free extents ---- */

static void scrub(struct wsession *s, uint64_t off, uint64_t len)
{
	/* A hole gives the pages back to the kernel, which clears them before anyone sees them again. */
	if (fallocate(s->slab_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off,
		      (off_t)len) == 0)
		gantry_count_add(&s->ledger.hdr->scrubbed_bytes, len);
}

int worker_slab_init(struct wsession *s, struct gantry_err *err)
{
	s->slab_bytes = gantry_load_relaxed(&s->ledger.hdr->slab_bytes) &
			~(uint64_t)(GANTRY_PAGE - 1);
	if (s->slab_bytes && gantry_memfd_check(s->slab_fd, s->slab_bytes) < 0)
		return gantry_err_set(err, -EINVAL, "the slab is not sealed or too small");
	s->extents_cap = GANTRY_LEDGER_NOBJECTS + 1;
	s->extents = calloc(s->extents_cap, sizeof(*s->extents));
	if (!s->extents)
		return gantry_err_set(err, -ENOMEM, "no memory for the slab's extents");
	s->nextents = s->slab_bytes ? 1 : 0;
	s->extents[0] = (struct wextent){ 0, s->slab_bytes };
	return 0;
}

static int slab_take_locked(struct wsession *s, uint64_t len, uint64_t *ret_off)
{
	for (uint32_t i = 0; i < s->nextents; i++) {
		struct wextent *e = &s->extents[i];

		if (e->len < len)
			continue;
		*ret_off = e->off;
		e->off += len;
		e->len -= len;
		if (e->len == 0)
			memmove(e, e + 1, (--s->nextents - i) * sizeof(*e));
		return 0;
	}
	return -ENOMEM;
}

static void slab_put_locked(struct wsession *s, uint64_t off, uint64_t len)
{
	uint32_t i = 0;
	struct wextent *e;

	while (i < s->nextents && s->extents[i].off < off)
		i++;
	e = &s->extents[i];
	if (i > 0 && e[-1].off + e[-1].len == off) {
		e[-1].len += len;
		if (i < s->nextents && off + len == e->off) {
			e[-1].len += e->len;
			memmove(e, e + 1, (--s->nextents - i) * sizeof(*e));
		}
		return;
	}
	if (i < s->nextents && off + len == e->off) {
		e->off = off;
		e->len += len;
		return;
	}
	/* One extent more than objects can never be needed: between two free extents lies an object. */
	memmove(e + 1, e, (s->nextents++ - i) * sizeof(*e));
	*e = (struct wextent){ off, len };
}

/* At recovery: the ranges that live objects hold are not free. The ledger was checked, they do not overlap. */
static int slab_reserve_locked(struct wsession *s, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < s->nextents; i++) {
		struct wextent *e = &s->extents[i];
		uint64_t end = e->off + e->len;

		if (off < e->off || off + len > end)
			continue;
		e->len = off - e->off;
		if (off + len < end)
			slab_put_locked(s, off + len, end - off - len);
		for (i = 0; i < s->nextents; i++)
			if (s->extents[i].len == 0) {
				memmove(&s->extents[i], &s->extents[i + 1],
					(--s->nextents - i) * sizeof(*e));
				break;
			}
		return 0;
	}
	return -EINVAL;
}

bool worker_buffer_possible(const struct wsession *s, const struct gantry_ledger_buffer *b)
{
	uint64_t backed = page_up(b->bytes);

	if (b->device >= s->engine->ndevices || (b->adopted && b->place != GANTRY_PLACE_OWN))
		return false;
	switch (b->place) {
	case GANTRY_PLACE_NONE:
		return b->charged_bytes == 0;
	case GANTRY_PLACE_HEAP:
		/* The ledger knows the segment only; offsets count from the heap. */
		return b->charged_bytes == 0 &&
		       gantry_range_inside(b->off, b->bytes, s->heap.bytes);
	case GANTRY_PLACE_SLAB:
		return (b->charged_bytes == 0 || b->charged_bytes == backed) &&
		       b->off % GANTRY_PAGE == 0 &&
		       gantry_range_inside(b->off, backed, s->slab_bytes);
	case GANTRY_PLACE_OWN:
		return b->off == 0 &&
		       (b->charged_bytes == 0 || (b->charged_bytes == backed && !b->adopted));
	default:
		return false;
	}
}

static bool is_buffer(const struct gantry_ledger_object *obj)
{
	return obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_BUFFER;
}

int worker_slab_recover(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];
		struct gantry_ledger_buffer *b = &obj->buffer;
		int r;

		if (!is_buffer(obj) || b->place != GANTRY_PLACE_SLAB)
			continue;
		if (b->charged_bytes ==
		    0) { /* its worker died while it backed it: nobody has used it */
			b->place = GANTRY_PLACE_NONE;
			b->off = 0;
			continue;
		}
		r = slab_reserve_locked(s, b->off, page_up(b->bytes));
		if (r < 0)
			return r;
	}
	/* Pages there belong to buffers that were being made or given back; they are charged to nobody. */
	for (uint32_t i = 0; i < s->nextents; i++)
		scrub(s, s->extents[i].off, s->extents[i].len);
	return 0;
}

/* A counter that another writer left, set right, and the tenant's by as much. */
static void reconcile(uint64_t *session, uint64_t *tenant, uint64_t limit, uint64_t really)
{
	uint64_t said = GANTRY_MIN(gantry_load_relaxed(session), GANTRY_MAX(limit, really));

	if (said > really)
		gantry_quota_refund(tenant, said - really);
	else
		gantry_count_add(tenant, really - said);
	gantry_store_relaxed(session, really);
}

void worker_charges_recover(struct wsession *s)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	uint64_t resident = 0;
	uint64_t virtual = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (!is_buffer(obj) || obj->buffer.adopted)
			continue;
		resident += obj->buffer.charged_bytes;
		if (obj->buffer.place != GANTRY_PLACE_HEAP)
			virtual += obj->buffer.bytes;
	}
	reconcile(&hdr->resident_used, &s->quota->mem_used, gantry_load_relaxed(&hdr->mem_bytes),
		  resident);
	reconcile(&hdr->virtual_used, &s->quota->virtual_used,
		  gantry_load_relaxed(&hdr->virtual_bytes), virtual);
}

/* ---- charges ---- */

static void deny(struct wsession *s)
{
	gantry_count_add(&s->quota->denied, 1);
}

/* Resident memory: the session's own limit, the tenant's, then the device's pool. */
static int charge_resident(struct wdevice *d, struct wsession *s, uint64_t bytes)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	if (gantry_quota_charge(&hdr->resident_used, &hdr->mem_bytes, bytes) < 0) {
		deny(s);
		return GANTRY_E_LIMIT;
	}
	if (gantry_quota_charge(&s->quota->mem_used, &s->quota->mem_bytes, bytes) < 0) {
		gantry_quota_refund(&hdr->resident_used, bytes);
		deny(s);
		return GANTRY_E_LIMIT;
	}
	if (gantry_quota_charge(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, bytes) < 0) {
		gantry_quota_refund(&s->quota->mem_used, bytes);
		gantry_quota_refund(&hdr->resident_used, bytes);
		return GANTRY_E_NO_MEMORY;
	}
	gantry_quota_peak(&hdr->resident_peak, &hdr->resident_used);
	gantry_quota_peak(&s->quota->mem_peak, &s->quota->mem_used);
	gantry_quota_peak(&d->page->hdr.mem_peak, &d->page->hdr.mem_used);
	return GANTRY_OK;
}

static void refund_resident(struct wsession *s, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	gantry_quota_refund(&s->engine->devices[device]->page->hdr.mem_used, bytes);
	gantry_quota_refund(&s->quota->mem_used, bytes);
	gantry_quota_refund(&s->ledger.hdr->resident_used, bytes);
}

/* A buffer that moves to another device takes its charge along; the memory itself stays where it is. */
static int charge_move(struct wdevice *d, struct wsession *s, struct gantry_ledger_buffer *b)
{
	if (b->device == d->index || b->charged_bytes == 0)
		return GANTRY_OK;
	if (gantry_quota_charge(&d->page->hdr.mem_used, &d->page->hdr.mem_bytes, b->charged_bytes) <
	    0)
		return GANTRY_E_NO_MEMORY;
	gantry_quota_refund(&s->engine->devices[b->device]->page->hdr.mem_used, b->charged_bytes);
	gantry_store_relaxed(&b->device, d->index);
	gantry_quota_peak(&d->page->hdr.mem_peak, &d->page->hdr.mem_used);
	return GANTRY_OK;
}

/* ---- allocation ---- */

/* Never the same twice on a host: a token of a buffer that is gone must not open the next one in its slot. */
static uint64_t new_share_id(const struct wsession *s, uint32_t slot)
{
	static_assert(GANTRY_LEDGER_NOBJECTS <= 1u << 13, "a slot fits its bits of a share id");

	return s->id << 40 | (uint64_t)(s->ledger.objects[slot].gen & 0x7ffffffu) << 13 | slot;
}

static int own_memory(struct wsession *s, uint32_t slot, uint64_t bytes, int fd)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wshared *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return GANTRY_E_NO_MEMORY;
	shared->fd = fd;
	if (fd < 0 && gantry_memfd_create("gantry-shared", page_up(bytes), GANTRY_MEMFD_SEALED,
					  &shared->fd) < 0) {
		free(shared);
		return GANTRY_E_NO_MEMORY;
	}
	b->place = GANTRY_PLACE_OWN;
	s->objects[slot].shared = shared;
	return GANTRY_OK;
}

static int alloc_locked(struct wsession *s, const struct gantry_op_buf_alloc *args,
			uint64_t made_by, uint32_t *ret_slot)
{
	bool host = args->alloc_flags & GANTRY_ALLOC_HOST;
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);

	if (status != GANTRY_OK) {
		deny(s);
		return s->ndying ? GANTRY_E_AGAIN : status;
	}
	b = &s->ledger.objects[slot].buffer;
	b->bytes = args->bytes;
	b->alloc_flags = args->alloc_flags;
	b->rights = GANTRY_RW;
	b->device = s->home;
	if (host) {
		b->place = GANTRY_PLACE_HEAP;
		b->off = args->heap_off;
	} else if (args->alloc_flags & GANTRY_ALLOC_SHARED) {
		status = own_memory(s, slot, args->bytes, -1);
		if (status != GANTRY_OK)
			return status;
		b->share_id = new_share_id(s, slot);
	}
	worker_object_publish(s, slot, made_by);
	*ret_slot = slot;
	return GANTRY_OK;
}

int worker_buffer_alloc(struct wsession *s, const struct gantry_op_buf_alloc *args,
			uint64_t made_by, uint64_t *ret_handle)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	bool host = args->alloc_flags & GANTRY_ALLOC_HOST;
	uint32_t slot;
	void *ptr;
	int status;

	if (host && (args->alloc_flags & (GANTRY_ALLOC_DEVICE | GANTRY_ALLOC_SHARED)))
		return GANTRY_E_ARG;
	if (!host && args->heap_off != 0)
		return GANTRY_E_ARG;
	if (host &&
	    gantry_region_span(&s->heap, args->heap_off, args->bytes, GANTRY_LINE, &ptr) < 0)
		return GANTRY_E_SPAN;
	if (!host &&
	    gantry_quota_charge(&hdr->virtual_used, &hdr->virtual_bytes, args->bytes) < 0) {
		deny(s);
		return worker_buffer_reap(s) ? GANTRY_E_AGAIN : GANTRY_E_LIMIT;
	}
	if (!host && gantry_quota_charge(&s->quota->virtual_used, &s->quota->virtual_bytes,
					 args->bytes) < 0) {
		gantry_quota_refund(&hdr->virtual_used, args->bytes);
		deny(s);
		return worker_buffer_reap(s) ? GANTRY_E_AGAIN : GANTRY_E_LIMIT;
	}

	pthread_mutex_lock(&s->lock);
	status = alloc_locked(s, args, made_by, &slot);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK) {
		if (!host) {
			gantry_quota_refund(&s->quota->virtual_used, args->bytes);
			gantry_quota_refund(&hdr->virtual_used, args->bytes);
		}
		return status;
	}
	if (s->objects[slot].shared)
		s->engine->events.keep(s->engine->events.cookie, s->id,
				       s->ledger.objects[slot].buffer.share_id, args->bytes,
				       s->objects[slot].shared->fd);
	*ret_handle = worker_object_handle(s, slot);
	return GANTRY_OK;
}

/* ---- release ---- */

static void free_mem(struct wdevice *d, void *mem)
{
	d->device.backend->mem_free(mem);
}

/* Device memory belongs to its device's thread, which frees it soon; the descriptor may go before. */
static void shared_close(struct wsession *s, struct wobject *rt)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (rt->shared->mem[i])
			(void)worker_device_post(s->engine->devices[i], free_mem,
						 rt->shared->mem[i]);
	gantry_fd_close(rt->shared->fd);
	free(rt->shared);
	rt->shared = NULL;
}

/* Another handle to the same memory: it was adopted more than once. */
static bool shared_elsewhere(const struct wsession *s, uint32_t slot)
{
	uint64_t share_id = s->ledger.objects[slot].buffer.share_id;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (i != slot && is_buffer(&s->ledger.objects[i]) &&
		    s->ledger.objects[i].buffer.place == GANTRY_PLACE_OWN &&
		    s->ledger.objects[i].buffer.share_id == share_id)
			return true;
	return false;
}

static void release_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wobject *rt = &s->objects[slot];

	if (b->place == GANTRY_PLACE_SLAB) {
		scrub(s, b->off, page_up(b->bytes));
		slab_put_locked(s, b->off, page_up(b->bytes));
	}
	if (rt->shared) {
		if (!shared_elsewhere(s, slot))
			s->engine->events.keep(s->engine->events.cookie, s->id, b->share_id, 0, -1);
		shared_close(s, rt);
	}
	if (!b->adopted) {
		refund_resident(s, b->device, b->charged_bytes);
		if (b->place != GANTRY_PLACE_HEAP) {
			gantry_quota_refund(&s->quota->virtual_used, b->bytes);
			gantry_quota_refund(&s->ledger.hdr->virtual_used, b->bytes);
		}
	}
	gantry_store_relaxed(&b->charged_bytes, (uint64_t)0);
	free(rt->tails);
	rt->tails = NULL;
	worker_object_end_locked(s, slot);
}

/*
 * All that queue @i had been given: a task below was bound, or may be, while the buffer was alive. The guest can lower
 * its tail, so what was taken counts too.
 */
static uint64_t given(const struct wsession *s, uint32_t i)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[i];
	uint64_t taken = gantry_load_relaxed(&led->taken);
	uint64_t tail;

	if (gantry_load_acquire(&led->state) == GANTRY_QUEUE_CLOSED)
		return 0;
	tail = worker_queue_tail(&s->queues[i]);
	return GANTRY_MAX(taken, tail);
}

static int free_locked(struct wsession *s, uint64_t handle)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	uint64_t *tails;

	if (!worker_object_get(s, handle, GANTRY_HANDLE_BUFFER, NULL, 0))
		return GANTRY_E_HANDLE;
	if (s->ndying >= WORKER_MAX_DYING)
		return GANTRY_E_AGAIN;
	tails = calloc(s->ledger.nqueues, sizeof(*tails));
	if (!tails)
		return GANTRY_E_NO_MEMORY;
	gantry_store_release(&s->ledger.objects[slot].state, (uint8_t)GANTRY_OBJECT_DYING);
	/*
	 * Full fence: pairs with the addition in worker_intake(). Either a thread that takes a task from here on sees
	 * the buffer dying when it binds it, and then waits for our lock; or we see the task taken.
	 */
	gantry_fence_full();
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		tails[i] = given(s, i);
	s->objects[slot].tails = tails;
	s->dying[s->ndying] = slot;
	gantry_store_relaxed(&s->ndying, s->ndying + 1);
	return GANTRY_OK;
}

static bool users_finished(const struct wsession *s, uint32_t slot)
{
	const uint64_t *tails = s->objects[slot].tails;

	for (uint32_t i = 1; tails && i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *led = &s->ledger.queues[i];

		if (tails[i] && gantry_load_relaxed(&led->state) != GANTRY_QUEUE_CLOSED &&
		    gantry_load_acquire(&led->done) < tails[i])
			return false;
	}
	return true;
}

uint32_t worker_buffer_reap(struct wsession *s)
{
	uint32_t left = 0;

	if (gantry_load_relaxed(&s->ndying) == 0)
		return 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->ndying; i++) {
		if (users_finished(s, s->dying[i]))
			release_locked(s, s->dying[i]);
		else
			s->dying[left++] = s->dying[i];
	}
	gantry_store_relaxed(&s->ndying, left);
	pthread_mutex_unlock(&s->lock);
	return left;
}

int worker_buffer_free(struct wsession *s, uint64_t handle)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = free_locked(s, handle);
	pthread_mutex_unlock(&s->lock);
	if (status == GANTRY_OK)
		(void)worker_buffer_reap(s);
	return status;
}

/* ---- ranges ---- */

static int back_slab_locked(struct wsession *s, struct gantry_ledger_buffer *b, uint64_t len)
{
	if (slab_take_locked(s, len, &b->off) < 0)
		return GANTRY_E_NO_MEMORY;
	/* Pages are taken now, so that a full host is an answer here and not a SIGBUS in a kernel. */
	if (fallocate(s->slab_fd, 0, (off_t)b->off, (off_t)len) < 0) {
		scrub(s, b->off, len);
		slab_put_locked(s, b->off, len);
		return GANTRY_E_NO_MEMORY;
	}
	return GANTRY_OK;
}

static int back_own(struct wsession *s, const struct gantry_ledger_object *obj, uint64_t len)
{
	const struct wshared *shared = s->objects[obj - s->ledger.objects].shared;

	if (!shared) /* lost with an earlier worker */
		return GANTRY_E_HANDLE;
	if (fallocate(shared->fd, 0, 0, (off_t)len) < 0)
		return GANTRY_E_NO_MEMORY;
	return GANTRY_OK;
}

/* First use: charge, then back. */
static int back_locked(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj)
{
	struct gantry_ledger_buffer *b = &obj->buffer;
	uint64_t len = page_up(b->bytes);
	int status;

	if (b->charged_bytes)
		return charge_move(d, s, b);
	status = charge_resident(d, s, len);
	if (status != GANTRY_OK)
		return status;
	status = b->place == GANTRY_PLACE_OWN ? back_own(s, obj, len) : back_slab_locked(s, b, len);
	if (status != GANTRY_OK) {
		refund_resident(s, d->index, len);
		return status;
	}
	gantry_store_relaxed(&b->device, d->index);
	if (b->place == GANTRY_PLACE_NONE)
		gantry_store_relaxed(&b->place, (uint32_t)GANTRY_PLACE_SLAB);
	/* Release: another thread that sees the charge finds place and offset. */
	gantry_store_release(&b->charged_bytes, len);
	return GANTRY_OK;
}

static int back(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = back_locked(d, s, obj);
	pthread_mutex_unlock(&s->lock);
	return status;
}

static int own_mem(struct wdevice *d, struct wsession *s, const struct gantry_ledger_object *obj,
		   struct gantry_mem **ret_mem)
{
	struct wshared *shared = s->objects[obj - s->ledger.objects].shared;
	struct gantry_err err;

	if (!shared)
		return GANTRY_E_HANDLE;
	if (!shared->mem[d->index] &&
	    d->device.backend->mem_import(d->device.dev, shared->fd, 0, page_up(obj->buffer.bytes),
					  &shared->mem[d->index], &err) < 0)
		return GANTRY_E_NO_MEMORY;
	*ret_mem = shared->mem[d->index];
	return GANTRY_OK;
}

int worker_buffer_range(struct wdevice *d, struct wsession *s, struct gantry_ledger_object *obj,
			uint64_t off, uint64_t len, struct gantry_range *ret_range)
{
	struct gantry_ledger_buffer *b = &obj->buffer;
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
	/* Acquire: pairs with the release in back(). */
	if (!b->adopted && (gantry_load_acquire(&b->charged_bytes) == 0 ||
			    gantry_load_relaxed(&b->device) != d->index)) {
		status = back(d, s, obj);
		if (status != GANTRY_OK)
			return status;
	}
	if (gantry_load_relaxed(&b->place) == GANTRY_PLACE_OWN) {
		*ret_range = (struct gantry_range){ NULL, off, len };
		return own_mem(d, s, obj, &ret_range->mem);
	}
	*ret_range = (struct gantry_range){ s->slab_mem[d->index], b->off + off, len };
	return GANTRY_OK;
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

/* ---- sharing ---- */

int worker_buffer_adopt(struct wsession *s, uint64_t share_id, uint64_t bytes, uint32_t mode,
			int fd, uint64_t *ret_handle)
{
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status;

	pthread_mutex_lock(&s->lock);
	status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);
	if (status == GANTRY_OK)
		status = own_memory(s, slot, bytes, fd);
	if (status == GANTRY_OK) {
		b = &s->ledger.objects[slot].buffer;
		b->bytes = bytes;
		b->alloc_flags = GANTRY_ALLOC_SHARED;
		b->rights = mode;
		b->share_id = share_id;
		b->adopted = 1;
		worker_object_publish(s, slot, 0);
		*ret_handle = worker_object_handle(s, slot);
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

static int export_locked(struct wsession *s, uint64_t handle, uint32_t mode, int *ret_fd,
			 uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	struct gantry_ledger_object *obj = worker_object_get(s, handle, GANTRY_HANDLE_BUFFER, NULL,
							     0);
	const struct wshared *shared = obj ? s->objects[GANTRY_HANDLE_SLOT(handle)].shared : NULL;
	int status = GANTRY_OK;
	int fd;

	if (!obj)
		return GANTRY_E_HANDLE;
	if (!shared)
		return GANTRY_E_UNSUPPORTED;
	if (mode & ~obj->buffer.rights)
		return GANTRY_E_ACCESS;
	/* Others will write to it without asking us: its pages are taken and charged before they can. */
	if (!obj->buffer.adopted && !obj->buffer.charged_bytes)
		status = back_locked(s->engine->devices[s->home], s, obj);
	if (status != GANTRY_OK)
		return status;
	fd = fcntl(shared->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return GANTRY_E_INTERNAL;
	*ret_fd = fd;
	*ret_bytes = obj->buffer.bytes;
	*ret_share_id = obj->buffer.share_id;
	return GANTRY_OK;
}

int worker_buffer_export(struct wsession *s, uint64_t handle, uint32_t mode, int *ret_fd,
			 uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = export_locked(s, handle, mode, ret_fd, ret_bytes, ret_share_id);
	pthread_mutex_unlock(&s->lock);
	return status;
}

/* ---- leaving ---- */

void worker_memory_leave(struct wdevice *d, struct wsession *s)
{
	const struct gantry_backend *be = d->device.backend;

	/* The lock: another thread may still give dying buffers back, and hands us what it finds here. */
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wshared *shared;

		if (s->ledger.objects[i].state == GANTRY_OBJECT_FREE)
			continue;
		shared = s->objects[i].shared;
		if (shared && shared->mem[d->index]) {
			be->mem_free(shared->mem[d->index]);
			shared->mem[d->index] = NULL;
		}
	}
	pthread_mutex_unlock(&s->lock);
	if (s->heap_mem[d->index])
		be->mem_free(s->heap_mem[d->index]);
	if (s->slab_mem[d->index])
		be->mem_free(s->slab_mem[d->index]);
	s->heap_mem[d->index] = NULL;
	s->slab_mem[d->index] = NULL;
}

void worker_memory_release(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wobject *rt = &s->objects[i];

		if (rt->shared) {
			gantry_fd_close(rt->shared->fd);
			free(rt->shared);
		}
		free(rt->tails);
	}
	free(s->extents);
}
