/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants' ivshmem doors, and single machines at them, before a device goes: no new session, and after a while none at
 * all. A machine is drained while its door is, or while it is to lose its device itself: one end does not end the other.
 * And the size of the next machine's memory, which is said when the door is opened. All of it is kept for an agent
 * after this one.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DRAIN_H
#define GANTRY_HOST_AGENT_AGENT_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

struct event;
struct gantry_agent;
struct gantry_machine;
struct gantry_tenant;

/* Of a door, or of one machine. */
struct gantry_drain {
	bool is_on;
	uint64_t
		end_unix_ns; /* when the sessions that are left are ended; 0: never, or it has been */
	struct event *timer;
	char reason[96];
};

/*
 * Machine @id, 0: all of them and those to come, are drained: no new session. After @deadline_ns those that are left
 * are ended, with @reason; UINT64_MAX: never. -ENOENT: no such machine.
 */
int gantry_drain_begin(struct gantry_tenant *t, uint64_t id, uint64_t deadline_ns,
		       const char *reason);
/* The door is open, but for machines that were drained by number. The next one's memory has @bytes; 0: as configured. */
void gantry_drain_end(struct gantry_tenant *t, uint64_t bytes);
/* Machine @id keeps its device: it is as open as its door. -ENOENT: no such machine. */
int gantry_drain_end_one(struct gantry_tenant *t, uint64_t id);
/* The next machine has come: what was said of its size is not for others. */
void gantry_drain_size_taken(struct gantry_tenant *t);
/* The tenant ends. */
void gantry_drain_forget(struct gantry_tenant *t);
/* What an earlier agent had been told; after the machines, whose memories say themselves that they are drained. */
void gantry_drain_restore(struct gantry_agent *a);

#endif
