/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and their arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

void icd_kernel_end(struct _cl_kernel *kernel)
{
	if (kernel->kernel)
		icd_kernel_free(kernel->program->context->host, kernel->kernel);
	for (uint32_t i = 0; kernel->values && i < kernel->info->nargs; i++)
		free(kernel->values[i].value);
	free(kernel->values);
	free(kernel->signature);
	if (kernel->program) {
		kernel->program->nmade--;
		icd_object_drop(kernel->program);
	}
}

static struct _cl_kernel *make(struct _cl_program *program, const struct icd_kernel_info *info)
{
	struct _cl_kernel *kernel = icd_object_new(ICD_KERNEL);

	if (!kernel)
		return NULL;
	kernel->info = info;
	kernel->values = calloc(info->nargs + 1, sizeof(*kernel->values));
	if (!kernel->values) {
		icd_object_throw_away(kernel);
		return NULL;
	}
	kernel->program = program;
	program->nmade++;
	icd_object_hold(program);
	return kernel;
}

static bool is_executable(const struct _cl_program *program)
{
	return program->status == CL_BUILD_SUCCESS &&
	       program->made == CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
}

cl_kernel CL_API_CALL icd_clCreateKernel(cl_program handle, const char *name, cl_int *ret)
{
	const struct icd_kernel_info *info = NULL;
	struct _cl_kernel *kernel = NULL;
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = is_executable(program) ? CL_SUCCESS : CL_INVALID_PROGRAM_EXECUTABLE;
	if (result == CL_SUCCESS && !name)
		result = CL_INVALID_VALUE;
	if (result == CL_SUCCESS) {
		info = icd_program_kernel(program, name);
		result = info ? CL_SUCCESS : CL_INVALID_KERNEL_NAME;
	}
	if (info) {
		kernel = make(program, info);
		result = kernel ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	icd_gate_unlock();
	return icd_result(ret, result, kernel);
}

cl_int CL_API_CALL icd_clCreateKernelsInProgram(cl_program handle, cl_uint n, cl_kernel *kernels,
						cl_uint *ret_n)
{
	struct _cl_program *program;
	cl_int result = CL_INVALID_PROGRAM;

	icd_gate_lock();
	program = icd_object_get(handle, ICD_PROGRAM);
	if (program)
		result = is_executable(program) ? CL_SUCCESS : CL_INVALID_PROGRAM_EXECUTABLE;
	if (result == CL_SUCCESS && kernels && n < program->nkernels)
		result = CL_INVALID_VALUE;
	for (uint32_t i = 0; result == CL_SUCCESS && kernels && i < program->nkernels; i++) {
		kernels[i] = make(program, &program->kernels[i]);
		if (kernels[i])
			continue;
		result = CL_OUT_OF_HOST_MEMORY;
		while (i-- > 0)
			icd_object_throw_away(kernels[i]);
		break;
	}
	if (result == CL_SUCCESS && ret_n)
		*ret_n = program->nkernels;
	icd_gate_unlock();
	return result;
}

cl_int CL_API_CALL icd_clRetainKernel(cl_kernel kernel)
{
	return icd_object_retain(kernel, ICD_KERNEL, CL_INVALID_KERNEL);
}

cl_int CL_API_CALL icd_clReleaseKernel(cl_kernel kernel)
{
	return icd_object_release(kernel, ICD_KERNEL, CL_INVALID_KERNEL);
}

cl_kernel CL_API_CALL icd_clCloneKernel(cl_kernel kernel, cl_int *ret)
{
	(void)kernel;
	return icd_result(ret, CL_INVALID_OPERATION, NULL); /* of OpenCL 2.1 */
}

/* ---- arguments ---- */

static cl_int set_buffer(const struct _cl_kernel *kernel, struct icd_value *v, size_t size,
			 const void *value)
{
	struct _cl_mem *mem = NULL;
	cl_mem handle;

	if (size != sizeof(cl_mem))
		return CL_INVALID_ARG_SIZE;
	if (value) {
		memcpy(&handle, value, sizeof(handle));
		mem = icd_buffer_get(handle);
		if (handle && (!mem || mem->context != kernel->program->context))
			return CL_INVALID_MEM_OBJECT;
	}
	v->mem = mem;
	v->serial = mem ? mem->object.serial : 0;
	return CL_SUCCESS;
}

/* What OpenCL C calls images of that type. */
static const char *type_name(uint32_t type)
{
	static const char *const names[GANTRY_IMAGE_NTYPES] = {
		"image2d_t", "image3d_t",	"image2d_array_t",
		"image1d_t", "image1d_array_t", "image1d_buffer_t",
	};

	return names[type - GANTRY_IMAGE_2D];
}

static cl_int set_image(const struct _cl_kernel *kernel, struct icd_value *v,
			const struct icd_arg *arg, size_t size, const void *value)
{
	struct _cl_mem *mem;
	cl_mem handle;

	if (size != sizeof(cl_mem))
		return CL_INVALID_ARG_SIZE;
	if (!value)
		return CL_INVALID_ARG_VALUE;
	memcpy(&handle, value, sizeof(handle));
	mem = icd_image_get(handle);
	if (!mem || mem->context != kernel->program->context)
		return CL_INVALID_MEM_OBJECT;
	/* A name of the program's own for a type tells nothing. */
	if ((strncmp(arg->type, "image", 5) == 0 &&
	     strcmp(arg->type, type_name(mem->image.type)) != 0) ||
	    (arg->access == CL_KERNEL_ARG_ACCESS_READ_ONLY && (mem->flags & CL_MEM_WRITE_ONLY)) ||
	    (arg->access == CL_KERNEL_ARG_ACCESS_WRITE_ONLY && (mem->flags & CL_MEM_READ_ONLY)))
		return CL_INVALID_ARG_VALUE;
	v->mem = mem;
	v->serial = mem->object.serial;
	return CL_SUCCESS;
}

static cl_int set_value(struct icd_value *v, const struct icd_arg *arg, size_t size,
			const void *value)
{
	void *more;

	if (size == 0 || size > GANTRY_MAX_VALUE_BYTES || (arg->bytes && size != arg->bytes))
		return CL_INVALID_ARG_SIZE;
	if (!value)
		return CL_INVALID_ARG_VALUE;
	if (v->room < size) {
		more = realloc(v->value, size);
		if (!more)
			return CL_OUT_OF_HOST_MEMORY;
		v->value = more;
		v->room = (uint32_t)size;
	}
	memcpy(v->value, value, size);
	v->bytes = (uint32_t)size;
	return CL_SUCCESS;
}

/* What it is counts, not the object: a launch has the numbers. */
static cl_int set_sampler(const struct _cl_kernel *kernel, struct icd_value *v,
			  const struct icd_arg *arg, size_t size, const void *value)
{
	const struct _cl_sampler *sampler;
	cl_sampler handle;

	if (size != sizeof(cl_sampler))
		return CL_INVALID_ARG_SIZE;
	if (!value)
		return CL_INVALID_ARG_VALUE;
	memcpy(&handle, value, sizeof(handle));
	sampler = icd_object_get(handle, ICD_SAMPLER);
	if (!sampler || sampler->context != kernel->program->context)
		return CL_INVALID_SAMPLER;
	return set_value(v, arg, sizeof(sampler->what), &sampler->what);
}

static cl_int set_arg(struct _cl_kernel *kernel, cl_uint i, size_t size, const void *value)
{
	const struct icd_arg *arg;
	struct icd_value *v;
	cl_int result;
	bool had_mem;
	uint32_t had_bytes;

	if (i >= kernel->info->nargs)
		return CL_INVALID_ARG_INDEX;
	arg = &kernel->info->args[i];
	v = &kernel->values[i];
	had_mem = v->mem != NULL;
	had_bytes = v->bytes;
	switch (icd_arg_is_image(arg) ? CL_KERNEL_ARG_ADDRESS_GLOBAL : arg->where) {
	case CL_KERNEL_ARG_ADDRESS_LOCAL:
		if (value)
			return CL_INVALID_ARG_VALUE;
		if (size == 0 || size > UINT32_MAX)
			return CL_INVALID_ARG_SIZE;
		v->bytes = (uint32_t)size;
		result = CL_SUCCESS;
		break;
	case CL_KERNEL_ARG_ADDRESS_PRIVATE:
		result = icd_arg_is_sampler(arg) ? set_sampler(kernel, v, arg, size, value)
						 : set_value(v, arg, size, value);
		break;
	default:
		result = icd_arg_is_image(arg) ? set_image(kernel, v, arg, size, value)
					       : set_buffer(kernel, v, size, value);
		break;
	}
	v->set = v->set || result == CL_SUCCESS;
	/* What the host has to know of it: launch.c */
	if (had_mem != (v->mem != NULL) || had_bytes != v->bytes)
		kernel->is_found = false;
	return result;
}

cl_int CL_API_CALL icd_clSetKernelArg(cl_kernel handle, cl_uint i, size_t size, const void *value)
{
	struct _cl_kernel *kernel;
	cl_int result = CL_INVALID_KERNEL;

	icd_gate_lock();
	kernel = icd_object_get(handle, ICD_KERNEL);
	if (kernel)
		result = set_arg(kernel, i, size, value);
	icd_gate_unlock();
	return result;
}

/* ---- questions ---- */

/* The host's driver may have forgotten them where it loaded a binary; the size it still knows. */
static cl_int attributes(const struct icd_kernel_info *info, const struct icd_to *to)
{
	char text[96] = "";

	if (info->attributes)
		return icd_answer_text(to, info->attributes);
	if (info->compiled[0])
		(void)snprintf(text, sizeof(text), "reqd_work_group_size(%zu, %zu, %zu)",
			       info->compiled[0], info->compiled[1], info->compiled[2]);
	return icd_answer_text(to, text);
}

static cl_int info(const struct _cl_kernel *kernel, cl_kernel_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_KERNEL_FUNCTION_NAME:
		return icd_answer_text(to, kernel->info->name);
	case CL_KERNEL_NUM_ARGS:
		return ICD_ANSWER(to, cl_uint, kernel->info->nargs);
	case CL_KERNEL_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, kernel->object.refs);
	case CL_KERNEL_CONTEXT:
		return ICD_ANSWER(to, cl_context, kernel->program->context);
	case CL_KERNEL_PROGRAM:
		return ICD_ANSWER(to, cl_program, kernel->program);
	case CL_KERNEL_ATTRIBUTES:
		return attributes(kernel->info, to);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetKernelInfo(cl_kernel handle, cl_kernel_info what, size_t size,
				       void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_kernel *kernel;
	cl_int result = CL_INVALID_KERNEL;

	icd_gate_lock();
	kernel = icd_object_get(handle, ICD_KERNEL);
	if (kernel)
		result = info(kernel, what, &to);
	icd_gate_unlock();
	return result;
}

static cl_int arg_info(const struct icd_arg *arg, cl_kernel_arg_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_KERNEL_ARG_ADDRESS_QUALIFIER:
		return ICD_ANSWER(to, cl_kernel_arg_address_qualifier, arg->where);
	case CL_KERNEL_ARG_ACCESS_QUALIFIER:
		return ICD_ANSWER(to, cl_kernel_arg_access_qualifier, arg->access);
	case CL_KERNEL_ARG_TYPE_QUALIFIER:
		return ICD_ANSWER(to, cl_kernel_arg_type_qualifier, arg->qualifiers);
	case CL_KERNEL_ARG_TYPE_NAME:
		return icd_answer_text(to, arg->type);
	case CL_KERNEL_ARG_NAME:
		return icd_answer_text(to, arg->name);
	default:
		return CL_INVALID_VALUE;
	}
}

/* Of texts it is there where the program asked for it; the driver itself always has it. */
static bool has_arg_info(const struct _cl_program *program)
{
	const char *text = program->flat ? program->flat : program->source;
	const char *asked = text ? strstr(text, "-cl-kernel-arg-info") : NULL;

	if (program->sort == ICD_BUILTIN || program->sort == ICD_BINARY)
		return true;
	return asked && asked < text + strcspn(text, "\n"); /* options stand in the first line */
}

cl_int CL_API_CALL icd_clGetKernelArgInfo(cl_kernel handle, cl_uint i, cl_kernel_arg_info what,
					  size_t size, void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_kernel *kernel;
	cl_int result = CL_INVALID_KERNEL;

	icd_gate_lock();
	kernel = icd_object_get(handle, ICD_KERNEL);
	if (kernel && i >= kernel->info->nargs)
		result = CL_INVALID_ARG_INDEX;
	else if (kernel && !has_arg_info(kernel->program))
		result = CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
	else if (kernel)
		result = arg_info(&kernel->info->args[i], what, &to);
	icd_gate_unlock();
	return result;
}

static cl_int group_info(const struct _cl_kernel *kernel, const struct _cl_device_id *device,
			 cl_kernel_work_group_info what, const struct icd_to *to)
{
	const struct icd_kernel_info *info = kernel->info;
	uint64_t local = info->local_bytes;

	switch (what) {
	case CL_KERNEL_WORK_GROUP_SIZE:
		return ICD_ANSWER(to, size_t, info->work_group);
	case CL_KERNEL_COMPILE_WORK_GROUP_SIZE:
		return icd_answer(to, info->compiled, sizeof(info->compiled));
	case CL_KERNEL_LOCAL_MEM_SIZE:
		for (uint32_t i = 0; i < info->nargs; i++)
			if (info->args[i].where == CL_KERNEL_ARG_ADDRESS_LOCAL)
				local += kernel->values[i].bytes;
		return ICD_ANSWER(to, cl_ulong, local);
	case CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE:
		return ICD_ANSWER(to, size_t, info->multiple);
	case CL_KERNEL_PRIVATE_MEM_SIZE:
		return ICD_ANSWER(to, cl_ulong, info->private_bytes);
	case CL_KERNEL_GLOBAL_WORK_SIZE:
		/* Of devices and kernels that are not programmed. */
		if (device->type != CL_DEVICE_TYPE_CUSTOM && !info->signature)
			return CL_INVALID_VALUE;
		return icd_answer(to, (const size_t[3]){ 1, 1, 1 }, 3 * sizeof(size_t));
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetKernelWorkGroupInfo(cl_kernel handle, cl_device_id device,
						cl_kernel_work_group_info what, size_t size,
						void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	const struct _cl_context *context;
	struct _cl_kernel *kernel;
	cl_int result = CL_INVALID_KERNEL;

	icd_gate_lock();
	kernel = icd_object_get(handle, ICD_KERNEL);
	context = kernel ? kernel->program->context : NULL;
	if (kernel && !device && context->ndevices == 1)
		device = context->devices[0];
	if (kernel && (!icd_device_valid(device) || !icd_context_has(context, device)))
		result = CL_INVALID_DEVICE;
	else if (kernel)
		result = group_info(kernel, device, what, &to);
	icd_gate_unlock();
	return result;
}
