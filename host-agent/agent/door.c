/* SPDX-License-Identifier: Apache-2.0 */
/* Doors: a tenant's listener, and the connections that guests make through it. */
#include "host-agent/agent/door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/exchange.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/liveness.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/wire.h"

#define HELLO_TIMEOUT_NS     (5 * GANTRY_NS_PER_S)
#define WAITING_TIMEOUT_NS   (600 * GANTRY_NS_PER_S)
#define MAX_HALF_OPEN	     32u
#define MAX_WAITING	     64u
#define MAX_OUTSTANDING	     16u
#define ACCEPTS_PER_TURN     16
#define FD_EXHAUSTED_WAIT_NS (200 * GANTRY_NS_PER_MS)
#define MESSAGE_MAX	     256u
/* Descriptors that guests at doors leave alone: for administrators, workers and what they send. */
#define FDS_RESERVED 64u

static void accept_ready(evutil_socket_t fd, short what, void *arg);

/* ---- listener ---- */

static int make_parents(const char *path, mode_t mode, struct gantry_err *err)
{
	char part[GANTRY_AGENT_PATH];

	if (gantry_str_copy(part, sizeof(part), path) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "door path %s is too long for a socket",
				      path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, mode) < 0 && errno != EEXIST)
			return gantry_err_set_errno(err, -errno, "making folder %s", part);
		*slash = '/';
	}
	return 0;
}

/* A listener that an earlier agent left with the monitor: its backlog is not lost. */
static int kept_listener(struct gantry_tenant *t)
{
	struct sockaddr_un addr;
	socklen_t len = sizeof(addr);
	int fd;
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "l/%s", t->conf.name); /* it fits */
	fd = gantry_store_take(&t->agent->handed, name);
	if (fd < 0)
		return -ENOENT;
	memset(&addr, 0, sizeof(addr));
	if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
	    strcmp(addr.sun_path, t->door_path) == 0 && access(t->door_path, F_OK) == 0)
		return fd;
	gantry_fd_close(fd);
	return -ENOENT;
}

int gantry_door_open(struct gantry_tenant *t, struct gantry_err *err)
{
	char what[GANTRY_CONFIG_NAME + 16];
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;
	int r;

	(void)gantry_str_format(what, sizeof(what), "doors/%s/door", t->conf.name); /* it fits */
	if (t->conf.door[0])
		r = gantry_str_copy(t->door_path, sizeof(t->door_path), t->conf.door) < 0
			    ? gantry_err_set(err, -ENAMETOOLONG, "door %s is too long for a socket",
					     t->conf.door)
			    : 0;
	else
		r = gantry_agent_run_path(t->agent, t->door_path, sizeof(t->door_path), what, err);
	if (r == 0)
		r = make_parents(t->door_path, 0755, err);
	if (r == 0)
		r = gantry_owner_parse(t->conf.door_owner, &uid, &gid, err);
	if (r < 0)
		return r;
	t->door_fd = kept_listener(t);
	if (t->door_fd < 0) {
		r = gantry_unix_listen(t->door_path, SOCK_SEQPACKET | SOCK_NONBLOCK,
				       (mode_t)t->conf.door_mode, &t->door_fd);
		if (r < 0)
			return gantry_err_set_errno(err, r, "opening door %s", t->door_path);
	}
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) && chown(t->door_path, uid, gid) < 0)
		gantry_log(GANTRY_LOG_WARN, "tenant %s: cannot give the door to %s: %s",
			   t->conf.name, t->conf.door_owner, strerror(errno));
	t->door_event = event_new(t->agent->base, t->door_fd, EV_READ | EV_PERSIST, accept_ready,
				  t);
	if (!t->door_event || event_add(t->door_event, NULL) < 0) {
		gantry_door_close(t);
		return gantry_err_set(err, -ENOMEM, "no memory for door %s", t->door_path);
	}
	gantry_keep(t->agent, t->door_fd, "l/%s", t->conf.name);
	return 0;
}

void gantry_door_close(struct gantry_tenant *t)
{
	gantry_event_free(&t->door_event);
	if (t->door_fd < 0)
		return;
	gantry_keep_drop(t->agent, "l/%s", t->conf.name);
	t->door_fd = gantry_fd_close(t->door_fd);
	(void)unlink(t->door_path); /* or somebody was tidier than we */
	gantry_list_for_each_safe(&t->waiting, struct gantry_conn, link, c)
		gantry_conn_refuse(c, GANTRY_E_NO_AGENT, "the door was closed");
}

/* ---- connections ---- */

static void conn_event(evutil_socket_t fd, short what, void *arg);
static void guest_ended(evutil_socket_t fd, short what, void *arg);

static void free_conn(struct gantry_conn *c)
{
	gantry_event_free(&c->event);
	gantry_event_free(&c->pid_event);
	gantry_fd_close(c->pidfd);
	free(c);
}

/* A child of the guest may hold the connection when the guest is long dead. */
static int watch_guest(struct gantry_conn *c)
{
	int r = gantry_liveness_open(c->fd, c->pid, &c->pidfd);

	if (r == -ENOTSUP)
		return 0; /* the hang-up is all there is */
	c->pid_event = event_new(c->agent->base, r < 0 ? -1 : c->pidfd, EV_READ, guest_ended, c);
	if (!c->pid_event)
		return -ENOMEM;
	if (r < 0)
		event_active(c->pid_event, EV_READ, 0);
	return r < 0 || event_add(c->pid_event, NULL) == 0 ? 0 : -ENOMEM;
}

static struct gantry_conn *new_conn(struct gantry_agent *a, struct gantry_tenant *t, int fd)
{
	struct gantry_conn *c = calloc(1, sizeof(*c));
	struct ucred cred;

	if (!c)
		return NULL;
	c->agent = a;
	c->tenant = t;
	c->fd = fd;
	c->pidfd = -EBADF;
	gantry_list_init(&c->link);
	if (gantry_fd_peer_cred(fd, &cred) == 0) {
		c->pid = cred.pid;
		c->uid = cred.uid;
	}
	c->event = event_new(a->base, fd, EV_READ | EV_PERSIST, conn_event, c);
	if (!c->event || event_add(c->event, NULL) < 0 || watch_guest(c) < 0) {
		free_conn(c);
		return NULL;
	}
	return c;
}

struct gantry_conn *gantry_conn_restore(struct gantry_session *s, int fd)
{
	struct gantry_conn *c = new_conn(s->agent, s->tenant, fd);

	if (!c)
		return NULL;
	c->session = s;
	c->state = GANTRY_CONN_ATTACHED;
	s->conn = c;
	s->pid = c->pid;
	s->uid = c->uid;
	return c;
}

/* Does not touch the session beyond taking the connection away from it. */
void gantry_conn_close(struct gantry_conn *c)
{
	struct gantry_tenant *t = c->tenant;
	int fd = c->fd;

	if (c->state == GANTRY_CONN_HALF_OPEN)
		t->nhalf_open--;
	if (c->session) {
		gantry_keep_drop(c->agent, "s/%llx/door", (unsigned long long)c->session->id);
		c->session->conn = NULL;
	}
	gantry_list_remove(&c->link);
	free_conn(c);
	gantry_fd_close(fd);
	gantry_tenant_reap(t);
}

int gantry_conn_send(struct gantry_conn *c, const void *msg, size_t len, const int *fds,
		     unsigned int nfds)
{
	ssize_t n = gantry_fd_send(c->fd, msg, len, fds, nfds, MSG_DONTWAIT);
	struct gantry_session *s = c->session;

	if (n >= 0)
		return 0;
	if (n == -EAGAIN)
		c->agent->counters.slow_readers++;
	gantry_conn_close(c);
	if (s)
		gantry_detach(s, GANTRY_E_CLOSED, "the guest does not read its door");
	return -EPIPE;
}

static void fill_refuse(struct gantry_door_refuse *msg, uint16_t kind, int status, const char *text)
{
	*msg = (struct gantry_door_refuse){
		.status = status,
		.version_min = GANTRY_WIRE_VERSION_MIN,
		.version_max = GANTRY_WIRE_VERSION_MAX,
	};
	gantry_door_header_init(&msg->h, kind, 0);
	(void)gantry_str_copy(msg->text, sizeof(msg->text), text); /* cut is better than unsaid */
}

void gantry_conn_refuse(struct gantry_conn *c, int status, const char *text)
{
	struct gantry_door_refuse msg;

	fill_refuse(&msg, GANTRY_DOOR_REFUSE, status, text);
	/* closed either way */
	(void)gantry_fd_send(c->fd, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT);
	c->agent->counters.attach_refused++;
	gantry_conn_close(c);
}

void gantry_conn_notice(struct gantry_conn *c, int status, const char *text)
{
	struct gantry_door_refuse msg;

	fill_refuse(&msg, GANTRY_DOOR_NOTICE, status, text);
	(void)gantry_fd_send(c->fd, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT); /* news only */
}

static bool peer_allowed(const struct gantry_tenant *t, uid_t uid)
{
	if (t->conf.nuids == 0)
		return true; /* the mode of the socket has decided */
	for (uint32_t i = 0; i < t->conf.nuids; i++)
		if (t->conf.door_uids[i] == uid)
			return true;
	return false;
}

static void doors_again(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->door_event)
			/* it was there before: no memory needed */
			(void)event_add(t->door_event, NULL);
}

/*
 * Without descriptors accept() would fail at once, for ever: look away for a while instead of
 * spinning.
 */
static void descriptors_exhausted(struct gantry_tenant *t)
{
	struct gantry_agent *a = t->agent;

	a->counters.fd_exhausted++;
	gantry_event(a, "descriptors-exhausted", t, NULL, NULL,
		     "no descriptor is left for new guests; raise LimitNOFILE or lower sessions");
	(void)event_del(t->door_event); /* cannot fail for an event of ours */
	(void)gantry_timer_set(a, &a->door_retry_timer, FD_EXHAUSTED_WAIT_NS, doors_again, a);
}

/* The kernel gives the lowest number that is free. */
static bool descriptors_scarce(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > 4 * FDS_RESERVED &&
	       (rlim_t)fd >= limit.rlim_cur - FDS_RESERVED;
}

static void turn_away(struct gantry_tenant *t, int fd)
{
	struct gantry_door_refuse msg;

	t->agent->counters.fd_exhausted++;
	t->agent->counters.attach_refused++;
	fill_refuse(&msg, GANTRY_DOOR_REFUSE, GANTRY_E_AGAIN,
		    "the host is short of descriptors; raise LimitNOFILE or lower sessions");
	(void)gantry_fd_send(fd, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT); /* closed either way */
	gantry_fd_close(fd);
}

static void take_guest(struct gantry_tenant *t, int fd)
{
	const struct timeval timeout = { .tv_sec = HELLO_TIMEOUT_NS / GANTRY_NS_PER_S };
	struct gantry_conn *c = new_conn(t->agent, t, fd);

	if (!c) {
		gantry_fd_close(fd);
		return;
	}
	c->state = GANTRY_CONN_HALF_OPEN;
	t->nhalf_open++;
	if (!peer_allowed(t, c->uid)) {
		t->agent->counters.denied_peers++;
		gantry_event(t->agent, "door-denied", t, NULL, NULL,
			     "uid %u pid %d may not connect", c->uid, (int)c->pid);
		gantry_conn_refuse(c, GANTRY_E_DENIED, "this user may not use this door");
		return;
	}
	if (t->nhalf_open > MAX_HALF_OPEN) {
		gantry_conn_refuse(c, GANTRY_E_AGAIN, "too many guests are at this door at once");
		return;
	}
	(void)event_add(c->event, &timeout); /* it is there: no memory needed */
}

static void accept_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)what;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4((int)listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			descriptors_exhausted(t);
		if (fd < 0)
			return;
		if (descriptors_scarce(fd))
			turn_away(t, fd);
		else
			take_guest(t, fd);
	}
}

/* ---- messages ---- */

static void broke_rules(struct gantry_conn *c, const char *text)
{
	struct gantry_session *s = c->session;

	c->agent->counters.protocol_errors++;
	c->tenant->protocol_errors++;
	gantry_event(c->agent, "door-protocol-error", c->tenant, s, NULL, "pid %d: %s", (int)c->pid,
		     text);
	if (s)
		gantry_detach(s, GANTRY_E_PROTOCOL, text);
	else
		gantry_conn_refuse(c, GANTRY_E_PROTOCOL, text);
}

/* Its sessions are as many as it may have, or its devices have no room for one more; @text says which. */
static bool tenant_full(const struct gantry_tenant *t, char text[GANTRY_DOOR_TEXT])
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (t->nsessions >= t->conf.sessions) {
		(void)gantry_str_format(text, GANTRY_DOOR_TEXT,
					"tenant %s has %u of %u sessions in use", t->conf.name,
					t->nsessions, t->conf.sessions); /* it fits */
		return true;
	}
	if (gantry_mps_full(t)) {
		(void)gantry_str_format(text, GANTRY_DOOR_TEXT, /* it fits */
					"the trust group's MPS server has all its %u clients",
					t->agent->config->agent.mps_clients);
		return true;
	}
	if (gantry_slabs_room(t, &err) == 0)
		return false;
	(void)gantry_str_copy(text, GANTRY_DOOR_TEXT, err.text); /* cut is better than unsaid */
	return true;
}

static void admit(struct gantry_conn *c)
{
	struct gantry_tenant *t = c->tenant;
	char text[GANTRY_DOOR_TEXT];
	uint32_t nwaiting = 0;

	if (t->removed || t->agent->stopping) { /* since it connected */
		gantry_conn_refuse(c, GANTRY_E_NO_AGENT, "the door was closed");
		return;
	}
	if (!tenant_full(t, text)) {
		c->state = GANTRY_CONN_ATTACHING;
		gantry_attach_begin(c);
		return;
	}
	gantry_list_for_each(&t->waiting, struct gantry_conn, link, other)
		nwaiting++;
	if (t->conf.on_full == GANTRY_ON_FULL_REFUSE || nwaiting >= MAX_WAITING) {
		t->denied++;
		gantry_conn_refuse(c, GANTRY_E_FULL, text);
		return;
	}
	c->state = GANTRY_CONN_WAITING;
	gantry_list_push_back(&t->waiting, &c->link);
	(void)event_add(c->event,
			&(struct timeval){ .tv_sec = WAITING_TIMEOUT_NS / GANTRY_NS_PER_S });
}

void gantry_door_next(struct gantry_tenant *t)
{
	char text[GANTRY_DOOR_TEXT];

	while (!gantry_list_is_empty(&t->waiting) && !tenant_full(t, text)) {
		struct gantry_conn *c = gantry_list_entry(t->waiting.next, struct gantry_conn,
							  link);

		gantry_list_remove(&c->link);
		c->state = GANTRY_CONN_ATTACHING;
		gantry_attach_begin(c);
	}
}

static void handle_hello(struct gantry_conn *c, const struct gantry_door_hello *hello)
{
	/* From here on only the hang-up and our own timers end the wait. */
	(void)event_del(c->event);
	(void)event_add(c->event, NULL); /* it was there: no memory needed */
	c->tenant->nhalf_open--;
	c->state = GANTRY_CONN_ATTACHING;
	c->hello = *hello;
	admit(c);
}

static void handle_request(struct gantry_conn *c, uint16_t kind, const void *msg)
{
	if (c->noutstanding >= MAX_OUTSTANDING) {
		broke_rules(c, "more requests at once than a door takes");
		return;
	}
	if (kind == GANTRY_DOOR_SHARE)
		gantry_exchange_share(c, msg);
	else if (kind == GANTRY_DOOR_ADOPT)
		gantry_exchange_adopt(c, msg);
	else
		broke_rules(c, "a message that guests do not send");
}

static void handle_message(struct gantry_conn *c, const void *msg, size_t len)
{
	uint16_t kind;

	if (gantry_door_check(msg, len, &kind) < 0)
		broke_rules(c, "a message that is none of the door's");
	else if (c->state == GANTRY_CONN_HALF_OPEN && kind == GANTRY_DOOR_HELLO)
		handle_hello(c, msg);
	else if (c->state == GANTRY_CONN_ATTACHED)
		handle_request(c, kind, msg);
	else
		broke_rules(c, "a message out of turn");
}

static void conn_gone(struct gantry_conn *c)
{
	struct gantry_session *s = c->session;

	gantry_conn_close(c);
	if (s)
		gantry_detach(s, GANTRY_E_CLOSED, "the guest is gone");
}

static void guest_ended(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	conn_gone(arg);
}

static void conn_event(evutil_socket_t fd, short what, void *arg)
{
	_Alignas(8) uint8_t buf[MESSAGE_MAX];
	struct gantry_conn *c = arg;
	ssize_t n;

	if (what & EV_TIMEOUT) {
		gantry_conn_refuse(c, GANTRY_E_TIMEOUT,
				   c->state == GANTRY_CONN_WAITING
					   ? "no session became free in time"
					   : "no HELLO came in time");
		return;
	}
	/* A guest has no descriptor to give: any that come are closed unseen. */
	n = gantry_fd_recv((int)fd, buf, sizeof(buf), NULL, 0, NULL, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (n == -EMSGSIZE || n == -EMFILE)
		broke_rules(c, "a message too long for a door");
	else if (n <= 0)
		conn_gone(c);
	else
		handle_message(c, buf, (size_t)n);
}
