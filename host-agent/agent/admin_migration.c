/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs of queues that go to another device, and rows of their migrations. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/session.h"

/* Exit codes of gantryctl. */
static enum gantry_admin_code code_of(int error)
{
	switch (error) {
	case 0:
		return GANTRY_ADMIN_OK;
	case -EINVAL:
		return GANTRY_ADMIN_USAGE;
	case -ENOENT:
		return GANTRY_ADMIN_NOT_FOUND;
	case -EBUSY:
	case -EALREADY:
		return GANTRY_ADMIN_BUSY;
	case -ENOSPC:
	case -EDQUOT:
	case -ENOMEM:
		return GANTRY_ADMIN_QUOTA;
	case -ENODEV:
	case -ENOEXEC:
	case -EOPNOTSUPP:
		return GANTRY_ADMIN_UNSUPPORTED;
	default:
		return GANTRY_ADMIN_FAILED;
	}
}

/* Bytes moved before the state began. */
static uint64_t moved_before(const struct gantry_migration_counts *c,
			     enum gantry_migration_state state)
{
	switch (state) {
	case GANTRY_MIGRATION_PRECOPY:
		return 0;
	case GANTRY_MIGRATION_ORPHAN:
	case GANTRY_MIGRATION_DRAIN:
	case GANTRY_MIGRATION_COPY:
		return c->moved_bytes - c->last_bytes;
	default:
		return c->moved_bytes;
	}
}

static void add_step(Gantry__Admin__Migration *msg, const struct gantry_migration_entry *e,
		     enum gantry_migration_state state, uint64_t *at_ns, struct gantry_answer *r)
{
	Gantry__Admin__MigrationStep *m = gantry_answer_take(r, sizeof(*m));

	gantry__admin__migration_step__init(m);
	m->state = gantry_answer_text(r, gantry_migration_state_name(state));
	m->begin_ns = *at_ns;
	m->ns = e->counts.state_ns[state];
	if (!e->over && state == e->state)
		m->ns = gantry_now_ns() - e->started_ns - *at_ns;
	m->moved_bytes = moved_before(&e->counts, state);
	*at_ns += m->ns;
	msg->steps[msg->n_steps++] = m;
}

/* Whether it has been there, or is. One step of its worker may pass several states in no time. */
static bool was_in(const struct gantry_migration_entry *e, enum gantry_migration_state state)
{
	if (e->counts.state_ns[state] || state == e->state)
		return true;
	return e->state == GANTRY_MIGRATION_DONE && state != GANTRY_MIGRATION_ABORT;
}

/* States in their order, by the worker's clock. */
static void fill_steps(Gantry__Admin__Migration *msg, const struct gantry_migration_entry *e,
		       struct gantry_answer *r)
{
	static const enum gantry_migration_state order[] = {
		GANTRY_MIGRATION_PRECOPY, GANTRY_MIGRATION_ORPHAN, GANTRY_MIGRATION_DRAIN,
		GANTRY_MIGRATION_COPY,	  GANTRY_MIGRATION_ADOPT,  GANTRY_MIGRATION_ABORT,
		GANTRY_MIGRATION_DONE,
	};
	uint64_t at_ns = 0;

	msg->steps = gantry_answer_take(r, sizeof(order) / sizeof(order[0]) * sizeof(*msg->steps));
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
		if (was_in(e, order[i]))
			add_step(msg, e, order[i], &at_ns, r);
}

static const char *state_text(const struct gantry_migration_entry *e)
{
	if (!e->over)
		return gantry_migration_state_name(e->state);
	if (e->error == 0)
		return e->dry_run ? "possible" : "done";
	return e->error == -ECANCELED ? "cancelled" : "failed";
}

static Gantry__Admin__Migration *fill(const struct gantry_migration_entry *e,
				      struct gantry_answer *r)
{
	Gantry__Admin__Migration *msg = gantry_answer_take(r, sizeof(*msg));
	const struct gantry_migration_counts *c = &e->counts;

	gantry__admin__migration__init(msg);
	msg->id = e->id;
	msg->kind = gantry_answer_text(r, e->kind);
	msg->session_id = e->session_id;
	msg->slot = e->slot;
	msg->tenant = gantry_answer_text(r, e->tenant);
	msg->from = gantry_answer_text(r, e->from);
	msg->to = gantry_answer_text(r, e->to);
	msg->why = gantry_answer_text(r, e->why);
	msg->state = gantry_answer_text(r, state_text(e));
	msg->over = e->over;
	msg->code = e->over ? (int32_t)code_of(e->error) : 0;
	msg->text = gantry_answer_text(r, e->text);
	msg->owned_bytes = c->owned_bytes;
	msg->page_bytes = c->moved_bytes;
	msg->sent_bytes = c->moved_bytes;
	msg->last_bytes = c->last_bytes;
	msg->dirty_bytes = c->dirty_bytes;
	msg->rounds = c->nrounds;
	msg->round_bytes = gantry_answer_take(r, sizeof(c->round_bytes));
	memcpy(msg->round_bytes, c->round_bytes, sizeof(c->round_bytes));
	msg->n_round_bytes = c->nrounds;
	msg->drain_ns = c->longest_task_ns;
	msg->dry_run = e->dry_run;
	msg->lazy = e->lazy;
	msg->pulled_bytes = e->pulled_bytes;
	msg->touched_bytes = e->touched_bytes;
	msg->downtime_ns = c->pause_ns;
	msg->elapsed_ns = e->over ? c->total_ns : gantry_now_ns() - e->started_ns;
	fill_steps(msg, e, r);
	return msg;
}

size_t gantry_migrations_describe(struct gantry_agent *a, uint64_t id, struct gantry_answer *r,
				  Gantry__Admin__Migration **ret_rows)
{
	size_t n = 0;

	gantry_list_for_each(&a->migrations, struct gantry_migration_entry, link, e)
		if (id == 0 || e->id == id)
			ret_rows[n++] = fill(e, r);
	return n;
}

void gantry_migration_cancel_queue(struct gantry_agent *a, struct gantry_migration_entry *e,
				   struct gantry_answer *r)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	int result;

	if (e->over) {
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "migration %" PRIu64 " is over: %s",
				   e->id, state_text(e));
		return;
	}
	result = e->cancel ? e->cancel(a, e, &err)
			   : gantry_err_set(&err, -EOPNOTSUPP, "it cannot be called back any more");
	if (result < 0)
		gantry_answer_fail(r, code_of(result), "migration %" PRIu64 ": %s", e->id,
				   err.text);
}

static void answer_one(struct gantry_agent *a, uint64_t id, struct gantry_answer *r)
{
	Gantry__Admin__MigrationList *list = gantry_answer_take(r, sizeof(*list));

	gantry__admin__migration_list__init(list);
	list->migrations = gantry_answer_take(r, sizeof(*list->migrations));
	list->n_migrations = gantry_migrations_describe(a, id, r, list->migrations);
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS;
	r->msg.migrations = list;
}

/* DEVICE or DEVICE:LANE. *ret_lane: of a device that there is, + 1; 0: any. NULL: no such device. */
static struct gantry_agent_device *find_place(struct gantry_agent *a, const char *text,
					      uint32_t *ret_lane, struct gantry_err *err)
{
	struct gantry_agent_device *d = gantry_agent_device_find(a, text);
	const char *colon = strchr(text, ':');
	char name[GANTRY_CONFIG_NAME] = "";
	uint64_t lane;

	*ret_lane = 0;
	if (!d && colon && (size_t)(colon - text) < sizeof(name)) {
		memcpy(name, text, (size_t)(colon - text));
		d = gantry_agent_device_find(a, name);
		if (d && gantry_u64_parse(colon + 1, 0, GANTRY_LEDGER_LANES - 1, &lane, err) < 0) {
			(void)gantry_err_set(
				err, -EINVAL,
				"%.32s is no lane of a device: name DEVICE:LANE, a number",
				colon + 1);
			return NULL;
		}
		*ret_lane = d ? (uint32_t)lane + 1 : 0;
	}
	if (!d)
		(void)gantry_err_set(err, -ENOENT,
				     "there is no device %.40s; see gantryctl device list", text);
	return d;
}

void gantry_verb_queue_migrate(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			       struct gantry_answer *r)
{
	const Gantry__Admin__QueueMigrate *ask = q->queue_migrate;
	struct gantry_session *s = gantry_session_find(a, ask->session_id);
	struct gantry_agent_device *d;
	struct gantry_queue_move move = { .slot = ask->slot,
					  .dry_run = ask->dry_run,
					  .lazy = ask->lazy,
					  .why = "administrator" };
	struct gantry_migration_entry *e;
	struct gantry_err err = GANTRY_ERR_NONE;
	int result;

	if (ask->slot == 0 && !ask->whole) {
		gantry_answer_fail(r, GANTRY_ADMIN_USAGE,
				   "queue 0 carries the session's control calls, it has no device");
		return;
	}
	if (!s) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no session %" PRIu64,
				   ask->session_id);
		return;
	}
	d = find_place(a, ask->device, &move.lane, &err);
	if (!d) {
		gantry_answer_fail(r, code_of(err.code), "%s", err.text);
		return;
	}
	move.device = (uint32_t)(d - a->devices);
	if (ask->whole && move.lane)
		result = gantry_err_set(&err, -EINVAL, "a session goes to a device, not to a lane");
	else if (ask->whole && !s->ledger.hdr)
		result = gantry_err_set(&err, -EBUSY, "the session is not attached yet");
	else if (ask->whole)
		result = gantry_session_move(a, s, move.device, move.dry_run, &e, &err);
	else
		result = gantry_queue_move(a, s, &move, &e, &err);
	if (result < 0)
		gantry_answer_fail(r, code_of(result), "%s", err.text);
	else
		answer_one(a, e->id, r);
}
