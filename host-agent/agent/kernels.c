/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Installed kernel modules: manifests are read here, images only in workers; inotify tells of
 * changes.
 */
#include "host-agent/agent/kernels.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "devices/modules.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/worker.h"

#define WATCHED (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_CREATE)
/* An installation changes several files: look when they have come to rest. */
#define SETTLE_NS    (100 * GANTRY_NS_PER_MS)
#define PROBLEMS_MAX 32u

struct gantry_kernels {
	struct gantry_agent *agent;
	int inotify_fd;
	struct event *event;
	struct event *timer;
	struct gantry_modules *dirs[GANTRY_CONFIG_MAX_DIRS]; /* NULL: cannot be read */
	uint32_t scanning; /* the folder that changed() is told of */
	unsigned int nproblems;
	struct problem {
		uint32_t dir;
		char file[NAME_MAX + 1]; /* "": the folder itself */
		char text[GANTRY_ERR_TEXT_MAX];
	} problems[PROBLEMS_MAX];
};

/* A problem is told once, and stays in the list until the file is mended or gone. */
static void forget_problem(struct gantry_kernels *k, uint32_t dir, const char *file)
{
	for (unsigned int i = 0; i < k->nproblems; i++)
		if (k->problems[i].dir == dir && strcmp(k->problems[i].file, file) == 0)
			k->problems[i--] = k->problems[--k->nproblems];
}

static void note_problem(struct gantry_kernels *k, uint32_t dir, const char *file, const char *text)
{
	struct problem *p;

	gantry_event(k->agent, "module-problem", NULL, NULL, NULL, "%s", text);
	forget_problem(k, dir, file);
	if (k->nproblems == PROBLEMS_MAX)
		return;
	p = &k->problems[k->nproblems++];
	p->dir = dir;
	(void)gantry_str_copy(p->file, sizeof(p->file), file); /* it fits */
	(void)gantry_str_copy(p->text, sizeof(p->text), text); /* for people */
}

static void changed(void *arg, const struct gantry_module_change *change)
{
	static const char *const words[] = {
		[GANTRY_MODULE_ADDED] = "added",
		[GANTRY_MODULE_CHANGED] = "changed",
		[GANTRY_MODULE_REMOVED] = "removed",
	};
	struct gantry_kernels *k = arg;

	if (change->kind == GANTRY_MODULE_REFUSED) {
		note_problem(k, k->scanning, change->file, change->err.text);
		return;
	}
	forget_problem(k, k->scanning, change->file);
	gantry_event(k->agent, "module-changed", NULL, NULL, NULL, "%s was %s", change->file,
		     words[change->kind]);
}

static void scan(struct gantry_kernels *k)
{
	const struct gantry_agent_conf *conf = &k->agent->config->agent;

	for (uint32_t i = 0; i < conf->ndirs; i++) {
		struct gantry_err err = GANTRY_ERR_NONE;
		int r;

		k->scanning = i;
		if (k->dirs[i])
			r = gantry_modules_rescan(k->dirs[i], changed, k, &err);
		else
			r = gantry_modules_open(conf->module_dirs[i], changed, k, &k->dirs[i],
						&err);
		if (r < 0)
			note_problem(k, i, "", err.text);
		else
			forget_problem(k, i, "");
	}
}

static void settled(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_kernels_rescan(arg);
}

static void on_change(evutil_socket_t fd, short what, void *arg)
{
	_Alignas(struct inotify_event) char buf[4096];
	struct gantry_agent *a = arg;

	(void)what;
	while (read((int)fd, buf, sizeof(buf)) > 0)
		; /* which file it was does not matter */
	/* or at the next change */
	(void)gantry_timer_set(a, &a->kernels->timer, SETTLE_NS, settled, a);
}

static void watch(struct gantry_kernels *k)
{
	const struct gantry_agent_conf *conf = &k->agent->config->agent;

	k->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (k->inotify_fd < 0) {
		note_problem(
			k, GANTRY_CONFIG_MAX_DIRS, "",
			"cannot watch module folders: new modules need gantryctl kernel rescan");
		return;
	}
	for (uint32_t i = 0; i < conf->ndirs; i++)
		(void)inotify_add_watch(k->inotify_fd, conf->module_dirs[i],
					WATCHED); /* scan() tells of folders that are not there */
	k->event = event_new(k->agent->base, k->inotify_fd, EV_READ | EV_PERSIST, on_change,
			     k->agent);
	if (k->event)
		(void)event_add(k->event, NULL); /* without it, as above */
}

int gantry_kernels_start(struct gantry_agent *a)
{
	struct gantry_kernels *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	k->agent = a;
	a->kernels = k;
	watch(k); /* before the scan, so that no change falls between */
	scan(k);
	return 0;
}

void gantry_kernels_stop(struct gantry_agent *a)
{
	struct gantry_kernels *k = a->kernels;

	if (!k)
		return;
	gantry_event_free(&k->event);
	gantry_event_free(&k->timer);
	gantry_fd_close(k->inotify_fd);
	for (uint32_t i = 0; i < GANTRY_CONFIG_MAX_DIRS; i++)
		if (k->dirs[i])
			gantry_modules_close(k->dirs[i]);
	free(k);
	a->kernels = NULL;
}

void gantry_kernels_rescan(struct gantry_agent *a)
{
	if (!a->kernels)
		return;
	scan(a->kernels);
	gantry_workers_rescan(a);
}

/* Whether the module has the kernel; @module of @len bytes may be "". */
static bool has_kernel(const struct gantry_module *m, const char *module, size_t len,
		       const char *name)
{
	if (len &&
	    (strlen(m->manifest->module) != len || memcmp(m->manifest->module, module, len) != 0))
		return false;
	for (uint32_t i = 0; i < m->manifest->nkernels; i++)
		if (strcmp(m->manifest->kernels[i].name, name) == 0)
			return true;
	return false;
}

uint64_t gantry_kernels_kinds(const struct gantry_agent *a, const char *name)
{
	const struct gantry_kernels *k = a->kernels;
	const char *slash = strchr(name, '/');
	const struct gantry_module *m;
	uint64_t kinds = 0;

	if (!k || !slash)
		return 0;
	for (uint32_t d = 0; d < GANTRY_CONFIG_MAX_DIRS; d++)
		for (unsigned int i = 0; k->dirs[d] && (m = gantry_modules_at(k->dirs[d], i)); i++)
			for (int kind = 0; kind < GANTRY_NKINDS; kind++)
				if (m->images[kind] &&
				    has_kernel(m, name, (size_t)(slash - name), slash + 1))
					kinds |= 1ull << kind;
	return kinds;
}

/* As a worker writes it into a ledger. */
static uint64_t sig_hash_of(const struct gantry_kernel_def *def)
{
	uint64_t hash = 0xcbf29ce484222325ull;

	for (const char *c = def->sig_text; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
	return hash;
}

static bool module_has(const struct gantry_module *m, const char *name, uint64_t sig_hash)
{
	const char *slash = strchr(name, '/');
	size_t len = slash ? (size_t)(slash - name) : 0;

	/* An image that leaves is not there for whoever comes. */
	if (!slash || m->leaving ||
	    (len > 0 && (strncmp(m->manifest->module, name, len) != 0 || m->manifest->module[len])))
		return false;
	for (uint32_t i = 0; i < m->manifest->nkernels; i++) {
		const struct gantry_kernel_def *def = &m->manifest->kernels[i];

		if (strcmp(def->name, slash + 1) == 0 &&
		    (sig_hash == 0 || sig_hash == sig_hash_of(def)))
			return true;
	}
	return false;
}

bool gantry_kernels_have(const struct gantry_agent *a, const char *name, uint64_t sig_hash)
{
	const struct gantry_module *m;

	for (uint32_t d = 0; a->kernels && d < GANTRY_CONFIG_MAX_DIRS; d++)
		for (unsigned int i = 0;
		     a->kernels->dirs[d] && (m = gantry_modules_at(a->kernels->dirs[d], i)); i++)
			if (module_has(m, name, sig_hash))
				return true;
	return false;
}

/* ---- lists ---- */

static Gantry__Admin__Kernel *list_one(const struct gantry_module *m,
				       const struct gantry_kernel_def *def, struct gantry_answer *r)
{
	Gantry__Admin__Kernel *msg = gantry_answer_take(r, sizeof(*msg));

	gantry__admin__kernel__init(msg);
	msg->name = gantry_answer_text(r, def->name);
	msg->module = gantry_answer_text(r, m->manifest->module);
	msg->module_version = m->manifest->version;
	msg->signature = gantry_answer_text(r, def->sig_text);
	msg->pure = (def->flags & GANTRY_KERNEL_PURE) != 0;
	msg->split = (def->flags & GANTRY_KERNEL_SPLIT) != 0;
	msg->kinds = gantry_answer_take(r, GANTRY_NKINDS * sizeof(*msg->kinds));
	for (int kind = 0; kind < GANTRY_NKINDS; kind++)
		if (m->images[kind])
			msg->kinds[msg->n_kinds++] = gantry_answer_text(r, gantry_kind_name(kind));
	return msg;
}

static size_t count_kernels(const struct gantry_kernels *k)
{
	const struct gantry_module *m;
	size_t n = 0;

	for (uint32_t d = 0; d < GANTRY_CONFIG_MAX_DIRS; d++)
		for (unsigned int i = 0; k->dirs[d] && (m = gantry_modules_at(k->dirs[d], i)); i++)
			n += m->manifest->nkernels;
	return n;
}

void gantry_kernels_list(struct gantry_agent *a, struct gantry_answer *r,
			 Gantry__Admin__KernelList *list)
{
	const struct gantry_kernels *k = a->kernels;
	const struct gantry_module *m;

	if (!k)
		return;
	list->kernels = gantry_answer_take(r, count_kernels(k) * sizeof(*list->kernels));
	for (uint32_t d = 0; d < GANTRY_CONFIG_MAX_DIRS; d++)
		for (unsigned int i = 0; k->dirs[d] && (m = gantry_modules_at(k->dirs[d], i)); i++)
			for (uint32_t n = 0; n < m->manifest->nkernels; n++)
				list->kernels[list->n_kernels++] =
					list_one(m, &m->manifest->kernels[n], r);
	list->problems = gantry_answer_take(r, k->nproblems * sizeof(*list->problems));
	for (unsigned int i = 0; i < k->nproblems; i++)
		list->problems[list->n_problems++] = gantry_answer_text(r, k->problems[i].text);
}
