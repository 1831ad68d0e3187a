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

#define GANTRY_CUDA_ROAD_VERSION 1u
#define GANTRY_CUDA_ROAD_SYMBOL	 "gantry_cuda_road"
#define GANTRY_CUDA_ROAD_USES	 32u

/* Sized: new members are added at the end only. */
struct gantry_cuda_road {
	uint32_t size;
	uint32_t version;
	/* The process's session, opened if it was not; NULL: there is none. */
	struct gantry_session *(*session)(void);
	/* The queue of @stream, as CUDA names it; NULL is the default stream. 0, or a status. */
	int (*queue)(void *stream, gantry_queue *ret_queue);
	/* Nonzero: @address is device memory, or host memory that the device has at the same address. */
	int (*is_device)(const void *address);
	/*
	 * Buffers that a call may use besides, with arg_off GANTRY_NO_ARG: at most @n. For memory that is not backed for
	 * good when it is allocated. NULL: all is.
	 */
	uint32_t (*uses)(struct gantry_access *ret_access, uint32_t n);
};

#endif
