/* SPDX-License-Identifier: Apache-2.0 */
/* What a mover says to its agent and to the other host, and hears from them. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/mover/mover.h"

/* Exit codes of gantryctl. */
#define FAILED	    1
#define DENIED	    4
#define UNREACHABLE 5
#define UNSUPPORTED 8
#define TIMED_OUT   124

/* ---- failures ---- */

int gantry_mover_fail(struct gantry_mover *m, int code, const char *fmt, ...)
{
	va_list ap;

	m->code = code;
	m->err.code = -EIO;
	va_start(ap, fmt);
	(void)vsnprintf(m->err.text, sizeof(m->err.text), fmt, ap); /* cut is better than unsaid */
	va_end(ap);
	return -1;
}

int gantry_mover_fail_err(struct gantry_mover *m, int r)
{
	switch (r) {
	case -EACCES:
		m->code = DENIED;
		break;
	case -ENOTSUP:
		m->code = UNSUPPORTED;
		break;
	case -ETIMEDOUT:
		m->code = TIMED_OUT;
		break;
	case -ECONNRESET:
	case -ECONNREFUSED:
		m->code = UNREACHABLE;
		break;
	default:
		m->code = FAILED;
	}
	if (!m->err.text[0])
		(void)gantry_err_set_errno(&m->err, r, "the other host");
	return -1;
}

/* ---- the agent ---- */

void gantry_mover_init(struct gantry_mover_msg *msg, uint32_t kind)
{
	*msg = (struct gantry_mover_msg){ .magic = GANTRY_MOVER_MAGIC, .kind = kind };
}

void gantry_mover_tell(struct gantry_mover *m, const struct gantry_mover_msg *msg, size_t len)
{
	/* The agent reads; where it is gone, so is all reason for us. */
	if (gantry_fd_send(m->agent_fd, msg, len, NULL, 0, 0) < 0)
		_exit(1);
}

void gantry_mover_tell_kind(struct gantry_mover *m, uint32_t kind)
{
	struct gantry_mover_msg msg;

	gantry_mover_init(&msg, kind);
	memcpy(msg.token, m->start.session.token, sizeof(msg.token));
	gantry_mover_tell(m, &msg, sizeof(msg));
}

static bool is_among(uint32_t kind, const uint32_t *kinds)
{
	for (; kinds && *kinds; kinds++)
		if (*kinds == kind)
			return true;
	return false;
}

static int take_from_agent(struct gantry_mover *m, struct gantry_mover_msg *ret_msg)
{
	union {
		struct gantry_mover_msg msg;
		struct gantry_mover_start start;
	} in;
	int fds[GANTRY_MOVER_MAX_FDS];
	unsigned int nfds = 0;
	ssize_t n = gantry_fd_recv(m->agent_fd, &in, sizeof(in), fds, GANTRY_MOVER_MAX_FDS, &nfds,
				   MSG_DONTWAIT);

	if (n == -EAGAIN)
		return -EAGAIN;
	if (n < (ssize_t)sizeof(in.msg) || in.msg.magic != GANTRY_MOVER_MAGIC)
		_exit(1); /* the agent is gone, or none of ours */
	if (in.msg.kind == GANTRY_MOVER_START && n == (ssize_t)sizeof(in.start))
		m->start = in.start;
	if (in.msg.kind == GANTRY_MOVER_START || in.msg.kind == GANTRY_MOVER_ACCEPT) {
		memcpy(m->fds, fds, nfds * sizeof(fds[0]));
		m->nfds = nfds;
	}
	*ret_msg = in.msg;
	return 0;
}

int gantry_mover_hear(struct gantry_mover *m, struct gantry_mover_msg *ret_msg,
		      const uint32_t *kinds, uint64_t timeout_ns)
{
	uint64_t deadline_ns = gantry_now_ns() + timeout_ns;

	for (;;) {
		struct pollfd p = { .fd = m->agent_fd, .events = POLLIN };
		int r = take_from_agent(m, ret_msg);

		if (r == 0 && is_among(ret_msg->kind, kinds))
			return 0;
		if (r == 0 && ret_msg->kind == GANTRY_MOVER_CANCEL)
			return gantry_mover_fail(m, ret_msg->code ? (int)ret_msg->code : FAILED,
						 "%s",
						 ret_msg->text[0] ? ret_msg->text : "cancelled");
		if (r == 0)
			continue;
		if (gantry_deadline_passed(deadline_ns))
			return -EAGAIN;
		(void)poll(&p, 1, gantry_deadline_poll_ms(deadline_ns)); /* it is looked at again */
	}
}

int gantry_mover_pause(struct gantry_mover *m, uint64_t ns)
{
	struct gantry_mover_msg msg;
	int r = gantry_mover_hear(m, &msg, NULL, ns);

	return r == -EAGAIN ? 0 : -1;
}

/* ---- the link ---- */

int gantry_mover_say(struct gantry_mover *m, uint32_t kind, const uint8_t *token, int code,
		     const char *text)
{
	struct gantry_mover_msg msg;
	int r;

	gantry_mover_init(&msg, kind);
	msg.code = (uint32_t)code;
	if (kind == GANTRY_MOVER_HELLO)
		msg.value[0] = GANTRY_MOVER_PROTOCOL;
	if (token)
		memcpy(msg.token, token, sizeof(msg.token));
	(void)gantry_str_copy(msg.text, sizeof(msg.text), text ? text : ""); /* cut is better */
	r = gantry_tls_send(m->tls, &msg, sizeof(msg));
	return r < 0 ? gantry_mover_fail_err(m, r) : 0;
}

/* What of a message came so far lives in @have, for a wait that is interrupted. */
static int receive_whole(struct gantry_mover *m, struct gantry_mover_msg *msg, uint64_t deadline_ns)
{
	size_t have = 0;

	while (have < sizeof(*msg)) {
		struct gantry_mover_msg unused;
		int64_t n = gantry_tls_recv(m->tls, (uint8_t *)msg + have, sizeof(*msg) - have,
					    gantry_deadline_left_ns(deadline_ns));

		if (n == -EINTR) { /* the agent says something: an end, or nothing for now */
			int r = gantry_mover_hear(m, &unused, NULL, 0);

			if (r != -EAGAIN)
				return -1;
			continue;
		}
		if (n == -EACCES)
			return gantry_mover_fail(m, DENIED,
						 "the other host does not take our certificate");
		if (n < 0)
			return gantry_mover_fail_err(m, (int)n);
		have += (size_t)n;
	}
	return 0;
}

/* 0: one of @kinds. */
static int judge(struct gantry_mover *m, struct gantry_mover_msg *msg, const uint32_t *kinds)
{
	if (msg->magic != GANTRY_MOVER_MAGIC || msg->reserved ||
	    !memchr(msg->text, '\0', sizeof(msg->text)))
		return gantry_mover_fail(m, FAILED, "the other host sends what no mover does");
	gantry_str_make_printable(msg->text);
	if (is_among(msg->kind, kinds))
		return 0;
	if (msg->kind == GANTRY_MOVER_REFUSED)
		return gantry_mover_fail(
			m, msg->code ? (int)msg->code : FAILED, "%s",
			msg->text[0] ? msg->text : "the other host refuses, and does not say why");
	return gantry_mover_fail(m, FAILED, "the other host answers out of turn (%u)", msg->kind);
}

int gantry_mover_overhear(struct gantry_mover *m)
{
	struct pollfd p = { .fd = m->sock, .events = POLLIN };
	struct gantry_mover_msg msg = { 0 };
	int64_t n;

	if (!gantry_tls_has_more(m->tls) && poll(&p, 1, 0) <= 0)
		return 0;
	n = gantry_tls_recv(m->tls, &msg, sizeof(msg), 0);
	if (n == -ETIMEDOUT ||
	    n == -EINTR) /* something of TLS itself; or the agent's, heard elsewhere */
		return 0;
	if (n < 0)
		return gantry_mover_fail_err(m, (int)n);
	/* A message is one record; of another length it is none of ours. */
	return judge(m, &msg, NULL);
}

int gantry_mover_listen(struct gantry_mover *m, struct gantry_mover_msg *ret_msg,
			const uint32_t *kinds, uint64_t timeout_ns)
{
	int r = receive_whole(m, ret_msg, gantry_now_ns() + timeout_ns);

	if (r < 0)
		return r;
	return judge(m, ret_msg, kinds);
}
