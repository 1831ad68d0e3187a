/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What device time costs a session and its tenant: of what was kept to a part of the device, that part, as long as nobody waits; on
 * a GPU, where a party's commands run beside each other, which part of it.
 */
#include "host-agent/shared/share_parts.h"

#define CHARGE_MAX_NS (1ull << 50) /* 13 days: times a weight it still fits */

void gantry_share_charge(struct gantry_share_page *page, uint32_t session, uint64_t device_ns)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];
	struct gantry_share_tenant *t = &page->tenants[share_tenant_of(s)];
	uint64_t ns = device_ns > CHARGE_MAX_NS ? CHARGE_MAX_NS : device_ns;
	uint64_t weighted_ns = share_weighted_ns(t, ns);

	gantry_count_add(&t->device_ns, ns);
	gantry_count_add(&s->device_ns, ns);
	share_raise_to(&t->session_vtime_ns, gantry_fetch_add(&s->vtime_ns, ns) + ns);
	share_raise_to(&page->hdr.vtime_ns,
		       gantry_fetch_add(&t->vtime_ns, weighted_ns) + weighted_ns);
}

static bool others_were_refused(const struct gantry_share_page *page, uint32_t session)
{
	uint32_t n = share_nsessions(page);

	for (uint32_t i = 0; i < n; i++)
		if (i != session && gantry_load_relaxed(&page->sessions[i].wants) &&
		    gantry_load_relaxed(&page->sessions[i].refused))
			return true;
	return false;
}

void gantry_share_charge_part(struct gantry_share_page *page, uint32_t session, uint64_t device_ns,
			      uint64_t spared_ns)
{
	session %= GANTRY_SHARE_NSESSIONS;
	if (spared_ns && spared_ns <= device_ns && !others_were_refused(page, session))
		device_ns -= spared_ns;
	gantry_share_charge(page, session, device_ns);
}

/* What a party has in flight beside one session. */
struct beside {
	uint32_t units;	     /* of all */
	uint32_t units_open; /* of those whose part is not known */
	uint32_t part;	     /* thousandths of the device, of the others */
	bool others_wait;    /* of another party */
};

static struct beside look_beside(const struct gantry_share_page *page, uint32_t session)
{
	const struct gantry_share_session *me = &page->sessions[session];
	struct beside b = { 0 };
	uint32_t n = share_nsessions(page);

	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];
		uint32_t part = gantry_load_relaxed(&s->part);

		if (i == session)
			continue;
		if (!share_same_party(s, me)) {
			b.others_wait = b.others_wait || gantry_load_relaxed(&s->wants);
			continue;
		}
		b.units += share_units_of(s);
		if (share_units_of(s) == 0)
			continue;
		if (part == 0)
			b.units_open += share_units_of(s);
		b.part += part > GANTRY_SHARE_WHOLE ? GANTRY_SHARE_WHOLE : part;
	}
	return b;
}

/* Of a full device, in thousandths of the observed time. */
static uint64_t part_of(const struct beside *b, uint64_t observed_ns, uint64_t alone_ns,
			uint32_t units)
{
	uint32_t whole = GANTRY_SHARE_WHOLE;
	/* A guest can make its commands take longer beside others than alone: not for nothing. */
	uint64_t least = (uint64_t)units * whole / (units + b->units) / 16;
	uint64_t part;

	if (alone_ns && alone_ns < observed_ns)
		part = (uint64_t)((double)alone_ns / (double)observed_ns * units);
	else if (alone_ns)
		part = units;
	else
		part = b->part >= whole
			       ? 0
			       : (uint64_t)(whole - b->part) * units / (units + b->units_open);
	return part > least ? part : least;
}

/* A mean, without what was in flight when another came, or ends when it has gone: that had another part. */
static void note_part(struct gantry_share_session *me, uint64_t part, bool known, bool crowded)
{
	uint32_t before = gantry_load_relaxed(&me->part);
	bool throughout = crowded && gantry_load_relaxed(&me->crowded);

	gantry_store_relaxed(&me->crowded, crowded ? 1u : 0u);
	if (!known)
		gantry_store_relaxed(&me->part, 0u);
	if (!known || !throughout)
		return;
	if (before)
		gantry_store_relaxed(&me->part, (uint32_t)((before * 7ull + part + 7) / 8));
	else
		gantry_store_relaxed(&me->part, (uint32_t)part);
}

void gantry_share_charge_units(struct gantry_share_page *page, uint32_t session,
			       uint64_t observed_ns, uint64_t alone_ns, uint32_t units)
{
	uint64_t ns = observed_ns > CHARGE_MAX_NS ? CHARGE_MAX_NS : observed_ns;
	struct gantry_share_session *me;
	struct beside b;
	uint64_t part;
	bool crowded;

	session %= GANTRY_SHARE_NSESSIONS;
	me = &page->sessions[session];
	units = units > GANTRY_SHARE_WHOLE ? GANTRY_SHARE_WHOLE : units ? units : 1;
	b = look_beside(page, session);
	crowded = units + b.units > GANTRY_SHARE_WHOLE;
	/* The others have gone since it began: it waited for them, too. */
	if (!crowded && gantry_load_relaxed(&me->crowded) && alone_ns && alone_ns < ns)
		ns = alone_ns;
	if (crowded)
		part = part_of(&b, observed_ns, alone_ns, units);
	else /* while another party waits, all of the device is this one's, filled or not */
		part = b.others_wait ? (uint64_t)units * GANTRY_SHARE_WHOLE / (units + b.units)
				     : units;
	note_part(me, part, alone_ns != 0, crowded);
	gantry_share_charge(page, session,
			    (uint64_t)((double)ns * (double)part / GANTRY_SHARE_WHOLE));
}

void gantry_share_charge_pause(struct gantry_share_page *page, uint32_t session, uint64_t from_ns,
			       uint64_t to_ns)
{
	const struct gantry_share_session *me;
	uint64_t since_ns = UINT64_MAX;
	uint32_t nkeepers = 1;

	session %= GANTRY_SHARE_NSESSIONS;
	me = &page->sessions[session];
	for (uint32_t i = 0; i < share_nsessions(page); i++) {
		const struct gantry_share_session *s = &page->sessions[i];

		if (i == session)
			continue;
		if (!share_same_party(s, me)) {
			/* Acquire: since when it waits was said before. */
			bool waits = gantry_load_acquire(&s->wants);
			uint64_t wait_since_ns = gantry_load_relaxed(&s->wait_since_ns);

			if (waits && wait_since_ns < since_ns)
				since_ns = wait_since_ns;
			continue;
		}
		/* Whose commands run pays for the device; of several that keep it each pays its part. */
		if (share_units_of(s))
			return;
		nkeepers += gantry_load_relaxed(&s->nheld) != 0;
	}
	if (since_ns < from_ns)
		since_ns = from_ns;
	if (since_ns < to_ns)
		gantry_share_charge(page, session, (to_ns - since_ns) / nkeepers);
}
