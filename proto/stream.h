/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over a stream (vsock) where there is no shared memory: frames that carry each side's news of the segment's
 * words to the other's copy of them, and both ends' framing. Normative text: SPEC.md 13.2.
 *
 * Trust: a receiver hands out frames whose kind and length are those of the format; what is in them is the caller's to
 * check. Payload of DATA goes straight to where the caller says.
 * Threads: each end is used by one thread at a time. Blocking: never, but for a receive that waits; sockets need not be
 * non-blocking.
 * Returns: -errno. -EPROTO: the other side breaks the format; -ECONNRESET: it is gone, or cannot be reached.
 */
#ifndef GANTRY_PROTO_STREAM_H
#define GANTRY_PROTO_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/door.h"

#define GANTRY_STREAM_PORT	  5710u /* of AF_VSOCK, unless configured */
#define GANTRY_STREAM_CHUNK	  65536u /* payload of one DATA: what a small task waits for at most */
#define GANTRY_STREAM_FRAME_MAX	  16384u /* of any other frame */
#define GANTRY_STREAM_GRACE_MAX_S 3600u

/* Beside enum gantry_door_kind. All are multiples of 8 bytes long, DATA without its payload. */
enum gantry_stream_kind {
	GANTRY_STREAM_POSITIONS = 32, /* both, once after WELCOME: struct gantry_stream_positions */
	GANTRY_STREAM_DATA = 33,      /* both: struct gantry_stream_data, then its payload */
	GANTRY_STREAM_PUT = 34,	      /* guest: struct gantry_stream_put, then tasks */
	GANTRY_STREAM_DONE = 35,      /* host: struct gantry_stream_done, then statuses, replies */
	GANTRY_STREAM_STATE = 36,     /* host: struct gantry_stream_state */
	GANTRY_STREAM_BYE = 37,	      /* guest: a header; it leaves, and does not come back */
};

/* Where each queue stands, by slot: the host's tails (tasks it has), or the guest's dones (tasks it saw finished). */
struct gantry_stream_positions {
	struct gantry_door_header h;
	uint64_t heap_bytes; /* host; guest: 0 */
	uint32_t nqueues;
	uint32_t grace_ms; /* host: how long it keeps a session whose stream broke; guest: 0 */
			   /* uint64_t at[nqueues] */
};
static_assert(sizeof(struct gantry_stream_positions) == 32,
	      "gantry_stream_positions is wire format");

/* Bytes of the heap: what a task that follows reads, or what one that is about to be done wrote. */
struct gantry_stream_data {
	struct gantry_door_header h; /* len_bytes includes the payload */
	uint64_t heap_off;
	/* 1 to GANTRY_STREAM_CHUNK bytes */
};
static_assert(sizeof(struct gantry_stream_data) == 24, "gantry_stream_data is wire format");

/* Tasks of the queue slot that h.tag names, at positions from pos on. */
struct gantry_stream_put {
	struct gantry_door_header h;
	uint64_t pos;
	/* one or more: struct gantry_desc, then its inline part if it has one, padded to 8 bytes with zeroes */
};
static_assert(sizeof(struct gantry_stream_put) == 24, "gantry_stream_put is wire format");

/* n tasks of the queue slot that h.tag names finished, at positions from pos on. */
struct gantry_stream_done {
	struct gantry_door_header h;
	uint64_t pos;
	uint64_t nfailed; /* the queue's count after them */
	uint32_t n;
	uint32_t nstatuses; /* n, or 0: all are 0 */
	/* uint32_t status[nstatuses] as in the segment, padded to 8 bytes; slot 0: struct gantry_reply[n] */
};
static_assert(sizeof(struct gantry_stream_done) == 40, "gantry_stream_done is wire format");

/* The segment header's words of that name. */
struct gantry_stream_state {
	struct gantry_door_header h;
	uint32_t state;
	int32_t reason;
	uint64_t epoch;
};
static_assert(sizeof(struct gantry_stream_state) == 32, "gantry_stream_state is wire format");

/* ---- ranges of the heap that travel with a task ---- */

struct gantry_stream_range {
	uint64_t off;
	uint64_t bytes;
};

#define GANTRY_STREAM_NRANGES 2u

/*
 * What @desc reads of the heap: its variable part, and the bytes of a write or an image. Ranges that do not lie inside
 * @heap_bytes are left out: the host refuses such a task. Returns how many.
 */
unsigned int gantry_stream_reads(const struct gantry_desc *desc, uint64_t heap_bytes,
				 struct gantry_stream_range ret_ranges[GANTRY_STREAM_NRANGES]);

/* What it writes there when it finishes with @status: 0 or 1 ranges. */
unsigned int gantry_stream_writes(const struct gantry_desc *desc, int status, uint64_t heap_bytes,
				  struct gantry_stream_range *ret_range);

/* ---- receiving ---- */

struct gantry_stream_rx {
	uint32_t begin;
	uint32_t end;
	uint8_t *payload; /* of a DATA frame, the rest of which is to come */
	uint32_t payload_bytes;
	uint8_t frame[GANTRY_STREAM_FRAME_MAX] __attribute__((aligned(8)));
	uint8_t buf[2 * GANTRY_STREAM_FRAME_MAX];
};

struct gantry_stream_sink {
	void *cookie;
	/* Where @bytes at @heap_off go. NULL: nowhere, the other side breaks the rules. */
	void *(*payload)(void *cookie, uint64_t heap_off, uint32_t bytes);
	/* A whole frame other than DATA, checked in kind and length, aligned to 8. Not 0: end receiving, return that. */
	int (*frame)(void *cookie, const struct gantry_door_header *frame);
};

void gantry_stream_rx_init(struct gantry_stream_rx *rx);

/*
 * One receive from @sock, and what frames that completes. 0: nothing was there; GANTRY_STREAM_CAME: that was all for now;
 * GANTRY_STREAM_CAME_MORE: there may be more; or negative, also what frame() returned. One that @waits does so as long as
 * the socket lets it: until its SO_RCVTIMEO, or a signal, if it blocks.
 */
#define GANTRY_STREAM_CAME	1
#define GANTRY_STREAM_CAME_MORE 2
int gantry_stream_receive(struct gantry_stream_rx *rx, int sock, bool waits,
			  const struct gantry_stream_sink *sink);

/* Length and kind of a frame's header: 0, or -EPROTO. */
int gantry_stream_check(const struct gantry_door_header *h);

/* ---- sending ---- */

struct gantry_stream_tx {
	uint32_t begin;
	uint32_t end;
	const uint8_t *payload; /* goes after what is in buf; stays where it is until then */
	uint32_t payload_bytes;
	uint8_t buf[2 * GANTRY_STREAM_FRAME_MAX] __attribute__((aligned(8)));
};

void gantry_stream_tx_init(struct gantry_stream_tx *tx);

static inline bool gantry_stream_tx_is_empty(const struct gantry_stream_tx *tx)
{
	return tx->begin == tx->end && tx->payload_bytes == 0;
}

/* Room for a frame of @bytes (a multiple of 8, up to GANTRY_STREAM_FRAME_MAX); NULL: flush first. */
void *gantry_stream_tx_room(struct gantry_stream_tx *tx, uint32_t bytes);
/* What was filled there follows what is being sent. */
void gantry_stream_tx_add(struct gantry_stream_tx *tx, uint32_t bytes);
/* A whole frame. -EAGAIN: flush first. */
int gantry_stream_tx_put(struct gantry_stream_tx *tx, const void *frame, uint32_t bytes);
/* A DATA frame; @ptr must stay as it is until it went. -EAGAIN: flush first. */
int gantry_stream_tx_data(struct gantry_stream_tx *tx, uint64_t heap_off, const void *ptr,
			  uint32_t bytes);
/* Sends what it can: 0: all went; -EAGAIN: not all. */
int gantry_stream_flush(struct gantry_stream_tx *tx, int sock);

/* A header of one of this file's kinds. */
void gantry_stream_header_init(struct gantry_door_header *h, uint16_t kind, uint32_t len_bytes,
			       uint32_t tag);

/* Rounds up to the 8 bytes that frames are made of. */
static inline uint32_t gantry_stream_pad(uint32_t bytes)
{
	return (bytes + 7u) & ~7u;
}

#endif
