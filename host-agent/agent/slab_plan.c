/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/slab_plan.h"

#include "base/checked.h"

uint64_t gantry_slab_class(uint64_t bytes, uint64_t align)
{
	uint64_t size = align;

	for (uint32_t i = 1; i < GANTRY_SLAB_CLASSES && size <= bytes / 2; i++)
		size *= 2;
	return size;
}

bool gantry_slab_range_valid(uint64_t off, uint64_t bytes, uint64_t align, uint64_t space)
{
	if (align == 0 || bytes == 0 || off % align != 0 || bytes % align != 0)
		return false;
	if (space % align != 0 && space > UINT64_MAX - align)
		return false;
	return gantry_range_inside(off, bytes, (space + align - 1) / align * align);
}

static uint32_t fill(uint64_t off, uint64_t end, uint64_t align, struct gantry_slab_place *places,
		     uint32_t n, uint32_t cap)
{
	while (off < end) {
		uint64_t bytes = gantry_slab_class(end - off, align);

		if (n < cap)
			places[n] = (struct gantry_slab_place){ off, bytes };
		n++;
		off += bytes;
	}
	return n;
}

uint32_t gantry_slab_plan(const struct gantry_slab_place *have, uint32_t nhave, uint64_t off,
			  uint64_t bytes, uint64_t align, struct gantry_slab_place *places,
			  uint32_t cap)
{
	uint64_t end = off + bytes; /* inside the space: it does not wrap */
	uint32_t n = 0;

	for (uint32_t i = 0; i < nhave && off < end; i++) {
		uint64_t have_end = have[i].off + have[i].bytes;

		if (have_end <= off)
			continue;
		if (have[i].off >= end)
			break;
		if (have[i].off > off)
			n = fill(off, have[i].off, align, places, n, cap);
		off = have_end;
	}
	return off < end ? fill(off, end, align, places, n, cap) : n;
}
