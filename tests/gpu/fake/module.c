/* SPDX-License-Identifier: Apache-2.0 */
/* The host functions of gpu-fake.manifest; device.c, in the same file, is their device code. */
#include <errno.h>

#include "base/array.h"
#include "devices/cuda/module.h"
#include "tests/fakecuda/kernel.h"

enum {
	FILL,
	CHECKSUM,
	EMPTY,
	SPIN,
};

static const char *const functions[] = {
	[FILL] = "core_fill",
	[CHECKSUM] = "core_checksum",
	[EMPTY] = "nothing",
	[SPIN] = "spin_ns",
};

static const char code[] = FAKECUDA_PTX(GPU_FAKE, "sm_90");

extern const struct gantry_cuda_module gantry_cuda_module;
const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.image = code,
	.image_bytes = sizeof(code),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};

#define KERNEL(name)                      \
	gantry_body gantry_kernel_##name; \
	int gantry_kernel_##name(struct gantry_env *env, const struct gantry_call *call)

static int launch(struct gantry_env *env, uint32_t function, const void *const *params,
		  uint32_t nparams)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	const struct gantry_cuda_launch what = {
		.function = function,
		.grid = { 1, 1, 1 },
		.block = { 1, 1, 1 },
		.nparams = nparams,
		.params = params,
	};

	return cuda ? cuda->launch(env, &what) : -ENOSYS;
}

KERNEL(fill)
{
	const struct gantry_span *dst = &call->args[0].span;

	if (call->args[1].u64 > gantry_span_count(dst, sizeof(uint32_t)))
		return -EINVAL;
	return launch(env, FILL,
		      (const void *[]){ &dst->ptr, &call->args[1].u64, &call->args[2].u32 }, 3);
}

KERNEL(checksum)
{
	const struct gantry_span *bytes = &call->args[0].span, *sum = &call->args[1].span;

	if (call->args[2].u64 > bytes->len_bytes || gantry_span_count(sum, sizeof(uint64_t)) < 1)
		return -EINVAL;
	return launch(env, CHECKSUM, (const void *[]){ &bytes->ptr, &sum->ptr, &call->args[2].u64 },
		      3);
}

KERNEL(empty)
{
	(void)call;
	return launch(env, EMPTY, NULL, 0);
}

KERNEL(spin)
{
	return launch(env, SPIN, (const void *[]){ &call->args[0].u64 }, 1);
}
