/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fuzz target: one function over hostile bytes, that may do anything but misbehave.
 *
 * The same file is built two ways: with clang's libFuzzer (tests/fuzz/campaign), and with main.c, whose program
 * replays a corpus as a test, or takes one input on stdin as AFL does.
 * Besides what sanitizers see, a target asserts what must hold of accepted input.
 */
#ifndef GANTRY_TESTS_FUZZ_FUZZ_H
#define GANTRY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The interface of libFuzzer. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Input as a stream of fields: what is missing reads as zero. */
struct fuzz_input {
	const uint8_t *data;
	size_t len;
};

static inline size_t fuzz_take(struct fuzz_input *in, void *dst, size_t len)
{
	size_t n = len < in->len ? len : in->len;

	memset(dst, 0, len);
	if (n == 0)
		return 0;
	memcpy(dst, in->data, n);
	in->data += n;
	in->len -= n;
	return n;
}

static inline uint8_t fuzz_u8(struct fuzz_input *in)
{
	uint8_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

static inline uint32_t fuzz_u32(struct fuzz_input *in)
{
	uint32_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

static inline uint64_t fuzz_u64(struct fuzz_input *in)
{
	uint64_t value;

	fuzz_take(in, &value, sizeof(value));
	return value;
}

#endif
