/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ties a session's memory to this host: what another session here uses too. Ledgers say so, which workers write: one that
 * was broken into keeps its own session here, or sends it away from what it shared.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/handover_out.h"
#include "host-agent/agent/session.h"

static bool is_buffer(const struct gantry_ledger_object *o)
{
	return o->state != GANTRY_OBJECT_FREE && o->type == GANTRY_HANDLE_BUFFER;
}

static bool is_shared(const struct gantry_ledger_object *o)
{
	return is_buffer(o) && gantry_load_relaxed(&o->buffer.place) == GANTRY_PLACE_OWN;
}

/* A shared buffer of the session that is to go. */
struct part {
	uint64_t share_id;
	uint32_t slot;
};

static int by_share_id(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return x->share_id != y->share_id
		       ? (x->share_id > y->share_id) - (x->share_id < y->share_id)
		       : (x->slot > y->slot) - (x->slot < y->slot);
}

static size_t find_parts(const struct gantry_session *s, struct part *ret_parts)
{
	size_t n = 0;

	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (is_shared(&s->ledger.objects[i]))
			ret_parts[n++] = (struct part){ s->ledger.objects[i].buffer.share_id, i };
	if (n)
		qsort(ret_parts, n, sizeof(*ret_parts), by_share_id);
	return n;
}

static int compare_id(const void *share_id, const void *part)
{
	const uint64_t *id = share_id;
	const struct part *p = part;

	return (*id > p->share_id) - (*id < p->share_id);
}

/* The first of @parts that @other has too; NULL: none. */
static const struct part *common(const struct gantry_session *other, const struct part *parts,
				 size_t n)
{
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++) {
		const struct gantry_ledger_object *o = &other->ledger.objects[i];
		uint64_t share_id = is_shared(o) ? o->buffer.share_id : 0;
		const struct part *part =
			share_id ? bsearch(&share_id, parts, n, sizeof(*parts), compare_id) : NULL;

		if (part)
			return part;
	}
	return NULL;
}

/* Each session's objects are looked at once: sessions have thousands of them, and the agent has other things to do. */
static int tied(const struct gantry_session *s, const struct part *parts, size_t n,
		struct gantry_err *err)
{
	for (size_t i = 1; i < n; i++)
		if (parts[i].share_id == parts[i - 1].share_id)
			return gantry_err_set(
				err, -ENOTSUP,
				"session %llu cannot go to another host: its buffers %u and %u are "
				"the same memory, adopted twice; free one of them",
				(unsigned long long)s->id, parts[i - 1].slot, parts[i].slot);
	if (n == 0)
		return 0;
	gantry_list_for_each(&s->agent->sessions, struct gantry_session, link, other) {
		const struct part *part = other != s && other->ledger.hdr ? common(other, parts, n)
									  : NULL;

		if (part)
			return gantry_err_set(
				err, -ENOTSUP,
				"session %llu cannot go to another host: its buffer %u is shared "
				"with session %llu, which stays; free it in one of them",
				(unsigned long long)s->id, part->slot,
				(unsigned long long)other->id);
	}
	return 0;
}

/* Its address is in the program's hands, and in memory: another host would have to have it free. */
static bool has_known_address(const struct gantry_ledger_object *o)
{
	uint32_t place = is_buffer(o) ? gantry_load_relaxed(&o->buffer.place) : GANTRY_PLACE_NONE;

	return is_buffer(o) && (place == GANTRY_PLACE_IMAGE || place == GANTRY_PLACE_RANGE ||
				(o->buffer.alloc_flags & GANTRY_ALLOC_FIXED));
}

/* The other host would take its device 0 for its own device 0. */
static int check_numbers(const struct gantry_session *s, struct gantry_err *err)
{
	if (!gantry_load_acquire(&s->ledger.hdr->places))
		return 0;
	(void)gantry_err_set(err, -ENOTSUP,
			     "session %llu cannot go to another host: its program has gone "
			     "from GPU to GPU, and the devices' numbers are exchanged for it; "
			     "move it back first",
			     (unsigned long long)s->id);
	return GANTRY_ADMIN_UNSUPPORTED;
}

int gantry_handover_ties(const struct gantry_session *s, struct gantry_err *err)
{
	_cleanup_free_ struct part *parts = NULL;
	int r = check_numbers(s, err);

	if (r != 0)
		return r;
	parts = calloc(GANTRY_LEDGER_NOBJECTS, sizeof(*parts));
	if (!parts) {
		(void)gantry_err_set(err, -ENOMEM, "no memory to look for shared buffers");
		return GANTRY_ADMIN_FAILED;
	}
	for (uint32_t i = 0; i < GANTRY_LEDGER_NOBJECTS; i++)
		if (has_known_address(&s->ledger.objects[i])) {
			(void)gantry_err_set(err, -ENOTSUP,
					     "session %llu cannot go to another host: its buffer "
					     "%u has a device address that its program knows",
					     (unsigned long long)s->id, i);
			return GANTRY_ADMIN_UNSUPPORTED;
		}
	return tied(s, parts, find_parts(s, parts), err) < 0 ? GANTRY_ADMIN_UNSUPPORTED : 0;
}

bool gantry_handover_settles(const struct gantry_session *s)
{
	const struct gantry_handover *h = gantry_handover_of(s);

	return h && !h->is_incoming && h->phase >= GANTRY_HANDOVER_DRAINING;
}
