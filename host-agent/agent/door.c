/* SPDX-License-Identifier: Apache-2.0 */
/* A tenant's Unix socket, and the binding of connections to it. */
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
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/liveness.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/monitor/store.h"
#include "proto/wire.h"

#define ACCEPTS_PER_TURN     16
#define FD_EXHAUSTED_WAIT_NS (200 * GANTRY_NS_PER_MS)
/* Descriptors that guests at doors leave alone: for administrators, workers and what they send. */
#define FDS_RESERVED 64u

static void accept_ready(evutil_socket_t fd, short what, void *arg);

/* ---- listener ---- */

static int make_parents(const char *path, struct gantry_err *err)
{
	char part[GANTRY_AGENT_PATH];

	if (gantry_str_copy(part, sizeof(part), path) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "door path %s is too long for a socket",
				      path);
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return gantry_err_set_errno(err, -errno, "making folder %s", part);
		*slash = '/';
	}
	return 0;
}

static void give_to(const struct gantry_tenant *t, const char *path, uid_t uid, gid_t gid,
		    const char *owner)
{
	if ((uid != (uid_t)-1 || gid != (gid_t)-1) && chown(path, uid, gid) < 0)
		gantry_log(GANTRY_LOG_WARN, "tenant %s: cannot give %s to %s: %s", t->conf.name,
			   path, owner, strerror(errno));
}

/* One that an earlier agent left with the monitor: its backlog is not lost. */
static int kept_listener(struct gantry_agent *a, const struct gantry_door_at *at)
{
	struct sockaddr_un addr;
	socklen_t len = sizeof(addr);
	int fd = gantry_store_take(&a->handed, at->kept);

	if (fd < 0)
		return -ENOENT;
	memset(&addr, 0, sizeof(addr));
	if (getsockname(fd, (struct sockaddr *)&addr, &len) == 0 &&
	    strcmp(addr.sun_path, at->path) == 0 && access(at->path, F_OK) == 0)
		return fd;
	gantry_fd_close(fd);
	return -ENOENT;
}

int gantry_door_listen(struct gantry_tenant *t, const struct gantry_door_at *at,
		       event_callback_fn ready, int *ret_fd, struct event **ret_event,
		       struct gantry_err *err)
{
	uid_t uid = (uid_t)-1;
	gid_t gid = (gid_t)-1;
	int fd = -EBADF;
	int r = make_parents(at->path, err);

	if (r == 0)
		r = gantry_owner_parse(at->owner, &uid, &gid, err);
	if (r < 0)
		return r;
	fd = kept_listener(t->agent, at);
	if (fd < 0)
		r = gantry_unix_listen(at->path, at->type | SOCK_NONBLOCK, (mode_t)at->mode, &fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "opening door %s", at->path);
	give_to(t, at->path, uid, gid, at->owner);
	*ret_event = event_new(t->agent->base, fd, EV_READ | EV_PERSIST, ready, t);
	*ret_fd = fd;
	if (*ret_event && event_add(*ret_event, NULL) == 0) {
		gantry_keep(t->agent, fd, "%s", at->kept);
		return 0;
	}
	gantry_door_unlisten(t, at, ret_fd, ret_event);
	return gantry_err_set(err, -ENOMEM, "no memory for door %s", at->path);
}

void gantry_door_unlisten(struct gantry_tenant *t, const struct gantry_door_at *at, int *fd,
			  struct event **event)
{
	gantry_event_free(event);
	if (*fd < 0)
		return;
	gantry_keep_drop(t->agent, "%s", at->kept);
	*fd = gantry_fd_close(*fd);
	(void)unlink(at->path); /* or somebody was tidier than we */
}

static struct gantry_door_at where(const struct gantry_tenant *t)
{
	struct gantry_door_at at = { .path = t->door_path,
				     .type = SOCK_SEQPACKET,
				     .mode = t->conf.door_mode,
				     .owner = t->conf.door_owner };

	(void)gantry_str_format(at.kept, sizeof(at.kept), "l/%s", t->conf.name); /* it fits */
	return at;
}

int gantry_door_open(struct gantry_tenant *t, struct gantry_err *err)
{
	char what[GANTRY_CONFIG_NAME + 16];
	struct gantry_door_at at = where(t);
	int r;

	(void)gantry_str_format(what, sizeof(what), "doors/%s/door", t->conf.name); /* it fits */
	if (t->conf.door[0])
		r = gantry_str_copy(t->door_path, sizeof(t->door_path), t->conf.door) < 0
			    ? gantry_err_set(err, -ENAMETOOLONG, "door %s is too long for a socket",
					     t->conf.door)
			    : 0;
	else
		r = gantry_agent_run_path(t->agent, t->door_path, sizeof(t->door_path), what, err);
	return r < 0 ? r
		     : gantry_door_listen(t, &at, accept_ready, &t->door_fd, &t->door_event, err);
}

void gantry_door_close(struct gantry_tenant *t)
{
	struct gantry_door_at at = where(t);
	bool was_open = t->door_fd >= 0;

	gantry_door_unlisten(t, &at, &t->door_fd, &t->door_event);
	gantry_list_for_each_safe(&t->waiting, struct gantry_conn, link, c)
		if (was_open)
			gantry_conn_refuse(c, GANTRY_E_NO_AGENT, "the door was closed");
	gantry_list_for_each_safe(&t->standbys, struct gantry_conn, link, c)
		if (was_open)
			gantry_conn_refuse(c, GANTRY_E_NO_AGENT, "the door was closed");
}

/* ---- the binding ---- */

struct unix_conn {
	struct gantry_conn conn;
	int fd;
	struct event *event;
	int pidfd; /* of the guest, where the kernel gives one */
	struct event *pid_event;
};

static struct unix_conn *of(struct gantry_conn *c)
{
	return gantry_list_entry(c, struct unix_conn, conn);
}

static int unix_send(struct gantry_conn *c, const void *msg, size_t len)
{
	ssize_t n = gantry_fd_send(of(c)->fd, msg, len, NULL, 0, MSG_DONTWAIT);

	return n < 0 ? (int)n : 0;
}

static int unix_welcome(struct gantry_conn *c, const struct gantry_door_welcome *msg)
{
	const int fds[2] = { c->session->segment_fd, c->session->bell_fd };
	ssize_t n = gantry_fd_send(of(c)->fd, msg, sizeof(*msg), fds, 2, MSG_DONTWAIT);

	return n < 0 ? (int)n : 0;
}

static void unix_keep(struct gantry_conn *c)
{
	gantry_keep(c->agent, of(c)->fd, "s/%llx/door", (unsigned long long)c->session->id);
}

static void unix_close(struct gantry_conn *c)
{
	struct unix_conn *u = of(c);

	if (c->session)
		gantry_keep_drop(c->agent, "s/%llx/door", (unsigned long long)c->session->id);
	gantry_event_free(&u->event);
	gantry_event_free(&u->pid_event);
	gantry_fd_close(u->pidfd);
	gantry_fd_close(u->fd);
	gantry_conn_fini(c);
	free(u);
}

static const struct gantry_conn_ops unix_ops = {
	.send = unix_send,
	.welcome = unix_welcome,
	.keep = unix_keep,
	.close = unix_close,
};

static void guest_ended(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_conn_gone(arg);
}

static void conn_event(evutil_socket_t fd, short what, void *arg)
{
	_Alignas(8) uint8_t buf[GANTRY_CONN_MESSAGE_MAX];
	struct gantry_conn *c = arg;
	ssize_t n;

	(void)what;
	/* A guest has no descriptor to give: any that come are closed unseen. */
	n = gantry_fd_recv((int)fd, buf, sizeof(buf), NULL, 0, NULL, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (n == -EMSGSIZE || n == -EMFILE)
		gantry_conn_broke(c, "a message too long for a door");
	else if (n <= 0)
		gantry_conn_gone(c);
	else
		gantry_conn_message(c, buf, (size_t)n);
}

/* A child of the guest may hold the connection when the guest is long dead. */
static int watch_guest(struct unix_conn *u)
{
	struct gantry_conn *c = &u->conn;
	int r = gantry_liveness_open(u->fd, c->pid, &u->pidfd);

	if (r == -ENOTSUP)
		return 0; /* the hang-up is all there is */
	u->pid_event = event_new(c->agent->base, r < 0 ? -1 : u->pidfd, EV_READ, guest_ended, c);
	if (!u->pid_event)
		return -ENOMEM;
	if (r < 0)
		event_active(u->pid_event, EV_READ, 0);
	return r < 0 || event_add(u->pid_event, NULL) == 0 ? 0 : -ENOMEM;
}

/* NULL: no memory, and @fd is still the caller's. */
static struct gantry_conn *new_conn(struct gantry_tenant *t, int fd)
{
	struct unix_conn *u = calloc(1, sizeof(*u));
	struct ucred cred;

	if (!u)
		return NULL;
	gantry_conn_init(&u->conn, &unix_ops, GANTRY_CONN_UNIX, t);
	u->fd = fd;
	u->pidfd = -EBADF;
	if (gantry_fd_peer_cred(fd, &cred) == 0) {
		u->conn.pid = cred.pid;
		u->conn.uid = cred.uid;
	}
	u->event = event_new(t->agent->base, fd, EV_READ | EV_PERSIST, conn_event, &u->conn);
	if (!u->event || event_add(u->event, NULL) < 0 || watch_guest(u) < 0) {
		u->fd = -EBADF;
		unix_close(&u->conn);
		return NULL;
	}
	return &u->conn;
}

struct gantry_conn *gantry_door_restore(struct gantry_session *s, int fd)
{
	struct gantry_conn *c = new_conn(s->tenant, fd);

	if (c)
		gantry_conn_resume(c, s);
	return c;
}

/* ---- new guests ---- */

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
	gantry_vsock_look_again(a);
	gantry_ivshmem_look_again(a);
}

void gantry_doors_listen(struct gantry_agent *a, bool on)
{
	if (on) {
		doors_again(-1, 0, a);
		return;
	}
	/* cannot fail for events of ours */
	if (a->vsock_event)
		(void)event_del(a->vsock_event);
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		if (t->door_event)
			(void)event_del(t->door_event);
		if (t->vsock_event)
			(void)event_del(t->vsock_event);
	}
}

/* A claim of a machine's is seen to be forgotten by its guest, who claims anew; a relay asks for its guest only once. */
static void turn_away(struct gantry_conn *c, const char *why)
{
	if (strcmp(c->transport, GANTRY_CONN_UNIX) == 0)
		gantry_conn_turn_away(c, why);
	else if (strcmp(c->transport, GANTRY_CONN_IVSHMEM) != 0)
		gantry_conn_refuse(c, GANTRY_E_AGAIN, why);
}

void gantry_doors_turn_away(struct gantry_agent *a, const char *why)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		gantry_list_for_each_safe(&t->waiting, struct gantry_conn, link, c)
			turn_away(c, why);
		gantry_list_for_each_safe(&t->standbys, struct gantry_conn, link, c)
			turn_away(c, why);
	}
}

/*
 * Without descriptors accept() would fail at once, for ever: look away for a while instead of
 * spinning.
 */
static void look_away(struct gantry_agent *a, struct gantry_tenant *t, struct event *listener)
{
	a->counters.fd_exhausted++;
	gantry_event(a, "descriptors-exhausted", t, NULL, NULL,
		     "no descriptor is left for new guests; raise LimitNOFILE or lower sessions");
	(void)event_del(listener); /* cannot fail for an event of ours */
	(void)gantry_timer_set(a, &a->door_retry_timer, FD_EXHAUSTED_WAIT_NS, doors_again, a);
}

int gantry_door_accept_one(struct gantry_agent *a, struct gantry_tenant *t, int listener,
			   struct event *event, struct sockaddr *addr, socklen_t *len)
{
	int fd = accept4(listener, addr, len, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		look_away(a, t, event);
	return fd;
}

void gantry_door_accept(struct gantry_tenant *t, int listener, struct event *event,
			void (*take)(struct gantry_tenant *t, int fd))
{
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = gantry_door_accept_one(t->agent, t, listener, event, NULL, NULL);

		if (fd < 0)
			return;
		take(t, fd);
	}
}

/* The kernel gives the lowest number that is free. */
bool gantry_door_scarce(struct gantry_agent *a, int fd)
{
	struct rlimit limit;
	bool is_scarce = getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
			 limit.rlim_cur > 4 * FDS_RESERVED &&
			 (rlim_t)fd >= limit.rlim_cur - FDS_RESERVED;

	a->counters.fd_exhausted += is_scarce;
	return is_scarce;
}

void gantry_door_turn_away(struct gantry_agent *a, int fd, int status, const char *text)
{
	struct gantry_door_refuse msg;

	a->counters.attach_refused++;
	gantry_conn_fill_refuse(&msg, GANTRY_DOOR_REFUSE, status, text);
	(void)gantry_fd_send(fd, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT); /* closed either way */
	gantry_fd_close(fd);
}

static void take_guest(struct gantry_tenant *t, int fd)
{
	struct gantry_conn *c;

	if (gantry_door_scarce(t->agent, fd)) {
		gantry_door_turn_away(t->agent, fd, GANTRY_E_AGAIN, GANTRY_DOOR_SCARCE);
		return;
	}
	c = new_conn(t, fd);
	if (!c) {
		gantry_fd_close(fd);
		return;
	}
	if (peer_allowed(t, c->uid)) {
		gantry_conn_begin(c);
		return;
	}
	t->agent->counters.denied_peers++;
	gantry_event(t->agent, "door-denied", t, NULL, NULL, "uid %u pid %d may not connect",
		     c->uid, (int)c->pid);
	gantry_conn_refuse(c, GANTRY_E_DENIED, "this user may not use this door");
}

static void accept_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)what;
	gantry_door_accept(t, (int)listener, t->door_event, take_guest);
}
