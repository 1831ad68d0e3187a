/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session's memory: made before a worker sees it, taken back when no worker can touch it any
 * more.
 */
#include "host-agent/agent/session.h"
#include "host-agent/agent/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/futex.h"
#include "base/str.h"
#include "host-agent/agent/adopt.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/doormem.h"
#include "host-agent/agent/exchange.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/shared/quota.h"
#include "host-agent/shared/share.h"
#include "proto/wire.h"

void gantry_session_class(const struct gantry_session *s, struct gantry_worker_class *ret_class)
{
	/* Isolated ones are. */
	if (s->apart && gantry_tenant_mode(s->tenant) != GANTRY_ISOLATED)
		*ret_class = (struct gantry_worker_class){
			.mode = GANTRY_ISOLATED, .seats = gantry_tenant_seats(s->tenant)
		};
	else
		gantry_tenant_class(s->tenant, ret_class);
}

struct gantry_session *gantry_session_find(struct gantry_agent *a, uint64_t id)
{
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (s->id == id)
			return s;
	return NULL;
}

struct gantry_session *gantry_session_blank(struct gantry_agent *a, struct gantry_tenant *t,
					    uint64_t id)
{
	struct gantry_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->agent = a;
	s->tenant = t;
	s->id = id;
	s->segment_fd = s->bell_fd = s->wake_fd = s->ledger_fd = s->slab_fd = s->door_fd = -EBADF;
	gantry_list_init(&s->worker_link);
	gantry_list_init(&s->want_link);
	gantry_list_init(&s->slabs);
	gantry_list_init(&s->needs);
	gantry_list_push_back(&a->sessions, &s->link);
	t->nsessions++;
	return s;
}

int gantry_session_map(struct gantry_session *s, struct gantry_err *err)
{
	void *page = mmap(NULL, GANTRY_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, s->segment_fd,
			  (off_t)s->segment_off);

	if (page == MAP_FAILED)
		return gantry_err_set_errno(err, -errno, "mapping the segment's header");
	s->segment = page;
	return 0;
}

/*
 * The header is ours to write before any guest sees the segment; constants of it are copies, never
 * read back.
 */
static void write_header(struct gantry_session *s)
{
	gantry_segment_header_init(s->segment, &s->shape.segment, s->version, s->id);
	s->segment->state = GANTRY_SESSION_STARTING;
	s->segment->epoch = 1;
}

static int make_segment(struct gantry_session *s, struct gantry_err *err)
{
	int r = gantry_memfd_create("gantry-segment", s->shape.segment.segment_bytes,
				    GANTRY_MEMFD_SEALED, &s->segment_fd);

	if (r < 0)
		return gantry_err_set_errno(err, r, "making the session's memory");
	s->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->bell_fd < 0)
		return gantry_err_set_errno(err, -errno, "making the session's bell");
	return 0;
}

static int borrow_segment(struct gantry_session *s, const struct gantry_session_place *place,
			  struct gantry_err *err)
{
	s->segment_off = place->off;
	s->segment_fd = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
	s->bell_fd = fcntl(place->bell_fd, F_DUPFD_CLOEXEC, 0);
	s->wake = place->wake;
	if (place->wake_fd >= 0)
		s->wake_fd = fcntl(place->wake_fd, F_DUPFD_CLOEXEC, 0);
	if (s->segment_fd < 0 || s->bell_fd < 0 || (place->wake_fd >= 0 && s->wake_fd < 0))
		return gantry_err_set_errno(err, -errno, "keeping the session's descriptors");
	/* Who comes by a socket was asked when it was accepted. */
	if (gantry_door_scarce(s->agent, s->segment_fd))
		return gantry_err_set(err, -EMFILE, GANTRY_DOOR_SCARCE);
	return 0;
}

static int make_memory(struct gantry_session *s, const struct gantry_session_place *place,
		       struct gantry_err *err)
{
	int r = place ? borrow_segment(s, place, err) : make_segment(s, err);

	if (r < 0)
		return r;
	r = gantry_memfd_create("gantry-slab", s->shape.slab_bytes, GANTRY_MEMFD_SEALED,
				&s->slab_fd);
	if (r < 0)
		return gantry_err_set_errno(err, r, "making the session's memory");
	r = gantry_session_map(s, err);
	if (r < 0)
		return r;
	write_header(s);
	return gantry_ledger_create(s->id, s->tenant->conf.name, s->shape.segment.nqueues,
				    s->shape.segment.nslots, s->shape.segment.segment_bytes,
				    s->shape.slab_bytes, &s->ledger, &s->ledger_fd, err);
}

static void keep_desk(struct gantry_session *s, const struct gantry_session_place *place)
{
	/* Which descriptor it is does not matter: the name is what a successor of ours reads. */
	gantry_keep(s->agent, s->segment_fd, GANTRY_KEPT_DESK, (unsigned long long)s->id,
		    (unsigned long long)place->doormem->id, place->desk,
		    (unsigned long long)(place->off >> GANTRY_KEPT_DESK_SHIFT),
		    (unsigned long long)(s->shape.segment.segment_bytes >> GANTRY_KEPT_DESK_SHIFT),
		    (unsigned long long)place->generation);
}

static void keep_place(struct gantry_session *s, const struct gantry_session_place *place)
{
	unsigned long long id = s->id;

	gantry_keep(s->agent, s->segment_fd, "s/%llx/segment", id);
	gantry_keep(s->agent, s->bell_fd, "s/%llx/bell", id);
	if (place)
		keep_desk(s, place);
	if (s->wake_fd >= 0)
		gantry_keep(s->agent, s->wake_fd, GANTRY_KEPT_WAKE, id, s->wake);
}

static void keep_all(struct gantry_session *s, const struct gantry_session_place *place)
{
	unsigned long long id = s->id;

	keep_place(s, place);
	gantry_keep(s->agent, s->slab_fd, "s/%llx/slab", id);
	/*
	 * Share slot and tenant are in the name, so that descriptors alone are enough to find a
	 * session again, and whose it is does not depend on a ledger that its worker can write.
	 */
	gantry_keep(s->agent, s->ledger_fd, GANTRY_KEPT_LEDGER, id, s->share_slot, s->version,
		    s->tenant->slot);
}

/* What was kept under the session's old descriptors, which are about to go. */
static void leave_memory(struct gantry_session *s)
{
	struct gantry_tenant *t = s->tenant;
	unsigned long long id = s->id;

	gantry_keep_drop(s->agent, "s/%llx/segment", id);
	gantry_keep_drop(s->agent, "s/%llx/bell", id);
	gantry_keep_drop_tree(s->agent, "s/%llx/by/", id);
	gantry_keep_drop_tree(s->agent, "s/%llx/wake/", id);
	gantry_keep_drop_tree(s->agent, "s/%llx/desk/", id);
	s->served_by = 0;
	(void)munmap(s->segment, GANTRY_PAGE); /* it is mapped */
	s->segment = NULL;
	s->segment_fd = gantry_fd_close(s->segment_fd);
	s->bell_fd = gantry_fd_close(s->bell_fd);
	s->wake_fd = gantry_fd_close(s->wake_fd);
	if (s->doormem)
		gantry_doormem_put(s->doormem, s->segment_off);
	t->host_mem_used -= gantry_min_u64(s->charged_bytes, t->host_mem_used);
	s->charged_bytes = 0; /* a door memory is charged already */
}

int gantry_session_move_in(struct gantry_session *s, const struct gantry_session_place *place,
			   struct gantry_err *err)
{
	int r;

	leave_memory(s);
	s->doormem = place->doormem;
	s->desk = place->desk;
	r = borrow_segment(s, place, err);
	if (r == 0)
		r = gantry_session_map(s, err);
	if (r < 0)
		return r;
	keep_place(s, place);
	return 0;
}

static void fill_ledger(struct gantry_session *s)
{
	struct gantry_ledger_header *hdr = s->ledger.hdr;

	hdr->epoch = 1;
	hdr->address = s->shape.address;
	hdr->mem_bytes = s->shape.mem_bytes;
	hdr->virtual_bytes = s->shape.virtual_bytes;
	hdr->inflight = s->tenant->conf.inflight;
	gantry_session_allow(s);
}

/* Where no other session of this host is, so that a pooled worker or a guest with several can have them all. */
static uint64_t choose_address(const struct gantry_session *s)
{
	const struct gantry_agent_conf *conf = &s->agent->config->agent;
	const struct gantry_address_range range = { conf->segments_base, conf->segments_end };
	struct gantry_address_range taken[GANTRY_SHARE_NSESSIONS];
	uint32_t n = 0;

	gantry_list_for_each(&s->agent->sessions, struct gantry_session, link, other) {
		const struct gantry_shape *shape = &other->shape;

		if (other != s && shape->address && n < GANTRY_SHARE_NSESSIONS)
			taken[n++] = (struct gantry_address_range){
				shape->address, shape->address + shape->segment.segment_bytes
			};
	}
	return gantry_ask_address(&range, taken, n, s->shape.segment.segment_bytes);
}

/* On the list, with an entry in the share pages. */
static int new_blank(struct gantry_tenant *t, struct gantry_session **ret_session,
		     struct gantry_err *err)
{
	struct gantry_agent *a = t->agent;
	struct gantry_session *s;
	int slot = gantry_slot_take(a->share_slots, GANTRY_SHARE_NSESSIONS);

	if (slot < 0)
		return gantry_err_set(err, slot, "the host serves %u sessions already",
				      GANTRY_SHARE_NSESSIONS);
	s = gantry_session_blank(a, t, a->next_session_id++);
	if (!s) {
		gantry_slot_put(a->share_slots, (uint32_t)slot);
		return gantry_err_set(err, -ENOMEM, "no memory for a session");
	}
	s->share_slot = (uint32_t)slot;
	s->slots_held = true;
	*ret_session = s;
	return 0;
}

int gantry_session_new(struct gantry_tenant *t, const struct gantry_shape *shape, uint32_t version,
		       const struct gantry_session_place *place,
		       struct gantry_session **ret_session, struct gantry_err *err)
{
	struct gantry_session *s = NULL;
	int r = new_blank(t, &s, err);

	if (r < 0) {
		if (place)
			gantry_doormem_put(place->doormem, place->off);
		return r;
	}
	s->doormem = place ? place->doormem : NULL;
	s->desk = place ? place->desk : 0;
	s->segment_off = place ? place->off : 0;
	s->shape = *shape;
	s->shape.address = choose_address(s);
	s->version = version;
	s->began_ns = gantry_now_ns();
	/* charged before it is made; freed with the session. A door memory is charged already */
	s->charged_bytes = place ? 0 : shape->segment.segment_bytes;
	t->host_mem_used += s->charged_bytes;
	r = make_memory(s, place, err);
	if (r < 0) {
		gantry_session_free(s);
		return r;
	}
	fill_ledger(s);
	keep_all(s, place);
	*ret_session = s;
	return 0;
}

void gantry_session_served_by(struct gantry_session *s, uint64_t worker_id)
{
	unsigned long long id = s->id;

	if (s->served_by)
		gantry_keep_drop_tree(s->agent, "s/%llx/by/", id);
	s->served_by = worker_id;
	/* Which descriptor it is does not matter: the name is what a successor of ours reads. */
	gantry_keep(s->agent, s->bell_fd, "s/%llx/by/%llx", id, (unsigned long long)worker_id);
}

void gantry_session_admit(struct gantry_session *s, struct gantry_worker *w)
{
	for (uint32_t i = 0; i < s->agent->ndevices; i++) {
		const struct gantry_agent_device *d = &s->agent->devices[i];

		gantry_share_admit(d->page, s->share_slot, s->tenant->slot, w->owner);
		gantry_share_set_party(d->page, s->share_slot, gantry_device_party(d, w));
	}
}

void gantry_session_allow(struct gantry_session *s)
{
	uint64_t mask = s->tenant->device_mask & (gantry_devices_serving(s->agent) | s->leaving);

	if (s->ledger.hdr)
		/* pairs with the worker's load */
		gantry_store_release(&s->ledger.hdr->device_allowed, mask);
}

void gantry_session_hold(struct gantry_session *s)
{
	for (uint32_t i = 1; i < s->ledger.nqueues; i++)
		(void)gantry_fetch_or(&s->ledger.queues[i].paused, GANTRY_LEDGER_HELD);
	gantry_workers_nudge(s->agent);
}

void gantry_session_let_go(struct gantry_session *s)
{
	uint32_t held = 0;

	for (uint32_t i = 1; s->ledger.hdr && i < s->ledger.nqueues; i++)
		held |= gantry_fetch_and(&s->ledger.queues[i].paused, ~GANTRY_LEDGER_HELD);
	s->goes_on = false;
	if (held & GANTRY_LEDGER_HELD)
		gantry_workers_nudge(s->agent);
}

bool gantry_session_is_held(const struct gantry_session *s)
{
	for (uint32_t i = 1; s->ledger.hdr && i < s->ledger.nqueues; i++)
		if (gantry_load_relaxed(&s->ledger.queues[i].paused) & GANTRY_LEDGER_HELD)
			return true;
	return false;
}

bool gantry_session_is_still(const struct gantry_session *s)
{
	for (uint32_t i = 1; i < s->ledger.nqueues; i++) {
		const struct gantry_ledger_queue *q = &s->ledger.queues[i];

		/* Acquire: done first, so that issued is not older. */
		if (gantry_load_acquire(&q->done) != gantry_load_acquire(&q->issued))
			return false;
	}
	return true;
}

/* What the ledger still shows is what its last worker did not give back. */
static void refund(struct gantry_session *s)
{
	struct gantry_share_page *pages[GANTRY_AGENT_MAX_DEVICES];
	struct gantry_agent *a = s->agent;

	for (uint32_t i = 0; i < a->ndevices; i++)
		pages[i] = a->devices[i].page;
	gantry_quota_settle(s->tenant->quota, pages, a->ndevices, &s->ledger, s->shape.mem_bytes,
			    s->shape.virtual_bytes);
}

static void add_totals(struct gantry_session *s)
{
	const struct gantry_ledger_header *hdr = s->ledger.hdr;
	struct gantry_tenant *t = s->tenant;

	t->tasks_finished += hdr->tasks_finished;
	t->tasks_failed += hdr->tasks_failed;
	t->device_ns += hdr->device_ns;
	/* Memory that the kernel takes back is zeroed before it is given to anyone. */
	t->scrubbed_bytes += hdr->scrubbed_bytes + hdr->resident_used;
}

static void say_detached(struct gantry_session *s)
{
	/* A relay that has not seen the end of its door yet must not tell a guest whose session is elsewhere. */
	if (!s->segment || (s->has_moved && s->is_relayed))
		return;
	gantry_store_relaxed(&s->segment->reason, s->reason);
	/* reason before state */
	gantry_store_release(&s->segment->state, (uint32_t)GANTRY_SESSION_DETACHED);
	(void)gantry_futex_wake(&s->segment->state, INT_MAX); /* nobody may be asleep */
}

static void release_memory(struct gantry_session *s)
{
	if (s->ledger.hdr) {
		add_totals(s);
		refund(s);
		gantry_ledger_close(&s->ledger);
	}
	say_detached(s);
	if (s->segment)
		(void)munmap(s->segment, GANTRY_PAGE); /* it is mapped */
	gantry_fd_close(s->segment_fd);
	gantry_fd_close(s->bell_fd);
	gantry_fd_close(s->wake_fd);
	gantry_fd_close(s->ledger_fd);
	gantry_fd_close(s->slab_fd);
	gantry_fd_close(s->door_fd);
}

void gantry_session_free(struct gantry_session *s)
{
	struct gantry_agent *a = s->agent;
	struct gantry_tenant *t = s->tenant;

	gantry_handover_session_ends(s);
	gantry_adopt_forget(s);
	if (s->conn)
		gantry_conn_close(s->conn);
	gantry_exchange_session_gone(s);
	gantry_session_sample_free(s);
	gantry_migrations_session_gone(s);
	gantry_keep_drop_tree(a, "s/%llx/", (unsigned long long)s->id);
	gantry_slabs_session_gone(s);
	if (s->slots_held) {
		for (uint32_t i = 0; i < a->ndevices; i++)
			gantry_share_dismiss(a->devices[i].page, s->share_slot);
		gantry_slot_put(a->share_slots, s->share_slot);
	}
	release_memory(s);
	if (s->doormem)
		gantry_doormem_put(s->doormem, s->segment_off);
	gantry_event_free(&s->timer);
	gantry_event_free(&s->guest_timer);
	gantry_list_remove(&s->want_link);
	gantry_list_remove(&s->worker_link);
	gantry_list_remove(&s->link);
	t->host_mem_used -= gantry_min_u64(s->charged_bytes, t->host_mem_used);
	t->nsessions--;
	gantry_missing_free(s);
	free(s);
	gantry_journal_touch(a);
	gantry_conn_next(t);
	gantry_tenant_reap(t);
	gantry_agent_stop_if_idle(a);
}

bool gantry_session_translated(const struct gantry_session *s)
{
	return s->shape.address == 0 || gantry_load_relaxed(&s->ledger.hdr->translated);
}

bool gantry_session_guest_translated(const struct gantry_session *s)
{
	return s->segment && (gantry_load_relaxed(&s->segment->props) & GANTRY_PROP_TRANSLATED);
}

uint64_t gantry_session_buffers(const struct gantry_session *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; s->ledger.hdr && i < GANTRY_LEDGER_NOBJECTS; i++)
		n += s->ledger.objects[i].state == GANTRY_OBJECT_LIVE &&
		     s->ledger.objects[i].type == GANTRY_HANDLE_BUFFER;
	return n;
}

uint32_t gantry_session_replicas(const struct gantry_session *s, uint64_t *ret_bytes)
{
	uint32_t n = 0;

	*ret_bytes = 0;
	for (uint32_t i = 0; s->ledger.hdr && i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];
		uint32_t copies;

		if (o->state == GANTRY_OBJECT_FREE || o->type != GANTRY_HANDLE_BUFFER)
			continue;
		copies = (uint32_t)__builtin_popcount(gantry_load_relaxed(&o->buffer.replicas));
		n += copies;
		*ret_bytes += copies * gantry_load_relaxed(&o->buffer.charged_bytes);
	}
	return n;
}
