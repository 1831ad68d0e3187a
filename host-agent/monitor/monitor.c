/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/monitor/monitor.h"

#include <errno.h>
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

#include "base/array.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/notify.h"
#include "host-agent/monitor/state.h"

/* An agent that lived this long died of something new: no back-off. */
#define HEALTHY_NS     (10 * GANTRY_NS_PER_S)
#define BACKOFF_MIN_NS (50 * GANTRY_NS_PER_MS)
#define BACKOFF_MAX_NS (5 * GANTRY_NS_PER_S)
/* What an agent may take to end its workers before it is killed. */
#define STOP_NS		  (15 * GANTRY_NS_PER_S)
#define MESSAGES_PER_TURN 256

void gantry_monitor_forget_agent(struct gantry_monitor *m)
{
	m->sock = gantry_fd_close(m->sock);
	m->agent_pidfd = gantry_fd_close(m->agent_pidfd);
	m->agent_pid = 0;
}

void gantry_monitor_tell_exited(struct gantry_monitor *m)
{
	/* Who is to hear it is being decided. */
	if (m->sock < 0 || m->candidate.state == GANTRY_CANDIDATE_GIVEN)
		return;
	for (unsigned int i = 0; i < m->nuntold; i++)
		(void)gantry_link_send(m->sock, GANTRY_MONITOR_EXITED, m->untold[i].pid,
				       m->untold[i].status, NULL, -EBADF); /* it is news, no more */
	m->nuntold = 0;
}

static int start_agent(struct gantry_monitor *m)
{
	int r = gantry_program_start(m, m->program, NULL, &m->agent_pid, &m->sock);

	if (r < 0)
		return r;
	m->agent_pidfd = pidfd_open(m->agent_pid, 0);
	m->agent_is_child = true;
	m->agent_gone = false;
	m->started_ns = gantry_now_ns();
	m->start_at_ns = GANTRY_DEADLINE_NEVER;
	gantry_candidate_on_trial(m);
	/* A failure here means that the agent died at once: its end will be seen. */
	if (gantry_link_hand_over(m->sock, &m->store, m->restarts) == 0)
		gantry_monitor_tell_exited(m);
	return 0;
}

static void schedule_restart(struct gantry_monitor *m)
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

static void handle_notice(struct gantry_monitor *m, int32_t notice)
{
	static const char *const states[] = {
		[GANTRY_MONITOR_READY] = "READY=1",
		[GANTRY_MONITOR_RELOADING] = "RELOADING=1",
		[GANTRY_MONITOR_STOPPING] = "STOPPING=1",
		[GANTRY_MONITOR_WATCHDOG] = "WATCHDOG=1",
	};

	if (notice < GANTRY_MONITOR_READY || notice > GANTRY_MONITOR_WATCHDOG)
		return;
	if (notice == GANTRY_MONITOR_READY) {
		m->was_ready = true;
		gantry_candidate_ready(m);
	}
	(void)gantry_notify(states[notice]); /* without systemd there is nobody to tell */
}

static void keep(struct gantry_monitor *m, const char *name, int fd)
{
	int r = gantry_store_put(&m->store, name, fd);

	if (r == 0) {
		gantry_shelf_put(m, name, fd);
		return;
	}
	gantry_log(GANTRY_LOG_WARN, "monitor cannot keep %s: %s", name, strerror(-r));
	gantry_fd_close(fd);
}

static void drop_tree(struct gantry_monitor *m, const char *prefix)
{
	for (size_t i = 0; m->shelf && i < m->store.nentries; i++)
		if (gantry_str_starts(m->store.entries[i].name, prefix))
			gantry_shelf_drop(m, m->store.entries[i].name);
	gantry_store_drop_tree(&m->store, prefix);
}

/* Of an agent that we did not start: another of its kind follows it, though we are of another. Takes @program over. */
static void take_program(struct gantry_monitor *m, int program)
{
	int r = m->agent_is_child || m->previous >= 0 ? -EBUSY : gantry_program_check(program);

	if (r < 0) {
		gantry_fd_close(program);
		return;
	}
	gantry_fd_close(m->program);
	m->program = program;
}

static void handle_message(struct gantry_monitor *m, const struct gantry_monitor_msg *msg, int fd)
{
	switch (msg->op) {
	case GANTRY_MONITOR_STORE:
		if (fd >= 0)
			keep(m, msg->name, fd);
		return;
	case GANTRY_MONITOR_TRY:
		if (fd >= 0)
			gantry_candidate_try(m, fd);
		return;
	case GANTRY_MONITOR_YIELD:
		if (fd >= 0)
			gantry_candidate_give(m, fd, msg->value);
		return;
	case GANTRY_MONITOR_PROGRAM:
		if (fd >= 0)
			take_program(m, fd);
		return;
	case GANTRY_MONITOR_CANCEL:
		gantry_candidate_cancel(m);
		break;
	case GANTRY_MONITOR_DROP:
		gantry_shelf_drop(m, msg->name);
		gantry_store_drop(&m->store, msg->name);
		break;
	case GANTRY_MONITOR_DROP_TREE:
		drop_tree(m, msg->name);
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

static void handle_agent(struct gantry_monitor *m)
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

static void handle_exit(struct gantry_monitor *m, pid_t pid, int status)
{
	if (pid == m->agent_pid && m->agent_is_child) {
		m->agent_gone = true;
		m->agent_status = status;
		return;
	}
	if (m->candidate.state != GANTRY_CANDIDATE_NONE && pid == m->candidate.pid) {
		gantry_candidate_ended(m, status);
		return;
	}
	if (pid == m->leaving_pid) {
		m->leaving_pid = 0;
		return;
	}
	if (m->nuntold < GANTRY_MONITOR_UNTOLD_MAX)
		m->untold[m->nuntold++] = (struct gantry_monitor_exited){ pid, status };
	gantry_monitor_tell_exited(m);
}

static void reap(struct gantry_monitor *m)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		handle_exit(m, pid, status);
}

static void begin_stop(struct gantry_monitor *m)
{
	if (!m->stopping)
		m->kill_at_ns = gantry_now_ns() + STOP_NS;
	m->stopping = true;
	(void)gantry_notify("STOPPING=1"); /* without systemd there is nobody to tell */
	gantry_candidate_cancel(m);
	/* Where systemd has the descriptors this may be a restart: sessions are left to the next service. */
	if (m->sock >= 0)
		(void)gantry_link_send(m->sock, GANTRY_MONITOR_STOP, m->shelf, 0, NULL, -EBADF);
}

static void handle_signal(struct gantry_monitor *m)
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
static int after_agent(struct gantry_monitor *m)
{
	int status = m->agent_status;

	if (m->sock >= 0)
		handle_agent(m); /* what it said last */
	gantry_monitor_forget_agent(m);
	m->agent_gone = false;
	gantry_candidate_cancel(m);
	if (m->bye || m->stopping)
		return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
	if (!m->was_ready)
		return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status)
								: EXIT_FAILURE;
	schedule_restart(m);
	gantry_candidate_failed(m);
	gantry_log(GANTRY_LOG_WARN, "the agent ended unexpectedly (%s %d); starting it again",
		   WIFSIGNALED(status) ? "signal" : "status",
		   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return -1;
}

static uint64_t next_deadline_ns(const struct gantry_monitor *m)
{
	uint64_t next_ns = m->agent_pid > 0 ? GANTRY_DEADLINE_NEVER : m->start_at_ns;

	if (m->stopping && m->agent_pid > 0)
		next_ns = m->kill_at_ns;
	if (m->leaving_pid > 0)
		next_ns = GANTRY_MIN(next_ns, m->leave_by_ns);
	return m->previous >= 0 ? GANTRY_MIN(next_ns, m->trial_ends_ns) : next_ns;
}

/* Those that another build has to do with: one that does not become ready, and one that does not leave. */
static void handle_trial_time(struct gantry_monitor *m, uint64_t now_ns)
{
	if (m->previous >= 0 && now_ns >= m->trial_ends_ns) {
		gantry_log(GANTRY_LOG_WARN, "the agent of another build is not ready in time");
		m->trial_ends_ns = GANTRY_DEADLINE_NEVER;
		(void)pidfd_send_signal(m->agent_pidfd, SIGKILL, NULL,
					0); /* or it is gone already */
	}
	if (m->leaving_pid > 0 && now_ns >= m->leave_by_ns) {
		(void)kill(m->leaving_pid, SIGKILL); /* our child, not reaped: the pid is its own */
		m->leave_by_ns = now_ns + GANTRY_NS_PER_S;
	}
}

static void handle_time(struct gantry_monitor *m)
{
	uint64_t now_ns = gantry_now_ns();

	handle_trial_time(m, now_ns);
	if (m->agent_pid == 0 && now_ns >= m->start_at_ns) {
		int r = start_agent(m);

		if (r < 0) {
			gantry_log(GANTRY_LOG_ERR, "cannot start the agent: %s", strerror(-r));
			gantry_monitor_forget_agent(m);
			schedule_restart(m);
		}
	}
	if (m->stopping && m->agent_pid > 0 && now_ns >= m->kill_at_ns) {
		(void)pidfd_send_signal(m->agent_pidfd, SIGKILL, NULL,
					0); /* or it is gone already */
		m->kill_at_ns = now_ns + GANTRY_NS_PER_S;
	}
}

static int monitor_loop(struct gantry_monitor *m)
{
	for (;;) {
		struct pollfd pfds[] = {
			{ .fd = m->signals, .events = POLLIN },
			{ .fd = m->sock, .events = POLLIN },
			{ .fd = m->agent_is_child ? -1 : m->agent_pidfd, .events = POLLIN },
			{ .fd = m->candidate.sock, .events = POLLIN },
		};

		if (poll(pfds, GANTRY_ARRAY_SIZE(pfds),
			 gantry_deadline_poll_ms(next_deadline_ns(m))) < 0 &&
		    errno != EINTR)
			return EXIT_FAILURE;
		if (pfds[3].revents && m->candidate.sock >= 0)
			gantry_candidate_readable(m);
		else if (pfds[1].revents)
			handle_agent(m);
		if (pfds[0].revents)
			handle_signal(m);
		if (pfds[2].revents && !m->agent_is_child)
			m->agent_gone = true;
		if (m->become && m->sock >= 0 && !m->stopping)
			gantry_monitor_become(m);
		/* While it is open who has the baton, the other may go on instead. */
		if (m->agent_gone && m->candidate.state != GANTRY_CANDIDATE_GIVEN) {
			int status = after_agent(m);

			if (status >= 0)
				return status;
		}
		if (m->stopping && m->agent_pid == 0)
			return EXIT_SUCCESS;
		handle_time(m);
	}
}

static int adopt_agent(struct gantry_monitor *m, int sock)
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

static int begin(struct gantry_monitor *m, const struct gantry_monitor_args *args)
{
	if (m->program < 0)
		return m->program;
	m->signals = open_signals();
	if (m->signals < 0)
		return -errno;
	if (args->resume_fd >= 0) {
		int r = gantry_monitor_resume(m, args->resume_fd);

		reap(m); /* what ended in between is pending as one signal at most */
		return r;
	}
	gantry_shelf_open(m);
	return args->takeover_fd >= 0 ? adopt_agent(m, args->takeover_fd) : start_agent(m);
}

int gantry_monitor_run(const struct gantry_monitor_args *args)
{
	static struct gantry_monitor m; /* static: untold[] is large for a stack */
	int r;

	m = (struct gantry_monitor){
		.argv = args->argv,
		.program = gantry_program_self(),
		.sock = -EBADF,
		.signals = -EBADF,
		.agent_pidfd = -EBADF,
		.previous = -EBADF,
		.candidate = { .sock = -EBADF, .program = -EBADF, .next = -EBADF },
		.start_at_ns = GANTRY_DEADLINE_NEVER,
		.shelf = args->shelf && getenv("NOTIFY_SOCKET"),
	};
	gantry_store_init(&m.store, true);
	/*
	 * Workers of an agent that died become our children, and their exit status is ours to tell.
	 */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		gantry_log(GANTRY_LOG_WARN, "cannot become the reaper of workers: %s",
			   strerror(errno));
	r = begin(&m, args);
	if (r < 0) {
		gantry_log(GANTRY_LOG_ERR, "the monitor cannot start: %s", strerror(-r));
		return EXIT_FAILURE;
	}
	r = monitor_loop(&m);
	gantry_monitor_forget_agent(&m);
	gantry_store_fini(&m.store);
	gantry_fd_close(m.signals);
	gantry_fd_close(m.program);
	gantry_fd_close(m.previous);
	return r;
}
