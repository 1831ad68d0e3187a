/* SPDX-License-Identifier: Apache-2.0 */
/* What gantryctl vm migrate did, for events and metrics. libvirt is none of the agent's business. */
#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"

enum outcome {
	BEGUN,
	DONE,
	BACK,
	HALF
};

static const struct {
	const char *name;
	const char *event;
} outcomes[] = {
	[BEGUN] = { "begun", "vm-migration-begun" },
	[DONE] = { "done", "vm-migration-done" },
	[BACK] = { "back", "vm-migration-back" },
	[HALF] = { "half", "vm-migration-half" },
};

static void count(struct gantry_agent *a, enum outcome outcome,
		  const Gantry__Admin__VmMigrationNote *note)
{
	a->counters.vm_migrations += outcome == DONE;
	a->counters.vm_migrations_back += outcome == BACK;
	a->counters.vm_migrations_half += outcome == HALF;
	if (outcome == DONE) {
		a->counters.vm_pause_ns = note->pause_ns;
		a->counters.vm_downtime_ns = note->downtime_ns;
	}
}

void gantry_verb_vm_migration_note(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
				   struct gantry_answer *r)
{
	const Gantry__Admin__VmMigrationNote *note = q->vm_migration_note;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(outcomes); i++) {
		if (strcmp(note->outcome, outcomes[i].name) != 0)
			continue;
		count(a, (enum outcome)i, note);
		gantry_event(a, outcomes[i].event, NULL, NULL, NULL, "%.40s, %.40s: %.60s",
			     note->domain, note->host, note->text);
		return;
	}
	gantry_answer_fail(r, GANTRY_ADMIN_USAGE,
			   "a migration of a machine is begun, done, back "
			   "or half, not \"%.40s\"",
			   note->outcome);
}
