/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/net.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"

#define MAKE_MS 5000 /* the kernel makes one in milliseconds */

/* ---- making one, in a process of its own ---- */

static int write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = (ssize_t)strlen(text);

	return fd >= 0 && write(fd, text, (size_t)len) == len ? 0 : -errno;
}

/* An ordinary user may have one only inside a user namespace; ids stay what they are outside. */
static int make_as_user(void)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return -errno;
	/* Without maps the ids only look different from inside. */
	(void)snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	(void)write_file("/proc/self/uid_map", map);
	(void)write_file("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	(void)write_file("/proc/self/gid_map", map);
	return 1;
}

static int bring_up_loopback(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_flags = IFF_UP | IFF_RUNNING };

	(void)gantry_str_copy(request.ifr_name, sizeof(request.ifr_name), "lo"); /* it fits */
	return fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0 ? 0 : -errno;
}

/* The namespaces' descriptors: one, or two with a user namespace. -errno. */
static int make(int *ret_fds)
{
	static const char *const names[] = { "/proc/self/ns/net", "/proc/self/ns/user" };
	int r = unshare(CLONE_NEWNET) == 0 ? 0 : errno == EPERM ? make_as_user() : -errno;
	int n = r < 0 ? 0 : r + 1;

	if (r >= 0)
		r = bring_up_loopback();
	for (int i = 0; i < n && r == 0; i++) {
		ret_fds[i] = open(names[i], O_RDONLY | O_CLOEXEC);
		if (ret_fds[i] < 0)
			r = -errno;
	}
	return r < 0 ? r : n;
}

static void make_and_tell(int sock)
{
	int fds[2], r;

	/* What signals mean is the agent's affair; this process only lives for this. */
	(void)alarm(MAKE_MS / 1000);
	r = make(fds);
	/* Who does not get it has waited too long, or is gone. */
	(void)gantry_fd_send(sock, &r, sizeof(r), fds, r > 0 ? (unsigned int)r : 0, 0);
	_exit(0);
}

/* 1 or 2 descriptors, or -errno. */
static int hear(int sock, int *ret_fds)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	unsigned int nfds = 0;
	int said = -EIO;
	ssize_t len;

	if (poll(&p, 1, MAKE_MS) <= 0)
		return -ETIMEDOUT;
	len = gantry_fd_recv(sock, &said, sizeof(said), ret_fds, 2, &nfds, MSG_DONTWAIT);
	if (len == (ssize_t)sizeof(said) && said > 0 && nfds == (unsigned int)said)
		return said;
	for (unsigned int i = 0; i < nfds; i++)
		gantry_fd_close(ret_fds[i]);
	return len == (ssize_t)sizeof(said) && said < 0 ? said : -EIO;
}

static int make_net(struct gantry_net *net)
{
	int fds[2], got[2] = { -EBADF, -EBADF }, r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		make_and_tell(fds[1]);
	r = pid < 0 ? -errno : 0;
	gantry_fd_close(fds[1]);
	if (r == 0)
		r = hear(fds[0], got);
	gantry_fd_close(fds[0]);
	if (pid > 0) {
		(void)kill(pid, SIGKILL); /* our child, not reaped: the pid is still its own */
		(void)waitpid(pid, NULL, 0);
	}
	if (r < 0)
		return r;
	net->fd = got[0];
	net->user_fd = got[1];
	return 0;
}

/* ---- a tenant's ---- */

static void keep(struct gantry_tenant *t)
{
	gantry_keep(t->agent, t->net.fd, GANTRY_KEPT_NET, t->slot);
	if (t->net.user_fd >= 0)
		gantry_keep(t->agent, t->net.user_fd, GANTRY_KEPT_NET_USER, t->slot);
}

void gantry_net_restore(struct gantry_tenant *t)
{
	char net[32], user[32];

	(void)gantry_str_format(net, sizeof(net), GANTRY_KEPT_NET, t->slot);	    /* it fits */
	(void)gantry_str_format(user, sizeof(user), GANTRY_KEPT_NET_USER, t->slot); /* it fits */
	t->net.fd = gantry_store_take(&t->agent->handed, net);
	t->net.user_fd = gantry_store_take(&t->agent->handed, user);
	if (t->net.fd >= 0)
		keep(t);
	else
		t->net.user_fd = gantry_fd_close(t->net.user_fd);
}

void gantry_net_apply(struct gantry_tenant *t)
{
	int r;

	if (!t->conf.communicators)
		t->net.missing[0] = '\0';
	/* Once there it stays: workers that are in it could not leave it. */
	if (!t->conf.communicators || t->net.fd >= 0)
		return;
	r = make_net(&t->net);
	if (r == 0) {
		t->net.missing[0] = '\0';
		keep(t);
		return;
	}
	(void)gantry_str_copy(t->net.missing, sizeof(t->net.missing), strerror(-r)); /* people */
	gantry_event(t->agent, "communicators-failed", t, NULL, NULL,
		     "no network of the tenant's own (%s): its programs have no communicators",
		     t->net.missing);
}

void gantry_net_free(struct gantry_tenant *t)
{
	if (t->net.fd >= 0)
		gantry_keep_drop(t->agent, GANTRY_KEPT_NET, t->slot);
	if (t->net.user_fd >= 0)
		gantry_keep_drop(t->agent, GANTRY_KEPT_NET_USER, t->slot);
	t->net.fd = gantry_fd_close(t->net.fd);
	t->net.user_fd = gantry_fd_close(t->net.user_fd);
}

bool gantry_net_serves(const struct gantry_tenant *t)
{
	return t->conf.communicators && t->net.fd >= 0;
}

/* ---- a worker's ---- */

bool gantry_net_is_wanted(const struct gantry_worker *w)
{
	return w->class.mode == GANTRY_ISOLATED && w->class.group[0] != '\0';
}

const struct gantry_net *gantry_net_of(const struct gantry_worker *w)
{
	struct gantry_tenant *t;

	if (!gantry_net_is_wanted(w))
		return NULL;
	t = gantry_tenant_find(w->agent, w->class.group + strlen(GANTRY_NET_MARK));
	return t && t->net.fd >= 0 ? &t->net : NULL;
}

void gantry_net_retire(struct gantry_tenant *t)
{
	gantry_list_for_each_safe(&t->agent->workers, struct gantry_worker, link, w) {
		if (!gantry_net_is_wanted(w) ||
		    strcmp(w->class.group + strlen(GANTRY_NET_MARK), t->conf.name) != 0)
			continue;
		w->stale = true;
		if (w->nsessions == 0)
			gantry_worker_quit(w);
	}
}

int gantry_net_enter(const struct gantry_net *net)
{
	/* In this order: what may enter the network is who is root in its user namespace. */
	if (net->user_fd >= 0 && setns(net->user_fd, CLONE_NEWUSER) < 0)
		return -errno;
	return setns(net->fd, CLONE_NEWNET) < 0 ? -errno : 0;
}
