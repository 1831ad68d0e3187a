/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/relay.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/cgroup.h"
#include "host-agent/agent/child.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/monitor/store.h"

#define OWN_BYTES     (64ull << 20)
#define OWN_PROCESSES 4u

struct relay {
	struct gantry_list link;
	struct gantry_agent *agent;
	struct gantry_tenant *tenant; /* NULL: it has ended */
	uint64_t id;		      /* of its group; out of the workers' numbers */
	pid_t pid;
	int pidfd;
	int page_fd;
	struct gantry_relay_page *page;
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
	gantry_fd_close(r->page_fd);
	if (r->page)
		(void)munmap(r->page, GANTRY_RELAY_PAGE_BYTES); /* it is mapped */
	gantry_list_remove(&r->link);
	free(r);
}

static struct relay *blank(struct gantry_agent *a, uint64_t id)
{
	struct relay *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->agent = a;
	r->id = id;
	r->pidfd = r->page_fd = -EBADF;
	gantry_list_init(&r->link);
	return r;
}

/* Counts of a process that a guest may have turned: for people. */
static void add(struct gantry_relay_page *sum, const struct gantry_relay_page *page)
{
	sum->tasks += gantry_load_relaxed(&page->tasks);
	sum->bytes_in += gantry_load_relaxed(&page->bytes_in);
	sum->bytes_out += gantry_load_relaxed(&page->bytes_out);
	sum->reconnects += gantry_load_relaxed(&page->reconnects);
}

uint32_t gantry_relays_count(const struct gantry_tenant *t, struct gantry_relay_page *ret_sum)
{
	uint32_t n = 0;

	*ret_sum = t->relayed;
	gantry_list_for_each(&t->agent->relays, struct relay, link, r) {
		if (r->tenant != t)
			continue;
		add(ret_sum, r->page);
		n++;
	}
	return n;
}

void gantry_relays_disown(const struct gantry_tenant *t)
{
	gantry_list_for_each(&t->agent->relays, struct relay, link, r)
		if (r->tenant == t)
			r->tenant = NULL;
}

static void relay_ended(evutil_socket_t fd, short what, void *arg)
{
	struct relay *r = arg;

	(void)fd;
	(void)what;
	/* Its end is what woke us. One of an earlier agent's is not our child, and reaped by the monitor. */
	(void)waitpid(r->pid, NULL, WNOHANG);
	if (r->agent->cgroups)
		gantry_cgroup_remove(r->agent->cgroups, r->id);
	if (r->tenant)
		add(&r->tenant->relayed, r->page);
	gantry_keep_drop_tree(r->agent, "r/%llx/", (unsigned long long)r->id);
	relay_free(r);
}

void gantry_relays_forget(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->relays, struct relay, link, r)
		relay_free(r);
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

static pid_t start_process(struct arguments *args, int door, int stream, int page)
{
	char *const argv[] = { (char *)(uintptr_t) "gantry-relay",
			       args->grace_ms,
			       args->confine,
			       args->uid,
			       args->gid,
			       NULL };

	return gantry_child_start(args->program, argv, args->cgroup, (int[]){ door, stream, page },
				  3);
}

static bool watch_pidfd(struct relay *r)
{
	if (r->pidfd >= 0)
		r->event = event_new(r->agent->base, r->pidfd, EV_READ, relay_ended, r);
	return r->event && event_add(r->event, NULL) == 0;
}

static bool map_page(struct relay *r)
{
	void *page = mmap(NULL, GANTRY_RELAY_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			  r->page_fd, 0);

	r->page = page == MAP_FAILED ? NULL : page;
	return r->page;
}

static int watch(struct relay *r, struct gantry_err *err)
{
	r->pidfd = pidfd_open(r->pid, 0);
	if (watch_pidfd(r))
		return 0;
	(void)kill(r->pid, SIGKILL); /* our child, not reaped: the pid is still its own */
	(void)waitpid(r->pid, NULL, 0);
	return gantry_err_set(err, -ENOMEM, "cannot watch a relay");
}

/* All that it needs, before there is a process. */
static int prepare(struct gantry_tenant *t, struct arguments *args, int fds[2],
		   struct relay **ret_relay, struct gantry_err *err)
{
	struct gantry_agent *a = t->agent;
	struct relay *r;
	int status = gantry_child_find(a, "relay", args->program, err);

	if (status < 0)
		return status;
	r = blank(a, a->next_worker_id++);
	if (!r)
		return gantry_err_set(err, -ENOMEM, "no memory for a relay");
	r->tenant = t;
	if (gantry_memfd_create("gantry-relay", GANTRY_RELAY_PAGE_BYTES, GANTRY_MEMFD_SEALED,
				&r->page_fd) < 0 ||
	    !map_page(r) || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		relay_free(r);
		return gantry_err_set(err, -EMFILE, "no memory or no descriptor for a relay");
	}
	fill_arguments(t, args);
	*ret_relay = r;
	return 0;
}

static void keep(struct relay *r)
{
	unsigned long long id = r->id;

	gantry_keep(r->agent, r->page_fd, "r/%llx/page", id);
	gantry_keep(r->agent, r->pidfd, GANTRY_KEPT_RELAY, id, (int)r->pid, r->tenant->slot);
}

int gantry_relay_start(struct gantry_tenant *t, uint64_t segment_bytes, int stream, int *ret_door,
		       struct gantry_err *err)
{
	struct arguments args;
	struct relay *r = NULL;
	int fds[2];
	int status = prepare(t, &args, fds, &r, err);

	if (status < 0)
		return status;
	limit(t, r->id, segment_bytes, args.cgroup);
	r->pid = start_process(&args, fds[1], stream, r->page_fd);
	gantry_fd_close(fds[1]);
	status = r->pid < 0 ? gantry_err_set_errno(err, r->pid, "starting %s", args.program)
			    : watch(r, err);
	if (status < 0) {
		gantry_fd_close(fds[0]);
		if (t->agent->cgroups)
			gantry_cgroup_remove(t->agent->cgroups, r->id);
		relay_free(r);
		return status;
	}
	gantry_list_push_back(&t->agent->relays, &r->link);
	keep(r);
	(void)gantry_fd_nonblock(fds[0], true); /* a socket of ours */
	*ret_door = fds[0];
	return 0;
}

/* ---- after a restart ---- */

static void restore(struct gantry_agent *a, uint64_t id, pid_t pid, uint32_t slot, int pidfd)
{
	struct relay *r = blank(a, id);
	char name[GANTRY_MONITOR_NAME_MAX];

	(void)gantry_str_format(name, sizeof(name), "r/%llx/page",
				(unsigned long long)id); /* fits */
	if (id >= a->next_worker_id)
		a->next_worker_id = id + 1;
	if (!r) { /* it is not counted, and its group stays until the next start */
		gantry_fd_close(gantry_store_take(&a->handed, name));
		gantry_fd_close(pidfd);
		return;
	}
	r->pid = pid;
	r->pidfd = pidfd;
	r->page_fd = gantry_store_take(&a->handed, name);
	r->tenant = gantry_tenant_by_slot(a, slot);
	if (!r->tenant || !map_page(r) || !watch_pidfd(r)) {
		gantry_keep_drop_tree(a, "r/%llx/", (unsigned long long)id);
		relay_free(r);
		return;
	}
	gantry_list_push_back(&a->relays, &r->link);
	keep(r);
}

void gantry_relays_restore(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		unsigned long long id;
		unsigned int slot;
		int pid;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		if (sscanf(name, GANTRY_KEPT_RELAY, &id, &pid, &slot) != 3) {
			i++;
			continue;
		}
		restore(a, id, pid, slot, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
}
