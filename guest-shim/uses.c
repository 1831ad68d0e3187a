/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/uses.h"

#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "guest-shim/queue.h"
#include "guest-shim/session.h"
#include "guest-shim/wait.h"

#define SEVERAL UINT64_MAX /* no ticket: its queue slot is past GANTRY_MAX_QUEUES */

static_assert(GANTRY_TICKET_QUEUE(SEVERAL) >= GANTRY_MAX_QUEUES, "SEVERAL is no ticket");

int gantry_uses_init(struct gantry_uses *uses)
{
	uses->last = calloc(GANTRY_USES_SLOTS, sizeof(*uses->last));
	return uses->last ? 0 : -ENOMEM;
}

void gantry_uses_fini(struct gantry_uses *uses)
{
	free(uses->last);
	uses->last = NULL;
}

/* NULL: the slot is not kept. */
static uint64_t *word_of(struct gantry_session *s, gantry_buffer buffer)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(buffer);

	return slot < GANTRY_USES_SLOTS ? &s->uses.last[slot] : NULL;
}

void gantry_uses_forget(struct gantry_session *s, gantry_buffer buffer)
{
	uint64_t *word = word_of(s, buffer);

	if (word)
		gantry_store_relaxed(word, 0ull);
}

static bool is_finished(struct gantry_session *s, gantry_ticket ticket)
{
	return gantry_queue_done(&s->queues[GANTRY_TICKET_QUEUE(ticket)]) >=
	       GANTRY_TICKET_SEQ(ticket);
}

void gantry_uses_note_other(struct gantry_session *s, gantry_buffer buffer, gantry_ticket ticket)
{
	uint64_t *word = word_of(s, buffer);
	uint64_t before, after;

	if (!word)
		return;
	before = gantry_load_relaxed(word);
	do {
		after = ticket;
		if (before == SEVERAL)
			return; /* for the buffer's life: which queues they were is not known any more */
		if (before && GANTRY_TICKET_QUEUE(before) != GANTRY_TICKET_QUEUE(ticket) &&
		    !is_finished(s, before))
			after = SEVERAL;
	} while (!gantry_cas(word, &before, after));
}

void gantry_uses_snapshot(struct gantry_session *s, gantry_buffer buffer, uint64_t ret_tails[])
{
	uint64_t *word = word_of(s, buffer);
	uint64_t last = word ? gantry_load_acquire(word) : SEVERAL;

	if (last == SEVERAL) {
		gantry_wait_snapshot(s, ret_tails);
		ret_tails[0] = 0; /* control operations are no tasks */
		return;
	}
	for (uint32_t i = 0; i < GANTRY_MAX_QUEUES; i++)
		ret_tails[i] = 0;
	if (last && !is_finished(s, last))
		ret_tails[GANTRY_TICKET_QUEUE(last)] = GANTRY_TICKET_SEQ(last);
}

int gantry_uses_wait(struct gantry_session *s, gantry_buffer buffer, uint64_t deadline_ns)
{
	uint64_t tails[GANTRY_MAX_QUEUES];

	gantry_uses_snapshot(s, buffer, tails);
	return gantry_wait_tails(s, tails, deadline_ns);
}
