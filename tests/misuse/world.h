/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a misuse test runs: an engine in this process, or a gantryd of its own; with an honest neighbour at work on
 * the same device from the first moment to the last.
 *
 * Every test of a case of world_case() finds `world` ready. Its end checks that the neighbour is unharmed and, with a
 * gantryd, that the agent is the same process as at the start and holds no descriptor more than it should.
 */
#ifndef GANTRY_TESTS_MISUSE_WORLD_H
#define GANTRY_TESTS_MISUSE_WORLD_H

#include <stdbool.h>
#include <sys/types.h>

#include "tests/inproc/inproc.h"
#include "tests/misuse/hostile.h"
#include "tests/misuse/neighbour.h"
#include "tests/unit/runner.h"

enum world_kind {
	WORLD_ENGINE, /* attacker and neighbour in one engine: what a pooled worker is */
	WORLD_AGENT,  /* gantryd, two tenants, isolated workers */
	WORLD_AGENT_ON_SMALL_DISK, /* the same, its run folder a file system of 256 KiB; skipped where that cannot be */
};

struct world {
	enum world_kind kind;
	struct inproc_host *host;
	char root[64];
	pid_t monitor;
	pid_t agent;		       /* the first one */
	struct gantry_session *honest; /* the neighbour's */
	struct neighbour neighbour;
};

extern struct world world;

/* A case whose tests start in a fresh world of @kind. */
TCase *world_case(Suite *suite, const char *name, enum world_kind kind);
/* More text for the configuration of this program's agents; the section of tenant red is open at its end. */
void world_config(const char *text);

/* A session of the attacker, and of the library. Both of tenant red. */
void world_hostile(struct hostile *h);
int world_open(struct gantry_session **ret_session);
/* Ends what world_hostile() began; the session is the attacker's in whatever state. */
void world_hostile_end(struct hostile *h);

/* agent only */
void world_door(char path[108], const char *tenant);
void world_path(char path[108], const char *what); /* under the run folder */
pid_t world_agent_pid(void);
/* Live gantry-worker processes; returns how many. */
unsigned int world_workers(pid_t *ret_pids, unsigned int cap);
unsigned int world_agent_fds(void);

#endif
