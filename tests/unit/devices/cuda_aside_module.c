/* SPDX-License-Identifier: Apache-2.0 */
/* An installed CUDA module that runs aside. FAKE_DRIVER is in the process already. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <cuda.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"
#include "devices/cuda/module.h"
#include "tests/unit/devices/cuda_aside.h"

#define EXPORT __attribute__((visibility("default")))

extern struct aside_state aside_state;
EXPORT struct aside_state aside_state;

static void *driver(const char *name)
{
	void *library = dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_NOLOAD);
	void *found = library ? dlsym(library, name) : NULL;

	if (library)
		(void)dlclose(library); /* the backend has it */
	return found;
}

gantry_body gantry_kernel_hold, gantry_kernel_paint, gantry_kernel_result, gantry_kernel_offer;

/* Waits for the test. */
EXPORT int gantry_kernel_hold(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *calls = env->handle(env, "cuda");
	uint32_t mine = gantry_fetch_add(&aside_state.nentered, 1);
	uint32_t ngo;

	(void)call;
	gantry_store_relaxed(&aside_state.last, calls->owner);
	(void)gantry_fetch_add(&aside_state.nwaiting, 1);
	while ((ngo = gantry_load_acquire(&aside_state.ngo)) <= mine)
		(void)gantry_futex_wait(&aside_state.ngo, ngo, GANTRY_DEADLINE_NEVER);
	(void)gantry_fetch_sub(&aside_state.nwaiting, 1);
	return 0;
}

/* The value, over all of the span, in the order of the stream. */
EXPORT int gantry_kernel_paint(struct gantry_env *env, const struct gantry_call *call)
{
	CUresult (*set)(CUdeviceptr, unsigned int, size_t, CUstream) = driver("cuMemsetD32Async");
	const struct gantry_span *span = &call->args[0].span;

	(void)gantry_fetch_add(&aside_state.nentered, 1);
	if (!set || set((CUdeviceptr)(uintptr_t)span->ptr, call->args[1].u32, span->len_bytes / 4,
			env->stream) != CUDA_SUCCESS)
		return -EIO;
	return 0;
}

EXPORT int gantry_kernel_result(struct gantry_env *env, const struct gantry_call *call)
{
	(void)env;
	return call->args[0].i32;
}

/* Host memory, and what is offered with it. */
EXPORT int gantry_kernel_offer(struct gantry_env *env, const struct gantry_call *call)
{
	const struct gantry_cuda_calls *calls = env->handle(env, "cuda");
	const struct gantry_span *span = &call->args[0].span;
	const struct gantry_cuda_launch launch = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
	uint64_t at = (uintptr_t)span->ptr;
	uint8_t *host = calls->host(env, span->ptr, span->len_bytes);

	aside_state.refused = (calls->launch(env, &launch) == -EINVAL) +
			      (calls->set(env, span->ptr, 0, 1, 1) == -EINVAL) +
			      (calls->copy(env, span->ptr, span->ptr, 1) == -EINVAL) +
			      (calls->occupancy(env, 0, 1, 0) == -EINVAL) + !calls->verdict(env) +
			      !env->scratch(env, 1) + !env->handle(env, "cublas");
	aside_state.here =
		(host != NULL) + !calls->host(env, span->ptr, span->len_bytes + 1) +
		(calls->reaches(env, at) == 1) + (calls->reaches(env, at + span->len_bytes) == 0) +
		(calls->reaches(env, 1) == 0) + (env->cancelled(env) == 0) + (calls->owner != 0);
	if (host)
		memset(host, 0x5a, span->len_bytes);
	return 0;
}

static bool quick(struct gantry_env *env, const struct gantry_call *call)
{
	(void)env;
	(void)call;
	return gantry_load_relaxed(&aside_state.is_quick) != 0;
}

static void left(uint64_t owner, bool lost)
{
	uint32_t n = gantry_fetch_add(&aside_state.nleft, 1);

	aside_state.owners[n % ASIDE_OWNERS] = owner;
	(void)gantry_fetch_add(&aside_state.nlost, lost ? 1u : 0u);
}

extern const struct gantry_cuda_module gantry_cuda_module;
EXPORT const struct gantry_cuda_module gantry_cuda_module = {
	.size = sizeof(struct gantry_cuda_module),
	.abi = GANTRY_CUDA_MODULE_ABI,
	.flags = GANTRY_CUDA_ASIDE,
	.quick = quick,
	.left = left,
};
