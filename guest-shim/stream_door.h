/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection of a door without shared memory: made, greeted, lost, found again; what goes out over it and what comes
 * in. stream.c decides who does that when; stream_link.h keeps the segment's copy in step.
 *
 * Locks, in this order: recv_lock, that of forks.h, send_lock. Functions that end in _locked want send_lock, those that
 * receive, connect and end want recv_lock.
 */
#ifndef GANTRY_GUEST_SHIM_STREAM_DOOR_H
#define GANTRY_GUEST_SHIM_STREAM_DOOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "guest-shim/forks.h"
#include "guest-shim/stream_link.h"
#include "proto/door.h"

#define GANTRY_STREAM_REQUEST_MAX 64u
/* Who waits in a receive does not hear a nudge: what another thread could not send waits for it so long at most. */
#define GANTRY_STREAM_WAIT_NS (5 * GANTRY_NS_PER_MS)

enum gantry_stream_door_state {
	GANTRY_STREAM_DOWN,	  /* no connection; the next try at retry_ns */
	GANTRY_STREAM_CONNECTING, /* connect() is under way */
	GANTRY_STREAM_GREETING,	  /* HELLO was sent */
	GANTRY_STREAM_SYNCING,	  /* WELCOME came, and the host's positions are to */
	GANTRY_STREAM_LIVE,
	GANTRY_STREAM_DEAD, /* for good: notice says why */
};

struct gantry_stream_door {
	pthread_mutex_t recv_lock; /* whoever receives, connects and ends */
	pthread_mutex_t
		send_lock; /* whoever sends; `sock` changes under both, and under forks.h's */
	struct gantry_fork_watch fork_watch;
	struct sockaddr_storage addr;
	socklen_t addr_len;
	pid_t pid; /* whose it is: a forked child's copy only closes */

	/* under recv_lock */
	struct gantry_door_refuse notice;
	struct gantry_door_hello hello;
	struct gantry_door_welcome welcome;
	bool is_welcome; /* `welcome` is the session's */
	bool has_more;	 /* the socket was not read to its end */
	bool can_wait;	 /* a receive may wait, GANTRY_STREAM_WAIT_NS long */
	uint32_t grace_ms;
	uint64_t lost_ns; /* 0: the connection is the first, or works */
	uint64_t retry_ns;
	uint64_t pause_ns;
	struct gantry_stream_rx rx;

	/* under send_lock; state is read without */
	uint32_t state;	    /* enum gantry_stream_door_state */
	uint32_t is_broken; /* a send failed: whoever receives looks */
	struct gantry_stream_tx tx;
	uint32_t tag;		/* of the request under way or answered last */
	uint32_t request_bytes; /* 0: none under way */
	bool request_is_due;
	_Alignas(8) uint8_t request[GANTRY_STREAM_REQUEST_MAX];

	/* under recv_lock, until answered is set */
	_Alignas(8) uint8_t answer[GANTRY_STREAM_REQUEST_MAX];
	uint32_t answered;

	uint32_t turn; /* futex of those who wait while another leads */
	uint32_t nfollowers;
	uint32_t is_polling; /* the leader sleeps in poll() */
	int nudge;	     /* eventfd: it looks again at what is to be sent */
	int sock;
	struct gantry_link link;
};

static inline uint32_t gantry_stream_door_state(const struct gantry_stream_door *d)
{
	return gantry_load_acquire(&d->state);
}

/* NULL: no memory, or no descriptor. Its address is the caller's to fill in. */
struct gantry_stream_door *gantry_stream_door_new(void);

/* Says farewell, if the door is this process's own. */
void gantry_stream_door_free(struct gantry_stream_door *d);

/* The first connection, which is greeted then: -errno of connect(), -ETIMEDOUT. It is not tried again. */
int gantry_stream_door_dial(struct gantry_stream_door *d, uint64_t deadline_ns);

/* Before anything was sent: begins with HELLO @hello. */
void gantry_stream_door_greet(struct gantry_stream_door *d, const struct gantry_door_hello *hello);

/* Sends what can be at once, and wakes the leader for the rest. Takes no lock that is held for long. */
void gantry_stream_door_kick(struct gantry_stream_door *d);

/* Puts a request of GANTRY_STREAM_REQUEST_MAX bytes at most, which gets a tag, and forgets the one before. */
void gantry_stream_door_ask(struct gantry_stream_door *d, struct gantry_door_header *msg);

/*
 * Connects, sends and receives what can be at once; one that @waits also waits for what comes, GANTRY_STREAM_WAIT_NS at
 * most. true: something came.
 */
bool gantry_stream_door_step(struct gantry_stream_door *d, bool waits);

/* Whether a step may wait instead of a poll, and saves a system call: where nothing is to be sent, and @left_ns is long. */
bool gantry_stream_door_may_wait(struct gantry_stream_door *d, uint64_t left_ns);

/* Until there is something for a step to do, or @deadline_ns. */
void gantry_stream_door_poll(struct gantry_stream_door *d, uint64_t deadline_ns);

/* Wakes those who sleep on `turn`. */
void gantry_stream_door_tell(struct gantry_stream_door *d);

#endif
