/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's buffers come to its host memory, where whoever carries it to another host can read them: a mover sees neither
 * windows nor the memory of shared buffers.
 *
 *   AHEAD  while it works: a job for each window copies what lies there, as for a queue that will move (ahead.c)
 *   ALL    it stands still: what is in a window is moved out (move.c), with what was written since it was copied ahead; what is
 *          shared with nobody any more gets a place in the slab (share.c). Nothing is on its way when this is answered
 *   NONE   it stays: whatever was asked before ends, done or not, what was copied ahead is forgotten, and what was shared can be
 *          shared again. Its queues go on when this is answered, not before: ALL believes that they stand still
 *
 * Where the session stays after ALL its tasks bring their buffers back as they use them.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "host-agent/worker/ahead.h"
#include "host-agent/worker/worker.h"

/* One request; each of its jobs holds it. */
struct wgather {
	struct wsession *session;
	uint64_t tag;
	uint32_t njobs; /* under the lock */
	uint32_t turn;	/* s->gather_turn when it was asked */
	int status;
	uint32_t slot; /* of what failed */
};

struct gather_job {
	struct wjob job; /* first */
	struct wgather *gather;
	struct wquiet quiet;
	bool looked; /* the visits have begun */
	uint32_t slot;
	bool carrying;
	struct wcarry carry;
};

static struct gantry_ledger_buffer *buffer_of(struct wsession *s, uint32_t slot)
{
	return &s->ledger.objects[slot].buffer;
}

/* What stands for all requests of the session's, among those for whom buffers are copied ahead. */
static const void *mover_of(const struct wsession *s)
{
	return s;
}

static struct wahead *ahead_of_locked(struct wsession *s, uint32_t slot)
{
	struct wahead *ahead = s->objects[slot].ahead;

	return ahead && ahead->mover == mover_of(s) ? ahead : NULL;
}

/* It was asked for before the latest NONE: the session stays. */
static bool taken_back_locked(const struct wgather *g)
{
	return g->turn != g->session->gather_turn;
}

/* ---- the end ---- */

static void leave(struct wgather *g)
{
	struct wsession *s = g->session;
	const struct gantry_engine_events *ev = &s->engine->events;
	bool last;

	pthread_mutex_lock(&s->lock);
	last = --g->njobs == 0;
	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	if (ev->gathered)
		ev->gathered(ev->cookie, g->tag, g->status, g->slot);
	free(g);
}

static void fail_locked(struct wgather *g, int status, uint32_t slot)
{
	if (g->status != GANTRY_OK)
		return;
	g->status = status;
	g->slot = slot;
}

static void gather_end(struct wdevice *d, struct wjob *base)
{
	struct gather_job *job = (struct gather_job *)base;
	struct wsession *s = base->session;

	if (job->carrying)
		worker_carry_close(d, &job->carry);
	pthread_mutex_lock(&s->lock);
	if (job->carrying)
		worker_ahead_carried_locked(s, job->slot, false);
	if (base->status != GANTRY_OK)
		fail_locked(job->gather, base->status, job->slot);
	pthread_mutex_unlock(&s->lock);
	leave(job->gather);
	free(job);
}

static int start_locked(struct wgather *g, uint32_t device,
			enum wjob_next (*next)(struct wdevice *d, struct wjob *job,
					       struct gantry_cmd *cmd),
			bool urgent)
{
	struct gather_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->gather = g;
	job->job.urgent = urgent;
	job->job.next = next;
	job->job.end = gather_end;
	job->quiet.session = g->session;
	if (worker_job_start_locked(g->session, device, &job->job) < 0) {
		free(job);
		return -ENOMEM;
	}
	g->njobs++;
	return 0;
}

/* ---- ahead ---- */

/* What has no room in host memory, or goes to another device just now, is left to the end. */
static int look_ahead_locked(struct wdevice *d, struct gather_job *job)
{
	struct wsession *s = job->job.session;
	uint32_t users = 1u << d->index;

	if (taken_back_locked(job->gather))
		return GANTRY_E_CANCELLED;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		struct wobject *rt = &s->objects[i];

		if (obj->state != GANTRY_OBJECT_LIVE || obj->type != GANTRY_HANDLE_BUFFER ||
		    obj->buffer.place != GANTRY_PLACE_WINDOW || obj->buffer.device != d->index ||
		    rt->moving)
			continue;
		if (!rt->ahead &&
		    worker_ahead_begin_locked(s, i, CARRY_SPILL, 0, mover_of(s)) != GANTRY_OK)
			continue;
		if (!ahead_of_locked(s, i))
			continue;
		worker_ahead_round_locked(rt->ahead);
		users |= rt->users;
	}
	return worker_quiet_begin_locked(&job->quiet, s, users, UINT64_MAX);
}

/* OK: it is in job->slot and carried; NOT_FOUND: that was the last; AGAIN: after a recovery its slabs are on their way. */
static int next_ahead_locked(struct wdevice *d, struct gather_job *job)
{
	struct wsession *s = job->job.session;
	const struct gantry_ledger_buffer *b;
	int status;

	if (taken_back_locked(job->gather))
		return GANTRY_E_CANCELLED;
	for (; job->slot < GANTRY_LEDGER_NOBJECTS; job->slot++) {
		struct wahead *ahead = ahead_of_locked(s, job->slot);

		if (!ahead || s->objects[job->slot].moving ||
		    buffer_of(s, job->slot)->device != d->index ||
		    worker_marks_bytes(&ahead->todo) == 0)
			continue;
		b = buffer_of(s, job->slot);
		status = worker_window_want_locked(s, d->index, b->off, worker_page_up(b->bytes));
		if (status != GANTRY_OK)
			return status;
		job->carry = worker_ahead_carry_locked(s, job->slot);
		job->carrying = true;
		return GANTRY_OK;
	}
	return GANTRY_E_NOT_FOUND;
}

/* Nothing of the job is with the device. */
static bool is_over(struct gather_job *job)
{
	struct wsession *s = job->job.session;

	pthread_mutex_lock(&s->lock);
	if (job->job.status == GANTRY_OK && taken_back_locked(job->gather))
		job->job.status = GANTRY_E_CANCELLED;
	pthread_mutex_unlock(&s->lock);
	return job->job.status != GANTRY_OK;
}

static void carried(struct wdevice *d, struct gather_job *job)
{
	struct wsession *s = job->job.session;

	worker_carry_close(d, &job->carry);
	pthread_mutex_lock(&s->lock);
	worker_ahead_carried_locked(s, job->slot, true);
	pthread_mutex_unlock(&s->lock);
	job->carrying = false;
	job->slot++;
	worker_session_wake(s); /* who wants to move or free it may */
}

static enum wjob_next ahead_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct gather_job *job = (struct gather_job *)base;
	struct wsession *s = base->session;
	bool more = false;

	if (!job->looked && base->status == GANTRY_OK) {
		pthread_mutex_lock(&s->lock);
		base->status = look_ahead_locked(d, job);
		pthread_mutex_unlock(&s->lock);
		job->looked = true;
	}
	if (!worker_quiet_visited(&job->quiet)) /* visitors hold the job */
		return JOB_WAIT;
	if (is_over(job))
		return JOB_END;
	if (!worker_quiet_reached(d, &job->quiet))
		return JOB_WAIT;
	for (;;) {
		if (!job->carrying) {
			int status;

			pthread_mutex_lock(&s->lock);
			status = next_ahead_locked(d, job);
			pthread_mutex_unlock(&s->lock);
			if (status == GANTRY_E_AGAIN)
				return JOB_WAIT;
			if (status != GANTRY_OK && status != GANTRY_E_NOT_FOUND)
				base->status = status;
			if (status != GANTRY_OK)
				return JOB_END;
		}
		base->status = worker_carry_next(d, &job->carry, cmd, &more);
		if (base->status != GANTRY_OK)
			return JOB_END;
		if (more)
			return JOB_COMMAND;
		carried(d, job);
	}
}

/* ---- all ---- */

/* Devices whose threads serve the session, as bits. */
static uint32_t threads_of(const struct wsession *s)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if ((s->device_mask >> i & 1) && s->engine->devices[i]->usable)
			mask |= 1u << i;
	return mask;
}

/* OK: it is in host memory, or has none; AGAIN: it is on its way, or has to wait for whoever moves it. */
static int gather_one_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = buffer_of(s, slot);
	struct wobject *rt = &s->objects[slot];

	if (rt->moving || worker_ahead_holds_locked(s, slot) ||
	    (rt->ahead && !ahead_of_locked(s, slot)))
		return GANTRY_E_AGAIN;
	if (rt->stuck) {
		int status = rt->stuck;

		rt->stuck = GANTRY_OK;
		return status;
	}
	switch (b->place) {
	case GANTRY_PLACE_WINDOW:
		return worker_move_out_locked(s, slot);
	case GANTRY_PLACE_OWN:
		s->has_settled = true;
		return worker_shared_settle_locked(s, slot);
	default:
		worker_move_forget_locked(s, slot);
		return GANTRY_OK;
	}
}

/* Whether something is on its way yet. */
static bool gather_all_locked(struct wsession *s, struct gather_job *job)
{
	int *status = &job->job.status;
	bool waits = false;

	if (taken_back_locked(job->gather))
		*status = GANTRY_E_CANCELLED;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS && *status == GANTRY_OK; i++) {
		int r = worker_is_buffer(&s->ledger.objects[i]) ? gather_one_locked(s, i)
								: GANTRY_OK;

		if (r == GANTRY_E_AGAIN)
			waits = true;
		else if (r != GANTRY_OK)
			fail_locked(job->gather, *status = r, i);
	}
	return waits && *status == GANTRY_OK;
}

static enum wjob_next all_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct gather_job *job = (struct gather_job *)base;
	struct wsession *s = base->session;
	bool waits;

	(void)cmd;
	if (!job->looked && base->status == GANTRY_OK) {
		pthread_mutex_lock(&s->lock);
		/* A thread that had seen its queue before that was held may be binding a task yet. */
		base->status = worker_quiet_begin_locked(&job->quiet, s, threads_of(s), UINT64_MAX);
		pthread_mutex_unlock(&s->lock);
		job->looked = true;
	}
	if (!worker_quiet_visited(&job->quiet))
		return JOB_WAIT;
	if (is_over(job))
		return JOB_END;
	if (!worker_quiet_reached(d, &job->quiet))
		return JOB_WAIT;
	(void)worker_buffer_reap(s);
	pthread_mutex_lock(&s->lock);
	waits = gather_all_locked(s, job);
	pthread_mutex_unlock(&s->lock);
	return waits ? JOB_WAIT : JOB_END;
}

/* ---- none ---- */

static void forget_locked(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wahead *ahead = ahead_of_locked(s, i);

		if (ahead && !ahead->carried && !s->objects[i].moving)
			worker_ahead_drop_locked(s, i);
	}
}

/* AGAIN: it is on its way. What there is no memory for stays as it is, and cannot be shared before the worker is another. */
static int unsettle_one_locked(struct wsession *s, uint32_t slot)
{
	const struct gantry_ledger_buffer *b = buffer_of(s, slot);

	if (!(b->alloc_flags & GANTRY_ALLOC_SHARED) || b->place == GANTRY_PLACE_OWN)
		return GANTRY_OK;
	if (s->objects[slot].moving || s->objects[slot].ahead)
		return GANTRY_E_AGAIN;
	if (b->place == GANTRY_PLACE_WINDOW)
		return worker_move_out_locked(s, slot);
	if (b->place == GANTRY_PLACE_SLAB || b->place == GANTRY_PLACE_NONE)
		(void)worker_shared_unsettle(s, slot);
	return GANTRY_OK;
}

/* Whether something is on its way yet. Its queues stand still since ALL. */
static bool unsettle_locked(struct wsession *s)
{
	bool waits = false;

	for (uint32_t i = 0; s->has_settled && i < GANTRY_LEDGER_NOBJECTS; i++)
		if (worker_is_buffer(&s->ledger.objects[i]) &&
		    unsettle_one_locked(s, i) == GANTRY_E_AGAIN)
			waits = true;
	s->has_settled = s->has_settled && waits;
	return waits;
}

static enum wjob_next none_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct wsession *s = base->session;
	bool waits = false;

	(void)d;
	(void)cmd;
	pthread_mutex_lock(&s->lock);
	forget_locked(s);
	if (base->status == GANTRY_OK)
		waits = unsettle_locked(s);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		waits = waits || (ahead_of_locked(s, i) && !s->objects[i].moving);
	pthread_mutex_unlock(&s->lock);
	return waits && base->status == GANTRY_OK ? JOB_WAIT : JOB_END;
}

/* ---- requests ---- */

static int start_all_locked(struct wgather *g, enum gantry_gather what)
{
	struct wsession *s = g->session;
	int r = 0;

	if (what == GANTRY_GATHER_ALL)
		return start_locked(g, s->home, all_next, true);
	if (what == GANTRY_GATHER_NONE)
		return start_locked(g, s->home, none_next, true);
	for (uint32_t i = 0; i < s->engine->ndevices && r == 0; i++)
		if (s->windows[i] && s->windows[i]->mem)
			r = start_locked(g, i, ahead_next, false);
	return r;
}

static void take_back(struct wsession *s)
{
	pthread_mutex_lock(&s->lock);
	s->gather_turn++;
	pthread_mutex_unlock(&s->lock);
}

int gantry_engine_gather(struct gantry_engine *e, uint64_t session_id, enum gantry_gather what,
			 uint64_t tag)
{
	struct wsession *s = worker_session_get(e, session_id);
	struct wgather *g;
	int r = 0;

	if (!s)
		return -ENOENT;
	if (what == GANTRY_GATHER_NONE)
		take_back(s); /* also where there is no memory for more */
	g = gantry_failpoint_io(GANTRY_FAILPOINT_WORKER_GATHER) < 0 ? NULL : calloc(1, sizeof(*g));
	if (!g) {
		worker_session_leave(s);
		return -ENOMEM;
	}
	g->session = s;
	g->tag = tag;
	pthread_mutex_lock(&s->lock);
	g->njobs = 1; /* this call's own */
	g->turn = s->gather_turn;
	r = start_all_locked(g, what);
	if (r < 0)
		fail_locked(g, GANTRY_E_NO_MEMORY, 0);
	pthread_mutex_unlock(&s->lock);
	leave(g);
	worker_session_leave(s);
	return 0;
}
