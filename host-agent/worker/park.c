/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device thread does that finds nothing to do: it spins a while (lanes go back soon) if it serves anything, then parks: every ring says so,
 * every ring is looked at once more, then the thread sleeps in epoll on the bells of the sessions of which it serves something. While only a lane is
 * missing it sleeps on its word of the share page instead.
 */
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/thread.h"

#define IDLE_TURNS_WITH_LANE 64u /* empty rounds, some 2 us: lanes that are not kept go back */
#define VAIN_RINGS	     64u /* in a row, after which bells are heard once in a pause */
#define VAIN_PAUSE_MS	     1
#define LANE_SLEEP_NS	     2000000u /* rings are not watched while a lane is waited for */
#define GPU_SLEEP_NS	     300000u /* who stands back in its own party is called now and then only */
#define LANE_SPIN_US	     (2 * GANTRY_SHARE_WINDOW_URGENT_US)

/* Publishes what worker_reap() finished outside a turn, and gives lanes of empty queues back. Returns how many it gave. */
static uint32_t settle(struct wdevice *d, bool give_lanes)
{
	uint32_t held = d->nlanes_held;

	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);
		bool wants = false;

		for (; mask; mask &= mask - 1) {
			struct wqueue *q = &s->queues[__builtin_ctzll(mask)];
			bool more = q->open && q->led->issued < q->led->taken &&
				    worker_may_issue(q);

			if (!q->open)
				continue;
			worker_publish(q);
			worker_charge_time(d, q);
			wants = wants || (more && !q->blocked);
			if (give_lanes && q->led->issued == q->led->done)
				worker_lane_give(d, q, more);
		}
		if (give_lanes)
			(void)worker_gpu_give(d, s, wants);
	}
	return held - d->nlanes_held;
}

static void park_rings(struct wdevice *d, bool park)
{
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);

		if (worker_has_control(d, s))
			mask |= 1;
		for (; mask; mask &= mask - 1) {
			struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

			if (!q->open && q->slot != 0)
				continue;
			if (park)
				gantry_ring_park(&q->ring);
			else
				gantry_ring_unpark(&q->ring);
		}
	}
}

/*
 * Bells wake only threads that serve something of their session: each of a guest's rings would wake the threads of all its devices, to
 * find nothing. What comes to such a thread comes from another one of ours, which wakes it. A bell that is heard again
 * tells of what was before, as its counter is never read: that is forgotten here, for all rings are looked at once more before the sleep.
 */
static void choose_bells(struct wdevice *d)
{
	struct epoll_event events[16];
	bool heard = false;

	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		bool deaf = !worker_has_control(d, s) && !gantry_load_acquire(&s->served[d->index]);
		struct epoll_event ev = { .events = EPOLLET, .data.ptr = s };

		if (!deaf)
			ev.events |= EPOLLIN;
		if (deaf == s->deaf[d->index] ||
		    epoll_ctl(d->epoll_fd, EPOLL_CTL_MOD, s->bell_fd, &ev) < 0)
			continue;
		s->deaf[d->index] = deaf;
		heard = heard || !deaf;
	}
	if (heard)
		(void)epoll_wait(d->epoll_fd, events, 16, 0);
}

static bool anything_new(struct wdevice *d)
{
	if (gantry_load_acquire(&d->ncalls) || (gantry_load_relaxed(&d->stop) && d->nsessions == 0))
		return true;
	/* Commands with the device need no watching: it calls host_wake() when one has finished. */
	if (worker_round(d) == 0)
		return d->lane_wanted;
	d->nvain = 0;
	return true;
}

/* The wake descriptor is ours alone and non-blocking; bells are never read. */
static void forget_wake(struct wdevice *d)
{
	uint64_t count;
	ssize_t n = read(d->wake_fd, &count, sizeof(count));

	(void)n;
}

/*
 * A guest that rings for nothing costs a wake-up each time. While that goes on only our own calls are heard for a
 * while. Whether one came.
 */
static bool pause_bells(struct wdevice *d)
{
	struct pollfd p = { .fd = d->wake_fd, .events = POLLIN };

	return poll(&p, 1, VAIN_PAUSE_MS) > 0;
}

static void park(struct wdevice *d)
{
	struct epoll_event events[16];

	worker_faults_tell(d);
	park_rings(d, true);
	choose_bells(d);
	gantry_store_relaxed(&d->asleep, 1);
	/* Full fence: pairs with the one in worker_device_wake(). */
	gantry_fence_full();
	if (!anything_new(d)) {
		bool called = d->nvain >= VAIN_RINGS && pause_bells(d);
		int n = called ? 0 : epoll_wait(d->epoll_fd, events, 16, worker_flight_park_ms(d));

		d->nvain = n > 0 ? d->nvain + 1 : 0;
		for (int i = 0; i < n; i++)
			if (!events[i].data.ptr) {
				forget_wake(d);
				d->nvain = 0;
			}
	}
	gantry_store_relaxed(&d->asleep, 0);
	worker_standin_wake(d->engine);
	park_rings(d, false);
}

/* An OpenCL device may be this machine's processors: what is watched for needs the one that watches. */
static void let_others_run(const struct wdevice *d)
{
	if (d->device.info.kind == GANTRY_KIND_OPENCL)
		(void)sched_yield();
	else
		gantry_cpu_relax();
}

/*
 * Watches what is in flight on a device that works by itself: to sleep and be woken costs some 40 us, more than most
 * commands take. True: something was found to do.
 */
static bool watch_flight(struct wdevice *d)
{
	uint64_t until;

	if (d->runs_here || d->nactive == 0)
		return false;
	until = gantry_cycles() +
		worker_flight_watch_ns(d) * gantry_cycles_per_us() / GANTRY_NS_PER_US;
	do {
		if (worker_round(d) > 0 || gantry_load_acquire(&d->ncalls))
			return true;
		let_others_run(d);
	} while (gantry_cycles() < until);
	return false;
}

/* A turn on a GPU ends when what is in flight has: soon, and what is gained is the GPU's time. */
static bool watch_lanes(struct wdevice *d)
{
	uint64_t until;

	if (!worker_gpu(d))
		return false;
	until = gantry_cycles() + LANE_SPIN_US * gantry_cycles_per_us();
	do {
		if (worker_round(d) > 0 || !d->lane_wanted || gantry_load_acquire(&d->ncalls))
			return true;
		gantry_cpu_relax();
	} while (gantry_cycles() < until);
	return false;
}

/* What may come soon comes through a ring, or a job waits for it. Who has none of them is woken, and leaves the processor to who has. */
static bool expects_more(const struct wdevice *d)
{
	if (!gantry_list_is_empty(&d->jobs))
		return true;
	for (uint32_t i = 0; i < d->nsessions; i++)
		if (worker_has_control(d, d->sessions[i]) ||
		    gantry_load_relaxed(&d->sessions[i]->served[d->index]))
			return true;
	return false;
}

static bool spin(struct wdevice *d)
{
	unsigned turns = 0;
	bool hit = false;

	gantry_spin_begin(&d->spin);
	while (gantry_spin_again(&d->spin) || worker_gpu_keeps(d)) {
		if (anything_new(d)) {
			hit = true;
			break;
		}
		if (d->nlanes_held && ++turns >= IDLE_TURNS_WITH_LANE && !worker_gpu_keeps(d)) {
			(void)settle(d, true);
			turns = 0;
		}
	}
	gantry_spin_end(&d->spin, hit);
	return hit;
}

void worker_idle(struct wdevice *d, uint32_t ticket)
{
	(void)settle(d, false);
	if (watch_flight(d))
		return;
	/* The lane that is missing may be one of ours, held for nothing. */
	if (d->lane_wanted && settle(d, true) > 0)
		return;
	/* A command that finishes ends this sleep too: host_wake() nudges. */
	if (d->lane_wanted) {
		uint64_t sleep_ns = worker_gpu(d) ? GPU_SLEEP_NS : LANE_SLEEP_NS;

		if (!watch_lanes(d))
			gantry_share_sleep(d->page, d->owner, ticket, gantry_now_ns() + sleep_ns);
		return;
	}
	if (expects_more(d) && spin(d))
		return;
	(void)settle(d, true);
	park(d);
}
