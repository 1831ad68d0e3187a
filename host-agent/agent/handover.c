/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/handover.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/mover.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"

/* ---- the list ---- */

static void handover_free(struct gantry_handover *h)
{
	gantry_mover_end(h->mover);
	gantry_event_free(&h->timer);
	gantry_fd_close(h->staging_fd);
	gantry_pull_forget(h);
	gantry_list_remove(&h->link);
	free(h);
}

void gantry_handover_discard(struct gantry_handover *h)
{
	handover_free(h);
}

/* What the other side may still ask about. */
static bool is_owed(const struct gantry_handover *h)
{
	return h->is_incoming
		       ? h->state == GANTRY_DESTINATION_OWNER || h->state == GANTRY_DESTINATION_OVER
		       : h->state == GANTRY_SOURCE_OFFERED;
}

/* What is settled, or never was anything, goes first; what is owed an answer only when there is too much of it. */
static void forget_old(struct gantry_agent *a)
{
	uint32_t nsettled = 0, nowed = 0;

	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h) {
		nsettled += gantry_handover_is_over(h) && !is_owed(h);
		nowed += gantry_handover_is_over(h) && is_owed(h);
	}
	gantry_list_for_each_safe(&a->handovers, struct gantry_handover, link, h) {
		if (!gantry_handover_is_over(h))
			continue;
		if (!is_owed(h) && nsettled > GANTRY_HANDOVERS_KEPT) {
			nsettled--;
			handover_free(h);
		} else if (is_owed(h) && h->state == GANTRY_DESTINATION_OVER &&
			   nowed > GANTRY_TOMBSTONES_MAX) {
			nowed--;
			handover_free(h);
		}
	}
}

void gantry_handover_enter(struct gantry_handover *h, enum gantry_handover_phase phase)
{
	struct gantry_handover_mark *last = h->nmarks ? &h->marks[h->nmarks - 1] : NULL;

	h->phase = phase;
	if (last && last->phase == phase)
		return;
	if (h->nmarks < GANTRY_HANDOVER_MARKS)
		last = &h->marks[h->nmarks++];
	*last = (struct gantry_handover_mark){ phase, gantry_now_ns(), h->page_bytes };
}

struct gantry_handover *gantry_handover_new(struct gantry_agent *a, bool is_incoming)
{
	struct gantry_handover *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->agent = a;
	h->id = ++a->last_handover;
	h->is_incoming = is_incoming;
	h->staging_fd = -EBADF;
	h->began_ns = gantry_now_ns();
	gantry_handover_enter(h, GANTRY_HANDOVER_CONNECTING);
	gantry_list_init(&h->pulls);
	gantry_list_push_back(&a->handovers, &h->link);
	forget_old(a);
	return h;
}

bool gantry_handover_is_over(const struct gantry_handover *h)
{
	return h->phase >= GANTRY_HANDOVER_DONE;
}

void gantry_handover_finish(struct gantry_handover *h, int code, const char *fmt, ...)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(h->text, sizeof(h->text), fmt, ap); /* cut is better than unsaid */
	va_end(ap);
	h->code = code;
	gantry_handover_enter(h, code ? GANTRY_HANDOVER_FAILED : GANTRY_HANDOVER_DONE);
	h->ended_ns = gantry_now_ns();
	gantry_mover_end(h->mover);
	h->mover = NULL;
	gantry_event_free(&h->timer);
	h->staging_fd = gantry_fd_close(h->staging_fd);
	if (!h->is_dry && code)
		h->agent->counters.handovers_failed++;
	else if (!h->is_dry)
		h->agent->counters.handovers++;
	gantry_event(h->agent, code ? "migration-failed" : "migration-done", NULL, s, NULL,
		     "%llu: %s", (unsigned long long)h->id, h->text);
}

struct gantry_handover *gantry_handover_find(struct gantry_agent *a, uint64_t id)
{
	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (h->id == id)
			return h;
	return NULL;
}

struct gantry_handover *gantry_handover_by_token(struct gantry_agent *a, bool is_incoming,
						 const uint8_t *token)
{
	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (h->is_incoming == is_incoming && !h->is_dry &&
		    memcmp(h->token, token, sizeof(h->token)) == 0)
			return h;
	return NULL;
}

struct gantry_handover *gantry_handover_of(const struct gantry_session *s)
{
	gantry_list_for_each(&s->agent->handovers, struct gantry_handover, link, h)
		if (h->session_id == s->id && !gantry_handover_is_over(h))
			return h;
	return NULL;
}

const struct gantry_handover *gantry_handover_gone(const struct gantry_agent *a,
						   const uint8_t *nonce)
{
	static const uint8_t none[16];

	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (!h->is_incoming && h->state == GANTRY_SOURCE_GONE &&
		    memcmp(h->nonce, none, sizeof(none)) != 0 &&
		    memcmp(h->nonce, nonce, sizeof(h->nonce)) == 0)
			return h;
	return NULL;
}

struct gantry_handover *gantry_handover_staged(const struct gantry_session *s)
{
	struct gantry_handover *h = gantry_handover_of(s);

	return h && h->is_staged && !h->is_incoming ? h : NULL;
}

bool gantry_handover_is_offered(const struct gantry_session *s)
{
	const struct gantry_handover *h = gantry_handover_of(s);

	return h && !h->is_incoming && h->state == GANTRY_SOURCE_OFFERED;
}

const char *gantry_handover_phase_text(enum gantry_handover_phase phase)
{
	static const char *const names[] = {
		[GANTRY_HANDOVER_CONNECTING] = "connecting", [GANTRY_HANDOVER_COPYING] = "copying",
		[GANTRY_HANDOVER_DRAINING] = "draining",     [GANTRY_HANDOVER_STILL] = "still",
		[GANTRY_HANDOVER_ASKING] = "in doubt",	     [GANTRY_HANDOVER_SERVING] = "serving",
		[GANTRY_HANDOVER_PULLING] = "pulling",	     [GANTRY_HANDOVER_DONE] = "done",
		[GANTRY_HANDOVER_FAILED] = "failed",
	};

	return names[phase];
}

const char *gantry_handover_phase_name(const struct gantry_handover *h)
{
	if (h->is_staged && h->is_prepared && h->phase == GANTRY_HANDOVER_STILL)
		return "prepared";
	if (h->is_staged && h->is_ready && h->phase == GANTRY_HANDOVER_COPYING)
		return "ready";
	return gantry_handover_phase_text(h->phase);
}

void gantry_handovers_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->handovers, struct gantry_handover, link, h)
		handover_free(h);
	gantry_movers_forget(a);
}

/* ---- the journal ---- */

int gantry_handover_record(struct gantry_agent *a)
{
	gantry_journal_now(a);
	return a->journal_failed ? -EIO : 0;
}

bool gantry_handover_line(const struct gantry_handover *h, struct gantry_journal_line *ret_line)
{
	if (!is_owed(h) && h->state != (h->is_incoming ? (uint32_t)GANTRY_DESTINATION_SETTLED
						       : (uint32_t)GANTRY_SOURCE_GONE))
		return false;
	*ret_line = (struct gantry_journal_line){
		.kind = GANTRY_JOURNAL_HANDOVER,
		.id = h->session_id,
		.state = h->state,
		.port = h->port,
		.is_incoming = h->is_incoming,
		.guest_session = h->guest_session,
	};
	memcpy(ret_line->token.bytes, h->token, sizeof(h->token));
	memcpy(ret_line->nonce, h->nonce, sizeof(h->nonce));
	(void)gantry_str_copy(ret_line->host, sizeof(ret_line->host), h->host); /* as long */
	return true;
}

static void restore_incoming(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);

	gantry_handover_enter(h, GANTRY_HANDOVER_DONE);
	(void)gantry_str_copy(h->text, sizeof(h->text), "before the agent's restart"); /* fits */
	if (s) {
		s->guest_session = h->guest_session;
		s->is_adopted = true;
		s->is_arriving = false;
	} else if (h->state == GANTRY_DESTINATION_OWNER) {
		h->state = GANTRY_DESTINATION_OVER;
	}
}

void gantry_handover_restore(struct gantry_agent *a, const struct gantry_journal_line *line)
{
	bool known = line->is_incoming ? line->state >= GANTRY_DESTINATION_OWNER &&
						 line->state < GANTRY_DESTINATION_NSTATES
				       : line->state == GANTRY_SOURCE_OFFERED ||
						 line->state == GANTRY_SOURCE_GONE;
	struct gantry_handover *h = known ? gantry_handover_new(a, line->is_incoming) : NULL;

	if (!h)
		return;
	h->session_id = line->id;
	h->state = line->state;
	h->port = line->port;
	h->guest_session = line->guest_session;
	memcpy(h->token, line->token.bytes, sizeof(h->token));
	memcpy(h->nonce, line->nonce, sizeof(h->nonce));
	(void)gantry_str_copy(h->host, sizeof(h->host), line->host); /* as long */
	if (h->is_incoming) {
		restore_incoming(h);
		return;
	}
	if (h->state == GANTRY_SOURCE_GONE) {
		struct gantry_session *s = gantry_session_find(a, h->session_id);

		/* The agent before us died before it had let go of it: it is the other host's all the same. */
		if (s)
			s->has_moved = true;
		gantry_handover_enter(h, GANTRY_HANDOVER_DONE);
		(void)gantry_str_format(h->text, sizeof(h->text), /* it fits */
					"the session has moved to %.80s", h->host);
		return;
	}
	/* Offered by the agent before us: nobody here runs it until its answer is known. */
	gantry_handover_enter(h, GANTRY_HANDOVER_ASKING);
	if (gantry_session_find(a, h->session_id))
		gantry_handover_ask(h);
	else
		gantry_handover_finish(h, 1, "the session was lost with the agent before");
}
