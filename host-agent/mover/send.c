/* SPDX-License-Identifier: Apache-2.0 */
/* The source: rounds while the session runs, the last one while it is held still, then the two words of the hand-over. */
#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "host-agent/mover/mover.h"
#include "host-agent/mover/pages.h"

#define ANSWER_NS (30 * GANTRY_NS_PER_S)
#define FREEZE_NS \
	(3600 *   \
	 GANTRY_NS_PER_S) /* a task that runs is waited for, or a machine; the agent gives up first */
#define LOOK_EVERY    (8u << 20) /* bytes between looks at the agent */
#define TELL_EVERY_NS (200 * GANTRY_NS_PER_MS)
#define STAGE_BYTES   (16u << 10) /* a record of TLS */
#define RATE_BURST_NS (20 * GANTRY_NS_PER_MS)

struct sender {
	struct gantry_mover *m;
	struct gantry_image_writer writer;
	struct gantry_pages regions[GANTRY_IMAGE_NREGIONS];
	struct gantry_ledger ledger;
	uint32_t round;
	struct gantry_pages_round now;
	uint64_t round_began_ns;
	double ns_per_byte; /* as the first round went */
	uint64_t bytes;	    /* of pages, all rounds */
	uint64_t since_look;
	uint64_t told_ns;
	uint64_t paced_from_ns; /* when the bandwidth's account was empty */
	uint64_t paced_bytes;
	size_t nstage;
	uint8_t stage[STAGE_BYTES]; /* heads of records travel with what follows them */
};

/* ---- writing ---- */

static int put_stage(struct sender *s)
{
	int r = s->nstage ? gantry_tls_send_more(s->m->tls, s->stage, s->nstage) : 0;

	s->nstage = 0;
	return r;
}

static int flush(struct sender *s)
{
	int r = put_stage(s);

	return r < 0 ? r : gantry_tls_flush(s->m->tls);
}

static int write_link(void *cookie, const void *data, size_t len)
{
	struct sender *s = cookie;
	const uint8_t *p = data;
	int r = 0;

	while (len > 0 && r == 0) {
		size_t n = sizeof(s->stage) - s->nstage;

		if (s->nstage == 0 && len >= sizeof(s->stage)) {
			size_t whole = len - len % sizeof(s->stage);

			r = gantry_tls_send_more(s->m->tls, p, whole);
			p += whole;
			len -= whole;
			continue;
		}
		n = n < len ? n : len;
		memcpy(s->stage + s->nstage, p, n);
		s->nstage += n;
		p += n;
		len -= n;
		if (s->nstage == sizeof(s->stage))
			r = put_stage(s);
	}
	return r;
}

static void tell_progress(struct sender *s, bool is_over)
{
	struct gantry_mover_msg msg;

	gantry_mover_init(&msg, GANTRY_MOVER_PROGRESS);
	msg.round = s->round;
	msg.code = is_over;
	msg.value[0] = s->now.bytes;
	msg.value[1] = s->writer.nbytes;
	msg.value[2] = s->bytes + s->now.bytes;
	msg.value[3] = gantry_now_ns() - s->round_began_ns;
	s->told_ns = gantry_now_ns();
	gantry_mover_tell(s->m, &msg, sizeof(msg));
}

/* How long to wait so that no more goes than the bandwidth allows. */
static uint64_t too_fast_ns(struct sender *s, uint64_t bytes)
{
	uint64_t rate = s->m->start.bandwidth;
	uint64_t now_ns = gantry_now_ns();
	uint64_t due_ns;

	if (rate == 0)
		return 0;
	/* Computed from an origin that moves with the clock: sums stay small. */
	if (s->paced_bytes >= rate) {
		s->paced_from_ns += GANTRY_NS_PER_S;
		s->paced_bytes -= rate;
	}
	s->paced_bytes += bytes;
	due_ns = s->paced_from_ns +
		 (uint64_t)((double)s->paced_bytes / (double)rate * (double)GANTRY_NS_PER_S);
	if (due_ns + RATE_BURST_NS < now_ns) { /* what was not used is not saved up */
		s->paced_from_ns = now_ns;
		s->paced_bytes = 0;
		return 0;
	}
	return due_ns > now_ns ? due_ns - now_ns : 0;
}

static int pace(void *cookie, uint64_t bytes)
{
	struct sender *s = cookie;
	uint64_t wait_ns = too_fast_ns(s, bytes);

	s->since_look += bytes;
	if (wait_ns == 0 && s->since_look < LOOK_EVERY)
		return 0;
	s->since_look = 0;
	if (gantry_now_ns() - s->told_ns > TELL_EVERY_NS)
		tell_progress(s, false);
	return gantry_mover_overhear(s->m) < 0 || gantry_mover_pause(s->m, wait_ns) < 0 ? -ECANCELED
											: 0;
}

/* ---- rounds ---- */

/* What lies in the slab is fetched by whoever uses it there. */
static bool is_lazy(const struct sender *s)
{
	return s->m->start.session.flags & GANTRY_IMAGE_LAZY;
}

static int failed(struct sender *s, int r)
{
	/* A cancel has said why already. */
	return r == -ECANCELED ? -1 : gantry_mover_fail_err(s->m, r);
}

static int send_round(struct sender *s)
{
	int r;

	gantry_failpoint(GANTRY_FAILPOINT_SEND_ROUND);
	r = gantry_image_write_round(&s->writer, s->round);
	s->now = (struct gantry_pages_round){ 0 };
	s->round_began_ns = gantry_now_ns();
	for (uint32_t i = 0; i < GANTRY_IMAGE_NREGIONS && r == 0; i++)
		if (s->regions[i].map && !(i == GANTRY_IMAGE_SLAB && is_lazy(s)))
			r = gantry_pages_send(&s->regions[i], &s->writer, pace, s, &s->now);
	r = r < 0 ? r : flush(s);
	if (r < 0)
		return failed(s, r);
	tell_progress(s, true);
	if (s->round == 0 && s->now.bytes)
		s->ns_per_byte = (double)(gantry_now_ns() - s->round_began_ns) /
				 (double)s->now.bytes;
	s->bytes += s->now.bytes;
	s->round++;
	return 0;
}

/* Whether the last round would be short enough, or gets no shorter. What is looked at then is all there is either way. */
static bool is_enough(const struct sender *s, uint64_t before)
{
	uint64_t bytes_ns = (uint64_t)((double)s->now.bytes * s->ns_per_byte);

	return s->round >= s->m->start.rounds_max || bytes_ns <= s->m->start.pause_ns ||
	       (s->round > 1 && s->now.bytes > before / 2);
}

static int precopy(struct sender *s)
{
	uint64_t before = UINT64_MAX;

	do {
		uint64_t last = s->now.bytes;

		if (send_round(s) < 0)
			return -1;
		before = s->round > 1 ? last : UINT64_MAX;
	} while (!is_enough(s, before));
	return 0;
}

/* Until nobody writes it any more. The agent may have brought more to where we see it, and want that sent before. */
static int freeze(struct sender *s)
{
	static const uint32_t frozen[] = { GANTRY_MOVER_FROZEN, GANTRY_MOVER_AGAIN, 0 };
	struct gantry_mover_msg msg;
	int r;

	do {
		gantry_failpoint(GANTRY_FAILPOINT_SEND_FREEZE);
		gantry_mover_tell_kind(s->m, GANTRY_MOVER_FREEZE);
		r = gantry_mover_hear(s->m, &msg, frozen, FREEZE_NS);
		if (r == -EAGAIN)
			return gantry_mover_fail(s->m, 124, "the session did not come to rest");
		if (r == 0 && msg.kind == GANTRY_MOVER_AGAIN)
			r = send_round(s);
	} while (r == 0 && msg.kind == GANTRY_MOVER_AGAIN);
	return r;
}

/* Of a lazy one: what gets memory of its own as soon as the session is taken over there. */
static int send_shared(struct sender *s)
{
	int r = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS && r == 0; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];
		uint64_t off = o->buffer.off;
		uint64_t len = (o->buffer.bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);

		if (!gantry_image_goes_ahead(o))
			continue;
		/* A worker wrote it, and nobody has checked it. */
		if (!gantry_range_inside(off, len, s->regions[GANTRY_IMAGE_SLAB].bytes))
			r = -ERANGE;
		else
			r = gantry_pages_send_part(&s->regions[GANTRY_IMAGE_SLAB], &s->writer, pace,
						   s, &s->now, off, off + len);
	}
	if (r == -ERANGE)
		(void)gantry_err_set(&s->m->err, r,
				     "the session's ledger has a buffer where it has no memory");
	return r;
}

static int send_rest(struct sender *s)
{
	int r;

	gantry_failpoint(GANTRY_FAILPOINT_SEND_REST);
	if (send_round(s) < 0)
		return -1;
	r = is_lazy(s) ? send_shared(s) : 0;
	if (r < 0)
		return failed(s, r);
	r = gantry_image_write_ledger(&s->writer, &s->ledger);
	r = r < 0 ? r : gantry_image_write_end(&s->writer);
	r = r < 0 ? r : flush(s);
	return r < 0 ? failed(s, r) : 0;
}

/* ---- the two words ---- */

/* 1: the other host has it, and has heard that we know. */
static int hand_over(struct sender *s)
{
	static const uint32_t prepared[] = { GANTRY_MOVER_PREPARED, 0 };
	static const uint32_t commit[] = { GANTRY_MOVER_COMMIT, 0 };
	static const uint32_t owned[] = { GANTRY_MOVER_OWNED, GANTRY_MOVER_UNKNOWN, 0 };
	static const uint32_t forget[] = { GANTRY_MOVER_FORGET, 0 };
	const uint8_t *token = s->m->start.session.token;
	struct gantry_mover_msg msg;
	uint32_t answer;

	if (gantry_mover_listen(s->m, &msg, prepared, ANSWER_NS) < 0)
		return -1;
	gantry_failpoint(GANTRY_FAILPOINT_SEND_PREPARED);
	gantry_mover_tell_kind(s->m, GANTRY_MOVER_PREPARED);
	if (gantry_mover_hear(s->m, &msg, commit, FREEZE_NS) != 0)
		return s->m->err.text[0] ? -1 : gantry_mover_fail(s->m, 1, "no decision came");
	gantry_failpoint(GANTRY_FAILPOINT_SEND_COMMIT);
	if (gantry_mover_say(s->m, GANTRY_MOVER_COMMIT, token, 0, NULL) < 0)
		return -1;
	gantry_failpoint(GANTRY_FAILPOINT_SEND_COMMITTED);
	if (gantry_mover_listen(s->m, &msg, owned, ANSWER_NS) < 0)
		return -1;
	gantry_failpoint(GANTRY_FAILPOINT_SEND_OWNED);
	answer = msg.kind;
	gantry_mover_tell_kind(s->m, answer);
	if (answer == GANTRY_MOVER_OWNED && gantry_mover_hear(s->m, &msg, forget, ANSWER_NS) == 0) {
		gantry_failpoint(GANTRY_FAILPOINT_SEND_FORGET);
		/* else it is asked again */
		return gantry_mover_say(s->m, GANTRY_MOVER_FORGET, token, 0, NULL) == 0;
	}
	return 0;
}

/* ---- start ---- */

static int open_memory(struct sender *s)
{
	const struct gantry_mover_start *start = &s->m->start;
	const int *fds = s->m->fds;
	int r;

	if (s->m->nfds < 3)
		return gantry_mover_fail(s->m, 1, "descriptors of the session are missing");
	/* The header's page is the other agent's to write. */
	r = gantry_pages_open(&s->regions[GANTRY_IMAGE_SEGMENT], GANTRY_IMAGE_SEGMENT, fds[0],
			      start->segment_off, start->session.segment_bytes, GANTRY_PAGE);
	if (r == 0)
		r = gantry_pages_open(&s->regions[GANTRY_IMAGE_SLAB], GANTRY_IMAGE_SLAB, fds[1], 0,
				      start->session.slab_bytes, 0);
	if (r == 0 && s->m->nfds > 3)
		r = gantry_pages_open(&s->regions[GANTRY_IMAGE_STORE], GANTRY_IMAGE_STORE, fds[3],
				      0, start->session.store_bytes, 0);
	if (r == 0)
		r = gantry_ledger_open(fds[2], &s->ledger, &s->m->err);
	return r < 0 ? gantry_mover_fail_err(s->m, r) : 0;
}

static void close_memory(struct sender *s)
{
	for (uint32_t i = 0; i < GANTRY_IMAGE_NREGIONS; i++)
		gantry_pages_close(&s->regions[i]);
	gantry_ledger_close(&s->ledger);
}

static bool only_asks(const struct sender *s)
{
	return s->m->start.rounds_max == 0;
}

static int send_session(struct sender *s)
{
	static const uint32_t accepted[] = { GANTRY_MOVER_ACCEPTED, 0 };
	struct gantry_mover_msg msg;
	int r;

	gantry_failpoint(GANTRY_FAILPOINT_SEND_SESSION);
	if (gantry_mover_say(s->m, GANTRY_MOVER_IMAGE, s->m->start.session.token, only_asks(s),
			     NULL) < 0)
		return -1;
	r = gantry_image_write_session(&s->writer, &s->m->start.session);
	r = r < 0 ? r : flush(s);
	if (r < 0)
		return failed(s, r);
	return gantry_mover_listen(s->m, &msg, accepted, ANSWER_NS);
}

int gantry_mover_send(struct gantry_mover *m)
{
	static struct sender s;
	int r;

	s.m = m;
	s.writer = (struct gantry_image_writer){ .write = write_link, .cookie = &s };
	s.paced_from_ns = gantry_now_ns();
	r = open_memory(&s);
	r = r < 0 ? r : send_session(&s);
	if (r == 0 && only_asks(&s)) {
		gantry_mover_tell_kind(m, GANTRY_MOVER_ACCEPTED);
		close_memory(&s);
		return 0;
	}
	r = r < 0 ? r : precopy(&s);
	r = r < 0 ? r : freeze(&s);
	r = r < 0 ? r : send_rest(&s);
	r = r < 0 ? r : hand_over(&s);
	if (r == 1)
		r = is_lazy(&s) ? gantry_mover_serve(m, &s.regions[GANTRY_IMAGE_SLAB]) : 0;
	close_memory(&s);
	return r;
}
