/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another build takes over from this agent while tasks run: docs/upgrade.md.
 *
 *   IDLE -> TRYING -> SETTLING -> YIELDED -> (the other build:) TAKEN -> MOVING -> DONE
 *              \_________\___________\________> REFUSED: we go on
 *                                               TAKEN -> BACK: the other one failed, ours was started again
 * One that failed and was started again itself (there was no way back) goes on with MOVING or DONE.
 *
 * TRYING: the monitor has started the other build as a candidate, which says what it is and whether it could serve.
 * SETTLING: nobody new is let in until what is half done is done, or time is up.
 * YIELDED: we do nothing but wait for the monitor's word; who reads the baton's byte goes on, we or the candidate.
 * TAKEN: the other build is the agent; the monitor becomes it next.
 * MOVING: sessions get workers of this build, one after the other (renew.h), if that was asked for.
 *
 * Threads: the agent's one.
 * Blocking: only YIELDED waits, with a limit, and there is nothing else that it could do.
 * Order: a journal line carries it from agent to agent: restored() when that was read, ready() when we serve.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_UPGRADE_H
#define GANTRY_HOST_AGENT_AGENT_UPGRADE_H

#include <event2/event.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "host-agent/agent/build.h"

struct gantry_agent;
struct gantry_monitor_msg;

enum gantry_upgrade_state {
	GANTRY_UPGRADE_IDLE,
	GANTRY_UPGRADE_TRYING,
	GANTRY_UPGRADE_SETTLING,
	GANTRY_UPGRADE_YIELDED,
	GANTRY_UPGRADE_TAKEN,
	GANTRY_UPGRADE_MOVING,
	GANTRY_UPGRADE_DONE,
	GANTRY_UPGRADE_REFUSED,
	GANTRY_UPGRADE_BACK,
	GANTRY_NUPGRADE_STATES,
};

/* What outlives an agent, in the journal. Times are of CLOCK_MONOTONIC. */
struct gantry_upgrade_record {
	uint32_t state; /* enum gantry_upgrade_state */
	uint32_t id;	/* grows; 0: there was none yet */
	uint32_t restart_workers;
	uint32_t ndone;
	uint32_t nrefused;
	uint32_t nback;
	uint64_t began_ns;
	uint64_t yielded_ns; /* since when no new guest is let in */
	uint64_t pause_ns;   /* of the latest: from YIELDED to an agent that serves */
	uint64_t took_ns;    /* the latest as a whole */
	/* Which files they are (gantry_file_identity()): two builds may have one version. 0: not known. */
	uint64_t from_program;
	uint64_t to_program;
	char from[32];
	char to[32];
};

struct gantry_upgrade {
	struct gantry_upgrade_record record;
	bool check;
	bool downgrade;
	struct gantry_build next; /* what the candidate said */
	char path[PATH_MAX];
	char text[GANTRY_ERR_TEXT_MAX]; /* why REFUSED or BACK; what else there is to say of DONE */
	struct event *timer;
	uint64_t settle_by_ns;
	int previous; /* program of the monitor before, while the new one has not said that it lives; or negative */
};

struct gantry_upgrade_ask {
	const char *path; /* absolute; "": the file that ours was started from */
	bool check;	  /* say only what would be */
	bool downgrade;
	bool restart_workers;
};

void gantry_upgrade_init(struct gantry_agent *a);
void gantry_upgrade_fini(struct gantry_agent *a);
/* 0: under way. Else -errno with a sentence, and nothing was touched: -EBUSY, -ENOENT, -EACCES, -EPERM, -ENOTSUP. */
int gantry_upgrade_begin(struct gantry_agent *a, const struct gantry_upgrade_ask *ask,
			 struct gantry_err *err);
/* Whoever begins something now would lose it: the agent is about to let go, or has. */
bool gantry_upgrade_settles(const struct gantry_agent *a);
/* The monitor said something about it; @fd stays the caller's. */
void gantry_upgrade_heard(struct gantry_agent *a, const struct gantry_monitor_msg *msg, int fd);
void gantry_upgrade_restored(struct gantry_agent *a, const struct gantry_upgrade_record *record);
void gantry_upgrade_ready(struct gantry_agent *a);
/* Every session has a worker of this build, or @text says why not. */
void gantry_upgrade_moved(struct gantry_agent *a, const char *text);
/* The monitor died. Its program before, while it had just become another: that one is to be started. Or negative. */
int gantry_upgrade_monitor_died(struct gantry_agent *a);

const char *gantry_upgrade_state_name(uint32_t state);

/* ---- in the candidate ---- */

/* Tell the monitor what we are; @problem: why we could not serve here, "" for none. 0 or -errno. */
int gantry_standby_hello(int monitor_fd, const char *problem);
/* All was handed to us, the baton too. 0: we are the agent; -ECANCELED: the other one goes on. */
int gantry_standby_take(struct gantry_agent *a);

#endif
