/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs that sessions let go of: one that a worker drops, what a dead worker left unused, all of a session that is over. */
#include <stdlib.h>

#include "base/atomic.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/agent/worker.h"

/* A session's, which goes on without it. */
static void give_back(struct gantry_slab *slab)
{
	gantry_keep_drop(slab->agent, GANTRY_KEPT_SLAB, (unsigned long long)slab->session->id,
			 slab->device, (unsigned long long)slab->off,
			 (unsigned long long)slab->bytes);
	gantry_slab_pool_of(slab)->session_bytes -= slab->bytes;
	if (slab->lent)
		gantry_slab_let_out(slab);
	else
		gantry_slab_into_dirty(slab);
}

void gantry_slabs_drop(struct gantry_worker *w, const Gantry__Worker__DropSlab *msg)
{
	struct gantry_session *s = gantry_session_find(w->agent, msg->session_id);

	if (!s || s->worker != w)
		return;
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		if (slab->device != msg->device || slab->off != msg->off ||
		    slab->bytes != msg->bytes || slab->state != GANTRY_SLAB_HELD)
			continue;
		give_back(slab);
		gantry_slab_pump(w->agent, msg->device);
		return;
	}
}

/* Where a buffer lies in a device's window. */
struct lived {
	uint32_t device;
	uint64_t off;
	uint64_t end;
};

static int by_place(const void *one, const void *other)
{
	const struct lived *a = one, *b = other;

	if (a->device != b->device)
		return a->device < b->device ? -1 : 1;
	return (a->off > b->off) - (a->off < b->off);
}

/* The ledger is the session's own: what it says wrongly costs that session bytes, and nobody else. */
static size_t find_lived(const struct gantry_session *s, struct lived *ret_lived)
{
	uint64_t places = gantry_load_acquire(&s->ledger.hdr->places);
	size_t n = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];
		const struct gantry_ledger_buffer *b = &o->buffer;

		if (o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER &&
		    b->place == GANTRY_PLACE_WINDOW)
			ret_lived[n++] = (struct lived){ gantry_ledger_whereabouts(places, b),
							 b->off, b->off + b->bytes };
	}
	qsort(ret_lived, n, sizeof(*ret_lived), by_place);
	return n;
}

static void take_back(struct gantry_slab *slab)
{
	struct gantry_slab_pool *pool = gantry_slab_pool_of(slab);

	pool->session_bytes -= slab->bytes;
	if (slab->lent) {
		gantry_slab_let_out(slab);
		return;
	}
	slab->session = NULL;
	switch (slab->state) {
	case GANTRY_SLAB_HELD:
		gantry_slab_into_dirty(slab);
		break;
	case GANTRY_SLAB_MAKING: /* it comes, and is the pool's then */
		gantry_list_remove(&slab->link);
		gantry_list_push_back(&pool->asked, &slab->link);
		pool->making_bytes += slab->bytes;
		break;
	default:
		gantry_slab_free(slab);
		break;
	}
}

/* Both in the order of devices and offsets. Buffers do not overlap; should a ledger say so, a slab may go that holds one. */
static void give_back_others(struct gantry_session *s, const struct lived *lived, size_t n)
{
	size_t i = 0;

	gantry_list_for_each_safe(&s->slabs, struct gantry_slab, link, slab) {
		while (i < n && (lived[i].device < slab->device ||
				 (lived[i].device == slab->device && lived[i].end <= slab->off)))
			i++;
		if (i < n && lived[i].device == slab->device &&
		    lived[i].off < slab->off + slab->bytes)
			continue;
		if (slab->state == GANTRY_SLAB_HELD)
			give_back(slab);
		else /* it is not there yet */
			take_back(slab);
	}
}

void gantry_slabs_worker_gone(struct gantry_session *s)
{
	struct lived *lived;

	gantry_slab_forget_needs(s);
	gantry_loans_end(s);
	if (!s->ledger.hdr || gantry_list_is_empty(&s->slabs))
		return;
	/* A successor asks for the places of its buffers, so nobody would ever speak of the others again. */
	lived = malloc(GANTRY_LEDGER_NOBJECTS * sizeof(*lived));
	if (lived) /* else they stay until the session ends */
		give_back_others(s, lived, find_lived(s, lived));
	free(lived);
	gantry_slabs_pump(s->agent);
}

void gantry_slabs_session_gone(struct gantry_session *s)
{
	gantry_slab_forget_needs(s);
	gantry_loans_end(s);
	if (gantry_list_is_empty(&s->slabs))
		return;
	gantry_list_for_each_safe(&s->slabs, struct gantry_slab, link, slab)
		take_back(slab);
	gantry_slabs_pump(s->agent);
}
