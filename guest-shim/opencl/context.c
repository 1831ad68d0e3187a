/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "guest-shim/opencl/calls.h"

bool icd_context_has(const struct _cl_context *context, const struct _cl_device_id *device)
{
	for (uint32_t i = 0; i < context->ndevices; i++)
		if (context->devices[i] == device)
			return true;
	return false;
}

/* How many words there are with the 0; or a result. */
static cl_int check_properties(const cl_context_properties *properties, size_t *ret_n)
{
	bool has_platform = false;
	size_t n = 0;

	*ret_n = 0;
	if (!properties)
		return CL_SUCCESS;
	for (; properties[n]; n += 2) {
		if (properties[n] == CL_CONTEXT_PLATFORM) {
			if (has_platform)
				return CL_INVALID_PROPERTY;
			if (properties[n + 1] != (cl_context_properties)&icd_platform)
				return CL_INVALID_PLATFORM;
			has_platform = true;
		} else if (properties[n] != CL_CONTEXT_INTEROP_USER_SYNC) {
			return CL_INVALID_PROPERTY;
		}
	}
	*ret_n = n + 1;
	return CL_SUCCESS;
}

static cl_int fill(struct _cl_context *context, const cl_context_properties *properties,
		   size_t nproperties, cl_uint n, const cl_device_id *devices)
{
	context->devices = calloc(n, sizeof(cl_device_id));
	if (!context->devices)
		return CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; i < n; i++)
		if (!icd_context_has(context, devices[i])) {
			icd_object_hold(devices[i]);
			context->devices[context->ndevices++] = devices[i];
		}
	if (nproperties) {
		context->properties = malloc(nproperties * sizeof(*properties));
		if (!context->properties)
			return CL_OUT_OF_HOST_MEMORY;
		memcpy(context->properties, properties, nproperties * sizeof(*properties));
		context->nproperties = nproperties;
	}
	return icd_host_take(&context->host);
}

void icd_context_end(struct _cl_context *context)
{
	for (uint32_t i = 0; i < context->ndevices; i++)
		icd_object_drop(context->devices[i]);
	free(context->devices);
	free(context->properties);
	icd_host_put(context->host);
}

cl_context CL_API_CALL icd_clCreateContext(const cl_context_properties *properties, cl_uint n,
					   const cl_device_id *devices,
					   void(CL_CALLBACK *notify)(const char *, const void *,
								     size_t, void *),
					   void *user, cl_int *ret)
{
	struct _cl_context *context = NULL;
	size_t nproperties = 0;
	cl_int result = check_properties(properties, &nproperties);

	if (result == CL_SUCCESS && (n == 0 || !devices || (!notify && user)))
		result = CL_INVALID_VALUE;
	icd_gate_lock();
	for (cl_uint i = 0; result == CL_SUCCESS && i < n; i++)
		if (!icd_device_valid(devices[i]))
			result = CL_INVALID_DEVICE;
	if (result == CL_SUCCESS) {
		context = icd_object_new(ICD_CONTEXT);
		result = context ? fill(context, properties, nproperties, n, devices)
				 : CL_OUT_OF_HOST_MEMORY;
	}
	icd_gate_unlock();
	if (result != CL_SUCCESS && context) {
		(void)icd_clReleaseContext(context);
		context = NULL;
	}
	return icd_result(ret, result, context);
}

cl_context CL_API_CALL
icd_clCreateContextFromType(const cl_context_properties *properties, cl_device_type type,
			    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
			    void *user, cl_int *ret)
{
	cl_device_id devices[GANTRY_NKINDS];
	cl_uint n = 0;
	size_t nproperties;
	cl_int result = check_properties(properties, &nproperties);

	if (result == CL_SUCCESS && !notify && user)
		result = CL_INVALID_VALUE;
	if (result == CL_SUCCESS)
		result = icd_clGetDeviceIDs(&icd_platform, type, GANTRY_NKINDS, devices, &n);
	if (result != CL_SUCCESS)
		return icd_result(ret, result, NULL);
	return icd_clCreateContext(properties, n, devices, notify, user, ret);
}

cl_int CL_API_CALL icd_clRetainContext(cl_context context)
{
	return icd_object_retain(context, ICD_CONTEXT, CL_INVALID_CONTEXT);
}

cl_int CL_API_CALL icd_clReleaseContext(cl_context context)
{
	return icd_object_release(context, ICD_CONTEXT, CL_INVALID_CONTEXT);
}

static cl_int info(const struct _cl_context *context, cl_context_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_CONTEXT_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, context->object.refs);
	case CL_CONTEXT_NUM_DEVICES:
		return ICD_ANSWER(to, cl_uint, context->ndevices);
	case CL_CONTEXT_DEVICES:
		return icd_answer(to, context->devices,
				  context->ndevices * sizeof(context->devices[0]));
	case CL_CONTEXT_PROPERTIES:
		return icd_answer(to, context->properties,
				  context->nproperties * sizeof(*context->properties));
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetContextInfo(cl_context handle, cl_context_info what, size_t size,
					void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = info(context, what, &to);
	icd_gate_unlock();
	return result;
}
