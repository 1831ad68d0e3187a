/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest process at its tenant's door, however it came there: messages and their order, waiting for room, attach,
 * refusal, news. What differs between doors is a binding: door.c's for Unix sockets, doormem.c's for the memory of a
 * virtual machine.
 *
 * Trust: guests send; sizes, versions and the order of messages are checked here.
 * Threads: the agent's one. Blocking: never: a guest that does not read loses its connection.
 * Order: a connection is half open, may wait for room, attaches, is attached.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_CONN_H
#define GANTRY_HOST_AGENT_AGENT_CONN_H

#include <event2/event.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/list.h"
#include "proto/door.h"

struct gantry_agent;
struct gantry_conn;
struct gantry_session;
struct gantry_session_place;
struct gantry_shape;
struct gantry_tenant;

#define GANTRY_CONN_MESSAGE_MAX 256u /* bytes of the longest that a guest may send */

/* Bindings' names: what session list shows as door. */
#define GANTRY_CONN_UNIX    "unix"
#define GANTRY_CONN_IVSHMEM "ivshmem"
#define GANTRY_CONN_VSOCK   "vsock"
#define GANTRY_CONN_STREAM  "stream"

enum gantry_conn_state {
	GANTRY_CONN_HALF_OPEN, /* waiting for HELLO */
	GANTRY_CONN_WAITING,   /* for room in the tenant */
	GANTRY_CONN_STANDBY,   /* for a session from another host */
	GANTRY_CONN_ATTACHING,
	GANTRY_CONN_ATTACHED,
};

/* A binding. None of its functions may wait. */
struct gantry_conn_ops {
	/* One message. 0, -EAGAIN: the guest has not read what was sent before; other -errno: it is gone. */
	int (*send)(struct gantry_conn *c, const void *msg, size_t len);
	/* The same, of WELCOME, with all that the session's guest needs to reach its segment. */
	int (*welcome)(struct gantry_conn *c, const struct gantry_door_welcome *msg);
	/* Its session was made, and no worker has it yet. 0 or -errno. NULL: there is nothing to add. */
	int (*prepare)(struct gantry_conn *c);
	/* It is attached: what a successor of ours needs to go on with it is kept. */
	void (*keep)(struct gantry_conn *c);
	/* Hangs up, gives back what was kept, and frees @c. What was sent before can still be read. */
	void (*close)(struct gantry_conn *c);
	/*
	 * The shape that its HELLO gets, and where the session's memory is; a status with a sentence if it gets
	 * none; 1: not yet, the binding calls gantry_conn_admit() when there is. NULL: memory of its own, bounded
	 * by what the tenant has.
	 */
	int (*place)(struct gantry_conn *c, struct gantry_shape *ret_shape, uint32_t *ret_version,
		     struct gantry_session_place *ret_place, struct gantry_err *err);
	/*
	 * Room for the segment of a session that was made elsewhere and that this guest adopts: as place(). NULL:
	 * the session's own memory serves.
	 */
	int (*house)(struct gantry_conn *c, uint64_t segment_bytes,
		     struct gantry_session_place *ret_place, struct gantry_err *err);
};

struct gantry_conn {
	struct gantry_list link; /* tenant->waiting or tenant->standbys while it waits */
	const struct gantry_conn_ops *ops;
	const char *transport; /* GANTRY_CONN_UNIX ... */
	struct gantry_agent *agent;
	struct gantry_tenant *tenant;
	struct gantry_session *session;
	enum gantry_conn_state state;
	struct event *timer; /* of what is waited for */
	struct gantry_door_hello hello;
	pid_t pid; /* 0: not known, as of a process in another pid namespace or machine */
	uid_t uid;
	uint32_t noutstanding; /* requests under way */
};

/* ---- for bindings ---- */

void gantry_conn_init(struct gantry_conn *c, const struct gantry_conn_ops *ops,
		      const char *transport, struct gantry_tenant *t);
/* Frees what is in @c; last in ops->close(). */
void gantry_conn_fini(struct gantry_conn *c);
/* A new one: HELLO is waited for. It may be refused, and gone, at once. */
void gantry_conn_begin(struct gantry_conn *c);
/* An attached session's, taken over from an earlier agent. */
void gantry_conn_resume(struct gantry_conn *c, struct gantry_session *s);
/* A message came: @len bytes at an 8-byte aligned address that nobody else writes. @c may be gone afterwards. */
void gantry_conn_message(struct gantry_conn *c, const void *msg, size_t len);
/* It broke the door's rules: an attached one's session ends, another is refused. @c is gone. */
void gantry_conn_broke(struct gantry_conn *c, const char *text);
/* Its HELLO is dealt with once more: what place() waited for has come. @c may be gone afterwards. */
void gantry_conn_admit(struct gantry_conn *c);
/* The guest has hung up, or ended. @c is gone. */
void gantry_conn_gone(struct gantry_conn *c);
/* A REFUSE for somebody who never becomes a connection. */
void gantry_conn_fill_refuse(struct gantry_door_refuse *msg, uint16_t kind, int status,
			     const char *text);

/* ---- for the agent ---- */

/* Does not touch the session beyond taking the connection away from it. @c is gone. */
void gantry_conn_close(struct gantry_conn *c);
/* Send; a guest that does not read loses its connection: then -EPIPE and @c is gone. */
int gantry_conn_send(struct gantry_conn *c, const void *msg, size_t len);
/* The same for WELCOME: it is attached from now on. */
int gantry_conn_welcome(struct gantry_conn *c, const struct gantry_door_welcome *msg);
/* REFUSE with a sentence, then close. @c is gone. */
void gantry_conn_refuse(struct gantry_conn *c, int status, const char *text);
void gantry_conn_notice(struct gantry_conn *c, int status, const char *text);
/* Nothing is decided of what it asked: NOTICE with AGAIN, at which its library connects anew, then close. @c is gone. */
void gantry_conn_turn_away(struct gantry_conn *c, const char *text);
/* It waits, for at most so long; too late, it is refused. What it waits for is its caller's to list. */
void gantry_conn_wait(struct gantry_conn *c);
/* A session of the tenant ended: whoever waits for room gets a turn. */
void gantry_conn_next(struct gantry_tenant *t);

#endif
