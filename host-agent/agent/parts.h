/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a door memory: a session's segment each. Who gets one gets zeroes, and what a session leaves is given back to
 * the host: with hundreds of MiB that takes the kernel longer than anybody should wait for the agent. So it is done in
 * steps of bounded size from the event loop, with pauses twice as long as the step before; meanwhile the part is no hole.
 * Memories take turns, and so do the parts of one.
 *
 * Trust: the machine writes wherever it likes at any time. A part is clean when each of its bytes has been since the last
 * session had it; what its own machine writes after that is the machine's affair.
 * Threads: the agent's one. Blocking: as long as one step takes.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_PARTS_H
#define GANTRY_HOST_AGENT_AGENT_PARTS_H

#include <stdint.h>

struct gantry_agent;
struct gantry_desk;
struct gantry_doormem;
struct gantry_tenant;

/* Of one step. */
#define GANTRY_PARTS_STEP_BYTES (4ull << 20)

/* What a desk that wants a part has of one. */
enum gantry_desk_part {
	GANTRY_PART_NONE,
	GANTRY_PART_ROOM,     /* waits until any is clean */
	GANTRY_PART_CLEARING, /* that at part_off is being cleared for it */
	GANTRY_PART_READY,    /* that at part_off is its */
};

/*
 * A part of @bytes for @d. 0: it is READY. 1: there will be one, or the room for one; then gantry_conn_admit() is called
 * from the event loop. -ENOSPC: there is none, and nothing that is being cleared could become one.
 */
int gantry_parts_take(struct gantry_desk *d, uint64_t bytes);
/* @d wants none any more; what it had is free. */
void gantry_parts_forget(struct gantry_desk *d);
/* What begins at @off is nobody's any more: a hole again, once it is clean. */
void gantry_parts_put(struct gantry_doormem *m, uint64_t off);
/* All of a memory that is nobody's is cleared, as far as it is not; m->nclearing says whether there is anything to do. */
void gantry_parts_clear_all(struct gantry_doormem *m, uint64_t begin);
/* Steps, if there was no memory for their timer when they were due. */
void gantry_parts_go_on(struct gantry_agent *a);

#endif
