/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel module of the contract suite for cuda devices: probe.c's kernels as host functions that enqueue, but
 * geometry, which is launched as it is.
 */
#include <errno.h>

#include "base/array.h"
#include "devices/cuda/module.h"
#include "tests/contract/devices/probe_cuda.h"

enum {
	SET,
	ADD,
	ANSWER,
	ENDLESS,
	STEP,
};

static const char *const functions[] = {
	[SET] = "probe_set",	     [ADD] = "probe_add",   [ANSWER] = "probe_answer",
	[ENDLESS] = "probe_endless", [STEP] = "probe_step",
};

extern const struct gantry_cuda_module gantry_cuda_module;
const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.image = probe_code,
	.image_bytes = sizeof(probe_code),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};

#define KERNEL(name)                      \
	gantry_body gantry_kernel_##name; \
	int gantry_kernel_##name(struct gantry_env *env, const struct gantry_call *call)

static int launch(struct gantry_env *env, uint32_t function, uint32_t nblocks, uint32_t nthreads,
		  const void *const *params, uint32_t nparams)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	const struct gantry_cuda_launch what = {
		.function = function,
		.grid = { nblocks, 1, 1 },
		.block = { nthreads, 1, 1 },
		.nparams = nparams,
		.params = params,
	};

	return cuda ? cuda->launch(env, &what) : -ENOSYS;
}

static int over_all(struct gantry_env *env, uint32_t function, const struct gantry_span *span,
		    uint32_t value)
{
	uint64_t count = gantry_span_count(span, sizeof(uint32_t));

	if (count == 0)
		return 0;
	return launch(env, function, 64, 256, (const void *[]){ &span->ptr, &value, &count }, 3);
}

/* set(out: w:u32*, value: u32) */
KERNEL(set)
{
	return over_all(env, SET, &call->args[0].span, call->args[1].u32);
}

/* step(x: rw:u32*): x = 3 x + 1, so that order shows. */
KERNEL(step)
{
	return launch(env, STEP, 1, 1, (const void *[]){ &call->args[0].span.ptr }, 1);
}

/* split(out: rw:u32*): adds 1 to every element */
KERNEL(split)
{
	return over_all(env, ADD, &call->args[0].span, 1);
}

static struct gantry_cuda_verdict *verdict(struct gantry_env *env)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");

	return cuda ? cuda->verdict(env) : NULL;
}

/* answer(value: i32), from the device */
KERNEL(answer)
{
	struct gantry_cuda_verdict *to = verdict(env);

	if (!to)
		return -EAGAIN;
	return launch(env, ANSWER, 1, 1, (const void *[]){ &to, &call->args[0].i32 }, 2);
}

/* endless(), until cancelled */
KERNEL(endless)
{
	struct gantry_cuda_verdict *of = verdict(env);

	(void)call;
	return of ? launch(env, ENDLESS, 1, 1, (const void *[]){ &of }, 1) : -EAGAIN;
}

/* handle(): asks for a library that nobody has */
KERNEL(handle)
{
	(void)call;
	return env->handle(env, "no such library") ? -EIO : 0;
}

/* blas(x: rw:f32*): OpenBLAS is for processors */
KERNEL(blas)
{
	(void)call;
	return env->handle(env, "openblas") ? -EIO : -ENOSYS;
}
