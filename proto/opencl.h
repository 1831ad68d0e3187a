/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest's OpenCL driver and the host's opencl backend both know of OpenCL: sizes of types and pixels, and how an
 * image lies in a buffer. Numbers are OpenCL's own, so that neither side needs its headers for this.
 *
 * An image is a buffer with pixels in it, row by row and slice by slice. A launch says of each what the buffer is: an
 * argument of type "image" stands before the buffer's, with a struct gantry_launch_image; one of type "sampler" is a struct
 * gantry_launch_sampler (devices/signature.h).
 *
 * A launch says too on which of the device's compute units its kernel is to run: struct gantry_launch_part, in its range.
 *
 * Trust: the structs are a guest's; the host checks its copy with the functions below before it uses a number of it.
 * Threads: any; nothing here keeps a state.
 */
#ifndef GANTRY_PROTO_OPENCL_H
#define GANTRY_PROTO_OPENCL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cl_mem_object_type: CL_MEM_OBJECT_... */
enum gantry_image_type {
	GANTRY_IMAGE_2D = 0x10F1,
	GANTRY_IMAGE_3D = 0x10F2,
	GANTRY_IMAGE_2D_ARRAY = 0x10F3,
	GANTRY_IMAGE_1D = 0x10F4,
	GANTRY_IMAGE_1D_ARRAY = 0x10F5,
	GANTRY_IMAGE_1D_BUFFER = 0x10F6,
};
#define GANTRY_IMAGE_NTYPES 6u

/* All of a kind that a type does not have are 1: the height of a 1-D image, the depth of all but 3-D ones. */
struct gantry_launch_image {
	uint32_t type;	  /* enum gantry_image_type */
	uint32_t order;	  /* cl_channel_order */
	uint32_t channel; /* cl_channel_type */
	uint32_t zero;
	uint64_t width, height, depth, layers; /* pixels, rows, slices, images of an array */
	uint64_t row_bytes; /* from a row to the next; a multiple of the pixel's */
	uint64_t
		slice_bytes; /* from a slice, or an image of an array, to the next; a multiple of row_bytes */
};

struct gantry_launch_sampler {
	uint32_t is_normalized; /* 0 or 1 */
	uint32_t addressing;	/* cl_addressing_mode */
	uint32_t filter;	/* cl_filter_mode */
	uint32_t zero;
};

#define GANTRY_SAMPLER_NADDRESSING 5u /* CL_ADDRESS_NONE to CL_ADDRESS_MIRRORED_REPEAT */
#define GANTRY_SAMPLER_ADDRESSING  0x1130u
#define GANTRY_SAMPLER_NFILTERS	   2u /* CL_FILTER_NEAREST, CL_FILTER_LINEAR */
#define GANTRY_SAMPLER_FILTER	   0x1140u

/*
 * Compute units of a device, as OpenCL divides it: all of it where all is 0. @domain is one bit of cl_device_affinity_domain, and
 * @index which of the parts that sharing it makes; 0: the whole device. Of those the units from @first on, as many as
 * @count; 0, of a domain only: all.
 */
struct gantry_launch_part {
	uint16_t domain;
	uint16_t index;
	uint16_t first;
	uint16_t count;
};

/* What an argument of type "range" holds. */
struct gantry_launch_range {
	uint64_t offset[3]; /* of global identifiers */
	uint8_t ndims;	    /* 1 to 3 */
	uint8_t domain;	    /* these four: the part of the device that is to run it */
	uint16_t index;
	uint16_t first;
	uint16_t count;
};

#define GANTRY_PART_DOMAINS   0x1fu /* NUMA nodes, and caches of levels 4 to 1 */
#define GANTRY_PART_NDOMAINS  5u
#define GANTRY_PART_MAX_UNITS 65535u /* of a device that is divided */

/* In a device's description, number "partition": by what it can be divided, but for domains. */
#define GANTRY_PART_EQUALLY 1u
#define GANTRY_PART_COUNTS  2u

/* The part that @range names. false: none can be meant, whatever devices there are; *ret_part is as it was. */
bool gantry_part_of(const struct gantry_launch_range *range, struct gantry_launch_part *ret_part);

/* Bytes of a pixel, 1 to 16; 0: no such format, or one that nothing here knows. */
uint32_t gantry_pixel_bytes(uint32_t order, uint32_t channel);

/* Is the type's, and 1 of what it does not have. */
bool gantry_image_has_rows(uint32_t type);
bool gantry_image_has_layers(uint32_t type);

/* Bytes that it takes in its buffer, with what lies between rows and slices. 0: it cannot be, or is larger than any buffer. */
uint64_t gantry_image_bytes(const struct gantry_launch_image *image);

/* Its place among the GANTRY_SAMPLER_COUNT that can be; -1: it cannot be. */
#define GANTRY_SAMPLER_COUNT (2u * GANTRY_SAMPLER_NADDRESSING * GANTRY_SAMPLER_NFILTERS)
int gantry_sampler_index(const struct gantry_launch_sampler *sampler);

/* Bytes of a value of a scalar or vector type of OpenCL C's own, by its name; 0: of another. */
uint32_t gantry_opencl_type_bytes(const char *type);

#endif
