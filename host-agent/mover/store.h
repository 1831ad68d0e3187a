/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that have come, on their way into a session's memory: written from where they came to, many at once; by a thread while the next ones
 * are decrypted, or by who adds them.
 *
 * Trust: whoever adds pages has checked where they go. Threads: the calls are for one thread; the store may have another, from the first
 * pages on. Blocking: add() and hold() while as much waits as may, drain() until what was added is written.
 * Order: what was added earlier is written earlier, so of two contents of a page the later one stays.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_STORE_H
#define GANTRY_HOST_AGENT_MOVER_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Frees what bytes lay in; on the caller's thread. */
typedef void gantry_store_release_fn(void *holder);

struct gantry_store;

/*
 * -ENOMEM. @has_thread: quicker where a processor is to spare, and slower where source and destination have one each: what wakes and waits
 * there is a third thread for two. Where none can be had all is written by who adds.
 */
int gantry_store_new(gantry_store_release_fn *release, bool has_thread,
		     struct gantry_store **ret_store);
/* What was not drained may be lost, and is released. Takes NULL. */
void gantry_store_free(struct gantry_store *s);

/*
 * @bytes at @data are to be written to @off of @fd (borrowed until it is drained); they stay as they are until their holder is released. 0, or
 * what an earlier write failed with.
 */
int gantry_store_add(struct gantry_store *s, int fd, uint64_t off, const void *data, size_t bytes);
/* All that was added since the last call lies in @holder, which is released once that is written; at once where nothing was. */
void gantry_store_hold(struct gantry_store *s, void *holder);

/* All that was added is written, and its holders are released: 0, or what the first write that failed did with. */
int gantry_store_drain(struct gantry_store *s);

#endif
