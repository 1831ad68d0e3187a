/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the host: spin for a while that adapts, then sleep on the queue's done word.
 *
 * Sleeps are cut into slices, because neither a dead agent nor a killed worker wakes anybody.
 * Threads: any. Blocking: until the deadline, or the session's end.
 */
#ifndef GANTRY_GUEST_SHIM_WAIT_H
#define GANTRY_GUEST_SHIM_WAIT_H

#include <stdint.h>

#include "guest-shim/session.h"

/* Until the first @seq tasks of @q have finished. TIMEOUT; or why the session ended. */
int gantry_wait_seq(struct gantry_session *s, struct gantry_queue_end *q, uint64_t seq,
		    uint64_t deadline_ns);

/* One sleep on @map's done, by the transport's means; returns early at any time, and at @deadline_ns. */
void gantry_wait_sleep(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq,
		       uint64_t deadline_ns);

/*
 * By queue slot: how many tasks were put and are not known to have finished; 0 for queues with none
 * of them.
 */
void gantry_wait_snapshot(struct gantry_session *s, uint64_t ret_tails[GANTRY_MAX_QUEUES]);

/* Until each queue has finished that many. As gantry_wait_seq(). */
int gantry_wait_tails(struct gantry_session *s, const uint64_t tails[GANTRY_MAX_QUEUES],
		      uint64_t deadline_ns);

/*
 * The queue end and sequence number of a ticket that is not 0. HANDLE: no task of this session has
 * it.
 */
int gantry_ticket_find(struct gantry_session *s, gantry_ticket ticket,
		       struct gantry_queue_end **ret_queue, uint64_t *ret_seq);

/* Status of the finished task @seq: 0 or negative; records no sentence. */
int gantry_ticket_status(struct gantry_queue_end *q, uint64_t seq);

#endif
