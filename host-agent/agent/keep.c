/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's end of the monitor's socket, and a new monitor where the old one died. */
#include "host-agent/agent/keep.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/store.h"

#define SEND_TIMEOUT_S 1

static void monitor_readable(evutil_socket_t sock, short what, void *arg);
static void hand_all(struct gantry_agent *a);

/* It reads again: what it has may be out of date in any way, so it gets everything anew. */
static void monitor_listens(evutil_socket_t sock, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)what;
	gantry_event_free(&a->monitor_room);
	if (gantry_link_send((int)sock, GANTRY_MONITOR_DROP_TREE, 0, 0, NULL, -EBADF) == 0)
		hand_all(a);
}

/*
 * It has not read for as long as a send waits: service goes on without it, and nothing more waits,
 * until there is room again.
 */
static void monitor_silent(struct gantry_agent *a)
{
	a->monitor_room = event_new(a->base, a->monitor_fd, EV_WRITE, monitor_listens, a);
	if (a->monitor_room && event_add(a->monitor_room, NULL) == 0)
		gantry_event(a, "monitor-silent", NULL, NULL, NULL,
			     "the monitor does not read; a restart now would lose sessions");
	else
		gantry_event_free(&a->monitor_room);
}

/* 0 or -errno; never waits twice for a monitor that is stuck. */
static int send_monitor(struct gantry_agent *a, uint32_t op, int32_t value, const char *name,
			int fd)
{
	int r = a->monitor_room ? -EAGAIN : gantry_link_send(a->monitor_fd, op, value, 0, name, fd);

	if (r == -EAGAIN && !a->monitor_room)
		monitor_silent(a);
	return r;
}

static int watch_monitor(struct gantry_agent *a)
{
	const struct timeval timeout = { .tv_sec = SEND_TIMEOUT_S };

	/* Shorter than the monitor's own: guests at doors wait with us. Else that one holds. */
	(void)setsockopt(a->monitor_fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	a->monitor_event = event_new(a->base, a->monitor_fd, EV_READ | EV_PERSIST, monitor_readable,
				     a);
	return a->monitor_event && event_add(a->monitor_event, NULL) == 0 ? 0 : -ENOMEM;
}

static void exec_monitor(struct gantry_agent *a, int sock)
{
	char fd_arg[32];
	char *argv[64];
	size_t n = 0;
	sigset_t none;
	int program = a->monitor_program;

	/* Arguments beyond the array are none that gantryd has. */
	while (n < 60 && a->args.argv[n]) {
		argv[n] = a->args.argv[n];
		n++;
	}
	(void)gantry_str_format(fd_arg, sizeof(fd_arg), "--agent-fd=%d", sock); /* it fits */
	argv[n++] = (char *)(uintptr_t) "--monitor-takeover";
	argv[n++] = fd_arg;
	argv[n] = NULL;
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	if (gantry_fd_cloexec(sock, false) == 0 && program >= 0)
		(void)syscall(SYS_execveat, program, "", argv, environ, AT_EMPTY_PATH);
	else
		execv("/proc/self/exe", argv);
	_exit(127);
}

static void hand_all(struct gantry_agent *a)
{
	_cleanup_close_ int program = open("/proc/self/exe", O_PATH | O_CLOEXEC);

	/* It may be of the build before ours, which might not read what we have written. */
	if (program >= 0)
		gantry_keep_tell(a, GANTRY_MONITOR_PROGRAM, 0, program);
	for (size_t i = 0; i < a->kept.nentries; i++) {
		const struct gantry_store_entry *e = &a->kept.entries[i];

		if (send_monitor(a, GANTRY_MONITOR_STORE, 0, e->name, e->fd) < 0)
			a->counters.keep_errors++;
	}
	gantry_keep_notify(a, GANTRY_MONITOR_READY);
}

/*
 * The monitor is gone: start another and give it everything, or the next death of ours loses
 * sessions.
 */
static void start_monitor(struct gantry_agent *a)
{
	int fds[2];
	int r = gantry_link_pair(fds);
	pid_t pid;

	if (r < 0) {
		gantry_log(GANTRY_LOG_ERR, "cannot start another monitor: %s", strerror(-r));
		return;
	}
	pid = fork();
	if (pid == 0)
		exec_monitor(a, fds[1]);
	gantry_fd_close(fds[1]);
	if (pid < 0) {
		gantry_fd_close(fds[0]);
		gantry_log(GANTRY_LOG_ERR, "cannot start another monitor: %s", strerror(errno));
		return;
	}
	a->monitor_fd = fds[0];
	a->monitor_pid = pid;
	if (watch_monitor(a) < 0)
		gantry_log(GANTRY_LOG_ERR, "no memory to watch the monitor");
	gantry_event(a, "monitor-started", NULL, NULL, NULL,
		     "the monitor had ended; another has taken over");
	hand_all(a);
}

static void retry_monitor(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	start_monitor(arg);
}

static void monitor_gone(struct gantry_agent *a)
{
	int program;

	gantry_event_free(&a->monitor_event);
	gantry_event_free(&a->monitor_room);
	a->monitor_fd = gantry_fd_close(a->monitor_fd);
	if (a->stopping)
		return;
	program = gantry_upgrade_monitor_died(a);
	if (program >= 0) {
		gantry_fd_close(a->monitor_program);
		a->monitor_program = program;
	}
	/* One that was our own child is reaped; another's is not ours to. */
	(void)waitpid(a->monitor_pid, NULL, WNOHANG);
	/* Not at once: a monitor that cannot start must not make us spin. */
	/* memory is all it needs */
	(void)gantry_timer_set(a, &a->retry_timer, 50 * 1000000ull, retry_monitor, a);
}

static void monitor_readable(evutil_socket_t sock, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_monitor_msg msg;
	int fd = -EBADF;
	int r = gantry_link_recv((int)sock, &msg, &fd, MSG_DONTWAIT);

	(void)what;
	if (r == -EAGAIN)
		return;
	if (r < 0) {
		monitor_gone(a);
		return;
	}
	if (msg.op == GANTRY_MONITOR_EXITED)
		gantry_worker_exited(a, msg.value, msg.status);
	else if (msg.op == GANTRY_MONITOR_STOP && msg.value)
		gantry_renew_leave(a);
	else if (msg.op == GANTRY_MONITOR_STOP)
		gantry_agent_stop(a);
	else if (msg.op == GANTRY_MONITOR_RELOAD && gantry_agent_reload(a, &err) < 0)
		gantry_log(GANTRY_LOG_ERR, "reload: %s; the old configuration stays", err.text);
	else
		gantry_upgrade_heard(a, &msg, fd);
	gantry_fd_close(fd);
}

int gantry_keep_start(struct gantry_agent *a)
{
	a->monitor_pid = getppid();
	return a->monitor_fd >= 0 ? watch_monitor(a) : 0;
}

void gantry_keep_stop(struct gantry_agent *a)
{
	gantry_event_free(&a->monitor_event);
	if (a->monitor_fd >= 0)
		/* or it is gone */
		(void)send_monitor(a, GANTRY_MONITOR_BYE, 0, NULL, -EBADF);
	gantry_event_free(&a->monitor_room);
	a->monitor_fd = gantry_fd_close(a->monitor_fd);
	a->monitor_program = gantry_fd_close(a->monitor_program);
	gantry_store_fini(&a->kept);
}

/* 0 also while there is none: the next one gets all that is kept. */
static int tell(struct gantry_agent *a, uint32_t op, const char *name, int fd)
{
	int r = a->monitor_fd < 0 ? 0 : send_monitor(a, op, 0, name, fd);

	if (r < 0) {
		a->counters.keep_errors++;
		gantry_log(GANTRY_LOG_WARN, "the monitor does not take %s", name);
	}
	return r;
}

static int keep(struct gantry_agent *a, int fd, const char *name)
{
	int r = gantry_store_put(&a->kept, name, fd);
	int told = tell(a, GANTRY_MONITOR_STORE, name, fd);

	if (r < 0)
		a->counters.keep_errors++;
	return r < 0 ? r : told;
}

void gantry_keep(struct gantry_agent *a, int fd, const char *fmt, ...)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(name, sizeof(name), fmt, ap); /* our names are short */
	va_end(ap);
	(void)keep(a, fd, name); /* it counts and tells */
}

int gantry_keep_surely(struct gantry_agent *a, int fd, const char *fmt, ...)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	va_list ap;
	int r;

	va_start(ap, fmt);
	(void)vsnprintf(name, sizeof(name), fmt, ap); /* our names are short */
	va_end(ap);
	r = keep(a, fd, name);
	if (r < 0)
		gantry_keep_drop(a, "%s", name);
	return r;
}

void gantry_keep_drop(struct gantry_agent *a, const char *fmt, ...)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(name, sizeof(name), fmt, ap); /* our names are short */
	va_end(ap);
	gantry_store_drop(&a->kept, name);
	(void)tell(a, GANTRY_MONITOR_DROP, name, -EBADF);
}

void gantry_keep_drop_tree(struct gantry_agent *a, const char *fmt, ...)
{
	char name[GANTRY_MONITOR_NAME_MAX];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(name, sizeof(name), fmt, ap); /* our names are short */
	va_end(ap);
	gantry_store_drop_tree(&a->kept, name);
	(void)tell(a, GANTRY_MONITOR_DROP_TREE, name, -EBADF);
}

void gantry_keep_tell(struct gantry_agent *a, uint32_t op, int value, int fd)
{
	if (a->monitor_fd >= 0 && send_monitor(a, op, value, NULL, fd) < 0)
		gantry_log(GANTRY_LOG_WARN, "the monitor does not take request %u", op);
}

void gantry_keep_notify(struct gantry_agent *a, int notice)
{
	if (a->monitor_fd >= 0)
		/* news only */
		(void)send_monitor(a, GANTRY_MONITOR_NOTIFY, notice, NULL, -EBADF);
}
