/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside a share page's code: share.c has turns and lanes, share_charge.c what device time costs, share_page.c what the agent
 * does with pages and their entries. Numbers from the page are bounded here.
 */
#ifndef GANTRY_SHARED_SHARE_PARTS_H
#define GANTRY_SHARED_SHARE_PARTS_H

#include "base/atomic.h"
#include "host-agent/shared/share.h"

/* gantry_share_page's arrivals are a multiple of it: a holder's copy with bits of its own (share.c) never equals them. */
#define SHARE_ARRIVAL 4u

static inline uint32_t share_nlanes(const struct gantry_share_page *page)
{
	uint32_t n = gantry_load_relaxed(&page->hdr.nlanes);

	return n > GANTRY_SHARE_NLANES ? GANTRY_SHARE_NLANES : n;
}

static inline uint32_t share_nsessions(const struct gantry_share_page *page)
{
	/* Acquire: pairs with the release in set_nsessions(); the entries below are filled. */
	uint32_t n = gantry_load_acquire(&page->hdr.nsessions);

	return n > GANTRY_SHARE_NSESSIONS ? GANTRY_SHARE_NSESSIONS : n;
}

static inline uint32_t share_tenant_of(const struct gantry_share_session *s)
{
	return gantry_load_relaxed(&s->tenant) % GANTRY_SHARE_NTENANTS;
}

static inline uint32_t share_worker_of(const struct gantry_share_session *s)
{
	return gantry_load_relaxed(&s->worker) % GANTRY_SHARE_NWORKERS;
}

static inline uint32_t share_weight_of(const struct gantry_share_tenant *t)
{
	uint32_t weight = gantry_load_relaxed(&t->weight);

	if (weight < 1)
		return GANTRY_SHARE_WEIGHT_DEFAULT;
	return weight > GANTRY_SHARE_WEIGHT_MAX ? GANTRY_SHARE_WEIGHT_MAX : weight;
}

/* Virtual time of @ns of device time. */
static inline uint64_t share_weighted_ns(const struct gantry_share_tenant *t, uint64_t ns)
{
	return ns * GANTRY_SHARE_WEIGHT_DEFAULT / share_weight_of(t);
}

static inline bool share_is_active(const struct gantry_share_session *s)
{
	uint32_t state = gantry_load_relaxed(&s->state);

	return state == GANTRY_SHARE_WAITING || state == GANTRY_SHARE_RUNNING;
}

static inline void share_raise_to(uint64_t *word, uint64_t value)
{
	uint64_t before = gantry_load_relaxed(word);

	while (before < value && !gantry_cas(word, &before, value))
		;
}

static inline bool share_same_party(const struct gantry_share_session *a,
				    const struct gantry_share_session *b)
{
	return gantry_load_relaxed(&a->party) == gantry_load_relaxed(&b->party);
}

static inline uint32_t share_units_of(const struct gantry_share_session *s)
{
	uint32_t units = gantry_load_relaxed(&s->units);

	return units > GANTRY_SHARE_WHOLE ? GANTRY_SHARE_WHOLE : units;
}

/* share.c: the entry's state follows what it holds and wants. */
void share_update_state(struct gantry_share_page *page, struct gantry_share_session *s);
/* Returns how many there were. */
unsigned share_free_lanes_of(struct gantry_share_page *page, uint32_t session);
/* After a full fence, which pairs with that of whoever has come to want. */
void share_call_waiters(struct gantry_share_page *page);

#endif
