/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of the heap with an end of life: a piece that tasks may still use is given back to the
 * allocator only when all that was put into any ring before it was let go has finished.
 *
 * Threads: any; takes heap_lock. Blocking: take, while the heap is full and pieces are on their way
 * back.
 */
#ifndef GANTRY_GUEST_SHIM_RANGES_H
#define GANTRY_GUEST_SHIM_RANGES_H

#include <stdint.h>

#include "guest-shim/session.h"

struct gantry_range {
	struct gantry_heap_block *block;
	uint64_t off; /* from the start of the heap */
	uint64_t bytes;
	struct gantry_range *next;
	/*
	 * By queue slot, how many tasks must have finished. Here rather than made when it is let go, so
	 * that letting go cannot fail.
	 */
	uint64_t after[GANTRY_MAX_QUEUES];
};

/*
 * @align is a power of two. The caller owns *@ret_range. NO_MEMORY: no room, and none on its way
 * back in time.
 */
int gantry_range_take(struct gantry_session *s, uint64_t bytes, uint64_t align,
		      uint64_t deadline_ns, struct gantry_range **ret_range);

/* Lets it go. NULL is allowed. Never waits. */
void gantry_range_put(struct gantry_session *s, struct gantry_range *range);

static inline void *gantry_range_ptr(const struct gantry_session *s,
				     const struct gantry_range *range)
{
	return s->heap_region.base + range->off;
}

/* For closing: frees those that were let go, whatever still uses them. Takes no lock. */
void gantry_ranges_fini(struct gantry_session *s);

#endif
