/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device time of backends whose commands end by words: how long the device was at work for each of them, which is what
 * fairness counts.
 *
 * What the device thread sees is when a batch of commands has ended, not each of them. While n streams are at work each of
 * them has a nth of the device, so that overlap counts once. What the thread sees includes how late it looks, and behind
 * commands that take long it sleeps: batches that begin with one have two events around them, by the device's own clock. An
 * event costs most of a microsecond, so the others are watched closely. A batch's time goes to its commands by what each
 * was expected to take; expectations of kernels follow what they were given, so in batches of one kernel, which most are,
 * they become its mean.
 *
 * Threads: the device thread's.
 */
#ifndef GANTRY_DEVICES_DEVTIME_H
#define GANTRY_DEVICES_DEVTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/device.h"

#define GANTRY_DEVTIME_SPANS 4u

/* A command in flight. */
struct gantry_devtime_cmd {
	uint32_t estimate_ns; /* what it was expected to take; 0: nothing of it is on the device */
	uint32_t *mean_ns;    /* of its kernel; NULL: a copy or fill */
	uint64_t *device_ns;  /* of its gantry_done */
	bool closes;	      /* a batch ends with it */
};

/*
 * record: an event behind all that was enqueued, made if it is NULL; false: not now. elapsed: between two that have passed.
 * destroy: recorded and passed, or of a context that has failed. cmd_at: by its position in the stream.
 */
struct gantry_devtime_driver {
	bool (*record)(struct gantry_stream *stream, void **event);
	bool (*elapsed)(struct gantry_stream *stream, void *begin, void *end, float *ret_ms);
	void (*destroy)(struct gantry_stream *stream, void *event);
	struct gantry_devtime_cmd (*cmd_at)(struct gantry_stream *stream, uint32_t position);
};

/* Of a device; zero at first but for the first two. In cycles of the time stamp counter. */
struct gantry_devtime {
	const struct gantry_devtime_driver *driver;
	/* From submitting to an idle stream to seeing it finished, for nothing: nobody's device time. */
	uint64_t idle_cycles;
	uint64_t busy;
	uint64_t busy_at; /* when @busy was brought up to date */
	uint32_t nbusy;	  /* streams at work */
};

/* Of a stream; zero at first but for the first two. */
struct gantry_devtime_stream {
	struct gantry_devtime *of;
	struct gantry_stream *stream;
	bool started_idle;
	uint64_t busy_from; /* gantry_devtime.busy when what is in flight began */
	uint64_t seen_from; /* gantry_devtime.busy_at then */
	/* Batches with events around them; oldest first, free-running. */
	struct gantry_devtime_span {
		void *begin; /* both made when first used */
		void *end;
		uint32_t from; /* commands of the stream */
		uint32_t to;
	} spans[GANTRY_DEVTIME_SPANS];
	uint32_t first;
	uint32_t next;
	bool open; /* the batch that is gathered has its beginning */
};

/*
 * The shortest of several tries, for other work of the machine only adds to it: @write has the device write a number to @word,
 * and returns false when it cannot. False: it could not. Whether they all came is seen when the stream is idle.
 */
bool gantry_devtime_calibrate(struct gantry_devtime *time,
			      bool (*write)(void *cookie, uint32_t number), void *cookie,
			      const uint32_t *word);

/* The stream, which was idle, has something in flight; or, stop, has no more, after gantry_devtime_account(). */
void gantry_devtime_start(struct gantry_devtime_stream *time);
void gantry_devtime_stop(struct gantry_devtime_stream *time);
/* What is in flight is not on the device from now on. */
void gantry_devtime_pause(struct gantry_devtime_stream *time);

/* A batch begins with command @position, that is expected to take so long; @copies: it is a copy; @idle: nothing is before it. */
void gantry_devtime_open(struct gantry_devtime_stream *time, uint32_t position,
			 uint32_t estimate_ns, bool copies, bool idle);
/* It ends before command @position, with what was enqueued last. */
void gantry_devtime_close(struct gantry_devtime_stream *time, uint32_t position);
/* The commands from @from up to @end have ended, and get their time. */
void gantry_devtime_account(struct gantry_devtime_stream *time, uint32_t from, uint32_t end);
/* The context has failed: no event is looked at any more. */
void gantry_devtime_drop(struct gantry_devtime_stream *time);
void gantry_devtime_fini(struct gantry_devtime_stream *time);

/* What is expected of a launch of a kernel with @mean_ns, and of a copy or fill of @len bytes. */
uint32_t gantry_devtime_of_kernel(uint32_t mean_ns);
uint32_t gantry_devtime_of_bytes(uint64_t len, uint32_t bytes_per_ns);
/* What the oldest batch of the commands from @from up to @to is expected to take. */
uint64_t gantry_devtime_oldest(struct gantry_devtime_stream *time, uint32_t from, uint32_t to);
/* A launch has taken so long. */
void gantry_devtime_learn(uint32_t *mean_ns, uint64_t ns);
/* The least that a command which enqueued something is said to have taken. */
#define GANTRY_DEVTIME_FLOOR_NS 100u

#endif
