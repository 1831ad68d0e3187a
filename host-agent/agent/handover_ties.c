/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ties a session's memory to this host: what another session here uses too. Ledgers say so, which workers write: one that
 * was broken into keeps its own session here, or sends it away from what it shared.
 */
#include <errno.h>

#include "base/atomic.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/session.h"

static bool is_buffer(const struct gantry_ledger_object *o)
{
	return o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER;
}

/* The first of @s's buffers from @slot on with that memory; GANTRY_LEDGER_NOBJECTS: none. */
static uint32_t find_shared(const struct gantry_session *s, uint64_t share_id, uint32_t slot)
{
	for (; slot < GANTRY_LEDGER_NOBJECTS; slot++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[slot];

		if (is_buffer(o) && gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_OWN &&
		    o->buffer.share_id == share_id)
			break;
	}
	return slot;
}

/* Another session that has a part of it; NULL: nobody. */
static const struct gantry_session *sharer(const struct gantry_session *s, uint64_t share_id)
{
	gantry_list_for_each(&s->agent->sessions, struct gantry_session, link, other)
		if (other != s && other->ledger.hdr &&
		    find_shared(other, share_id, 0) < GANTRY_LEDGER_NOBJECTS)
			return other;
	return NULL;
}

static int tied(const struct gantry_session *s, uint32_t slot, struct gantry_err *err)
{
	uint64_t share_id = s->ledger.objects[slot].buffer.share_id;
	const struct gantry_session *other = sharer(s, share_id);
	uint32_t twin = find_shared(s, share_id, slot + 1);

	if (other)
		return gantry_err_set(
			err, -ENOTSUP,
			"session %llu cannot go to another host: its buffer %u is "
			"shared with session %llu, which stays; free it in one of them",
			(unsigned long long)s->id, slot, (unsigned long long)other->id);
	if (twin < GANTRY_LEDGER_NOBJECTS)
		return gantry_err_set(err, -ENOTSUP,
				      "session %llu cannot go to another host: its buffers %u and "
				      "%u are the same memory, adopted twice; free one of them",
				      (unsigned long long)s->id, slot, twin);
	return 0;
}

/* Its address is in the program's hands, and in memory: another host would have to have it free. */
static bool has_known_address(const struct gantry_ledger_object *o)
{
	return is_buffer(o) && (gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_IMAGE ||
				(o->buffer.alloc_flags & GANTRY_ALLOC_FIXED));
}

int gantry_handover_ties(const struct gantry_session *s, struct gantry_err *err)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &s->ledger.objects[i];

		if (has_known_address(o)) {
			(void)gantry_err_set(err, -ENOTSUP,
					     "session %llu cannot go to another host: its buffer "
					     "%u has a device address that its program knows",
					     (unsigned long long)s->id, i);
			return GANTRY_ADMIN_UNSUPPORTED;
		}
		if (is_buffer(o) && gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_OWN &&
		    tied(s, i, err) < 0)
			return GANTRY_ADMIN_UNSUPPORTED;
	}
	return 0;
}

bool gantry_handover_settles(const struct gantry_session *s)
{
	const struct gantry_handover *h = gantry_handover_of(s);

	return h && !h->is_incoming && h->phase >= GANTRY_HANDOVER_DRAINING;
}
