/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device thread does otherwise where the share page is a GPU's (share.h): a lane is the session's, for all of
 * its queues, and what is in flight is told in units of the device. Device thread.
 */
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/worker.h"

#define LOOK_US	       20u     /* between two looks at who waits, while nobody new does */
#define QUIET_EVERY_US 100000u /* a moment of quiet in so long at most */
#define COPY_UNITS     250u    /* there are a few copy engines, beside the processors */
#define REST_NS	       20000u  /* a thread that has other things to do holds a lane for nothing */
#define PAY_NS	       1000u   /* shorter ones are not worth the look who waits */

static struct wgpu *gpu_of(const struct wdevice *d, const struct wqueue *q)
{
	return &q->session->gpu[d->index];
}

bool worker_gpu(const struct wdevice *d)
{
	return gantry_load_relaxed(&d->page->hdr.gpu) != 0;
}

/* Of the device that the command in d->cmd can fill: a block for each multiprocessor is as much as there is. */
static uint32_t units_of(const struct wdevice *d)
{
	const struct gantry_cmd_launch *launch = &d->cmd.launch;
	uint32_t nprocs = d->device.info.units;
	double nblocks;

	if (d->cmd.kind != GANTRY_CMD_LAUNCH)
		return COPY_UNITS;
	nblocks = (double)launch->grid[0] * launch->grid[1] * launch->grid[2];
	if (nprocs == 0 || nblocks >= nprocs)
		return GANTRY_SHARE_WHOLE;
	return (uint32_t)(nblocks * GANTRY_SHARE_WHOLE / nprocs) + 1;
}

static void tell_units(struct wdevice *d, struct wqueue *q, uint32_t units)
{
	struct wgpu *g = gpu_of(d, q);

	if (units == q->units)
		return;
	g->units += units - q->units;
	q->units = units;
	gantry_share_use(d->page, q->session->share_slot, GANTRY_MIN(g->units, GANTRY_SHARE_WHOLE));
}

void worker_gpu_submitted(struct wdevice *d, struct wqueue *q)
{
	struct wgpu *g = gpu_of(d, q);

	if (g->nflying++ == 0) {
		g->alone = gantry_share_is_alone(d->page, q->session->share_slot);
		g->ended_at = gantry_cycles();
		g->rest_ns = 0;
	}
	tell_units(d, q, units_of(d));
}

/*
 * Kernels that fill much of the device, and whose own time nobody knows well, want to be seen alone. It ends when that
 * has been, or when the queue has nothing more.
 */
static void care_for_quiet(struct wdevice *d, const struct wqueue *q, struct wgpu *g, bool unknown)
{
	bool more = g->nflying > 1 || q->led->issued < q->led->taken;
	uint64_t now;

	if (g->quiet && (!unknown || !more)) {
		gantry_share_end_quiet(d->page, q->session->share_slot);
		g->quiet = false;
	}
	if (!unknown || g->alone || g->quiet || !more || q->units < GANTRY_SHARE_WHOLE / 2)
		return;
	now = gantry_cycles();
	if (g->asked_at && now - g->asked_at < QUIET_EVERY_US * gantry_cycles_per_us())
		return;
	g->asked_at = now;
	g->quiet = gantry_share_ask_quiet(d->page, q->session->share_slot);
}

/*
 * Of several that are seen to end at once nobody knows when the later ones began, nor who was beside then: what one took
 * has to lie between two looks.
 */
static bool seen_from_its_beginning(struct wgpu *g, uint64_t device_ns)
{
	uint64_t now = gantry_cycles();
	uint64_t since_us = (now - g->ended_at) / gantry_cycles_per_us();

	g->ended_at = now;
	return since_us * GANTRY_NS_PER_US + device_ns / 4 >= device_ns;
}

/* What the command takes with nobody beside: measured when that was so, from its beginning. */
void worker_gpu_done(struct wdevice *d, struct wqueue *q, struct wkernel *k, uint64_t device_ns)
{
	struct wgpu *g = gpu_of(d, q);
	bool alone = gantry_share_is_alone(d->page, q->session->share_slot);
	struct walone *known = k ? &k->alone[d->index] : NULL;

	if (seen_from_its_beginning(g, device_ns) && known && alone && g->alone && device_ns)
		worker_alone_add(known, device_ns);
	g->alone = alone;
	if (known)
		care_for_quiet(d, q, g, worker_alone_wants(known));
	if (!known)
		q->alone_ns += device_ns;
	else if (known->mean_ns)
		q->alone_ns += GANTRY_MIN(known->mean_ns, device_ns);
	else
		q->alone_unknown = true;
	q->uncharged_ns += device_ns;
	g->nflying -= g->nflying > 0; /* put while the page was no GPU's, it was not counted */
	if (q->led->issued - q->led->done - q->nriders > 1)
		return;
	/* The last in flight of this queue; charged while the page still shows it. */
	worker_gpu_charge(d, q);
	tell_units(d, q, 0);
}

void worker_gpu_off_device(struct wdevice *d, struct wqueue *q, bool off)
{
	struct wgpu *g = gpu_of(d, q);

	if (!worker_gpu(d))
		return;
	if (off) {
		g->nflying -= g->nflying > 0;
		if (q->led->issued - q->led->done - q->nriders == 1)
			tell_units(d, q, 0);
		(void)worker_gpu_give(d, q->session, false);
		return;
	}
	/* What it put on the device is there, whoever has lanes: it is charged for, and what follows asks for one. */
	if (g->nflying++ == 0) {
		g->alone = gantry_share_is_alone(d->page, q->session->share_slot);
		g->ended_at = gantry_cycles();
	}
	tell_units(d, q, GANTRY_SHARE_WHOLE);
}

void worker_gpu_charge(struct wdevice *d, struct wqueue *q)
{
	uint32_t units = GANTRY_MAX(q->units, GANTRY_MIN(gpu_of(d, q)->units, GANTRY_SHARE_WHOLE));

	if (q->uncharged_ns)
		gantry_share_charge_units(d->page, q->session->share_slot, q->uncharged_ns,
					  q->alone_unknown ? 0 : q->alone_ns, units);
	q->uncharged_ns = 0;
	q->alone_ns = 0;
	q->alone_unknown = false;
}

/* The queue's next task moves bytes between host and device. */
static bool moves(const struct wqueue *q)
{
	uint16_t op = gantry_ledger_task(&q->session->ledger, q->slot, q->led->issued)->desc.op;

	return op == GANTRY_OP_read || op == GANTRY_OP_write;
}

/* ---- between two batches ---- */

static void pay_for_rest(struct wdevice *d, struct wsession *s)
{
	struct wgpu *g = &s->gpu[d->index];
	uint64_t now;

	if (g->rest_ns == 0)
		return;
	now = gantry_now_ns();
	if (now - g->paid_ns < PAY_NS)
		return;
	gantry_share_charge_pause(d->page, s->share_slot, g->paid_ns, now);
	g->paid_ns = now;
}

/* For how long the session has had a lane and nothing in flight. */
static uint64_t rested_ns(struct wgpu *g)
{
	uint64_t now = gantry_now_ns();

	if (g->rest_ns == 0)
		g->rest_ns = g->paid_ns = now;
	return now - g->rest_ns;
}

static bool keeps(const struct wdevice *d, struct wsession *s)
{
	struct wgpu *g = &s->gpu[d->index];

	return g->lane && g->nflying == 0 &&
	       gantry_share_keeps(d->page, s->share_slot, rested_ns(g));
}

bool worker_gpu_keeps(const struct wdevice *d)
{
	/* Where nobody may spin a guest that puts more needs this processor. */
	if (d->nlanes_held == 0 || d->spin.max_cycles == 0 || !worker_gpu(d))
		return false;
	for (uint32_t i = 0; i < d->nsessions; i++)
		if (keeps(d, d->sessions[i]))
			return true;
	return false;
}

void worker_gpu_rest(struct wdevice *d, struct wsession *s)
{
	struct wgpu *g = &s->gpu[d->index];

	if (g->lane && g->nflying == 0 && rested_ns(g) >= REST_NS && !keeps(d, s))
		(void)worker_gpu_give(d, s, false);
}

/* ---- lanes ---- */

static bool take(struct wdevice *d, struct wqueue *q)
{
	struct wsession *s = q->session;
	struct wgpu *g = gpu_of(d, q);
	int lane;

	s->lane_asked[d->index] = true;
	gantry_share_want(d->page, s->share_slot, gantry_load_relaxed(&q->led->priority));
	worker_device_tell(d);
	lane = moves(q) ? gantry_share_take_to_move(d->page, s->share_slot)
			: gantry_share_take(d->page, s->share_slot);
	if (lane < 0) {
		d->lane_wanted = true;
		return false;
	}
	g->lane = lane + 1;
	g->looked_at = 0;
	d->nlanes_held++;
	return true;
}

bool worker_gpu_has_lane(const struct wdevice *d, const struct wqueue *q)
{
	return gpu_of(d, q)->lane != 0;
}

bool worker_gpu_lane_ready(struct wdevice *d, struct wqueue *q)
{
	struct wgpu *g = gpu_of(d, q);
	uint64_t now;

	if (g->lane == 0)
		return take(d, q);
	pay_for_rest(d, q->session);
	now = gantry_cycles();
	/* Whom a submission can make wait for long is looked for before each: a command may take that long. */
	if (now - g->looked_at < LOOK_US * gantry_cycles_per_us() &&
	    !gantry_share_has_news(d->page, g->seen))
		return true;
	if (moves(q)) {
		/* What comes next may have to wait all the same: it looks for itself. */
		g->looked_at = 0;
		if (!gantry_share_must_yield_to_move(d->page, q->session->share_slot, &g->seen))
			return true;
	} else {
		g->looked_at = now;
		if (!gantry_share_must_yield(d->page, q->session->share_slot, &g->seen))
			return true;
		g->looked_at = 0;
	}
	if (g->nflying == 0)
		worker_gpu_give(d, q->session, true);
	return false;
}

bool worker_gpu_give(struct wdevice *d, struct wsession *s, bool still_wants)
{
	struct wgpu *g = &s->gpu[d->index];

	if (g->lane == 0 || g->nflying)
		return false;
	pay_for_rest(d, s);
	g->rest_ns = 0;
	gantry_share_give(d->page, s->share_slot, g->lane - 1, still_wants);
	g->lane = 0;
	d->nlanes_held--;
	if (still_wants) {
		s->lane_asked[d->index] = true;
		d->lane_wanted = true;
	}
	return true;
}

bool worker_gpu_crowded(const struct wdevice *d, const struct wqueue *q)
{
	return worker_gpu(d) && worker_gpu_window_us(d, q, WORKER_WINDOW_US) < WORKER_WINDOW_US;
}

uint32_t worker_gpu_window_us(const struct wdevice *d, const struct wqueue *q, uint32_t us)
{
	return gantry_share_window_us(d->page, q->session->share_slot, us, gpu_of(d, q)->seen);
}
