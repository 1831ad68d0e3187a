/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session that leaves comes to rest. What a mover cannot see, windows and what was shared, comes to its host memory first: copies
 * while it works, the rest once its queues are held. Then no worker has it any more: one of its own is ended, one that serves
 * others too lets go of it.
 */
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/mover.h"
#include "host-agent/agent/recover.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/agent/worker.h"
#include "host-agent/worker/engine.h"
#include "proto/wire.h"
#include "worker.pb-c.h"

#define LOOK_NS	     GANTRY_NS_PER_MS
#define DRAIN_MAX_NS (60 * GANTRY_NS_PER_S)
/* A worker of several sessions may be inside another one's kernel. */
#define ANSWER_NS (60 * GANTRY_NS_PER_S)
/* Copies of windows before the session is held: the second has what was written during the first. */
#define AHEADS_MAX 2u

static void look_again(evutil_socket_t fd, short what, void *arg);
static void end_worker(struct gantry_handover *h, struct gantry_session *s);

static void look_later(struct gantry_handover *h)
{
	if (gantry_timer_set(h->agent, &h->timer, LOOK_NS, look_again, h) < 0)
		gantry_handover_turn_back(h, GANTRY_ADMIN_FAILED, "no memory for a timer");
}

/* ---- its memory ---- */

static bool has_windows(const struct gantry_session *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_WINDOW)
			return true;
	}
	return false;
}

/* Whether there is anything that its worker has to bring. */
static bool needs_gathering(const struct gantry_session *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    (o->buffer.place > GANTRY_PLACE_SLAB || o->buffer.to))
			return true;
	}
	return false;
}

/* A worker of before this was known cannot, which matters only where there is something. */
static void gathered_all(struct gantry_handover *h, struct gantry_session *s,
			 const Gantry__Worker__Done *done)
{
	if (done && done->status != GANTRY_OK && needs_gathering(s))
		gantry_handover_turn_back(h, GANTRY_ADMIN_FAILED, done->text);
	else if (!done)
		gantry_handover_turn_back(h, GANTRY_ADMIN_FAILED, "its worker does not answer");
	else
		end_worker(h, s);
}

static void gathered(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_session *s = arg;
	struct gantry_handover *h = gantry_handover_of(s);
	const Gantry__Worker__Done *done = NULL;

	gantry_fd_close(fd);
	if (--s->ngathers == 0 && s->goes_on)
		gantry_session_let_go(s);
	if (!h || h->is_incoming || !h->gathering)
		return; /* nobody waits any more */
	h->gathering = false;
	if (answer && answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE)
		done = answer->done;
	if (h->phase == GANTRY_HANDOVER_DRAINING) {
		gathered_all(h, s, done);
	} else if (h->freeze_waits) {
		/* What could not be copied ahead comes at the end. */
		h->freeze_waits = false;
		gantry_event_free(&h->timer);
		gantry_mover_send_msg(h->mover, GANTRY_MOVER_AGAIN, 0, h->token, NULL, NULL, 0);
	}
}

/* false: it has no worker that could be asked. */
static bool ask_worker(struct gantry_session *s, enum gantry_gather what)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Gather gather = GANTRY__WORKER__GATHER__INIT;

	gather.session_id = s->id;
	gather.what = what;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_GATHER;
	msg.gather = &gather;
	if (!s->worker || s->phase != GANTRY_PHASE_ATTACHED ||
	    gantry_call(s->worker, &msg, NULL, 0, ANSWER_NS, gathered, s) < 0)
		return false;
	s->ngathers++;
	return true;
}

static bool ask_to_gather(struct gantry_handover *h, struct gantry_session *s,
			  enum gantry_gather what)
{
	if (!ask_worker(s, what))
		return false;
	h->gathering = true;
	h->gathered_by = s->worker->id;
	return true;
}

/* Who was asked is no more: its answer will not come. */
static bool asked_in_vain(const struct gantry_handover *h, const struct gantry_session *s)
{
	return h->gathering && (!s->worker || s->worker->id != h->gathered_by);
}

void gantry_handover_gather_ahead(struct gantry_handover *h, struct gantry_session *s)
{
	if (!h->gathering && has_windows(s) && ask_to_gather(h, s, GANTRY_GATHER_AHEAD))
		h->naheads++;
}

void gantry_handover_go_on(struct gantry_session *s, uint64_t asked)
{
	/* A worker that knows of nothing has nothing under way. */
	if (s->worker && s->worker->id == asked && ask_worker(s, GANTRY_GATHER_NONE))
		s->goes_on = true;
	else
		gantry_session_let_go(s);
}

/* ---- its queues ---- */

static void look_at_queues(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	struct gantry_err err = GANTRY_ERR_NONE;
	bool was_still = h->was_still;
	int code;

	if (asked_in_vain(h, s))
		h->gathering = false;
	/* A worker that had looked at the queue before it was held may still begin one task. */
	h->was_still = s->phase == GANTRY_PHASE_ATTACHED && gantry_session_is_still(s);
	if (gantry_now_ns() - h->held_ns > DRAIN_MAX_NS) {
		char text[GANTRY_MOVER_TEXT];

		(void)gantry_str_format(text, sizeof(text), /* it fits */
					"a task of the session runs for more than %u s",
					(unsigned int)(DRAIN_MAX_NS / GANTRY_NS_PER_S));
		gantry_handover_turn_back(h, GANTRY_ADMIN_FAILED, text);
		return;
	}
	if (h->was_still && was_still && !h->gathering && s->nopening == 0) {
		code = gantry_handover_ties(s, &err);
		if (code != 0) {
			gantry_handover_turn_back(h, code, err.text);
			return;
		}
		gantry_failpoint(GANTRY_FAILPOINT_OUT_GATHER);
		(void)ask_to_gather(h, s, GANTRY_GATHER_ALL); /* else it is tried again */
	}
	look_later(h);
}

void gantry_handover_come_to_rest(struct gantry_handover *h, struct gantry_session *s)
{
	gantry_handover_enter(h, GANTRY_HANDOVER_DRAINING);
	h->was_still = false;
	gantry_session_hold(s);
	look_at_queues(h);
}

void gantry_handover_freeze(struct gantry_handover *h, struct gantry_session *s)
{
	if (asked_in_vain(h, s))
		h->gathering = false;
	if (!h->gathering && h->naheads < AHEADS_MAX)
		gantry_handover_gather_ahead(h, s);
	h->freeze_waits = h->gathering;
	if (h->freeze_waits)
		look_later(h);
	else
		gantry_handover_hold(h);
}

static void look_again(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);

	(void)fd;
	(void)what;
	if (h->phase == GANTRY_HANDOVER_DRAINING)
		look_at_queues(h);
	else if (h->freeze_waits && asked_in_vain(h, s))
		gantry_handover_freeze(h, s);
	else if (h->freeze_waits)
		look_later(h);
}

/* ---- its worker ---- */

/* It has let go of the session and serves others on. */
static void parted(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_session *s = arg;
	struct gantry_worker *w = s->worker;

	gantry_fd_close(fd);
	if (!answer) {
		if (!w->dead)
			gantry_worker_kill(w); /* its burial goes on with the session */
		return;
	}
	gantry_call_forget(w, s);
	gantry_migrations_worker_died(s);
	gantry_slabs_worker_gone(s);
	gantry_worker_release(w, s);
	s->verdict = 0;
	s->died_ns = 0;
	gantry_recover_session(s);
}

static void part(struct gantry_session *s)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Detach detach = GANTRY__WORKER__DETACH__INIT;

	detach.session_id = s->id;
	detach.part = true;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_DETACH;
	msg.detach = &detach;
	/* -EPIPE: it is dead, and its burial goes on with the session. */
	(void)gantry_call(s->worker, &msg, NULL, 0, ANSWER_NS, parted, s);
}

void gantry_handover_leave_worker(struct gantry_session *s)
{
	if (s->worker->class.mode == GANTRY_ISOLATED) {
		gantry_worker_kill_now(s->worker);
		return;
	}
	if (s->phase !=
	    GANTRY_PHASE_ATTACHED) /* it is being given it: that answer is nobody's now */
		gantry_call_forget(s->worker, s);
	part(s);
}

static void end_worker(struct gantry_handover *h, struct gantry_session *s)
{
	gantry_failpoint(GANTRY_FAILPOINT_OUT_STILL);
	gantry_event_free(&h->timer);
	gantry_handover_enter(h, GANTRY_HANDOVER_STILL);
	h->drain_ns = gantry_now_ns() - h->held_ns;
	/* A relay's guest comes back to whoever has the session then; one that shares memory is told at the end. */
	if (s->is_relayed && s->conn) {
		gantry_conn_close(s->conn);
		gantry_vsock_keep_nonce(s);
	}
	if (s->worker)
		gantry_handover_leave_worker(s);
}
