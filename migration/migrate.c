/* SPDX-License-Identifier: Apache-2.0 */
/* One operation at a time: what it answers decides the next one, or the next state. */
#include "migration/migrate.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/clock.h"

#define PAUSE_NS    (10 * GANTRY_NS_PER_MS)
#define MAX_ROUNDS  8u
#define MAX_PERCENT 200u
/* A round that leaves more than this share of what it copied dirty is gaining too little: (4 / 5). */
#define GAIN_NUM 4u
#define GAIN_DEN 5u

/* ---- states ---- */

#define BIT(state) (1u << GANTRY_MIGRATION_##state)

static const struct {
	const char *name;
	unsigned next; /* bits: states it may go to */
	struct gantry_migration_invariant invariant;
} states[GANTRY_MIGRATION_NSTATES] = {
	[GANTRY_MIGRATION_IDLE] = { "idle",
				    BIT(PRECOPY),
				    { "source", "source's", "at the source", true, false } },
	[GANTRY_MIGRATION_PRECOPY] = { "precopy",
				       BIT(ORPHAN) | BIT(ABORT),
				       { "source", "source's",
					 "at the source; copies at the sink may be stale", true,
					 false } },
	[GANTRY_MIGRATION_ORPHAN] = { "orphan",
				      BIT(DRAIN) | BIT(ABORT),
				      { "source, then nobody", "source's",
					"at the source; what was issued still writes", true,
					false } },
	[GANTRY_MIGRATION_DRAIN] = { "drain",
				     BIT(COPY) | BIT(ABORT),
				     { "nobody", "source's",
				       "at the source; what was issued still writes", false,
				       false } },
	[GANTRY_MIGRATION_COPY] = { "copy",
				    BIT(ADOPT) | BIT(ABORT),
				    { "nobody", "source's", "at the source, which nobody writes",
				      false, false } },
	[GANTRY_MIGRATION_ADOPT] = { "adopt",
				     BIT(DONE) | BIT(ABORT),
				     { "nobody, then the sink",
				       "source's until release, then the sink's",
				       "at both; the sink's count after release", false, true } },
	[GANTRY_MIGRATION_DONE] = { "done", 0, { "sink", "sink's", "at the sink", false, true } },
	[GANTRY_MIGRATION_ABORT] = { "abort",
				     BIT(IDLE),
				     { "nobody, then the source", "source's", "at the source", true,
				       false } },
};

const char *gantry_migration_state_name(enum gantry_migration_state state)
{
	return (unsigned)state < GANTRY_MIGRATION_NSTATES ? states[state].name : "unknown";
}

bool gantry_migration_may(enum gantry_migration_state from, enum gantry_migration_state to)
{
	return (unsigned)from < GANTRY_MIGRATION_NSTATES &&
	       (unsigned)to < GANTRY_MIGRATION_NSTATES && (states[from].next >> to & 1);
}

const struct gantry_migration_invariant *gantry_migration_invariant(
	enum gantry_migration_state state)
{
	assert((unsigned)state < GANTRY_MIGRATION_NSTATES);
	return &states[state].invariant;
}

/* Nobody took from the ring from the orphan on; what ends that is DONE, or IDLE. */
static void note_time(struct gantry_migration *m, enum gantry_migration_state to, uint64_t now_ns)
{
	m->counts.state_ns[m->state] += now_ns - m->entered_ns;
	m->entered_ns = now_ns;
	if (to != GANTRY_MIGRATION_DONE && to != GANTRY_MIGRATION_IDLE)
		return;
	m->counts.total_ns = now_ns - m->started_ns;
	if (m->orphaned_ns)
		m->counts.pause_ns = now_ns - m->orphaned_ns;
}

static void go(struct gantry_migration *m, enum gantry_migration_state to, uint64_t now_ns)
{
	assert(gantry_migration_may(m->state, to));
	assert(to != GANTRY_MIGRATION_ABORT || !m->committed);
	note_time(m, to, now_ns);
	m->state = to;
	m->step = 0;
	if (to == GANTRY_MIGRATION_ORPHAN)
		m->orphaned_ns = now_ns;
}

static void abort_with(struct gantry_migration *m, int code, uint64_t now_ns)
{
	if (m->err.code == 0)
		(void)gantry_err_set_errno(&m->err, code, "migration, state %s",
					   gantry_migration_state_name(m->state));
	m->err.code = code;
	go(m, GANTRY_MIGRATION_ABORT, now_ns);
}

/* ---- one operation; its answer ---- */

static uint32_t max_rounds(const struct gantry_migration *m)
{
	uint32_t n = m->policy.max_rounds ? m->policy.max_rounds : MAX_ROUNDS;

	return n < GANTRY_MIGRATION_MAX_ROUNDS ? n : GANTRY_MIGRATION_MAX_ROUNDS;
}

/* Whether copying ahead once more is worth it, after a round of @bytes in @ns. */
static bool another_round(const struct gantry_migration *m, uint64_t bytes, uint64_t ns)
{
	const struct gantry_migration_counts *c = &m->counts;
	double pause_ns = (double)(m->policy.pause_ns ? m->policy.pause_ns : PAUSE_NS);
	double percent = (double)(m->policy.max_percent ? m->policy.max_percent : MAX_PERCENT);

	if (c->dirty_bytes == 0 || c->nrounds >= max_rounds(m))
		return false;
	/* The machine's doubles are exact far beyond what can be moved; a peer's numbers cannot wrap them. */
	if ((double)c->dirty_bytes * (double)ns <= pause_ns * (double)bytes)
		return false;
	if ((double)c->dirty_bytes * GAIN_DEN > (double)bytes * GAIN_NUM)
		return false;
	return ((double)c->moved_bytes + (double)c->dirty_bytes) * 100 <=
	       percent * (double)c->owned_bytes;
}

static int precopy(struct gantry_migration *m, uint64_t now_ns)
{
	struct gantry_migration_counts *c = &m->counts;
	uint64_t bytes;
	uint64_t dirty;
	int r;

	m->began = true;
	if (m->step == 0) {
		r = m->source->begin(m->source_cookie, &c->owned_bytes, &m->err);
		m->step += r == 0;
		return r;
	}
	if (m->step == 1) {
		r = m->sink->prepare(m->sink_cookie, c->owned_bytes, &m->err);
		m->step += r == 0;
		if (r == 0 && m->policy.no_precopy)
			go(m, GANTRY_MIGRATION_ORPHAN, now_ns);
		m->round_ns = now_ns;
		return r;
	}
	r = m->source->round(m->source_cookie, c->nrounds, m->sink, m->sink_cookie, &bytes, &dirty,
			     &m->err);
	if (r < 0)
		return r;
	c->round_bytes[c->nrounds++] = bytes;
	c->moved_bytes += bytes;
	c->dirty_bytes = dirty;
	if (!another_round(m, bytes, now_ns - m->round_ns))
		go(m, GANTRY_MIGRATION_ORPHAN, now_ns);
	m->round_ns = now_ns;
	return 0;
}

static int adopt(struct gantry_migration *m, uint64_t now_ns)
{
	int r;

	if (m->step == 0) {
		r = m->sink->ready(m->sink_cookie, &m->err);
		m->step += r == 0;
		return r;
	}
	if (m->step == 1) {
		m->release_asked = true;
		r = m->source->release(m->source_cookie, &m->err);
		if (r != -EAGAIN)
			m->release_asked = false;
		m->committed = r == 0;
		m->step += r == 0;
		return r;
	}
	r = m->sink->adopt(m->sink_cookie, &m->err);
	if (r == -EAGAIN)
		return r;
	/* It is the sink's, and if it has ended there that is where it ended. */
	if (r < 0 && m->err.code == 0)
		(void)gantry_err_set_errno(&m->err, r, "the sink has it and cannot run it");
	go(m, GANTRY_MIGRATION_DONE, now_ns);
	return 0;
}

static int take_back(struct gantry_migration *m, uint64_t now_ns)
{
	struct gantry_err ignored = GANTRY_ERR_NONE; /* the first error is the one that is told */
	int r = 0;

	if (m->step == 0 && m->began)
		r = m->sink->discard(m->sink_cookie, &ignored);
	else if (m->step == 1 && m->began)
		r = m->source->resume(m->source_cookie, &ignored);
	if (r == -EAGAIN)
		return r;
	if (m->step++ == 1)
		go(m, GANTRY_MIGRATION_IDLE, now_ns);
	return 0;
}

static int ask(struct gantry_migration *m, uint64_t now_ns)
{
	struct gantry_migration_counts *c = &m->counts;
	int r;

	switch (m->state) {
	case GANTRY_MIGRATION_PRECOPY:
		return precopy(m, now_ns);
	case GANTRY_MIGRATION_ORPHAN:
		r = m->source->orphan(m->source_cookie, &m->err);
		if (r == 0)
			go(m, GANTRY_MIGRATION_DRAIN, now_ns);
		return r;
	case GANTRY_MIGRATION_DRAIN:
		r = m->source->drained(m->source_cookie, &c->longest_task_ns, &m->err);
		if (r == 0)
			go(m, GANTRY_MIGRATION_COPY, now_ns);
		return r;
	case GANTRY_MIGRATION_COPY:
		r = m->source->copy(m->source_cookie, m->sink, m->sink_cookie, &c->last_bytes,
				    &m->err);
		if (r == 0) {
			c->moved_bytes += c->last_bytes;
			go(m, GANTRY_MIGRATION_ADOPT, now_ns);
		}
		return r;
	case GANTRY_MIGRATION_ADOPT:
		return adopt(m, now_ns);
	default:
		return take_back(m, now_ns);
	}
}

/* ---- all of it ---- */

void gantry_migration_init(struct gantry_migration *m, const struct gantry_migration_source *source,
			   void *source_cookie, const struct gantry_migration_sink *sink,
			   void *sink_cookie, const struct gantry_migration_policy *policy)
{
	memset(m, 0, sizeof(*m));
	m->source = source;
	m->source_cookie = source_cookie;
	m->sink = sink;
	m->sink_cookie = sink_cookie;
	if (policy)
		m->policy = *policy;
}

int gantry_migration_start(struct gantry_migration *m, uint64_t now_ns)
{
	if (m->state != GANTRY_MIGRATION_IDLE || m->err.code || m->began)
		return -EALREADY;
	m->started_ns = now_ns;
	m->entered_ns = now_ns;
	go(m, GANTRY_MIGRATION_PRECOPY, now_ns);
	return 0;
}

bool gantry_migration_over(const struct gantry_migration *m)
{
	return m->state == GANTRY_MIGRATION_DONE ||
	       (m->state == GANTRY_MIGRATION_IDLE && m->err.code != 0);
}

enum gantry_migration_owner gantry_migration_owner(const struct gantry_migration *m)
{
	return m->committed ? GANTRY_MIGRATION_SINK : GANTRY_MIGRATION_SOURCE;
}

static bool may_turn_back(const struct gantry_migration *m)
{
	return m->state != GANTRY_MIGRATION_IDLE && m->state != GANTRY_MIGRATION_DONE &&
	       m->state != GANTRY_MIGRATION_ABORT && !m->committed && !m->release_asked;
}

int gantry_migration_step(struct gantry_migration *m, uint64_t now_ns)
{
	if (!gantry_migration_over(m)) {
		int r;

		if (m->state == GANTRY_MIGRATION_IDLE)
			return -EAGAIN; /* it was not started */
		if (m->cancelled && may_turn_back(m))
			abort_with(m, m->err.code, now_ns);
		else if (m->state != GANTRY_MIGRATION_ABORT)
			m->err = (struct gantry_err)GANTRY_ERR_NONE; /* of an earlier -EAGAIN */
		r = ask(m, now_ns);
		if (r == -EAGAIN)
			return r;
		if (r < 0)
			abort_with(m, r, now_ns);
		if (!gantry_migration_over(m))
			return 1;
	}
	return m->state == GANTRY_MIGRATION_DONE ? 0 : m->err.code;
}

int gantry_migration_cancel(struct gantry_migration *m, const char *why)
{
	if (!may_turn_back(m) || m->cancelled)
		return -EALREADY;
	gantry_migration_fail(m, -ECANCELED, why);
	return 0;
}

void gantry_migration_fail(struct gantry_migration *m, int code, const char *why)
{
	assert(code < 0 && code != -EAGAIN);
	if (!may_turn_back(m) || m->cancelled)
		return;
	m->cancelled = true;
	m->err.code = 0;
	(void)gantry_err_set(&m->err, code, "%s", why);
}
