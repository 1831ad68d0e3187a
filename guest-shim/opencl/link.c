/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that are compiled and linked apart. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/program.h"

static cl_int take_headers(cl_uint n, const cl_program *programs, const char **names,
			   struct icd_header *headers)
{
	for (cl_uint i = 0; i < n; i++) {
		const struct _cl_program *program = icd_object_get(programs[i], ICD_PROGRAM);

		if (!program || !program->source)
			return CL_INVALID_PROGRAM;
		if (!names[i])
			return CL_INVALID_VALUE;
		headers[i] = (struct icd_header){ names[i], program->source };
	}
	return CL_SUCCESS;
}

cl_int CL_API_CALL icd_clCompileProgram(cl_program handle, cl_uint n, const cl_device_id *devices,
					const char *options, cl_uint nheaders,
					const cl_program *header_programs, const char **names,
					icd_notify_fn notify, void *user)
{
	struct icd_header *headers = calloc((size_t)nheaders + 1, sizeof(*headers));
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = icd_program_check_build(program, n, devices, notify != NULL, user);
	if (result == CL_SUCCESS && (!nheaders != !header_programs || !nheaders != !names))
		result = CL_INVALID_VALUE;
	if (result == CL_SUCCESS && !headers)
		result = CL_OUT_OF_HOST_MEMORY;
	if (result == CL_SUCCESS)
		result = take_headers(nheaders, header_programs, names, headers);
	if (result == CL_SUCCESS && program->sort != ICD_SOURCE)
		result = CL_INVALID_OPERATION;
	if (result == CL_SUCCESS && !icd_program_compiler(program->context))
		result = CL_COMPILER_NOT_AVAILABLE;
	if (result == CL_SUCCESS) {
		icd_object_hold(program); /* another thread may let go of it meanwhile */
		free(program->options);
		program->options = strdup(options ? options : "");
		result = icd_program_build_text(program, options, nheaders, headers,
						CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT,
						CL_COMPILE_PROGRAM_FAILURE);
		icd_program_notify(notify, program, user);
		icd_object_drop(program);
	}
	icd_gate_unlock();
	free(headers);
	return result;
}

/* The texts one after the other, and the options of all of them. */
static char *join(cl_uint n, const cl_program *programs)
{
	size_t room = 64;
	char *options, *text, *all;

	for (cl_uint i = 0; i < n; i++)
		room += strlen(programs[i]->flat ? programs[i]->flat : programs[i]->source) + 64;
	options = calloc(1, room);
	text = calloc(1, room);
	for (cl_uint i = 0; options && text && i < n; i++) {
		const char *flat = programs[i]->flat ? programs[i]->flat : programs[i]->source;
		const char *body = flat;

		if (strncmp(flat, "//gantry-options:", 17) == 0) {
			body = strchr(flat, '\n') + 1;
			strncat(options, flat + 17, (size_t)(body - flat - 18));
		}
		strcat(text, body);
		strcat(text, "\n");
	}
	all = options && text ? icd_program_with_options(options, text) : NULL;
	free(options);
	free(text);
	return all;
}

static cl_int check_inputs(const struct _cl_context *context, cl_uint n, const cl_program *programs)
{
	if (n == 0 || !programs)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++) {
		const struct _cl_program *program = icd_object_get(programs[i], ICD_PROGRAM);

		if (!program || program->context != context)
			return CL_INVALID_PROGRAM;
		if ((program->made != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
		     program->made != CL_PROGRAM_BINARY_TYPE_LIBRARY) ||
		    (!program->flat && !program->source))
			return CL_INVALID_OPERATION;
	}
	return CL_SUCCESS;
}

static cl_int check_link_options(const char *options, bool *ret_library)
{
	char *copy = strdup(options ? options : ""), *save = NULL;
	cl_int result = copy ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	bool enables = false;

	*ret_library = false;
	for (char *word = copy ? strtok_r(copy, " \t", &save) : NULL; word;
	     word = strtok_r(NULL, " \t", &save)) {
		if (strcmp(word, "-create-library") == 0)
			*ret_library = true;
		else if (strcmp(word, "-enable-link-options") == 0)
			enables = true;
		else if (strncmp(word, "-cl-", 4) != 0)
			result = CL_INVALID_LINKER_OPTIONS;
	}
	if (enables && !*ret_library)
		result = CL_INVALID_LINKER_OPTIONS;
	free(copy);
	return result;
}

static cl_int link_into(struct _cl_program *program, bool is_library, cl_uint n,
			const cl_program *programs)
{
	program->source = join(n, programs);
	if (!program->source)
		return CL_OUT_OF_HOST_MEMORY;
	if (!is_library)
		return icd_program_build_from(program, program->source, strlen(program->source),
					      CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
					      CL_LINK_PROGRAM_FAILURE);
	program->status = CL_BUILD_SUCCESS;
	program->made = CL_PROGRAM_BINARY_TYPE_LIBRARY;
	return CL_SUCCESS;
}

cl_program CL_API_CALL icd_clLinkProgram(cl_context handle, cl_uint n, const cl_device_id *devices,
					 const char *options, cl_uint nprograms,
					 const cl_program *programs, icd_notify_fn notify,
					 void *user, cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	bool is_library = false;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = !n != !devices || (!notify && user)
				 ? CL_INVALID_VALUE
				 : check_inputs(context, nprograms, programs);
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			result = CL_INVALID_DEVICE;
	if (result == CL_SUCCESS)
		result = check_link_options(options, &is_library);
	if (result == CL_SUCCESS) {
		program = icd_program_new(context, is_library ? ICD_LIBRARY : ICD_PACKED);
		icd_object_hold_new(program);
		result = program ? link_into(program, is_library, nprograms, programs)
				 : CL_OUT_OF_HOST_MEMORY;
	}
	if (result == CL_SUCCESS) {
		program->options = strdup(options ? options : "");
		icd_program_notify(notify, program, user);
	}
	program = icd_object_give(program, result);
	icd_gate_unlock();
	return icd_result(ret, result, program);
}
