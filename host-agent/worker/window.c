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
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/worker/memory.h"

#define WINDOW_SPACING	 (1ull << 40) /* between the windows of a session's devices */
#define RESERVE_MIN	 2u	      /* granules mapped ahead of need ... */
#define RESERVE_MAX	 8u	      /* ... and an eighth of what is mapped, between these */
#define RESERVE_RETRY_NS 1000000000u  /* after a refusal */
#define HELD_MAX	 16u  /* granules that stay mapped when nobody uses them, at most ... */
#define HELD_SHARE	 256u /* ... and this part of the device's memory */
#define WASH_AT_ONCE	 (256ull << 20)

static uint64_t down(const struct wwindow *w, uint64_t off)
{
	return off & ~(w->align - 1);
}

static uint64_t up(const struct wwindow *w, uint64_t off)
{
	return (off + w->align - 1) & ~(w->align - 1);
}

static uint64_t end_of(const struct wextent *e)
{
	return e->off + e->len;
}

/* A range on its way back, and the windows that it is still washed in. */
struct washed {
	struct gantry_list link; /* wsession.washing */
	struct wextent part;
	uint32_t left;
	bool again; /* a slab came meanwhile that may hold anything */
	bool lost;  /* it could not be washed, and stays out of use as long as the session lives */
};

/* ---- what is mapped ---- */

/* The first slab that ends past @off. */
static uint32_t slab_after(const struct wwindow *w, uint64_t off)
{
	uint32_t lo = 0, hi = w->nslabs;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (end_of(&w->slabs[mid]) > off)
			hi = mid;
		else
			lo = mid + 1;
	}
	return lo;
}

/* The first part of [off, end) behind which slabs are mapped. */
static bool next_mapped(const struct wwindow *w, uint64_t off, uint64_t end,
			struct wextent *ret_part)
{
	uint32_t i = slab_after(w, off);
	uint64_t stop;

	if (off >= end || i == w->nslabs || w->slabs[i].off >= end)
		return false;
	ret_part->off = GANTRY_MAX(off, w->slabs[i].off);
	for (stop = end_of(&w->slabs[i]); ++i < w->nslabs && w->slabs[i].off == stop;)
		stop = end_of(&w->slabs[i]);
	ret_part->len = GANTRY_MIN(end, stop) - ret_part->off;
	return true;
}

/* The first part of [off, end) behind which none is. */
static bool next_gap(const struct wwindow *w, uint64_t off, uint64_t end, struct wextent *ret_part)
{
	struct wextent mapped;

	while (off < end) {
		if (!next_mapped(w, off, end, &mapped)) {
			*ret_part = (struct wextent){ off, end - off };
			return true;
		}
		if (mapped.off > off) {
			*ret_part = (struct wextent){ off, mapped.off - off };
			return true;
		}
		off = end_of(&mapped);
	}
	return false;
}

/* Mapped granules that no buffer touches. */
static uint64_t spare_bytes_locked(const struct wsession *s, const struct wwindow *w)
{
	struct wextent part;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t at = up(w, s->extents[i].off);
		uint64_t end = down(w, end_of(&s->extents[i]));

		for (; at < end && next_mapped(w, at, end, &part); at = end_of(&part))
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
static uint64_t held_bytes(const struct wwindow *w)
{
	return GANTRY_MAX(w->held_bytes, 2 * reserve_bytes(w));
}

static bool is_free_locked(const struct wsession *s, const struct wextent *part)
{
	for (uint32_t i = 0; i < s->nextents; i++)
		if (s->extents[i].off <= part->off && end_of(&s->extents[i]) >= end_of(part))
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

static void forget_ask(struct wwindow *w, struct wask *ask)
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
	*ask = (struct wask){ .part = { off, end - off }, .ahead = ahead };
	send_ask(s, device, ask);
}

/* Slabs for a gap: asked for where that has not been done. The status of a refusal that came for a part of it. */
static int ask_for_gap_locked(struct wsession *s, uint32_t device, const struct wextent *gap)
{
	struct wwindow *w = s->windows[device];

	for (uint64_t at = gap->off; at < end_of(gap);) {
		struct wask *ask = ask_at(w, at);
		uint64_t end = GANTRY_MIN(end_of(gap), at + WORKER_ASK_AT_ONCE);

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

			forget_ask(w, ask);
			return status;
		}
		ask->ahead = ask->given_up = false;
		at = end_of(&ask->part);
	}
	return GANTRY_E_AGAIN;
}

int worker_window_want_locked(struct wsession *s, uint32_t device, uint64_t off, uint64_t len)
{
	struct wwindow *w = s->windows[device];
	uint64_t end = up(w, off + len);
	struct wextent gap;
	int status = GANTRY_OK;

	for (off = down(w, off); next_gap(w, off, end, &gap); off = end_of(&gap)) {
		status = ask_for_gap_locked(s, device, &gap);
		if (status != GANTRY_E_AGAIN)
			break;
	}
	return status;
}

static bool touches(const struct wask *ask, uint64_t off, uint64_t len)
{
	return ask->part.off < off + len && end_of(&ask->part) > off;
}

static void forget_refused(struct wwindow *w, uint64_t off, uint64_t len)
{
	for (uint32_t i = 0; i < w->nasks;)
		if (w->asks[i].status != GANTRY_OK && touches(&w->asks[i], off, len))
			forget_ask(w, &w->asks[i]);
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
		uint64_t at = up(w, s->extents[i].off);
		uint64_t stop = GANTRY_MIN(down(w, end_of(&s->extents[i])), w->bytes);

		while (at < stop && stop - at >= want) {
			struct wextent blocker = { stop, 0 };
			struct wextent mapped;

			if (next_mapped(w, at, stop, &mapped))
				blocker = mapped;
			for (uint32_t k = 0; k < w->nasks; k++)
				if (end_of(&w->asks[k].part) > at &&
				    w->asks[k].part.off < blocker.off)
					blocker = w->asks[k].part;
			if (blocker.off > at && blocker.off - at >= want) {
				*ret_hole = (struct wextent){ at, blocker.off - at };
				return true;
			}
			at = GANTRY_MAX(end_of(&blocker), at + w->align);
		}
	}
	return false;
}

/* Keeps some memory mapped that is nobody's yet. */
static void reserve_locked(struct wsession *s, uint32_t device)
{
	struct wwindow *w = s->windows[device];
	uint64_t want = reserve_bytes(w);
	uint64_t have = spare_bytes_locked(s, w);
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
		uint64_t stop = end_of(&s->extents[i]);

		for (; at < stop && next_mapped(w, at, stop, &part); at = end_of(&part)) {
			uint64_t from = len < w->align ? part.off : up(w, part.off);
			uint64_t room = end_of(&part) > from ? end_of(&part) - from : 0;

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

int worker_window_place_locked(struct wsession *s, uint32_t device, uint64_t len, uint64_t *ret_off)
{
	struct wwindow *w = s->windows[device];
	struct wextent hole;
	uint64_t off;

	if (find_mapped_locked(s, w, len, &off))
		;
	else if (find_hole_locked(s, w, up(w, len), &hole))
		off = hole.off;
	else if (!find_any_locked(s, w, len, &off))
		return -ENOMEM;
	/* Refusals that nobody has heard are of buffers that were here before. */
	forget_refused(w, off, len);
	*ret_off = off;
	return worker_slab_take_at_locked(s, off, len);
}

void worker_window_placed_locked(struct wsession *s, uint32_t device)
{
	reserve_locked(s, device);
}

/* ---- giving slabs back ---- */

/*
 * An answer that is on its way may bring the slab again. Were it given back before that comes, it might be another's by
 * the time it is mapped.
 */
static bool may_come_again(const struct wwindow *w, const struct wextent *slab)
{
	for (uint32_t i = 0; i < w->nasks; i++)
		if (w->asks[i].status == GANTRY_OK && w->asks[i].part.off < end_of(slab) &&
		    end_of(&w->asks[i].part) > slab->off)
			return true;
	return false;
}

static void drop_slab_locked(struct wdevice *d, struct wsession *s, uint32_t i)
{
	const struct gantry_engine_events *ev = &s->engine->events;
	struct wwindow *w = s->windows[d->index];
	struct wextent slab = w->slabs[i];

	memmove(&w->slabs[i], &w->slabs[i + 1], (--w->nslabs - i) * sizeof(slab));
	w->mapped_bytes -= slab.len;
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

		if (!worker_is_buffer(obj) || !worker_holds_offset(b) || b->off >= end_of(slab) ||
		    b->off + worker_page_up(b->bytes) <= slab->off)
			continue;
		if (b->to == device + 1 || (b->replicas >> device & 1) ||
		    (b->device == device && b->place != GANTRY_PLACE_SLAB))
			return true;
	}
	gantry_list_for_each(&s->washing, struct washed, link, range)
		if (range->part.off < end_of(slab) && end_of(&range->part) > slab->off)
			return true;
	return false;
}

void worker_window_leave_range(struct wdevice *d, struct wsession *s, uint64_t off, uint64_t len)
{
	const struct wextent range = { off, len };
	struct wwindow *w = s->windows[d->index];

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = w->nslabs; i-- > 0;)
		if (w->slabs[i].off < end_of(&range) && end_of(&w->slabs[i]) > range.off &&
		    !may_come_again(w, &w->slabs[i]) &&
		    !is_needed_locked(s, d->index, &w->slabs[i]))
			drop_slab_locked(d, s, i);
	pthread_mutex_unlock(&s->lock);
}

bool worker_window_trim_locked(struct wdevice *d, struct wsession *s, bool all)
{
	struct wwindow *w = s->windows[d->index];
	uint64_t most = all ? 0 : held_bytes(w);
	uint64_t keep = most / 2;
	uint64_t spare = spare_bytes_locked(s, w);
	bool any = false;

	/* More than is needed, so that the next buffer is not too much again. From the top: the used keeps together. */
	if (spare <= most)
		return false;
	for (uint32_t i = w->nslabs; i-- > 0;)
		if (spare >= keep + w->slabs[i].len && is_free_locked(s, &w->slabs[i]) &&
		    !may_come_again(w, &w->slabs[i])) {
			spare -= w->slabs[i].len;
			drop_slab_locked(d, s, i);
			any = true;
		}
	return any;
}

/* ---- washing ---- */

struct wash_job {
	struct wjob job; /* first */
	struct washed *range;
	uint64_t at;
	bool begun;
};

/* Slabs that lie in the range wholly need no washing if they are given back, where the agent has it done. */
static void drop_inside(struct wdevice *d, struct wsession *s, const struct washed *range)
{
	struct wwindow *w = s->windows[d->index];
	uint64_t spare;

	pthread_mutex_lock(&s->lock);
	spare = spare_bytes_locked(s, w);
	for (uint32_t i = w->nslabs; i-- > 0;) {
		const struct wextent *slab = &w->slabs[i];

		if (slab->off < range->part.off || end_of(slab) > end_of(&range->part))
			continue;
		if (may_come_again(w, slab))
			continue;
		if (spare + slab->len <= held_bytes(w))
			spare += slab->len;
		else
			drop_slab_locked(d, s, i);
	}
	pthread_mutex_unlock(&s->lock);
}

static enum wjob_next wash_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct wash_job *job = (struct wash_job *)base;
	struct wwindow *w = base->session->windows[d->index];
	struct wextent part;

	if (base->status != GANTRY_OK)
		return JOB_END;
	if (!job->begun)
		drop_inside(d, base->session, job->range);
	job->begun = true;
	if (!next_mapped(w, job->at, end_of(&job->range->part), &part))
		return JOB_END;
	part.len = GANTRY_MIN(part.len, WASH_AT_ONCE);
	job->at = end_of(&part);
	gantry_count_add(&base->session->ledger.hdr->scrubbed_bytes, part.len);
	cmd->kind = GANTRY_CMD_FILL;
	cmd->fill.dst = (struct gantry_range){ w->mem, part.off, part.len };
	cmd->fill.pattern = 0;
	cmd->fill.pattern_bytes = 8;
	return JOB_COMMAND;
}

static void wash_end(struct wdevice *d, struct wjob *base)
{
	struct wash_job *job = (struct wash_job *)base;
	struct wsession *s = base->session;
	struct washed *range = job->range;
	bool last;

	pthread_mutex_lock(&s->lock);
	range->lost = range->lost || base->status != GANTRY_OK;
	last = --range->left == 0 && !range->lost;
	if (last) {
		gantry_list_remove(&range->link);
		s->nwashing--;
		if (range->again)
			worker_window_wash_locked(s, range->part.off, range->part.len, UINT32_MAX);
		else
			worker_slab_put_locked(s, range->part.off, range->part.len);
		free(range);
	}
	if (!gantry_load_acquire(&s->ending))
		(void)worker_window_trim_locked(d, s, false);
	pthread_mutex_unlock(&s->lock);
	free(job);
	if (last) /* somebody may wait for room */
		worker_session_wake(s);
}

static int wash_start_locked(struct wsession *s, uint32_t device, struct washed *range)
{
	struct wash_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->job.next = wash_next;
	job->job.end = wash_end;
	job->range = range;
	job->at = range->part.off;
	if (worker_job_start_locked(s, device, &job->job) < 0) {
		free(job);
		return -ENOMEM;
	}
	range->left++;
	return 0;
}

void worker_window_wash_locked(struct wsession *s, uint64_t off, uint64_t len, uint32_t windows)
{
	struct washed *range = NULL;
	struct wextent part;

	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct wwindow *w = s->windows[i];

		if (!(windows >> i & 1) || !w || !w->mem || w->gone ||
		    !next_mapped(w, off, off + len, &part))
			continue;
		if (!range) {
			range = calloc(1, sizeof(*range));
			if (!range)
				return; /* out of use: nobody may see what is there */
			range->part = (struct wextent){ off, len };
			gantry_list_init(&range->link);
			gantry_list_push_back(&s->washing, &range->link);
			s->nwashing++;
		}
		if (wash_start_locked(s, i, range) < 0)
			range->lost = true;
	}
	if (!range)
		worker_slab_put_locked(s, off, len);
}

/* ---- slabs that come ---- */

static int insert_locked(struct wwindow *w, const struct wextent *slab)
{
	uint32_t i = slab_after(w, slab->off);

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
		if (range->part.off < end_of(slab) && end_of(&range->part) > slab->off)
			range->again = true;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &obj->buffer;

		if (!worker_is_buffer(obj) || !worker_holds_offset(b) || b->off >= end_of(slab) ||
		    b->off + worker_page_up(b->bytes) <= slab->off)
			continue;
		s->objects[i].dirty |= 1u << device;
		/* One that waits for its first memory waits for some that is clean. */
		if (b->place == GANTRY_PLACE_NONE)
			worker_move_forget_locked(s, i);
	}
	for (uint32_t i = 0; i < s->nextents; i++) {
		uint64_t from = GANTRY_MAX(s->extents[i].off, slab->off);
		uint64_t end = GANTRY_MIN(end_of(&s->extents[i]), end_of(slab));

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

	return next_mapped(w, slab->off, end_of(slab), &part);
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
	    end_of(slab) <= give->off)
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
			w->reserve_after_ns = gantry_now_ns() + RESERVE_RETRY_NS;
		if (status == GANTRY_OK || ask->ahead || is_free_locked(s, &ask->part))
			forget_ask(w, ask);
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
		if (give->last || status != GANTRY_OK)
			unwanted = answered_locked(s, w, give, status);
		pthread_mutex_unlock(&s->lock);
		if (unwanted)
			worker_window_leave_range(d, s, give->off, give->bytes);
	}
	if (gantry_load_relaxed(&s->njobs)) /* a move on another thread may wait for them */
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

/* ---- coming and going ---- */

int worker_windows_init(struct wsession *s, const struct gantry_engine_attach *a,
			struct gantry_err *err)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		const struct wdevice *d = s->engine->devices[i];
		struct wwindow *w;

		if (!(s->device_mask >> i & 1) || !d->usable ||
		    !(d->device.info.caps & GANTRY_CAP_WINDOW))
			continue;
		w = calloc(1, sizeof(*w));
		if (!w)
			return gantry_err_set(err, -ENOMEM, "no memory for the session's windows");
		w->align = d->device.info.slab_align;
		w->bytes = GANTRY_MIN(s->slab_bytes, WINDOW_SPACING) & ~(w->align - 1);
		w->address = a->window_address ? a->window_address + i * WINDOW_SPACING : 0;
		w->held_bytes = GANTRY_MIN(d->device.info.mem_bytes / HELD_SHARE,
					   HELD_MAX * w->align);
		w->unclean = a->recover;
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
	/* As the segment: somewhere else where the place is taken. */
	if (r == -EADDRINUSE && w->address)
		r = be->window_open(d->device.dev, 0, w->bytes, &mem, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	w->mem = mem;
	reserve_locked(s, d->index);
	pthread_mutex_unlock(&s->lock);
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
