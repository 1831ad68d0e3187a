/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues sent from one device of their session to another.
 *
 * Threads: the agent's one. Blocking: never: a worker is told, and the ledger says when the queue has come.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MIGRATE_H
#define GANTRY_HOST_AGENT_AGENT_MIGRATE_H

#include <stdint.h>

#include "base/err.h"

struct gantry_agent;
struct gantry_session;

/*
 * The session's queue @slot is to be served by the agent's device @device; @why is for people. 0: begun, or it is there; otherwise
 * nothing happens and @err says why: -EINVAL: it may not be there, -ENOENT: there is no such queue, -EBUSY: it has no worker just now.
 */
int gantry_queue_migrate(struct gantry_agent *a, struct gantry_session *s, uint32_t slot,
			 uint32_t device, const char *why, struct gantry_err *err);

#endif
