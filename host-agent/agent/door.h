/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tenant's Unix socket, and the binding of connections (conn.h) to sockets of type SOCK_SEQPACKET.
 *
 * Trust: guests send; descriptors that come are closed unseen.
 * Threads: the agent's one. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DOOR_H
#define GANTRY_HOST_AGENT_AGENT_DOOR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

struct event;
struct gantry_agent;
struct gantry_conn;
struct gantry_session;
struct gantry_tenant;

int gantry_door_open(struct gantry_tenant *t, struct gantry_err *err);
void gantry_door_close(struct gantry_tenant *t);
/* An attached session's connection, taken over from an earlier agent. NULL: no memory. */
struct gantry_conn *gantry_door_restore(struct gantry_session *s, int fd);
/* A listener at @path that an earlier agent left with the monitor: its backlog is not lost. -ENOENT. */
int gantry_door_kept(struct gantry_agent *a, const char *name, const char *path);
/* Makes the folders that @path lies in. */
int gantry_door_make_parents(const char *path, struct gantry_err *err);
/* Who may connect to the socket at @path; a failure is told. */
void gantry_door_give_to(const struct gantry_tenant *t, const char *path, uid_t uid, gid_t gid,
			 const char *owner);
#define GANTRY_DOOR_SCARCE "the host is short of descriptors; raise LimitNOFILE or lower sessions"

/* Whether @fd, just got, is one of the last: for administrators and workers, not for guests. Counted. */
bool gantry_door_scarce(struct gantry_agent *a, int fd);
/* No descriptor is left: @listener, whose event that is, looks away for a while. @t may be NULL: it is not one tenant's. */
void gantry_door_look_away(struct gantry_agent *a, struct gantry_tenant *t, struct event *listener);
/* Whether doors let new guests in; those who come meanwhile wait in the sockets. */
void gantry_doors_listen(struct gantry_agent *a, bool on);
/* No descriptor is left: listeners look away for a while. */
void gantry_door_exhausted(struct gantry_tenant *t);

#endif
