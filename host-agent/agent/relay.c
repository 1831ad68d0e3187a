/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/relay.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/cgroup.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/tenant.h"

#define DOOR_FD	      3
#define STREAM_FD     4
#define OWN_BYTES     (64ull << 20)
#define OWN_PROCESSES 4u

struct relay {
	struct gantry_list link;
	struct gantry_agent *agent;
	uint64_t id; /* of its group; out of the workers' numbers */
	pid_t pid;
	int pidfd;
	struct event *event;
};

/* Its numbers as text, made before the fork. */
struct arguments {
	char program[PATH_MAX];
	char cgroup[PATH_MAX];
	char grace_ms[24];
	char confine[4];
	char uid[16];
	char gid[16];
};

static void relay_free(struct relay *r)
{
	gantry_event_free(&r->event);
	gantry_fd_close(r->pidfd);
	gantry_list_remove(&r->link);
	free(r);
}

static void relay_ended(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;

	(void)fd;
	(void)what;
	(void)waitpid(r->pid, NULL, WNOHANG); /* our child, and its end is what woke us */
	if (r->agent->cgroups)
		gantry_cgroup_remove(r->agent->cgroups, r->id);
	relay_free(r);
}

void gantry_relays_forget(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->relays, struct relay, link, r)
		relay_free(r);
}

/* Beside the worker, as packages put it, or in a build folder. */
static int find_program(const struct gantry_agent *a, char path[PATH_MAX])
{
	static const char *const places[] = { "gantry-relay", "../relay/gantry-relay" };
	const char *slash = strrchr(a->args.worker_path, '/');
	int dir = slash ? (int)(slash - a->args.worker_path) : 0;

	for (size_t i = 0; slash && i < GANTRY_ARRAY_SIZE(places); i++)
		if (gantry_str_format(path, PATH_MAX, "%.*s/%s", dir, a->args.worker_path,
				      places[i]) == 0 &&
		    access(path, X_OK) == 0)
			return 0;
	return -ENOENT;
}

static void limit(const struct gantry_tenant *t, uint64_t id, uint64_t segment_bytes, char *path)
{
	struct gantry_cgroups *c = t->agent->cgroups;
	const struct gantry_cgroup_limits limits = {
		.cpu_milli = t->conf.worker_cpu.milli,
		.cpu_weight = t->conf.worker_cpu.weight,
		.mem_bytes = segment_bytes + OWN_BYTES,
		.pids = OWN_PROCESSES,
	};

	path[0] = '\0';
	if (!c || gantry_cgroup_make(c, id, path, PATH_MAX) < 0)
		path[0] = '\0'; /* without, as workers are then */
	else
		(void)gantry_cgroup_limit(c, id, &limits);
}

static void fill_arguments(const struct gantry_tenant *t, struct arguments *args)
{
	const struct gantry_agent_conf *conf = &t->agent->config->agent;

	/* they fit */
	(void)gantry_str_format(args->grace_ms, sizeof(args->grace_ms), "%llu",
				(unsigned long long)(conf->vsock_grace_ns / GANTRY_NS_PER_MS));
	(void)gantry_str_format(args->confine, sizeof(args->confine), "%d", conf->confine);
	(void)gantry_str_format(args->uid, sizeof(args->uid), "%u", conf->worker_uid);
	(void)gantry_str_format(args->gid, sizeof(args->gid), "%u", conf->worker_gid);
}

/* In the child. Both descriptors to where they belong, whatever numbers they have. */
static void exec_relay(struct arguments *args, int door, int stream)
{
	char *const argv[] = { (char *)(uintptr_t) "gantry-relay",
			       args->grace_ms,
			       args->confine,
			       args->uid,
			       args->gid,
			       NULL };
	int high_door = fcntl(door, F_DUPFD_CLOEXEC, STREAM_FD + 1);
	int high_stream = fcntl(stream, F_DUPFD_CLOEXEC, STREAM_FD + 1);
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	if (args->cgroup[0])
		(void)gantry_cgroup_enter(args->cgroup);
	if (high_door < 0 || high_stream < 0 || dup2(high_door, DOOR_FD) < 0 ||
	    dup2(high_stream, STREAM_FD) < 0)
		_exit(126);
	/* Whatever else is open is the agent's. */
	(void)close_range(STREAM_FD + 1, ~0u, 0);
	execv(args->program, argv);
	_exit(127);
}

static int watch(struct relay *r, struct gantry_err *err)
{
	r->pidfd = pidfd_open(r->pid, 0);
	if (r->pidfd >= 0)
		r->event = event_new(r->agent->base, r->pidfd, EV_READ, relay_ended, r);
	if (r->event && event_add(r->event, NULL) == 0)
		return 0;
	(void)kill(r->pid, SIGKILL); /* our child, not reaped: the pid is still its own */
	(void)waitpid(r->pid, NULL, 0);
	return gantry_err_set(err, -ENOMEM, "cannot watch a relay");
}

int gantry_relay_start(struct gantry_tenant *t, uint64_t segment_bytes, int stream, int *ret_door,
		       struct gantry_err *err)
{
	struct gantry_agent *a = t->agent;
	struct relay *r = calloc(1, sizeof(*r));
	struct arguments args;
	int fds[2];
	int status;

	if (!r)
		return gantry_err_set(err, -ENOMEM, "no memory for a relay");
	gantry_list_init(&r->link);
	r->agent = a;
	r->pidfd = -EBADF;
	if (find_program(a, args.program) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		status = gantry_err_set(err, -errno, "there is no gantry-relay beside %s",
					a->args.worker_path);
		relay_free(r);
		return status;
	}
	r->id = a->next_worker_id++;
	limit(t, r->id, segment_bytes, args.cgroup);
	fill_arguments(t, &args);
	r->pid = fork();
	if (r->pid == 0)
		exec_relay(&args, fds[1], stream);
	gantry_fd_close(fds[1]);
	status = r->pid < 0 ? gantry_err_set_errno(err, -errno, "starting %s", args.program)
			    : watch(r, err);
	if (status < 0) {
		gantry_fd_close(fds[0]);
		relay_free(r);
		return status;
	}
	gantry_list_push_back(&a->relays, &r->link);
	(void)gantry_fd_nonblock(fds[0], true); /* a socket of ours */
	*ret_door = fds[0];
	return 0;
}
