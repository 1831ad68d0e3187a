/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures: what arguments a kernel takes, and where they lie when packed.
 *
 * As text a comma separated list: mode:type* for buffers (mode r, w, rw, c), type for scalars;
 * "void" for a kernel without arguments. Types: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64.
 *
 * Kernels of guests' OpenCL images may have three more, which no manifest has: bN, N bytes that are passed as they are (a
 * vector, a struct); local, local memory of as many bytes as its 8-byte slot says, or of a buffer's parameter no buffer,
 * where it says 0; and range, no parameter of the kernel but
 * 32 bytes that say more of the launch, a struct gantry_launch_range (proto/opencl.h).
 * Besides: image, no parameter either but what makes an image of the buffer that comes next, a struct gantry_launch_image;
 * and sampler, a struct gantry_launch_sampler (proto/opencl.h).
 *
 * Trust: parsed as hostile input (fuzzed): bounded, allocates nothing.
 * Threads: any; the functions keep no state.
 */
#ifndef GANTRY_DEVICES_SIGNATURE_H
#define GANTRY_DEVICES_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/vocab.h"

#define GANTRY_SIGNATURE_MAX_ARGS 64u
/* Room for the longest canonical text: "rw:u16*," for each argument. */
#define GANTRY_SIGNATURE_TEXT_MAX (8u * GANTRY_SIGNATURE_MAX_ARGS + 1u)

enum gantry_arg_type {
	GANTRY_ARG_U8 = 1,
	GANTRY_ARG_I8,
	GANTRY_ARG_U16,
	GANTRY_ARG_I16,
	GANTRY_ARG_U32,
	GANTRY_ARG_I32,
	GANTRY_ARG_U64,
	GANTRY_ARG_I64,
	GANTRY_ARG_F32,
	GANTRY_ARG_F64,
	GANTRY_ARG_BYTES,
	GANTRY_ARG_LOCAL,
	GANTRY_ARG_RANGE,
	GANTRY_ARG_IMAGE,
	GANTRY_ARG_SAMPLER,
};

#define GANTRY_SIGNATURE_MAX_BYTES 1024u /* N of bN */

struct gantry_sig_arg {
	uint8_t mode;	    /* enum gantry_access_mode; 0: a scalar */
	uint8_t type;	    /* enum gantry_arg_type; of the elements for buffers */
	uint16_t off_bytes; /* in the packed arguments; buffers take an 8-byte slot */
	uint16_t len_bytes; /* of its slot */
};

struct gantry_signature {
	uint32_t nargs;
	uint32_t args_bytes; /* packed, natural alignment, rounded up to 8 */
	/*
	 * 1: the kernel takes its parameters' bytes as the image has laid them out, and nothing is known of them; no arguments
	 * then. Of kernels of guests' images only.
	 */
	uint32_t is_raw;
	struct gantry_sig_arg args[GANTRY_SIGNATURE_MAX_ARGS];
};

/* Size of a scalar or element; 0 for an unknown type, and for bN and those behind it. */
uint32_t gantry_arg_type_bytes(unsigned type);

/* Has it a type that only kernels of OpenCL images have? */
bool gantry_signature_is_opencl(const struct gantry_signature *sig);

/* The same modes and types in the same order. */
bool gantry_signature_same(const struct gantry_signature *a, const struct gantry_signature *b);

/* -EINVAL with a sentence naming the argument, counted from 1; outputs untouched. */
int gantry_signature_parse(const char *text, struct gantry_signature *ret_sig,
			   struct gantry_err *err);
/* The same for a kernel of a guest's image, which may be "raw" besides. */
int gantry_signature_parse_own(const char *text, struct gantry_signature *ret_sig,
			       struct gantry_err *err);
/*
 * Writes the canonical text. -E2BIG if it does not fit; -EINVAL for modes and types that do not
 * exist.
 */
int gantry_signature_format(const struct gantry_signature *sig, char *buf, size_t cap);

#endif
