/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory of another session of the tenant's (agent/loan.h): the slabs in which a buffer of its lies, mapped at addresses of this
 * session's own. Whoever has one slab has all of it: what else of the lender's is there the borrower can reach too, as CUDA says of such
 * memory. It is the lender's charge, and lost with this worker, as variables of images are; the agent hears when it is let go of.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "host-agent/worker/window.h"

/* The agent waits for five seconds (agent/exchange.c): of what would be told later nobody knew, and it stayed for the session's life. */
#define LATE_NS (4 * GANTRY_NS_PER_S)
#define TRIES	64u /* places that are looked at, before any will do */

struct borrowing {
	struct wsession *session; /* held */
	struct gantry_engine_loan loan;
	uint64_t lens[GANTRY_ENGINE_MAX_SLABS];
	int fds[GANTRY_ENGINE_MAX_SLABS]; /* owned */
	uint64_t total;
	uint64_t late_ns; /* from then on nobody waits for it */
};

static void borrowing_free(struct borrowing *b)
{
	for (uint32_t i = 0; i < b->loan.nslabs; i++)
		gantry_fd_close(b->fds[i]);
	worker_session_leave(b->session);
	free(b);
}

/* From the end of what ranges may have, which begin at its other end. */
static int open_window(struct wdevice *d, const struct wwindow *w, uint64_t bytes,
		       struct gantry_mem **ret_mem, struct gantry_err *err)
{
	uint64_t stop = w->ranges + WORKER_RANGES_BYTES;
	int r = -EADDRINUSE;

	for (uint32_t i = 1; w->ranges && r == -EADDRINUSE && i <= TRIES; i++) {
		if (bytes > WORKER_RANGES_BYTES / i)
			break;
		r = d->device.backend->window_open(d->device.dev, stop - i * bytes, bytes, ret_mem,
						   err);
	}
	return r == -EADDRINUSE
		       ? d->device.backend->window_open(d->device.dev, 0, bytes, ret_mem, err)
		       : r;
}

static int map_slabs(struct wdevice *d, const struct borrowing *b, struct gantry_mem **ret_mem,
		     struct gantry_err *err)
{
	struct gantry_mem *mem;
	uint64_t at = 0;
	int r = open_window(d, b->session->windows[d->index], b->total, &mem, err);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < b->loan.nslabs && r == 0; i++) {
		r = d->device.backend->window_map(mem, at, b->lens[i], b->fds[i], err);
		at += b->lens[i];
	}
	if (r < 0)
		d->device.backend->mem_free(mem);
	else
		*ret_mem = mem;
	return r;
}

static int publish_locked(struct wdevice *d, const struct borrowing *b, struct gantry_mem *mem,
			  uint64_t *ret_handle)
{
	struct wsession *s = b->session;
	struct gantry_ledger_buffer *buffer;
	uint32_t slot;
	int status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);

	if (status != GANTRY_OK)
		return status;
	buffer = &s->ledger.objects[slot].buffer;
	buffer->bytes = b->loan.bytes;
	buffer->rights = GANTRY_RW;
	buffer->device = d->index;
	buffer->place = GANTRY_PLACE_IMAGE;
	buffer->share_id = b->loan.share_id;
	buffer->adopted = 1;
	s->objects[slot].variable = mem;
	s->objects[slot].skip = b->loan.skip;
	s->objects[slot].borrowed = true;
	worker_object_publish(s, slot, 0);
	*ret_handle = worker_object_handle(s, slot);
	return GANTRY_OK;
}

/* Its program has other numbers for the devices than others have, or is about to. */
static bool has_moved(const struct wsession *s)
{
	return gantry_load_acquire(&s->ledger.hdr->places) != 0;
}

static int borrow(struct wdevice *d, const struct borrowing *b, uint64_t *ret_handle)
{
	struct wsession *s = b->session;
	struct gantry_err err = { 0 };
	struct gantry_mem *mem;
	int status, r;

	/* The thread may have had other things to do, */
	if (gantry_now_ns() > b->late_ns)
		return GANTRY_E_AGAIN;
	/* and may have left the session since. */
	if (has_moved(s) || !worker_has_ranges(d, s) || s->windows[d->index]->gone)
		return GANTRY_E_UNSUPPORTED;
	r = map_slabs(d, b, &mem, &err);
	if (r < 0)
		return worker_device_status(r);
	pthread_mutex_lock(&s->lock);
	status = gantry_now_ns() > b->late_ns ? GANTRY_E_AGAIN
					      : publish_locked(d, b, mem, ret_handle);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK)
		d->device.backend->mem_free(mem);
	return status;
}

static void borrow_here(struct wdevice *d, void *arg)
{
	const struct gantry_engine_events *ev = &d->engine->events;
	struct borrowing *b = arg;
	uint64_t handle = 0;
	int status;

	gantry_failpoint(GANTRY_FAILPOINT_WORKER_BORROW);
	status = borrow(d, b, &handle);
	ev->borrowed(ev->cookie, b->loan.tag, status, handle);
	borrowing_free(b);
}

static int take(struct borrowing *b, const struct gantry_engine_slab *slabs)
{
	uint32_t n = b->loan.nslabs;

	for (b->loan.nslabs = 0; b->loan.nslabs < n;) {
		const struct gantry_engine_slab *slab = &slabs[b->loan.nslabs];
		int fd = fcntl(slab->fd, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			return GANTRY_E_NO_MEMORY;
		b->lens[b->loan.nslabs] = slab->bytes;
		b->fds[b->loan.nslabs++] = fd;
		if (gantry_add_u64(b->total, slab->bytes, &b->total) < 0 ||
		    b->total > GANTRY_MAX_BUFFER_BYTES)
			return GANTRY_E_ARG;
	}
	return gantry_range_inside(b->loan.skip, b->loan.bytes, b->total) ? GANTRY_OK
									  : GANTRY_E_ARG;
}

int gantry_engine_borrow(struct gantry_engine *e, const struct gantry_engine_loan *loan,
			 const struct gantry_engine_slab *slabs)
{
	struct borrowing *b;
	struct wsession *s;
	int status;

	if (loan->device >= e->ndevices || loan->bytes == 0 || loan->nslabs == 0 ||
	    loan->nslabs > GANTRY_ENGINE_MAX_SLABS || !e->events.borrowed)
		return GANTRY_E_ARG;
	s = worker_session_get(e, loan->session_id);
	if (!s)
		return GANTRY_E_NOT_FOUND;
	b = calloc(1, sizeof(*b));
	if (!b) {
		worker_session_leave(s);
		return GANTRY_E_NO_MEMORY;
	}
	b->session = s;
	b->late_ns = gantry_now_ns() + LATE_NS;
	b->loan = *loan;
	status = take(b, slabs);
	if (status == GANTRY_OK && worker_device_post(e->devices[loan->device], borrow_here, b) < 0)
		status = GANTRY_E_NO_MEMORY;
	if (status != GANTRY_OK)
		borrowing_free(b);
	return status;
}

int worker_loan_export_locked(struct wsession *s, uint64_t handle, uint32_t mode,
			      uint64_t *ret_bytes, uint64_t *ret_share_id)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;

	/* Its address was told, so it stays where it is; and others can be told theirs. Nobody could keep them from writing. */
	if (has_moved(s) || mode != GANTRY_RW || b->place != GANTRY_PLACE_WINDOW || !b->address ||
	    b->rights != GANTRY_RW || !worker_has_ranges(s->engine->devices[b->device], s))
		return GANTRY_E_UNSUPPORTED;
	*ret_bytes = b->bytes;
	*ret_share_id = worker_share_id(s, slot);
	gantry_store_relaxed(&b->share_id, *ret_share_id);
	return GANTRY_OK;
}
