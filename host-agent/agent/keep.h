/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the monitor keeps for us: descriptors under names, for an agent after this one.
 *
 * Threads: the agent's one.
 * Blocking: no longer than a monitor may take that does not read (the time-out is in keep.c).
 * Names and what they say are GANTRY_KEEP_VERSION (build.h): another build takes them up.
 * Order: gantry_keep_start() before what is to be kept is made, gantry_keep_stop() at the end.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_KEEP_H
#define GANTRY_HOST_AGENT_AGENT_KEEP_H

#include <stdint.h>

struct gantry_agent;

/* The monitor's name of a session's ledger: session, share slot, wire version, tenant's slot. */
#define GANTRY_KEPT_LEDGER "s/%llx/ledger/%u/%u/%u"

/* And of what wakes its guest: session, enum gantry_session_wake. */
#define GANTRY_KEPT_WAKE "s/%llx/wake/%u"

/*
 * And of a session in a door memory: session, machine, desk, place and length in pieces of 2 MiB, the claim's
 * generation.
 */
#define GANTRY_KEPT_DESK       "s/%llx/desk/%llx/%x/%llx/%llx/%llx"
#define GANTRY_KEPT_DESK_SHIFT 21

/* A session that comes from another host and is not ours yet: an agent after us drops it, unless the journal knows better. */
#define GANTRY_KEPT_ARRIVING "s/%llx/arriving"

/* The key that a session's guest has asked for, in hex; and that of a session that waits to be adopted. */
#define GANTRY_KEPT_KEY	 "s/%llx/key/%s"
#define GANTRY_KEPT_HEIR "s/%llx/heir/%s"

/* A session that waits for its machine (seat.h). And the door memory of a machine that is to bring sessions along. */
#define GANTRY_KEPT_SEATED "s/%llx/seated"
#define GANTRY_KEPT_COMING "m/%llx/coming"

/* A session that is about to follow its machine to another host (seat.h). */
#define GANTRY_KEPT_FOLLOWING "s/%llx/following"

/* Beside the name of a session's slab, and of the same parts: it was lent to other sessions (loan.h). */
#define GANTRY_KEPT_LENT "s/%llx/l/%u/%llx/%llx"

/* A door memory: machine, tenant's slot, vectors, epoch. */
#define GANTRY_KEPT_DOORMEM "m/%llx/memory/%u/%u/%llx"

/* And of a worker's socket: worker, entry in the share pages, class (mode, percentage and MPS priority, group). */
#define GANTRY_KEPT_WORKER "w/%llx/ctl/%u/%u/%u.%u/%s"

/* A tenant's network, and the user namespace that it is in: tenant's slot. */
#define GANTRY_KEPT_NET	     "n/%u/net"
#define GANTRY_KEPT_NET_USER "n/%u/user"

/* The state of a tenant's ivshmem door: tenant's slot, drained or not, when its sessions end, the next machine's bytes. */
#define GANTRY_KEPT_DOOR_STATE "vd/%u/%u/%llx/%llx"

/* A machine that is about to lose its device: machine, when its sessions end (0: never). */
#define GANTRY_KEPT_LEAVING "m/%llx/leaving/%llx"

/* A relay's process: its number, pid, tenant's slot. */
#define GANTRY_KEPT_RELAY "r/%llx/pid/%d/%u"

/* A channel of a machine's: its number, tenant's slot, the door memory's epoch. */
#define GANTRY_KEPT_CHANNEL "c/%x/%u/%llx"

int gantry_keep_start(struct gantry_agent *a);
void gantry_keep_stop(struct gantry_agent *a);
/*
 * Have the monitor keep @fd, which stays ours, under a name. Failures are counted and told: service
 * goes on.
 */
void gantry_keep(struct gantry_agent *a, int fd, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same for what must not be unknown to an agent after us: 0, or -errno and it is not kept. */
int gantry_keep_surely(struct gantry_agent *a, int fd, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void gantry_keep_drop(struct gantry_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void gantry_keep_drop_tree(struct gantry_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void gantry_keep_notify(struct gantry_agent *a, int notice);
/* Another of enum gantry_monitor_op; @fd, which stays ours, rides along unless it is negative. */
void gantry_keep_tell(struct gantry_agent *a, uint32_t op, int value, int fd);

#endif
