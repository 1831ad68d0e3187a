/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <string.h>

static const uint32_t k[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
	0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
	0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
	0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
	0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
	0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2,
};

static uint32_t ror(uint32_t v, unsigned int n)
{
	return v >> n | v << (32 - n);
}

static void expand(const uint8_t block[64], uint32_t w[64])
{
	for (unsigned int i = 0; i < 16; i++) {
		memcpy(&w[i], block + 4 * i, 4);
		w[i] = __builtin_bswap32(w[i]);
	}
	for (unsigned int i = 16; i < 64; i++) {
		uint32_t s0 = ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3;
		uint32_t s1 = ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10;

		w[i] = w[i - 16] + s0 + w[i - 7] + s1;
	}
}

static void mix(uint32_t h[8], const uint8_t block[64])
{
	uint32_t w[64], v[8];

	expand(block, w);
	memcpy(v, h, sizeof(v));
	for (unsigned int i = 0; i < 64; i++) {
		uint32_t s1 = ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25);
		uint32_t s0 = ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22);
		uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
		uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (unsigned int i = 0; i < 8; i++)
		h[i] += v[i];
}

void gantry_sha256_init(struct gantry_sha256 *s)
{
	static const uint32_t start[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

	memcpy(s->h, start, sizeof(start));
	s->nbytes = 0;
}

void gantry_sha256_add(struct gantry_sha256 *s, const void *bytes, size_t n)
{
	const uint8_t *from = bytes;

	while (n > 0) {
		size_t at = s->nbytes % 64;
		size_t part = n < 64 - at ? n : 64 - at;

		memcpy(s->block + at, from, part);
		from += part;
		n -= part;
		s->nbytes += part;
		if (at + part == 64)
			mix(s->h, s->block);
	}
}

void gantry_sha256_end(struct gantry_sha256 *s, uint8_t ret_hash[GANTRY_SHA256_BYTES])
{
	uint64_t nbits = __builtin_bswap64(s->nbytes * 8);
	static const uint8_t pad[64] = { 0x80 };

	gantry_sha256_add(s, pad, 1 + (119 - s->nbytes % 64) % 64);
	gantry_sha256_add(s, &nbits, sizeof(nbits));
	for (unsigned int i = 0; i < 8; i++) {
		uint32_t word = __builtin_bswap32(s->h[i]);

		memcpy(ret_hash + 4 * i, &word, sizeof(word));
	}
}
