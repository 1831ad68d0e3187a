/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/conn.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/str.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/exchange.h"
#include "host-agent/agent/missing.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/tenant.h"
#include "proto/wire.h"

#define HELLO_TIMEOUT_NS   (5 * GANTRY_NS_PER_S)
#define WAITING_TIMEOUT_NS (600 * GANTRY_NS_PER_S)
#define MAX_HALF_OPEN	   32u
#define MAX_WAITING	   64u
#define MAX_OUTSTANDING	   16u

/* ---- beginning and end ---- */

void gantry_conn_init(struct gantry_conn *c, const struct gantry_conn_ops *ops,
		      const char *transport, struct gantry_tenant *t)
{
	*c = (struct gantry_conn){
		.ops = ops,
		.transport = transport,
		.agent = t->agent,
		.tenant = t,
		.state = GANTRY_CONN_ATTACHING, /* until it begins */
	};
	gantry_list_init(&c->link);
}

void gantry_conn_fini(struct gantry_conn *c)
{
	gantry_event_free(&c->timer);
}

static void too_late(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_conn *c = arg;

	(void)fd;
	(void)what;
	gantry_conn_refuse(c, GANTRY_E_TIMEOUT,
			   c->state == GANTRY_CONN_WAITING ? "no session became free in time"
			   : c->state == GANTRY_CONN_STANDBY
				   ? "no session with this key came in time"
				   : "no HELLO came in time");
}

static void wait_for(struct gantry_conn *c, uint64_t timeout_ns)
{
	/* Without memory for a timer it waits for as long as its guest does. */
	(void)gantry_timer_set(c->agent, &c->timer, timeout_ns, too_late, c);
}

void gantry_conn_wait(struct gantry_conn *c)
{
	wait_for(c, WAITING_TIMEOUT_NS);
}

void gantry_conn_begin(struct gantry_conn *c)
{
	c->state = GANTRY_CONN_HALF_OPEN;
	if (++c->tenant->nhalf_open > MAX_HALF_OPEN)
		gantry_conn_refuse(c, GANTRY_E_AGAIN, "too many guests are at this door at once");
	else
		wait_for(c, HELLO_TIMEOUT_NS);
}

void gantry_conn_resume(struct gantry_conn *c, struct gantry_session *s)
{
	c->session = s;
	c->state = GANTRY_CONN_ATTACHED;
	s->conn = c;
	s->pid = c->pid;
	s->uid = c->uid;
}

void gantry_conn_close(struct gantry_conn *c)
{
	struct gantry_tenant *t = c->tenant;

	if (c->state == GANTRY_CONN_HALF_OPEN)
		t->nhalf_open--;
	if (c->session)
		c->session->conn = NULL;
	gantry_list_remove(&c->link);
	c->ops->close(c);
	gantry_tenant_reap(t);
}

void gantry_conn_gone(struct gantry_conn *c)
{
	struct gantry_session *s = c->session;

	gantry_conn_close(c);
	if (s)
		gantry_detach(s, GANTRY_E_CLOSED, "the guest is gone");
}

/* ---- sending ---- */

/* What became of a send. */
static int sent(struct gantry_conn *c, int r)
{
	struct gantry_session *s = c->session;

	if (r >= 0)
		return 0;
	if (r == -EAGAIN)
		c->agent->counters.slow_readers++;
	gantry_conn_close(c);
	if (s)
		gantry_detach(s, GANTRY_E_CLOSED, "the guest does not read its door");
	return -EPIPE;
}

int gantry_conn_send(struct gantry_conn *c, const void *msg, size_t len)
{
	return sent(c, c->ops->send(c, msg, len));
}

int gantry_conn_welcome(struct gantry_conn *c, const struct gantry_door_welcome *msg)
{
	c->state = GANTRY_CONN_ATTACHED;
	c->ops->keep(c);
	gantry_failpoint(GANTRY_FAILPOINT_ATTACH_KEPT);
	return sent(c, c->ops->welcome(c, msg));
}

void gantry_conn_fill_refuse(struct gantry_door_refuse *msg, uint16_t kind, int status,
			     const char *text)
{
	*msg = (struct gantry_door_refuse){
		.status = status,
		.version_min = GANTRY_WIRE_VERSION_MIN,
		.version_max = GANTRY_WIRE_VERSION_MAX,
	};
	gantry_door_header_init(&msg->h, kind, 0);
	(void)gantry_str_copy(msg->text, sizeof(msg->text), text); /* cut is better than unsaid */
}

void gantry_conn_refuse(struct gantry_conn *c, int status, const char *text)
{
	struct gantry_door_refuse msg;

	gantry_conn_fill_refuse(&msg, GANTRY_DOOR_REFUSE, status, text);
	(void)c->ops->send(c, &msg, sizeof(msg)); /* closed either way */
	c->agent->counters.attach_refused++;
	gantry_conn_close(c);
}

void gantry_conn_turn_away(struct gantry_conn *c, const char *text)
{
	gantry_conn_notice(c, GANTRY_E_AGAIN, text);
	gantry_conn_close(c);
}

void gantry_conn_notice(struct gantry_conn *c, int status, const char *text)
{
	struct gantry_door_refuse msg;

	gantry_conn_fill_refuse(&msg, GANTRY_DOOR_NOTICE, status, text);
	(void)c->ops->send(c, &msg, sizeof(msg)); /* news only */
}

void gantry_conn_broke(struct gantry_conn *c, const char *text)
{
	struct gantry_session *s = c->session;

	c->agent->counters.protocol_errors++;
	c->tenant->protocol_errors++;
	gantry_event(c->agent, "door-protocol-error", c->tenant, s, NULL, "pid %d: %s", (int)c->pid,
		     text);
	if (s)
		gantry_detach(s, GANTRY_E_PROTOCOL, text);
	else
		gantry_conn_refuse(c, GANTRY_E_PROTOCOL, text);
}

/* ---- room ---- */

/* Its sessions are as many as it may have, or its devices have no room for one more; @text says which. */
static bool tenant_full(const struct gantry_tenant *t, char text[GANTRY_DOOR_TEXT])
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (t->nsessions >= t->conf.sessions) {
		(void)gantry_str_format(text, GANTRY_DOOR_TEXT,
					"tenant %s has %u of %u sessions in use", t->conf.name,
					t->nsessions, t->conf.sessions); /* it fits */
		return true;
	}
	if (gantry_mps_full(t)) {
		(void)gantry_str_format(text, GANTRY_DOOR_TEXT, /* it fits */
					"the trust group's MPS server has all its %u clients",
					t->agent->config->agent.mps_clients);
		return true;
	}
	if (gantry_slabs_room(t, &err) == 0)
		return false;
	(void)gantry_str_copy(text, GANTRY_DOOR_TEXT, err.text); /* cut is better than unsaid */
	return true;
}

void gantry_conn_admit(struct gantry_conn *c)
{
	struct gantry_tenant *t = c->tenant;
	char text[GANTRY_DOOR_TEXT];
	uint32_t nwaiting = 0;

	if (t->removed || t->agent->stopping) { /* since it connected */
		gantry_conn_refuse(c, GANTRY_E_NO_AGENT, "the door was closed");
		return;
	}
	if (c->hello.flags & GANTRY_HELLO_ADOPT) {
		gantry_adopt_hello(c);
		return;
	}
	if (!tenant_full(t, text)) {
		gantry_attach_begin(c);
		return;
	}
	gantry_list_for_each(&t->waiting, struct gantry_conn, link, other)
		nwaiting++;
	if (t->conf.on_full == GANTRY_ON_FULL_REFUSE || nwaiting >= MAX_WAITING) {
		t->denied++;
		gantry_conn_refuse(c, GANTRY_E_FULL, text);
		return;
	}
	c->state = GANTRY_CONN_WAITING;
	gantry_list_push_back(&t->waiting, &c->link);
	gantry_conn_wait(c);
}

void gantry_conn_next(struct gantry_tenant *t)
{
	char text[GANTRY_DOOR_TEXT];

	while (!gantry_list_is_empty(&t->waiting) && !tenant_full(t, text)) {
		struct gantry_conn *c = gantry_list_entry(t->waiting.next, struct gantry_conn,
							  link);

		gantry_list_remove(&c->link);
		gantry_event_free(&c->timer);
		c->state = GANTRY_CONN_ATTACHING;
		gantry_attach_begin(c);
	}
}

/* ---- messages ---- */

static void handle_hello(struct gantry_conn *c, const struct gantry_door_hello *hello)
{
	/* From here on only the hang-up and timers of the attach end the wait. */
	gantry_event_free(&c->timer);
	c->tenant->nhalf_open--;
	c->state = GANTRY_CONN_ATTACHING;
	c->hello = *hello;
	gantry_conn_admit(c);
}

static void handle_request(struct gantry_conn *c, uint16_t kind, const void *msg)
{
	if (c->noutstanding >= MAX_OUTSTANDING) {
		gantry_conn_broke(c, "more requests at once than a door takes");
		return;
	}
	if (kind == GANTRY_DOOR_SHARE)
		gantry_exchange_share(c, msg);
	else if (kind == GANTRY_DOOR_ADOPT)
		gantry_exchange_adopt(c, msg);
	else if (kind == GANTRY_DOOR_KEY)
		gantry_adopt_key(c, msg);
	else if (kind == GANTRY_DOOR_MISSING)
		gantry_missing_note(c, msg);
	else
		gantry_conn_broke(c, "a message that guests do not send");
}

void gantry_conn_message(struct gantry_conn *c, const void *msg, size_t len)
{
	uint16_t kind;

	if (gantry_door_check(msg, len, &kind) < 0)
		gantry_conn_broke(c, "a message that is none of the door's");
	else if (c->state == GANTRY_CONN_HALF_OPEN && kind == GANTRY_DOOR_HELLO)
		handle_hello(c, msg);
	else if (c->state == GANTRY_CONN_ATTACHED)
		handle_request(c, kind, msg);
	else
		gantry_conn_broke(c, "a message out of turn");
}
