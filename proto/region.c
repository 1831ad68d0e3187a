/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/region.h"

#include <errno.h>
#include <string.h>

int gantry_region_span(const struct gantry_region *region, uint64_t off, uint64_t len,
		       uint64_t align, void **ret_ptr)
{
	uint64_t end;

	if (off & (align - 1))
		return -EINVAL;
	if (__builtin_add_overflow(off, len, &end) || end > region->bytes)
		return -ERANGE;

	*ret_ptr = region->base + off;
	return 0;
}

void gantry_region_copy_out(void *dst, const void *peer_src, uint64_t len)
{
	/*
	 * The barrier keeps the compiler from reading the source again in place of the copy: callers check
	 * dst, and dst is what they go on with.
	 */
	memcpy(dst, peer_src, len);
	__asm__ volatile("" ::: "memory");
}

void gantry_region_copy_in(void *peer_dst, const void *src, uint64_t len)
{
	memcpy(peer_dst, src, len);
	__asm__ volatile("" ::: "memory");
}
