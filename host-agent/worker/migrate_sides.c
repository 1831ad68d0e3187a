/* SPDX-License-Identifier: Apache-2.0 */
/* A queue that moves between devices: what it owns, and the two sides of its migration. Run on one thread, see migrate.c. */
#include <errno.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "host-agent/worker/ahead.h"
#include "host-agent/worker/migrate.h"

/* A task of more than that is told as what is waited for. */
#define LONG_NS (2 * GANTRY_NS_PER_S)

/* ---- what the queue owns ---- */

static bool is_at_source(const struct wmigration *mg, const struct gantry_ledger_buffer *b)
{
	if (mg->copies && mg->way != CARRY_FETCH)
		return b->place == GANTRY_PLACE_WINDOW && b->device == mg->from;
	return b->place == GANTRY_PLACE_SLAB && b->device == mg->from;
}

/* Its program knows where it lies on the device. */
static bool has_known_address(const struct gantry_ledger_buffer *b)
{
	return b->place == GANTRY_PLACE_IMAGE || b->place == GANTRY_PLACE_RANGE ||
	       (b->place == GANTRY_PLACE_WINDOW && (b->alloc_flags & GANTRY_ALLOC_FIXED));
}

int worker_migration_pinned_locked(const struct wsession *s, uint32_t device,
				   struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (worker_is_buffer(obj) && obj->buffer.device == device &&
		    has_known_address(&obj->buffer))
			return gantry_err_set(
				err, -ENOTSUP,
				"buffer %u of its session has an address on device %s that the "
				"program knows, and its kernels may use it from any queue there: gantryctl "
				"session migrate moves all of it",
				i, s->engine->devices[device]->name);
	}
	return 0;
}

bool worker_migration_owns_locked(const struct wmigration *mg, uint32_t slot)
{
	const struct wsession *s = mg->job.session;
	const struct gantry_ledger_object *obj = &s->ledger.objects[slot];
	const struct wobject *rt = &s->objects[slot];
	uint64_t queues = gantry_load_relaxed(&rt->queues);
	uint64_t bit = 1ull << mg->q->slot;

	if (obj->state != GANTRY_OBJECT_LIVE || obj->type != GANTRY_HANDLE_BUFFER ||
	    !(queues & bit) || !is_at_source(mg, &obj->buffer) || has_known_address(&obj->buffer))
		return false;
	return queues == bit ||
	       GANTRY_TICKET_QUEUE(gantry_load_relaxed(&rt->writer)) == mg->q->slot;
}

uint64_t worker_migration_owned_bytes_locked(const struct wmigration *mg)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (worker_migration_owns_locked(mg, i))
			bytes += worker_page_up(mg->job.session->ledger.objects[i].buffer.bytes);
	return bytes;
}

struct wahead *worker_migration_ahead_locked(const struct wmigration *mg, uint32_t slot)
{
	struct wahead *ahead = mg->job.session->objects[slot].ahead;

	return ahead && ahead->mover == mg ? ahead : NULL;
}

int worker_migration_error(int status, struct gantry_err *err)
{
	switch (status) {
	case GANTRY_OK:
		return 0;
	case GANTRY_E_AGAIN:
		return -EAGAIN;
	case GANTRY_E_NO_MEMORY:
		return gantry_err_set(err, -ENOSPC,
				      "no memory for its buffers at the destination; see "
				      "gantryctl device list");
	case GANTRY_E_LIMIT:
		return gantry_err_set(err, -EDQUOT,
				      "its buffers at the destination would be over a limit of the "
				      "tenant");
	default:
		return gantry_err_set(err, -EIO, "copying its buffers: %s",
				      gantry_status_text(status));
	}
}

/* ---- kernels ---- */

bool worker_migration_has_kernels_locked(const struct wsession *s, const struct wqueue *q,
					 uint32_t to, struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];
		const struct wdevice *d = s->engine->devices[to];
		struct wkernel *k;

		if (obj->state != GANTRY_OBJECT_LIVE || obj->type != GANTRY_HANDLE_KERNEL ||
		    !(gantry_load_relaxed(&s->objects[i].queues) >> q->slot & 1) ||
		    worker_kernel_has_form(s, i, d))
			continue;
		k = gantry_load_acquire(&s->objects[i].kernel[0]);
		(void)gantry_err_set(err, -ENOEXEC, "device %s has no form of its kernel %s",
				     d->name, k ? k->name : "of a guest's image");
		return false;
	}
	return true;
}

/* ---- the source ---- */

static int source_begin(void *cookie, uint64_t *ret_owned_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_BEGIN);
	pthread_mutex_lock(&s->lock);
	*ret_owned_bytes = worker_migration_owned_bytes_locked(mg);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* The queue is as it was when this began: open, and nobody has sent it elsewhere. */
static int check_queue(const struct wmigration *mg, struct gantry_err *err)
{
	const struct wqueue *q = mg->q;

	if (gantry_load_relaxed(&q->led->gen) != mg->gen ||
	    gantry_load_relaxed(&q->led->state) != GANTRY_QUEUE_OPEN)
		return gantry_err_set(err, -ENOENT, "the program has closed the queue");
	if (gantry_load_relaxed(&q->target) != mg->from)
		return gantry_err_set(err, -EBUSY, "the queue went to another device meanwhile");
	return 0;
}

static int source_round(void *cookie, uint32_t round, const struct gantry_migration_sink *sink,
			void *sink_cookie, uint64_t *ret_bytes, uint64_t *ret_dirty,
			struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	int r = check_queue(mg, err);

	(void)round;
	(void)sink;
	(void)sink_cookie;
	if (r == 0 && gantry_failpoint_io(GANTRY_FAILPOINT_MOVE_ROUND) < 0)
		r = gantry_err_set(err, -EIO, "copying its buffers ahead failed");
	return r < 0 ? r : worker_migration_round(mg, ret_bytes, ret_dirty, err);
}

static int source_orphan(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	int r = check_queue(mg, err);

	if (r < 0)
		return r;
	/* Acquire: pairs with the release in queue_leaves(). It may be on its way here from an earlier move. */
	if (!(gantry_load_acquire(&s->served[mg->from]) >> mg->q->slot & 1))
		return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_ORPHAN);
	mg->round_bytes = 0;
	/* Its thread sees that before the visit, which begins after. */
	gantry_store_release(&mg->q->held, 1u);
	mg->orphaned_ns = gantry_now_ns();
	pthread_mutex_lock(&s->lock);
	r = worker_migration_error(
		worker_quiet_begin_locked(&mg->quiet, s, 1u << mg->from, 1ull << mg->q->slot), err);
	pthread_mutex_unlock(&s->lock);
	return r;
}

static int source_drained(void *cookie, uint64_t *ret_longest_ns, struct gantry_err *err)
{
	struct wmigration *mg = cookie;

	if (!worker_quiet_reached(mg->d, &mg->quiet))
		return gantry_now_ns() - mg->orphaned_ns < LONG_NS
			       ? -EAGAIN
			       : gantry_err_set(err, -EAGAIN,
						"waits for a task that has run for more than %u s; "
						"its queue begins nothing meanwhile",
						(unsigned int)(LONG_NS / GANTRY_NS_PER_S));
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_DRAINED);
	*ret_longest_ns = gantry_now_ns() - mg->orphaned_ns;
	return 0;
}

/* One buffer goes, as for a task of the queue that is bound where the queue will be. Bytes that this has begun to copy. */
static int send_locked(struct wmigration *mg, uint32_t slot, uint64_t *ret_bytes)
{
	struct wsession *s = mg->job.session;
	struct wobject *rt = &s->objects[slot];
	bool was_moving = rt->moving;
	uint64_t bytes = mg->copies ? worker_page_up(s->ledger.objects[slot].buffer.bytes) : 0;
	int status;

	if (rt->ahead)
		bytes = worker_ahead_dirty_bytes(rt->ahead) + worker_marks_bytes(&rt->ahead->todo);
	if (mg->copies && mg->way == CARRY_SPILL)
		status = rt->moving ? GANTRY_E_AGAIN : worker_move_to_host_locked(mg->d, s, slot);
	else
		status = worker_buffer_bring_locked(mg->d, s, slot, 0, WUSE_OWN);
	*ret_bytes = !was_moving && rt->moving ? bytes : 0;
	return status;
}

static int source_copy(void *cookie, const struct gantry_migration_sink *sink, void *sink_cookie,
		       uint64_t *ret_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	struct wqueue *was = mg->d->binding;
	int r;

	(void)sink;
	(void)sink_cookie;
	if (gantry_failpoint_io(GANTRY_FAILPOINT_MOVE_COPY) < 0)
		return gantry_err_set(err, -EIO, "copying the rest of its buffers failed");
	mg->d->binding = mg->q;
	pthread_mutex_lock(&s->lock);
	r = worker_migration_pinned_locked(s, mg->from, err); /* made since it began */
	for (uint32_t i = 0; r != -ENOTSUP && !mg->lazy && i < GANTRY_LEDGER_NOBJECTS; i++) {
		uint64_t bytes;
		int one;

		if (!worker_migration_owns_locked(mg, i))
			continue;
		one = worker_migration_error(send_locked(mg, i, &bytes), err);
		mg->round_bytes += bytes;
		if (one < 0 && (r == 0 || r == -EAGAIN))
			r = one;
	}
	pthread_mutex_unlock(&s->lock);
	mg->d->binding = was;
	if (r == 0)
		*ret_bytes = mg->round_bytes;
	return r;
}

static void give_back_mover(struct wmigration *mg)
{
	if (gantry_load_relaxed(&mg->job.session->mover) == mg->q)
		worker_move_over(mg->job.session);
}

/* What the queue's tasks have moved from now on is counted. */
static void expect_pulls(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;

	pthread_mutex_lock(&s->lock);
	mg->q->pulls = (struct wpulls){
		.id = mg->lazy ? mg->id : 0, .gen = mg->gen, .from = mg->from, .to = mg->to
	};
	pthread_mutex_unlock(&s->lock);
}

static int source_release(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	uint32_t from = mg->from;
	int r = check_queue(mg, err);

	if (r == 0 && gantry_failpoint_io(GANTRY_FAILPOINT_MOVE_RELEASE) < 0)
		r = gantry_err_set(err, -EIO, "letting go of the queue failed");
	if (r < 0)
		return r;
	/* Release: pairs with the acquire in queue_leaves(). Whoever sent it elsewhere just now has won. */
	if (!gantry_cas(&mg->q->target, &from, mg->to))
		return gantry_err_set(err, -EBUSY, "the queue went to another device meanwhile");
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_RELEASED);
	expect_pulls(mg);
	give_back_mover(mg);
	mg->q->native = 0; /* its thread reads it when the queue is held no more */
	worker_session_wake(mg->job.session);
	return 0;
}

/* What was copied ahead and did not go is forgotten, and whoever held on to the queue lets it run. */
static int source_resume(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	if (!worker_migration_is_alone(mg))
		return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_RESUME);
	worker_migration_stop_carrying(mg, false);
	give_back_mover(mg);
	gantry_store_release(&mg->q->held, 0u);
	worker_session_wake(s);
	return 0;
}

/* ---- the sink ---- */

int worker_migration_has_room(const struct wmigration *mg, uint64_t owned_bytes,
			      struct gantry_err *err)
{
	const struct wdevice *to = mg->job.session->engine->devices[mg->to];
	uint64_t limit = gantry_load_relaxed(&to->page->hdr.mem_bytes);
	uint64_t used = gantry_load_relaxed(&to->page->hdr.mem_used);
	uint64_t left = limit > used ? limit - used : 0;

	if (!limit || owned_bytes <= left)
		return 0;
	return gantry_err_set(err, -ENOSPC,
			      "device %s has %llu MiB left, and the queue owns %llu MiB", to->name,
			      (unsigned long long)(left >> 20),
			      (unsigned long long)(owned_bytes >> 20));
}

/* So that a full device is an answer now. */
static int sink_prepare(void *cookie, uint64_t owned_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	bool has;
	int r = worker_migration_has_room(mg, owned_bytes, err);

	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	has = worker_migration_has_kernels_locked(s, mg->q, mg->to, err);
	pthread_mutex_unlock(&s->lock);
	return has ? 0 : err->code;
}

static int sink_ready(void *cookie, struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	return 0; /* the copies are there, in this process */
}

static int sink_adopt(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	/* Acquire: pairs with the release in queue_leaves(). */
	if (!(gantry_load_acquire(&s->served[mg->to]) >> mg->q->slot & 1))
		return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_ADOPT);
	gantry_store_release(&mg->q->held, 0u);
	worker_device_wake(s->engine->devices[mg->to]);
	return 0;
}

/* What was copied ahead and has not gone. */
void worker_migration_drop_copies(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (worker_migration_ahead_locked(mg, i))
			worker_ahead_drop_locked(s, i);
	pthread_mutex_unlock(&s->lock);
}

/* Once nothing is being copied. Its thread gives slabs back that nobody needs. */
static int sink_discard(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;

	(void)err;
	if (!worker_migration_is_alone(mg))
		return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_DISCARD);
	worker_migration_stop_carrying(mg, false);
	worker_migration_drop_copies(mg);
	if (mg->copies && mg->way != CARRY_SPILL)
		worker_window_leave_range(mg->d, mg->job.session, 0, mg->job.session->slab_bytes);
	return 0;
}

const struct gantry_migration_source worker_migration_source = {
	.begin = source_begin,
	.round = source_round,
	.orphan = source_orphan,
	.drained = source_drained,
	.copy = source_copy,
	.release = source_release,
	.resume = source_resume,
};

const struct gantry_migration_sink worker_migration_sink = {
	.prepare = sink_prepare,
	.ready = sink_ready,
	.adopt = sink_adopt,
	.discard = sink_discard,
};
