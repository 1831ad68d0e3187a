/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about a session that leaves tell each other:
 *
 *   handover_out.c    from the command to the last word
 *   handover_still.c  it comes to rest: memory, queues, worker
 *   handover_ties.c   whether it may go: memory that others use
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_HANDOVER_OUT_H
#define GANTRY_HOST_AGENT_AGENT_HANDOVER_OUT_H

#include "host-agent/agent/handover.h"

/* ---- handover_out.c ---- */

/* It is not to go after all, unless it is offered already. */
void gantry_handover_turn_back(struct gantry_handover *h, int code, const char *text);
/* All that can be done ahead is done. */
void gantry_handover_hold(struct gantry_handover *h);

/* ---- handover_still.c ---- */

/* Copies of what lies in windows, if anything does; the answer is waited for when the mover wants the last round. */
void gantry_handover_gather_ahead(struct gantry_handover *h, struct gantry_session *s);
/*
 * @s stays: what worker @asked was asked for is taken back, and its queues go on once that is answered; until then it may be moving
 * what stood still when it began. Another worker has nothing to take back: they go on at once.
 */
void gantry_handover_go_on(struct gantry_session *s, uint64_t asked);
/* The mover is ready for the last round: another one first, or the session is held. */
void gantry_handover_freeze(struct gantry_handover *h, struct gantry_session *s);
/* Its queues begin nothing new; when nothing of it is with a device its worker goes, and gantry_handover_worker_gone() follows. */
void gantry_handover_come_to_rest(struct gantry_handover *h, struct gantry_session *s);

/*
 * Its worker ends, or lets go of it where it serves others too; gantry_recover_session() follows. @s has a worker. What it
 * has with a device is in doubt after that, or cut short.
 */
void gantry_handover_leave_worker(struct gantry_session *s);

/* ---- handover_ties.c ---- */

/* 0; else an exit code of gantryctl, and a sentence that names the buffer and who else has it. */
int gantry_handover_ties(const struct gantry_session *s, struct gantry_err *err);

#endif
