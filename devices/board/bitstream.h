/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests of bitstreams: what an image of a board holds, what it costs, and where it may be loaded.
 *
 * A manifest is a text beside the files that it names:
 *
 *   # comment
 *   bitstream pair 1                       a name of its own, and a version
 *   board two-regions                      the model of board that it is made for
 *   load 0 pair-0.bit SHA256               the file for region 0, and its hash as 64 digits
 *   load 1 pair-1.bit SHA256               another placement of the same kernels
 *   configure 150ms                        how long loading takes
 *   memory kept                            or lost: what loading does to the board's memory
 *   tenant red                             nobody else finds its kernels; without it all tenants do
 *   kernel vadd r:i32*,r:i32*,w:i32*,u64 window 0 units 2 slower 17% run 3ms pure
 *
 * "bitstream" comes first. "load whole FILE SHA256" is for an image of the whole board, which has no other. The words after
 * a kernel's signature may come in any order: ndrange: a launch has a grid; the first of its control windows (one for each unit), units (1): launches of
 * it at the same time; slower (0): by how much a launch takes longer than in an image with one unit of this kernel alone; run: what
 * a launch takes there, till it has been measured; pure: it may run again.
 *
 * Trust: parsed as hostile input: bounded, checked; no file is opened by the parser, nothing is loaded.
 * Threads: any; the functions keep no state, a parsed bitstream is constant.
 */
#ifndef GANTRY_DEVICES_BOARD_BITSTREAM_H
#define GANTRY_DEVICES_BOARD_BITSTREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "base/str.h"
#include "devices/signature.h"
#include "devices/statements.h"

#define GANTRY_BITSTREAM_MAX_BYTES	(64u * 1024u)
#define GANTRY_BITSTREAM_MAX_FILE_BYTES (512u * 1024u * 1024u)
/* A file of the manifest's name with this behind it: the image is about to go (gantryctl image remove). */
#define GANTRY_BITSTREAM_LEAVING     ".leaving"
#define GANTRY_BITSTREAM_MAX_KERNELS 32u
#define GANTRY_BITSTREAM_MAX_UNITS   32u /* of one kernel */
#define GANTRY_BITSTREAM_MAX_WINDOWS 256u
#define GANTRY_BITSTREAM_ITEMS	     (1ull << 28) /* of a launch, if the manifest does not say */
#define GANTRY_BOARD_MAX_REGIONS     8u
/* Places where an image may be loaded: a region, by its number, or the whole board. */
#define GANTRY_BOARD_WHOLE   GANTRY_BOARD_MAX_REGIONS
#define GANTRY_BOARD_NPLACES (GANTRY_BOARD_MAX_REGIONS + 1u)

struct gantry_bitstream_kernel {
	char name[GANTRY_KERNEL_NAME_MAX + 1];
	struct gantry_signature sig;
	bool pure;
	bool ndrange;	    /* a launch has a grid */
	uint64_t max_items; /* of one, in work-items */
	uint32_t window;    /* of its first unit */
	uint32_t units;	    /* 1 or more */
	uint32_t slower;    /* per cent */
	uint64_t run_ns;    /* 0: not known */
};

struct gantry_bitstream_file {
	char name[GANTRY_FILE_NAME_MAX + 1]; /* "": may not be loaded there */
	uint8_t sha256[GANTRY_SHA256_BYTES];
};

struct gantry_bitstream {
	char name[GANTRY_NAME_LEN_MAX + 1];
	char board[GANTRY_NAME_LEN_MAX + 1];
	char tenant[GANTRY_NAME_LEN_MAX + 1]; /* whose alone its kernels are; "": everybody's */
	uint32_t version;
	uint32_t nkernels;
	uint32_t nunits; /* of all kernels */
	bool keeps_memory;
	uint64_t configure_ns;
	struct gantry_bitstream_file files[GANTRY_BOARD_NPLACES];
	struct gantry_bitstream_kernel kernels[GANTRY_BITSTREAM_MAX_KERNELS];
};

/* -EINVAL: the sentence names the line; -ENOMEM. @text need not be terminated. Freed with free(). */
int gantry_bitstream_parse(const char *text, size_t len, struct gantry_bitstream **ret_bitstream,
			   struct gantry_err *err);
/* The same for the file at @path. */
int gantry_bitstream_read(const char *path, struct gantry_bitstream **ret_bitstream,
			  struct gantry_err *err);

/*
 * The manifest of a kernel module (devices/manifest.h) with the kernels of @bitstream, whose image for boards is the
 * manifest @file itself. Freed with free(). NULL: no memory.
 */
char *gantry_bitstream_module(const struct gantry_bitstream *bitstream, const char *file);

/* How many argument registers a unit of it has: a buffer takes two, a grid GANTRY_BOARD_SHAPE_REGISTERS. */
uint32_t gantry_bitstream_registers(const struct gantry_bitstream_kernel *kernel);

/* NULL if it has no such kernel. */
const struct gantry_bitstream_kernel *gantry_bitstream_find(
	const struct gantry_bitstream *bitstream, const char *kernel);
static inline bool gantry_bitstream_fits(const struct gantry_bitstream *bitstream, uint32_t place)
{
	return place < GANTRY_BOARD_NPLACES && bitstream->files[place].name[0];
}

/*
 * The file for @place, in @directory, as a copy of our own that nothing can change (a sealed memfd): if it is the one that the
 * manifest was written for. No loader of a vendor sees a file that is not. -EBADMSG: another content, shorter or longer;
 * -EPERM: no regular file, or a link; -EFBIG: more than GANTRY_BITSTREAM_MAX_FILE_BYTES; other -errno. The caller owns *@ret_fd.
 * Blocking: reads the whole file.
 */
int gantry_bitstream_open_file(const struct gantry_bitstream *bitstream, const char *directory,
			       uint32_t place, int *ret_fd, struct gantry_err *err);

#endif
