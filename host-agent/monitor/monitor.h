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

/*
 * Run. @argv are the program's arguments, repeated to every agent, with "--agent-fd=N" behind them.
 * @takeover_fd:
 * the socket of a running agent (our parent) whose monitor died, negative to start an agent.
 * Returns the exit status for main().
 */
int gantry_monitor_run(char *const argv[], int takeover_fd);

#endif
