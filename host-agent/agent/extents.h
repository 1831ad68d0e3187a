/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has which part of a door memory: first fit, in an array that is sorted by place. Pure bookkeeping.
 *
 * Threads: any, one at a time.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_EXTENTS_H
#define GANTRY_HOST_AGENT_AGENT_EXTENTS_H

#include <stdbool.h>
#include <stdint.h>

/* Sessions that end hold theirs until their worker is gone: more than a door has desks. */
#define GANTRY_EXTENTS_MAX 256u

struct gantry_extent {
	uint64_t off;
	uint64_t bytes;
	uint64_t clean_off; /* is_dirty: what is before it needs no more work */
	bool is_dirty;
	bool is_leaving; /* nobody's any more, and not a hole yet */
};

struct gantry_extents {
	uint64_t begin;
	uint64_t end;
	uint32_t n;
	struct gantry_extent taken[GANTRY_EXTENTS_MAX];
};

void gantry_extents_init(struct gantry_extents *e, uint64_t begin, uint64_t end);
/* The lowest hole of @bytes, not 0. -ENOSPC. */
int gantry_extents_take(struct gantry_extents *e, uint64_t bytes, uint64_t *ret_off);
/* Exactly this part. -ERANGE: not inside; -EEXIST: some of it is taken; -ENOSPC: too many. */
int gantry_extents_claim(struct gantry_extents *e, uint64_t off, uint64_t bytes);
/* Gives back what begins at @off; its bytes, 0: nothing does. */
uint64_t gantry_extents_put(struct gantry_extents *e, uint64_t off);
/* The one that begins at @off; NULL: none does. */
struct gantry_extent *gantry_extents_find(struct gantry_extents *e, uint64_t off);
/* One that is dirty: the lowest that begins at @off or after it, else the lowest of all. NULL: there is none. */
struct gantry_extent *gantry_extents_dirty(struct gantry_extents *e, uint64_t off);
/* Bytes of the largest hole; 0 also where no more can be taken. */
uint64_t gantry_extents_largest(const struct gantry_extents *e);
/* The same for when all that is leaving has gone. */
uint64_t gantry_extents_largest_later(const struct gantry_extents *e);
uint64_t gantry_extents_used(const struct gantry_extents *e);

#endif
