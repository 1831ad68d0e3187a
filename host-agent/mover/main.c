/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry-mover: one side of one session's way to another host. Started by the agent with descriptor 3, a
 * SOCK_SEQPACKET pair to it, on which START comes (talk.h). It alone speaks TLS and alone sees what the other
 * host sends before it is checked; it can open nothing once it is connected. It ends when its agent does, or when all
 * is said.
 *
 * Exit status: 0; 1 with a FAILED to the agent before it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/mover/mover.h"
#include "host-agent/mover/socket.h"
#include "host-agent/worker/confine.h"

#define START_NS     (10 * GANTRY_NS_PER_S)
#define CONNECT_NS   (10 * GANTRY_NS_PER_S)
#define HANDSHAKE_NS (10 * GANTRY_NS_PER_S)

/* Exit codes of gantryctl. */
#define FAILED	    1
#define USAGE	    2
#define NOT_FOUND   3
#define DENIED	    4
#define UNREACHABLE 5
#define UNSUPPORTED 8

int gantry_mover_query(struct gantry_mover *m)
{
	static const uint32_t answers[] = { GANTRY_MOVER_OWNED, GANTRY_MOVER_UNKNOWN, 0 };
	struct gantry_mover_msg msg;

	if (gantry_mover_say(m, GANTRY_MOVER_ASK, m->start.session.token, 0, NULL) < 0 ||
	    gantry_mover_listen(m, &msg, answers, HANDSHAKE_NS) < 0)
		return -1;
	gantry_mover_tell_kind(m, msg.kind);
	if (msg.kind == GANTRY_MOVER_OWNED) {
		static const uint32_t forget[] = { GANTRY_MOVER_FORGET, 0 };

		if (gantry_mover_hear(m, &msg, forget, HANDSHAKE_NS) == 0)
			return gantry_mover_say(m, GANTRY_MOVER_FORGET, m->start.session.token, 0,
						NULL);
	}
	return 0;
}

/* ---- connecting ---- */

static int connect_one(const struct addrinfo *ai, uint64_t deadline_ns, int *ret_sock)
{
	_cleanup_close_ int sock = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
					  ai->ai_protocol);
	struct pollfd p = { .fd = sock, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int status = 0;

	if (sock < 0)
		return -errno;
	if (connect(sock, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS)
		return -errno;
	if (poll(&p, 1, gantry_deadline_poll_ms(deadline_ns)) <= 0)
		return -ETIMEDOUT;
	if (getsockopt(sock, SOL_SOCKET, SO_ERROR, &status, &len) < 0 || status != 0)
		return -status;
	*ret_sock = GANTRY_TAKE_FD(sock);
	return 0;
}

static int connect_host(struct gantry_mover *m)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	uint64_t deadline_ns = gantry_now_ns() + CONNECT_NS;
	struct addrinfo *list = NULL;
	char port[16];
	int r;

	(void)gantry_str_format(port, sizeof(port), "%u", m->start.port); /* it fits */
	r = getaddrinfo(m->start.host, port, &hints, &list);
	if (r != 0)
		return gantry_mover_fail(m, NOT_FOUND, "there is no host %.60s: %s", m->start.host,
					 gai_strerror(r));
	r = -EHOSTUNREACH;
	for (const struct addrinfo *ai = list; ai && r < 0; ai = ai->ai_next)
		r = connect_one(ai, deadline_ns, &m->sock);
	freeaddrinfo(list);
	if (r < 0)
		return gantry_mover_fail(m, UNREACHABLE,
					 "no agent answers at %.60s port %u: %s; is [agent] "
					 "migration_listen set there?",
					 m->start.host, m->start.port, strerror(-r));
	return 0;
}

/* ---- start ---- */

static void confine(const struct gantry_mover *m)
{
	const char *missing;

	if (!m->start.confine)
		return;
	missing = gantry_confine_mover((uid_t)m->start.uid, (gid_t)m->start.gid);
	if (missing)
		gantry_log(GANTRY_LOG_WARN, "not confined: %s", missing);
}

/* Each says who it is; a receiver holds that against the certificate that it was shown. */
static int greet(struct gantry_mover *m)
{
	static const uint32_t hello[] = { GANTRY_MOVER_HELLO, 0 };
	bool is_server = m->start.role == GANTRY_MOVER_RECEIVE;
	struct gantry_mover_msg msg, connected;

	if (!is_server && gantry_mover_say(m, GANTRY_MOVER_HELLO, NULL, 0, m->start.own_host) < 0)
		return -1;
	if (gantry_mover_listen(m, &msg, hello, HANDSHAKE_NS) < 0)
		return -1;
	if (is_server && !gantry_tls_peer_is(m->tls, msg.text)) {
		(void)gantry_mover_say(m, GANTRY_MOVER_REFUSED, NULL, DENIED,
				       "its certificate is not for the host that it says it is");
		return gantry_mover_fail(
			m, DENIED, "who says to be %.60s has another host's certificate", msg.text);
	}
	if (msg.value[0] != GANTRY_MOVER_PROTOCOL) {
		(void)gantry_mover_say(m, GANTRY_MOVER_REFUSED, NULL, UNSUPPORTED,
				       "it speaks another version of the protocol between movers");
		return gantry_mover_fail(m, UNSUPPORTED, "%.60s speaks version %llu, we %u",
					 msg.text, (unsigned long long)msg.value[0],
					 GANTRY_MOVER_PROTOCOL);
	}
	if (is_server && gantry_mover_say(m, GANTRY_MOVER_HELLO, NULL, 0, m->start.own_host) < 0)
		return -1;
	gantry_mover_init(&connected, GANTRY_MOVER_CONNECTED);
	memcpy(connected.text, msg.text, sizeof(connected.text));
	gantry_mover_tell(m, &connected, sizeof(connected));
	return 0;
}

static int open_link(struct gantry_mover *m)
{
	bool is_server = m->start.role == GANTRY_MOVER_RECEIVE;
	int r = gantry_tls_new(m->start.certificates, is_server, &m->tls, &m->err);

	if (r < 0)
		return gantry_mover_fail_err(m, r == -EACCES ? -EIO : r);
	if (is_server)
		m->sock = m->fds[0];
	else if (connect_host(m) < 0)
		return -1;
	gantry_socket_prepare(m->sock);
	confine(m);
	r = gantry_tls_open(m->tls, m->sock, m->start.host, HANDSHAKE_NS, &m->err);
	if (r < 0)
		return gantry_mover_fail_err(m, r);
	gantry_tls_watch(m->tls, m->agent_fd);
	(void)gantry_tls_set_bulk(m->tls); /* only slower */
	return greet(m);
}

static int run(struct gantry_mover *m)
{
	static const uint32_t start[] = { GANTRY_MOVER_START, 0 };
	struct gantry_mover_msg msg;

	if (gantry_mover_hear(m, &msg, start, START_NS) != 0)
		return gantry_mover_fail(m, USAGE, "no start came");
	if (open_link(m) < 0)
		return -1;
	switch (m->start.role) {
	case GANTRY_MOVER_SEND:
		return gantry_mover_send(m);
	case GANTRY_MOVER_RECEIVE:
		return gantry_mover_receive(m);
	default:
		return gantry_mover_query(m);
	}
}

static void tell_failure(struct gantry_mover *m)
{
	struct gantry_mover_msg msg;

	gantry_mover_init(&msg, GANTRY_MOVER_FAILED);
	msg.code = (uint32_t)m->code;
	memcpy(msg.token, m->start.session.token, sizeof(msg.token));
	(void)gantry_str_copy(msg.text, sizeof(msg.text), m->err.text); /* cut is better */
	gantry_mover_tell(m, &msg, sizeof(msg));
}

int main(void)
{
	static struct gantry_mover m = { .sock = -EBADF,
					 .agent_fd = GANTRY_MOVER_AGENT_FD,
					 .code = FAILED };
	int r;

	gantry_log_open("gantry-mover");
	gantry_failpoints_open();
	if (fcntl(GANTRY_MOVER_AGENT_FD, F_GETFD) < 0) {
		fprintf(stderr, "gantry-mover: started by gantryd, for one session's way to "
				"another host\n");
		return 2;
	}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN); /* a terminal's ^C is for the agent */
	r = run(&m);
	if (r < 0)
		tell_failure(&m);
	if (m.tls)
		gantry_tls_bye(m.tls);
	gantry_tls_free(m.tls);
	return r < 0;
}
