/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of programs share. Gate held in all of them. */
#ifndef GANTRY_GUEST_SHIM_OPENCL_PROGRAM_H
#define GANTRY_GUEST_SHIM_OPENCL_PROGRAM_H

#include "guest-shim/opencl/calls.h"

typedef void(CL_CALLBACK *icd_notify_fn)(cl_program, void *);

struct _cl_program *icd_program_new(struct _cl_context *context, enum icd_program_sort sort);
/* The first device that takes programs in OpenCL C; NULL: none does. */
struct _cl_device_id *icd_program_compiler(const struct _cl_context *context);

/*
 * The host makes of @bytes what the program is from now on: @made, or nothing, with result @failure where they are bad.
 * Lets the gate go meanwhile: other threads' calls find the program being built.
 */
cl_int icd_program_build_from(struct _cl_program *program, const void *bytes, size_t nbytes,
			      cl_program_binary_type made, cl_int failure);
/* The same of the program's source, with options as clBuildProgram() has them and headers by name. */
cl_int icd_program_build_text(struct _cl_program *program, const char *options, uint32_t nheaders,
			      const struct icd_header *headers, cl_program_binary_type made,
			      cl_int failure);
/* @text with options in its first line; docs/opencl.md. Malloc'd; NULL: no memory. */
char *icd_program_with_options(const char *options, const char *text);
/* What clBuildProgram() and clCompileProgram() refuse before they look at a text. */
cl_int icd_program_check_build(const struct _cl_program *program, cl_uint n,
			       const cl_device_id *devices, bool has_notify, const void *user);
/* The program is told by the pump, soon; @fn may be NULL. */
void icd_program_notify(icd_notify_fn fn, struct _cl_program *program, void *user);

/* What clGetProgramInfo() gives as its binary, malloc'd. NULL: it has none, or no memory. */
void *icd_program_pack(const struct _cl_program *program, size_t *ret_bytes);

#endif
