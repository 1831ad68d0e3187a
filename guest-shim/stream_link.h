/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's copy of a session's segment, where no memory is shared with the host: what was put into its rings goes
 * out as frames, what frames say has finished comes into its words. libgantry works on the copy as on any segment.
 *
 * A stream that breaks changes nothing in the copy: gantry_link_restart() goes back to what the host has.
 * Trust: frames are the host's. Each is bounded by the copy's layout, so that a broken host ends the session and no more.
 * Threads: one side sends and one receives, at the same time; each is one thread at a time. restart: both at once.
 * Blocking: never. Returns: -errno. -EPROTO: the host breaks the rules.
 */
#ifndef GANTRY_GUEST_SHIM_STREAM_LINK_H
#define GANTRY_GUEST_SHIM_STREAM_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/region.h"
#include "proto/ring.h"
#include "proto/segment.h"
#include "proto/stream.h"

struct gantry_link_queue {
	struct gantry_ring_map map;
	uint64_t sent;	    /* tasks; the sending side's */
	uint64_t data_sent; /* bytes of the next one's data that went */
	uint64_t barrier;   /* what the control operations under way come after */
};

struct gantry_link {
	struct gantry_region segment; /* owned: anonymous memory, not in forked children */
	struct gantry_region heap;
	struct gantry_segment_header *header;
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t next; /* the queue whose turn it is */
	uint64_t
		control_end; /* control operations below this may go once the barriers are reached */
	/* An image that the host has and has not finished loading: asked for again, it need not go again. All atomic. */
	uint64_t loading[sizeof(((struct gantry_desc *)0)->imm) / sizeof(uint64_t)];
	uint64_t loading_until_ns; /* 0: there is none. The host forgets it after a while, too */
	uint64_t bytes_out;
	struct gantry_link_queue queues[GANTRY_MAX_QUEUES];
};

/* Memory for the session that @w announces (checked as a message only). -EPROTO: its numbers make no sense; -ENOMEM. */
int gantry_link_init(struct gantry_link *l, const struct gantry_door_welcome *w);

/* @is_ours: not in a forked child, which has none of the memory. */
void gantry_link_fini(struct gantry_link *l, bool is_ours);

/* The guest's positions, as a frame. -EAGAIN: no room in @tx. */
int gantry_link_put_positions(const struct gantry_link *l, struct gantry_stream_tx *tx);

/* The host's positions: sending goes on from there. */
int gantry_link_restart(struct gantry_link *l, const struct gantry_stream_positions *p);

/*
 * Puts what is to be sent next into @tx. 1: something; 0: nothing is left; -EAGAIN: @tx is full.
 *
 * Queues take turns, by pieces. A task goes after all that was put before it in its queue; a wait after the tasks it
 * waits for; a control operation after all that was put before it anywhere: nothing else has an order.
 */
int gantry_link_put_next(struct gantry_link *l, struct gantry_stream_tx *tx);

/* Whether something waits to be sent. */
bool gantry_link_has_more(const struct gantry_link *l);

/* Where DATA goes; NULL: it goes nowhere. */
void *gantry_link_place(struct gantry_link *l, uint64_t heap_off, uint32_t bytes);

/* Takes a DONE or STATE. */
int gantry_link_take(struct gantry_link *l, const struct gantry_door_header *frame);

#endif
