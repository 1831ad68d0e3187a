/* SPDX-License-Identifier: Apache-2.0 */
/* The module of test_kinds.py for opencl devices, and with KINDS_HIP for hip devices; each has one kernel that is its alone. */
#include <errno.h>

#include "base/array.h"
#include "devices/hip/module.h"
#include "devices/kernels/kernel.h"
#include "devices/opencl/module.h"

#define GROUPS 4u
#define LOCAL  64u

enum {
	VADD,
	SCALE,
};

static const char *const functions[] = { [VADD] = "kinds_vadd", [SCALE] = "kinds_scale" };

#define EXPORTED __attribute__((visibility("default")))

#ifdef KINDS_HIP
static const unsigned char __attribute__((aligned(4096))) code[] = {
#include "kinds_hip.inc"
};

EXPORTED extern const struct gantry_hip_module_image gantry_hip_module;
const struct gantry_hip_module_image gantry_hip_module = {
	.size = sizeof(gantry_hip_module),
	.abi = GANTRY_HIP_MODULE_ABI,
	.code = code,
	.code_bytes = sizeof(code),
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};
#else
static const char text[] =
	"__kernel void kinds_vadd(__global const uint *x, __global const uint *y, __global uint *out, ulong n)\n"
	"{\n"
	"	for (ulong i = get_global_id(0); i < n; i += get_global_size(0))\n"
	"		out[i] = x[i] + y[i];\n"
	"}\n"
	"__kernel void kinds_scale(__global const uint *x, __global uint *out, uint factor, ulong n)\n"
	"{\n"
	"	for (ulong i = get_global_id(0); i < n; i += get_global_size(0))\n"
	"		out[i] = x[i] * factor;\n"
	"}\n";

EXPORTED extern const struct gantry_opencl_module gantry_opencl_module;
const struct gantry_opencl_module gantry_opencl_module = {
	.size = sizeof(gantry_opencl_module),
	.abi = GANTRY_OPENCL_MODULE_ABI,
	.text = text,
	.text_bytes = sizeof(text) - 1,
	.nfunctions = GANTRY_ARRAY_SIZE(functions),
	.functions = functions,
};
#endif

/* Element counts are checked here, as the text does not. */
static struct gantry_opencl_buffer *words(const struct gantry_call *call, uint32_t arg, uint64_t n)
{
	const struct gantry_span *span = &call->args[arg].span;

	return gantry_span_count(span, sizeof(uint32_t)) < n ? NULL : span->ptr;
}

static int launch(struct gantry_env *env, uint32_t function,
		  const struct gantry_opencl_param *params, uint32_t nparams)
{
	const struct gantry_opencl_calls *calls = env->handle(env, "opencl");
	const struct gantry_opencl_launch launched = { function, nparams, GROUPS, LOCAL, params };

	return calls->launch(env, &launched);
}

KERNEL(board_vadd)
{
	uint64_t n = call->args[3].u64;
	struct gantry_opencl_buffer *x = words(call, 0, n), *y = words(call, 1, n);
	struct gantry_opencl_buffer *out = words(call, 2, n);
	const struct gantry_opencl_param params[] = {
		GANTRY_OPENCL_BUFFER(x),
		GANTRY_OPENCL_BUFFER(y),
		GANTRY_OPENCL_BUFFER(out),
		GANTRY_OPENCL_VALUE(n),
	};

	if (!x || !y || !out)
		return -EINVAL;
	return launch(env, VADD, params, GANTRY_ARRAY_SIZE(params));
}

static int scale(struct gantry_env *env, const struct gantry_call *call)
{
	uint64_t n = call->args[3].u64;
	uint32_t factor = call->args[2].u32;
	struct gantry_opencl_buffer *x = words(call, 0, n), *out = words(call, 1, n);
	const struct gantry_opencl_param params[] = {
		GANTRY_OPENCL_BUFFER(x),
		GANTRY_OPENCL_BUFFER(out),
		GANTRY_OPENCL_VALUE(factor),
		GANTRY_OPENCL_VALUE(n),
	};

	if (!x || !out)
		return -EINVAL;
	return launch(env, SCALE, params, GANTRY_ARRAY_SIZE(params));
}

#ifdef KINDS_HIP
KERNEL(kinds_hip_scale)
#else
KERNEL(kinds_opencl_scale)
#endif
{
	return scale(env, call);
}
