/* SPDX-License-Identifier: Apache-2.0 */
/* A queue's turn: what its window, its lane and the session's limits allow goes to the device. */
#include <errno.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/thread.h"

static bool is_leaving(const struct wqueue *q)
{
	return gantry_load_relaxed(&q->leaving) || gantry_load_relaxed(&q->session->leaving);
}

static uint32_t usual_window_us(const struct wdevice *d, const struct wqueue *q)
{
	/* A board is loaded for the work that it can see: whatever a stream has room for. */
	if (d->device.info.kind == GANTRY_KIND_FPGA)
		return WORKER_WINDOW_BOARD_US;
	/* While others want the GPU the share page says less. */
	return worker_gpu(d) && !is_leaving(q) ? WORKER_WINDOW_ALONE_US : WORKER_WINDOW_US;
}

static bool window_open(const struct wdevice *d, const struct wqueue *q)
{
	uint32_t asked_us = gantry_load_relaxed(&q->led->window_us);
	uint32_t us = worker_gpu_window_us(d, q, asked_us ? asked_us : usual_window_us(d, q));
	uint64_t flying = q->led->issued - q->led->done;

	if (gantry_load_relaxed(&q->session->stepping) && !worker_flight_may_step(d, q->session))
		return false;
	if (flying == 0)
		return true;
	/* A deadline is one task's: of those whose length nobody knows there is one in flight. */
	if (q->nunknown && gantry_load_relaxed(&q->session->quota->deadline_ns))
		return false;
	/* What follows a failure must not have begun when it is known. */
	if (gantry_load_relaxed(&q->led->fail_stop))
		return false;
	if (q->nunknown >= WORKER_MAX_UNKNOWN && worker_gpu_crowded(d, q))
		return false;
	/* The next one, taken for as long as the last, would be rather outside than inside. */
	if (worker_gpu(d) && us <= GANTRY_SHARE_WINDOW_URGENT_US &&
	    q->window_ns + q->est_ns[(uint32_t)(q->led->issued - 1) % WORKER_WINDOW_TASKS] / 2 >=
		    us * 1000ull)
		return false;
	return flying < (d->runs_here ? WORKER_WINDOW_HERE : WORKER_WINDOW_TASKS) &&
	       q->window_ns < us * 1000ull;
}

/* What was submitted reaches the device, and its end this thread. */
static void flush(struct wdevice *d, struct wqueue *q)
{
	if (q->nunflushed && d->device.backend->flush)
		d->device.backend->flush(q->stream);
	q->nunflushed = 0;
}

static int submit(struct wdevice *d, struct wqueue *q, uint64_t est_ns, struct wkernel *k)
{
	uint32_t i = (uint32_t)q->led->issued % WORKER_WINDOW_TASKS;
	int r;

	d->cmd.tag = (uint64_t)(uintptr_t)q;
	if (gantry_load_relaxed(&q->session->quota->deadline_ns) && q->led->issued == q->led->done)
		gantry_store_relaxed(&q->led->issued_at_ns, gantry_now_ns());
	q->est_ns[i] = est_ns;
	q->inflight_kernel[i] = k;
	if (k && k->avg_ns[d->index] == 0)
		gantry_store_relaxed(&q->led->untried_below, q->led->issued + 1);
	q->copies[i] = (struct wcopy){ 0 };
	if (!k)
		q->copies[i] = worker_copy_of(d, q);
	/* Release: counted before the device has it, see ledger.h. */
	gantry_store_release(&q->led->issued, q->led->issued + 1);
	r = d->device.backend->submit(q->stream, &d->cmd);
	if (r < 0) {
		gantry_store_release(&q->led->issued, q->led->issued - 1);
		if (q->led->issued ==
		    q->led->done) /* no deadline runs for what the device did not take */
			gantry_store_relaxed(&q->led->issued_at_ns, (uint64_t)0);
		return r;
	}
	q->window_ns += est_ns;
	q->nunknown += est_ns == 0;
	if (d->nactive++ == 0)
		d->flight_since = gantry_cycles();
	if (worker_gpu(d))
		worker_gpu_submitted(d, q);
	if (++q->nunflushed == WORKER_FLUSH_TASKS ||
	    (est_ns >= WORKER_FLUSH_NS && worker_gpu_crowded(d, q)))
		flush(d, q);
	return 0;
}

/* A task that the device did not take: the guest's fault where it can be. */
static int refusal(int r)
{
	switch (r) {
	case -EINVAL: /* a grid, a block, an amount of shared memory */
		return GANTRY_E_ARG;
	case -ENOMEM:
		return GANTRY_E_NO_MEMORY;
	case -ENODEV:
		return GANTRY_E_DEVICE_LOST;
	default:
		return GANTRY_E_INTERNAL;
	}
}

/* One task. 1: on to the next; 0: the turn is over. */
static int issue_one(struct wdevice *d, struct wqueue *q)
{
	struct wkernel *k;
	uint64_t est_ns;
	int status;
	int r;

	/* Until the call has ended nothing is submitted behind it: a lane would be held for nothing, and not paid for. */
	q->blocked = q->off_device && worker_needs_lane(q);
	if (q->blocked || !window_open(d, q))
		return 0;
	if (worker_needs_lane(q) && !worker_lane_ready(d, q))
		return 0;
	switch (worker_bind(d, q, &status, &est_ns, &k)) {
	case WBIND_WAIT:
		q->blocked = true;
		return 0;
	case WBIND_FINISH:
		/* In order: what is with the device finishes first. Behind what does nothing the device goes on. */
		if (q->led->issued != q->led->done) {
			if (status != GANTRY_OK || worker_needs_lane(q))
				return 0;
			worker_ride(q);
			/* An event perhaps, that somebody waits for. */
			if (d->device.backend->boundary)
				d->device.backend->boundary(q->stream);
			return 1;
		}
		worker_finish(q, status, 0);
		return 1;
	case WBIND_COMMAND:
		break;
	}
	r = submit(d, q, est_ns, k);
	if (r == -EAGAIN)
		return 0;
	if (r < 0) {
		if (q->led->issued != q->led->done)
			return 0; /* in order: it is tried, and refused, again when it is the oldest */
		worker_finish(q, refusal(r), 0);
		return 1;
	}
	if (d->runs_here)
		(void)worker_reap(d);
	return 1;
}

/* Calls of the driver take microseconds each: who has many to make must not hold up who waits for one. */
static bool turn_over(const struct wdevice *d, uint64_t began)
{
	if (d->runs_here || d->nbeside < 2)
		return false;
	return gantry_cycles() - began > WORKER_TURN_BESIDE_US * gantry_cycles_per_us();
}

unsigned worker_turn(struct wdevice *d, struct wqueue *q)
{
	uint64_t began = gantry_cycles();
	unsigned n = 0;

	d->turn_ns = 0;
	while (q->led->issued < q->led->taken && n < WORKER_TURN_TASKS) {
		if (!worker_may_issue(q) && !worker_doomed(q))
			break;
		if (!issue_one(d, q))
			break;
		n++;
		/* Lanes or none, others' rings and control queues want to be looked at. */
		if (d->turn_ns > WORKER_TURN_NS || turn_over(d, began))
			break;
	}
	d->nturns += n > 0;
	flush(d, q);
	/* Queues of one session are one waiter to the share page: between them, turns share the lanes. */
	if (q->lane >= 0 && d->lane_short && q->led->issued == q->led->done)
		worker_lane_give(
			d, q, q->led->issued < q->led->taken && !q->blocked && worker_may_issue(q));
	return n;
}
