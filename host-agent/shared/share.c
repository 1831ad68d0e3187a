/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits is said by `wants` in a session's entry; who holds, by lanes[]. Everything else follows from a
 * scan of these, so that nothing is out of step after a death.
 *
 * Two hand-shakes, both of the form "store mine; full fence; load yours":
 *   want:  wants = 1    | fence | take looks at the lanes
 *   give:  lane = 0     | fence | look who wants, call them     so a free lane is seen or its waiter is called
 *   sleep: asleep = 1   | fence | the kernel compares wake with the ticket
 *   call:  wake += 1    | fence | read asleep                   so the call is seen or the futex is woken
 * And whoever stands back from a free lane for another calls that other, so no order of changes in
 * between leaves a free lane that nobody was called to.
 */
#include "host-agent/shared/share.h"

#include <errno.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/futex.h"
#include "host-agent/shared/share_parts.h"

/* In a holder's copy of arrivals. */
#define SOMEBODY_WAITS 1u
#define CROWDED	       2u /* of a holder on a GPU: what it puts in flight keeps others waiting */
#define NOT_ARRIVALS   (SOMEBODY_WAITS | CROWDED)
#define PAUSE_LAG_NS   (2ull * GANTRY_SHARE_SLICE_NS) /* the most that is kept over a pause */

/* What decides whose turn it is. Read once: others' virtual times move. */
struct turn {
	uint32_t session;
	uint32_t tenant;
	int32_t priority;
	uint64_t tenant_vtime_ns;
	uint64_t session_vtime_ns;
};

/* The best waiters, best first. */
struct shortlist {
	struct turn turns[GANTRY_SHARE_NLANES];
	unsigned max;
	unsigned n;
};

/* ---- what is free ---- */

static unsigned count_free(const struct gantry_share_page *page)
{
	uint32_t n = share_nlanes(page);
	unsigned nfree = 0;

	for (uint32_t i = 0; i < n; i++)
		nfree += gantry_load_relaxed(&page->lanes[i]) == 0;
	return nfree;
}

/* Whether a lane that this waiting session can do with is free; or, of @session, held by it. */
static bool has_lane_for(const struct gantry_share_page *page, const struct gantry_share_session *s,
			 uint32_t holder)
{
	uint64_t lanes = gantry_load_relaxed(&s->lanes);
	uint32_t n = share_nlanes(page);

	for (uint32_t i = 0; lanes && i < n; i++)
		if ((lanes >> i & 1) && gantry_load_relaxed(&page->lanes[i]) == holder)
			return true;
	return lanes == 0;
}

static bool can_come(const struct gantry_share_page *page, const struct gantry_share_session *s)
{
	return has_lane_for(page, s, 0);
}

/* ---- whose turn it is ---- */

static uint32_t now_us(void)
{
	return (uint32_t)(gantry_now_ns() / GANTRY_NS_PER_US) | 1;
}

/* Called for a lane and did not come: dead or stopped. The clock is asked only about who was called. */
static bool is_absent(const struct gantry_share_session *s)
{
	uint32_t called_us = gantry_load_relaxed(&s->called_us);

	return called_us && now_us() - called_us >= GANTRY_SHARE_PATIENCE_NS / GANTRY_NS_PER_US;
}

static bool is_waiting(const struct gantry_share_session *s)
{
	/* Acquire: pairs with the release in announce(); its priority is of this want. */
	return gantry_load_acquire(&s->wants) && !is_absent(s);
}

static struct turn turn_of(const struct gantry_share_page *page, uint32_t session)
{
	const struct gantry_share_session *s = &page->sessions[session];
	uint32_t tenant = share_tenant_of(s);

	return (struct turn){
		.session = session,
		.tenant = tenant,
		.priority = gantry_load_relaxed(&s->priority),
		.tenant_vtime_ns = gantry_load_relaxed(&page->tenants[tenant].vtime_ns),
		.session_vtime_ns = gantry_load_relaxed(&s->vtime_ns),
	};
}

static bool comes_before(const struct turn *a, const struct turn *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	/* One tenant's time may have moved between the two looks at it. */
	if (a->tenant != b->tenant && a->tenant_vtime_ns != b->tenant_vtime_ns)
		return a->tenant_vtime_ns < b->tenant_vtime_ns;
	if (a->session_vtime_ns != b->session_vtime_ns)
		return a->session_vtime_ns < b->session_vtime_ns;
	return a->session < b->session;
}

static void shortlist_add(struct shortlist *list, const struct turn *turn)
{
	unsigned i;

	if (list->n < list->max)
		i = list->n++;
	else if (comes_before(turn, &list->turns[list->n - 1]))
		i = list->n - 1;
	else
		return;
	for (; i > 0 && comes_before(turn, &list->turns[i - 1]); i--)
		list->turns[i] = list->turns[i - 1];
	list->turns[i] = *turn;
}

/* As many of the best waiters as there are free lanes. */
static void shortlist_waiters(const struct gantry_share_page *page, unsigned nfree,
			      struct shortlist *list)
{
	uint32_t n = share_nsessions(page);

	list->n = 0;
	list->max = nfree;
	for (uint32_t i = 0; i < n; i++) {
		struct turn turn;

		if (!is_waiting(&page->sessions[i]) || !can_come(page, &page->sessions[i]))
			continue;
		turn = turn_of(page, i);
		shortlist_add(list, &turn);
	}
}

/* Waiting sessions that come before @session; of its party only where that is said. */
static unsigned count_before(const struct gantry_share_page *page, uint32_t session, bool of_party)
{
	struct turn mine = turn_of(page, session);
	uint32_t n = share_nsessions(page);
	unsigned nbefore = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct turn turn;

		if (i == session || !is_waiting(&page->sessions[i]) ||
		    !can_come(page, &page->sessions[i]) ||
		    (of_party && !share_same_party(&page->sessions[i], &page->sessions[session])))
			continue;
		turn = turn_of(page, i);
		nbefore += comes_before(&turn, &mine);
	}
	return nbefore;
}

/* ---- GPUs: one party at a time, units inside it ---- */

static bool is_gpu(const struct gantry_share_page *page)
{
	return gantry_load_relaxed(&page->hdr.gpu) != 0;
}

/* Between two batches of its guest's: see GANTRY_SHARE_PAUSE_US. */
static bool in_pause(const struct gantry_share_session *s)
{
	uint32_t left_us = gantry_load_relaxed(&s->left_us);
	uint32_t most_us;

	if (!left_us)
		return false;
	most_us = (left_us - gantry_load_relaxed(&s->busy_us)) >> GANTRY_SHARE_PAUSE_SHIFT;
	if (most_us > GANTRY_SHARE_PAUSE_US)
		most_us = GANTRY_SHARE_PAUSE_US;
	return now_us() - left_us < most_us;
}

/* What it has in flight; and of who fills the device, what it had before its pause. */
static uint32_t claim_of(const struct gantry_share_session *s)
{
	uint32_t units = share_units_of(s);

	if (units == 0 && gantry_load_relaxed(&s->filled) >= GANTRY_SHARE_WHOLE && in_pause(s))
		return GANTRY_SHARE_WHOLE;
	return units;
}

/* It goes on with filling the device: what it led by then counts to the last. */
static bool came_back(const struct gantry_share_session *s)
{
	return gantry_load_relaxed(&s->stood_back) ||
	       (gantry_load_relaxed(&s->filled) >= GANTRY_SHARE_WHOLE && in_pause(s));
}

/* A session that holds a lane, of @mine's party (or of another); NULL: none. */
static const struct gantry_share_session *find_holder(const struct gantry_share_page *page,
						      const struct gantry_share_session *mine,
						      bool of_party)
{
	uint32_t n = share_nlanes(page);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t holder = gantry_load_relaxed(&page->lanes[i]);
		const struct gantry_share_session *s;

		if (holder == 0)
			continue;
		s = &page->sessions[(holder - 1) % GANTRY_SHARE_NSESSIONS];
		if (s != mine && share_same_party(s, mine) == of_party)
			return s;
	}
	return NULL;
}

/* What the party of @session has in flight beside it, in units. */
static uint32_t units_beside(const struct gantry_share_page *page, uint32_t session)
{
	uint32_t n = share_nsessions(page);
	uint32_t units = 0;

	for (uint32_t i = 0; i < n; i++)
		if (i != session && share_same_party(&page->sessions[i], &page->sessions[session]))
			units += share_units_of(&page->sessions[i]);
	return units;
}

/* The same with who is in a pause. */
static uint32_t claims_beside(const struct gantry_share_page *page, uint32_t session)
{
	uint32_t n = share_nsessions(page);
	uint32_t units = 0;

	for (uint32_t i = 0; i < n; i++)
		if (i != session && share_same_party(&page->sessions[i], &page->sessions[session]))
			units += claim_of(&page->sessions[i]);
	return units;
}

/* How far, in virtual time, @mine is ahead of @theirs; more urgent ones are behind everybody. */
static bool stands_back(const struct turn *mine, const struct turn *theirs, uint64_t slice_ns)
{
	uint64_t ahead = mine->tenant_vtime_ns;
	uint64_t behind = theirs->tenant_vtime_ns;

	if (mine->priority != theirs->priority)
		return mine->priority < theirs->priority;
	if (mine->tenant == theirs->tenant) {
		ahead = mine->session_vtime_ns;
		behind = theirs->session_vtime_ns;
	}
	return ahead > behind && ahead - behind > slice_ns;
}

/* The device is full without @session, or would be with @units more; and it is ahead of who fills it by @slice_ns. */
static bool is_throttled(const struct gantry_share_page *page, uint32_t session, uint32_t units,
			 uint64_t slice_ns)
{
	struct turn mine = turn_of(page, session);
	uint32_t n = share_nsessions(page);

	if (claims_beside(page, session) + units < GANTRY_SHARE_WHOLE)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];
		struct turn theirs;

		if (i == session || !share_same_party(s, &page->sessions[session]) ||
		    claim_of(s) == 0)
			continue;
		theirs = turn_of(page, i);
		if (stands_back(&mine, &theirs, slice_ns))
			return true;
	}
	return false;
}

static bool asks_quiet(const struct gantry_share_session *s)
{
	uint32_t since_us = gantry_load_relaxed(&s->quiet_us);

	return since_us && now_us() - since_us < GANTRY_SHARE_QUIET_US;
}

/* Another of the party has asked @session, which is not more urgent, to begin nothing now. */
static bool is_hushed(const struct gantry_share_page *page, uint32_t session)
{
	const struct gantry_share_session *me = &page->sessions[session];
	uint32_t n = share_nsessions(page);

	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];

		if (i != session && gantry_load_relaxed(&s->quiet_us) && share_same_party(s, me) &&
		    asks_quiet(s))
			return gantry_load_relaxed(&me->priority) <=
			       gantry_load_relaxed(&s->priority);
	}
	return false;
}

/* Who waits of other parties and comes before @session. */
static bool another_party_first(const struct gantry_share_page *page, uint32_t session)
{
	struct turn mine = turn_of(page, session);
	uint32_t n = share_nsessions(page);

	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];
		struct turn turn;

		if (i == session || share_same_party(s, &page->sessions[session]) || !is_waiting(s))
			continue;
		turn = turn_of(page, i);
		if (comes_before(&turn, &mine))
			return true;
	}
	return false;
}

void gantry_share_use(struct gantry_share_page *page, uint32_t session, uint32_t units)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];

	if (units == 0 && share_units_of(s)) {
		gantry_store_relaxed(&s->left_us, now_us());
	} else if (units && share_units_of(s) == 0) {
		if (!in_pause(s))
			gantry_store_relaxed(&s->busy_us, now_us());
		gantry_store_relaxed(&s->left_us, 0u);
	}
	if (units)
		gantry_store_relaxed(&s->filled, units);
	gantry_store_relaxed(&s->units, units);
}

bool gantry_share_has_news(const struct gantry_share_page *page, uint32_t seen)
{
	return (gantry_load_relaxed(&page->hdr.arrivals) ^ seen) & ~NOT_ARRIVALS;
}

bool gantry_share_is_alone(const struct gantry_share_page *page, uint32_t session)
{
	return units_beside(page, session % GANTRY_SHARE_NSESSIONS) == 0;
}

bool gantry_share_ask_quiet(struct gantry_share_page *page, uint32_t session)
{
	session %= GANTRY_SHARE_NSESSIONS;
	for (uint32_t i = 0; i < share_nsessions(page); i++)
		if (i != session &&
		    share_same_party(&page->sessions[i], &page->sessions[session]) &&
		    asks_quiet(&page->sessions[i]))
			return false;
	gantry_store_relaxed(&page->sessions[session].quiet_us, now_us());
	return true;
}

/* ---- sleeping and waking ---- */

void gantry_share_nudge(struct gantry_share_page *page, uint32_t worker)
{
	struct gantry_share_worker *w = &page->workers[worker % GANTRY_SHARE_NWORKERS];

	(void)gantry_fetch_add(&w->wake, 1);
	/* Full fence: pairs with the one in gantry_share_sleep(). */
	gantry_fence_full();
	if (gantry_load_relaxed(&w->asleep))
		(void)gantry_futex_wake(&w->wake, 1);
}

uint32_t gantry_share_ticket(struct gantry_share_page *page, uint32_t worker)
{
	/* Acquire: pairs with the add in gantry_share_nudge(); a call before the ticket is of lanes we see. */
	return gantry_load_acquire(&page->workers[worker % GANTRY_SHARE_NWORKERS].wake);
}

void gantry_share_sleep(struct gantry_share_page *page, uint32_t worker, uint32_t ticket,
			uint64_t deadline_ns)
{
	struct gantry_share_worker *w = &page->workers[worker % GANTRY_SHARE_NWORKERS];
	uint64_t patience_ns = gantry_now_ns() + GANTRY_SHARE_PATIENCE_NS;

	gantry_store_relaxed(&w->asleep, 1u);
	/* Full fence: pairs with the one in gantry_share_nudge(). It sees us asleep or we see its call. */
	gantry_fence_full();
	(void)gantry_futex_wait(&w->wake, ticket,
				deadline_ns < patience_ns ? deadline_ns : patience_ns);
	gantry_store_relaxed(&w->asleep, 0u);
}

/* The best waiter's party where nobody has the GPU, else who waits of the party that has it. */
static void call_party(struct gantry_share_page *page)
{
	const struct gantry_share_session *first = NULL;
	uint32_t n = share_nlanes(page);

	for (uint32_t i = 0; i < n && !first; i++) {
		uint32_t holder = gantry_load_relaxed(&page->lanes[i]);

		if (holder)
			first = &page->sessions[(holder - 1) % GANTRY_SHARE_NSESSIONS];
	}
	if (!first) {
		struct shortlist list;

		shortlist_waiters(page, 1, &list);
		if (list.n == 0)
			return;
		first = &page->sessions[list.turns[0].session];
	}
	n = share_nsessions(page);
	for (uint32_t i = 0; i < n; i++)
		if (is_waiting(&page->sessions[i]) && share_same_party(&page->sessions[i], first))
			gantry_share_nudge(page, share_worker_of(&page->sessions[i]));
}

/* Calls as many of the best waiters as there are free lanes. */
void share_call_waiters(struct gantry_share_page *page)
{
	unsigned nfree = count_free(page);
	struct shortlist list;

	if (is_gpu(page)) {
		call_party(page);
		return;
	}
	if (nfree == 0)
		return;
	shortlist_waiters(page, nfree, &list);
	for (unsigned i = 0; i < list.n; i++)
		gantry_share_nudge(page, share_worker_of(&page->sessions[list.turns[i].session]));
}

/* @session stands back from a free lane: those it does so for are called, and get a time to come in. */
static void stand_back(struct gantry_share_page *page, uint32_t session, unsigned nfree)
{
	struct shortlist list;
	uint32_t now = now_us();

	shortlist_waiters(page, nfree, &list);
	for (unsigned i = 0; i < list.n; i++) {
		struct gantry_share_session *s = &page->sessions[list.turns[i].session];
		uint32_t never = 0;

		if (list.turns[i].session != session)
			(void)gantry_cas(&s->called_us, &never, now);
		/* Our own worker too: things moved since it was refused, and it must not sleep on that. */
		gantry_share_nudge(page, share_worker_of(s));
	}
}

void gantry_share_end_quiet(struct gantry_share_page *page, uint32_t session)
{
	session %= GANTRY_SHARE_NSESSIONS;
	gantry_store_relaxed(&page->sessions[session].quiet_us, 0u);
	/* Full fence: as in gantry_share_take(). Who was refused meanwhile sees it, or is called. */
	gantry_fence_full();
	for (uint32_t i = 0; i < share_nsessions(page); i++)
		if (i != session &&
		    share_same_party(&page->sessions[i], &page->sessions[session]) &&
		    is_waiting(&page->sessions[i]))
			gantry_share_nudge(page, share_worker_of(&page->sessions[i]));
}

/* ---- a session's state ---- */

void share_update_state(struct gantry_share_page *page, struct gantry_share_session *s)
{
	struct gantry_share_tenant *t = &page->tenants[share_tenant_of(s)];
	bool was_active = share_is_active(s);
	bool active;

	if (gantry_load_relaxed(&s->nheld))
		gantry_store_relaxed(&s->state, (uint32_t)GANTRY_SHARE_RUNNING);
	else if (gantry_load_relaxed(&s->wants))
		gantry_store_relaxed(&s->state, (uint32_t)GANTRY_SHARE_WAITING);
	else
		gantry_store_relaxed(&s->state, (uint32_t)GANTRY_SHARE_IDLE);
	active = share_is_active(s);
	if (active && !was_active)
		gantry_count_add(&t->nactive, 1);
	if (!active && was_active)
		gantry_count_add(&t->nactive, -1u);
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* What others were given while this one asked for nothing is not owed to it. */
static void forget_idleness(struct gantry_share_page *page, uint32_t session)
{
	struct gantry_share_session *me = &page->sessions[session];
	uint32_t tenant = share_tenant_of(me);
	struct gantry_share_tenant *mine = &page->tenants[tenant];
	uint64_t tenant_least = UINT64_MAX;
	uint64_t session_least = UINT64_MAX;
	uint64_t lag_ns = in_pause(me) ? PAUSE_LAG_NS : 0;
	bool tenant_idle = true;
	uint32_t n = share_nsessions(page);

	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];
		uint32_t other = share_tenant_of(s);
		uint64_t vtime_ns;

		if (i == session || !share_is_active(s) || is_absent(s))
			continue;
		if (other == tenant) {
			tenant_idle = false;
			vtime_ns = gantry_load_relaxed(&s->vtime_ns);
			session_least = vtime_ns < session_least ? vtime_ns : session_least;
		} else {
			vtime_ns = gantry_load_relaxed(&page->tenants[other].vtime_ns);
			tenant_least = vtime_ns < tenant_least ? vtime_ns : tenant_least;
		}
	}
	if (session_least == UINT64_MAX)
		session_least = gantry_load_relaxed(&mine->session_vtime_ns);
	share_raise_to(&me->vtime_ns, less(session_least, lag_ns));
	if (!tenant_idle)
		return;
	if (tenant_least == UINT64_MAX)
		tenant_least = gantry_load_relaxed(&page->hdr.vtime_ns);
	share_raise_to(&mine->vtime_ns, less(tenant_least, lag_ns));
}

/* It comes: whoever stood back for it need not wait longer. */
static void answer_call(struct gantry_share_page *page, uint32_t session)
{
	struct gantry_share_session *s = &page->sessions[session];

	if (!gantry_load_relaxed(&s->called_us))
		return;
	if (is_absent(s)) /* it was passed over, as if it had asked for nothing */
		forget_idleness(page, session);
	gantry_store_relaxed(&s->called_us, 0u);
}

static void announce(struct gantry_share_page *page, struct gantry_share_session *s)
{
	gantry_store_relaxed(&s->wait_since_ns, gantry_now_ns());
	gantry_store_relaxed(&s->refused, (uint16_t)0);
	gantry_store_relaxed(&s->called_us, 0u);
	/* Release: pairs with the acquire in is_waiting(). */
	gantry_store_release(&s->wants, (uint16_t)1);
	(void)gantry_fetch_add(&page->hdr.arrivals, SHARE_ARRIVAL);
	/* Full fence: pairs with the one after a lane is freed. We see it free or we are called. */
	gantry_fence_full();
}

/* Those below it keep little in flight for a while: it may come again. */
static void note_urgency(struct gantry_share_page *page, int32_t priority)
{
	uint32_t now = now_us();

	if (gantry_load_relaxed(&page->hdr.urgent_us) &&
	    gantry_load_relaxed(&page->hdr.urgent_priority) > priority &&
	    now - gantry_load_relaxed(&page->hdr.urgent_us) < GANTRY_SHARE_URGENT_US)
		return;
	gantry_store_relaxed(&page->hdr.urgent_priority, priority);
	gantry_store_relaxed(&page->hdr.urgent_us, now);
}

void gantry_share_want(struct gantry_share_page *page, uint32_t session, int32_t priority)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];
	bool changed = gantry_load_relaxed(&s->priority) != priority;

	session %= GANTRY_SHARE_NSESSIONS;
	gantry_store_relaxed(&s->priority, priority);
	answer_call(page, session);
	if (gantry_load_relaxed(&s->wants)) {
		if (changed) /* holders compare again */
			(void)gantry_fetch_add(&page->hdr.arrivals, SHARE_ARRIVAL);
		return;
	}
	if (!share_is_active(s))
		forget_idleness(page, session);
	if (is_gpu(page))
		note_urgency(page, priority);
	announce(page, s);
	share_update_state(page, s);
}

bool gantry_share_tells(struct gantry_share_page *page)
{
	uint32_t watched = 1;

	/* The fence of announce() pairs with the one in gantry_share_watch(): we see its word or it sees our want. */
	return gantry_load_relaxed(&page->hdr.watch) && gantry_cas(&page->hdr.watch, &watched, 0u);
}

void gantry_share_watch(struct gantry_share_page *page)
{
	gantry_store_relaxed(&page->hdr.watch, 1u);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
}

void gantry_share_count(const struct gantry_share_page *page, uint32_t *ret_held,
			uint32_t *ret_waiting)
{
	uint32_t n = share_nsessions(page);

	*ret_held = 0;
	*ret_waiting = 0;
	/* In this order: who takes a lane has it before it waits no more. */
	for (uint32_t i = 0; i < n; i++)
		*ret_waiting += gantry_load_acquire(&page->sessions[i].wants) != 0;
	n = share_nlanes(page);
	for (uint32_t i = 0; i < n; i++)
		*ret_held += gantry_load_relaxed(&page->lanes[i]) != 0;
}

bool gantry_share_is_busy(const struct gantry_share_page *page)
{
	uint32_t held, waiting;

	gantry_share_count(page, &held, &waiting);
	return held || waiting;
}

/* ---- lanes ---- */

/* One of @lanes, bits; 0: any. */
static int claim_lane(struct gantry_share_page *page, uint32_t session, uint64_t lanes)
{
	uint32_t n = share_nlanes(page);

	for (uint32_t i = 0; i < n; i++) {
		uint32_t nobody = 0;

		if (lanes && !(lanes >> i & 1))
			continue;
		if (gantry_load_relaxed(&page->lanes[i]) == 0 &&
		    gantry_cas(&page->lanes[i], &nobody, session + 1))
			return (int)i;
	}
	return -EAGAIN;
}

/* Lanes that others wait for who can do with no other. */
static uint64_t lanes_of_others(const struct gantry_share_page *page, uint32_t session)
{
	uint32_t n = share_nsessions(page);
	uint64_t lanes = 0;

	for (uint32_t i = 0; i < n; i++)
		if (i != session && is_waiting(&page->sessions[i]))
			lanes |= gantry_load_relaxed(&page->sessions[i].lanes);
	return lanes;
}

/* For whom any will do, rather one that nobody else needs. */
static int claim_best_lane(struct gantry_share_page *page, uint32_t session, uint64_t lanes)
{
	uint64_t theirs = lanes ? 0 : lanes_of_others(page, session);
	int lane = theirs && ~theirs ? claim_lane(page, session, ~theirs) : -EAGAIN;

	return lane < 0 ? claim_lane(page, session, lanes) : lane;
}

static void settle_wait(struct gantry_share_session *s)
{
	uint64_t since_ns = gantry_load_relaxed(&s->wait_since_ns);

	if (!gantry_load_relaxed(&s->refused))
		return;
	gantry_count_add(&s->waits, 1);
	gantry_count_add(&s->wait_ns, gantry_now_ns() - since_ns);
}

/*
 * A lane of a GPU. Two parties may each have seen it free: who took a lane and then sees another's gives it back, and
 * the order of turns, the same for both, says who tries again first.
 */
static int take_gpu(struct gantry_share_page *page, uint32_t session, bool moves)
{
	struct gantry_share_session *s = &page->sessions[session];
	uint32_t holder = session + 1;
	int lane;

	if (find_holder(page, s, false))
		return -EAGAIN;
	if (another_party_first(page, session)) {
		if (!find_holder(page, s, true))
			stand_back(page, session, 1);
		return -EAGAIN;
	}
	if (!moves && is_hushed(page, session))
		return -EAGAIN;
	if (!moves && is_throttled(page, session, 0, came_back(s) ? 0 : GANTRY_SHARE_SLICE_NS))
		return -EAGAIN;
	if (count_before(page, session, true) >= count_free(page)) {
		stand_back(page, session, count_free(page));
		return -EAGAIN;
	}
	lane = claim_lane(page, session, 0);
	if (lane < 0)
		return lane;
	/* Full fence: pairs with itself in the other party. At least one of two sees the other's lane. */
	gantry_fence_full();
	if (!find_holder(page, s, false))
		return lane;
	(void)gantry_cas(&page->lanes[lane], &holder, 0u);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
	share_call_waiters(page);
	return -EAGAIN;
}

static int take(struct gantry_share_page *page, uint32_t session, uint64_t lanes, bool moves)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];
	unsigned nfree;
	int lane = -EAGAIN;

	session %= GANTRY_SHARE_NSESSIONS;
	answer_call(page, session);
	nfree = gantry_load_relaxed(&page->hdr.disabled) ? 0 : count_free(page);
	if (nfree > 0 && is_gpu(page))
		lane = take_gpu(page, session, moves);
	else if (nfree > 0 && count_before(page, session, false) < nfree)
		lane = claim_best_lane(page, session, lanes);
	else if (nfree > 0)
		stand_back(page, session, nfree);
	if (lane < 0) {
		gantry_store_relaxed(&s->refused, (uint16_t)1);
		return lane;
	}

	if (gantry_load_relaxed(&s->wants))
		settle_wait(s);
	/* Release: pairs with the acquire in gantry_share_count(), which looks at the lanes after it. */
	gantry_store_release(&s->wants, (uint16_t)0);
	gantry_store_relaxed(&s->nheld, gantry_load_relaxed(&s->nheld) + 1);
	share_update_state(page, s);
	/*
	 * Full fence: who came after us and counted us as waiting stood back from a lane we did not
	 * take; or a giver called us to a second one. We see them waiting, or they see that we no
	 * longer do.
	 */
	gantry_fence_full();
	if (!is_gpu(page)) /* others of the party need no call, and other parties have to wait */
		share_call_waiters(page);
	return lane;
}

int gantry_share_take(struct gantry_share_page *page, uint32_t session)
{
	return take(page, session, 0, false);
}

int gantry_share_take_to_move(struct gantry_share_page *page, uint32_t session)
{
	return take(page, session, 0, true);
}

int gantry_share_take_of(struct gantry_share_page *page, uint32_t session, uint64_t lanes)
{
	return take(page, session, lanes, false);
}

void gantry_share_accept(struct gantry_share_page *page, uint32_t session, uint64_t lanes)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];

	if (gantry_load_relaxed(&s->lanes) == lanes)
		return;
	gantry_store_relaxed(&s->lanes, lanes);
	/* Holders look who waits for what. */
	(void)gantry_fetch_add(&page->hdr.arrivals, SHARE_ARRIVAL);
}

/* Frees @lane if @session holds it. */
static bool free_lane(struct gantry_share_page *page, uint32_t session, uint32_t lane)
{
	uint32_t holder = session + 1;

	return gantry_cas(&page->lanes[lane], &holder, 0u);
}

unsigned share_free_lanes_of(struct gantry_share_page *page, uint32_t session)
{
	unsigned nheld = 0;

	for (uint32_t i = 0; i < GANTRY_SHARE_NLANES; i++)
		nheld += free_lane(page, session, i);
	return nheld;
}

void gantry_share_give(struct gantry_share_page *page, uint32_t session, int lane, bool still_wants)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];
	uint32_t nheld = gantry_load_relaxed(&s->nheld);

	session %= GANTRY_SHARE_NSESSIONS;
	if (lane < 0 || (uint32_t)lane >= GANTRY_SHARE_NLANES)
		return;
	if (still_wants && !gantry_load_relaxed(&s->wants))
		announce(page, s);
	if (free_lane(page, session, (uint32_t)lane) && nheld > 0)
		gantry_store_relaxed(&s->nheld, nheld - 1);
	share_update_state(page, s);
	/* Full fence: pairs with the one in announce(). */
	gantry_fence_full();
	share_call_waiters(page);
}

void gantry_share_leave(struct gantry_share_page *page, uint32_t session)
{
	struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];

	if (!gantry_load_relaxed(&s->wants))
		return;
	gantry_store_relaxed(&s->wants, (uint16_t)0);
	gantry_store_relaxed(&s->called_us, 0u);
	share_update_state(page, s);
	/* Full fence: as in gantry_share_take(). The turn it gives up is the next one's. */
	gantry_fence_full();
	share_call_waiters(page);
}

/* ---- handing over ---- */

static bool leads_by(uint64_t mine_ns, uint64_t theirs_ns, uint64_t slice_ns)
{
	return mine_ns > theirs_ns && mine_ns - theirs_ns > slice_ns;
}

/* Whether the holder with turn @mine owes its lane to waiter @other. */
static bool owes_lane(const struct gantry_share_page *page, const struct turn *mine, uint32_t other)
{
	struct turn theirs = turn_of(page, other);
	bool same_worker = share_worker_of(&page->sessions[mine->session]) ==
			   share_worker_of(&page->sessions[other]);
	uint64_t slice_ns = same_worker ? GANTRY_SHARE_SLICE_SAME_WORKER_NS : GANTRY_SHARE_SLICE_NS;

	if (theirs.priority != mine->priority)
		return theirs.priority > mine->priority;
	if (theirs.tenant == mine->tenant)
		return leads_by(mine->session_vtime_ns, theirs.session_vtime_ns, slice_ns);
	return leads_by(mine->tenant_vtime_ns, theirs.tenant_vtime_ns, slice_ns);
}

bool gantry_share_keeps(const struct gantry_share_page *page, uint32_t session, uint64_t idle_ns)
{
	uint64_t pause_us = gantry_load_relaxed(&page->hdr.turn_pause_us);
	const struct gantry_share_session *me;
	uint32_t n = share_nsessions(page);
	bool others = false;
	struct turn mine;

	if (pause_us > GANTRY_SHARE_TURN_PAUSE_MAX_US)
		pause_us = GANTRY_SHARE_TURN_PAUSE_MAX_US;
	if (idle_ns >= pause_us * GANTRY_NS_PER_US || !is_gpu(page) ||
	    gantry_load_relaxed(&page->hdr.disabled))
		return false;
	session %= GANTRY_SHARE_NSESSIONS;
	me = &page->sessions[session];
	mine = turn_of(page, session);
	/* As it will be charged. */
	mine.session_vtime_ns += idle_ns;
	mine.tenant_vtime_ns += share_weighted_ns(&page->tenants[mine.tenant], idle_ns);
	for (uint32_t i = 0; i < n; i++) {
		if (i == session || !is_waiting(&page->sessions[i]))
			continue;
		if (share_same_party(&page->sessions[i], me) || owes_lane(page, &mine, i))
			return false;
		others = true;
	}
	return others;
}

static bool look_who_waits(struct gantry_share_page *page, uint32_t session, uint32_t *ret_waits)
{
	struct turn mine = turn_of(page, session);
	uint32_t n = share_nsessions(page);
	unsigned nwaiting = 0;
	unsigned nowed = 0;
	bool its_own = false; /* a lane of this session's, and no other will do */

	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];

		if (i == session || !gantry_load_acquire(&s->wants))
			continue;
		nwaiting++;
		if (is_absent(s))
			continue;
		if (can_come(page, s))
			nowed += owes_lane(page, &mine, i);
		else if (has_lane_for(page, s, session + 1))
			its_own = its_own || owes_lane(page, &mine, i);
	}
	*ret_waits = nwaiting ? SOMEBODY_WAITS : 0;
	/* Those that a free lane is there for need none of ours. */
	return its_own || (nowed > 0 && nowed > count_free(page));
}

/* As look_who_waits(), on a GPU. */
static bool look_at_gpu(struct gantry_share_page *page, uint32_t session, bool moves,
			uint32_t *ret_waits)
{
	struct gantry_share_session *me = &page->sessions[session];
	struct turn mine = turn_of(page, session);
	uint32_t n = share_nsessions(page);
	uint32_t claims = share_units_of(me);
	uint32_t npeers = 0;
	unsigned nowed = 0;
	bool owed = false;
	bool leads;

	*ret_waits = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct gantry_share_session *s = &page->sessions[i];
		bool waits = gantry_load_acquire(&s->wants);
		struct turn theirs;

		if (i == session || (!share_is_active(s) && claim_of(s) == 0))
			continue;
		*ret_waits |= SOMEBODY_WAITS;
		theirs = turn_of(page, i);
		if (!share_same_party(s, me)) {
			*ret_waits |= CROWDED;
			owed = owed || (waits && !is_absent(s) && owes_lane(page, &mine, i));
			continue;
		}
		npeers++;
		claims += claim_of(s);
		nowed += waits && !is_absent(s) && owes_lane(page, &mine, i);
		/* One that stood back for us and need not any more. */
		if (waits && !stands_back(&theirs, &mine, 0))
			gantry_share_nudge(page, share_worker_of(s));
	}
	if (npeers > 0 && claims >= GANTRY_SHARE_WHOLE)
		*ret_waits |= CROWDED;
	/* More sessions than lanes: none of ours is free for those that we lead. */
	if (nowed > 0 && nowed > count_free(page)) {
		*ret_waits |= CROWDED;
		owed = true;
	}
	if (moves)
		return owed;
	leads = npeers > 0 &&
		is_throttled(page, session, share_units_of(me), GANTRY_SHARE_SLICE_NS);
	leads = leads && !asks_quiet(me);
	gantry_store_relaxed(&me->stood_back, leads ? 1u : 0u);
	return owed || leads || (npeers > 0 && is_hushed(page, session));
}

uint32_t gantry_share_window_us(const struct gantry_share_page *page, uint32_t session, uint32_t us,
				uint32_t seen)
{
	const struct gantry_share_session *s = &page->sessions[session % GANTRY_SHARE_NSESSIONS];
	uint32_t urgent_us = gantry_load_relaxed(&page->hdr.urgent_us);
	uint32_t most = us;

	if (!is_gpu(page))
		return us;
	if (urgent_us &&
	    gantry_load_relaxed(&page->hdr.urgent_priority) > gantry_load_relaxed(&s->priority) &&
	    now_us() - urgent_us < GANTRY_SHARE_URGENT_US)
		most = GANTRY_SHARE_WINDOW_URGENT_US;
	else if (seen & CROWDED)
		most = GANTRY_SHARE_WINDOW_CONTENDED_US;
	return us < most ? us : most;
}

static bool must_yield(struct gantry_share_page *page, uint32_t session, bool moves, uint32_t *seen)
{
	uint32_t arrivals = gantry_load_relaxed(&page->hdr.arrivals);
	uint32_t waits;
	bool yield;

	if (arrivals == *seen)
		return false;
	/* Acquire: pairs with the adds in announce() and gantry_share_disable(). */
	arrivals = gantry_load_acquire(&page->hdr.arrivals);
	if (gantry_load_relaxed(&page->hdr.disabled)) {
		*seen = arrivals | SOMEBODY_WAITS;
		return true;
	}
	session %= GANTRY_SHARE_NSESSIONS;
	yield = is_gpu(page) ? look_at_gpu(page, session, moves, &waits)
			     : look_who_waits(page, session, &waits);
	*seen = arrivals | waits;
	return yield;
}

bool gantry_share_must_yield(struct gantry_share_page *page, uint32_t session, uint32_t *seen)
{
	return must_yield(page, session, false, seen);
}

bool gantry_share_must_yield_to_move(struct gantry_share_page *page, uint32_t session,
				     uint32_t *seen)
{
	return must_yield(page, session, true, seen);
}
