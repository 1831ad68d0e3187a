/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that misbehave, for the fake driver: host functions that enqueue them, and one that takes its time. */
#include <errno.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "devices/cuda/module.h"
#include "tests/fakecuda/kernel.h"

enum {
	FAULT,
	TRAP,
	ASSERT,
	ENDLESS,
	SPIN,
	CODE,
};

/* All but the last two are in every image of the fake driver. */
static const char *const functions[] = {
	[FAULT] = "fault",     [TRAP] = "trap", [ASSERT] = "assert",
	[ENDLESS] = "endless", [SPIN] = "spin", [CODE] = "code",
};

static const char image[] = FAKECUDA_PTX(FAULTS_SO, "sm_90");

#define EXPORT __attribute__((visibility("default")))

extern const struct gantry_cuda_module gantry_cuda_module;
EXPORT const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.image = image,
	.image_bytes = sizeof(image),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};

static int launch(struct gantry_env *env, uint32_t function, const void *const *params,
		  uint32_t nparams)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	const struct gantry_cuda_launch what = { .function = function,
						 .grid = { 1, 1, 1 },
						 .block = { 1, 1, 1 },
						 .nparams = nparams,
						 .params = params };

	return cuda ? cuda->launch(env, &what) : -ENOSYS;
}

#define KERNEL(name, function)                                                           \
	EXPORT gantry_body gantry_kernel_##name;                                         \
	int gantry_kernel_##name(struct gantry_env *env, const struct gantry_call *call) \
	{                                                                                \
		(void)call;                                                              \
		return launch(env, function, NULL, 0);                                   \
	}
KERNEL(gpu_fault, FAULT)
KERNEL(gpu_trap, TRAP)
KERNEL(gpu_assert, ASSERT)
KERNEL(gpu_endless, ENDLESS)
#undef KERNEL

EXPORT gantry_body gantry_kernel_gpu_spin, gantry_kernel_gpu_again, gantry_kernel_gpu_empty;
EXPORT gantry_body gantry_kernel_gpu_code, gantry_kernel_gpu_code_again;

int gantry_kernel_gpu_code(struct gantry_env *env, const struct gantry_call *call)
{
	return launch(env, CODE, (const void *[]){ &call->args[0].u64 }, 1);
}

int gantry_kernel_gpu_code_again(struct gantry_env *env, const struct gantry_call *call)
{
	return gantry_kernel_gpu_code(env, call);
}

int gantry_kernel_gpu_spin(struct gantry_env *env, const struct gantry_call *call)
{
	return launch(env, SPIN, (const void *[]){ &call->args[0].u64 }, 1);
}

int gantry_kernel_gpu_again(struct gantry_env *env, const struct gantry_call *call)
{
	return gantry_kernel_gpu_spin(env, call);
}

int gantry_kernel_gpu_empty(struct gantry_env *env, const struct gantry_call *call)
{
	static const uint64_t none;

	(void)call;
	return launch(env, SPIN, (const void *[]){ &none }, 1);
}

FAKECUDA_KERNEL(
	code, { uint64_t result; }, FAKECUDA_P(code, result))
{
	(void)geometry;
	return (int)*(uint64_t *)params[0];
}

FAKECUDA_KERNEL(
	spin, { uint64_t ns; }, FAKECUDA_P(spin, ns))
{
	uint64_t until_ns = gantry_now_ns() + *(uint64_t *)params[0];
	const struct timespec tick = { .tv_nsec = 1000000 };

	/* A device's time, not a processor's. */
	while (gantry_now_ns() < until_ns && !geometry->ending(geometry->cookie))
		(void)nanosleep(&tick, NULL);
	return 0;
}
