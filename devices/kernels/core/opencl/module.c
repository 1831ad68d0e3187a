/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend reads to load the text of this shared object. */
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
	.pace = 1 + OCL_spin,
	.functions = functions,
};

/* The distance of two symbols is no constant of C. */
__attribute__((constructor)) static void measure(void)
{
	gantry_opencl_module.text_bytes = (uintptr_t)gantry_core_opencl_end -
					  (uintptr_t)gantry_core_opencl;
}
