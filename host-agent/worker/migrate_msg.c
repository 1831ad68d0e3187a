/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/worker/migrate_msg.h"

#include <string.h>

#include "base/checked.h"

struct gantry_engine_migrate gantry_migrate_of_msg(const Gantry__Worker__Migrate *msg)
{
	return (struct gantry_engine_migrate){
		.id = msg->id,
		.session_id = msg->session_id,
		.slot = msg->slot,
		.device = msg->device,
		.lazy = msg->lazy,
		.whole = msg->whole,
		.dry_run = msg->dry_run,
		.policy = { .pause_ns = msg->pause_ns, .max_rounds = msg->max_rounds },
	};
}

void gantry_migration_fill(struct gantry_migration_packet *p, uint64_t tag,
			   struct gantry_engine_migration *report)
{
	const struct gantry_migration_counts *c = &report->counts;
	Gantry__Worker__MigrationNews *n = &p->news;

	gantry__worker__migration_news__init(n);
	gantry__worker__from_worker__init(&p->msg);
	n->id = report->id;
	n->session_id = report->session_id;
	n->slot = report->slot;
	n->from = report->from;
	n->to = report->to;
	n->state = report->state;
	n->over = report->over;
	n->error = report->error;
	n->text = report->text;
	n->owned_bytes = c->owned_bytes;
	n->moved_bytes = c->moved_bytes;
	n->last_bytes = c->last_bytes;
	n->dirty_bytes = c->dirty_bytes;
	n->longest_task_ns = c->longest_task_ns;
	n->pause_ns = c->pause_ns;
	n->total_ns = c->total_ns;
	n->pulled_bytes = report->pulled_bytes;
	n->touched_bytes = report->touched_bytes;
	memcpy(p->round_bytes, c->round_bytes, sizeof(p->round_bytes));
	memcpy(p->state_ns, c->state_ns, sizeof(p->state_ns));
	n->round_bytes = p->round_bytes;
	n->n_round_bytes = GANTRY_MIN(c->nrounds, GANTRY_MIGRATION_MAX_ROUNDS);
	n->state_ns = p->state_ns;
	n->n_state_ns = GANTRY_MIGRATION_NSTATES;
	p->msg.tag = tag;
	p->msg.body_case = GANTRY__WORKER__FROM_WORKER__BODY_MIGRATION_NEWS;
	p->msg.migration_news = n;
}
