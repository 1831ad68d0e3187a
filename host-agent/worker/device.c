/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device thread: turns over the queues it serves, lanes, submission, polling, and sleep.
 *
 * One round looks at every session once. A queue's turn issues what its window, its lane and the session's limits
 * allow. When a round finds nothing, the thread spins a while (lanes go back soon), then parks: every ring says so,
 * every ring is looked at once more, then the thread sleeps in epoll on the sessions' bells. While only a lane is
 * missing it sleeps on its word of the share page instead.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/worker/affinity.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/output.h"

#define IDLE_TURNS_WITH_LANE 64u /* empty rounds, some 2 us, after which lanes are given back */
#define VAIN_RINGS	     64u /* in a row, after which bells are heard once in a pause */
#define VAIN_PAUSE_MS	     1
#define LANE_SLEEP_NS	     2000000u /* rings are not watched while a lane is waited for */
#define GPU_SLEEP_NS	     300000u /* who stands back in its own party is called now and then only */
#define LANE_SPIN_US	     (2 * GANTRY_SHARE_WINDOW_URGENT_US)
#define DEFAULT_SPIN_NS	     50000u
/* A guest that polls is in a virtual machine: its bell is an exit of the machine, and nothing tells it of an answer that came late. */
#define POLLED_SPIN_NS 200000u
#define CAREFUL_TASKS  4096u /* of a queue, once its session's context has failed */

/* ---- waking ---- */

void worker_device_wake(struct wdevice *d)
{
	uint64_t one = 1;

	/* Full fence: pairs with the one in park(); the thread sees what was changed before, or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&d->asleep)) {
		ssize_t n = write(d->wake_fd, &one, sizeof(one));

		(void)n; /* a full counter has woken it already */
	}
	gantry_share_nudge(d->page, d->owner);
}

static void host_wake(void *cookie)
{
	worker_device_wake(cookie);
}

static int host_cancelled(void *cookie, uint64_t tag)
{
	const struct wqueue *q = (const struct wqueue *)(uintptr_t)tag;

	(void)cookie;
	if (worker_job_is(tag))
		return gantry_load_relaxed(&worker_job_session(tag)->ending) != 0;
	return gantry_load_relaxed(&q->session->ending) != 0;
}

/* A command is at work on the host: its deadline waits, and so does its claim to the device. */
static void host_off_device(void *cookie, uint64_t tag, bool off)
{
	struct wqueue *q = (struct wqueue *)(uintptr_t)tag;

	if (worker_job_is(tag))
		return;
	worker_off_device(q, off);
	worker_gpu_off_device(cookie, q, off);
}

static bool host_print_begin(void *cookie, uint64_t tag)
{
	const struct wdevice *d = cookie;

	return !worker_job_is(tag) &&
	       worker_output_begin(d, ((struct wqueue *)(uintptr_t)tag)->session);
}

static void host_print_end(void *cookie, uint64_t tag, uint32_t fault)
{
	worker_output_end(cookie, ((struct wqueue *)(uintptr_t)tag)->session, fault);
}

/* ---- calls from the control thread ---- */

struct call {
	struct gantry_list link;
	void (*fn)(struct wdevice *d, void *arg);
	void *arg;
};

int worker_device_post(struct wdevice *d, void (*fn)(struct wdevice *d, void *arg), void *arg)
{
	struct call *call = malloc(sizeof(*call));

	if (!call)
		return -ENOMEM;
	gantry_list_init(&call->link);
	call->fn = fn;
	call->arg = arg;
	pthread_mutex_lock(&d->call_lock);
	gantry_list_push_back(&d->calls, &call->link);
	pthread_mutex_unlock(&d->call_lock);
	(void)gantry_fetch_add(&d->ncalls, 1);
	worker_device_wake(d);
	return 0;
}

static void run_calls(struct wdevice *d)
{
	while (gantry_load_acquire(&d->ncalls) > 0) {
		struct gantry_list *link;
		struct call *call;

		pthread_mutex_lock(&d->call_lock);
		link = gantry_list_pop_front(&d->calls);
		pthread_mutex_unlock(&d->call_lock);
		if (!link)
			return; /* pushed and not counted yet: the poster wakes us after it */
		call = gantry_list_entry(link, struct call, link);
		(void)gantry_fetch_sub(&d->ncalls, 1);
		call->fn(d, call->arg);
		free(call);
	}
}

/* ---- lanes ---- */

/* A queue whose device was drained, and that has nowhere else to go, waits as a paused one does. */
static bool may_issue(const struct wqueue *q)
{
	uint64_t allowed = gantry_load_relaxed(&q->session->ledger.hdr->device_allowed);

	/* Acquire: pairs with the release in source_orphan(). */
	return gantry_load_acquire(&q->held) == 0 && gantry_load_relaxed(&q->led->paused) == 0 &&
	       gantry_load_relaxed(&q->led->guest_paused) == 0 &&
	       (allowed >> gantry_load_relaxed(&q->led->device) & 1);
}

static bool needs_lane(const struct wqueue *q)
{
	uint16_t op = gantry_ledger_task(&q->session->ledger, q->slot, q->led->issued)->desc.op;

	return op != GANTRY_OP_wait && op != GANTRY_OP_await && op != GANTRY_OP_marker &&
	       !worker_doomed(q);
}

/* Whether a queue could use a lane at once, if it had one. */
static bool wants_lane(const struct wdevice *d, const struct wqueue *q)
{
	bool has = worker_gpu(d) ? worker_gpu_has_lane(d, q) : q->lane >= 0;

	return q->open && !has && !q->blocked && q->led->issued < q->led->taken && may_issue(q) &&
	       needs_lane(q);
}

/* A queue of the same session that should have a lane before this one. */
static bool sibling_first(const struct wdevice *d, const struct wqueue *q)
{
	uint64_t mask = gantry_load_relaxed(&q->session->served[d->index]) & ~(1ull << q->slot);

	for (; mask; mask &= mask - 1) {
		const struct wqueue *o = &q->session->queues[__builtin_ctzll(mask)];

		if (wants_lane(d, o) &&
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

		if (!wants_lane(d, q))
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
	d->nlanes_held++;
	return true;
}

/* Books device time that was measured. Not for each task: it takes some ten locked instructions. */
static void charge(struct wdevice *d, struct wqueue *q)
{
	if (q->uncharged_ns == 0)
		return;
	if (worker_gpu(d)) {
		worker_gpu_charge(d, q);
		return;
	}
	gantry_share_charge(d->page, q->session->share_slot, q->uncharged_ns);
	q->uncharged_ns = 0;
}

static void lane_give(struct wdevice *d, struct wqueue *q, bool still_wants)
{
	charge(d, q);
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

/* ---- completion of commands ---- */

static void command_done(struct wdevice *d, const struct gantry_done *done)
{
	struct wqueue *q = (struct wqueue *)(uintptr_t)done->tag;
	uint32_t i = (uint32_t)q->led->done % WORKER_WINDOW_TASKS;
	struct wkernel *k = q->inflight_kernel[i];

	d->nactive--;
	d->turn_ns += done->device_ns;
	worker_flight_learn(d, q->copy_bytes[i], done);
	q->window_ns -= q->est_ns[i];
	q->nunknown -= q->est_ns[i] == 0;
	if (k)
		worker_flight_learn_kernel(d, q, k, done->device_ns);
	if (worker_gpu(d))
		worker_gpu_done(d, q, k, done->device_ns);
	else
		q->uncharged_ns += done->device_ns;
	if (q->uncharged_ns >= WORKER_CHARGE_NS)
		charge(d, q);
	if (done->stamp_ns)
		worker_stamp(q, done->stamp_ns);
	worker_finish(q, done->status, done->device_ns);
}

static void any_done(struct wdevice *d, const struct gantry_done *done)
{
	if (worker_job_is(done->tag))
		worker_job_done(d, done);
	else
		command_done(d, done);
}

/* ---- faults ---- */

/* What has finished is told before anything else happens. */
static void publish_all(struct wdevice *d)
{
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_relaxed(&s->served[d->index]);

		for (; mask; mask &= mask - 1) {
			struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

			if (!q->open)
				continue;
			charge(d, q);
			worker_publish(q);
		}
	}
}

static void tell_fault(struct wdevice *d, uint32_t blast, int status, const char *why)
{
	publish_all(d);
	/* What the driver said of it; the agent may end this process at once. */
	worker_output_look();
	d->engine->events.device_fault(d->engine->events.cookie, d->name, blast, status, why);
}

/* What is told of all of them: the fault, which may be of others if none of these had begun. @endless: that is known to be one launch's. */
static int32_t worst(const struct gantry_done *failed, uint32_t nfailed, bool endless)
{
	if (endless)
		return GANTRY_E_DEADLINE;
	for (uint32_t i = 0; i < nfailed; i++)
		if (failed[i].status != GANTRY_E_INTERRUPTED)
			return failed[i].status;
	return failed[0].blast >= GANTRY_BLAST_DEVICE ? GANTRY_E_DEVICE_LOST
						      : GANTRY_E_DEVICE_FAULT;
}

/* The device refuses what it cannot refuse while it is well. */
static void tell_unusable(struct wdevice *d, const char *why)
{
	struct gantry_device_health health;
	struct gantry_err err;

	if (d->device.backend->health &&
	    d->device.backend->health(d->device.dev, &health, &err) < 0)
		tell_fault(d, GANTRY_BLAST_DEVICE, GANTRY_E_DEVICE_LOST, err.text);
	else
		tell_fault(d, GANTRY_BLAST_CONTEXT, GANTRY_E_DEVICE_FAULT, why);
}

/* A launch that a device could not end: it has cost the context, and nobody need ask whose fault that is. */
static bool is_endless(const struct gantry_done *done)
{
	return done->blast == GANTRY_BLAST_CONTEXT && done->status == GANTRY_E_DEADLINE;
}

/* Finished ones are finished; the others are kept in @failed. Returns how many it keeps then. */
static uint32_t sort_out(struct wdevice *d, const struct gantry_done *done, unsigned n,
			 struct gantry_done *failed, uint32_t nfailed, bool *endless)
{
	for (unsigned i = 0; i < n; i++) {
		*endless = *endless || is_endless(&done[i]);
		if (done[i].blast >= GANTRY_BLAST_CONTEXT && !is_endless(&done[i]))
			failed[nfailed++] = done[i];
		else
			any_done(d, &done[i]);
	}
	return nfailed;
}

/*
 * The context is gone, and this process with it. Tasks that had finished are finished; those in flight stay so in
 * the ledger, for the agent knows better than we whose fault it was, and a successor settles them. Only tests come
 * back from the event: for them they fail here.
 */
static void context_failed(struct wdevice *d, const struct gantry_done *done, unsigned n)
{
	struct gantry_done *failed = calloc(d->nactive, sizeof(*failed));
	struct gantry_done more[16];
	bool endless = false;
	uint32_t nfailed;
	int32_t status;

	if (!failed) {
		tell_fault(d, GANTRY_BLAST_CONTEXT, GANTRY_E_DEVICE_FAULT, "a task failed");
		return;
	}
	nfailed = sort_out(d, done, n, failed, 0, &endless);
	/* What finished before the fault and was not told yet. A device that works here has nothing of the kind. */
	while (!d->runs_here && d->nactive > nfailed &&
	       (n = d->device.backend->poll(d->device.dev, more, GANTRY_ARRAY_SIZE(more))) > 0)
		nfailed = sort_out(d, more, n, failed, nfailed, &endless);
	if (!d->runs_here)
		worker_count_back(failed, nfailed);
	status = worst(failed, nfailed, endless);
	tell_fault(d, endless ? GANTRY_BLAST_CONTEXT : failed[0].blast, status,
		   endless ? "a launch did not end" : gantry_status_text(status));
	for (uint32_t i = 0; i < nfailed; i++)
		any_done(d, &failed[i]);
	free(failed);
}

static bool any_failed(const struct gantry_done *done, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (done[i].blast >= GANTRY_BLAST_CONTEXT)
			return true;
	return false;
}

/*
 * The agent ends this worker, and has the work on the device cut off before (mps.c): that looks finished, and is not.
 * Looked at after the device was. Done to workers of one session only.
 */
static bool is_fenced(const struct wdevice *d)
{
	const struct wsession *s = d->nsessions == 1 ? d->sessions[0] : NULL;

	return s && gantry_load_acquire(&s->ledger.hdr->epoch) != s->fence;
}

static unsigned reap(struct wdevice *d)
{
	bool runs_here = d->runs_here;
	struct gantry_done done[WORKER_FLUSH_TASKS];
	uint64_t began = 0;
	unsigned n;

	if (d->nactive == 0)
		return 0;
	if (runs_here)
		began = worker_run_begin(d);
	n = d->device.backend->poll(d->device.dev, done, GANTRY_ARRAY_SIZE(done));
	if (n > 0)
		d->flight_since = gantry_cycles();
	if (runs_here)
		worker_run_end(d, began);
	if (n > 0 && is_fenced(d))
		return 0;
	if (any_failed(done, n)) {
		context_failed(d, done, n);
		return n;
	}
	for (unsigned i = 0; i < n; i++)
		any_done(d, &done[i]);
	return n;
}

/* ---- issuing ---- */

/* A board is loaded for the work that it can see: whatever a stream has room for. */
static uint32_t usual_window_us(const struct wdevice *d)
{
	return d->device.info.kind == GANTRY_KIND_FPGA ? WORKER_WINDOW_BOARD_US : WORKER_WINDOW_US;
}

static bool window_open(const struct wdevice *d, const struct wqueue *q)
{
	uint32_t asked_us = gantry_load_relaxed(&q->led->window_us);
	uint32_t us = worker_gpu_window_us(d, q, asked_us ? asked_us : usual_window_us(d));
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

/* The lane for the next task: held and still ours, or taken now. */
static bool lane_ready(struct wdevice *d, struct wqueue *q)
{
	uint64_t kept;

	if (worker_gpu(d))
		return worker_gpu_lane_ready(d, q);
	if (q->lane < 0)
		return lane_take(d, q);
	kept = lane_kept(d, q);
	if ((kept == 0 || (kept >> q->lane & 1)) &&
	    !gantry_share_must_yield(d->page, q->session->share_slot, &q->share_seen))
		return true;
	if (q->led->issued == q->led->done)
		lane_give(d, q, true);
	return false;
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
	q->copy_bytes[i] = k ? 0 : worker_bus_bytes(d, q);
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
	q->blocked = q->off_device && needs_lane(q);
	if (q->blocked || !window_open(d, q))
		return 0;
	if (needs_lane(q) && !lane_ready(d, q))
		return 0;
	switch (worker_bind(d, q, &status, &est_ns, &k)) {
	case WBIND_WAIT:
		q->blocked = true;
		return 0;
	case WBIND_FINISH:
		/* In order: what is with the device finishes first. Behind what does nothing the device goes on. */
		if (q->led->issued != q->led->done) {
			if (status != GANTRY_OK || needs_lane(q))
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
		(void)reap(d);
	return 1;
}

/* Calls of the driver take microseconds each: who has many to make must not hold up who waits for one. */
static bool turn_over(const struct wdevice *d, uint64_t began)
{
	if (d->runs_here || d->nbeside < 2)
		return false;
	return gantry_cycles() - began > WORKER_TURN_BESIDE_US * gantry_cycles_per_us();
}

static unsigned turn(struct wdevice *d, struct wqueue *q)
{
	uint64_t began = gantry_cycles();
	unsigned n = 0;

	d->turn_ns = 0;
	while (q->led->issued < q->led->taken && n < WORKER_TURN_TASKS) {
		if (!may_issue(q) && !worker_doomed(q))
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
		lane_give(d, q, q->led->issued < q->led->taken && !q->blocked && may_issue(q));
	return n;
}

/* ---- queues come and go ---- */

static bool queue_open(struct wdevice *d, struct wqueue *q)
{
	struct gantry_stream_attr attr = { .priority = q->led->priority,
					   .ncareful = q->session->careful ? CAREFUL_TASKS : 0,
					   .owner = q->session,
					   .keep = worker_keep_of(q->session, d->index),
					   .is_alone = d->engine->isolated };
	struct gantry_err err;
	int r;

	r = d->device.backend->stream_create(d->device.dev, &attr, &q->stream, &err);
	if (r < 0) {
		/* No fault of the session's: another worker can serve it. */
		if (r == -EIO)
			tell_unusable(d, err.text);
		worker_condemn(q->session, GANTRY_E_INTERNAL, err.text);
		return false;
	}
	q->lane = -1;
	q->window_ns = 0;
	q->nunknown = 0;
	q->nunflushed = 0;
	memset(q->lengths, 0, sizeof(q->lengths));
	q->open = true;
	return true;
}

static void queue_let_go(struct wdevice *d, struct wqueue *q)
{
	lane_give(d, q, false);
	worker_publish(q);
	d->device.backend->stream_destroy(q->stream);
	q->stream = NULL;
	q->open = false;
	(void)gantry_fetch_and(&q->session->served[d->index], ~(1ull << q->slot));
}

static void replicas_left(struct wdevice *d, struct wsession *s)
{
	if (gantry_load_relaxed(&s->nreplicas))
		worker_replica_left(d, s);
}

/* The queue leaves this thread if it is closing and empty, or shall be served by another device. */
static bool queue_leaves(struct wdevice *d, struct wqueue *q)
{
	uint32_t target = gantry_load_acquire(&q->target);
	struct wsession *s = q->session;

	if (q->led->issued != q->led->done)
		return target != d->index;
	if (target != d->index) {
		queue_let_go(d, q);
		gantry_failpoint(GANTRY_FAILPOINT_MOVE_LEFT);
		gantry_store_relaxed(&q->led->device, target);
		/* Release: pairs with the acquire in serve(); all we wrote to the queue comes first. */
		(void)gantry_fetch_or(&s->served[target], 1ull << q->slot);
		worker_device_wake(s->engine->devices[target]);
		replicas_left(d, s);
		return true;
	}
	if (gantry_load_acquire(&q->led->state) == GANTRY_QUEUE_CLOSING &&
	    q->led->done == q->led->taken && gantry_ring_ready(&q->ring) == 0) {
		queue_let_go(d, q);
		q->has_launched = false;
		q->native = 0;
		gantry_store_release(&q->led->state, GANTRY_QUEUE_CLOSED);
		replicas_left(d, s);
		return true;
	}
	return false;
}

/* ---- sessions ---- */

static void join_failed(struct wdevice *d, struct wsession *s, const struct gantry_err *err)
{
	/* The context was gone before the session came: another worker can serve it. */
	if (err->code == -EIO)
		tell_unusable(d, err->text);
	worker_condemn(s, GANTRY_E_INTERNAL, err->text);
}

void worker_device_adopt(struct wdevice *d, void *session)
{
	const struct gantry_backend *be = d->device.backend;
	struct wsession *s = session;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.ptr = s };
	struct gantry_err err = { 0 };

	d->sessions[d->nsessions++] = s;
	if (s->wake == GANTRY_SESSION_WAKE_NONE && d->spin_is_default)
		gantry_spin_allow(&d->spin, POLLED_SPIN_NS);
	s->joined[d->index] = true;
	if (be->mem_host(d->device.dev, s->heap.base, s->heap.bytes, &s->heap_mem[d->index], &err) <
		    0 ||
	    (s->slab_bytes && (d->device.info.caps & GANTRY_CAP_MEM_FD) &&
	     be->mem_import(d->device.dev, s->slab_fd, 0, s->slab_bytes, &s->slab_mem[d->index],
			    &err) < 0) ||
	    worker_window_open(d, s, &err) < 0) {
		join_failed(d, s, &err);
		return;
	}
	/* It works all the same. */
	if (err.text[0] != '\0')
		gantry_log(GANTRY_LOG_WARN, "device %s: %s", d->name, err.text);
	/*
	 * Edge-triggered and never read: a guest shares the bell's file description and could make a read block,
	 * or fill the counter; each of its writes is an edge all the same.
	 */
	if (epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, s->bell_fd, &ev) < 0) {
		(void)gantry_err_set(&err, -errno, "watching the session's bell");
		join_failed(d, s, &err);
	}
}

static bool in_flight(struct wdevice *d, struct wsession *s)
{
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);

	for (; mask; mask &= mask - 1) {
		const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		if (q->open && q->led->issued != q->led->done)
			return true;
	}
	return false;
}

static void drop(struct wdevice *d, uint32_t i)
{
	struct wsession *s = d->sessions[i];
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);

	for (; mask; mask &= mask - 1) {
		struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		if (q->open)
			queue_let_go(d, q);
	}
	if (d->device.backend->owner_left)
		d->device.backend->owner_left(d->device.dev, s);
	(void)worker_gpu_give(d, s, false);
	gantry_share_leave(d->page, s->share_slot);
	(void)epoll_ctl(d->epoll_fd, EPOLL_CTL_DEL, s->bell_fd, NULL);
	worker_images_leave(d, s);
	worker_memory_leave(d, s);
	d->sessions[i] = d->sessions[--d->nsessions];
	s->joined[d->index] = false;
	worker_session_leave(s);
}

/* One session's part of a round. Returns what it found to do. */
static unsigned serve(struct wdevice *d, struct wsession *s)
{
	/* Acquire: pairs with the release of whoever handed the queue over. */
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);
	bool wants = false;
	unsigned found = 0;
	int r;

	if (s->home == d->index) {
		r = worker_control(d, s);
		if (r < 0)
			worker_condemn(s, GANTRY_E_PROTOCOL,
				       "positions of the control ring make no sense");
		else
			found += (unsigned)r;
	}
	for (; mask; mask &= mask - 1) {
		struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		if (!q->open) {
			if (!queue_open(d, q))
				return found;
			found++; /* a queue that comes while the rings are parked is not parked yet: look again */
		}
		if (queue_leaves(d, q))
			continue;
		r = worker_intake(q);
		if (r < 0) {
			worker_condemn(s, GANTRY_E_PROTOCOL, "positions of a ring make no sense");
			return found;
		}
		found += (unsigned)r + turn(d, q);
		worker_publish(q);
		charge(d, q); /* who waits for the task need not wait for this */
		wants = wants || wants_lane(d, q);
	}
	/* The session is one waiter, whatever the number of its queues: it leaves when none of them waits. */
	if (s->lane_asked[d->index] && !wants) {
		gantry_share_leave(d->page, s->share_slot);
		s->lane_asked[d->index] = false;
	}
	return found;
}

static unsigned round_of(struct wdevice *d)
{
	unsigned found = 0;

	d->lane_short = d->lane_wanted;
	d->lane_wanted = false;
	d->nbeside = d->nturns;
	d->nturns = 0;
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];

		if (gantry_load_acquire(&s->ending)) {
			if (!in_flight(d, s) && worker_windows_close(d, s)) {
				drop(d, i--);
				found++;
			}
			continue;
		}
		found += serve(d, s);
		if (gantry_load_relaxed(&s->ndying))
			(void)worker_buffer_reap(s);
	}
	if (!gantry_list_is_empty(&d->jobs))
		found += worker_jobs_put_off(d, found > 0) ? 1 : worker_jobs_run(d);
	found += reap(d);
	if (!gantry_list_is_empty(&d->dying_images))
		found += worker_images_reap(d);
	return found;
}

/* Publishes what reap() finished outside a turn, and gives lanes of empty queues back. Returns how many it gave. */
static uint32_t settle(struct wdevice *d, bool give_lanes)
{
	uint32_t held = d->nlanes_held;

	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);
		bool wants = false;

		for (; mask; mask &= mask - 1) {
			struct wqueue *q = &s->queues[__builtin_ctzll(mask)];
			bool more = q->open && q->led->issued < q->led->taken && may_issue(q);

			if (!q->open)
				continue;
			worker_publish(q);
			charge(d, q);
			wants = wants || (more && !q->blocked);
			if (give_lanes && q->led->issued == q->led->done)
				lane_give(d, q, more);
		}
		if (give_lanes)
			(void)worker_gpu_give(d, s, wants);
	}
	return held - d->nlanes_held;
}

/* ---- sleep ---- */

static void park_rings(struct wdevice *d, bool park)
{
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];
		uint64_t mask = gantry_load_acquire(&s->served[d->index]);

		if (s->home == d->index)
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

static bool anything_new(struct wdevice *d)
{
	if (gantry_load_acquire(&d->ncalls) || (gantry_load_relaxed(&d->stop) && d->nsessions == 0))
		return true;
	/* Commands with the device need no watching: it calls host_wake() when one has finished. */
	if (round_of(d) == 0)
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
		if (round_of(d) > 0 || gantry_load_acquire(&d->ncalls))
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
	until = gantry_cycles() +
		(worker_gpu(d) ? LANE_SPIN_US : LANE_SPIN_US / 2) * gantry_cycles_per_us();
	do {
		if (round_of(d) > 0 || !d->lane_wanted || gantry_load_acquire(&d->ncalls))
			return true;
		gantry_cpu_relax();
	} while (gantry_cycles() < until);
	return false;
}

static void idle(struct wdevice *d, uint32_t ticket)
{
	unsigned turns = 0;
	bool hit = false;

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
	gantry_spin_begin(&d->spin);
	while (gantry_spin_again(&d->spin)) {
		if (anything_new(d)) {
			hit = true;
			break;
		}
		if (d->nlanes_held && ++turns == IDLE_TURNS_WITH_LANE)
			(void)settle(d, true);
	}
	gantry_spin_end(&d->spin, hit);
	if (hit)
		return;
	(void)settle(d, true);
	park(d);
}

static void *device_main(void *arg)
{
	struct wdevice *d = arg;

	while (!gantry_load_relaxed(&d->stop) || d->nsessions > 0 ||
	       gantry_load_acquire(&d->ncalls)) {
		uint32_t ticket = gantry_share_ticket(d->page, d->owner);

		run_calls(d);
		if (round_of(d) == 0)
			idle(d, ticket);
		else
			d->nvain = 0;
	}
	return NULL;
}

/* ---- start and stop ---- */

struct starting {
	struct wdevice *d;
	const struct gantry_device_conf *conf;
	uint32_t done; /* futex-free: the starter joins on a mutex and condition */
	pthread_mutex_t lock;
	pthread_cond_t cond;
};

static void *device_start_main(void *arg)
{
	struct starting *st = arg;
	struct wdevice *d = st->d;
	struct gantry_device_host host = { .wake = host_wake,
					   .cancelled = host_cancelled,
					   .cookie = d,
					   .off_device = host_off_device,
					   .print_begin = host_print_begin,
					   .print_end = host_print_end };
	struct gantry_err err = { 0 };
	int r = gantry_device_open(st->conf, &host, &d->device, &err);

	if (r == 0 && d->device.backend->thread_enter)
		r = d->device.backend->thread_enter(d->device.dev, &err);
	d->usable = r == 0;
	d->runs_here = d->device.info.caps & GANTRY_CAP_CALLER_RUNS;
	if (r < 0)
		(void)gantry_str_copy(d->error, sizeof(d->error), err.text);
	else if (gantry_affinity_apply(st->conf->affinity, &d->device.info, &err) < 0)
		gantry_log(GANTRY_LOG_WARN, "device %s: %s", d->name, err.text);
	pthread_mutex_lock(&st->lock);
	st->done = 1;
	pthread_cond_signal(&st->cond);
	pthread_mutex_unlock(&st->lock);

	(void)device_main(d);
	if (d->usable) {
		worker_images_free(d);
		gantry_device_close(&d->device);
	}
	return NULL;
}

void worker_device_free(struct wdevice *d)
{
	if (!d)
		return;
	gantry_share_close(d->page);
	gantry_fd_close(d->epoll_fd);
	gantry_fd_close(d->wake_fd);
	pthread_mutex_destroy(&d->call_lock);
	pthread_mutex_destroy(&d->control_lock);
	free(d);
}

static int wake_init(struct wdevice *d, struct gantry_err *err)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = NULL };

	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->epoll_fd < 0 || d->wake_fd < 0 ||
	    epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->wake_fd, &ev) < 0)
		return gantry_err_set(err, -errno, "making the device thread's epoll");
	return 0;
}

int worker_device_start(struct gantry_engine *e, uint32_t index,
			const struct gantry_device_conf *conf, int share_fd, uint32_t owner,
			uint64_t spin_ns, struct wdevice **ret_dev, struct gantry_err *err)
{
	struct wdevice *d = calloc(1, sizeof(*d));
	struct starting st = { .d = d, .conf = conf };
	int r;

	if (!d)
		return gantry_err_set(err, -ENOMEM, "no memory for a device thread");
	d->engine = e;
	d->index = index;
	d->owner = owner;
	d->epoll_fd = -EBADF;
	d->wake_fd = -EBADF;
	(void)gantry_str_copy(d->name, sizeof(d->name), conf->name);
	pthread_mutex_init(&d->call_lock, NULL);
	pthread_mutex_init(&d->control_lock, NULL);
	gantry_list_init(&d->calls);
	gantry_list_init(&d->images);
	gantry_list_init(&d->dying_images);
	gantry_list_init(&d->jobs);
	d->spin_is_default = spin_ns == UINT64_MAX;
	gantry_spin_init(&d->spin, d->spin_is_default ? DEFAULT_SPIN_NS : spin_ns, 0);
	r = gantry_share_open(share_fd, &d->page, err);
	if (r == 0)
		r = wake_init(d, err);
	if (r < 0) {
		worker_device_free(d);
		return r;
	}

	pthread_mutex_init(&st.lock, NULL);
	pthread_cond_init(&st.cond, NULL);
	r = -pthread_create(&d->thread, NULL, device_start_main, &st);
	if (r < 0) {
		worker_device_free(d);
		return gantry_err_set(err, r, "starting the thread of device %s", conf->name);
	}
	pthread_mutex_lock(&st.lock);
	while (!st.done)
		pthread_cond_wait(&st.cond, &st.lock);
	pthread_mutex_unlock(&st.lock);
	*ret_dev = d;
	return 0;
}

void worker_device_stop(struct wdevice *d)
{
	if (!d)
		return;
	gantry_store_relaxed(&d->stop, true);
	worker_device_wake(d);
	pthread_join(d->thread, NULL);
}
