/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor becomes another build of itself: the same process, so that it stays the parent of the agent and of
 * orphaned workers, their reaper, and what systemd takes for the service. Descriptors stay open; what they are is in
 * a memfd:
 *   gantry-monitor VERSION
 *   agent PID SOCKET IS_CHILD WAS_READY RESTARTS
 *   leaving PID
 *   exited PID STATUS          each worker that ended and nobody was told of
 *   fd NUMBER NAME             each kept descriptor
 *   end
 * One that dies in the new program is as one that dies at any time: the agent starts another, and hands it all.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/state.h"

#define STATE_MAX_BYTES (8u << 20)
#define LINE_MAX_LEN	160

/* ---- in the old program ---- */

static int write_state(const struct gantry_monitor *m, int fd)
{
	int copy = dup(fd);
	FILE *out = copy < 0 ? NULL : fdopen(copy, "w");

	if (!out) {
		int r = -errno;

		gantry_fd_close(copy);
		return r;
	}
	/* Its end shows at fclose(). */
	(void)fprintf(out, "gantry-monitor %u\n", GANTRY_MONITOR_VERSION);
	(void)fprintf(out, "agent %d %d %d %d %d\n", (int)m->agent_pid, m->sock, m->agent_is_child,
		      m->was_ready, (int)m->restarts);
	(void)fprintf(out, "leaving %d\n", (int)m->leaving_pid);
	for (unsigned int i = 0; i < m->nuntold; i++)
		(void)fprintf(out, "exited %d %d\n", (int)m->untold[i].pid, m->untold[i].status);
	for (size_t i = 0; i < m->store.nentries; i++)
		(void)fprintf(out, "fd %d %s\n", m->store.entries[i].fd, m->store.entries[i].name);
	(void)fprintf(out, "end\n");
	return fclose(out) == 0 ? 0 : -errno;
}

/* All that the next program is to find open, or, after a failure, is not to leak. */
static int leave_open(const struct gantry_monitor *m, bool open)
{
	int r = gantry_fd_cloexec(m->sock, !open);

	for (size_t i = 0; i < m->store.nentries && r == 0; i++)
		r = gantry_fd_cloexec(m->store.entries[i].fd, !open);
	return r;
}

static int become(const struct gantry_monitor *m)
{
	_cleanup_close_ int fd = memfd_create("gantry-monitor", MFD_CLOEXEC);
	char arg[40];
	int r = fd < 0 ? -errno : write_state(m, fd);

	if (r == 0)
		r = leave_open(m, true);
	if (r == 0) {
		(void)gantry_str_format(arg, sizeof(arg), "--monitor-resume=%d", fd); /* it fits */
		r = gantry_program_exec(m->program, m->argv, arg, NULL, fd);
	}
	(void)leave_open(m, false); /* nothing that could be done */
	return r;
}

void gantry_monitor_become(struct gantry_monitor *m)
{
	int r;

	m->become = false;
	r = gantry_link_send(m->sock, GANTRY_MONITOR_BECOMING, 0, 0, NULL, m->previous);
	if (r == 0)
		r = become(m);
	gantry_log(GANTRY_LOG_WARN, "the monitor stays of the build before: %s", strerror(-r));
	(void)gantry_link_send(m->sock, GANTRY_MONITOR_BECAME, r, 0, NULL,
			       -EBADF); /* or it is gone */
	m->previous = gantry_fd_close(m->previous);
}

/* ---- in the new one ---- */

static int resume_line(struct gantry_monitor *m, const char *line)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	int a, b, is_child, was_ready, restarts;

	if (sscanf(line, "agent %d %d %d %d %d", &a, &b, &is_child, &was_ready, &restarts) == 5) {
		m->agent_pid = a;
		m->sock = b;
		m->agent_is_child = is_child != 0;
		m->was_ready = was_ready != 0;
		m->restarts = restarts;
		return gantry_fd_cloexec(m->sock, true);
	}
	if (sscanf(line, "leaving %d", &a) == 1) {
		m->leaving_pid = a;
		return 0;
	}
	if (sscanf(line, "exited %d %d", &a, &b) == 2) {
		if (m->nuntold < GANTRY_MONITOR_UNTOLD_MAX)
			m->untold[m->nuntold++] = (struct gantry_monitor_exited){ a, b };
		return 0;
	}
	static_assert(GANTRY_MONITOR_NAME_MAX == 64, "the width below");
	if (sscanf(line, "fd %d %63s", &a, name) == 2) {
		int r = gantry_fd_cloexec(a, true);

		return r < 0 ? r : gantry_store_put(&m->store, name, a);
	}
	return -EPROTO;
}

static int resume_text(struct gantry_monitor *m, FILE *in)
{
	char line[LINE_MAX_LEN];
	unsigned int version = 0;

	if (!fgets(line, sizeof(line), in) || sscanf(line, "gantry-monitor %u", &version) != 1 ||
	    version != GANTRY_MONITOR_VERSION)
		return -EPROTO;
	while (fgets(line, sizeof(line), in)) {
		int r;

		if (strcmp(line, "end\n") == 0)
			return m->agent_pid > 0 ? 0 : -EPROTO;
		r = resume_line(m, line);
		if (r < 0)
			return r;
	}
	return -ENODATA;
}

int gantry_monitor_resume(struct gantry_monitor *m, int fd)
{
	struct stat st;
	FILE *in;
	int r;

	if (fstat(fd, &st) < 0 || st.st_size > STATE_MAX_BYTES || lseek(fd, 0, SEEK_SET) < 0)
		return -EPROTO;
	in = fdopen(fd, "r");
	if (!in)
		return -errno;
	r = resume_text(m, in);
	(void)fclose(in); /* it was read */
	if (r < 0)
		return r;
	m->started_ns = gantry_now_ns();
	m->leave_by_ns = gantry_now_ns() + GANTRY_NS_PER_S;
	m->agent_pidfd = pidfd_open(m->agent_pid, 0);
	if (m->agent_pidfd < 0 && errno != ESRCH)
		return -errno;
	/* An agent that died meanwhile is succeeded, as one that dies at any time. */
	if (m->agent_pidfd < 0)
		m->agent_gone = true;
	(void)gantry_link_send(m->sock, GANTRY_MONITOR_BECAME, 0, 0, NULL, -EBADF);
	return 0;
}
