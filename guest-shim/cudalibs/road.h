/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the forwarding libraries want of whoever has the process's device memory and streams: libcuda.so.1 exports it
 * under the name gantry_cuda_road, and so may a program that has them from libgantry itself. Where nobody does, every
 * call of a forwarding library fails with the library's word for that.
 *
 * Threads: all members may be called from any thread. Nothing here is freed by the caller.
 */
#ifndef GANTRY_GUEST_SHIM_CUDALIBS_ROAD_H
#define GANTRY_GUEST_SHIM_CUDALIBS_ROAD_H

#include <stdint.h>

#include "guest-shim/gantry.h"

#define GANTRY_CUDA_ROAD_VERSION 3u
#define GANTRY_CUDA_ROAD_SYMBOL	 "gantry_cuda_road"
#define GANTRY_CUDA_ROAD_USES	 32u
#define GANTRY_CUDA_ROAD_AFTER	 64u

/* Of gantry.h, as whoever has the session links it: a process may have libgantry more than once, each with sessions of its own. */
struct gantry_cuda_road_calls {
	__typeof__(&gantry_kernel_find) kernel_find;
	__typeof__(&gantry_alloc) alloc;
	__typeof__(&gantry_free) free;
	__typeof__(&gantry_map) map;
	__typeof__(&gantry_write) write;
	__typeof__(&gantry_read) read;
	__typeof__(&gantry_submit) submit;
	__typeof__(&gantry_wait) wait;
	__typeof__(&gantry_test) test;
};

#define GANTRY_CUDA_ROAD_CALLS                                                                 \
	{                                                                                      \
		.kernel_find = gantry_kernel_find, .alloc = gantry_alloc, .free = gantry_free, \
		.map = gantry_map, .write = gantry_write, .read = gantry_read,                 \
		.submit = gantry_submit, .wait = gantry_wait, .test = gantry_test,             \
	}

/* Bytes of a reply, in their order there, and the program's memory for them. */
struct gantry_cuda_road_answer {
	void *to;
	uint64_t bytes;
};

/* A call that becomes a node of a graph, which launches the kernel on a buffer of @room bytes with a copy of the message each time it runs. */
struct gantry_cuda_road_node {
	gantry_kernel kernel;
	const void *message; /* a gantry_calls_request; it stays as it is there */
	size_t bytes;
	size_t room;
	/* It waits for its answer, so it is refused. */
	int waits;
	/* Each time the graph runs they are written before its launch returns. */
	const struct gantry_cuda_road_answer *answers;
	uint32_t nanswers;
	/*
	 * Asked before it becomes one: of the calls that it comes behind each time it runs, those which are still under way, so many of at most
	 * GANTRY_CUDA_ROAD_AFTER. It may take its time. NULL: none.
	 */
	uint32_t (*behind)(void *cookie, gantry_ticket *ret_after);
	void *cookie;
};

/* Sized: new members are added at the end only. */
struct gantry_cuda_road {
	uint32_t size;
	uint32_t version;
	struct gantry_cuda_road_calls calls;
	/* The process's session, opened if it was not; NULL: there is none. */
	struct gantry_session *(*session)(void);
	/* The queue of @stream, as CUDA names it; NULL is the default stream. 0, or a status. */
	int (*queue)(void *stream, gantry_queue *ret_queue);
	/*
	 * 1: @address is the device's alone; 2: of memory of the host's that the device has at the same address (pinned, managed), which counts as
	 * the side where a call looks for it; 0: the device has nothing there (registered memory it has at another address).
	 */
	int (*is_device)(const void *address);
	/*
	 * Buffers that a call may use besides, with arg_off GANTRY_NO_ARG: at most @n. For memory that is not backed for
	 * good when it is allocated. NULL: all is.
	 */
	uint32_t (*uses)(struct gantry_access *ret_access, uint32_t n);
	/* A call was put into the queue of @stream, and whoever waits for the stream waits for it; one that was held is let go of. NULL: nobody does. */
	void (*put)(void *stream, gantry_ticket ticket);
	/* 1: @stream is captured, and the call is a node of its graph now; 0: it is not; a status: it is, and the call is refused. NULL: none ever is. */
	int (*capture)(void *stream, const struct gantry_cuda_road_node *node);
	/* Of the session, where one is open; it opens none. 0, or a status. NULL: nobody knows. */
	int (*stats)(struct gantry_stats *ret_stats);
	/* A function was called that is not there: it is counted, and the agent told. @name stays as long as the process. */
	void (*unsupported)(const char *name);
	/* What is read of the session's heap after this is not older than what was seen there before: gantry_session_order(). NULL: so it is. */
	void (*order)(void);
	/* The calling thread's device, as CUDA numbers the process's; negative: it has none. NULL: nobody knows. */
	int (*device)(void);
	/*
	 * The queue of the default stream, for calls that are no part of what streams do: nothing of its order is kept, and no stream that is
	 * captured is concerned. 0, or a status. NULL: they go as calls of the default stream.
	 */
	int (*apart)(gantry_queue *ret_queue);
	/* Whether @stream is captured. NULL: none ever is. */
	int (*captures)(void *stream);
	/* Whether the host's memory is not the program's: a session behind a stream. NULL: it is. */
	int (*is_far)(void);
	/*
	 * The queue of @stream where nothing is put into it now, and the one that apart tells on its device. 0, or a status. NULL: each call is a task of
	 * its own.
	 */
	int (*place)(void *stream, gantry_queue *ret_queue, gantry_queue *ret_apart);
	/*
	 * As queue and as place, and from then on the stream is the calling thread's: others wait before they put anything into it, until this one has put its call, or let go
	 * because there is none. NULL: queue serves, and what other threads put may come in between.
	 */
	int (*hold)(void *stream, gantry_queue *ret_queue, gantry_queue *ret_apart);
	void (*let_go)(void *stream);
	/* Device memory as the program would allocate it itself, on the calling thread's device. 0, or a status. NULL: there is none to be had. */
	int (*mem_alloc)(uint64_t bytes, uint64_t *ret_address);
	int (*mem_free)(uint64_t address);
	/* From the one to the other the calling thread's device is @device, with the context that the runtime has there. 0, or a status. NULL: nobody can. */
	int (*enter_device)(int device);
	void (*leave_device)(int device);
};

#endif
