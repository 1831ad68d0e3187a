/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control program as a child: as daemon, or to say a few lines to one and hear what it answers.
 *
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_MPS_RUN_H
#define GANTRY_HOST_AGENT_AGENT_MPS_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct gantry_agent;

/* @ok: it ended by itself, with status 0. @answer: what it printed, cut; valid during the call. */
typedef void gantry_mps_run_fn(void *arg, bool ok, const char *answer);

/* nvidia-cuda-mps-control as the configuration names it or as PATH has it. -ENOENT. */
int gantry_mps_program(const struct gantry_agent *a, char path[PATH_MAX]);
/* The environment of a process that belongs to the daemon in @dir. */
void gantry_mps_set_dirs(const char *dir);
/* Starts the daemon in @dir. */
int gantry_mps_run_daemon(struct gantry_agent *a, const char *dir, bool multiuser, pid_t *ret_pid,
			  int *ret_pidfd, struct gantry_err *err);
/* Says @text to the daemon in @dir; @fn is called once, later, unless -errno is returned. */
int gantry_mps_run(struct gantry_agent *a, const char *dir, const char *text, uint64_t timeout_ns,
		   gantry_mps_run_fn *fn, void *arg);
/* Nobody waits for the answers to @arg any more; what is said is still said. */
void gantry_mps_run_forget(struct gantry_agent *a, const void *arg);
void gantry_mps_run_fini(struct gantry_agent *a);

#endif
