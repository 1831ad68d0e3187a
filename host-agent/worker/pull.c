/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers whose bytes are still at the host that the session came from (GANTRY_PLACE_AWAY): the first task that uses one has it
 * fetched whole, by the agent's mover, to the buffer's place in the slab's file. Meanwhile it counts as moving: it is neither
 * used nor released, so that nothing of it can come to a range that is another's by then. What cannot be fetched any more is
 * GANTRY_PLACE_LOST: whoever uses it is told so, each time.
 */
#include <errno.h>

#include "base/atomic.h"
#include "host-agent/worker/memory.h"

static void ask(struct wsession *s, uint32_t slot, uint64_t touched_bytes)
{
	const struct gantry_engine_events *ev = &s->engine->events;

	if (ev->need_bytes)
		ev->need_bytes(ev->cookie, s->id, slot, touched_bytes);
}

int worker_pull_locked(struct wsession *s, uint32_t slot, uint64_t touched_bytes)
{
	struct wobject *rt = &s->objects[slot];

	if (gantry_load_relaxed(&s->ledger.objects[slot].buffer.place) == GANTRY_PLACE_LOST)
		return GANTRY_E_DEVICE_LOST;
	rt->moving = true;
	ask(s, slot, touched_bytes);
	return GANTRY_E_AGAIN;
}

void worker_pull_ask_again_locked(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (worker_is_buffer(&s->ledger.objects[i]) && s->objects[i].moving &&
		    s->ledger.objects[i].buffer.place == GANTRY_PLACE_AWAY)
			ask(s, i, 0);
}

/* Nobody fetches anything for it any more, whether it was wanted or not. */
static void lose_all_locked(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_buffer *b = &s->ledger.objects[i].buffer;

		if (!worker_is_buffer(&s->ledger.objects[i]) || b->place != GANTRY_PLACE_AWAY)
			continue;
		gantry_store_release(&b->place, (uint32_t)GANTRY_PLACE_LOST);
		s->objects[i].moving = false;
	}
}

int gantry_engine_give_bytes(struct gantry_engine *e, uint64_t session_id, uint32_t slot,
			     int status)
{
	struct wsession *s = worker_session_get(e, session_id);
	struct gantry_ledger_buffer *b;
	int r = -EINVAL;

	if (!s)
		return -ENOENT;
	pthread_mutex_lock(&s->lock);
	b = slot < GANTRY_LEDGER_NOBJECTS ? &s->ledger.objects[slot].buffer : NULL;
	if (b && worker_is_buffer(&s->ledger.objects[slot]) && b->place == GANTRY_PLACE_AWAY &&
	    s->objects[slot].moving) {
		/* Release: whoever reads the ledger after our death finds a whole buffer on either side of this. */
		gantry_store_release(&b->place,
				     (uint32_t)(status == GANTRY_OK ? GANTRY_PLACE_SLAB
								    : GANTRY_PLACE_LOST));
		s->objects[slot].moving = false;
		r = 0;
	}
	if (slot == GANTRY_LEDGER_NOBJECTS && status != GANTRY_OK) {
		lose_all_locked(s);
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s);
	worker_session_leave(s);
	return r;
}
