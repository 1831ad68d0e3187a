/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/arena.h"

#include <errno.h>
#include <stdlib.h>

#define RECORD_ALIGN 8u /* as the wire wants it */

int gantry_arena_init(struct gantry_arena *arena, struct gantry_range *range, uint8_t *base,
		      uint64_t heap_off, uint64_t bytes, uint32_t nslots)
{
	struct gantry_arena_entry *entries = calloc(nslots, sizeof(*entries));

	if (!entries)
		return -ENOMEM;
	*arena = (struct gantry_arena){
		.range = range,
		.base = base,
		.heap_off = heap_off,
		.bytes = bytes,
		.entries = entries,
		.mask = nslots - 1,
	};
	return 0;
}

struct gantry_range *gantry_arena_fini(struct gantry_arena *arena)
{
	struct gantry_range *range = arena->range;

	free(arena->entries);
	*arena = (struct gantry_arena){ 0 };
	return range;
}

static void reclaim(struct gantry_arena *arena, uint64_t done)
{
	while (arena->n > 0 && arena->entries[arena->first].pos < done) {
		arena->freed = arena->entries[arena->first].end;
		arena->first = (arena->first + 1) & arena->mask;
		arena->n--;
	}
	if (arena->n == 0)
		arena->put = arena->freed =
			0; /* from the start again: that is what the cache holds */
}

int gantry_arena_put(struct gantry_arena *arena, uint64_t pos, uint64_t done, uint32_t len,
		     uint8_t **ret_ptr, uint64_t *ret_heap_off, uint64_t *ret_oldest)
{
	uint64_t bytes = (len + RECORD_ALIGN - 1) & ~(uint64_t)(RECORD_ALIGN - 1);
	uint64_t at;

	if (bytes > arena->bytes)
		return -ENOSPC;
	reclaim(arena, done);
	at = arena->put;
	if (at % arena->bytes + bytes > arena->bytes)
		at += arena->bytes - at % arena->bytes; /* a record does not wrap */
	if (at + bytes - arena->freed > arena->bytes || arena->n > arena->mask) {
		*ret_oldest = arena->entries[arena->first].pos;
		return -EAGAIN;
	}
	arena->put = at + bytes;
	arena->entries[(arena->first + arena->n) & arena->mask] =
		(struct gantry_arena_entry){ pos, arena->put };
	arena->n++;

	*ret_ptr = arena->base + at % arena->bytes;
	*ret_heap_off = arena->heap_off + at % arena->bytes;
	return 0;
}
