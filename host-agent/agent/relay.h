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
#include "host-agent/shared/relay_page.h"

struct gantry_agent;
struct gantry_tenant;

/*
 * Starts one for the guest at @stream, which stays the caller's. *@ret_door is our end of its door, the caller's.
 * -errno with a sentence.
 */
int gantry_relay_start(struct gantry_tenant *t, uint64_t segment_bytes, int stream, int *ret_door,
		       struct gantry_err *err);

/* How many of the tenant's are alive, and what they and those before have moved. */
uint32_t gantry_relays_count(const struct gantry_tenant *t, struct gantry_relay_page *ret_sum);
/* The tenant is about to be freed. */
void gantry_relays_disown(const struct gantry_tenant *t);
/* Of an earlier agent; after the tenants. */
void gantry_relays_restore(struct gantry_agent *a);

/* The agent ends: relays are no more its business. */
void gantry_relays_forget(struct gantry_agent *a);

#endif
