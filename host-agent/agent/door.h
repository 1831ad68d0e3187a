/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Doors: a tenant's listener, and the connections that guests make through it.
 *
 * Trust: guests send; sizes, versions and the order of messages are checked here.
 * Threads: the agent's one. Blocking: never: a guest that does not read loses its connection.
 * Order: a connection is half open, may wait for room, attaches, is attached.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_DOOR_H
#define GANTRY_HOST_AGENT_AGENT_DOOR_H

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "proto/door.h"

struct gantry_agent;
struct gantry_session;
struct gantry_tenant;

enum gantry_conn_state {
	GANTRY_CONN_HALF_OPEN, /* waiting for HELLO */
	GANTRY_CONN_WAITING,   /* for room in the tenant */
	GANTRY_CONN_ATTACHING,
	GANTRY_CONN_ATTACHED,
};

/* One guest's door connection. */
struct gantry_conn {
	struct gantry_list link; /* tenant->waiting while it waits */
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	struct gantry_session *session;
	int fd;
	struct event *event;
	enum gantry_conn_state state;
	struct gantry_door_hello hello;
	pid_t pid; /* 0: of a pid namespace that we do not see */
	uid_t uid;
	int pidfd; /* of the guest, where the kernel gives one */
	struct event *pid_event;
	uint32_t noutstanding; /* requests under way */
};

int gantry_door_open(struct gantry_tenant *t, struct gantry_err *err);
void gantry_door_close(struct gantry_tenant *t);
/* An attached session's connection, taken over from an earlier agent. NULL: no memory. */
struct gantry_conn *gantry_conn_restore(struct gantry_session *s, int fd);
void gantry_conn_close(struct gantry_conn *c);
/* Send; a guest that does not read loses its connection: then -EPIPE and @c is gone. */
int gantry_conn_send(struct gantry_conn *c, const void *msg, size_t len, const int *fds,
		     unsigned int nfds);
/* REFUSE with a sentence, then close. @c is gone. */
void gantry_conn_refuse(struct gantry_conn *c, int status, const char *text);
void gantry_conn_notice(struct gantry_conn *c, int status, const char *text);
/* A session ended: whoever waits for room gets a turn. */
void gantry_door_next(struct gantry_tenant *t);

#endif
