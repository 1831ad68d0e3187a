/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-shim/helpers.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"
#include "base/thread.h"

struct helper {
	pthread_t thread;
	void (*fn)(void *arg, unsigned int i);
	void *arg;
	unsigned int i;
};

static void *helper_main(void *arg)
{
	const struct helper *h = arg;

	h->fn(h->arg, h->i);
	return NULL;
}

/* Starts what can be started: returns how many, the first ones. */
static unsigned int start(struct helper *helpers, unsigned int n)
{
	unsigned int i = 0;

	while (i < n && gantry_thread_start(&helpers[i].thread, helper_main, &helpers[i]) == 0)
		i++;
	return i;
}

void gantry_help(unsigned int n, void (*fn)(void *arg, unsigned int i), void *arg)
{
	struct helper helpers[GANTRY_HELPERS_MAX];
	unsigned int started;
	int cancel;

	for (unsigned int i = 0; i < n; i++)
		helpers[i] = (struct helper){ .fn = fn, .arg = arg, .i = i };
	/* A caller that is cancelled would leave them behind. */
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	started = n > 1 ? start(helpers + 1, n - 1) : 0;
	fn(arg, 0);
	for (unsigned int i = started + 1; i < n; i++)
		fn(arg, i);
	for (unsigned int i = 1; i <= started; i++)
		(void)pthread_join(helpers[i].thread, NULL);
	(void)pthread_setcancelstate(cancel, NULL);
}

/* ---- how many CPUs ---- */

unsigned int gantry_help_parse_quota(const char *text)
{
	char *end;
	unsigned long long quota = strtoull(text, &end, 10);
	unsigned long long period;

	if (end == text || *end != ' ')
		return 0;
	period = strtoull(end + 1, NULL, 10);
	if (period == 0)
		return 0;
	return quota / period > 0 ? (unsigned int)(quota / period) : 1;
}

static bool read_line(const char *path, char *line, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, line, cap - 1);

	gantry_fd_close(fd);
	if (n <= 0)
		return false;
	line[n] = '\0';
	return true;
}

static unsigned int quota_of(const char *group)
{
	char path[PATH_MAX];
	char line[64];

	if (snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", group) >= (int)sizeof(path))
		return 0;
	return read_line(path, line, sizeof(line)) ? gantry_help_parse_quota(line) : 0;
}

/* The least of the process's group and those above it; inside a container its root is all that shows. */
static unsigned int read_quota(void)
{
	char groups[PATH_MAX];
	unsigned int least = 0;
	char *group;

	if (!read_line("/proc/self/cgroup", groups, sizeof(groups)))
		return 0;
	group = strncmp(groups, "0::", 3) == 0 ? groups + 3 : NULL;
	if (!group)
		return 0;
	group[strcspn(group, "\n")] = '\0';
	for (;;) {
		unsigned int quota = quota_of(group);
		char *slash = strrchr(group, '/');

		if (quota && (least == 0 || quota < least))
			least = quota;
		if (!slash)
			return least;
		*slash = '\0';
	}
}

unsigned int gantry_help_cpus(void)
{
	static uint32_t known; /* 1 + the quota; cgroups are asked once */
	uint32_t quota = gantry_load_relaxed(&known);
	unsigned int cpus = 1;
	cpu_set_t set;

	if (quota == 0) {
		quota = 1 + read_quota();
		gantry_store_relaxed(&known, quota);
	}
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		cpus = (unsigned int)CPU_COUNT(&set);
	return quota > 1 && quota - 1 < cpus ? quota - 1 : cpus;
}
