/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Until what was issued has finished: each thread that may have bound such a task is visited and says how far its queues
 * are; then their ends are waited for. What is bound after the visit has seen whatever was changed before.
 */
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "host-agent/worker/memory.h"

static void visit(struct wdevice *d, void *arg)
{
	struct wquiet *quiet = arg;
	struct wsession *s = quiet->session;
	uint64_t mask = gantry_load_acquire(&s->served[d->index]) & quiet->queues;

	pthread_mutex_lock(&s->lock);
	for (; mask; mask &= mask - 1) {
		const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		quiet->tails[q->slot] = GANTRY_MAX(quiet->tails[q->slot],
						   gantry_load_relaxed(&q->led->issued));
	}
	quiet->visits--;
	pthread_mutex_unlock(&s->lock);
	worker_session_wake(s);
}

int worker_quiet_begin_locked(struct wquiet *quiet, struct wsession *s, uint32_t devices,
			      uint64_t queues)
{
	int status = GANTRY_OK;

	/* Who set it may have a thread that reads it already, to find the lock; the rest is read under that. */
	if (!quiet->session)
		quiet->session = s;
	quiet->queues = queues;
	quiet->visits = 0;
	quiet->reached = false;
	memset(quiet->tails, 0, sizeof(quiet->tails));
	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		if (!(devices >> i & 1))
			continue;
		if (worker_device_post(s->engine->devices[i], visit, quiet) == 0)
			quiet->visits++;
		else
			status = GANTRY_E_NO_MEMORY;
	}
	return status;
}

bool worker_quiet_visited(struct wquiet *quiet)
{
	struct wsession *s = quiet->session;
	bool all;

	if (!s)
		return true;
	pthread_mutex_lock(&s->lock);
	all = quiet->visits == 0;
	pthread_mutex_unlock(&s->lock);
	return all;
}

static bool all_done(const struct wquiet *quiet)
{
	const struct wsession *s = quiet->session;

	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		/* Acquire: pairs with the release in worker_finish(); what the task wrote is seen. */
		if (quiet->tails[i] &&
		    gantry_load_acquire(&s->ledger.queues[i].done) < quiet->tails[i])
			return false;
	return true;
}

bool worker_quiet_reached(struct wdevice *d, struct wquiet *quiet)
{
	if (quiet->reached)
		return true;
	if (!worker_quiet_visited(quiet))
		return false;
	if (all_done(quiet))
		return quiet->reached = true;
	/* Asks to be woken by whoever finishes tasks, then looks once more: as bind_wait() does. */
	(void)gantry_fetch_or(&quiet->session->waiting, 1u << d->index);
	gantry_fence_full(); /* pairs with the one in worker_publish() */
	return quiet->reached = all_done(quiet);
}
