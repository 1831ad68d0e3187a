/* SPDX-License-Identifier: Apache-2.0 */
/* An installed CUDA module: host functions over the device functions of cuda_kernels.c. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "devices/cuda/module.h"
#include "tests/fakecuda/kernel.h"

enum function {
	STEP,
	JUDGE,
	LINGER,
	NFUNCTIONS
};

static const char image[] = FAKECUDA_PTX(CUDA_KERNELS, "sm_90");
static const char *const functions[NFUNCTIONS] = { "step", "judge", "linger" };

extern const struct gantry_cuda_module gantry_cuda_module;
const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(struct gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.image = image,
	.image_bytes = sizeof(image),
	.nfunctions = NFUNCTIONS,
	.functions = functions,
};

static int launch(struct gantry_env *env, uint32_t function, uint32_t flags, uint32_t nparams,
		  const void *const *params)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	const struct gantry_cuda_launch what = {
		.function = function,
		.flags = flags,
		.grid = { 1, 1, 1 },
		.block = { 1, 1, 1 },
		.nparams = nparams,
		.params = params,
	};

	return cuda->launch(env, &what);
}

gantry_body gantry_kernel_step, gantry_kernel_judge, gantry_kernel_linger, gantry_kernel_scratch,
	gantry_kernel_refuse, gantry_kernel_world, gantry_kernel_paint;

/* Through scratch memory, and back. */
int gantry_kernel_step(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	void *copy = env->scratch(env, 4);
	const void *params[] = { &copy, &call->args[1].u32 };
	int r;

	if (!copy || gantry_span_count(&call->args[0].span, 4) < 1)
		return -EINVAL;
	r = cuda->copy(env, copy, call->args[0].span.ptr, 4);
	if (r == 0)
		r = launch(env, STEP, GANTRY_CUDA_TOGETHER, 2, params);
	return r < 0 ? r : cuda->copy(env, call->args[0].span.ptr, copy, 4);
}

int gantry_kernel_judge(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	struct gantry_cuda_verdict *verdict = cuda->verdict(env);
	const void *status = &verdict->status;
	const void *params[] = { &status, &call->args[0].i32 };

	if (verdict->status != 0 || verdict->cancel != 0)
		return -EIO;
	return launch(env, JUDGE, 0, 2, params);
}

int gantry_kernel_linger(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	struct gantry_cuda_verdict *verdict = cuda->verdict(env);
	const void *params[] = { &verdict };

	(void)call;
	return launch(env, LINGER, 0, 1, params);
}

/* Pieces apart from each other, more than one arena holds, and not more than the limit. */
int gantry_kernel_scratch(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	unsigned char *first = env->scratch(env, 100);
	unsigned char *second = env->scratch(env, 3 << 20);
	int r;

	(void)call;
	if (!first || !second || (uintptr_t)first % 256 || (uintptr_t)second % 256)
		return -ENOMEM;
	if (second < first + 100 && second + (3 << 20) > first)
		return -EFAULT;
	if (env->scratch(env, 1ull << 40))
		return -ERANGE;
	r = cuda->set(env, first, 0x11, 1, 100);
	return r < 0 ? r : cuda->set(env, second, 0x2222, 2, 3 << 19);
}

/* All of the first, wherever that is; the second is a copy of it. */
int gantry_kernel_paint(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	const struct gantry_span *span = &call->args[0].span;
	int r = cuda->set(env, span->ptr, 0x2211, 2, span->len_bytes / 2);

	return r < 0 ? r : cuda->copy(env, call->args[1].span.ptr, span->ptr, span->len_bytes);
}

int gantry_kernel_refuse(struct gantry_env *env, const struct gantry_call *call)
{
	(void)env;
	return call->args[0].i32;
}

/* What else a host function is offered. */
int gantry_kernel_world(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *cuda = env->handle(env, "cuda");
	int nblocks = cuda->occupancy(env, STEP, 128, 0);

	(void)call;
	if (cuda->size < sizeof(*cuda) || cuda->nunits < 1 || env->nlanes != 1 || !env->stream)
		return -EIO;
	if (nblocks < 1 || cuda->occupancy(env, STEP, 128, 0) != nblocks)
		return -EIO;
	if (cuda->occupancy(env, NFUNCTIONS, 128, 0) != -EINVAL ||
	    cuda->occupancy(env, STEP, 0, 0) != -EINVAL)
		return -EIO;
	if (launch(env, NFUNCTIONS, 0, 0, NULL) != -EINVAL ||
	    cuda->set(env, NULL, 0, 3, 1) != -EINVAL)
		return -EIO;
	return env->handle(env, "no such library") ? -EIO : 0;
}
