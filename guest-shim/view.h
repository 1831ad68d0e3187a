/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a device's files its memory is best mapped from. They differ in how the processor may cache it: resource2
 * asks for uncached memory and resource2_wc for write-combining, which some hypervisors overrule and some do not;
 * /dev/mem, for root, gives plain memory where the device lies above 4 GiB. What a machine does with each is measured, for
 * a millisecond or so, on the end of the segment: by writing and reading where it is fresh, else by reading alone.
 *
 * Rings never lie in write-combining memory, which does not keep stores in order; a heap may, and then the session
 * fences before it gives anything to the host.
 */
#ifndef GANTRY_GUEST_SHIM_VIEW_H
#define GANTRY_GUEST_SHIM_VIEW_H

#include "guest-shim/pcidev.h"
#include "guest-shim/transport.h"

struct gantry_view {
	enum gantry_doormem_mapping kind; /* of the heap */
	uint32_t read_mib_per_s;	  /* measured; the heap's. 0: it was not */
	uint32_t write_mib_per_s;
};

/* What was measured of one file; read 0: it cannot be mapped; write 0: nothing was written. */
struct gantry_view_speed {
	uint32_t read_mib_per_s;
	uint32_t write_mib_per_s;
};

/* The better choice by these figures, indexed by enum gantry_doormem_mapping. */
enum gantry_doormem_mapping gantry_view_choose(
	const struct gantry_view_speed speeds[GANTRY_MAPPING_VFIO]);

/*
 * Fills the descriptors and offsets of @attachment, for a segment of @bytes at @segment_off of @dev. @is_fresh: nobody uses it so
 * far, and it is all zero but for its header; else nothing of it is changed. As guest-shim/error.h says: NO_AGENT.
 */
int gantry_view_open(const struct gantry_pcidev *dev, uint64_t segment_off, uint64_t bytes,
		     bool is_fresh, struct gantry_attachment *attachment,
		     struct gantry_view *ret_view);

#endif
