/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/heap.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/checked.h"

static unsigned int bin_of(uint64_t bytes)
{
	unsigned int bin = gantry_ilog2(bytes / GANTRY_HEAP_GRANULE);

	return bin < GANTRY_HEAP_NBINS ? bin : GANTRY_HEAP_NBINS - 1;
}

static void bin_push(struct gantry_heap *heap, struct gantry_heap_block *block)
{
	struct gantry_heap_block **bin = &heap->bins[bin_of(block->bytes)];

	block->is_free = true;
	block->bin_prev = NULL;
	block->bin_next = *bin;
	if (*bin)
		(*bin)->bin_prev = block;
	*bin = block;
	heap->free_bytes += block->bytes;
}

static void bin_remove(struct gantry_heap *heap, struct gantry_heap_block *block)
{
	if (block->bin_prev)
		block->bin_prev->bin_next = block->bin_next;
	else
		heap->bins[bin_of(block->bytes)] = block->bin_next;
	if (block->bin_next)
		block->bin_next->bin_prev = block->bin_prev;
	block->is_free = false;
	heap->free_bytes -= block->bytes;
}

int gantry_heap_init(struct gantry_heap *heap, uint64_t bytes)
{
	struct gantry_heap_block *block;

	bytes -= bytes % GANTRY_HEAP_GRANULE;
	if (bytes == 0)
		return -EINVAL;
	block = calloc(1, sizeof(*block));
	if (!block)
		return -ENOMEM;
	block->bytes = bytes;

	*heap = (struct gantry_heap){ .first = block, .bytes = bytes };
	bin_push(heap, block);
	return 0;
}

void gantry_heap_fini(struct gantry_heap *heap)
{
	struct gantry_heap_block *next;

	for (struct gantry_heap_block *block = heap->first; block; block = next) {
		next = block->next;
		free(block);
	}
	*heap = (struct gantry_heap){ 0 };
}

/* Bytes to skip at the start of @block for @align; UINT64_MAX if @bytes do not fit behind them. */
static uint64_t skip_for(const struct gantry_heap_block *block, uint64_t bytes, uint64_t align)
{
	uint64_t skip = -block->off & (align - 1);

	return skip <= block->bytes && bytes <= block->bytes - skip ? skip : UINT64_MAX;
}

static struct gantry_heap_block *find(struct gantry_heap *heap, uint64_t bytes, uint64_t align)
{
	for (unsigned int bin = bin_of(bytes); bin < GANTRY_HEAP_NBINS; bin++)
		for (struct gantry_heap_block *b = heap->bins[bin]; b; b = b->bin_next)
			if (skip_for(b, bytes, align) != UINT64_MAX)
				return b;
	return NULL;
}

/* Cuts @block, which is in no bin, after @bytes; the rest becomes a free block behind it. */
static void split_after(struct gantry_heap *heap, struct gantry_heap_block *block, uint64_t bytes,
			struct gantry_heap_block *rest)
{
	*rest = (struct gantry_heap_block){
		.off = block->off + bytes,
		.bytes = block->bytes - bytes,
		.prev = block,
		.next = block->next,
	};
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->bytes = bytes;
	bin_push(heap, rest);
}

/* Takes @bytes of the free @block, after @skip. -ENOMEM. */
static int carve(struct gantry_heap *heap, struct gantry_heap_block *block, uint64_t skip,
		 uint64_t bytes, struct gantry_heap_block **ret_block)
{
	struct gantry_heap_block *front = NULL, *back = NULL;

	if (skip > 0 && !(front = malloc(sizeof(*front))))
		return -ENOMEM;
	if (block->bytes - skip > bytes && !(back = malloc(sizeof(*back)))) {
		free(front);
		return -ENOMEM;
	}
	bin_remove(heap, block);
	if (skip > 0) {
		struct gantry_heap_block *head = block;

		split_after(heap, head, skip, front);
		bin_push(heap, head);
		bin_remove(heap, front);
		block = front;
	}
	if (back)
		split_after(heap, block, bytes, back);

	*ret_block = block;
	return 0;
}

int gantry_heap_take(struct gantry_heap *heap, uint64_t bytes, uint64_t align,
		     struct gantry_heap_block **ret_block)
{
	struct gantry_heap_block *block;

	if (bytes == 0 || !gantry_is_pow2(align))
		return -EINVAL;
	if (gantry_align_up(bytes, GANTRY_HEAP_GRANULE, &bytes) < 0)
		return -ENOSPC;
	block = find(heap, bytes, GANTRY_MAX(align, GANTRY_HEAP_GRANULE));
	if (!block)
		return -ENOSPC;

	return carve(heap, block, skip_for(block, bytes, GANTRY_MAX(align, GANTRY_HEAP_GRANULE)),
		     bytes, ret_block);
}

/* [*off, *off + *bytes) rounded out to granules. */
static int round_out(const struct gantry_heap *heap, uint64_t *off, uint64_t *bytes)
{
	uint64_t end;

	if (gantry_add_u64(*off, *bytes, &end) < 0 ||
	    gantry_align_up(end, GANTRY_HEAP_GRANULE, &end) < 0 || end > heap->bytes)
		return -ENOSPC;
	*off -= *off % GANTRY_HEAP_GRANULE;
	*bytes = end - *off;
	return 0;
}

int gantry_heap_claim(struct gantry_heap *heap, uint64_t off, uint64_t bytes,
		      struct gantry_heap_block **ret_block)
{
	if (bytes == 0)
		return -EINVAL;
	if (round_out(heap, &off, &bytes) < 0)
		return -ENOSPC;
	for (struct gantry_heap_block *b = heap->first; b && b->off <= off; b = b->next)
		if (b->is_free && off - b->off < b->bytes && bytes <= b->bytes - (off - b->off))
			return carve(heap, b, off - b->off, bytes, ret_block);
	return -ENOSPC;
}

bool gantry_heap_find_free(const struct gantry_heap *heap, uint64_t off, uint64_t bytes,
			   uint64_t *ret_off, uint64_t *ret_bytes)
{
	if (bytes == 0 || round_out(heap, &off, &bytes) < 0)
		return false;
	for (const struct gantry_heap_block *b = heap->first; b && b->off < off + bytes;
	     b = b->next) {
		if (!b->is_free || b->off + b->bytes <= off)
			continue;
		*ret_off = GANTRY_MAX(b->off, off);
		*ret_bytes = GANTRY_MIN(b->off + b->bytes, off + bytes) - *ret_off;
		return true;
	}
	return false;
}

/* Makes @next, which follows @block, part of it. Neither is in a bin. */
static void join(struct gantry_heap_block *block, struct gantry_heap_block *next)
{
	block->bytes += next->bytes;
	block->next = next->next;
	if (block->next)
		block->next->prev = block;
	free(next);
}

void gantry_heap_put(struct gantry_heap *heap, struct gantry_heap_block *block)
{
	assert(!block->is_free);

	if (block->next && block->next->is_free) {
		bin_remove(heap, block->next);
		join(block, block->next);
	}
	if (block->prev && block->prev->is_free) {
		struct gantry_heap_block *prev = block->prev;

		bin_remove(heap, prev);
		join(prev, block);
		block = prev;
	}
	bin_push(heap, block);
}
