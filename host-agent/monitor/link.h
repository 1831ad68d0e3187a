/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sending and receiving the messages of protocol.h, for both ends.
 *
 * Threads: one at an end. Blocking: as the socket; both ends set a send time-out, because neither
 * may hang for the other.
 */
#ifndef GANTRY_HOST_AGENT_MONITOR_LINK_H
#define GANTRY_HOST_AGENT_MONITOR_LINK_H

#include "host-agent/monitor/protocol.h"
#include "host-agent/monitor/store.h"

#define GANTRY_LINK_SEND_TIMEOUT_S 5

/* A connected pair, close-on-exec, with the send time-out. The caller owns both. 0 or -errno. */
int gantry_link_pair(int ret_fds[2]);

/* @fd may be negative: no descriptor; @name may be NULL. 0 or -errno. */
int gantry_link_send(int sock, uint32_t op, int32_t value, int32_t status, const char *name,
		     int fd);

/*
 * 0 and a message of the right size with its name terminated; *@ret_fd is the caller's, -EBADF for
 * none.
 * -ENODATA: the other end is closed; -EPROTO; -EAGAIN; other -errno.
 */
int gantry_link_recv(int sock, struct gantry_monitor_msg *ret_msg, int *ret_fd, int flags);

/* The same, waiting for it until @deadline_ns (base/clock.h). -ETIMEDOUT. */
int gantry_link_recv_by(int sock, uint64_t deadline_ns, struct gantry_monitor_msg *ret_msg,
			int *ret_fd);

/* The monitor's greeting: every kept descriptor, then HANDED. */
int gantry_link_hand_over(int sock, const struct gantry_store *store, int32_t restarts);

/* The agent's side of it: fills the owning @store. Gives up after @timeout_ms. */
int gantry_link_take_over(int sock, int timeout_ms, struct gantry_store *store,
			  int32_t *ret_restarts);

#endif
