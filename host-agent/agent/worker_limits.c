/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/worker_limits.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/cgroup.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

#define PROC "/proc"

/* ---- start ---- */

static void tell_missing(struct gantry_agent *a)
{
	const struct gantry_cgroups *c = a->cgroups;

	if (!c->usable && c->why_not[0])
		gantry_event(a, "cgroup-missing", NULL, NULL, NULL, "workers get no cgroup: %s",
			     c->why_not);
	for (int i = 0; c->usable && i < (int)GANTRY_CGROUP_NCONTROLLERS; i++)
		if (c->missing[i][0])
			gantry_event(a, "cgroup-missing", NULL, NULL, NULL,
				     "workers have no %s limit: %s", gantry_cgroup_name(i),
				     c->missing[i]);
}

void gantry_limits_start(struct gantry_agent *a)
{
	struct gantry_cgroup_where where = {
		.proc = PROC,
		.systemd = "/run/systemd/system",
		.setting = a->config->agent.cgroup,
		.own = { getpid(), a->monitor_fd >= 0 ? a->monitor_pid : 0 },
	};
	struct stat st;

	if (a->cgroups)
		gantry_cgroups_close(a->cgroups);
	else
		a->cgroups = calloc(1, sizeof(*a->cgroups));
	if (!a->cgroups) {
		gantry_log(GANTRY_LOG_WARN, "no memory for cgroups");
		return;
	}
	/* The run directory is one agent's at a time, and its successor's. */
	if (stat(a->args.run_dir, &st) == 0)
		(void)gantry_str_format(where.key, sizeof(where.key), "%" PRIx64,
					/* it fits */
					((uint64_t)st.st_dev << 32 ^ st.st_ino) &
						UINT64_C(0xffffffffffff));
	gantry_cgroups_open(a->cgroups, &where);
	tell_missing(a);
}

void gantry_limits_stop(struct gantry_agent *a)
{
	if (a->cgroups)
		gantry_cgroups_close(a->cgroups);
	free(a->cgroups);
	a->cgroups = NULL;
}

void gantry_limits_prepare(struct gantry_worker *w, char path[PATH_MAX])
{
	path[0] = '\0';
	if (w->agent->cgroups && gantry_cgroup_make(w->agent->cgroups, w->id, path, PATH_MAX) < 0)
		path[0] = '\0'; /* what is missing is told when the worker is ready */
}

void gantry_limits_drop(struct gantry_worker *w)
{
	if (w->agent->cgroups)
		gantry_cgroup_remove(w->agent->cgroups, w->id);
}

/* ---- bounds ---- */

static bool serves(const struct gantry_worker *w, const struct gantry_tenant *t)
{
	struct gantry_worker_class class;

	gantry_tenant_class(t, &class);
	if (w->class.mode == GANTRY_POOLED)
		return !t->removed && gantry_worker_class_equal(&class, &w->class);
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		if (s->tenant == t)
			return true;
	return false;
}

static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX / 2 || b > UINT64_MAX / 2 - a ? UINT64_MAX / 2 : a + b;
}

/*
 * A group gets the most that one of its tenants gets; their memory together. 0 is without bound,
 * and stays so.
 */
static struct gantry_cgroup_limits bounds_of(const struct gantry_worker *w)
{
	struct gantry_cgroup_limits l = { 0 };
	uint64_t granted = GANTRY_LIMITS_SLACK_BYTES, own = 0;
	bool any = false, no_cpu = false, no_mem = false, no_pids = false;

	gantry_list_for_each(&w->agent->tenants, struct gantry_tenant, link, t) {
		const struct gantry_tenant_conf *conf = &t->conf;

		if (!serves(w, t))
			continue;
		any = true;
		no_cpu = no_cpu || conf->worker_cpu.milli == 0;
		no_mem = no_mem || conf->worker_mem_bytes == 0;
		no_pids = no_pids || conf->worker_pids == 0;
		l.cpu_milli = GANTRY_MAX(l.cpu_milli, conf->worker_cpu.milli);
		l.cpu_weight = GANTRY_MAX(l.cpu_weight, conf->worker_cpu.weight);
		l.pids = GANTRY_MAX(l.pids, conf->worker_pids);
		own = GANTRY_MAX(own, conf->worker_mem_bytes);
		granted = sum(granted, sum(conf->mem_bytes, conf->host_mem_bytes));
	}
	if (no_cpu)
		l.cpu_milli = 0;
	if (no_pids)
		l.pids = 0;
	if (any && !no_mem)
		l.mem_bytes = sum(granted, own);
	return l;
}

/* ---- what holds ---- */

static void add_line(char *text, size_t cap, const char *what, const char *reason)
{
	size_t len = strlen(text);

	(void)gantry_str_format(text + len, cap - len, "%s%s%s%s", len ? "\n" : "", what,
				reason ? ": " : "", reason ? reason : ""); /* for people */
}

static void report(struct gantry_worker *w, bool placed, uint32_t held)
{
	const struct gantry_cgroups *c = w->agent->cgroups;
	char name[32];

	if (!placed) {
		add_line(w->unconfined, sizeof(w->unconfined), "cgroup",
			 c && c->why_not[0] ? c->why_not
			 : c && c->usable   ? "it could not enter the group that was made for it"
					    : "switched off");
		return;
	}
	add_line(w->confined, sizeof(w->confined), "cgroup", NULL);
	for (int i = 0; i < (int)GANTRY_CGROUP_NCONTROLLERS; i++) {
		/* it fits */
		(void)gantry_str_format(name, sizeof(name), "cgroup.%s", gantry_cgroup_name(i));
		if (held & 1u << i)
			add_line(w->confined, sizeof(w->confined), name, NULL);
		else
			add_line(w->unconfined, sizeof(w->unconfined), name, c->missing[i]);
	}
}

/* A worker of root's without a user of its own is worth a line: it owns root's files. */
static void report_user(struct gantry_worker *w)
{
	const struct gantry_agent_conf *conf = &w->agent->config->agent;

	if (conf->confine && geteuid() == 0 && conf->worker_uid == 0)
		add_line(
			w->unconfined, sizeof(w->unconfined), "uid",
			"it runs as root: there is no user gantry-worker, and worker_user names none");
}

void gantry_limits_apply(struct gantry_worker *w)
{
	struct gantry_cgroup_limits limits = bounds_of(w);
	struct gantry_cgroups *c = w->agent->cgroups;
	bool placed = c && gantry_cgroup_holds(c, PROC, w->id, w->pid);
	uint32_t held = placed ? gantry_cgroup_limit(c, w->id, &limits) : 0;

	w->confined[w->confined_len] = '\0';
	w->unconfined[w->unconfined_len] = '\0';
	report_user(w);
	report(w, placed, held);
}

void gantry_limits_apply_all(struct gantry_agent *a)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->state == GANTRY_WORKER_WARM || w->state == GANTRY_WORKER_BUSY)
			gantry_limits_apply(w);
}

bool gantry_limits_describe(const struct gantry_agent *a, char *text, size_t cap)
{
	const struct gantry_cgroups *c = a->cgroups;
	bool all = true;

	text[0] = '\0';
	if (!c || !c->usable) {
		/* for people */
		(void)gantry_str_copy(text, cap, c && c->why_not[0] ? c->why_not : "switched off");
		return false;
	}
	for (int i = 0; i < (int)GANTRY_CGROUP_NCONTROLLERS; i++) {
		size_t len = strlen(text);

		if (!c->missing[i][0])
			continue;
		all = false;
		(void)gantry_str_format(text + len, cap - len, "%s%s: %s", len ? "; " : "",
					gantry_cgroup_name(i), c->missing[i]); /* for people */
	}
	if (all)
		/* for people */
		(void)gantry_str_format(text, cap, "each worker has one below %s", c->base);
	return all;
}
