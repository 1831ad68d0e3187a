/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of a session move between the worker's devices: migrate.c, the job and how it begins; migrate_sides.c, source and sink of
 * the state machine. What others call is the engine's, engine.h has its rules.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_MIGRATE_H
#define GANTRY_HOST_AGENT_WORKER_MIGRATE_H

#include "host-agent/worker/engine.h"
#include "host-agent/worker/memory.h"

enum wmigration_phase {
	PHASE_LOOK, /* for what the queue owns */
	PHASE_QUIET,
	PHASE_CARRY,
};

struct wmigration {
	struct wjob job; /* first */
	struct gantry_migration m;
	uint64_t id;
	struct wdevice *d; /* whose thread this runs on */
	struct wqueue *q;
	uint32_t gen;
	uint32_t from;
	uint32_t to;
	bool copies; /* false: both work on host memory */
	bool lazy;
	enum wcarry_way way;
	uint32_t cancel; /* atomic */
	enum wmigration_phase phase;
	struct wquiet quiet;
	bool carrying;
	uint32_t slot; /* of the object that is being carried, or looked at next */
	bool waits;    /* one before it has no memory yet where it goes */
	struct wcarry carry;
	bool has_command;
	struct gantry_cmd *cmd;
	uint64_t round_bytes;
	uint64_t orphaned_ns;
	enum gantry_migration_state told_state;
	uint32_t told_rounds;
	uint64_t told_bytes;
};

/* ---- migrate_sides.c ---- */
extern const struct gantry_migration_source worker_migration_source;
extern const struct gantry_migration_sink worker_migration_sink;
/* The session's lock is held. */
uint64_t worker_migration_owned_bytes_locked(const struct wmigration *mg);
/* -ENOTSUP with a sentence: its program knows addresses on @device, which a queue that goes elsewhere would leave behind. */
int worker_migration_pinned_locked(const struct wsession *s, uint32_t device,
				   struct gantry_err *err);
bool worker_migration_has_kernels_locked(const struct wsession *s, const struct wqueue *q,
					 uint32_t to, struct gantry_err *err);
/* No copy is under way. */
void worker_migration_stop_carrying(struct wmigration *mg, bool arrived);
/* What was copied ahead and has not gone. */
void worker_migration_drop_copies(struct wmigration *mg);

#endif
