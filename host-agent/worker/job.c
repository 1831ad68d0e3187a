/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: what a device thread does for a session's memory beside its tasks, one command after the other on a stream of
 * its own per window. Started by any thread, run by the device's, ended there; a session leaves when it has none.
 */
#include <errno.h>

#include "base/atomic.h"
#include "host-agent/worker/memory.h"

/* A queue's address is even. */
#define JOB_TAG 1u
/* Of a device thread, at most: some microseconds when there is nothing to do in them. */
#define PUT_OFF_ROUNDS 64u

static struct wjob *job_of(uint64_t tag)
{
	return (struct wjob *)(uintptr_t)(tag & ~(uint64_t)JOB_TAG);
}

bool worker_job_is(uint64_t tag)
{
	return tag & JOB_TAG;
}

const struct wsession *worker_job_session(uint64_t tag)
{
	return job_of(tag)->session;
}

static void arrive(struct wdevice *d, void *arg)
{
	struct wjob *job = arg;

	gantry_list_push_back(&d->jobs, &job->link);
	d->jobs_fresh = job->urgent ? 0 : 1;
}

int worker_job_start_locked(struct wsession *s, uint32_t device, struct wjob *job)
{
	gantry_list_init(&job->link);
	job->session = s;
	job->flying = false;
	job->status = GANTRY_OK;
	(void)gantry_fetch_add(&s->njobs, 1);
	if (worker_device_post(s->engine->devices[device], arrive, job) == 0)
		return 0;
	(void)gantry_fetch_sub(&s->njobs, 1);
	return -ENOMEM;
}

/* The job is its own end's to free. */
static void end(struct wdevice *d, struct wjob *job)
{
	struct wsession *s = job->session;
	bool ending = gantry_load_acquire(&s->ending);

	gantry_list_remove(&job->link);
	job->end(d, job);
	/* Threads that want to leave the session wait for its last job. The session lives: this thread holds it. */
	if (gantry_fetch_sub(&s->njobs, 1) == 1 && ending)
		worker_session_wake(s);
}

static int stream_of(struct wdevice *d, struct wwindow *w, struct gantry_err *err)
{
	const struct gantry_stream_attr attr = { 0 };

	return w->stream ? 0
			 : d->device.backend->stream_create(d->device.dev, &attr, &w->stream, err);
}

/* Whether anything changed: a command went off, or the job ended. */
static bool advance(struct wdevice *d, struct wjob *job)
{
	struct wwindow *w = job->session->windows[d->index];
	enum wjob_next next = JOB_COMMAND;
	struct gantry_err err;
	int r;

	if (job->status == GANTRY_OK && gantry_load_acquire(&job->session->ending))
		job->status = GANTRY_E_DETACHED;
	/* A command that the device had no room for is tried again. */
	if (job->cmd.tag == 0 || job->status != GANTRY_OK) {
		job->cmd.tag = (uint64_t)(uintptr_t)job | JOB_TAG;
		next = job->next(d, job, &job->cmd);
	}
	if (next != JOB_COMMAND)
		job->cmd.tag = 0;
	if (next == JOB_WAIT)
		return false;
	if (next == JOB_END) {
		end(d, job);
		return true;
	}
	r = stream_of(d, w, &err);
	if (r == 0)
		r = d->device.backend->submit(w->stream, &job->cmd);
	if (r == -EAGAIN)
		return false;
	if (r < 0) {
		job->status = GANTRY_E_INTERNAL;
		return true; /* it ends when it is next looked at */
	}
	job->cmd.tag = 0;
	job->flying = true;
	d->nactive++;
	if (d->device.backend->flush)
		d->device.backend->flush(w->stream);
	return true;
}

/*
 * Whoever frees a buffer mostly makes another at once, and would wait for us to enqueue the washing. There is time for
 * that while the device works on what it has, or when nobody wants anything.
 */
bool worker_jobs_put_off(struct wdevice *d, bool busy)
{
	if (d->jobs_fresh == 0)
		return false;
	if ((!busy && d->nactive > 0) || ++d->jobs_fresh > PUT_OFF_ROUNDS) {
		d->jobs_fresh = 0;
		return false;
	}
	return true;
}

unsigned worker_jobs_run(struct wdevice *d)
{
	unsigned n = 0;

	gantry_list_for_each_safe(&d->jobs, struct wjob, link, job)
		if (!job->flying && advance(d, job))
			n++;
	return n;
}

void worker_job_done(struct wdevice *d, const struct gantry_done *done)
{
	struct wjob *job = job_of(done->tag);

	d->nactive--;
	job->flying = false;
	if (done->status != GANTRY_OK)
		job->status = done->status;
	gantry_share_charge(d->page, job->session->share_slot, done->device_ns);
}
