/* SPDX-License-Identifier: Apache-2.0 */
/* How much device memory in slabs a session, a tenant, a device and the host may have. */
#include <errno.h>
#include <inttypes.h>
#include <sys/resource.h>

#include "host-agent/agent/agent.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/loan.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab_inside.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"
#include "proto/vocab.h"

#define SLACK_UNITS 16u

uint32_t gantry_slab_host_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur > GANTRY_STORE_MAX)
		return GANTRY_STORE_MAX / 2;
	return (uint32_t)(limit.rlim_cur / 4);
}

uint32_t gantry_slab_host_count(const struct gantry_agent *a)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++)
		n += a->pools[i].nslabs;
	return n;
}

/* Those that sessions have, or are about to: the others are ready, or will be soon, and give way. */
static uint32_t host_session_slabs(const struct gantry_agent *a)
{
	size_t n = gantry_slab_host_count(a);

	for (uint32_t i = 0; i < GANTRY_AGENT_MAX_DEVICES; i++)
		n -= gantry_list_count(&a->pools[i].clean) + gantry_list_count(&a->pools[i].dirty) +
		     gantry_list_count(&a->pools[i].asked);
	return (uint32_t)n;
}

/*
 * A session that makes room drops slabs and asks for others before the steward has cleared the first. So these do not
 * count against what sessions may have; for all together there is twice as much.
 */
static bool has_descriptors(const struct gantry_agent *a, uint32_t n)
{
	return host_session_slabs(a) + n <= gantry_slab_host_max() &&
	       gantry_slab_host_count(a) + n <= 2 * gantry_slab_host_max();
}

/*
 * Workers charge bytes that are handed out, exactly. What slabs have beyond that, because buffers do not fill them, is
 * bounded here, so that a worker that was taken over cannot hoard.
 */
static uint64_t with_slack(uint64_t limit, uint64_t align)
{
	uint64_t slack = limit / 8 + SLACK_UNITS * align;

	return limit > UINT64_MAX - slack ? UINT64_MAX : limit + slack;
}

/* Slabs of a session, or of all sessions of a tenant. */
struct held {
	uint64_t here; /* bytes on the device that more are wanted of */
	uint64_t all;
	uint32_t n;
};

static void add_held(const struct gantry_session *s, uint32_t device, struct held *held)
{
	gantry_list_for_each(&s->slabs, struct gantry_slab, link, slab) {
		held->here += slab->device == device ? slab->bytes : 0;
		held->all += slab->bytes;
		held->n++;
	}
}

static struct held tenant_held(const struct gantry_tenant *t, uint32_t device)
{
	struct held held = { 0 };

	held.here = gantry_loans_held(t, device, &held.all);

	gantry_list_for_each(&t->agent->sessions, struct gantry_session, link, s)
		if (s->tenant == t)
			add_held(s, device, &held);
	return held;
}

/*
 * What moves from one device to another has slabs on both until the last byte is there: so the limit is one for each
 * device, and all together may have twice as much.
 */
static bool within(const struct held *held, uint64_t more, uint64_t limit, uint64_t align)
{
	uint64_t most = with_slack(limit, align);

	if (more > most || held->here > most - more)
		return false;
	return most > UINT64_MAX / 2 || (more <= 2 * most && held->all <= 2 * most - more);
}

uint64_t gantry_slab_device_limit(const struct gantry_agent_device *d)
{
	return d->mem_bytes ? d->mem_bytes + SLACK_UNITS * d->slab_align : UINT64_MAX;
}

int gantry_slab_check_limits(const struct gantry_session *s, uint32_t device, uint32_t n,
			     uint64_t bytes, struct gantry_err *err)
{
	const struct gantry_agent_device *d = &s->agent->devices[device];
	const struct gantry_slab_pool *pool = &s->agent->pools[device];
	struct held tenant = tenant_held(s->tenant, device);
	struct held own = { 0 };

	add_held(s, device, &own);
	if (own.n + n > GANTRY_SLABS_PER_SESSION)
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "a session has at most %u slabs; it allocates too many small "
				      "buffers far apart",
				      GANTRY_SLABS_PER_SESSION);
	if (!has_descriptors(s->agent, n))
		return gantry_err_set(
			err, GANTRY_E_NO_MEMORY,
			"the host has no descriptor left for %u more slabs beside %u; "
			"raise LimitNOFILE",
			n, gantry_slab_host_count(s->agent));
	if (!within(&own, bytes, s->shape.mem_bytes, d->slab_align))
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "slabs of %" PRIu64 " and %" PRIu64
				      " bytes are more than the session may have of %" PRIu64,
				      own.here, bytes, s->shape.mem_bytes);
	if (!within(&tenant, bytes, s->tenant->conf.mem_bytes, d->slab_align))
		return gantry_err_set(err, GANTRY_E_LIMIT,
				      "tenant %s has slabs of %" PRIu64 " bytes of %" PRIu64
				      " allowed; %" PRIu64 " more are too many",
				      s->tenant->conf.name, tenant.here, s->tenant->conf.mem_bytes,
				      bytes);
	if (bytes > gantry_slab_device_limit(d) ||
	    pool->session_bytes > gantry_slab_device_limit(d) - bytes)
		return gantry_err_set(err, GANTRY_E_NO_MEMORY,
				      "device %s has %" PRIu64 " of %" PRIu64
				      " bytes in use; %" PRIu64 " more do not fit",
				      d->conf.name, pool->session_bytes, d->mem_bytes, bytes);
	return GANTRY_OK;
}

int gantry_slabs_room(const struct gantry_tenant *t, struct gantry_err *err)
{
	const struct gantry_agent *a = t->agent;
	uint64_t mask = t->device_mask & gantry_devices_serving(a);
	const struct gantry_agent_device *full = NULL;

	for (uint32_t i = 0; i < a->ndevices; i++) {
		const struct gantry_agent_device *d = &a->devices[i];
		const struct gantry_slab_pool *pool = &a->pools[i];

		if (!(mask >> i & 1))
			continue;
		if (d->slab_align == 0 ||
		    (!pool->is_short && !d->no_room &&
		     (d->mem_bytes == 0 || pool->session_bytes + d->slab_align <= d->mem_bytes)))
			return 0;
		full = d;
	}
	if (!full)
		return 0;
	return gantry_err_set(err, -ENOSPC, "device %s has no memory for another session",
			      full->conf.name);
}
