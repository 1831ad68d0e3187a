/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this side knows of the session's buffers: how large they are, and which have memory in the
 * heap. The host resolves handles by its own table; this one serves mapping and copying.
 *
 * Returns: -errno. Threads: under the session's table_lock. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_BUFFERS_H
#define GANTRY_GUEST_SHIM_BUFFERS_H

#include <stdint.h>

#include "guest-shim/gantry.h"

struct gantry_range;

struct gantry_buffer_info {
	struct gantry_buffer_info *next;
	gantry_buffer handle;
	uint64_t bytes;
	unsigned flags;		    /* GANTRY_ALLOC_*, never 0 */
	struct gantry_range *range; /* owned, of host buffers; NULL for others */
};

struct gantry_buffers {
	struct gantry_buffer_info **buckets; /* owned */
	uint32_t nbuckets;		     /* a power of two, or 0 */
	uint32_t n;
};

/*
 * For closing: frees the table, the infos and the records of their ranges. A zeroed table is fine.
 */
void gantry_buffers_fini(struct gantry_buffers *buffers);

/* Takes @info over; its handle must be new: -EEXIST. -ENOMEM. On failure it stays the caller's. */
int gantry_buffers_add(struct gantry_buffers *buffers, struct gantry_buffer_info *info);

/* NULL if there is none. */
struct gantry_buffer_info *gantry_buffers_find(const struct gantry_buffers *buffers,
					       gantry_buffer handle);

/* Takes it out; the caller owns it. NULL if there is none. */
struct gantry_buffer_info *gantry_buffers_remove(struct gantry_buffers *buffers,
						 gantry_buffer handle);

#endif
