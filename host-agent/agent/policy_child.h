/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy of a shared object, in a process of its own (host-agent/policy/main.c). It is asked, and what it answers is carried out when it
 * comes; the agent waits for nothing. A process that dies, is late or answers nonsense is ended and told of, the built-in
 * fallback decides, and another process is tried after a while that doubles each time.
 *
 * Trust: the object is root's, or the agent's own user's, and nobody else can write it; what its process says is checked all the same.
 * Threads: the agent's one. Blocking: never.
 * Order: new, ask, free. The process outlives the object until it is reaped.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_POLICY_CHILD_H
#define GANTRY_HOST_AGENT_AGENT_POLICY_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host-agent/agent/config.h"

struct gantry_domain;
struct gantry_placement;
struct gantry_policy_child;
struct gantry_view_store;

/* For domain @d, which owns it; its options are the domain's. NULL: no memory. */
struct gantry_policy_child *gantry_policy_child_new(struct gantry_placement *p,
						    struct gantry_domain *d,
						    const struct gantry_policy_section *conf);
void gantry_policy_child_free(struct gantry_policy_child *c);
/*
 * Asks about @store, which is copied. True: it decides, now or in a while, and what it decides is carried out; or it is being
 * started, for the first time. False: the fallback is to decide.
 */
bool gantry_policy_child_ask(struct gantry_policy_child *c, const struct gantry_view_store *store);
/* For people: "ready", "starting" or "failed"; why it failed; what it says of itself; its process, 0: none. */
const char *gantry_policy_child_state(const struct gantry_policy_child *c);
const char *gantry_policy_child_reason(const struct gantry_policy_child *c);
const char *gantry_policy_child_summary(const struct gantry_policy_child *c);
pid_t gantry_policy_child_pid(const struct gantry_policy_child *c);
/* The agent ends: no process is left. */
void gantry_policy_children_end(struct gantry_placement *p);

#endif
