/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over from an agent that died: its descriptors come from the monitor, their names say what
 * they are.
 *
 * Threads: the agent's one. Blocking: never: workers that lived on answer later.
 * Order: pages, the configuration, sessions; then the workers' answers.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_RESTORE_H
#define GANTRY_HOST_AGENT_AGENT_RESTORE_H

#include "worker.pb-c.h"

struct gantry_agent;
struct gantry_worker;

/*
 * Takes over what an earlier agent left: devices and tenants' pages before the configuration is
 * applied, workers and
 * sessions after it. Descriptors move out of a->handed.
 */
void gantry_restore_pages(struct gantry_agent *a);
void gantry_restore_sessions(struct gantry_agent *a);
/* A worker that lived on says what it serves. */
void gantry_restore_answered(struct gantry_worker *w, const Gantry__Worker__Ready *ready);
/*
 * One more worker has answered or died: sessions that nobody serves get a successor after the last.
 */
void gantry_restore_settle(struct gantry_agent *a);

#endif
