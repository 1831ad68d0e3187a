/* SPDX-License-Identifier: Apache-2.0 */
/* What the backend reads to load the device code of this shared object. */
#include "devices/kernels/core/cuda/body.h"

/* From image.S: the fatbin that nvcc made of core.cu. */
extern const unsigned char gantry_core_fatbin[], gantry_core_fatbin_end[];

static const char *const functions[] = {
#define FUNCTION(name, type) #name,
#include "devices/kernels/core/cuda/functions.def"
#undef FUNCTION
};

__attribute__((visibility("default"))) extern struct gantry_cuda_module gantry_cuda_module;

struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(struct gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.image = gantry_core_fatbin,
	.nfunctions = GPU_NFUNCTIONS,
	.functions = functions,
};

/* The distance of two symbols is no constant of C. */
__attribute__((constructor)) static void measure(void)
{
	gantry_cuda_module.image_bytes = (uintptr_t)gantry_core_fatbin_end -
					 (uintptr_t)gantry_core_fatbin;
}
