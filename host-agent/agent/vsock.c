/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/vsock.h"

#include <errno.h>
#include <event2/event.h>
#include <linux/vm_sockets.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/ask.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/channel.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/relay.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/wake.h"

#define ACCEPTS_PER_TURN 16
#define PORT_BACKLOG	 64
#define RELAY_FDS	 3
/* A guest looks for its host as long as the one that it had said, which is not known here, and is likely as ours. */
#define GUEST_COMES_NS (120 * GANTRY_NS_PER_S)

/* ---- the binding ---- */

struct stream_conn {
	struct gantry_conn conn;
	int fd; /* the guest's stream; once it is attached, our end of its relay's door */
	struct event *event;
	bool is_relayed;
	uint32_t nhello;
	_Alignas(8) uint8_t hello[sizeof(struct gantry_door_hello)];
};

static struct stream_conn *of(struct gantry_conn *c)
{
	return gantry_list_entry(c, struct stream_conn, conn);
}

static void stream_event(evutil_socket_t fd, short what, void *arg);

static int stream_send(struct gantry_conn *c, const void *msg, size_t len)
{
	ssize_t n = gantry_fd_send(of(c)->fd, msg, len, NULL, 0, MSG_DONTWAIT);

	return n < 0 ? (int)n : (size_t)n < len ? -EAGAIN : 0;
}

static int watch_fd(struct stream_conn *v)
{
	gantry_event_free(&v->event);
	v->event = event_new(v->conn.agent->base, v->fd, EV_READ | EV_PERSIST, stream_event,
			     &v->conn);
	return v->event && event_add(v->event, NULL) == 0 ? 0 : -ENOMEM;
}

static void keep_nonce(struct gantry_session *s, int fd)
{
	char hex[2 * sizeof(s->nonce) + 1];

	(void)gantry_hex_encode(s->nonce, sizeof(s->nonce), hex, sizeof(hex)); /* it fits */
	gantry_keep(s->agent, fd, "s/%llx/nonce/%s", (unsigned long long)s->id, hex);
}

void gantry_vsock_keep_nonce(struct gantry_session *s)
{
	/* Which descriptor it is does not matter. */
	keep_nonce(s, s->bell_fd);
}

static void keep_relay(struct gantry_session *s, int fd)
{
	gantry_keep(s->agent, fd, "s/%llx/door", (unsigned long long)s->id);
	keep_nonce(s, fd);
	if (s->is_vsock) /* which descriptor it is does not matter */
		gantry_keep(s->agent, s->bell_fd, "s/%llx/vsock", (unsigned long long)s->id);
}

/* From here on the guest's stream is the relay's, and the relay the guest. */
static int hand_over(struct stream_conn *v)
{
	struct gantry_session *s = v->conn.session;
	struct gantry_err err = GANTRY_ERR_NONE;
	int door = -EBADF;
	int r;

	if (!s->is_relayed && getrandom(s->nonce, sizeof(s->nonce), 0) != (ssize_t)sizeof(s->nonce))
		return -EIO;
	r = gantry_relay_start(v->conn.tenant, s->shape.segment.segment_bytes, v->fd, &door, &err);
	if (r < 0) {
		gantry_event(v->conn.agent, "relay-failed", NULL, s, NULL, "%s", err.text);
		return r;
	}
	gantry_event_free(&v->event);
	gantry_fd_close(v->fd);
	v->fd = door;
	v->is_relayed = true;
	s->is_relayed = true;
	s->is_vsock = strcmp(v->conn.transport, GANTRY_CONN_VSOCK) == 0;
	keep_relay(s, door);
	return watch_fd(v);
}

static int stream_welcome(struct gantry_conn *c, const struct gantry_door_welcome *msg)
{
	struct stream_conn *v = of(c);
	struct gantry_session *s = c->session;
	const int fds[RELAY_FDS] = { s->segment_fd, s->bell_fd, s->wake_fd };
	struct gantry_door_welcome own = *msg;
	int r = hand_over(v);
	ssize_t n;

	if (r < 0)
		return r;
	/* Neither what devices work on nor where the worker has it is of use there. */
	own.props = GANTRY_PROP_TRANSLATED;
	own.address = 0;
	memcpy(own.nonce, s->nonce, sizeof(own.nonce));
	n = gantry_fd_send(v->fd, &own, sizeof(own), fds, RELAY_FDS, MSG_DONTWAIT);
	return n < 0 ? (int)n : 0;
}

static void stream_keep(struct gantry_conn *c)
{
	(void)c; /* with the relay, whose door is what is to be kept */
}

static void stream_close(struct gantry_conn *c)
{
	struct stream_conn *v = of(c);
	unsigned long long id = c->session ? c->session->id : 0;

	if (c->session && v->is_relayed) {
		gantry_keep_drop(c->agent, "s/%llx/door", id);
		gantry_keep_drop_tree(c->agent, "s/%llx/nonce/", id);
	}
	gantry_event_free(&v->event);
	gantry_fd_close(v->fd);
	gantry_conn_fini(c);
	free(v);
}

/* The worker is to wake the relay by a descriptor, which can be waited for beside its sockets. */
static int stream_prepare(struct gantry_conn *c)
{
	struct gantry_session *s = c->session;

	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->wake_fd < 0)
		return -errno;
	s->wake = GANTRY_SESSION_WAKE_EVENTFD;
	gantry_keep(c->agent, s->wake_fd, GANTRY_KEPT_WAKE, (unsigned long long)s->id, s->wake);
	return 0;
}

static const struct gantry_conn_ops stream_ops = {
	.send = stream_send,
	.welcome = stream_welcome,
	.keep = stream_keep,
	.close = stream_close,
	.prepare = stream_prepare,
};

/* ---- messages ---- */

static struct gantry_session *find_by_nonce(const struct gantry_tenant *t, const uint8_t *nonce)
{
	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == t && s->is_relayed &&
		    memcmp(s->nonce, nonce, sizeof(s->nonce)) == 0)
			return s;
	return NULL;
}

/* ---- a guest that comes back to a session without a relay ---- */

static void nobody_came(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_detach(arg, GANTRY_E_CLOSED, "its guest did not come back in time");
}

uint64_t gantry_vsock_awaits_ns(const struct gantry_agent *a)
{
	return gantry_max_u64(GUEST_COMES_NS, a->config->agent.vsock_grace_ns);
}

void gantry_vsock_await(struct gantry_session *s)
{
	s->awaits_guest = true;
	/* Without memory for a timer it waits until the administrator ends it. */
	(void)gantry_timer_set(s->agent, &s->guest_timer, gantry_vsock_awaits_ns(s->agent),
			       nobody_came, s);
}

/* It gets a new relay, which goes on where the segment is; the guest has the rest. */
static void take_up(struct stream_conn *v, struct gantry_session *s)
{
	struct gantry_door_welcome msg;

	gantry_attach_describe(s, &msg);
	v->conn.tenant->nhalf_open--; /* it is not one of those that have not spoken any more */
	gantry_event_free(&v->conn.timer);
	gantry_conn_resume(&v->conn, s);
	s->awaits_guest = false;
	if (stream_welcome(&v->conn, &msg) < 0) {
		gantry_conn_close(&v->conn);
		gantry_vsock_await(s);
		return;
	}
	gantry_event_free(&s->guest_timer);
	gantry_event(s->agent, "session-reconnected", NULL, s, NULL, "its guest has come back");
}

/* The relay has its own WELCOME; this one says that a stream comes with it. */
static void resume(struct stream_conn *v, const struct gantry_door_hello *hello)
{
	struct gantry_session *s = find_by_nonce(v->conn.tenant, hello->nonce);
	struct gantry_door_welcome msg = { 0 };
	ssize_t n;

	if (!s && gantry_handover_gone(v->conn.agent, hello->nonce)) {
		/* Its door leads to the other host soon: it tries again until then. */
		gantry_conn_refuse(&v->conn, GANTRY_E_AGAIN, "the session is on another host now");
		return;
	}
	if (!s || s->phase == GANTRY_PHASE_DETACHING) {
		gantry_conn_refuse(&v->conn, GANTRY_E_DETACHED, "the session is over");
		return;
	}
	if (!s->conn && gantry_handover_is_offered(s)) {
		/* Here or there: it finds out by trying again. What it was told here could be the end of what lives there. */
		gantry_conn_refuse(&v->conn, GANTRY_E_AGAIN,
				   "the session is on its way to another host");
		return;
	}
	if (!s->conn && s->awaits_guest) {
		take_up(v, s);
		return;
	}
	if (!s->conn) { /* we have only just taken it over */
		gantry_conn_refuse(&v->conn, GANTRY_E_AGAIN, "the session is being taken over");
		return;
	}
	gantry_door_header_init(&msg.h, GANTRY_DOOR_WELCOME, 0);
	n = gantry_fd_send(of(s->conn)->fd, &msg, sizeof(msg), &v->fd, 1, MSG_DONTWAIT);
	if (n < 0) {
		gantry_conn_refuse(&v->conn, GANTRY_E_AGAIN, "the session's relay is busy");
		return;
	}
	gantry_event(s->agent, "session-reconnected", NULL, s, NULL, "a new stream took its place");
	gantry_conn_close(&v->conn);
}

/* It is no guest, but what one at the machine's ivshmem door is woken by. */
static void become_channel(struct stream_conn *v)
{
	struct gantry_tenant *t = v->conn.tenant;
	const int fd = v->fd;

	gantry_event_free(&v->event);
	v->fd = -EBADF;
	t->nsessions++; /* keeps the tenant alive meanwhile */
	gantry_channel_take(t, fd, v->hello, v->nhello);
	t->nsessions--;
	gantry_conn_close(&v->conn);
}

static void hear_stranger(struct stream_conn *v)
{
	struct gantry_door_hello *hello = (struct gantry_door_hello *)v->hello;
	static const uint8_t none[sizeof(hello->nonce)];
	uint16_t kind;
	uint8_t more;
	ssize_t n;

	if (v->nhello == sizeof(v->hello)) { /* it was told to wait */
		n = recv(v->fd, &more, 1, MSG_DONTWAIT);
		if (n > 0)
			gantry_conn_broke(&v->conn, "a message out of turn");
		else if (n == 0 || errno != EAGAIN)
			gantry_conn_gone(&v->conn);
		return;
	}
	n = recv(v->fd, v->hello + v->nhello, sizeof(v->hello) - v->nhello, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		gantry_conn_gone(&v->conn);
		return;
	}
	v->nhello += (uint32_t)n;
	if (gantry_channel_is_hello(v->hello, v->nhello)) {
		become_channel(v);
		return;
	}
	if (v->nhello < sizeof(v->hello))
		return;
	if (gantry_door_check(v->hello, sizeof(v->hello), &kind) == 0 &&
	    kind == GANTRY_DOOR_HELLO && memcmp(hello->nonce, none, sizeof(none)) != 0)
		resume(v, hello);
	else
		gantry_conn_message(&v->conn, v->hello, sizeof(v->hello));
}

/* What a relay says of its guest is the guest's word, but for a NOTICE, which is its own. */
static void hear_relay(struct stream_conn *v)
{
	_Alignas(8) uint8_t buf[GANTRY_CONN_MESSAGE_MAX];
	struct gantry_door_refuse *notice = (struct gantry_door_refuse *)buf;
	ssize_t n = gantry_fd_recv(v->fd, buf, sizeof(buf), NULL, 0, NULL, MSG_DONTWAIT);
	uint16_t kind;

	if (n == -EAGAIN)
		return;
	if (n <= 0 && n != -EMSGSIZE && n != -EMFILE) {
		gantry_conn_gone(&v->conn);
	} else if (n > 0 && gantry_door_check(buf, (size_t)n, &kind) == 0 &&
		   kind == GANTRY_DOOR_NOTICE) {
		gantry_str_make_printable(notice->text);
		gantry_conn_broke(&v->conn, notice->text);
	} else {
		gantry_conn_message(&v->conn, buf, n > 0 ? (size_t)n : 0);
	}
}

static void stream_event(evutil_socket_t fd, short what, void *arg)
{
	struct stream_conn *v = of(arg);

	(void)fd;
	(void)what;
	if (v->is_relayed)
		hear_relay(v);
	else
		hear_stranger(v);
}

/* NULL: no memory, and @fd is still the caller's. */
static struct gantry_conn *new_conn(struct gantry_tenant *t, const char *transport, int fd)
{
	struct stream_conn *v = calloc(1, sizeof(*v));

	if (!v)
		return NULL;
	gantry_conn_init(&v->conn, &stream_ops, transport, t);
	v->fd = fd;
	if (watch_fd(v) < 0) {
		v->fd = -EBADF;
		stream_close(&v->conn);
		return NULL;
	}
	return &v->conn;
}

struct gantry_conn *gantry_vsock_restore(struct gantry_session *s, int fd)
{
	struct gantry_conn *c = new_conn(s->tenant,
					 s->is_vsock ? GANTRY_CONN_VSOCK : GANTRY_CONN_STREAM, fd);

	if (!c)
		return NULL;
	of(c)->is_relayed = true;
	gantry_conn_resume(c, s);
	return c;
}

/* ---- listeners ---- */

static void take_guest(struct gantry_tenant *t, const char *transport, int fd)
{
	struct gantry_conn *c;

	if (gantry_door_scarce(t->agent, fd)) {
		gantry_door_turn_away(t->agent, fd, GANTRY_E_AGAIN, GANTRY_DOOR_SCARCE);
		return;
	}
	c = new_conn(t, transport, fd);
	if (c)
		gantry_conn_begin(c);
	else
		gantry_fd_close(fd);
}

static void take_path_guest(struct gantry_tenant *t, int fd)
{
	take_guest(t, GANTRY_CONN_STREAM, fd);
}

static void path_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)what;
	gantry_door_accept(t, (int)listener, t->vsock_event, take_path_guest);
}

static struct gantry_tenant *tenant_of(struct gantry_agent *a, uint32_t cid)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && t->conf.vsock_cid == cid && cid != 0)
			return t;
	return NULL;
}

static void port_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)what;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		struct sockaddr_vm addr = { 0 };
		socklen_t len = sizeof(addr);
		int fd = gantry_door_accept_one(a, NULL, (int)listener, a->vsock_event,
						(struct sockaddr *)&addr, &len);
		struct gantry_tenant *t;

		if (fd < 0)
			return;
		t = tenant_of(a, addr.svm_cid);
		if (t) {
			take_guest(t, GANTRY_CONN_VSOCK, fd);
			continue;
		}
		a->counters.denied_peers++;
		gantry_event(a, "door-denied", NULL, NULL, NULL,
			     "the machine with CID %u is no tenant's", addr.svm_cid);
		gantry_door_turn_away(a, fd, GANTRY_E_DENIED,
				      "this machine is no tenant's: its CID is nobody's vsock_cid");
	}
}

void gantry_vsock_look_again(struct gantry_agent *a)
{
	/* They were there before: no memory needed. */
	if (a->vsock_event)
		(void)event_add(a->vsock_event, NULL);
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->vsock_event)
			(void)event_add(t->vsock_event, NULL);
}

/* ---- the port ---- */

void gantry_vsock_close(struct gantry_agent *a)
{
	gantry_event_free(&a->vsock_event);
	if (a->vsock_fd < 0)
		return;
	gantry_keep_drop(a, "vsock/%u", a->vsock_port);
	a->vsock_fd = gantry_fd_close(a->vsock_fd);
	a->vsock_port = 0;
}

static int listen_port(uint32_t port)
{
	const struct sockaddr_vm addr = {
		.svm_family = AF_VSOCK,
		.svm_cid = VMADDR_CID_ANY,
		.svm_port = port,
	};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(fd, PORT_BACKLOG) < 0) {
		int r = -errno;

		gantry_fd_close(fd);
		return r;
	}
	return fd;
}

static void open_port(struct gantry_agent *a, uint32_t port)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int fd;

	(void)gantry_str_format(name, sizeof(name), "vsock/%u", port); /* it fits */
	fd = gantry_store_take(&a->handed, name);
	if (fd < 0)
		fd = listen_port(port);
	if (fd < 0) {
		if (!a->vsock_told)
			gantry_log(GANTRY_LOG_WARN, "no machine can come by vsock port %u: %s",
				   port, strerror(-fd));
		a->vsock_told = true;
		return;
	}
	a->vsock_event = event_new(a->base, fd, EV_READ | EV_PERSIST, port_ready, a);
	if (!a->vsock_event || event_add(a->vsock_event, NULL) < 0) {
		gantry_log(GANTRY_LOG_ERR, "no memory for vsock port %u", port);
		gantry_event_free(&a->vsock_event);
		gantry_fd_close(fd);
		return;
	}
	a->vsock_fd = fd;
	a->vsock_port = port;
	gantry_keep(a, fd, "%s", name);
}

void gantry_vsock_apply(struct gantry_agent *a)
{
	uint32_t port = 0;

	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && t->conf.vsock_cid)
			port = a->config->agent.vsock_port;
	if (a->vsock_port != port)
		gantry_vsock_close(a);
	if (port && a->vsock_fd < 0)
		open_port(a, port);
}

/* ---- a tenant's socket ---- */

static struct gantry_door_at where(const struct gantry_tenant *t)
{
	struct gantry_door_at at = { .path = t->vsock_path,
				     .type = SOCK_STREAM,
				     .mode = t->conf.door_mode,
				     .owner = t->conf.door_owner };

	(void)gantry_str_format(at.kept, sizeof(at.kept), "lv/%s", t->conf.name); /* it fits */
	return at;
}

void gantry_vsock_door_close(struct gantry_tenant *t)
{
	struct gantry_door_at at = where(t);

	gantry_door_unlisten(t, &at, &t->vsock_fd, &t->vsock_event);
	t->vsock_path[0] = '\0';
}

int gantry_vsock_door_open(struct gantry_tenant *t, struct gantry_err *err)
{
	struct gantry_door_at at = where(t);
	int r;

	if (strcmp(t->conf.vsock_path, t->vsock_path) == 0)
		return 0;
	gantry_vsock_door_close(t);
	if (!t->conf.vsock_path[0])
		return 0;
	(void)gantry_str_copy(t->vsock_path, sizeof(t->vsock_path), /* the same size */
			      t->conf.vsock_path);
	r = gantry_door_listen(t, &at, path_ready, &t->vsock_fd, &t->vsock_event, err);
	if (r < 0)
		t->vsock_path[0] = '\0';
	return r;
}
