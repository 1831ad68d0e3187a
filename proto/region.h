/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: bounds as values, and the one place where a peer's offset becomes a pointer.
 *
 * Trust: offsets and lengths are hostile, base and size are ours.
 */
#ifndef GANTRY_PROTO_REGION_H
#define GANTRY_PROTO_REGION_H

#include <stdint.h>

struct gantry_region {
	uint8_t *base;
	uint64_t bytes;
};

/*
 * @off and @len inside @region, @off a multiple of @align (a power of two, 1 for any).
 * 0 and *ret_ptr, or -ERANGE past the end (also when the sum wraps), or -EINVAL misaligned.
 * A length of 0 is in range up to and including the end.
 */
int gantry_region_span(const struct gantry_region *region, uint64_t off, uint64_t len,
		       uint64_t align, void **ret_ptr);

/* Copies @len bytes out of (or into) memory that a peer may be writing, each byte read (written) once. */
void gantry_region_copy_out(void *dst, const void *peer_src, uint64_t len);
void gantry_region_copy_in(void *peer_dst, const void *src, uint64_t len);

#endif
