/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words that guest, worker, agent and backends share: statuses, kinds, access modes, handles, tickets.
 *
 * Part of the public API (gantry.h includes it) and of the wire format: values never change meaning, new
 * ones are added at the end of their group.
 */
#ifndef GANTRY_PROTO_VOCAB_H
#define GANTRY_PROTO_VOCAB_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Statuses are zero or negative, in three groups by who must act.
 * Name, value, sentence: GANTRY_STATUS_LIST is the one list that enum, names and texts follow.
 */
#define GANTRY_STATUS_LIST(S)                                                                  \
	/* the call: change it, others of the session go on */                                 \
	S(ARG, -1, "an argument is out of its range")                                          \
	S(HANDLE, -2, "the handle is unknown, stale, or of another type")                      \
	S(SPAN, -3, "an offset and length reach past their object")                            \
	S(NO_KERNEL, -4, "no installed module or loaded image has this kernel")                \
	S(SIGNATURE, -5, "arguments do not fit the kernel's signature")                        \
	S(NO_DEVICE, -6, "no allowed device can run this")                                     \
	S(IMAGE, -7, "the image is not one that the device can load")                          \
	S(LIMIT, -8, "a limit of the tenant would be passed")                                  \
	S(NO_MEMORY, -9, "the device or the heap has no memory left")                          \
	S(UNSUPPORTED, -10, "not supported here")                                              \
	S(TIMEOUT, -11, "the time given has passed")                                           \
	S(AGAIN, -12, "not now: try again when earlier work has finished")                     \
	S(CANCELLED, -13, "the task was cancelled before it ran")                              \
	S(KERNEL, -14, "the kernel refused its arguments")                                     \
	S(IN_DOUBT, -15, "the task was running when its worker died; it may have had effects") \
	S(ACCESS, -16, "the rights to this object do not allow that")                          \
	S(INTERRUPTED, -17, "an earlier task failed and its queue stops at failures")          \
	S(EXISTS, -18, "an object of this name exists")                                        \
	S(NOT_FOUND, -19, "there is no such object")                                           \
	/* the session: close it and open another */                                           \
	S(PROTOCOL, -100, "the session was ended: its shared memory broke the rules")          \
	S(DETACHED, -101, "the session was ended by the host")                                 \
	S(FORKED, -102, "the session belongs to the parent process")                           \
	S(NO_AGENT, -103, "no agent answers at this door")                                     \
	S(VERSION, -104, "the agent and this library share no protocol version")               \
	S(DENIED, -105, "the door does not admit this process")                                \
	S(FULL, -106, "the tenant has no session left to give")                                \
	S(CLOSED, -107, "the session is closed")                                               \
	S(MOVED, -108, "the session is on another host now")                                   \
	/* the device: nothing the guest can mend */                                           \
	S(DEVICE_FAULT, -200, "the device faulted while it ran the task")                      \
	S(DEVICE_LOST, -201, "the device is gone")                                             \
	S(DEADLINE, -202, "the task ran past the tenant's deadline and was ended")             \
	S(INTERNAL, -203, "the host failed; its log says why")

enum gantry_status {
	GANTRY_OK = 0,
#define GANTRY_STATUS_ENUM(name, value, text) GANTRY_E_##name = value,
	GANTRY_STATUS_LIST(GANTRY_STATUS_ENUM)
#undef GANTRY_STATUS_ENUM
};

/* Kinds of device. A task asks for a kind, never for a device. */
enum gantry_kind {
	GANTRY_KIND_ANY = 0,
	GANTRY_KIND_CPU = 1,
	GANTRY_KIND_CUDA = 2,
	GANTRY_KIND_HIP = 3,
	GANTRY_KIND_OPENCL = 4,
	GANTRY_KIND_FPGA = 5,
	GANTRY_KIND_SIM = 6,
	GANTRY_KIND_NULL = 7,
};
#define GANTRY_NKINDS 8

/* How a task uses a range of a buffer. */
enum gantry_access_mode {
	GANTRY_R = 1,
	GANTRY_W = 2,
	GANTRY_RW = 3,
	GANTRY_C = 4, /* reads and writes that commute with other C accesses */
};

/*
 * Handles: slot in bits 0..23, generation in bits 24..55, type in bits 56..63; 0 is no handle.
 * They mean something inside their own session only, and are resolved by the host in its own table.
 */
enum gantry_handle_type {
	GANTRY_HANDLE_NONE = 0,
	GANTRY_HANDLE_BUFFER = 1,
	GANTRY_HANDLE_KERNEL = 2,
	GANTRY_HANDLE_IMAGE = 3,
	GANTRY_HANDLE_QUEUE = 4,
};
#define GANTRY_HANDLE_SLOT(h) ((uint32_t)((h)&0xffffffu))
#define GANTRY_HANDLE_GEN(h)  ((uint32_t)(((h) >> 24) & 0xffffffffu))
#define GANTRY_HANDLE_TYPE(h) ((uint32_t)((h) >> 56))
#define GANTRY_HANDLE(type, gen, slot) \
	(((uint64_t)(type) << 56) | ((uint64_t)(gen) << 24) | (uint64_t)(slot))

/*
 * A ticket names a task's completion: queue slot in bits 56..63, sequence number in bits 0..55.
 * Sequence numbers count for ever, also over a queue slot's reuse, so an old ticket stays finished.
 */
#define GANTRY_TICKET(queue_slot, seq) (((uint64_t)(queue_slot) << 56) | (uint64_t)(seq))
#define GANTRY_TICKET_QUEUE(t)	       ((uint32_t)((t) >> 56))
#define GANTRY_TICKET_SEQ(t)	       ((t)&0xffffffffffffffu)

/* gantry_alloc() flags. 0: the library chooses; host memory where all devices work on it directly. */
#define GANTRY_ALLOC_HOST   1u	/* in the session's segment: gantry_map() copies nothing */
#define GANTRY_ALLOC_DEVICE 2u	/* in device memory, backed at first use */
#define GANTRY_ALLOC_SHARED 4u	/* device memory of its own that gantry_share() can give away */
#define GANTRY_ALLOC_FIXED  8u	/* device memory that keeps its device address for life */
#define GANTRY_ALLOC_OUTPUT 16u /* with HOST: kernels print here: gantry_output */
#define GANTRY_ALLOC_WHOLE  32u /* with FIXED: own granules, for ranges */

/* Task flags. */
#define GANTRY_TASK_IDEMPOTENT 1u /* may run again after a fault that interrupted it */
#define GANTRY_TASK_TOGETHER   2u /* its blocks wait for each other: all run at once, or none */
/*
 * Blocks in a cluster, along x, y and z: 1 to 16 each; 0 in all: as the kernel has it. This and TOGETHER are for kernels of guests'
 * images on devices that know of it (GANTRY_CAP_GROUPS); others fail with GANTRY_E_UNSUPPORTED.
 */
#define GANTRY_TASK_CLUSTER(x, y, z) \
	((uint32_t)(x) << 8 | (uint32_t)(y) << 13 | (uint32_t)(z) << 18)
#define GANTRY_TASK_CLUSTER_OF(flags, axis) ((uint32_t)(flags) >> (8 + 5 * (axis)) & 31u)
#define GANTRY_TASK_GROUPS		    0x7fff02u /* all that says how its blocks are grouped */
#define GANTRY_TASK_FLAGS		    0x7fff03u

/* Keys of gantry_queue_set(). */
enum gantry_queue_key {
	GANTRY_QUEUE_PRIORITY =
		1, /* signed; higher runs first; the tenant's configuration caps it */
	GANTRY_QUEUE_DEVICE_MASK =
		2, /* bit i: the i-th device of the session may serve the queue; 0: all */
	GANTRY_QUEUE_WINDOW_US = 3, /* bound on work in flight, microseconds; 0: the default */
	GANTRY_QUEUE_FAIL_STOP =
		4,		 /* 1: after a failure later tasks fail with GANTRY_E_INTERRUPTED */
	GANTRY_QUEUE_PAUSED = 5, /* 1: nothing more is issued until it is 0 again */
};

/* The name of a status, "GANTRY_E_SPAN", and its sentence; "unknown" for other numbers. Thread-safe. */
const char *gantry_status_name(int status);
const char *gantry_status_text(int status);
const char *gantry_kind_name(int kind); /* "cpu", "cuda", ...; "unknown" */

#ifdef __cplusplus
}
#endif

#endif
