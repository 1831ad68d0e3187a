/* SPDX-License-Identifier: Apache-2.0 */
/* MPS servers: one control daemon for each trust group of packed tenants. */
#include "host-agent/agent/mps.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mps_run.h"
#include "host-agent/agent/mps_watch.h"
#include "host-agent/agent/procstat.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/store.h"

#define BACKEND	 "cuda" /* whose devices have MPS */
#define START_NS (10 * GANTRY_NS_PER_S)
#define PROBE_NS (50 * GANTRY_NS_PER_MS)
#define ASK_NS	 (500 * GANTRY_NS_PER_MS)
#define RUN_NS	 (5 * GANTRY_NS_PER_S)
#define TERMINATE_NS \
	(2 * GANTRY_NS_PER_S) /* 9 ms measured; past it the worker is killed all the same */
#define QUIT_NS	    (4 * GANTRY_NS_PER_S)
#define RETRY_NS    (10 * GANTRY_NS_PER_S)
#define MANY_DEATHS 3u
#define EXPECT_NS   (400 * GANTRY_NS_PER_MS) /* clients had a fault of another within 0.3 s (H200) */
#define SETTLE_NS   (10 * GANTRY_NS_PER_MS)
/* Servers get a second, then the daemon ends them. */
#define SAY_QUIT "quit -t 1\n"

enum mps_state {
	MPS_STARTING,
	MPS_READY,
	MPS_ENDING, /* told to */
	MPS_DEAD,   /* the daemon died; what it served may live on for a while */
};

struct gantry_mps {
	struct gantry_list link; /* agent->mps */
	struct gantry_agent *agent;
	uint64_t id;
	char group[GANTRY_CONFIG_NAME + 8];
	char dir[PATH_MAX];
	enum mps_state state;
	uid_t uid; /* of the clients it was started for */
	bool multiuser;
	bool is_child; /* else the monitor's */
	bool learning;
	bool expects_fault;
	pid_t pid;
	int pidfd;
	pid_t server;
	int server_fd;		    /* pidfd of the server, or -EBADF */
	struct event *server_event; /* its end */
	uint32_t nclients;
	uint64_t started_ns;
	struct event *event;
	struct event *timer;
};

/* ---- folders ---- */

static int make_folder(const char *path, mode_t mode, uid_t uid, gid_t gid)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	if (chmod(path, mode) < 0 || (geteuid() == 0 && uid != 0 && chown(path, uid, gid) < 0))
		return -errno;
	return 0;
}

static int make_folders(struct gantry_mps *m, gid_t gid, struct gantry_err *err)
{
	const char *run_dir = m->agent->args.run_dir;
	char path[PATH_MAX];
	int r;

	r = gantry_str_format(path, sizeof(path), "%s/mps", run_dir);
	if (r == 0)
		r = make_folder(path, 0711, 0, 0);
	if (r == 0)
		r = make_folder(m->dir, 0711, 0, 0);
	for (int i = 0; i < 2 && r == 0; i++) {
		r = gantry_str_format(path, sizeof(path), "%s/%s", m->dir, i ? "log" : "pipe");
		if (r == 0)
			r = make_folder(path, 0700, m->uid, gid);
	}
	return r < 0 ? gantry_err_set_errno(err, r, "making the folder %s", m->dir) : 0;
}

/* Files of one folder, none below: what a daemon leaves. */
static void remove_folder(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *e;

	while (dir && (e = readdir(dir)))
		(void)unlinkat(dirfd(dir), e->d_name, 0); /* what cannot go keeps the folder */
	if (dir)
		closedir(dir);
	(void)rmdir(path);
}

static void remove_folders(const char *dir)
{
	char path[PATH_MAX];

	if (gantry_str_format(path, sizeof(path), "%s/pipe", dir) == 0)
		remove_folder(path);
	if (gantry_str_format(path, sizeof(path), "%s/log", dir) == 0)
		remove_folder(path);
	(void)rmdir(dir);
}

/* ---- the object ---- */

static struct gantry_mps *new_mps(struct gantry_agent *a, uint64_t id, const char *group)
{
	struct gantry_mps *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->agent = a;
	m->id = id;
	m->pidfd = -EBADF;
	m->server_fd = -EBADF;
	m->started_ns = gantry_now_ns();
	(void)gantry_str_copy(m->group, sizeof(m->group), group); /* it fits */
	if (gantry_str_format(m->dir, sizeof(m->dir), "%s/mps/%" PRIx64, a->args.run_dir, id) < 0) {
		free(m);
		return NULL;
	}
	gantry_list_push_back(&a->mps, &m->link);
	return m;
}

static void free_mps(struct gantry_mps *m)
{
	struct gantry_agent *a = m->agent;

	gantry_mps_run_forget(a, m);
	gantry_keep_drop_tree(a, "mps/%" PRIx64 "/", m->id);
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->mps == m)
			w->mps = NULL;
	gantry_event_free(&m->event);
	gantry_event_free(&m->timer);
	gantry_event_free(&m->server_event);
	gantry_fd_close(m->pidfd);
	gantry_fd_close(m->server_fd);
	gantry_list_remove(&m->link);
	free(m);
}

static struct gantry_mps *find_mps(struct gantry_agent *a, const char *group)
{
	gantry_list_for_each(&a->mps, struct gantry_mps, link, m)
		if ((m->state == MPS_STARTING || m->state == MPS_READY) &&
		    strcmp(m->group, group) == 0)
			return m;
	return NULL;
}

static void kill_daemon(struct gantry_mps *m)
{
	/* Its server first: it would not be told any more. Or they have ended just now. */
	if (m->server_fd >= 0)
		(void)pidfd_send_signal(m->server_fd, SIGKILL, NULL, 0);
	if (m->pidfd >= 0)
		(void)pidfd_send_signal(m->pidfd, SIGKILL, NULL, 0);
}

/* ---- who needs one ---- */

static bool uses_mps(const struct gantry_tenant *t)
{
	const struct gantry_agent *a = t->agent;

	if (a->config->agent.mps[0] == '/')
		return true;
	for (uint32_t i = 0; i < a->ndevices; i++)
		if ((t->device_mask >> i & 1) && a->devices[i].used &&
		    strcmp(a->devices[i].conf.backend, BACKEND) == 0)
			return true;
	return false;
}

/* A tenant of the group whose packed sessions want the server. */
static bool is_wanted(const struct gantry_agent *a, const char *group)
{
	char path[PATH_MAX];
	struct gantry_worker_class class;

	if (strcmp(a->config->agent.mps, "off") == 0 || a->stopping)
		return false;
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t) {
		gantry_tenant_class(t, &class);
		if (!t->removed && class.mode == GANTRY_PACKED && strcmp(class.group, group) == 0 &&
		    uses_mps(t))
			return gantry_mps_program(a, path) == 0;
	}
	return false;
}

/* ---- start ---- */

static void probe(evutil_socket_t fd, short what, void *arg);

static void fail(struct gantry_mps *m, const char *why)
{
	struct gantry_agent *a = m->agent;

	gantry_event(a, "mps-failed", NULL, NULL, NULL,
		     "group %s: %s; its sessions are served outside MPS", m->group, why);
	a->mps_not_before_ns = gantry_now_ns() + RETRY_NS;
	kill_daemon(m);
	gantry_event_free(&m->timer);
	if (m->event) {
		m->state =
			MPS_DEAD; /* freed once it has ended: one that sits in its driver may take its time */
	} else {
		if (m->is_child && m->pid > 0)
			(void)waitpid(m->pid, NULL,
				      WNOHANG); /* it has ended, or was never watched */
		free_mps(m);
	}
	gantry_warm_fill(a);
	gantry_agent_stop_if_idle(a);
}

static void ask_server(struct gantry_mps *m);

/* The last line that is a number: the server's process id. */
static pid_t parse_server(const char *answer)
{
	pid_t pid = 0;

	while (*answer) {
		size_t len = strcspn(answer, "\n");
		size_t digits = strspn(answer, "0123456789");

		if (digits > 0 && digits <= 7 && strspn(answer + digits, " \r") + digits == len)
			pid = atoi(answer);
		answer += len + (answer[len] == '\n');
	}
	return pid;
}

/*
 * Its clients' contexts are of no use without it. Those that need nothing of it may not find out for minutes, and what
 * they have on the device stands still.
 */
static void server_ended(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mps *m = arg;

	(void)fd;
	(void)what;
	gantry_event_free(&m->server_event);
	gantry_list_for_each(&m->agent->workers, struct gantry_worker, link, w)
		if (w->mps == m && !w->dead && w->state != GANTRY_WORKER_ENDING)
			gantry_fault_untold(w); /* judges its mates with it */
	gantry_fd_close(m->server_fd);
	m->server_fd = -EBADF;
	m->server = 0;
}

/* False: @server is none, or has ended and its daemon does not know yet. */
static bool learn(struct gantry_mps *m, pid_t server)
{
	struct pollfd end = { .events = POLLIN };

	if (server <= 1)
		return false;
	if (server == m->server)
		return true;
	end.fd = pidfd_open(server, 0);
	if (end.fd < 0 || poll(&end, 1, 0) > 0) {
		gantry_fd_close(end.fd);
		return false;
	}
	gantry_event_free(&m->server_event);
	gantry_fd_close(m->server_fd);
	m->server = server;
	m->server_fd = end.fd;
	/* Without the event its clients have to find out by themselves. */
	m->server_event = event_new(m->agent->base, m->server_fd, EV_READ, server_ended, m);
	if (m->server_event)
		(void)event_add(m->server_event, NULL);
	return true;
}

static void ask_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	ask_server(arg);
}

static void learned(void *arg, bool ok, const char *answer)
{
	struct gantry_mps *m = arg;

	m->learning = false;
	if (ok && learn(m, parse_server(answer)))
		return;
	/* Where the timer is in use, with the next worker. */
	if (m->nclients > 0 && m->state == MPS_READY && !m->expects_fault)
		(void)gantry_timer_set(m->agent, &m->timer, ASK_NS, ask_again, m);
}

static void ask_server(struct gantry_mps *m)
{
	if (m->learning || m->state != MPS_READY)
		return;
	/* Not run: it is asked again with the next worker. */
	m->learning = gantry_mps_run(m->agent, m->dir, "get_server_list\n", RUN_NS, learned, m) ==
		      0;
}

static void probed(void *arg, bool ok, const char *answer)
{
	struct gantry_mps *m = arg;

	if (m->state != MPS_STARTING)
		return;
	if (!ok && gantry_now_ns() - m->started_ns < START_NS) {
		if (gantry_timer_set(m->agent, &m->timer, PROBE_NS, probe, m) < 0)
			fail(m, "no memory for a timer");
		return;
	}
	if (!ok) {
		fail(m, "its control daemon does not answer");
		return;
	}
	m->state = MPS_READY;
	gantry_event_free(&m->timer);
	(void)learn(m, parse_server(answer)); /* else with its first client */
	gantry_event(m->agent, "mps-started", NULL, NULL, NULL, "group %s: daemon %d in %s",
		     m->group, (int)m->pid, m->dir);
	gantry_warm_fill(m->agent);
}

static void probe(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mps *m = arg;
	char text[80];

	(void)fd;
	(void)what;
	/* The server ahead of its first client: it takes its time. It fits. */
	(void)gantry_str_format(text, sizeof(text), "start_server -uid %u\nget_server_list\n",
				m->uid);
	if (gantry_mps_run(m->agent, m->dir, text, RUN_NS, probed, m) < 0)
		fail(m, "its control program does not run");
}

/* ---- the end ---- */

/* One that dies is replaced at once; where they die again and again, packed workers do without for a while. */
static void note_death(struct gantry_agent *a)
{
	uint64_t now_ns = gantry_now_ns();

	a->mps_deaths_in_row = now_ns - a->mps_died_ns < RETRY_NS ? a->mps_deaths_in_row + 1 : 1;
	a->mps_died_ns = now_ns;
	if (a->mps_deaths_in_row > MANY_DEATHS)
		a->mps_not_before_ns = now_ns + RETRY_NS;
}

static void gone(struct gantry_mps *m)
{
	struct gantry_agent *a = m->agent;
	bool ordered = m->state == MPS_ENDING;
	bool known = m->state == MPS_DEAD;

	if (m->server_fd >= 0 && m->nclients == 0)
		(void)pidfd_send_signal(m->server_fd, SIGTERM, NULL, 0); /* or it has ended */
	if (!ordered && !known) {
		a->counters.mps_deaths++;
		gantry_event(a, "mps-died", NULL, NULL, NULL,
			     "group %s: its control daemon ended; later sessions get another",
			     m->group);
		note_death(a);
	}
	m->state = MPS_DEAD;
	gantry_keep_drop_tree(a, "mps/%" PRIx64 "/", m->id);
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (w->mps != m)
			continue;
		w->stale = true;
		if (w->nsessions == 0)
			gantry_worker_quit(w);
	}
	if (m->nclients > 0)
		return; /* freed with the last of them */
	if (ordered)
		remove_folders(m->dir);
	free_mps(m);
	gantry_warm_fill(a);
	gantry_agent_stop_if_idle(a);
}

static void daemon_ended(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mps *m = arg;

	(void)fd;
	(void)what;
	if (m->is_child)
		(void)waitpid(m->pid, NULL, WNOHANG); /* else the monitor's */
	gantry_event_free(&m->event);
	gantry_event_free(&m->timer);
	if (m->state == MPS_STARTING)
		fail(m, "its control daemon ended at once; its log says why");
	else
		gone(m);
}

static int watch(struct gantry_mps *m)
{
	m->event = event_new(m->agent->base, m->pidfd, EV_READ, daemon_ended, m);
	if (!m->event || event_add(m->event, NULL) < 0) {
		gantry_event_free(&m->event);
		return -ENOMEM;
	}
	gantry_keep(m->agent, m->pidfd, "mps/%" PRIx64 "/%d/%u/%s", m->id, (int)m->pid, m->uid,
		    m->group);
	return 0;
}

static void quit_timeout(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kill_daemon(arg);
}

static void quit(struct gantry_mps *m)
{
	if (m->state == MPS_ENDING || m->state == MPS_DEAD)
		return;
	m->state = MPS_ENDING;
	if (gantry_mps_run(m->agent, m->dir, SAY_QUIT, RUN_NS, NULL, NULL) < 0 ||
	    gantry_timer_set(m->agent, &m->timer, QUIT_NS, quit_timeout, m) < 0)
		kill_daemon(m);
}

/* ---- admission ---- */

static void start_mps(struct gantry_agent *a, const char *group)
{
	const struct gantry_agent_conf *conf = &a->config->agent;
	struct gantry_mps *m = new_mps(a, a->next_worker_id++, group);
	struct gantry_err err = GANTRY_ERR_NONE;
	bool root = geteuid() == 0;
	int r;

	if (!m)
		return;
	m->uid = root && conf->worker_uid ? conf->worker_uid : geteuid();
	m->multiuser = conf->mps_multiuser == GANTRY_MPS_MULTIUSER_YES ||
		       (conf->mps_multiuser == GANTRY_MPS_MULTIUSER_AUTO && m->uid != geteuid());
	r = make_folders(m, conf->worker_gid, &err);
	if (r == 0)
		r = gantry_mps_run_daemon(a, m->dir, m->multiuser, &m->pid, &m->pidfd, &err);
	m->is_child = r == 0;
	if (r == 0 && watch(m) < 0)
		r = gantry_err_set(&err, -ENOMEM, "no memory to watch it");
	if (r < 0)
		fail(m, err.text);
	else if (gantry_timer_set(a, &m->timer, PROBE_NS, probe, m) < 0)
		fail(m, "no memory for a timer");
}

/* After a fault the server takes nobody until all whose contexts it ended have left. */
static bool is_in_fault(const struct gantry_mps *m)
{
	gantry_list_for_each(&m->agent->workers, struct gantry_worker, link, w)
		if (w->mps == m && w->faulted && !w->dead)
			return true;
	return false;
}

static void nothing_came(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_mps *m = arg;

	(void)fd;
	(void)what;
	gantry_mps_fault_came(m);
	gantry_attach_serve(m->agent);
	gantry_warm_fill(m->agent);
}

void gantry_mps_expect_fault(struct gantry_mps *m)
{
	/* Without a timer nobody would end it. */
	m->expects_fault = m->state == MPS_READY &&
			   gantry_timer_set(m->agent, &m->timer, EXPECT_NS, nothing_came, m) == 0;
}

void gantry_mps_fault_came(struct gantry_mps *m)
{
	if (m->expects_fault && m->state == MPS_READY)
		gantry_event_free(&m->timer);
	m->expects_fault = false;
}

bool gantry_mps_expects_fault(const struct gantry_mps *m)
{
	return m->expects_fault && m->state == MPS_READY;
}

/* A warm worker of another class of the group has no guest yet, and makes room where a session waits. */
static bool make_room(const struct gantry_mps *m, const struct gantry_worker_class *class)
{
	if (!gantry_warm_is_wanted(m->agent, class))
		return false;
	gantry_list_for_each_safe(&m->agent->workers, struct gantry_worker, link, w)
		if (w->mps == m && w->nsessions == 0 && w->state == GANTRY_WORKER_WARM &&
		    !gantry_worker_class_equal(&w->class, class)) {
			gantry_worker_quit(w);
			return true;
		}
	return false;
}

int gantry_mps_admit(struct gantry_agent *a, const struct gantry_worker_class *class,
		     struct gantry_mps **ret_mps)
{
	struct gantry_mps *m;

	*ret_mps = NULL;
	if (class->mode != GANTRY_PACKED || !is_wanted(a, class->group))
		return 0;
	m = find_mps(a, class->group);
	if (!m && gantry_now_ns() < a->mps_not_before_ns)
		return 0;
	if (!m) {
		start_mps(a, class->group);
		return -EAGAIN;
	}
	if (m->state == MPS_STARTING || is_in_fault(m) || m->expects_fault)
		return -EAGAIN;
	if (m->nclients >= a->config->agent.mps_clients)
		return make_room(m, class) ? -EAGAIN : -ENOSPC;
	*ret_mps = m;
	return 0;
}

bool gantry_mps_full(const struct gantry_tenant *t)
{
	const struct gantry_agent *a = t->agent;
	struct gantry_worker_class class, theirs;
	uint32_t n = 0;

	gantry_tenant_class(t, &class);
	if (class.mode != GANTRY_PACKED || !is_wanted(a, class.group))
		return false;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s) {
		gantry_tenant_class(s->tenant, &theirs);
		n += !s->worker && theirs.mode == GANTRY_PACKED &&
		     strcmp(theirs.group, class.group) == 0;
	}
	/* One that ends is still a client. */
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		n += w->mps && strcmp(w->class.group, class.group) == 0 &&
		     (w->nsessions > 0 || w->state == GANTRY_WORKER_ENDING);
	return n >= a->config->agent.mps_clients;
}

void gantry_mps_join(struct gantry_mps *m, struct gantry_worker *w)
{
	w->mps = m;
	if (!m)
		return;
	m->nclients++;
	gantry_mps_watch(m->agent);
	gantry_keep(m->agent, m->pidfd, "w/%" PRIx64 "/mps/%" PRIx64, w->id, m->id);
}

void gantry_mps_leave(struct gantry_worker *w)
{
	struct gantry_mps *m = w->mps;

	w->mps = NULL;
	if (!m)
		return;
	m->nclients--;
	gantry_mps_settle(m->agent);
}

/* Whatever the agent's own environment says; without memory the driver's default holds. */
static void set_number(const char *name, uint32_t number)
{
	char text[16];

	(void)unsetenv(name);
	if (number == 0)
		return;
	(void)gantry_str_format(text, sizeof(text), "%u", number); /* it fits */
	(void)setenv(name, text, 1);
}

void gantry_mps_environment(const struct gantry_worker *w)
{
	char text[PATH_MAX];

	set_number("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", w->mps ? w->class.percent : 0);
	set_number("CUDA_MPS_CLIENT_PRIORITY", w->mps ? w->class.mps_priority : 0);
	if (!w->mps) {
		/* A folder that is not there: the driver finds no daemon, and not the host's. It fits. */
		(void)gantry_str_format(text, sizeof(text), "%s/mps/none", w->agent->args.run_dir);
		gantry_mps_set_dirs(text);
		return;
	}
	gantry_mps_set_dirs(w->mps->dir);
}

void gantry_mps_ready(struct gantry_worker *w)
{
	if (w->mps)
		ask_server(w->mps);
}

pid_t gantry_mps_server(const struct gantry_worker *w)
{
	return w->mps ? w->mps->server : 0;
}

bool gantry_mps_server_ended(const struct gantry_worker *w)
{
	struct pollfd p = { .fd = w->mps ? w->mps->server_fd : -EBADF, .events = POLLIN };
	struct gantry_procstat stat;

	if (p.fd < 0)
		return false;
	/* Its clients know before it is gone: to let go of a GPU takes a while. */
	return poll(&p, 1, 0) > 0 || gantry_procstat(w->mps->server, 0, &stat) < 0 || stat.ending;
}

uint32_t gantry_mps_party(const struct gantry_worker *w)
{
	return w->mps ? 0x80000000u | (uint32_t)w->mps->id : w->owner + 1;
}

unsigned int gantry_mps_count(const struct gantry_agent *a)
{
	return (unsigned int)gantry_list_count(&a->mps);
}

/* ---- terminate, then kill ---- */

struct ending {
	struct gantry_agent *agent;
	uint64_t worker_id;
};

static void terminated(void *arg, bool ok, const char *answer)
{
	_cleanup_free_ struct ending *e = arg;
	struct gantry_worker *w = gantry_worker_find(e->agent, e->worker_id);

	(void)answer;
	if (ok)
		e->agent->counters.mps_terminated++;
	else
		gantry_event(e->agent, "mps-silent", NULL, NULL, w,
			     "the server was not told of a client's end; its neighbours may fault");
	if (!w)
		return;
	w->let_go = ok;
	gantry_worker_kill_now(w);
}

/*
 * Work that the server cuts off looks finished to its client: what comes behind it in the stream is done, and among that
 * the write that tells of it. From here on the worker believes nothing that its device says.
 */
static void fence(struct gantry_worker *w)
{
	gantry_list_for_each(&w->sessions, struct gantry_session, worker_link, s)
		if (s->ledger.hdr)
			gantry_store_release(&s->ledger.hdr->epoch, s->ledger.hdr->epoch + 1);
}

int gantry_mps_terminate(struct gantry_worker *w)
{
	struct gantry_mps *m = w->mps;
	struct ending *e;
	char text[80];
	int r;

	struct pollfd end = { .fd = w->pidfd, .events = POLLIN };

	if (!m || m->state != MPS_READY || m->server == 0 || poll(&end, 1, 0) > 0)
		return -ENOENT;
	e = malloc(sizeof(*e));
	if (!e)
		return -ENOMEM;
	*e = (struct ending){ .agent = w->agent, .worker_id = w->id };
	fence(w);
	(void)gantry_str_format(text, sizeof(text), "terminate_client %d %d\n", (int)m->server,
				(int)w->pid); /* it fits */
	r = gantry_mps_run(w->agent, m->dir, text, TERMINATE_NS, terminated, e);
	if (r < 0)
		free(e);
	return r;
}

/* ---- settle ---- */

static void settle(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	gantry_list_for_each_safe(&a->mps, struct gantry_mps, link, m) {
		if (m->nclients > 0 || (m->state == MPS_DEAD && m->event))
			continue;
		if (m->state == MPS_DEAD)
			gone(m);
		else if (!is_wanted(a, m->group))
			quit(m);
	}
	if (a->stopping)
		return;
	gantry_warm_fill(a);
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t)
		if (!t->removed && gantry_tenant_mode(t) == GANTRY_PACKED)
			gantry_conn_next(t);
}

void gantry_mps_settle(struct gantry_agent *a)
{
	if (!gantry_list_is_empty(&a->mps))
		/* without memory the next worker's end tries again */
		(void)gantry_timer_set(a, &a->mps_timer, SETTLE_NS, settle, a);
}

/* ---- an agent before us ---- */

static void restore_one(struct gantry_agent *a, uint64_t id, pid_t pid, uid_t uid,
			const char *group, int pidfd)
{
	struct gantry_mps *m = new_mps(a, id, group);

	if (id >= a->next_worker_id)
		a->next_worker_id = id + 1;
	if (!m) {
		gantry_fd_close(pidfd);
		return;
	}
	m->pid = pid;
	m->uid = uid;
	m->pidfd = pidfd;
	m->state = MPS_READY;
	if (watch(m) < 0) {
		fail(m, "no memory to watch it");
		return;
	}
	ask_server(m);
}

static void swept(void *arg, bool ok, const char *answer)
{
	_cleanup_free_ char *dir = arg;

	(void)ok;
	(void)answer;
	remove_folders(dir);
}

/* Folders whose daemon nobody kept: its agent and monitor died together. */
static void sweep(struct gantry_agent *a)
{
	char path[PATH_MAX];
	const struct dirent *e;
	DIR *dir;

	if (gantry_str_format(path, sizeof(path), "%s/mps", a->args.run_dir) < 0)
		return;
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		bool ours = !isxdigit((unsigned char)e->d_name[0]);
		char *old = NULL;

		gantry_list_for_each(&a->mps, struct gantry_mps, link, m)
			ours = ours || strtoull(e->d_name, NULL, 16) == m->id;
		if (ours || asprintf(&old, "%s/%s", path, e->d_name) < 0)
			continue;
		if (gantry_mps_run(a, old, SAY_QUIT, RUN_NS, swept, old) < 0)
			free(old);
	}
	if (dir)
		closedir(dir);
}

void gantry_mps_restore(struct gantry_agent *a)
{
	size_t i = 0;

	while (i < a->handed.nentries) {
		char name[GANTRY_MONITOR_NAME_MAX];
		char group[GANTRY_CONFIG_NAME + 8];
		unsigned long long id;
		unsigned int uid;
		int pid;

		/* the same size */
		(void)gantry_str_copy(name, sizeof(name), a->handed.entries[i].name);
		static_assert(sizeof(group) > 39, "a group's name fits");
		if (sscanf(name, "mps/%llx/%d/%u/%39s", &id, &pid, &uid, group) != 4) {
			i++;
			continue;
		}
		restore_one(a, id, pid, uid, group, gantry_store_take(&a->handed, name));
		i = 0; /* entries have moved */
	}
	sweep(a);
	gantry_mps_settle(a);
}

void gantry_mps_rejoin(struct gantry_worker *w)
{
	struct gantry_store *handed = &w->agent->handed;
	char prefix[GANTRY_MONITOR_NAME_MAX];

	/* it fits */
	(void)gantry_str_format(prefix, sizeof(prefix), "w/%" PRIx64 "/mps/", w->id);
	for (size_t i = 0; i < handed->nentries; i++) {
		const char *name = handed->entries[i].name;
		unsigned long long id;

		if (!gantry_str_starts(name, prefix))
			continue;
		id = strtoull(name + strlen(prefix), NULL, 16);
		gantry_fd_close(gantry_store_take(handed, name));
		gantry_list_for_each(&w->agent->mps, struct gantry_mps, link, m)
			if (m->id == id) {
				gantry_mps_join(m, w);
				return;
			}
		w->stale = true; /* its daemon ended meanwhile */
		return;
	}
}

/* ---- the agent's end ---- */

bool gantry_mps_stop(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->mps, struct gantry_mps, link, m)
		quit(m);
	return !gantry_list_is_empty(&a->mps);
}

void gantry_mps_fini(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->mps, struct gantry_mps, link, m) {
		kill_daemon(m);
		free_mps(m);
	}
	gantry_mps_run_fini(a);
	gantry_mps_watch_fini(a);
	gantry_event_free(&a->mps_timer);
}
