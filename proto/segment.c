/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/segment.h"

#include <errno.h>

#include "proto/ring.h"

static uint64_t align_up(uint64_t bytes)
{
	return (bytes + GANTRY_SEGMENT_HEAP_ALIGN - 1) & ~(uint64_t)(GANTRY_SEGMENT_HEAP_ALIGN - 1);
}

/* Everything before the heap. Sums cannot wrap: both factors are bounded by the format. */
static int lay_out_queues(uint32_t nqueues, uint32_t nslots, struct gantry_segment_layout *l)
{
	uint64_t stride = gantry_ring_stride_bytes(nslots);

	if (stride == 0 || nqueues < 1 || nqueues > GANTRY_MAX_QUEUES)
		return -EINVAL;
	l->nqueues = nqueues;
	l->nslots = nslots;
	l->queue_stride_bytes = (uint32_t)stride;
	l->queues_off = GANTRY_PAGE;
	l->heap_off = align_up(GANTRY_PAGE + nqueues * stride);
	return 0;
}

int gantry_segment_layout_make(uint32_t nqueues, uint32_t nslots, uint64_t heap_bytes,
			       struct gantry_segment_layout *ret_layout)
{
	struct gantry_segment_layout l;
	int r = lay_out_queues(nqueues, nslots, &l);

	if (r < 0)
		return r;
	if (heap_bytes == 0 || heap_bytes > GANTRY_SEGMENT_MAX_BYTES - l.heap_off)
		return -ERANGE;
	l.segment_bytes = align_up(l.heap_off + heap_bytes);
	if (l.segment_bytes > GANTRY_SEGMENT_MAX_BYTES)
		return -ERANGE;
	l.heap_bytes = l.segment_bytes - l.heap_off;
	*ret_layout = l;
	return 0;
}

int gantry_segment_layout_of(uint32_t nqueues, uint32_t nslots, uint64_t segment_bytes,
			     struct gantry_segment_layout *ret_layout)
{
	struct gantry_segment_layout l;
	int r = lay_out_queues(nqueues, nslots, &l);

	if (r < 0)
		return r;
	if (segment_bytes <= l.heap_off || segment_bytes > GANTRY_SEGMENT_MAX_BYTES)
		return -ERANGE;
	l.segment_bytes = segment_bytes;
	l.heap_bytes = segment_bytes - l.heap_off;
	*ret_layout = l;
	return 0;
}

void gantry_segment_header_init(struct gantry_segment_header *header,
				const struct gantry_segment_layout *layout, uint32_t version,
				uint64_t session_id)
{
	header->magic = GANTRY_WIRE_MAGIC;
	header->version = version;
	header->nqueues = layout->nqueues;
	header->nslots = layout->nslots;
	header->queue_stride_bytes = layout->queue_stride_bytes;
	header->queues_off = layout->queues_off;
	header->heap_off = layout->heap_off;
	header->heap_bytes = layout->heap_bytes;
	header->segment_bytes = layout->segment_bytes;
	header->session_id = session_id;
}
