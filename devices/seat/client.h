/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the backend of a seat: a device that another process holds. client.c has its life, memory and images, run.c its commands, link.c
 * its socket.
 *
 * Order of a stream. Launches go to the holder, whose device keeps their order. Copies and fills are done here, by poll(), once all
 * before them has ended; so are launches handed over whose buffers lie in memory without a descriptor that the holder may map: such a
 * *private* buffer is copied to memory that it has (the stream's bounce) and back, and nothing follows until then. All bounces together
 * are no larger than the board's memory, for launches that need more could not be on it at once: others wait, in the order in which they
 * asked, and what the bounces of idle streams hold is given back for them.
 *
 * Threads: the device thread's, except where a member says otherwise. One thread of the backend reads the holder's socket.
 */
#ifndef GANTRY_DEVICES_SEAT_CLIENT_H
#define GANTRY_DEVICES_SEAT_CLIENT_H

#include <pthread.h>
#include <stdbool.h>

#include "base/list.h"
#include "devices/hostmem.h"
#include "devices/seat/seat.h"

/* Pieces that are left to bounces: no more launches can be under way. What is imported beyond is private. */
#define GANTRY_SEAT_MAX_IMPORTS (GANTRY_SEAT_MAX_MEMS - GANTRY_SEAT_TASKS)
#define GANTRY_SEAT_DEPTH	32u /* commands of a stream; a power of two */

struct gantry_kernel {
	struct gantry_list link;
	const struct gantry_signature *sig;
	uint32_t id;
};

struct gantry_image {
	struct gantry_list link;
	struct gantry_dev *dev;
	struct gantry_list kernels;
	uint32_t id;
};

struct gantry_mem {
	struct gantry_hostmem host; /* first */
	struct gantry_dev *dev;
	uint32_t id; /* 0: private */
};

enum gantry_seat_state {
	GANTRY_SEAT_WAITS = 0,
	GANTRY_SEAT_HANDED, /* to the holder */
	GANTRY_SEAT_ENDED,
};

struct gantry_seat_slot {
	struct gantry_cmd cmd;
	struct gantry_done done;
	enum gantry_seat_state state;
	uint32_t task; /* HANDED: in the page */
	bool bounced;
};

/* A stream of the holder's. A seat has few: when they are gone, queues share them, and their launches keep one order. */
struct gantry_seat_line {
	uint32_t id; /* 0: unused */
	int32_t priority;
	uint32_t nusers;
};

struct gantry_stream {
	struct gantry_list link;
	struct gantry_dev *dev;
	struct gantry_seat_line *line;
	/* Free-running: accepted; ended, in order; told by poll(); looked at first by the next pass. */
	uint32_t submitted;
	uint32_t ended;
	uint32_t told;
	uint32_t next;
	/* For private buffers. */
	unsigned char *bounce;
	uint64_t bounce_bytes;
	uint32_t bounce_id;
	struct gantry_seat_slot slots[GANTRY_SEAT_DEPTH];
};

struct gantry_dev {
	const struct gantry_device_host *host;
	int sock;
	int stop;		       /* of the thread */
	struct gantry_seat_page *page; /* set under the lock */
	uint32_t mem_align;
	uint64_t mem_bytes; /* the board's */
	pthread_t thread;
	bool started;
	uint32_t lost; /* atomic: enum gantry_seat_loss */
	uint32_t answer_ms;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock. */
	uint32_t asked; /* enum gantry_seat_what; 0: nothing, or answered */
	struct gantry_seat_answer answer;
	int answer_fd;
	char why[sizeof(
		((struct gantry_seat_answer *)0)->text)]; /* the holder took the seat away */

	struct gantry_list streams;
	struct gantry_list mems;
	struct gantry_list images;
	uint32_t put;
	uint32_t ended;
	struct gantry_seat_slot *tasks[GANTRY_SEAT_TASKS]; /* NULL: free */
	struct gantry_stream *owners[GANTRY_SEAT_TASKS];
	struct gantry_seat_line lines[GANTRY_SEAT_MAX_STREAMS];
	uint32_t npieces;	     /* of memory that the holder has for this seat */
	uint64_t bounce_bytes;	     /* of all streams */
	struct gantry_stream *waits; /* for a bounce, before all others; NULL: nobody */
};

enum gantry_seat_loss {
	GANTRY_SEAT_KEPT = 0,
	GANTRY_SEAT_HOLDER_GONE, /* the agent ends this process; if it does not, the seat counts as refused */
	GANTRY_SEAT_REFUSED, /* the holder has taken the seat away */
};

/* link.c */
/* With the socket and the patience; stop() also after a start that failed. */
int gantry_seat_link_start(struct gantry_dev *dev, struct gantry_err *err);
void gantry_seat_link_stop(struct gantry_dev *dev);
/*
 * Asks the holder and waits for its answer, and the descriptor that comes with it, the caller's. The holder's -errno; -EIO: the seat
 * is lost, also because no answer came in time; -ENODEV: the holder is gone.
 */
int gantry_seat_ask(struct gantry_dev *dev, const struct gantry_seat_ask *ask, int fd,
		    struct gantry_seat_answer *ret_answer, int *ret_fd, struct gantry_err *err);
/* Says something that has no answer; where there is no room it waits, and the seat is lost after as long as an answer may take. */
void gantry_seat_say(struct gantry_dev *dev, uint32_t what, uint32_t id);
/* Wakes the holder. */
void gantry_seat_ring(struct gantry_dev *dev);

/* run.c */
int gantry_seat_stream_create(struct gantry_dev *dev, const struct gantry_stream_attr *attr,
			      struct gantry_stream **ret_stream, struct gantry_err *err);
void gantry_seat_stream_destroy(struct gantry_stream *stream);
int gantry_seat_submit(struct gantry_stream *stream, const struct gantry_cmd *cmd);
unsigned gantry_seat_poll(struct gantry_dev *dev, struct gantry_done *ret_done, unsigned n);

#endif
