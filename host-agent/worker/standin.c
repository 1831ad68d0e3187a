/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in: serves control queues while a device thread is inside a long kernel.
 *
 * A device with GANTRY_CAP_CALLER_RUNS runs kernels on the device thread, which is what makes short ones cheap; during
 * a long one nobody would answer its sessions' control operations. So one thread of the engine looks now and then
 * whether a device thread is inside a command for longer than STUCK_US, and while it is, serves queue 0 of the
 * sessions whose `control` that device's thread is.
 *
 * The hand-shake costs the device thread no lock and no fence for short commands:
 *   device thread: run_since = t; poll(); run_since = 0; took longer than CHECK_US ? full fence; stood_in ? lock, unlock
 *   stand-in:      run_since older than STUCK_US ? lock; stood_in = 1; full fence; run_since still t ? serve; stood_in = 0
 * Either the device thread sees stood_in and waits for the lock, or the stand-in sees run_since changed. A command
 * shorter than CHECK_US cannot have been seen for STUCK_US: run_since is cleared before the time is taken.
 *
 * An idle worker has no timer: with every device thread asleep the stand-in sleeps too, and is woken by the first that
 * wakes up.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"
#include "host-agent/worker/worker.h"

#define STUCK_US     5000u
#define CHECK_US     1000u
#define LOOK_NS	     250000000u	  /* between looks at threads that are awake */
#define SERVE_NS     2000000u	  /* between rounds while standing in */
#define LINGER_LOOKS 4u		  /* looks after the last thread fell asleep */
#define SLEEP_NS     60000000000u /* every sleep ends */

/* ---- the device thread's side ---- */

uint64_t worker_run_begin(struct wdevice *d)
{
	uint64_t now = gantry_cycles() | 1; /* never 0 */

	/* Release: pairs with the acquire in stand_in(); what this thread did to the control queues is seen there. */
	gantry_store_release(&d->run_since, now);
	return now;
}

void worker_run_end(struct wdevice *d, uint64_t began)
{
	gantry_store_release(&d->run_since, 0ull);
	if (gantry_cycles() - began < d->engine->check_cycles)
		return;
	/* Full fence: pairs with the one in stand_in(). */
	gantry_fence_full();
	/* Acquire: pairs with the release there; what it did to the control queues is ours to see. */
	if (gantry_load_acquire(&d->stood_in) == 0)
		return;
	pthread_mutex_lock(&d->control_lock);
	pthread_mutex_unlock(&d->control_lock);
}

void worker_standin_wake(struct gantry_engine *e)
{
	/* Full fence: pairs with the one in sleep_while_idle(). It sees a thread awake or we see it asleep. */
	gantry_fence_full();
	if (gantry_load_relaxed(&e->standin_asleep) == 0)
		return;
	(void)gantry_fetch_add(&e->standin_word, 1);
	(void)gantry_futex_wake(&e->standin_word, 1);
}

/* ---- the stand-in's ---- */

static void serve_controls(struct wdevice *d)
{
	struct gantry_engine *e = d->engine;

	pthread_mutex_lock(&e->session_lock);
	gantry_list_for_each(&e->sessions, struct wsession, link, s) {
		/* Acquire: pairs with the release of who gave the control queue to that thread. */
		if (gantry_load_acquire(&s->control) != d->index || gantry_load_acquire(&s->ending))
			continue;
		if (worker_control(d, s) < 0)
			worker_condemn(s, GANTRY_E_PROTOCOL,
				       "positions of the control ring make no sense");
	}
	pthread_mutex_unlock(&e->session_lock);
}

/* Whether the device thread is still inside the command it was in @since. */
static bool stand_in(struct wdevice *d, uint64_t since)
{
	bool stuck;

	pthread_mutex_lock(&d->control_lock);
	gantry_store_relaxed(&d->stood_in, 1u);
	/* Full fence: pairs with the one in worker_run_end(). */
	gantry_fence_full();
	/* Acquire: pairs with the release of an earlier worker_run_end(); the queues are as it left them. */
	stuck = gantry_load_acquire(&d->run_since) == since;
	if (stuck)
		serve_controls(d);
	gantry_store_release(&d->stood_in, 0u);
	pthread_mutex_unlock(&d->control_lock);
	return stuck;
}

static bool look_at(struct wdevice *d)
{
	uint64_t since = gantry_load_relaxed(&d->run_since);

	if (since == 0 || gantry_cycles() - since < d->engine->check_cycles * (STUCK_US / CHECK_US))
		return false;
	return stand_in(d, since);
}

static bool anyone_awake(const struct gantry_engine *e)
{
	for (uint32_t i = 0; i < e->ndevices; i++)
		if (!gantry_load_relaxed(&e->devices[i]->asleep))
			return true;
	return false;
}

static void nap(struct gantry_engine *e, uint32_t word, uint64_t ns)
{
	(void)gantry_futex_wait(&e->standin_word, word, gantry_now_ns() + ns);
}

static void sleep_while_idle(struct gantry_engine *e)
{
	uint32_t word = gantry_load_acquire(&e->standin_word);

	gantry_store_relaxed(&e->standin_asleep, 1u);
	/* Full fence: pairs with the one in worker_standin_wake(). */
	gantry_fence_full();
	if (!anyone_awake(e) && !gantry_load_relaxed(&e->standin_stop))
		nap(e, word, SLEEP_NS);
	gantry_store_relaxed(&e->standin_asleep, 0u);
}

static void *standin_main(void *arg)
{
	struct gantry_engine *e = arg;
	unsigned int idle_looks = 0;

	while (!gantry_load_relaxed(&e->standin_stop)) {
		uint32_t word = gantry_load_acquire(&e->standin_word);
		bool stuck = false;

		for (uint32_t i = 0; i < e->ndevices; i++)
			stuck = look_at(e->devices[i]) || stuck;
		idle_looks = anyone_awake(e) ? 0 : idle_looks + 1;
		if (idle_looks > LINGER_LOOKS)
			sleep_while_idle(e);
		else if (!gantry_load_relaxed(&e->standin_stop))
			nap(e, word, stuck ? SERVE_NS : LOOK_NS);
	}
	return NULL;
}

void worker_standin_init(struct gantry_engine *e)
{
	e->check_cycles = gantry_cycles_per_us() * CHECK_US;
}

int worker_standin_start(struct gantry_engine *e, struct gantry_err *err)
{
	int r;

	r = -pthread_create(&e->standin, NULL, standin_main, e);
	if (r < 0)
		return gantry_err_set(err, r, "starting the stand-in thread");
	e->standin_runs = true;
	return 0;
}

void worker_standin_stop(struct gantry_engine *e)
{
	if (!e->standin_runs)
		return;
	gantry_store_relaxed(&e->standin_stop, 1u);
	(void)gantry_fetch_add(&e->standin_word, 1);
	(void)gantry_futex_wake(&e->standin_word, 1);
	pthread_join(e->standin, NULL);
	e->standin_runs = false;
}
