/* SPDX-License-Identifier: Apache-2.0 */
/* What the device has finished, and what is told when its context has failed. */
#include <stdlib.h>

#include "base/array.h"
#include "base/atomic.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/thread.h"

/* What a command that was kept to some of the device's units left of it. */
static uint64_t spared_ns(const struct wdevice *d, const struct gantry_done *done)
{
	uint32_t all = d->device.info.units;

	if (done->units == 0 || done->units >= all)
		return 0;
	return (uint64_t)((double)done->device_ns * (all - done->units) / all);
}

static void command_done(struct wdevice *d, const struct gantry_done *done)
{
	struct wqueue *q = (struct wqueue *)(uintptr_t)done->tag;
	uint32_t i = (uint32_t)q->led->done % WORKER_WINDOW_TASKS;
	struct wkernel *k = q->inflight_kernel[i];

	d->nactive--;
	d->turn_ns += done->device_ns;
	worker_flight_learn(d, q->copies[i], done);
	q->window_ns -= q->est_ns[i];
	q->nunknown -= q->est_ns[i] == 0;
	if (k)
		worker_flight_learn_kernel(d, q, k, done->device_ns);
	if (worker_gpu(d)) {
		worker_gpu_done(d, q, k, done->device_ns);
	} else {
		q->uncharged_ns += done->device_ns;
		q->spared_ns += spared_ns(d, done);
	}
	if (q->uncharged_ns >= WORKER_CHARGE_NS)
		worker_charge_time(d, q);
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
			worker_charge_time(d, q);
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

void worker_tell_unusable(struct wdevice *d, const char *why)
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

unsigned worker_reap(struct wdevice *d)
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
