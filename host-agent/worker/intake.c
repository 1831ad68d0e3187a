/* SPDX-License-Identifier: Apache-2.0 */
/* Intake: from the guest's ring into the ledger, one copy, nothing decided yet. */
#include <errno.h>

#include "base/atomic.h"
#include "host-agent/worker/worker.h"

/* Tasks that the session may still take before its limit on unfinished ones. */
static uint64_t inflight_room(struct wsession *s)
{
	uint32_t limit = gantry_load_relaxed(&s->ledger.hdr->inflight);
	uint32_t tenant = gantry_load_relaxed(&s->quota->inflight);
	uint64_t used;

	if (limit == 0 || (tenant != 0 && tenant < limit))
		limit = tenant;
	if (limit == 0)
		return UINT64_MAX;
	/* Another device thread may take at the same time: the limit may be passed by one ring at most. */
	used = gantry_load_relaxed(&s->unfinished);
	return used < limit ? limit - used : 0;
}

int worker_intake(struct wqueue *q)
{
	struct gantry_ledger_queue *led = q->led;
	const struct gantry_ledger *ledger = &q->session->ledger;
	int64_t ready = gantry_ring_ready(&q->ring);
	uint64_t room = q->ring.map.nslots - (led->taken - led->done);
	int taken = 0;

	if (ready <= 0)
		return (int)ready;
	worker_queue_hear_of_drains(q);
	if (q->slot != 0) {
		uint64_t limit = inflight_room(q->session);

		/*
		 * One task of a queue is always taken: the oldest of all that were put is the next of its queue, so
		 * waits that fill the limit do not keep out what they wait for.
		 */
		if (limit == 0 && led->taken == led->done)
			limit = 1;
		if (limit < room)
			room = limit;
	}
	for (; ready > 0 && room > 0; ready--, room--) {
		struct gantry_ledger_task *task = gantry_ledger_task(ledger, q->slot, led->taken);

		gantry_ring_peek(&q->ring, &task->desc, &task->inl);
		gantry_ring_step(&q->ring);
		/* Release: whoever reads the ledger after our death finds the task before the count of it. */
		gantry_store_release(&led->taken, led->taken + 1);
		taken++;
	}
	/* A full barrier on x86-64, the only machine: pairs with the fence in free_locked(). */
	if (taken > 0 && q->slot != 0)
		(void)gantry_fetch_add(&q->session->unfinished, (uint64_t)taken);
	/* A guest that fills its ring needs the slots soon; otherwise head goes out with the completions. */
	if (q->ring.head - q->head_published >= q->ring.map.nslots / 4) {
		gantry_ring_publish_head(&q->ring);
		q->head_published = q->ring.head;
	}
	return taken;
}
