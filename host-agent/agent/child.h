/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that the agent starts for one thing each, beside workers: gantry-mover, gantry-policy, gantry-relay.
 *
 * Threads: the agent's loop. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_CHILD_H
#define GANTRY_HOST_AGENT_CHILD_H

#include <limits.h>
#include <sys/types.h>

#include "base/err.h"

struct gantry_agent;

#define GANTRY_CHILD_FDS_MAX 4u

/* Where gantry-@what is: beside the worker, as packages put it, or in a build folder. -ENOENT. */
int gantry_child_find(const struct gantry_agent *a, const char *what, char ret_path[PATH_MAX],
		      struct gantry_err *err);

/*
 * Starts the program at @path with @argv (NULL-terminated) in the control group whose folder is @cgroup (NULL or "": in
 * the agent's own). It gets @fds, which stay the caller's, as 3 and following, and nothing else that is open but what
 * it inherits as input, output and errors; no signal is blocked. Its pid, which is the caller's to reap; or -errno. What
 * goes wrong after that is its exit status: 126 or 127.
 */
pid_t gantry_child_start(const char *path, char *const argv[], const char *cgroup, const int *fds,
			 unsigned int nfds);

#endif
