/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a worker's death: what it held is freed, its sessions get successors, the culprit gets the
 * error.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: once a worker, after its exit is known.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_RECOVER_H
#define GANTRY_HOST_AGENT_AGENT_RECOVER_H

struct gantry_session;
struct gantry_worker;

/* @w is dead: bury it, and find successors for its sessions. @w is gone. */
void gantry_recover(struct gantry_worker *w);
/* A session without a living worker: a successor, or its end. */
void gantry_recover_session(struct gantry_session *s);

#endif
