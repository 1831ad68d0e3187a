/* SPDX-License-Identifier: Apache-2.0 */
/* A session's slab space: which offsets are free, and the host memory behind the others. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "host-agent/worker/memory.h"

void worker_scrub_host(struct wsession *s, uint64_t off, uint64_t len)
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

/* From the top: the bottom is for buffers in windows, which gain by lying together. */
static int take_high_locked(struct wsession *s, uint64_t len, uint64_t *ret_off)
{
	for (uint32_t i = s->nextents; i-- > 0;) {
		struct wextent *e = &s->extents[i];

		if (e->len < len)
			continue;
		e->len -= len;
		*ret_off = e->off + e->len;
		if (e->len == 0)
			memmove(e, e + 1, (--s->nextents - i) * sizeof(*e));
		return 0;
	}
	return -ENOMEM;
}

int worker_slab_take_locked(struct wsession *s, uint64_t len, uint64_t *ret_off)
{
	if (s->nwindows)
		return take_high_locked(s, len, ret_off);
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

void worker_slab_put_locked(struct wsession *s, uint64_t off, uint64_t len)
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

int worker_slab_take_at_locked(struct wsession *s, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < s->nextents; i++) {
		struct wextent *e = &s->extents[i];
		uint64_t end = e->off + e->len;

		if (off < e->off || off + len > end)
			continue;
		e->len = off - e->off;
		if (off + len < end)
			worker_slab_put_locked(s, off + len, end - off - len);
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

/* What an earlier worker had begun with a buffer and not finished is undone. */
static void settle(struct wsession *s, struct gantry_ledger_buffer *b)
{
	/* Copies were good as long as their worker knew of them. */
	for (uint32_t left = b->replicas; left; left &= left - 1) {
		uint32_t device = (uint32_t)__builtin_ctz(left);

		if (device != b->device && device + 1 != b->to)
			worker_refund_pool(s, device, worker_page_up(b->bytes));
	}
	b->replicas = 0;
	/* It was on its way to a window: where it came from is still right. */
	if (b->to && b->charged_bytes && b->to - 1 != b->device)
		worker_refund_pool(s, b->to - 1, b->charged_bytes);
	b->to = 0;
	if (GANTRY_PLACE_HAS_RANGE(b->place) && b->charged_bytes && s->windows[b->device]) {
		worker_refund_pool(s, b->device, b->charged_bytes);
		b->charged_bytes = 0;
		b->host_bytes = worker_page_up(b->bytes);
	}
	if (GANTRY_PLACE_HAS_RANGE(b->place) && b->charged_bytes)
		b->host_bytes = 0;
	/* Its worker died while it backed it: nobody has used it. */
	if (b->place == GANTRY_PLACE_NONE ||
	    (b->place == GANTRY_PLACE_SLAB && !b->charged_bytes && !b->host_bytes)) {
		if (b->charged_bytes)
			worker_refund_pool(s, b->device, b->charged_bytes);
		b->place = GANTRY_PLACE_NONE;
		b->charged_bytes = 0;
		b->host_bytes = 0;
		b->off = 0;
	}
	if (b->host_copy == GANTRY_HOST_COPY_CLEAN && b->place == GANTRY_PLACE_WINDOW &&
	    b->host_bytes)
		return;
	b->host_copy = GANTRY_HOST_COPY_NONE;
	if (b->place == GANTRY_PLACE_WINDOW) {
		b->host_bytes = 0;
		worker_scrub_host(s, b->off, worker_page_up(b->bytes));
	}
}

/* It has a range of the session's space of offsets, or may have been given one. Heap, images and what is shared lie elsewhere. */
static bool may_hold_offset(const struct gantry_ledger_buffer *b)
{
	return b->place == GANTRY_PLACE_NONE || b->place == GANTRY_PLACE_WINDOW ||
	       GANTRY_PLACE_HAS_RANGE(b->place);
}

/* A variable or an array went with its worker: what the guest still has is a name. */
static void settle_lost(struct wsession *s, struct gantry_ledger_buffer *b)
{
	worker_refund_pool(s, b->device, b->charged_bytes);
	b->charged_bytes = 0;
}

int worker_slab_recover(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];
		struct gantry_ledger_buffer *b = &obj->buffer;
		int r;

		if (worker_is_buffer(obj) && b->place == GANTRY_PLACE_IMAGE)
			settle_lost(s, b);
		if (!worker_is_buffer(obj) || !may_hold_offset(b))
			continue;
		settle(s, b);
		if (b->place == GANTRY_PLACE_NONE)
			continue;
		/* The ledger was checked: they do not overlap. */
		r = worker_slab_take_at_locked(s, b->off, worker_page_up(b->bytes));
		if (r < 0)
			return r;
		if (b->place == GANTRY_PLACE_WINDOW)
			s->objects[i].dirty = 1u << b->device;
	}
	/* Pages there belong to buffers that were being made or given back; they are charged to nobody. */
	for (uint32_t i = 0; i < s->nextents; i++)
		worker_scrub_host(s, s->extents[i].off, s->extents[i].len);
	return 0;
}
