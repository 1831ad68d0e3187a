/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host functions of core-opencl.so share: how they get at their arguments and start the kernels of the text.
 *
 * Trust: scalars and buffer bytes come from a guest (devices/opencl/module.h). ARG() is the only way from a span to a
 *   buffer here; it refuses a count past the span and a start the type must not have.
 */
#ifndef GANTRY_DEVICES_KERNELS_CORE_OPENCL_BODY_H
#define GANTRY_DEVICES_KERNELS_CORE_OPENCL_BODY_H

#include "base/array.h"
#include "devices/kernels/kernel.h"
#include "devices/opencl/module.h"

enum ocl_function {
#define FUNCTION(name) OCL_##name,
#include "devices/kernels/core/opencl/functions.def"
#undef FUNCTION
	OCL_NFUNCTIONS
};

/* Work-items of a group, unless said otherwise at the function. */
#define OCL_LOCAL 64u
/* Groups for each compute unit, of kernels whose work-items take more than one item. */
#define OCL_GROUPS_PER_UNIT 16u

typedef struct gantry_opencl_buffer *ocl_buffer;

/* Stands for an argument of no elements; devices get NULL for it. */
extern struct gantry_opencl_buffer ocl_nothing;

static inline const struct gantry_opencl_calls *ocl_calls(struct gantry_env *env)
{
	return env->handle(env, "opencl");
}

static inline ocl_buffer ocl_arg(const struct gantry_call *call, uint32_t idx, uint64_t count,
				 size_t bytes)
{
	const struct gantry_span *span = &call->args[idx].span;
	ocl_buffer buffer = span->ptr;

	if (count == 0)
		return &ocl_nothing;
	if (gantry_span_count(span, bytes) < count || buffer->align < bytes)
		return NULL;
	return buffer;
}

static inline ocl_buffer ocl_scratch(struct gantry_env *env, uint64_t count, size_t bytes)
{
	return kernel_scratch(env, count, bytes);
}

/* In place of kernel.h's, which give pointers. */
#undef ARG
#undef SCRATCH
#define ARG(type, call, idx, count) ocl_arg(call, idx, count, sizeof(type))
#define SCRATCH(type, env, count)   ocl_scratch(env, count, sizeof(type))

struct gantry_opencl_param ocl_of(ocl_buffer buffer);

#define BUF(buffer) ocl_of(buffer)
#define VAL(value)  GANTRY_OPENCL_VALUE(value)

/* 0 or -errno. @nitems work-items or fewer, which loop; none are nothing. */
int ocl_launch_items(struct gantry_env *env, enum ocl_function function, uint64_t nitems,
		     const struct gantry_opencl_param *params, uint32_t nparams);
/* @ngroups of OCL_LOCAL work-items. */
int ocl_launch_groups(struct gantry_env *env, enum ocl_function function, uint64_t ngroups,
		      const struct gantry_opencl_param *params, uint32_t nparams);
/* One group, whose work-items may wait for each other. */
int ocl_launch_group(struct gantry_env *env, enum ocl_function function,
		     const struct gantry_opencl_param *params, uint32_t nparams);

#define LAUNCH_ITEMS(env, function, nitems, ...)                                      \
	ocl_launch_items(                                                             \
		env, function, nitems, (struct gantry_opencl_param[]){ __VA_ARGS__ }, \
		(uint32_t)GANTRY_ARRAY_SIZE(((struct gantry_opencl_param[]){ __VA_ARGS__ })))
#define LAUNCH_GROUP(env, function, ...)                                      \
	ocl_launch_group(                                                     \
		env, function, (struct gantry_opencl_param[]){ __VA_ARGS__ }, \
		(uint32_t)GANTRY_ARRAY_SIZE(((struct gantry_opencl_param[]){ __VA_ARGS__ })))

#endif
