/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a queue keeps argument records that do not fit beside their descriptor: a piece of the
 * heap, used as a ring. Tasks of a queue finish in order, so records come back in the order in
 * which they were made and neither end ever searches.
 *
 * Returns: -errno. Threads: under the queue's lock. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_ARENA_H
#define GANTRY_GUEST_SHIM_ARENA_H

#include <stdint.h>

struct gantry_range;

/* When the record of the task at @pos is over, everything before @end is free. */
struct gantry_arena_entry {
	uint64_t pos;
	uint64_t end;
};

struct gantry_arena {
	struct gantry_range *range; /* owned; NULL until a record is needed */
	uint8_t *base;
	uint64_t heap_off;
	uint64_t bytes;
	uint64_t put; /* counts for ever; the place is put % bytes */
	uint64_t freed;
	struct gantry_arena_entry *entries; /* owned; a ring of nslots, oldest first */
	uint32_t first;
	uint32_t n;
	uint32_t mask;
};

/*
 * Takes @range over. @nslots (a power of two) tasks at most have a record at the same time.
 * -ENOMEM.
 */
int gantry_arena_init(struct gantry_arena *arena, struct gantry_range *range, uint8_t *base,
		      uint64_t heap_off, uint64_t bytes, uint32_t nslots);

/*
 * Frees the bookkeeping and hands the range back (NULL if there was none). A zeroed arena is fine.
 */
struct gantry_range *gantry_arena_fini(struct gantry_arena *arena);

/*
 * Room for @len bytes, for the task at @pos, where all tasks below @done have finished. -EAGAIN:
 * none before the task at *@ret_oldest has finished; -ENOSPC: never.
 */
int gantry_arena_put(struct gantry_arena *arena, uint64_t pos, uint64_t done, uint32_t len,
		     uint8_t **ret_ptr, uint64_t *ret_heap_off, uint64_t *ret_oldest);

#endif
