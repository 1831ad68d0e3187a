/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device thread: its start and its end, what other threads call it for, and its rounds over the queues it serves.
 *
 * One round looks at every session once. A queue's turn (issue.c) issues what its window, its lane (lane.c) and the session's limits
 * allow; then comes what has finished (reap.c). When a round finds nothing, the thread looks for sleep (park.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/worker/affinity.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/thread.h"

#define DEFAULT_SPIN_NS 50000u

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

/* ---- rounds ---- */

/* One session's part of a round. Returns what it found to do. */
static unsigned serve(struct wdevice *d, struct wsession *s)
{
	/* Acquire: pairs with the release of whoever handed the queue over. */
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);
	bool wants = false;
	unsigned found = 0;
	int r;

	if (worker_has_control(d, s)) {
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
			if (!worker_queue_open(d, q))
				return found;
			found++; /* a queue that comes while the rings are parked is not parked yet: look again */
		}
		if (worker_queue_leaves(d, q))
			continue;
		r = worker_intake(q);
		if (r < 0) {
			worker_condemn(s, GANTRY_E_PROTOCOL, "positions of a ring make no sense");
			return found;
		}
		found += (unsigned)r + worker_turn(d, q);
		worker_lane_rest(d, q);
		worker_publish(q);
		worker_charge_time(d, q); /* who waits for the task need not wait for this */
		wants = wants || worker_wants_lane(d, q);
	}
	worker_gpu_rest(d, s);
	/* The session is one waiter, whatever the number of its queues: it leaves when none of them waits. */
	if (s->lane_asked[d->index] && !wants) {
		gantry_share_leave(d->page, s->share_slot);
		s->lane_asked[d->index] = false;
	}
	return found;
}

unsigned worker_round(struct wdevice *d)
{
	unsigned found = 0;

	d->lane_short = d->lane_wanted;
	d->lane_wanted = false;
	d->nbeside = d->nturns;
	d->nturns = 0;
	for (uint32_t i = 0; i < d->nsessions; i++) {
		struct wsession *s = d->sessions[i];

		if (gantry_load_acquire(&s->ending)) {
			if (!worker_in_flight(d, s) && worker_windows_close(d, s)) {
				worker_device_drop(d, i--);
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
	found += worker_reap(d);
	if (!gantry_list_is_empty(&d->dying_images))
		found += worker_images_reap(d);
	return found;
}

static void *device_main(void *arg)
{
	struct wdevice *d = arg;

	while (!gantry_load_relaxed(&d->stop) || d->nsessions > 0 ||
	       gantry_load_acquire(&d->ncalls)) {
		uint32_t ticket = gantry_share_ticket(d->page, d->owner);

		run_calls(d);
		if (worker_round(d) == 0)
			worker_idle(d, ticket);
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
