/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of worker.proto about migrations, from and to the engine's structures. Trust: the agent is believed. */
#ifndef GANTRY_HOST_AGENT_WORKER_MIGRATE_MSG_H
#define GANTRY_HOST_AGENT_WORKER_MIGRATE_MSG_H

#include "host-agent/worker/engine.h"
#include "worker.pb-c.h"

struct gantry_engine_migrate gantry_migrate_of_msg(const Gantry__Worker__Migrate *msg);

/* A message, and the arrays that it points to; it points into the report too. */
struct gantry_migration_packet {
	Gantry__Worker__MigrationNews news;
	Gantry__Worker__FromWorker msg;
	uint64_t round_bytes[GANTRY_MIGRATION_MAX_ROUNDS];
	uint64_t state_ns[GANTRY_MIGRATION_NSTATES];
};
void gantry_migration_fill(struct gantry_migration_packet *p, uint64_t tag,
			   struct gantry_engine_migration *report);

#endif
