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

/* ---- for an agent after this one: which descriptor is kept does not matter ---- */

static void keep_door(const struct gantry_tenant *t)
{
	gantry_keep_drop_tree(t->agent, "vd/%u/", t->slot);
	if (t->drain.is_on || t->drain.end_unix_ns || t->ivshmem_bytes)
		gantry_keep(t->agent, t->quota_fd, GANTRY_KEPT_DOOR_STATE, t->slot, t->drain.is_on,
			    (unsigned long long)t->drain.end_unix_ns,
			    (unsigned long long)t->ivshmem_bytes);
}

static void keep_machine(const struct gantry_machine *m)
{
	unsigned long long id = m->mem->id;

	gantry_keep_drop_tree(m->agent, "m/%llx/leaving/", id);
	if (m->drain.is_on)
		gantry_keep(m->agent, m->mem->fd, GANTRY_KEPT_LEAVING, id,
			    (unsigned long long)m->drain.end_unix_ns);
}

/* ---- one drain ---- */

static void set_reason(struct gantry_drain *d, const char *reason)
{
	(void)gantry_str_format(
		d->reason, sizeof(d->reason), "%s",
		reason[0] ? reason : "the device is about to be taken away"); /* cut is fine */
}

static void door_time_is_up(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_tenant *t = arg;

	(void)fd;
	(void)what;
	t->drain.end_unix_ns = 0;
	keep_door(t);
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		if (m->mem->state == GANTRY_DOORMEM_DRAIN)
			gantry_doormem_evict(m->mem, t->drain.reason);
}

static void machine_time_is_up(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_machine *m = arg;

	(void)fd;
	(void)what;
	m->drain.end_unix_ns = 0;
	keep_machine(m);
	gantry_doormem_evict(m->mem, m->drain.reason);
}

/* Without memory for a timer they are ended at once, rather than never. */
static void end_after(struct gantry_agent *a, struct gantry_drain *d, uint64_t ns,
		      event_callback_fn time_is_up, void *arg)
{
	d->end_unix_ns = gantry_unix_now_ns() + ns;
	if (gantry_timer_set(a, &d->timer, ns, time_is_up, arg) < 0)
		time_is_up(-1, 0, arg);
}

static void stop(struct gantry_drain *d)
{
	gantry_event_free(&d->timer);
	d->end_unix_ns = 0;
	d->is_on = false;
}

/* As the door and its own drain say. */
static void apply(struct gantry_machine *m)
{
	bool drain = m->drain.is_on || m->tenant->drain.is_on;

	gantry_doormem_drain(m->mem, drain);
	if (!drain)
		(void)gantry_doormem_look(m->mem); /* who waited is served */
}

static struct gantry_machine *find(struct gantry_tenant *t, uint64_t id)
{
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		if (m->mem->id == id)
			return m;
	return NULL;
}

/* ---- beginning and end ---- */

static void begin_machine(struct gantry_machine *m, uint64_t deadline_ns, const char *reason)
{
	set_reason(&m->drain, reason);
	m->drain.is_on = true;
	apply(m);
	if (deadline_ns != UINT64_MAX)
		end_after(m->agent, &m->drain, deadline_ns, machine_time_is_up, m);
	keep_machine(m);
}

static void begin_door(struct gantry_tenant *t, uint64_t deadline_ns, const char *reason)
{
	set_reason(&t->drain, reason);
	t->drain.is_on = true;
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		apply(m);
	if (deadline_ns != UINT64_MAX)
		end_after(t->agent, &t->drain, deadline_ns, door_time_is_up, t);
	keep_door(t);
}

int gantry_drain_begin(struct gantry_tenant *t, uint64_t id, uint64_t deadline_ns,
		       const char *reason)
{
	struct gantry_machine *m = id ? find(t, id) : NULL;

	if (id && !m)
		return -ENOENT;
	if (m)
		begin_machine(m, deadline_ns, reason);
	else
		begin_door(t, deadline_ns, reason);
	gantry_event(t->agent, "door-drained", t, NULL, NULL, "%s",
		     m ? m->drain.reason : t->drain.reason);
	return 0;
}

void gantry_drain_end(struct gantry_tenant *t, uint64_t bytes)
{
	stop(&t->drain);
	t->ivshmem_bytes = bytes;
	keep_door(t);
	gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
		apply(m);
	gantry_event(t->agent, "door-opened", t, NULL, NULL, "the next machine gets %llu bytes",
		     (unsigned long long)gantry_ivshmem_bytes(t));
}

int gantry_drain_end_one(struct gantry_tenant *t, uint64_t id)
{
	struct gantry_machine *m = find(t, id);

	if (!m)
		return -ENOENT;
	stop(&m->drain);
	keep_machine(m);
	apply(m);
	gantry_event(t->agent, "door-opened", t, NULL, NULL, "machine %llu keeps its device",
		     (unsigned long long)id);
	return 0;
}

void gantry_drain_size_taken(struct gantry_tenant *t)
{
	if (t->ivshmem_bytes == 0)
		return;
	t->ivshmem_bytes = 0;
	keep_door(t);
}

void gantry_drain_forget(struct gantry_tenant *t)
{
	gantry_event_free(&t->drain.timer);
	gantry_keep_drop_tree(t->agent, "vd/%u/", t->slot);
}

/* ---- after a restart ---- */

static uint64_t left_ns(uint64_t unix_ns)
{
	uint64_t now_ns = gantry_unix_now_ns();

	return unix_ns > now_ns ? unix_ns - now_ns : 0;
}

/* Takes the first name with this prefix out of what was handed to us. */
static bool take_name(struct gantry_agent *a, const char *prefix,
		      char ret_name[GANTRY_MONITOR_NAME_MAX])
{
	for (size_t i = 0; i < a->handed.nentries; i++) {
		if (!gantry_str_starts(a->handed.entries[i].name, prefix))
			continue;
		/* the same size */
		(void)gantry_str_copy(ret_name, GANTRY_MONITOR_NAME_MAX, a->handed.entries[i].name);
		gantry_fd_close(gantry_store_take(&a->handed, ret_name));
		return true;
	}
	return false;
}

static void restore_door(struct gantry_tenant *t)
{
	char prefix[16], name[GANTRY_MONITOR_NAME_MAX];
	unsigned long long unix_ns, bytes;
	unsigned int slot, drain;

	(void)gantry_str_format(prefix, sizeof(prefix), "vd/%u/", t->slot); /* it fits */
	if (!take_name(t->agent, prefix, name) ||
	    sscanf(name, GANTRY_KEPT_DOOR_STATE, &slot, &drain, &unix_ns, &bytes) != 4)
		return;
	t->drain.is_on = drain;
	t->ivshmem_bytes = bytes;
	set_reason(&t->drain, "");
	if (unix_ns)
		end_after(t->agent, &t->drain, left_ns(unix_ns), door_time_is_up, t);
	keep_door(t);
}

/* One that is drained although its door is not was drained by number, whatever else is known of that. */
static void restore_machine(struct gantry_machine *m)
{
	char prefix[GANTRY_MONITOR_NAME_MAX], name[GANTRY_MONITOR_NAME_MAX];
	unsigned long long id, unix_ns = 0;
	bool is_kept;

	(void)gantry_str_format(prefix, sizeof(prefix), "m/%llx/leaving/",
				(unsigned long long)m->mem->id); /* it fits */
	is_kept = take_name(m->agent, prefix, name) &&
		  sscanf(name, GANTRY_KEPT_LEAVING, &id, &unix_ns) == 2;
	m->drain.is_on = is_kept ||
			 (m->mem->state == GANTRY_DOORMEM_DRAIN && !m->tenant->drain.is_on);
	if (!m->drain.is_on)
		return;
	set_reason(&m->drain, "");
	if (unix_ns)
		end_after(m->agent, &m->drain, left_ns(unix_ns), machine_time_is_up, m);
	keep_machine(m);
}

void gantry_drain_restore(struct gantry_agent *a)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		restore_door(t);
		gantry_list_for_each(&t->machines, struct gantry_machine, link, m)
			restore_machine(m);
	}
}
