/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a session's segment is divided: header, queue areas, heap. One rule for whoever makes a segment and whoever
 * serves it; a guest reads the result in the header.
 */
#ifndef GANTRY_PROTO_SEGMENT_H
#define GANTRY_PROTO_SEGMENT_H

#include <stdint.h>

#include "proto/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The heap begins at a multiple of this, so that buffers in it can lie on large pages. */
#define GANTRY_SEGMENT_HEAP_ALIGN (2u << 20)

struct gantry_segment_layout {
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t queue_stride_bytes;
	uint64_t queues_off;
	uint64_t heap_off;
	uint64_t heap_bytes;
	uint64_t segment_bytes; /* a multiple of GANTRY_SEGMENT_HEAP_ALIGN when made by _make() */
};

/*
 * The smallest segment with a heap of at least @heap_bytes. -EINVAL: nqueues or nslots is not allowed; -ERANGE:
 * larger than the format allows.
 */
int gantry_segment_layout_make(uint32_t nqueues, uint32_t nslots, uint64_t heap_bytes,
			       struct gantry_segment_layout *ret_layout);

/* The layout of a segment of this size. -EINVAL as above; -ERANGE: no room for a heap. */
int gantry_segment_layout_of(uint32_t nqueues, uint32_t nslots, uint64_t segment_bytes,
			     struct gantry_segment_layout *ret_layout);

/* Fills the constant part of the header (line 0). */
void gantry_segment_header_init(struct gantry_segment_header *header,
				const struct gantry_segment_layout *layout, uint32_t version,
				uint64_t session_id);

#ifdef __cplusplus
}
#endif

#endif
