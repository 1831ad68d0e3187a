/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of a stream on their way to a driver that has graphs: kept until the backend closes a batch, or enqueues
 * something else, and then handed over in rows, each as a graph where that is worth it.
 *
 * What differs between drivers is a table of their calls. What a driver refuses in a row is seen when its launches are
 * handed over one by one; a driver that refuses graphs again and again is asked for no more of them.
 *
 * Threads: the stream's. Blocking: as the driver's calls.
 */
#ifndef GANTRY_DEVICES_ROWS_H
#define GANTRY_DEVICES_ROWS_H

#include <stdint.h>

#include "devices/device.h"

/* The most launches that are kept. */
#define GANTRY_ROWS_MAX 32u

/* A launch as a driver takes it. What is behind the last argument is never looked at. */
struct gantry_rows_call {
	void *function;
	const struct gantry_image *image; /* whose function it is */
	const struct gantry_kernel
		*raw; /* its parameters lie in @args as it lays them out; NULL: one in each */
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t nargs;			    /* of @args */
	uint64_t args[GANTRY_MAX_CMD_ARGS]; /* the bytes of a shorter one come first */
};

/* What the calls below return, beside 0 and the -errno of what the driver does not want. */
enum gantry_rows_result {
	GANTRY_ROWS_FAILED =
		1, /* nothing more can be done on the device: what follows never got there */
	GANTRY_ROWS_EARLIER, /* the same, and what the call was for never got there either */
};

/*
 * A driver. @graph, @node and @exec are the driver's. The backend keeps in mind what has failed.
 *
 * create: an empty graph. add: a node of @call behind @after (NULL: the first). instantiate: makes @graph executable.
 * change: later launches of @exec have @call at @node; earlier ones are not affected. launch: of all of it. destroy: of
 * either (NULL: none); what runs of it ends all the same. single: @call without a graph.
 *
 * unsent, refused: of the command at @position of the stream, which was kept.
 */
struct gantry_rows_driver {
	int (*create)(struct gantry_stream *stream, void **ret_graph);
	int (*add)(struct gantry_stream *stream, void *graph, void *after,
		   const struct gantry_rows_call *call, void **ret_node);
	int (*instantiate)(struct gantry_stream *stream, void *graph, void **ret_exec);
	int (*change)(struct gantry_stream *stream, void *exec, void *node,
		      const struct gantry_rows_call *call);
	int (*launch)(struct gantry_stream *stream, void *exec);
	void (*destroy)(struct gantry_stream *stream, void *graph, void *exec);
	int (*single)(struct gantry_stream *stream, const struct gantry_rows_call *call);
	void (*unsent)(struct gantry_stream *stream, uint32_t position);
	void (*refused)(struct gantry_stream *stream, uint32_t position, int error);
};

struct gantry_rows;

/* NULL: no memory. @graphs: false: the driver has none, or they are not wanted. */
struct gantry_rows *gantry_rows_create(const struct gantry_rows_driver *driver,
				       struct gantry_stream *stream, bool graphs);
/* The stream is idle, or its context has failed. */
void gantry_rows_free(struct gantry_rows *rows);

/* All that follow take NULL: nothing is kept then. */

/* Where the launch that is submitted now is to be written so that it can wait for others; NULL: there is no room. */
struct gantry_rows_call *gantry_rows_room(struct gantry_rows *rows);
/* What was written there is the command at @position of the stream. */
void gantry_rows_keep(struct gantry_rows *rows, uint32_t position);
/* Where the device has nothing of the stream to do before command @finished, a few are enough. After each command. */
void gantry_rows_start(struct gantry_rows *rows, uint32_t finished);
/* All that waits goes to the device: before anything else does, and before what tells their end. */
void gantry_rows_push(struct gantry_rows *rows);
/* What waits goes nowhere: the context has failed. Returns the position of the first of it, or @otherwise. */
uint32_t gantry_rows_drop(struct gantry_rows *rows, uint32_t otherwise);
/* Functions of @image are going to end: no graph may know one that looks like another that comes later. */
void gantry_rows_forget(struct gantry_rows *rows, const struct gantry_image *image);
/* How the command of a launch ends that was accepted, and that the driver then refused with @error. */
void gantry_rows_refuse(struct gantry_done *done, int error);

#endif
