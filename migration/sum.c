/* SPDX-License-Identifier: Apache-2.0 */
#include "migration/sum.h"

#include <assert.h>
#include <string.h>

#define P1	    0x9e3779b185ebca87ull
#define P2	    0xc2b2ae3d27d4eb4full
#define P3	    0x165667b19e3779f9ull
#define P4	    0x85ebca77c2b2ae63ull
#define AHEAD_WORDS 256
#define P5	    0x27d4eb2f165667c5ull

static uint64_t rotate(uint64_t v, int bits)
{
	return v << bits | v >> (64 - bits);
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t step(uint64_t acc, uint64_t v)
{
	__asm__(""
		: "+r"(v)); /* in a register of its own: without it GCC multiplies by pairs of halves, half as fast again */
	return rotate(acc + v * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t acc)
{
	return (h ^ step(0, acc)) * P1 + P4;
}

/* Four lanes of 8 bytes. */
static uint64_t stripes(const uint8_t *p, size_t nstripes)
{
	uint64_t a = P1 + P2, b = P2, c = 0, d = 0 - P1;
	uint64_t h;

	for (; nstripes > 0; nstripes--, p += 32) {
		a = step(a, load64(p));
		b = step(b, load64(p + 8));
		c = step(c, load64(p + 16));
		d = step(d, load64(p + 24));
	}
	h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
	return merge(merge(merge(merge(h, a), b), c), d);
}

static uint64_t copied(uint8_t *to, const volatile uint64_t *from)
{
	uint64_t v = *from;

	memcpy(to, &v, sizeof(v));
	return v;
}

/* The same of what others may be writing: each word is read once, and goes to @to as it was read. */
static uint64_t copied_stripes(uint8_t *to, const volatile uint64_t *from, size_t nstripes)
{
	uint64_t a = P1 + P2, b = P2, c = 0, d = 0 - P1;
	uint64_t h;

	for (; nstripes > 0; nstripes--, from += 4, to += 32) {
		__builtin_prefetch((const void *)(uintptr_t)(from + AHEAD_WORDS));
		a = step(a, copied(to, from));
		b = step(b, copied(to + 8, from + 1));
		c = step(c, copied(to + 16, from + 2));
		d = step(d, copied(to + 24, from + 3));
	}
	h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
	return merge(merge(merge(merge(h, a), b), c), d);
}

static uint64_t finish(uint64_t h)
{
	h = (h ^ h >> 33) * P2;
	h = (h ^ h >> 29) * P3;
	return h ^ h >> 32;
}

uint64_t gantry_sum64(const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t left = len & 31;
	uint64_t h = len >= 32 ? stripes(p, len / 32) : P5;

	h += len;
	p += len - left;
	for (; left >= 8; left -= 8, p += 8)
		h = rotate(h ^ step(0, load64(p)), 27) * P1 + P4;
	if (left >= 4) {
		uint32_t v;

		memcpy(&v, p, sizeof(v));
		h = rotate(h ^ v * P1, 23) * P2 + P3;
		left -= 4;
		p += 4;
	}
	for (; left > 0; left--, p++)
		h = rotate(h ^ *p * P5, 11) * P1;
	return finish(h);
}

uint64_t gantry_sum64_copy(void *to, const volatile void *from, size_t len)
{
	assert(len % 32 == 0 && (uintptr_t)from % sizeof(uint64_t) == 0);
	return finish((len ? copied_stripes(to, from, len / 32) : P5) + len);
}
