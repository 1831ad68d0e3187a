/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's life: start, reload, stop; and the small things that every file uses. */
#include "host-agent/agent/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/admin.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/attach.h"
#include "host-agent/agent/config.h"
#include "host-agent/agent/deadline.h"
#include "host-agent/agent/device.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/guard.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/images.h"
#include "host-agent/agent/ivshmem.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/kernels.h"
#include "host-agent/agent/metrics.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/mps.h"
#include "host-agent/agent/peer.h"
#include "host-agent/agent/placement.h"
#include "host-agent/agent/relay.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/restore.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/slab.h"
#include "host-agent/agent/steward.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/token.h"
#include "host-agent/agent/upgrade.h"
#include "host-agent/agent/vsock.h"
#include "host-agent/agent/warm.h"
#include "host-agent/agent/worker.h"
#include "host-agent/agent/worker_limits.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/store.h"

#define HAND_OVER_MS 10000
#define STANDBY_MS   60000
#define STOP_NS	     (8 * GANTRY_NS_PER_S)
#define EXIT_CONFIG  2
#define EXIT_BUSY    7

/* ---- small things ---- */

uint64_t gantry_unix_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts); /* cannot fail with these arguments */
	return (uint64_t)ts.tv_sec * GANTRY_NS_PER_S + (uint64_t)ts.tv_nsec;
}

int gantry_timer_set(struct gantry_agent *a, struct event **timer, uint64_t after_ns,
		     event_callback_fn fn, void *arg)
{
	const struct timeval tv = {
		.tv_sec = (time_t)(after_ns / GANTRY_NS_PER_S),
		.tv_usec = (suseconds_t)(after_ns % GANTRY_NS_PER_S / GANTRY_NS_PER_US),
	};

	if (*timer && (event_get_callback(*timer) != fn || event_get_callback_arg(*timer) != arg))
		gantry_event_free(timer);
	if (!*timer)
		*timer = event_new(a->base, -1, 0, fn, arg);
	if (!*timer || event_add(*timer, &tv) < 0)
		return -ENOMEM;
	return 0;
}

void gantry_event_free(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

int gantry_slot_take(uint64_t *bits, uint32_t n)
{
	for (uint32_t i = 0; i < n / 64; i++)
		if (~bits[i]) {
			uint32_t bit = (uint32_t)__builtin_ctzll(~bits[i]);

			bits[i] |= 1ull << bit;
			return (int)(i * 64 + bit);
		}
	return -ENOSPC;
}

bool gantry_slot_claim(uint64_t *bits, uint32_t n, uint32_t slot)
{
	if (slot >= n || (bits[slot / 64] & 1ull << (slot % 64)))
		return false;
	bits[slot / 64] |= 1ull << (slot % 64);
	return true;
}

void gantry_slot_put(uint64_t *bits, uint32_t slot)
{
	bits[slot / 64] &= ~(1ull << (slot % 64));
}

int gantry_agent_run_path(const struct gantry_agent *a, char *path, size_t cap, const char *what,
			  struct gantry_err *err)
{
	if (gantry_str_format(path, cap, "%s/%s", a->args.run_dir, what) < 0)
		return gantry_err_set(err, -ENAMETOOLONG, "%s/%s is too long for a socket",
				      a->args.run_dir, what);
	return 0;
}

/* ---- configuration ---- */

/* Where images of boards lie, their kernels are found. */
static void add_image_dirs(struct gantry_config *config)
{
	struct gantry_agent_conf *conf = &config->agent;

	for (uint32_t d = 0; d < config->ndevices; d++) {
		const char *dir = gantry_images_dir(&config->devices[d]);
		bool known = dir == NULL;

		for (uint32_t i = 0; i < conf->ndirs; i++)
			known = known || strcmp(conf->module_dirs[i], dir) == 0;
		if (!known && conf->ndirs < GANTRY_CONFIG_MAX_DIRS &&
		    gantry_str_copy(conf->module_dirs[conf->ndirs], GANTRY_CONFIG_TEXT, dir) == 0)
			conf->ndirs++;
	}
}

static int load_config(struct gantry_agent *a, struct gantry_config **ret_config,
		       struct gantry_err *err)
{
	int r = gantry_config_load(a->args.config_path, a->args.config_optional, a->args.state_dir,
				   ret_config, err);
	struct gantry_agent_conf *conf;

	if (r < 0)
		return r;
	conf = &(*ret_config)->agent;
	if (conf->ndirs == 0)
		(void)gantry_str_copy(conf->module_dirs[conf->ndirs++], GANTRY_CONFIG_TEXT,
				      GANTRY_MODULE_DIR); /* it fits */
	add_image_dirs(*ret_config);
	return 0;
}

/* Idle workers of another configuration go; busy ones finish what they serve, and so do those at whom they have seats. */
static void retire_workers(struct gantry_agent *a)
{
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		w->stale = true;
		if (w->nsessions == 0 && !gantry_steward_is_needed(w))
			gantry_worker_quit(w);
	}
}

static bool workers_differ(const struct gantry_config *before, const struct gantry_config *now)
{
	return before->agent.worker_uid != now->agent.worker_uid ||
	       before->agent.worker_gid != now->agent.worker_gid ||
	       strcmp(before->agent.cgroup, now->agent.cgroup) != 0 ||
	       before->agent.confine != now->agent.confine ||
	       before->agent.spin_ns != now->agent.spin_ns ||
	       before->agent.ndirs != now->agent.ndirs ||
	       memcmp(before->agent.module_dirs, now->agent.module_dirs,
		      sizeof(now->agent.module_dirs)) != 0;
}

void gantry_agent_apply(struct gantry_agent *a, struct gantry_config *config)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_config *before = a->config;
	bool changed = false;
	bool dirs_changed = before && workers_differ(before, config);

	a->config = config;
	if (!before || strcmp(before->agent.cgroup, config->agent.cgroup) != 0)
		gantry_limits_start(a);
	if (gantry_devices_apply(a, config, &err, &changed) < 0)
		gantry_log(GANTRY_LOG_ERR, "%s", err.text);
	if (before && (changed || dirs_changed))
		retire_workers(a);
	if (dirs_changed) {
		gantry_kernels_stop(a);
		(void)gantry_kernels_start(a); /* it tells what it cannot watch */
	}
	gantry_tenants_apply(a, config);
	gantry_vsock_apply(a);
	gantry_handovers_apply(a);
	gantry_limits_apply_all(a);
	gantry_config_free(before);
	if (before)
		gantry_stewards_fill(a); /* else start() does, when it is known which there are */
	gantry_mps_settle(a);
	gantry_placement_apply(a);
	gantry_warm_fill(a);
	gantry_deadline_arm(a);
}

int gantry_agent_reload(struct gantry_agent *a, struct gantry_err *err)
{
	struct gantry_config *config;
	int r;

	gantry_keep_notify(a, GANTRY_MONITOR_RELOADING);
	r = load_config(a, &config, err);
	if (r == 0) {
		gantry_agent_apply(a, config);
		gantry_event(a, "reloaded", NULL, NULL, NULL, "the configuration was read again");
	} else {
		gantry_event(a, "reload-failed", NULL, NULL, NULL,
			     "%s; the old configuration stays", err ? err->text : "");
	}
	gantry_keep_notify(a, GANTRY_MONITOR_READY);
	return r;
}

/* ---- start ---- */

static int make_dir(const char *path, mode_t mode)
{
	char part[PATH_MAX];

	if (gantry_str_copy(part, sizeof(part), path) < 0)
		return -ENAMETOOLONG;
	for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	return mkdir(part, mode) < 0 && errno != EEXIST ? -errno : 0;
}

/* The lock's open file lives on in the monitor, so a restarted agent has it already. */
static int take_lock(struct gantry_agent *a, struct gantry_err *err)
{
	char path[PATH_MAX];
	int r = make_dir(a->args.run_dir, 0755);

	if (r < 0)
		return gantry_err_set_errno(err, r, "making %s", a->args.run_dir);
	a->lock_fd = gantry_store_take(&a->handed, "lock");
	if (a->lock_fd < 0) {
		/* or open says */
		(void)gantry_str_format(path, sizeof(path), "%s/gantryd.lock", a->args.run_dir);
		a->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (a->lock_fd < 0)
			return gantry_err_set_errno(err, -errno, "opening %s", path);
		if (flock(a->lock_fd, LOCK_EX | LOCK_NB) < 0)
			return gantry_err_set(
				err, -EBUSY,
				"another gantryd serves %s; stop it, or choose another --run-dir",
				a->args.run_dir);
	}
	gantry_keep(a, a->lock_fd, "lock");
	return 0;
}

static void confine_self(struct gantry_agent *a)
{
	gantry_guard_self(&a->guard);
	if (a->guard.missing[0])
		gantry_log(GANTRY_LOG_WARN, "the agent is not as confined as it should be: %s",
			   a->guard.missing);
}

/* Its socket stays connected to the monitor for as long as we hold what it handed over. */
static int take_over(struct gantry_agent *a, struct gantry_err *err)
{
	int32_t restarts = 0;
	int r;

	gantry_store_init(&a->handed, true);
	gantry_store_init(&a->kept, false);
	a->monitor_fd = a->args.monitor_fd;
	if (a->monitor_fd < 0)
		return 0;
	(void)gantry_fd_cloexec(a->monitor_fd, true); /* a bad one fails in the next line */
	r = gantry_link_take_over(a->monitor_fd, a->args.standby ? STANDBY_MS : HAND_OVER_MS,
				  &a->handed, &restarts);
	if (r == 0 && a->args.standby)
		r = gantry_standby_take(a);
	if (r == -ECANCELED || (r < 0 && a->args.standby))
		return gantry_err_set(err, -ECANCELED, "the other build goes on");
	if (r < 0)
		return gantry_err_set_errno(err, r, "taking over from the monitor");
	a->restarts = (uint64_t)restarts;
	return gantry_keep_start(a) < 0 ? gantry_err_set(err, -ENOMEM, "no memory") : 0;
}

static void feed_watchdog(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	const char *usec = getenv("WATCHDOG_USEC");

	(void)fd;
	(void)what;
	if (!usec)
		return;
	gantry_keep_notify(a, GANTRY_MONITOR_WATCHDOG);
	(void)gantry_timer_set(a, &a->watchdog_timer,
			       strtoull(usec, NULL, 10) * GANTRY_NS_PER_US / 3 + 1, feed_watchdog,
			       a); /* without it systemd restarts us, as it should */
}

static int start_services(struct gantry_agent *a, struct gantry_err *err)
{
	int r = gantry_admin_start(a, err);

	if (r == 0)
		r = gantry_peers_start(a, err);
	if (r == 0)
		r = gantry_metrics_start(a, err);
	return r;
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	(void)what;
	if (signo == SIGHUP) {
		(void)gantry_agent_reload(arg, &err); /* it tells what is wrong itself */
		return;
	}
	gantry_agent_stop(arg);
}

static void drop_unclaimed(struct gantry_agent *a)
{
	for (size_t i = 0; i < a->handed.nentries; i++)
		gantry_keep_drop(a, "%s", a->handed.entries[i].name);
	gantry_store_fini(&a->handed);
}

/* What is missing is told by whoever needs it. */
static void open_worker_program(struct gantry_agent *a)
{
	a->worker_program = open(a->args.worker_path, O_PATH | O_CLOEXEC);
	a->worker_identity = a->worker_program < 0 ? 0 : gantry_file_identity(a->worker_program);
}

/* What would keep us from serving is told before anything is given to us. */
static int stand_by(struct gantry_agent *a, struct gantry_err *err)
{
	struct gantry_config *config = NULL;
	struct gantry_err problem = GANTRY_ERR_NONE;
	int r;

	if (load_config(a, &config, &problem) == 0)
		gantry_config_free(config);
	else if (!problem.text[0])
		(void)gantry_err_set(&problem, -EINVAL, "the configuration cannot be read");
	if (!problem.code && access(a->args.worker_path, X_OK) < 0)
		(void)gantry_err_set_errno(&problem, -errno, "its worker program %s",
					   a->args.worker_path);
	r = gantry_standby_hello(a->args.monitor_fd, problem.text);
	return r < 0 ? gantry_err_set(err, -ECANCELED, "the monitor does not listen") : 0;
}

static int start(struct gantry_agent *a, struct gantry_err *err)
{
	struct gantry_config *config = NULL;
	int r;

	a->base = event_base_new();
	a->events = calloc(GANTRY_EVENTS_KEPT, sizeof(*a->events));
	if (!a->base || !a->events)
		return gantry_err_set(err, -ENOMEM, "no memory for the agent");
	r = a->args.standby ? stand_by(a, err) : 0;
	if (r == 0)
		r = take_over(a, err);
	if (r < 0)
		return r;
	r = load_config(a, &config, err);
	if (r < 0)
		return r;
	r = take_lock(a, err);
	if (r < 0) {
		gantry_config_free(config);
		return r;
	}
	if (config->agent.confine)
		confine_self(a);
	open_worker_program(a);
	gantry_restore_pages(a);
	a->config = NULL;
	(void)gantry_placement_start(a); /* without memory queues stay where they are */
	gantry_agent_apply(a, config);
	gantry_restore_sessions(a);
	gantry_failpoint(GANTRY_FAILPOINT_STANDBY_RESTORED);
	gantry_hold_none(a); /* nothing of an agent that died while it exchanged workers */
	gantry_stewards_fill(a);
	r = start_services(a, err);
	if (r < 0)
		return r;
	(void)gantry_kernels_start(a); /* it tells what it cannot watch */
	gantry_images_start(a);
	drop_unclaimed(a);
	return 0;
}

/* ---- stop ---- */

static void stop_now(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		gantry_worker_kill_now(w);
	(void)event_base_loopbreak(a->base); /* it runs: we are in it */
}

void gantry_agent_stop_if_idle(struct gantry_agent *a)
{
	if (a->stopping && gantry_list_is_empty(&a->sessions) &&
	    gantry_list_is_empty(&a->workers) && !gantry_mps_stop(a))
		(void)event_base_loopbreak(a->base); /* it runs: we are in it */
}

void gantry_agent_stop(struct gantry_agent *a)
{
	if (a->stopping)
		return;
	a->stopping = true;
	gantry_keep_notify(a, GANTRY_MONITOR_STOPPING);
	gantry_event(a, "stopping", NULL, NULL, NULL, "told to end");
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		gantry_door_close(t);
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t)
		gantry_ivshmem_close(t, GANTRY_E_DETACHED, "the host agent is shutting down");
	gantry_list_for_each_safe(&a->sessions, struct gantry_session, link, s)
		gantry_detach(s, GANTRY_E_DETACHED, "the host agent is shutting down");
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w)
		if (w->nsessions == 0)
			gantry_worker_quit(w);
	if (gantry_timer_set(a, &a->stop_timer, STOP_NS, stop_now, a) < 0)
		stop_now(-1, 0, a);
	gantry_agent_stop_if_idle(a);
}

static void free_all(struct gantry_agent *a)
{
	gantry_images_stop(a);
	gantry_kernels_stop(a);
	gantry_placement_stop(a);
	gantry_metrics_stop(a);
	gantry_peers_stop(a);
	gantry_admin_stop(a);
	gantry_upload_free(a->upload);
	a->upload = NULL;
	gantry_list_for_each_safe(&a->workers, struct gantry_worker, link, w) {
		gantry_list_for_each_safe(&w->sessions, struct gantry_session, worker_link, s)
			gantry_worker_release(w, s);
		gantry_worker_free(w);
	}
	gantry_list_for_each_safe(&a->sessions, struct gantry_session, link, s)
		gantry_session_free(s);
	gantry_list_for_each_safe(&a->tenants, struct gantry_tenant, link, t)
		gantry_tenant_free(t);
	gantry_ivshmem_fini(a);
	gantry_mps_fini(a);
	gantry_limits_stop(a);
	gantry_slabs_fini(a);
	gantry_stewards_stop(a);
	gantry_migrations_fini(a);
	gantry_devices_fini(a);
	gantry_tokens_fini(&a->tokens);
	gantry_store_fini(&a->handed);
	gantry_relays_forget(a);
	gantry_handovers_close(a);
	gantry_handovers_fini(a);
	gantry_vsock_close(a);
	gantry_keep_stop(a);
	gantry_upgrade_fini(a);
	gantry_renew_fini(a);
	gantry_event_free(&a->warm_timer);
	gantry_event_free(&a->deadline_timer);
	gantry_event_free(&a->clear_timer);
	gantry_event_free(&a->journal_event);
	gantry_event_free(&a->stop_timer);
	gantry_event_free(&a->watchdog_timer);
	gantry_event_free(&a->retry_timer);
	gantry_event_free(&a->door_retry_timer);
	gantry_config_free(a->config);
	gantry_fd_close(a->lock_fd);
	gantry_fd_close(a->worker_program);
	free(a->events);
	if (a->base)
		event_base_free(a->base);
}

static int exit_status(int r)
{
	return r == -EINVAL			 ? EXIT_CONFIG
	       : r == -EBUSY || r == -EADDRINUSE ? EXIT_BUSY
						 : EXIT_FAILURE;
}

static void add_signals(struct gantry_agent *a, struct event *signals[3])
{
	static const int numbers[3] = { SIGTERM, SIGINT, SIGHUP };

	for (int i = 0; i < 3; i++) {
		signals[i] = evsignal_new(a->base, numbers[i], on_signal, a);
		if (signals[i])
			/* without it the signal ends us, as ever */
			(void)event_add(signals[i], NULL);
	}
}

int gantry_agent_run(const struct gantry_agent_args *args)
{
	static struct gantry_agent agent; /* static: large */
	struct gantry_agent *a = &agent;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct event *signals[3] = { NULL };
	int r;

	*a = (struct gantry_agent){
		.args = *args,
		.next_session_id = 1,
		.next_worker_id = 1,
		.next_machine_id = 1,
		.started_unix_ns = gantry_unix_now_ns(),
	};
	gantry_agent_blank(a);
	gantry_slabs_init(a);
	gantry_upgrade_init(a);
	(void)signal(SIGPIPE, SIG_IGN); /* cannot fail with these arguments */
	r = start(a, &err);
	if (r == -ECANCELED)
		_exit(EXIT_SUCCESS); /* nothing is ours */
	if (r < 0) {
		gantry_log(GANTRY_LOG_ERR, "%s", err.text);
		a->exit_status = exit_status(r);
	} else {
		add_signals(a, signals);
		gantry_log(GANTRY_LOG_INFO, "serving in %s", a->args.run_dir);
		gantry_keep_notify(a, GANTRY_MONITOR_READY);
		gantry_upgrade_ready(a);
		feed_watchdog(-1, 0, a);
		(void)event_base_dispatch(a->base); /* it ends by loopbreak */
	}
	a->stopping = true;
	for (int i = 0; i < 3; i++)
		gantry_event_free(&signals[i]);
	free_all(a);
	return a->exit_status;
}
