/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session leaves. Its worker is ended once its devices have nothing of it, so that what goes is what a successor
 * would take over here (recover.c); where it stays after all, one does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/mover.h"
#include "host-agent/agent/recover.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"
#include "host-agent/shared/wake.h"

#define ROUNDS_MAX     8u
#define PAUSE_NS       (50 * GANTRY_NS_PER_MS)
#define ASK_FIRST_NS   (200 * GANTRY_NS_PER_MS)
#define ASK_LATER_NS   (10 * GANTRY_NS_PER_S)
#define ASKED_OFTEN_NS (30 * GANTRY_NS_PER_S)

static void step(struct gantry_handover *h, enum gantry_handover_event event);

static struct gantry_session *session_of(const struct gantry_handover *h)
{
	return gantry_session_find(h->agent, h->session_id);
}

/* ---- may it go? ---- */

/* It came from another host and may go on, or back. */
static bool waits_to_be_adopted(const struct gantry_session *s)
{
	return s->phase == GANTRY_PHASE_HELD && s->unadopted && s->awaits_guest;
}

static int movable(const struct gantry_session *s, bool staged, struct gantry_err *err)
{
	unsigned long long id = s->id;

	if (gantry_upgrade_settles(s->agent)) {
		(void)gantry_err_set(
			err, -EBUSY,
			"another build of the agent takes over; try again in a moment");
		return GANTRY_ADMIN_BUSY;
	}
	if (gantry_handover_of(s) && gantry_handover_of(s)->phase == GANTRY_HANDOVER_PULLING) {
		uint32_t n;
		uint64_t bytes = gantry_pull_away(s, &n);

		(void)gantry_err_set(
			err, -EBUSY,
			"session %llu still has %u buffers with %llu KiB at %.60s, where "
			"it came from lazily: it can go on when it has used or freed "
			"them",
			id, n, (unsigned long long)(bytes >> 10), gantry_handover_of(s)->host);
		return GANTRY_ADMIN_BUSY;
	}
	if (gantry_handover_of(s)) {
		(void)gantry_err_set(err, -EBUSY,
				     "session %llu is being moved already; see gantryctl "
				     "migration list",
				     id);
		return GANTRY_ADMIN_BUSY;
	}
	if (!waits_to_be_adopted(s) && (s->phase != GANTRY_PHASE_ATTACHED || !s->worker)) {
		(void)gantry_err_set(err, -EBUSY, "session %llu is not attached just now", id);
		return GANTRY_ADMIN_BUSY;
	}
	if (!s->is_relayed && !s->has_key && !s->is_seated && !(staged && s->doormem)) {
		(void)gantry_err_set(
			err, -ENOTSUP,
			"session %llu cannot go: its guest shares memory with this host and has "
			"asked for no key (gantry_session_key()) by which a program there could "
			"adopt it",
			id);
		return GANTRY_ADMIN_UNSUPPORTED;
	}
	/* One of before this was known would tell the guest that its session has ended. */
	if (s->worker && s->worker->class.mode != GANTRY_ISOLATED &&
	    gantry_renew_is_other(s->worker)) {
		(void)gantry_err_set(
			err, -EBUSY,
			"session %llu has its worker together with others, and that is "
			"of another build, which cannot let go of one: gantryctl agent "
			"upgrade exchanges it",
			id);
		return GANTRY_ADMIN_BUSY;
	}
	if (s->ngathers) {
		(void)gantry_err_set(err, -EBUSY,
				     "session %llu is still busy with the migration before this "
				     "one; try again in a moment",
				     id);
		return GANTRY_ADMIN_BUSY;
	}
	return gantry_handover_ties(s, err);
}

/* "HOST", "HOST:PORT", "[ADDRESS]:PORT", or an address with more than one colon. */
static int parse_host(struct gantry_handover *h, const char *to)
{
	const char *end = to[0] == '[' ? strchr(to, ']') : strchr(to, ':');
	const char *port = end;
	unsigned long number = GANTRY_MOVER_PORT;
	char *rest = NULL;

	if (to[0] == '[') {
		to++;
		port = end && end[1] == ':' ? end + 1 : NULL;
	} else if (end && strchr(end + 1, ':')) {
		end = port = NULL;
	}
	if (port) {
		number = strtoul(port + 1, &rest, 10);
		if (!port[1] || *rest || number == 0 || number > 65535)
			return -EINVAL;
	}
	h->port = (uint32_t)number;
	return to[0] &&
			       gantry_str_format(h->host, sizeof(h->host), "%.*s",
						 end ? (int)(end - to) : (int)strlen(to),
						 to) == 0 &&
			       h->host[0]
		       ? 0
		       : -EINVAL;
}

/* ---- what goes ---- */

static int store_fd(const struct gantry_session *s)
{
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "s/%llx/x/%llx/%llx", /* it fits */
				(unsigned long long)s->id, (unsigned long long)s->id << 40,
				(unsigned long long)GANTRY_LEDGER_STORE_BYTES);
	for (size_t i = 0; i < s->agent->kept.nentries; i++)
		if (strcmp(s->agent->kept.entries[i].name, name) == 0)
			return s->agent->kept.entries[i].fd;
	return -EBADF;
}

static uint64_t resident_bytes(const struct gantry_session *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER)
			sum += o->buffer.charged_bytes;
	}
	return sum;
}

/* How its guest comes back. */
static uint32_t flags_of(const struct gantry_handover *h, const struct gantry_session *s)
{
	bool is_seated = s->is_seated || (h->is_staged && s->doormem);

	if (s->is_relayed)
		return GANTRY_IMAGE_RELAYED;
	if (is_seated)
		return GANTRY_IMAGE_SEATED | (s->has_key ? GANTRY_IMAGE_KEYED : 0);
	return GANTRY_IMAGE_KEYED;
}

static void fill_image(const struct gantry_handover *h, const struct gantry_session *s,
		       struct gantry_image_session *image)
{
	const struct gantry_agent *a = s->agent;

	*image = (struct gantry_image_session){
		.ledger_version = GANTRY_LEDGER_VERSION,
		.wire_version = s->version,
		.nqueues = s->ledger.nqueues,
		.nslots = s->ledger.nslots,
		.segment_bytes = s->shape.segment.segment_bytes,
		.slab_bytes = s->shape.slab_bytes,
		.store_bytes = store_fd(s) >= 0 ? GANTRY_LEDGER_STORE_BYTES : 0,
		.virtual_bytes = s->shape.virtual_bytes,
		.mem_bytes = s->shape.mem_bytes,
		.session_id = s->is_adopted ? s->guest_session : s->id,
		.epoch = s->ledger.hdr->epoch,
		.resident_bytes = resident_bytes(s),
		.attached_unix_ns = s->attached_unix_ns,
		.flags = flags_of(h, s) | (h->is_lazy ? GANTRY_IMAGE_LAZY : 0),
		.inflight = s->ledger.hdr->inflight,
		.ndevices = a->ndevices,
	};
	/* Where there is none, what nobody knows. */
	memcpy(image->nonce, image->flags == GANTRY_IMAGE_SEATED ? h->nonce : s->nonce,
	       sizeof(image->nonce));
	memcpy(image->token, h->token, sizeof(image->token));
	memcpy(image->program, s->program, sizeof(image->program));
	/* they fit */
	(void)gantry_str_copy(image->tenant, sizeof(image->tenant), s->tenant->conf.name);
	for (uint32_t i = 0; i < a->ndevices; i++) {
		(void)gantry_str_copy(image->devices[i].name, sizeof(image->devices[i].name),
				      a->devices[i].conf.name);
		image->devices[i].kind = a->devices[i].kind;
	}
}

/* ---- it stays, or comes back ---- */

static void stay(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);
	bool followed;

	if (!s || h->is_dry)
		return;
	gantry_failpoint(GANTRY_FAILPOINT_OUT_BACK);
	followed = s->is_following;
	/* Its machine may have stopped by now, to leave without it and come back: until it is said that it stays, too. */
	if (!s->conn || !s->doormem || !gantry_doormem_is_leaving(s->doormem))
		gantry_seat_follow(s, false);
	/* a worker that it gets is not ours to end */
	gantry_handover_enter(h, GANTRY_HANDOVER_FAILED);
	gantry_handover_go_on(s, h->gathered_by);
	if (s->unadopted && !s->conn) {
		gantry_adopt_await(s);
		return;
	}
	/* Its relay was sent away before its worker was told to end, which may not have happened yet. */
	if (s->is_relayed && !s->conn)
		gantry_vsock_await(s);
	if (followed && !s->conn) { /* its machine has left, and may come back */
		gantry_seat_await(s);
		return;
	}
	if (s->phase != GANTRY_PHASE_HELD)
		return;
	if (!s->is_relayed && !s->conn) { /* gone since an agent before us offered it */
		gantry_detach(s, GANTRY_E_CLOSED, "the guest is gone");
		return;
	}
	s->died_ns = 0; /* it was we who ended its worker */
	s->phase = GANTRY_PHASE_RECOVERING;
	gantry_recover_session(s);
}

/* ---- held still ---- */

/* A host that is slow, or means to be: not even its own guest is worth that. */
static void still_for_long(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;
	char limit[GANTRY_QUANTITY_MAX], text[GANTRY_MOVER_TEXT];

	(void)fd;
	(void)what;
	gantry_duration_format_rounded(h->agent->config->agent.migration_still_ns, limit);
	(void)gantry_str_format(text, sizeof(text), /* it fits */
				"the rest of it was not at %.60s in %s, for which it may stand "
				"still (migration_still)",
				h->host, limit);
	gantry_handover_turn_back(h, GANTRY_ADMIN_TIMEOUT, text);
}

static void be_still(struct gantry_handover *h)
{
	gantry_handover_enter(h, GANTRY_HANDOVER_STILL);
	if (gantry_timer_set(h->agent, &h->timer, h->agent->config->agent.migration_still_ns,
			     still_for_long, h) < 0) {
		gantry_handover_turn_back(h, GANTRY_ADMIN_FAILED, "no memory for a timer");
		return;
	}
	gantry_mover_send_msg(h->mover, GANTRY_MOVER_FROZEN, 0, h->token, NULL, NULL, 0);
}

void gantry_handover_hold(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);

	gantry_failpoint(GANTRY_FAILPOINT_OUT_HOLD);
	h->held_ns = gantry_now_ns();
	if (s->unadopted) { /* nothing of it has run here */
		be_still(h);
		return;
	}
	gantry_handover_come_to_rest(h, s);
}

/* Nobody says what has become of its machine: it stays. */
static void too_late(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;
	char limit[GANTRY_QUANTITY_MAX];

	(void)fd;
	(void)what;
	gantry_duration_format_rounded(h->agent->config->agent.machine_grace_ns, limit);
	h->code = GANTRY_ADMIN_FAILED;
	(void)gantry_str_format(
		h->text, sizeof(h->text), /* it fits */
		"nobody has said within %s whether its machine is at the other host (machine_grace)",
		limit);
	step(h, GANTRY_HANDOVER_CANCEL);
}

static void prepared(struct gantry_handover *h)
{
	h->is_prepared = true;
	gantry_event_free(&h->timer); /* still_for_long() */
	if (!h->is_staged || h->may_commit)
		step(h, GANTRY_HANDOVER_PREPARED);
	else if (gantry_timer_set(h->agent, &h->timer, h->agent->config->agent.machine_grace_ns,
				  too_late, h) < 0)
		step(h, GANTRY_HANDOVER_CANCEL);
}

static void ready(struct gantry_handover *h)
{
	h->is_ready = true;
	if (!h->is_staged || h->may_hold)
		gantry_handover_freeze(h, session_of(h));
}

void gantry_handover_proceed(struct gantry_handover *h, bool commit)
{
	bool was_allowed = h->may_hold;

	if (gantry_handover_is_over(h) || h->state != GANTRY_SOURCE_OWNER)
		return;
	h->may_hold = true;
	h->may_commit |= commit;
	if (!was_allowed && h->is_ready && h->phase == GANTRY_HANDOVER_COPYING && session_of(h)) {
		gantry_handover_freeze(h, session_of(h));
	} else if (commit && h->is_prepared && h->phase == GANTRY_HANDOVER_STILL) {
		gantry_event_free(&h->timer); /* too_late() */
		step(h, GANTRY_HANDOVER_PREPARED);
	}
}

bool gantry_handover_worker_gone(struct gantry_session *s)
{
	struct gantry_handover *h = gantry_handover_of(s);

	if (!h || h->is_incoming || h->phase != GANTRY_HANDOVER_STILL)
		return false;
	gantry_failpoint(GANTRY_FAILPOINT_OUT_BURIED);
	s->phase = GANTRY_PHASE_HELD;
	be_still(h);
	return true;
}

/* ---- the hand-over ---- */

static void release(struct gantry_handover *h)
{
	struct gantry_session *s = session_of(h);
	char text[GANTRY_MOVER_TEXT];

	h->downtime_ns = h->held_ns ? gantry_now_ns() - h->held_ns : 0;
	h->agent->counters.handover_downtime_ns = h->downtime_ns;
	h->agent->counters.handover_bytes += h->sent_bytes;
	(void)gantry_str_format(text, sizeof(text), "the session has moved to %.80s", h->host);
	if (h->is_lazy && h->mover) { /* which has the session's memory */
		gantry_handover_enter(h, GANTRY_HANDOVER_SERVING);
		(void)gantry_str_format(h->text, sizeof(h->text), /* it fits */
					"%s, and fetches what it uses", text);
		gantry_event(h->agent, "migration-serving", NULL, s, NULL, "%llu: %s",
			     (unsigned long long)h->id, h->text);
	} else {
		gantry_handover_finish(h, 0, "%s", text);
	}
	if (!s)
		return;
	s->has_moved = true;
	gantry_detach(s, s->is_relayed ? GANTRY_E_DETACHED : GANTRY_E_MOVED, text);
	gantry_failpoint(GANTRY_FAILPOINT_OUT_RELEASED);
}

static void give_up(struct gantry_handover *h)
{
	int code = h->code ? h->code : GANTRY_ADMIN_FAILED;
	char why[GANTRY_MOVER_TEXT];

	(void)gantry_str_copy(why, sizeof(why),
			      h->text[0] ? h->text : "the mover ended"); /* fits */
	stay(h);
	gantry_handover_finish(h, code, "%.120s; the session stays here", why);
}

static void act(struct gantry_handover *h, const struct gantry_handover_step *s, uint32_t before)
{
	h->state = s->to;
	if ((s->actions & GANTRY_HANDOVER_RECORD) && gantry_handover_record(h->agent) < 0 &&
	    before == GANTRY_SOURCE_OWNER) {
		/* Not written down, so not decided. What could not be recorded later is asked for again. */
		h->state = before;
		(void)gantry_str_copy(h->text, sizeof(h->text),
				      "the decision could not be written to the journal");
		step(h, GANTRY_HANDOVER_CANCEL);
		return;
	}
	if (s->actions & GANTRY_HANDOVER_SEND_COMMIT) {
		gantry_failpoint(GANTRY_FAILPOINT_OUT_OFFERED);
		gantry_mover_send_msg(h->mover, GANTRY_MOVER_COMMIT, 0, h->token, NULL, NULL, 0);
		gantry_failpoint(GANTRY_FAILPOINT_OUT_SENT);
	}
	if (s->actions & GANTRY_HANDOVER_SEND_FORGET)
		gantry_mover_send_msg(h->mover, GANTRY_MOVER_FORGET, 0, h->token, NULL, NULL, 0);
	if (s->actions & GANTRY_HANDOVER_SEND_ASK)
		gantry_handover_ask(h);
	if (s->actions & GANTRY_HANDOVER_RELEASE) {
		gantry_failpoint(GANTRY_FAILPOINT_OUT_GONE);
		release(h);
	}
	if (s->actions & GANTRY_HANDOVER_RUN)
		give_up(h);
}

static void step(struct gantry_handover *h, enum gantry_handover_event event)
{
	struct gantry_handover_step s;

	if (gantry_handover_source_step(h->state, event, &s))
		act(h, &s, h->state);
}

void gantry_handover_turn_back(struct gantry_handover *h, int code, const char *text)
{
	h->code = code;
	(void)gantry_str_copy(h->text, sizeof(h->text), text); /* cut is better than unsaid */
	step(h, GANTRY_HANDOVER_CANCEL);
}

/* ---- what the mover says ---- */

static void take_progress(struct gantry_handover *h, const struct gantry_mover_msg *msg)
{
	h->rounds = msg->round + 1;
	h->sent_bytes = msg->value[1];
	h->page_bytes = msg->value[2];
	if (msg->code)
		gantry_event(h->agent, "migration-round", NULL, session_of(h), NULL,
			     "%llu: round %u: %llu bytes in %llu us", (unsigned long long)h->id,
			     msg->round, (unsigned long long)msg->value[0],
			     (unsigned long long)(msg->value[3] / 1000));
}

static void mover_said(void *arg, const struct gantry_mover_msg *msg, size_t len)
{
	struct gantry_handover *h = arg;

	(void)len;
	switch (msg->kind) {
	case GANTRY_MOVER_CONNECTED:
		gantry_failpoint(GANTRY_FAILPOINT_OUT_CONNECTED);
		if (h->phase == GANTRY_HANDOVER_CONNECTING)
			gantry_handover_enter(h, GANTRY_HANDOVER_COPYING);
		break;
	case GANTRY_MOVER_PROGRESS:
		take_progress(h, msg);
		break;
	case GANTRY_MOVER_ACCEPTED:
		if (h->is_dry)
			gantry_handover_finish(h, 0, "%.80s would take it", h->host);
		break;
	case GANTRY_MOVER_FREEZE:
		if (h->phase == GANTRY_HANDOVER_COPYING && session_of(h))
			ready(h);
		break;
	case GANTRY_MOVER_PREPARED:
		gantry_failpoint(GANTRY_FAILPOINT_OUT_PREPARED);
		if (h->phase == GANTRY_HANDOVER_STILL)
			prepared(h);
		break;
	case GANTRY_MOVER_PULLED:
		if (h->phase == GANTRY_HANDOVER_SERVING)
			h->pulled_bytes += msg->value[1];
		break;
	case GANTRY_MOVER_OWNED:
		gantry_failpoint(GANTRY_FAILPOINT_OUT_OWNED);
		step(h, GANTRY_HANDOVER_OWNED);
		break;
	case GANTRY_MOVER_UNKNOWN:
		(void)gantry_str_copy(h->text, sizeof(h->text),
				      "the other host did not take it"); /* fits */
		step(h, GANTRY_HANDOVER_UNKNOWN);
		break;
	case GANTRY_MOVER_FAILED:
		h->code = msg->code && msg->code <= 124 ? (int)msg->code : GANTRY_ADMIN_FAILED;
		memcpy(h->text, msg->text, sizeof(h->text));
		break;
	default:
		break; /* of another build */
	}
}

/* It has said why, unless the other host wanted nothing more. */
static void served(struct gantry_handover *h)
{
	char why[GANTRY_MOVER_TEXT];

	(void)gantry_str_copy(why, sizeof(why), h->code ? h->text : ""); /* fits */
	gantry_handover_finish(
		h, h->code, "the session has moved to %.60s; of %llu KiB %llu were fetched%s%.40s",
		h->host, (unsigned long long)(h->owned_bytes >> 10),
		(unsigned long long)(h->pulled_bytes >> 10), why[0] ? ": " : "", why);
}

static void mover_gone(void *arg)
{
	struct gantry_handover *h = arg;

	h->mover = NULL;
	if (h->phase == GANTRY_HANDOVER_SERVING)
		served(h);
	else if (!gantry_handover_is_over(h))
		step(h, GANTRY_HANDOVER_CANCEL);
}

static const struct gantry_mover_events out_events = { mover_said, mover_gone };

/* ---- questions ---- */

static void ask_now(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_mover_start start;

	(void)fd;
	(void)what;
	gantry_failpoint(GANTRY_FAILPOINT_OUT_ASK);
	gantry_mover_start_init(h->agent, &start, GANTRY_MOVER_QUERY);
	(void)gantry_str_copy(start.host, sizeof(start.host), h->host); /* as long */
	start.port = h->port;
	memcpy(start.session.token, h->token, sizeof(h->token));
	if (gantry_mover_spawn(h->agent, &start, NULL, 0, &out_events, h, &h->mover, &err) < 0)
		gantry_handover_ask(h);
}

void gantry_handover_ask(struct gantry_handover *h)
{
	uint64_t since_ns = gantry_now_ns() - (h->held_ns ? h->held_ns : h->began_ns);

	gantry_mover_end(h->mover);
	h->mover = NULL;
	if (h->phase != GANTRY_HANDOVER_ASKING)
		gantry_event(h->agent, "migration-in-doubt", NULL, session_of(h), NULL,
			     "%llu: %.60s was offered the session and has not said whether it has "
			     "it; it runs nowhere here until it says",
			     (unsigned long long)h->id, h->host);
	gantry_handover_enter(h, GANTRY_HANDOVER_ASKING);
	/* or nobody asks, and an agent's restart does */
	(void)gantry_timer_set(h->agent, &h->timer,
			       since_ns > ASKED_OFTEN_NS ? ASK_LATER_NS : ASK_FIRST_NS, ask_now, h);
}

/* ---- begin, cancel, end ---- */

static int spawn(struct gantry_handover *h, struct gantry_session *s, uint64_t bandwidth,
		 struct gantry_err *err)
{
	const int fds[] = { s->segment_fd, s->slab_fd, s->ledger_fd, store_fd(s) };
	struct gantry_mover_start start;

	gantry_mover_start_init(h->agent, &start, GANTRY_MOVER_SEND);
	(void)gantry_str_copy(start.host, sizeof(start.host), h->host); /* as long */
	start.port = h->port;
	start.rounds_max = h->is_dry ? 0 : ROUNDS_MAX;
	start.bandwidth = bandwidth;
	start.segment_off = s->segment_off;
	start.pause_ns = PAUSE_NS;
	fill_image(h, s, &start.session);
	(void)gantry_str_copy(start.session.host, sizeof(start.session.host), start.own_host);
	h->owned_bytes = start.session.resident_bytes;
	/* For guests that come back to the old host's door; a key is nobody's business here once it has gone. */
	if (s->is_relayed)
		memcpy(h->nonce, s->nonce, sizeof(h->nonce));
	else
		memset(h->nonce, 0, sizeof(h->nonce));
	return gantry_mover_spawn(h->agent, &start, fds, fds[3] >= 0 ? 4 : 3, &out_events, h,
				  &h->mover, err);
}

int gantry_handover_begin(struct gantry_session *s, const struct gantry_handover_ask *ask,
			  uint64_t *ret_id, struct gantry_err *err)
{
	struct gantry_handover *h;
	int r = movable(s, ask->is_staged, err);
	uint32_t n;

	if (r != 0)
		return r;
	/* An agent before this one fetched for it, or its worker died in the moment when that broke off. */
	if (s->worker && gantry_pull_away(s, &n) > 0) {
		gantry_pull_lost(s, "nobody fetches them any more");
		(void)gantry_err_set(err, -EBUSY,
				     "%u buffers of session %llu, which came lazily, cannot be "
				     "fetched any more, and its worker is told just now; try again",
				     n, (unsigned long long)s->id);
		return GANTRY_ADMIN_BUSY;
	}
	if (ask->is_lazy && (s->is_seated || (ask->is_staged && s->doormem))) {
		(void)gantry_err_set(
			err, -ENOTSUP,
			"session %llu goes with its machine, which waits for all of it: not lazily",
			(unsigned long long)s->id);
		return GANTRY_ADMIN_UNSUPPORTED;
	}
	if (!s->agent->config->agent.migration_certificates[0]) {
		(void)gantry_err_set(err, -ENOENT,
				     "this agent has no certificates: set migration_certificates "
				     "in [agent]");
		return GANTRY_ADMIN_UNSUPPORTED;
	}
	h = gantry_handover_new(s->agent, false);
	if (!h || getrandom(h->token, sizeof(h->token), 0) != (ssize_t)sizeof(h->token) ||
	    getrandom(h->nonce, sizeof(h->nonce), 0) != (ssize_t)sizeof(h->nonce)) {
		(void)gantry_err_set(err, -ENOMEM, "no memory for a migration");
		return GANTRY_ADMIN_FAILED;
	}
	h->session_id = s->id;
	h->is_dry = ask->is_dry;
	h->is_staged = ask->is_staged;
	h->is_lazy = ask->is_lazy && !ask->is_dry;
	(void)gantry_str_copy(h->tenant, sizeof(h->tenant), s->tenant->conf.name); /* it fits */
	if (parse_host(h, ask->to) < 0) {
		gantry_handover_finish(h, GANTRY_ADMIN_USAGE, "%.60s is no HOST or HOST:PORT",
				       ask->to);
		(void)gantry_err_set(err, -EINVAL, "%s", h->text);
		return GANTRY_ADMIN_USAGE;
	}
	if (spawn(h, s, ask->bandwidth, err) < 0) {
		gantry_handover_finish(h, GANTRY_ADMIN_FAILED, "%.150s", err->text);
		return GANTRY_ADMIN_FAILED;
	}
	if (!h->is_dry)
		gantry_seat_drift_no_more(s);
	if (s->unadopted && !h->is_dry)
		gantry_adopt_withhold(s);
	if (h->is_staged && s->doormem && !s->unadopted && !h->is_dry)
		gantry_seat_follow(s, true);
	if (!ask->is_dry)
		gantry_handover_gather_ahead(h, s);
	gantry_failpoint(GANTRY_FAILPOINT_OUT_BEGUN);
	gantry_event(h->agent, "migration-begun", NULL, s, NULL, "%llu: to %.80s port %u%s",
		     (unsigned long long)h->id, h->host, h->port,
		     h->is_dry	    ? ", to see whether it could"
		     : h->is_staged ? ", with its machine"
				    : "");
	*ret_id = h->id;
	gantry_journal_touch(h->agent); /* numbers go on after a restart */
	return 0;
}

int gantry_handover_cancel(struct gantry_handover *h, struct gantry_err *err)
{
	if (gantry_handover_is_over(h)) {
		(void)gantry_err_set(err, -EALREADY, "migration %llu is over: %s",
				     (unsigned long long)h->id, h->text);
		return GANTRY_ADMIN_FAILED;
	}
	if (h->is_incoming) {
		(void)gantry_err_set(err, -ENOTSUP,
				     "migration %llu comes from %.60s: cancel it there",
				     (unsigned long long)h->id, h->host);
		return GANTRY_ADMIN_UNSUPPORTED;
	}
	if (h->phase == GANTRY_HANDOVER_SERVING) {
		(void)gantry_err_set(err, -EBUSY,
				     "migration %llu cannot be taken back: the session runs at "
				     "%.60s, which fetches what it uses",
				     (unsigned long long)h->id, h->host);
		return GANTRY_ADMIN_BUSY;
	}
	if (h->state != GANTRY_SOURCE_OWNER) {
		(void)gantry_err_set(err, -EBUSY,
				     "migration %llu cannot be taken back: %.60s may have the "
				     "session already, and is asked",
				     (unsigned long long)h->id, h->host);
		return GANTRY_ADMIN_BUSY;
	}
	h->code = GANTRY_ADMIN_FAILED;
	(void)gantry_str_copy(h->text, sizeof(h->text), "cancelled"); /* it fits */
	step(h, GANTRY_HANDOVER_CANCEL);
	return 0;
}

/* One that is offered is for whoever serves next to ask about. */
static void stop_one(struct gantry_handover *h)
{
	if (gantry_handover_is_over(h) || h->phase == GANTRY_HANDOVER_PULLING ||
	    (!h->is_incoming && h->state != GANTRY_SOURCE_OWNER))
		return;
	h->code = GANTRY_ADMIN_BUSY;
	/* it fits */
	(void)gantry_str_format(h->text, sizeof(h->text),
				"another build of the agent takes over%s; ask again in a moment",
				h->is_incoming ? " there" : "");
	if (h->is_incoming)
		gantry_mover_send_msg(h->mover, GANTRY_MOVER_CANCEL, h->code, h->token, h->text,
				      NULL, 0);
	else
		step(h, GANTRY_HANDOVER_CANCEL);
}

void gantry_handovers_stop(struct gantry_agent *a)
{
	if (a->handover_event)
		(void)event_del(a->handover_event); /* it is one of ours */
	gantry_list_for_each_safe(&a->handovers, struct gantry_handover, link, h)
		stop_one(h);
}

void gantry_handovers_go_on(struct gantry_agent *a)
{
	if (a->handover_event)
		(void)event_add(a->handover_event,
				NULL); /* it was there before: no memory needed */
}

bool gantry_handovers_under_way(const struct gantry_agent *a)
{
	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (!gantry_handover_is_over(h) && h->phase != GANTRY_HANDOVER_ASKING)
			return true;
	return false;
}

bool gantry_handovers_fetch(const struct gantry_agent *a)
{
	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (h->phase == GANTRY_HANDOVER_SERVING || h->phase == GANTRY_HANDOVER_PULLING)
			return true;
	return false;
}

void gantry_handover_session_ends(struct gantry_session *s)
{
	gantry_list_for_each_safe(&s->agent->handovers, struct gantry_handover, link, h) {
		struct gantry_handover_step step;

		if (h->session_id != s->id || h->phase == GANTRY_HANDOVER_SERVING)
			continue;
		if (h->is_incoming &&
		    gantry_handover_destination_step(h->state, GANTRY_HANDOVER_ENDED, &step)) {
			h->state = step.to;
			if (step.actions & GANTRY_HANDOVER_RECORD)
				(void)gantry_handover_record(
					s->agent); /* or it says owner: as good */
		}
		if (h->phase == GANTRY_HANDOVER_PULLING)
			gantry_pull_end(h, "it has ended");
		else if (!gantry_handover_is_over(h))
			gantry_handover_finish(h, GANTRY_ADMIN_FAILED,
					       "the session ended meanwhile");
	}
}
