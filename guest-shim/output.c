/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "guest-shim/device.h"
#include "guest-shim/session.h"
#include "proto/wire.h"

#define BYTES_MAX (1u << 20)
#define BYTES_MIN (64u << 10)
#define CHUNK	  2048u
#define LOOK_NS	  (10 * (int64_t)GANTRY_NS_PER_MS)

/* ---- the buffer ---- */

static int make_locked(struct gantry_printed *p, struct gantry_session *s, uint64_t bytes)
{
	bool is_far = s->transport->is_pumped;
	gantry_buffer buffer;
	void *at = NULL;
	int r = gantry_alloc(s, bytes, GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT | GANTRY_ALLOC_KEPT,
			     &buffer);

	if (r < 0)
		return r;
	if (!is_far)
		r = gantry_map(s, buffer, 0, bytes, GANTRY_RW, GANTRY_FOREVER, &at);
	else if (!(at = calloc(1, bytes)))
		r = GANTRY_E_NO_MEMORY;
	if (r < 0) {
		(void)gantry_free(s, buffer);
		return r;
	}
	p->far = is_far ? s : NULL;
	p->buffer = buffer;
	p->bytes = GANTRY_OUTPUT_RING(bytes);
	for (unsigned int i = 0; i < 2; i++) {
		p->ring[i] = (uint8_t *)at + sizeof(struct gantry_output) + i * p->bytes;
		p->shown[i] = gantry_load_relaxed(&((struct gantry_output *)at)->put[i]);
	}
	gantry_store_release(&p->head, (struct gantry_output *)at);
	return 0;
}

void gantry_printed_want(struct gantry_printed *p, struct gantry_session *s)
{
	(void)pthread_mutex_lock(&p->lock);
	if (!p->is_wanted)
		for (uint64_t n = BYTES_MAX; n >= BYTES_MIN && make_locked(p, s, n) < 0; n /= 4)
			;
	/* Release: pairs with the acquire in gantry_printed_is_wanted(). */
	gantry_store_release(&p->is_wanted, 1u);
	(void)pthread_mutex_unlock(&p->lock);
}

bool gantry_printed_is_wanted(const struct gantry_printed *p)
{
	return gantry_load_acquire(&p->is_wanted) != 0;
}

/* ---- behind a stream ---- */

static int bring(const struct gantry_printed *p, uint64_t off, void *to, uint64_t bytes)
{
	return gantry_read(p->far, p->buffer, off, to, bytes);
}

/* The newest of what came between what was shown and @put, to its place in the copy. */
static int bring_ring(const struct gantry_printed *p, unsigned int which, uint64_t put)
{
	uint64_t ring_off = sizeof(struct gantry_output) + which * p->bytes;
	uint64_t at = gantry_load_relaxed(&p->shown[which]);
	int r = 0;

	if (put - at > p->bytes)
		at = put - p->bytes;
	while (at < put && r == 0) {
		uint64_t off = at % p->bytes;
		uint64_t n = GANTRY_MIN(put - at, p->bytes - off);

		r = bring(p, ring_off + off, p->ring[which] + off, n);
		at += n;
	}
	return r;
}

/* What the host has written over meanwhile is not to be shown. */
static void skip(struct gantry_printed *p, unsigned int which, uint64_t put, uint64_t now)
{
	uint64_t oldest = now > p->bytes ? GANTRY_MIN(now - p->bytes, put) : 0;

	if (gantry_load_relaxed(&p->shown[which]) < oldest)
		gantry_store_relaxed(&p->shown[which], oldest);
}

static void bring_all_locked(struct gantry_printed *p)
{
	struct gantry_output before, after;
	int r = bring(p, 0, &before, sizeof(before));

	if (r == 0 && before.put[0] == gantry_load_relaxed(&p->shown[0]) &&
	    before.put[1] == gantry_load_relaxed(&p->shown[1]))
		return;
	for (unsigned int i = 0; i < 2 && r == 0; i++)
		r = bring_ring(p, i, before.put[i]);
	if (r == 0)
		r = bring(p, 0, &after, sizeof(after));
	/* Where the session has ended, nothing comes any more. */
	for (unsigned int i = 0; i < 2 && r == 0; i++) {
		skip(p, i, before.put[i], after.put[i]);
		gantry_store_relaxed(&p->head->put[i], before.put[i]);
	}
}

/* No stream's lock is taken meanwhile. */
static void bring_all(struct gantry_printed *p)
{
	(void)pthread_mutex_lock(&p->lock);
	bring_all_locked(p);
	(void)pthread_mutex_unlock(&p->lock);
}

/* ---- showing ---- */

/* The newest that the ring holds of what came from *at on; the host may be writing over it just now. */
static size_t take_chunk(const struct gantry_printed *p, unsigned int which, uint64_t *at,
			 uint64_t put, uint8_t chunk[CHUNK])
{
	for (;;) {
		uint64_t off, now;
		size_t n;

		if (put - *at > p->bytes)
			*at = put - p->bytes;
		off = *at % p->bytes;
		n = (size_t)GANTRY_MIN(GANTRY_MIN(put - *at, p->bytes - off), CHUNK);
		memcpy(chunk, p->ring[which] + off, n);
		/* Acquire: the bytes have been read. */
		now = gantry_load_acquire(&p->head->put[which]);
		if (now - *at <= p->bytes) {
			*at += n;
			return n;
		}
		put = now;
	}
}

/*
 * The stream's own lock comes first: a thread of the program that has it may be on its way here, and would wait for one that waits for it. What is
 * written under ours waits for the reader of the program's output only.
 */
static void show(struct gantry_printed *p, unsigned int which, FILE *to)
{
	uint8_t chunk[CHUNK];
	uint64_t put, at;

	flockfile(to);
	(void)pthread_mutex_lock(&p->lock);
	/* Acquire: pairs with the host's release; the bytes are there. */
	put = gantry_load_acquire(&p->head->put[which]);
	at = gantry_load_relaxed(&p->shown[which]);
	while (at < put) {
		size_t n = take_chunk(p, which, &at, put, chunk);

		gantry_store_relaxed(&p->shown[which], at);
		/* Where the program has no output any more, it goes nowhere, as with the driver. */
		(void)!fwrite(chunk, 1, n, to);
	}
	(void)pthread_mutex_unlock(&p->lock);
	funlockfile(to);
}

/* Unless there is news of it, a stream is left alone: another thread of the program may have it, and wait for one that this has. */
static bool is_new(const struct gantry_printed *p, const struct gantry_output *head,
		   unsigned int which)
{
	return gantry_load_relaxed(&head->put[which]) != gantry_load_relaxed(&p->shown[which]);
}

bool gantry_printed_comes(const struct gantry_printed *p)
{
	return gantry_load_acquire(&p->head) != NULL;
}

bool gantry_printed_is_news(const struct gantry_printed *p)
{
	const struct gantry_output *head = gantry_load_acquire(&p->head);

	return head && (p->far || is_new(p, head, 0) || is_new(p, head, 1));
}

void gantry_printed_show(struct gantry_printed *p)
{
	const struct gantry_output *head = gantry_load_acquire(&p->head);

	if (head && p->far)
		bring_all(p);
	if (head && is_new(p, head, 0))
		show(p, 0, stdout);
	if (head && is_new(p, head, 1))
		show(p, 1, stderr);
}

int gantry_printed_wait(struct gantry_printed *p, struct gantry_session *s,
			const gantry_ticket *tickets, unsigned int n)
{
	int r;

	do {
		r = gantry_wait(s, tickets, n, gantry_printed_comes(p) ? LOOK_NS : GANTRY_FOREVER);
		if (r == GANTRY_E_TIMEOUT)
			gantry_printed_show(p);
	} while (r == GANTRY_E_TIMEOUT);
	return r;
}

uint32_t gantry_printed_fault(const struct gantry_printed *p)
{
	const struct gantry_output *head = gantry_load_acquire(&p->head);
	struct gantry_output now;

	if (head && p->far)
		return bring(p, 0, &now, sizeof(now)) == 0 ? now.fault : 0;
	return head ? gantry_load_relaxed(&head->fault) : 0;
}
