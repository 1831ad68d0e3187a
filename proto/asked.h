/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes unchanged from a guest to a device's backend and back: what textures are asked for, and what is answered about
 * kernels. Part of the wire's layout (wire.h). A backend takes the numbers for hostile.
 */
#ifndef GANTRY_PROTO_ASKED_H
#define GANTRY_PROTO_ASKED_H

#include <assert.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_FUNCTION_ATTRIBUTES 16u
struct gantry_reply_function {
	uint32_t nparams;
	uint32_t params_bytes;
	int32_t attributes[GANTRY_FUNCTION_ATTRIBUTES]; /* the backend's, from its first on */
};
static_assert(sizeof(struct gantry_reply_function) <= 112, "gantry_reply_function fits a reply");

struct gantry_reply_param {
	uint16_t off;
	uint16_t bytes;
};

/* What a `texture` makes. Numbers of formats and modes are those of the device's backend. */
enum gantry_texture_what {
	GANTRY_TEXTURE_ARRAY = 1,
	GANTRY_TEXTURE_LEVEL = 2, /* of an array with levels, as an array */
	GANTRY_TEXTURE_TEXTURE =
		3, /* of an array or of linear memory, for kernels to read through */
	GANTRY_TEXTURE_SURFACE = 4, /* of an array, to write too */
	/*
	 * Nothing is made; variable part: struct gantry_wire_tensor. GANTRY_TENSOR_PART_BYTES of what kernels copy parts of such a tensor with:
	 * the first, and with the next number the rest.
	 */
	GANTRY_TEXTURE_TENSOR = 5,
	GANTRY_TEXTURE_TENSOR_REST = 6,
	GANTRY_TEXTURE_GRAPH = 7, /* of the driver's, with conditions (cuda_graph.h) */
	/* Of a graph, with width for its first value and flags for whether each launch begins with that; the address is its handle. */
	GANTRY_TEXTURE_CONDITION = 8,
};
#define GANTRY_NTEXTURES 9u

struct gantry_wire_texture {
	/* Of an array, and of linear memory: elements; a dimension that is not there is 0. */
	uint64_t width;
	uint64_t height;
	uint64_t depth;	 /* layers, where it is layered */
	uint32_t format; /* of one channel */
	uint32_t channels;
	uint32_t flags;	 /* of an array */
	uint32_t levels; /* 0: an array without levels; of a level: which */
	/* Linear memory instead of an array: rows of height, or 1 row where that is 0. */
	uint64_t address;
	uint64_t pitch;
	uint32_t address_mode[3];
	uint32_t filter;
	uint32_t sampling; /* flags */
	uint32_t anisotropy;
	uint32_t level_filter;
	float level_bias;
	float level_min;
	float level_max;
	float border[4];
	/* What of an array is seen; view_format 0: all as it is. */
	uint32_t view_format;
	uint32_t view_level[2]; /* first, last */
	uint32_t view_layer[2];
	uint32_t reserved;
	uint64_t view[3]; /* width, height, depth */
};
static_assert(sizeof(struct gantry_wire_texture) == 160, "gantry_wire_texture is wire format");

#define GANTRY_TENSOR_RANK	 5u
#define GANTRY_TENSOR_PARTS	 2u
#define GANTRY_TENSOR_PART_BYTES 64u
enum gantry_tensor_mode {
	GANTRY_TENSOR_TILED = 0,
	GANTRY_TENSOR_IM2COL = 1,
};
/* A tensor in linear memory; numbers of types and modes are those of the device's backend. */
struct gantry_wire_tensor {
	uint64_t address;
	uint64_t dims[GANTRY_TENSOR_RANK];	  /* elements, the innermost first */
	uint64_t strides[GANTRY_TENSOR_RANK - 1]; /* bytes */
	uint32_t mode;				  /* enum gantry_tensor_mode */
	uint32_t type;
	uint32_t rank;
	uint32_t steps[GANTRY_TENSOR_RANK];
	int32_t box[6]; /* of a tile; else the lower corner, and the upper one */
	uint32_t channels;
	uint32_t pixels;
	uint32_t interleave;
	uint32_t swizzle;
	uint32_t promotion;
	uint32_t fill;
};
static_assert(sizeof(struct gantry_wire_tensor) == sizeof(struct gantry_wire_texture),
	      "both are the variable part of a texture operation");

#ifdef __cplusplus
}
#endif

#endif
