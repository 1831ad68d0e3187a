/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of one machine, on their way from the agent here to the one there and back.
 *
 * Which session there is which of those that went is told by when it was attached, which goes along: numbers are an
 * agent's own.
 * Functions return 0 or an exit code with a sentence in the ctl->into of the agent that was asked (context.h).
 * Threads: one. Blocking: until the deadline given; libvirt's connections are kept alive meanwhile.
 */
#ifndef GANTRY_HOST_AGENT_VM_SESSIONS_H
#define GANTRY_HOST_AGENT_VM_SESSIONS_H

#include "host-agent/vm/vm.h"

#define GANTRY_VM_SESSIONS_MAX 256u

enum gantry_vm_where_session {
	GANTRY_VM_HERE,
	GANTRY_VM_THERE,
	GANTRY_VM_GONE,	    /* its program has ended */
	GANTRY_VM_IN_DOUBT, /* offered, and nobody has said whether it was taken */
};

struct gantry_vm_session {
	char tenant[GANTRY_NAME_LEN_MAX + 1];
	char program[64];
	uint64_t
		machine; /* at whose shared-memory door it is, by the agent here; 0: behind a stream */
	uint64_t attached_unix_ns;
	uint64_t id[2]; /* by GANTRY_VM_HERE and _THERE; 0: not known */
	enum gantry_vm_where_session where;
	bool stays;	    /* it cannot go, and its program is asked to leave */
	uint64_t migration; /* the latest one's number */
	uint64_t held_ns;   /* CLOCK_MONOTONIC: from when on it stood still */
	uint64_t back_ns;   /* and when its guest was seen again; 0: not yet */
};

struct gantry_vm_sessions {
	struct gantry_vm *vm; /* whose events go on meanwhile */
	struct gantry_ctl *agent[2];
	const char *host[2]; /* how the other agent reaches each, as of session migrate --to */
	uint64_t bandwidth;
	bool staged; /* they go in step with their machine: ask about that way, and stage() */
	size_t n;
	struct gantry_vm_session list[GANTRY_VM_SESSIONS_MAX];
};

/*
 * Adds @tenant's sessions at @door, "vsock" or "stream" (NULL: both); or, with @machine, those of that machine at the
 * shared-memory door.
 */
int gantry_vm_sessions_find(struct gantry_vm_sessions *s, const char *tenant, const char *door,
			    uint64_t machine);

/* Could @session go? Asks both agents, by a dry run; nothing is changed. */
int gantry_vm_session_ask(struct gantry_vm_sessions *s, struct gantry_vm_session *session,
			  uint64_t deadline_ns);

/*
 * Sends all that are at @from and do not stay to the other side. Where one fails, those under way are called back and those that have arrived stay there;
 * session->where says which.
 */
int gantry_vm_sessions_send(struct gantry_vm_sessions *s, enum gantry_vm_where_session from,
			    uint64_t deadline_ns);

/*
 * The same in step with their machine: stage() copies ahead what is here, hold() has them held still once the machine
 * is, without waiting for that and from any thread while no other call is under way; go() waits until they are, then has them
 * go over, and cancel() has them stay.
 */
int gantry_vm_sessions_stage(struct gantry_vm_sessions *s, uint64_t deadline_ns);
void gantry_vm_sessions_hold(struct gantry_vm_sessions *s);
int gantry_vm_sessions_await_held(struct gantry_vm_sessions *s, uint64_t deadline_ns);
int gantry_vm_sessions_go(struct gantry_vm_sessions *s, uint64_t deadline_ns);
void gantry_vm_sessions_cancel(struct gantry_vm_sessions *s);

/* What became of those in doubt. 0: nobody is any more. */
int gantry_vm_sessions_settle(struct gantry_vm_sessions *s, uint64_t deadline_ns);

/* Until the guests of all that are there have come back to them; *@ret_missing: how many have not by the deadline. */
int gantry_vm_sessions_await(struct gantry_vm_sessions *s, uint64_t deadline_ns,
			     size_t *ret_missing);

/* How many are @where. */
size_t gantry_vm_sessions_count(const struct gantry_vm_sessions *s,
				enum gantry_vm_where_session where);

#endif
