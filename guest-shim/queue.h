/* SPDX-License-Identifier: Apache-2.0 */
/* Queues by handle. Threads: any. */
#ifndef GANTRY_GUEST_SHIM_QUEUE_H
#define GANTRY_GUEST_SHIM_QUEUE_H

#include "guest-shim/batch.h"
#include "guest-shim/session.h"

/* gantry_batch_begin() on an open queue. HANDLE. */
int gantry_queue_begin(struct gantry_batch *b, struct gantry_session *s, gantry_queue queue,
		       uint64_t deadline_ns);

/* gantry_queue_open() after its checks; the library's own queue is opened by it too. */
int gantry_queue_end_open(struct gantry_session *s, const struct gantry_queue_options *options,
			  uint64_t deadline_ns, gantry_queue *ret_queue);

#endif
