/* SPDX-License-Identifier: Apache-2.0 */
/* Worker processes: started, configured, watched, ended. Their death is recover.c's. */
#include "host-agent/agent/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/build.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/cgroup.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/net.h"
#include "host-agent/agent/recover.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/restore.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker_limits.h"
#include "host-agent/shared/share.h"
#include "worker.pb-c.h"

#define LAST_WORDS_TURNS  16
#define WORKER_CONTROL_FD 3
#define READY_NS	  (60 * GANTRY_NS_PER_S) /* drivers of real devices take their time */
#define SEATED_READY_NS \
	(180 * GANTRY_NS_PER_S) /* and who waits for a seat waits for another's driver first */
#define ANSWER_NS	  (3 * GANTRY_NS_PER_S)
#define QUIT_NS		  (3 * GANTRY_NS_PER_S)
#define RESCAN_NS	  (10 * GANTRY_NS_PER_S)
#define RESCAN_AGAIN_NS	  (60 * GANTRY_NS_PER_S)
#define UNUSABLE_NS	  (100 * GANTRY_NS_PER_MS) /* before another is tried */
#define STATUS_WAIT_NS	  (200 * GANTRY_NS_PER_MS)
#define BACKOFF_MIN_NS	  (50 * GANTRY_NS_PER_MS)
#define BACKOFF_MAX_SHIFT 7

struct gantry_worker *gantry_worker_find(struct gantry_agent *a, uint64_t id)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->id == id)
			return w;
	return NULL;
}

bool gantry_worker_class_equal(const struct gantry_worker_class *a,
			       const struct gantry_worker_class *b)
{
	return a->mode == b->mode && a->percent == b->percent &&
	       a->mps_priority == b->mps_priority && a->seats == b->seats &&
	       strcmp(a->group, b->group) == 0;
}

struct gantry_worker *gantry_worker_new(struct gantry_agent *a, uint64_t id, uint32_t owner,
					const struct gantry_worker_class *class)
{
	struct gantry_worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->agent = a;
	w->id = id;
	w->class = *class;
	w->owner = owner;
	w->ctl_fd = -EBADF;
	w->pidfd = -EBADF;
	w->next_tag = 1;
	w->started_ns = gantry_now_ns();
	gantry_list_init(&w->calls);
	gantry_list_init(&w->out);
	gantry_list_init(&w->sessions);
	gantry_list_push_back(&a->workers, &w->link);
	return w;
}

void gantry_worker_free(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;

	w->dead = true;
	gantry_call_fail_all(w);
	gantry_keep_drop_tree(a, "w/%llx/", (unsigned long long)w->id);
	gantry_limits_drop(w);
	gantry_mps_leave(w);
	gantry_event_free(&w->ctl_event);
	gantry_event_free(&w->out_event);
	gantry_event_free(&w->pid_event);
	gantry_event_free(&w->timer);
	gantry_fd_close(w->ctl_fd);
	gantry_fd_close(w->pidfd);
	gantry_slot_put(a->owners, w->owner);
	gantry_list_remove(&w->link);
	free(w);
	gantry_journal_touch(a);
	gantry_agent_stop_if_idle(a);
}

/* ---- start ---- */

static void exec_worker(const struct gantry_worker *w, const struct gantry_net *net, int sock,
			const char *cgroup)
{
	char *const argv[] = { (char *)(uintptr_t) "gantry-worker", NULL };
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */
	(void)signal(SIGPIPE, SIG_DFL);		     /* nor this */
	if (cgroup[0])
		(void)gantry_cgroup_enter(cgroup); /* the agent looks whether it is in */
	/* Before its descriptor makes way. */
	if (net && gantry_net_enter(net) < 0)
		_exit(126);
	if (sock != WORKER_CONTROL_FD && dup2(sock, WORKER_CONTROL_FD) < 0)
		_exit(126);
	if (gantry_fd_cloexec(WORKER_CONTROL_FD, false) < 0)
		_exit(126);
	/* Whatever else is open is the agent's. */
	(void)close_range(WORKER_CONTROL_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC);
	gantry_mps_environment(w);
	if (w->agent->worker_program >= 0)
		(void)syscall(SYS_execveat, w->agent->worker_program, "", argv, environ,
			      AT_EMPTY_PATH);
	/* A script, which has to be found by its name. */
	execv(w->agent->args.worker_path, argv);
	_exit(127);
}

static int start_process(struct gantry_worker *w, struct gantry_err *err)
{
	const struct gantry_net *net = gantry_net_of(w);
	char cgroup[PATH_MAX];
	int fds[2];

	if (gantry_net_is_wanted(w) && !net)
		return gantry_err_set(err, -ENETDOWN, "the network of tenant %s is gone",
				      w->class.group + strlen(GANTRY_NET_MARK));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return gantry_err_set_errno(err, -errno, "making a worker's socket");
	gantry_limits_prepare(w, cgroup);
	w->pid = fork();
	if (w->pid == 0)
		exec_worker(w, net, fds[1], cgroup);
	gantry_fd_close(fds[1]);
	w->ctl_fd = fds[0];
	if (w->pid < 0)
		return gantry_err_set_errno(err, -errno, "starting %s", w->agent->args.worker_path);
	w->is_child = true;
	w->pidfd = pidfd_open(w->pid, 0);
	if (w->pidfd < 0) {
		int r = -errno;

		(void)kill(w->pid, SIGKILL); /* our child, not reaped: the pid is still its own */
		(void)waitpid(w->pid, NULL, 0);
		return gantry_err_set_errno(err, r, "watching a worker");
	}
	(void)gantry_fd_nonblock(w->ctl_fd, true); /* a socket of ours */
	return 0;
}

/* ---- the end ---- */

bool gantry_worker_hear(struct gantry_worker *w)
{
	struct gantry_agent *a = w->agent;
	uint64_t id = w->id;

	for (int i = 0; i < LAST_WORDS_TURNS && w->ctl_event; i++) {
		gantry_call_readable(w->ctl_fd, EV_READ, w);
		if (gantry_worker_find(a, id) != w)
			return false;
	}
	return true;
}

/*
 * Only its pidfd says that a worker can touch nothing any more: from here its sessions may have
 * another.
 */
static void buried(struct gantry_worker *w)
{
	/* What it said last is among it what keeps buffers: their descriptors. */
	if (!gantry_worker_hear(w))
		return;
	gantry_event_free(&w->timer);
	gantry_event_free(&w->pid_event);
	gantry_recover(w);
}

static void status_never_came(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	buried(arg);
}

static void pid_ended(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_worker *w = arg;

	(void)fd;
	(void)what;
	if (w->is_child && waitpid(w->pid, &w->status, WNOHANG) == w->pid)
		w->status_known = true;
	if (w->is_child || w->status_known || w->agent->monitor_fd < 0) {
		buried(w);
		return;
	}
	/* The monitor reaps it and tells how it ended. */
	gantry_event_free(&w->pid_event);
	if (gantry_timer_set(w->agent, &w->timer, STATUS_WAIT_NS, status_never_came, w) < 0)
		buried(w);
}

void gantry_worker_exited(struct gantry_agent *a, pid_t pid, int status)
{
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (w->pid != pid || w->is_child)
			continue;
		w->status = status;
		w->status_known = true;
		if (!w->pid_event)
			buried(w);
		return;
	}
}

int gantry_worker_watch(struct gantry_worker *w)
{
	struct event_base *base = w->agent->base;

	w->ctl_event = event_new(base, w->ctl_fd, EV_READ | EV_PERSIST, gantry_call_readable, w);
	w->pid_event = event_new(base, w->pidfd, EV_READ, pid_ended, w);
	if (!w->ctl_event || !w->pid_event || event_add(w->ctl_event, NULL) < 0 ||
	    event_add(w->pid_event, NULL) < 0)
		return -ENOMEM;
	/* In this order: a successor that finds the socket can also see the process end. */
	gantry_keep(w->agent, w->pidfd, "w/%llx/pid/%d", (unsigned long long)w->id, (int)w->pid);
	gantry_keep(w->agent, w->ctl_fd, GANTRY_KEPT_WORKER, (unsigned long long)w->id, w->owner,
		    w->class.mode, w->class.percent, w->class.mps_priority, w->class.group);
	return 0;
}

void gantry_worker_kill(struct gantry_worker *w)
{
	if (w->pidfd < 0 || w->dead || w->killing)
		return;
	/* A context that has failed has taken its neighbours' along: there is nothing to tell the server. */
	w->killing = !w->faulted && gantry_mps_terminate(w) == 0;
	if (!w->killing)
		gantry_worker_kill_now(w);
}

void gantry_worker_kill_now(struct gantry_worker *w)
{
	if (w->pidfd >= 0 && !w->dead)
		(void)pidfd_send_signal(w->pidfd, SIGKILL, NULL, 0); /* or it is gone already */
}

static void quit_timeout(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	gantry_worker_kill(arg);
}

void gantry_worker_kill_after(struct gantry_worker *w, uint64_t ns)
{
	if (gantry_timer_set(w->agent, &w->timer, ns, quit_timeout, w) < 0)
		gantry_worker_kill(w);
}

void gantry_worker_quit(struct gantry_worker *w)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Quit quit = GANTRY__WORKER__QUIT__INIT;

	if (w->state == GANTRY_WORKER_ENDING)
		return;
	w->state = GANTRY_WORKER_ENDING;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_QUIT;
	msg.quit = &quit;
	/* one that cannot be told is killed there */
	(void)gantry_call(w, &msg, NULL, 0, 0, NULL, NULL);
	if (gantry_timer_set(w->agent, &w->timer, QUIT_NS, quit_timeout, w) < 0)
		gantry_worker_kill(w);
}

/* ---- configure ---- */

static void join(char *dst, size_t cap, char **words, size_t n)
{
	dst[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(dst);

		/* for people */
		(void)gantry_str_format(dst + len, cap - len, "%s%s", i ? "\n" : "", words[i]);
		gantry_str_make_printable(dst + len + (dst[len] == '\n'));
	}
}

/* It is of no use, and makes way for another where somebody waits. */
static void try_another(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_worker *w = arg;

	(void)fd;
	(void)what;
	if (w->nsessions > 0)
		return;
	if (gantry_warm_is_wanted(w->agent, &w->class))
		gantry_worker_quit(w);
	else
		(void)gantry_timer_set(w->agent, &w->timer, UNUSABLE_NS, try_another, w);
}

static void rescan(struct gantry_worker *w, uint64_t timeout_ns);

static void rescanned(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_worker *w = arg;

	gantry_fd_close(fd);
	w->nrescans--;
	/* One that lives and has not answered in time may not have looked: it is asked again, and has longer for it. */
	if (!answer && !w->dead && w->state != GANTRY_WORKER_ENDING)
		rescan(w, RESCAN_AGAIN_NS);
	if (answer && answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE &&
	    answer->done->status < 0)
		gantry_event(w->agent, "module-problem", NULL, NULL, w, "%s", answer->done->text);
}

static void rescan(struct gantry_worker *w, uint64_t timeout_ns)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Rescan what = GANTRY__WORKER__RESCAN__INIT;

	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_RESCAN;
	msg.rescan = &what;
	/* a dead one is buried soon */
	if (gantry_call(w, &msg, NULL, 0, timeout_ns, rescanned, w) == 0)
		w->nrescans++;
}

/* A seat that was closed is none. */
static void keep_seats(struct gantry_worker *w, const Gantry__Worker__Ready *ready)
{
	uint64_t opened = 0;

	for (size_t i = 0; i < ready->n_devices; i++) {
		const struct gantry_agent_device *d =
			gantry_agent_device_find(w->agent, ready->devices[i]->name);

		if (d && ready->devices[i]->error[0] == '\0')
			opened |= 1ull << (d - w->agent->devices);
	}
	w->seats &= opened;
}

static void became_ready(struct gantry_worker *w, const Gantry__Worker__Ready *ready)
{
	struct gantry_agent *a = w->agent;

	gantry_event_free(&w->timer);
	w->state = w->nsessions ? GANTRY_WORKER_BUSY : GANTRY_WORKER_WARM;
	w->ready_ns = gantry_now_ns();
	join(w->confined, sizeof(w->confined), ready->confined, ready->n_confined);
	join(w->unconfined, sizeof(w->unconfined), ready->unconfined, ready->n_unconfined);
	w->program = ready->program;
	/* cut is better than unsaid */
	(void)gantry_str_copy(w->version, sizeof(w->version), ready->version);
	gantry_str_make_printable(w->version);
	w->confined_len = strlen(w->confined);
	w->unconfined_len = strlen(w->unconfined);
	gantry_limits_apply(w);
	gantry_mps_ready(w);
	a->spawn_failures = 0;
	if (w->rescan_due && w->class.mode != GANTRY_WORKER_STEWARD)
		rescan(w, RESCAN_NS);
	w->rescan_due = false;
	w->unusable = gantry_devices_learn(a, ready, !w->querying,
					   w->class.mode == GANTRY_WORKER_STEWARD);
	keep_seats(w, ready);
	if (w->class.mode == GANTRY_WORKER_STEWARD)
		gantry_steward_learn(w, ready);
	if (w->querying) {
		w->querying = false;
		w->class.seats = w->seats; /* which of them it was to have nobody remembers */
		/* Of another build: it serves what it has, and what comes gets one of ours. */
		w->stale = w->stale || gantry_renew_is_other(w);
		gantry_restore_answered(w, ready);
		if (w->stale && w->nsessions == 0 && !gantry_steward_is_needed(w))
			gantry_worker_quit(w);
		gantry_restore_settle(a);
	}
	if (w->class.mode == GANTRY_WORKER_STEWARD)
		gantry_steward_ready(w);
	if (w->unusable)
		gantry_attach_no_room(a, w->unusable);
	/* An MPS server that recovers from a fault refuses for a while; a steward may have ended. */
	if (w->unusable && (w->mps || w->class.seats))
		(void)gantry_timer_set(a, &w->timer, UNUSABLE_NS, try_another, w);
	gantry_journal_touch(a);
	gantry_attach_serve(a);
	gantry_warm_fill(a); /* who it was started for may be gone */
}

static void configured(void *arg, const Gantry__Worker__FromWorker *answer, int fd)
{
	struct gantry_worker *w = arg;

	gantry_fd_close(fd);
	if (!answer) {
		gantry_worker_kill(w);
		return;
	}
	if (answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_READY &&
	    answer->ready->protocol == GANTRY_WORKER_PROTOCOL) {
		became_ready(w, answer->ready);
		return;
	}
	gantry_event(w->agent, "worker-failed", NULL, NULL, w, "%s",
		     answer->body_case == GANTRY__WORKER__FROM_WORKER__BODY_DONE
			     ? answer->done->text
			     : "it speaks another protocol");
	gantry_worker_kill(w);
}

/* What Configure points to while it is packed. */
struct configure {
	Gantry__Worker__Configure msg;
	Gantry__Worker__Device devices[GANTRY_AGENT_MAX_DEVICES];
	Gantry__Worker__Device *device_list[GANTRY_AGENT_MAX_DEVICES];
	char *opts[GANTRY_AGENT_MAX_DEVICES][GANTRY_CONFIG_MAX_OPTS];
	char *dirs[GANTRY_CONFIG_MAX_DIRS];
	char holes[GANTRY_AGENT_MAX_DEVICES][16];
	uint32_t nfds;
	int fds[2 * GANTRY_AGENT_MAX_DEVICES];
	uint32_t nseats;
	int seats[GANTRY_AGENT_MAX_DEVICES]; /* owned */
};

/* A worker without one does without the device. One that lives on from an earlier agent has its own. */
static void fill_seat(struct configure *c, struct gantry_worker *w, uint32_t i,
		      Gantry__Worker__Device *msg)
{
	int r;

	if (w->querying) {
		w->seats |= 1ull << i; /* until it says which it has */
		return;
	}
	r = gantry_steward_make_seat(w->agent, i, w->id, &c->seats[c->nseats]);
	if (r == 0) {
		w->seats |= 1ull << i;
		msg->seat = true;
		c->nseats++;
		return;
	}
	gantry_event(w->agent, "worker-failed", NULL, NULL, w, "no seat at %s: %s", msg->name,
		     strerror(-r));
	msg->backend = (char *)(uintptr_t) "none"; /* it reports that it cannot open this one */
}

static void fill_device(struct configure *c, struct gantry_worker *w, uint32_t i,
			struct gantry_agent_device *d)
{
	Gantry__Worker__Device *msg = &c->devices[i];
	bool steward = w->class.mode == GANTRY_WORKER_STEWARD;
	bool held;

	gantry__worker__device__init(msg);
	c->device_list[i] = msg;
	if (steward && (!d->used || !gantry_steward_is_for(w, &d->conf)))
		return; /* no name: another's */
	if (!steward)
		c->fds[c->nfds++] = d->page_fd;
	held = !steward && d->used && gantry_steward_holds(&d->conf);
	if (!d->used || (held && !w->querying && !(w->class.seats >> i & 1))) {
		/*
		 * Indices are for ever; the worker reports that it cannot open this one, and does without: it is gone, or
		 * held by a steward and nobody's who will be served here.
		 */
		/* it fits */
		(void)gantry_str_format(c->holes[i], sizeof(c->holes[i]), "%s-%u",
					d->used ? "no-seat" : "removed", i);
		msg->name = c->holes[i];
		msg->backend = c->holes[i];
		return;
	}
	msg->name = d->conf.name;
	msg->backend = d->conf.backend;
	msg->mem_bytes = d->conf.mem_bytes;
	msg->lanes = d->conf.lanes;
	msg->n_opts = d->conf.nopts;
	msg->opts = c->opts[i];
	msg->affinity = d->conf.affinity;
	for (uint32_t o = 0; o < d->conf.nopts; o++)
		c->opts[i][o] = d->conf.opts[o];
	if (held)
		fill_seat(c, w, i, msg);
}

void gantry_worker_configure(struct gantry_worker *w)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	struct gantry_agent *a = w->agent;
	struct configure c = { .msg = GANTRY__WORKER__CONFIGURE__INIT };

	c.msg.protocol = GANTRY_WORKER_PROTOCOL;
	c.msg.worker_id = w->id;
	c.msg.mode = w->class.mode;
	c.msg.share_owner = w->owner;
	c.msg.confine = a->config->agent.confine;
	c.msg.communicators = gantry_net_is_wanted(w);
	c.msg.uid = a->config->agent.worker_uid;
	c.msg.gid = a->config->agent.worker_gid;
	c.msg.spin_ns = a->config->agent.spin_ns;
	for (uint32_t i = 0; i < a->ndevices; i++)
		fill_device(&c, w, i, &a->devices[i]);
	c.msg.n_devices = a->ndevices;
	c.msg.devices = c.device_list;
	for (uint32_t i = 0; i < a->config->agent.ndirs; i++)
		c.dirs[i] = a->config->agent.module_dirs[i];
	c.msg.n_module_dirs = a->config->agent.ndirs;
	c.msg.module_dirs = c.dirs;
	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_CONFIGURE;
	msg.configure = &c.msg;
	memcpy(c.fds + c.nfds, c.seats, c.nseats * sizeof(c.seats[0]));
	/* -EPIPE: it died at once, which its pidfd tells. */
	(void)gantry_call(w, &msg, c.fds, c.nfds + c.nseats,
			  w->querying	 ? ANSWER_NS
			  : c.nseats > 0 ? SEATED_READY_NS
					 : READY_NS,
			  configured, w);
	for (uint32_t i = 0; i < c.nseats; i++)
		gantry_fd_close(c.seats[i]);
}

static void spawn_failed(struct gantry_agent *a)
{
	uint32_t shift = a->spawn_failures < BACKOFF_MAX_SHIFT ? a->spawn_failures
							       : BACKOFF_MAX_SHIFT;

	a->spawn_failures++;
	a->spawn_not_before_ns = gantry_now_ns() + (BACKOFF_MIN_NS << shift);
}

int gantry_worker_spawn(struct gantry_agent *a, const struct gantry_worker_class *class,
			struct gantry_worker **ret_worker, struct gantry_err *err)
{
	struct gantry_worker *w;
	struct gantry_mps *mps;
	int owner, r;

	if (a->ndevices == 0)
		return gantry_err_set(err, -ENODEV, "no device is configured");
	r = gantry_mps_admit(a, class, &mps);
	if (r < 0)
		return gantry_err_set(err, r, "the MPS server of group %s is %s", class->group,
				      r == -EAGAIN ? "on its way" : "full");
	owner = gantry_slot_take(a->owners, GANTRY_SHARE_NWORKERS);
	if (owner < 0)
		return gantry_err_set(err, owner, "the host runs %u workers already",
				      GANTRY_SHARE_NWORKERS);
	w = gantry_worker_new(a, a->next_worker_id++, (uint32_t)owner, class);
	if (!w) {
		gantry_slot_put(a->owners, (uint32_t)owner);
		return gantry_err_set(err, -ENOMEM, "no memory for a worker");
	}
	gantry_mps_join(mps, w);
	r = start_process(w, err);
	if (r == 0 && gantry_worker_watch(w) < 0)
		r = gantry_err_set(err, -ENOMEM, "no memory to watch a worker");
	if (r < 0) {
		spawn_failed(a);
		gantry_worker_kill_now(w);
		gantry_worker_free(w);
		return r;
	}
	a->counters.workers_spawned++;
	gantry_worker_configure(w);
	gantry_journal_touch(a);
	*ret_worker = w;
	return 0;
}

/* ---- sessions ---- */

void gantry_worker_enlist(struct gantry_worker *w, struct gantry_session *s)
{
	s->worker = w;
	gantry_list_push_back(&w->sessions, &s->worker_link);
	w->nsessions++;
	if (w->state == GANTRY_WORKER_WARM)
		w->state = GANTRY_WORKER_BUSY;
	gantry_limits_apply(w);
}

void gantry_worker_release(struct gantry_worker *w, struct gantry_session *s)
{
	gantry_list_remove(&s->worker_link);
	s->worker = NULL;
	s->ngathers = 0; /* their answers come no more */
	if (s->goes_on)
		gantry_session_let_go(s);
	w->nsessions--;
	if (w->dead || w->nsessions > 0)
		return;
	/* A worker of one session has seen a guest: the next gets a fresh one. */
	if (w->class.mode != GANTRY_POOLED || w->stale)
		gantry_worker_quit(w);
	else if (w->state == GANTRY_WORKER_BUSY)
		w->state = GANTRY_WORKER_WARM;
}

void gantry_workers_nudge(struct gantry_agent *a)
{
	Gantry__Worker__ToWorker msg = GANTRY__WORKER__TO_WORKER__INIT;
	Gantry__Worker__Nudge nudge = GANTRY__WORKER__NUDGE__INIT;

	msg.body_case = GANTRY__WORKER__TO_WORKER__BODY_NUDGE;
	msg.nudge = &nudge;
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w)
		if (w->state == GANTRY_WORKER_BUSY)
			/* a dead one is buried soon */
			(void)gantry_call(w, &msg, NULL, 0, RESCAN_NS, NULL, w);
}

void gantry_workers_rescan(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		if (w->state == GANTRY_WORKER_STARTING)
			w->rescan_due = true; /* it may have looked before the change */
		else if (w->state == GANTRY_WORKER_BUSY ||
			 (w->state == GANTRY_WORKER_WARM && w->class.mode != GANTRY_WORKER_STEWARD))
			rescan(w, RESCAN_NS);
	}
}

bool gantry_workers_have_rescanned(const struct gantry_agent *a)
{
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (w->rescan_due || w->nrescans > 0)
			return false;
	return true;
}
