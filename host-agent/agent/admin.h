/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the admin socket's server: an answer under construction, and who may ask for what.
 *
 *   admin.c         connections, roles, frames, followers of events
 *   admin_list.c    verbs that read
 *   admin_change.c  verbs that change
 *   admin_upgrade.c verbs about another build
 *
 * Trust: who asks is told by the kernel; what is asked is bounded by the frame and checked by each
 * verb.
 * Threads: the agent's one. Blocking: never.
 * Order: an answer is init, filled, sent, fini; the server is started once and stopped once.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_ADMIN_H
#define GANTRY_HOST_AGENT_AGENT_ADMIN_H

#include <stddef.h>
#include <stdint.h>

#include "admin.pb-c.h"
#include "base/err.h"

struct gantry_agent;
struct gantry_event_entry;

/* Exit codes of gantryctl, which are the codes of replies (admin.proto). */
enum gantry_admin_code {
	GANTRY_ADMIN_OK = 0,
	GANTRY_ADMIN_FAILED = 1,
	GANTRY_ADMIN_USAGE = 2,
	GANTRY_ADMIN_NOT_FOUND = 3,
	GANTRY_ADMIN_DENIED = 4,
	GANTRY_ADMIN_QUOTA = 6,
	GANTRY_ADMIN_BUSY = 7,
	GANTRY_ADMIN_UNSUPPORTED = 8,
	GANTRY_ADMIN_TIMEOUT = 124,
};

/* An answer and the memory it points to. */
struct gantry_answer {
	Gantry__Admin__AdminReply msg;
	void **blocks; /* owned */
	size_t nblocks;
	size_t cap;
	char text[GANTRY_ERR_TEXT_MAX];
};

/* ---- admin.c ---- */
int gantry_admin_start(struct gantry_agent *a, struct gantry_err *err);
void gantry_admin_stop(struct gantry_agent *a);
/* Tells followers. */
void gantry_admin_event(struct gantry_agent *a, const struct gantry_event_entry *e);

void gantry_answer_init(struct gantry_answer *r, uint64_t tag);
void gantry_answer_fini(struct gantry_answer *r);
/*
 * @bytes zero bytes that live as long as the answer. Without memory the agent ends: the monitor
 * starts another.
 */
void *gantry_answer_take(struct gantry_answer *r, size_t bytes);
char *gantry_answer_text(struct gantry_answer *r, const char *text);
/* A refusal. */
void gantry_answer_fail(struct gantry_answer *r, enum gantry_admin_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

typedef void gantry_verb_fn(struct gantry_agent *a, const Gantry__Admin__AdminRequest *q,
			    struct gantry_answer *r);

/* ---- admin_list.c ---- */
gantry_verb_fn gantry_verb_version, gantry_verb_device_list, gantry_verb_tenant_list,
	gantry_verb_session_list, gantry_verb_queue_list, gantry_verb_kernel_list,
	gantry_verb_stats, gantry_verb_worker_list, gantry_verb_doctor;
/* An entry of the ring as a message; its texts stay the entry's. */
void gantry_event_message(const struct gantry_event_entry *e, Gantry__Admin__Event *msg);

/* ---- admin_policy.c ---- */
gantry_verb_fn gantry_verb_policy_list, gantry_verb_group_list;

/* ---- admin_door.c ---- */
gantry_verb_fn gantry_verb_door_show, gantry_verb_door_drain, gantry_verb_door_open;

/* ---- admin_seat.c ---- */
gantry_verb_fn gantry_verb_door_seats, gantry_verb_door_expect, gantry_verb_door_take;

/* ---- admin_handover.c ---- */
gantry_verb_fn gantry_verb_session_migrate, gantry_verb_migration_list,
	gantry_verb_migration_cancel, gantry_verb_migration_proceed;
/* ---- admin_vm.c ---- */
gantry_verb_fn gantry_verb_vm_migration_note;

/* ---- admin_upgrade.c ---- */
gantry_verb_fn gantry_verb_agent_upgrade, gantry_verb_agent_upgrade_status;

/* ---- admin_change.c ---- */
gantry_verb_fn gantry_verb_device_set, gantry_verb_tenant_create, gantry_verb_tenant_set,
	gantry_verb_tenant_remove, gantry_verb_session_kick, gantry_verb_queue_set,
	gantry_verb_reload, gantry_verb_rescan;

#endif
