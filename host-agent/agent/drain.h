/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tenants' ivshmem doors before a device goes: no new session, and after a while none at all. And the size of the next
 * machine's memory, which is said when the door is opened again. Both are kept for an agent after this one.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DRAIN_H
#define GANTRY_HOST_AGENT_AGENT_DRAIN_H

#include <stdint.h>

struct gantry_agent;
struct gantry_tenant;

/*
 * Machine @id, 0: all of them and those to come, are drained: no new session. After @deadline_ns those that are left
 * are ended, with @reason; UINT64_MAX: never. -ENOENT: no such machine.
 */
int gantry_drain_begin(struct gantry_tenant *t, uint64_t id, uint64_t deadline_ns,
		       const char *reason);
/* All are open again, and the next machine's memory has @bytes; 0: as configured. */
void gantry_drain_end(struct gantry_tenant *t, uint64_t bytes);
/* The next machine has come: what was said of its size is not for others. */
void gantry_drain_size_taken(struct gantry_tenant *t);
/* The tenant ends. */
void gantry_drain_forget(struct gantry_tenant *t);
/* What an earlier agent had been told; after the machines, which know themselves that they are drained. */
void gantry_drain_restore(struct gantry_agent *a);

#endif
