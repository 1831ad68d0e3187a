/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/policy_child.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/child.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/run.h"
#include "host-agent/policy/packet.h"

#define START_NS     (5 * GANTRY_NS_PER_S) /* to load its object */
#define RETRY_NS     GANTRY_NS_PER_S	   /* after a failure; doubled at each */
#define RETRY_MAX_NS (64 * GANTRY_NS_PER_S)
/* A view of all there can be, and what the kernel adds to a packet. */
#define SOCKET_BYTES (4 * (int)GANTRY_POLICY_PACKET_MAX)

/* A process of ours, from its fork until it is reaped. */
struct process {
	struct gantry_list link; /* placement->processes */
	pid_t pid;
	int pidfd;
	struct event *event;
};

struct gantry_policy_child {
	struct gantry_placement *placement;
	struct gantry_domain *domain;
	struct gantry_policy_section conf;
	struct process *process; /* NULL: none */
	int fd;
	struct event *event;
	struct event *timer; /* of what is waited for */
	bool ready;	     /* its object is loaded */
	bool asked;
	uint64_t number; /* of the view it was asked about last */
	uint64_t not_before_ns;
	uint32_t nfailures; /* in a row */
	char reason[GANTRY_POLICY_TEXT + 64];
	char summary[GANTRY_POLICY_TEXT];
	struct gantry_view_store store; /* that it was asked about */
};

static void fail(struct gantry_policy_child *c, const char *why);

/* ---- processes ---- */

static void process_free(struct process *p)
{
	gantry_event_free(&p->event);
	gantry_fd_close(p->pidfd);
	gantry_list_remove(&p->link);
	free(p);
}

static void process_ended(evutil_socket_t fd, short what, void *arg)
{
	struct process *p = arg;

	(void)fd;
	(void)what;
	(void)waitpid(p->pid, NULL, WNOHANG); /* our child, and its end is what woke us */
	process_free(p);
}

/* From here on nobody knows it but the list that waits for its end. */
static void process_kill(struct process *p)
{
	(void)kill(p->pid, SIGKILL); /* our child, not reaped: the pid is still its own */
}

void gantry_policy_children_end(struct gantry_placement *p)
{
	gantry_list_for_each_safe(&p->processes, struct process, link, process) {
		process_kill(process);
		(void)waitpid(process->pid, NULL, 0); /* it was killed: soon */
		process_free(process);
	}
}

static struct process *process_watch(struct gantry_placement *pl, pid_t pid)
{
	struct process *p = calloc(1, sizeof(*p));

	if (p) {
		p->pid = pid;
		p->pidfd = pidfd_open(pid, 0);
		gantry_list_init(&p->link);
		if (p->pidfd >= 0)
			p->event = event_new(pl->agent->base, p->pidfd, EV_READ, process_ended, p);
		if (p->event && event_add(p->event, NULL) == 0) {
			gantry_list_push_back(&pl->processes, &p->link);
			return p;
		}
		process_free(p);
	}
	(void)kill(pid, SIGKILL); /* our child, not reaped */
	(void)waitpid(pid, NULL, 0);
	return NULL;
}

/* Its arguments as text, made before the fork. */
struct arguments {
	char program[PATH_MAX];
	char options[GANTRY_CONFIG_TEXT];
	char confine[4];
	char uid[16];
	char gid[16];
};

/* ---- the object ---- */

/* What is loaded is what was looked at: by this descriptor. */
static int open_object(const char *path, int *ret_fd, struct gantry_err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0)
		return gantry_err_set_errno(err, -errno, "opening %s", path);
	if (fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "looking at %s", path);
	if (!S_ISREG(st.st_mode))
		return gantry_err_set(err, -EINVAL, "%s is no file", path);
	if (st.st_uid != 0 && st.st_uid != geteuid())
		return gantry_err_set(err, -EPERM, "%s belongs to user %u; it has to be root's",
				      path, st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return gantry_err_set(err, -EPERM,
				      "%s can be written by others than its owner; chmod go-w it",
				      path);
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

/* ---- what it says ---- */

static void late(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_policy_child *c = arg;
	char limit[GANTRY_QUANTITY_MAX], why[64];

	(void)fd;
	(void)what;
	gantry_duration_format(c->ready ? c->conf.timeout_ns : START_NS, limit);
	/* it fits */
	(void)gantry_str_format(why, sizeof(why), "it did not %s within %s",
				c->ready ? "answer" : "load", limit);
	fail(c, why);
}

static void hear_hello(struct gantry_policy_child *c, const void *buf, size_t len)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_policy_hello hello;

	if (gantry_policy_hello_unpack(buf, len, &hello, &err) < 0) {
		fail(c, err.text);
		return;
	}
	c->ready = true;
	c->reason[0] = '\0';
	(void)gantry_str_copy(c->summary, sizeof(c->summary), hello.summary); /* it fits */
	gantry_event_free(&c->timer);
	gantry_event(c->placement->agent, "policy-loaded", NULL, NULL, NULL, "policy %s: %s",
		     c->conf.name, hello.summary[0] ? hello.summary : hello.name);
}

static void hear_choices(struct gantry_policy_child *c, const void *buf, size_t len)
{
	struct gantry_view_store *v = &c->store;
	struct gantry_err err = GANTRY_ERR_NONE;
	int r = c->asked ? 0 : gantry_err_set(&err, -EINVAL, "it spoke without being asked");

	c->asked = false;
	gantry_event_free(&c->timer);
	if (r == 0)
		r = gantry_policy_choices_unpack(buf, len, c->number, v->view.nqueues, v->choices,
						 &err);
	if (r == 0)
		r = gantry_placement_carry_out(c->placement, c->domain, v, &err);
	if (r < 0) {
		fail(c, err.text);
		return;
	}
	c->nfailures = 0;
}

static void hear(evutil_socket_t fd, short what, void *arg)
{
	static uint8_t buf[GANTRY_POLICY_PACKET_MAX];
	struct gantry_policy_child *c = arg;
	ssize_t n = gantry_fd_recv((int)fd, buf, sizeof(buf), NULL, 0, NULL, MSG_DONTWAIT);

	(void)what;
	if (n == -EAGAIN)
		return;
	if (n <= 0)
		fail(c, c->ready ? "its process died" : "its process died before it was loaded");
	else if (c->ready)
		hear_choices(c, buf, (size_t)n);
	else
		hear_hello(c, buf, (size_t)n);
}

/* ---- start and end ---- */

static void end_process(struct gantry_policy_child *c)
{
	gantry_event_free(&c->timer);
	gantry_event_free(&c->event);
	c->fd = gantry_fd_close(c->fd);
	if (c->process)
		process_kill(c->process);
	c->process = NULL;
	c->ready = false;
	c->asked = false;
}

static void fail(struct gantry_policy_child *c, const char *why)
{
	uint64_t after_ns = RETRY_NS << (c->nfailures < 6 ? c->nfailures : 6);

	end_process(c);
	if (after_ns > RETRY_MAX_NS)
		after_ns = RETRY_MAX_NS;
	c->nfailures++;
	c->not_before_ns = gantry_now_ns() + after_ns;
	c->domain->nfailures++;
	c->placement->nfailures++;
	(void)gantry_str_copy(c->reason, sizeof(c->reason), why); /* cut is better than unsaid */
	gantry_event(c->placement->agent, "policy-failed", NULL, NULL, NULL,
		     "policy %s: %s; %s decides meanwhile", c->conf.name, c->reason,
		     c->conf.fallback);
}

static int watch(struct gantry_policy_child *c, struct gantry_err *err)
{
	struct gantry_agent *a = c->placement->agent;

	c->event = event_new(a->base, c->fd, EV_READ | EV_PERSIST, hear, c);
	if (!c->event || event_add(c->event, NULL) < 0 ||
	    gantry_timer_set(a, &c->timer, START_NS, late, c) < 0)
		return gantry_err_set(err, -ENOMEM, "no memory to watch it");
	return 0;
}

static void fill_arguments(const struct gantry_policy_child *c, struct arguments *args)
{
	const struct gantry_agent_conf *conf = &c->placement->agent->config->agent;

	/* they fit */
	(void)gantry_str_copy(args->options, sizeof(args->options), c->domain->options);
	(void)gantry_str_format(args->confine, sizeof(args->confine), "%d", conf->confine);
	(void)gantry_str_format(args->uid, sizeof(args->uid), "%u", conf->worker_uid);
	(void)gantry_str_format(args->gid, sizeof(args->gid), "%u", conf->worker_gid);
}

static int start(struct gantry_policy_child *c, struct gantry_err *err)
{
	const struct gantry_agent *a = c->placement->agent;
	const int bytes = SOCKET_BYTES;
	_cleanup_close_ int object = -EBADF, theirs = -EBADF;
	struct arguments args;
	char *const argv[] = { (char *)(uintptr_t) "gantry-policy",
			       args.options,
			       args.confine,
			       args.uid,
			       args.gid,
			       NULL };
	int fds[2];
	pid_t pid;
	int r = open_object(c->conf.path, &object, err);

	if (r < 0)
		return r;
	r = gantry_child_find(a, "policy", args.program, err);
	if (r < 0)
		return r;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return gantry_err_set_errno(err, -errno, "making its socket");
	c->fd = fds[0];
	theirs = fds[1];
	(void)gantry_fd_nonblock(c->fd, true); /* a socket of ours */
	/* A view that does not fit is told when it is sent. */
	(void)setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	(void)setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	fill_arguments(c, &args);
	pid = gantry_child_start(args.program, argv, NULL, (int[]){ theirs, object }, 2);
	if (pid < 0)
		return gantry_err_set_errno(err, pid, "starting %s", args.program);
	c->process = process_watch(c->placement, pid);
	if (!c->process)
		return gantry_err_set(err, -ENOMEM, "no memory to watch it");
	return watch(c, err);
}

struct gantry_policy_child *gantry_policy_child_new(struct gantry_placement *p,
						    struct gantry_domain *d,
						    const struct gantry_policy_section *conf)
{
	struct gantry_policy_child *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->placement = p;
	c->domain = d;
	c->conf = *conf;
	c->fd = -EBADF;
	return c;
}

void gantry_policy_child_free(struct gantry_policy_child *c)
{
	if (!c)
		return;
	end_process(c);
	free(c);
}

static void try_start(struct gantry_policy_child *c)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	if (gantry_now_ns() >= c->not_before_ns && start(c, &err) < 0)
		fail(c, err.text);
}

/* The store's own arrays, not those of the one that is copied. */
static void copy_store(struct gantry_view_store *to, const struct gantry_view_store *from)
{
	*to = *from;
	to->view.devices = to->devices;
	to->view.tenants = to->tenants;
	to->view.queues = to->queues;
}

bool gantry_policy_child_ask(struct gantry_policy_child *c, const struct gantry_view_store *store)
{
	static uint8_t buf[GANTRY_POLICY_PACKET_MAX];
	struct gantry_agent *a = c->placement->agent;
	ssize_t n;

	if (!c->process)
		try_start(c);
	/* At its first start it is waited for: a placement by the fallback would only be undone. */
	if (!c->ready)
		return c->process && c->nfailures == 0;
	if (c->asked)
		return true; /* one view at a time; late() ends the wait */
	copy_store(&c->store, store);
	n = gantry_fd_send(c->fd, buf, gantry_policy_view_pack(&store->view, ++c->number, buf),
			   NULL, 0, MSG_DONTWAIT);
	if (n < 0 || gantry_timer_set(a, &c->timer, c->conf.timeout_ns, late, c) < 0) {
		fail(c, n < 0 ? strerror((int)-n) : "no memory to wait for it");
		return false;
	}
	c->asked = true;
	return true;
}

/* ---- for people ---- */

const char *gantry_policy_child_state(const struct gantry_policy_child *c)
{
	return c->ready ? "ready" : c->reason[0] ? "failed" : "starting";
}

const char *gantry_policy_child_reason(const struct gantry_policy_child *c)
{
	return c->reason;
}

const char *gantry_policy_child_summary(const struct gantry_policy_child *c)
{
	return c->summary;
}

pid_t gantry_policy_child_pid(const struct gantry_policy_child *c)
{
	return c->process ? c->process->pid : 0;
}
