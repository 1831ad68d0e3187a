/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/ask.h"

#include <inttypes.h>

#include "base/checked.h"
#include "proto/ring.h"

/* Huge pages and device registrations like segments that start on these. */
#define ADDRESS_ALIGN (2ull << 20)

static uint32_t bound_queues(uint32_t wanted, uint32_t allowed)
{
	uint64_t nqueues = (uint64_t)allowed + 1;

	if (wanted != 0)
		nqueues = gantry_clamp_u64(wanted, 2, nqueues);
	return (uint32_t)gantry_min_u64(nqueues, GANTRY_MAX_QUEUES);
}

static uint32_t bound_slots(uint32_t wanted)
{
	uint64_t nslots = wanted ? wanted : GANTRY_DEFAULT_SLOTS;

	nslots = gantry_clamp_u64(nslots, GANTRY_MIN_SLOTS, GANTRY_MAX_SLOTS);
	return 1u << gantry_ilog2(nslots);
}

static uint64_t bound_bytes(uint64_t wanted, uint64_t limit)
{
	return wanted == 0 || wanted > limit ? limit : wanted;
}

/* Offsets cost nothing; in windows large buffers begin where slabs may, which takes more of them than bytes. */
static uint64_t slab_space(uint64_t virtual_bytes)
{
	uint64_t bytes = virtual_bytes + virtual_bytes / 4 + 16 * ADDRESS_ALIGN;

	return gantry_min_u64(bytes & ~(ADDRESS_ALIGN - 1), GANTRY_MAX_BUFFER_BYTES);
}

/* All but the heap's size. */
static int choose(const struct gantry_door_hello *hello, const struct gantry_tenant_conf *tenant,
		  struct gantry_shape *ret_shape, uint32_t *ret_version, struct gantry_err *err)
{
	uint32_t version = gantry_version_choose(hello->version_min, hello->version_max,
						 GANTRY_WIRE_VERSION_MIN, GANTRY_WIRE_VERSION_MAX);

	if (version == 0)
		return gantry_err_set(err, GANTRY_E_VERSION,
				      "this agent speaks protocol %u to %u, the library %u to %u",
				      GANTRY_WIRE_VERSION_MIN, GANTRY_WIRE_VERSION_MAX,
				      hello->version_min, hello->version_max);
	if (gantry_segment_layout_make(
		    bound_queues(hello->nqueues, tenant->queues), bound_slots(hello->nslots),
		    bound_bytes(hello->heap_bytes, tenant->heap_bytes), &ret_shape->segment) < 0)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "a segment of this size is past the format's limits");
	ret_shape->virtual_bytes = bound_bytes(hello->virtual_bytes, tenant->virtual_bytes);
	ret_shape->mem_bytes = bound_bytes(hello->mem_bytes, tenant->mem_bytes);
	ret_shape->slab_bytes = slab_space(ret_shape->virtual_bytes);
	*ret_version = version;
	return 0;
}

int gantry_ask_bound(const struct gantry_door_hello *hello, const struct gantry_tenant_conf *tenant,
		     uint64_t host_mem_used, struct gantry_shape *ret_shape, uint32_t *ret_version,
		     struct gantry_err *err)
{
	struct gantry_shape shape = { 0 };
	uint32_t version;
	int r = choose(hello, tenant, &shape, &version, err);

	if (r < 0)
		return r;
	if (host_mem_used > tenant->host_mem_bytes ||
	    shape.segment.segment_bytes > tenant->host_mem_bytes - host_mem_used)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "tenant %s has %" PRIu64 " of %" PRIu64
				      " bytes of host memory in use; this session needs %" PRIu64,
				      tenant->name, host_mem_used, tenant->host_mem_bytes,
				      shape.segment.segment_bytes);
	*ret_shape = shape;
	*ret_version = version;
	return 0;
}

int gantry_ask_within(const struct gantry_door_hello *hello,
		      const struct gantry_tenant_conf *tenant, const struct gantry_ask_room *room,
		      struct gantry_shape *ret_shape, uint32_t *ret_version, struct gantry_err *err)
{
	struct gantry_shape shape = { 0 };
	uint64_t least, most = room->largest_bytes;
	uint32_t version;
	int r = choose(hello, tenant, &shape, &version, err);

	if (r < 0)
		return r;
	least = shape.segment.heap_off + GANTRY_SEGMENT_HEAP_ALIGN;
	if (hello->heap_bytes == 0 && least < most)
		most = gantry_clamp_u64(room->share_bytes, least, most);
	most &= ~(uint64_t)(GANTRY_SEGMENT_HEAP_ALIGN - 1);
	if (shape.segment.segment_bytes > most &&
	    gantry_segment_layout_of(shape.segment.nqueues, shape.segment.nslots, most,
				     &shape.segment) < 0)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "this machine's door memory has %" PRIu64
				      " bytes free in one piece; a session needs more",
				      room->largest_bytes);
	*ret_shape = shape;
	*ret_version = version;
	return 0;
}

static uint64_t align_up(uint64_t value)
{
	return (value + ADDRESS_ALIGN - 1) & ~(ADDRESS_ALIGN - 1);
}

/* Sums cannot overflow: addresses and segments are far below half of the address space. */
uint64_t gantry_ask_address(const struct gantry_address_range *range,
			    const struct gantry_address_range *taken, uint32_t ntaken,
			    uint64_t bytes)
{
	uint64_t at = align_up(range->begin);
	bool moved;

	/* Spans mostly come in the order of their places: one pass and one to see that nothing moved it. */
	do {
		moved = false;
		for (uint32_t i = 0; i < ntaken; i++) {
			if (taken[i].begin >= at + bytes || taken[i].end <= at)
				continue;
			at = align_up(taken[i].end);
			moved = true;
		}
	} while (moved && at < range->end);
	return range->begin != 0 && at <= range->end && bytes <= range->end - at ? at : 0;
}
