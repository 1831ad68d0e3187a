/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel module of the contract suite: kernels that show what a cpu device offers a body. */
#include <errno.h>
#include <string.h>

#include "devices/kernels/openblas.h"
#include "devices/module.h"

#define KERNEL(name)                                                             \
	gantry_body gantry_kernel_##name;                                        \
	int gantry_kernel_##name(struct gantry_env *env __attribute__((unused)), \
				 const struct gantry_call *call)

/* set(out: w:u32*, value: u32) */
KERNEL(set)
{
	uint32_t *out = call->args[0].span.ptr;

	for (uint64_t i = 0; i < gantry_span_count(&call->args[0].span, sizeof(*out)); i++)
		out[i] = call->args[1].u32;
	return 0;
}

/* step(x: rw:u32*): x = 3 x + 1, so that order shows. */
KERNEL(step)
{
	uint32_t *x = call->args[0].span.ptr;

	x[0] = 3 * x[0] + 1;
	return 0;
}

/* answer(value: i32) */
KERNEL(answer)
{
	return call->args[0].i32;
}

/* endless(), until cancelled */
KERNEL(endless)
{
	(void)call;
	while (!env->cancelled(env))
		;
	return -ECANCELED;
}

/* geometry(out: w:u32*, a: f64, b: i32): grid, block, nargs, a, b */
KERNEL(geometry)
{
	uint32_t *out = call->args[0].span.ptr;

	if (gantry_span_count(&call->args[0].span, sizeof(*out)) < 9)
		return -EINVAL;
	memcpy(out, call->grid, sizeof(call->grid));
	memcpy(out + 3, call->block, sizeof(call->block));
	out[6] = call->nargs;
	out[7] = (uint32_t)call->args[1].f64;
	out[8] = (uint32_t)call->args[2].i32;
	return 0;
}

struct split {
	struct gantry_env *env;
	uint32_t *out;
	uint64_t bad;
};

static void inner(void *arg, uint64_t begin, uint64_t end)
{
	uint32_t *out = arg;

	for (uint64_t i = begin; i < end; i++)
		__atomic_fetch_add(&out[i], 1, __ATOMIC_RELAXED);
}

/* Counts each item once, through a nested call; scratch memory must be refused here. */
static void outer(void *arg, uint64_t begin, uint64_t end)
{
	struct split *split = arg;

	if (split->env->scratch(split->env, 64))
		__atomic_fetch_add(&split->bad, 1, __ATOMIC_RELAXED);
	split->env->parallel(split->env, end - begin, 1, inner, split->out + begin);
}

/* split(out: rw:u32*): adds 1 to every element */
KERNEL(split)
{
	struct split split = { .env = env, .out = call->args[0].span.ptr };

	env->parallel(env, gantry_span_count(&call->args[0].span, sizeof(uint32_t)), 100, outer,
		      &split);
	return split.bad ? -EIO : 0;
}

/*
 * scratch(bytes: u64, out: w:u64*): 1 when two pieces came, apart and aligned, 0 when one was
 * refused
 */
KERNEL(scratch)
{
	size_t bytes = call->args[0].u64;
	unsigned char *a = env->scratch(env, bytes);
	unsigned char *b = env->scratch(env, bytes);
	uint64_t *out = call->args[1].span.ptr;

	out[0] = a && b;
	if (!out[0])
		return 0;
	memset(a, 1, bytes);
	memset(b, 2, bytes);
	return (uintptr_t)a % 64 || (uintptr_t)b % 64 || a[0] != 1 || a[bytes - 1] != 1 ? -EIO : 0;
}

/* handle(): asks for a library that nobody has */
KERNEL(handle)
{
	(void)call;
	return env->handle(env, "no such library") ? -EIO : 0;
}

/* blas(x: rw:f32*): the third 2x2 matrix becomes the product of the first two */
KERNEL(blas)
{
	const struct gantry_openblas *blas = env->handle(env, "openblas");
	float *x = call->args[0].span.ptr;

	if (!blas)
		return -ENOSYS;
	blas->sgemm(GANTRY_CBLAS_ROW_MAJOR, GANTRY_CBLAS_NO_TRANS, GANTRY_CBLAS_NO_TRANS, 2, 2, 2,
		    1, x, 2, x + 4, 2, 0, x + 8, 2);
	return env->handle(env, "openblas") == blas ? 0 : -EIO;
}
