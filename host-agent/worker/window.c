/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows: the parts of a session's slab space that have device memory behind them, on each device whose memory is
 * apart from the host's.
 *
 * Slabs are asked of the agent when a buffer is placed where none is mapped, and a few ahead of need, so that most
 * buffers find memory mapped. What a freed buffer leaves there is filled with zeros before its range is anyone's
 * again; slabs that nobody uses, beyond that reserve, are unmapped and given back.
 *
 * Threads: the list of a window's slabs changes on its device's thread under session->lock, and is read there without
 * it, elsewhere with it. Everything else is under the lock.
 */
#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/window.h"

#define RESERVE_MIN 2u /* granules mapped ahead of need ... */
#define RESERVE_MAX 8u /* ... and an eighth of what is mapped, between these */

/* ---- what is mapped ---- */

/* The first slab that ends past @off. */
uint32_t worker_window_slab_after(const struct wwindow *w, uint64_t off)
{
	uint32_t lo = 0, hi = w->nslabs;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (worker_extent_end(&w->slabs[mid]) > off)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* The first part of [off, end) behind which slabs are mapped. */
bool worker_window_next_mapped(const struct wwindow *w, uint64_t off, uint64_t end,
			       struct wextent *ret_part)
{
	uint32_t i = worker_window_slab_after(w, off);
	uint64_t stop;

	if (off >= end || i == w->nslabs || w->slabs[i].off >= end)
		return false;
	ret_part->off = GANTRY_MAX(off, w->slabs[i].off);
	for (stop = worker_extent_end(&w->slabs[i]); ++i < w->nslabs && w->slabs[i].off == stop;)
		stop = worker_extent_end(&w->slabs[i]);
	ret_part->len = GANTRY_MIN(end, stop) - ret_part->off;
	return true;
}

/* The first part of [off, end) behind which none is. */
static bool next_gap(const struct wwindow *w, uint64_t off, uint64_t end, struct wextent *ret_part)
{
	struct wextent mapped;

	while (off < end) {
		if (!worker_window_next_mapped(w, off, end, &mapped)) {
			*ret_part = (struct wextent){ off, end - off };
			return true;
		}
		if (mapped.off > off) {
			*ret_part = (struct wextent){ off, mapped.off - off };
			return true;
		}
		off = worker_extent_end(&mapped);
	}
	return false;
}

/* Mapped granules that no buffer touches. */
uint64_t worker_window_spare_locked(const struct wsession *s, const struct wwindow *w)
{
	struct wextent part;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t at = worker_window_up(w, s->extents[i].off);
		uint64_t end = worker_window_down(w, worker_extent_end(&s->extents[i]));

		for (; at < end && worker_window_next_mapped(w, at, end, &part);
		     at = worker_extent_end(&part))
			bytes += part.len;
	}
	return bytes;
}

static uint64_t reserve_bytes(const struct wwindow *w)
{
	uint64_t n = w->mapped_bytes / 8 / w->align;

	return GANTRY_MIN(GANTRY_MAX(n, RESERVE_MIN), RESERVE_MAX) * w->align;
}

/*
 * So much stays mapped that nobody uses. Far more than is asked for ahead of need: to map a slab and to take it away
 * again costs a hundred launches, and who frees a buffer mostly makes another.
 */
uint64_t worker_window_held_bytes(const struct wwindow *w)
{
	return GANTRY_MAX(w->held_bytes, 2 * reserve_bytes(w));
}

bool worker_window_is_free_locked(const struct wsession *s, const struct wextent *part)
{
	for (uint32_t i = 0; i < s->nextents; i++)
		if (s->extents[i].off <= part->off &&
		    worker_extent_end(&s->extents[i]) >= worker_extent_end(part))
			return true;
	return false;
}

/* ---- asking ---- */

static struct wask *ask_at(struct wwindow *w, uint64_t off)
{
	for (uint32_t i = 0; i < w->nasks; i++)
		if (off - w->asks[i].part.off < w->asks[i].part.len)
			return &w->asks[i];
	return NULL;
}

void worker_window_forget_ask(struct wwindow *w, struct wask *ask)
{
	*ask = w->asks[--w->nasks];
}

static void send_ask(struct wsession *s, uint32_t device, struct wask *ask)
{
	const struct gantry_engine_events *ev = &s->engine->events;

	ev->need_slabs(ev->cookie, s->id, device, ask->part.off, ask->part.len);
}

static void ask_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t end, bool ahead)
{
	struct wwindow *w = s->windows[device];
	struct wask *ask;

	if (w->nasks == WORKER_MAX_ASKS)
		return; /* whoever needs it comes again */
	ask = &w->asks[w->nasks++];
	*ask = (struct wask){ .part = { off, end - off }, .ahead = ahead, .ndropped = w->ndropped };
	send_ask(s, device, ask);
}

/*
 * Slabs for a gap: asked for where that has not been done. The status of a refusal that came for a part of it; one that crossed slabs
 * on their way back is none, and the part is asked for again.
 */
static int ask_for_gap_locked(struct wsession *s, uint32_t device, const struct wextent *gap)
{
	struct wwindow *w = s->windows[device];

	for (uint64_t at = gap->off; at < worker_extent_end(gap);) {
		struct wask *ask = ask_at(w, at);
		uint64_t end = GANTRY_MIN(worker_extent_end(gap), at + WORKER_ASK_AT_ONCE);

		if (!ask) {
			for (uint32_t i = 0; i < w->nasks; i++)
				if (w->asks[i].part.off > at)
					end = GANTRY_MIN(end, w->asks[i].part.off);
			ask_locked(s, device, at, end, false);
			at = end;
			continue;
		}
		if (ask->status != GANTRY_OK) {
			int status = ask->status;
			bool crossed = ask->ndropped != w->ndropped;

			worker_window_forget_ask(w, ask);
			if (crossed)
				continue;
			return status;
		}
		ask->ahead = ask->given_up = false;
		at = worker_extent_end(&ask->part);
	}
	return GANTRY_E_AGAIN;
}

int worker_window_want_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t len)
{
	struct wwindow *w = s->windows[device];
	uint64_t end = worker_window_up(w, off + len);
	struct wextent gap;
	int status = GANTRY_OK;

	for (off = worker_window_down(w, off); next_gap(w, off, end, &gap);
	     off = worker_extent_end(&gap)) {
		status = ask_for_gap_locked(s, device, &gap);
		if (status != GANTRY_E_AGAIN)
			break;
	}
	return status;
}

static bool touches(const struct wask *ask, uint64_t off, uint64_t len)
{
	return ask->part.off < off + len && worker_extent_end(&ask->part) > off;
}

static void forget_refused(struct wwindow *w, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < w->nasks;)
		if (w->asks[i].status != GANTRY_OK && touches(&w->asks[i], off, len))
			worker_window_forget_ask(w, &w->asks[i]);
		else
			i++;
}

void worker_window_unask_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t len)
{
	struct wwindow *w = s->windows[device];

	forget_refused(w, off, len);
	for (uint32_t i = 0; i < w->nasks; i++)
		if (touches(&w->asks[i], off, len))
			w->asks[i].ahead = w->asks[i].given_up = true;
}

/* The lowest run of at least @want free bytes, whole granules, with nothing mapped or asked for. */
static bool find_hole_locked(const struct wsession *s, struct wwindow *w, uint64_t want,
			     struct wextent *ret_hole)
{
	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t at = worker_window_up(w, s->extents[i].off);
		uint64_t stop = GANTRY_MIN(worker_window_down(w, worker_extent_end(&s->extents[i])),
					   w->bytes);

		while (at < stop && stop - at >= want) {
			struct wextent blocker = { stop, 0 };
			struct wextent mapped;

			if (worker_window_next_mapped(w, at, stop, &mapped))
				blocker = mapped;
			for (uint32_t k = 0; k < w->nasks; k++)
				if (worker_extent_end(&w->asks[k].part) > at &&
				    w->asks[k].part.off < blocker.off)
					blocker = w->asks[k].part;
			if (blocker.off > at && blocker.off - at >= want) {
				*ret_hole = (struct wextent){ at, blocker.off - at };
				return true;
			}
			at = GANTRY_MAX(worker_extent_end(&blocker), at + w->align);
		}
	}
	return false;
}

/* Keeps some memory mapped that is nobody's yet. */
void worker_window_reserve_locked(struct wsession *s, uint32_t device)
{
	struct wwindow *w = s->windows[device];
	uint64_t want = reserve_bytes(w);
	uint64_t have = worker_window_spare_locked(s, w);
	struct wextent hole;

	for (uint32_t i = 0; i < w->nasks; i++)
		if (w->asks[i].ahead)
			have += w->asks[i].part.len;
	if (have >= want || gantry_now_ns() < w->reserve_after_ns ||
	    !find_hole_locked(s, w, w->align, &hole))
		return;
	ask_locked(s, device, hole.off, hole.off + GANTRY_MIN(hole.len, want - have), true);
}

/*
 * On the device's thread, behind all that the agent before has sent: what it had not answered by then it never will, so
 * that no ask has two answers. With two, the second might bring a slab that was given back meanwhile, and is another's.
 */
static void ask_again(struct wdevice *d, void *arg)
{
	struct wsession *s = arg;
	struct wwindow *w = s->windows[d->index];

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; s->joined[d->index] && !w->gone && i < w->nasks; i++)
		if (w->asks[i].status == GANTRY_OK)
			send_ask(s, d->index, &w->asks[i]);
	pthread_mutex_unlock(&s->lock);
	worker_session_leave(s);
}

void gantry_engine_ask_again(struct gantry_engine *e)
{
	uint64_t ids[GANTRY_ENGINE_MAX_SESSIONS];
	uint32_t n = gantry_engine_sessions(e, ids, GANTRY_ENGINE_MAX_SESSIONS);

	for (uint32_t i = 0; i < n; i++) {
		struct wsession *pulls = worker_session_get(e, ids[i]);

		if (pulls) {
			pthread_mutex_lock(&pulls->lock);
			worker_pull_ask_again_locked(pulls);
			pthread_mutex_unlock(&pulls->lock);
			worker_session_leave(pulls);
		}
		for (uint32_t k = 0; k < e->ndevices; k++) {
			struct wsession *s = worker_session_get(e, ids[i]);

			if (s &&
			    (!s->windows[k] || worker_device_post(e->devices[k], ask_again, s) < 0))
				worker_session_leave(s);
		}
	}
}

/* ---- placing buffers ---- */

/* The smallest free part with memory behind it that holds @len; whole granules for what is not small. */
static bool find_mapped_locked(const struct wsession *s, const struct wwindow *w, uint64_t len,
			       uint64_t *ret_off)
{
	uint64_t best = UINT64_MAX;
	struct wextent part;

	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t at = s->extents[i].off;
		uint64_t stop = worker_extent_end(&s->extents[i]);

		for (; at < stop && worker_window_next_mapped(w, at, stop, &part);
		     at = worker_extent_end(&part)) {
			uint64_t from = len < w->align ? part.off : worker_window_up(w, part.off);
			uint64_t room = worker_extent_end(&part) > from
						? worker_extent_end(&part) - from
						: 0;

			if (room >= len && room < best) {
				best = room;
				*ret_off = from;
			}
		}
	}
	return best != UINT64_MAX;
}

static bool find_any_locked(const struct wsession *s, const struct wwindow *w, uint64_t len,
			    uint64_t *ret_off)
{
	for (uint32_t i = 0; i < s->nextents; i++)
		if (s->extents[i].len >= len && s->extents[i].off + len <= w->bytes) {
			*ret_off = s->extents[i].off;
			return true;
		}
	return false;
}

/* Slabs that nobody uses, one after the other, that end where @len does. */
static bool find_slabs_locked(const struct wsession *s, const struct wwindow *w, uint64_t len,
			      uint64_t *ret_off)
{
	for (uint32_t first = 0; first < w->nslabs; first++) {
		struct wextent run = w->slabs[first];

		for (uint32_t i = first + 1; i < w->nslabs && run.len < len; i++) {
			if (w->slabs[i].off != worker_extent_end(&run))
				break;
			run.len += w->slabs[i].len;
		}
		if (run.len == len && worker_window_is_free_locked(s, &run)) {
			*ret_off = run.off;
			return true;
		}
	}
	return false;
}

int worker_window_place_locked(struct wsession *s, uint32_t device, uint64_t len, bool whole,
			       uint64_t *ret_off)
{
	struct wwindow *w = s->windows[device];
	struct wextent hole;
	uint64_t off;

	if (whole ? find_slabs_locked(s, w, len, &off) : find_mapped_locked(s, w, len, &off))
		;
	else if (find_hole_locked(s, w, worker_window_up(w, len), &hole))
		off = hole.off;
	else if (whole || !find_any_locked(s, w, len, &off))
		return -ENOMEM;
	/* Refusals that nobody has heard are of buffers that were here before. */
	forget_refused(w, off, len);
	*ret_off = off;
	return worker_slab_take_at_locked(s, off, len);
}

void worker_window_placed_locked(struct wsession *s, uint32_t device)
{
	worker_window_reserve_locked(s, device);
}

/* ---- giving slabs back ---- */

/*
 * An answer that is on its way may bring the slab again. Were it given back before that comes, it might be another's by
 * the time it is mapped.
 */
bool worker_window_may_come_again(const struct wwindow *w, const struct wextent *slab)
{
	for (uint32_t i = 0; i < w->nasks; i++)
		if (w->asks[i].status == GANTRY_OK &&
		    w->asks[i].part.off < worker_extent_end(slab) &&
		    worker_extent_end(&w->asks[i].part) > slab->off)
			return true;
	return false;
}

void worker_window_drop_slab_locked(struct wdevice *d, struct wsession *s, uint32_t i)
{
	const struct gantry_engine_events *ev = &s->engine->events;
	struct wwindow *w = s->windows[d->index];
	struct wextent slab = w->slabs[i];

	memmove(&w->slabs[i], &w->slabs[i + 1], (--w->nslabs - i) * sizeof(slab));
	w->mapped_bytes -= slab.len;
	w->ndropped++;
	(void)gantry_fetch_sub(&s->ledger.hdr->window_bytes, slab.len);
	d->device.backend->window_unmap(w->mem, slab.off, slab.len);
	ev->drop_slab(ev->cookie, s->id, d->index, slab.off, slab.len);
}

/* Whether anything of @slab is anybody's on this device. */
static bool is_needed_locked(const struct wsession *s, uint32_t device, const struct wextent *slab)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &obj->buffer;

		if (!worker_is_buffer(obj) || !worker_holds_offset(b) ||
		    b->off >= worker_extent_end(slab) ||
		    b->off + worker_page_up(b->bytes) <= slab->off)
			continue;
		if (b->to == device + 1 || (b->replicas >> device & 1) ||
		    (b->device == device && b->place != GANTRY_PLACE_SLAB))
			return true;
	}
	gantry_list_for_each(&s->washing, struct washed, link, range)
		if (range->part.off < worker_extent_end(slab) &&
		    worker_extent_end(&range->part) > slab->off)
			return true;
	return false;
}

void worker_window_leave_range(struct wdevice *d, struct wsession *s, uint64_t off, uint64_t len)
{
	const struct wextent range = { off, len };
	struct wwindow *w = s->windows[d->index];

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = w->nslabs; i-- > 0;)
		if (w->slabs[i].off < worker_extent_end(&range) &&
		    worker_extent_end(&w->slabs[i]) > range.off &&
		    !worker_window_may_come_again(w, &w->slabs[i]) &&
		    !is_needed_locked(s, d->index, &w->slabs[i]))
			worker_window_drop_slab_locked(d, s, i);
	pthread_mutex_unlock(&s->lock);
}

bool worker_window_trim_locked(struct wdevice *d, struct wsession *s, bool all)
{
	struct wwindow *w = s->windows[d->index];
	uint64_t most = all ? 0 : worker_window_held_bytes(w);
	uint64_t keep = most / 2;
	uint64_t spare = worker_window_spare_locked(s, w);
	bool any = false;

	/* More than is needed, so that the next buffer is not too much again. From the top: the used keeps together. */
	if (spare <= most)
		return false;
	for (uint32_t i = w->nslabs; i-- > 0;)
		if (spare >= keep + w->slabs[i].len &&
		    worker_window_is_free_locked(s, &w->slabs[i]) &&
		    !worker_window_may_come_again(w, &w->slabs[i])) {
			spare -= w->slabs[i].len;
			worker_window_drop_slab_locked(d, s, i);
			any = true;
		}
	return any;
}
