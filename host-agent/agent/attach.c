/* SPDX-License-Identifier: Apache-2.0 */
/* The road to a session: bounded ask, memory, a worker, WELCOME; and the road back. */
#include "host-agent/agent/attach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/list.h"
#include "base/str.h"
#include "devices/device.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/ask.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/deadline.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"
#include "proto/door.h"
#include "proto/wire.h"
#include "worker.pb-c.h"

/* Longer than any guest waits for its first worker. One that had a session keeps it. */
#define WORKER_WAIT_NS (20 * GANTRY_NS_PER_S)
/* A session that so many workers in a row could not take will not be taken by the next. */
#define TRIES_MAX     8u
#define TRY_AGAIN_NS  (GANTRY_NS_PER_S / 4)
#define TRY_AGAIN_MAX 5u /* doublings of that */
#define ATTACH_NS     (10 * GANTRY_NS_PER_S)
/*
 * A body or a kernel that does not listen to cancelled() holds its worker; only neighbours are worth waiting
 * longer for, whom the worker's end costs a pause.
 */
#define DETACH_ISOLATED_NS (2 * GANTRY_NS_PER_S)
#define DETACH_POOLED_NS   (5 * GANTRY_NS_PER_S)
#define MAX_SHARED	   100u

static void finish(struct gantry_session *s)
{
	struct gantry_worker *w = s->worker;

	gantry_event(s->agent, "session-detached", NULL, s, NULL, "%s",
		     gantry_status_text(s->reason));
	if (w) {
		gantry_call_forget(w, s);
		gantry_worker_release(w, s);
	}
	gantry_session_free(s);
}

static void detach_answer(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_session *s = arg;

	gantry_fd_close(fd);
	if (answer)
		finish(s);
	else if (!s->worker->dead)
		gantry_worker_kill(s->worker); /* its end finishes the session */
}

static void end_conn(struct gantry_session *s, int status, const char *text)
{
	if (!s->conn)
		return;
	if (s->welcomed && !s->unadopted) {
		gantry_conn_notice(s->conn, status, text);
		gantry_conn_close(s->conn);
	} else {
		struct gantry_conn *c = s->conn;

		s->conn = NULL;
		c->session = NULL;
		gantry_conn_refuse(c, status, text);
	}
}

void gantry_detach(struct gantry_session *s, int status, const char *text)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Detach detach = GANTRY__WORKER__DETACH__INIT;
	struct gantry_worker *w = s->worker;

	if (s->phase == GANTRY_PHASE_DETACHING)
		return;
	s->reason = status;
	s->phase = GANTRY_PHASE_DETACHING;
	end_conn(s, status, text);
	gantry_list_remove(&s->want_link);
	gantry_event_free(&s->timer);
	if (s->ledger.hdr)
		gantry_store_release(&s->ledger.hdr->detach, 1u); /* pairs with the worker's load */
	if (!w) {
		finish(s);
		return;
	}
	gantry_call_forget(w, s);
	detach.session_id = s->id;
	detach.reason = status;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_DETACH;
	msg.detach = &detach;
	/* -EPIPE: it is dead, and its burial finishes the session. */
	(void)gantry_call(w, &msg, NULL, 0,
			  w->class.mode == GANTRY_POOLED ? DETACH_POOLED_NS : DETACH_ISOLATED_NS,
			  detach_answer, s);
}

/* ---- a worker has it ---- */

/* What holds on every device that the session may ever use. */
static uint32_t common_props(const struct gantry_session *s)
{
	const struct gantry_agent *a = s->agent;

	for (uint32_t i = 0; i < a->ndevices; i++)
		if ((s->tenant->device_mask >> i & 1) &&
		    !(a->devices[i].caps & GANTRY_CAP_HOST_DIRECT))
			return 0;
	return GANTRY_PROP_HOST_DIRECT;
}

void gantry_attach_describe(const struct gantry_session *s, struct gantry_door_welcome *ret_msg)
{
	bool translated = gantry_session_translated(s);

	*ret_msg = (struct gantry_door_welcome){
		.version = s->version,
		.props = common_props(s) | (translated ? GANTRY_PROP_TRANSLATED : 0) |
			 (s->is_relayed ? 0 : GANTRY_PROP_KEYS | GANTRY_PROP_NOTES),
		.session_id = s->is_adopted ? s->guest_session : s->id,
		.segment_bytes = s->shape.segment.segment_bytes,
		.address = translated ? 0 : s->shape.address,
		.nqueues = s->shape.segment.nqueues,
		.nslots = s->shape.segment.nslots,
	};
	gantry_door_header_init(&ret_msg->h, GANTRY_DOOR_WELCOME, 0);
}

static void welcome(struct gantry_session *s)
{
	struct gantry_door_welcome msg;
	struct gantry_agent *a = s->agent;

	gantry_attach_describe(s, &msg);
	s->welcomed = true;
	s->attached_unix_ns = gantry_unix_now_ns();
	if (gantry_conn_welcome(s->conn, &msg) < 0)
		return; /* the guest is gone, and the session with it */
	a->counters.attaches++;
	a->counters.attach_ns_total += gantry_now_ns() - s->began_ns;
	s->tenant->attaches++;
	gantry_event(a, "session-attached", NULL, s, NULL, "%s pid %d uid %u in %llu us",
		     s->program, (int)s->pid, s->uid,
		     (unsigned long long)((gantry_now_ns() - s->began_ns) / 1000));
	gantry_journal_touch(a);
	gantry_deadline_arm(a);
}

/* From @from_ns to @to_ns; 0: it was before. */
static unsigned long long us_between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (to_ns - from_ns) / 1000 : 0;
}

/* The steps of a pause, for whoever wants to shorten it: each takes part of it, in this order. */
static void recovered(struct gantry_session *s)
{
	const struct gantry_worker *w = s->worker;
	uint64_t now_ns = gantry_now_ns();
	char fault[64] = "";

	s->agent->counters.recover_ns_last = now_ns - s->died_ns;
	if (s->faulted_ns) /* it fits */
		(void)gantry_str_format(fault, sizeof(fault), " %llu us after its fault was told",
					us_between(s->faulted_ns, s->died_ns));
	gantry_event(s->agent, "session-recovered", NULL, s, NULL,
		     "worker gone%s; another started %llu us later, ready in %llu; "
		     "it serves after %llu us",
		     fault, us_between(s->died_ns, w->started_ns),
		     us_between(GANTRY_MAX(w->started_ns, s->died_ns), w->ready_ns),
		     us_between(s->died_ns, now_ns));
	gantry_deadline_arm(s->agent);
}

static void attached(struct gantry_session *s)
{
	s->phase = GANTRY_PHASE_ATTACHED;
	s->has_run_here = true;
	s->ntries = 0;
	gantry_event_free(&s->timer);
	gantry_store_release(&s->segment->state, (uint32_t)GANTRY_SESSION_ATTACHED);
	(void)gantry_futex_wake(&s->segment->state, INT_MAX); /* nobody may be asleep */
	if (s->unadopted)
		gantry_adopt_attached(s);
	else if (s->welcomed)
		recovered(s);
	else
		welcome(s);
}

static void want_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_attach_want(arg);
}

/*
 * It has run, so nobody else has what it holds: a worker that cannot take it is no reason to end it. But where its
 * devices are gone; one that has come from another host may find them slow to come up here.
 */
static bool try_another(struct gantry_session *s, const Gantry__Worker__Done *done)
{
	struct gantry_worker *w = s->worker;
	uint64_t pause_ns = (uint64_t)TRY_AGAIN_NS << GANTRY_MIN(s->ntries, TRY_AGAIN_MAX);

	if (!s->welcomed || ++s->ntries >= TRIES_MAX ||
	    (done && done->status == GANTRY_E_NO_DEVICE && (!s->is_adopted || s->has_run_here)) ||
	    gantry_timer_set(s->agent, &s->timer, pause_ns, want_again, s) < 0)
		return false;
	gantry_call_forget(w, s);
	gantry_worker_release(w, s);
	return true;
}

static void attach_answer(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_session *s = arg;
	const Gantry__Worker__Done *done;

	gantry_fd_close(fd);
	if (!answer) {
		if (!s->worker->dead)
			gantry_worker_kill(s->worker); /* its end brings the session to another */
		return;
	}
	done = answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE ? answer->done : NULL;
	if (done && done->status == 0) {
		attached(s);
		return;
	}
	gantry_event(s->agent, "attach-failed", NULL, s, NULL, "%s",
		     done ? done->text : "the worker answered with something else");
	if (try_another(s, done))
		return;
	gantry_detach(s,
		      done ? gantry_status_of_worker(done->status, GANTRY_E_INTERNAL)
			   : GANTRY_E_INTERNAL,
		      done && done->text[0] ? done->text : "the worker could not take the session");
}

/* Descriptors of the session's shared buffers, as the monitor has them. */
static unsigned int shared_buffers(const struct gantry_session *s,
				   Gantry__Worker__SharedBuffer *buffers, int *fds)
{
	const struct gantry_store *kept = &s->agent->kept;
	char prefix[GANTRY_MONITOR_NAME_MAX];
	unsigned int n = 0;

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/x/", (unsigned long long)s->id);
	for (size_t i = 0; i < kept->nentries && n < MAX_SHARED; i++) {
		const struct gantry_store_entry *e = &kept->entries[i];
		unsigned long long share_id, bytes;

		if (!gantry_str_starts(e->name, prefix) ||
		    sscanf(e->name + strlen(prefix), "%llx/%llx", &share_id, &bytes) != 2)
			continue;
		gantry__worker__shared_buffer__init(&buffers[n]);
		buffers[n].share_id = share_id;
		buffers[n].bytes = bytes;
		fds[n++] = e->fd;
	}
	return n;
}

/* The same in every worker and on every host; a pooled one has many sessions in one address space. */
static uint64_t window_address(const struct gantry_session *s, const struct gantry_worker *w)
{
	return w->class.mode == GANTRY_POOLED || s->shape.slab_bytes > GANTRY_WINDOW_STRIDE
		       ? 0
		       : GANTRY_WINDOW_BASE;
}

void gantry_attach_send(struct gantry_session *s, struct gantry_worker *w)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Attach attach = GANTRY__WORKER__ATTACH__INIT;
	Gantry__Worker__SharedBuffer buffers[MAX_SHARED];
	Gantry__Worker__SharedBuffer *list[MAX_SHARED];
	int fds[6 + MAX_SHARED] = { s->segment_fd, s->bell_fd, s->ledger_fd, s->slab_fd,
				    s->tenant->quota_fd };
	bool recover = s->phase == GANTRY_PHASE_RECOVERING;
	unsigned int nfds = 5;

	if (s->wake_fd >= 0)
		fds[nfds++] = s->wake_fd;
	s->others_first = false;
	gantry_worker_enlist(w, s);
	gantry_session_served_by(s, w->id);
	gantry_session_admit(s, w);
	attach.session_id = s->id;
	attach.epoch = s->ledger.hdr->epoch;
	attach.version = s->version;
	attach.recover = recover;
	attach.verdict = s->verdict;
	attach.tenant_slot = s->tenant->slot;
	attach.tenant = s->tenant->conf.name;
	attach.share_slot = s->share_slot;
	attach.segment_off = s->segment_off;
	attach.wake = s->wake;
	attach.segment_bytes = s->shape.segment.segment_bytes;
	attach.address = s->shape.address;
	attach.window_address = window_address(s, w);
	s->device_mask = s->tenant->device_mask;
	attach.device_mask = s->device_mask;
	if (recover) {
		attach.n_shared = shared_buffers(s, buffers, fds + nfds);
		for (size_t i = 0; i < attach.n_shared; i++)
			list[i] = &buffers[i];
		attach.shared = list;
	} else {
		s->phase = GANTRY_PHASE_ATTACHING;
	}
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_ATTACH;
	msg.attach = &attach;
	/* -EPIPE: it is dead, and its burial brings the session to another. */
	(void)gantry_call(w, &msg, fds, nfds + (unsigned int)attach.n_shared, ATTACH_NS,
			  attach_answer, s);
}

void gantry_attach_serve(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->wanting, struct gantry_session, want_link, s) {
		/* What is being fetched for the worker before is written to its memory: that ends first. */
		struct gantry_worker *w = s->npulls ? NULL : gantry_warm_take(a, s);

		if (!w)
			continue;
		gantry_list_remove(&s->want_link);
		gantry_event_free(&s->timer);
		gantry_attach_send(s, w);
	}
}

void gantry_attach_no_room(struct gantry_agent *a, uint64_t mask)
{
	gantry_list_for_each_safe(&a->wanting, struct gantry_session, want_link, s)
		if ((s->tenant->device_mask & mask) &&
		    !(s->tenant->device_mask & gantry_devices_serving(a) & ~mask) && !s->welcomed &&
		    s->tenant->conf.on_full == GANTRY_ON_FULL_REFUSE)
			gantry_detach(s, GANTRY_E_FULL,
				      "a device of the tenant has no room for another session");
}

static int await_worker(struct gantry_session *s);

/* What has run ends by its guest's end or an administrator's word: nobody else has what it holds. */
static void no_worker_came(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_session *s = arg;

	(void)fd;
	(void)what;
	if (!s->welcomed) {
		gantry_detach(s, GANTRY_E_INTERNAL,
			      "no worker became ready in time; the agent's log says why");
		return;
	}
	gantry_event(s->agent, "session-waits", NULL, s, NULL,
		     "no worker became ready within %llu s; it keeps what it has and goes on when "
		     "one is; the agent's log says why there is none",
		     (unsigned long long)(WORKER_WAIT_NS / GANTRY_NS_PER_S));
	(void)await_worker(s); /* or nothing more is told */
}

static int await_worker(struct gantry_session *s)
{
	uint64_t ns = gantry_failpoint_io(GANTRY_FAILPOINT_ATTACH_WAIT) < 0 ? 0 : WORKER_WAIT_NS;

	return gantry_timer_set(s->agent, &s->timer, ns, no_worker_came, s);
}

void gantry_attach_want(struct gantry_session *s)
{
	gantry_list_push_back(&s->agent->wanting, &s->want_link);
	if (await_worker(s) < 0 && !s->welcomed) {
		gantry_detach(s, GANTRY_E_INTERNAL, "the host is out of memory");
		return;
	}
	gantry_attach_serve(s->agent);
}

static int to_status(int r)
{
	return r == -ENOMEM || r == -ENOSPC || r == -EMFILE || r == -ENFILE ? GANTRY_E_AGAIN
									    : GANTRY_E_INTERNAL;
}

void gantry_attach_begin(struct gantry_conn *c)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_tenant *t = c->tenant;
	struct gantry_session *s;
	struct gantry_session_place place;
	struct gantry_shape shape;
	uint32_t version;
	int r;

	if (c->ops->place)
		r = c->ops->place(c, &shape, &version, &place, &err);
	else
		r = gantry_ask_bound(&c->hello, &t->conf, t->host_mem_used, &shape, &version, &err);
	if (r > 0)
		return; /* there will be, and it begins anew */
	if (r < 0) {
		t->denied += r == GANTRY_E_LIMIT;
		gantry_conn_refuse(c, r, err.text);
		return;
	}
	if (t->device_mask == 0) {
		if (c->ops->place)
			gantry_doormem_put(place.doormem, place.off);
		gantry_conn_refuse(c, GANTRY_E_NO_DEVICE,
				   "no device is configured for this tenant");
		return;
	}
	r = gantry_session_new(t, &shape, version, c->ops->place ? &place : NULL, &s, &err);
	if (r < 0) {
		gantry_event(c->agent, "attach-failed", t, NULL, NULL, "%s", err.text);
		gantry_conn_refuse(c, to_status(r), err.text);
		return;
	}
	s->conn = c;
	c->session = s;
	s->pid = c->pid;
	s->uid = c->uid;
	/* The same size, and the check of the message saw its end. */
	(void)gantry_str_copy(s->program, sizeof(s->program), c->hello.name);
	gantry_str_make_printable(s->program);
	if (c->ops->prepare && c->ops->prepare(c) < 0)
		gantry_detach(s, GANTRY_E_AGAIN, "the host is short of descriptors or memory");
	else
		gantry_attach_want(s);
}
