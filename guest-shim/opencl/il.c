/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in SPIR-V, for devices whose host takes it. The host is given the module behind lines with options and specialization
 * constants (proto/spirv.h), when the program is built; that is its binary too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/program.h"

const char *icd_il_version(const struct _cl_device_id *device)
{
	return device->compiles ? icd_device_line(device->about, "il") : NULL;
}

/* The first of the context's devices that takes it; NULL: none does. */
static const struct _cl_device_id *taker(const struct _cl_context *context)
{
	for (uint32_t i = 0; i < context->ndevices; i++)
		if (icd_il_version(context->devices[i]))
			return context->devices[i];
	return NULL;
}

/* In this processor's order of bytes, as a module may have either. NULL: no memory. */
static void *copy_of(const void *il, size_t bytes)
{
	uint32_t *words = malloc(bytes);

	if (!words)
		return NULL;
	memcpy(words, il, bytes);
	if (bytes >= sizeof(*words) && words[0] == __builtin_bswap32(GANTRY_SPIRV_MAGIC))
		for (size_t i = 0; i < bytes / sizeof(*words); i++)
			words[i] = __builtin_bswap32(words[i]);
	return words;
}

static cl_int take(struct _cl_context *context, const void *il, size_t bytes,
		   struct _cl_program **ret_program)
{
	void *module;

	if (!taker(context))
		return CL_INVALID_OPERATION;
	if (!il || bytes == 0)
		return CL_INVALID_VALUE;
	module = copy_of(il, bytes);
	if (module && gantry_spirv_check(module, bytes)) {
		free(module);
		return CL_INVALID_VALUE;
	}
	*ret_program = module ? icd_program_new(context, ICD_IL) : NULL;
	if (!*ret_program) {
		free(module);
		return CL_OUT_OF_HOST_MEMORY;
	}
	(*ret_program)->il = (struct icd_il){ .module = module, .bytes = bytes };
	return CL_SUCCESS;
}

cl_program CL_API_CALL icd_clCreateProgramWithIL(cl_context handle, const void *il, size_t bytes,
						 cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = take(context, il, bytes, &program);
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

/* ---- specialization constants ---- */

static struct gantry_spirv_constant *slot_for(struct icd_il *il, uint32_t id)
{
	struct gantry_spirv_constant *more;

	for (uint32_t i = 0; i < il->nconstants; i++)
		if (il->constants[i].id == id)
			return &il->constants[i];
	if (il->nconstants == GANTRY_SPIRV_MAX_CONSTANTS)
		return NULL;
	more = realloc(il->constants, (il->nconstants + 1) * sizeof(*more));
	if (!more)
		return NULL;
	il->constants = more;
	return &more[il->nconstants++];
}

static cl_int set(struct _cl_program *program, cl_uint id, size_t bytes, const void *value)
{
	struct icd_il *il = &program->il;
	const struct _cl_device_id *device = taker(program->context);
	uint32_t wanted = gantry_spirv_constant_bytes(il->module, il->bytes, id);
	struct gantry_spirv_constant *slot;

	if (!device || !icd_device_number(device, "il_constants"))
		return CL_INVALID_OPERATION;
	if (!wanted)
		return CL_INVALID_SPEC_ID;
	if (!value || bytes != wanted)
		return CL_INVALID_VALUE;
	slot = slot_for(il, id);
	if (!slot)
		return CL_OUT_OF_HOST_MEMORY;
	*slot = (struct gantry_spirv_constant){ .id = id, .bytes = wanted };
	memcpy(slot->value, value, wanted);
	return CL_SUCCESS;
}

cl_int CL_API_CALL icd_clSetProgramSpecializationConstant(cl_program handle, cl_uint id,
							  size_t bytes, const void *value)
{
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program && program->sort == ICD_IL)
		result = set(program, id, bytes, value);
	icd_gate_unlock();
	return result;
}

/* ---- building ---- */

/* What the host is given; NULL: no memory. */
static uint8_t *packed(const struct icd_il *il, const char *options, size_t *ret_bytes)
{
	size_t room = strlen(GANTRY_SPIRV_OPTIONS) + strlen(options) + 3 +
		      il->nconstants * GANTRY_SPIRV_LINE + il->bytes;
	char *all = malloc(room), *at = all;

	if (!all)
		return NULL;
	at += sprintf(at, GANTRY_SPIRV_OPTIONS " %s\n", options);
	for (uint32_t i = 0; i < il->nconstants; i++) {
		gantry_spirv_line(&il->constants[i], at);
		at += strlen(at);
	}
	memcpy(at, il->module, il->bytes);
	*ret_bytes = (size_t)(at - all) + il->bytes;
	return (uint8_t *)all;
}

cl_int icd_il_build(struct _cl_program *program, const char *options)
{
	char *taken = icd_options_for_host(options);
	size_t bytes = 0;
	uint8_t *all;
	cl_int result;

	if (!taken)
		return CL_INVALID_BUILD_OPTIONS;
	all = packed(&program->il, taken, &bytes);
	free(taken);
	if (!all)
		return CL_OUT_OF_HOST_MEMORY;
	result = icd_program_build_from(program, all, bytes, CL_PROGRAM_BINARY_TYPE_EXECUTABLE,
					CL_BUILD_PROGRAM_FAILURE);
	free(program->binary);
	program->binary = all;
	program->nbinary = bytes;
	return result;
}

void icd_il_end(struct icd_il *il)
{
	free(il->module);
	free(il->constants);
}
