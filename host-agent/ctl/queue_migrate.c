/* SPDX-License-Identifier: Apache-2.0 */
/* A queue moves to another device: begun here and watched; the steps of a migration, for people and for Perfetto. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "host-agent/ctl/print.h"
#include "host-agent/ctl/verbs.h"

#define LOOK_AGAIN_NS 20000000L
#define BAR_CELLS     30

/* The one that was asked for. An agent that answers without it is not ours. */
static const Gantry__Admin__Migration *first(const Gantry__Admin__AdminReply *reply)
{
	return reply->migrations->n_migrations ? reply->migrations->migrations[0] : NULL;
}

/* ---- progress ---- */

static void draw(const struct gantry_ctl *ctl, const Gantry__Admin__Migration *m)
{
	double owned = m->owned_bytes ? (double)m->owned_bytes : 1;
	double part = m->over ? 1 : (double)m->page_bytes / owned;
	int cells = part >= 1 ? BAR_CELLS : (int)(part * BAR_CELLS);

	if (ctl->json || !isatty(fileno(ctl->err)))
		return;
	fprintf(ctl->err, "\r%-8s [%.*s%*s] %" PRIu64 " of %" PRIu64 " MiB, round %u ", m->state,
		cells, "##############################", BAR_CELLS - cells, "", m->page_bytes >> 20,
		m->owned_bytes >> 20, m->rounds);
	(void)fflush(ctl->err); /* a terminal that is gone shows at the end */
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
	if (strcmp(m->state, "possible") == 0)
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

/* Until it is over. --timeout, where it was given, ends the watching and not the migration. */
static int watch(struct gantry_ctl *ctl, uint64_t id)
{
	const struct timespec pause = { .tv_nsec = LOOK_AGAIN_NS };
	uint64_t deadline_ns = ctl->timeout_given ? gantry_ctl_deadline(ctl)
						  : GANTRY_DEADLINE_NEVER;

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
		draw(ctl, m);
		if (m->over) {
			end_line(ctl);
			return m->code ? gantry_ctl_fail(ctl, gantry_ctl_code(m->code),
							 "migration %" PRIu64
							 ": %s; the queue is on %s",
							 id, m->text, m->from)
				       : print_outcome(ctl, m);
		}
		if (gantry_now_ns() >= deadline_ns)
			return gantry_ctl_fail(ctl, GANTRY_CTL_TIMEOUT,
					       "migration %" PRIu64
					       " goes on; see gantryctl migration show %" PRIu64,
					       id, id);
		(void)nanosleep(&pause, NULL); /* shorter is no harm */
	}
}

int gantry_ctl_queue_migrate(struct gantry_ctl *ctl)
{
	_cleanup_(gantry_client_reply_freep) Gantry__Admin__AdminReply *reply = NULL;
	Gantry__Admin__QueueMigrate move = GANTRY__ADMIN__QUEUE_MIGRATE__INIT;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	const char *to = gantry_ctl_option(ctl, "to");
	const Gantry__Admin__Migration *m;
	int r = gantry_ctl_parse_queue(ctl, ctl->args[0], &move.session_id, &move.slot);

	if (r)
		return r;
	if (!to)
		return gantry_ctl_fail(ctl, GANTRY_CTL_USAGE,
				       "--to is missing: say which device the queue is to go to");
	move.device = (char *)to;
	move.dry_run = gantry_ctl_option(ctl, "dry-run") != NULL;
	move.lazy = gantry_ctl_option(ctl, "lazy") != NULL;
	request.body_case = GANTRY__ADMIN__ADMIN_REQUEST__BODY_QUEUE_MIGRATE;
	request.queue_migrate = &move;
	r = gantry_ctl_ask(ctl, &request, GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS, &reply);
	if (r)
		return r;
	m = first(reply);
	return m ? watch(ctl, m->id)
		 : gantry_ctl_fail(ctl, GANTRY_CTL_FAILED, "the agent does not say which it is");
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

	(void)snprintf(name, sizeof(name), "migration %" PRIu64 ": %s %" PRIu64 ":%u, %s to %s",
		       m->id, m->kind, m->session_id, m->slot, m->from, m->to);
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
		fprintf(ctl->out, "%10.3f ms  %-8s %10.3f ms\n",
			(double)m->steps[i]->begin_ns / 1e6, m->steps[i]->state,
			(double)m->steps[i]->ns / 1e6);
}
