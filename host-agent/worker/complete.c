/* SPDX-License-Identifier: Apache-2.0 */
/* Completion: counts in the ledger first, then words in the segment, then wake-ups; published in batches. */
#include "base/atomic.h"
#include "base/clock.h"
#include "host-agent/worker/worker.h"

static void keep_status(struct wqueue *q, uint64_t pos, int status)
{
	uint32_t slot = (uint32_t)pos & q->ring.map.mask;
	uint64_t bit = 1ull << (slot % 64);
	uint64_t *word = &q->failed_slots[slot / 64];

	/* Whether the slot's word needs clearing is remembered here: what the segment says may be the guest's. */
	if (status == GANTRY_OK && !(*word & bit))
		return;
	*word = status == GANTRY_OK ? *word & ~bit : *word | bit;
	gantry_ring_set_status(&q->ring, pos, status, q->led->nfailed);
}

static uint64_t *rider_word(struct wqueue *q, uint64_t pos)
{
	return &q->riders[pos % WORKER_WINDOW_TASKS / 64];
}

static bool rides(struct wqueue *q, uint64_t pos)
{
	return q->nriders > 0 && (*rider_word(q, pos) >> (pos % 64) & 1);
}

static void alight(struct wqueue *q, uint64_t pos)
{
	*rider_word(q, pos) &= ~(1ull << (pos % 64));
	q->nriders--;
}

void worker_ride(struct wqueue *q)
{
	uint64_t pos = q->led->issued;

	*rider_word(q, pos) |= 1ull << (pos % 64);
	q->nriders++;
	q->est_ns[pos % WORKER_WINDOW_TASKS] = 0;
	/* What was in this place before may be gone, with its image. */
	q->inflight_kernel[pos % WORKER_WINDOW_TASKS] = NULL;
	q->copies[pos % WORKER_WINDOW_TASKS].bytes = 0;
	/* Release: as for commands, see ledger.h. A successor finds nothing to do in it. */
	gantry_store_release(&q->led->issued, pos + 1);
}

void worker_unissue(struct wqueue *q)
{
	uint64_t pos = q->led->issued;

	while (rides(q, pos - 1))
		alight(q, --pos);
	gantry_store_release(&q->led->issued, pos - 1);
}

/* The queue of a command that failed with its context; NULL: it was a job. */
static struct wqueue *queue_of(const struct gantry_done *failed)
{
	return worker_job_is(failed->tag) ? NULL : (struct wqueue *)(uintptr_t)failed->tag;
}

void worker_count_back(const struct gantry_done *failed, uint32_t nfailed)
{
	struct wqueue *q;

	for (uint32_t i = 0; i < nfailed; i++)
		if ((q = queue_of(&failed[i])))
			q->ntold++;
	/* Without all of a queue's it is not known where the newest is: one may be at work beside the device. */
	for (uint32_t i = 0; i < nfailed; i++)
		if ((q = queue_of(&failed[i])) &&
		    q->ntold == q->led->issued - q->led->done - q->nriders)
			gantry_store_relaxed(&q->led->sorted, 1u);
	for (uint32_t i = 0; i < nfailed; i++) {
		q = queue_of(&failed[i]);
		if (!q)
			continue;
		q->ntold = 0;
		if (q->led->sorted && failed[i].status == GANTRY_E_INTERRUPTED)
			worker_unissue(q);
	}
}

/* Those behind the task at @pos. Returns the last. */
static uint64_t finish_riders(struct wqueue *q, uint64_t pos)
{
	while (pos + 1 < q->led->issued && rides(q, pos + 1)) {
		alight(q, ++pos);
		keep_status(q, pos, GANTRY_OK);
	}
	return pos;
}

/* What the queue's oldest command is, for the agent that looks at deadlines. */
static uint64_t oldest_began_ns(const struct wqueue *q)
{
	if (q->led->issued == q->led->done)
		return 0;
	/* What is off the device is the newest of its queue, but for those that ride behind it. */
	if (q->off_device && q->led->issued - q->led->done - q->nriders == 1)
		return GANTRY_LEDGER_OFF_DEVICE;
	return gantry_now_ns();
}

void worker_off_device(struct wqueue *q, bool off)
{
	q->off_device = off;
	if (q->led->issued - q->led->done - q->nriders == 1 &&
	    gantry_load_relaxed(&q->session->quota->deadline_ns))
		gantry_store_relaxed(&q->led->issued_at_ns, oldest_began_ns(q));
}

void worker_finish(struct wqueue *q, int status, uint64_t device_ns)
{
	struct gantry_ledger_queue *led = q->led;
	struct gantry_ledger_header *hdr = q->session->ledger.hdr;
	uint64_t pos = led->done;

	if (status != GANTRY_OK) {
		led->nfailed++;
		gantry_count_add(&hdr->tasks_failed, 1);
		if (gantry_load_relaxed(&led->fail_stop) && q->slot != 0)
			gantry_store_relaxed(&led->broken, 1u);
	}
	keep_status(q, pos, status);
	led->device_ns += device_ns;
	if (led->issued == pos)
		led->issued = pos + 1;
	pos = finish_riders(q, pos);
	/* Release: see ledger.h, the count moves last. */
	gantry_store_release(&led->done, pos + 1);
	if (led->issued_at_ns)
		gantry_store_relaxed(&led->issued_at_ns, oldest_began_ns(q));
	q->unpublished_ns += device_ns;
	if (led->done - q->done_published >= WORKER_PUBLISH_BATCH ||
	    q->unpublished_ns >= WORKER_PUBLISH_NS)
		worker_publish(q);
}

/* Threads of other devices that sleep with a queue of theirs before a wait for ours. */
static void wake_waiting(struct wsession *s)
{
	uint32_t waiting = gantry_exchange(&s->waiting, 0u);

	for (; waiting; waiting &= waiting - 1)
		worker_device_wake(s->engine->devices[__builtin_ctz(waiting)]);
}

/* What is cut short by the session's end has no status of its own: the guest is told why the session ended. */
static bool session_ends(const struct wsession *s)
{
	return gantry_load_relaxed(&s->ledger.hdr->detach) || gantry_load_relaxed(&s->ending);
}

void worker_publish(struct wqueue *q)
{
	uint64_t done = q->led->done;

	if (q->ring.head != q->head_published) {
		gantry_ring_publish_head(&q->ring);
		q->head_published = q->ring.head;
	}
	if (done == q->done_published)
		return;
	gantry_count_add(&q->session->ledger.hdr->tasks_finished, done - q->done_published);
	gantry_count_add(&q->session->ledger.hdr->device_ns, q->unpublished_ns);
	if (q->slot != 0)
		(void)gantry_fetch_sub(&q->session->unfinished, done - q->done_published);
	q->done_published = done;
	q->unpublished_ns = 0;
	if (session_ends(q->session)) {
		gantry_fence_full(); /* pairs with the one in bind_wait() */
	} else {
		gantry_ring_complete(&q->ring, done);
		/* Its full fence pairs with the one in bind_wait() too. */
		worker_wake_waiters(q->session, &q->ring);
	}
	if (gantry_load_relaxed(&q->session->waiting))
		wake_waiting(q->session);
}
