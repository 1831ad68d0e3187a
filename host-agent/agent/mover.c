/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/mover.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/child.h"
#include "host-agent/agent/config.h"

struct gantry_mover_process {
	struct gantry_list link;
	struct gantry_agent *agent;
	const struct gantry_mover_events *events; /* NULL: nobody listens any more */
	void *arg;
	pid_t pid;
	int pidfd;
	int sock;
	struct event *sock_event;
	struct event *pid_event;
};

union packet {
	struct gantry_mover_msg msg;
	struct gantry_mover_session session;
};

static void mover_free(struct gantry_mover_process *m)
{
	gantry_event_free(&m->sock_event);
	gantry_event_free(&m->pid_event);
	gantry_fd_close(m->sock);
	gantry_fd_close(m->pidfd);
	gantry_list_remove(&m->link);
	free(m);
}

/* What is left is to wait for the process; where it is gone already, so is @m. */
static void lose(struct gantry_mover_process *m)
{
	const struct gantry_mover_events *events = m->events;
	void *arg = m->arg;

	gantry_mover_end(m);
	if (events)
		events->gone(arg);
}

/* false: there was nothing. */
static bool take_one(struct gantry_mover_process *m)
{
	union packet in;
	ssize_t n = gantry_fd_recv(m->sock, &in, sizeof(in), NULL, 0, NULL, MSG_DONTWAIT);

	if (n == -EAGAIN)
		return false;
	if (n < (ssize_t)sizeof(in.msg) || in.msg.magic != GANTRY_MOVER_MAGIC ||
	    !memchr(in.msg.text, '\0', sizeof(in.msg.text))) {
		lose(m);
		return true;
	}
	gantry_str_make_printable(in.msg.text);
	m->events->said(m->arg, &in.msg, (size_t)n);
	return true;
}

static void readable(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)take_one(arg); /* what else there is wakes us again */
}

/* Its last words are read before its end is believed. */
static void mover_ended(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mover_process *m = arg;

	(void)fd;
	(void)what;
	(void)waitpid(m->pid, NULL, WNOHANG); /* our child, and its end is what woke us */
	while (m->events && take_one(m))
		;
	if (m->events)
		lose(m);
	mover_free(m);
}

void gantry_mover_end(struct gantry_mover_process *m)
{
	if (!m)
		return;
	m->events = NULL;
	gantry_event_free(&m->sock_event);
	m->sock = gantry_fd_close(m->sock);
}

void gantry_movers_forget(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->movers, struct gantry_mover_process, link, m)
		mover_free(m);
}

/* It reads little and seldom, and a full socket is one that is stuck: its silence ends it. */
static void put(struct gantry_mover_process *m, struct gantry_mover_msg *msg, uint32_t kind,
		const uint8_t *token, const int *fds, unsigned int nfds)
{
	if (!m || m->sock < 0)
		return;
	msg->magic = GANTRY_MOVER_MAGIC;
	msg->kind = kind;
	if (token)
		memcpy(msg->token, token, sizeof(msg->token));
	(void)gantry_fd_send(m->sock, msg, sizeof(*msg), fds, nfds, MSG_DONTWAIT); /* as above */
}

void gantry_mover_send_msg(struct gantry_mover_process *m, uint32_t kind, int code,
			   const uint8_t *token, const char *text, const int *fds,
			   unsigned int nfds)
{
	struct gantry_mover_msg msg = { .code = (uint32_t)code };

	(void)gantry_str_copy(msg.text, sizeof(msg.text), text ? text : ""); /* cut is better */
	put(m, &msg, kind, token, fds, nfds);
}

void gantry_mover_send_words(struct gantry_mover_process *m, uint32_t kind, const uint8_t *token,
			     uint64_t first, uint64_t second)
{
	struct gantry_mover_msg msg = { .value = { first, second } };

	put(m, &msg, kind, token, NULL, 0);
}

void gantry_mover_send_place(struct gantry_mover_process *m, const uint8_t *token,
			     uint64_t slab_pages_bytes, const int *fds, unsigned int nfds)
{
	struct gantry_mover_msg msg = { .value = { slab_pages_bytes } };

	put(m, &msg, GANTRY_MOVER_ACCEPT, token, fds, nfds);
}

/* ---- start ---- */

static int watch(struct gantry_mover_process *m, struct gantry_err *err)
{
	struct event_base *base = m->agent->base;

	m->pidfd = pidfd_open(m->pid, 0);
	if (m->pidfd >= 0) {
		m->pid_event = event_new(base, m->pidfd, EV_READ, mover_ended, m);
		m->sock_event = event_new(base, m->sock, EV_READ | EV_PERSIST, readable, m);
	}
	if (m->pid_event && m->sock_event && event_add(m->pid_event, NULL) == 0 &&
	    event_add(m->sock_event, NULL) == 0)
		return 0;
	(void)kill(m->pid, SIGKILL); /* our child, not reaped: the pid is still its own */
	(void)waitpid(m->pid, NULL, 0);
	return gantry_err_set(err, -ENOMEM, "cannot watch a mover");
}

static int start_process(struct gantry_mover_process *m, struct gantry_err *err)
{
	char *const argv[] = { (char *)(uintptr_t) "gantry-mover", NULL };
	char program[PATH_MAX];
	int fds[2];
	int r = gantry_child_find(m->agent, "mover", program, err);

	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return gantry_err_set_errno(err, -errno, "a socket for a mover");
	m->pid = gantry_child_start(program, argv, NULL, &fds[1], 1);
	gantry_fd_close(fds[1]);
	m->sock = fds[0];
	if (m->pid < 0)
		return gantry_err_set_errno(err, m->pid, "starting %s", program);
	return watch(m, err);
}

void gantry_mover_start_init(struct gantry_agent *a, struct gantry_mover_start *start,
			     uint32_t role)
{
	const struct gantry_agent_conf *conf = &a->config->agent;

	*start = (struct gantry_mover_start){
		.msg = { .magic = GANTRY_MOVER_MAGIC, .kind = GANTRY_MOVER_START },
		.role = role,
		.confine = conf->confine,
		.uid = conf->worker_uid,
		.gid = conf->worker_gid,
	};
	/* They fit: the configuration's are as long. */
	(void)gantry_str_copy(start->certificates, sizeof(start->certificates),
			      conf->migration_certificates);
	if (conf->migration_name[0])
		(void)gantry_str_copy(start->own_host, sizeof(start->own_host),
				      conf->migration_name);
	else
		(void)gethostname(start->own_host, sizeof(start->own_host) - 1);
}

int gantry_mover_spawn(struct gantry_agent *a, const struct gantry_mover_start *start,
		       const int *fds, unsigned int nfds, const struct gantry_mover_events *events,
		       void *arg, struct gantry_mover_process **ret_mover, struct gantry_err *err)
{
	struct gantry_mover_process *m = calloc(1, sizeof(*m));
	ssize_t n;
	int r;

	if (!m)
		return gantry_err_set(err, -ENOMEM, "no memory for a mover");
	gantry_list_init(&m->link);
	m->agent = a;
	m->sock = m->pidfd = -EBADF;
	m->events = events;
	m->arg = arg;
	r = start_process(m, err);
	if (r < 0) {
		mover_free(m);
		return r;
	}
	gantry_list_push_back(&a->movers, &m->link);
	n = gantry_fd_send(m->sock, start, sizeof(*start), fds, nfds, MSG_DONTWAIT);
	if (n < 0) {
		gantry_mover_end(m); /* it ends by itself, and is waited for */
		return gantry_err_set_errno(err, (int)n, "telling a mover what to do");
	}
	*ret_mover = m;
	return 0;
}
