/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: the small parent of the agent. It keeps descriptors by name, starts the agent again
 * when it
 * dies and hands it all of them, reaps orphaned workers, and speaks to systemd.
 *
 * Trust: parses no configuration, opens no socket, takes no guest's input.
 * Threads: one, the caller's. Blocking: until the agent has ended in order.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_MONITOR_H
#define GANTRY_HOST_AGENT_MONITOR_MONITOR_H

#include <stdbool.h>

/* At most one of the descriptors is not negative; with neither an agent is started. */
struct gantry_monitor_args {
	char *const
		*argv; /* the program's, repeated to every agent, with "--agent-fd=N" behind them */
	int takeover_fd; /* the socket of a running agent (our parent) whose monitor died */
	int resume_fd;	 /* what a monitor of another build, this process before, has left */
	bool shelf;	 /* systemd keeps descriptors for this service */
};

/* Run. Returns the exit status for main(). */
int gantry_monitor_run(const struct gantry_monitor_args *args);

#endif
