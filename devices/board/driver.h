/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kind of board has to offer: a small table of functions in a shared object, which the administrator installs. Everything else about a board
 * and its images is in manifests.
 *
 * This header and C11 are all that a driver needs. Structures grow at the end only and by GANTRY_BOARD_ABI.
 *
 * Control windows. A region answers reads and writes of 64-bit registers. Each unit of a kernel has a window of
 * GANTRY_BOARD_WINDOW_BYTES, by its number:
 *
 *   0x00  control    bit 0: start, when written; bit 1: done, until 1 is written to it; bit 2: idle; bit 3: refused, with done: the
 *                    arguments do not fit each other, and nothing was written; bit 4: failed, with done: the board could not run
 *                    it
 *   0x08  identity   bits 63..32: GANTRY_BOARD_IDENTITY; bits 7..0: how many argument registers the kernel has
 *   0x10  cycles     that the last launch took
 *   0x20  arguments  one register for each in the order of the signature; a buffer has two, its address on the board and its bytes
 *
 * A unit keeps to the bytes it was given, and ends on its own.
 *
 * Trust: a driver is host code, installed by the administrator. What is written to registers has been checked; what was in a
 *   guest's buffers has not.
 * Threads: one call at a time, and wake() beside it. Blocking: load and wait only.
 * Errors: 0 or -errno, with a sentence of at most @cap bytes in @text where there is one. -ENODEV: the board is lost for good.
 */
#ifndef GANTRY_DEVICES_BOARD_DRIVER_H
#define GANTRY_DEVICES_BOARD_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_BOARD_ABI	  5u
#define GANTRY_BOARD_WINDOW_BYTES 256u
#define GANTRY_BOARD_IDENTITY	  0x47424b4eu /* "GBKN" */
#define GANTRY_BOARD_MAX_ARGS	  28u	      /* argument registers of a window */
/* Of arg_bytes: no argument, but the registers behind all of them, with the launch's grid: its blocks in x, y and z, and what one has. */
#define GANTRY_BOARD_ARG_SHAPE	     255u
#define GANTRY_BOARD_SHAPE_REGISTERS 6u
#define GANTRY_BOARD_PLACE_WHOLE     8u /* of load(): all regions at once */

enum gantry_board_register {
	GANTRY_BOARD_CONTROL = 0x00,
	GANTRY_BOARD_ID = 0x08,
	GANTRY_BOARD_CYCLES = 0x10,
	GANTRY_BOARD_ARGS = 0x20,
};

enum gantry_board_control {
	GANTRY_BOARD_START = 1,
	GANTRY_BOARD_DONE = 2,
	GANTRY_BOARD_IDLE = 4,
	GANTRY_BOARD_REFUSED = 8,
	GANTRY_BOARD_FAILED = 16,
};

/* A kernel of an image, as its manifest says it. */
struct gantry_board_kernel {
	const char *name;
	uint32_t window; /* of its first unit */
	uint32_t units;
	uint32_t nargs;
	uint8_t arg_bytes
		[GANTRY_BOARD_MAX_ARGS]; /* of a value: 1, 2, 4 or 8; of a buffer 0; of a grid, the last, ARG_SHAPE */
};

/* [at, at + len) of the board's memory, for the host's at @to. */
struct gantry_board_copy {
	uint64_t at;
	uint64_t len;
	void *to;
};

/* A file that load() may be given. All of it is the caller's, and stays as it is until close(). */
struct gantry_board_file {
	const char *image; /* its name */
	uint32_t place;	   /* where it may go: a region, or GANTRY_BOARD_PLACE_WHOLE */
	int fd;		   /* what the manifest was written for; it does not change */
	uint32_t nkernels;
	const struct gantry_board_kernel *kernels;
};

struct gantry_board_info {
	char model[32]; /* as manifests of images name it */
	char id[48];	/* of this one: a slot, a serial number; "" if none */
	uint32_t nregions;
	uint32_t mem_align; /* of buffers; a power of two */
	uint64_t mem_bytes;
	uint64_t clock_hz; /* of cycles; 0: not known */
	/* Not 0: memory that was written for an argument of one kernel may be out of reach of another's (banks): it is written anew for each launch. */
	uint32_t ties_memory;
};

struct gantry_board_driver {
	uint32_t abi;	  /* GANTRY_BOARD_ABI */
	uint32_t bytes;	  /* sizeof(struct gantry_board_driver) */
	const char *name; /* a-z, 0-9, - */
	/*
	 * @options: "key=value key=value", from the configuration. @files: all that load() will ever be given, unless takes_later_files; a driver may look at them, or
	 * try them in another process, before it takes the board. -EBUSY: another process has the board; -ENODEV: there is none; -EINVAL: the
	 * options; -EBADMSG: a file that is nothing for this board.
	 */
	int (*open)(const char *options, const struct gantry_board_file *files, uint32_t nfiles,
		    void **ret_board, struct gantry_board_info *ret_info, char *text, size_t cap);
	void (*close)(void *board);
	/*
	 * Loads @file, one of open()'s or a later one, where it goes. Nothing is at work there. Takes as long as it takes. After a failure the region holds
	 * nothing. -EBADMSG: it has not the kernels that its manifest says.
	 */
	int (*load)(void *board, const struct gantry_board_file *file, char *text, size_t cap);
	/* Registers of a region in which an image is loaded; with a whole image region 0. */
	uint64_t (*read)(void *board, uint32_t region, uint32_t off);
	void (*write)(void *board, uint32_t region, uint32_t off, uint64_t value);
	/* The board's memory, [at, at + len) of which lie inside it. */
	int (*mem_read)(void *board, uint64_t at, void *to, uint64_t len);
	int (*mem_write)(void *board, uint64_t at, const void *from, uint64_t len);
	/*
	 * Waits until a unit may have ended, at most about @timeout_ns, and makes a simulated board work. 1: perhaps; 0: no; -ENODEV.
	 */
	int (*wait)(void *board, uint64_t timeout_ns);
	/* Cycles since open. */
	uint64_t (*cycles)(void *board);
	/* Not 0: load() takes files of images, too, that were registered after open(), and open()'s may be none. */
	uint32_t takes_later_files;
	/*
	 * The wait() under way returns, or the next does at once: something else is to be done. Any thread, beside any other call. NULL: there is
	 * no such thing, and wait() is asked for short times only.
	 */
	void (*wake)(void *board);
	/*
	 * Puts a launch behind the one at work on the unit whose window is at @off, with nobody's help in between: when that one has ended @copies are
	 * made, of what it left, and then the next begins, with @args in its argument registers. Control says done only when the copies have
	 * been made, too; failed if one could not be. When 1 is written to done, control and cycles are the next one's, which begins
	 * whatever became of the one before. @to of each copy is the driver's until then; for good, if the board is lost or closed before. Memory of both stays as it is but for what
	 * they do themselves. -EAGAIN: not now: nothing is at work there, or something is behind it already; other errors: nothing is behind it.
	 * 1: nor then, but @to of the copies is the driver's as if there were, and what comes there is of no use. None of these waits for the launch
	 * at work. NULL: there is no such thing.
	 */
	int (*follow)(void *board, uint32_t region, uint32_t off, const uint64_t *args,
		      uint32_t nargs, const struct gantry_board_copy *copies, uint32_t ncopies);
};

/* The one symbol that a driver defines. */
#define GANTRY_BOARD_DRIVER_SYMBOL "gantry_board_driver_entry"
extern const struct gantry_board_driver gantry_board_driver_entry;

/* Those that are part of the build, by the name that option driver= says; NULL-terminated. */
extern const struct gantry_board_driver *const gantry_board_drivers[];

#ifdef __cplusplus
}
#endif

#endif
