/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions to other hosts: begun here, watched until they are there or stay. (To devices of this one: queue_migrate.c.) */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "host-agent/ctl/parse.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/progress.h"
#include "host-agent/ctl/verbs.h"

#define REQUEST(name) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##name
#define MIGRATIONS    GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS
#define LOOK_NS	      (50 * GANTRY_NS_PER_MS)

static int parse_id(struct gantry_ctl *ctl, const char *what, const char *text, uint64_t *ret_id)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_u64_parse(text, 1, UINT64_MAX, ret_id, &err) < 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE, "%s is not the number of a %s", text,
				       what);
	return 0;
}

static int ask(struct gantry_ctl *ctl, uint64_t id, Gantry__Admin__AdminReply **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;

	filter.id = id;
	request.body_case = REQUEST(MIGRATION_LIST);
	request.migration_list = &filter;
	return gantry_ctl_ask(ctl, &request, MIGRATIONS, ret_reply);
}

static bool is_gone(int r)
{
	return r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOENT;
}

int gantry_ctl_migration_look(struct gantry_ctl *ctl, uint64_t id,
			      Gantry__Admin__AdminReply **ret_reply)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t deadline_ns = gantry_ctl_deadline(ctl);
	struct gantry_err err = GANTRY_ERR_NONE;
	bool was_gone = false;

	for (;;) {
		Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
		Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;
		int r;

		filter.id = id;
		request.body_case = REQUEST(MIGRATION_LIST);
		request.migration_list = &filter;
		r = gantry_ctl_ask_quietly(ctl, &request, &reply, &err);
		if (r == 0)
			break;
		was_gone = true;
		if (!is_gone(r) || gantry_deadline_passed(deadline_ns))
			return gantry_ctl_fail_client(ctl, r, &err);
		(void)nanosleep(&pause, NULL); /* cut short: it is asked sooner */
	}
	if (reply->code == GANTRY_CTL_NOT_FOUND && was_gone)
		return 0;
	if (reply->code != 0)
		return gantry_ctl_fail(ctl, gantry_ctl_code(reply->code), "%s", reply->text);
	if (reply->body_case != MIGRATIONS || reply->migrations->n_migrations == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "the agent has forgotten migration %" PRIu64, id);
	*ret_reply = GANTRY_TAKE_PTR(reply);
	return 0;
}

int gantry_ctl_fail_goes_on(struct gantry_ctl *ctl, uint64_t id)
{
	return gantry_ctl_fail(ctl, GANTRY_CTL_TIMEOUT,
			       "migration %" PRIu64
			       " goes on; see gantryctl migration show %" PRIu64,
			       id, id);
}

int gantry_ctl_migration_list(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = ask(ctl, 0, &reply);

	if (r)
		return r;
	return gantry_print_list(ctl, &gantry_migration_fields,
				 (const void *const *)reply->migrations->migrations,
				 reply->migrations->n_migrations);
}

int gantry_ctl_migration_show(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t id = 0;
	int r = parse_id(ctl, "migration", ctl->args[0], &id);

	if (!r)
		r = ask(ctl, id, &reply);
	if (r)
		return r;
	if (gantry_ctl_option(ctl, "trace"))
		return gantry_ctl_migration_trace(ctl, reply->migrations->migrations[0]);
	r = gantry_print_one(ctl, &gantry_migration_fields, reply->migrations->migrations[0]);
	if (!ctl->json)
		gantry_ctl_migration_steps(ctl, reply->migrations->migrations[0]);
	return r;
}

int gantry_ctl_migration_cancel(struct gantry_ctl *ctl)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;
	int r = parse_id(ctl, "migration", ctl->args[0], &filter.id);

	if (r)
		return r;
	request.body_case = REQUEST(MIGRATION_CANCEL);
	request.migration_cancel = &filter;
	return gantry_ctl_change(ctl, &request, "migration %s: called back; it stays where it is",
				 ctl->args[0]);
}

/* ---- a session goes ---- */

static void show_progress(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	const struct gantry_progress p = { m->state, m->page_bytes, m->owned_bytes, m->rounds,
					   m->over };

	if (!ctl->json)
		gantry_progress_draw(ctl->err, &p);
}

static void end_progress(struct gantry_ctl *ctl)
{
	if (!ctl->json)
		gantry_progress_clear(ctl->err);
}

/* As far as the command is concerned: one that went lazily is there, and serves what it is asked for. */
static bool is_over(const Gantry__Admin__Migration *m)
{
	return m->over || strcmp(m->state, "serving") == 0;
}

static int report(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	char moved[GANTRY_QUANTITY_MAX];

	if (m->code)
		return gantry_ctl_fail(ctl, gantry_ctl_code(m->code), "session %" PRIu64 ": %s",
				       m->session_id, m->text);
	if (ctl->json)
		return gantry_print_one(ctl, &gantry_migration_fields, m);
	gantry_size_format_rounded(m->page_bytes, moved);
	if (m->dry_run)
		fprintf(ctl->out, "session %" PRIu64 ": %s; it stays here\n", m->session_id,
			m->text);
	else
		fprintf(ctl->out,
			"session %" PRIu64 ": %s: %s in %u rounds and %" PRIu64
			" ms, held still for %" PRIu64 " ms\n",
			m->session_id, m->text, moved, m->rounds,
			(uint64_t)(m->elapsed_ns / GANTRY_NS_PER_MS),
			(uint64_t)(m->downtime_ns / GANTRY_NS_PER_MS));
	return 0;
}

/* As it is once the agent knows who serves it: one that has only just begun has to ask its workers first. */
static int settled_session(struct gantry_ctl *ctl, uint64_t session_id,
			   Gantry__Admin__AdminReply **ret_reply)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t deadline_ns = gantry_ctl_deadline(ctl);

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
		Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;
		int r;

		filter.session_id = session_id;
		request.body_case = REQUEST(SESSION_LIST);
		request.session_list = &filter;
		r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_SESSIONS,
				   &reply);
		if (r)
			return r;
		if (reply->sessions->n_sessions == 0 ||
		    strcmp(reply->sessions->sessions[0]->state, "restored") != 0 ||
		    gantry_deadline_passed(deadline_ns)) {
			*ret_reply = GANTRY_TAKE_PTR(reply);
			return 0;
		}
		(void)nanosleep(&pause, NULL); /* cut short: it is asked sooner */
	}
}

/* Another agent serves, which knows nothing of it: what was not offered stays where it was. */
static int report_lost(struct gantry_ctl *ctl, uint64_t id, uint64_t session_id)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r = settled_session(ctl, session_id, &reply);

	if (r)
		return r;
	if (reply->sessions->n_sessions == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "migration %" PRIu64 ": another agent serves by now, and "
				       "session %" PRIu64 " is not here any more",
				       id, session_id);
	if (strcmp(reply->sessions->sessions[0]->state, "held") == 0)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "migration %" PRIu64
				       ": another agent serves by now, and asks "
				       "the other host whether it has session %" PRIu64
				       "; see gantryctl migration list",
				       id, session_id);
	return gantry_ctl_fail(ctl, GANTRY_CTL_BUSY,
			       "session %" PRIu64 ": another build of the agent takes over, or "
			       "another agent; the session stays here: ask again",
			       session_id);
}

/* --timeout, where it was given, ends the watching and not the migration. */
static int watch(struct gantry_ctl *ctl, uint64_t id, uint64_t session_id)
{
	const struct timespec pause = { .tv_nsec = LOOK_NS };
	uint64_t deadline_ns = ctl->timeout_given ? gantry_ctl_deadline(ctl)
						  : GANTRY_DEADLINE_NEVER;

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		const Gantry__Admin__Migration *m;
		int r = gantry_ctl_migration_look(ctl, id, &reply);

		if (r)
			return r;
		if (!reply)
			return report_lost(ctl, id, session_id);
		m = reply->migrations->migrations[0];
		if (is_over(m)) {
			end_progress(ctl);
			return report(ctl, m);
		}
		show_progress(ctl, m);
		if (gantry_deadline_passed(deadline_ns)) {
			end_progress(ctl);
			return gantry_ctl_fail_goes_on(ctl, id);
		}
		(void)nanosleep(&pause, NULL); /* cut short: it is looked at sooner */
	}
}

/* A device of this host comes before a host of that name, which goes by its address too. */
static int names_device(struct gantry_ctl *ctl, const char *name, bool *ret_is)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__Empty empty = GANTRY__ADMIN__EMPTY__INIT;
	int r;

	request.body_case = REQUEST(DEVICE_LIST);
	request.device_list = &empty;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_DEVICES, &reply);
	*ret_is = false;
	for (size_t i = 0; !r && i < reply->devices->n_devices; i++)
		if (strcmp(reply->devices->devices[i]->name, name) == 0)
			*ret_is = true;
	return r;
}

int gantry_ctl_session_migrate(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__SessionMigrate body = GANTRY__ADMIN__SESSION_MIGRATE__INIT;
	bool is_device = false;
	int r = parse_id(ctl, "session", ctl->args[0], &body.session_id);

	if (r)
		return r;
	body.host = (char *)gantry_ctl_option(ctl, "to");
	if (!body.host)
		return gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"session migrate: where to? --to HOST or --to DEVICE names it");
	r = names_device(ctl, body.host, &is_device);
	if (r)
		return r;
	if (is_device && (gantry_ctl_option(ctl, "bandwidth") || gantry_ctl_option(ctl, "lazy")))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "session migrate: --bandwidth and --lazy are for hosts, and "
				       "%s is a device of this one",
				       body.host);
	if (is_device)
		return gantry_ctl_session_to_device(ctl, body.session_id);
	r = gantry_ctl_bandwidth(ctl, &body.bandwidth);
	if (r)
		return r;
	body.dry_run = gantry_ctl_option(ctl, "dry-run") != NULL;
	body.lazy = gantry_ctl_option(ctl, "lazy") != NULL;
	request.body_case = REQUEST(SESSION_MIGRATE);
	request.session_migrate = &body;
	r = gantry_ctl_ask(ctl, &request, MIGRATIONS, &reply);
	if (r)
		return r;
	if (!gantry_ctl_option(ctl, "no-wait"))
		return watch(ctl, reply->migrations->migrations[0]->id, body.session_id);
	if (ctl->json)
		return gantry_print_one(ctl, &gantry_migration_fields,
					reply->migrations->migrations[0]);
	fprintf(ctl->out, "%" PRIu64 "\n", reply->migrations->migrations[0]->id);
	return 0;
}
