/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/extents.h"

#include <errno.h>
#include <string.h>

void gantry_extents_init(struct gantry_extents *e, uint64_t begin, uint64_t end)
{
	e->begin = begin;
	e->end = end;
	e->n = 0;
}

/* The hole before taken[i]; before the end for i == n. */
static uint64_t hole(const struct gantry_extents *e, uint32_t i, uint64_t *ret_off)
{
	uint64_t from = i ? e->taken[i - 1].off + e->taken[i - 1].bytes : e->begin;
	uint64_t to = i < e->n ? e->taken[i].off : e->end;

	*ret_off = from;
	return to - from;
}

static void insert(struct gantry_extents *e, uint32_t i, uint64_t off, uint64_t bytes)
{
	memmove(&e->taken[i + 1], &e->taken[i], (e->n - i) * sizeof(e->taken[0]));
	e->taken[i] = (struct gantry_extent){ .off = off, .bytes = bytes };
	e->n++;
}

int gantry_extents_take(struct gantry_extents *e, uint64_t bytes, uint64_t *ret_off)
{
	for (uint32_t i = 0; i <= e->n && e->n < GANTRY_EXTENTS_MAX; i++) {
		uint64_t off;

		if (hole(e, i, &off) < bytes)
			continue;
		insert(e, i, off, bytes);
		*ret_off = off;
		return 0;
	}
	return -ENOSPC;
}

int gantry_extents_claim(struct gantry_extents *e, uint64_t off, uint64_t bytes)
{
	if (bytes == 0 || off < e->begin || off > e->end || bytes > e->end - off)
		return -ERANGE;
	if (e->n == GANTRY_EXTENTS_MAX)
		return -ENOSPC;
	for (uint32_t i = 0; i <= e->n; i++) {
		uint64_t from;
		uint64_t len = hole(e, i, &from);

		if (off < from || off - from > len || bytes > len - (off - from))
			continue;
		insert(e, i, off, bytes);
		return 0;
	}
	return -EEXIST;
}

uint64_t gantry_extents_put(struct gantry_extents *e, uint64_t off)
{
	for (uint32_t i = 0; i < e->n; i++) {
		uint64_t bytes = e->taken[i].bytes;

		if (e->taken[i].off != off)
			continue;
		e->n--;
		memmove(&e->taken[i], &e->taken[i + 1], (e->n - i) * sizeof(e->taken[0]));
		return bytes;
	}
	return 0;
}

uint64_t gantry_extents_largest(const struct gantry_extents *e)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i <= e->n && e->n < GANTRY_EXTENTS_MAX; i++) {
		uint64_t off;
		uint64_t bytes = hole(e, i, &off);

		largest = bytes > largest ? bytes : largest;
	}
	return largest;
}

uint64_t gantry_extents_largest_later(const struct gantry_extents *e)
{
	uint64_t largest = 0, from = e->begin;
	uint32_t nstaying = 0;

	for (uint32_t i = 0; i < e->n; i++) {
		const struct gantry_extent *x = &e->taken[i];

		if (x->is_leaving)
			continue;
		largest = x->off - from > largest ? x->off - from : largest;
		from = x->off + x->bytes;
		nstaying++;
	}
	if (nstaying == GANTRY_EXTENTS_MAX)
		return 0;
	return e->end - from > largest ? e->end - from : largest;
}

struct gantry_extent *gantry_extents_find(struct gantry_extents *e, uint64_t off)
{
	for (uint32_t i = 0; i < e->n; i++)
		if (e->taken[i].off == off)
			return &e->taken[i];
	return NULL;
}

struct gantry_extent *gantry_extents_dirty(struct gantry_extents *e, uint64_t off)
{
	struct gantry_extent *lowest = NULL;

	for (uint32_t i = 0; i < e->n; i++) {
		struct gantry_extent *x = &e->taken[i];

		if (x->is_dirty && x->off >= off)
			return x;
		if (x->is_dirty && !lowest)
			lowest = x;
	}
	return lowest;
}

uint64_t gantry_extents_used(const struct gantry_extents *e)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < e->n; i++)
		used += e->taken[i].bytes;
	return used;
}
