/* SPDX-License-Identifier: Apache-2.0 */
/* The fake agent at an abstract Unix socket. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "tests/unit/guest-shim/fake_door.h"

struct state {
	int listen_fd;
	int conn;
};

static void open_door(struct fake_host *h)
{
	static int n;
	struct state *s = calloc(1, sizeof(*s));

	if (!s ||
	    gantry_memfd_create("fake", h->segment_bytes, GANTRY_MEMFD_SEALED, &h->segment_fd) < 0)
		abort();
	s->conn = -1;
	snprintf(h->where, sizeof(h->where), "unix:@gantry-unit-%d-%d", getpid(), n++);
	if (gantry_unix_listen(h->where + 5, SOCK_SEQPACKET, 0600, &s->listen_fd) < 0)
		abort();
	h->door_state = s;
}

static void close_door(struct fake_host *h)
{
	struct state *s = h->door_state;

	gantry_fd_close(s->listen_fd);
	gantry_fd_close(s->conn);
	free(s);
}

static void drop(struct fake_host *h)
{
	struct state *s = h->door_state;
	int conn = s->conn;

	gantry_store_release(&s->conn, -1);
	gantry_fd_close(conn);
	gantry_count_add(&h->nleft, 1);
}

static void hang_up(struct fake_host *h)
{
	struct state *s = h->door_state;

	shutdown(gantry_load_acquire(&s->conn), SHUT_RDWR);
}

static void send_message(struct fake_host *h, const void *msg, size_t len)
{
	struct state *s = h->door_state;

	gantry_fd_send(gantry_load_acquire(&s->conn), msg, len, NULL, 0, MSG_DONTWAIT);
}

static void send_welcome(struct fake_host *h, const struct gantry_door_welcome *msg)
{
	const struct state *s = h->door_state;
	int fds[2] = { h->segment_fd, h->bell };
	int ends[2] = { -1, -1 }, unsealed = -1;

	if (h->answer == FAKE_BAD_BELL && pipe(ends) == 0)
		fds[1] = ends[1]; /* would raise SIGPIPE */
	if (h->answer == FAKE_BAD_SEGMENT &&
	    gantry_memfd_create("loose", h->segment_bytes, 0, &unsealed) == 0)
		fds[0] = unsealed; /* could shrink */
	gantry_fd_send(s->conn, msg, sizeof(*msg), fds, h->answer == FAKE_NO_SEGMENT ? 0 : 2, 0);
	gantry_fd_close(ends[0]);
	gantry_fd_close(ends[1]);
	gantry_fd_close(unsealed);
}

static void receive_request(struct fake_host *h)
{
	struct state *s = h->door_state;
	uint64_t msg[32];
	ssize_t n = gantry_fd_recv(s->conn, msg, sizeof(msg), NULL, 0, NULL, MSG_DONTWAIT);

	if (n == 0 || n == -ECONNRESET)
		drop(h);
	else if (n > 0)
		fake_host_answer(h, msg, (size_t)n);
}

static void step(struct fake_host *h)
{
	struct state *s = h->door_state;
	bool is_open = s->conn >= 0;
	struct pollfd pfd = { .fd = is_open ? s->conn : s->listen_fd, .events = POLLIN };

	if (poll(&pfd, 1, FAKE_TICK_MS) <= 0)
		return;
	if (is_open) {
		receive_request(h);
		return;
	}
	gantry_store_release(&s->conn, accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC));
	if (s->conn >= 0 &&
	    gantry_fd_recv(s->conn, &h->hello, sizeof(h->hello), NULL, 0, NULL, 0) > 0)
		fake_host_greet(h);
}

const struct fake_door fake_door_unix = {
	.name = "unix",
	.ops = &gantry_transport_unix,
	.shares_memory = true,
	.open = open_door,
	.close = close_door,
	.step = step,
	.send = send_message,
	.welcome = send_welcome,
	.hang_up = hang_up,
};
