/* SPDX-License-Identifier: Apache-2.0 */
/* What programs tell of themselves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/program.h"

const struct icd_kernel_info *icd_program_kernel(const struct _cl_program *program,
						 const char *name)
{
	for (uint32_t i = 0; i < program->nkernels; i++)
		if (strcmp(program->kernels[i].name, name) == 0)
			return &program->kernels[i];
	return NULL;
}

static cl_int answer_names(const struct _cl_program *program, const struct icd_to *to)
{
	size_t room = 1;
	char *names, *at;
	cl_int result;

	for (uint32_t i = 0; i < program->nkernels; i++)
		room += strlen(program->kernels[i].name) + 1;
	names = at = calloc(1, room);
	if (!names)
		return CL_OUT_OF_HOST_MEMORY;
	for (uint32_t i = 0; i < program->nkernels; i++)
		at += snprintf(at, room - (size_t)(at - names), "%s%s", i ? ";" : "",
			       program->kernels[i].name);
	result = icd_answer_text(to, names);
	free(names);
	return result;
}

/* Which of the context's devices the program is for. */
static bool is_for(const struct _cl_program *program, const struct _cl_device_id *device)
{
	return program->sort == ICD_BUILTIN
		       ? program->nkernels && icd_device_builtin(device, program->kernels[0].name)
		       : device->compiles;
}

static cl_int answer_sizes(const struct _cl_program *program, const struct icd_to *to)
{
	uint32_t n = program->context->ndevices;
	size_t *sizes = calloc(n, sizeof(*sizes)), bytes = 0;
	void *packed = sizes ? icd_program_pack(program, &bytes) : NULL;
	cl_int result;

	for (uint32_t i = 0; sizes && i < n; i++)
		sizes[i] = packed && is_for(program, program->context->devices[i]) ? bytes : 0;
	result = sizes ? icd_answer(to, sizes, n * sizeof(*sizes)) : CL_OUT_OF_HOST_MEMORY;
	free(packed);
	free(sizes);
	return result;
}

static cl_int answer_binaries(const struct _cl_program *program, const struct icd_to *to)
{
	size_t n = program->context->ndevices, bytes = 0;
	unsigned char **places = to->value;
	void *packed;

	if (to->ret)
		*to->ret = n * sizeof(*places);
	if (!places)
		return CL_SUCCESS;
	if (to->size < n * sizeof(*places))
		return CL_INVALID_VALUE;
	packed = icd_program_pack(program, &bytes);
	for (size_t i = 0; packed && i < n; i++)
		if (places[i] && is_for(program, program->context->devices[i]))
			memcpy(places[i], packed, bytes);
	free(packed);
	return CL_SUCCESS;
}

static cl_int info(const struct _cl_program *program, cl_program_info what, const struct icd_to *to)
{
	bool is_built = program->status == CL_BUILD_SUCCESS;

	switch (what) {
	case CL_PROGRAM_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, program->object.refs);
	case CL_PROGRAM_CONTEXT:
		return ICD_ANSWER(to, cl_context, program->context);
	case CL_PROGRAM_NUM_DEVICES:
		return ICD_ANSWER(to, cl_uint, program->context->ndevices);
	case CL_PROGRAM_DEVICES:
		return icd_answer(to, program->context->devices,
				  program->context->ndevices * sizeof(cl_device_id));
	case CL_PROGRAM_SOURCE:
		return icd_answer_text(to, program->sort == ICD_SOURCE ? program->source : "");
	case CL_PROGRAM_IL:
		return icd_answer(to, program->il.module, program->il.bytes);
	case CL_PROGRAM_BINARY_SIZES:
		return answer_sizes(program, to);
	case CL_PROGRAM_BINARIES:
		return answer_binaries(program, to);
	case CL_PROGRAM_NUM_KERNELS:
		return is_built ? ICD_ANSWER(to, size_t, program->nkernels)
				: CL_INVALID_PROGRAM_EXECUTABLE;
	case CL_PROGRAM_KERNEL_NAMES:
		return is_built ? answer_names(program, to) : CL_INVALID_PROGRAM_EXECUTABLE;
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetProgramInfo(cl_program handle, cl_program_info what, size_t size,
					void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = info(program, what, &to);
	icd_gate_unlock();
	return result;
}

static cl_int build_info(const struct _cl_program *program, cl_program_build_info what,
			 const struct icd_to *to)
{
	switch (what) {
	case CL_PROGRAM_BUILD_STATUS:
		return ICD_ANSWER(to, cl_build_status, program->status);
	case CL_PROGRAM_BUILD_OPTIONS:
		return icd_answer_text(to, program->options);
	case CL_PROGRAM_BUILD_LOG:
		return icd_answer_text(to, program->log);
	case CL_PROGRAM_BINARY_TYPE:
		return ICD_ANSWER(to, cl_program_binary_type, program->made);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetProgramBuildInfo(cl_program handle, cl_device_id device,
					     cl_program_build_info what, size_t size, void *value,
					     size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program && (!icd_device_valid(device) || !icd_context_has(program->context, device)))
		result = CL_INVALID_DEVICE;
	else if (program)
		result = build_info(program, what, &to);
	icd_gate_unlock();
	return result;
}
