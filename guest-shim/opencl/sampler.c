/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers. A launch says what they are; the host makes its own. */
#include "guest-shim/opencl/calls.h"

void icd_sampler_end(struct _cl_sampler *sampler)
{
	icd_object_drop(sampler->context);
}

/* A repeated image has no place for coordinates that are not normalized. */
static bool may_be(const struct gantry_launch_sampler *what)
{
	bool repeats = what->addressing == CL_ADDRESS_REPEAT ||
		       what->addressing == CL_ADDRESS_MIRRORED_REPEAT;

	return gantry_sampler_index(what) >= 0 && (what->is_normalized || !repeats);
}

cl_sampler CL_API_CALL icd_clCreateSampler(cl_context handle, cl_bool is_normalized,
					   cl_addressing_mode addressing, cl_filter_mode filter,
					   cl_int *ret)
{
	const struct gantry_launch_sampler what = { is_normalized, addressing, filter, 0 };
	struct _cl_sampler *sampler = NULL;
	struct _cl_context *context;
	cl_int result = CL_INVALID_CONTEXT;

	icd_gate_lock();
	context = icd_object_get(handle, ICD_CONTEXT);
	if (context)
		result = !icd_context_images(context) ? CL_INVALID_OPERATION
			 : may_be(&what)	      ? CL_SUCCESS
						      : CL_INVALID_VALUE;
	if (result == CL_SUCCESS) {
		sampler = icd_object_new(ICD_SAMPLER);
		result = sampler ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
	}
	if (sampler) {
		sampler->context = context;
		sampler->what = what;
		icd_object_hold(context);
	}
	icd_gate_unlock();
	return icd_result(ret, result, sampler);
}

cl_int CL_API_CALL icd_clRetainSampler(cl_sampler sampler)
{
	return icd_object_retain(sampler, ICD_SAMPLER, CL_INVALID_SAMPLER);
}

cl_int CL_API_CALL icd_clReleaseSampler(cl_sampler sampler)
{
	return icd_object_release(sampler, ICD_SAMPLER, CL_INVALID_SAMPLER);
}

static cl_int info(const struct _cl_sampler *sampler, cl_sampler_info what, const struct icd_to *to)
{
	switch (what) {
	case CL_SAMPLER_REFERENCE_COUNT:
		return ICD_ANSWER(to, cl_uint, sampler->object.refs);
	case CL_SAMPLER_CONTEXT:
		return ICD_ANSWER(to, cl_context, sampler->context);
	case CL_SAMPLER_NORMALIZED_COORDS:
		return ICD_ANSWER(to, cl_bool, sampler->what.is_normalized);
	case CL_SAMPLER_ADDRESSING_MODE:
		return ICD_ANSWER(to, cl_addressing_mode, sampler->what.addressing);
	case CL_SAMPLER_FILTER_MODE:
		return ICD_ANSWER(to, cl_filter_mode, sampler->what.filter);
	default:
		return CL_INVALID_VALUE;
	}
}

cl_int CL_API_CALL icd_clGetSamplerInfo(cl_sampler handle, cl_sampler_info what, size_t size,
					void *value, size_t *ret)
{
	const struct icd_to to = { size, value, ret };
	const struct _cl_sampler *sampler;
	cl_int result = CL_INVALID_SAMPLER;

	icd_gate_lock();
	sampler = icd_object_get(handle, ICD_SAMPLER);
	if (sampler)
		result = info(sampler, what, &to);
	icd_gate_unlock();
	return result;
}
