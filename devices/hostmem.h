/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory objects that are host memory: mapped from a descriptor, or the caller's own. For backends whose struct
 * gantry_mem begins with one.
 *
 * Trust: the caller has checked ranges and descriptors. Threads: the device thread. Blocking: as mmap() does.
 */
#ifndef GANTRY_DEVICES_HOSTMEM_H
#define GANTRY_DEVICES_HOSTMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/list.h"
#include "devices/device.h"

struct gantry_hostmem {
	struct gantry_list link; /* of the device's memory objects */
	unsigned char *base;
	uint64_t len;
	bool mapped; /* here, so unmapped here */
};

/* [off, off + len) of @fd. What is not backed yet is not reserved: the caller answers for it. */
int gantry_hostmem_map(int fd, uint64_t off, uint64_t len, void **ret_base, struct gantry_err *err);

/*
 * An object of @object_bytes, zero behind the gantry_hostmem that it begins with, at the end of @mems. new: of @base,
 * which stays the caller's, and may be NULL; import: of what map() gives. -ENOMEM, or what mmap() says.
 */
int gantry_hostmem_new(size_t object_bytes, struct gantry_list *mems, void *base, uint64_t len,
		       struct gantry_hostmem **ret_mem, struct gantry_err *err);
int gantry_hostmem_import(size_t object_bytes, struct gantry_list *mems, int fd, uint64_t off,
			  uint64_t len, struct gantry_hostmem **ret_mem, struct gantry_err *err);
/* Unmaps, leaves the list and frees the object. NULL is allowed. */
void gantry_hostmem_free(struct gantry_hostmem *mem);

/* Does a copy or a fill, by this thread, before it returns. The ranges of a copy may overlap. */
void gantry_hostmem_move(const struct gantry_cmd *cmd);

#endif
