/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of NVRTC's in one piece, for the process that compiles, and what came of it (devices/cuda/rtc.c). Within one host; all little-endian.
 *
 * A request is its header, then texts one behind the other, each with its NUL: the source, the program's name ("": none), of each header its content and its
 * name, the options, the expressions whose names are wanted. A result is its header, then GANTRY_RTC_NPARTS pieces of the lengths that it says, then a
 * text for each expression: its lowered name, "" where there is none.
 *
 * Trust: neither side has any in the other. A result comes from where a guest's text may have taken over.
 */
#ifndef GANTRY_PROTO_CUDA_RTC_H
#define GANTRY_PROTO_CUDA_RTC_H

#include <assert.h>
#include <stdint.h>

#define GANTRY_RTC_MAGIC       "\177GantryN"
#define GANTRY_RTC_MAGIC_BYTES 8u
#define GANTRY_RTC_VERSION     1u
#define GANTRY_RTC_MAX_TEXTS   4096u /* headers, options and expressions, each */

enum gantry_rtc_part {
	GANTRY_RTC_LOG = 0,
	GANTRY_RTC_PTX = 1,
	GANTRY_RTC_CUBIN = 2,
	GANTRY_RTC_LTOIR = 3,
	GANTRY_RTC_OPTIXIR = 4,
	GANTRY_RTC_NPARTS = 5,
};

struct gantry_rtc_request {
	uint8_t magic[GANTRY_RTC_MAGIC_BYTES];
	uint32_t version;
	uint32_t nheaders;
	uint32_t noptions;
	uint32_t nexpressions;
	uint64_t bytes; /* of all */
};

struct gantry_rtc_result {
	uint8_t magic[GANTRY_RTC_MAGIC_BYTES];
	int32_t result; /* nvrtcResult */
	uint32_t nexpressions;
	/* Of each part, with its NUL where it is text; 0: the compiler has none. What it said when it was asked for it: */
	int32_t asked[GANTRY_RTC_NPARTS + 1]; /* the last one is padding, 0 */
	uint64_t bytes[GANTRY_RTC_NPARTS];
};
static_assert(sizeof(struct gantry_rtc_request) == 32 && sizeof(struct gantry_rtc_result) == 80,
	      "no padding");

#endif
