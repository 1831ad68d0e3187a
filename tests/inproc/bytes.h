/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers painted with a seed and looked at, by a queue's own device. */
#ifndef GANTRY_TESTS_INPROC_BYTES_H
#define GANTRY_TESTS_INPROC_BYTES_H

#include "tests/inproc/fixture.h"

#define MIB (UINT64_C(1) << 20)

/* Word @i of a buffer painted with @seed. */
static inline uint32_t word(uint32_t seed, uint64_t i)
{
	return (uint32_t)(i * 2654435761u) ^ seed * 0x9e3779b9u;
}

/* A buffer of the heap, through which a queue's own device reads and writes. */
static inline uint32_t *stage(const struct fixture *f, uint64_t bytes, gantry_buffer *ret_stage)
{
	void *words;

	*ret_stage = make_buffer(f, bytes, GANTRY_ALLOC_HOST);
	ck_ok(gantry_map(f->s, *ret_stage, 0, bytes, GANTRY_RW, LONG_NS, &words));
	return words;
}

static inline int try_paint(const struct fixture *f, gantry_queue q, gantry_buffer b,
			    uint64_t bytes, uint32_t seed)
{
	gantry_buffer staged;
	uint32_t *words = stage(f, bytes, &staged);
	gantry_ticket t;
	int status;

	for (uint64_t i = 0; i < bytes / 4; i++)
		words[i] = word(seed, i);
	ck_ok(gantry_unmap(f->s, words));
	ck_ok(gantry_submit_copy(f->s, q, b, 0, staged, 0, bytes, &t));
	status = outcome(f, t);
	ck_ok(gantry_free(f->s, staged));
	return status;
}

static inline void paint(const struct fixture *f, gantry_queue q, gantry_buffer b, uint64_t bytes,
			 uint32_t seed)
{
	ck_assert_int_eq(try_paint(f, q, b, bytes, seed), GANTRY_OK);
}

static inline void expect(const struct fixture *f, gantry_queue q, gantry_buffer b, uint64_t bytes,
			  bool zero, uint32_t seed)
{
	gantry_buffer staged;
	uint32_t *words = stage(f, bytes, &staged);
	gantry_ticket t;

	memset(words, 0xee, bytes); /* what was there must not be taken for the answer */
	ck_ok(gantry_unmap(f->s, words));
	ck_ok(gantry_submit_copy(f->s, q, staged, 0, b, 0, bytes, &t));
	ck_assert_int_eq(outcome(f, t), GANTRY_OK);
	ck_ok(gantry_map(f->s, staged, 0, bytes, GANTRY_R, LONG_NS, (void **)&words));
	for (uint64_t i = 0; i < bytes / 4; i++)
		if (words[i] != (zero ? 0 : word(seed, i)))
			ck_abort_msg("word %llu is %u, seed %u", (unsigned long long)i, words[i],
				     seed);
	ck_ok(gantry_unmap(f->s, words));
	ck_ok(gantry_free(f->s, staged));
}

static inline void check(const struct fixture *f, gantry_queue q, gantry_buffer b, uint64_t bytes,
			 uint32_t seed)
{
	expect(f, q, b, bytes, false, seed);
}

static inline void check_zero(const struct fixture *f, gantry_queue q, gantry_buffer b,
			      uint64_t bytes)
{
	expect(f, q, b, bytes, true, 0);
}

static inline gantry_queue queue_on(const struct fixture *f, uint32_t device)
{
	struct gantry_queue_options options = { .device_mask = 1ull << device };
	gantry_queue q;

	ck_ok(gantry_queue_open(f->s, &options, &q));
	return q;
}

static inline struct gantry_ledger_header *header(const struct fixture *f)
{
	return host_session(f)->ledger.hdr;
}

/* What a death leaves when everything that was put has been answered. */
static inline void crash_and_recover(const struct fixture *f)
{
	struct gantry_props props;

	ck_ok(gantry_props_get(f->s, 0, &props)); /* after it no free is on its way */
	inproc_crash(f->h, f->index);
	ck_assert_int_eq(inproc_recover(f->h, f->index, 0), 0);
}

#endif
