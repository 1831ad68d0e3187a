/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that have come, on their way into a session's memory: a thread writes them while the next ones are decrypted.
 *
 * Trust: whoever puts pages has checked where they go. Threads: the calls are for one thread; the store has another, from the first
 * pages on. Blocking: put() while all buffers are full, drain() until what was put is written.
 * Order: what was put earlier is written earlier, so of two contents of a page the later one stays.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_STORE_H
#define GANTRY_HOST_AGENT_MOVER_STORE_H

#include <stddef.h>
#include <stdint.h>

/* What is to be written: @bytes at @data, which lies in @buf, to @off of @fd (borrowed until it is drained). */
struct gantry_store_item {
	int fd;
	uint64_t off;
	const void *data;
	size_t bytes;
	void *buf;
};

struct gantry_store;

/* Buffers have @buf_bytes. -ENOMEM. */
int gantry_store_new(size_t buf_bytes, struct gantry_store **ret_store);
/* What was not drained may be lost. Takes NULL. */
void gantry_store_free(struct gantry_store *s);

/*
 * Takes @item with its buffer, and gives another of the same size for it. 0, or what an earlier write failed with: then @item's
 * buffer stays the caller's. Where no thread can be had it is written at once.
 */
int gantry_store_put(struct gantry_store *s, const struct gantry_store_item *item, void **ret_buf);

/* All that was put has been written: 0, or what the first write that failed did with. */
int gantry_store_drain(struct gantry_store *s);

#endif
