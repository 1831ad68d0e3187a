/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session that came lazily: it runs here, and the buffers that its tasks use are fetched from where it was, one after the other,
 * by the mover that brought it. That mover is all that leads to them: with it, with either agent or with the link, what was not
 * fetched is lost, which is told, and its users are.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/handover_pull.h"
#include "host-agent/agent/mover.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/worker.h"
#include "worker.pb-c.h"

#define PULLS_MAX 8192u /* one for each buffer */
#define LOOK_NS	  GANTRY_NS_PER_S
/* After the last that was wanted: by then its worker has taken note. */
#define SOON_NS	  (20 * GANTRY_NS_PER_MS)
#define ANSWER_NS (5 * GANTRY_NS_PER_S)

struct gantry_pull {
	struct gantry_list link; /* h->pulls: the first may be with the mover */
	uint32_t slot;
	uint64_t off;
	uint64_t bytes;
	bool is_asked;
	bool forgotten; /* the worker that wanted it is gone */
};

/* ---- what is where ---- */

static bool is_away(const struct gantry_ledger_object *o)
{
	return o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
	       gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_AWAY;
}

static uint64_t page_up(uint64_t bytes)
{
	return (bytes + GANTRY_PAGE - 1) & ~(uint64_t)(GANTRY_PAGE - 1);
}

uint64_t gantry_pull_away(const struct gantry_session *s, uint32_t *ret_n)
{
	uint64_t bytes = 0;

	*ret_n = 0;
	for (uint32_t i = 0; s->ledger.hdr && i < GANTRY_LEDGER_NOBJECTS; i++) {
		if (!is_away(&s->ledger.objects[i]))
			continue;
		bytes += page_up(s->ledger.objects[i].buffer.bytes);
		(*ret_n)++;
	}
	return bytes;
}

void gantry_pull_mark(struct gantry_session *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    o->buffer.place == GANTRY_PLACE_SLAB && !gantry_image_goes_ahead(o))
			o->buffer.place = GANTRY_PLACE_AWAY;
	}
}

static struct gantry_handover *pulling(const struct gantry_session *s)
{
	struct gantry_handover *h = gantry_handover_of(s);

	return h && h->is_incoming && h->phase == GANTRY_HANDOVER_PULLING ? h : NULL;
}

/* ---- the worker ---- */

static void give(struct gantry_session *s, uint32_t slot, int status)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__GiveBytes bytes = GANTRY__WORKER__GIVE_BYTES__INIT;

	bytes.session_id = s->id;
	bytes.slot = slot;
	bytes.status = status;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_GIVE_BYTES;
	msg.give_bytes = &bytes;
	if (s->worker) /* a dead one's successor asks again */
		(void)gantry_call(s->worker, &msg, NULL, 0, ANSWER_NS, NULL, s);
}

/* Once for each session, of what nobody can fetch any more. */
static void tell_loss(struct gantry_session *s, const char *why)
{
	uint32_t n;
	uint64_t bytes = gantry_pull_away(s, &n);

	if (n == 0 || s->loss_told)
		return;
	s->loss_told = true;
	s->agent->counters.buffers_lost += n;
	gantry_event(s->agent, "buffers-lost", NULL, s, NULL,
		     "%u buffers with %llu KiB were at the other host yet and are lost (%s): tasks "
		     "that use them end with GANTRY_E_DEVICE_LOST",
		     n, (unsigned long long)(bytes >> 10), why);
}

/* ---- the mover ---- */

static void free_pull(struct gantry_pull *p)
{
	gantry_list_remove(&p->link);
	free(p);
}

static struct gantry_pull *first(const struct gantry_handover *h)
{
	return gantry_list_is_empty(&h->pulls)
		       ? NULL
		       : gantry_list_entry(h->pulls.next, struct gantry_pull, link);
}

static void ask_next(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	struct gantry_pull *p = first(h);

	if (!p || p->is_asked || !h->pull_ready || !s)
		return;
	p->is_asked = true;
	s->npulls++;
	gantry_mover_send_words(h->mover, GANTRY_MOVER_PULL, h->token, p->off, p->bytes);
}

void gantry_pull_ready(struct gantry_handover *h)
{
	h->pull_ready = true;
	ask_next(h);
}

static void look_again(evutil_socket_t fd, short what, void *arg);

static void wait_no_more(struct gantry_session *s)
{
	if (s->npulls && --s->npulls == 0)
		gantry_attach_serve(s->agent); /* its next worker was kept waiting */
}

void gantry_pull_came(struct gantry_handover *h, const struct gantry_mover_msg *msg)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	struct gantry_pull *p = first(h);

	if (!s || !p || !p->is_asked || msg->value[0] != p->off || msg->value[1] != p->bytes)
		return; /* of no use to anybody */
	gantry_failpoint(GANTRY_FAILPOINT_IN_PULLED);
	h->npulled++;
	h->pulled_bytes += p->bytes;
	h->agent->counters.pulled_bytes += p->bytes;
	if (!p->forgotten)
		give(s, p->slot, GANTRY_OK);
	free_pull(p);
	wait_no_more(s);
	ask_next(h);
	if (gantry_list_is_empty(&h->pulls))
		/* or the next look is later */
		(void)gantry_timer_set(h->agent, &h->timer, SOON_NS, look_again, h);
}

/* ---- what is wanted ---- */

static void look_again(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_handover *h = arg;
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	uint32_t n = 0;

	(void)fd;
	(void)what;
	/* One that is asked for may be written yet, whatever its worker has the ledger say: its place is nobody else's till then. */
	if (s && (s->npulls || gantry_pull_away(s, &n) > 0)) {
		/* or it ends with the session */
		(void)gantry_timer_set(h->agent, &h->timer, LOOK_NS, look_again, h);
		return;
	}
	gantry_pull_end(h, "all that it has left is here");
}

bool gantry_pull_begin(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	uint32_t n = 0;

	if (!s || !(h->image.flags & GANTRY_IMAGE_LAZY))
		return false;
	gantry_handover_enter(h, GANTRY_HANDOVER_PULLING);
	h->away_bytes = gantry_pull_away(s, &n);
	(void)gantry_timer_set(h->agent, &h->timer, LOOK_NS, look_again, h); /* as above */
	return true;
}

static struct gantry_pull *new_pull(struct gantry_handover *h, struct gantry_session *s,
				    uint32_t slot)
{
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct gantry_pull *p;

	if (gantry_list_count(&h->pulls) >= PULLS_MAX)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	gantry_list_init(&p->link);
	p->slot = slot;
	/* Its worker writes the ledger: what is asked for has to lie in its own slab, no more. */
	p->off = gantry_load_relaxed(&b->off);
	p->bytes = page_up(gantry_load_relaxed(&b->bytes));
	if (p->off % GANTRY_PAGE || p->bytes == 0 ||
	    !gantry_range_inside(p->off, p->bytes, s->shape.slab_bytes)) {
		free(p);
		return NULL;
	}
	return p;
}

void gantry_pull_need(struct gantry_worker *w, const Gantry__Worker__NeedBytes *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);
	struct gantry_handover *h;
	struct gantry_pull *p;

	if (!s || s->worker != w || msg->slot >= GANTRY_LEDGER_NOBJECTS ||
	    !is_away(&s->ledger.objects[msg->slot]))
		return;
	h = pulling(s);
	p = h ? new_pull(h, s, msg->slot) : NULL;
	if (!p) {
		if (!h)
			tell_loss(s, "the agent that fetched them is gone");
		give(s, msg->slot, GANTRY_E_DEVICE_LOST);
		return;
	}
	h->touched_bytes += gantry_min_u64(msg->touched_bytes, p->bytes);
	gantry_list_push_back(&h->pulls, &p->link);
	ask_next(h);
}

void gantry_pull_worker_gone(struct gantry_session *s)
{
	struct gantry_handover *h = pulling(s);

	if (!h)
		return;
	gantry_list_for_each_safe(&h->pulls, struct gantry_pull, link, p) {
		if (p->is_asked) /* it is being written: nobody else may get the place before that is over */
			p->forgotten = true;
		else
			free_pull(p);
	}
}

/* ---- the end ---- */

void gantry_pull_forget(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);

	gantry_list_for_each_safe(&h->pulls, struct gantry_pull, link, p) {
		if (s && p->is_asked)
			s->npulls--; /* nobody waits for what no mover brings */
		free_pull(p);
	}
}

void gantry_pull_end(struct gantry_handover *h, const char *why)
{
	gantry_pull_forget(h);
	gantry_mover_send_msg(h->mover, GANTRY_MOVER_FORGET, 0, h->token, NULL, NULL, 0);
	gantry_handover_finish(h, 0,
			       "the session came from %.60s; of %llu KiB there %llu were fetched, "
			       "and %.40s",
			       h->host, (unsigned long long)(h->away_bytes >> 10),
			       (unsigned long long)(h->pulled_bytes >> 10), why);
}

void gantry_pull_lost(struct gantry_session *s, const char *why)
{
	tell_loss(s, why);
	/* All that it has not got, whether it asked or not: what is lost is known, and the session may go on to other hosts. */
	give(s, GANTRY_LEDGER_NOBJECTS, GANTRY_E_DEVICE_LOST);
}

void gantry_pull_broken(struct gantry_handover *h)
{
	struct gantry_session *s = gantry_session_find(h->agent, h->session_id);
	char why[GANTRY_MOVER_TEXT];
	uint32_t n = 0;

	(void)gantry_str_copy(why, sizeof(why),
			      h->text[0] ? h->text : "the mover ended"); /* fits */
	if (s && gantry_pull_away(s, &n) > 0) {
		gantry_pull_lost(s, why);
	}
	gantry_pull_forget(h);
	gantry_handover_finish(
		h, n ? GANTRY_ADMIN_FAILED : 0,
		"the session runs here; %u buffers that it had not used yet are lost: "
		"%.80s",
		n, why);
	if (s)
		gantry_attach_serve(s->agent);
}
