/* SPDX-License-Identifier: Apache-2.0 */
/* What the ICD loader finds: cl_khr_icd. */
#include <string.h>

#include "guest-shim/opencl/calls.h"

#define EXPORTED __attribute__((visibility("default")))

const struct _cl_icd_dispatch icd_dispatch = {
#define ENTRY(name) .name = icd_##name,
	ICD_CALLS(ENTRY)
#undef ENTRY
};

EXPORTED cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *platforms,
						   cl_uint *ret_n);
EXPORTED cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint n, cl_platform_id *platforms,
						   cl_uint *ret_n)
{
	return icd_clGetPlatformIDs(n, platforms, ret_n);
}

/* Loaders look here for the first two, before they know the platform, and for nothing else. */
static const struct {
	const char *name;
	void *function;
} functions[] = {
	{ "clIcdGetPlatformIDsKHR", (void *)clIcdGetPlatformIDsKHR },
	{ "clGetPlatformInfo", (void *)icd_clGetPlatformInfo },
	{ "clCreateProgramWithILKHR", (void *)icd_clCreateProgramWithIL }, /* cl_khr_il_program */
};

void *CL_API_CALL icd_clGetExtensionFunctionAddress(const char *name)
{
	for (size_t i = 0; name && i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strcmp(functions[i].name, name) == 0)
			return functions[i].function;
	return NULL;
}

EXPORTED void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
	return icd_clGetExtensionFunctionAddress(name);
}

void *CL_API_CALL icd_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
							       const char *name)
{
	return platform == &icd_platform ? icd_clGetExtensionFunctionAddress(name) : NULL;
}
