/* SPDX-License-Identifier: Apache-2.0 */
/* What workers ask for: slabs behind ranges of their sessions' windows, from the pool or to be made; and the answers. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/err.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/agent/slab_plan.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "proto/vocab.h"

#define PER_PACKET    64u
#define NEEDS_MAX     64u
#define UNITS_FOR_ONE 16u /* so many small slabs of the pool stand in for a large one */

/* A worker's NeedSlabs that waits for some slab to be made. */
struct need {
	struct gantry_list link; /* session->needs */
	uint32_t device;
	int status;
	uint64_t off;
	uint64_t bytes;
};

static bool overlap(uint64_t off, uint64_t bytes, uint64_t off2, uint64_t bytes2)
{
	return off < off2 + bytes2 && off2 < off + bytes;
}

/* ---- answers ---- */

struct packet {
	Gantry__Worker__ToWorker msg;
	Gantry__Worker__GiveSlabs give;
	Gantry__Worker__Slab slabs[PER_PACKET];
	Gantry__Worker__Slab *list[PER_PACKET];
	int fds[PER_PACKET];
};

static void begin_packet(struct packet *p, const struct gantry_session *s, const struct need *n)
{
	gantry__worker__to_worker__init(&p->msg);
	gantry__worker__give_slabs__init(&p->give);
	p->msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_GIVE_SLABS;
	p->msg.give_slabs = &p->give;
	p->give.session_id = s->id;
	p->give.device = n->device;
	p->give.off = n->off;
	p->give.bytes = n->bytes;
	p->give.slabs = p->list;
}

static void add_slab(struct packet *p, struct gantry_slab *slab)
{
	size_t i = p->give.n_slabs++;

	gantry__worker__slab__init(&p->slabs[i]);
	p->slabs[i].off = slab->off;
	p->slabs[i].bytes = slab->bytes;
	p->slabs[i].fresh = slab->fresh;
	slab->fresh = false;
	p->list[i] = &p->slabs[i];
	p->fds[i] = slab->fd;
}

static int send_packet(struct gantry_session *s, struct packet *p)
{
	/* -EPIPE: it is dead, and its successor asks anew. */
	return gantry_call(s->worker, &p->msg, p->fds, (unsigned int)p->give.n_slabs, 0, NULL,
			   NULL);
}

/* All that the session has in the range, in as many packets as the descriptors take. */
static void answer(struct gantry_session *s, const struct need *n, int status)
{
	struct packet p;

	if (!s->worker)
		return;
	begin_packet(&p, s, n);
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != n->device || slab->state != GANTRY_SLAB_HELD ||
		    !overlap(slab->off, slab->bytes, n->off, n->bytes))
			continue;
		if (p.give.n_slabs == PER_PACKET) {
			if (send_packet(s, &p) < 0)
				return;
			begin_packet(&p, s, n);
		}
		add_slab(&p, slab);
	}
	p.give.last = true;
	p.give.status = status;
	(void)send_packet(s, &p); /* as above */
}

static bool complete(const struct gantry_session *s, const struct need *n)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == n->device && slab->state != GANTRY_SLAB_HELD &&
		    overlap(slab->off, slab->bytes, n->off, n->bytes))
			return false;
	return true;
}

static void free_need(struct gantry_session *s, struct need *n)
{
	gantry_list_remove(&n->link);
	s->nneeds--;
	free(n);
}

void gantry_slab_answer_complete(struct gantry_session *s)
{
	gantry_list_for_each_safe(&s->needs, struct need, link, n) {
		if (!complete(s, n))
			continue;
		answer(s, n, n->status);
		free_need(s, n);
	}
}

void gantry_slab_give_up(struct gantry_slab *slab, int status, const char *text)
{
	struct gantry_session *s = slab->session;

	gantry_list_for_each(&s->needs, struct need, link, n)
		if (n->device == slab->device && overlap(slab->off, slab->bytes, n->off, n->bytes))
			n->status = status;
	gantry_slab_pool_of(slab)->nrefused++;
	gantry_slab_pool_of(slab)->session_bytes -= slab->bytes;
	gantry_event(slab->agent, "slab-refused", NULL, s, NULL, "device %s, %" PRIu64 " bytes: %s",
		     slab->agent->devices[slab->device].conf.name, slab->bytes, text);
	gantry_slab_free(slab);
	gantry_slab_answer_complete(s);
}

void gantry_slab_forget_needs(struct gantry_session *s)
{
	gantry_list_for_each_safe(&s->needs, struct need, link, n)
		free_need(s, n);
}

void gantry_slabs_device_failed(struct gantry_agent *a, uint32_t device)
{
	struct gantry_slab_pool *pool = &a->pools[device];

	while (!gantry_list_is_empty(&pool->wanted))
		gantry_slab_give_up(gantry_list_entry(pool->wanted.next, struct gantry_slab,
						      todo_link),
				    GANTRY_E_NO_DEVICE, "the device has failed");
}

/* ---- requests ---- */

/* A slab of exactly @bytes from the pool. */
static struct gantry_slab *take_clean(struct gantry_slab_pool *pool, uint64_t bytes)
{
	gantry_list_for_each(&pool->clean, struct gantry_slab, link, slab)
		if (slab->bytes == bytes) {
			gantry_slab_out_of_pool(slab);
			return slab;
		}
	return NULL;
}

static bool hold_clean(struct gantry_session *s, uint32_t device, uint64_t off, uint64_t bytes)
{
	struct gantry_slab *slab = take_clean(&s->agent->pools[device], bytes);

	if (!slab)
		return false;
	gantry_slab_give_to(slab, s, off);
	gantry_slab_hold(slab);
	return true;
}

/* A large piece from small slabs, where the pool has enough: sooner than the steward could. */
static bool hold_units(struct gantry_session *s, uint32_t device,
		       const struct gantry_slab_place *piece)
{
	uint64_t unit = s->agent->devices[device].slab_align;

	if (piece->bytes > UNITS_FOR_ONE * unit ||
	    gantry_slab_unit_bytes(&s->agent->pools[device], unit) < piece->bytes)
		return false;
	for (uint64_t at = 0; at < piece->bytes; at += unit)
		(void)hold_clean(s, device, piece->off + at, unit); /* the pool has them all */
	return true;
}

static int want(struct gantry_session *s, uint32_t device, const struct gantry_slab_place *piece)
{
	struct gantry_slab *slab;

	if (hold_clean(s, device, piece->off, piece->bytes) || hold_units(s, device, piece))
		return 0;
	slab = gantry_slab_new(s->agent, device, piece->bytes, -EBADF);
	if (!slab)
		return -ENOMEM;
	slab->state = GANTRY_SLAB_WANTED;
	gantry_slab_give_to(slab, s, piece->off);
	gantry_list_push_back(&gantry_slab_pool_of(slab)->wanted, &slab->todo_link);
	return 0;
}

/* Pools stand back where sessions need the room that the device's limit leaves. */
static void make_room(struct gantry_agent *a, uint32_t device, uint64_t bytes)
{
	struct gantry_slab_pool *pool = &a->pools[device];
	uint64_t others = pool->session_bytes + pool->dirty_bytes + pool->making_bytes;

	if (others + pool->clean_bytes + bytes <= gantry_slab_device_limit(&a->devices[device]))
		return;
	gantry_list_for_each_safe(&pool->clean, struct gantry_slab, link, slab) {
		if (slab->bytes == bytes)
			continue; /* it is what is asked for */
		gantry_slab_out_of_pool(slab);
		gantry_slab_free(slab);
	}
}

static uint32_t plan(const struct gantry_session *s, const struct need *n,
		     struct gantry_slab_place *places)
{
	static struct gantry_slab_place have[GANTRY_SLABS_PER_SESSION]; /* static: large */
	uint32_t nhave = 0;

	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab)
		if (slab->device == n->device && nhave < GANTRY_SLABS_PER_SESSION)
			have[nhave++] = (struct gantry_slab_place){ slab->off, slab->bytes };
	return gantry_slab_plan(have, nhave, n->off, n->bytes,
				s->agent->devices[n->device].slab_align, places,
				GANTRY_SLABS_PER_SESSION);
}

/* Slabs, there or wanted, behind all of the range: 0, or a status with a sentence. */
static int cover(struct gantry_session *s, const struct need *n, struct gantry_err *err)
{
	static struct gantry_slab_place places[GANTRY_SLABS_PER_SESSION]; /* static: large */
	uint32_t nplaces = plan(s, n, places);
	uint64_t bytes = 0;
	int r;

	if (nplaces > GANTRY_SLABS_PER_SESSION)
		return gantry_err_set(err, GANTRY_E_LIMIT, "the range takes more than %u slabs",
				      GANTRY_SLABS_PER_SESSION);
	for (uint32_t i = 0; i < nplaces; i++)
		bytes += places[i].bytes;
	if (nplaces == 0)
		return GANTRY_OK;
	r = gantry_slab_check_limits(s, n->device, nplaces, bytes, err);
	if (r != GANTRY_OK)
		return r;
	make_room(s->agent, n->device, bytes);
	for (uint32_t i = 0; i < nplaces; i++)
		if (want(s, n->device, &places[i]) < 0)
			return gantry_err_set(err, GANTRY_E_NO_MEMORY,
					      "no memory for a slab's name");
	return GANTRY_OK;
}

static int check_need(const struct gantry_session *s, const struct need *n, struct gantry_err *err)
{
	const struct gantry_agent *a = s->agent;
	const struct gantry_agent_device *d;

	if (n->device >= a->ndevices)
		return gantry_err_set(err, GANTRY_E_ARG, "there is no device %u", n->device);
	d = &a->devices[n->device];
	if (!gantry_slab_range_valid(n->off, n->bytes, d->slab_align, s->shape.slab_bytes))
		return gantry_err_set(err, GANTRY_E_ARG,
				      "[%" PRIu64 ", +%" PRIu64 ") is no range of its window",
				      n->off, n->bytes);
	if (!(s->tenant->device_mask >> n->device & 1))
		return gantry_err_set(err, GANTRY_E_NO_DEVICE, "the tenant may not use device %s",
				      d->conf.name);
	if (!d->used || d->state == GANTRY_DEVICE_FAILED)
		return gantry_err_set(err, GANTRY_E_NO_DEVICE, "device %s does not serve",
				      d->conf.name);
	if (s->nneeds >= NEEDS_MAX)
		return gantry_err_set(err, GANTRY_E_AGAIN, "%u requests for slabs wait already",
				      NEEDS_MAX);
	return GANTRY_OK;
}

void gantry_slabs_need(struct gantry_worker *w, const Gantry__Worker__NeedSlabs *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);
	struct gantry_err err = GANTRY_ERR_NONE;
	struct need like = { .device = msg->device, .off = msg->off, .bytes = msg->bytes };
	struct need *n;
	int status;

	if (!s || s->worker != w || s->phase == GANTRY_PHASE_DETACHING)
		return;
	status = check_need(s, &like, &err);
	if (status == GANTRY_OK)
		status = cover(s, &like, &err);
	n = status == GANTRY_OK ? malloc(sizeof(*n)) : NULL;
	if (!n) {
		if (like.device < w->agent->ndevices)
			w->agent->pools[like.device].nrefused++;
		gantry_event(w->agent, "slab-refused", NULL, s, w, "%s",
			     err.text[0] ? err.text : "the host is out of memory");
		answer(s, &like, status ? status : GANTRY_E_NO_MEMORY);
		return;
	}
	*n = like;
	gantry_list_init(&n->link);
	gantry_list_push_back(&s->needs, &n->link);
	s->nneeds++;
	gantry_slab_answer_complete(s);
	gantry_slab_pump(w->agent, like.device);
}
