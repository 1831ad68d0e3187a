/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long commands in flight on a device that works by itself are watched, and when they are slept through: to sleep and be
 * woken costs some 40 us, and up to half a millisecond behind long commands. Device thread.
 */
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "host-agent/worker/worker.h"

#define PARK_MS		1000	/* every sleep ends */
#define FLIGHT_FLOOR_NS 20000u	/* estimates of short commands are rough */
#define FLIGHT_LEAD_NS	200000u /* what it takes to wake up, with room to spare */
/*
 * An OpenCL device may be this machine's processors, and who watches takes them from what computes. From here on it keeps work
 * behind what it tells (devices/gather.h), so that to be woken is soon enough.
 */
#define FLIGHT_HERE_NS 500000u
#define RATE_BYTES     (1u << 20) /* shorter copies tell little of the link */

void worker_flight_learn(struct wdevice *d, struct wcopy copy, const struct gantry_done *done)
{
	uint64_t *per_s = &d->copied_per_s[copy.way];
	uint64_t now_per_s;

	if (copy.bytes < RATE_BYTES || done->status != GANTRY_OK || done->device_ns == 0)
		return;
	now_per_s = (uint64_t)((double)copy.bytes * GANTRY_NS_PER_S / (double)done->device_ns);
	*per_s = *per_s ? *per_s - *per_s / 4 + now_per_s / 4 : now_per_s;
}

/* A newer sample counts an eighth. */
static uint64_t mean(uint64_t avg_ns, uint64_t ns)
{
	return avg_ns ? (avg_ns * 7 + ns) / 8 : ns;
}

static uint32_t length_of(const struct wkernel *k)
{
	return (uint32_t)((uintptr_t)k / sizeof(*k)) % WORKER_LENGTHS;
}

uint64_t worker_flight_expect_ns(const struct wdevice *d, const struct wqueue *q,
				 const struct wkernel *k)
{
	const struct wlength *known = &q->lengths[length_of(k)];

	/* One that never ended here may lie where another one was. */
	return known->kernel == k && k->avg_ns[d->index] ? known->avg_ns : k->avg_ns[d->index];
}

void worker_flight_learn_kernel(struct wdevice *d, struct wqueue *q, struct wkernel *k,
				uint64_t device_ns)
{
	struct wlength *known = &q->lengths[length_of(k)];

	k->avg_ns[d->index] = mean(k->avg_ns[d->index], device_ns);
	if (known->kernel != k)
		*known = (struct wlength){ .kernel = k };
	known->avg_ns = mean(known->avg_ns, device_ns);
}

bool worker_flight_may_step(const struct wdevice *d, struct wsession *s)
{
	uint64_t here = gantry_load_relaxed(&s->served[d->index]);
	bool any = false, any_here = false;

	for (uint32_t slot = 1; slot < s->ledger.nqueues; slot++) {
		const struct wqueue *q = &s->queues[slot];

		if (gantry_load_relaxed(&q->led->done) >= q->suspect_below)
			continue;
		any = true;
		any_here = any_here || (here >> slot & 1);
	}
	if (!any)
		gantry_store_relaxed(&s->stepping, 0u);
	return !any_here || s->gpu[d->index].nflying == 0;
}

/* Of the queue whose commands in flight should be done first, what they are expected to take: 0 if that is not known. */
struct flight {
	uint64_t soonest_ns; /* UINT64_MAX: nothing is in flight */
	uint64_t bound_ns;   /* what its tenant may spin */
	uint32_t nqueues;    /* that have some */
};

static uint64_t most_ns(const struct wdevice *d)
{
	return d->device.info.kind == GANTRY_KIND_OPENCL ? FLIGHT_HERE_NS : WORKER_FLIGHT_NS;
}

static struct flight flight_of(const struct wdevice *d)
{
	uint64_t most = most_ns(d);
	struct flight f = { .soonest_ns = UINT64_MAX };

	for (uint32_t i = 0; i < d->nsessions; i++) {
		const struct wsession *s = d->sessions[i];
		/* Acquire: pairs with the release in queue_leaves(), for what the thread before this one left of a queue. */
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);

		for (; mask; mask &= mask - 1) {
			const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];
			uint64_t may_ns = gantry_load_relaxed(&s->quota->spin_ns);

			if (!q->open || q->led->issued == q->led->done)
				continue;
			may_ns = GANTRY_MIN(may_ns, most);
			f.bound_ns = may_ns > f.bound_ns ? may_ns : f.bound_ns;
			f.nqueues++;
			if (q->nunknown)
				f.soonest_ns = 0;
			else if (q->window_ns < f.soonest_ns)
				f.soonest_ns = q->window_ns;
		}
	}
	return f;
}

/*
 * A board's process begins the next launch by itself, so that nobody but the guest waits for who tells the end: only what is shorter than being
 * woken is watched. Elsewhere the thread that watches has the next command, and a device that waits for it.
 */
static bool is_slept_through(const struct wdevice *d, const struct flight *f)
{
	return d->device.info.kind == GANTRY_KIND_FPGA &&
	       (f->soonest_ns == 0 || f->soonest_ns > FLIGHT_LEAD_NS);
}

/* Since a command went to an idle device or one was seen to end. */
static uint64_t flown_ns(const struct wdevice *d)
{
	return (gantry_cycles() - d->flight_since) * GANTRY_NS_PER_US / gantry_cycles_per_us();
}

/* How long before its expected end a flight that is slept through is watched again, and after it. */
static uint64_t lead_ns(const struct flight *f)
{
	return GANTRY_MIN(f->soonest_ns / 16 + FLIGHT_LEAD_NS, f->bound_ns / 2);
}

uint64_t worker_flight_watch_ns(const struct wdevice *d)
{
	struct flight f = flight_of(d);
	uint64_t flown, lead, early, twice;

	if (f.soonest_ns == UINT64_MAX || is_slept_through(d, &f))
		return 0;
	if (f.soonest_ns <= f.bound_ns) {
		/* Estimates are of device time, which queues in flight at once share: each takes longer by as much. */
		twice = 2 * f.soonest_ns * f.nqueues + FLIGHT_FLOOR_NS;
		return f.soonest_ns == 0 || twice > f.bound_ns ? f.bound_ns : twice;
	}
	flown = flown_ns(d);
	lead = lead_ns(&f);
	/* Sleeps are of whole milliseconds. */
	early = GANTRY_MIN(f.bound_ns / 2, (uint64_t)GANTRY_NS_PER_MS);
	if (flown + lead + early < f.soonest_ns || flown >= f.soonest_ns + lead)
		return 0;
	return f.soonest_ns + lead - flown;
}

int worker_flight_park_ms(const struct wdevice *d)
{
	struct flight f = flight_of(d);
	uint64_t before;

	if (d->runs_here || f.soonest_ns == UINT64_MAX || f.soonest_ns <= f.bound_ns ||
	    is_slept_through(d, &f))
		return PARK_MS;
	before = flown_ns(d) + lead_ns(&f);
	if (before + GANTRY_NS_PER_MS > f.soonest_ns)
		return PARK_MS;
	return (int)GANTRY_MIN((f.soonest_ns - before) / GANTRY_NS_PER_MS, (uint64_t)PARK_MS);
}
