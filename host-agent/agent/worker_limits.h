/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host grants a worker process: its cgroup, and what is said about it. Threads: the
 * agent's.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_WORKER_LIMITS_H
#define GANTRY_HOST_AGENT_AGENT_WORKER_LIMITS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct gantry_agent;
struct gantry_worker;

/*
 * Program, libraries, thread stacks and tables of a worker: in memory.max beside what tenants are
 * granted.
 */
#define GANTRY_LIMITS_SLACK_BYTES (64ull << 20)

/*
 * Finds where groups may be made, and tells once, as events, what may not. Also after a change of
 * the setting.
 */
void gantry_limits_start(struct gantry_agent *a);
void gantry_limits_stop(struct gantry_agent *a);
/* The group for a worker that is about to be forked; "" where it has none. */
void gantry_limits_prepare(struct gantry_worker *w, char path[PATH_MAX]);
/*
 * Bounds of the tenants it serves, and what worker->confined and ->unconfined say. A worker that is
 * ready.
 */
void gantry_limits_apply(struct gantry_worker *w);
void gantry_limits_apply_all(struct gantry_agent *a);
/* The worker has ended. */
void gantry_limits_drop(struct gantry_worker *w);
/* For doctor: true and a sentence when all holds; false and the reason. */
bool gantry_limits_describe(const struct gantry_agent *a, char *text, size_t cap);

#endif
