/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statuses of a queue's failed tasks, kept beyond the life of their ring slots.
 *
 * The host writes a task's status into its slot and counts failures. A slot is refilled only below
 * the position that gantry_failures_harvest() returned, so every failure is seen before the next
 * task can overwrite it, and a queue without failures pays one comparison of counts.
 * Returns: -errno. Threads: any; a short lock of its own, nothing is waited for under it.
 */
#ifndef GANTRY_GUEST_SHIM_FAILURES_H
#define GANTRY_GUEST_SHIM_FAILURES_H

#include <pthread.h>
#include <stdint.h>

#include "proto/ring.h"

/* Failures remembered per queue; the oldest are forgotten first. */
#define GANTRY_FAILURES_MAX 65536u

struct gantry_failure {
	uint64_t pos;
	int status;
};

struct gantry_failures {
	pthread_mutex_t lock;
	uint64_t seen;		     /* positions below this were looked at */
	uint64_t nfailed;	     /* of those, as many as the area counts failed */
	struct gantry_failure *kept; /* owned; a ring of cap entries, positions ascending */
	uint32_t cap;		     /* a power of two, 0 before the first failure */
	uint32_t first;
	uint32_t n; /* also read without the lock: never 0 again once it was not */
};

void gantry_failures_init(struct gantry_failures *f);
void gantry_failures_fini(struct gantry_failures *f);

/*
 * The slot has a new queue, whose first task will be at @tail and that counts failures from what it
 * shows now.
 */
void gantry_failures_restart(struct gantry_failures *f, const struct gantry_ring_map *map,
			     uint64_t tail);

/*
 * The slot has a queue that another process put @tail tasks into: statuses of those whose slots nobody has filled again are
 * seen at the next look. The host may be finishing tasks meanwhile.
 */
void gantry_failures_adopt(struct gantry_failures *f, const struct gantry_ring_map *map,
			   uint64_t tail);

/*
 * Looks at what has finished since. 0 and the position up to which slots may be refilled (all below
 * are finished), or -EPROTO: the host claims to have finished more than the *@tail tasks that were
 * put. *@tail is read after the host's number, so it may grow meanwhile.
 */
int gantry_failures_harvest(struct gantry_failures *f, const struct gantry_ring_map *map,
			    const uint64_t *tail, uint64_t *ret_seen);

/* What gantry_failures_status() returns where tasks of the queue have failed. */
int gantry_failures_find(struct gantry_failures *f, const struct gantry_ring_map *map,
			 const uint64_t *tail, uint64_t pos);

/* The status of the finished position @pos; 0 also for a failure that was forgotten. */
static inline int gantry_failures_status(struct gantry_failures *f,
					 const struct gantry_ring_map *map, const uint64_t *tail,
					 uint64_t pos)
{
	/*
	 * The common queue has none. The count is read after done, so it covers every finished
	 * task.
	 */
	if (__builtin_expect(!gantry_ring_nfailed(map) && !gantry_load_relaxed(&f->n), 1))
		return 0;
	return gantry_failures_find(f, map, tail, pos);
}

#endif
