/* SPDX-License-Identifier: Apache-2.0 */
/* MPS servers: one control daemon for each trust group of packed tenants: its start, its life and its end. */
#include "host-agent/agent/mps.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/conn.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/fault.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mps_inside.h"
#include "host-agent/agent/mps_run.h"
#include "host-agent/agent/mps_watch.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"

#define BACKEND	    "cuda" /* whose devices have MPS */
#define START_NS    (10 * GANTRY_NS_PER_S)
#define PROBE_NS    (50 * GANTRY_NS_PER_MS)
#define ASK_NS	    (500 * GANTRY_NS_PER_MS)
#define QUIT_NS	    (4 * GANTRY_NS_PER_S)
#define RETRY_NS    (10 * GANTRY_NS_PER_S)
#define MANY_DEATHS 3u
#define SETTLE_NS   (10 * GANTRY_NS_PER_MS)

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

void gantry_mps_remove_folders(const char *dir)
{
	char path[PATH_MAX];

	if (gantry_str_format(path, sizeof(path), "%s/pipe", dir) == 0)
		remove_folder(path);
	if (gantry_str_format(path, sizeof(path), "%s/log", dir) == 0)
		remove_folder(path);
	(void)rmdir(dir);
}

/* ---- the object ---- */

struct gantry_mps *gantry_mps_new(struct gantry_agent *a, uint64_t id, const char *group)
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

struct gantry_mps *gantry_mps_find(struct gantry_agent *a, const char *group)
{
	gantry_list_for_each(&a->mps, struct gantry_mps, link, m)
		if ((m->state == GANTRY_MPS_STARTING || m->state == GANTRY_MPS_READY) &&
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
bool gantry_mps_is_wanted(const struct gantry_agent *a, const char *group)
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

void gantry_mps_fail(struct gantry_mps *m, const char *why)
{
	struct gantry_agent *a = m->agent;

	gantry_event(a, "mps-failed", NULL, NULL, NULL,
		     "group %s: %s; its sessions are served outside MPS", m->group, why);
	a->mps_not_before_ns = gantry_now_ns() + RETRY_NS;
	kill_daemon(m);
	gantry_event_free(&m->timer);
	if (m->event) {
		m->state =
			GANTRY_MPS_DEAD; /* freed once it has ended: one that sits in its driver may take its time */
	} else {
		if (m->is_child && m->pid > 0)
			(void)waitpid(m->pid, NULL,
				      WNOHANG); /* it has ended, or was never watched */
		free_mps(m);
	}
	gantry_warm_fill(a);
	gantry_agent_stop_if_idle(a);
}

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
	gantry_mps_ask_server(arg);
}

static void learned(void *arg, bool ok, const char *answer)
{
	struct gantry_mps *m = arg;

	m->learning = false;
	if (ok && learn(m, parse_server(answer)))
		return;
	/* Where the timer is in use, with the next worker. */
	if (m->nclients > 0 && m->state == GANTRY_MPS_READY && !m->expects_fault)
		(void)gantry_timer_set(m->agent, &m->timer, ASK_NS, ask_again, m);
}

void gantry_mps_ask_server(struct gantry_mps *m)
{
	if (m->learning || m->state != GANTRY_MPS_READY)
		return;
	/* Not run: it is asked again with the next worker. */
	m->learning = gantry_mps_run(m->agent, m->dir, "get_server_list\n", GANTRY_MPS_RUN_NS,
				     learned, m) == 0;
}

static void probed(void *arg, bool ok, const char *answer)
{
	struct gantry_mps *m = arg;

	if (m->state != GANTRY_MPS_STARTING)
		return;
	if (!ok && gantry_now_ns() - m->started_ns < START_NS) {
		if (gantry_timer_set(m->agent, &m->timer, PROBE_NS, probe, m) < 0)
			gantry_mps_fail(m, "no memory for a timer");
		return;
	}
	if (!ok) {
		gantry_mps_fail(m, "its control daemon does not answer");
		return;
	}
	m->state = GANTRY_MPS_READY;
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
	if (gantry_mps_run(m->agent, m->dir, text, GANTRY_MPS_RUN_NS, probed, m) < 0)
		gantry_mps_fail(m, "its control program does not run");
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
	bool ordered = m->state == GANTRY_MPS_ENDING;
	bool known = m->state == GANTRY_MPS_DEAD;

	if (m->server_fd >= 0 && m->nclients == 0)
		(void)pidfd_send_signal(m->server_fd, SIGTERM, NULL, 0); /* or it has ended */
	if (!ordered && !known) {
		a->counters.mps_deaths++;
		gantry_event(a, "mps-died", NULL, NULL, NULL,
			     "group %s: its control daemon ended; later sessions get another",
			     m->group);
		note_death(a);
	}
	m->state = GANTRY_MPS_DEAD;
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
		gantry_mps_remove_folders(m->dir);
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
	if (m->state == GANTRY_MPS_STARTING)
		gantry_mps_fail(m, "its control daemon ended at once; its log says why");
	else
		gone(m);
}

int gantry_mps_watch_daemon(struct gantry_mps *m)
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
	if (m->state == GANTRY_MPS_ENDING || m->state == GANTRY_MPS_DEAD)
		return;
	m->state = GANTRY_MPS_ENDING;
	if (gantry_mps_run(m->agent, m->dir, GANTRY_MPS_SAY_QUIT, GANTRY_MPS_RUN_NS, NULL, NULL) <
		    0 ||
	    gantry_timer_set(m->agent, &m->timer, QUIT_NS, quit_timeout, m) < 0)
		kill_daemon(m);
}

void gantry_mps_start(struct gantry_agent *a, const char *group)
{
	const struct gantry_agent_conf *conf = &a->config->agent;
	struct gantry_mps *m = gantry_mps_new(a, a->next_worker_id++, group);
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
	if (r == 0 && gantry_mps_watch_daemon(m) < 0)
		r = gantry_err_set(&err, -ENOMEM, "no memory to watch it");
	if (r < 0)
		gantry_mps_fail(m, err.text);
	else if (gantry_timer_set(a, &m->timer, PROBE_NS, probe, m) < 0)
		gantry_mps_fail(m, "no memory for a timer");
}

unsigned int gantry_mps_count(const struct gantry_agent *a)
{
	return (unsigned int)gantry_list_count(&a->mps);
}

/* ---- settle ---- */

static void settle(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	gantry_list_for_each_safe(&a->mps, struct gantry_mps, link, m) {
		if (m->nclients > 0 || (m->state == GANTRY_MPS_DEAD && m->event))
			continue;
		if (m->state == GANTRY_MPS_DEAD)
			gone(m);
		else if (!gantry_mps_is_wanted(a, m->group))
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
