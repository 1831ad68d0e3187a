/* SPDX-License-Identifier: Apache-2.0 */
/* Admin verbs of sessions that go to another host, and of all migrations. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/session.h"

/* One agent's phases; of one that an earlier agent began, those since then. */
static void fill_steps(const struct gantry_handover *h, Gantry__Admin__Migration *msg,
		       uint64_t until_ns, struct gantry_answer *r)
{
	msg->steps = gantry_answer_take(r, h->nmarks * sizeof(*msg->steps));
	for (uint32_t i = 0; i < h->nmarks; i++) {
		const struct gantry_handover_mark *mark = &h->marks[i];
		uint64_t end_ns = i + 1 < h->nmarks ? mark[1].at_ns : until_ns;
		Gantry__Admin__MigrationStep *step = gantry_answer_take(r, sizeof(*step));

		gantry__admin__migration_step__init(step);
		step->state = gantry_answer_text(r, gantry_handover_phase_text(mark->phase));
		step->begin_ns = mark->at_ns - h->began_ns;
		step->ns = end_ns > mark->at_ns ? end_ns - mark->at_ns : 0;
		step->moved_bytes = mark->page_bytes;
		msg->steps[msg->n_steps++] = step;
	}
}

static Gantry__Admin__Migration *describe(const struct gantry_handover *h, struct gantry_answer *r)
{
	Gantry__Admin__Migration *msg = gantry_answer_take(r, sizeof(*msg));
	uint64_t until_ns = gantry_handover_is_over(h) ? h->ended_ns : gantry_now_ns();

	gantry__admin__migration__init(msg);
	msg->id = h->id;
	msg->kind = gantry_answer_text(r, "session");
	msg->session_id = h->session_id;
	msg->tenant = gantry_answer_text(r, h->tenant);
	msg->direction = gantry_answer_text(r, h->is_incoming ? "in" : "out");
	msg->host = gantry_answer_text(r, h->host);
	msg->port = h->port;
	msg->state = gantry_answer_text(r, gantry_handover_phase_name(h));
	msg->code = gantry_handover_is_over(h) ? h->code : 0;
	msg->text = gantry_answer_text(
		r,
		gantry_handover_is_over(h) || h->phase == GANTRY_HANDOVER_SERVING ? h->text : "");
	msg->lazy = h->is_lazy || (h->image.flags & GANTRY_IMAGE_LAZY);
	msg->pulled_bytes = h->pulled_bytes;
	msg->touched_bytes = h->touched_bytes;
	msg->rounds = h->rounds;
	msg->owned_bytes = h->owned_bytes;
	msg->page_bytes = h->page_bytes;
	msg->sent_bytes = h->sent_bytes;
	msg->elapsed_ns = until_ns - h->began_ns;
	msg->drain_ns = h->drain_ns;
	msg->downtime_ns = h->downtime_ns;
	msg->dry_run = h->is_dry;
	msg->over = gantry_handover_is_over(h);
	fill_steps(h, msg, until_ns, r);
	return msg;
}

static Gantry__Admin__MigrationList *new_list(struct gantry_answer *r, size_t cap)
{
	Gantry__Admin__MigrationList *list = gantry_answer_take(r, sizeof(*list));

	gantry__admin__migration_list__init(list);
	list->migrations = gantry_answer_take(r, cap * sizeof(*list->migrations));
	r->msg.body_case = GANTRY__ADMIN__ADMIN_REPLY__BODY_MIGRATIONS;
	r->msg.migrations = list;
	return list;
}

void gantry_verb_session_migrate(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				 struct gantry_answer *r)
{
	const Gantry__Admin__SessionMigrate *body = q->session_migrate;
	struct gantry_session *s = gantry_session_find(a, body->session_id);
	struct gantry_err err = GANTRY_ERR_NONE;
	Gantry__Admin__MigrationList *list;
	uint64_t id = 0;
	int code;

	if (!s) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no session %" PRIu64,
				   body->session_id);
		return;
	}
	code = gantry_handover_begin(s,
				     &(struct gantry_handover_ask){ .to = body->host,
								    .bandwidth = body->bandwidth,
								    .is_dry = body->dry_run,
								    .is_staged = body->staged,
								    .is_lazy = body->lazy },
				     &id, &err);
	if (code != 0) {
		gantry_answer_fail(r, (enum gantry_admin_code)code, "%s", err.text);
		return;
	}
	list = new_list(r, 1);
	list->migrations[list->n_migrations++] = describe(gantry_handover_find(a, id), r);
}

/* They are numbered as they began, whatever moves. */
static int by_number(const void *a, const void *b)
{
	const Gantry__Admin__Migration *const *one = a, *const *other = b;

	return ((*one)->id > (*other)->id) - ((*one)->id < (*other)->id);
}

void gantry_verb_migration_list(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				struct gantry_answer *r)
{
	uint64_t id = q->migration_list->id;
	Gantry__Admin__MigrationList *list =
		new_list(r, gantry_list_count(&a->handovers) + gantry_list_count(&a->migrations));

	gantry_list_for_each(&a->handovers, struct gantry_handover, link, h)
		if (id == 0 || h->id == id)
			list->migrations[list->n_migrations++] = describe(h, r);
	list->n_migrations += gantry_migrations_describe(a, id, r,
							 &list->migrations[list->n_migrations]);
	qsort(list->migrations, list->n_migrations, sizeof(*list->migrations), by_number);
	if (id != 0 && list->n_migrations == 0)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no migration %" PRIu64, id);
}

void gantry_verb_migration_proceed(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				   struct gantry_answer *r)
{
	const Gantry__Admin__MigrationProceed *body = q->migration_proceed;
	struct gantry_handover *h = gantry_handover_find(a, body->id);

	if (!h || !h->is_staged)
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND,
				   "there is no staged migration %" PRIu64, body->id);
	else if (gantry_handover_is_over(h))
		gantry_answer_fail(r, GANTRY_ADMIN_FAILED, "migration %" PRIu64 " is over: %s",
				   body->id, h->text);
	else
		gantry_handover_proceed(h, body->commit);
}

void gantry_verb_migration_cancel(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				  struct gantry_answer *r)
{
	uint64_t id = q->migration_cancel->id;
	struct gantry_migration_entry *e = gantry_migration_find(a, id);
	struct gantry_handover *h = gantry_handover_find(a, id);
	struct gantry_err err = GANTRY_ERR_NONE;
	int code;

	if (e) {
		gantry_migration_cancel_queue(a, e, r);
		return;
	}
	if (!h) {
		gantry_answer_fail(r, GANTRY_ADMIN_NOT_FOUND, "there is no migration %" PRIu64, id);
		return;
	}
	code = gantry_handover_cancel(h, &err);
	if (code != 0)
		gantry_answer_fail(r, (enum gantry_admin_code)code, "%s", err.text);
}
