/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that guests load on a null device with "images=yes". No code is in them: a table of kernels, so that
 * everything around guests' images can be tried without a device that runs any.
 *
 * An image, as image_load() takes it, is lines of text:
 *
 *   null-image 1
 *   kernel add 8 8 4          a kernel and the bytes of each of its parameters
 *   end
 *
 * What compile() takes begins with "null-source 1", has kernels likewise, and lines that say how compiling goes:
 * "log TEXT", "error TEXT" (it does not compile), "spin", "sleep", "crash", "exit", "eat" (memory), "grow" (an image
 * past any limit), "open PATH" (the log says whether that works).
 */
#ifndef GANTRY_DEVICES_NULL_IMAGE_H
#define GANTRY_DEVICES_NULL_IMAGE_H

#include "devices/device.h"

#define NULL_IMAGE_KERNELS 64u
#define NULL_IMAGE_PARAMS  16u

struct null_table {
	uint32_t nkernels;
	struct null_kernel_row {
		char name[64];
		uint32_t nparams;
		uint32_t param_bytes[NULL_IMAGE_PARAMS];
	} kernels[NULL_IMAGE_KERNELS];
};

/* -ENOEXEC: it is none, or cut short. */
int null_table_parse(const void *bytes, size_t nbytes, struct null_table *ret_table,
		     struct gantry_err *err);
/* -ENOENT; -EINVAL: another signature, naming the parameter. */
int null_table_check(const struct null_table *table, const char *symbol,
		     const struct gantry_signature *sig, struct gantry_err *err);

bool null_image_is_text(const void *bytes, size_t nbytes);
int null_compiler_open(const struct gantry_device_conf *conf, struct gantry_err *err);
int null_compile(const struct gantry_device_conf *conf, const char *arch, const void *bytes,
		 size_t nbytes, void **ret_image, size_t *ret_nbytes, char *log, size_t log_bytes,
		 struct gantry_err *err);

#endif
