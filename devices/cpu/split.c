/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gantry_env.parallel(): one command's work over several lanes.
 *
 * The lane that splits works too and needs nobody: idle lanes may take ranges, and only ranges
 * taken are waited for. Helpers never wait for anything, nested calls run inline, so there is no
 * deadlock.
 */
#include "base/checked.h"
#include "base/clock.h"
#include "devices/cpu/cpu.h"

/* Ranges a lane, so that one slow lane does not keep all others waiting for its last range. */
#define RANGES_PER_LANE 4u

struct job {
	struct gantry_list link; /* gantry_dev.jobs, under its lock */
	void (*fn)(void *arg, uint64_t begin, uint64_t end);
	void *arg;
	uint64_t n;
	uint64_t range;
	uint64_t nranges;
	uint64_t next;	     /* range to hand out; any lane */
	uint32_t nhelpers;   /* under the lock */
	uint64_t helpers_ns; /* under the lock */
};

/* Takes ranges until there are none left. */
static void work(struct job *job)
{
	for (;;) {
		/*
		 * No order needed between ranges; leaving the job takes the lock, which orders
		 * results.
		 */
		uint64_t idx = gantry_fetch_add(&job->next, 1);
		uint64_t begin;

		if (idx >= job->nranges)
			return;
		begin = idx * job->range;
		job->fn(job->arg, begin, gantry_min_u64(job->n, begin + job->range));
	}
}

static void open_job(struct gantry_dev *dev, struct job *job)
{
	(void)pthread_mutex_lock(&dev->lock);
	gantry_list_push_back(&dev->jobs, &job->link);
	gantry_store_relaxed(&dev->nwork, dev->nwork + 1);
	if (dev->nasleep > 0)
		(void)pthread_cond_broadcast(&dev->work);
	(void)pthread_mutex_unlock(&dev->lock);
}

/* Off the list, so that nobody joins any more, and until the last helper has left. */
static void close_job(struct gantry_dev *dev, struct job *job)
{
	(void)pthread_mutex_lock(&dev->lock);
	if (!gantry_list_is_empty(&job->link)) {
		gantry_list_remove(&job->link);
		gantry_store_relaxed(&dev->nwork, dev->nwork - 1);
	}
	while (job->nhelpers > 0)
		(void)pthread_cond_wait(&dev->job_done, &dev->lock);
	(void)pthread_mutex_unlock(&dev->lock);
}

bool gantry_cpu_help_locked(struct gantry_dev *dev)
{
	struct job *job = gantry_list_first(&dev->jobs, struct job, link);
	uint64_t start;

	if (!job)
		return false;
	job->nhelpers++;
	gantry_store_relaxed(&dev->nidle, dev->nidle - 1);
	(void)pthread_mutex_unlock(&dev->lock);
	start = gantry_thread_cpu_ns();
	work(job);
	start = gantry_thread_cpu_ns() - start;
	(void)pthread_mutex_lock(&dev->lock);
	gantry_store_relaxed(&dev->nidle, dev->nidle + 1);
	/* Nothing is left to take: close the list entry, lest other lanes come for nothing. */
	if (!gantry_list_is_empty(&job->link)) {
		gantry_list_remove(&job->link);
		gantry_store_relaxed(&dev->nwork, dev->nwork - 1);
	}
	job->helpers_ns += start;
	/* After the lock is dropped the job may be gone. */
	if (--job->nhelpers == 0)
		(void)pthread_cond_broadcast(&dev->job_done);
	return true;
}

/* Ranges big enough for the caller and small enough to share. */
static uint64_t range_items(const struct gantry_dev *dev, uint64_t n, uint64_t grain)
{
	uint64_t parts = (uint64_t)dev->ncores * RANGES_PER_LANE;

	return gantry_max_u64(gantry_max_u64(grain, 1), n / parts + (n % parts != 0));
}

void gantry_cpu_parallel(struct gantry_env *env, uint64_t n, uint64_t grain,
			 void (*fn)(void *arg, uint64_t begin, uint64_t end), void *arg)
{
	struct gantry_cpu_lane *lane = gantry_container_of(env, struct gantry_cpu_lane, env);
	struct gantry_dev *dev = lane->dev;
	struct job job = { .fn = fn, .arg = arg, .n = n };

	if (n == 0)
		return;
	if (lane->splitting) {
		fn(arg, 0, n);
		return;
	}
	lane->splitting = true;
	job.range = range_items(dev, n, grain);
	job.nranges = n / job.range + (n % job.range != 0);
	/* A hint: with nobody idle, or one range, sharing would only cost. */
	if (job.nranges == 1 || gantry_load_relaxed(&dev->nidle) == 0) {
		fn(arg, 0, n);
	} else {
		open_job(dev, &job);
		work(&job);
		close_job(dev, &job);
		lane->extra_ns += job.helpers_ns;
	}
	lane->splitting = false;
}
