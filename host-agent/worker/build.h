/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which program this worker is, for agents of other builds. Threads: the control thread. Blocking: never.
 * Order: note() first, while /proc can be seen; fill() then as often as an agent asks.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_BUILD_H
#define GANTRY_HOST_AGENT_WORKER_BUILD_H

#include "worker.pb-c.h"

void worker_build_note(void);
void worker_build_fill(Gantry__Worker__Ready *ready);

#endif
