/* SPDX-License-Identifier: Apache-2.0 */
/* Queues move to another device: begun here and watched; the steps of a migration, for people and for Perfetto. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/progress.h"
#include "host-agent/ctl/verbs.h"
#include "proto/wire.h"

/* A small queue is there in a millisecond; what takes longer is looked at after a sixteenth more of it. */
#define LOOK_FIRST_NS (500 * GANTRY_NS_PER_US)
#define LOOK_LAST_NS  (20 * GANTRY_NS_PER_MS)
#define LOOK_SHARE    16u
#define PLACE_TEXT    64 /* a device's name and a number */

/* The one that was asked for. An agent that answers without it is not ours. */
static const Gantry__Admin__Migration *first(const Gantry__Admin__AdminReply *reply)
{
	return reply->migrations->n_migrations ? reply->migrations->migrations[0] : NULL;
}

/* Whether all that a session works on moves, rather than a queue. */
static bool is_session(const Gantry__Admin__Migration *m)
{
	return strcmp(m->kind, "session") == 0;
}

/* ---- progress ---- */

static void draw(const struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	const struct gantry_progress p = { m->state, m->page_bytes, m->owned_bytes, m->rounds,
					   m->over };

	if (!ctl->json)
		gantry_progress_draw(ctl->err, &p);
}

/* Once: why it does not go on for now. One that is called off says so when it is over. */
static void tell_reason(const struct gantry_ctl *ctl, const Gantry__Admin__Migration *m, bool *told)
{
	if (ctl->json || *told || m->over || m->text[0] == '\0' || strcmp(m->state, "abort") == 0)
		return;
	gantry_progress_clear(ctl->err);
	fprintf(ctl->err,
		"migration %" PRIu64 " %s (gantryctl migration cancel %" PRIu64 " calls it back)\n",
		m->id, m->text, m->id);
	*told = true;
}

static void end_line(const struct gantry_ctl *ctl)
{
	if (!ctl->json && isatty(fileno(ctl->err)))
		fputc('\n', ctl->err);
}

static int print_outcome(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	if (ctl->json)
		return gantry_print_one(ctl, &gantry_migration_fields, m);
	if (strcmp(m->state, "possible") == 0 && is_session(m))
		fprintf(ctl->out,
			"session %" PRIu64 " could go from %s to %s and would take %" PRIu64
			" KiB along\n",
			m->session_id, m->from, m->to, m->owned_bytes >> 10);
	else if (is_session(m))
		fprintf(ctl->out,
			"session %" PRIu64 ": from %s to %s in %.1f ms, still for %.3f ms (%.3f of "
			"them until its tasks had ended); %" PRIu64 " KiB moved\n",
			m->session_id, m->from, m->to, (double)m->elapsed_ns / 1e6,
			(double)m->downtime_ns / 1e6, (double)m->drain_ns / 1e6,
			m->page_bytes >> 10);
	else if (strcmp(m->state, "possible") == 0)
		fprintf(ctl->out,
			"queue %" PRIu64 ":%u could go from %s to %s and would take %" PRIu64
			" KiB along\n",
			m->session_id, m->slot, m->from, m->to, m->owned_bytes >> 10);
	else
		fprintf(ctl->out,
			"%s %" PRIu64
			":%u: from %s to %s in %.1f ms, still for %.3f ms (a task's %.3f); "
			"%" PRIu64 " KiB moved in %u rounds, %" PRIu64
			" KiB of them while it stood "
			"still\n",
			m->kind, m->session_id, m->slot, m->from, m->to,
			(double)m->elapsed_ns / 1e6, (double)m->downtime_ns / 1e6,
			(double)m->drain_ns / 1e6, m->page_bytes >> 10, m->rounds,
			m->last_bytes >> 10);
	return 0;
}

static void pause_after(uint64_t waited_ns)
{
	uint64_t ns = GANTRY_MAX(waited_ns / LOOK_SHARE, (uint64_t)LOOK_FIRST_NS);
	const struct timespec ts = { .tv_nsec = (long)GANTRY_MIN(ns, (uint64_t)LOOK_LAST_NS) };

	(void)nanosleep(&ts, NULL); /* shorter is no harm */
}

/* Until it is over: a reply that says how. --timeout, where it was given, ends the watching and not the migration. */
static int watch(struct gantry_ctl *ctl, uint64_t id, Gantry__Admin__AdminReply **ret_reply)
{
	uint64_t began_ns = gantry_now_ns();
	uint64_t deadline_ns = ctl->timeout_given ? gantry_ctl_deadline(ctl)
						  : GANTRY_DEADLINE_NEVER;
	bool told = false;

	for (;;) {
		_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
		const Gantry__Admin__Migration *m;
		int r = gantry_ctl_migration_look(ctl, id, &reply);

		if (r)
			return r;
		if (!reply)
			return gantry_ctl_fail(
				ctl, GANTRY_CTL_FAILED,
				"migration %" PRIu64
				": another agent serves by now, and was not told how it "
				"went; see gantryctl queue list",
				id);
		m = reply->migrations->migrations[0];
		tell_reason(ctl, m, &told);
		draw(ctl, m);
		if (m->over) {
			end_line(ctl);
			if (m->code)
				return gantry_ctl_fail(ctl, gantry_ctl_code(m->code),
						       "migration %" PRIu64 ": %s; the %s is on %s",
						       id, m->text, m->kind,
						       m->from[0] ? m->from : "its device");
			*ret_reply = GANTRY_TAKE_PTR(reply);
			return 0;
		}
		if (gantry_now_ns() >= deadline_ns)
			return gantry_ctl_fail_goes_on(ctl, id);
		pause_after(gantry_now_ns() - began_ns);
	}
}

/* ---- one queue, or all of a session ---- */

/* @slot 0: all of the session's work. */
static int begin(struct gantry_ctl *ctl, uint64_t session_id, uint32_t slot, bool dry_run,
		 uint64_t *ret_id)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__QueueMigrate move = GANTRY__ADMIN__QUEUE_MIGRATE__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const Gantry__Admin__Migration *m;
	int r;

	move.session_id = session_id;
	move.slot = slot;
	move.whole = slot == 0;
	move.device = (char *)gantry_ctl_option(ctl, "to");
	move.dry_run = dry_run;
	move.lazy = gantry_ctl_option(ctl, "lazy") != NULL;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_QUEUE_MIGRATE;
	request.queue_migrate = &move;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS, &reply);
	if (r)
		return r;
	m = first(reply);
	if (!m)
		return gantry_ctl_fail(ctl, GANTRY_CTL_FAILED,
				       "the agent does not say which it is");
	*ret_id = m->id;
	return 0;
}

static int move_one(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t session_id, id;
	uint32_t slot;
	int r = gantry_ctl_parse_queue(ctl, ctl->args[0], &session_id, &slot);

	if (!r && slot == 0)
		r = gantry_ctl_fail(
			ctl, GANTRY_CTL_USAGE,
			"queue 0 carries the session's control calls, it has no device");
	if (!r)
		r = begin(ctl, session_id, slot, gantry_ctl_option(ctl, "dry-run") != NULL, &id);
	if (!r)
		r = watch(ctl, id, &reply);
	return r ? r : print_outcome(ctl, first(reply));
}

static int print_begun(struct gantry_ctl *ctl, uint64_t id)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	int r;

	if (!ctl->json) {
		fprintf(ctl->out, "%" PRIu64 "\n", id);
		return 0;
	}
	r = gantry_ctl_migration_look(ctl, id, &reply);
	return r ? r : print_outcome(ctl, first(reply));
}

int gantry_ctl_session_to_device(struct gantry_ctl *ctl, uint64_t session_id)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	uint64_t id = 0;
	int r = begin(ctl, session_id, 0, gantry_ctl_option(ctl, "dry-run") != NULL, &id);

	if (!r && gantry_ctl_option(ctl, "no-wait"))
		return print_begun(ctl, id);
	if (!r)
		r = watch(ctl, id, &reply);
	return r ? r : print_outcome(ctl, first(reply));
}

/* The queues that are to go, and what became of each. */
struct party {
	uint64_t session_id;
	size_t n;
	uint32_t slots[GANTRY_MAX_QUEUES];
	uint64_t ids[GANTRY_MAX_QUEUES]; /* 0: it did not begin */
	Gantry__Admin__AdminReply *ends[GANTRY_MAX_QUEUES];
};

static void forget_ends(struct party *p)
{
	for (size_t i = 0; i < p->n; i++) {
		gantry_client_reply_freep(&p->ends[i]);
		p->ends[i] = NULL;
	}
}

/* DEVICE, whatever lane it keeps there, or DEVICE:LANE. */
static bool is_there(const Gantry__Admin__Queue *q, const char *to)
{
	char place[PLACE_TEXT];

	if (strcmp(q->device, to) == 0)
		return true;
	(void)snprintf(place, sizeof(place), "%s:%" PRIu64, q->device,
		       q->lane ? q->lane->value : UINT64_MAX);
	return strcmp(place, to) == 0;
}

/* Those that are not there yet. */
static int find_party(struct gantry_ctl *ctl, struct party *p)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const char *to = gantry_ctl_option(ctl, "to");
	int r;

	filter.session_id = p->session_id;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_QUEUE_LIST;
	request.queue_list = &filter;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_QUEUES, &reply);
	if (r)
		return r;
	for (size_t i = 0; i < reply->queues->n_queues && p->n < GANTRY_MAX_QUEUES; i++) {
		const Gantry__Admin__Queue *q = reply->queues->queues[i];

		if (q->slot != 0 && !is_there(q, to))
			p->slots[p->n++] = q->slot;
	}
	if (p->n)
		return 0;
	if (reply->queues->n_queues)
		return gantry_ctl_fail(ctl, GANTRY_CTL_BUSY,
				       "all queues of session %" PRIu64 " are on device %s already",
				       p->session_id, to);
	return gantry_ctl_fail(ctl, GANTRY_CTL_NOT_FOUND,
			       "session %" PRIu64 " has no queue; see gantryctl session list",
			       p->session_id);
}

/* All are begun, then each is watched: the first that does not get there decides the exit code, and stops no other. */
static int move_party(struct gantry_ctl *ctl, struct party *p, bool dry_run)
{
	int result = 0;

	for (size_t i = 0; i < p->n; i++) {
		int r = begin(ctl, p->session_id, p->slots[i], dry_run, &p->ids[i]);

		p->ids[i] = r ? 0 : p->ids[i];
		result = result ? result : r;
		if (r && dry_run)
			break;
	}
	for (size_t i = 0; i < p->n; i++) {
		int r = p->ids[i] ? watch(ctl, p->ids[i], &p->ends[i]) : 0;

		p->ids[i] = 0;
		result = result ? result : r;
	}
	return result;
}

static int print_party(struct gantry_ctl *ctl, const struct party *p)
{
	const void *rows[GANTRY_MAX_QUEUES];
	size_t n = 0;
	int r = 0;

	for (size_t i = 0; i < p->n; i++)
		if (p->ends[i])
			rows[n++] = first(p->ends[i]);
	if (ctl->json)
		return gantry_print_list(ctl, &gantry_migration_fields, rows, n);
	for (size_t i = 0; i < n && r == 0; i++)
		r = print_outcome(ctl, rows[i]);
	return r;
}

/* Whether each could go is asked before any of them does. */
static int move_all(struct gantry_ctl *ctl)
{
	struct party p = { 0 };
	int r = gantry_ctl_parse_session(ctl, ctl->args[0], &p.session_id);

	if (!r)
		r = find_party(ctl, &p);
	if (!r)
		r = move_party(ctl, &p, true);
	if (!r && !gantry_ctl_option(ctl, "dry-run")) {
		forget_ends(&p);
		r = move_party(ctl, &p, false);
	}
	if (!r)
		r = print_party(ctl, &p);
	forget_ends(&p);
	return r;
}

int gantry_ctl_queue_migrate(struct gantry_ctl *ctl)
{
	const char *name = ctl->args[0];

	if (!gantry_ctl_option(ctl, "to"))
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--to is missing: say which device the queue is to go to");
	/* What is neither is told as a queue that is none. */
	return name[0] && strspn(name, "0123456789") == strlen(name) ? move_all(ctl)
								     : move_one(ctl);
}

/* ---- traces ---- */

static json_object *trace_event(const char *name, const char *phase, double ts_us, int tid)
{
	json_object *event = json_object_new_object();

	json_object_object_add(event, "name", json_object_new_string(name));
	json_object_object_add(event, "ph", json_object_new_string(phase));
	json_object_object_add(event, "ts", json_object_new_double(ts_us));
	json_object_object_add(event, "pid", json_object_new_int(1));
	json_object_object_add(event, "tid", json_object_new_int(tid));
	return event;
}

static void add_step(json_object *events, const Gantry__Admin__MigrationStep *step)
{
	json_object *span = trace_event(step->state, "X", (double)step->begin_ns / 1e3, 1);
	json_object *bytes = trace_event("moved bytes", "C", (double)step->begin_ns / 1e3, 1);
	json_object *value = json_object_new_object();

	json_object_object_add(span, "dur", json_object_new_double((double)step->ns / 1e3));
	json_object_array_add(events, span);
	json_object_object_add(value, "bytes", json_object_new_int64((int64_t)step->moved_bytes));
	json_object_object_add(bytes, "args", value);
	json_object_array_add(events, bytes);
}

/* Chrome's trace events, which Perfetto opens: microseconds since the migration began. */
int gantry_ctl_migration_trace(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	json_object *trace = json_object_new_object();
	json_object *events = json_object_new_array();
	json_object *named = trace_event("thread_name", "M", 0, 1);
	json_object *args = json_object_new_object();
	char name[160];

	if (m->host[0])
		(void)snprintf(name, sizeof(name), "migration %" PRIu64 ": %s %" PRIu64 ", %s %s",
			       m->id, m->kind, m->session_id,
			       strcmp(m->direction, "in") == 0 ? "from" : "to", m->host);
	else
		(void)snprintf(name, sizeof(name),
			       "migration %" PRIu64 ": %s %" PRIu64 ":%u, %s to %s", m->id, m->kind,
			       m->session_id, m->slot, m->from, m->to);
	json_object_object_add(args, "name", json_object_new_string(name));
	json_object_object_add(named, "args", args);
	json_object_array_add(events, named);
	for (size_t i = 0; i < m->n_steps; i++)
		add_step(events, m->steps[i]);
	json_object_object_add(trace, "traceEvents", events);
	json_object_object_add(trace, "displayTimeUnit", json_object_new_string("ms"));
	return gantry_ctl_json_print(ctl, trace);
}

void gantry_ctl_migration_steps(struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	for (size_t i = 0; i < m->n_steps; i++)
		fprintf(ctl->out, "%10.3f ms  %-10s %10.3f ms\n",
			(double)m->steps[i]->begin_ns / 1e6, m->steps[i]->state,
			(double)m->steps[i]->ns / 1e6);
}
