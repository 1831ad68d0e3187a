/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All work of a session goes from one device to another of the same model, with the addresses that its program knows: as a migration
 * (migration/migrate.h), whose two sides are here; the job is migrate.c's.
 *
 *   PRECOPY  room on the other device for all that has an address, slabs and all. Nothing is copied ahead: kernels that find their
 *            memory by address do not say what they write. Then, with the program running on, until what it has issued ends soon
 *   ORPHAN   every queue is held
 *   DRAIN    quiet.c; then no operation of queue 0 begins either, and what the session has stays as it is. Not before: its library
 *            waits for a task as long as that takes, and for an operation 10 s
 *   COPY     all that has an address, to the same offsets of the other device's window
 *   ADOPT    the two windows exchange their addresses, and the devices their numbers: what the guest calls its device 0 is the other
 *            one from now on, and each address leads to the bytes that it led to. Then the queues are handed over (join.c)
 *
 * The ledger's `places` decides, with one store: until then each buffer is where it was, from then on where it was copied to. A worker
 * that finds such a decision half carried out carries it out (worker_places_recover()). The windows' places are not written
 * anywhere: they follow from their buffers' addresses, and where there are none from the devices' numbers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "host-agent/worker/image.h"
#include "host-agent/worker/migrate.h"

/* What is issued ends in less before queues are held; of more than that it is waited for with the program running. */
#define CALM_NS (5 * GANTRY_NS_PER_S)
/* As long as queues may be held for what was issued: it may wait for what is held. */
#define HELD_MAX_NS (10 * GANTRY_NS_PER_S)
/* As long as operations may wait before memory is copied: well within a library's patience, with a sleep of this thread. */
#define STILL_MAX_NS (5 * GANTRY_NS_PER_S)

/* ---- numbers of devices ---- */

static uint64_t places_of(const struct wsession *s)
{
	return gantry_load_acquire(&s->ledger.hdr->places);
}

uint32_t worker_device_numbered(const struct wsession *s, uint32_t number)
{
	return gantry_ledger_device(places_of(s), number);
}

uint32_t worker_number_of(const struct wsession *s, uint32_t device)
{
	return gantry_ledger_number(places_of(s), device);
}

uint64_t worker_devices_numbered(const struct wsession *s, uint64_t numbers)
{
	uint64_t places = places_of(s);
	uint64_t devices = numbers >> GANTRY_LEDGER_NUMBERS << GANTRY_LEDGER_NUMBERS;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NUMBERS; i++)
		if (numbers >> i & 1)
			devices |= 1ull << gantry_ledger_device(places, i);
	return devices;
}

/* ---- what goes ---- */

/* Memory in a window whose place there the guest may know. */
static bool lies_fixed(const struct gantry_ledger_object *obj)
{
	return worker_is_buffer(obj) && obj->buffer.place == GANTRY_PLACE_WINDOW &&
	       (obj->buffer.alloc_flags & GANTRY_ALLOC_FIXED);
}

static bool goes(const struct wmigration *mg, uint32_t slot)
{
	const struct gantry_ledger_object *obj = &mg->job.session->ledger.objects[slot];

	return lies_fixed(obj) && obj->buffer.device == mg->from;
}

static uint64_t owned_bytes_locked(const struct wmigration *mg)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (goes(mg, i))
			bytes += worker_page_up(mg->job.session->ledger.objects[i].buffer.bytes);
	return bytes;
}

static bool is_bound_to(const struct wqueue *q, uint32_t device)
{
	return gantry_load_relaxed(&q->led->state) != GANTRY_QUEUE_CLOSED &&
	       gantry_load_relaxed(&q->led->device_mask) == 1ull << device;
}

/* Whether the program has work there that it has put there by name. */
static bool works_on_locked(const struct wsession *s, uint32_t device)
{
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		if (is_bound_to(&s->queues[i], device))
			return true;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (worker_is_buffer(obj) && obj->buffer.device == device &&
		    (lies_fixed(obj) || obj->buffer.place == GANTRY_PLACE_IMAGE ||
		     obj->buffer.place == GANTRY_PLACE_RANGE))
			return true;
	}
	return false;
}

static int find_source_locked(const struct wsession *s, uint32_t to, uint32_t *ret_from,
			      struct gantry_err *err)
{
	const struct wdevice *const *devices = (const struct wdevice *const *)s->engine->devices;
	uint32_t from = GANTRY_ENGINE_MAX_DEVICES;

	for (uint32_t i = 0; i < s->engine->ndevices; i++) {
		if (!works_on_locked(s, i))
			continue;
		if (from < GANTRY_ENGINE_MAX_DEVICES)
			return gantry_err_set(err, -EOPNOTSUPP,
					      "its program works on devices %s and %s: only what "
					      "is all on one goes to another",
					      devices[from]->name, devices[i]->name);
		from = i;
	}
	if (from == GANTRY_ENGINE_MAX_DEVICES)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "its program has bound nothing to a device; gantryctl queue "
				      "migrate moves its queues");
	if (from == to)
		return gantry_err_set(err, -EALREADY, "the session works on device %s already",
				      devices[to]->name);
	*ret_from = from;
	return 0;
}

static int check_devices(const struct wsession *s, uint32_t from, uint32_t to,
			 struct gantry_err *err)
{
	const struct wdevice *a = s->engine->devices[from], *b = s->engine->devices[to];
	uint64_t allowed = gantry_load_relaxed(&s->ledger.hdr->device_allowed);

	if (allowed && !(allowed >> to & 1))
		return gantry_err_set(err, -ENODEV, "device %s is not in service", b->name);
	if (strcmp(a->device.info.arch, b->device.info.arch) != 0 ||
	    strcmp(a->device.info.name, b->device.info.name) != 0)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "device %s is a %s and %s a %s: a program sees one model as "
				      "long as it runs",
				      a->name, a->device.info.name, b->name, b->device.info.name);
	static_assert(GANTRY_ENGINE_MAX_DEVICES <= GANTRY_LEDGER_NUMBERS, "each has a number");
	if (!worker_are_peers(a, b) || !s->windows[from] || !s->windows[to] ||
	    !a->device.backend->window_swap)
		return gantry_err_set(err, -EOPNOTSUPP,
				      "devices %s and %s do not reach each other's memory", a->name,
				      b->name);
	return 0;
}

/* What only its own device's driver has: it cannot be elsewhere as it is here. */
static int check_objects_locked(const struct wsession *s, uint32_t from, struct gantry_err *err)
{
	const char *name = s->engine->devices[from]->name;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (!worker_is_buffer(obj) || obj->buffer.device != from)
			continue;
		if (obj->buffer.place == GANTRY_PLACE_RANGE)
			return gantry_err_set(err, -EOPNOTSUPP,
					      "its program has reserved addresses on device %s "
					      "(cuMemAddressReserve)",
					      name);
		if (worker_loan_ties(&obj->buffer))
			return gantry_err_set(err, -EOPNOTSUPP,
					      "its program has memory on device %s that processes "
					      "share (cudaIpcGetMemHandle)",
					      name);
		if (obj->buffer.place != GANTRY_PLACE_IMAGE)
			continue;
		return gantry_err_set(
			err, -EOPNOTSUPP,
			s->objects[i].image
				? "its program has the address of a variable of device "
				  "code on device %s, which its driver chose"
				: "its program has arrays or textures, or graphs with conditions, on device %s, "
				  "which are its driver's",
			name);
	}
	return 0;
}

/*
 * What makes its objects of NVIDIA's libraries anew is written down, unless they cannot be. Calls of a queue that is on the other device,
 * where nothing takes it from, would write where those that come do.
 */
static int check_libraries_locked(const struct wsession *s, uint32_t from, uint32_t to,
				  struct gantry_err *err)
{
	char reason[sizeof(((struct gantry_keep_head *)NULL)->why)];
	uint64_t callers = 0;
	const char *why;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (obj->state != GANTRY_OBJECT_FREE && obj->type == GANTRY_HANDLE_KERNEL &&
		    worker_keeps(obj))
			callers |= gantry_load_relaxed(&s->objects[i].queues);
	}
	if (callers == 0)
		return 0;
	if (callers & gantry_load_acquire(&s->served[to]))
		return gantry_err_set(err, -EBUSY,
				      "a queue of its program that calls libraries of NVIDIA's is "
				      "on device %s by now",
				      s->engine->devices[to]->name);
	why = worker_keep_barred(s, from, reason, sizeof(reason));
	return why ? gantry_err_set(err, -EOPNOTSUPP,
				    "its program has used %s: what that left in a library of "
				    "NVIDIA's cannot be made anew on another device",
				    why)
		   : 0;
}

static int check_locked(const struct wsession *s, uint32_t from, uint32_t to,
			struct gantry_err *err)
{
	int r = check_devices(s, from, to, err);

	if (r == 0)
		r = check_objects_locked(s, from, err);
	return r == 0 ? check_libraries_locked(s, from, to, err) : r;
}

int worker_migration_whole_locked(struct wmigration *mg, uint32_t to, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	uint32_t from = 0;
	int r;

	if (to >= s->engine->ndevices || !(s->device_mask >> to & 1) ||
	    !s->engine->devices[to]->usable)
		return gantry_err_set(err, -ENODEV, "the session's worker has no such device");
	r = find_source_locked(s, to, &from, err);
	if (r == 0)
		r = check_locked(s, from, to, err);
	if (r < 0)
		return r;
	mg->from = from;
	mg->to = to;
	mg->d = s->engine->devices[to];
	mg->copies = true;
	mg->way = CARRY_PEER;
	mg->m.counts.owned_bytes = owned_bytes_locked(mg);
	return 0;
}

/* ---- room ---- */

static int reserve_one_locked(struct wmigration *mg, uint32_t slot)
{
	struct wsession *s = mg->job.session;
	const struct gantry_ledger_buffer *b = &s->ledger.objects[slot].buffer;
	int status = worker_move_reserve_locked(mg->d, s, slot), source;

	if (status != GANTRY_OK)
		return status;
	status = worker_window_want_locked(s, mg->to, b->off, worker_page_up(b->bytes));
	if (status != GANTRY_OK && status != GANTRY_E_AGAIN)
		return status;
	/* After a recovery the slabs that it comes from may not be mapped yet. */
	source = worker_window_want_locked(s, mg->from, b->off, worker_page_up(b->bytes));
	return source == GANTRY_OK ? status : source;
}

/* All is asked for before any is waited for. -EAGAIN: slabs are on their way; whoever brings them wakes the device. */
static int reserve_locked(struct wmigration *mg, struct gantry_err *err)
{
	int r = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS && (r == 0 || r == -EAGAIN); i++) {
		int one = goes(mg, i) ? worker_migration_error(reserve_one_locked(mg, i), err) : 0;

		r = one ? one : r;
	}
	return r;
}

/* What its program has asked of the device's context. */
static int take_limits(struct wmigration *mg, struct gantry_err *err)
{
	const struct wsession *s = mg->job.session;
	const struct wdevice *d = mg->d;
	uint8_t answer[GANTRY_ANSWER_BYTES];

	for (uint32_t which = 0; which < GANTRY_QUESTION_LIMITS; which++) {
		struct gantry_question question = { .what = GANTRY_QUESTION_LIMIT,
						    .number = { which,
								s->limits[mg->from][which] } };
		int r;

		if (!s->limits[mg->from][which])
			continue;
		for (uint32_t i = 0; i < d->nsessions; i++)
			question.at_least = GANTRY_MAX(question.at_least,
						       d->sessions[i]->limits[d->index][which]);
		r = d->device.backend->ask(d->device.dev, &question, answer, err);
		if (r < 0)
			return gantry_err_wrap(err, r, "a limit of its kernels on device %s",
					       d->name);
	}
	return 0;
}

static uint32_t threads_of(const struct wsession *s)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < s->engine->ndevices; i++)
		if ((s->device_mask >> i & 1) && s->engine->devices[i]->usable)
			mask |= 1u << i;
	return mask;
}

static int visit_all(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	int r;

	pthread_mutex_lock(&s->lock);
	r = worker_migration_error(
		worker_quiet_begin_locked(&mg->quiet, s, threads_of(s), UINT64_MAX), err);
	pthread_mutex_unlock(&s->lock);
	return r;
}

/*
 * Whether what is in flight ends soon, so that holding the program takes no longer than that. -EAGAIN: it is looked again once what was
 * in flight has ended. (Each sleep of the thread ends, so this is asked again.)
 */
static int wait_until_calm(struct wmigration *mg, struct gantry_err *err)
{
	bool ends = mg->asked_ns && worker_quiet_reached(mg->d, &mg->quiet);
	uint64_t now_ns = gantry_now_ns();
	bool is_long = mg->asked_ns && now_ns - mg->asked_ns >= CALM_NS;
	int r = 0;

	if (ends && !is_long)
		return 0;
	if (ends || !mg->asked_ns) {
		mg->asked_ns = now_ns;
		r = visit_all(mg, err);
	}
	if (r == 0 && is_long)
		(void)gantry_err_set(
			err, -EAGAIN,
			"waits for a task that has run for more than %u s; its program "
			"runs meanwhile",
			(unsigned int)(CALM_NS / GANTRY_NS_PER_S));
	return r < 0 ? r : -EAGAIN;
}

static int sink_prepare(void *cookie, uint64_t owned_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	int r;

	(void)owned_bytes;
	pthread_mutex_lock(&s->lock);
	r = reserve_locked(mg, err);
	pthread_mutex_unlock(&s->lock);
	return r < 0 ? r : wait_until_calm(mg, err);
}

/* ---- standing still ---- */

static void hold_queues(struct wsession *s, uint32_t held)
{
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		gantry_store_release(&s->queues[i].held, held);
}

/* Queue 0, too. */
static void hold_all(struct wsession *s, uint32_t held)
{
	hold_queues(s, held);
	gantry_store_release(&s->still, held);
}

static int source_begin(void *cookie, uint64_t *ret_owned_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_BEGIN);
	pthread_mutex_lock(&s->lock);
	*ret_owned_bytes = owned_bytes_locked(mg);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int source_orphan(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;

	gantry_failpoint(GANTRY_FAILPOINT_MOVE_ORPHAN);
	mg->round_bytes = 0;
	mg->orphaned_ns = gantry_now_ns();
	/* Threads see that before the visit, which begins after. */
	hold_queues(mg->job.session, 1);
	return visit_all(mg, err);
}

/*
 * The program waits, and what is waited for may be waiting for the program: a kernel for one that is held. Until the copies begin it can
 * be left as it was. (Each sleep of the thread ends, so this is asked again.)
 */
static int wait_on(uint64_t since_ns, uint64_t max_ns, const char *what, struct gantry_err *err)
{
	if (gantry_now_ns() - since_ns < max_ns)
		return -EAGAIN;
	return gantry_err_set(err, -ETIMEDOUT, "%s for more than %u s while it was held", what,
			      (unsigned int)(max_ns / GANTRY_NS_PER_S));
}

/* What was issued has ended, and nothing is; from now on its operations wait, too. */
static int stand_still(struct wmigration *mg, struct gantry_err *err)
{
	mg->still_ns = gantry_now_ns();
	/* Queues that were opened meanwhile, too. */
	hold_all(mg->job.session, 1);
	return visit_all(mg, err);
}

static int source_drained(void *cookie, uint64_t *ret_longest_ns, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	bool is_quiet = worker_quiet_reached(mg->d, &mg->quiet);
	int r;

	if (!is_quiet && !mg->still_ns)
		return wait_on(mg->orphaned_ns, HELD_MAX_NS, "a task of its program has run", err);
	if (!is_quiet)
		return wait_on(mg->still_ns, STILL_MAX_NS, "a task of its program has run", err);
	if (!mg->still_ns) {
		r = stand_still(mg, err);
		if (r < 0)
			return r;
		if (!worker_quiet_reached(mg->d, &mg->quiet))
			return -EAGAIN;
	}
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_DRAINED);
	*ret_longest_ns = gantry_now_ns() - mg->orphaned_ns;
	return 0;
}

/* Slabs of an answer are mapped by their device's thread, and not under the lock: until it has said so nobody exchanges addresses. */
static bool is_answered_locked(const struct wwindow *w)
{
	for (uint32_t i = 0; i < w->nasks; i++)
		if (w->asks[i].status == GANTRY_OK)
			return false;
	return true;
}

/*
 * Memory on its way to and from the session, and other jobs of it, come to an end by themselves: until then this is asked again. (Buffers
 * that were freed and have tasks ahead of them yet go along.)
 */
static bool is_settled_locked(struct wmigration *mg)
{
	const struct wsession *s = mg->job.session;

	if (s->nwashing == 0 && gantry_load_acquire(&s->njobs) == 1 &&
	    is_answered_locked(s->windows[mg->from]) && is_answered_locked(s->windows[mg->to]))
		return true;
	worker_device_wake(mg->d);
	return false;
}

/* ---- copying ---- */

/* The next buffer in its turn; false: that was the last. */
static bool next_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;

	for (; mg->slot < GANTRY_LEDGER_NOBJECTS; mg->slot++) {
		const struct gantry_ledger_buffer *b = &s->ledger.objects[mg->slot].buffer;

		if (!goes(mg, mg->slot))
			continue;
		mg->carry = (struct wcarry){ .session = s,
					     .way = CARRY_PEER,
					     .from = mg->from,
					     .off = b->off,
					     .len = worker_page_up(b->bytes) };
		s->objects[mg->slot].dirty |= 1u << mg->to;
		mg->carrying = true;
		return true;
	}
	return false;
}

static int carry_on(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;

	for (;;) {
		bool more = false;
		int status;

		if (!mg->carrying) {
			pthread_mutex_lock(&s->lock);
			more = next_locked(mg);
			pthread_mutex_unlock(&s->lock);
			if (!more)
				return 0;
		}
		status = worker_carry_next(mg->d, &mg->carry, mg->cmd, &more);
		if (status != GANTRY_OK)
			return worker_migration_error(status, err);
		if (more) {
			mg->has_command = true;
			return -EAGAIN;
		}
		mg->round_bytes += mg->carry.moved_bytes;
		worker_carry_close(mg->d, &mg->carry);
		mg->carrying = false;
		mg->slot++;
	}
}

/* What was made since it began is looked at like the rest. */
static int source_copy(void *cookie, const struct gantry_migration_sink *sink, void *sink_cookie,
		       uint64_t *ret_bytes, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	int r = 0;

	(void)sink;
	(void)sink_cookie;
	if (gantry_failpoint_io(GANTRY_FAILPOINT_MOVE_COPY) < 0)
		return gantry_err_set(err, -EIO, "copying its memory failed");
	if (mg->phase != PHASE_CARRY) {
		(void)worker_buffer_reap(s);
		pthread_mutex_lock(&s->lock);
		r = is_settled_locked(mg) ? check_locked(s, mg->from, mg->to, err) : -EAGAIN;
		if (r == 0 && works_on_locked(s, mg->to))
			r = gantry_err_set(err, -EBUSY, "its program works on device %s too by now",
					   mg->d->name);
		if (r == 0)
			r = reserve_locked(mg, err);
		pthread_mutex_unlock(&s->lock);
		if (r == -EAGAIN)
			return wait_on(mg->still_ns, STILL_MAX_NS,
				       "memory of its program has been on its way", err);
		if (r < 0)
			return r;
		mg->phase = PHASE_CARRY;
		mg->slot = 0;
	}
	r = carry_on(mg, err);
	if (r == 0)
		*ret_bytes = mg->round_bytes;
	return r;
}

/* ---- it changes hands ---- */

/* A queue that may use the one device may use the other instead. */
static void hand_mask(struct gantry_ledger_queue *led, uint32_t from, uint32_t to)
{
	uint64_t mask = gantry_load_relaxed(&led->device_mask);

	if ((mask >> from & 1) && !(mask >> to & 1))
		gantry_store_relaxed(&led->device_mask, (mask & ~(1ull << from)) | 1ull << to);
}

static void hand_buffers_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_buffer *b = &s->ledger.objects[i].buffer;
		struct wobject *rt = &s->objects[i];

		if (!goes(mg, i))
			continue;
		gantry_store_release(&b->device, mg->to);
		gantry_store_relaxed(&b->to, 0u);
		worker_refund_pool(s, mg->from, b->charged_bytes);
		gantry_store_relaxed(&rt->ready, 0u);
		rt->users = 0;
	}
}

static void hand_queues_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;

	for (uint32_t i = 1; i < s->ledger.nqueues; i++) {
		struct wqueue *q = &s->queues[i];
		uint32_t from = mg->from;

		if (gantry_load_relaxed(&q->led->state) == GANTRY_QUEUE_CLOSED)
			continue;
		hand_mask(q->led, mg->from, mg->to);
		/* Release: pairs with the acquire in queue_leaves(). */
		if (gantry_cas(&q->target, &from, mg->to))
			q->native = 0;
	}
}

static void swap_u64(uint64_t *a, uint64_t *b)
{
	uint64_t was = *a;

	*a = *b;
	*b = was;
}

static void exchange_locked(struct wmigration *mg)
{
	struct wsession *s = mg->job.session;
	struct wwindow *a = s->windows[mg->from], *b = s->windows[mg->to];
	bool was_known = a->is_known;

	swap_u64(&a->address, &b->address);
	swap_u64(&a->ranges, &b->ranges);
	a->is_known = b->is_known;
	b->is_known = was_known;
	for (uint32_t i = 0; i < GANTRY_QUESTION_LIMITS; i++)
		swap_u64(&s->limits[mg->from][i], &s->limits[mg->to][i]);
}

static int hand_over_locked(struct wmigration *mg, struct gantry_err *err)
{
	struct wsession *s = mg->job.session;
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	uint64_t then = gantry_ledger_exchange(hdr->places, mg->from, mg->to);
	int r = mg->d->device.backend->window_swap(s->windows[mg->to]->mem,
						   s->windows[mg->from]->mem, err);

	if (r == -ENOTRECOVERABLE) {
		/* What is mapped where nobody knows. The slabs have all, and the next worker maps them where they belong. */
		gantry_log(GANTRY_LOG_ERR, "session %llu: %s", (unsigned long long)s->id,
			   err->text);
		abort();
	}
	if (r < 0)
		return r;
	exchange_locked(mg);
	/* Of an older version's no longer: those builds do not know that devices can change places. */
	gantry_store_relaxed(&hdr->version, GANTRY_LEDGER_VERSION);
	/* Release: all was copied. Whoever reads this after our death does the rest. */
	gantry_store_release(&hdr->places, then | GANTRY_LEDGER_HANDS_OVER(mg->from, mg->to));
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_RELEASED);
	worker_settings_moved_locked(s);
	hand_buffers_locked(mg);
	hand_queues_locked(mg);
	return 0;
}

static int source_release(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	int r = take_limits(mg, err);

	if (r == 0 && gantry_failpoint_io(GANTRY_FAILPOINT_MOVE_RELEASE) < 0)
		r = gantry_err_set(err, -EIO, "exchanging the devices' addresses failed");
	if (r < 0)
		return r;
	pthread_mutex_lock(&s->lock);
	r = is_settled_locked(mg) ? check_objects_locked(s, mg->from, err) : -EAGAIN;
	if (r == 0)
		r = hand_over_locked(mg, err);
	pthread_mutex_unlock(&s->lock);
	if (r == 0)
		worker_session_wake(s);
	return r;
}

static int sink_ready(void *cookie, struct gantry_err *err)
{
	(void)cookie;
	(void)err;
	return 0; /* the copies are there, in this process */
}

/* What it left behind, on that device's thread. */
static void leave_behind(struct wdevice *d, void *arg)
{
	struct wsession *s = arg;

	if (s->joined[d->index])
		worker_window_leave_range(d, s, 0, s->slab_bytes);
	/* Its objects of libraries are made anew where it is now, from what is kept; if it has come back meanwhile, these are its own. */
	if (s->joined[d->index] && d->device.backend->owner_left &&
	    gantry_load_acquire(&s->served[d->index]) == 0)
		d->device.backend->owner_left(d->device.dev, s);
	worker_session_leave(s);
}

static bool has_arrived(const struct wmigration *mg, const struct wqueue *q)
{
	/* Acquire: pairs with the release in queue_leaves(). */
	return gantry_load_acquire(&q->led->state) == GANTRY_QUEUE_CLOSED ||
	       gantry_load_relaxed(&q->target) != mg->to ||
	       (gantry_load_acquire(&mg->job.session->served[mg->to]) >> q->slot & 1);
}

static int sink_adopt(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	(void)err;
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		if (!has_arrived(mg, &s->queues[i]))
			return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_ADOPT);
	/* Release: the ledger's queues and buffers say where they are. */
	gantry_store_release(&hdr->places, GANTRY_LEDGER_NUMBERING(hdr->places));
	hold_all(s, 0);
	worker_session_wake(s);
	worker_session_hold(s);
	/* Without memory for that its slabs stay until the session ends. */
	if (worker_device_post(s->engine->devices[mg->from], leave_behind, s) < 0)
		worker_session_leave(s);
	return 0;
}

/* ---- the way back ---- */

static int sink_discard(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	if (!worker_quiet_visited(&mg->quiet))
		return -EAGAIN;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_DISCARD);
	worker_carry_close(mg->d, &mg->carry);
	mg->carrying = false;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_buffer *b = &s->ledger.objects[i].buffer;

		if (!goes(mg, i) || b->to != mg->to + 1)
			continue;
		worker_window_unask_locked(s, mg->to, b->off, worker_page_up(b->bytes));
		worker_move_forget_locked(s, i);
	}
	pthread_mutex_unlock(&s->lock);
	worker_window_leave_range(mg->d, s, 0, s->slab_bytes);
	return 0;
}

static int source_resume(void *cookie, struct gantry_err *err)
{
	struct wmigration *mg = cookie;
	struct wsession *s = mg->job.session;

	(void)err;
	gantry_failpoint(GANTRY_FAILPOINT_MOVE_RESUME);
	hold_all(s, 0);
	worker_session_wake(s);
	return 0;
}

const struct gantry_migration_source worker_whole_source = {
	.begin = source_begin,
	.orphan = source_orphan,
	.drained = source_drained,
	.copy = source_copy,
	.release = source_release,
	.resume = source_resume,
};

const struct gantry_migration_sink worker_whole_sink = {
	.prepare = sink_prepare,
	.ready = sink_ready,
	.adopt = sink_adopt,
	.discard = sink_discard,
};

/* ---- after a death ---- */

int worker_places_recover(struct wsession *s)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;
	uint64_t places = hdr->places;
	uint32_t from = GANTRY_LEDGER_HANDS_FROM(places), to = GANTRY_LEDGER_HANDS_TO(places);

	for (uint32_t number = 0; number < GANTRY_LEDGER_NUMBERS; number++) {
		uint32_t device = gantry_ledger_device(places, number);

		if (device != number && device >= s->engine->ndevices)
			return -EINVAL;
	}
	if (places >> 32 == 0)
		return 0;
	if (from >= s->engine->ndevices || to >= s->engine->ndevices)
		return -EINVAL;
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		struct gantry_ledger_object *obj = &s->ledger.objects[i];

		if (!worker_is_buffer(obj) || obj->buffer.to == 0 ||
		    gantry_ledger_whereabouts(places, &obj->buffer) != to)
			continue;
		obj->buffer.device = to;
		/* As what had begun to go back: its charge there goes (slab.c). */
		obj->buffer.to = from + 1;
	}
	for (uint32_t i = 1; i < s->ledger.nqueues; i++) {
		struct gantry_ledger_queue *led = &s->ledger.queues[i];

		if (led->state == GANTRY_QUEUE_CLOSED)
			continue;
		hand_mask(led, from, to);
		if (led->device == from && (led->device_mask >> from & 1) == 0)
			led->device = to;
	}
	gantry_store_release(&hdr->places, GANTRY_LEDGER_NUMBERING(places));
	return 0;
}
