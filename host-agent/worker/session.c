/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: taken over from the ledger (new ones too: their ledger is empty), placed, condemned, let go. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/output.h"
#include "proto/segment.h"

/* ---- placement of queues ---- */

uint64_t worker_queue_tail(const struct wqueue *q)
{
	uint64_t taken = gantry_load_relaxed(&q->led->taken);
	uint64_t tail = gantry_load_acquire(&q->ring.map.area->tail);

	/* A tail that makes no sense condemns the session at the next intake; here it just counts for nothing. */
	return tail - taken > q->ring.map.nslots ? taken : tail;
}

bool worker_queue_fits(const struct wsession *s, const struct wqueue *q, uint32_t i)
{
	const struct wdevice *d = s->engine->devices[i];
	uint64_t allowed = gantry_load_relaxed(&s->ledger.hdr->device_allowed);
	uint64_t mask;

	if (!d->usable || !(s->device_mask >> i & 1))
		return false;
	/* Where all devices are out of service a new queue waits at any, as older ones do. */
	if (allowed && !(allowed >> i & 1))
		return false;
	mask = gantry_load_relaxed(&q->led->device_mask);
	if (mask && !(mask >> i & 1))
		return false;
	return q->led->kind == GANTRY_KIND_ANY || q->led->kind == d->device.info.kind;
}

/* Sessions with work on the device now, in every worker, and queues of ours already there: the fewer the better. */
static uint32_t device_load(const struct wsession *s, uint32_t i)
{
	const struct gantry_share_page *page = s->engine->devices[i]->page;
	uint32_t n = gantry_load_relaxed(&page->hdr.nsessions);
	uint32_t busy = (uint32_t)__builtin_popcountll(gantry_load_relaxed(&s->served[i]));

	for (uint32_t k = 0; k < n && k < GANTRY_SHARE_NSESSIONS; k++)
		if (gantry_load_relaxed(&page->sessions[k].state) >= GANTRY_SHARE_WAITING)
			busy++;
	return busy;
}

static int choose_device(const struct wsession *s, const struct wqueue *q)
{
	uint32_t best_load = UINT32_MAX;
	int best = -ENODEV;

	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		uint32_t load;

		if (!worker_queue_fits(s, q, i))
			continue;
		load = device_load(s, i);
		if (load < best_load) {
			best_load = load;
			best = (int)i;
		}
	}
	return best;
}

/*
 * The thread that serves the queue looks at its target, which has just been stored. Where the queue is on its way from one thread to
 * another just now: `device` is the second one's, which has to be woken, or it is stored after this fence, and the second
 * one sees the target when it comes to serve the queue. Nobody else has a part in it: the destination is woken by who hands it over.
 */
static void wake_server(struct wsession *s, const struct wqueue *q)
{
	uint32_t device;

	/* Full fence: pairs with the atomic operation on `served` in worker_queue_leaves(). */
	gantry_fence_full();
	device = gantry_load_relaxed(&q->led->device);
	if (device != gantry_load_relaxed(&q->target) && device < s->engine->ndevices)
		worker_device_wake(s->engine->devices[device]);
}

int worker_queue_place(struct wsession *s, struct wqueue *q)
{
	bool fresh = gantry_load_relaxed(&q->led->state) == GANTRY_QUEUE_CLOSED;
	uint32_t target = gantry_load_relaxed(&q->target); /* where it is, or is on its way to */
	int to;

	if (!fresh && target < s->engine->ndevices && worker_queue_fits(s, q, target))
		to = (int)target;
	else
		to = choose_device(s, q);
	if (to < 0)
		return to;
	/* Release: pairs with the acquire in queue_leaves(). */
	gantry_store_release(&q->target, (uint32_t)to);
	if (fresh) {
		gantry_store_relaxed(&q->led->device, (uint32_t)to);
		gantry_store_release(&q->led->state, GANTRY_QUEUE_OPEN);
		(void)gantry_fetch_or(&s->served[to], 1ull << q->slot);
		worker_device_wake(s->engine->devices[to]);
	} else {
		wake_server(s, q);
	}
	return 0;
}

/* ---- finding, condemning ---- */

static struct wsession *find_locked(struct gantry_engine *e, uint64_t id)
{
	gantry_list_for_each(&e->sessions, struct wsession, link, s)
		if (s->id == id)
			return s;
	return NULL;
}

static bool hold(struct wsession *s)
{
	uint32_t n = gantry_load_relaxed(&s->nrefs);

	while (n > 0)
		if (gantry_cas(&s->nrefs, &n, n + 1))
			return true;
	return false; /* its last thread is about to take it off the list */
}

struct wsession *worker_session_get(struct gantry_engine *e, uint64_t id)
{
	struct wsession *s;

	/* The lock: whoever frees a session takes it off the list first. */
	pthread_mutex_lock(&e->session_lock);
	s = find_locked(e, id);
	if (s && !hold(s))
		s = NULL;
	pthread_mutex_unlock(&e->session_lock);
	return s;
}

void worker_session_hold(struct wsession *s)
{
	(void)gantry_fetch_add(&s->nrefs, 1);
}

void worker_session_wake(struct wsession *s)
{
	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if (s->device_mask >> i & 1)
			worker_device_wake(s->engine->devices[i]);
}

/* Every thread of the guest that sleeps on this session looks again. */
static void tell_guest(struct wsession *s, int reason)
{
	gantry_store_relaxed(&s->hdr->reason, reason);
	gantry_store_release(&s->hdr->state, (uint32_t)GANTRY_SESSION_DETACHED);
	worker_wake_all(s);
}

static void session_stop(struct wsession *s, int reason)
{
	uint32_t was = 0;

	if (!gantry_cas(&s->ending, &was, 1u))
		return;
	if (reason != GANTRY_ENGINE_PART)
		tell_guest(s, reason);
	worker_session_wake(s);
}

void worker_condemn(struct wsession *s, int status, const char *text)
{
	uint32_t was = 0;

	if (!gantry_cas(&s->condemned, &was, (uint32_t)-status))
		return;
	s->ledger.hdr->condemned = (uint64_t)-status;
	s->engine->events.ended(s->engine->events.cookie, s->id, status, text);
	session_stop(s, status);
}

/* ---- leaving ---- */

static void session_free(struct wsession *s)
{
	if (!s)
		return;
	if (s->objects)
		worker_memory_release(s);
	worker_load_release(s);
	worker_ask_release(s);
	worker_keeps_close(s);
	worker_images_release(s);
	worker_windows_free(s);
	free(s->objects);
	free(s->contents);
	free(s->queues);
	gantry_ledger_close(&s->ledger);
	gantry_quota_close(s->quota);
	if (s->segment.base && !s->segment_is_borrowed)
		(void)munmap(s->segment.base, s->segment.bytes);
	gantry_fd_close(s->slab_fd);
	gantry_fd_close(s->bell_fd);
	gantry_fd_close(s->wake_fd);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->contents_lock);
	free(s);
}

void worker_session_leave(struct wsession *s)
{
	struct gantry_engine *e = s->engine;
	uint64_t id = s->id;

	if (gantry_fetch_sub(&s->nrefs, 1) != 1)
		return;
	pthread_mutex_lock(&e->session_lock);
	gantry_list_remove(&s->link);
	pthread_mutex_unlock(&e->session_lock);
	session_free(s);
	e->events.detached(e->events.cookie, id);
}

int gantry_engine_detach(struct gantry_engine *e, uint64_t session_id, int reason)
{
	struct wsession *s;

	/* The lock keeps the last device thread from freeing it while we look. */
	pthread_mutex_lock(&e->session_lock);
	s = find_locked(e, session_id);
	if (s)
		session_stop(s, reason);
	pthread_mutex_unlock(&e->session_lock);
	return s ? 0 : -ENOENT;
}

/* ---- taking over ---- */

static int map_segment(struct wsession *s, const struct gantry_engine_attach *a,
		       struct gantry_err *err)
{
	void *want = (void *)(uintptr_t)a->address;
	void *base = MAP_FAILED;
	uint64_t end;

	if (gantry_add_u64(a->segment_off, a->segment_bytes, &end) < 0 ||
	    gantry_memfd_check(a->segment_fd, end) < 0)
		return gantry_err_set(err, -EINVAL, "the segment is not sealed or too small");
	s->segment_is_borrowed = a->mapped != NULL;
	if (a->mapped)
		base = a->mapped;
	else if (want)
		base = mmap(want, a->segment_bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED_NOREPLACE, a->segment_fd, (off_t)a->segment_off);
	if (base == MAP_FAILED)
		base = mmap(NULL, a->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			    a->segment_fd, (off_t)a->segment_off);
	if (base == MAP_FAILED)
		return gantry_err_set(err, -errno, "mapping the segment");
	s->translated = !a->mapped &&
			base != want; /* also by kernels that take MAP_FIXED_NOREPLACE for a hint */
	gantry_store_relaxed(&s->ledger.hdr->translated, (uint64_t)s->translated);
	s->segment = (struct gantry_region){ .base = base, .bytes = a->segment_bytes };
	s->hdr = base;
	return 0;
}

/* The layout follows from the ledger's shape; what the segment's header says is the guest's to read, never ours. */
static int lay_out(struct wsession *s, struct gantry_err *err)
{
	const struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_segment_layout layout;

	if (hdr->segment_bytes != s->segment.bytes ||
	    gantry_segment_layout_of(s->ledger.nqueues, s->ledger.nslots, s->segment.bytes,
				     &layout) < 0)
		return gantry_err_set(err, -EINVAL, "the ledger's segment has another size");
	s->heap = (struct gantry_region){ .base = s->segment.base + layout.heap_off,
					  .bytes = layout.heap_bytes };
	s->queues = calloc(s->ledger.nqueues, sizeof(*s->queues));
	/* So large that its pages come when they are touched, and then only where objects are. */
	s->objects = calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*s->objects));
	if (!s->queues || !s->objects || worker_contents_init(s) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory for the session's tables");
	return 0;
}

/*
 * In doubt is what an earlier worker had issued and not finished; here it is issued anew or refused (bind.c). That is
 * in the ledger before issued goes back, for this worker may die too before it has dealt with it.
 */
static void take_doubt(struct wqueue *q, int32_t verdict)
{
	struct gantry_ledger_queue *led = q->led;

	q->doubt_below = GANTRY_MAX(led->doubt_below, led->issued);
	q->suspect_below = led->sorted ? led->issued : 0;
	q->verdict_pos = led->done;
	q->judged = false;
	/* Something was in flight, or the fault was another queue's. */
	if (led->issued > led->done)
		q->verdict = led->verdict && led->verdict_pos == led->done ? led->verdict : verdict;
	gantry_store_release(&led->doubt_below, q->doubt_below);
	gantry_store_release(&led->issued, led->done);
	gantry_store_relaxed(&led->issued_at_ns, (uint64_t)0);
	gantry_store_relaxed(&led->sorted, 0u);
	gantry_store_relaxed(&led->untried_below, (uint64_t)0);
}

/* Launches of which one made the context fail: then they are known, unless their worker could not tell any more. */
static void count_suspects(struct wsession *s, int32_t verdict)
{
	s->careful = verdict == GANTRY_E_DEVICE_FAULT;
	for (uint32_t slot = 1; s->careful && slot < s->ledger.nqueues; slot++) {
		const struct wqueue *q = &s->queues[slot];

		for (uint64_t pos = q->led->done; pos < q->suspect_below; pos++)
			s->nsuspects += gantry_ledger_task(&s->ledger, slot, pos)->desc.op ==
					GANTRY_OP_launch;
	}
	s->stepping = s->nsuspects > 1;
	/* Another device's queues had no part in it. */
	for (uint32_t slot = 1; s->nsuspects && slot < s->ledger.nqueues; slot++)
		if (s->queues[slot].suspect_below == 0)
			s->queues[slot].verdict = 0;
}

static int take_queue(struct wsession *s, uint32_t slot, const struct gantry_engine_attach *a,
		      struct gantry_err *err)
{
	struct wqueue *q = &s->queues[slot];
	struct gantry_ledger_queue *led = &s->ledger.queues[slot];
	struct gantry_ring_map map;
	int r = gantry_ring_map_init(&map, &s->segment, GANTRY_PAGE, slot, s->ledger.nslots);

	if (r < 0)
		return gantry_err_set(err, r, "queue %u does not fit the segment", slot);
	if (slot != 0 && led->state == GANTRY_QUEUE_CLOSED && led->taken != led->done)
		return gantry_err_set(err, -EINVAL, "queue %u is closed and has tasks", slot);
	q->session = s;
	q->slot = slot;
	q->led = led;
	q->lane = -1;
	take_doubt(q, a->verdict);
	led->cancel_below = GANTRY_MIN(led->cancel_below, led->taken + s->ledger.nslots);
	led->priority = GANTRY_MIN(led->priority, gantry_load_relaxed(&s->quota->priority_max));
	/* Nobody was told of it: the operation that opened it runs again and opens another. */
	if (led->state == GANTRY_QUEUE_OPEN && led->opened_by > s->ledger.queues[0].done)
		led->state = led->taken == led->done ? GANTRY_QUEUE_CLOSED : GANTRY_QUEUE_CLOSING;
	memset(q->failed_slots, 0xff, sizeof(q->failed_slots));
	gantry_ring_consumer_init(&q->ring, &map, led->taken, led->done);
	q->head_published = led->taken;
	q->done_published = led->done;
	gantry_ring_unpark(&q->ring);
	if (slot == 0 || led->state == GANTRY_QUEUE_CLOSED) {
		q->target = s->home;
		return 0;
	}
	s->unfinished += led->taken - led->done;
	if (led->device >= s->engine->ndevices || !worker_queue_fits(s, q, led->device)) {
		int to = choose_device(s, q);

		led->device = to < 0 ? s->home : (uint32_t)to;
	}
	q->target = led->device;
	s->served[led->device] |= 1ull << slot;
	return 0;
}

/* "MODULE/NAME"; "/NAME": wherever it was found, all modules' images count. One of another signature is another kernel. */
static struct wkernel *installed_kernel(struct wsession *s, const struct gantry_ledger_kernel *led)
{
	const char *name = strchr(led->name, '/');
	char module[sizeof(led->name)];
	struct wkernel *k;

	if (!name)
		return NULL;
	(void)gantry_str_copy(module, sizeof(module), led->name);
	module[name - led->name] = '\0';
	k = worker_kernel_find_again(s->engine, s->tenant, module[0] ? module : NULL, name + 1);
	return k && led->sig_hash && worker_kernel_sig_hash(k) != led->sig_hash ? NULL : k;
}

static void take_kernel(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];
	uint64_t parent = obj->variant_of;
	uint32_t kind = obj->variant_kind;
	struct wkernel *k;

	if (!GANTRY_LEDGER_IS_OWN(&obj->kernel)) {
		k = installed_kernel(s, &obj->kernel);
		s->objects[slot].kernel[0] = k;
	} else if (worker_image_kernel_recover(s, slot)) {
		k = s->objects[slot].kernel[0];
	} else { /* its image is lost: the handle is stale */
		obj->state = GANTRY_OBJECT_FREE;
		return;
	}
	if (parent && GANTRY_HANDLE_SLOT(parent) < GANTRY_LEDGER_NOBJECTS && kind > 0 &&
	    kind < GANTRY_NKINDS)
		s->objects[GANTRY_HANDLE_SLOT(parent)].kernel[kind] = k;
}

static int take_shared(struct wsession *s, uint32_t slot, const struct gantry_engine_attach *a)
{
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wshared *shared;

	for (uint32_t i = 0; i < a->nshared; i++) {
		if (a->shared[i].share_id != b->share_id || a->shared[i].bytes != b->bytes ||
		    gantry_memfd_check(a->shared[i].fd, b->bytes) < 0)
			continue;
		shared = calloc(1, sizeof(*shared));
		if (!shared)
			return -ENOMEM;
		shared->fd = fcntl(a->shared[i].fd, F_DUPFD_CLOEXEC, 0);
		s->objects[slot].shared = shared;
		return shared->fd < 0 ? -errno : 0;
	}
	return 0; /* lost: its handle answers with GANTRY_E_HANDLE */
}

/* The store first: images lie there. Lost with their worker, their handles are stale. */
static void take_images(struct wsession *s, const struct gantry_engine_attach *a)
{
	for (uint32_t i = 0; i < a->nshared; i++)
		if (a->shared[i].share_id == worker_store_share_id(s) &&
		    a->shared[i].bytes == GANTRY_LEDGER_STORE_BYTES &&
		    gantry_memfd_check(a->shared[i].fd, GANTRY_LEDGER_STORE_BYTES) == 0)
			(void)worker_store_open(s, a->shared[i].fd);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state == GANTRY_OBJECT_FREE || obj->type != GANTRY_HANDLE_IMAGE ||
		    !GANTRY_LEDGER_IS_OWN(&obj->image))
			continue;
		if (worker_image_recover(s, i))
			continue;
		obj->state = GANTRY_OBJECT_FREE;
		worker_store_refund(s, obj->image.own.bytes);
	}
}

/* What a control operation had made when its worker died unanswered is undone: the operation runs again. */
static bool half_made(const struct wsession *s, const struct gantry_ledger_object *obj)
{
	return obj->made_by > s->ledger.queues[0].done;
}

/* Nobody was told of it. */
static void forget(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_object *obj = &s->ledger.objects[slot];

	/* An image dies with its last kernel, or below if it has none. */
	if (s->objects[slot].image)
		obj->state = GANTRY_OBJECT_DYING;
	else
		obj->state = GANTRY_OBJECT_FREE;
}

/* It could be shared, and lies where it was put for its way to another host. */
static bool was_settled(const struct gantry_ledger_buffer *b)
{
	return (b->alloc_flags & GANTRY_ALLOC_SHARED) &&
	       (b->place == GANTRY_PLACE_SLAB || b->place == GANTRY_PLACE_NONE);
}

/* The buffer for what kernels print is the one that was made last, as it was before. */
static void take_output(struct wsession *s)
{
	uint64_t made_by = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (!worker_is_buffer(obj) || obj->state != GANTRY_OBJECT_LIVE ||
		    !(obj->buffer.alloc_flags & GANTRY_ALLOC_OUTPUT) || obj->made_by < made_by)
			continue;
		made_by = obj->made_by;
		worker_output_is_at(s, i);
	}
}

/* Behind all that lies in the store: what is there keeps its place. */
static void take_keeps(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_KERNEL &&
		    worker_keeps(obj))
			worker_keeps_open_locked(s);
	}
}

static int take_objects(struct wsession *s, const struct gantry_engine_attach *a,
			struct gantry_err *err)
{
	take_images(s, a);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state == GANTRY_OBJECT_FREE)
			continue;
		if (obj->type != GANTRY_HANDLE_BUFFER && half_made(s, obj)) {
			forget(s, i);
		} else if (obj->type == GANTRY_HANDLE_KERNEL) {
			take_kernel(s, i);
		} else if (obj->type == GANTRY_HANDLE_BUFFER) {
			if (obj->buffer.place == GANTRY_PLACE_OWN && take_shared(s, i, a) < 0)
				return gantry_err_set(err, -ENOMEM, "taking shared buffers over");
			if (was_settled(&obj->buffer) && worker_shared_unsettle(s, i) < 0)
				return gantry_err_set(err, -ENOMEM, "memory for shared buffers");
			/* Its snapshot died with the worker; what is put by now is a safe one. */
			if (obj->state == GANTRY_OBJECT_DYING || half_made(s, obj)) {
				obj->state = GANTRY_OBJECT_LIVE;
				(void)worker_buffer_free(s, worker_object_handle(s, i));
			}
		}
	}
	take_output(s);
	take_keeps(s);
	worker_images_recovered(s);
	return 0;
}

static int check_buffers(const struct wsession *s, struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_BUFFER &&
		    !worker_buffer_possible(s, &obj->buffer))
			return gantry_err_set(err, -EINVAL, "buffer %u of the ledger cannot be", i);
	}
	return 0;
}

static uint32_t home_of(const struct gantry_engine *e, uint64_t mask)
{
	for (uint32_t i = 0; i < e->ndevices; i++)
		if ((mask >> i & 1) && e->devices[i]->usable)
			return i;
	return UINT32_MAX;
}

/* Tasks that finished and were not published when their worker died had not been counted yet. */
static void recount(struct wsession *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->ledger.nqueues; i++)
		n += s->ledger.queues[i].done;
	gantry_store_relaxed(&s->ledger.hdr->tasks_finished, n);
}

static int session_fill(struct wsession *s, const struct gantry_engine_attach *a,
			struct gantry_err *err)
{
	int r;

	s->bell_fd = fcntl(a->bell_fd, F_DUPFD_CLOEXEC, 0);
	s->slab_fd = fcntl(a->slab_fd, F_DUPFD_CLOEXEC, 0);
	if (s->wake == GANTRY_SESSION_WAKE_EVENTFD || s->wake == GANTRY_SESSION_WAKE_SOCKET)
		s->wake_fd = fcntl(a->wake_fd, F_DUPFD_CLOEXEC, 0);
	if (s->bell_fd < 0 || s->slab_fd < 0 ||
	    (s->wake_fd < 0 && s->wake >= GANTRY_SESSION_WAKE_EVENTFD))
		return gantry_err_set(err, -errno, "keeping the session's descriptors");
	r = gantry_ledger_open(a->ledger_fd, &s->ledger, err);
	if (r < 0)
		return gantry_err_wrap(err, r, "ledger of session %llu",
				       (unsigned long long)a->session_id);
	if (worker_places_recover(s) < 0)
		return gantry_err_set(err, -EINVAL, "the ledger names devices that there are not");
	r = gantry_quota_open(a->quota_fd, &s->quota, err);
	if (r == 0)
		r = map_segment(s, a, err);
	if (r == 0)
		r = lay_out(s, err);
	if (r == 0)
		r = worker_slab_init(s, err);
	if (r == 0)
		r = worker_windows_init(s, a, err);
	if (r == 0)
		r = check_buffers(s, err);
	if (r < 0)
		return r;
	if (worker_slab_recover(s) < 0)
		return gantry_err_set(err, -EINVAL, "buffers of the ledger lie outside the slab");
	worker_charges_recover(s);
	recount(s);
	s->fence = gantry_load_acquire(&s->ledger.hdr->epoch);
	for (uint32_t i = 0; i < s->ledger.nqueues && r == 0; i++)
		r = take_queue(s, i, a, err);
	count_suspects(s, a->verdict);
	if (r == 0)
		r = take_objects(s, a, err);
	return r;
}

/* The header's words for the guest; constants were written by the agent before the guest had the segment. */
static void announce(struct wsession *s, const struct gantry_engine_attach *a)
{
	if (a->recover)
		gantry_count_add(&s->ledger.hdr->worker_restarts, 1);
	gantry_store_relaxed(&s->hdr->epoch, a->epoch);
	gantry_store_release(&s->hdr->state, (uint32_t)GANTRY_SESSION_ATTACHED);
	worker_wake_all(s);
}

int gantry_engine_attach(struct gantry_engine *e, const struct gantry_engine_attach *a,
			 struct gantry_err *err)
{
	uint32_t home = home_of(e, a->device_mask);
	struct wsession *s;
	int r;

	if (home == UINT32_MAX)
		return gantry_err_set(err, -ENODEV, "none of the session's devices is usable");
	s = worker_session_get(e, a->session_id);
	if (s) {
		worker_session_leave(s);
		return gantry_err_set(err, -EEXIST, "the session is here already");
	}
	if (gantry_engine_sessions(e, NULL, 0) >= GANTRY_ENGINE_MAX_SESSIONS)
		return gantry_err_set(err, -EBUSY, "a worker serves %u sessions at most",
				      GANTRY_ENGINE_MAX_SESSIONS);
	s = calloc(1, sizeof(*s));
	if (!s)
		return gantry_err_set(err, -ENOMEM, "no memory for a session");
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->contents_lock, NULL);
	gantry_list_init(&s->link);
	gantry_list_init(&s->images);
	s->store.fd = -EBADF;
	gantry_list_init(&s->washing);
	s->engine = e;
	s->id = a->session_id;
	s->epoch = a->epoch;
	s->version = a->version;
	s->share_slot = a->share_slot;
	(void)gantry_str_copy(s->tenant, sizeof(s->tenant), a->tenant ? a->tenant : "");
	s->device_mask = a->device_mask;
	s->home = home;
	s->control = home;
	s->slab_fd = -EBADF;
	s->bell_fd = -EBADF;
	s->wake = a->wake;
	s->wake_fd = -EBADF;
	r = session_fill(s, a, err);
	if (r < 0) {
		session_free(s);
		return r;
	}

	for (uint32_t i = 0; i < e->ndevices; i++)
		if ((a->device_mask >> i & 1) && e->devices[i]->usable)
			s->nrefs++;
	pthread_mutex_lock(&e->session_lock);
	gantry_list_push_back(&e->sessions, &s->link);
	pthread_mutex_unlock(&e->session_lock);
	announce(s, a);
	for (uint32_t i = 0; i < e->ndevices; i++)
		if ((a->device_mask >> i & 1) && e->devices[i]->usable &&
		    worker_device_post(e->devices[i], worker_device_adopt, s) < 0) {
			worker_condemn(s, GANTRY_E_INTERNAL,
				       "no memory to hand the session to its devices");
			worker_session_leave(s); /* for the thread that will not */
		}
	return 0;
}
