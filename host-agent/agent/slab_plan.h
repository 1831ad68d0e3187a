/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of slabs: which pieces fill the gaps of a range, in sizes that can be used again.
 *
 * Threads: any. Blocking: never.
 */
#ifndef GANTRY_HOST_AGENT_AGENT_SLAB_PLAN_H
#define GANTRY_HOST_AGENT_AGENT_SLAB_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* The largest size is so many doublings of the device's alignment: 4 GiB where that is 2 MiB. */
#define GANTRY_SLAB_CLASSES 12u

struct gantry_slab_place {
	uint64_t off;
	uint64_t bytes;
};

/* The largest size that is not more than @bytes, which is at least @align: @align doubled some times. */
uint64_t gantry_slab_class(uint64_t bytes, uint64_t align);

/*
 * Whether [off, off + bytes) is a range that slabs can lie behind: not empty, multiples of @align (0: none is), inside
 * @space bytes rounded up to @align.
 */
bool gantry_slab_range_valid(uint64_t off, uint64_t bytes, uint64_t align, uint64_t space);

/*
 * The places of new slabs that, with those there are (@have, @nhave of them, in order and disjoint), lie behind all of
 * the valid range [off, off + bytes). Writes the first @cap of them, in order, and returns how many there are: more
 * than @cap means that the range takes too many.
 */
uint32_t gantry_slab_plan(const struct gantry_slab_place *have, uint32_t nhave, uint64_t off,
			  uint64_t bytes, uint64_t align, struct gantry_slab_place *ret_places,
			  uint32_t cap);

#endif
