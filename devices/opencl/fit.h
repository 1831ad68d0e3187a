/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fitted code: a kernel's code for work-groups of one size. PoCL makes it when a kernel is first launched with that size,
 * from the program's intermediate code, and keeps it as a file. A device's process has no intermediate code and starts no
 * compiler; so a child of the builder launches one work-group, whose outcome nobody looks at, and the builder moves the file to
 * where PoCL of the device's process looks before it takes the code that is for all sizes.
 *
 * Only a file that is there before the first launch of that size counts: PoCL remembers what it found.
 */
#ifndef GANTRY_DEVICES_OPENCL_FIT_H
#define GANTRY_DEVICES_OPENCL_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "devices/opencl/driver.h"
#include "devices/signature.h"

/* Which launches code is for. */
enum gantry_opencl_breadth {
	GANTRY_OPENCL_NARROW = 0, /* no offsets, and no dimension of 65536 work-items */
	GANTRY_OPENCL_WIDE = 1,	  /* no offsets, and one of them */
	GANTRY_OPENCL_ANY = 2,
};

#define GANTRY_OPENCL_FIT_FOLDER 41u /* what PoCL names a program's folder, with NUL */
#define GANTRY_OPENCL_FIT_NAME	 96u /* as GANTRY_MAX_NAME of proto/wire.h */
#define GANTRY_OPENCL_FIT_BUFFER 0xffffu
#define GANTRY_OPENCL_FIT_LOCAL	 0xfffeu

struct gantry_opencl_fit {
	char folder[GANTRY_OPENCL_FIT_FOLDER]; /* of the program */
	char kernel[GANTRY_OPENCL_FIT_NAME];
	uint32_t local[3];
	uint32_t breadth; /* enum gantry_opencl_breadth */
	uint32_t nargs;
	uint16_t args[GANTRY_SIGNATURE_MAX_ARGS]; /* bytes of a value, or one of the above */
};

/* The file's folder below @folder, which is PoCL's. -EINVAL: @fit came from nobody who means well; -E2BIG. */
int gantry_opencl_fit_path(const struct gantry_opencl_fit *fit, uint32_t breadth,
			   const char *folder, char *path, size_t cap);

/* In a child that may come to harm: has PoCL make the file, below @folder. Returns when it is there, or the launch is over. */
int gantry_opencl_fit_make(const struct gantry_opencl_driver *cl, cl_device_id device,
			   cl_context context, cl_program program,
			   const struct gantry_opencl_fit *fit, const char *folder,
			   struct gantry_err *err);

/* Moves the file from below @from to below @to. -ENOENT: there is none. */
int gantry_opencl_fit_take(const struct gantry_opencl_fit *fit, const char *from, const char *to);

#endif
