/* SPDX-License-Identifier: Apache-2.0 */
/* Windows come and go with their session, and after another worker are where they were. See window.c. */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/window.h"

#define HELD_MAX   16u	/* granules that stay mapped when nobody uses them, at most ... */
#define HELD_SHARE 256u /* ... and this part of the device's memory */

/* Whether the guest knows where the buffer's own memory lies in its device's window. */
static bool has_address(const struct gantry_ledger_object *obj)
{
	return worker_is_buffer(obj) && obj->buffer.address &&
	       obj->buffer.place != GANTRY_PLACE_RANGE;
}

/* The window is where it was when the guest was told of an address in it, and tasks may use what lies there without naming it. */
static void find_known(struct wsession *s, uint32_t device, struct wwindow *w)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (!has_address(obj) || obj->buffer.device != device)
			continue;
		w->address = obj->buffer.address - obj->buffer.off;
		w->is_known = true;
		s->known_away |= 1u << device;
		return;
	}
}

/* All are asked for before any is waited for. */
static int want_known_locked(struct wsession *s, uint32_t windows)
{
	int status = GANTRY_OK;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &obj->buffer;
		int one;

		if (!has_address(obj) || !(windows >> b->device & 1))
			continue;
		one = s->windows[b->device]->mem
			      ? worker_window_want_locked(s, b->device, b->off,
							  worker_page_up(b->bytes))
			      : GANTRY_E_AGAIN;
		if (one == GANTRY_OK)
			one = worker_range_known_locked(s, i);
		if (one != GANTRY_OK && (status == GANTRY_OK || one != GANTRY_E_AGAIN))
			status = one;
	}
	return status;
}

int worker_windows_known(struct wsession *s)
{
	int status;

	if (gantry_load_relaxed(&s->known_away) == 0)
		return GANTRY_OK;
	pthread_mutex_lock(&s->lock);
	status = want_known_locked(s, s->known_away);
	if (status == GANTRY_OK)
		gantry_store_relaxed(&s->known_away, 0u);
	pthread_mutex_unlock(&s->lock);
	/* The thread whose slabs were the last may find nothing away any more, and wake nobody. */
	if (status == GANTRY_OK)
		worker_session_wake(s);
	return status;
}

int worker_windows_init(struct wsession *s, const struct gantry_engine_attach *a,
			struct gantry_err *err)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct wdevice *d = s->engine->devices[i];
		uint32_t number = worker_number_of(s, i);
		struct wwindow *w;

		if (!(s->device_mask >> i & 1) || !d->usable ||
		    !(d->device.info.caps & GANTRY_CAP_WINDOW))
			continue;
		w = calloc(1, sizeof(*w));
		if (!w)
			return gantry_err_set(err, -ENOMEM, "no memory for the session's windows");
		w->align = d->device.info.slab_align;
		w->bytes = GANTRY_MIN(s->slab_bytes, WORKER_WINDOW_SPACING) & ~(w->align - 1);
		w->address = a->window_address ? a->window_address + number * WORKER_WINDOW_SPACING
					       : 0;
		w->ranges = a->window_address
				    ? a->window_address +
					      GANTRY_ENGINE_MAX_DEVICES * WORKER_WINDOW_SPACING +
					      number * WORKER_RANGES_BYTES
				    : 0;
		w->held_bytes = GANTRY_MIN(d->device.info.mem_bytes / HELD_SHARE,
					   HELD_MAX * w->align);
		w->unclean = a->recover;
		if (a->recover)
			find_known(s, i, w);
		s->windows[i] = w;
		s->nwindows++;
	}
	gantry_store_relaxed(&s->ledger.hdr->window_bytes, (uint64_t)0);
	return 0;
}

int worker_window_open(struct wdevice *d, struct wsession *s, struct gantry_err *err)
{
	const struct gantry_backend *be = d->device.backend;
	struct wwindow *w = s->windows[d->index];
	struct gantry_mem *mem;
	int r;

	if (!w || w->bytes == 0)
		return 0;
	r = be->window_open(d->device.dev, w->address, w->bytes, &mem, err);
	if (r == -EADDRINUSE && w->is_known)
		return gantry_err_set(
			err, r,
			"its program has addresses on device %s that are taken in its "
			"new worker",
			d->name);
	/* As the segment: somewhere else where the place is taken. */
	if (r == -EADDRINUSE && w->address)
		r = be->window_open(d->device.dev, 0, w->bytes, &mem, err);
	if (r < 0)
		return r;
	r = worker_ranges_open(d, s, err);
	if (r < 0) {
		be->mem_free(mem);
		return r;
	}
	pthread_mutex_lock(&s->lock);
	w->mem = mem;
	worker_window_reserve_locked(s, d->index);
	pthread_mutex_unlock(&s->lock);
	if (gantry_load_relaxed(&s->known_away))
		worker_session_wake(s); /* tasks of other threads may wait for it */
	return 0;
}

bool worker_windows_close(struct wdevice *d, struct wsession *s)
{
	struct wwindow *w = s->windows[d->index];
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = gantry_load_acquire(&s->njobs) == 0;
	if (idle && w)
		w->gone = true;
	pthread_mutex_unlock(&s->lock);
	return idle;
}

void worker_window_leave(struct wdevice *d, struct wsession *s)
{
	struct wwindow *w = s->windows[d->index];
	struct gantry_mem *mem;

	if (!w)
		return;
	pthread_mutex_lock(&s->lock);
	mem = w->mem;
	w->mem = NULL;
	w->gone = true;
	w->nslabs = 0;
	pthread_mutex_unlock(&s->lock);
	if (w->stream)
		d->device.backend->stream_destroy(w->stream);
	w->stream = NULL;
	if (mem)
		d->device.backend->mem_free(mem);
}

void worker_windows_free(struct wsession *s)
{
	gantry_list_for_each_safe(&s->washing, struct washed, link, range) {
		gantry_list_remove(&range->link);
		free(range);
	}
	for (uint32_t i = 0; i < GANTRY_ENGINE_MAX_DEVICES; i++) {
		if (s->windows[i])
			free(s->windows[i]->slabs);
		free(s->windows[i]);
	}
}
