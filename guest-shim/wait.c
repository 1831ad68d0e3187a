/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/wait.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/spin.h"
#include "guest-shim/error.h"
#include "guest-shim/queue.h"

/*
 * Falling asleep and being woken costs some 35 us; who spins about as long as that never pays much
 * more than twice the price of the better choice.
 */
#define SPIN_MAX_NS 50000u
/* Where a host does not wake us, a pause takes some 100 us whatever it is asked for: a machine's timer. */
#define SPIN_POLLED_MAX_NS 200000u

/*
 * Copies and kernels of a device that works by itself take some hundred microseconds often, and always about as long;
 * a wake-up at the end of each is a good part of that. Whoever waits for them spins as long as waits on the queue took
 * lately and half as much again, as the vendors' own libraries do without any bound, if that is no longer than this.
 * There have to be processors for the host, too.
 */
#define LONG_SPIN_NS	(2 * GANTRY_NS_PER_MS)
#define LONG_FLOOR_NS	20000u
#define LONG_MIN_NCPUS	4u
#define LONG_MEAN_SHIFT 2 /* a new wait counts a quarter */
/* Longer waits, up to a second, are slept through, but for their end: so long before it and after, and a sixteenth of the wait. */
#define DOZE_MAX_NS	 GANTRY_NS_PER_S
#define DOZE_LEAD_NS	 200000u
#define DOZE_LEAD_SHIFT	 4
#define DOZE_LEAD_MAX_NS GANTRY_NS_PER_MS

/* Longest sleep without a look at the session's state and the door. */
#define SLICE_NS (100 * GANTRY_NS_PER_MS)

/* A thread learns apart of hosts that wake it, and of those that it polls. */
static struct gantry_spin *this_thread(const struct gantry_session *s)
{
	static __thread struct gantry_spin spins[2];
	static __thread bool are_ready[2];
	bool is_apart = s->transport->is_apart;

	if (!are_ready[is_apart]) {
		gantry_spin_init(&spins[is_apart], is_apart ? SPIN_POLLED_MAX_NS : SPIN_MAX_NS,
				 s->ncpus);
		are_ready[is_apart] = true;
	}
	return &spins[is_apart];
}

static bool spin_for(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq)
{
	struct gantry_spin *spin;
	bool hit;

	if (s->transport->is_pumped)
		return false;
	spin = this_thread(s);
	gantry_spin_begin(spin);
	while (!(hit = gantry_ring_done(map) >= seq) && gantry_spin_again(spin))
		;
	gantry_spin_end(spin, hit);
	return hit;
}

static bool may_spin_long(const struct gantry_session *s, const struct gantry_queue_end *q)
{
	uint32_t kind = gantry_load_relaxed(&q->kind);

	return kind != GANTRY_KIND_ANY && kind != GANTRY_KIND_CPU && s->ncpus >= LONG_MIN_NCPUS &&
	       !s->transport->is_pumped;
}

/* After spin_for() in vain: until the wait, begun at @start, has taken what waits take. */
static bool spin_long(const struct gantry_queue_end *q, uint64_t seq, uint64_t start,
		      uint64_t deadline_ns)
{
	uint64_t now_ns = gantry_now_ns();
	uint64_t left_us = now_ns < deadline_ns ? (deadline_ns - now_ns) / GANTRY_NS_PER_US : 0;
	uint64_t mean = gantry_load_relaxed(&q->wait_cycles);
	uint64_t us = gantry_cycles_per_us();
	uint64_t most;

	/* A deadline that comes sooner is kept by who sleeps. */
	if (mean == 0 || mean > LONG_SPIN_NS / GANTRY_NS_PER_US * us ||
	    left_us < 2 * LONG_SPIN_NS / GANTRY_NS_PER_US)
		return false;
	most = mean + mean / 2 + LONG_FLOOR_NS * us / GANTRY_NS_PER_US;
	while (gantry_ring_done(&q->ring.map) < seq) {
		if (gantry_cycles() - start >= most)
			return false;
		gantry_cpu_relax();
	}
	return true;
}

/* Threads that wait on one queue at a time may lose a sample of each other's. */
static void learn_wait(struct gantry_queue_end *q, uint64_t took)
{
	uint64_t mean = gantry_load_relaxed(&q->wait_cycles);

	mean = mean ? mean - (mean >> LONG_MEAN_SHIFT) + (took >> LONG_MEAN_SHIFT) : took;
	gantry_store_relaxed(&q->wait_cycles, mean);
}

void gantry_wait_sleep(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq,
		       uint64_t deadline_ns)
{
	if (s->transport->sleep)
		s->transport->sleep(s->cookie, map, seq, deadline_ns);
	else
		(void)gantry_ring_wait_sleep(map, seq, deadline_ns); /* early is fine */
}

/* 1: the deadline has passed. */
static int sleep_for(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq,
		     uint64_t deadline_ns)
{
	while (gantry_ring_done(map) < seq) {
		uint64_t now = gantry_now_ns();
		int r = gantry_session_look(s);

		if (r < 0)
			return r;
		if (now >= deadline_ns)
			return 1;
		gantry_count_add(&s->nsleeps, 1);
		/* Woken or not: what counts is what the next turn sees. */
		gantry_wait_sleep(s, map, seq,
				  deadline_ns - now < SLICE_NS ? deadline_ns : now + SLICE_NS);
	}
	return 0;
}

static int wait_asleep(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq,
		       uint64_t deadline_ns)
{
	int r;

	gantry_ring_wait_enter(map);
	r = sleep_for(s, map, seq, deadline_ns);
	gantry_ring_wait_leave(map);
	return r;
}

/* Asleep until shortly before the end of a wait as they were lately, begun at @start, then awake. 1: it is not over. */
static int doze(struct gantry_session *s, const struct gantry_queue_end *q, uint64_t seq,
		uint64_t start, uint64_t deadline_ns)
{
	uint64_t us = gantry_cycles_per_us();
	uint64_t mean_ns = gantry_load_relaxed(&q->wait_cycles) * GANTRY_NS_PER_US / us;
	uint64_t now_ns = gantry_now_ns();
	uint64_t lead_ns = GANTRY_MIN((mean_ns >> DOZE_LEAD_SHIFT) + DOZE_LEAD_NS,
				      (uint64_t)DOZE_LEAD_MAX_NS);
	uint64_t end_ns = now_ns + mean_ns - (gantry_cycles() - start) * GANTRY_NS_PER_US / us;
	int r;

	if (mean_ns <= LONG_SPIN_NS || mean_ns > DOZE_MAX_NS || end_ns + lead_ns > deadline_ns)
		return 1;
	r = wait_asleep(s, &q->ring.map, seq, end_ns - lead_ns);
	while (r > 0 && gantry_now_ns() < end_ns + lead_ns)
		if (gantry_ring_done(&q->ring.map) >= seq)
			r = 0;
		else
			gantry_cpu_relax();
	return r;
}

static int wait_long(struct gantry_session *s, struct gantry_queue_end *q, uint64_t seq,
		     uint64_t deadline_ns)
{
	bool learns = may_spin_long(s, q);
	uint64_t start = learns ? gantry_cycles() : 0;
	int r = 0;

	if (!spin_for(s, &q->ring.map, seq) && !(learns && spin_long(q, seq, start, deadline_ns)))
		r = learns ? doze(s, q, seq, start, deadline_ns) : 1;
	if (r > 0)
		r = wait_asleep(s, &q->ring.map, seq, deadline_ns);
	if (learns && r == 0)
		learn_wait(q, gantry_cycles() - start);
	gantry_session_order(s);
	return r > 0 ? gantry_fail_plain(GANTRY_E_TIMEOUT) : r;
}

/* Without waiting; where words change only while somebody reads the transport, that is done. */
static int look_now(struct gantry_session *s, const struct gantry_ring_map *map, uint64_t seq)
{
	if (s->transport->is_pumped)
		s->transport->sleep(s->cookie, map, seq, 0);
	return gantry_session_look(s);
}

/* Whether it is over; 1: what was seen tells nothing (gantry_queue_done()), and the door is there: to be looked at again. */
static int believe(struct gantry_session *s, struct gantry_queue_end *q, uint64_t seq)
{
	int r;

	if (gantry_queue_done(q) >= seq)
		return 0;
	r = gantry_session_look_now(s);
	return r < 0 ? r : 1;
}

static int wait_seq(struct gantry_session *s, struct gantry_queue_end *q, uint64_t seq,
		    uint64_t deadline_ns)
{
	const struct gantry_ring_map *map = &q->ring.map;
	int r;

	if (gantry_ring_done(map) >= seq) {
		gantry_session_order(s);
		return 0;
	}
	if (deadline_ns == 0) { /* asked without waiting */
		r = look_now(s, map, seq);
		if (gantry_ring_done(map) >= seq) {
			gantry_session_order(s);
			return 0;
		}
		return r < 0 ? r : gantry_fail_plain(GANTRY_E_TIMEOUT);
	}
	return wait_long(s, q, seq, deadline_ns);
}

int gantry_wait_seq(struct gantry_session *s, struct gantry_queue_end *q, uint64_t seq,
		    uint64_t deadline_ns)
{
	int r;

	for (;;) {
		r = wait_seq(s, q, seq, deadline_ns);
		if (r == 0)
			r = believe(s, q, seq);
		if (r <= 0)
			return r;
		if (gantry_now_ns() >= deadline_ns)
			return gantry_fail_plain(GANTRY_E_TIMEOUT);
		gantry_cpu_relax();
	}
}

void gantry_wait_snapshot(struct gantry_session *s, uint64_t ret_tails[GANTRY_MAX_QUEUES])
{
	for (uint32_t i = 0; i < GANTRY_MAX_QUEUES; i++)
		ret_tails[i] = 0;
	for (uint32_t i = 0; i < s->nqueues; i++) {
		/* Acquire: pairs with the release in gantry_batch_flush(). */
		uint64_t tail = gantry_load_acquire(&s->queues[i].tail);

		if (tail > gantry_queue_done(&s->queues[i]))
			ret_tails[i] = tail;
	}
}

int gantry_wait_tails(struct gantry_session *s, const uint64_t tails[GANTRY_MAX_QUEUES],
		      uint64_t deadline_ns)
{
	for (uint32_t i = 0; i < s->nqueues; i++) {
		int r = tails[i] ? gantry_wait_seq(s, &s->queues[i], tails[i], deadline_ns) : 0;

		if (r < 0)
			return r;
	}
	return 0;
}

int gantry_ticket_find(struct gantry_session *s, gantry_ticket ticket,
		       struct gantry_queue_end **ret_queue, uint64_t *ret_seq)
{
	uint32_t slot = GANTRY_TICKET_QUEUE(ticket);
	uint64_t seq = GANTRY_TICKET_SEQ(ticket);

	/* Acquire: pairs with the release in gantry_batch_flush(). */
	if (slot == 0 || slot >= s->nqueues || seq == 0 ||
	    seq > gantry_load_acquire(&s->queues[slot].tail))
		return gantry_fail(GANTRY_E_HANDLE, "no task of this session has the ticket 0x%llx",
				   (unsigned long long)ticket);
	*ret_queue = &s->queues[slot];
	*ret_seq = seq;
	return 0;
}

int gantry_ticket_status(struct gantry_queue_end *q, uint64_t seq)
{
	return gantry_failures_status(&q->failures, &q->ring.map, &q->tail, seq - 1);
}

/* ---- the API ---- */

static int task_failed(gantry_ticket ticket, int status)
{
	return gantry_fail(status, "task %llu of queue %u: %s",
			   (unsigned long long)GANTRY_TICKET_SEQ(ticket),
			   GANTRY_TICKET_QUEUE(ticket), gantry_status_text(status));
}

/* When a call gives up; the clock is looked at once, by who waits first. A timeout of 0 needs no look. */
struct patience {
	int64_t timeout_ns;
	uint64_t deadline_ns; /* 0: not needed so far */
};

static uint64_t deadline_of(struct patience *p)
{
	if (p->timeout_ns && !p->deadline_ns)
		p->deadline_ns = gantry_deadline_ns(p->timeout_ns);
	return p->deadline_ns;
}

/* 0 and the task's own status, or why that cannot be told. */
static int wait_one(struct gantry_session *s, gantry_ticket ticket, struct patience *p,
		    int *ret_status)
{
	struct gantry_queue_end *q;
	uint64_t seq;
	int r;

	*ret_status = 0;
	if (ticket == 0)
		return 0;
	r = gantry_ticket_find(s, ticket, &q, &seq);
	if (r < 0)
		return r;
	if (gantry_queue_done(q) >= seq)
		gantry_session_order(s);
	else
		r = gantry_wait_seq(s, q, seq, deadline_of(p));
	if (r == 0)
		*ret_status = gantry_ticket_status(q, seq);
	return r;
}

__attribute__((noinline)) static int wait_all(struct gantry_session *s,
					      const gantry_ticket *tickets, unsigned n,
					      int64_t timeout_ns)
{
	struct patience patience = { .timeout_ns = timeout_ns };
	gantry_ticket failed = 0;
	int first_status = 0;
	int r = gantry_session_enter(s);

	if (r < 0)
		return r;
	if ((n > 0 && !tickets) || timeout_ns < GANTRY_FOREVER)
		return gantry_fail_plain(GANTRY_E_ARG);
	for (unsigned i = 0; i < n; i++) {
		int status;

		r = wait_one(s, tickets[i], &patience, &status);
		if (r < 0)
			return r;
		if (status < 0 && first_status == 0) {
			first_status = status;
			failed = tickets[i];
		}
	}
	return first_status ? task_failed(failed, first_status) : 0;
}

/* Whether the task is seen finished and no task of its queue ever failed. */
static inline bool is_over_and_well(const struct gantry_session *s, gantry_ticket ticket)
{
	uint32_t slot = GANTRY_TICKET_QUEUE(ticket);
	uint64_t seq = GANTRY_TICKET_SEQ(ticket);
	const struct gantry_queue_end *q = &s->queues[slot];

	if (slot == 0 || slot >= s->nqueues)
		return false;
	/* seq is neither 0 nor above what is done. */
	return seq - 1 < gantry_queue_done(q) &&
	       !(gantry_ring_nfailed(&q->ring.map) | gantry_load_relaxed(&q->failures.n));
}

/* Whether there is nothing to wait for and nothing to tell, as most who wait find; false means nothing. */
static inline bool are_over_and_well(const struct gantry_session *s, const gantry_ticket *tickets,
				     unsigned n)
{
	if (!s || !gantry_load_relaxed(&s->mark->is_ours) || !tickets)
		return false;
	for (unsigned i = 0; i < n; i++)
		if (!is_over_and_well(s, tickets[i]))
			return false;
	gantry_session_order(s);
	return true;
}

int gantry_wait(struct gantry_session *session, const gantry_ticket *tickets, unsigned n,
		int64_t timeout_ns)
{
	if (timeout_ns >= GANTRY_FOREVER && are_over_and_well(session, tickets, n))
		return 0;
	return wait_all(session, tickets, n, timeout_ns);
}

int gantry_test(struct gantry_session *session, gantry_ticket ticket)
{
	struct gantry_queue_end *q;
	uint64_t seq;
	int r = gantry_session_enter(session);

	if (r < 0)
		return r;
	if (ticket == 0)
		return 1;
	r = gantry_ticket_find(session, ticket, &q, &seq);
	if (r < 0)
		return r;
	if (gantry_queue_done(q) < seq) {
		r = look_now(session, &q->ring.map, seq);
		if (r < 0 || gantry_queue_done(q) < seq)
			return r;
	}
	gantry_session_order(session);
	r = gantry_ticket_status(q, seq);
	return r < 0 ? task_failed(ticket, r) : 1;
}
