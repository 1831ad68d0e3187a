/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: who of the thread's queues has one of its device, and the device time that is booked for it. */
#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/thread.h"

#define REST_US 20u /* a thread that has other things to do holds a lane for nothing */

bool worker_may_issue(const struct wqueue *q)
{
	uint64_t allowed = gantry_load_relaxed(&q->session->ledger.hdr->device_allowed);

	/* Acquire: pairs with the release in source_orphan(). */
	return gantry_load_acquire(&q->held) == 0 && gantry_load_relaxed(&q->led->paused) == 0 &&
	       gantry_load_relaxed(&q->led->guest_paused) == 0 &&
	       (allowed >> gantry_load_relaxed(&q->led->device) & 1);
}

bool worker_needs_lane(const struct wqueue *q)
{
	uint16_t op = gantry_ledger_task(&q->session->ledger, q->slot, q->led->issued)->desc.op;

	return op != GANTRY_OP_wait && op != GANTRY_OP_await && op != GANTRY_OP_marker &&
	       !worker_doomed(q);
}

bool worker_wants_lane(const struct wdevice *d, const struct wqueue *q)
{
	bool has = worker_gpu(d) ? worker_gpu_has_lane(d, q) : q->lane >= 0;

	return q->open && !has && !q->blocked && q->led->issued < q->led->taken &&
	       worker_may_issue(q) && worker_needs_lane(q);
}

/* A queue of the same session that should have a lane before this one. */
static bool sibling_first(const struct wdevice *d, const struct wqueue *q)
{
	/* Acquire: pairs with the release of whoever handed a queue over that came since this round began. */
	uint64_t mask = gantry_load_acquire(&q->session->served[d->index]) & ~(1ull << q->slot);

	for (; mask; mask &= mask - 1) {
		const struct wqueue *o = &q->session->queues[__builtin_ctzll(mask)];

		if (worker_wants_lane(d, o) &&
		    gantry_load_relaxed(&o->led->priority) > gantry_load_relaxed(&q->led->priority))
			return true;
	}
	return false;
}

/* The lane that the queue keeps, as a bit; 0: any will do. The agent says it, between two tasks. */
static uint64_t lane_kept(const struct wdevice *d, const struct wqueue *q)
{
	uint32_t kept = gantry_load_relaxed(&q->led->lane);
	uint32_t lane = (kept & 0xffffu) - 1;

	if (kept >> 16 != d->index + 1 || lane >= GANTRY_SHARE_NLANES ||
	    lane >= gantry_load_relaxed(&d->page->hdr.nlanes))
		return 0;
	return 1ull << lane;
}

/* Lanes with which some queue of the session could go on; 0: any. */
static uint64_t lanes_wanted(const struct wdevice *d, const struct wsession *s)
{
	uint64_t mask = gantry_load_relaxed(&s->served[d->index]);
	uint64_t lanes = 0;

	for (; mask; mask &= mask - 1) {
		const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];
		uint64_t kept = lane_kept(d, q);

		if (!worker_wants_lane(d, q))
			continue;
		if (kept == 0)
			return 0;
		lanes |= kept;
	}
	return lanes;
}

void worker_device_tell(struct wdevice *d)
{
	const struct gantry_engine_events *events = &d->engine->events;

	if (events->busy && gantry_share_tells(d->page))
		events->busy(events->cookie);
}

static bool lane_take(struct wdevice *d, struct wqueue *q)
{
	uint64_t kept = lane_kept(d, q);
	int lane;

	if (sibling_first(d, q)) {
		d->lane_wanted = true;
		return false;
	}
	q->session->lane_asked[d->index] = true;
	gantry_share_accept(d->page, q->session->share_slot,
			    kept ? lanes_wanted(d, q->session) : 0);
	gantry_share_want(d->page, q->session->share_slot, gantry_load_relaxed(&q->led->priority));
	worker_device_tell(d);
	lane = gantry_share_take_of(d->page, q->session->share_slot, kept);
	if (lane < 0) {
		d->lane_wanted = true;
		return false;
	}
	q->lane = lane;
	q->rests_since = 0;
	d->nlanes_held++;
	return true;
}

void worker_charge_time(struct wdevice *d, struct wqueue *q)
{
	if (q->uncharged_ns == 0)
		return;
	if (worker_gpu(d)) {
		worker_gpu_charge(d, q);
		return;
	}
	gantry_share_charge_part(d->page, q->session->share_slot, q->uncharged_ns, q->spared_ns);
	q->uncharged_ns = 0;
	q->spared_ns = 0;
}

void worker_lane_give(struct wdevice *d, struct wqueue *q, bool still_wants)
{
	worker_charge_time(d, q);
	if (q->lane < 0)
		return;
	gantry_share_give(d->page, q->session->share_slot, q->lane, still_wants);
	q->lane = -1;
	d->nlanes_held--;
	if (still_wants) {
		q->session->lane_asked[d->index] = true;
		d->lane_wanted = true;
	}
}

void worker_lane_rest(struct wdevice *d, struct wqueue *q)
{
	uint64_t now;

	if (q->lane < 0 || q->led->issued != q->led->done)
		return;
	now = gantry_cycles();
	if (q->rests_since == 0)
		q->rests_since = now;
	else if (now - q->rests_since >= REST_US * gantry_cycles_per_us())
		worker_lane_give(d, q, false);
}

bool worker_lane_ready(struct wdevice *d, struct wqueue *q)
{
	uint64_t kept;

	if (worker_gpu(d))
		return worker_gpu_lane_ready(d, q);
	if (q->lane < 0)
		return lane_take(d, q);
	q->rests_since = 0;
	kept = lane_kept(d, q);
	if ((kept == 0 || (kept >> q->lane & 1)) &&
	    !gantry_share_must_yield(d->page, q->session->share_slot, &q->share_seen))
		return true;
	if (q->led->issued == q->led->done)
		worker_lane_give(d, q, true);
	return false;
}
