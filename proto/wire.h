/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a session's shared memory and of the descriptors in it. Normative text: SPEC.md.
 *
 * Trust: both sides map the segment read-write. What the guest writes is input to the host, read through
 * ring.h and region.h only. Each cache line has one writing side, named below; no field is ever the target
 * of a read-modify-write by both sides. There are no pointers, locks or enum-typed fields.
 */
#ifndef GANTRY_PROTO_WIRE_H
#define GANTRY_PROTO_WIRE_H

#include <assert.h>
#include <stdint.h>

#include "proto/asked.h"
#include "proto/vocab.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GANTRY_WIRE_MAGIC	0x3159525430544e47ull /* "GNT0TRY1" read as little-endian bytes */
#define GANTRY_WIRE_VERSION_MIN 1u
#define GANTRY_WIRE_VERSION_MAX 1u

/* Limits of the format. Tenants have smaller ones of their own. */
#define GANTRY_MAX_QUEUES	 64u /* per session, the control queue (slot 0) included */
#define GANTRY_MIN_SLOTS	 16u /* per ring, a power of two */
#define GANTRY_MAX_SLOTS	 4096u
#define GANTRY_DEFAULT_SLOTS	 256u
#define GANTRY_MAX_ACCESSES	 32u	/* per task */
#define GANTRY_MAX_ARGS_BYTES	 32768u /* packed arguments of one launch */
#define GANTRY_MAX_NAME		 96u	/* kernel, module and symbol names, with NUL */
#define GANTRY_MAX_SYMBOL	 1024u	/* of a kernel in a guest's image, with NUL */
#define GANTRY_MAX_IMAGE_LOG	 65536u /* of a compiler's log that a guest can have */
#define GANTRY_MAX_SIGNATURE	 512u	/* with NUL */
#define GANTRY_MAX_BUFFER_BYTES	 (1ull << 46)
#define GANTRY_MAX_IMAGE_BYTES	 (1ull << 30)
#define GANTRY_MAX_VAR_BYTES	 33792u /* variable part of one descriptor: accesses and arguments */
#define GANTRY_INLINE_BYTES	 192u	/* variable part that fits beside its descriptor */
#define GANTRY_SEGMENT_MIN_BYTES (1ull << 20)
#define GANTRY_SEGMENT_MAX_BYTES (1ull << 40)
#define GANTRY_LINE		 64u
#define GANTRY_PAGE		 4096u

#define GANTRY_DESC_INLINE    1u /* the variable part is in the slot's inline block, off_bytes is 0 */
#define GANTRY_DESC_FLAGS_ALL 1u

/* One submission. The position in the ring is its sequence number: the n-th put has seq n, from 1. */
struct gantry_desc {
	uint16_t op;	    /* id of ops.def */
	uint16_t flags;	    /* GANTRY_DESC_*; unknown bits are refused */
	uint32_t len_bytes; /* of the variable part, 0 for none */
	uint64_t off_bytes; /* of the variable part, from the start of the heap; 8-byte aligned */
	uint8_t imm[48];    /* struct gantry_op_NAME, zero after it */
};
static_assert(sizeof(struct gantry_desc) == 64, "gantry_desc is wire format");

/* Beside each descriptor: the variable part on the way in, the reply of a control operation on the way out. */
struct gantry_inline {
	uint8_t bytes[GANTRY_INLINE_BYTES];
};
static_assert(sizeof(struct gantry_inline) == 192, "gantry_inline is wire format");

/* One range of a buffer that a launch uses, and where its address goes among the arguments. */
struct gantry_wire_access {
	uint64_t buffer;
	uint64_t off;
	uint64_t len;  /* 0: to the end of the buffer */
	uint16_t mode; /* enum gantry_access_mode */
	uint16_t
		arg_off; /* byte offset of an 8-byte slot in the packed arguments; GANTRY_ARG_NONE: no argument */
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct gantry_wire_access) == 32, "gantry_wire_access is wire format");
#define GANTRY_ARG_NONE 0xffffu

/* Argument structs, one per operation: struct gantry_op_NAME, copied from and to gantry_desc.imm. */
#define GANTRY_OP_BEGIN(id, name, since, flags) struct gantry_op_##name {
#define GANTRY_FIELD(type, name, rule)		type name;
#define GANTRY_OP_END(name)                                  \
	}                                                    \
	;                                                    \
	static_assert(sizeof(struct gantry_op_##name) <= 48, \
		      "gantry_op_" #name " fits a descriptor");
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END

enum gantry_op {
#define GANTRY_OP_BEGIN(id, name, since, flags) GANTRY_OP_##name = id,
#define GANTRY_FIELD(type, name, rule)
#define GANTRY_OP_END(name)
#include "proto/ops.def"
#undef GANTRY_OP_BEGIN
#undef GANTRY_FIELD
#undef GANTRY_OP_END
};

/*
 * Replies of control operations: written by the host into the slot's inline block before the operation
 * finishes; the guest copies it out before it reuses the slot. status repeats the slot's status.
 */
struct gantry_reply {
	int32_t status;
	uint32_t len_bytes; /* of data */
	char text[72];	    /* one sentence where status is not 0, NUL-terminated */
	uint8_t data[112];
};
static_assert(sizeof(struct gantry_reply) == GANTRY_INLINE_BYTES, "gantry_reply is wire format");

struct gantry_reply_handle {
	uint64_t handle;
};

struct gantry_reply_kernel {
	uint64_t handle;
	uint32_t nargs;
	uint32_t args_bytes; /* packed size, natural alignment */
	uint32_t flags;	     /* GANTRY_KERNEL_* of devices/manifest.h */
	uint32_t kinds;	     /* bit k: a variant for devices of kind k exists */
};

struct gantry_reply_queue {
	uint64_t handle;
	uint32_t slot; /* which queue area of the segment */
	uint32_t reserved;
	uint64_t next_seq; /* sequence number of the first task put into it */
};

/* What an `ask` asks, and its reply. Numbers that are not named are 0. */
enum gantry_ask {
	GANTRY_ASK_DEVICE = 1,	   /* struct gantry_reply_device; NO_DEVICE past the last */
	GANTRY_ASK_ATTRIBUTES = 2, /* int32_t each: as many as fit, from the backend's number0 on */
	GANTRY_ASK_ADDRESS = 3,	   /* of buffer object, backed now: struct gantry_reply_address */
	GANTRY_ASK_KERNEL = 4,	   /* of kernel object: struct gantry_reply_function */
	GANTRY_ASK_PARAMS =
		5, /* of kernel object from parameter number0 on: struct gantry_reply_param each */
	GANTRY_ASK_OCCUPANCY =
		6, /* of kernel object with number0 threads, number1 bytes: uint32_t blocks */
	GANTRY_ASK_SET = 7, /* kernel object's attribute number0 becomes number1: nothing */
	GANTRY_ASK_LIMIT =
		8, /* limit number0 of what kernels may take becomes number1: uint64_t, what it is now */
	GANTRY_ASK_GRANULE = 9, /* of ranges and what is mapped there: uint64_t bytes */
	GANTRY_ASK_CLUSTERS =
		10, /* of kernel object with blocks GANTRY_ASK_BLOCK() number0, number1 bytes, in clusters GANTRY_ASK_BLOCK() number2: uint32_t at once; number2 0: blocks of a cluster at most */
	GANTRY_ASK_MANAGED =
		11, /* of buffer object, a variable of an image: uint32_t, whether programs are to see it where it is */
};
#define GANTRY_NASKS		  12u
#define GANTRY_ASK_BLOCK(x, y, z) ((uint64_t)(x) | (uint64_t)(y) << 16 | (uint64_t)(z) << 32)

/* What a `map` does. */
enum gantry_map_what {
	GANTRY_MAP_MAP =
		1, /* the buffer lies at off of the range too; nobody may use it there yet */
	GANTRY_MAP_UNMAP = 2,  /* nowhere but at its own address */
	GANTRY_MAP_RIGHTS = 3, /* what kernels may do where it is mapped: 0, GANTRY_R, GANTRY_RW */
};
#define GANTRY_NMAPS 4u

struct gantry_reply_device {
	uint32_t kind;
	uint32_t lanes;
	uint64_t mem_bytes; /* of the pool, or what the session may have */
	uint8_t uuid[16];   /* made for the session's device; not the board's */
	char name[48];	    /* model */
	char arch[16];
};
static_assert(sizeof(struct gantry_reply_device) <= 112, "gantry_reply_device fits a reply");

struct gantry_reply_address {
	uint64_t address; /* as kernels have it */
	uint64_t bytes;
};

struct gantry_reply_variable {
	uint64_t handle;
	uint64_t address;
	uint64_t bytes;
};

/*
 * At the start of a buffer with GANTRY_ALLOC_OUTPUT: what kernels of the session have printed by the end of the tasks that are
 * done. Behind it lie two rings of equal size, whole lines of memory each, of standard output and of standard error; byte i of what
 * came lies at i modulo that size. The host never waits for its reader: the newest stay.
 */
struct gantry_output {
	uint64_t put[2]; /* bytes that ever came; written last, with release */
	uint64_t lost;	 /* bytes of them that did not fit when they came */
	uint32_t
		fault; /* what ended the device's context, as its driver numbers it; 0: nothing has */
	uint32_t reserved[9];
};
static_assert(sizeof(struct gantry_output) == GANTRY_LINE, "gantry_output is a line");
#define GANTRY_OUTPUT_MIN_BYTES 4096u
/* Of each ring. */
#define GANTRY_OUTPUT_RING(bytes) \
	(((bytes) - sizeof(struct gantry_output)) / 2 / GANTRY_LINE * GANTRY_LINE)

/*
 * Properties are chosen so that what fits them fits the weakest device the session may use; they stay the
 * same for the life of the session.
 */
struct gantry_reply_props {
	uint32_t ndevices;	/* of the kind asked for; of any kind for GANTRY_KIND_ANY */
	uint32_t kinds;		/* bit k: devices of kind k */
	uint32_t lanes;		/* tasks that can run at once on the weakest device */
	uint32_t flags;		/* GANTRY_PROP_* */
	uint64_t mem_bytes;	/* resident device memory the session may hold */
	uint64_t virtual_bytes; /* device memory it may allocate */
	uint64_t heap_bytes;
	uint32_t nqueues; /* that may be open at once */
	uint32_t nslots;  /* of each ring */
	uint32_t window_us;
	int32_t priority_max;
	char name[48]; /* of the device class, never of a host's device */
};
static_assert(sizeof(struct gantry_reply_props) <= 112, "gantry_reply_props fits a reply");
#define GANTRY_PROP_HOST_DIRECT 1u /* devices work on the heap: host buffers need no copies */
#define GANTRY_PROP_TRANSLATED	2u /* the segment is mapped at another address than the worker's */
#define GANTRY_PROP_KEYS	4u /* in WELCOME: the door takes KEY */
#define GANTRY_PROP_NOTES	8u /* in WELCOME: the door takes MISSING */

struct gantry_reply_text {
	uint64_t bytes; /* of all of it; what did not fit is not there */
};

struct gantry_reply_stats {
	uint64_t tasks_finished;
	uint64_t tasks_failed;
	uint64_t device_ns;
	uint64_t bytes_in;	 /* write operations */
	uint64_t bytes_out;	 /* read operations */
	uint64_t virtual_bytes;	 /* allocated now */
	uint64_t resident_bytes; /* backed now */
	uint64_t resident_peak_bytes;
	uint64_t worker_restarts;
};
static_assert(sizeof(struct gantry_reply_stats) <= 112, "gantry_reply_stats fits a reply");

/* A buffer that there is: for whoever adopts the session and knows none. */
struct gantry_reply_buffer {
	uint64_t handle; /* 0: none is left */
	uint64_t bytes;
	uint64_t heap_off; /* of HOST ones, in the heap */
	uint32_t alloc_flags;
	uint32_t slot;
	uint32_t rights;
	uint32_t is_dying; /* 1: the handle is stale; tasks may still use the memory */
};
static_assert(sizeof(struct gantry_reply_buffer) <= 112, "gantry_reply_buffer fits a reply");

/* The same of a queue. Its positions are in its area. */
struct gantry_reply_queue_state {
	uint64_t handle; /* 0: none is left */
	uint32_t slot;
	uint32_t kind;
	int32_t priority;
	uint32_t reserved;
};
static_assert(sizeof(struct gantry_reply_queue_state) <= 112,
	      "gantry_reply_queue_state fits a reply");

/* Offset 0 of the segment. */
enum gantry_session_state {
	GANTRY_SESSION_STARTING = 0,
	GANTRY_SESSION_ATTACHED = 1,
	GANTRY_SESSION_RECOVERING = 2, /* no worker serves the rings just now; they may be filled */
	GANTRY_SESSION_DETACHED = 3,   /* for good; reason says why */
};

struct gantry_segment_header {
	/* line 0, host, constant while attached */
	uint64_t magic;
	uint32_t version;
	uint32_t nqueues; /* queue areas, slot 0 is the control queue */
	uint32_t nslots;  /* descriptors per ring */
	uint32_t queue_stride_bytes;
	uint64_t queues_off;
	uint64_t heap_off;
	uint64_t heap_bytes;
	uint64_t segment_bytes;
	uint64_t session_id;
	/* line 1, host */
	uint32_t state; /* enum gantry_session_state; the futex that a guest waits on for a state */
	int32_t reason; /* enum gantry_status once detached */
	uint64_t epoch; /* grows with every worker that takes the session */
	uint8_t pad0[48];
	/* line 2, guest */
	uint64_t
		bell; /* grows with every publication to any ring: the one line an idle host polls */
	uint32_t
		props; /* GANTRY_PROP_TRANSLATED as the guest finds it, once; for the administrator's eyes only */
	uint32_t
		listening; /* grows with each beginning of a wait for a byte; one byte at most for each */
	uint8_t pad1[48];
};
static_assert(sizeof(struct gantry_segment_header) == 192, "gantry_segment_header is wire format");

/* One per queue, at queues_off + slot * queue_stride_bytes. */
struct gantry_queue_area {
	/* line 0, guest */
	uint64_t tail;	  /* tasks put; release after the descriptors */
	uint32_t waiters; /* guest threads asleep on done (or about to be) */
	uint32_t
		is_own; /* 1: the guest library's, for copies; says it to a library that adopts the session */
	uint8_t pad0[48];
	/* line 1, host */
	uint64_t head;	  /* tasks taken: their slots may be filled again */
	uint64_t done;	  /* tasks finished; its low half is the futex that guests sleep on */
	uint64_t nfailed; /* of those, how many have a status other than 0 */
	uint32_t parked;  /* the host sleeps: ring the bell after a put */
	uint32_t state;	  /* enum gantry_queue_state */
	uint8_t pad1[32];
	/* then uint32_t status[nslots] (host): minus the status of the slot's last finished task;
	 * struct gantry_desc desc[nslots] (guest); struct gantry_inline inl[nslots] (guest in, host out) */
};
static_assert(sizeof(struct gantry_queue_area) == 128, "gantry_queue_area is wire format");

enum gantry_queue_state {
	GANTRY_QUEUE_CLOSED = 0,
	GANTRY_QUEUE_OPEN = 1,
	GANTRY_QUEUE_CLOSING = 2,
};

#ifdef __cplusplus
}
#endif

#endif
