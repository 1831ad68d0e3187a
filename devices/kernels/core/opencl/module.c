/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend reads to load the text of this shared object, and how its kernels are started. */
#include "devices/kernels/core/opencl/body.h"

/* From text.S. */
extern const char gantry_core_opencl[], gantry_core_opencl_end[];

static const char *const functions[] = {
#define FUNCTION(name) "core_" #name,
#include "devices/kernels/core/opencl/functions.def"
#undef FUNCTION
};

__attribute__((visibility("default"))) extern struct gantry_opencl_module gantry_opencl_module;

struct gantry_opencl_module gantry_opencl_module = {
	.size = sizeof(struct gantry_opencl_module),
	.abi = GANTRY_OPENCL_MODULE_ABI,
	.text = gantry_core_opencl,
	.nfunctions = OCL_NFUNCTIONS,
	.functions = functions,
};

/* The distance of two symbols is no constant of C. */
__attribute__((constructor)) static void measure(void)
{
	gantry_opencl_module.text_bytes = (uintptr_t)gantry_core_opencl_end -
					  (uintptr_t)gantry_core_opencl;
}

struct gantry_opencl_buffer ocl_nothing;

struct gantry_opencl_param ocl_of(ocl_buffer buffer)
{
	static void *const none = NULL;

	if (buffer == &ocl_nothing)
		return (struct gantry_opencl_param){ sizeof(none), &none, NULL };
	return (struct gantry_opencl_param)GANTRY_OPENCL_BUFFER(buffer);
}

int ocl_launch_items(struct gantry_env *env, enum ocl_function function, uint64_t nitems,
		     const struct gantry_opencl_param *params, uint32_t nparams)
{
	const struct gantry_opencl_calls *calls = ocl_calls(env);
	uint64_t most = (uint64_t)calls->nunits * OCL_GROUPS_PER_UNIT;
	uint64_t groups = nitems / OCL_LOCAL + (nitems % OCL_LOCAL != 0);
	const struct gantry_opencl_launch launch = {
		.function = function,
		.nparams = nparams,
		.groups = gantry_min_u64(groups, most),
		.local = OCL_LOCAL,
		.params = params,
	};

	return nitems == 0 ? 0 : calls->launch(env, &launch);
}

int ocl_launch_group(struct gantry_env *env, enum ocl_function function,
		     const struct gantry_opencl_param *params, uint32_t nparams)
{
	const struct gantry_opencl_launch launch = {
		.function = function,
		.nparams = nparams,
		.groups = 1,
		.local = OCL_LOCAL,
		.params = params,
	};

	return ocl_calls(env)->launch(env, &launch);
}
