/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of one region of a session, and which of them the other host has as they are: by their sums, because
 * neither what a guest nor what a device thread writes can be seen from here.
 *
 * Trust: others write the memory meanwhile: each page that goes is copied once, and the copy is summed and sent.
 * Threads: one. Where looks_ahead is set another of its own looks for what goes next while it sends much: that is quicker where there are
 * processors to spare, and dearer, for what one has copied another reads. open() sets it where there are more than two.
 */
#ifndef GANTRY_HOST_AGENT_MOVER_PAGES_H
#define GANTRY_HOST_AGENT_MOVER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "host-agent/mover/runs.h"
#include "migration/image.h"

struct gantry_pages {
	int fd; /* borrowed */
	uint32_t region;
	uint64_t off; /* of the region in fd */
	uint64_t bytes;
	uint64_t skip;	    /* bytes at the start that stay here */
	uint64_t end;	    /* nothing was sent from here on */
	const uint8_t *map; /* owned */
	uint64_t *
		sums; /* owned; of the page as the other host has it, against a zero page's: 0: zero */
	struct gantry_runs runs; /* on their way */
	bool looks_ahead;	 /* of much, by a thread of its own */
};

/* What a round did. */
struct gantry_pages_round {
	uint64_t bytes;	 /* of pages that went */
	uint64_t zero;	 /* bytes that went as zero pages */
	uint64_t looked; /* bytes that were looked at */
};

/* 0 or -errno. @fd stays the caller's, and open. */
int gantry_pages_open(struct gantry_pages *p, uint32_t region, int fd, uint64_t off, uint64_t bytes,
		      uint64_t skip);
void gantry_pages_close(struct gantry_pages *p);

/*
 * Writes what the other host does not have. @pace is told after each record how many bytes went; what it returns
 * other than 0 ends the round and is returned, as is what the writer returns.
 */
int gantry_pages_send(struct gantry_pages *p, struct gantry_image_writer *w,
		      int (*pace)(void *cookie, uint64_t bytes), void *cookie,
		      struct gantry_pages_round *round);
/* The same of [from, to) alone. -ERANGE: those are no whole pages of the region; nothing was written. */
int gantry_pages_send_part(struct gantry_pages *p, struct gantry_image_writer *w,
			   int (*pace)(void *cookie, uint64_t bytes), void *cookie,
			   struct gantry_pages_round *round, uint64_t from, uint64_t to);

#endif
