/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel module of the contract suite for opencl devices, and with PROBE_HIP for hip devices: probe.c's kernels as
 * host functions that enqueue, but geometry, which is launched as it is.
 */
#include <errno.h>

#include "base/array.h"
#include "devices/hip/module.h"
#include "devices/opencl/module.h"

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

#ifdef PROBE_HIP
static const unsigned char __attribute__((aligned(4096))) code[] = {
#include PROBE_INC
};

__attribute__((
	visibility("default"))) extern const struct gantry_hip_module_image gantry_hip_module;
const struct gantry_hip_module_image gantry_hip_module = {
	.size = sizeof(gantry_hip_module),
	.abi = GANTRY_HIP_MODULE_ABI,
	.code = code,
	.code_bytes = sizeof(code),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};
#else
static const char text[] = {
#include "probe_text.inc"
};

__attribute__((
	visibility("default"))) extern const struct gantry_opencl_module gantry_opencl_module;
const struct gantry_opencl_module gantry_opencl_module = {
	.size = sizeof(gantry_opencl_module),
	.abi = GANTRY_OPENCL_MODULE_ABI,
	.text = text,
	.text_bytes = sizeof(text),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};
#endif

#define KERNEL(name)                      \
	gantry_body gantry_kernel_##name; \
	int gantry_kernel_##name(struct gantry_env *env, const struct gantry_call *call)

static int launch(struct gantry_env *env, uint32_t function, uint64_t groups, uint64_t local,
		  const struct gantry_opencl_param *params, uint32_t nparams)
{
	const struct gantry_opencl_calls *opencl = env->handle(env, "opencl");
	const struct gantry_opencl_launch what = {
		.function = function,
		.groups = groups,
		.local = local,
		.nparams = nparams,
		.params = params,
	};

	return opencl ? opencl->launch(env, &what) : -ENOSYS;
}

static int over_all(struct gantry_env *env, uint32_t function, const struct gantry_span *span,
		    uint32_t value)
{
	uint64_t count = gantry_span_count(span, sizeof(uint32_t));
	const struct gantry_opencl_param params[] = {
		GANTRY_OPENCL_BUFFER(span->ptr),
		GANTRY_OPENCL_VALUE(value),
		GANTRY_OPENCL_VALUE(count),
	};

	return count == 0 ? 0 : launch(env, function, 4, 64, params, 3);
}

/* set(out: w:u32*, value: u32) */
KERNEL(set)
{
	return over_all(env, SET, &call->args[0].span, call->args[1].u32);
}

/* step(x: rw:u32*): x = 3 x + 1, so that order shows. */
KERNEL(step)
{
	const struct gantry_opencl_param params[] = { GANTRY_OPENCL_BUFFER(
		call->args[0].span.ptr) };

	return launch(env, STEP, 1, 1, params, 1);
}

/* split(out: rw:u32*): adds 1 to every element */
KERNEL(split)
{
	return over_all(env, ADD, &call->args[0].span, 1);
}

static struct gantry_opencl_buffer *verdict(struct gantry_env *env)
{
	const struct gantry_opencl_calls *opencl = env->handle(env, "opencl");

	return opencl ? opencl->verdict(env) : NULL;
}

/* answer(value: i32), from the device */
KERNEL(answer)
{
	const struct gantry_opencl_param params[] = {
		GANTRY_OPENCL_BUFFER(verdict(env)),
		GANTRY_OPENCL_VALUE(call->args[0].i32),
	};

	return params[0].buffer ? launch(env, ANSWER, 1, 1, params, 2) : -EAGAIN;
}

/* endless(), until cancelled */
KERNEL(endless)
{
	const struct gantry_opencl_param params[] = { GANTRY_OPENCL_BUFFER(verdict(env)) };

	(void)call;
	return params[0].buffer ? launch(env, ENDLESS, 1, 1, params, 1) : -EAGAIN;
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
