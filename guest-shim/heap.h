/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of the segment's heap are in use. All bookkeeping is in private memory: nothing here
 * reads or writes the heap itself, so neither side can disturb it.
 *
 * Free blocks hang in bins by the logarithm of their size; a block is found in its own bin by first
 * fit, in a higher bin at once. Neighbours are joined when they become free.
 * Returns: -errno. Threads: under the owner's lock. Blocking: never.
 */
#ifndef GANTRY_GUEST_SHIM_HEAP_H
#define GANTRY_GUEST_SHIM_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* Sizes and offsets are multiples of this: a cache line, so that no two users share one. */
#define GANTRY_HEAP_GRANULE 64u
#define GANTRY_HEAP_NBINS   48u

struct gantry_heap_block {
	uint64_t off;
	uint64_t bytes;
	struct gantry_heap_block *prev; /* by address */
	struct gantry_heap_block *next;
	struct gantry_heap_block *bin_prev;
	struct gantry_heap_block *bin_next;
	bool is_free;
};

struct gantry_heap {
	struct gantry_heap_block *first;
	struct gantry_heap_block *bins[GANTRY_HEAP_NBINS];
	uint64_t bytes;
	uint64_t free_bytes;
};

/* A heap of @bytes, all free. -ENOMEM; -EINVAL: less than a granule. */
int gantry_heap_init(struct gantry_heap *heap, uint64_t bytes);

/* Frees the bookkeeping; blocks handed out become invalid. A zeroed heap is fine. */
void gantry_heap_fini(struct gantry_heap *heap);

/*
 * @bytes (more than 0), starting at a multiple of @align (a power of two). The block is the heap's;
 * its off and bytes may be read until it is put. -ENOSPC: no block is large enough; -ENOMEM.
 */
int gantry_heap_take(struct gantry_heap *heap, uint64_t bytes, uint64_t align,
		     struct gantry_heap_block **ret_block);

void gantry_heap_put(struct gantry_heap *heap, struct gantry_heap_block *block);

/*
 * These bytes and no others, rounded out to granules: of a heap that another process divided. -ENOSPC: a part of them is in
 * use, or past the end; -ENOMEM.
 */
int gantry_heap_claim(struct gantry_heap *heap, uint64_t off, uint64_t bytes,
		      struct gantry_heap_block **ret_block);

/* The first piece of [@off, @off + @bytes) that is free. false: none is. */
bool gantry_heap_find_free(const struct gantry_heap *heap, uint64_t off, uint64_t bytes,
			   uint64_t *ret_off, uint64_t *ret_bytes);

#endif
