/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lane threads of a cpu device with several cores.
 *
 * A stream with commands belongs either to the ready list or to one lane, so its commands run in
 * order. The lock is held for a few list operations at a time, never while a command runs.
 */
#include <errno.h>
#include <signal.h>

#include "devices/cpu/cpu.h"

/* Spinning is worth it while the next command is likely to be close behind the last. */
#define SPIN_NS 20000u

static void work_added_locked(struct gantry_dev *dev)
{
	gantry_store_relaxed(&dev->nwork, dev->nwork + 1);
	if (dev->nasleep > 0)
		(void)pthread_cond_signal(&dev->work);
}

static void work_taken_locked(struct gantry_dev *dev)
{
	gantry_store_relaxed(&dev->nwork, dev->nwork - 1);
}

void gantry_cpu_lanes_schedule(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;

	(void)pthread_mutex_lock(&dev->lock);
	gantry_cpu_ready_push(stream);
	work_added_locked(dev);
	(void)pthread_mutex_unlock(&dev->lock);
}

static void spin_for_work(struct gantry_cpu_lane *lane)
{
	struct gantry_dev *dev = lane->dev;
	bool found;

	gantry_spin_begin(&lane->spin);
	while (!(found = gantry_load_relaxed(&dev->nwork) != 0) && gantry_spin_again(&lane->spin))
		;
	gantry_spin_end(&lane->spin, found);
}

/* Waits for something to do: spins once, then sleeps. */
static void wait_for_work_locked(struct gantry_cpu_lane *lane)
{
	struct gantry_dev *dev = lane->dev;

	(void)pthread_mutex_unlock(&dev->lock);
	spin_for_work(lane);
	(void)pthread_mutex_lock(&dev->lock);
	while (!dev->stopping && gantry_list_is_empty(&dev->ready) &&
	       gantry_list_is_empty(&dev->jobs)) {
		dev->nasleep++;
		(void)pthread_cond_wait(&dev->work, &dev->lock);
		dev->nasleep--;
	}
}

/* The next stream; helps with the jobs of others meanwhile. NULL: the device is closing. */
static struct gantry_stream *take_stream(struct gantry_cpu_lane *lane)
{
	struct gantry_dev *dev = lane->dev;
	struct gantry_stream *stream = NULL;

	(void)pthread_mutex_lock(&dev->lock);
	gantry_store_relaxed(&dev->nidle, dev->nidle + 1);
	while (!dev->stopping) {
		if (gantry_cpu_help_locked(dev))
			continue;
		stream = gantry_cpu_ready_pop(dev);
		if (stream) {
			work_taken_locked(dev);
			break;
		}
		wait_for_work_locked(lane);
	}
	gantry_store_relaxed(&dev->nidle, dev->nidle - 1);
	(void)pthread_mutex_unlock(&dev->lock);
	return stream;
}

/* Gives @stream back when one of its priority or higher waits. True: it is no longer ours. */
static bool give_way(struct gantry_stream *stream)
{
	struct gantry_dev *dev = stream->dev;
	const struct gantry_stream *first;
	bool yield;

	if (gantry_load_relaxed(&dev->nwork) == 0)
		return false;
	(void)pthread_mutex_lock(&dev->lock);
	first = gantry_list_first(&dev->ready, struct gantry_stream, ready);
	yield = dev->stopping || (first && first->priority >= stream->priority);
	if (yield) {
		gantry_cpu_ready_push(stream);
		work_added_locked(dev);
	}
	(void)pthread_mutex_unlock(&dev->lock);
	return yield;
}

static void tell_finished(struct gantry_dev *dev)
{
	const struct gantry_device_host *host = dev->host;

	/*
	 * The addition is a full barrier and pairs with the fence in poll(): either poll() sees
	 * this count, or we see what it has reaped. A thread that still has something to reap needs
	 * no call.
	 */
	if (gantry_fetch_add(&dev->nfinished, 1) == gantry_load_relaxed(&dev->nreaped))
		host->wake(host->cookie);
}

static void serve(struct gantry_cpu_lane *lane, struct gantry_stream *stream)
{
	struct gantry_dev *dev = lane->dev;
	uint32_t before;

	do {
		gantry_cpu_run(lane, &stream->slots[stream->run % GANTRY_CPU_DEPTH]);
		stream->run++;
		/*
		 * Releases the result to poll(), and acquires the slot that submit() filled before
		 * it counted up. At 0 left the stream may be gone at once.
		 */
		before = gantry_fetch_sub(&stream->pending, 1);
		tell_finished(dev);
	} while (before > 1 && !give_way(stream));
}

static void *lane_main(void *arg)
{
	struct gantry_cpu_lane *lane = arg;
	struct gantry_stream *stream;

	gantry_spin_init(&lane->spin, SPIN_NS, 0);
	while ((stream = take_stream(lane)))
		serve(lane, stream);
	return NULL;
}

/* One CPU a lane when the list has one for each; else every lane may use all of the list. */
static void lane_cpus(const struct gantry_dev *dev, uint32_t idx, cpu_set_t *ret_cpus)
{
	uint32_t seen = 0;

	*ret_cpus = dev->cpus;
	if ((uint32_t)CPU_COUNT(&dev->cpus) < dev->ncores)
		return;
	for (unsigned int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &dev->cpus) || seen++ != idx)
			continue;
		CPU_ZERO(ret_cpus);
		CPU_SET(cpu, ret_cpus);
		return;
	}
}

static int lane_start(struct gantry_cpu_lane *lane, pthread_attr_t *attr)
{
	struct gantry_dev *dev = lane->dev;
	cpu_set_t cpus;

	if (dev->pinned) {
		lane_cpus(dev, lane->idx, &cpus);
		(void)pthread_attr_setaffinity_np(attr, sizeof(cpus),
						  &cpus); /* create reports it */
	}
	return -pthread_create(&lane->thread, attr, lane_main, lane);
}

int gantry_cpu_lanes_start(struct gantry_dev *dev, struct gantry_err *err)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int r = 0;

	(void)pthread_attr_init(&attr);
	/* Signals are for the program's own threads. */
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	while (r == 0 && dev->nthreads < dev->ncores) {
		r = lane_start(&dev->lanes[dev->nthreads], &attr);
		if (r == 0)
			dev->nthreads++;
	}
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
	return r < 0 ? gantry_err_set_errno(err, r, "starting lane %u", dev->nthreads) : 0;
}

void gantry_cpu_lanes_stop(struct gantry_dev *dev)
{
	(void)pthread_mutex_lock(&dev->lock);
	dev->stopping = true;
	/* Also ends the spinning, and makes lanes look up between two commands. */
	gantry_store_relaxed(&dev->nwork, dev->nwork + 1);
	(void)pthread_cond_broadcast(&dev->work);
	(void)pthread_mutex_unlock(&dev->lock);
	for (uint32_t i = 0; i < dev->nthreads; i++)
		(void)pthread_join(dev->lanes[i].thread, NULL);
	dev->nthreads = 0;
}
