/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relay processes: each is the guest of one session to us, and speaks with the real one over a stream (relay/main.c).
 * A relay ends when our end of its door closes; it outlives us, the monitor keeps that end.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_RELAY_H
#define GANTRY_HOST_AGENT_AGENT_RELAY_H

#include <stdint.h>

#include "base/err.h"
#include "base/list.h"

struct gantry_agent;
struct gantry_tenant;

/*
 * Starts one for the guest at @stream, which stays the caller's. *@ret_door is our end of its door, the caller's.
 * -errno with a sentence.
 */
int gantry_relay_start(struct gantry_tenant *t, uint64_t segment_bytes, int stream, int *ret_door,
		       struct gantry_err *err);

/* The agent ends: relays are no more its business. */
void gantry_relays_forget(struct gantry_agent *a);

#endif
