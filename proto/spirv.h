/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in SPIR-V, as a guest's OpenCL driver sends them and the host's backend takes them: a module, or lines of text and
 * then a module. The first line may be the options that it is built with, as of a text (GANTRY_SPIRV_OPTIONS); each further
 * one is "//gantry-constant: ID HEX", a specialization constant and its value's bytes in the order of memory.
 *
 * Trust: what is looked at may be anything, on both sides: nothing outside the bytes is read, and nothing is allocated. What
 * the instructions mean is the driver's compiler's to judge, in a process of its own.
 * Threads: any; nothing here keeps a state.
 */
#ifndef GANTRY_PROTO_SPIRV_H
#define GANTRY_PROTO_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GANTRY_SPIRV_MAGIC    0x07230203u
#define GANTRY_SPIRV_OPTIONS  "//gantry-options:"
#define GANTRY_SPIRV_CONSTANT "//gantry-constant: "

#define GANTRY_SPIRV_MAX_CONSTANTS 1024u

struct gantry_spirv_constant {
	uint32_t id;
	uint32_t bytes; /* 1, 2, 4 or 8 */
	uint8_t value[8];
};

/* Where the module begins, behind lines as above. false: it is no program in SPIR-V. Nothing of the module is checked. */
bool gantry_spirv_find(const void *bytes, size_t nbytes, size_t *ret_off);
/* The constant that the next line before @end says; *at goes on behind it. false: there is none. */
bool gantry_spirv_next(const char **at, const char *end,
		       struct gantry_spirv_constant *ret_constant);
/* Room for a line, with its NUL. */
#define GANTRY_SPIRV_LINE 64u
void gantry_spirv_line(const struct gantry_spirv_constant *constant, char line[GANTRY_SPIRV_LINE]);

/*
 * What is wrong with a module: its header, or instructions that do not fit into it; or it is none of OpenCL's. NULL: nothing.
 * Both below take one of which that was asked.
 */
const char *gantry_spirv_check(const void *module, size_t nbytes);
/* Bytes of the value of specialization constant @id; 0: the module has none such. */
uint32_t gantry_spirv_constant_bytes(const void *module, size_t nbytes, uint32_t id);
/* May one of its kernels print? */
bool gantry_spirv_prints(const void *module, size_t nbytes);

#endif
