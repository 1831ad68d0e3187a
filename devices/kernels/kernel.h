/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cpu kernels of this folder share: how one is declared, and how it gets at its arguments.
 *
 * Trust: scalars and buffer bytes come from a guest (devices/module.h). ARG() is the only way from
 * a span to a typed pointer here; it refuses a count past the span and a start the type must not
 * have.
 * Threads: everything here is stateless.
 */
#ifndef GANTRY_DEVICES_KERNELS_KERNEL_H
#define GANTRY_DEVICES_KERNELS_KERNEL_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "devices/module.h"

/*
 * Opens the definition of kernel @name and exports it; the modules are built with hidden
 * visibility.
 */
#define KERNEL(name)                                                             \
	__attribute__((visibility("default"))) gantry_body gantry_kernel_##name; \
	int gantry_kernel_##name(struct gantry_env *env __attribute__((unused)), \
				 const struct gantry_call *call __attribute__((unused)))

/*
 * A loop worth a second copy for AVX2; the loader picks one per process. Both give the same bits,
 * as the build forbids contraction and reassociation. Sanitizers get one copy: the resolver that
 * picks runs before their runtime is up.
 */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define HOT
#else
#define HOT __attribute__((target_clones("default", "avx2")))
#endif

/*
 * The start of span argument @idx, or NULL when it holds fewer than @count elements of @elem_bytes
 * or is not aligned to @align. No elements asked: an address that is not NULL and must not be
 * followed.
 */
static inline void *kernel_arg(const struct gantry_call *call, uint32_t idx, uint64_t count,
			       size_t elem_bytes, size_t align)
{
	const struct gantry_span *span = &call->args[idx].span;

	if (count == 0)
		return (void *)(uintptr_t)align;
	/* Loops are vectorised for elements at their natural place; elsewhere they would trap. */
	if (gantry_span_count(span, elem_bytes) < count || (uintptr_t)span->ptr % align != 0)
		return NULL;
	return span->ptr;
}

#define ARG(type, call, idx, count) \
	((type *)kernel_arg(call, idx, count, sizeof(type), _Alignof(type)))

/* False when @a * @b * @c elements cannot be counted. */
static inline bool product3(uint64_t a, uint64_t b, uint64_t c, uint64_t *ret_count)
{
	uint64_t ab;

	return gantry_mul_u64(a, b, &ab) == 0 && gantry_mul_u64(ab, c, ret_count) == 0;
}

/* The index of [0, @count) nearest to @idx; @count is 1 or more. */
static inline int64_t clamp_index(int64_t idx, int64_t count)
{
	return idx < 0 ? 0 : idx < count ? idx : count - 1;
}

/* @count elements of scratch memory, or NULL: past the device's limit, or not countable. */
static inline void *kernel_scratch(struct gantry_env *env, uint64_t count, size_t elem_bytes)
{
	uint64_t bytes;

	if (gantry_mul_u64(count, elem_bytes, &bytes) < 0)
		return NULL;
	return env->scratch(env, bytes);
}

#define SCRATCH(type, env, count) ((type *)kernel_scratch(env, count, sizeof(type)))

/*
 * [0, n) cut into at most REDUCE_BLOCKS_MAX blocks, by n alone. Partial results per block, joined
 * in order, make a reduction that does not depend on how many lanes helped.
 */
#define REDUCE_BLOCKS_MAX 512u
#define REDUCE_BLOCK_MIN  4096u

struct reduce_blocks {
	uint64_t n;
	uint64_t block;
	uint64_t nblocks;
};

static inline struct reduce_blocks reduce_blocks(uint64_t n)
{
	uint64_t block = gantry_max_u64(n / REDUCE_BLOCKS_MAX + 1, REDUCE_BLOCK_MIN);

	return (struct reduce_blocks){ .n = n,
				       .block = block,
				       .nblocks = n / block + (n % block != 0) };
}

static inline uint64_t reduce_begin(const struct reduce_blocks *rb, uint64_t idx)
{
	return idx * rb->block;
}

static inline uint64_t reduce_end(const struct reduce_blocks *rb, uint64_t idx)
{
	return gantry_min_u64(rb->n, (idx + 1) * rb->block);
}

#endif
