/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes between the program and buffers in device memory, through pieces of the heap: this
 * side fills or empties one piece while the host moves the others.
 *
 * Transfers go through a queue of the library's own, opened at the first one, and start after all
 * that was submitted to the program's queues before them.
 * Threads: any; one transfer of a session at a time. Large ones are moved by several threads, which end with the call. Blocking: until the bytes are there; each step
 * at most the call timeout.
 */
#ifndef GANTRY_GUEST_SHIM_COPY_H
#define GANTRY_GUEST_SHIM_COPY_H

#include <stdint.h>

#include "guest-shim/ranges.h"
#include "guest-shim/session.h"

/*
 * A queue of the program's. Where buffers are in device memory the last place but one that is free becomes the library's own, so that a program
 * with all the queues it can have still reads and writes its buffers; a session of one queue leaves it to the program.
 */
int gantry_copy_open_beside(struct gantry_session *s, const struct gantry_queue_options *options,
			    uint64_t deadline_ns, gantry_queue *ret_queue);
int gantry_copy_in(struct gantry_session *s, gantry_buffer buffer, uint64_t off, const void *src,
		   uint64_t len);
int gantry_copy_out(struct gantry_session *s, gantry_buffer buffer, uint64_t off, void *dst,
		    uint64_t len);

/*
 * Between a buffer and the start of a piece of the heap that the caller holds. TIMEOUT: it may
 * still be going on.
 */
int gantry_copy_from_range(struct gantry_session *s, gantry_buffer buffer, uint64_t off,
			   const struct gantry_range *range, uint64_t len, uint64_t deadline_ns);
int gantry_copy_to_range(struct gantry_session *s, gantry_buffer buffer, uint64_t off,
			 const struct gantry_range *range, uint64_t len, uint64_t deadline_ns);

#endif
