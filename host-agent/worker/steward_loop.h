/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a worker in steward mode: the agent's orders from @sock, steward.h's answers to it.
 *
 * Threads: the caller's; answers leave from device threads. Blocking: until the agent says Quit or is gone for good.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_STEWARD_LOOP_H
#define GANTRY_HOST_AGENT_WORKER_STEWARD_LOOP_H

#include <stdint.h>

#include "worker.pb-c.h"

/* @configure came with @tag. Opens the devices, confines itself, answers Ready, serves. */
void gantry_steward_loop(int sock, uint64_t tag, const Gantry__Worker__Configure *configure);

#endif
