/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks that run past their tenant's deadline.
 *
 * Threads: the agent's one. Blocking: never.
 * Order: gantry_deadline_arm() whenever a session or a deadline may be new; no timer runs while
 * there is none.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DEADLINE_H
#define GANTRY_HOST_AGENT_AGENT_DEADLINE_H

struct gantry_agent;

void gantry_deadline_arm(struct gantry_agent *a);

#endif
