/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of a range have been written: a bit for each chunk. Pure; whoever owns it keeps others out.
 */
#ifndef GANTRY_HOST_AGENT_WORKER_MARKS_H
#define GANTRY_HOST_AGENT_WORKER_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#define WMARKS_MAX 4096u
#define WMARKS_CHUNK_BYTES \
	(64ull << 10) /* at least: smaller ones cost more to copy than they save */

struct wmarks {
	uint64_t len_bytes;
	uint64_t chunk_bytes;
	uint64_t bits[WMARKS_MAX / 64];
};

/* Of @len_bytes, more than 0; none is marked, or all. */
void worker_marks_init(struct wmarks *m, uint64_t len_bytes, bool all);
/* Every chunk that [off, off + len) touches. What lies past the end counts for nothing. */
void worker_marks_add(struct wmarks *m, uint64_t off, uint64_t len);
/* All of @from's, of the same length; @from has none then. */
void worker_marks_take(struct wmarks *m, struct wmarks *from);
/* The first run of marked bytes at @at or after it, at most @most bytes of it. false: there is none. */
bool worker_marks_next(const struct wmarks *m, uint64_t at, uint64_t most, uint64_t *ret_off,
		       uint64_t *ret_len);
/* The same from above: the last run that ends at @before or below it, at most @most bytes of it, its end. */
bool worker_marks_last(const struct wmarks *m, uint64_t before, uint64_t most, uint64_t *ret_off,
		       uint64_t *ret_len);
/* Unmarks what is marked in @of, too, and lies whole below @before. */
void worker_marks_forget(struct wmarks *m, const struct wmarks *of, uint64_t before);
/* How many bytes are marked. */
uint64_t worker_marks_bytes(const struct wmarks *m);

#endif
