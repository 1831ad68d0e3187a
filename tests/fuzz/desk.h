/* SPDX-License-Identifier: Apache-2.0 */
/* The two ends of a desk (proto/doormem.h), each against an other end that is the input. */
#ifndef GANTRY_TESTS_FUZZ_DESK_H
#define GANTRY_TESTS_FUZZ_DESK_H

#include "tests/fuzz/fuzz.h"

/* What a message of the input is made of: its bytes, and none that were before. At most 255. */
static inline void fuzz_take_box(struct fuzz_input *in, uint8_t *box, size_t box_bytes)
{
	uint8_t len = fuzz_u8(in);

	memset(box, 0, box_bytes);
	fuzz_take(in, box, len);
}

/* Bytes over @memory, at a place that the input says. */
static inline void fuzz_scribble(struct fuzz_input *in, uint8_t *memory, uint32_t bytes)
{
	uint8_t patch[255], len;
	uint32_t off = fuzz_u32(in) % bytes;

	len = fuzz_u8(in);
	fuzz_take(in, patch, len);
	memcpy(memory + off, patch, len < bytes - off ? len : bytes - off);
}

void fuzz_desk_of_guest(struct fuzz_input *in);
void fuzz_desk_of_agent(struct fuzz_input *in);

#endif
