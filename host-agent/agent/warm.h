/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers kept ready, so that attach is milliseconds where opening devices is not.
 *
 * Threads: the agent's one. Blocking: never: a worker is forked, and ready later.
 * Order: any, once devices and tenants are applied.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_WARM_H
#define GANTRY_HOST_AGENT_AGENT_WARM_H

#include <stdbool.h>

struct gantry_agent;
struct gantry_session;
struct gantry_worker;
struct gantry_worker_class;

/* Bring the stock of warm workers to what is configured, soon. */
void gantry_warm_fill(struct gantry_agent *a);
/* Whether a session waits for a worker of that class. */
bool gantry_warm_is_wanted(struct gantry_agent *a, const struct gantry_worker_class *class);
/* A ready worker for @s, or NULL and one is on its way. */
struct gantry_worker *gantry_warm_take(struct gantry_agent *a, const struct gantry_session *s);

#endif
