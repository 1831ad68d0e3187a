/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session whose guest is at the end of a stream: the guest's end of the segment, kept by us, and the frames that say
 * what changed in it (SPEC.md 13.2).
 *
 * Trust: frames are a guest's. Each is checked against the segment's layout before anything of it goes in there; what a
 * guest can reach is its own heap and rings, as a guest that shares memory can. The worker is trusted as little as by any guest: what it
 * writes is bounded.
 * Threads: one. Blocking: never. Memory: the bridge and its tables; nothing grows with what a guest sends.
 * A stream that breaks changes nothing in the segment: gantry_bridge_connect() goes on where both sides are.
 * Returns: 0 or -errno; -EPROTO: the guest broke the rules, and ->complaint says how; -ECONNRESET: the stream broke.
 */
#ifndef GANTRY_HOST_AGENT_RELAY_BRIDGE_H
#define GANTRY_HOST_AGENT_RELAY_BRIDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/region.h"
#include "proto/ring.h"
#include "proto/segment.h"
#include "proto/stream.h"

#define GANTRY_BRIDGE_ANSWER_MAX 64u /* an answer of the door */

/* What the bridge does not do itself. */
struct gantry_bridge_events {
	void *cookie;
	void (*ring_bell)(void *cookie); /* the worker sleeps and there is work */
	/* A request for the agent. Not 0: it cannot be sent, the session ends. */
	int (*request)(void *cookie, const struct gantry_door_header *msg);
};

struct gantry_bridge_queue {
	struct gantry_ring_map map;
	uint64_t tail;		  /* tasks that the guest gave us */
	uint64_t told;		  /* finished ones that the guest was told of */
	uint64_t data_sent;	  /* bytes of the next one's data that went */
	struct gantry_desc *desc; /* by slot: what was put, for what it writes to the heap. Owned */
};

struct gantry_bridge {
	struct gantry_region segment;
	struct gantry_region heap;
	struct gantry_segment_header *header;
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t next;	/* the queue whose turn it is */
	uint32_t state; /* as the guest was told */
	uint64_t epoch;
	uint32_t grace_ms;
	const struct gantry_bridge_events *events;
	int sock;	  /* borrowed; -EBADF: no stream */
	bool in_step;	  /* the guest's positions came: frames may go */
	bool is_left;	  /* the guest said that it does not come back */
	bool is_waiting;  /* `waiters` are set */
	uint32_t request; /* tag of the request under way or answered last; 0: none */
	uint32_t answer_bytes;
	bool answer_is_due; /* to be sent */
	bool notice_is_due;
	_Alignas(8) uint8_t answer[GANTRY_BRIDGE_ANSWER_MAX]; /* kept for a guest that asks again */
	struct gantry_door_refuse notice;
	const char *complaint;
	uint64_t tasks;	   /* put */
	uint64_t bytes_in; /* of heap data */
	uint64_t bytes_out;
	uint64_t reconnects;
	struct gantry_bridge_queue queues[GANTRY_MAX_QUEUES];
	struct gantry_stream_rx rx;
	struct gantry_stream_tx tx;
};

/*
 * Over a segment of @layout, mapped at @base, where that is: fresh, or used before. NULL: no memory, or positions that
 * cannot be. @events stay where they are.
 */
struct gantry_bridge *gantry_bridge_new(void *base, const struct gantry_segment_layout *layout,
					uint32_t grace_ms,
					const struct gantry_bridge_events *events);
void gantry_bridge_free(struct gantry_bridge *b);

/* A stream to the guest: @welcome goes first, then positions. @sock stays the caller's. */
void gantry_bridge_connect(struct gantry_bridge *b, int sock,
			   const struct gantry_door_welcome *welcome);
void gantry_bridge_disconnect(struct gantry_bridge *b);

/* What came from the guest, some of it: 0, GANTRY_STREAM_CAME or GANTRY_STREAM_CAME_MORE. */
int gantry_bridge_receive(struct gantry_bridge *b);

/* Sends what is to be told. 0: all went; -EAGAIN: when there is room again. */
int gantry_bridge_send(struct gantry_bridge *b);

/* An answer or notice of the agent for the guest. */
void gantry_bridge_forward(struct gantry_bridge *b, const struct gantry_door_header *msg);

/* Whether something finished, or the state changed, that the guest has not been told. */
bool gantry_bridge_has_news(const struct gantry_bridge *b);

/* Whether tasks are under way. */
bool gantry_bridge_is_busy(const struct gantry_bridge *b);

/*
 * Before a sleep: the worker is to wake us. false: there is news already. After it: leave.
 */
bool gantry_bridge_wait_enter(struct gantry_bridge *b);
void gantry_bridge_wait_leave(struct gantry_bridge *b);

#endif
