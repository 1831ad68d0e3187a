/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the monitor: its state, and which file does what with it.
 *
 *   monitor.c    the loop: the agent's life, signals, time
 *   program.c    starting programs, and who may be started
 *   candidate.c  another build that is to take over from the agent
 *   become.c     the monitor becomes another build itself
 *   document.c   what it leaves for that, as text
 *   shelf.c      systemd's descriptor store
 *
 * Threads: one. Blocking: as monitor.h says.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_STATE_H
#define GANTRY_HOST_AGENT_MONITOR_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host-agent/monitor/protocol.h"
#include "host-agent/monitor/store.h"

/* Workers that ended while there was no agent to tell. */
#define GANTRY_MONITOR_UNTOLD_MAX 1024u

struct gantry_monitor_exited {
	pid_t pid;
	int status;
};

enum gantry_candidate_state {
	GANTRY_CANDIDATE_NONE,
	GANTRY_CANDIDATE_STARTING, /* nothing was given to it */
	GANTRY_CANDIDATE_GIVEN, /* it has all but the baton, or the baton too and did not say so yet */
};

struct gantry_candidate {
	enum gantry_candidate_state state;
	bool cancelled; /* nobody wants to hear of it any more */
	pid_t pid;
	int sock;
	int program;
	int next;	  /* a program to be tried when this one has ended; negative: none */
	bool no_way_back; /* GANTRY_MONITOR_TRY_AGAIN */
};

struct gantry_monitor {
	char *const *argv;
	int program; /* what agents are started from; O_PATH */
	struct gantry_store store;
	int signals;
	int sock; /* to the agent; negative: there is none */
	int agent_pidfd;
	pid_t agent_pid;
	bool agent_is_child;
	bool was_ready; /* some agent was: failing to start is no longer a reason to end */
	bool stopping;
	bool bye;
	bool agent_gone;
	int agent_status;
	int32_t restarts;
	uint64_t started_ns;
	uint64_t backoff_ns;
	uint64_t start_at_ns; /* when to start the next agent */
	uint64_t kill_at_ns;
	unsigned int nuntold;
	struct gantry_monitor_exited untold[GANTRY_MONITOR_UNTOLD_MAX];

	struct gantry_candidate candidate;
	/* The agent is of another build and was not ready yet: back to this program if it never is. */
	int previous;	  /* negative: no such trial */
	bool no_way_back; /* it does not read what has been written meanwhile: never back */
	uint64_t trial_ends_ns;
	pid_t leaving_pid; /* the agent before, told to leave; 0: none */
	uint64_t leave_by_ns;
	bool become; /* when the loop comes round: the program is another than ours */

	bool shelf; /* systemd keeps descriptors for us */
};

/* ---- monitor.c ---- */
void gantry_monitor_forget_agent(struct gantry_monitor *m);
/* News for the agent of workers that ended; kept while there is none. */
void gantry_monitor_tell_exited(struct gantry_monitor *m);

/* ---- program.c ---- */
/* What runs now, by descriptor: a file put in its place since is another program. */
int gantry_program_self(void);
/*
 * May the monitor, which has every right, start this file? A regular program that nobody but root and our own user
 * can have written. 0, -EACCES: not executable; -EPERM; -ENOTSUP: no regular file; other -errno.
 */
int gantry_program_check(int program);
/*
 * Replace this process; signals stay as they are, blocked ones pending. @argv, then @arg0 and @arg1 (NULL: not). @keep is to stay open there; negative: none.
 * Returns -errno only.
 */
int gantry_program_exec(int program, char *const argv[], const char *arg0, const char *arg1,
			int keep);
/* As a child, with a socket to it as "--agent-fd=N". */
int gantry_program_start(const struct gantry_monitor *m, int program, const char *arg,
			 pid_t *ret_pid, int *ret_sock);

/* ---- candidate.c ---- */
/* Takes @program over. */
void gantry_candidate_try(struct gantry_monitor *m, int program);
void gantry_candidate_cancel(struct gantry_monitor *m);
/* Takes @baton over. @way_back: enum gantry_monitor_way_back. */
void gantry_candidate_give(struct gantry_monitor *m, int baton, int way_back);
void gantry_candidate_readable(struct gantry_monitor *m);
void gantry_candidate_ended(struct gantry_monitor *m, int status);
/* It is the agent now, and ready. */
void gantry_candidate_ready(struct gantry_monitor *m);
/* An agent starts. Where it is of another build, and none of that was ready yet: it has so much time. */
void gantry_candidate_on_trial(struct gantry_monitor *m);
/*
 * It is the agent now, and died, or was not ready in time: agents are started from the old program again, at once, or
 * from the new one after a while where there is no way back.
 */
void gantry_candidate_failed(struct gantry_monitor *m);

/* ---- become.c ---- */
/* Replaces the process by m->program with all that @m knows; returns if that fails. */
void gantry_monitor_become(struct gantry_monitor *m);
/* In the new program: takes all up from the memfd @fd, which it closes. 0 or -errno. */
int gantry_monitor_resume(struct gantry_monitor *m, int fd);

/* ---- shelf.c ---- */
/* What systemd kept of a service before; and whether it keeps. */
void gantry_shelf_open(struct gantry_monitor *m);
void gantry_shelf_put(const struct gantry_monitor *m, const char *name, int fd);
void gantry_shelf_drop(const struct gantry_monitor *m, const char *name);

#endif
