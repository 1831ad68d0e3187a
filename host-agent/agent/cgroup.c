/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#define FILE_MAX      (1024u * 1024u)
#define CPU_PERIOD_US 100000u /* the kernel's default */
#define CLOSE_NS      (200 * GANTRY_NS_PER_MS)

static const char *const controllers[GANTRY_CGROUP_NCONTROLLERS] = { "cpu", "memory", "pids" };

const char *gantry_cgroup_name(enum gantry_cgroup_controller controller)
{
	return controllers[controller];
}

/* ---- small files ---- */

/*
 * One write: the kernel takes a value whole or not at all. No O_CREAT: a file that is not there is
 * not ours to make.
 */
static int put(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];
	size_t len = strlen(text);
	int fd, r = 0;

	if (gantry_str_format(path, sizeof(path), "%s/%s", dir, file) < 0)
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, len) != (ssize_t)len)
		r = errno ? -errno : -EIO;
	gantry_fd_close(fd);
	return r;
}

static char *get(const char *dir, const char *file)
{
	char path[PATH_MAX], *text = NULL;

	if (gantry_str_format(path, sizeof(path), "%s/%s", dir, file) < 0 ||
	    gantry_file_read(path, FILE_MAX, &text, NULL) < 0)
		return NULL;
	return text;
}

static bool has(const char *dir, const char *file)
{
	char path[PATH_MAX];

	return gantry_str_format(path, sizeof(path), "%s/%s", dir, file) == 0 &&
	       access(path, F_OK) == 0;
}

static bool has_word(const char *text, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = text; at && (at = strstr(at, word)); at += len)
		if ((at == text || strchr(" \n", at[-1])) && (!at[len] || strchr(" \n", at[len])))
			return true;
	return false;
}

/* ---- where ---- */

/* The line of the v2 hierarchy: "0::/path". */
static int own_group(const char *proc, const char *pid, char *ret_path, size_t cap)
{
	char file[64];
	_cleanup_free_ char *text = NULL;
	char *line, *save = NULL;

	(void)gantry_str_format(file, sizeof(file), "%s/cgroup", pid); /* it fits */
	text = get(proc, file);
	if (!text)
		return -ENOENT;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (gantry_str_starts(line, "0::/"))
			return gantry_str_copy(ret_path, cap, line + 3);
	return -ENOENT;
}

/* mountinfo: ID PARENT DEV ROOT POINT OPTIONS... - TYPE SOURCE OPTIONS. */
static int v2_mount(const char *proc, char *ret_root, char *ret_point, size_t cap)
{
	_cleanup_free_ char *text = get(proc, "self/mountinfo");
	char *line, *save = NULL;

	if (!text)
		return -ENOENT;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char root[PATH_MAX / 2], point[PATH_MAX / 2];

		if (strstr(line, " - cgroup2 ") &&
		    sscanf(line, "%*s %*s %*s %2047s %2047s", root, point) == 2 &&
		    gantry_str_copy(ret_root, cap, root) == 0 &&
		    gantry_str_copy(ret_point, cap, point) == 0)
			return 0;
	}
	return -ENOENT;
}

static void cannot(struct gantry_cgroups *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void cannot(struct gantry_cgroups *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(c->why_not, sizeof(c->why_not), fmt, ap); /* a longer one is cut */
	va_end(ap);
}

/* Our own group as a folder. An agent that was restarted finds itself in the leaf that it made. */
static int find_base(struct gantry_cgroups *c, const char *proc)
{
	char group[PATH_MAX / 2], root[PATH_MAX / 2], point[PATH_MAX / 2], leaf[40];
	const char *below = group;
	char *slash;

	if (v2_mount(proc, root, point, sizeof(root)) < 0) {
		cannot(c, "no cgroup2 file system is mounted");
		return -ENOENT;
	}
	if (own_group(proc, "self", group, sizeof(group)) < 0) {
		cannot(c, "this process is in no group of version 2");
		return -ENOENT;
	}
	if (strcmp(root, "/") != 0 && gantry_str_starts(group, root))
		below += strlen(root);
	if (gantry_str_starts(below, "/..")) {
		cannot(c, "the agent's own group lies outside what %s shows", point);
		return -ENOENT;
	}
	(void)gantry_str_format(leaf, sizeof(leaf), "/gantryd-%s", c->key); /* it fits */
	slash = strrchr(group, '/');
	if (slash && strcmp(slash, leaf) == 0)
		*slash = '\0';
	return gantry_str_format(c->base, sizeof(c->base), "%s%s", point,
				 strcmp(below, "/") == 0 ? "" : below);
}

static bool delegated(const char *path)
{
	char value[8] = "";

	return (getxattr(path, "trusted.delegate", value, sizeof(value) - 1) > 0 &&
		value[0] == '1') ||
	       (getxattr(path, "user.delegate", value, sizeof(value) - 1) > 0 && value[0] == '1');
}

/* A process of BASE that is not one of @own; those of another pid namespace have number 0. */
static bool stranger(const char *base, const pid_t own[2], pid_t *ret_pid)
{
	_cleanup_free_ char *text = get(base, "cgroup.procs");
	char *save = NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		pid_t pid = (pid_t)atoi(line);

		if (pid > 0 && (pid == own[0] || pid == own[1]))
			continue;
		*ret_pid = pid;
		return true;
	}
	return false;
}

static void folder(const struct gantry_cgroups *c, char *path, size_t cap)
{
	(void)gantry_str_format(path, cap, "%s/gantry-%s", c->base, c->key); /* base leaves room */
}

static void worker_folder(const struct gantry_cgroups *c, uint64_t worker_id, char *path,
			  size_t cap)
{
	/* likewise */
	(void)gantry_str_format(path, cap, "%s/gantry-%s/w-%" PRIu64, c->base, c->key, worker_id);
}

static int make_folder(const char *path)
{
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Processes live in leaves only. The real root is the exception, and is told by what it lacks. */
static int move_to_leaf(struct gantry_cgroups *c, const struct gantry_cgroup_where *where)
{
	char leaf[PATH_MAX], text[16];
	pid_t other;
	int r;

	if (!has(c->base, "cgroup.events"))
		return 0;
	if (stranger(c->base, where->own, &other)) {
		cannot(c, "other processes (pid %d) live in %s", (int)other, c->base);
		return -EBUSY;
	}
	/* base leaves room */
	(void)gantry_str_format(leaf, sizeof(leaf), "%s/gantryd-%s", c->base, c->key);
	r = make_folder(leaf);
	for (int i = 0; i < 2 && r == 0; i++) {
		if (where->own[i] <= 0)
			continue;
		(void)gantry_str_format(text, sizeof(text), "%d", (int)where->own[i]); /* it fits */
		r = put(leaf, "cgroup.procs", text);
	}
	if (r < 0)
		cannot(c, "moving the agent to %s: %s", leaf, strerror(-r));
	return r;
}

/* ---- controllers ---- */

static int enable(const char *dir, const char *controller)
{
	char word[16];
	_cleanup_free_ char *now = get(dir, "cgroup.subtree_control");

	if (has_word(now, controller))
		return 0;
	(void)gantry_str_format(word, sizeof(word), "+%s", controller); /* it fits */
	return put(dir, "cgroup.subtree_control", word);
}

static void enable_all(struct gantry_cgroups *c)
{
	_cleanup_free_ char *available = get(c->base, "cgroup.controllers");
	char path[PATH_MAX];

	folder(c, path, sizeof(path));
	for (uint32_t i = 0; i < GANTRY_CGROUP_NCONTROLLERS; i++) {
		char *reason = c->missing[i];
		int r;

		reason[0] = '\0';
		if (!has_word(available, controllers[i])) {
			(void)snprintf(reason, GANTRY_CGROUP_REASON, "%.100s has no controller %s",
				       c->base, controllers[i]);
			continue;
		}
		r = enable(c->base, controllers[i]);
		if (r == 0)
			r = enable(path, controllers[i]);
		if (r < 0)
			(void)snprintf(reason, GANTRY_CGROUP_REASON, "enabling it in %.100s: %s",
				       c->base, strerror(-r));
	}
}

/* ---- removing ---- */

/*
 * A process leaves its group a moment after its end was told: wait until the kernel says that @name is
 * empty. False: it does not in time.
 */
static bool becomes_empty(int dir, const char *name, uint64_t until_ns)
{
	int group = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd = openat(group, "cgroup.events", O_RDONLY | O_CLOEXEC);
	struct pollfd p = { .fd = fd, .events = POLLPRI };
	uint64_t now_ns = gantry_now_ns();
	char text[64];

	gantry_fd_close(group);
	if (fd < 0 || now_ns >= until_ns)
		return false;
	(void)!read(fd, text, sizeof(text)); /* changes from here on are told */
	if (unlinkat(dir, name, AT_REMOVEDIR) < 0)
		(void)poll(&p, 1,
			   (int)((until_ns - now_ns) / GANTRY_NS_PER_MS) +
				   1); /* the next try tells */
	return true;
}

/* Folders of workers that no process is in. The kernel refuses the others. */
static void sweep_workers(const char *path, uint64_t until_ns)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (gantry_str_starts(entry->d_name, "w-"))
			while (unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) < 0 &&
			       errno == EBUSY && until_ns &&
			       becomes_empty(dirfd(dir), entry->d_name, until_ns))
				;
	if (dir)
		closedir(dir);
}

static void sweep(const struct gantry_cgroups *c, uint64_t until_ns)
{
	char path[PATH_MAX];

	folder(c, path, sizeof(path));
	sweep_workers(path, until_ns);
}

/* The folder of some agent, by its name: "gantry-" and a key in hexadecimal. */
static bool is_agents(const char *name)
{
	const char *key = name + strlen("gantry-");

	return gantry_str_starts(name, "gantry-") && *key &&
	       key[strspn(key, "0123456789abcdef")] == '\0';
}

/* What agents left that were killed with all their workers. A living one makes its folders again. */
static void sweep_strangers(const struct gantry_cgroups *c)
{
	DIR *dir = opendir(c->base);
	struct dirent *entry;
	char path[PATH_MAX];

	while (dir && (entry = readdir(dir))) {
		if (!is_agents(entry->d_name) ||
		    strcmp(entry->d_name + strlen("gantry-"), c->key) == 0 ||
		    gantry_str_format(path, sizeof(path), "%s/%s", c->base, entry->d_name) < 0)
			continue;
		sweep_workers(path, 0);
		(void)rmdir(path); /* one in use stays */
	}
	if (dir)
		closedir(dir);
}

/* ---- the calls ---- */

void gantry_cgroups_open(struct gantry_cgroups *c, const struct gantry_cgroup_where *where)
{
	bool automatic = strcmp(where->setting, "auto") == 0;
	char path[PATH_MAX];
	int r = 0;

	*c = (struct gantry_cgroups){ 0 };
	(void)gantry_str_copy(c->key, sizeof(c->key), where->key); /* the same size */
	if (strcmp(where->setting, "off") == 0)
		return;
	if (automatic) {
		if (find_base(c, where->proc) < 0)
			return;
		if (access(where->systemd, F_OK) == 0 && !delegated(c->base)) {
			cannot(c,
			       "%s was not delegated: run gantryd as a service with Delegate=yes",
			       c->base);
			return;
		}
	} else if (gantry_str_copy(c->base, sizeof(c->base), where->setting) < 0) {
		cannot(c, "the name of the configured folder is too long");
		return;
	} else {
		r = make_folder(c->base);
	}
	if (r == 0 && !has(c->base, "cgroup.procs"))
		r = -ENOTDIR;
	folder(c, path, sizeof(path));
	if (r == 0)
		r = make_folder(path);
	if (r < 0) {
		cannot(c, "making groups in %s: %s", c->base,
		       r == -ENOTDIR ? "it is no cgroup of version 2" : strerror(-r));
		return;
	}
	if (automatic && move_to_leaf(c, where) < 0) {
		(void)rmdir(path); /* or it is in use */
		return;
	}
	c->usable = true;
	sweep(c, 0);
	sweep_strangers(c);
	enable_all(c);
}

void gantry_cgroups_close(struct gantry_cgroups *c)
{
	char path[PATH_MAX];

	if (!c->usable)
		return;
	sweep(c, gantry_now_ns() + CLOSE_NS);
	folder(c, path, sizeof(path));
	(void)rmdir(path); /* or a worker outlives us in it */
	c->usable = false;
}

int gantry_cgroup_make(struct gantry_cgroups *c, uint64_t worker_id, char *ret_path, size_t cap)
{
	char path[PATH_MAX];

	if (!c->usable)
		return -ENOENT;
	folder(c, path, sizeof(path));
	if (mkdir(path, 0755) == 0)
		enable_all(c); /* somebody had tidied up */
	worker_folder(c, worker_id, path, sizeof(path));
	if (gantry_str_copy(ret_path, cap, path) < 0)
		return -ENAMETOOLONG;
	return make_folder(path);
}

static int enter(const char *path)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = dir < 0 ? -1 : openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	int r = fd >= 0 && write(fd, "0", 1) == 1 ? 0 : -errno;

	gantry_fd_close(fd);
	gantry_fd_close(dir);
	return r;
}

int gantry_cgroup_enter(const char *path)
{
	int r = enter(path);
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (r != -ENOENT || len == 0 || len >= sizeof(parent))
		return r;
	/* Another agent that starts just now may have taken it for a leftover. */
	memcpy(parent, path, len);
	parent[len] = '\0';
	(void)mkdir(parent, 0755); /* or it is there */
	(void)mkdir(path, 0755);   /* likewise */
	return enter(path);
}

static int put_number(const char *path, const char *file, uint64_t value)
{
	char text[24];

	(void)gantry_str_format(text, sizeof(text), "%" PRIu64, value); /* it fits */
	return put(path, file, value ? text : "max");
}

static int put_cpu(const char *path, const struct gantry_cgroup_limits *limits)
{
	uint64_t quota_us = (uint64_t)limits->cpu_milli * CPU_PERIOD_US / 1000;
	char text[48];
	int r = put_number(path, "cpu.weight",
			   limits->cpu_weight ? limits->cpu_weight : GANTRY_CGROUP_CPU_WEIGHT);

	if (quota_us)
		/* it fits */
		(void)gantry_str_format(text, sizeof(text), "%" PRIu64 " %u", quota_us,
					CPU_PERIOD_US);
	else
		(void)gantry_str_format(text, sizeof(text), "max %u", CPU_PERIOD_US); /* it fits */
	return r == 0 ? put(path, "cpu.max", text) : r;
}

static void bound(struct gantry_cgroups *c, enum gantry_cgroup_controller controller, int r,
		  uint32_t *held)
{
	if (r == 0)
		*held |= 1u << controller;
	else
		(void)snprintf(c->missing[controller], GANTRY_CGROUP_REASON, "setting it: %s",
			       strerror(-r));
}

uint32_t gantry_cgroup_limit(struct gantry_cgroups *c, uint64_t worker_id,
			     const struct gantry_cgroup_limits *limits)
{
	char path[PATH_MAX];
	uint32_t held = 0;

	if (!c->usable)
		return 0;
	worker_folder(c, worker_id, path, sizeof(path));
	if (!c->missing[GANTRY_CGROUP_CPU][0])
		bound(c, GANTRY_CGROUP_CPU, put_cpu(path, limits), &held);
	if (!c->missing[GANTRY_CGROUP_MEMORY][0])
		bound(c, GANTRY_CGROUP_MEMORY, put_number(path, "memory.max", limits->mem_bytes),
		      &held);
	if (!c->missing[GANTRY_CGROUP_PIDS][0])
		bound(c, GANTRY_CGROUP_PIDS, put_number(path, "pids.max", limits->pids), &held);
	return held;
}

bool gantry_cgroup_holds(const struct gantry_cgroups *c, const char *proc, uint64_t worker_id,
			 pid_t pid)
{
	char number[16], group[PATH_MAX / 2], end[64];
	size_t len, end_len;

	(void)gantry_str_format(number, sizeof(number), "%d", (int)pid); /* it fits */
	/* it fits */
	(void)gantry_str_format(end, sizeof(end), "/gantry-%s/w-%" PRIu64, c->key, worker_id);
	if (!c->usable || own_group(proc, number, group, sizeof(group)) < 0)
		return false;
	len = strlen(group);
	end_len = strlen(end);
	return len >= end_len && strcmp(group + len - end_len, end) == 0;
}

static bool remove_now(struct gantry_cgroups *c, uint64_t worker_id)
{
	char path[PATH_MAX];

	worker_folder(c, worker_id, path, sizeof(path));
	return rmdir(path) == 0 || errno == ENOENT;
}

void gantry_cgroup_remove(struct gantry_cgroups *c, uint64_t worker_id)
{
	uint32_t n = 0;

	if (!c->usable)
		return;
	for (uint32_t i = 0; i < c->nleft; i++)
		if (!remove_now(c, c->left[i]))
			c->left[n++] = c->left[i];
	c->nleft = n;
	/* One that is forgotten here is swept away at the next start. */
	if (!remove_now(c, worker_id) && c->nleft < GANTRY_ARRAY_SIZE(c->left))
		c->left[c->nleft++] = worker_id;
}
