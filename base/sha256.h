/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 (FIPS 180-4): names bytes that must not be confused with others.
 *
 * Threads: a state belongs to its caller. Blocking: never; some 200 MB/s.
 */
#ifndef GANTRY_BASE_SHA256_H
#define GANTRY_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define GANTRY_SHA256_BYTES 32u

struct gantry_sha256 {
	uint32_t h[8];
	uint64_t nbytes;
	uint8_t block[64];
};

void gantry_sha256_init(struct gantry_sha256 *s);
void gantry_sha256_add(struct gantry_sha256 *s, const void *bytes, size_t n);
/* Ends the state; init it for another. */
void gantry_sha256_end(struct gantry_sha256 *s, uint8_t ret_hash[GANTRY_SHA256_BYTES]);

#endif
