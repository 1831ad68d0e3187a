/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin socket: connections, roles, frames. What the verbs do is in admin_list.c and
 * admin_change.c.
 */
#include "host-agent/agent/admin.h"

#include <errno.h>
#include <grp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/images.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/stream.h"
#include "host-agent/control/framing.h"

#define MAX_CONNS     64u
#define MAX_OF_A_USER 32u
#define MAX_GROUPS    256
/* A follower that is this far behind is dropped; so is one who does not take an answer in time. */
#define FOLLOWER_MAX_BYTES (1024u * 1024u)
#define WRITE_TIMEOUT_S	   10
#define IDLE_TIMEOUT_S	   600

struct admin_conn {
	struct gantry_stream_conn base;
	bool may_read;
	bool may_change;
	bool following;
	uint64_t follow_tag;
	char follow_tenant[GANTRY_CONFIG_NAME];
};

/* ---- answers ---- */

void gantry_answer_init(struct gantry_answer *r, uint64_t tag)
{
	memset(r, 0, sizeof(*r));
	gantry__admin__admin_reply__init(&r->msg);
	r->msg.tag = tag;
}

void gantry_answer_fini(struct gantry_answer *r)
{
	for (size_t i = 0; i < r->nblocks; i++)
		free(r->blocks[i]);
	free(r->blocks);
}

void *gantry_answer_take(struct gantry_answer *r, size_t bytes)
{
	if (r->nblocks == r->cap) {
		size_t cap = r->cap ? r->cap * 2 : 64;
		void **blocks = realloc(r->blocks, cap * sizeof(*blocks));

		if (!blocks)
			abort();
		r->blocks = blocks;
		r->cap = cap;
	}
	r->blocks[r->nblocks] = calloc(1, bytes ? bytes : 1);
	if (!r->blocks[r->nblocks])
		abort();
	return r->blocks[r->nblocks++];
}

char *gantry_answer_text(struct gantry_answer *r, const char *text)
{
	size_t len = strlen(text) + 1;

	return memcpy(gantry_answer_take(r, len), text, len);
}

void gantry_answer_fail(struct gantry_answer *r, enum gantry_admin_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(r->text, sizeof(r->text), fmt, ap); /* cut is better than unsaid */
	va_end(ap);
	r->msg.code = (int32_t)code;
	r->msg.text = r->text;
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY__NOT_SET;
}

/* ---- roles ---- */

static bool in_group(const gid_t *groups, size_t n, const struct group *gr)
{
	for (size_t i = 0; gr && i < n; i++)
		if (groups[i] == gr->gr_gid)
			return true;
	return false;
}

/*
 * The kernel's word on who connected: supplementary groups of then, not of what /etc/group says
 * now.
 */
static size_t peer_groups(int fd, gid_t *groups, size_t cap, gid_t primary)
{
	socklen_t len = (socklen_t)((cap - 1) * sizeof(*groups));
	size_t n = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0)
		n = len / sizeof(*groups);
	groups[n++] = primary;
	return n;
}

static bool find_roles(struct gantry_stream_conn *base)
{
	struct admin_conn *c = (struct admin_conn *)base;
	gid_t groups[MAX_GROUPS];
	size_t n = peer_groups(base->fd, groups, MAX_GROUPS, base->gid);
	const struct group *gr = getgrnam("gantry");
	bool exists = gr != NULL;
	bool reads = in_group(groups, n, gr);
	bool changes;

	gr = getgrnam("gantry-admin");
	exists = exists || gr;
	changes = in_group(groups, n, gr);
	if (base->uid == 0 || (!exists && base->uid == geteuid()))
		reads = changes = true;
	c->may_read = reads || changes;
	c->may_change = changes;
	return true;
}

/* ---- followers ---- */

static void send_message(struct admin_conn *c, const Gantry__Admin__AdminReply *msg)
{
	gantry_stream_send(&c->base, &msg->base);
}

static void send_event(struct admin_conn *c, const struct gantry_event_entry *e)
{
	Gantry__Admin__AdminReply reply = GANTRY__ADMIN__ADMIN_REPLY__INIT;
	Gantry__Admin__Event event;

	if (c->follow_tenant[0] && strcmp(c->follow_tenant, e->tenant) != 0)
		return;
	gantry_event_message(e, &event);
	reply.tag = c->follow_tag;
	reply.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_EVENT;
	reply.event = &event;
	send_message(c, &reply);
}

void gantry_admin_event(struct gantry_agent *a, const struct gantry_event_entry *e)
{
	if (!a->admin)
		return;
	gantry_list_for_each_safe(gantry_stream_conns(a->admin), struct gantry_stream_conn, link,
				  base) {
		struct admin_conn *c = (struct admin_conn *)base;

		if (!c->following)
			continue;
		if (base->closing || gantry_stream_backlog(base) > FOLLOWER_MAX_BYTES) {
			a->counters.slow_readers++;
			gantry_stream_drop(base);
			continue;
		}
		send_event(c, e);
	}
}

static void send_history(struct admin_conn *c)
{
	struct gantry_agent *a = gantry_stream_agent(&c->base);
	uint64_t first = a->nevents > GANTRY_EVENTS_KEPT ? a->nevents - GANTRY_EVENTS_KEPT : 0;

	for (uint64_t i = first; i < a->nevents; i++)
		send_event(c, &a->events[i % GANTRY_EVENTS_KEPT]);
}

static void follow(struct admin_conn *c, const Gantry__Admin__AdminRequest *q)
{
	const Gantry__Admin__EventFilter *filter = q->events;

	(void)gantry_str_copy(c->follow_tenant, sizeof(c->follow_tenant),
			      filter->tenant); /* a cut name is nobody's */
	c->follow_tag = q->tag;
	if (filter->history || filter->once)
		send_history(c);
	if (filter->once) {
		Gantry__Admin__AdminReply end = GANTRY__ADMIN__ADMIN_REPLY__INIT;

		end.tag = q->tag;
		send_message(c, &end);
		return;
	}
	c->following = true;
	gantry_stream_deafen(&c->base);
}

/* ---- requests ---- */

struct verb {
	Gantry__Admin__AdminRequest__BodyCase body;
	bool changes;
	gantry_verb_fn *fn;
};

#define BODY(name) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##name

static const struct verb verbs[] = {
	{ BODY(VERSION), false, gantry_verb_version },
	{ BODY(DEVICE_LIST), false, gantry_verb_device_list },
	{ BODY(DEVICE_SET), true, gantry_verb_device_set },
	{ BODY(TENANT_LIST), false, gantry_verb_tenant_list },
	{ BODY(TENANT_CREATE), true, gantry_verb_tenant_create },
	{ BODY(TENANT_SET), true, gantry_verb_tenant_set },
	{ BODY(TENANT_REMOVE), true, gantry_verb_tenant_remove },
	{ BODY(SESSION_LIST), false, gantry_verb_session_list },
	{ BODY(SESSION_KICK), true, gantry_verb_session_kick },
	{ BODY(QUEUE_LIST), false, gantry_verb_queue_list },
	{ BODY(QUEUE_SET), true, gantry_verb_queue_set },
	{ BODY(QUEUE_MIGRATE), true, gantry_verb_queue_migrate },
	{ BODY(KERNEL_LIST), false, gantry_verb_kernel_list },
	{ BODY(STATS), false, gantry_verb_stats },
	{ BODY(EVENTS), false, NULL },
	{ BODY(RELOAD), true, gantry_verb_reload },
	{ BODY(WORKER_LIST), false, gantry_verb_worker_list },
	{ BODY(DOCTOR), false, gantry_verb_doctor },
	{ BODY(RESCAN), true, gantry_verb_rescan },
	{ BODY(DOOR_SHOW), false, gantry_verb_door_show },
	{ BODY(DOOR_DRAIN), true, gantry_verb_door_drain },
	{ BODY(DOOR_OPEN), true, gantry_verb_door_open },
	{ BODY(DOOR_SEATS), true, gantry_verb_door_seats },
	{ BODY(DOOR_EXPECT), true, gantry_verb_door_expect },
	{ BODY(DOOR_TAKE), true, gantry_verb_door_take },
	{ BODY(POLICY_LIST), false, gantry_verb_policy_list },
	{ BODY(GROUP_LIST), false, gantry_verb_group_list },
	{ BODY(SESSION_MIGRATE), true, gantry_verb_session_migrate },
	{ BODY(MIGRATION_LIST), false, gantry_verb_migration_list },
	{ BODY(MIGRATION_CANCEL), true, gantry_verb_migration_cancel },
	{ BODY(MIGRATION_PROCEED), true, gantry_verb_migration_proceed },
	{ BODY(VM_MIGRATION_NOTE), true, gantry_verb_vm_migration_note },
	{ BODY(AGENT_UPGRADE), true, gantry_verb_agent_upgrade },
	{ BODY(AGENT_UPGRADE_STATUS), false, gantry_verb_agent_upgrade_status },
	{ BODY(IMAGE_ADD), true, gantry_verb_image_add },
	{ BODY(IMAGE_DATA), true, gantry_verb_image_data },
	{ BODY(IMAGE_END), true, gantry_verb_image_end },
	{ BODY(IMAGE_LIST), false, gantry_verb_image_list },
	{ BODY(IMAGE_REMOVE), true, gantry_verb_image_remove },
};

static const struct verb *find_verb(const Gantry__Admin__AdminRequest *q)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(verbs); i++)
		if (verbs[i].body == q->body_case)
			return &verbs[i];
	return NULL;
}

static const char *verb_name(const Gantry__Admin__AdminRequest *q)
{
	const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
		&gantry__admin__admin_request__descriptor, (unsigned int)q->body_case);

	return field ? field->name : "unknown";
}

/* Everyone who changes something, or tries to, is named in the log; who only looks, not. */
static void audit(const struct admin_conn *c, const Gantry__Admin__AdminRequest *q,
		  const struct verb *verb, const struct gantry_answer *r)
{
	struct gantry_log_site unlimited = { 0 };

	if (verb && (!verb->changes || verb->body == BODY(IMAGE_DATA)) &&
	    r->msg.code == GANTRY_ADMIN_OK)
		return; /* of an image's parts the first and the last say all */
	gantry_log_at(&unlimited, GANTRY_LOG_INFO, "audit: uid=%u pid=%d verb=%s code=%d%s%s",
		      c->base.uid, (int)c->base.pid, verb_name(q), r->msg.code,
		      r->msg.code ? ": " : "", r->text);
}

static void serve(struct gantry_stream_conn *base, const ProtobufCMessage *msg)
{
	const Gantry__Admin__AdminRequest *q = (const Gantry__Admin__AdminRequest *)msg;
	struct admin_conn *c = (struct admin_conn *)base;
	const struct verb *verb = find_verb(q);
	struct gantry_answer r;

	gantry_answer_init(&r, q->tag);
	if (q->protocol != 1)
		gantry_answer_fail(&r, GANTRY_ADMIN_UNSUPPORTED,
				   "this agent speaks admin protocol 1, not %u", q->protocol);
	else if (!verb)
		gantry_answer_fail(&r, GANTRY_ADMIN_UNSUPPORTED,
				   "this agent does not know that request");
	else if (!c->may_read || (verb->changes && !c->may_change))
		gantry_answer_fail(&r, GANTRY_ADMIN_DENIED,
				   verb->changes
					   ? "changes need root or group gantry-admin"
					   : "this needs root or group gantry or gantry-admin");
	else if (verb->fn)
		verb->fn(gantry_stream_agent(base), q, &r);
	audit(c, q, verb, &r);
	if (verb && !verb->fn && r.msg.code == GANTRY_ADMIN_OK)
		follow(c, q);
	else
		send_message(c, &r.msg);
	gantry_answer_fini(&r);
}

static void refuse_garbage(struct gantry_stream_conn *c, const char *text)
{
	struct gantry_answer r;

	gantry_answer_init(&r, 0);
	gantry_answer_fail(&r, GANTRY_ADMIN_USAGE, "%s", text);
	gantry_stream_send(c, &r.msg.base);
	gantry_answer_fini(&r);
}

/* ---- start and stop ---- */

static const struct gantry_stream_ops ops = {
	.what = "the admin socket",
	.kept = "l/@admin",
	.conn_bytes = sizeof(struct admin_conn),
	.in_max = GANTRY_FRAME_REQUEST_MAX_BYTES,
	.conns_max = MAX_CONNS,
	.user_max = MAX_OF_A_USER,
	.idle_s = IDLE_TIMEOUT_S,
	.write_s = WRITE_TIMEOUT_S,
	.admit = find_roles,
	.desc = &gantry__admin__admin_request__descriptor,
	.serve = serve,
	.garbage = refuse_garbage,
};

int gantry_admin_start(struct gantry_agent *a, struct gantry_err *err)
{
	const struct gantry_agent_conf *conf = &a->config->agent;
	char path[GANTRY_AGENT_PATH];
	const struct group *gr;
	int r = 0;

	if (!conf->admin[0])
		r = gantry_agent_run_path(a, path, sizeof(path), "admin.sock", err);
	else if (gantry_str_copy(path, sizeof(path), conf->admin) < 0)
		r = gantry_err_set(err, -ENAMETOOLONG, "%s is too long for a socket", conf->admin);
	if (r == 0)
		r = gantry_stream_open(a, &ops, path, (mode_t)conf->admin_mode, a, &a->admin, err);
	if (r < 0)
		return r;
	gr = getgrnam("gantry");
	if (gr && chown(path, (uid_t)-1, gr->gr_gid) < 0)
		gantry_log(GANTRY_LOG_WARN, "cannot give %s to group gantry: %s", path,
			   strerror(errno));
	return 0;
}

void gantry_admin_stop(struct gantry_agent *a)
{
	gantry_stream_close(a->admin);
	a->admin = NULL;
}
