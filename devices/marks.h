/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks: events that tell the end of a batch whose last command is a copy behind others, for backends that have it tell the end of other
 * batches by a word that the device writes.
 *
 * The word is written by the engine that launches kernels, which first has to learn from the copy engine that the copy is
 * done; what is submitted next waits for the write, and so does who waits for the copy, while another process has that engine. An event
 * belongs to the engine that copies. But to look at it takes a call of the driver, and the watcher does not (watch.h); so kernels keep the
 * word, and so do copies that come alone, for which it is the faster one, and those small enough to go in with the commands themselves.
 *
 * Threads: the device thread's.
 */
#ifndef GANTRY_DEVICES_MARKS_H
#define GANTRY_DEVICES_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "devices/device.h"
#include "devices/watch.h"

#define GANTRY_MARKS 4u

enum gantry_mark {
	GANTRY_MARK_AHEAD, /* what is before it has not all ended */
	GANTRY_MARK_PASSED,
	GANTRY_MARK_FAILED, /* and nothing else may ever tell that: the backend has noted a fault */
};

/* put: behind all that was enqueued; the event is made if *@event is NULL; false: not now. destroy: passed, or of a context that has failed. */
struct gantry_marks_driver {
	bool (*put)(struct gantry_stream *stream, void **event);
	enum gantry_mark (*look)(struct gantry_stream *stream, void *event);
	void (*destroy)(struct gantry_stream *stream, void *event);
};

/* Of a stream; zero at first but for the first three. Positions are free-running, as the word is. */
struct gantry_marks {
	const struct gantry_marks_driver *driver;
	struct gantry_stream *stream;
	struct gantry_watch *watch;
	uint32_t written; /* backend: the newest word that was put */
	bool wanted; /* backend: the newest command is a copy that is better followed by a mark */
	bool unwritten;		    /* the newest batch in flight has a mark only */
	void *events[GANTRY_MARKS]; /* made when first used */
	uint32_t at[GANTRY_MARKS];  /* commands of the stream that have finished then */
	uint32_t first;		    /* oldest first, free-running */
	uint32_t next;
};

/* Is a copy of @len bytes between such memory better followed by a mark? */
bool gantry_marks_want(bool from_host, bool to_host, uint64_t len);
/* Puts one behind the @submitted commands so far, if the newest wants it. False: there is none. */
bool gantry_marks_put(struct gantry_marks *marks, uint32_t submitted);
/* A batch was sent; @unwritten: with a mark only. Such a one is in flight no more. */
void gantry_marks_sent(struct gantry_marks *marks, bool unwritten);
/* Who waits longer than this may sleep, and the word wakes it: both are put then. */
bool gantry_marks_need_word(uint64_t flying_ns);
/* How many commands of the stream have finished, as far as marks tell; never less than @finished. */
uint32_t gantry_marks_look(struct gantry_marks *marks, uint32_t finished);
/*
 * The stream's @word was seen; @all: of all that was sent the end is known. To the watcher what was told is no news, nor is the word that comes
 * behind a mark.
 */
void gantry_marks_seen(struct gantry_marks *marks, uint32_t place, uint32_t word, uint32_t finished,
		       bool all);
/* None is looked at any more. */
void gantry_marks_drop(struct gantry_marks *marks);
void gantry_marks_fini(struct gantry_marks *marks);

#endif
