/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the driver of boards that OpenCL serves (FPGAs; CL_DEVICE_TYPE_ACCELERATOR): the driver's table of
 * devices/board/driver.h, whose images are programs made from binaries, and whose control windows exist here only: what is written to
 * a unit's registers becomes arguments, and its start an enqueued kernel. Its one region is the whole device; or, where a runtime shows
 * the regions of a board as devices of their own (regions=N), each of these is one, and all are in one context, whose buffers they share.
 *
 * A unit has a cl_kernel and a queue of its own. What is written to the board's memory becomes a cl_mem of its own, a *piece*, so that the
 * vendor may put it into whichever bank the kernel is connected to. All of these go with their image, for a vendor may take any
 * of them along with it.
 *
 * board.c opens and loads; board_run.c has registers, launches and the memory.
 *
 * Threads: the board's thread; OpenCL's own threads mark what has ended, under the lock.
 */
#ifndef GANTRY_DEVICES_OPENCL_BOARD_H
#define GANTRY_DEVICES_OPENCL_BOARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/board/driver.h"
#include "devices/opencl/builder.h"
#include "devices/opencl/driver.h"

#define GANTRY_OPENCL_BOARD_REGIONS   8u
#define GANTRY_OPENCL_BOARD_WINDOWS   256u
#define GANTRY_OPENCL_BOARD_REGISTERS (GANTRY_BOARD_WINDOW_BYTES / 8u)

struct gantry_opencl_board;
struct gantry_opencl_region;

/* A launch of a unit's. */
struct gantry_opencl_run {
	struct gantry_opencl_unit *unit;
	cl_event event; /* NULL: there is none */
	/* Of copies that are made when it has ended; the last one's end is told. */
	uint32_t ncopies;
	cl_event copies[GANTRY_BOARD_MAX_ARGS];
	/* Under the board's lock. */
	bool ended;
	bool copied;
	cl_int result;
};

/* A control window. */
struct gantry_opencl_unit {
	struct gantry_opencl_board *board;
	struct gantry_opencl_region *region;
	const struct gantry_board_kernel *def; /* NULL: nothing is there */
	bool lengths; /* the kernel has a parameter behind each buffer's, its bytes (ulong) */
	cl_kernel kernel;
	cl_command_queue queue;
	cl_uint ndims;
	size_t work[3], group[3]; /* of the launch; one work-item, if its manifest knows no grid */
	uint64_t registers[GANTRY_OPENCL_BOARD_REGISTERS];
	uint64_t control; /* DONE, REFUSED, FAILED of the last launch, once it has been collected */
	uint64_t ns;	  /* that it took */
	uint32_t
		turn; /* which of these is at work; the other one may be behind it, in the same queue */
	struct gantry_opencl_run runs[2];
};

/* [at, at + len) of what the manager of launches takes for the board's memory. */
struct gantry_opencl_piece {
	cl_mem mem;
	uint64_t at;
	uint64_t len;
};

struct gantry_opencl_region {
	cl_device_id device;
	/* Of the image; NULL: none is loaded. */
	cl_program program;
	cl_command_queue copies;
	struct gantry_opencl_unit units[GANTRY_OPENCL_BOARD_WINDOWS];
	uint32_t nwatched; /* under the board's lock: launches whose end will be told */
};

struct gantry_opencl_board {
	const struct gantry_opencl_driver *cl;
	struct gantry_opencl_target target; /* the first region's */
	struct gantry_opencl_work work;	    /* as the builder is told; names @strings */
	char *strings;
	bool trial; /* each image is loaded in another process first */
	bool late; /* an image comes to the board when a kernel of it runs, not when its program is made */
	uint64_t mem_bytes;
	char model[32];
	bool lost;

	cl_context context;
	uint32_t npieces;
	uint32_t max_pieces;
	struct gantry_opencl_piece *pieces; /* owned; disjoint */
	uint32_t nregions;
	struct gantry_opencl_region regions[GANTRY_OPENCL_BOARD_REGIONS];

	pthread_mutex_t lock;
	pthread_cond_t news;
	/* Under the lock. */
	bool something_ended;
};

/* board_run.c */
uint64_t gantry_opencl_board_read(void *handle, uint32_t region, uint32_t off);
void gantry_opencl_board_write(void *handle, uint32_t region, uint32_t off, uint64_t value);
int gantry_opencl_board_mem_read(void *handle, uint64_t at, void *to, uint64_t len);
int gantry_opencl_board_mem_write(void *handle, uint64_t at, const void *from, uint64_t len);
int gantry_opencl_board_follow(void *handle, uint32_t region, uint32_t off, const uint64_t *args,
			       uint32_t nargs, const struct gantry_board_copy *copies,
			       uint32_t ncopies);
/* Any thread. */
void gantry_opencl_board_wake(void *handle);
int gantry_opencl_board_wait(void *handle, uint64_t timeout_ns);
uint64_t gantry_opencl_board_cycles(void *handle);
/* All that was written is gone. */
void gantry_opencl_board_forget(struct gantry_opencl_board *board);
/* Waits until nothing is at work in the region, and OpenCL's threads are out of our functions; false: the board is gone, and they may not be. */
bool gantry_opencl_board_drain(struct gantry_opencl_board *board,
			       struct gantry_opencl_region *region);

#endif
