/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a lazy hand-over: the destination runs the session, and has the buffers fetched that its tasks use, one request after the
 * other; the source has them in the session's slab, which nobody writes any more. Inside the same TLS connection:
 *
 *   destination  PULL    value: offset, bytes, whole pages of the slab
 *   source       PART    value: offset, bytes (at most GANTRY_IMAGE_CHUNK); code 1: all zero, else the bytes follow
 *                PULLED  as asked: that was all of it
 *   destination  FORGET  nothing more is wanted
 *
 * Parts come in order and leave no gap. Whatever else comes, or an end, ends it: what was not fetched by then is lost.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "host-agent/mover/mover.h"
#include "host-agent/mover/pages.h"

/* Between requests there may be days; that the other host lives is watched by the kernel (main.c). */
#define IDLE_NS	  (365 * 86400 * GANTRY_NS_PER_S)
#define ANSWER_NS (30 * GANTRY_NS_PER_S)

/* @send: gantry_tls_send(), or, where more follows at once, gantry_tls_send_more(). */
static int send_words(struct gantry_mover *m, uint32_t kind, uint32_t code, uint64_t off,
		      uint64_t bytes,
		      int (*send)(struct gantry_tls *t, const void *data, size_t len))
{
	struct gantry_mover_msg msg;
	int r;

	gantry_mover_init(&msg, kind);
	msg.code = code;
	msg.value[0] = off;
	msg.value[1] = bytes;
	memcpy(msg.token, m->start.session.token, sizeof(msg.token));
	r = send(m->tls, &msg, sizeof(msg));
	return r < 0 ? gantry_mover_fail_err(m, r) : 0;
}

static void tell_words(struct gantry_mover *m, uint32_t kind, uint64_t off, uint64_t bytes)
{
	struct gantry_mover_msg msg;

	gantry_mover_init(&msg, kind);
	msg.value[0] = off;
	msg.value[1] = bytes;
	memcpy(msg.token, m->start.session.token, sizeof(msg.token));
	gantry_mover_tell(m, &msg, sizeof(msg));
}

static bool is_inside(uint64_t off, uint64_t bytes, uint64_t all)
{
	return bytes > 0 && off % GANTRY_PAGE == 0 && bytes % GANTRY_PAGE == 0 &&
	       gantry_range_inside(off, bytes, all);
}

/* ---- the source ---- */

static int send_part(struct gantry_mover *m, const uint8_t *data, uint64_t off, size_t n)
{
	bool is_zero = data[0] == 0 && memcmp(data, data + 1, n - 1) == 0;
	int r = 0;

	gantry_failpoint(GANTRY_FAILPOINT_SERVE_PART);
	if (send_words(m, GANTRY_MOVER_PART, is_zero, off, n, gantry_tls_send_more) < 0)
		return -1;
	if (!is_zero)
		r = gantry_tls_send_more(m->tls, data, n);
	return r < 0 ? gantry_mover_fail_err(m, r) : 0;
}

static int serve_one(struct gantry_mover *m, const struct gantry_pages *slab, uint64_t off,
		     uint64_t bytes)
{
	if (!is_inside(off, bytes, slab->bytes))
		return gantry_mover_fail(m, 1, "the other host asks for what is not the session's");
	for (uint64_t at = 0; at < bytes; at += GANTRY_IMAGE_CHUNK) {
		size_t n = (size_t)gantry_min_u64(bytes - at, GANTRY_IMAGE_CHUNK);

		if (send_part(m, slab->map + off + at, off + at, n) < 0)
			return -1;
	}
	return send_words(m, GANTRY_MOVER_PULLED, 0, off, bytes, gantry_tls_send);
}

int gantry_mover_serve(struct gantry_mover *m, const struct gantry_pages *slab)
{
	static const uint32_t words[] = { GANTRY_MOVER_PULL, GANTRY_MOVER_FORGET, 0 };
	struct gantry_mover_msg msg;

	for (;;) {
		if (gantry_mover_listen(m, &msg, words, IDLE_NS) < 0)
			return -1;
		if (msg.kind == GANTRY_MOVER_FORGET)
			return 0;
		if (serve_one(m, slab, msg.value[0], msg.value[1]) < 0)
			return -1;
		tell_words(m, GANTRY_MOVER_PULLED, msg.value[0], msg.value[1]);
	}
}

/* ---- the destination ---- */

static int receive_bytes(struct gantry_mover *m, uint8_t *buf, size_t len)
{
	uint64_t deadline_ns = gantry_now_ns() + ANSWER_NS;
	size_t have = 0;

	while (have < len) {
		struct gantry_mover_msg unused;
		int64_t n = gantry_tls_recv(m->tls, buf + have, len - have,
					    gantry_deadline_left_ns(deadline_ns));

		if (n == -EINTR && gantry_mover_hear(m, &unused, NULL, 0) == -EAGAIN)
			continue;
		if (n < 0)
			return n == -EINTR ? -1 : gantry_mover_fail_err(m, (int)n);
		have += (size_t)n;
	}
	return 0;
}

/* What was asked for of [off, end), which is at @off by now: one part of it. */
static int take_part(struct gantry_mover *m, const struct gantry_mover_msg *part, uint64_t *off,
		     uint64_t end, uint8_t *buf)
{
	uint64_t bytes = part->value[1];
	int r;

	if (part->value[0] != *off || bytes > GANTRY_IMAGE_CHUNK || part->code > 1 ||
	    !is_inside(*off, bytes, end))
		return gantry_mover_fail(m, 1, "the other host sends what was not asked for");
	if (part->code == 0) {
		if (receive_bytes(m, buf, (size_t)bytes) < 0)
			return -1;
		gantry_failpoint(GANTRY_FAILPOINT_PULL_PART);
		r = gantry_write_all_at(m->fds[1], buf, (size_t)bytes, *off);
		if (r < 0)
			return gantry_mover_fail(m, 1, "no memory for the session's buffers");
	}
	*off += bytes;
	return 0;
}

static int pull_one(struct gantry_mover *m, uint64_t off, uint64_t bytes, uint8_t *buf)
{
	static const uint32_t words[] = { GANTRY_MOVER_PART, GANTRY_MOVER_PULLED, 0 };
	uint64_t at = off, end = off + bytes;
	struct gantry_mover_msg msg;

	if (send_words(m, GANTRY_MOVER_PULL, 0, off, bytes, gantry_tls_send) < 0)
		return -1;
	for (;;) {
		if (gantry_mover_listen(m, &msg, words, ANSWER_NS) < 0)
			return -1;
		if (msg.kind == GANTRY_MOVER_PULLED)
			break;
		if (take_part(m, &msg, &at, end, buf) < 0)
			return -1;
	}
	if (at != end)
		return gantry_mover_fail(m, 1, "the other host sent less than was asked for");
	gantry_failpoint(GANTRY_FAILPOINT_PULL_DONE);
	tell_words(m, GANTRY_MOVER_PULLED, off, bytes);
	return 0;
}

/* Until the agent says something; what the other host says unasked, or its end, ends it. */
static int await_agent(struct gantry_mover *m, struct gantry_mover_msg *ret_msg)
{
	static const uint32_t words[] = { GANTRY_MOVER_PULL, GANTRY_MOVER_FORGET, 0 };

	for (;;) {
		struct pollfd p[2] = { { .fd = m->agent_fd, .events = POLLIN },
				       { .fd = m->sock, .events = POLLIN } };
		int r = gantry_mover_hear(m, ret_msg, words, 0);

		if (r != -EAGAIN)
			return r;
		if (!gantry_tls_has_more(m->tls))
			(void)poll(p, 2, -1); /* both are looked at again */
		if (gantry_mover_overhear(m) < 0)
			return -1;
	}
}

int gantry_mover_pull(struct gantry_mover *m, uint64_t slab_bytes)
{
	uint8_t *buf = malloc(GANTRY_IMAGE_CHUNK);
	struct gantry_mover_msg msg;
	int r = buf ? 0 : gantry_mover_fail(m, 1, "no memory to fetch buffers with");

	if (r == 0)
		gantry_mover_tell_kind(m, GANTRY_MOVER_READY);
	while (r == 0) {
		r = await_agent(m, &msg);
		if (r == 0 && msg.kind == GANTRY_MOVER_FORGET) {
			/* or it sees our end */
			(void)gantry_mover_say(m, GANTRY_MOVER_FORGET, msg.token, 0, NULL);
			break;
		}
		if (r == 0 && !is_inside(msg.value[0], msg.value[1], slab_bytes))
			r = gantry_mover_fail(m, 1, "the agent asks for what is nowhere");
		if (r == 0)
			r = pull_one(m, msg.value[0], msg.value[1], buf);
	}
	free(buf);
	return r;
}
