/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs: physical memory of devices behind descriptors. Which session has which is decided and remembered here, under
 * names that the monitor keeps, so that neither a worker's nor an agent's death changes it:
 *
 *   s/SESSION/m/DEVICE/OFF/BYTES   behind that part of the session's window
 *   m/DEVICE/BYTES/SERIAL          all zero, nobody's: the device's pool
 *   z/DEVICE/BYTES/SERIAL          somebody had it: to be scrubbed before anybody else has
 *   s/SESSION/l/DEVICE/OFF/BYTES   beside the first: other sessions of the tenant have it mapped too, or had (loan.h)
 *
 * A name is dropped before the descriptor gets its next one: an agent that dies in between loses the descriptor, and
 * with it the memory, rather than have one slab under two names.
 *
 * Trust: NeedSlabs and DropSlab come from workers, which may have been taken over by a guest: checked and bounded.
 *   Descriptors come from stewards, which take no guest's input.
 * Threads: the agent's one. Blocking: never: what a steward has to do is answered later.
 * Order: init once; restore after the sessions of an earlier agent; fini at the end.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_SLAB_H
#define GANTRY_HOST_AGENT_AGENT_SLAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "worker.pb-c.h"

struct gantry_agent;
struct gantry_session;
struct gantry_tenant;
struct gantry_worker;

/* The monitor's name of a session's slab: session, device, offset, bytes. */
#define GANTRY_KEPT_SLAB "s/%llx/m/%u/%llx/%llx"

/* Between windows of one session; a session with more space has no fixed place. */
#define GANTRY_WINDOW_BASE   0x200000000000ull
#define GANTRY_WINDOW_STRIDE (1ull << 40)

/* A device's slabs, but for those of sessions. */
struct gantry_slab_pool {
	struct gantry_list clean;  /* scrubbed, of any size */
	struct gantry_list dirty;  /* wait for the steward */
	struct gantry_list asked;  /* the steward makes or scrubs them; sessions' are not here */
	struct gantry_list wanted; /* sessions' that are to be made, by todo_link */
	uint64_t clean_bytes;
	uint64_t dirty_bytes;
	uint64_t session_bytes; /* had by sessions, or about to be */
	uint64_t making_bytes;	/* for the pool */
	uint32_t nslabs;	/* all of the device */
	uint32_t nasked;	/* requests at the steward */
	bool is_short;		/* the device had no room for the last one */
	uint64_t nmade;
	uint64_t nrefused;
	uint64_t scrubbed_bytes;
};

void gantry_slabs_init(struct gantry_agent *a);
void gantry_slabs_fini(struct gantry_agent *a);

void gantry_slabs_need(struct gantry_worker *w, const Gantry__Worker__NeedSlabs *msg);
void gantry_slabs_drop(struct gantry_worker *w, const Gantry__Worker__DropSlab *msg);
/*
 * The session's worker is gone, and has none of its slabs: nobody waits for what it asked for, and slabs in which no buffer
 * lives, as those of its replicas, go back to the pool.
 */
void gantry_slabs_worker_gone(struct gantry_session *s);
/* The session is over and no worker maps anything of it; its names at the monitor are dropped already. */
void gantry_slabs_session_gone(struct gantry_session *s);

/* A restored session's slabs, from the names that the monitor handed over. */
void gantry_slabs_restore_session(struct gantry_session *s);
/* The pools, and what sessions had that were not restored. After all sessions. */
void gantry_slabs_restore(struct gantry_agent *a);

struct gantry_slab_lent {
	uint64_t off; /* of the window */
	uint64_t bytes;
	int fd; /* the agent's, for as long as the session has the slab */
};
struct gantry_lent;
/*
 * The slabs in which @what lies, in their order, for another session of the tenant. From now on they go back to the driver when the
 * session needs them no more, never to the pool. @ret_whole is all that they have, from the first's begin to the last's end.
 * NOT_FOUND: not all of it is there; LIMIT: they are more than @max, or too many of the tenant's, or of the host's, are lent; AGAIN: the
 * monitor does not take their names, without which the agent after this one would clear them for others.
 */
int gantry_slabs_lend(struct gantry_session *s, const struct gantry_lent *what,
		      struct gantry_slab_lent *ret_slabs, uint32_t max, uint32_t *ret_n,
		      struct gantry_lent *ret_whole);

/* What can be done with the stewards there are: make for sessions, scrub, fill pools. */
void gantry_slabs_pump(struct gantry_agent *a);
/* The device cannot be used: who waits for slabs of it is told so. */
void gantry_slabs_device_failed(struct gantry_agent *a, uint32_t device);
/* It is not configured any more: its pool goes. */
void gantry_slabs_device_removed(struct gantry_agent *a, uint32_t device);

/*
 * Whether one of the tenant's devices could take one more session now. Devices without windows always can. -ENOSPC
 * with a sentence.
 */
int gantry_slabs_room(const struct gantry_tenant *t, struct gantry_err *err);
/* Whether the session has memory on that device. */
bool gantry_slabs_any(const struct gantry_session *s, uint32_t device);
/* Bytes that a session's slabs take, on all devices; and how many they are. */
uint64_t gantry_slabs_of(const struct gantry_session *s, uint32_t *ret_n);

#endif
