/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a guest reaches its agent: what differs between a Unix socket, an ivshmem device and a vsock
 * port. The segment, the rings and everything after the handshake are the same for all.
 *
 * Returns: as guest-shim/error.h says, statuses with their sentence recorded.
 * Trust: what the agent sends is checked before it is used; a bad agent must not crash a guest.
 * Threads: kick, peek and sleep may be called from any thread, at the same time as request; connect,
 * handshake and close while nobody else uses the cookie; request by one thread at a time.
 * Order of calls: connect, handshake, then the others, close last (also after a failed handshake).
 */
#ifndef GANTRY_GUEST_SHIM_TRANSPORT_H
#define GANTRY_GUEST_SHIM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest-shim/gantry.h"
#include "proto/door.h"
#include "proto/ring.h"

/* What a handshake brought. */
struct gantry_attachment {
	struct gantry_door_welcome welcome;
	int segment_fd;	      /* the receiver's, who closes it once it is mapped */
	uint64_t segment_off; /* where the segment starts in it, a multiple of a page */
	/*
	 * can_split: it may as well be mapped from two files, rings from rings_fd and the heap, to the segment's end, from heap_fd,
	 * which is write-combining memory: stores to it are fenced. Both are the receiver's. What other mappings of the same
	 * memory stand decides which way a kernel allows; is_split: this one is tried first.
	 */
	bool can_split;
	bool is_split;
	int rings_fd;
	int heap_fd;
	uint64_t split_off; /* where the segment starts in them */
	void *mapped; /* not NULL: it is mapped here, by a transport inside one process, and stays */
};

struct gantry_transport_ops {
	const char *prefix; /* of gantry_open()'s where: "unix:" */

	/* Reaches the agent at @where, which has no prefix any more. NO_AGENT, DENIED, ARG. */
	int (*connect)(const char *where, uint64_t deadline_ns, void **ret_cookie);

	/*
	 * Says @hello and waits for the answer. Checks the welcome as a message and that the
	 * segment cannot shrink under the guest; its numbers are the caller's to check. A refusal's
	 * status, NO_AGENT, PROTOCOL.
	 */
	int (*handshake)(void *cookie, const struct gantry_door_hello *hello, uint64_t deadline_ns,
			 struct gantry_attachment *ret_attachment);

	/* The segment is mapped, with this header, until after close; from two files, or one. NULL: nothing is done about it. */
	void (*mapped)(void *cookie, struct gantry_segment_header *header, bool is_split);

	/* Wakes the host. Never blocks, never fails: a full bell is a bell that rings already. */
	void (*kick)(void *cookie);

	/*
	 * Sends @msg (a door message; its tag is filled in here) and waits for the answer of kind
	 * @kind. @ret_answer holds as many bytes as that kind has. TIMEOUT, DETACHED, PROTOCOL.
	 */
	int (*request)(void *cookie, void *msg, uint16_t kind, void *ret_answer,
		       uint64_t deadline_ns);

	/*
	 * Whether the agent is still there; never waits. 0, or -ECONNRESET (no sentence) once it
	 * hung up. *@ret_notice is the last notice that came, status 0 if none did; written in both
	 * cases.
	 */
	int (*peek)(void *cookie, struct gantry_door_refuse *ret_notice);

	/*
	 * Sleeps until @map's done may have reached @seq, until @deadline_ns at the longest; may come
	 * back early. NULL: the host wakes futexes of the segment. From any thread.
	 */
	void (*sleep)(void *cookie, const struct gantry_ring_map *map, uint64_t seq,
		      uint64_t deadline_ns);

	/* The segment's words change only inside peek and sleep: spinning on them is in vain. */
	bool is_pumped;

	/* The host has CPUs of its own: whoever spins keeps it from nothing, on one CPU too. */
	bool is_apart;

	/* Hangs up, or in a forked child frees the child's copy without hanging up. */
	void (*close)(void *cookie);
};

extern const struct gantry_transport_ops gantry_transport_unix;
extern const struct gantry_transport_ops gantry_transport_ivshmem;
extern const struct gantry_transport_ops gantry_transport_vsock;
extern const struct gantry_transport_ops gantry_transport_stream;

/*
 * gantry_open() over a transport of the caller's; for tests and for programs that hold both ends.
 * Takes @cookie over: it is closed on failure too. Not part of the shared library.
 */
int gantry_session_open_transport(const struct gantry_transport_ops *ops, void *cookie,
				  const struct gantry_limits *ask,
				  struct gantry_session **ret_session);

/* The same of gantry_session_adopt(), with a HELLO of the caller's. */
int gantry_session_adopt_transport(const struct gantry_transport_ops *ops, void *cookie,
				   const struct gantry_door_hello *hello, uint64_t deadline_ns,
				   struct gantry_session **ret_session);

#endif
