/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic that says when it overflows. Sums and products of a peer's numbers go through here.
 * Results are written only on success.
 * Threads: any.
 */
#ifndef GANTRY_BASE_CHECKED_H
#define GANTRY_BASE_CHECKED_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* These evaluate their arguments twice: pass no side effects. */
#define GANTRY_MIN(a, b) ((a) < (b) ? (a) : (b))
#define GANTRY_MAX(a, b) ((a) > (b) ? (a) : (b))

/* 0, or -EOVERFLOW. */
static inline int gantry_add_u64(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return -EOVERFLOW;
	*ret_sum = sum;
	return 0;
}

/* 0, or -EOVERFLOW when @b is larger than @a. */
static inline int gantry_sub_u64(uint64_t a, uint64_t b, uint64_t *ret_difference)
{
	if (b > a)
		return -EOVERFLOW;
	*ret_difference = a - b;
	return 0;
}

/* 0, or -EOVERFLOW. */
static inline int gantry_mul_u64(uint64_t a, uint64_t b, uint64_t *ret_product)
{
	uint64_t product;

	if (__builtin_mul_overflow(a, b, &product))
		return -EOVERFLOW;
	*ret_product = product;
	return 0;
}

static inline bool gantry_is_pow2(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

/* @value rounded up to a multiple of @align. -EINVAL: @align is no power of two; -EOVERFLOW. */
static inline int gantry_align_up(uint64_t value, uint64_t align, uint64_t *ret_aligned)
{
	uint64_t sum;

	if (!gantry_is_pow2(align))
		return -EINVAL;
	if (__builtin_add_overflow(value, align - 1, &sum))
		return -EOVERFLOW;
	*ret_aligned = sum & ~(align - 1);
	return 0;
}

/* Is [@off, @off + @len) inside [0, @size)? An empty range may sit at @size. */
static inline bool gantry_range_inside(uint64_t off, uint64_t len, uint64_t size)
{
	return off <= size && len <= size - off;
}

/* Floor of the logarithm to base 2; 0 for 0. */
static inline unsigned int gantry_ilog2(uint64_t value)
{
	return value == 0 ? 0 : 63u - (unsigned int)__builtin_clzll(value);
}

static inline uint64_t gantry_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gantry_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t gantry_clamp_u64(uint64_t value, uint64_t low, uint64_t high)
{
	return value < low ? low : value > high ? high : value;
}

#endif
