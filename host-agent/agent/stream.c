/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/stream.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/control/framing.h"
#include "host-agent/monitor/store.h"

#define ACCEPT_AGAIN_NS (200 * GANTRY_NS_PER_MS)

struct gantry_stream {
	struct gantry_agent *agent;
	const struct gantry_stream_ops *ops;
	void *server;
	int fd;
	char path[GANTRY_AGENT_PATH]; /* "": not a file of ours */
	struct event *event;
	struct event *again;
	struct gantry_list conns;
	unsigned int nconns;
};

void *gantry_stream_server(const struct gantry_stream_conn *c)
{
	return c->stream->server;
}

struct gantry_agent *gantry_stream_agent(const struct gantry_stream_conn *c)
{
	return c->stream->agent;
}

struct gantry_list *gantry_stream_conns(struct gantry_stream *s)
{
	return &s->conns;
}

size_t gantry_stream_backlog(const struct gantry_stream_conn *c)
{
	return evbuffer_get_length(bufferevent_get_output(c->bev));
}

void gantry_stream_drop(struct gantry_stream_conn *c)
{
	gantry_list_remove(&c->link);
	c->stream->nconns--;
	bufferevent_free(c->bev);
	free(c);
}

void gantry_stream_end(struct gantry_stream_conn *c)
{
	c->closing = true;
	(void)bufferevent_disable(c->bev, EV_READ); /* it cannot fail for a socket */
}

void gantry_stream_deafen(struct gantry_stream_conn *c)
{
	const struct timeval timeout = { .tv_sec = c->stream->ops->write_s };

	c->deaf = true;
	bufferevent_set_timeouts(c->bev, NULL, &timeout);
}

void gantry_stream_write(struct gantry_stream_conn *c, const void *data, size_t len)
{
	if (bufferevent_write(c->bev, data, len) < 0)
		gantry_stream_end(c); /* no memory: a peer that waits for it sees the end */
}

void gantry_stream_send(struct gantry_stream_conn *c, const ProtobufCMessage *msg)
{
	uint8_t *frame;
	size_t len;

	if (gantry_frame_pack(msg, GANTRY_FRAME_REPLY_MAX_BYTES, &frame, &len) < 0) {
		gantry_stream_end(c);
		return;
	}
	gantry_stream_write(c, frame, len);
	free(frame);
}

/* ---- input ---- */

static void garbage(struct gantry_stream_conn *c, const char *text)
{
	c->stream->agent->counters.protocol_errors++;
	if (c->stream->ops->garbage)
		c->stream->ops->garbage(c, text);
	gantry_stream_end(c);
}

/* One message of @in; -EAGAIN: there is no whole one. */
static int take_frame(struct gantry_stream_conn *c, struct evbuffer *in)
{
	const struct gantry_stream_ops *ops = c->stream->ops;
	size_t len = evbuffer_get_length(in), body_len;
	uint8_t header[GANTRY_FRAME_HEADER_BYTES];
	ProtobufCMessage *msg;
	int r;

	if (len < sizeof(header))
		return -EAGAIN;
	(void)evbuffer_copyout(in, header, sizeof(header)); /* they are there */
	r = gantry_frame_peek(header, len, ops->in_max, &body_len);
	if (r == -EAGAIN)
		return r;
	if (r < 0) {
		garbage(c, "the message is longer than any may be");
		return 0;
	}
	(void)evbuffer_drain(in, sizeof(header)); /* they are there */
	msg = protobuf_c_message_unpack(ops->desc, NULL, body_len,
					body_len ? evbuffer_pullup(in, (ev_ssize_t)body_len)
						 : header);
	(void)evbuffer_drain(in, body_len); /* they are there */
	if (!msg) {
		garbage(c, "what came is no message");
		return 0;
	}
	ops->serve(c, msg);
	protobuf_c_message_free_unpacked(msg, NULL);
	return 0;
}

static int take_bytes(struct gantry_stream_conn *c, struct evbuffer *in)
{
	size_t len = evbuffer_get_length(in);
	ssize_t n = len ? c->stream->ops->take(c, evbuffer_pullup(in, -1), len) : -EAGAIN;

	if (n < 0 && len >= c->stream->ops->in_max) {
		garbage(c, "the message is longer than any may be");
		return 0;
	}
	if (n < 0)
		return -EAGAIN;
	(void)evbuffer_drain(in, (size_t)n); /* they are there */
	return 0;
}

/* One message at a time: the next when the answer to the last has left. */
static void on_read(struct bufferevent *bev, void *arg)
{
	struct evbuffer *in = bufferevent_get_input(bev);
	struct gantry_stream_conn *c = arg;
	int r = 0;

	while (r == 0 && !c->closing && !c->deaf && gantry_stream_backlog(c) == 0)
		r = c->stream->ops->desc ? take_frame(c, in) : take_bytes(c, in);
	if (c->closing && gantry_stream_backlog(c) == 0)
		gantry_stream_drop(c); /* nothing was written: on_written() will not come */
}

static void on_written(struct bufferevent *bev, void *arg)
{
	on_read(bev, arg);
}

static void on_end(struct bufferevent *bev, short what, void *arg)
{
	struct gantry_stream_conn *c = arg;

	(void)bev;
	if (what & BEV_EVENT_TIMEOUT)
		c->stream->agent->counters.slow_readers++;
	gantry_stream_drop(c);
}

/* ---- connections ---- */

static bool has_room(const struct gantry_stream *s, uid_t uid)
{
	unsigned int n = 0;

	if (s->nconns >= s->ops->conns_max)
		return false;
	if (s->ops->user_max == 0 || uid == 0)
		return true;
	gantry_list_for_each(&s->conns, struct gantry_stream_conn, link, c)
		n += c->uid == uid;
	return n < s->ops->user_max;
}

/* Who is at the other end; of a TCP connection nobody knows. */
static void find_peer(struct gantry_stream_conn *c)
{
	struct ucred cred;

	c->uid = (uid_t)-1;
	c->gid = (gid_t)-1;
	if (gantry_fd_peer_cred(c->fd, &cred) == 0) {
		c->uid = cred.uid;
		c->gid = cred.gid;
		c->pid = cred.pid;
	}
}

static int new_conn(struct gantry_stream *s, int fd)
{
	const struct gantry_stream_ops *ops = s->ops;
	struct gantry_stream_conn *c = calloc(1, ops->conn_bytes);

	if (!c)
		return -ENOMEM;
	c->stream = s;
	c->fd = fd;
	find_peer(c);
	if (!has_room(s, c->uid) || (ops->admit && !ops->admit(c))) {
		free(c);
		return -EACCES;
	}
	c->bev = bufferevent_socket_new(s->agent->base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!c->bev) {
		free(c);
		return -ENOMEM;
	}
	gantry_list_push_back(&s->conns, &c->link);
	s->nconns++;
	/* What is read ahead of a message under way is bounded too. */
	bufferevent_setwatermark(c->bev, EV_READ, 0, ops->in_max + GANTRY_FRAME_HEADER_BYTES);
	bufferevent_setcb(c->bev, on_read, on_written, on_end, c);
	bufferevent_set_timeouts(c->bev, &(struct timeval){ .tv_sec = ops->idle_s },
				 &(struct timeval){ .tv_sec = ops->write_s });
	(void)bufferevent_enable(c->bev, EV_READ | EV_WRITE); /* it cannot fail for a socket */
	return 0;
}

static void accept_again(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_stream *s = arg;

	(void)fd;
	(void)what;
	(void)event_add(s->event, NULL); /* it was there: no memory needed */
}

/* Without descriptors accept() would fail at once, for ever: look away for a while. */
static void accept_ready(evutil_socket_t listener, short what, void *arg)
{
	struct gantry_stream *s = arg;
	int fd = accept4((int)listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)what;
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
		s->agent->counters.fd_exhausted++;
		if (gantry_timer_set(s->agent, &s->again, ACCEPT_AGAIN_NS, accept_again, s) == 0)
			(void)event_del(s->event); /* cannot fail for an event of ours */
	}
	if (fd >= 0 && new_conn(s, fd) < 0)
		gantry_fd_close(fd);
}

/* ---- start and stop ---- */

int gantry_stream_new(struct gantry_agent *a, const struct gantry_stream_ops *ops, int fd,
		      void *server, struct gantry_stream **ret_stream, struct gantry_err *err)
{
	struct gantry_stream *s = calloc(1, sizeof(*s));

	if (!s) {
		gantry_fd_close(fd);
		return gantry_err_set(err, -ENOMEM, "no memory for %s", ops->what);
	}
	s->agent = a;
	s->ops = ops;
	s->server = server;
	s->fd = fd;
	gantry_list_init(&s->conns);
	s->event = event_new(a->base, fd, EV_READ | EV_PERSIST, accept_ready, s);
	if (!s->event || event_add(s->event, NULL) < 0) {
		gantry_stream_close(s);
		return gantry_err_set(err, -ENOMEM, "no memory for %s", ops->what);
	}
	*ret_stream = s;
	return 0;
}

int gantry_stream_open(struct gantry_agent *a, const struct gantry_stream_ops *ops,
		       const char *path, mode_t mode, void *server,
		       struct gantry_stream **ret_stream, struct gantry_err *err)
{
	int fd = ops->kept ? gantry_store_take(&a->handed, ops->kept) : -ENOENT;
	struct gantry_stream *s;
	int r = 0;

	if (fd < 0 || access(path, F_OK) < 0) {
		gantry_fd_close(fd);
		r = gantry_unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, mode, &fd);
	}
	if (r == -EADDRINUSE)
		return gantry_err_set(
			err, r, "another program serves %s; stop it, or configure another path",
			path);
	if (r < 0)
		return gantry_err_set_errno(err, r, "opening %s", path);
	r = gantry_stream_new(a, ops, fd, server, &s, err);
	if (r < 0)
		return r;
	(void)gantry_str_copy(s->path, sizeof(s->path), path); /* bind() took it: it fits */
	if (ops->kept)
		gantry_keep(a, fd, "%s", ops->kept);
	*ret_stream = s;
	return 0;
}

void gantry_stream_close(struct gantry_stream *s)
{
	if (!s)
		return;
	gantry_list_for_each_safe(&s->conns, struct gantry_stream_conn, link, c)
		gantry_stream_drop(c);
	gantry_event_free(&s->event);
	gantry_event_free(&s->again);
	if (s->path[0]) {
		if (s->ops->kept)
			gantry_keep_drop(s->agent, "%s", s->ops->kept);
		(void)unlink(s->path); /* or somebody was tidier than we */
	}
	gantry_fd_close(s->fd);
	free(s);
}
