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
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/memory.h"

#define MOVER_IDLE_NS 300000000u

enum move_what {
	MOVE_ALL,  /* the buffer's place changes */
	MOVE_COPY, /* a replica is made, and it is read meanwhile (replica.c) */
	MOVE_DROP, /* a replica ends */
};

struct move_job {
	struct wjob job; /* first */
	enum move_what what;
	uint32_t slot;
	struct wquiet quiet;
	struct wcarry carry;
	struct wahead *ahead; /* what of it is not there yet; NULL: all */
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

bool worker_move_claim_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	if (!may_move_locked(d, s))
		return false;
	s->objects[slot].for_task = s->mover_id;
	return true;
}

bool worker_move_is_others_locked(const struct wdevice *d, const struct wsession *s, uint32_t slot)
{
	return s->mover && s->mover != d->binding && s->objects[slot].for_task == s->mover_id &&
	       !mover_is_idle(s, gantry_now_ns());
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

/* ---- copying ---- */

/* After a recovery the slabs that it comes from may not be mapped yet. */
static int want_source(struct move_job *job)
{
	const struct wcarry *c = &job->carry;
	struct wsession *s = job->job.session;
	int status;

	if (c->way == CARRY_FETCH || c->at == c->len)
		return GANTRY_OK;
	pthread_mutex_lock(&s->lock);
	status = worker_window_want_locked(s, c->from, c->off, c->len);
	pthread_mutex_unlock(&s->lock);
	return status;
}

static enum wjob_next move_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct move_job *job = (struct move_job *)base;
	bool more = false;

	/* Visitors hold the job. */
	if (!worker_quiet_visited(&job->quiet))
		return JOB_WAIT;
	if (base->status != GANTRY_OK)
		return JOB_END;
	if (!worker_quiet_reached(d, &job->quiet))
		return JOB_WAIT;
	base->status = want_source(job);
	if (base->status == GANTRY_E_AGAIN) {
		base->status = GANTRY_OK;
		return JOB_WAIT;
	}
	if (base->status == GANTRY_OK)
		base->status = worker_carry_next(d, &job->carry, cmd, &more);
	return base->status == GANTRY_OK && more ? JOB_COMMAND : JOB_END;
}

/* ---- the end of a move ---- */

struct leave_job {
	struct wjob job; /* first */
	uint64_t off;
	uint64_t len;
};

/* A queue stands still meanwhile: to unmap what it has left takes this thread, which is to hand it over first. */
static bool hands_over(struct wsession *s)
{
	bool any = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		any = any || s->queues[i].migration;
	pthread_mutex_unlock(&s->lock);
	return any;
}

static enum wjob_next leave_next(struct wdevice *d, struct wjob *job, struct gantry_cmd *cmd)
{
	(void)d;
	(void)cmd;
	return job->status == GANTRY_OK && hands_over(job->session) ? JOB_WAIT : JOB_END;
}

static void leave_end(struct wdevice *d, struct wjob *base)
{
	struct leave_job *job = (struct leave_job *)base;

	if (base->status == GANTRY_OK)
		worker_window_leave_range(d, base->session, job->off, job->len);
	free(job);
}

/* The window it came from is another thread's. Without memory for this its slabs stay until the session ends. */
static void leave_there_locked(struct wsession *s, uint32_t device, const struct wcarry *carry)
{
	struct leave_job *job = calloc(1, sizeof(*job));

	if (!job)
		return;
	job->job.next = leave_next;
	job->job.end = leave_end;
	job->off = carry->off;
	job->len = carry->len;
	if (worker_job_start_locked(s, device, &job->job) < 0)
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

/* It was brought to host memory: copies in windows go too. Whoever used one has finished. */
static void replicas_gone_locked(struct wsession *s, const struct move_job *job)
{
	uint32_t had = worker_replica_forget_locked(s, job->slot);

	for (; had; had &= had - 1)
		leave_there_locked(s, (uint32_t)__builtin_ctz(had), &job->carry);
}

static void moved_locked(struct wdevice *d, struct wsession *s, const struct move_job *job)
{
	struct gantry_ledger_buffer *b = buffer_of(s, job->slot);
	struct wobject *rt = &s->objects[job->slot];
	bool spills = job->carry.way == CARRY_SPILL;

	if (job->job.status != GANTRY_OK) {
		if (spills)
			worker_replica_host_gone_locked(s, job->slot);
		else
			worker_move_forget_locked(s, job->slot);
		rt->stuck = job->job.status;
		return;
	}
	if (spills) {
		replicas_gone_locked(s, job);
		spilled_locked(s, b);
	} else {
		arrived_locked(s, b, d->index);
		rt->dirty |= 1u << d->index;
		if (job->carry.way == CARRY_PEER)
			leave_there_locked(s, job->carry.from, &job->carry);
	}
	rt->users = 0;
}

/* The buffer is where it was; whoever wants it moves it, and hears if that cannot be either. */
static void copy_failed_locked(struct wsession *s, const struct move_job *job)
{
	if (job->what == MOVE_COPY && job->carry.way == CARRY_SPILL)
		worker_replica_host_gone_locked(s, job->slot);
	worker_replica_pause_locked(s);
}

static void move_end(struct wdevice *d, struct wjob *base)
{
	struct move_job *job = (struct move_job *)base;
	struct wsession *s = base->session;
	struct wobject *rt = &s->objects[job->slot];

	worker_carry_close(d, &job->carry);
	pthread_mutex_lock(&s->lock);
	if (job->what == MOVE_ALL)
		moved_locked(d, s, job);
	else if (base->status != GANTRY_OK)
		copy_failed_locked(s, job);
	else if (job->what == MOVE_COPY)
		worker_replica_made_locked(s, job->slot, d->index, job->carry.way,
					   job->carry.moved_bytes);
	else
		worker_replica_dropped_locked(s, job->slot, d->index);
	if (base->status == GANTRY_OK && rt->puller && job->what != MOVE_DROP)
		worker_migration_pulled_locked(s, job->slot,
					       job->carry.way == CARRY_SPILL ? NULL : d);
	rt->puller = 0;
	rt->moving = false;
	s->mover_seen_ns = gantry_now_ns();
	pthread_mutex_unlock(&s->lock);
	if (base->status == GANTRY_OK &&
	    (job->what == MOVE_DROP || (job->what == MOVE_ALL && job->carry.way == CARRY_SPILL)))
		worker_window_leave_range(d, s, job->carry.off, job->carry.len);
	free(job->ahead);
	free(job);
	worker_session_wake(s);
}

/* ---- the beginning ---- */

/* Of what was copied ahead, to the same place, only what was written since is missing. */
static void take_ahead_locked(struct wsession *s, struct move_job *job, uint32_t device)
{
	struct wobject *rt = &s->objects[job->slot];
	struct wahead *ahead = rt->ahead;

	rt->ahead = NULL;
	if (ahead && ahead->way == job->carry.way &&
	    (ahead->way == CARRY_SPILL || ahead->to == device)) {
		worker_marks_take(&ahead->dirty, &ahead->aging);
		worker_marks_take(&ahead->dirty, &ahead->again);
		worker_marks_take(&ahead->dirty, &ahead->todo);
		job->carry.only = &ahead->dirty;
		job->ahead = ahead;
		return;
	}
	free(ahead);
}

/* AGAIN: it has begun. */
static int begin_locked(struct wsession *s, uint32_t slot, uint32_t device, enum wcarry_way way,
			enum move_what what)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];
	uint32_t users = what == MOVE_DROP ? rt->users & 1u << device : rt->users;
	struct move_job *job;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (s->windows[i] && s->windows[i]->gone)
			return GANTRY_E_AGAIN; /* the session ends */
	job = calloc(1, sizeof(*job));
	if (!job)
		return GANTRY_E_NO_MEMORY;
	job->job.urgent = true;
	job->job.next = move_next;
	job->job.end = move_end;
	job->what = what;
	job->slot = slot;
	job->carry = (struct wcarry){ .session = s,
				      .way = way,
				      .from = b->device,
				      .off = b->off,
				      .len = worker_page_up(b->bytes) };
	if (what == MOVE_DROP || (way == CARRY_SPILL && b->host_copy == GANTRY_HOST_COPY_CLEAN))
		job->carry.at = job->carry.len; /* the bytes are there */
	/* Its thread may look at it at once: it comes to our lock, and finds the visits under way. */
	job->quiet.session = s;
	if (worker_job_start_locked(s, device, &job->job) < 0) {
		free(job);
		return GANTRY_E_NO_MEMORY;
	}
	rt->moving = true;
	/* Threads that have read it already are visited; the others find it moving. A copy can be made while it is read. */
	if (what != MOVE_DROP)
		gantry_store_relaxed(&rt->ready, what == MOVE_ALL ? 0u : rt->ready & 0xffu);
	if (what == MOVE_ALL)
		take_ahead_locked(s, job, device);
	/* Threads that may have tasks in flight which use it. */
	if (worker_quiet_begin_locked(&job->quiet, s, users, UINT64_MAX) != GANTRY_OK)
		job->job.status = GANTRY_E_NO_MEMORY;
	return GANTRY_E_AGAIN;
}

int worker_move_copy_locked(struct wsession *s, uint32_t slot, uint32_t device, enum wcarry_way way)
{
	return begin_locked(s, slot, device, way, MOVE_COPY);
}

int worker_move_drop_locked(struct wsession *s, uint32_t slot, uint32_t device)
{
	return begin_locked(s, slot, device, CARRY_PEER, MOVE_DROP);
}

static int spill_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	int status = GANTRY_OK;

	worker_move_forget_locked(s, slot);
	/* FILLING: it is copied ahead to there. */
	if (b->host_copy == GANTRY_HOST_COPY_NONE) {
		status = worker_charge_host(s, b);
		if (status != GANTRY_OK)
			return status;
		gantry_store_release(&b->host_copy, (uint32_t)GANTRY_HOST_COPY_FILLING);
	}
	status = begin_locked(s, slot, b->device, CARRY_SPILL, MOVE_ALL);
	if (status != GANTRY_E_AGAIN || !s->objects[slot].moving)
		if (b->host_copy == GANTRY_HOST_COPY_FILLING) {
			worker_ahead_end_locked(s, slot);
			worker_replica_host_gone_locked(s, slot);
		}
	return status;
}

int worker_move_to_host_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	if (worker_ahead_holds_locked(s, slot) || !worker_move_claim_locked(d, s, slot))
		return GANTRY_E_AGAIN;
	return spill_locked(s, slot);
}

int worker_move_out_locked(struct wsession *s, uint32_t slot)
{
	return spill_locked(s, slot);
}

bool worker_are_peers(const struct wdevice *a, const struct wdevice *b)
{
	return (a->device.info.caps & b->device.info.caps & GANTRY_CAP_PEER) &&
	       strcmp(a->device.backend->name, b->device.backend->name) == 0;
}

/* Charged to the pool of where it goes, before anything is copied. */
int worker_move_reserve_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (b->to == d->index + 1)
		return GANTRY_OK;
	worker_move_forget_locked(s, slot);
	if (b->replicas >> d->index & 1) {
		/* Its memory there is charged already. */
		gantry_store_release(&b->to, d->index + 1);
		worker_replica_absorb_locked(s, slot, d->index);
		return GANTRY_OK;
	}
	status = b->charged_bytes ? worker_charge_pool(d, len) : worker_charge_resident(d, s, len);
	if (status != GANTRY_OK)
		return status;
	gantry_store_relaxed(&b->to, d->index + 1);
	if (!b->charged_bytes) {
		gantry_store_relaxed(&b->device, d->index);
		gantry_store_release(&b->charged_bytes, len);
	}
	return GANTRY_OK;
}

static int prepare_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	int status = worker_move_reserve_locked(d, s, slot);

	if (status != GANTRY_E_NO_MEMORY)
		return status;
	return worker_move_make_room_locked(d, s, worker_page_up(buffer_of(s, slot)->bytes), false);
}

int worker_move_to_window_locked(struct wdevice *d, struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	bool in_window = b->place == GANTRY_PLACE_WINDOW;
	uint64_t len = worker_page_up(b->bytes);
	int status;

	if (worker_ahead_holds_locked(s, slot) || !worker_move_claim_locked(d, s, slot))
		return GANTRY_E_AGAIN;
	if (in_window && !worker_are_peers(d, s->engine->devices[b->device]))
		return spill_locked(s, slot);
	if (!gantry_range_inside(b->off, len, s->windows[d->index]->bytes))
		return GANTRY_E_LIMIT;
	status = prepare_locked(d, s, slot);
	if (status == GANTRY_OK)
		status = worker_window_want_locked(s, d->index, b->off, len);
	if (status == GANTRY_OK)
		status = begin_locked(s, slot, d->index, in_window ? CARRY_PEER : CARRY_FETCH,
				      MOVE_ALL);
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
	       !(obj->buffer.alloc_flags & GANTRY_ALLOC_FIXED) && obj->buffer.device == device &&
	       !rt->moving && !rt->stuck && !worker_ahead_holds_locked(s, slot) &&
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
	if (worker_replica_shed_locked(s, 1u << d->index))
		return GANTRY_E_AGAIN;
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
		status = s->objects[slot].clean ? worker_replica_yield_locked(s, slot)
						: spill_locked(s, slot);
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
