/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend reads to load the code of this shared object. */
#include "devices/hip/module.h"
#include "devices/kernels/core/opencl/body.h"

/* From code.S. */
extern const char gantry_core_hip[], gantry_core_hip_end[];

static const char *const functions[] = {
#define FUNCTION(name) "core_" #name,
#include "devices/kernels/core/opencl/functions.def"
#undef FUNCTION
};

__attribute__((visibility("default"))) extern struct gantry_hip_module_image gantry_hip_module;

struct gantry_hip_module_image gantry_hip_module = {
	.size = sizeof(struct gantry_hip_module_image),
	.abi = GANTRY_HIP_MODULE_ABI,
	.code = gantry_core_hip,
	.nfunctions = OCL_NFUNCTIONS,
	.pace = 1 + OCL_spin,
	.functions = functions,
};

/* The distance of two symbols is no constant of C. */
__attribute__((constructor)) static void measure(void)
{
	gantry_hip_module.code_bytes = (uintptr_t)gantry_core_hip_end - (uintptr_t)gantry_core_hip;
}
