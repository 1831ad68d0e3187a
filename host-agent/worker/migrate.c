/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue moves from one device of its session to another, or all its work does (migrate_whole.c): both sides of the state machine of migration/migrate.h.
 *
 * It is a job (job.c) of the thread that does the copying: that of the device it goes to, or where only the device it
 * comes from can read its memory, of that one. Each round of the thread takes the machine as far as it gets.
 *
 *   PRECOPY  ahead.c: its buffers are copied while it runs
 *   ORPHAN   queue->held: its thread issues nothing more
 *   DRAIN    quiet.c: what it had issued has finished
 *   COPY     move.c: its buffers go, those copied ahead with what was written since. Where both work on host memory: charges
 *   ADOPT    queue->target: its thread hands it to the other's (join.c). That store is the commit
 *
 * One process runs both sides, so that they die together: the ledger's `device` says where the queue is, and each buffer's
 * place where its bytes are, whichever step was the last.
 */
#include "host-agent/worker/migrate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"

#define TELL_PARTS 64u /* of what the queue owns: in a round each is told */

/* ---- the job ---- */

/* Of the round under way, what has been copied; what is with the device just now is not. */
static uint64_t round_bytes(const struct wmigration *mg)
{
	uint64_t bytes = mg->round_bytes + (mg->carrying ? mg->carry.moved_bytes : 0);

	if (mg->q && (mg->m.state != GANTRY_MIGRATION_PRECOPY || mg->phase == PHASE_LOOK))
		return 0;
	if (!mg->q && mg->m.state != GANTRY_MIGRATION_COPY)
		return 0;
	return mg->has_command ? bytes - mg->cmd->copy.dst.len : bytes;
}

static void fill_report(const struct wmigration *mg, struct gantry_engine_migration *r)
{
	*r = (struct gantry_engine_migration){
		.id = mg->id,
		.session_id = mg->job.session->id,
		.slot = mg->q ? mg->q->slot : 0,
		.from = mg->from,
		.to = mg->to,
		.state = mg->m.state,
		.over = gantry_migration_over(&mg->m),
		.error = gantry_migration_over(&mg->m) ? mg->m.err.code : 0,
		.counts = mg->m.counts,
	};
	r->counts.moved_bytes += round_bytes(mg);
	(void)snprintf(r->text, sizeof(r->text), "%s", mg->m.err.text);
}

static void tell(struct wmigration *mg)
{
	const struct gantry_engine_events *ev = &mg->job.session->engine->events;
	struct gantry_engine_migration report;

	uint64_t bytes = mg->m.counts.moved_bytes + round_bytes(mg);
	bool has_reason = mg->m.err.text[0] != '\0';

	if (mg->told_state == mg->m.state && mg->told_rounds == mg->m.counts.nrounds &&
	    mg->told_reason == has_reason &&
	    bytes < mg->told_bytes + mg->m.counts.owned_bytes / TELL_PARTS + 1)
		return;
	mg->told_bytes = bytes;
	mg->told_reason = has_reason;
	mg->told_state = mg->m.state;
	mg->told_rounds = mg->m.counts.nrounds;
	fill_report(mg, &report);
	if (ev->migration)
		ev->migration(ev->cookie, &report);
}

void worker_migration_pulled_locked(struct wsession *s, uint32_t slot, const struct wdevice *to)
{
	const struct gantry_engine_events *ev = &s->engine->events;
	uint64_t bytes = worker_page_up(s->ledger.objects[slot].buffer.bytes);
	const struct wqueue *q = &s->queues[s->objects[slot].puller];
	struct wpulls *p = &s->queues[q->slot].pulls;
	const struct wdevice *there = s->engine->devices[p->to];

	/* A way between windows of unlike kinds goes through host memory: its end counts. */
	if (p->id == 0 || p->gen != q->led->gen || (to ? to != there : worker_has_window(there)))
		return;
	p->pulled_bytes += bytes;
	p->touched_bytes += gantry_min_u64(s->objects[slot].wanted_bytes, bytes);
	if (ev->migration)
		ev->migration(ev->cookie, &(struct gantry_engine_migration){
						  .id = p->id,
						  .session_id = s->id,
						  .slot = q->slot,
						  .from = p->from,
						  .to = p->to,
						  .state = GANTRY_MIGRATION_DONE,
						  .over = true,
						  .pulled_bytes = p->pulled_bytes,
						  .touched_bytes = p->touched_bytes,
					  });
}

static enum wjob_next migrate_next(struct wdevice *d, struct wjob *base, struct gantry_cmd *cmd)
{
	struct wmigration *mg = (struct wmigration *)base;
	int r;

	(void)d;
	mg->cmd = cmd;
	mg->has_command = false;
	if (base->status == GANTRY_E_DETACHED) /* nothing is to be told, and nobody will run it */
		return worker_migration_is_alone(mg) ? JOB_END : JOB_WAIT;
	if (base->status != GANTRY_OK) {
		gantry_migration_fail(&mg->m, -EIO, "a copy failed on the device");
		base->status = GANTRY_OK;
	}
	if (gantry_load_relaxed(&mg->cancel))
		(void)gantry_migration_cancel(&mg->m, "cancelled"); /* too late is told as done */
	do
		r = gantry_migration_step(&mg->m, gantry_now_ns());
	while (r > 0);
	if (mg->has_command && (!mg->q || mg->m.state == GANTRY_MIGRATION_PRECOPY)) {
		tell(mg);
		return JOB_COMMAND;
	}
	if (r != -EAGAIN)
		return JOB_END;
	tell(mg);
	return JOB_WAIT;
}

static void migrate_end(struct wdevice *d, struct wjob *base)
{
	struct wmigration *mg = (struct wmigration *)base;
	struct wsession *s = base->session;

	gantry_failpoint(GANTRY_FAILPOINT_MOVE_END);
	if (mg->q) {
		worker_migration_stop_carrying(mg, false);
		worker_migration_drop_copies(mg);
	} else {
		worker_carry_close(d, &mg->carry);
	}
	pthread_mutex_lock(&s->lock);
	if (mg->q) {
		mg->q->migration = NULL;
		gantry_store_relaxed(&mg->q->leaving, 0u);
	} else {
		s->whole = NULL;
		gantry_store_relaxed(&s->leaving, 0u);
	}
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s); /* what waited for the queue to be gone */
	if (base->status == GANTRY_E_DETACHED) {
		gantry_migration_fail(&mg->m, -ESHUTDOWN, "the session has ended");
		mg->m.err.code = mg->m.err.code ? mg->m.err.code : -ESHUTDOWN;
	}
	mg->told_rounds = UINT32_MAX;
	tell(mg);
	free(mg);
}

/* ---- to begin with ---- */

static int check_request(struct wsession *s, const struct gantry_engine_migrate *a,
			 struct wqueue **ret_q, struct gantry_err *err)
{
	struct wqueue *q;

	if (a->slot == 0 || a->slot >= s->ledger.nqueues)
		return gantry_err_set(err, -ENOENT, "the session has no such queue");
	q = &s->queues[a->slot];
	if (gantry_load_relaxed(&q->led->state) != GANTRY_QUEUE_OPEN)
		return gantry_err_set(err, -ENOENT, "the queue is not open");
	if (a->device >= s->engine->ndevices || !(s->device_mask >> a->device & 1) ||
	    !s->engine->devices[a->device]->usable)
		return gantry_err_set(err, -ENODEV, "the session's worker has no such device");
	if (!worker_queue_fits(s, q, a->device))
		return gantry_err_set(
			err, -ENODEV,
			"the queue may not use device %s: the program, the tenant or the "
			"device's state forbids it",
			s->engine->devices[a->device]->name);
	*ret_q = q;
	return 0;
}

/* Between windows of one backend directly; else through host memory. */
static void choose_way(struct wmigration *mg, struct wsession *s)
{
	struct wdevice *from = s->engine->devices[mg->from];
	struct wdevice *to = s->engine->devices[mg->to];

	mg->copies = worker_has_window(from) || worker_has_window(to);
	mg->d = to;
	mg->way = CARRY_PEER;
	if (!worker_has_window(from)) {
		mg->way = CARRY_FETCH;
	} else if (!worker_has_window(to) || !worker_are_peers(from, to)) {
		mg->way = CARRY_SPILL;
		mg->d = from;
	}
}

static int begin_locked(struct wsession *s, struct wqueue *q, struct wmigration *mg,
			const struct gantry_engine_migrate *a,
			struct gantry_engine_migration *ret_report, struct gantry_err *err)
{
	struct gantry_migration_policy policy = a->policy;

	if (q->migration || s->whole)
		return gantry_err_set(err, -EBUSY, "the queue is on its way to another device");
	mg->q = q;
	mg->gen = q->led->gen;
	mg->from = gantry_load_relaxed(&q->target);
	mg->to = a->device;
	mg->lazy = a->lazy;
	if (mg->from == mg->to)
		return gantry_err_set(err, -EALREADY, "the queue is at that device already");
	choose_way(mg, s);
	policy.no_precopy = policy.no_precopy || !mg->copies || a->lazy;
	gantry_migration_init(&mg->m, &worker_migration_source, mg, &worker_migration_sink, mg,
			      &policy);
	mg->m.counts.owned_bytes = worker_migration_owned_bytes_locked(mg);
	fill_report(mg, ret_report);
	if (worker_migration_pinned_locked(s, mg->from, err) < 0)
		return -ENOTSUP;
	if (!worker_migration_has_kernels_locked(s, q, mg->to, err))
		return -ENOEXEC;
	if (a->dry_run)
		return worker_migration_has_room(mg, mg->m.counts.owned_bytes, err);
	(void)gantry_migration_start(&mg->m, gantry_now_ns());
	if (worker_job_start_locked(s, mg->d->index, &mg->job) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory for a migration");
	q->migration = mg;
	gantry_store_relaxed(&q->leaving, 1u);
	return 1;
}

/* All of the session's work. */
static int begin_whole_locked(struct wsession *s, struct wmigration *mg,
			      const struct gantry_engine_migrate *a,
			      struct gantry_engine_migration *ret_report, struct gantry_err *err)
{
	const struct gantry_migration_policy policy = { .no_precopy = true };
	int r;

	for (uint32_t i = 0; i < s->ledger.nqueues; i++)
		if (s->queues[i].migration || s->whole)
			return gantry_err_set(err, -EBUSY,
					      "some of it is on its way to another device");
	gantry_migration_init(&mg->m, &worker_whole_source, mg, &worker_whole_sink, mg, &policy);
	r = worker_migration_whole_locked(mg, a->device, err);
	fill_report(mg, ret_report);
	if (r < 0 || a->dry_run)
		return r;
	(void)gantry_migration_start(&mg->m, gantry_now_ns());
	if (worker_job_start_locked(s, mg->d->index, &mg->job) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory for a migration");
	s->whole = mg;
	gantry_store_relaxed(&s->leaving, 1u);
	return 1;
}

static int begin(struct wsession *s, struct wmigration *mg, const struct gantry_engine_migrate *a,
		 struct gantry_engine_migration *ret_report, struct gantry_err *err)
{
	struct wqueue *q = NULL;
	int r = a->whole ? 0 : check_request(s, a, &q, err);

	if (r < 0)
		return r;
	mg->job.session = s;
	mg->job.urgent = true;
	mg->job.next = migrate_next;
	mg->job.end = migrate_end;
	mg->id = a->id;
	pthread_mutex_lock(&s->lock);
	r = a->whole ? begin_whole_locked(s, mg, a, ret_report, err)
		     : begin_locked(s, q, mg, a, ret_report, err);
	pthread_mutex_unlock(&s->lock);
	return r;
}

int gantry_engine_migrate(struct gantry_engine *e, const struct gantry_engine_migrate *a,
			  struct gantry_engine_migration *ret_report, struct gantry_err *err)
{
	struct wsession *s = worker_session_get(e, a->session_id);
	struct wmigration *mg;
	int r;

	if (!s)
		return gantry_err_set(err, -ENOENT, "the worker has no such session");
	mg = calloc(1, sizeof(*mg));
	r = mg ? begin(s, mg, a, ret_report, err) : gantry_err_set(err, -ENOMEM, "no memory");
	if (r <= 0)
		free(mg);
	worker_session_leave(s);
	return r < 0 ? r : 0;
}

int gantry_engine_migrate_cancel(struct gantry_engine *e, uint64_t session_id, uint64_t id)
{
	struct wsession *s = worker_session_get(e, session_id);
	int r = -ENOENT;

	if (!s)
		return r;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->ledger.nqueues; i++) {
		struct wmigration *mg = i ? s->queues[i].migration : s->whole;

		if (!mg || mg->id != id)
			continue;
		gantry_store_relaxed(&mg->cancel, 1u);
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s);
	worker_session_leave(s);
	return r;
}
