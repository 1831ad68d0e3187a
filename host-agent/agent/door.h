/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's Unix socket, and the binding of connections (conn.h) to sockets of type SOCK_SEQPACKET.
 *
 * Trust: guests send; descriptors that come are closed unseen.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DOOR_H
#define GANTRY_HOST_AGENT_AGENT_DOOR_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/err.h"
#include "host-agent/monitor/protocol.h"

struct gantry_agent;
struct gantry_conn;
struct gantry_session;
struct gantry_tenant;

int gantry_door_open(struct gantry_tenant *t, struct gantry_err *err);
void gantry_door_close(struct gantry_tenant *t);
/* An attached session's connection, taken over from an earlier agent. NULL: no memory. */
struct gantry_conn *gantry_door_restore(struct gantry_session *s, int fd);
/* A tenant's socket in the file system. */
struct gantry_door_at {
	const char *path;
	char kept[GANTRY_MONITOR_NAME_MAX]; /* what the monitor knows it by */
	int type;
	uint32_t mode;
	const char *owner;
};

/*
 * Listens there, with the backlog of an earlier agent's if there was one; @ready is told of who comes, with @t. On
 * failure, -errno with a sentence, nothing is open.
 */
int gantry_door_listen(struct gantry_tenant *t, const struct gantry_door_at *at,
		       event_callback_fn ready, int *ret_fd, struct event **ret_event,
		       struct gantry_err *err);
/* And no more: *@fd, which may be negative, is closed, and the socket's file goes. */
void gantry_door_unlisten(struct gantry_tenant *t, const struct gantry_door_at *at, int *fd,
			  struct event **event);

#define GANTRY_DOOR_SCARCE "the host is short of descriptors; raise LimitNOFILE or lower sessions"

/* Whether @fd, just got, is one of the last: for administrators and workers, not for guests. Counted. */
bool gantry_door_scarce(struct gantry_agent *a, int fd);
/*
 * One of those who wait at @listener, whose event is @event; negative: none. Where no descriptor is left for him, the
 * listener looks away for a while. @t may be NULL: it is not one tenant's. @addr and @len as accept()'s.
 */
int gantry_door_accept_one(struct gantry_agent *a, struct gantry_tenant *t, int listener,
			   struct event *event, struct sockaddr *addr, socklen_t *len);
/* Those who wait at a listener of @t's, a bounded number in a turn: @take has each from then on. */
void gantry_door_accept(struct gantry_tenant *t, int listener, struct event *event,
			void (*take)(struct gantry_tenant *t, int fd));
/* REFUSE with a sentence for who becomes no connection; counted, and @fd is closed. */
void gantry_door_turn_away(struct gantry_agent *a, int fd, int status, const char *text);
/* Whether doors let new guests in; those who come meanwhile wait in the sockets. */
void gantry_doors_listen(struct gantry_agent *a, bool on);
/* Those that wait for a place of their tenant are told to try again. */
void gantry_doors_turn_away(struct gantry_agent *a, const char *why);
/* No descriptor is left: listeners look away for a while. */
void gantry_door_exhausted(struct gantry_tenant *t);

#endif
