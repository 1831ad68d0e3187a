/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of CUDA that are still to be linked: what a program gave to cuLinkAddData(), in one piece. The guest's libcuda makes one at
 * cuLinkComplete(), which is what the program gets for a cubin; the cuda backend links it when it is loaded (devices/cuda/link.c).
 *
 * A header, options, inputs, then the inputs' bytes; all little-endian, and of 8 bytes' alignment.
 */
#ifndef GANTRY_PROTO_CUDA_LINK_H
#define GANTRY_PROTO_CUDA_LINK_H

#include <assert.h>
#include <stdint.h>

#define GANTRY_LINK_MAGIC	"\177GantryL"
#define GANTRY_LINK_MAGIC_BYTES 8u
#define GANTRY_LINK_VERSION	1u
#define GANTRY_LINK_MAX_INPUTS	256u
#define GANTRY_LINK_MAX_OPTIONS 32u
#define GANTRY_LINK_NAME	64u
/* Between the linker's log and its log of errors, where both come as one text. */
#define GANTRY_LINK_LOGS_APART '\036'

struct gantry_link_header {
	uint8_t magic[GANTRY_LINK_MAGIC_BYTES];
	uint32_t version;
	uint32_t noptions;
	uint32_t ninputs;
	uint32_t reserved;
	uint64_t bytes; /* of all */
};

/*
 * The options that are numbers and change what is made; none of them has the driver read or write memory. Names of cuda.h's,
 * for those who have it: @O is done for each.
 */
#define GANTRY_LINK_OPTIONS(O)        \
	O(CU_JIT_MAX_REGISTERS)       \
	O(CU_JIT_THREADS_PER_BLOCK)   \
	O(CU_JIT_OPTIMIZATION_LEVEL)  \
	O(CU_JIT_GENERATE_DEBUG_INFO) \
	O(CU_JIT_LOG_VERBOSE)         \
	O(CU_JIT_GENERATE_LINE_INFO)

/* Numbers are CUjit_option's. */
struct gantry_link_option {
	uint32_t option;
	uint32_t value;
};

struct gantry_link_input {
	uint32_t type; /* CUjitInputType */
	uint32_t reserved;
	uint64_t off;	/* from the header on, a multiple of 8 */
	uint64_t bytes; /* PTX with its NUL */
	char name[GANTRY_LINK_NAME];
};
static_assert(sizeof(struct gantry_link_header) == 32 && sizeof(struct gantry_link_input) == 88,
	      "no padding");

#endif
