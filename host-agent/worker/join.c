/* SPDX-License-Identifier: Apache-2.0 */
/* Queues and sessions that come to a device thread, and leave it. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/atomic.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/thread.h"

/* A guest that polls is in a virtual machine: its bell is an exit of the machine, and nothing tells it of an answer that came late. */
#define POLLED_SPIN_NS 200000u
#define CAREFUL_TASKS  4096u /* of a queue, once its session's context has failed */

bool worker_queue_open(struct wdevice *d, struct wqueue *q)
{
	struct gantry_stream_attr attr = { .priority = q->led->priority,
					   .ncareful = q->session->careful ? CAREFUL_TASKS : 0,
					   .owner = q->session,
					   .keep = worker_keep_of(q->session, d->index),
					   .is_alone = d->engine->isolated,
					   .compile = worker_compile_for_module,
					   .compile_cookie = q };
	struct gantry_err err;
	int r;

	r = d->device.backend->stream_create(d->device.dev, &attr, &q->stream, &err);
	if (r < 0) {
		/* No fault of the session's: another worker can serve it. */
		if (r == -EIO)
			worker_tell_unusable(d, err.text);
		worker_condemn(q->session, GANTRY_E_INTERNAL, err.text);
		return false;
	}
	q->lane = -1;
	q->window_ns = 0;
	q->nunknown = 0;
	q->nunflushed = 0;
	memset(q->lengths, 0, sizeof(q->lengths));
	q->open = true;
	/* This thread is awake; the one that it comes from may have said that it sleeps. */
	gantry_ring_unpark(&q->ring);
	if (worker_has_control(d, q->session))
		gantry_ring_unpark(&q->session->queues[0].ring);
	return true;
}

static void queue_let_go(struct wdevice *d, struct wqueue *q)
{
	worker_lane_give(d, q, false);
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

bool worker_has_control(const struct wdevice *d, const struct wsession *s)
{
	/* Acquire: pairs with the release in control_follows(). */
	return gantry_load_acquire(&s->control) == d->index;
}

/*
 * Where the last of a session's queues leaves for another processor, its control queue goes along: a program that puts tasks there
 * and asks for something now and then would keep two threads awake, or pay for waking them by turns. Elsewhere it stays: the thread
 * of a GPU answers questions about it at once, that of another device has to ask it.
 */
static void control_follows(struct wdevice *d, struct wsession *s, uint32_t target)
{
	const struct wdevice *to = s->engine->devices[target];

	if (!worker_has_control(d, s) || gantry_load_relaxed(&s->served[d->index]) ||
	    d->device.info.kind != GANTRY_KIND_CPU || to->device.info.kind != GANTRY_KIND_CPU)
		return;
	/* Release: pairs with the acquire in worker_has_control() and the stand-in's; all we wrote to the queue comes first. */
	gantry_store_release(&s->control, target);
}

bool worker_queue_leaves(struct wdevice *d, struct wqueue *q)
{
	uint32_t target = gantry_load_acquire(&q->target);
	struct wsession *s = q->session;

	if (q->led->issued != q->led->done)
		return target != d->index;
	if (target != d->index) {
		queue_let_go(d, q);
		gantry_failpoint(GANTRY_FAILPOINT_MOVE_LEFT);
		gantry_store_relaxed(&q->led->device, target);
		control_follows(d, s, target);
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

static void join_failed(struct wdevice *d, struct wsession *s, const struct gantry_err *err)
{
	/* The context was gone before the session came: another worker can serve it. */
	if (err->code == -EIO)
		worker_tell_unusable(d, err->text);
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

bool worker_in_flight(struct wdevice *d, struct wsession *s)
{
	uint64_t mask = gantry_load_acquire(&s->served[d->index]);

	for (; mask; mask &= mask - 1) {
		const struct wqueue *q = &s->queues[__builtin_ctzll(mask)];

		if (q->open && q->led->issued != q->led->done)
			return true;
	}
	return false;
}

void worker_device_drop(struct wdevice *d, uint32_t i)
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
