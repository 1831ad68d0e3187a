/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a session's buffers, as numbers: for boards, which need not be given again what they have (gantry_range.contents).
 *
 * Each task that writes gives the buffer a number that nothing had before, when it is bound; who reads it later is told that number. So
 * it says what the bytes are only if the order of tasks is known: a task is told 0 while another queue's has not finished that wrote
 * the buffer, for it may begin before it or behind it. Of two queues that write one at the same time neither is known to be the
 * last: once both have finished the buffer has another number.
 *
 * Only buffers that tasks alone can write have numbers: not those that guests or other sessions reach, or whose address is known.
 * Device threads; the lock is held for nothing else.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "host-agent/worker/memory.h"

struct wcontents {
	uint64_t number; /* 0: it has none yet */
	uint64_t before; /* as the task of `writer` was told */
	uint64_t writer; /* ticket of the task that was bound last of those that write it */
	uint64_t other;	 /* of another queue's, that had not finished then; 0: none */
	bool lost;	 /* there were more of them than are remembered */
};

int worker_contents_init(struct wsession *s)
{
	bool any = false;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		any = any || (s->engine->devices[i]->device.info.caps & GANTRY_CAP_KEEPS);
	/* As the objects: its pages come when they are touched. */
	s->contents = any ? calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*s->contents)) : NULL;
	return any && !s->contents ? -ENOMEM : 0;
}

static uint64_t fresh_locked(struct wsession *s)
{
	return ++s->ncontents;
}

static bool is_of(const struct wqueue *q, uint64_t ticket)
{
	return GANTRY_TICKET_QUEUE(ticket) == q->slot;
}

static bool is_finished(const struct wsession *s, uint64_t ticket)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[GANTRY_TICKET_QUEUE(ticket)];

	/* Acquire: pairs with the release in worker_finish(). */
	return gantry_load_acquire(&led->done) >= GANTRY_TICKET_SEQ(ticket);
}

/* Before all that @q does from now on. */
static bool is_before(const struct wqueue *q, uint64_t ticket)
{
	return !ticket || is_of(q, ticket) || is_finished(q->session, ticket);
}

/* Whether a task of @q can tell what it will find. */
static bool is_known_locked(struct wqueue *q, struct wcontents *c)
{
	if (c->other && is_finished(q->session, c->other)) {
		c->other = 0;
		c->number = fresh_locked(q->session);
	}
	return !c->lost && !c->other && is_before(q, c->writer);
}

static uint64_t read_locked(struct wqueue *q, struct wcontents *c)
{
	if (!is_known_locked(q, c))
		return 0;
	if (!c->number)
		c->number = fresh_locked(q->session);
	return c->number;
}

/* The writer until now may yet be at work. */
static void remember_locked(const struct wqueue *q, struct wcontents *c)
{
	if (is_before(q, c->writer))
		return;
	if (!c->other || is_of(q, c->other) ||
	    GANTRY_TICKET_QUEUE(c->other) == GANTRY_TICKET_QUEUE(c->writer))
		c->other = c->writer;
	else
		c->lost = true;
}

uint64_t worker_contents_use(struct wqueue *q, uint32_t slot, bool write)
{
	uint64_t ticket = GANTRY_TICKET(q->slot, q->led->issued + 1), told;
	struct wsession *s = q->session;
	struct wcontents *c = &s->contents[slot];

	pthread_mutex_lock(&s->contents_lock);
	if (q->made_for == ticket && c->writer == ticket && c->number == q->makes) {
		told = c->before; /* it is bound again, or has the buffer more than once */
	} else {
		told = read_locked(q, c);
		if (write) {
			remember_locked(q, c);
			if (q->made_for != ticket) {
				q->made_for = ticket;
				q->makes = fresh_locked(s);
			}
			c->before = told;
			c->writer = ticket;
			c->number = q->makes;
		}
	}
	pthread_mutex_unlock(&s->contents_lock);
	return told;
}

void worker_contents_end(struct wsession *s, uint32_t slot)
{
	if (!s->contents)
		return;
	pthread_mutex_lock(&s->contents_lock);
	s->contents[slot] = (struct wcontents){ 0 };
	pthread_mutex_unlock(&s->contents_lock);
}
