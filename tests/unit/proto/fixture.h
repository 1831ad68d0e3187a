/* SPDX-License-Identifier: Apache-2.0 */
/* A queue area in private memory, with both ends of its ring. */
#ifndef GANTRY_TESTS_UNIT_PROTO_FIXTURE_H
#define GANTRY_TESTS_UNIT_PROTO_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "proto/ring.h"
#include "tests/unit/runner.h"

#define NSLOTS 16u

struct ring_fixture {
	struct gantry_region segment;
	struct gantry_ring_map map;
	struct gantry_ring_producer guest;
	struct gantry_ring_consumer host;
};

static inline void ring_fixture_init(struct ring_fixture *f)
{
	uint64_t bytes = gantry_ring_stride_bytes(NSLOTS);

	memset(f, 0, sizeof(*f));
	f->segment.bytes = bytes;
	f->segment.base = aligned_alloc(GANTRY_PAGE, bytes);
	ck_assert_ptr_nonnull(f->segment.base);
	memset(f->segment.base, 0, bytes);
	ck_assert_int_eq(gantry_ring_map_init(&f->map, &f->segment, 0, 0, NSLOTS), 0);
	gantry_ring_producer_init(&f->guest, &f->map);
	gantry_ring_consumer_init(&f->host, &f->map, 0, 0);
}

static inline void ring_fixture_fini(struct ring_fixture *f)
{
	free(f->segment.base);
}

/* Puts one marker whose reserved field tells it apart. Returns its sequence number. */
static inline uint64_t put_marked(struct ring_fixture *f, uint64_t mark)
{
	struct gantry_desc *desc = gantry_ring_desc(&f->guest, 0);

	ck_assert_int_eq(gantry_ring_reserve(&f->guest, 1), 0);
	memset(desc, 0, sizeof(*desc));
	desc->op = 1;
	memcpy(desc->imm, &mark, sizeof(mark));
	return gantry_ring_publish(&f->guest, 1);
}

static inline uint64_t take_marked(struct ring_fixture *f)
{
	struct gantry_desc desc;
	struct gantry_inline inl;
	uint64_t mark;

	ck_assert_int_gt(gantry_ring_ready(&f->host), 0);
	gantry_ring_peek(&f->host, &desc, &inl);
	gantry_ring_advance(&f->host);
	memcpy(&mark, desc.imm, sizeof(mark));
	return mark;
}

#endif
