/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vm migrate: what its steps (migrate_check.c, migrate_steps.c) and the verb around them (migrate.c) share.
 *
 * Each side has a libvirt and an agent. Neither agent knows of libvirt, and neither waits for the other's machine: this
 * program asks all four, in the order of journey.h.
 */
#ifndef GANTRY_HOST_AGENT_VM_MIGRATE_H
#define GANTRY_HOST_AGENT_VM_MIGRATE_H

#include "host-agent/vm/journey.h"
#include "host-agent/vm/move.h"
#include "host-agent/vm/sessions.h"

#define GANTRY_VM_TENANTS_MAX 16u

struct gantry_vm_side {
	struct gantry_ctl ctl; /* keeps what went wrong in `said` and writes nothing */
	struct gantry_err said;
	struct gantry_vm vm;
	struct gantry_vm_machine machine; /* as read last */
};

/* A shared-memory door that the machine has, and is to have there. */
struct gantry_vm_luggage {
	char tenant[GANTRY_NAME_LEN_MAX + 1];
	uint64_t bytes; /* of its memory */
	uint64_t peer;	/* the machine's number at the agent here; 0: it is not connected */
	bool drained;
	Gantry__Admin__AdminReply *seats; /* who sits where; attached way */
};

/* How the device goes along. */
enum gantry_vm_way {
	GANTRY_VM_EITHER, /* the check decides */
	GANTRY_VM_DETACHED,
	GANTRY_VM_ATTACHED,
};

struct gantry_vm_trip {
	struct gantry_vm_side here;
	struct gantry_vm_side there;
	/* what was asked for */
	const char *domain;
	const char *uri;
	const char *tenants;
	char to[256];
	char back[256];
	struct gantry_vm_move how;
	const char *back_uri;
	char *own_xml; /* what it is here, for the way back, where how.xml says otherwise */
	bool has_limit;
	bool has_drain;
	uint64_t drain_ns;
	bool has_return;
	uint64_t return_ns;
	/* what was found, and done */
	char uuid[VIR_UUID_STRING_BUFLEN];
	struct gantry_vm_sessions sessions;
	size_t nstreams; /* tenants whose sessions behind streams go along */
	char cid_tenant[GANTRY_NAME_LEN_MAX +
			1]; /* of those the one whose CID is the machine's; "": none */
	uint64_t looks_ns;  /* how long its guests look for their sessions; 0: not known */
	size_t nluggage;
	struct gantry_vm_luggage luggage[GANTRY_VM_DOORS_MAX];
	struct gantry_vm_moved moved;
	size_t missing; /* guests that had not come back at the end */
	enum gantry_vm_way asked_way;
	bool attached;
	struct gantry_err why_detached; /* where nobody has asked for it */
	struct gantry_err caution;	/* what its QEMU may do to it on the way; else empty */
	bool has_tried_seats;		/* and this became of it */
	int seat_code;
	struct gantry_err seat_why;
	bool seated;	/* sessions sit at the machine's door there */
	bool came_back; /* the machine has been there, and stands still here */
	uint64_t resumed_ns;
	struct gantry_vm_journey journey;
};

/* migrate_check.c */
gantry_vm_step_fn gantry_vm_trip_check;

/* migrate_attached.c: can the device stay in? An exit code with the reason where it cannot. */
int gantry_vm_trip_may_stay_in(struct gantry_vm_trip *t, struct gantry_err *err);
/* What is there differently is written into the definition that goes there. */
int gantry_vm_trip_rewrite(struct gantry_vm_trip *t, struct gantry_err *err);
void gantry_vm_trip_forget_seats(struct gantry_vm_trip *t);
const char *gantry_vm_trip_step_name(const struct gantry_vm_trip *t, enum gantry_vm_step step);
extern const struct gantry_vm_journey_ops gantry_vm_attached_ops;

/* migrate_steps.c: of both ways */
gantry_vm_step_fn gantry_vm_trip_bring_back, gantry_vm_trip_await_guests;
bool gantry_vm_trip_interrupted(void *arg);
void gantry_vm_trip_tell(void *arg, enum gantry_vm_step step, bool undo);
/* Returns @code; *@err gets what @side said, where that is not 0. */
int gantry_vm_said(const struct gantry_vm_side *side, int code, struct gantry_err *err);
uint64_t gantry_vm_trip_deadline(const struct gantry_vm_trip *t); /* of one step, from now */
/* Reads the machine as it is now at @side, into side->machine. */
int gantry_vm_trip_look(struct gantry_vm_trip *t, struct gantry_vm_side *side,
			struct gantry_err *err);

/* migrate.c: tells both agents; @outcome as in VmMigrationNote. */
void gantry_vm_trip_note(struct gantry_vm_trip *t, const char *outcome, const char *text);

extern const struct gantry_vm_journey_ops gantry_vm_trip_ops; /* arg: a struct gantry_vm_trip */

#endif
