/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs that come to windows: answers to what window.c asks. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/worker/window.h"

static int insert_locked(struct wwindow *w, const struct wextent *slab)
{
	uint32_t i = worker_window_slab_after(w, slab->off);

	if (w->nslabs == w->cap) {
		uint32_t cap = w->cap ? 2 * w->cap : 16;
		struct wextent *more = realloc(w->slabs, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		w->slabs = more;
		w->cap = cap;
	}
	memmove(&w->slabs[i + 1], &w->slabs[i], (w->nslabs++ - i) * sizeof(*slab));
	w->slabs[i] = *slab;
	w->mapped_bytes += slab->len;
	return 0;
}

/*
 * What an earlier worker left in a slab: bytes of buffers that live there are theirs, all else is washed before
 * anyone gets it, at once where nobody has it now, else when it is freed.
 */
static void clean_locked(struct wsession *s, uint32_t device, const struct wextent *slab)
{
	gantry_list_for_each(&s->washing, struct washed, link, range)
		if (range->part.off < worker_extent_end(slab) &&
		    worker_extent_end(&range->part) > slab->off)
			range->again = true;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &obj->buffer;

		if (!worker_is_buffer(obj) || !worker_holds_offset(b) ||
		    b->off >= worker_extent_end(slab) ||
		    b->off + worker_page_up(b->bytes) <= slab->off)
			continue;
		s->objects[i].dirty |= 1u << device;
		/* One that waits for its first memory waits for some that is clean. */
		if (b->place == GANTRY_PLACE_NONE)
			worker_move_forget_locked(s, i);
	}
	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t from = GANTRY_MAX(s->extents[i].off, slab->off);
		uint64_t end = GANTRY_MIN(worker_extent_end(&s->extents[i]),
					  worker_extent_end(slab));

		if (from >= end)
			continue;
		(void)worker_slab_take_at_locked(s, from,
						 end - from); /* it is free: that was seen */
		worker_window_wash_locked(s, from, end - from, 1u << device);
		i = UINT32_MAX; /* extents moved: from the start, with less that is free */
	}
}

static bool overlaps_mapped(const struct wwindow *w, const struct wextent *slab)
{
	struct wextent part;

	return worker_window_next_mapped(w, slab->off, worker_extent_end(slab), &part);
}

static bool slab_fits(const struct wwindow *w, const struct wextent *slab)
{
	return slab->len && slab->off % w->align == 0 && slab->len % w->align == 0 &&
	       gantry_range_inside(slab->off, slab->len, w->bytes);
}

/* The @idx-th slab of @give, mapped. */
static int take_slab(struct wdevice *d, struct wsession *s, const struct wgive *give, uint32_t idx)
{
	const struct wextent *slab = &give->slabs[idx];
	const struct gantry_engine_events *ev = &s->engine->events;
	struct wwindow *w = s->windows[d->index];
	struct gantry_err err;
	int r;

	if (!slab_fits(w, slab) || slab->off >= give->off + give->bytes ||
	    worker_extent_end(slab) <= give->off)
		return GANTRY_E_INTERNAL;
	if (overlaps_mapped(w, slab))
		return GANTRY_OK; /* it came twice: asked for again while the answer was on its way */
	r = d->device.backend->window_map(w->mem, slab->off, slab->len, give->fds[idx], &err);
	if (r == 0) {
		pthread_mutex_lock(&s->lock);
		r = insert_locked(w, slab);
		if (r == 0) {
			gantry_count_add(&s->ledger.hdr->window_bytes, slab->len);
			if (w->unclean && !give->fresh[idx])
				clean_locked(s, d->index, slab);
		}
		pthread_mutex_unlock(&s->lock);
		if (r < 0)
			d->device.backend->window_unmap(w->mem, slab->off, slab->len);
	}
	if (r == 0)
		return GANTRY_OK;
	ev->drop_slab(ev->cookie, s->id, d->index, slab->off, slab->len);
	return GANTRY_E_NO_MEMORY;
}

static bool was_asked(struct wsession *s, const struct wwindow *w, const struct wgive *give)
{
	bool asked = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < w->nasks; i++)
		if (w->asks[i].part.off == give->off && w->asks[i].part.len == give->bytes)
			asked = true;
	pthread_mutex_unlock(&s->lock);
	return asked;
}

/*
 * The answer to an ask is complete. A refusal stays until the buffer that needs the place hears it. True: nobody waits
 * for it any more, and what has come is to be given back.
 */
static bool answered_locked(struct wsession *s, struct wwindow *w, const struct wgive *give,
			    int status)
{
	for (uint32_t i = 0; i < w->nasks; i++) {
		struct wask *ask = &w->asks[i];
		bool given_up = ask->given_up;

		if (ask->part.off != give->off || ask->part.len != give->bytes)
			continue;
		if (status != GANTRY_OK && ask->ahead)
			w->reserve_after_ns = gantry_now_ns() + WORKER_WINDOW_RETRY_NS;
		if (status == GANTRY_OK || ask->ahead ||
		    worker_window_is_free_locked(s, &ask->part))
			worker_window_forget_ask(w, ask);
		else
			ask->status = status;
		return given_up;
	}
	return false;
}

static void give_free(struct wgive *give)
{
	for (uint32_t i = 0; i < give->nslabs; i++)
		gantry_fd_close(give->fds[i]);
	free(give);
}

static void take_slabs(struct wdevice *d, void *arg)
{
	struct wgive *give = arg;
	struct wsession *s = give->session;
	struct wwindow *w = s->windows[d->index];
	int status = give->status;
	bool unwanted = false;

	if (s->joined[d->index] && w->mem && !w->gone && was_asked(s, w, give)) {
		for (uint32_t i = 0; i < give->nslabs; i++) {
			int r = take_slab(d, s, give, i);

			if (status == GANTRY_OK)
				status = r;
		}
		pthread_mutex_lock(&s->lock);
		worker_ranges_again_locked(d, s);
		if (give->last || status != GANTRY_OK)
			unwanted = answered_locked(s, w, give, status);
		pthread_mutex_unlock(&s->lock);
		if (unwanted)
			worker_window_leave_range(d, s, give->off, give->bytes);
	}
	/* Moves and tasks of other threads may wait for them. */
	if (gantry_load_relaxed(&s->njobs) || gantry_load_relaxed(&s->known_away))
		worker_session_wake(s);
	give_free(give);
	worker_session_leave(s);
}

int gantry_engine_give_slabs(struct gantry_engine *e, const struct gantry_engine_slabs *slabs)
{
	struct wgive *give;
	struct wsession *s;

	if (slabs->device >= e->ndevices || slabs->nslabs > GANTRY_ENGINE_MAX_SLABS)
		return -EINVAL;
	s = worker_session_get(e, slabs->session_id);
	if (!s)
		return -ENOENT;
	give = calloc(1, sizeof(*give));
	if (!give || !s->windows[slabs->device])
		goto fail;
	*give = (struct wgive){ .session = s,
				.off = slabs->off,
				.bytes = slabs->bytes,
				.last = slabs->last,
				.status = slabs->status };
	for (uint32_t i = 0; i < slabs->nslabs; i++) {
		int fd = fcntl(slabs->slabs[i].fd, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			goto fail;
		give->slabs[i] = (struct wextent){ slabs->slabs[i].off, slabs->slabs[i].bytes };
		give->fresh[i] = slabs->slabs[i].fresh != 0;
		give->fds[give->nslabs++] = fd;
	}
	if (worker_device_post(e->devices[slabs->device], take_slabs, give) < 0)
		goto fail;
	return 0;

fail:
	if (give)
		give_free(give);
	worker_session_leave(s);
	return -ENOMEM; /* or a descriptor that is none, a device without windows: nothing is lost but this message */
}
