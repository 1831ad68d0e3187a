/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor becomes another build of itself: the same process, so that it stays the parent of the agent and of
 * orphaned workers, their reaper, and what systemd takes for the service. Descriptors stay open; what they are is in
 * a memfd, as document.h has it. One that dies in the new program is as one that dies at any time: the agent starts another, and hands it all.
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
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/monitor/document.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/state.h"

#define STATE_MAX_BYTES (8u << 20)

/* ---- in the old program ---- */

/* Its end shows at fclose(). A line is never too long: a name is as the store took it. */
static void put(FILE *out, const struct gantry_monitor_line *line)
{
	char text[GANTRY_MONITOR_LINE_MAX];

	if (gantry_monitor_line_format(line, text) > 0)
		(void)fputs(text, out);
}

static void put_all(FILE *out, const struct gantry_monitor *m)
{
	struct gantry_monitor_line line = { .kind = GANTRY_MONITOR_LINE_VERSION,
					    .version = GANTRY_MONITOR_VERSION };

	put(out, &line);
	line = (struct gantry_monitor_line){
		.kind = GANTRY_MONITOR_LINE_AGENT,
		.pid = (int32_t)m->agent_pid,
		.fd = m->sock,
		.is_child = m->agent_is_child,
		.was_ready = m->was_ready,
		.restarts = m->restarts,
	};
	put(out, &line);
	line = (struct gantry_monitor_line){ .kind = GANTRY_MONITOR_LINE_LEAVING,
					     .pid = (int32_t)m->leaving_pid };
	put(out, &line);
	for (unsigned int i = 0; i < m->nuntold; i++) {
		line = (struct gantry_monitor_line){ .kind = GANTRY_MONITOR_LINE_EXITED,
						     .pid = (int32_t)m->untold[i].pid,
						     .status = m->untold[i].status };
		put(out, &line);
	}
	for (size_t i = 0; i < m->store.nentries; i++) {
		line = (struct gantry_monitor_line){ .kind = GANTRY_MONITOR_LINE_FD,
						     .fd = m->store.entries[i].fd };
		/* the same size */
		(void)gantry_str_copy(line.name, sizeof(line.name), m->store.entries[i].name);
		put(out, &line);
	}
	line = (struct gantry_monitor_line){ .kind = GANTRY_MONITOR_LINE_END };
	put(out, &line);
}

static int write_state(const struct gantry_monitor *m, int fd)
{
	int copy = dup(fd);
	FILE *out = copy < 0 ? NULL : fdopen(copy, "w");

	if (!out) {
		int r = -errno;

		gantry_fd_close(copy);
		return r;
	}
	put_all(out, m);
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
	gantry_failpoint(GANTRY_FAILPOINT_MONITOR_BECOME);
	if (r == 0)
		r = become(m);
	gantry_log(GANTRY_LOG_WARN, "the monitor stays of the build before: %s", strerror(-r));
	(void)gantry_link_send(m->sock, GANTRY_MONITOR_BECAME, r, 0, NULL,
			       -EBADF); /* or it is gone */
	m->previous = gantry_fd_close(m->previous);
}

/* ---- in the new one ---- */

static int take_fd(struct gantry_monitor *m, const struct gantry_monitor_line *line)
{
	int r = gantry_fd_cloexec(line->fd, true);

	return r < 0 ? r : gantry_store_put(&m->store, line->name, line->fd);
}

static int take_line(struct gantry_monitor *m, const struct gantry_monitor_line *line)
{
	switch (line->kind) {
	case GANTRY_MONITOR_LINE_AGENT:
		m->agent_pid = line->pid;
		m->sock = line->fd;
		m->agent_is_child = line->is_child;
		m->was_ready = line->was_ready;
		m->restarts = line->restarts;
		return gantry_fd_cloexec(m->sock, true);
	case GANTRY_MONITOR_LINE_LEAVING:
		m->leaving_pid = line->pid;
		return 0;
	case GANTRY_MONITOR_LINE_EXITED:
		if (m->nuntold < GANTRY_MONITOR_UNTOLD_MAX)
			m->untold[m->nuntold++] = (struct gantry_monitor_exited){ line->pid,
										  line->status };
		return 0;
	case GANTRY_MONITOR_LINE_FD:
		return take_fd(m, line);
	default:
		return -EPROTO; /* not in the middle */
	}
}

static int resume_text(struct gantry_monitor *m, FILE *in)
{
	char text[GANTRY_MONITOR_LINE_MAX];
	struct gantry_monitor_line line;

	if (!fgets(text, sizeof(text), in) || gantry_monitor_line_parse(text, &line) < 0 ||
	    line.kind != GANTRY_MONITOR_LINE_VERSION || line.version != GANTRY_MONITOR_VERSION)
		return -EPROTO;
	while (fgets(text, sizeof(text), in)) {
		int r = gantry_monitor_line_parse(text, &line);

		if (r == 0 && line.kind == GANTRY_MONITOR_LINE_END)
			return m->agent_pid > 0 ? 0 : -EPROTO;
		if (r == 0)
			r = take_line(m, &line);
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
	gantry_failpoint(GANTRY_FAILPOINT_MONITOR_RESUMED);
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
