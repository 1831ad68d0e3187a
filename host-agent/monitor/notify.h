/* SPDX-License-Identifier: Apache-2.0 */
/*
 * systemd's notification protocol (sd_notify(3)), so that the library is not needed. Threads: any.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_NOTIFY_H
#define GANTRY_HOST_AGENT_MONITOR_NOTIFY_H

/*
 * Send @state ("READY=1") where NOTIFY_SOCKET says. 1: sent; 0: nobody asked; -errno. Never blocks.
 */
int gantry_notify(const char *state);

/*
 * The same with a descriptor, which stays the caller's (negative: none). Waits a second at most for room: what is not
 * sent is not kept.
 */
int gantry_notify_fd(const char *state, int fd);

#endif
