/* SPDX-License-Identifier: Apache-2.0 */
/* The fake agent behind a Unix stream socket: its segment is the relay's, whose bridge stands between. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "host-agent/relay/bridge.h"
#include "tests/unit/guest-shim/fake_door.h"

#define TURN_MS	 1
#define GRACE_MS 100u

struct state {
	pthread_mutex_t lock; /* of all below but listen_fd */
	struct fake_host *host;
	struct gantry_bridge_events events;
	struct gantry_bridge *bridge;
	int listen_fd;
	int conn;
};

static void ring_bell(void *cookie)
{
	const struct state *s = cookie;
	uint64_t one = 1;

	(void)!write(s->host->bell, &one, sizeof(one)); /* full: it rings already */
}

static int pass_request(void *cookie, const struct gantry_door_header *msg)
{
	fake_host_answer(((struct state *)cookie)->host, msg, msg->len_bytes);
	return 0;
}

static void open_door(struct fake_host *h)
{
	static int n;
	struct state *s = calloc(1, sizeof(*s));
	pthread_mutexattr_t attr;

	if (!s ||
	    gantry_memfd_create("fake", h->segment_bytes, GANTRY_MEMFD_SEALED, &h->segment_fd) < 0)
		abort();
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr,
				  PTHREAD_MUTEX_RECURSIVE); /* answers are sent from within */
	pthread_mutex_init(&s->lock, &attr);
	s->host = h;
	s->conn = -1;
	s->events = (struct gantry_bridge_events){ s, ring_bell, pass_request };
	snprintf(h->where, sizeof(h->where), "stream:@gantry-stream-%d-%d", getpid(), n++);
	if (gantry_unix_listen(h->where + 7, SOCK_STREAM, 0600, &s->listen_fd) < 0)
		abort();
	h->door_state = s;
}

static void close_door(struct fake_host *h)
{
	struct state *s = h->door_state;

	gantry_fd_close(s->listen_fd);
	gantry_fd_close(s->conn);
	gantry_bridge_free(s->bridge);
	free(s);
}

static void drop(struct state *s)
{
	if (s->bridge)
		gantry_bridge_disconnect(s->bridge);
	s->conn = gantry_fd_close(s->conn);
	gantry_count_add(&s->host->nleft, 1);
}

/* The last word, then neither this connection nor another. */
static void hang_up(struct fake_host *h)
{
	struct state *s = h->door_state;

	pthread_mutex_lock(&s->lock);
	if (s->bridge && s->bridge->sock >= 0)
		(void)gantry_bridge_send(s->bridge);
	shutdown(s->listen_fd, SHUT_RDWR);
	if (s->conn >= 0)
		shutdown(s->conn, SHUT_RDWR);
	pthread_mutex_unlock(&s->lock);
}

static void send_message(struct fake_host *h, const void *msg, size_t len)
{
	struct state *s = h->door_state;

	pthread_mutex_lock(&s->lock);
	if (s->bridge)
		gantry_bridge_forward(s->bridge, msg);
	else
		gantry_fd_send(s->conn, msg, len, NULL, 0, MSG_DONTWAIT);
	pthread_mutex_unlock(&s->lock);
}

static void send_welcome(struct fake_host *h, const struct gantry_door_welcome *msg)
{
	struct state *s = h->door_state;
	struct gantry_segment_layout layout;
	struct gantry_door_welcome own = *msg;

	memset(own.nonce, 7, sizeof(own.nonce));
	if (gantry_segment_layout_of(h->nqueues, h->nslots, h->segment_bytes, &layout) == 0)
		s->bridge = gantry_bridge_new(h->segment, &layout, GRACE_MS, &s->events);
	if (s->bridge)
		gantry_bridge_connect(s->bridge, s->conn, &own);
	else
		gantry_fd_send(s->conn, &own, sizeof(own), NULL, 0, 0);
}

static void serve(struct state *s)
{
	int r;

	pthread_mutex_lock(&s->lock);
	do {
		r = gantry_bridge_receive(s->bridge);
	} while (r > 0);
	if (r == 0 && gantry_bridge_send(s->bridge) == -ECONNRESET)
		r = -ECONNRESET;
	if (r < 0 || s->bridge->is_left)
		drop(s);
	pthread_mutex_unlock(&s->lock);
}

static void take_guest(struct state *s)
{
	struct fake_host *h = s->host;
	int conn = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	pthread_mutex_lock(&s->lock);
	s->conn = conn;
	if (conn >= 0 && recv(conn, &h->hello, sizeof(h->hello), MSG_WAITALL) > 0)
		fake_host_greet(h);
	pthread_mutex_unlock(&s->lock);
}

static void await_news(struct state *s, bool begins)
{
	pthread_mutex_lock(&s->lock);
	if (s->bridge && begins)
		(void)gantry_bridge_wait_enter(s->bridge);
	else if (s->bridge)
		gantry_bridge_wait_leave(s->bridge);
	pthread_mutex_unlock(&s->lock);
}

static void step(struct fake_host *h)
{
	struct state *s = h->door_state;
	bool is_open = s->conn >= 0;
	struct pollfd pfd = { .fd = is_open ? s->conn : s->listen_fd, .events = POLLIN };
	char byte;
	int n;

	if (is_open && gantry_exchange(&h->break_stream, 0)) {
		h->answer = FAKE_SILENCE;
		drop(s);
		return;
	}
	await_news(s, true); /* news or not: it is a millisecond */
	n = poll(&pfd, 1, s->bridge ? TURN_MS : FAKE_TICK_MS);
	await_news(s, false);

	if (is_open && s->bridge && s->bridge->sock >= 0)
		serve(s);
	else if (n > 0 && is_open && recv(s->conn, &byte, 1, MSG_DONTWAIT) <= 0)
		drop(s);
	else if (n > 0 && !is_open)
		take_guest(s);
}

const struct fake_door fake_door_stream = {
	.name = "stream",
	.ops = &gantry_transport_stream,
	.open = open_door,
	.close = close_door,
	.step = step,
	.send = send_message,
	.welcome = send_welcome,
	.hang_up = hang_up,
};
