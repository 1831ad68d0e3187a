/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/gather.h"

#include "base/checked.h"

/*
 * From here on the device thread may sleep, and poll() comes late: what is gathered is worth an eighth of what is in flight, and
 * no more than GATHERED_NS, for a write behind each kernel costs the device more than a microsecond; and behind the oldest batch
 * the device has work for as long as somebody may look late: a sixteenth of the wait (watch.c) and LATE_NS.
 */
#define MUCH_NS	      500000u
#define GATHERED_PART 8u
#define GATHERED_NS   500000u
#define LATE_PART     16u
#define LATE_NS	      200000u

void gantry_gather_add(struct gantry_gather *gather, uint32_t estimate_ns)
{
	gather->flying_ns += estimate_ns;
	gather->gathered_ns += estimate_ns;
}

bool gantry_gather_is_long(uint32_t estimate_ns)
{
	return estimate_ns >= MUCH_NS;
}

bool gantry_gather_is_much(const struct gantry_gather *gather)
{
	return gather->flying_ns >= MUCH_NS;
}

/* What the device has behind the oldest batch, when somebody looks late. */
static uint64_t behind_ns(const struct gantry_gather *gather, struct gantry_devtime_stream *time,
			  uint32_t from, uint32_t to)
{
	uint64_t oldest_ns = gantry_devtime_oldest(time, from, to);

	oldest_ns += oldest_ns / LATE_PART + gather->gathered_ns;
	return gather->flying_ns > oldest_ns ? gather->flying_ns - oldest_ns : 0;
}

bool gantry_gather_waits(const struct gantry_gather *gather, struct gantry_devtime_stream *time,
			 uint32_t from, uint32_t to)
{
	if (!gantry_gather_is_much(gather))
		return true;
	return gather->gathered_ns <
		       gantry_min_u64(gather->flying_ns / GATHERED_PART, GATHERED_NS) &&
	       behind_ns(gather, time, from, to) >= LATE_NS;
}
