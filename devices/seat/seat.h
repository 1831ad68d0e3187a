/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a worker and the process that holds a device which admits one process: what lies in the memory that they share, and
 * what they say.
 *
 * A worker has a *seat* at the device: a socket to its holder, given by the agent, and a page of memory with rings, made by the
 * holder. No guest ever has either. A message of one byte on the socket is a bell, either way: whether one end waits is its own affair,
 * where an eventfd would be one file whose flags and count either could change for both. The worker checks what guests ask, copies and fills in its own process, and puts launches
 * into the page; the holder submits them to the device and says there how they ended. Buffers are memory behind descriptors, which
 * the worker hands over the socket; what a guest's segment holds stays with the worker, which copies it.
 *
 * Trust: to the holder a worker is a peer that may be taken over: it copies what it takes, checks it and uses the copy; one that
 *   breaks the rules loses its seat. The page is sealed, as memory that a worker hands over has to be. The worker trusts its holder.
 * Threads: the device thread on either side.
 */
#ifndef GANTRY_DEVICES_SEAT_SEAT_H
#define GANTRY_DEVICES_SEAT_SEAT_H

#include <stdint.h>

#include "devices/device.h"
#include "devices/signature.h"

#define GANTRY_SEAT_VERSION	4u  /* of all that follows: a holder of another one refuses */
#define GANTRY_SEAT_TASKS	64u /* under way at once; a power of two */
#define GANTRY_SEAT_MAX_MEMS	256u
#define GANTRY_SEAT_MAX_STREAMS 32u /* so all seats' fit a board; queues beyond share them */
#define GANTRY_SEAT_MAX_IMAGES	64u
#define GANTRY_SEAT_MAX_KERNELS 512u
#define GANTRY_SEAT_PATH_MAX	512u

struct gantry_seat_arg {
	uint32_t mem; /* 1 and up: a buffer's memory; 0: a value, or no buffer */
	uint32_t reserved;
	uint64_t off; /* or the value's bytes */
	uint64_t len;
	uint64_t contents; /* a buffer's, as gantry_range has it */
};

/* A launch. */
struct gantry_seat_task {
	uint32_t stream;
	uint32_t kernel;
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t shared_bytes;
	uint32_t nargs;
	uint64_t makes;
	struct gantry_seat_arg args[GANTRY_MAX_CMD_ARGS];
};

struct gantry_seat_end {
	uint32_t slot;
	int32_t status; /* enum gantry_status */
	uint32_t blast;
	uint32_t reserved;
	uint64_t device_ns;
};

/*
 * Free-running positions. The worker writes what is in its part, the holder what is in its own; a slot is the worker's until its
 * number is queued, and again once its end is there.
 */
struct gantry_seat_page {
	struct {
		uint32_t put; /* slots queued so far */
		uint32_t queue[GANTRY_SEAT_TASKS];
		uint32_t cancel[GANTRY_SEAT_TASKS]; /* by slot; 1: its session is gone */
		uint32_t heard; /* changes when messages were read: the holder may ring again */
		struct gantry_seat_task tasks[GANTRY_SEAT_TASKS];
	} worker __attribute__((aligned(64)));
	struct {
		uint32_t asleep; /* 1: the bell wakes it */
		uint32_t ended;	 /* ends told so far */
		struct gantry_seat_end ends[GANTRY_SEAT_TASKS];
	} holder __attribute__((aligned(64)));
};

enum gantry_seat_what {
	GANTRY_SEAT_HELLO = 1,	/* version; answered with the page */
	GANTRY_SEAT_MEM,	/* with a descriptor: off, len */
	GANTRY_SEAT_MEM_END,	/* id; as all ENDs without an answer */
	GANTRY_SEAT_STREAM,	/* number: its priority */
	GANTRY_SEAT_STREAM_END, /* id */
	GANTRY_SEAT_IMAGE,	/* text: the path of an installed image */
	GANTRY_SEAT_IMAGE_END,	/* id */
	GANTRY_SEAT_KERNEL,	/* id: of the image; text: its name; signature */
	GANTRY_SEAT_CONDEMNED,	/* by the holder, unasked: text says why; the seat is gone */
};

/* One message of the socket, either way; numbers of things are 1 and up. */
struct gantry_seat_ask {
	uint32_t what; /* enum gantry_seat_what */
	uint32_t version;
	uint32_t id;
	int32_t number;
	uint64_t off;
	uint64_t len;
	char text[GANTRY_SEAT_PATH_MAX];
	char signature[GANTRY_SIGNATURE_TEXT_MAX];
};

struct gantry_seat_answer {
	uint32_t what; /* of the ask */
	int32_t r;     /* 0 or -errno, as of the member of gantry_backend */
	uint32_t id;
	uint32_t reserved;
	struct gantry_device_info info; /* HELLO; its pointer means nothing */
	char text[160];
};

#endif
