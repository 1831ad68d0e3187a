/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other agents, on RUNDIR/peer.sock: they may ask for this host's devices.
 *
 * Trust: a peer's messages are bounded and checked before they mean anything.
 * Threads: the agent's one. Blocking: never.
 * Order: start once, stop once; stopping what is not started does nothing.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_PEER_H
#define GANTRY_HOST_AGENT_AGENT_PEER_H

#include "base/err.h"

struct gantry_agent;

int gantry_peers_start(struct gantry_agent *a, struct gantry_err *err);
void gantry_peers_stop(struct gantry_agent *a);

#endif
