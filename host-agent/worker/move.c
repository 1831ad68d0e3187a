/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving buffers between host memory and windows, and from one window to another. A buffer has one place at a time; at
 * its offset it may lie in the slab's file or in a window, so that a move changes no offset.
 *
 * One mechanism, a job on the thread of the window that is written or read. It begins when every task that may use the
 * buffer has finished: `ready` is cleared, so that from then on threads come to the lock and wait; each thread that may
 * have tasks in flight is visited and says how far its queues are; when all have come that far the bytes are copied. The
 * ledger says the old place until all is copied, then the new one: whichever side a worker's death leaves, it is whole.
 *
 * Who moves: a task whose buffers are elsewhere, and one for which there is no room (the least used of the session's
 * others are moved to host memory). One task of a session at a time: two that want each other's buffers would wait for
 * ever, or move them to and fro. It keeps that right until it is bound, or is not tried for a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/memory.h"

#define MOVER_IDLE_NS 300000000u
/* Host memory is made known to the device piece by piece: each takes the thread for a millisecond, not for seconds. */
#define PIECE_BYTES (32ull << 20)

struct move_job {
	struct wjob job; /* first */
	enum {
		MOVE_SPILL,
		MOVE_FETCH,
		MOVE_PEER,
	} kind;
	uint32_t slot;
	uint32_t from;	 /* PEER: the device it comes from */
	uint32_t visits; /* under the lock: threads that have not said how far they are */
	bool quiet;	 /* no task in flight uses it */
	uint64_t off;
	uint64_t len;
	uint64_t at; /* this much is copied, or with the device */
	void *base;  /* the piece of the slab's file that is with the device */
	uint64_t base_bytes;
	struct gantry_mem *host;
	uint64_t tails[GANTRY_MAX_QUEUES];
};

static struct gantry_ledger_buffer *buffer_of(struct wsession *s, uint32_t slot)
{
	return &s->ledger.objects[slot].buffer;
}

/* ---- whose turn it is ---- */

static bool mover_is_idle(const struct wsession *s, uint64_t now)
{
	const struct wqueue *q = s->mover;

	if (!q || gantry_load_relaxed(&q->led->issued) > s->mover_pos ||
	    gantry_load_relaxed(&q->led->paused) || gantry_load_relaxed(&q->led->guest_paused))
		return true;
	return gantry_load_relaxed(&s->njobs) == 0 && now - s->mover_seen_ns > MOVER_IDLE_NS;
}

/* Whether buffers may be moved for the task that this thread is binding. */
static bool may_move_locked(struct wdevice *d, struct wsession *s)
{
	struct wqueue *q = d->binding;
	uint64_t now = gantry_now_ns();

	if (s->mover != q || s->mover_pos != q->led->issued) {
		if (!mover_is_idle(s, now))
			return false;
		gantry_store_relaxed(&s->mover, q);
		s->mover_pos = q->led->issued;
		s->mover_id++;
	}
	s->mover_seen_ns = now;
	return true;
}

void worker_move_over(struct wsession *s)
{
	pthread_mutex_lock(&s->lock);
	gantry_store_relaxed(&s->mover, (struct wqueue *)NULL);
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s);
}

/* What the task needs stays where it is. */
static void hold_its_buffers_locked(struct wdevice *d, struct wsession *s)
{
	uint64_t handles[GANTRY_MAX_ACCESSES];
	uint32_t n = worker_task_buffers(d->binding, d->binding->led->issued, handles,
					 GANTRY_MAX_ACCESSES);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = GANTRY_HANDLE_SLOT(handles[i]);

		if (slot < GANTRY_LEDGER_NOBJECTS)
			s->objects[slot].for_task = s->mover_id;
	}
}

/* ---- until nobody uses it ---- */

static void visit(struct wdevice *d, void *arg)
{
	struct move_job *job = arg;
	struct wsession *s = job->job.session;
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);

	pthread_mutex_lock(&s->lock);
	for (; mask; mask &= mask - 1) {
		const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		job->tails[q->slot] = GANTRY_MAX(job->tails[q->slot],
						 gantry_load_relaxed(&q->led->issued));
	}
	job->visits--;
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s);
}

static bool all_visited(struct move_job *job)
{
	struct wsession *s = job->job.session;
	bool all;

	pthread_mutex_lock(&s->lock);
	all = job->visits == 0;
	pthread_mutex_unlock(&s->lock);
	return all;
}

static bool all_done(const struct move_job *job)
{
	const struct wsession *s = job->job.session;

	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		/* Acquire: pairs with the release in worker_finish(); what the task wrote is seen. */
		if (job->tails[i] && gantry_load_acquire(&s->ledger.queues[i].done) < job->tails[i])
			return false;
	return true;
}

/* Asks to be woken by whoever finishes tasks, then looks once more: as bind_wait() does. */
static bool is_quiet(struct wdevice *d, struct move_job *job)
{
	if (job->quiet || all_done(job))
		return job->quiet = true;
	(void)gantry_fetch_or(&job->job.session->waiting, 1u << d->index);
	gantry_fence_full(); /* pairs with the one in worker_publish() */
	return job->quiet = all_done(job);
}

/* ---- copying ---- */

static void piece_close(struct wdevice *d, struct move_job *job)
{
	if (job->host)
		d->device.backend->mem_free(job->host);
	if (job->base)
		(void)munmap(job->base, job->base_bytes);
	job->host = NULL;
	job->base = NULL;
}

/* The next piece of the slab's file, for the device to copy to or from. */
static int piece_open(struct wdevice *d, struct move_job *job)
{
	struct wsession *s = job->job.session;
	off_t off = (off_t)(job->off + job->at);
	struct gantry_err err;

	job->base_bytes = GANTRY_MIN(job->len - job->at, PIECE_BYTES);
	/* Pages are taken first, so that a full host is an answer here. */
	if (job->kind == MOVE_SPILL && fallocate(s->slab_fd, 0, off, (off_t)job->base_bytes) < 0)
		return GANTRY_E_NO_MEMORY;
	job->base = mmap(NULL, job->base_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->slab_fd,
			 off);
	if (job->base == MAP_FAILED) {
		job->base = NULL;
		return GANTRY_E_NO_MEMORY;
	}
	if (d->device.backend->mem_host(d->device.dev, job->base, job->base_bytes, &job->host,
					&err) < 0) {
		job->host = NULL;
		return GANTRY_E_NO_MEMORY;
	}
	return GANTRY_OK;
}

static void fill_copy(struct wdevice *d, struct move_job *job, struct gantry_cmd *cmd)
{
	struct wsession *s = job->job.session;
	uint64_t bytes = job->kind == MOVE_PEER ? job->len - job->at : job->base_bytes;
	struct gantry_range here = { s->windows[d->index]->mem, job->off + job->at, bytes };
	struct gantry_range there = { job->host, 0, bytes };

	if (job->kind == MOVE_PEER)
		there = (struct gantry_range){ s->windows[job->from]->mem, here.off, bytes };
	cmd->kind = GANTRY_CMD_COPY;
	cmd->copy.dst = job->kind == MOVE_SPILL ? there : here;
	cmd->copy.src = job->kind == MOVE_SPILL ? here : there;
	job->at += bytes;
	gantry_count_add(&s->ledger.hdr->moved_bytes, bytes);
}

/* After a recovery the slabs that it comes from may not be mapped yet. */
static int want_source(struct move_job *job)
{
	struct wsession *s = job->job.session;
	int status;

	if (job->kind == MOVE_FETCH || job->at == job->len)
		return GANTRY_OK;
	pthread_mutex_lock(&s->lock);
	status = worker_window_want_locked(s, job->from, job->off, job->len);
	pthread_mutex_unlock(&s->lock);
	return status;
}

static enum wjob_next move_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct move_job *job = (struct move_job *)base;

	/* Visitors hold the job. */
	if (!all_visited(job))
		return JOB_WAIT;
	if (base->status != GANTRY_OK)
		return JOB_END;
	if (!is_quiet(d, job))
		return JOB_WAIT;
	piece_close(d, job);
	base->status = want_source(job);
	if (base->status == GANTRY_E_AGAIN) {
		base->status = GANTRY_OK;
		return JOB_WAIT;
	}
	if (job->at == job->len || base->status != GANTRY_OK)
		return JOB_END;
	if (job->kind != MOVE_PEER)
		base->status = piece_open(d, job);
	if (base->status != GANTRY_OK)
		return JOB_END;
	fill_copy(d, job, cmd);
	return JOB_COMMAND;
}

/* ---- the end of a move ---- */

struct leave_job {
	struct wjob job; /* first */
	uint64_t off;
	uint64_t len;
};

static enum wjob_next leave_next(struct wdevice *d, struct wjob *job, struct gantry_cmd *cmd)
{
	(void)d;
	(void)job;
	(void)cmd;
	return JOB_END;
}

static void leave_end(struct wdevice *d, struct wjob *base)
{
	struct leave_job *job = (struct leave_job *)base;

	if (base->status == GANTRY_OK)
		worker_window_leave_range(d, base->session, job->off, job->len);
	free(job);
}

/* The window it came from is another thread's. Without memory for this its slabs stay until the session ends. */
static void leave_there_locked(struct wsession *s, const struct move_job *move)
{
	struct leave_job *job = calloc(1, sizeof(*job));

	if (!job)
		return;
	job->job.next = leave_next;
	job->job.end = leave_end;
	job->off = move->off;
	job->len = move->len;
	if (worker_job_start_locked(s, move->from, &job->job) < 0)
		free(job);
}

static void spilled_locked(struct wsession *s, struct gantry_ledger_buffer *b)
{
	uint64_t charged = b->charged_bytes;

	gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_CLEAN);
	/* Release: whoever reads the ledger after our death finds a whole buffer on either side of this. */
	gantry_store_release(&b->place, (uint32_t)GANTRY_PLACE_SLAB);
	gantry_store_relaxed(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_NONE);
	gantry_store_relaxed(&b->charged_bytes, (uint64_t)0);
	worker_refund_resident(s, b->device, charged);
}

static void arrived_locked(struct wsession *s, struct gantry_ledger_buffer *b, uint32_t device)
{
	bool came_from_host = b->place == GANTRY_PLACE_SLAB;
	uint32_t from = b->device;

	if (came_from_host && b->host_bytes)
		gantry_store_relaxed(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_CLEAN);
	/* For a copy between windows this is the moment; for one from host memory the place is. */
	gantry_store_release(&b->device, device);
	gantry_store_release(&b->place, (uint32_t)GANTRY_PLACE_WINDOW);
	gantry_store_relaxed(&b->to, 0u);
	if (from != device)
		worker_refund_pool(s, from, b->charged_bytes);
	if (came_from_host && !b->host_bytes)
		worker_scrub_host(s, b->off, worker_page_up(b->bytes));
}

static void move_end(struct wdevice *d, struct wjob *base)
{
	struct move_job *job = (struct move_job *)base;
	struct wsession *s = base->session;
	struct gantry_ledger_buffer *b = buffer_of(s, job->slot);
	struct wobject *rt = &s->objects[job->slot];

	piece_close(d, job);
	pthread_mutex_lock(&s->lock);
	if (base->status == GANTRY_OK && job->kind == MOVE_SPILL) {
		spilled_locked(s, b);
	} else if (base->status == GANTRY_OK) {
		arrived_locked(s, b, d->index);
		rt->dirty |= 1u << d->index;
		if (job->kind == MOVE_PEER)
			leave_there_locked(s, job);
	} else if (job->kind == MOVE_SPILL) {
		worker_move_drop_copy_locked(s, b);
	} else {
		worker_move_forget_locked(s, job->slot);
	}
	if (base->status == GANTRY_OK)
		rt->users = 0;
	else
		rt->stuck = base->status;
	rt->moving = false;
	s->mover_seen_ns = gantry_now_ns();
	pthread_mutex_unlock(&s->lock);
	if (base->status == GANTRY_OK && job->kind == MOVE_SPILL)
		worker_window_leave_range(d, s, job->off, job->len);
	free(job);
	worker_session_wake(s);
}

/* ---- the beginning ---- */

/* Threads that may have tasks in flight which use it. */
static void send_visitors_locked(struct wsession *s, struct move_job *job, uint32_t users)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		if (!(users >> i & 1))
			continue;
		if (worker_device_post(s->engine->devices[i], visit, job) == 0)
			job->visits++;
		else
			job->job.status = GANTRY_E_NO_MEMORY;
	}
}

/* AGAIN: it has begun. */
static int begin_locked(struct wsession *s, uint32_t slot, uint32_t device, int kind)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];
	struct move_job *job;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (s->windows[i] && s->windows[i]->gone)
			return GANTRY_E_AGAIN; /* the session ends */
	job = calloc(1, sizeof(*job));
	if (!job)
		return GANTRY_E_NO_MEMORY;
	job->job.next = move_next;
	job->job.end = move_end;
	job->kind = kind;
	job->slot = slot;
	job->from = b->device;
	job->off = b->off;
	job->len = worker_page_up(b->bytes);
	if (kind == MOVE_SPILL && b->host_copy == GANTRY_HOST_COPY_CLEAN)
		job->at = job->len; /* the bytes are there */
	if (worker_job_start_locked(s, device, &job->job) < 0) {
		free(job);
		return GANTRY_E_NO_MEMORY;
	}
	rt->moving = true;
	/* Threads that have read it already are visited; the others find it moving. */
	gantry_store_relaxed(&rt->ready, 0u);
	send_visitors_locked(s, job, rt->users);
	return GANTRY_E_AGAIN;
}

static int spill_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	int status = GANTRY_OK;

	worker_move_forget_locked(s, slot);
	if (b->host_copy != GANTRY_HOST_COPY_CLEAN) {
		status = worker_charge_host(s, b);
		if (status != GANTRY_OK)
			return status;
		gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_FILLING);
	}
	status = begin_locked(s, slot, b->device, MOVE_SPILL);
	if (status != GANTRY_E_AGAIN || !s->objects[slot].moving)
		if (b->host_copy == GANTRY_HOST_COPY_FILLING)
			worker_move_drop_copy_locked(s, b);
	return status;
}

int worker_move_to_host_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	if (!may_move_locked(d, s))
		return GANTRY_E_AGAIN;
	s->objects[slot].for_task = s->mover_id;
	return spill_locked(s, slot);
}

static bool are_peers(const struct wdevice *a, const struct wdevice *b)
{
	return (a->device.info.caps & b->device.info.caps & GANTRY_CAP_PEER) &&
	       strcmp(a->device.backend->name, b->device.backend->name) == 0;
}

/* Charged to the pool of where it goes, before anything is copied. */
static int prepare_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (b->to == d->index + 1)
		return GANTRY_OK;
	worker_move_forget_locked(s, slot);
	status = b->charged_bytes ? worker_charge_pool(d, len) : worker_charge_resident(d, s, len);
	if (status == GANTRY_E_NO_MEMORY)
		return worker_move_make_room_locked(d, s, len, false);
	if (status != GANTRY_OK)
		return status;
	gantry_store_relaxed(&b->to, d->index + 1);
	if (!b->charged_bytes) {
		gantry_store_relaxed(&b->device, d->index);
		gantry_store_release(&b->charged_bytes, len);
	}
	return GANTRY_OK;
}

int worker_move_to_window_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	bool in_window = b->place == GANTRY_PLACE_WINDOW;
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (!may_move_locked(d, s))
		return GANTRY_E_AGAIN;
	s->objects[slot].for_task = s->mover_id;
	if (in_window && !are_peers(d, s->engine->devices[b->device]))
		return spill_locked(s, slot);
	if (!gantry_range_inside(b->off, len, s->windows[d->index]->bytes))
		return GANTRY_E_LIMIT;
	status = prepare_locked(d, s, slot);
	if (status == GANTRY_OK)
		status = worker_window_want_locked(s, d->index, b->off, len);
	if (status == GANTRY_OK)
		status = begin_locked(s, slot, d->index, in_window ? MOVE_PEER : MOVE_FETCH);
	return status;
}

void worker_move_forget_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];
	uint64_t charged = b->charged_bytes;
	uint32_t to = b->to;

	if (b->place == GANTRY_PLACE_NONE && charged) {
		gantry_store_relaxed(&b->charged_bytes, (uint64_t)0);
		worker_refund_resident(s, b->device, charged);
		worker_window_wash_locked(s, b->off, charged, rt->dirty);
		b->off = 0;
		rt->dirty = 0;
	}
	if (to == 0)
		return;
	gantry_store_relaxed(&b->to, 0u);
	if (to - 1 != b->device) {
		worker_refund_pool(s, to - 1, charged);
	} else if (b->place == GANTRY_PLACE_SLAB) {
		gantry_store_relaxed(&b->charged_bytes, (uint64_t)0);
		worker_refund_resident(s, to - 1, charged);
	}
}

void worker_move_drop_copy_locked(struct wsession *s, struct gantry_ledger_buffer *b)
{
	gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_NONE);
	worker_scrub_host(s, b->off, worker_page_up(b->bytes));
	worker_refund_host(s, b);
}

/* ---- making room ---- */

/* Something that may go from the device: in its window, and not needed by the task that room is made for. */
static bool may_go(const struct wsession *s, uint32_t device, uint32_t slot)
{
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];
	const struct wobject *rt = &s->objects[slot];

	return worker_is_buffer(obj) && obj->buffer.place == GANTRY_PLACE_WINDOW &&
	       obj->buffer.device == device && !rt->moving && !rt->stuck &&
	       rt->for_task != s->mover_id;
}

/* Of those the one that was used longest ago: what is not ready was not used since the last time we looked. */
static uint32_t least_used_locked(struct wsession *s, uint32_t device)
{
	uint32_t best = GANTRY_LEDGER_NOBJECTS;
	bool best_ready = true;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		bool is_ready;

		if (!may_go(s, device, i))
			continue;
		is_ready = gantry_load_relaxed(&s->objects[i].ready) != 0;
		if (best < GANTRY_LEDGER_NOBJECTS &&
		    (is_ready > best_ready ||
		     (is_ready == best_ready && s->objects[i].used >= s->objects[best].used)))
			continue;
		best = i;
		best_ready = is_ready;
	}
	return best;
}

struct room {
	uint64_t there;	 /* bytes that may go */
	uint64_t coming; /* that are on their way out */
};

static struct room look_locked(struct wsession *s, uint32_t device)
{
	struct room room = { 0 };

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_buffer *b = buffer_of(s, i);

		if (may_go(s, device, i))
			room.there += b->charged_bytes;
		else if (s->objects[i].moving && b->place == GANTRY_PLACE_WINDOW &&
			 b->device == device)
			room.coming += b->charged_bytes;
	}
	return room;
}

static uint64_t missing(const struct wdevice *d, uint64_t bytes)
{
	uint64_t limit = gantry_load_relaxed(&d->page->hdr.mem_bytes);
	uint64_t used = gantry_load_relaxed(&d->page->hdr.mem_used);
	uint64_t left = limit > used ? limit - used : 0;

	return bytes > left ? bytes - left : 0;
}

int worker_move_make_room_locked(struct wdevice *d, struct wsession *s, uint64_t bytes,
				 bool machine_is_full)
{
	uint64_t gone = 0;
	struct room room;

	if (!may_move_locked(d, s))
		return GANTRY_E_AGAIN;
	hold_its_buffers_locked(d, s);
	room = look_locked(s, d->index);
	if (room.coming || s->nwashing)
		return GANTRY_E_AGAIN; /* when that is over it is tried again */
	if (machine_is_full && worker_window_trim_locked(d, s, true))
		return GANTRY_E_AGAIN;
	if (!machine_is_full)
		bytes = missing(d, bytes);
	if (room.there == 0 || room.there < bytes)
		return GANTRY_E_NO_MEMORY;
	do {
		uint32_t slot = least_used_locked(s, d->index);
		int status;

		if (slot == GANTRY_LEDGER_NOBJECTS)
			break;
		status = spill_locked(s, slot);
		if (status != GANTRY_E_AGAIN || !s->objects[slot].moving)
			return gone ? GANTRY_E_AGAIN : status;
		gone += buffer_of(s, slot)->charged_bytes;
	} while (gone < bytes);
	/* Whatever is used from now on says so. This is the thread that reads the bits without the lock. */
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (may_go(s, d->index, i))
			gantry_store_relaxed(&s->objects[i].ready, 0u);
	return GANTRY_E_AGAIN;
}
