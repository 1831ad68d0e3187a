/* SPDX-License-Identifier: Apache-2.0 */
/* How the host functions start the kernels of the text, whatever module they are built into. */
#include "devices/kernels/core/opencl/body.h"

struct gantry_opencl_buffer ocl_nothing;

struct gantry_opencl_param ocl_of(ocl_buffer buffer)
{
	static void *const none = NULL;

	if (buffer == &ocl_nothing)
		return (struct gantry_opencl_param){ sizeof(none), &none, NULL };
	return (struct gantry_opencl_param)GANTRY_OPENCL_BUFFER(buffer);
}

int ocl_launch_groups(struct gantry_env *env, enum ocl_function function, uint64_t ngroups,
		      const struct gantry_opencl_param *params, uint32_t nparams)
{
	const struct gantry_opencl_launch launch = {
		.function = function,
		.nparams = nparams,
		.groups = ngroups,
		.local = OCL_LOCAL,
		.params = params,
	};

	return ocl_calls(env)->launch(env, &launch);
}

int ocl_launch_items(struct gantry_env *env, enum ocl_function function, uint64_t nitems,
		     const struct gantry_opencl_param *params, uint32_t nparams)
{
	uint64_t most = (uint64_t)ocl_calls(env)->nunits * OCL_GROUPS_PER_UNIT;
	uint64_t groups = nitems / OCL_LOCAL + (nitems % OCL_LOCAL != 0);

	return nitems == 0 ? 0
			   : ocl_launch_groups(env, function, gantry_min_u64(groups, most), params,
					       nparams);
}

int ocl_launch_group(struct gantry_env *env, enum ocl_function function,
		     const struct gantry_opencl_param *params, uint32_t nparams)
{
	return ocl_launch_groups(env, function, 1, params, nparams);
}
