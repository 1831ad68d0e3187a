/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code for AMD GPUs, looked at before the vendor's loader sees it: an ELF file for one processor (a code object), or a
 * bundle of them as clang makes it.
 *
 * Trust: the bytes are a guest's. Nothing in them is believed: lengths and offsets are checked against their number, names
 *   and counts against limits, and nesting has a bound. They do not change meanwhile.
 * Threads: any. Blocking: no.
 */
#ifndef GANTRY_DEVICES_HIP_CONTAINER_H
#define GANTRY_DEVICES_HIP_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define GANTRY_HIP_MAX_PARAMS  64u
#define GANTRY_HIP_MAX_KERNELS 4096u

struct gantry_hip_param {
	uint32_t off;
	uint32_t size;
	bool is_buffer; /* an address in device memory */
};

/* A kernel as the code object's own metadata has it. Parameters that the compiler adds are not counted. */
struct gantry_hip_kernel {
	char name[128];
	uint32_t max_threads; /* of a block; 0: not said */
	uint32_t nparams;
	struct gantry_hip_param params[GANTRY_HIP_MAX_PARAMS];
};

/* One code object; @bytes points into what was given. */
struct gantry_hip_object {
	const void *bytes;
	size_t nbytes;
	uint32_t nkernels;
	struct gantry_hip_kernel *kernels; /* owned */
};

/*
 * The code object for @arch ("gfx90a:sramecc+:xnack-") in @bytes, with its kernels; free it with
 * gantry_hip_object_free(). -ENOEXEC with the reason: none, cut short, for other processors, or not well-formed; -ENOMEM.
 */
int gantry_hip_container_open(const void *bytes, size_t nbytes, const char *arch,
			      struct gantry_hip_object *ret_object, struct gantry_err *err);
void gantry_hip_object_free(struct gantry_hip_object *object);

/* NULL: it has none of that name. */
const struct gantry_hip_kernel *gantry_hip_object_find(const struct gantry_hip_object *object,
						       const char *name);

#endif
