/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on bytes: fill, copy, checksum. */
#include <string.h>

#include "devices/kernels/kernel.h"

/* Below this a helping lane costs more than it saves. */
#define GRAIN 65536u

struct fill {
	uint32_t *dst;
	uint32_t value;
};

HOT static void fill_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct fill *f = arg;
	uint32_t *dst = f->dst;
	uint32_t value = f->value;

	for (uint64_t i = begin; i < end; i++)
		dst[i] = value;
}

KERNEL(fill)
{
	uint64_t n = call->args[1].u64;
	struct fill f = { .dst = ARG(uint32_t, call, 0, n), .value = call->args[2].u32 };

	if (!f.dst)
		return -EINVAL;
	env->parallel(env, n, GRAIN, fill_range, &f);
	return 0;
}

struct copy {
	const uint8_t *src;
	uint8_t *dst;
};

static void copy_range(void *arg, uint64_t begin, uint64_t end)
{
	const struct copy *c = arg;

	memcpy(c->dst + begin, c->src + begin, end - begin);
}

KERNEL(copy)
{
	uint64_t n = call->args[2].u64;
	struct copy c = { .src = ARG(uint8_t, call, 0, n), .dst = ARG(uint8_t, call, 1, n) };
	uintptr_t src = (uintptr_t)c.src, dst = (uintptr_t)c.dst;

	if (!c.src || !c.dst)
		return -EINVAL;
	if (n == 0)
		return 0;
	/* Lanes would overwrite each other's sources. */
	if (src < dst + n && dst < src + n)
		memmove(c.dst, c.src, n);
	else
		env->parallel(env, n, 4 * GRAIN, copy_range, &c);
	return 0;
}

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static inline uint64_t mix64(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Distance of the positions' keys: 2^64 over the golden ratio. */
#define POSITION_STEP 0x9e3779b97f4a7c15ull

struct checksum {
	struct reduce_blocks rb; /* of whole words */
	const uint8_t *bytes;
	uint64_t partial[REDUCE_BLOCKS_MAX];
};

HOT static void checksum_blocks(void *arg, uint64_t begin, uint64_t end)
{
	struct checksum *c = arg;

	for (uint64_t b = begin; b < end; b++) {
		uint64_t last = reduce_end(&c->rb, b), sum = 0;

		for (uint64_t i = reduce_begin(&c->rb, b); i < last; i++) {
			uint64_t word;

			memcpy(&word, c->bytes + 8 * i, sizeof(word));
			sum += mix64(word + (i + 1) * POSITION_STEP);
		}
		c->partial[b] = sum;
	}
}

KERNEL(checksum)
{
	uint64_t n = call->args[2].u64, tail = 0, sum = n;
	struct checksum c = { .rb = reduce_blocks(n / 8), .bytes = ARG(uint8_t, call, 0, n) };
	uint64_t *ret_sum = ARG(uint64_t, call, 1, 1);

	if (!c.bytes || !ret_sum)
		return -EINVAL;

	env->parallel(env, c.rb.nblocks, 1, checksum_blocks, &c);
	for (uint64_t b = 0; b < c.rb.nblocks; b++)
		sum += c.partial[b];
	if (n % 8 != 0) {
		memcpy(&tail, c.bytes + n / 8 * 8, n % 8);
		sum += mix64(tail + (n / 8 + 1) * POSITION_STEP);
	}
	*ret_sum = sum;
	return 0;
}
