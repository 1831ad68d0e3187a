/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The far side of a session, for tests: an agent that welcomes, refuses or misbehaves at a door, and a
 * host that serves the segment's rings with the consumer end of proto/ring.h. Two threads.
 *
 * GANTRY_TEST_DOOR names the kind of door ("unix" if unset): the same tests hold for all of them.
 *
 * A launch with est_us = n fails with status -n; otherwise it does nothing. Copies, fills, reads
 * and writes move real bytes.
 * Order of calls: init; change what a test wants otherwise; start; ...; stop.
 */
#ifndef GANTRY_TESTS_FAKE_HOST_H
#define GANTRY_TESTS_FAKE_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/codec.h"
#include "proto/door.h"
#include "proto/ring.h"

#define FAKE_BUFFERS 256u
#define FAKE_SEEN    4096u

enum fake_answer {
	FAKE_WELCOME,
	FAKE_REFUSE,	 /* with refuse_status */
	FAKE_MAKES_WAY,	 /* NOTICE, AGAIN: another agent comes */
	FAKE_GARBAGE,	 /* bytes that are no message */
	FAKE_WRONG_KIND, /* a message that is no answer to HELLO */
	FAKE_SILENCE,
	FAKE_HANG_UP,
	FAKE_NO_SEGMENT,  /* a welcome without a segment */
	FAKE_BAD_BELL,	  /* a welcome whose bell is none */
	FAKE_BAD_SEGMENT, /* a welcome whose segment could go away under the guest */
};

struct fake_buffer {
	uint64_t handle;
	uint64_t bytes;
	uint8_t *mem; /* NULL: freed */
	bool is_heap;
};

/* One operation as it came out of a ring. */
struct fake_seen {
	uint32_t queue;
	uint64_t seq;
	struct gantry_desc desc;
	uint8_t var[512]; /* its variable part's start */
};

struct fake_door;

struct fake_host {
	/* what a test may change before start */
	const struct fake_door *door;
	enum fake_answer answer;
	int32_t refuse_status;
	uint32_t nqueues;
	uint32_t nslots;
	uint32_t props;
	uint64_t heap_bytes;
	uint64_t address;
	bool is_awake; /* it looks at its rings all the time, and asks for no bell */
	void (*mangle)(struct fake_host *h, struct gantry_door_welcome *welcome);

	/* what a test may change at any time, atomically */
	uint32_t hold_tasks;   /* 1: task queues are not served */
	uint32_t hold_control; /* 1: the control queue is not served */
	uint32_t nagain;       /* so many buf_allocs answer AGAIN */
	uint32_t mute_door;    /* 1: requests at the door are not answered */
	uint32_t break_stream; /* 1: a stream breaks, and whoever comes back is not answered */

	/* what a test may look at */
	char where[108];
	uint8_t *segment;
	struct gantry_segment_header *header;
	uint8_t *heap;
	struct gantry_door_hello hello;
	struct fake_seen *seen; /* of task queues and control queue alike */
	uint32_t nseen;		/* atomic */
	uint32_t nkicks;	/* atomic */
	uint32_t nleft;		/* atomic: connections that ended; of doors that have such */

	/* its own */
	pthread_mutex_t lock; /* held while operations are carried out; see fake_host_settle() */
	uint64_t segment_bytes;
	uint64_t segment_off; /* in segment_fd */
	int segment_fd;
	int bell;
	void *door_state;
	uint32_t stop;
	bool started;
	pthread_t agent_thread;
	pthread_t host_thread;
	struct gantry_ring_consumer rings[GANTRY_MAX_QUEUES];
	uint64_t nfailed[GANTRY_MAX_QUEUES];
	bool queue_open[GANTRY_MAX_QUEUES];
	struct fake_buffer buffers[FAKE_BUFFERS];
	uint32_t nbuffers;
	uint32_t nhandles;
	uint64_t shared; /* atomic: the buffer behind the one token */
};

/* Whether guest and host see the same memory through this kind of door: else some things are the transport's, not the host's. */
bool fake_host_shares_memory(void);

void fake_host_init(struct fake_host *h);
void fake_host_start(struct fake_host *h);
void fake_host_stop(struct fake_host *h);

/*
 * What the host did so far happened before what the caller does next. The two sides map the segment
 * at different addresses, so ThreadSanitizer does not see what orders them. The functions below do
 * it too.
 */
void fake_host_settle(struct fake_host *h);

/* Ends the session as a host does: state and reason, then (if @hang_up) the door. */
void fake_host_detach(struct fake_host *h, int reason, bool hang_up);
/* Closes the door and says nothing. */
void fake_host_hang_up(struct fake_host *h);
void fake_host_notice(struct fake_host *h, int status, const char *text);
/* WELCOME once more, as an agent does that cannot know whether the one before said it. */
void fake_host_welcome_again(struct fake_host *h);

/* Operations of kind @op seen so far; the last of them, or NULL. */
uint32_t fake_host_count(struct fake_host *h, uint16_t op);
const struct fake_seen *fake_host_last(struct fake_host *h, uint16_t op);

/* A buffer that its guest has not freed, or NULL. */
const struct fake_buffer *fake_host_buffer(struct fake_host *h, uint64_t handle);

#endif
