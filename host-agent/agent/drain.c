/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/drain.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/protocol.h"
#include "host-agent/monitor/store.h"

/* For an agent after this one. */
static void keep_state(const struct gantry_tenant *t)
{
	gantry_keep_drop_tree(t->agent, "vd/%u/", t->slot);
	/* Which descriptor it is does not matter. */
	if (t->ivshmem_drain || t->drain_unix_ns || t->ivshmem_bytes)
		gantry_keep(t->agent, t->quota_fd, GANTRY_KEPT_DOOR_STATE, t->slot,
			    t->ivshmem_drain, (unsigned long long)t->drain_unix_ns,
			    (unsigned long long)t->ivshmem_bytes);
}

static void drained_long_enough(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)fd;
	(void)what;
	t->drain_unix_ns = 0;
	keep_state(t);
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		if (m->mem->state == GANTRY_DOORMEM_DRAIN)
			gantry_doormem_evict(m->mem, t->drain_reason);
}

/* Without memory for a timer they are ended at once, rather than never. */
static void evict_after(struct gantry_tenant *t, uint64_t ns)
{
	t->drain_unix_ns = gantry_unix_now_ns() + ns;
	if (gantry_timer_set(t->agent, &t->drain_timer, ns, drained_long_enough, t) < 0)
		drained_long_enough(-1, 0, t);
}

static void set_reason(struct gantry_tenant *t, const char *reason)
{
	(void)gantry_str_format(
		t->drain_reason, sizeof(t->drain_reason), "%s",
		reason[0] ? reason : "the device is about to be taken away"); /* cut is fine */
}

int gantry_drain_begin(struct gantry_tenant *t, uint64_t id, uint64_t deadline_ns,
		       const char *reason)
{
	bool found = id == 0;

	set_reason(t, reason);
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		if (id == 0 || m->mem->id == id) {
			gantry_doormem_drain(m->mem, true);
			found = true;
		}
	if (!found)
		return -ENOENT;
	t->ivshmem_drain = t->ivshmem_drain || id == 0;
	gantry_event(t->agent, "door-drained", t, NULL, NULL, "%s", t->drain_reason);
	if (deadline_ns != UINT64_MAX)
		evict_after(t, deadline_ns);
	keep_state(t);
	return 0;
}

void gantry_drain_end(struct gantry_tenant *t, uint64_t bytes)
{
	gantry_event_free(&t->drain_timer);
	t->drain_unix_ns = 0;
	t->ivshmem_drain = false;
	t->ivshmem_bytes = bytes;
	keep_state(t);
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m) {
		gantry_doormem_drain(m->mem, false);
		(void)gantry_doormem_look(m->mem); /* who waited is served */
	}
	gantry_event(t->agent, "door-opened", t, NULL, NULL, "the next machine gets %llu bytes",
		     (unsigned long long)gantry_ivshmem_bytes(t));
}

void gantry_drain_size_taken(struct gantry_tenant *t)
{
	if (t->ivshmem_bytes == 0)
		return;
	t->ivshmem_bytes = 0;
	keep_state(t);
}

void gantry_drain_forget(struct gantry_tenant *t)
{
	gantry_event_free(&t->drain_timer);
	gantry_keep_drop_tree(t->agent, "vd/%u/", t->slot);
}

/* ---- after a restart ---- */

static void restore_state(struct gantry_tenant *t, const char *name)
{
	unsigned long long unix_ns, bytes;
	uint64_t now_ns = gantry_unix_now_ns();
	unsigned int slot, drain;

	if (sscanf(name, GANTRY_KEPT_DOOR_STATE, &slot, &drain, &unix_ns, &bytes) != 4)
		return;
	t->ivshmem_drain = drain;
	t->ivshmem_bytes = bytes;
	set_reason(t, "");
	if (unix_ns)
		evict_after(t, unix_ns > now_ns ? unix_ns - now_ns : 0);
	keep_state(t);
}

void gantry_drain_restore(struct gantry_agent *a)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		char prefix[16], name[GANTRY_MONITOR_NAME_MAX] = "";

		(void)gantry_str_format(prefix, sizeof(prefix), "vd/%u/", t->slot); /* it fits */
		for (size_t i = 0; i < a->handed.nentries; i++)
			if (gantry_str_starts(a->handed.entries[i].name, prefix))
				/* the same size */
				(void)gantry_str_copy(name, sizeof(name),
						      a->handed.entries[i].name);
		if (!name[0])
			continue;
		gantry_fd_close(gantry_store_take(&a->handed, name));
		restore_state(t, name);
	}
}
