/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers: made, freed, and given back scrubbed once the tasks that may use them have finished. Their memory comes at first use (back.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/fd.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/memory.h"
#include "host-agent/worker/output.h"

/* Another's memory is charged where it was made: of its own shared memory, or of another session's device (loan.c). */
static bool adopted_possible(const struct gantry_ledger_buffer *b)
{
	return b->place == GANTRY_PLACE_OWN ||
	       (b->place == GANTRY_PLACE_IMAGE && b->charged_bytes == 0 && b->share_id);
}

bool worker_buffer_possible(const struct wsession *s, const struct gantry_ledger_buffer *b)
{
	uint64_t backed = worker_page_up(b->bytes);

	if (b->device >= s->engine->ndevices || b->to > s->engine->ndevices ||
	    b->replicas >> s->engine->ndevices || (b->adopted && !adopted_possible(b)))
		return false;
	if (b->host_bytes && (b->host_bytes != backed || b->adopted ||
			      b->place == GANTRY_PLACE_NONE || b->place == GANTRY_PLACE_HEAP))
		return false;
	if (b->range && (b->to || b->replicas || b->host_bytes))
		return false;
	switch (b->place) {
	case GANTRY_PLACE_NONE:
		return b->charged_bytes == 0 ||
		       (s->windows[b->device] && b->charged_bytes == backed);
	case GANTRY_PLACE_HEAP:
		/* The ledger knows the segment only; offsets count from the heap. */
		return b->charged_bytes == 0 &&
		       gantry_range_inside(b->off, b->bytes, s->heap.bytes);
	case GANTRY_PLACE_SLAB:
	case GANTRY_PLACE_AWAY:
	case GANTRY_PLACE_LOST:
		return (b->charged_bytes == 0 || b->charged_bytes == backed) &&
		       b->off % GANTRY_PAGE == 0 &&
		       gantry_range_inside(b->off, backed, s->slab_bytes);
	case GANTRY_PLACE_WINDOW:
		return s->windows[b->device] && b->charged_bytes == backed &&
		       b->off % GANTRY_PAGE == 0 &&
		       gantry_range_inside(b->off, backed, s->windows[b->device]->bytes);
	case GANTRY_PLACE_IMAGE:
		return b->host_bytes == 0; /* an array is charged what it may take */
	case GANTRY_PLACE_RANGE:
		return s->windows[b->device] && b->charged_bytes == 0 && b->host_bytes == 0;
	case GANTRY_PLACE_OWN:
		return b->off == 0 &&
		       (b->charged_bytes == 0 || (b->charged_bytes == backed && !b->adopted));
	default:
		return false;
	}
}

/* ---- allocation ---- */

static int alloc_locked(struct wsession *s, const struct gantry_op_buf_alloc *args,
			uint64_t made_by, uint32_t *ret_slot)
{
	bool host = args->alloc_flags & GANTRY_ALLOC_HOST;
	struct gantry_ledger_buffer *b;
	uint32_t slot;
	int status = worker_object_new_locked(s, GANTRY_HANDLE_BUFFER, &slot);

	if (status != GANTRY_OK) {
		worker_deny(s);
		return s->ndying ? GANTRY_E_AGAIN : status;
	}
	b = &s->ledger.objects[slot].buffer;
	b->bytes = args->bytes;
	b->alloc_flags = args->alloc_flags;
	b->rights = GANTRY_RW;
	b->device = s->home;
	if (host) {
		b->place = GANTRY_PLACE_HEAP;
		b->off = args->heap_off;
	} else if (args->alloc_flags & GANTRY_ALLOC_SHARED) {
		status = worker_shared_make(s, slot, args->bytes, -1);
		if (status != GANTRY_OK)
			return status;
		b->share_id = worker_share_id(s, slot);
	}
	worker_object_publish(s, slot, made_by);
	if (args->alloc_flags & GANTRY_ALLOC_OUTPUT)
		worker_output_is_at(s, slot);
	*ret_slot = slot;
	return GANTRY_OK;
}

int worker_buffer_alloc(struct wsession *s, const struct gantry_op_buf_alloc *args,
			uint64_t made_by, uint64_t *ret_handle)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	bool host = args->alloc_flags & GANTRY_ALLOC_HOST;
	uint32_t slot;
	void *ptr;
	int status;

	if (host && (args->alloc_flags & ~GANTRY_ALLOC_OUTPUT) != GANTRY_ALLOC_HOST)
		return GANTRY_E_ARG;
	if ((args->alloc_flags & GANTRY_ALLOC_OUTPUT) &&
	    (!host || args->bytes < GANTRY_OUTPUT_MIN_BYTES))
		return GANTRY_E_ARG;
	/* Memory of a shared buffer is the host's, and has no device address. */
	if ((args->alloc_flags & GANTRY_ALLOC_FIXED) && (args->alloc_flags & GANTRY_ALLOC_SHARED))
		return GANTRY_E_ARG;
	if ((args->alloc_flags & GANTRY_ALLOC_WHOLE) && !(args->alloc_flags & GANTRY_ALLOC_FIXED))
		return GANTRY_E_ARG;
	if (!host && args->heap_off != 0)
		return GANTRY_E_ARG;
	if (host &&
	    gantry_region_span(&s->heap, args->heap_off, args->bytes, GANTRY_LINE, &ptr) < 0)
		return GANTRY_E_SPAN;
	if (!host &&
	    gantry_quota_charge(&hdr->virtual_used, &hdr->virtual_bytes, args->bytes) < 0) {
		worker_deny(s);
		return worker_buffer_reap(s) ? GANTRY_E_AGAIN : GANTRY_E_LIMIT;
	}
	if (!host && gantry_quota_charge(&s->quota->virtual_used, &s->quota->virtual_bytes,
					 args->bytes) < 0) {
		gantry_quota_refund(&hdr->virtual_used, args->bytes);
		worker_deny(s);
		return worker_buffer_reap(s) ? GANTRY_E_AGAIN : GANTRY_E_LIMIT;
	}

	pthread_mutex_lock(&s->lock);
	status = alloc_locked(s, args, made_by, &slot);
	pthread_mutex_unlock(&s->lock);
	if (status != GANTRY_OK) {
		if (!host) {
			gantry_quota_refund(&s->quota->virtual_used, args->bytes);
			gantry_quota_refund(&hdr->virtual_used, args->bytes);
		}
		return status;
	}
	if (s->objects[slot].shared)
		s->engine->events.keep(s->engine->events.cookie, s->id,
				       s->ledger.objects[slot].buffer.share_id, args->bytes,
				       s->objects[slot].shared->fd);
	*ret_handle = worker_object_handle(s, slot);
	return GANTRY_OK;
}

/* ---- release ---- */

static void release_locked(struct wsession *s, uint32_t slot)
{
	struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	struct wobject *rt = &s->objects[slot];

	worker_ahead_end_locked(s, slot);
	worker_move_forget_locked(s, slot);
	(void)worker_replica_forget_locked(s, slot);
	if (GANTRY_PLACE_HAS_RANGE(b->place) || b->host_copy)
		worker_scrub_host(s, b->off, worker_page_up(b->bytes));
	if (worker_holds_offset(b))
		worker_window_wash_locked(s, b->off, worker_page_up(b->bytes), rt->dirty);
	if (rt->shared) {
		if (!worker_shared_elsewhere(s, slot))
			s->engine->events.keep(s->engine->events.cookie, s->id, b->share_id, 0, -1);
		worker_shared_close(s, rt);
	}
	/*
	 * Of another session's device memory: it is mapped no more. What a worker before this one had is over since its
	 * end, and there may be another loan of the same memory by now.
	 */
	if (rt->borrowed)
		s->engine->events.keep(s->engine->events.cookie, s->id, b->share_id, 0, -1);
	if (b->place == GANTRY_PLACE_IMAGE) {
		worker_refund_resident(s, b->device, b->charged_bytes);
	} else if (!b->adopted) {
		worker_refund_resident(s, b->device, b->charged_bytes);
		worker_refund_host(s, b);
		if (worker_is_virtual(b)) {
			gantry_quota_refund(&s->quota->virtual_used, b->bytes);
			gantry_quota_refund(&s->ledger.hdr->virtual_used, b->bytes);
		}
	}
	if (b->place == GANTRY_PLACE_RANGE)
		gantry_store_relaxed(&s->range_bytes, s->range_bytes - b->bytes);
	if (rt->image)
		worker_image_unuse_locked(rt->image);
	rt->image = NULL;
	rt->skip = 0;
	rt->borrowed = false;
	rt->ends = false;
	gantry_store_relaxed(&b->charged_bytes, (uint64_t)0);
	gantry_store_relaxed(&rt->ready, 0u);
	worker_contents_end(s, slot);
	rt->users = 0;
	rt->dirty = 0;
	rt->clean = 0;
	rt->for_task = 0;
	rt->stuck = GANTRY_OK;
	gantry_store_relaxed(&rt->queues, (uint64_t)0);
	gantry_store_relaxed(&rt->writer, (uint64_t)0);
	free(rt->tails);
	rt->tails = NULL;
	worker_object_end_locked(s, slot);
}

/*
 * All that queue @i had been given: a task below was bound, or may be, while the buffer was alive. The guest can lower
 * its tail, so what was taken counts too.
 */
static uint64_t given(const struct wsession *s, uint32_t i)
{
	const struct gantry_ledger_queue *led = &s->ledger.queues[i];
	uint64_t taken = gantry_load_relaxed(&led->taken);
	uint64_t tail;

	if (gantry_load_acquire(&led->state) == GANTRY_QUEUE_CLOSED)
		return 0;
	tail = worker_queue_tail(&s->queues[i]);
	return GANTRY_MAX(taken, tail);
}

static int free_locked(struct wsession *s, uint64_t handle)
{
	uint32_t slot = GANTRY_HANDLE_SLOT(handle);
	uint64_t *tails;

	if (!worker_object_get(s, handle, GANTRY_HANDLE_BUFFER, NULL, 0))
		return GANTRY_E_HANDLE;
	if (worker_range_holds_locked(s, slot))
		return GANTRY_E_ACCESS;
	if (s->ndying >= WORKER_MAX_DYING)
		return GANTRY_E_AGAIN;
	tails = calloc(s->ledger.nqueues, sizeof(*tails));
	if (!tails)
		return GANTRY_E_NO_MEMORY;
	gantry_store_release(&s->ledger.objects[slot].state, (uint8_t)GANTRY_OBJECT_DYING);
	/*
	 * Full fence: pairs with the addition in worker_intake(). Either a thread that takes a task from here on sees
	 * the buffer dying when it binds it, and then waits for our lock; or we see the task taken.
	 */
	gantry_fence_full();
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		tails[i] = given(s, i);
	s->objects[slot].tails = tails;
	s->dying[s->ndying] = slot;
	gantry_store_relaxed(&s->ndying, s->ndying + 1);
	return GANTRY_OK;
}

static bool users_finished(const struct wsession *s, uint32_t slot)
{
	const uint64_t *tails = s->objects[slot].tails;

	if (s->objects[slot].moving || worker_ahead_holds_locked(s, slot))
		return false;
	for (uint32_t i = 1; tails && i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *led = &s->ledger.queues[i];

		if (tails[i] && gantry_load_relaxed(&led->state) != GANTRY_QUEUE_CLOSED &&
		    gantry_load_acquire(&led->done) < tails[i])
			return false;
	}
	return true;
}

uint32_t worker_buffer_reap(struct wsession *s)
{
	uint32_t left = 0;

	if (gantry_load_relaxed(&s->ndying) == 0)
		return 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->ndying; i++) {
		if (users_finished(s, s->dying[i]) && worker_variable_gone_locked(s, s->dying[i]))
			release_locked(s, s->dying[i]);
		else
			s->dying[left++] = s->dying[i];
	}
	gantry_store_relaxed(&s->ndying, left);
	pthread_mutex_unlock(&s->lock);
	return left;
}

int worker_buffer_free(struct wsession *s, uint64_t handle)
{
	int status;

	pthread_mutex_lock(&s->lock);
	status = free_locked(s, handle);
	pthread_mutex_unlock(&s->lock);
	if (status == GANTRY_OK)
		(void)worker_buffer_reap(s);
	return status;
}

/* ---- leaving ---- */

void worker_memory_leave(struct wdevice *d, struct wsession *s)
{
	const struct gantry_backend *be = d->device.backend;

	/* The lock: another thread may still give dying buffers back, and hands us what it finds here. */
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wshared *shared;

		if (s->ledger.objects[i].state == GANTRY_OBJECT_FREE)
			continue;
		shared = s->objects[i].shared;
		if (shared && shared->on[d->index])
			worker_shared_unmap(d, shared->on[d->index]);
		if (shared)
			shared->on[d->index] = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	worker_window_leave(d, s);
	if (s->heap_mem[d->index])
		be->mem_free(s->heap_mem[d->index]);
	if (s->slab_mem[d->index])
		be->mem_free(s->slab_mem[d->index]);
	s->heap_mem[d->index] = NULL;
	s->slab_mem[d->index] = NULL;
}

void worker_memory_release(struct wsession *s)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct wobject *rt = &s->objects[i];

		if (rt->shared) {
			gantry_fd_close(rt->shared->fd);
			free(rt->shared);
		}
		free(rt->tails);
		free(rt->ahead);
	}
	free(s->extents);
}
