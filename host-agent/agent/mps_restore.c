/* SPDX-License-Identifier: Apache-2.0 */
/* The control daemons of an agent that died, from what the monitor kept; and what nobody kept is told to end. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/mps_inside.h"
#include "host-agent/agent/mps_run.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"

static void restore_one(struct gantry_agent *a, uint64_t id, pid_t pid, uid_t uid,
			const char *group, int pidfd)
{
	struct gantry_mps *m = gantry_mps_new(a, id, group);

	if (id >= a->next_worker_id)
		a->next_worker_id = id + 1;
	if (!m) {
		gantry_fd_close(pidfd);
		return;
	}
	m->pid = pid;
	m->uid = uid;
	m->pidfd = pidfd;
	m->state = GANTRY_MPS_READY;
	if (gantry_mps_watch_daemon(m) < 0) {
		gantry_mps_fail(m, "no memory to watch it");
		return;
	}
	gantry_mps_ask_server(m);
}

static void swept(void *arg, bool ok, const char *answer)
{
	_cleanup_free_ char *dir = arg;

	(void)ok;
	(void)answer;
	gantry_mps_remove_folders(dir);
}

/* Folders whose daemon nobody kept: its agent and monitor died together. */
static void sweep(struct gantry_agent *a)
{
	char path[PATH_MAX];
	const struct dirent *e;
	DIR *dir;

	if (gantry_str_format(path, sizeof(path), "%s/mps", a->args.run_dir) < 0)
		return;
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		bool ours = !isxdigit((unsigned char)e->d_name[0]);
		char *old = NULL;

		gantry_list_for_each(&a->mps, struct gantry_mps, link, m)
			ours = ours || strtoull(e->d_name, NULL, 16) == m->id;
		if (ours || asprintf(&old, "%s/%s", path, e->d_name) < 0)
			continue;
		if (gantry_mps_run(a, old, GANTRY_MPS_SAY_QUIT, GANTRY_MPS_RUN_NS, swept, old) < 0)
			free(old);
	}
	if (dir)
		closedir(dir);
}

void gantry_mps_restore(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		char group[GANTRY_CONFIG_NAME + 8];
		unsigned long long id;
		unsigned int uid;
		int pid;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		static_assert(sizeof(group) > 39, "a group's name fits");
		if (sscanf(name, "mps/%llx/%d/%u/%39s", &id, &pid, &uid, group) != 4) {
			i++;
			continue;
		}
		restore_one(a, id, pid, uid, group, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
	sweep(a);
	gantry_mps_settle(a);
}

void gantry_mps_rejoin(struct gantry_worker *w)
{
	struct gantry_store *handed = &w->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX];

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "w/%" PRIx64 "/mps/", w->id);
	for (size_t i = 0; i < handed->nentries; i++) {
		const char *name = handed->entries[i].name;
		unsigned long long id;

		if (!gantry_str_starts(name, prefix))
			continue;
		id = strtoull(name + strlen(prefix), NULL, 16);
		gantry_fd_close(gantry_store_take(handed, name));
		gantry_list_for_each(&w->agent->mps, struct gantry_mps, link, m)
			if (m->id == id) {
				gantry_mps_join(m, w);
				return;
			}
		w->stale = true; /* its daemon ended meanwhile */
		return;
	}
}
