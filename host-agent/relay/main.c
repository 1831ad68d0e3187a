/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-relay: one session whose guest is at the end of a stream. Started by the agent with
 *
 *   gantry-relay GRACE_MS CONFINE UID GID        descriptor 3: the agent's end of the door, 4: the stream, 5: its page
 *
 * To the agent it is the session's guest: it gets WELCOME through the door, with three descriptors (segment, bell, and the
 * eventfd that the worker wakes us with), and its end is the session's. A stream that breaks is waited for GRACE_MS: the agent
 * sends the new one with another WELCOME, alone. A guest that breaks the rules is told of in a NOTICE to the agent, which ends the session.
 *
 * Threads: one. It ends when the agent's end of the door does.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/spin.h"
#include "base/str.h"
#include "base/thread.h"
#include "host-agent/relay/bridge.h"
#include "host-agent/shared/relay_page.h"
#include "host-agent/worker/confine.h"

#define DOOR_FD		  3
#define STREAM_FD	  4
#define PAGE_FD		  5
#define WELCOME_FDS	  3u
#define MESSAGE_MAX	  256u
#define LAST_WORDS_NS	  GANTRY_NS_PER_S
#define RECEIVES_PER_TURN 16
#define LAST_RECEIVES	  64
/* A guest that never stops, or a worker, does not keep the agent's word from being heard. */
#define TURNS_UNHEARD 16
/* A task that is over sooner costs neither of us a wake-up. */
#define SPIN_MAX_NS 50000u

struct relay {
	struct gantry_bridge *bridge;
	struct gantry_relay_page *page;
	struct gantry_door_welcome welcome;
	int stream; /* -EBADF: broken, waited for until lost_ns + grace */
	int bell;
	int wake;
	uint64_t grace_ns;
	uint64_t lost_ns;
	bool is_condemned; /* the guest broke the rules; the agent knows */
	bool is_over;
	bool is_full; /* the stream takes no more just now */
	struct gantry_spin spin;
};

static void ring_bell(void *cookie)
{
	const struct relay *r = cookie;
	uint64_t one = 1;

	(void)!write(r->bell, &one, sizeof(one)); /* full: it rings already */
}

static int send_request(void *cookie, const struct gantry_door_header *msg)
{
	ssize_t n = gantry_fd_send(DOOR_FD, msg, msg->len_bytes, NULL, 0, MSG_DONTWAIT);

	(void)cookie;
	return n < 0 ? (int)n : 0;
}

/* ---- the stream ---- */

static void lose_stream(struct relay *r)
{
	gantry_bridge_disconnect(r->bridge);
	r->stream = gantry_fd_close(r->stream);
	r->is_full = false;
	r->lost_ns = gantry_now_ns();
}

/*
 * What the guest said last is there yet, its goodbye above all: without that the session would be kept for who never comes.
 * Whoever tells it something finds it gone before that is read.
 */
static void stream_broke(struct relay *r)
{
	int nends = 0;

	for (int i = 0; i < LAST_RECEIVES && nends < 2 && !r->bridge->is_left; i++) {
		int n = gantry_bridge_receive(r->bridge);

		if (n == 0 || n == -EPROTO)
			break;
		nends += n < 0;
	}
	r->is_over = r->is_over || r->bridge->is_left;
	lose_stream(r);
}

static void take_stream(struct relay *r, int fd)
{
	if (r->stream >= 0)
		lose_stream(r); /* the guest knows better whether that one broke */
	r->stream = fd;
	r->bridge->reconnects++;
	gantry_bridge_connect(r->bridge, fd, &r->welcome);
}

static void condemn(struct relay *r, const char *text)
{
	struct gantry_door_refuse msg = { .status = GANTRY_E_PROTOCOL };

	r->is_condemned = true;
	gantry_door_header_init(&msg.h, GANTRY_DOOR_NOTICE, 0);
	(void)gantry_str_copy(msg.text, sizeof(msg.text), text); /* it fits */
	if (gantry_fd_send(DOOR_FD, &msg, sizeof(msg), NULL, 0, MSG_DONTWAIT) < 0)
		r->is_over = true; /* our end says it too, with fewer words */
}

/* true: there may be more. */
static bool hear_guest(struct relay *r)
{
	int n = GANTRY_STREAM_CAME_MORE;

	for (int i = 0; i < RECEIVES_PER_TURN && n == GANTRY_STREAM_CAME_MORE; i++) {
		if (r->stream < 0 || r->is_condemned)
			return false;
		n = gantry_bridge_receive(r->bridge);
	}
	if (r->bridge->is_left)
		r->is_over = true;
	else if (n == -EPROTO)
		condemn(r, r->bridge->complaint);
	else if (n < 0)
		stream_broke(r);
	return n == GANTRY_STREAM_CAME_MORE;
}

static void tell_guest(struct relay *r)
{
	int n;

	gantry_failpoint(GANTRY_FAILPOINT_RELAY_TELL);
	n = r->stream >= 0 ? gantry_bridge_send(r->bridge) : 0;
	r->is_full = n == -EAGAIN;
	if (n < 0 && n != -EAGAIN)
		stream_broke(r);
}

/* ---- the agent ---- */

static void hear_agent(struct relay *r)
{
	_Alignas(8) uint8_t buf[MESSAGE_MAX];
	int fd = -EBADF;
	unsigned int nfds = 0;
	uint16_t kind;
	ssize_t n = gantry_fd_recv(DOOR_FD, buf, sizeof(buf), &fd, 1, &nfds, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return;
	if (n <= 0 || gantry_door_check(buf, (size_t)n, &kind) < 0) {
		r->is_over = true;
		return;
	}
	if (kind == GANTRY_DOOR_WELCOME && nfds == 1)
		take_stream(r, GANTRY_TAKE_FD(fd));
	else
		gantry_bridge_forward(r->bridge, (const struct gantry_door_header *)buf);
	gantry_fd_close(fd);
}

/* What the guest is to know of the end: why. It gets a moment to read it. */
static void say_farewell(struct relay *r)
{
	uint64_t until_ns = gantry_now_ns() + LAST_WORDS_NS;

	while (r->stream >= 0 && !gantry_deadline_passed(until_ns)) {
		struct pollfd p = { .fd = r->stream, .events = POLLOUT };

		tell_guest(r);
		if (!r->is_full)
			return;
		(void)poll(&p, 1, gantry_deadline_poll_ms(until_ns));
	}
}

/* ---- the loop ---- */

static void tell_counts(const struct relay *r)
{
	const struct gantry_bridge *b = r->bridge;

	gantry_store_relaxed(&r->page->tasks, b->tasks);
	gantry_store_relaxed(&r->page->bytes_in, b->bytes_in);
	gantry_store_relaxed(&r->page->bytes_out, b->bytes_out);
	gantry_store_relaxed(&r->page->reconnects, b->reconnects);
}

static bool spin_for_news(struct relay *r)
{
	bool hit;

	/* What is finished already and cannot be told is no news that comes sooner by spinning. */
	if (r->is_full || !r->bridge->in_step || !gantry_bridge_is_busy(r->bridge))
		return false;
	gantry_spin_begin(&r->spin);
	while (!(hit = gantry_bridge_has_news(r->bridge)) && gantry_spin_again(&r->spin))
		;
	gantry_spin_end(&r->spin, hit);
	return hit;
}

/* true: the guest said something, or hung up. */
static bool sleep_for_news(struct relay *r)
{
	struct pollfd p[3] = {
		{ .fd = DOOR_FD, .events = POLLIN },
		{ .fd = r->wake, .events = POLLIN },
		{ .fd = r->is_condemned ? -1 : r->stream,
		  .events = (short)(POLLIN | (r->is_full ? POLLOUT : 0)) },
	};
	uint64_t until_ns = r->stream < 0 ? r->lost_ns + r->grace_ns : GANTRY_DEADLINE_NEVER;
	uint64_t count;

	/* While the stream is full news has to wait for it, not we for news. */
	if (gantry_bridge_wait_enter(r->bridge) || r->is_full)
		(void)poll(p, 3, gantry_deadline_poll_ms(until_ns)); /* the next turn sees */
	gantry_bridge_wait_leave(r->bridge);
	if (p[1].revents)
		(void)!read(r->wake, &count, sizeof(count));
	if (p[0].revents)
		hear_agent(r);
	if (r->stream < 0 && gantry_deadline_passed(r->lost_ns + r->grace_ns))
		r->is_over = true;
	return p[2].revents & ~POLLOUT;
}

/*
 * A round trip costs what a system call costs as often as there is one: the guest is heard when poll() says that it spoke,
 * or when what was told it may have made it speak while we spin; and told first.
 */
static void serve(struct relay *r)
{
	bool speaks = true;
	unsigned int unheard = 0;

	while (!r->is_over) {
		bool more = speaks && hear_guest(r);

		if (++unheard >= TURNS_UNHEARD) {
			hear_agent(r);
			unheard = 0;
		}
		tell_guest(r);
		tell_counts(r);
		speaks = true;
		if (more || r->is_over) /* its goodbye may have come as it was told something */
			continue;
		if (!spin_for_news(r)) {
			speaks = sleep_for_news(r);
			unheard = 0;
			continue;
		}
		tell_guest(r);
		speaks = gantry_bridge_is_busy(r->bridge);
	}
	say_farewell(r);
	tell_counts(r);
}

/* ---- start ---- */

static int map_session(struct relay *r, int segment_fd, const struct gantry_bridge_events *events)
{
	const struct gantry_door_welcome *w = &r->welcome;
	struct gantry_segment_layout layout;
	void *base;

	if (gantry_segment_layout_of(w->nqueues, w->nslots, w->segment_bytes, &layout) < 0 ||
	    gantry_memfd_check(segment_fd, w->segment_bytes) < 0)
		return -EINVAL;
	base = mmap(NULL, w->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	r->bridge = gantry_bridge_new(base, &layout, (uint32_t)(r->grace_ns / GANTRY_NS_PER_MS),
				      events);
	if (!r->bridge)
		return -ENOMEM;
	gantry_store_relaxed(&r->bridge->header->props, GANTRY_PROP_TRANSLATED);
	return 0;
}

static int map_page(struct relay *r)
{
	void *page = mmap(NULL, GANTRY_RELAY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			  PAGE_FD, 0);

	if (page == MAP_FAILED)
		return -errno;
	gantry_fd_close(PAGE_FD);
	r->page = page;
	return 0;
}

static int begin(struct relay *r, const struct gantry_bridge_events *events)
{
	int fds[WELCOME_FDS] = { -EBADF, -EBADF, -EBADF };
	unsigned int nfds = 0;
	uint16_t kind = 0;
	ssize_t n = gantry_fd_recv(DOOR_FD, &r->welcome, sizeof(r->welcome), fds, WELCOME_FDS,
				   &nfds, 0);
	int status;

	if (n != sizeof(r->welcome) || nfds != WELCOME_FDS ||
	    gantry_door_check(&r->welcome, sizeof(r->welcome), &kind) < 0 ||
	    kind != GANTRY_DOOR_WELCOME)
		return -EINVAL;
	status = map_page(r);
	if (status == 0)
		status = map_session(r, fds[0], events);
	gantry_fd_close(fds[0]);
	r->bell = fds[1];
	r->wake = fds[2];
	return status;
}

int main(int argc, char **argv)
{
	struct relay r = { .stream = STREAM_FD };
	const struct gantry_bridge_events events = {
		.cookie = &r,
		.ring_bell = ring_bell,
		.request = send_request,
	};
	const char *missing = NULL;
	int status;

	gantry_log_open("gantry-relay");
	gantry_failpoints_open();
	if (argc != 5) {
		fprintf(stderr,
			"gantry-relay: started by gantryd, for one guest behind a stream\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN); /* a terminal's ^C is for the agent */
	r.grace_ns = strtoull(argv[1], NULL, 10) * GANTRY_NS_PER_MS;
	gantry_spin_init(&r.spin, SPIN_MAX_NS, gantry_cpus_allowed());
	status = begin(&r, &events);
	if (status < 0) {
		gantry_log(GANTRY_LOG_ERR, "a session cannot be relayed: %s", strerror(-status));
		return 1;
	}
	if (strtoul(argv[2], NULL, 10))
		missing = gantry_confine_relay((uid_t)strtoul(argv[3], NULL, 10),
					       (gid_t)strtoul(argv[4], NULL, 10));
	if (missing)
		gantry_log(GANTRY_LOG_WARN, "not confined: %s", missing);
	gantry_bridge_connect(r.bridge, r.stream, &r.welcome);
	serve(&r);
	return 0;
}
