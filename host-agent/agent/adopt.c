/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/adopt.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/deadline.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/move_in.h"
#include "host-agent/agent/seat.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"
#include "proto/door.h"
#include "proto/wire.h"

#define MAX_STANDBYS 64u

/* ---- keys ---- */

/* Takes as long whatever is different. */
static bool same_key(const uint8_t a[16], const uint8_t b[16])
{
	uint8_t differ = 0;

	for (int i = 0; i < 16; i++)
		differ |= (uint8_t)(a[i] ^ b[i]);
	return differ == 0;
}

static void drop_kept(const struct gantry_session *s)
{
	gantry_keep_drop_tree(s->agent, "s/%llx/key/", (unsigned long long)s->id);
	gantry_keep_drop_tree(s->agent, "s/%llx/heir/", (unsigned long long)s->id);
}

/* Under a descriptor that stays for as long as the session: which one it is does not matter. */
static void keep_key(struct gantry_session *s)
{
	char hex[2 * sizeof(s->nonce) + 1];

	drop_kept(s);
	(void)gantry_hex_encode(s->nonce, sizeof(s->nonce), hex, sizeof(hex)); /* it fits */
	gantry_keep(s->agent, s->ledger_fd, s->unadopted ? GANTRY_KEPT_HEIR : GANTRY_KEPT_KEY,
		    (unsigned long long)s->id, hex);
}

/* For this agent; for the next one it is when what is kept of it is dropped. */
static void spend_key(struct gantry_session *s)
{
	memset(s->nonce, 0, sizeof(s->nonce));
	s->has_key = false;
	s->unadopted = false;
}

static int make_key(struct gantry_session *s)
{
	uint8_t key[sizeof(s->nonce)];

	if (s->is_relayed)
		return GANTRY_E_UNSUPPORTED;
	if (gantry_handover_of(s) &&
	    gantry_handover_of(s)->phase !=
		    GANTRY_HANDOVER_PULLING) /* the key that it goes with is written down already */
		return GANTRY_E_AGAIN;
	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return GANTRY_E_INTERNAL;
	memcpy(s->nonce, key, sizeof(key));
	s->has_key = true;
	keep_key(s);
	return 0;
}

void gantry_adopt_key(struct gantry_conn *c, const struct gantry_door_key *msg)
{
	struct gantry_door_keyed answer = { .status = make_key(c->session) };

	gantry_door_header_init(&answer.h, GANTRY_DOOR_KEYED, msg->h.tag);
	if (answer.status == 0)
		memcpy(answer.key, c->session->nonce, sizeof(answer.key));
	(void)gantry_conn_send(c, &answer, sizeof(answer)); /* who does not read is gone by now */
}

/* ---- who takes what over ---- */

static struct gantry_session *find_session(const struct gantry_conn *c)
{
	gantry_list_for_each(&c->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == c->tenant && s->awaits_guest && s->unadopted &&
		    same_key(s->nonce, c->hello.nonce))
			return s;
	return NULL;
}

static struct gantry_conn *find_standby(const struct gantry_session *s)
{
	gantry_list_for_each(&s->tenant->standbys, struct gantry_conn, link, c)
		if (same_key(s->nonce, c->hello.nonce))
			return c;
	return NULL;
}

static void refuse(struct gantry_conn *c, int status, const char *text)
{
	c->agent->counters.adoptions_refused++;
	gantry_event(c->agent, "adoption-refused", c->tenant, NULL, NULL, "pid %d: %s", (int)c->pid,
		     text);
	gantry_conn_refuse(c, status, text);
}

/* Its memory is where it stays: it gets a worker. */
static void serve(struct gantry_session *s)
{
	s->died_ns = gantry_now_ns();
	s->phase = GANTRY_PHASE_RECOVERING;
	gantry_attach_want(s);
}

static void moved_in(struct gantry_session *s, int r, const struct gantry_err *err)
{
	if (r < 0)
		gantry_detach(s, GANTRY_E_INTERNAL, err->text);
	else
		serve(s);
}

/* From here on @c is the session's guest: the session ends with it. */
static void join_session(struct gantry_conn *c, struct gantry_session *s)
{
	gantry_list_remove(&c->link);
	gantry_event_free(&c->timer);
	gantry_event_free(&s->guest_timer);
	c->state = GANTRY_CONN_ATTACHING;
	c->session = s;
	s->conn = c;
	s->pid = c->pid;
	s->uid = c->uid;
	s->awaits_guest = false;
}

/* The session waits on where this program cannot have it. */
static void take_over(struct gantry_conn *c, struct gantry_session *s)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_session_place place;
	int r = 0;

	if (c->hello.version_min > s->version || c->hello.version_max < s->version) {
		refuse(c, GANTRY_E_VERSION, "the session speaks another version of the protocol");
		return;
	}
	if (c->ops->house)
		r = c->ops->house(c, s->shape.segment.segment_bytes, &place, &err);
	else if (s->doormem)
		r = gantry_err_set(&err, GANTRY_E_UNSUPPORTED,
				   "the session's memory is a machine's by now");
	if (r < 0) {
		refuse(c, r, err.text);
		return;
	}
	if (r > 0) { /* not yet: gantry_conn_admit() comes back to it */
		gantry_list_remove(&c->link);
		gantry_event_free(&c->timer);
		c->state = GANTRY_CONN_ATTACHING;
		return;
	}
	join_session(c, s);
	gantry_failpoint(GANTRY_FAILPOINT_ADOPT_JOINED);
	if (c->ops->house)
		gantry_move_in(s, &place, moved_in);
	else
		serve(s);
}

static void stand_by(struct gantry_conn *c)
{
	struct gantry_tenant *t = c->tenant;

	if (gantry_list_count(&t->standbys) >= MAX_STANDBYS) {
		refuse(c, GANTRY_E_AGAIN, "too many programs wait for sessions of this tenant");
		return;
	}
	c->state = GANTRY_CONN_STANDBY;
	gantry_list_push_back(&t->standbys, &c->link);
	gantry_conn_wait(c);
}

void gantry_adopt_hello(struct gantry_conn *c)
{
	struct gantry_session *s = find_session(c);

	if (s)
		take_over(c, s);
	else if (c->hello.flags & GANTRY_HELLO_WAIT)
		stand_by(c);
	else
		refuse(c, GANTRY_E_NOT_FOUND, "no session with this key waits here");
}

/* ---- the session's side ---- */

void gantry_adopt_expect(struct gantry_session *s, const uint8_t key[16])
{
	memcpy(s->nonce, key, sizeof(s->nonce));
	s->has_key = true;
	s->unadopted = true;
	keep_key(s);
}

static void nobody_came(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_session *s = arg;

	(void)fd;
	(void)what;
	s->agent->counters.unadopted++;
	gantry_event(s->agent, "session-unadopted", NULL, s, NULL,
		     "no program with its key came to door %s within adoption_grace",
		     s->tenant->conf.name);
	gantry_detach(s, GANTRY_E_CLOSED, "nobody adopted it in time");
}

void gantry_adopt_await(struct gantry_session *s)
{
	struct gantry_conn *c = find_standby(s);

	if (s->doormem) /* an earlier agent died before it welcomed who was to have it */
		gantry_doormem_release_claim(s);
	s->phase = GANTRY_PHASE_HELD;
	s->awaits_guest = true;
	s->began_ns = gantry_now_ns();
	/* Without memory for a timer it waits until the administrator ends it. */
	(void)gantry_timer_set(s->agent, &s->guest_timer, s->agent->config->agent.adoption_grace_ns,
			       nobody_came, s);
	if (c)
		take_over(c, s);
}

void gantry_adopt_withhold(struct gantry_session *s)
{
	s->awaits_guest = false;
	gantry_event_free(&s->guest_timer);
}

void gantry_adopt_settle(struct gantry_session *s)
{
	bool keyed = s->has_key;

	s->unadopted = false;
	s->awaits_guest = false;
	drop_kept(s);
	if (keyed)
		keep_key(s);
	else
		spend_key(s);
	gantry_journal_touch(s->agent);
}

void gantry_adopt_attached(struct gantry_session *s)
{
	struct gantry_agent *a = s->agent;
	struct gantry_door_welcome msg;

	gantry_attach_describe(s, &msg);
	spend_key(s);
	gantry_failpoint(GANTRY_FAILPOINT_ADOPT_SERVED);
	if (gantry_conn_welcome(s->conn, &msg) < 0)
		return; /* the program is gone, and the session with it */
	/* In this order: with neither the connection nor the key kept, an agent after us would end the session. */
	gantry_failpoint(GANTRY_FAILPOINT_ADOPT_WELCOMED);
	drop_kept(s);
	gantry_failpoint(GANTRY_FAILPOINT_ADOPT_SPENT);
	a->counters.adoptions++;
	a->counters.adoption_ns_last = gantry_now_ns() - s->began_ns;
	gantry_event(a, "session-adopted", NULL, s, NULL,
		     "pid %d uid %u, %llu us after it was here", (int)s->pid, s->uid,
		     (unsigned long long)(a->counters.adoption_ns_last / GANTRY_NS_PER_US));
	gantry_journal_touch(a);
	gantry_deadline_arm(a);
}

bool gantry_adopt_worker_gone(struct gantry_session *s)
{
	if (!s->unadopted || s->conn)
		return false;
	gantry_adopt_await(s);
	return true;
}

void gantry_adopt_forget(struct gantry_session *s)
{
	gantry_seat_forget(s);
	gantry_move_in_forget(s);
}

/* ---- of an earlier agent ---- */

static bool take_key(struct gantry_session *s, const char *what)
{
	struct gantry_store *handed = &s->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX], name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(prefix, sizeof(prefix), "s/%llx/%s/", /* it fits */
				(unsigned long long)s->id, what);
	for (size_t i = 0; i < handed->nentries; i++) {
		if (!gantry_str_starts(handed->entries[i].name, prefix))
			continue;
		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), handed->entries[i].name);
		gantry_fd_close(gantry_store_take(handed, name));
		return gantry_hex_decode(name + strlen(prefix), s->nonce, sizeof(s->nonce)) == 0;
	}
	return false;
}

void gantry_adopt_restore(struct gantry_session *s)
{
	s->unadopted = take_key(s, "heir");
	s->has_key = s->unadopted || take_key(s, "key");
	if (s->has_key)
		keep_key(s);
	gantry_seat_restore(s);
}
