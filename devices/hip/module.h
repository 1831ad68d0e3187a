/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the author of an installed module for AMD GPUs sees besides devices/module.h and devices/opencl/module.h.
 *
 * The module's hip image ("image hip NAME-hip.so" in its manifest) is what its opencl image is, with one difference: in
 * place of a text it brings the text compiled, a bundle of code objects as clang makes it, which the object
 * gantry_hip_module describes. Host functions are the same ones, with struct gantry_opencl_calls from env->handle(env,
 * "opencl"); but local memory is the kernel's own, as launch() has no parameters of that kind here.
 */
#ifndef GANTRY_DEVICES_HIP_MODULE_H
#define GANTRY_DEVICES_HIP_MODULE_H

#include "devices/opencl/module.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_HIP_MODULE_ABI 1u

/* Exported by the image under the name gantry_hip_module. Constant; lives as long as the image. */
struct gantry_hip_module_image {
	uint32_t size;
	uint32_t abi; /* GANTRY_HIP_MODULE_ABI */
	/* One code object, or a bundle of them, for each processor that is served. */
	const void *code;
	uint64_t code_bytes;
	/* Its kernels that launch() can start, by index; all must be there. */
	uint32_t nfunctions;
	uint32_t pace; /* as of struct gantry_opencl_module */
	const char *const *functions;
};

#ifdef __cplusplus
}
#endif

#endif
