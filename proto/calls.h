/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Library calls: what the guest's forwarding libraries and the worker's module "calls" say to each other inside a
 * buffer, one call in each, or one behind those that nobody waits for. The task that carries it is a launch of the module's kernel.
 *
 * The buffer holds a gantry_calls_request with its items; the worker copies them once and puts a gantry_calls_reply
 * with its items in their place. Every item begins at a multiple of 8 bytes. Which items a function has, both sides
 * know from the same description (tools/stubgen); the function's number is a sum over that description, so that
 * sides that were made from different ones do not understand each other rather than wrongly.
 *
 *   value          its bytes
 *   handle         a number of the session's table, 0: NULL
 *   device memory  its address; NULL is 0
 *   bytes in       their length or GANTRY_CALLS_NULL, then they
 *   bytes out      their length or GANTRY_CALLS_NULL; the reply has them
 *   in either      enum gantry_calls_place, then an address or bytes in, bytes out
 *   parts of data  0: none; 1: a gantry_calls_spread with its parts, then bytes out for its format; 2: what was told as the last
 *   new object     0: no place for it; 1: the reply has its number; else its number, which the guest gives: of a free place
 *                  from GANTRY_CALLS_CHOSEN to twice that less 1 in the low 16 bits, and 15 bits of generation above
 */
#ifndef GANTRY_PROTO_CALLS_H
#define GANTRY_PROTO_CALLS_H

#include <assert.h>
#include <stdint.h>

#define GANTRY_CALLS_VERSION 1u
#define GANTRY_CALLS_NULL    UINT64_MAX
/* Of places in the table of objects the guest has so many for itself, from that one on. */
#define GANTRY_CALLS_CHOSEN 0x8000u
/* Of one request or reply. */
#define GANTRY_CALLS_MAX_BYTES (64ull << 20)
/* Devices that one object may be over. */
#define GANTRY_CALLS_MAX_PARTS 64u
/* The kernel of installed module "calls", and its signature: the buffer, and the bytes of it that the request has. */
#define GANTRY_CALLS_KERNEL    "library_call"
#define GANTRY_CALLS_SIGNATURE "rw:u8*,u64"

/* The same for a worker that takes several requests in one task (GANTRY_CALLS_MORE); one that has no such kernel takes one. */
#define GANTRY_CALLS_KERNEL_TOGETHER "library_calls"

/* The reply is written behind the request, at the next multiple of 8, rather than over it: it may be carried again. */
#define GANTRY_CALLS_KEEPS 1u
/*
 * Another request follows, at the next multiple of 8, and is served after this one, whatever came of it. It has no other flag, and nobody wants its
 * items: it has room for none. The last request of a task is without, and the reply is its; behind the reply's items lies what failed of the others.
 */
#define GANTRY_CALLS_MORE 2u
/* Requests of one task. */
#define GANTRY_CALLS_TOGETHER 32u

struct gantry_calls_request {
	uint32_t version;
	uint32_t flags; /* GANTRY_CALLS_KEEPS, or GANTRY_CALLS_MORE */
	uint64_t function;
	uint64_t bytes;	      /* of the items behind it */
	uint64_t reply_bytes; /* room for the reply's items */
};
static_assert(sizeof(struct gantry_calls_request) == 32, "gantry_calls_request is wire format");

enum gantry_calls_state {
	GANTRY_CALLS_WAITING = 0, /* never written by the worker */
	GANTRY_CALLS_RAN = 1,	  /* ret is what the library returned */
	GANTRY_CALLS_REFUSED = 2, /* an argument does not fit; the library was not called */
	GANTRY_CALLS_UNKNOWN = 3, /* no such function there, or no such library */
};

/*
 * The worker writes this last, with release: the rest of the reply is there, before the task that carried the call has ended, which
 * is when the device has come there. No request has it among its flags.
 */
#define GANTRY_CALLS_TOLD 0x746f6c64u

struct gantry_calls_reply {
	uint32_t state; /* enum gantry_calls_state */
	uint32_t told;	/* GANTRY_CALLS_TOLD, where the request had its flags */
	uint64_t ret;
	uint64_t bytes;	    /* of the items behind it; 0 where the library returned a failure */
	uint64_t nfailures; /* gantry_calls_failure behind the items, at the next multiple of 8 */
};
static_assert(sizeof(struct gantry_calls_reply) == 32, "gantry_calls_reply is wire format");

/* A request before the last one that did not run, or of which the library returned something else than 0. In their order. */
struct gantry_calls_failure {
	uint32_t place; /* of the request among its task's, from 0 */
	uint32_t state; /* enum gantry_calls_state */
	uint64_t ret;
};
static_assert(sizeof(struct gantry_calls_failure) == 16, "gantry_calls_failure is wire format");

/* Where the parts of data that lies on several devices are: what programs have as a cudaLibXtDesc. */
struct gantry_calls_spread {
	int32_t version;
	int32_t parts_version;
	int32_t library;
	int32_t format;
	uint64_t
		nparts; /* gantry_calls_part behind it, as many as devices that the object is over */
};
static_assert(sizeof(struct gantry_calls_spread) == 24, "gantry_calls_spread is wire format");

struct gantry_calls_part {
	uint64_t address;
	uint64_t bytes;
};

/* What such data would be for an object, of a format. */
struct gantry_calls_spread_measure {
	struct gantry_calls_spread spread;
	uint64_t host_bytes; /* as one piece, on the host */
	uint64_t bytes[GANTRY_CALLS_MAX_PARTS];
};

enum gantry_calls_place {
	GANTRY_CALLS_NOWHERE = 0,
	GANTRY_CALLS_DEVICE = 1,
	GANTRY_CALLS_HOST = 2,
};

#endif
