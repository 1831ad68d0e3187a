/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's way to another host, as an order of steps and the way back from each.
 *
 *   check ─ leave ─ sessions ─ detach ─ move ─ attach ─ return
 *                                        │
 *           everything of the source ────┴──── everything of the destination
 *
 * A step that fails is undone, and so are those before it, the last first: each step's undo() finds out what of its step
 * has been done, so that it is right after a failure in the middle, too. Undoing the move is a migration back. Where
 * that fails the machine stays at the destination, and so do its sessions: what lies before the move is not undone then.
 *
 *   step      does                                                  undo
 *   check     asks everybody; changes nothing                       -
 *   leave     programs that cannot be taken along leave their door  the door opens again
 *   sessions  from agent to agent                                   those that are there come back
 *   detach    devices that libvirt cannot take along come out       they go in again
 *   move      libvirt's live migration                              where it is there: back again
 *   attach    devices go in there                                   those that are in come out
 *   return    guests find their sessions                            -
 *
 * Nothing here knows libvirt or an agent: migrate.c has the steps, tests have others.
 * Threads: one. Blocking: as long as the steps do.
 */
#ifndef GANTRY_HOST_AGENT_VM_JOURNEY_H
#define GANTRY_HOST_AGENT_VM_JOURNEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum gantry_vm_step {
	GANTRY_VM_CHECK,
	GANTRY_VM_LEAVE,
	GANTRY_VM_SESSIONS,
	GANTRY_VM_TAKE_OUT,
	GANTRY_VM_MOVE,
	GANTRY_VM_PUT_IN,
	GANTRY_VM_RETURN,
	GANTRY_VM_NSTEPS
};

enum gantry_vm_outcome {
	GANTRY_VM_DONE,	  /* all is at the destination */
	GANTRY_VM_STAYED, /* nothing had been changed */
	GANTRY_VM_BACK,	  /* it failed, and all is where it was */
	GANTRY_VM_HALF,	  /* it failed, and not all could be undone */
};

/*
 * 0, or an exit code of gantryctl with a sentence. GANTRY_VM_LOST, of the move alone: nobody can say where the machine is now;
 * then nothing is undone, for it might be the wrong half.
 */
typedef int gantry_vm_step_fn(void *arg, struct gantry_err *err);
#define GANTRY_VM_LOST (-1)

struct gantry_vm_journey_ops {
	gantry_vm_step_fn *run[GANTRY_VM_NSTEPS];
	gantry_vm_step_fn *undo[GANTRY_VM_NSTEPS]; /* NULL: nothing to undo */
	/* Somebody wants it to end. Asked before each step up to the move; after that going on is the shorter way. */
	bool (*interrupted)(void *arg);
	/* A step begins, or (@undo) is undone: for those who watch. NULL: nobody does. */
	void (*tell)(void *arg, enum gantry_vm_step step, bool undo);
};

struct gantry_vm_journey {
	enum gantry_vm_outcome outcome;
	int code;		    /* 0; of the step that failed */
	enum gantry_vm_step failed; /* which that was, unless code is 0 */
	struct gantry_err why;
	enum gantry_vm_step stuck; /* GANTRY_VM_HALF: the first that could not be undone */
	struct gantry_err stuck_why;
	uint64_t began_ns[GANTRY_VM_NSTEPS]; /* CLOCK_MONOTONIC; 0: it was not reached */
	uint64_t took_ns[GANTRY_VM_NSTEPS];
};

/* "sessions" */
const char *gantry_vm_step_name(enum gantry_vm_step step);

/* Runs it to its end. @only_check: changes nothing, and says GANTRY_VM_STAYED with code 0 where it could go. */
void gantry_vm_journey_run(const struct gantry_vm_journey_ops *ops, void *arg, bool only_check,
			   struct gantry_vm_journey *ret_journey);

#endif
