/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/monitor.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/notify.h"

/* An agent that lived this long died of something new: no back-off. */
#define HEALTHY_NS     (10 * GANTRY_NS_PER_S)
#define BACKOFF_MIN_NS (50 * GANTRY_NS_PER_MS)
#define BACKOFF_MAX_NS (5 * GANTRY_NS_PER_S)
/* What an agent may take to end its workers before it is killed. */
#define STOP_NS (15 * GANTRY_NS_PER_S)
/* Workers that ended while there was no agent to tell. */
#define UNTOLD_MAX	  1024u
#define MESSAGES_PER_TURN 256

struct exited {
	pid_t pid;
	int status;
};

struct monitor {
	char *const *argv;
	char exe[PATH_MAX];
	struct gantry_store store;
	int signals;
	int sock; /* to the agent; negative: there is none */
	int agent_pidfd;
	pid_t agent_pid;
	bool agent_is_child;
	bool was_ready; /* some agent was: failing to start is no longer a reason to end */
	bool stopping;
	bool bye;
	bool agent_gone;
	int agent_status;
	int32_t restarts;
	uint64_t started_ns;
	uint64_t backoff_ns;
	uint64_t start_at_ns; /* when to start the next agent */
	uint64_t kill_at_ns;
	unsigned int nuntold;
	struct exited untold[UNTOLD_MAX];
};

/* The path rather than /proc/self/exe, so that an upgraded program file is what starts next. */
static int find_exe(char *exe, size_t cap)
{
	static const char deleted[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", exe, cap - 1);
	size_t len;

	if (n < 0)
		return -errno;
	exe[n] = '\0';
	len = (size_t)n;
	if (len > strlen(deleted) && strcmp(exe + len - strlen(deleted), deleted) == 0)
		exe[len - strlen(deleted)] = '\0';
	return 0;
}

static void exec_agent(const struct monitor *m, int sock)
{
	char fd_arg[32];
	char **argv;
	size_t n = 0;
	sigset_t none;

	while (m->argv[n])
		n++;
	argv = calloc(n + 2, sizeof(*argv));
	if (!argv)
		_exit(EXIT_FAILURE);
	memcpy(argv, m->argv, n * sizeof(*argv));
	(void)gantry_str_format(fd_arg, sizeof(fd_arg), "--agent-fd=%d", sock); /* it fits */
	argv[n] = fd_arg;
	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	if (gantry_fd_cloexec(sock, false) == 0)
		execv(m->exe, argv);
	fprintf(stderr, "gantryd: cannot start %s: %s\n", m->exe, strerror(errno));
	_exit(127);
}

static void forget_agent(struct monitor *m)
{
	m->sock = gantry_fd_close(m->sock);
	m->agent_pidfd = gantry_fd_close(m->agent_pidfd);
	m->agent_pid = 0;
}

static void tell_exited(struct monitor *m)
{
	for (unsigned int i = 0; i < m->nuntold; i++)
		(void)gantry_link_send(m->sock, GANTRY_MONITOR_EXITED, m->untold[i].pid,
				       m->untold[i].status, NULL, -EBADF); /* it is news, no more */
	m->nuntold = 0;
}

static int start_agent(struct monitor *m)
{
	int fds[2];
	int r = gantry_link_pair(fds);

	if (r < 0)
		return r;
	m->agent_pid = fork();
	if (m->agent_pid < 0) {
		r = -errno;
		gantry_fd_close(fds[0]);
		gantry_fd_close(fds[1]);
		return r;
	}
	if (m->agent_pid == 0)
		exec_agent(m, fds[1]);
	gantry_fd_close(fds[1]);
	m->sock = fds[0];
	m->agent_pidfd = pidfd_open(m->agent_pid, 0);
	m->agent_is_child = true;
	m->agent_gone = false;
	m->started_ns = gantry_now_ns();
	m->start_at_ns = GANTRY_DEADLINE_NEVER;
	/* A failure here means that the agent died at once: its end will be seen. */
	if (gantry_link_hand_over(m->sock, &m->store, m->restarts) == 0)
		tell_exited(m);
	return 0;
}

static void schedule_restart(struct monitor *m)
{
	uint64_t lived_ns = gantry_now_ns() - m->started_ns;

	if (lived_ns > HEALTHY_NS || m->backoff_ns == 0)
		m->backoff_ns = BACKOFF_MIN_NS;
	else
		m->backoff_ns = m->backoff_ns * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS
								   : m->backoff_ns * 2;
	m->start_at_ns = gantry_now_ns() + (lived_ns > HEALTHY_NS ? 0 : m->backoff_ns);
	m->restarts++;
}

static void notify_mainpid(void)
{
	char text[32];

	(void)gantry_str_format(text, sizeof(text), "MAINPID=%d", (int)getpid()); /* it fits */
	(void)gantry_notify(text); /* without systemd there is nobody to tell */
}

static void handle_notice(struct monitor *m, int32_t notice)
{
	static const char *const states[] = {
		[GANTRY_MONITOR_READY] = "READY=1",
		[GANTRY_MONITOR_RELOADING] = "RELOADING=1",
		[GANTRY_MONITOR_STOPPING] = "STOPPING=1",
		[GANTRY_MONITOR_WATCHDOG] = "WATCHDOG=1",
	};

	if (notice < GANTRY_MONITOR_READY || notice > GANTRY_MONITOR_WATCHDOG)
		return;
	if (notice == GANTRY_MONITOR_READY)
		m->was_ready = true;
	(void)gantry_notify(states[notice]); /* without systemd there is nobody to tell */
}

static void handle_message(struct monitor *m, const struct gantry_monitor_msg *msg, int fd)
{
	int r;

	switch (msg->op) {
	case GANTRY_MONITOR_STORE:
		if (fd < 0)
			return;
		r = gantry_store_put(&m->store, msg->name, fd);
		if (r < 0) {
			gantry_log(GANTRY_LOG_WARN, "monitor cannot keep %s: %s", msg->name,
				   strerror(-r));
			break;
		}
		return;
	case GANTRY_MONITOR_DROP:
		gantry_store_drop(&m->store, msg->name);
		break;
	case GANTRY_MONITOR_DROP_TREE:
		gantry_store_drop_tree(&m->store, msg->name);
		break;
	case GANTRY_MONITOR_NOTIFY:
		handle_notice(m, msg->value);
		break;
	case GANTRY_MONITOR_BYE:
		m->bye = true;
		break;
	default:
		break; /* of a newer agent: nothing we can do */
	}
	gantry_fd_close(fd);
}

static void handle_agent(struct monitor *m)
{
	for (int i = 0; i < MESSAGES_PER_TURN; i++) {
		struct gantry_monitor_msg msg;
		int fd = -EBADF;
		int r = gantry_link_recv(m->sock, &msg, &fd, MSG_DONTWAIT);

		if (r == -EAGAIN)
			return;
		if (r == -ENODATA || r == -ECONNRESET) {
			/* An agent without its monitor's ear is of no use to anyone. */
			m->agent_gone = !m->agent_is_child || m->agent_gone;
			m->sock = gantry_fd_close(m->sock);
			return;
		}
		if (r == 0)
			handle_message(m, &msg, fd);
		else
			gantry_log(GANTRY_LOG_WARN, "monitor cannot take a message: %s",
				   strerror(-r)); /* -EMFILE: what it was to keep is lost */
	}
}

static void handle_exit(struct monitor *m, pid_t pid, int status)
{
	if (pid == m->agent_pid && m->agent_is_child) {
		m->agent_gone = true;
		m->agent_status = status;
		return;
	}
	if (m->nuntold < UNTOLD_MAX)
		m->untold[m->nuntold++] = (struct exited){ pid, status };
	if (m->sock >= 0)
		tell_exited(m);
}

static void reap(struct monitor *m)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		handle_exit(m, pid, status);
}

static void begin_stop(struct monitor *m)
{
	if (!m->stopping)
		m->kill_at_ns = gantry_now_ns() + STOP_NS;
	m->stopping = true;
	(void)gantry_notify("STOPPING=1"); /* without systemd there is nobody to tell */
	if (m->sock >= 0)
		(void)gantry_link_send(m->sock, GANTRY_MONITOR_STOP, 0, 0, NULL, -EBADF);
}

static void handle_signal(struct monitor *m)
{
	struct signalfd_siginfo info;

	while (read(m->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(m);
		else if (info.ssi_signo == SIGHUP && m->sock >= 0)
			(void)gantry_link_send(m->sock, GANTRY_MONITOR_RELOAD, 0, 0, NULL, -EBADF);
		else if (info.ssi_signo != SIGHUP)
			begin_stop(m);
	}
}

static int open_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_SETMASK, &set, NULL) < 0)
		return -errno;
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The agent is gone. Negative: start another; else the exit status to end with. */
static int after_agent(struct monitor *m)
{
	int status = m->agent_status;

	if (m->sock >= 0)
		handle_agent(m); /* what it said last */
	forget_agent(m);
	m->agent_gone = false;
	if (m->bye || m->stopping)
		return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
	if (!m->was_ready)
		return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status)
								: EXIT_FAILURE;
	schedule_restart(m);
	gantry_log(GANTRY_LOG_WARN, "the agent ended unexpectedly (%s %d); starting it again",
		   WIFSIGNALED(status) ? "signal" : "status",
		   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return -1;
}

static uint64_t next_deadline_ns(const struct monitor *m)
{
	if (m->stopping && m->agent_pid > 0)
		return m->kill_at_ns;
	return m->agent_pid > 0 ? GANTRY_DEADLINE_NEVER : m->start_at_ns;
}

static void handle_time(struct monitor *m)
{
	uint64_t now_ns = gantry_now_ns();

	if (m->agent_pid == 0 && now_ns >= m->start_at_ns) {
		int r = start_agent(m);

		if (r < 0) {
			gantry_log(GANTRY_LOG_ERR, "cannot start the agent: %s", strerror(-r));
			forget_agent(m);
			schedule_restart(m);
		}
	}
	if (m->stopping && m->agent_pid > 0 && now_ns >= m->kill_at_ns) {
		(void)pidfd_send_signal(m->agent_pidfd, SIGKILL, NULL,
					0); /* or it is gone already */
		m->kill_at_ns = now_ns + GANTRY_NS_PER_S;
	}
}

static int monitor_loop(struct monitor *m)
{
	for (;;) {
		struct pollfd pfds[] = {
			{ .fd = m->signals, .events = POLLIN },
			{ .fd = m->sock, .events = POLLIN },
			{ .fd = m->agent_is_child ? -1 : m->agent_pidfd, .events = POLLIN },
		};

		if (poll(pfds, 3, gantry_deadline_poll_ms(next_deadline_ns(m))) < 0 &&
		    errno != EINTR)
			return EXIT_FAILURE;
		if (pfds[1].revents)
			handle_agent(m);
		if (pfds[0].revents)
			handle_signal(m);
		if (pfds[2].revents)
			m->agent_gone = true;
		if (m->agent_gone) {
			int status = after_agent(m);

			if (status >= 0)
				return status;
		}
		if (m->stopping && m->agent_pid == 0)
			return EXIT_SUCCESS;
		handle_time(m);
	}
}

static int adopt_agent(struct monitor *m, int sock)
{
	m->sock = sock;
	m->agent_pid = getppid();
	m->agent_pidfd = pidfd_open(m->agent_pid, 0);
	m->was_ready = true;
	m->started_ns = gantry_now_ns();
	if (m->agent_pidfd < 0)
		return -errno;
	(void)gantry_fd_cloexec(sock,
				true); /* only fails for a bad descriptor, which recv will tell */
	notify_mainpid();
	return 0;
}

int gantry_monitor_run(char *const argv[], int takeover_fd)
{
	static struct monitor m; /* static: untold[] is large for a stack */
	int r;

	m = (struct monitor){ .argv = argv, .sock = -EBADF, .agent_pidfd = -EBADF };
	m.start_at_ns = GANTRY_DEADLINE_NEVER;
	gantry_store_init(&m.store, true);
	/*
	 * Workers of an agent that died become our children, and their exit status is ours to tell.
	 */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		gantry_log(GANTRY_LOG_WARN, "cannot become the reaper of workers: %s",
			   strerror(errno));
	r = find_exe(m.exe, sizeof(m.exe));
	if (r == 0)
		m.signals = open_signals();
	if (r == 0 && m.signals < 0)
		r = -errno;
	if (r == 0)
		r = takeover_fd >= 0 ? adopt_agent(&m, takeover_fd) : start_agent(&m);
	if (r < 0) {
		gantry_log(GANTRY_LOG_ERR, "the monitor cannot start: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	r = monitor_loop(&m);
	forget_agent(&m);
	gantry_store_fini(&m.store);
	gantry_fd_close(m.signals);
	return r;
}
