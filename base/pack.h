/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values one behind the other in memory, each beginning at a multiple of 8 bytes: a writer that grows, and a reader
 * that never leaves what it was given.
 *
 * Errors stick: after the first, writers take nothing more and readers give zeroes; ask for failed at the end.
 * Threads: one at a time for each object. Ownership: a writer's bytes are its own until fini.
 */
#ifndef GANTRY_BASE_PACK_H
#define GANTRY_BASE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GANTRY_PACK_ALIGN 8u

struct gantry_pack {
	uint8_t *bytes;
	size_t len;
	size_t cap;
	size_t max; /* more is a failure */
	bool failed;
	bool is_lent; /* the bytes are the caller's yet */
};

void gantry_pack_init(struct gantry_pack *pack, size_t max);
/* The same in @cap bytes of the caller's, aligned to 8, as long as they suffice: they stay until fini. */
void gantry_pack_init_in(struct gantry_pack *pack, void *room, size_t cap, size_t max);
void gantry_pack_fini(struct gantry_pack *pack);
/* @len bytes of room, zeroed; NULL after a failure. Valid until the next of these calls. */
void *gantry_pack_room(struct gantry_pack *pack, size_t len);
void gantry_pack_bytes(struct gantry_pack *pack, const void *src, size_t len);
void gantry_pack_u64(struct gantry_pack *pack, uint64_t value);

/* Reads [bytes, bytes + len), which nobody changes meanwhile. */
struct gantry_unpack {
	const uint8_t *bytes;
	size_t len;
	size_t pos;
	bool failed;
};

/* The next @len bytes where they lie, aligned as the whole is; NULL: there are not so many. */
const void *gantry_unpack_bytes(struct gantry_unpack *unpack, size_t len);
uint64_t gantry_unpack_u64(struct gantry_unpack *unpack);
void gantry_unpack_into(struct gantry_unpack *unpack, void *dst, size_t len);

/* Bytes of @count elements, 0 where it is negative; UINT64_MAX: no such number. */
static inline uint64_t gantry_pack_span(int64_t count, uint64_t elem_bytes)
{
	uint64_t bytes;

	if (count <= 0)
		return 0;
	return __builtin_mul_overflow((uint64_t)count, elem_bytes, &bytes) ? UINT64_MAX : bytes;
}

#endif
