/* SPDX-License-Identifier: Apache-2.0 */
/* Programs from binaries, and binaries of programs; installed kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/program.h"

#define PACK_MARK "GANTRYCL"

/* What clGetProgramInfo() gives as a binary: what the host is given to make the program again. */
struct pack {
	char mark[8];
	uint32_t version;
	uint32_t
		sort; /* ICD_PACKED: a text with options; ICD_BUILTIN: names; ICD_LIBRARY: a text that is no executable */
	uint64_t bytes; /* of what follows */
	uint64_t sum;
};

static uint64_t sum_of(const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	uint64_t sum = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < n; i++)
		sum = (sum ^ at[i]) * 0x100000001b3ull;
	return sum;
}

/* What the program is packed as; NULL: it cannot be. */
static const char *inner_of(const struct _cl_program *program, uint32_t *ret_sort)
{
	*ret_sort = program->sort == ICD_SOURCE ? ICD_PACKED : program->sort;
	if (program->sort == ICD_SOURCE)
		return program->status == CL_BUILD_SUCCESS ? program->flat : NULL;
	return program->source;
}

/* A binary that the host took as it is stays one. NULL: none, or no memory. */
void *icd_program_pack(const struct _cl_program *program, size_t *ret_bytes)
{
	uint32_t sort;
	const char *inner = inner_of(program, &sort);
	size_t n = inner ? strlen(inner) : 0;
	struct pack *p;
	bool as_it_is = program->sort == ICD_BINARY ||
			(program->sort == ICD_IL && program->status == CL_BUILD_SUCCESS);

	*ret_bytes = as_it_is ? program->nbinary : inner ? sizeof(*p) + n : 0;
	if (*ret_bytes == 0)
		return NULL;
	p = malloc(*ret_bytes);
	if (!p)
		return NULL;
	if (as_it_is)
		return memcpy(p, program->binary, program->nbinary);
	*p = (struct pack){ .version = 1, .sort = sort, .bytes = n, .sum = sum_of(inner, n) };
	memcpy(p->mark, PACK_MARK, sizeof(p->mark));
	memcpy(p + 1, inner, n);
	return p;
}

static bool is_packed(const uint8_t *bytes, size_t n)
{
	return n >= 8 && memcmp(bytes, PACK_MARK, 8) == 0;
}

static bool add_builtin(struct _cl_program *program, const struct icd_builtin *builtin)
{
	struct icd_kernel_info *more = realloc(program->kernels,
					       (program->nkernels + 1) * sizeof(*more));

	if (!more)
		return false;
	program->kernels = more;
	if (!icd_kernel_of_builtin(builtin, &more[program->nkernels]))
		return false;
	program->nkernels++;
	return true;
}

/* Of @devices the first that has it. */
static const struct icd_builtin *find_builtin(cl_uint n, const cl_device_id *devices,
					      const char *name)
{
	const struct icd_builtin *found = NULL;

	for (cl_uint i = 0; i < n && !found; i++)
		found = icd_device_builtin(devices[i], name);
	return found;
}

/* Installed kernels by @names, with ";" between them. */
static cl_int take_builtins(struct _cl_program *program, cl_uint n, const cl_device_id *devices,
			    const char *names)
{
	char *save = NULL;

	program->source = strdup(names);
	for (char *copy = strdup(names), *name = copy ? strtok_r(copy, ";", &save) : NULL;;) {
		const struct icd_builtin *builtin = name ? find_builtin(n, devices, name) : NULL;

		if (!name) {
			free(copy);
			break;
		}
		if (!builtin || !add_builtin(program, builtin)) {
			free(copy);
			return builtin ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_VALUE;
		}
		name = strtok_r(NULL, ";", &save);
	}
	if (!program->source || program->nkernels == 0)
		return program->source ? CL_INVALID_VALUE : CL_OUT_OF_HOST_MEMORY;
	program->status = CL_BUILD_SUCCESS;
	program->made = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	return CL_SUCCESS;
}

static cl_int unpack(struct _cl_program *program, cl_device_id device, const uint8_t *bytes,
		     size_t n)
{
	struct pack p;

	if (n < sizeof(p))
		return CL_INVALID_BINARY;
	memcpy(&p, bytes, sizeof(p));
	if (p.version != 1 || p.bytes != n - sizeof(p) ||
	    p.sum != sum_of(bytes + sizeof(p), n - sizeof(p)) ||
	    memchr(bytes + sizeof(p), '\0', n - sizeof(p)))
		return CL_INVALID_BINARY;
	if (p.sort != ICD_PACKED && p.sort != ICD_LIBRARY && p.sort != ICD_BUILTIN)
		return CL_INVALID_BINARY;
	program->sort = p.sort;
	if (p.sort == ICD_BUILTIN) {
		char *names = strndup((const char *)bytes + sizeof(p), p.bytes);
		cl_int result = names ? take_builtins(program, 1, &device, names)
				      : CL_OUT_OF_HOST_MEMORY;

		free(names);
		return result == CL_INVALID_VALUE ? CL_INVALID_BINARY : result;
	}
	if (!device->compiles)
		return CL_INVALID_BINARY;
	program->source = strndup((const char *)bytes + sizeof(p), p.bytes);
	if (p.sort == ICD_LIBRARY) {
		program->status = CL_BUILD_SUCCESS;
		program->made = CL_PROGRAM_BINARY_TYPE_LIBRARY;
	}
	return program->source ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* A vendor's. A board has the images that the administrator installed: what is in the file is not looked at. */
static cl_int take_foreign(struct _cl_program *program, cl_device_id device, const uint8_t *bytes,
			   size_t n)
{
	cl_int result;

	if (device->kind == GANTRY_KIND_FPGA) {
		char *names = icd_device_builtin_names(device);

		program->sort = ICD_BUILTIN;
		result = names ? take_builtins(program, 1, &device, names) : CL_OUT_OF_HOST_MEMORY;
		free(names);
		return result == CL_INVALID_VALUE ? CL_INVALID_BINARY : result;
	}
	if (!device->compiles)
		return CL_INVALID_BINARY;
	program->binary = malloc(n);
	if (!program->binary)
		return CL_OUT_OF_HOST_MEMORY;
	memcpy(program->binary, bytes, n);
	program->nbinary = n;
	result = icd_program_build_from(program, program->binary, n,
					CL_PROGRAM_BINARY_TYPE_EXECUTABLE, CL_INVALID_BINARY);
	if (result == CL_SUCCESS)
		program->status = CL_BUILD_NONE; /* until the program asks for it */
	return result;
}

static cl_int check_binaries(const struct _cl_context *context, cl_uint n,
			     const cl_device_id *devices, const size_t *lengths,
			     const unsigned char **binaries, cl_int *status)
{
	if (n == 0 || !devices || !lengths || !binaries)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			return CL_INVALID_DEVICE;
	for (cl_uint i = 0; i < n; i++) {
		if (status)
			status[i] = lengths[i] && binaries[i] ? CL_SUCCESS : CL_INVALID_VALUE;
		if (lengths[i] == 0 || !binaries[i])
			return CL_INVALID_VALUE;
	}
	return CL_SUCCESS;
}

cl_program CL_API_CALL icd_clCreateProgramWithBinary(cl_context handle, cl_uint n,
						     const cl_device_id *devices,
						     const size_t *lengths,
						     const unsigned char **binaries, cl_int *status,
						     cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = check_binaries(context, n, devices, lengths, binaries, status);
	if (result == CL_SUCCESS) {
		program = icd_program_new(context, ICD_BINARY);
		icd_object_hold_new(program);
		if (!program)
			result = CL_OUT_OF_HOST_MEMORY;
		else if (is_packed(binaries[0], lengths[0]))
			result = unpack(program, devices[0], binaries[0], lengths[0]);
		else
			result = take_foreign(program, devices[0], binaries[0], lengths[0]);
		if (status)
			status[0] = result;
	}
	program = icd_object_give(program, result);
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

cl_program CL_API_CALL icd_clCreateProgramWithBuiltInKernels(cl_context handle, cl_uint n,
							     const cl_device_id *devices,
							     const char *names, cl_int *ret)
{
	struct _cl_program *program = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = n == 0 || !devices || !names ? CL_INVALID_VALUE : CL_SUCCESS;
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!icd_device_valid(devices[i]) || !icd_context_has(context, devices[i]))
			result = CL_INVALID_DEVICE;
	if (result == CL_SUCCESS) {
		program = icd_program_new(context, ICD_BUILTIN);
		result = program ? take_builtins(program, n, devices, names)
				 : CL_OUT_OF_HOST_MEMORY;
	}
	if (result != CL_SUCCESS) {
		icd_object_throw_away(program);
		program = NULL;
	}
	icd_gate_unlock();
	return icd_result(ret, result, program);
}

cl_int CL_API_CALL icd_clUnloadPlatformCompiler(cl_platform_id platform)
{
	return platform == &icd_platform ? CL_SUCCESS : CL_INVALID_PLATFORM;
}

cl_int CL_API_CALL icd_clUnloadCompiler(void)
{
	return CL_SUCCESS;
}
