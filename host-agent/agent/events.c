/* SPDX-License-Identifier: Apache-2.0 */
/* What happened: the last thousand entries, told to followers and to the log. */
#include "host-agent/agent/events.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

#define NSITES 64u
/* Of what guests and workers can provoke: so many of a kind and tenant in a time. */
#define PROVOKED_MAX 20u
#define PROVOKED_NS  (10 * GANTRY_NS_PER_S)

static const char *const provoked[] = {
	"attach-failed",       "call-missing",	    "device-fault",	   "door-denied",
	"door-protocol-error", "host-denied",	    "machine-connected",   "machine-gone",
	"machine-refused",     "migration-done",    "migration-failed",	   "queue-placed",
	"relay-failed",	       "session-condemned", "session-reconnected", "shared-buffers-many",
};

struct budget {
	uint64_t since_ns;
	uint32_t n;
	uint32_t untold;
};

static uint32_t hash_of(const char *a, const char *b)
{
	uint32_t hash = 5381;

	for (; *a; a++)
		hash = hash * 33 + (uint8_t)*a;
	for (; *b; b++)
		hash = hash * 33 + (uint8_t)*b;
	return hash;
}

/*
 * Each kind of event has a rate limit of its own, so that one that a guest can provoke hides no
 * other.
 */
static struct gantry_log_site *site_of(const char *kind)
{
	static struct gantry_log_site sites[NSITES];
	return &sites[hash_of(kind, "") % NSITES];
}

/*
 * Nobody may push what others did out of the ring, or followers out of their places. False: not to
 * be told; @ret_untold are those before that were not.
 */
static bool within_budget(const char *kind, const char *tenant, uint32_t *ret_untold)
{
	static struct budget budgets[NSITES];
	struct budget *b = &budgets[hash_of(kind, tenant) % NSITES];
	uint64_t now_ns = gantry_now_ns();
	bool counts = false;

	*ret_untold = 0;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(provoked); i++)
		counts = counts || strcmp(kind, provoked[i]) == 0;
	if (!counts)
		return true;
	if (now_ns - b->since_ns >= PROVOKED_NS) {
		*ret_untold = b->untold;
		*b = (struct budget){ .since_ns = now_ns };
	}
	b->untold += b->n >= PROVOKED_MAX;
	return b->n++ < PROVOKED_MAX;
}

/* A line stays a line, whatever a program or a worker put into it; other bytes are for UTF-8. */
static void without_controls(char *text)
{
	for (; *text; text++)
		if ((uint8_t)*text < ' ' || *text == 0x7f)
			*text = '?';
}

/* Names in entries are cut where they are too long: they are for people. */
static void add(struct gantry_agent *a, const struct gantry_event_entry *about,
		const struct gantry_tenant *t, const char *fmt, va_list ap)
{
	struct gantry_event_entry *e;
	uint32_t untold;

	if (!within_budget(about->kind, t ? t->conf.name : "", &untold))
		return;
	e = &a->events[a->nevents++ % GANTRY_EVENTS_KEPT];
	*e = *about;
	e->unix_ns = gantry_unix_now_ns();
	if (t)
		(void)gantry_str_copy(e->tenant, sizeof(e->tenant), t->conf.name);
	(void)vsnprintf(e->text, sizeof(e->text), fmt, ap);
	if (untold)
		(void)gantry_str_format(e->text + strlen(e->text),
					sizeof(e->text) - strlen(e->text), " (and %u before)",
					untold);
	without_controls(e->text);
	gantry_log_at(site_of(e->kind), GANTRY_LOG_INFO, "%s%s%s session=%llu worker=%llu: %s",
		      e->kind, t ? " tenant=" : "", e->tenant, (unsigned long long)e->session_id,
		      (unsigned long long)e->worker_id, e->text);
	gantry_admin_event(a, e);
}

static struct gantry_event_entry about(const char *kind, const struct gantry_session *s,
				       const struct gantry_worker *w)
{
	struct gantry_event_entry e = { .session_id = s ? s->id : 0 };

	if (!w && s)
		w = s->worker;
	e.worker_id = w ? w->id : 0;
	(void)gantry_str_copy(e.kind, sizeof(e.kind), kind);
	return e;
}

void gantry_event(struct gantry_agent *a, const char *kind, const struct gantry_tenant *t,
		  const struct gantry_session *s, const struct gantry_worker *w, const char *fmt,
		  ...)
{
	struct gantry_event_entry e = about(kind, s, w);
	va_list ap;

	va_start(ap, fmt);
	add(a, &e, !t && s ? s->tenant : t, fmt, ap);
	va_end(ap);
}

void gantry_event_device(struct gantry_agent *a, const char *kind, const char *device,
			 const struct gantry_session *s, const struct gantry_worker *w,
			 const char *fmt, ...)
{
	struct gantry_event_entry e = about(kind, s, w);
	va_list ap;

	(void)gantry_str_copy(e.device, sizeof(e.device), device);
	va_start(ap, fmt);
	add(a, &e, s ? s->tenant : NULL, fmt, ap);
	va_end(ap);
}
