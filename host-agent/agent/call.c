/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to workers and their answers; what workers say unasked. */
#include "host-agent/agent/call.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/exchange.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/control/packet.h"

#define PACKETS_PER_TURN 32
#define OUT_MAX		 256u

struct call {
	struct gantry_list link;
	struct gantry_worker *worker;
	uint64_t tag;
	gantry_call_fn *fn;
	void *arg;
	struct event *timer;
};

/* A packet that the worker's socket had no room for. */
struct out {
	struct gantry_list link;
	size_t len;
	unsigned int nfds;
	int fds[GANTRY_PACKET_MAX_FDS]; /* duplicates, owned */
	uint8_t data[];
};

static void free_call(struct call *c)
{
	gantry_list_remove(&c->link);
	gantry_event_free(&c->timer);
	free(c);
}

static void free_out(struct out *o)
{
	for (unsigned int i = 0; i < o->nfds; i++)
		gantry_fd_close(o->fds[i]);
	gantry_list_remove(&o->link);
	free(o);
}

static void call_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct call *c = arg;
	gantry_call_fn *fn = c->fn;
	void *fn_arg = c->arg;

	(void)fd;
	(void)what;
	gantry_event(c->worker->agent, "worker-silent", NULL, NULL, c->worker, "no answer in time");
	free_call(c);
	fn(fn_arg, NULL, -EBADF);
}

static void out_writable(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_worker *w = arg;

	(void)what;
	gantry_list_for_each_safe(&w->out, struct out, link, o) {
		if (gantry_fd_send((int)fd, o->data, o->len, o->fds, o->nfds, MSG_DONTWAIT) ==
		    -EAGAIN)
			return;
		free_out(o); /* sent; or the worker is gone, which its pidfd tells */
	}
	gantry_event_free(&w->out_event);
}

static int watch_room(struct gantry_worker *w)
{
	if (w->out_event)
		return 0;
	w->out_event = event_new(w->agent->base, w->ctl_fd, EV_WRITE | EV_PERSIST, out_writable, w);
	return w->out_event && event_add(w->out_event, NULL) == 0 ? 0 : -ENOMEM;
}

static int queue_packet(struct gantry_worker *w, const ProtobufCMessage *msg, const int *fds,
			unsigned int nfds)
{
	size_t len = protobuf_c_message_get_packed_size(msg);
	struct out *o;

	if (gantry_list_count(&w->out) >= OUT_MAX || nfds > GANTRY_PACKET_MAX_FDS)
		return -ENOBUFS;
	o = calloc(1, sizeof(*o) + len);
	if (!o)
		return -ENOMEM;
	o->len = protobuf_c_message_pack(msg, o->data);
	gantry_list_push_back(&w->out, &o->link);
	for (; o->nfds < nfds; o->nfds++) {
		o->fds[o->nfds] = fcntl(fds[o->nfds], F_DUPFD_CLOEXEC, 0);
		if (o->fds[o->nfds] < 0) {
			int r = -errno;

			free_out(o);
			return r;
		}
	}
	return watch_room(w);
}

static int send_packet(struct gantry_worker *w, const ProtobufCMessage *msg, const int *fds,
		       unsigned int nfds)
{
	int r = -EAGAIN;

	if (w->dead || w->ctl_fd < 0)
		return -EPIPE;
	if (gantry_list_is_empty(&w->out))
		r = gantry_packet_send(w->ctl_fd, msg, fds, nfds);
	return r == -EAGAIN ? queue_packet(w, msg, fds, nfds) : r;
}

static struct call *new_call(struct gantry_worker *w, uint64_t tag, uint64_t timeout_ns,
			     gantry_call_fn *fn, void *arg)
{
	struct call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	gantry_list_push_back(&w->calls, &c->link);
	c->worker = w;
	c->tag = tag;
	c->fn = fn;
	c->arg = arg;
	if (gantry_timer_set(w->agent, &c->timer, timeout_ns, call_timeout, c) < 0) {
		free_call(c);
		return NULL;
	}
	return c;
}

int gantry_call(struct gantry_worker *w, Gantry__Worker__ToWorker *msg, const int *fds,
		unsigned int nfds, uint64_t timeout_ns, gantry_call_fn *fn, void *arg)
{
	struct call *c = NULL;
	int r;

	msg->tag = w->next_tag++;
	if (fn)
		c = new_call(w, msg->tag, timeout_ns, fn, arg);
	r = fn && !c ? -ENOMEM : send_packet(w, &msg->base, fds, nfds);
	if (r < 0 && c)
		free_call(c);
	/* What a worker cannot be told makes it useless; its end has an answer for everyone. */
	if (r < 0 && !w->dead)
		gantry_worker_kill(w);
	return r;
}

bool gantry_call_waits(const struct gantry_worker *w)
{
	return !gantry_list_is_empty(&w->calls) || !gantry_list_is_empty(&w->out);
}

void gantry_call_forget(struct gantry_worker *w, const void *arg)
{
	gantry_list_for_each_safe(&w->calls, struct call, link, c)
		if (c->arg == arg)
			free_call(c);
}

void gantry_call_fail_all(struct gantry_worker *w)
{
	while (!gantry_list_is_empty(&w->calls)) {
		struct call *c = gantry_list_entry(w->calls.next, struct call, link);
		gantry_call_fn *fn = c->fn;
		void *arg = c->arg;

		free_call(c);
		fn(arg, NULL, -EBADF);
	}
	gantry_list_for_each_safe(&w->out, struct out, link, o)
		free_out(o);
}

/* A number that is no status would reach a guest, whose library takes the sentence from a table. */
int gantry_status_of_worker(int32_t status, int otherwise)
{
	return status < 0 && strcmp(gantry_status_text(status), gantry_status_text(INT_MIN)) != 0
		       ? status
		       : otherwise;
}

static void session_ended(struct gantry_worker *w, const Gantry__Worker__SessionEnded *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);

	if (!s || s->worker != w)
		return;
	if (msg->status == GANTRY_E_PROTOCOL) {
		w->agent->counters.protocol_errors++;
		s->tenant->protocol_errors++;
	}
	gantry_event(w->agent, "session-condemned", NULL, s, w, "%s", msg->text);
	gantry_detach(s, gantry_status_of_worker(msg->status, GANTRY_E_DETACHED),
		      msg->text[0] ? msg->text : gantry_status_text(msg->status));
}

static void unasked(struct gantry_worker *w, const Gantry__Worker__FromWorker *msg, int fd)
{
	if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_KEEP) {
		gantry_exchange_keep(w, msg->keep, fd);
		return;
	}
	if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_NEED_SLABS)
		gantry_slabs_need(w, msg->need_slabs);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DROP_SLAB)
		gantry_slabs_drop(w, msg->drop_slab);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_SESSION_ENDED)
		session_ended(w, msg->session_ended);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_BUSY)
		gantry_placement_wake(w->agent);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_NEED_BYTES)
		gantry_pull_need(w, msg->need_bytes);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_MIGRATION_NEWS)
		gantry_migration_told(w, msg->migration_news);
	else if (msg->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DEVICE_FAULT)
		gantry_fault_told(w, msg->device_fault);
	gantry_fd_close(fd);
}

static void dispatch(struct gantry_worker *w, const Gantry__Worker__FromWorker *msg, int fd)
{
	gantry_list_for_each_safe(&w->calls, struct call, link, c) {
		gantry_call_fn *fn = c->fn;
		void *arg = c->arg;

		if (c->tag != msg->tag)
			continue;
		free_call(c);
		fn(arg, msg, fd);
		return;
	}
	unasked(w, msg, fd);
}

void gantry_call_readable(evutil_socket_t sock, short what, void *arg)
{
	struct gantry_worker *w = arg;
	uint64_t id = w->id;
	struct gantry_agent *a = w->agent;

	(void)what;
	for (int i = 0; i < PACKETS_PER_TURN; i++) {
		ProtobufCMessage *msg;
		unsigned int nfds = 0;
		int fd = -EBADF;
		int r = gantry_packet_recv((int)sock, &gantry__worker__from_worker__descriptor, &fd,
					   1, &msg, &nfds);

		if (r == -EAGAIN)
			return;
		if (r == -ENODATA || r == -ECONNRESET) {
			/*
			 * It has closed its end: either dead, which the pidfd tells, or of no use.
			 */
			gantry_event_free(&w->ctl_event);
			gantry_worker_kill(w);
			return;
		}
		if (r < 0) {
			gantry_event(a, "worker-garbage", NULL, NULL, w,
				     "it sent what is no message; it is ended");
			gantry_event_free(&w->ctl_event);
			gantry_worker_kill(w);
			return;
		}
		dispatch(w, (const Gantry__Worker__FromWorker *)msg, fd);
		protobuf_c_message_free_unpacked(msg, NULL);
		if (gantry_worker_find(a, id) != w)
			return; /* the message ended it */
	}
}
