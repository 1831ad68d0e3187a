/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Migrations: the list that administrators see, and moves of queues between devices, which the session's worker carries out
 * (worker/migrate.c). Who moves something else, such as a session to another host, notes it here too.
 *
 * Trust: what a worker says of a migration is for show; where a queue is, its ledger says.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MIGRATE_H
#define GANTRY_HOST_AGENT_AGENT_MIGRATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/config.h"
#include "migration/migrate.h"
#include "worker.pb-c.h"

struct gantry_agent;
struct gantry_ledger_queue;
struct gantry_session;
struct gantry_worker;

#define GANTRY_MIGRATIONS_KEPT 64u /* that are over */

struct gantry_migration_entry {
	struct gantry_list link; /* agent->migrations, oldest first */
	uint64_t id;
	const char *kind; /* static: "queue", "session" */
	uint64_t session_id;
	uint32_t slot; /* of a queue */
	char tenant[GANTRY_CONFIG_NAME];
	char from[128]; /* device or host */
	char to[128];
	char why[32];
	bool dry_run;
	bool lazy;
	bool is_whole;		/* a session that goes to another device of this host */
	uint64_t numbering;	/* of its devices, when it set out */
	uint64_t pulled_bytes;	/* of a lazy one: what its tasks have had moved since it arrived */
	uint64_t touched_bytes; /* of them, what those tasks said that they use */
	bool waits;		/* for an answer of its worker's */
	bool over;
	int error; /* -errno: it is where it was. 0 with over: it is there, or with dry_run it could be */
	char text[GANTRY_ERR_TEXT_MAX];
	enum gantry_migration_state state;
	struct gantry_migration_counts counts;
	uint64_t started_ns;
	uint64_t ended_ns;
	uint32_t from_device;
	uint32_t to_device;
	uint32_t lane;	      /* of it, + 1, that the queue keeps there; 0: any */
	uint32_t lane_before; /* the ledger's word when it set out */
	uint64_t worker_id;
	/* Asks for the way back. NULL: it has none. 0, or -errno with a sentence. */
	int (*cancel)(struct gantry_agent *a, struct gantry_migration_entry *e,
		      struct gantry_err *err);
	void *owner; /* of who noted it */
};

/* A new entry, begun now, with a fresh id; the list's, which forgets it some time after it is over. NULL: no memory. */
struct gantry_migration_entry *gantry_migration_note(struct gantry_agent *a, const char *kind,
						     const struct gantry_session *s,
						     const char *from, const char *to,
						     const char *why);
/* It is over: an event tells it. @error 0: at its destination. @text NULL: none. */
void gantry_migration_ended(struct gantry_agent *a, struct gantry_migration_entry *e, int error,
			    const char *text);
struct gantry_migration_entry *gantry_migration_find(struct gantry_agent *a, uint64_t id);

struct gantry_queue_move {
	uint32_t slot;
	uint32_t device; /* index of the agent's */
	uint32_t lane;	 /* of it, + 1; 0: any */
	bool dry_run;
	bool lazy;
	const char *why;
};

/* The lane of its device that the queue keeps, + 1; 0: any. */
uint32_t gantry_queue_lane(const struct gantry_ledger_queue *led);
/* Begins; the entry tells how it goes. -errno with a sentence: it has not begun, and there is no entry. */
int gantry_queue_move(struct gantry_agent *a, struct gantry_session *s,
		      const struct gantry_queue_move *move,
		      struct gantry_migration_entry **ret_entry, struct gantry_err *err);
/* The same of all that a session works on, with the addresses that its program knows. */
int gantry_session_move(struct gantry_agent *a, struct gantry_session *s, uint32_t device,
			bool dry_run, struct gantry_migration_entry **ret_entry,
			struct gantry_err *err);
/*
 * The same for policies: 0, it has begun, or the queue is there; -EBUSY, it is being moved; else refused. The end shows in the
 * ledger's queue.
 */
int gantry_queue_migrate(struct gantry_agent *a, struct gantry_session *s, uint32_t slot,
			 uint32_t device, const char *why, struct gantry_err *err);
/* Whether a queue is on its way. */
bool gantry_migrations_under_way(const struct gantry_agent *a);
/* Queues leave a device that drains, while they run; what cannot is left to gantry_devices_allow(). */
void gantry_migrations_drain(struct gantry_agent *a, uint32_t device);

/* What a worker says; that it died; that a session is gone. */
void gantry_migration_told(struct gantry_worker *w, const Gantry__Worker__MigrationNews *news);
void gantry_migrations_worker_died(struct gantry_session *s);
void gantry_migrations_session_gone(struct gantry_session *s);
void gantry_migrations_fini(struct gantry_agent *a);

/* ---- admin_migration.c ---- */
gantry_verb_fn gantry_verb_queue_migrate;
/* Entry @id, or all of them with 0, as rows of an answer; @ret_rows has room. How many. */
size_t gantry_migrations_describe(struct gantry_agent *a, uint64_t id, struct gantry_answer *r,
				  Gantry__Admin__Migration **ret_rows);
void gantry_migration_cancel_queue(struct gantry_agent *a, struct gantry_migration_entry *e,
				   struct gantry_answer *r);

#endif
