/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session, as the files of this room share it.
 *
 * Trust: the segment and the door are written by the host; their numbers are bounded before use, so
 * that a broken host ends the session and not the program.
 * Threads: locks are listed in the order in which they may be taken. Nothing is waited for under
 * table_lock, heap_lock or end_lock.
 * Life: a session and its queue ends stay where they are from open to close, so tickets of a closed
 * queue can still be asked about.
 * Functions return as guest-shim/error.h says.
 */
#ifndef GANTRY_GUEST_SHIM_SESSION_H
#define GANTRY_GUEST_SHIM_SESSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "guest-shim/arena.h"
#include "guest-shim/buffers.h"
#include "guest-shim/failures.h"
#include "guest-shim/heap.h"
#include "guest-shim/transport.h"
#include "guest-shim/uses.h"
#include "proto/region.h"
#include "proto/ring.h"

#define GANTRY_CALL_TIMEOUT_NS INT64_C(10000000000)

/* The guest's end of one queue area. Slot 0 is the control queue. */
struct gantry_queue_end {
	/* whoever puts tasks; may be held while waiting for room */
	struct gantry_lock lock;
	struct gantry_ring_producer ring;
	uint64_t room_end;   /* positions below this may be filled */
	uint64_t nsubmitted; /* tasks, without the waits put before them */
	struct gantry_arena arena;

	/* read without the lock */
	uint64_t handle; /* 0: not open */
	uint64_t tail;	 /* put so far; at least what the area shows */
	uint32_t slot;
	uint32_t kind; /* of devices, as it was opened; GANTRY_KIND_ANY: any */
	struct gantry_failures failures;
	uint64_t wait_cycles; /* mean of waits, where devices work by themselves */
} __attribute__((aligned(64)));

/* A mapping made by gantry_map(). */
struct gantry_mapping {
	struct gantry_mapping *next;
	void *ptr;
	gantry_buffer buffer;
	uint64_t off;
	uint64_t len;
	int mode;
	struct gantry_range *staging; /* owned; NULL: the buffer's own memory */
};

/* A page that the kernel wipes in a forked child: how a call notices, without a system call. */
struct gantry_fork_mark {
	uint32_t is_ours;
};

struct gantry_session {
	struct gantry_fork_mark *mark;
	const struct gantry_transport_ops *transport;
	void *cookie;

	/* constant after open */
	struct gantry_region segment;
	bool segment_is_borrowed; /* mapped by the transport, which unmaps it */
	bool heap_is_loose;	  /* in write-combining memory; see gantry_session_order() */
	bool is_adopted;	  /* another process began it */
	bool takes_keys;	  /* its door does */
	bool takes_notes;	  /* the agent takes MISSING */
	struct gantry_region heap_region;
	struct gantry_segment_header *header;
	uint64_t session_id;
	int64_t call_timeout_ns;
	uint32_t version;
	uint32_t props; /* GANTRY_PROP_* */
	uint32_t nqueues;
	uint32_t nslots;
	unsigned int ncpus;

	struct gantry_lock copy_lock;	 /* one transfer through the copy queue at a time */
	struct gantry_lock request_lock; /* one request at the door at a time */
	/* queues[].lock; queues[0].lock last of them */

	pthread_mutex_t table_lock;
	struct gantry_buffers buffers;
	struct gantry_mapping *mappings;
	struct gantry_buffer_info *frees; /* to be told to the host, oldest first */
	struct gantry_buffer_info **frees_end;
	uint32_t nfrees; /* also read without the lock */

	struct gantry_uses uses;

	pthread_mutex_t heap_lock;
	struct gantry_heap heap;
	struct gantry_range *deferred; /* free once the tasks before them have finished */

	pthread_mutex_t end_lock;
	int ended; /* 0 or why; never changes again. Read without the lock */
	char end_text[GANTRY_DOOR_TEXT];
	uint64_t peek_at_ns; /* when the door is looked at next */

	uint64_t nwakeups;
	uint64_t nsleeps;

	uint32_t copy_lanes; /* of a large transfer; 0: by the CPUs there are (tests say more) */
	gantry_queue copy_queue; /* under copy_lock; 0: not opened yet */
	struct gantry_queue_end queues[GANTRY_MAX_QUEUES];
};

/*
 * Maps and checks what a handshake brought; the descriptor stays the caller's. PROTOCOL, NO_MEMORY.
 */
int gantry_session_map(struct gantry_session *s, const struct gantry_attachment *attachment);

/* Why a call cannot be made on @s: what gantry_session_enter() returns then. */
int gantry_session_why_not(struct gantry_session *s);

/* First of every call: a session, in the process that opened it. ARG, FORKED. */
static inline int gantry_session_enter(struct gantry_session *s)
{
	/* Relaxed: written once, before the session was known; only a fork changes it. */
	if (__builtin_expect(s && gantry_load_relaxed(&s->mark->is_ours), 1))
		return 0;
	return gantry_session_why_not(s);
}

/* Why it ended, of a session that is over: what gantry_session_alive() returns then. */
int gantry_session_why_over(struct gantry_session *s);

/* 0 while the session lives; else why it ended. Reads memory only. */
static inline int gantry_session_alive(struct gantry_session *s)
{
	/* Acquire: pairs with the host's release of the state; the reason is written before it. */
	if (__builtin_expect(!gantry_load_relaxed(&s->ended) &&
				     gantry_load_acquire(&s->header->state) !=
					     GANTRY_SESSION_DETACHED,
			     1))
		return 0;
	return gantry_session_why_over(s);
}

/* The same; also asks the door whether the agent hung up, when that was not done for a while. */
int gantry_session_look(struct gantry_session *s);

/* The same whenever it is called: for who has read what cannot be. */
int gantry_session_look_now(struct gantry_session *s);

/*
 * After this, what was stored to the heap before it is there, and what is read of the heap is not older than what was
 * seen before it. Processors see to that by themselves, but for write-combining memory.
 */
static inline void gantry_session_order(const struct gantry_session *s)
{
	if (__builtin_expect(s->heap_is_loose, 0))
		gantry_fence_full();
}

/* Ends the session on this side, unless it ended before. Returns why it ended. */
int gantry_session_end(struct gantry_session *s, int status, const char *text);

/* One request at the door, in its turn: as the transport's request, or why the session has ended. */
int gantry_session_request(struct gantry_session *s, void *msg, uint16_t kind, void *ret_answer);

/* The transport of the door at @where (NULL: the usual ones), connected. As gantry_open(). */
int gantry_session_reach(const char *where, uint64_t deadline_ns,
			 const struct gantry_transport_ops **ret_ops, void **ret_cookie);

/* A HELLO with @ask's wishes; NULL: none. */
void gantry_session_greeting(const struct gantry_limits *ask, struct gantry_door_hello *ret_hello);

/* A session over @cookie, which it takes over, also on failure. @call_timeout_ns is that of its calls. */
int gantry_session_begin(const struct gantry_transport_ops *ops, void *cookie,
			 const struct gantry_door_hello *hello, int64_t call_timeout_ns,
			 uint64_t deadline_ns, struct gantry_session **ret_session);

/* The deadline of a call that has none of its own. */
uint64_t gantry_session_deadline(const struct gantry_session *s);

#endif
