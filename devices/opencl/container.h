/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What device code looks like from outside, before a vendor's loader sees it.
 *
 * A loader believes what a container says of itself: PoCL 3.1 reads past the end of a binary that is cut short, and
 * writes the files that it lists wherever their names lead. So whatever a loader may follow (sizes, counts, names of
 * files) is checked here. What is inside the parts is the loader's to judge, in a process that may crash.
 *
 * Trust: bytes are hostile (fuzzed): nothing is allocated, nothing outside [bytes, bytes + nbytes) is read.
 * Threads: any; the functions keep no state.
 */
#ifndef GANTRY_DEVICES_OPENCL_CONTAINER_H
#define GANTRY_DEVICES_OPENCL_CONTAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum gantry_opencl_sort {
	GANTRY_OPENCL_UNKNOWN = 0,
	GANTRY_OPENCL_SOURCE = 1, /* text in OpenCL C */
	GANTRY_OPENCL_POCL = 2,	  /* PoCL's container */
	GANTRY_OPENCL_ELF = 3,	  /* what most vendors' compilers make */
	GANTRY_OPENCL_XCLBIN = 4, /* Xilinx's container: images of boards */
	GANTRY_OPENCL_IL = 5,	  /* SPIR-V, with lines before it (proto/spirv.h) */
	GANTRY_OPENCL_PTX = 6,	  /* NVIDIA's: text in PTX, and NULs behind it */
};

/* What @bytes seem to be, by their beginning. Nothing is checked. */
enum gantry_opencl_sort gantry_opencl_sort(const void *bytes, size_t nbytes);

/*
 * 0: whole, and nothing in it leads outside; *@ret_sort (may be NULL) says what it is. -ENOEXEC, with the sentence that says
 * what is wrong: cut short, altered, or of no sort that is known here.
 */
int gantry_opencl_container_check(const void *bytes, size_t nbytes,
				  enum gantry_opencl_sort *ret_sort, struct gantry_err *err);

/*
 * Of a PoCL container that was checked: the same without the program's intermediate code, for which PoCL would start
 * a compiler and a linker at the first launch of each shape. What is left has every kernel for all shapes. Written to
 * @dst, which has room for @nbytes and may be @bytes. Returns the new length.
 */
size_t gantry_opencl_pocl_strip(const void *bytes, size_t nbytes, void *dst);

/* Of a PoCL container that was checked: what PoCL calls the program's folder, terminated. */
const char *gantry_opencl_pocl_folder(const void *bytes);
/* Is @name, of @cap bytes, such a name, terminated? Is @text a name as OpenCL C has them? Neither leads anywhere else in a path. */
bool gantry_opencl_pocl_is_folder(const char *name, size_t cap);
bool gantry_opencl_is_identifier(const char *text, size_t len);

#endif
