/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the demonstration programs share: a session with its kernels, tasks from packed arguments, and rounds of work
 * that are kept in flight and checked.
 *
 * These are ordinary guest programs: they know libgantry and nothing else of Gantry. Failures end the program with a
 * sentence, which is how a program of this size should fail.
 */
#ifndef GANTRY_DEMO_GUEST_H
#define GANTRY_DEMO_GUEST_H

#include <stddef.h>
#include <stdint.h>

#include "guest-shim/gantry.h"

/* Ends the program: "NAME: what: why". */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Ends the program when @status is a failure of libgantry's; else returns it. */
int check(int status, const char *what);

gantry_buffer alloc_buffer(struct gantry_session *s, uint64_t bytes);

/* Seconds of a clock that only goes forward. */
double now_s(void);

/*
 * One task. @args: a struct of the kernel's arguments in their order; fields for buffers are uint64_t and filled in by
 * the host. Its ticket is returned.
 */
gantry_ticket submit(struct gantry_session *s, gantry_queue queue, gantry_kernel kernel,
		     const void *args, size_t args_bytes, const struct gantry_access *access,
		     unsigned naccess);

#define ACCESS(type, field, handle, how)                                                   \
	{                                                                                  \
		.buffer = (handle), .mode = GANTRY_##how, .arg_off = offsetof(type, field) \
	}
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- rounds --- */

#define LANES_MAX 8u /* queues that work at once */
#define DEPTH	  4u /* rounds in flight on each */
#define NSUMS \
	1024u /* rounds between two looks at their results: a look waits for all that is in flight */

struct work;
/* Submits one round of work to @lane's queue; the last task writes a checksum of the result to sums[slot]. */
typedef gantry_ticket (*round_fn)(struct work *work, unsigned lane, unsigned slot);

struct work {
	struct gantry_session *session;
	unsigned nlanes;
	unsigned tasks_per_round;
	round_fn round;
	void *arg;

	gantry_queue queue[LANES_MAX];
	gantry_buffer sums[LANES_MAX]; /* NSUMS words each */
	gantry_kernel checksum;
};

/* Queues, checksum buffers and the checksum kernel. */
void work_open(struct work *work);

/* Adds up @bytes of @buffer into sums[slot] of @lane. */
gantry_ticket work_checksum(struct work *work, unsigned lane, unsigned slot, gantry_buffer buffer,
			    uint64_t bytes);

/*
 * Rounds on all queues until standard input ends, each compared with the first. Prints "started CHECKSUM" after the
 * first round, and at the end one line of key=value figures. Returns the exit status.
 */
int work_loop(struct work *work);

#endif
