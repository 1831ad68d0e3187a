/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues of a session move between the worker's devices: migrate.c, the job and how it begins; migrate_sides.c, source and sink of
 * the state machine; migrate_rounds.c, copying ahead; migrate_whole.c, all work of a session with its addresses. What others call is the engine's, engine.h has its rules.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_MIGRATE_H
#define GANTRY_HOST_AGENT_WORKER_MIGRATE_H

#include "host-agent/worker/engine.h"
#include "host-agent/worker/memory.h"

enum wmigration_phase {
	PHASE_LOOK, /* for what the queue owns */
	PHASE_QUIET,
	PHASE_CARRY,
	PHASE_CARRIED,
};

struct wmigration {
	struct wjob job; /* first */
	struct gantry_migration m;
	uint64_t id;
	struct wdevice *d; /* whose thread this runs on */
	struct wqueue *q;  /* NULL: all of the session's work (migrate_whole.c) */
	uint32_t gen;
	uint32_t from;
	uint32_t to;
	bool copies; /* false: both work on host memory */
	bool lazy;
	enum wcarry_way way;
	uint32_t cancel; /* atomic */
	enum wmigration_phase phase;
	struct wquiet quiet;
	struct wquiet stamp; /* of marks that age */
	bool stamping;
	bool carrying;
	uint32_t slot; /* of the object that is being carried */
	uint32_t left; /* objects below it are to be looked at in this round */
	bool waits;    /* one before it has no memory yet where it goes */
	struct wcarry carry;
	bool has_command;
	struct gantry_cmd *cmd;
	uint64_t round_bytes;
	uint64_t asked_ns;    /* of all of a session: what had been issued then is waited for */
	uint64_t orphaned_ns; /* queues are held */
	uint64_t still_ns;    /* and operations */
	enum gantry_migration_state told_state;
	uint32_t told_rounds;
	uint64_t told_bytes;
	bool told_reason;
};

/* ---- migrate_sides.c ---- */
extern const struct gantry_migration_source worker_migration_source;
extern const struct gantry_migration_sink worker_migration_sink;
/* The session's lock is held. */
uint64_t worker_migration_owned_bytes_locked(const struct wmigration *mg);
/* 0 or -ENOSPC. Copying ahead charges each buffer; here they are added up. */
int worker_migration_has_room(const struct wmigration *mg, uint64_t owned_bytes,
			      struct gantry_err *err);
/* -ENOTSUP with a sentence: its program knows addresses on @device, which a queue that goes elsewhere would leave behind. */
int worker_migration_pinned_locked(const struct wsession *s, uint32_t device,
				   struct gantry_err *err);
/* What only its tasks have used, and of the rest what they wrote last: others read that, or will write it. */
bool worker_migration_owns_locked(const struct wmigration *mg, uint32_t slot);
/* Of a buffer that is copied ahead for this move; else NULL. */
struct wahead *worker_migration_ahead_locked(const struct wmigration *mg, uint32_t slot);
/* The migration's word for a status. */
int worker_migration_error(int status, struct gantry_err *err);
bool worker_migration_has_kernels_locked(const struct wsession *s, const struct wqueue *q,
					 uint32_t to, struct gantry_err *err);
/* What was copied ahead and has not gone. */
void worker_migration_drop_copies(struct wmigration *mg);

/* ---- migrate_whole.c ---- */
extern const struct gantry_migration_source worker_whole_source;
extern const struct gantry_migration_sink worker_whole_sink;
/* Whether all of the session's work could go to device @to; fills in from where, and how much that is. -errno with a sentence. */
int worker_migration_whole_locked(struct wmigration *mg, uint32_t to, struct gantry_err *err);

/* ---- migrate_rounds.c ---- */
/* 0, *ret_bytes copied and *ret_dirty marked since; -EAGAIN; another error with a sentence. */
int worker_migration_round(struct wmigration *mg, uint64_t *ret_bytes, uint64_t *ret_dirty,
			   struct gantry_err *err);
/* No copy is under way. */
void worker_migration_stop_carrying(struct wmigration *mg, bool arrived);
/* Nobody holds on to the migration to tell how far queues are. */
bool worker_migration_is_alone(struct wmigration *mg);

#endif
