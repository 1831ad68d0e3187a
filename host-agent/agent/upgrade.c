/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/call.h"
#include "host-agent/agent/door.h"
#include "host-agent/agent/events.h"
#include "host-agent/agent/handover.h"
#include "host-agent/agent/journal.h"
#include "host-agent/agent/keep.h"
#include "host-agent/agent/migrate.h"
#include "host-agent/agent/renew.h"
#include "host-agent/agent/run.h"
#include "host-agent/agent/session.h"
#include "host-agent/agent/tenant.h"
#include "host-agent/agent/worker.h"
#include "host-agent/monitor/link.h"

/* What a program may take to say what it is. */
#define HELLO_NS  (15 * GANTRY_NS_PER_S)
#define SETTLE_NS (1 * GANTRY_NS_PER_S)
#define LOOK_NS	  (2 * GANTRY_NS_PER_MS)
/* Then we take back what nobody took. */
#define YIELD_NS  (20 * GANTRY_NS_PER_S)
#define BECOME_NS (10 * GANTRY_NS_PER_S)

static void settle(evutil_socket_t fd, short what, void *arg);

const char *gantry_upgrade_state_name(uint32_t state)
{
	static const char *const names[GANTRY_NUPGRADE_STATES] = {
		[GANTRY_UPGRADE_IDLE] = "idle",		[GANTRY_UPGRADE_TRYING] = "trying",
		[GANTRY_UPGRADE_SETTLING] = "settling", [GANTRY_UPGRADE_YIELDED] = "yielded",
		[GANTRY_UPGRADE_TAKEN] = "taken",	[GANTRY_UPGRADE_MOVING] = "moving",
		[GANTRY_UPGRADE_DONE] = "done",		[GANTRY_UPGRADE_REFUSED] = "refused",
		[GANTRY_UPGRADE_BACK] = "back",
	};

	return state < GANTRY_NUPGRADE_STATES ? names[state] : "unknown";
}

void gantry_upgrade_init(struct gantry_agent *a)
{
	a->upgrade.previous = -EBADF;
}

void gantry_upgrade_fini(struct gantry_agent *a)
{
	gantry_event_free(&a->upgrade.timer);
	a->upgrade.previous = gantry_fd_close(a->upgrade.previous);
}

static bool under_way(const struct gantry_agent *a)
{
	uint32_t state = a->upgrade.record.state;

	return state >= GANTRY_UPGRADE_TRYING && state <= GANTRY_UPGRADE_MOVING;
}

bool gantry_upgrade_settles(const struct gantry_agent *a)
{
	return a->upgrade.record.state == GANTRY_UPGRADE_SETTLING ||
	       a->upgrade.record.state == GANTRY_UPGRADE_YIELDED;
}

/* Who comes from outside waits for whoever serves then; what is on its way stays where it is. */
static void look_away(struct gantry_agent *a, bool away)
{
	gantry_doors_listen(a, !away);
	if (away)
		gantry_handovers_stop(a);
	else
		gantry_handovers_go_on(a);
}

static void set_state(struct gantry_agent *a, enum gantry_upgrade_state state)
{
	a->upgrade.record.state = state;
	gantry_journal_touch(a);
}

/* Nothing was taken from us: we go on. */
static void refuse(struct gantry_agent *a, const char *text)
{
	struct gantry_upgrade *u = &a->upgrade;

	gantry_event_free(&u->timer);
	if (gantry_upgrade_settles(a))
		look_away(a, false);
	(void)gantry_str_copy(u->text, sizeof(u->text), text); /* cut is better than unsaid */
	u->record.nrefused += !u->check;
	u->record.took_ns = gantry_now_ns() - u->record.began_ns;
	set_state(a, GANTRY_UPGRADE_REFUSED);
	gantry_event(a, "upgrade-refused", NULL, NULL, NULL, "%s: %s; version %s goes on", u->path,
		     text, gantry_build_version);
}

static void finish(struct gantry_agent *a)
{
	struct gantry_upgrade *u = &a->upgrade;

	gantry_event_free(&u->timer);
	u->record.took_ns = gantry_now_ns() - u->record.began_ns;
	u->record.ndone++;
	set_state(a, GANTRY_UPGRADE_DONE);
	gantry_event(a, "agent-upgraded", NULL, NULL, NULL,
		     "from version %s to %s in %.1f ms, %.1f ms of them without an agent%s%s",
		     u->record.from, u->record.to, (double)u->record.took_ns / 1e6,
		     (double)u->record.pause_ns / 1e6, u->text[0] ? "; " : "", u->text);
}

/* ---- the program ---- */

/* The path of the program that runs, where another may lie by now. */
static int own_path(char *path, size_t cap)
{
	static const char deleted[] = " (deleted)";
	ssize_t n = readlink("/proc/self/exe", path, cap - 1);

	if (n < 0)
		return -errno;
	path[n] = '\0';
	if ((size_t)n > strlen(deleted) && strcmp(path + n - strlen(deleted), deleted) == 0)
		path[(size_t)n - strlen(deleted)] = '\0';
	return 0;
}

static uint64_t own_program(void)
{
	_cleanup_close_ int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);

	return fd < 0 ? 0 : gantry_file_identity(fd);
}

/* What the monitor will refuse, with a sentence. */
static int open_program(struct gantry_upgrade *u, int *ret_fd, struct gantry_err *err)
{
	_cleanup_close_ int fd = open(u->path, O_PATH | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return gantry_err_set_errno(err, -errno, "%s", u->path);
	if (fstat(fd, &st) < 0)
		return gantry_err_set_errno(err, -errno, "%s", u->path);
	if (!S_ISREG(st.st_mode))
		return gantry_err_set(err, -ENOTSUP, "%s is no regular file", u->path);
	if (!(st.st_mode & 0111))
		return gantry_err_set(err, -EACCES, "%s is not executable", u->path);
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
		return gantry_err_set(
			err, -EPERM,
			"%s could have been written by others: it has to belong to root "
			"or uid %u, and be writable for its owner only",
			u->path, (unsigned int)geteuid());
	*ret_fd = GANTRY_TAKE_FD(fd);
	return 0;
}

static void hello_never_came(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	gantry_keep_tell(a, GANTRY_MONITOR_CANCEL, 0, -EBADF);
	refuse(a, "it does not say what it is: no gantryd, or one that cannot take over");
}

int gantry_upgrade_begin(struct gantry_agent *a, const struct gantry_upgrade_ask *ask,
			 struct gantry_err *err)
{
	struct gantry_upgrade *u = &a->upgrade;
	_cleanup_close_ int fd = -EBADF;
	uint32_t id = u->record.id + 1;
	int r;

	if (under_way(a))
		return gantry_err_set(err, -EBUSY, "an upgrade is under way (%s)",
				      gantry_upgrade_state_name(u->record.state));
	if (a->stopping || u->previous >= 0)
		return gantry_err_set(err, -EBUSY, "the agent is %s",
				      a->stopping ? "ending" : "ending an upgrade");
	if (a->monitor_fd < 0)
		return gantry_err_set(err, -ENOTSUP,
				      "this agent has no monitor that could start another");
	r = ask->path[0] ? gantry_str_copy(u->path, sizeof(u->path), ask->path)
			 : own_path(u->path, sizeof(u->path));
	if (r == 0 && u->path[0] != '/')
		r = -EINVAL;
	if (r < 0)
		return gantry_err_set_errno(err, r, "%s", ask->path);
	r = open_program(u, &fd, err);
	if (r < 0)
		return r;
	u->record = (struct gantry_upgrade_record){
		.state = GANTRY_UPGRADE_TRYING,
		.id = id,
		.restart_workers = ask->restart_workers,
		.ndone = u->record.ndone,
		.nrefused = u->record.nrefused,
		.nback = u->record.nback,
		.began_ns = gantry_now_ns(),
		.from_program = own_program(),
		.to_program = gantry_file_identity(fd),
	};
	(void)gantry_str_copy(u->record.from, sizeof(u->record.from),
			      gantry_build_version);			/* fits */
	(void)gantry_str_copy(u->record.to, sizeof(u->record.to), "?"); /* fits */
	u->next = (struct gantry_build){ 0 };
	u->text[0] = '\0';
	u->check = ask->check;
	u->downgrade = ask->downgrade;
	if (gantry_timer_set(a, &u->timer, HELLO_NS, hello_never_came, a) < 0) {
		u->record.state = GANTRY_UPGRADE_IDLE;
		return gantry_err_set(err, -ENOMEM, "no memory for an upgrade");
	}
	gantry_failpoint(GANTRY_FAILPOINT_UPGRADE_TRY);
	gantry_keep_tell(a, GANTRY_MONITOR_TRY, 0, fd);
	return 0;
}

/* ---- the candidate's word ---- */

static void describe_end(int value, int status, const char *path, char *text, size_t cap)
{
	if (value != -ECHILD)
		(void)gantry_str_format(text, cap, "it cannot be started: %s", strerror(-value));
	else if (WIFSIGNALED(status))
		(void)gantry_str_format(text, cap, "it was ended by signal %d (%s)",
					WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == 127)
		(void)gantry_str_format(text, cap, "%s cannot be run on this host", path);
	else
		(void)gantry_str_format(text, cap,
					"it ended with status %d without a word of what it is: no "
					"gantryd, or one that cannot take over",
					WEXITSTATUS(status));
}

static int read_hello(int fd, struct gantry_build *ret_next)
{
	char text[GANTRY_BUILD_TEXT_MAX];
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text), 0);

	return n <= 0 ? -EINVAL : gantry_build_parse(text, (size_t)n, ret_next);
}

static void judge(struct gantry_agent *a, int hello_fd)
{
	struct gantry_upgrade *u = &a->upgrade;
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_build self;

	gantry_failpoint(GANTRY_FAILPOINT_UPGRADE_JUDGE);
	gantry_event_free(&u->timer);
	gantry_build_self(&self);
	if (read_hello(hello_fd, &u->next) < 0)
		(void)gantry_err_set(&err, -EINVAL, "what it says of itself makes no sense");
	else
		(void)gantry_build_may_follow(&self, &u->next, u->downgrade, &err);
	if (u->next.version[0])
		(void)gantry_str_copy(u->record.to, sizeof(u->record.to),
				      u->next.version); /* the same size */
	if (err.code < 0 || u->check) {
		gantry_keep_tell(a, GANTRY_MONITOR_CANCEL, 0, -EBADF);
		if (err.code < 0) {
			refuse(a, err.text);
			return;
		}
		set_state(a, GANTRY_UPGRADE_IDLE);
		return;
	}
	set_state(a, GANTRY_UPGRADE_SETTLING);
	look_away(a, true);
	u->record.yielded_ns = gantry_now_ns();
	u->settle_by_ns = u->record.yielded_ns + SETTLE_NS;
	settle(-1, 0, a);
}

/* ---- letting go ---- */

/* A message that was read belongs to somebody who goes on; what is half done would have to be begun anew. */
static bool is_quiet(struct gantry_agent *a)
{
	gantry_list_for_each(&a->tenants, struct gantry_tenant, link, t)
		if (t->nhalf_open > 0)
			return false;
	gantry_list_for_each(&a->sessions, struct gantry_session, link, s)
		if (s->phase != GANTRY_PHASE_ATTACHED || s->nneeds > 0)
			return false;
	gantry_list_for_each(&a->workers, struct gantry_worker, link, w)
		if (gantry_call_waits(w))
			return false;
	return !gantry_handovers_under_way(a) && !gantry_migrations_under_way(a);
}

/* What the monitor said while we did not listen: for us, if we go on. */
struct heard {
	bool stop;
	int stop_value;
	bool reload;
	struct {
		pid_t pid;
		int status;
	} exited[64];
	uint32_t nexited;
};

/* True: leave. False: nobody took over. */
static bool wait_for_word(struct gantry_agent *a, struct heard *h, char *why, size_t cap)
{
	uint64_t until_ns = gantry_now_ns() + YIELD_NS;
	int status = 0;

	(void)gantry_str_copy(why, cap, "the monitor did not answer in time"); /* fits */
	for (;;) {
		struct gantry_monitor_msg msg;
		int fd = -EBADF;
		int r = gantry_link_recv_by(a->monitor_fd, until_ns, &msg, &fd);

		gantry_fd_close(fd);
		if (r == -ETIMEDOUT)
			return false;
		if (r < 0) {
			(void)gantry_str_copy(why, cap, "the monitor died in between"); /* fits */
			return false;
		}
		if (msg.op == GANTRY_MONITOR_LEAVE)
			return true;
		if (msg.op == GANTRY_MONITOR_RESUME) {
			describe_end(msg.value, msg.status ? msg.status : status, a->upgrade.path,
				     why, cap);
			return false;
		}
		if (msg.op == GANTRY_MONITOR_CANDIDATE)
			status = msg.status; /* it had ended before we let go */
		if (msg.op == GANTRY_MONITOR_STOP) {
			h->stop = true;
			h->stop_value = msg.value;
		} else if (msg.op == GANTRY_MONITOR_RELOAD) {
			h->reload = true;
		} else if (msg.op == GANTRY_MONITOR_EXITED &&
			   h->nexited < GANTRY_ARRAY_SIZE(h->exited)) {
			h->exited[h->nexited].pid = msg.value;
			h->exited[h->nexited++].status = msg.status;
		}
	}
}

static void catch_up(struct gantry_agent *a, const struct heard *h)
{
	struct gantry_err err = GANTRY_ERR_NONE;

	for (uint32_t i = 0; i < h->nexited; i++)
		gantry_worker_exited(a, h->exited[i].pid, h->exited[i].status);
	if (h->reload)
		(void)gantry_agent_reload(a, &err); /* it tells what is wrong itself */
	if (h->stop && h->stop_value)
		gantry_renew_leave(a);
	else if (h->stop)
		gantry_agent_stop(a);
}

/* What it writes in a format that we do not read nobody is to find but its own build. */
static int way_back(const struct gantry_agent *a)
{
	struct gantry_build self;

	gantry_build_self(&self);
	return gantry_build_may_return(&self, &a->upgrade.next, NULL) < 0 ? GANTRY_MONITOR_TRY_AGAIN
									  : GANTRY_MONITOR_GO_BACK;
}

/* Nobody returns from here but who goes on as the agent. */
static void yield(struct gantry_agent *a)
{
	struct gantry_upgrade *u = &a->upgrade;
	struct heard heard = { 0 };
	char why[GANTRY_ERR_TEXT_MAX], byte = 1;
	int baton[2];

	if (pipe2(baton, O_CLOEXEC | O_NONBLOCK) < 0 || write(baton[1], &byte, 1) != 1) {
		refuse(a, "no descriptors are left for it");
		return;
	}
	gantry_fd_close(baton[1]);
	gantry_failpoint(GANTRY_FAILPOINT_UPGRADE_YIELD);
	gantry_doors_turn_away(a, "another build of the agent takes over: connect again");
	u->record.state = GANTRY_UPGRADE_YIELDED;
	gantry_journal_now(a);
	gantry_keep_tell(a, GANTRY_MONITOR_YIELD, way_back(a), baton[0]);
	gantry_failpoint(GANTRY_FAILPOINT_UPGRADE_YIELDED);
	if (wait_for_word(a, &heard, why, sizeof(why)) || read(baton[0], &byte, 1) != 1)
		_exit(0); /* not a descriptor, not a file is ours any more */
	gantry_fd_close(baton[0]);
	refuse(a, why);
	catch_up(a, &heard);
}

static void settle(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;
	struct gantry_upgrade *u = &a->upgrade;

	(void)fd;
	(void)what;
	if (a->stopping) {
		refuse(a, "the agent was told to end");
		return;
	}
	if (gantry_handovers_fetch(a)) { /* with this agent ends what leads to them */
		gantry_keep_tell(a, GANTRY_MONITOR_CANCEL, 0, -EBADF);
		refuse(a, "buffers of a session that went to another host lazily, or came from "
			  "one, are not there yet: see gantryctl migration list");
		return;
	}
	if (!is_quiet(a) && gantry_now_ns() < u->settle_by_ns &&
	    gantry_timer_set(a, &u->timer, LOOK_NS, settle, a) == 0)
		return;
	gantry_event_free(&u->timer);
	yield(a);
}

/* ---- the other side: we are the one that took over, or its predecessor again ---- */

/* Whether it is what we are. Of a program that took over from itself: whether it served. */
static bool is_to_us(const struct gantry_upgrade_record *record)
{
	if (record->from_program && record->to_program &&
	    record->from_program != record->to_program)
		return own_program() == record->to_program;
	if (strcmp(record->from, record->to) != 0)
		return strcmp(record->to, gantry_build_version) == 0;
	return record->state == GANTRY_UPGRADE_TAKEN;
}

static const char *what_became_of_it(const struct gantry_upgrade_record *record)
{
	switch (record->state) {
	case GANTRY_UPGRADE_YIELDED:
		return "died before it served";
	case GANTRY_UPGRADE_TAKEN:
		return "died before the monitor was of its build";
	default:
		return "was not given the sessions: the agent died";
	}
}

void gantry_upgrade_restored(struct gantry_agent *a, const struct gantry_upgrade_record *record)
{
	struct gantry_upgrade *u = &a->upgrade;

	u->record = *record;
	if (record->state == GANTRY_UPGRADE_YIELDED && a->args.standby) {
		u->record.state = GANTRY_UPGRADE_TAKEN;
		return;
	}
	if (record->state == GANTRY_UPGRADE_MOVING)
		return; /* goes on when we serve */
	if (!under_way(a))
		return;
	if (record->state >= GANTRY_UPGRADE_YIELDED && is_to_us(record)) {
		u->record.state = record->restart_workers ? GANTRY_UPGRADE_MOVING
							  : GANTRY_UPGRADE_DONE;
		u->record.ndone += !record->restart_workers; /* else when they have moved */
		u->record.took_ns = gantry_now_ns() - record->began_ns;
		(void)gantry_str_copy(u->text, sizeof(u->text),
				      "its agent died meanwhile, and was started again"); /* fits */
		return;
	}
	u->record.nback++;
	u->record.state = GANTRY_UPGRADE_BACK;
	u->record.took_ns = gantry_now_ns() - record->began_ns;
	(void)gantry_str_format(u->text, sizeof(u->text), "version %s %s; version %s serves again",
				record->to, what_became_of_it(record),
				gantry_build_version); /* cut is better than unsaid */
}

/* Agent and monitor are what they are to be. */
static void go_on(struct gantry_agent *a)
{
	gantry_event_free(&a->upgrade.timer);
	if (!a->upgrade.record.restart_workers) {
		finish(a);
		return;
	}
	set_state(a, GANTRY_UPGRADE_MOVING);
	gantry_renew_start(a);
}

static void monitor_never_said(evutil_socket_t fd, short what, void *arg)
{
	struct gantry_agent *a = arg;

	(void)fd;
	(void)what;
	(void)gantry_str_copy(a->upgrade.text, sizeof(a->upgrade.text),
			      "the monitor did not say that it is of the new build"); /* fits */
	a->upgrade.previous = gantry_fd_close(a->upgrade.previous);
	go_on(a);
}

void gantry_upgrade_ready(struct gantry_agent *a)
{
	struct gantry_upgrade *u = &a->upgrade;

	/* Started again in place of one that had not served. */
	if (u->text[0] && u->record.pause_ns == 0 && u->record.state != GANTRY_UPGRADE_BACK)
		u->record.pause_ns = gantry_now_ns() - u->record.yielded_ns;
	if (u->record.state == GANTRY_UPGRADE_BACK && u->text[0])
		gantry_event(a, "upgrade-failed", NULL, NULL, NULL, "%s", u->text);
	if (u->record.state == GANTRY_UPGRADE_DONE && u->text[0])
		gantry_event(a, "agent-upgraded", NULL, NULL, NULL, "from version %s to %s; %s",
			     u->record.from, u->record.to, u->text);
	if (u->record.state == GANTRY_UPGRADE_MOVING)
		gantry_renew_start(a);
	if (u->record.state != GANTRY_UPGRADE_TAKEN)
		return;
	gantry_failpoint(GANTRY_FAILPOINT_UPGRADE_READY);
	u->record.pause_ns = gantry_now_ns() - u->record.yielded_ns;
	gantry_journal_now(a);
	if (gantry_timer_set(a, &u->timer, BECOME_NS, monitor_never_said, a) < 0)
		monitor_never_said(-1, 0, a);
}

static void monitor_done(struct gantry_agent *a, int status)
{
	struct gantry_upgrade *u = &a->upgrade;

	u->previous = gantry_fd_close(u->previous);
	if (u->record.state != GANTRY_UPGRADE_TAKEN)
		return;
	if (status < 0) /* cut is better than unsaid */
		(void)gantry_str_format(u->text, sizeof(u->text),
					"the monitor stays of version %s: %s", u->record.from,
					strerror(-status));
	go_on(a);
}

void gantry_upgrade_moved(struct gantry_agent *a, const char *text)
{
	struct gantry_upgrade *u = &a->upgrade;
	size_t len = strlen(u->text);

	if (u->record.state != GANTRY_UPGRADE_MOVING)
		return;
	if (text[0]) /* cut is better than unsaid */
		(void)gantry_str_format(u->text + len, sizeof(u->text) - len, "%s%s",
					len ? "; " : "", text);
	finish(a);
}

int gantry_upgrade_monitor_died(struct gantry_agent *a)
{
	struct gantry_upgrade *u = &a->upgrade;
	int previous = u->previous;

	u->previous = -EBADF;
	if (u->record.state == GANTRY_UPGRADE_TRYING || u->record.state == GANTRY_UPGRADE_SETTLING)
		refuse(a, "the monitor died in between");
	if (u->record.state != GANTRY_UPGRADE_TAKEN)
		return previous;
	if (previous >= 0) /* fits */
		(void)gantry_str_format(u->text, sizeof(u->text),
					"the monitor of version %s died at once: one of %s runs",
					u->record.to, u->record.from);
	go_on(a);
	return previous;
}

void gantry_upgrade_heard(struct gantry_agent *a, const struct gantry_monitor_msg *msg, int fd)
{
	struct gantry_upgrade *u = &a->upgrade;
	char text[GANTRY_ERR_TEXT_MAX];

	if (msg->op == GANTRY_MONITOR_CANDIDATE) {
		bool early = u->record.state == GANTRY_UPGRADE_TRYING;

		if (early && msg->value == 0) {
			judge(a, fd);
		} else if (early || u->record.state == GANTRY_UPGRADE_SETTLING) {
			describe_end(msg->value, msg->status, u->path, text, sizeof(text));
			refuse(a, text);
		}
	} else if (msg->op == GANTRY_MONITOR_BECOMING) {
		gantry_fd_close(u->previous);
		u->previous = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	} else if (msg->op == GANTRY_MONITOR_BECAME) {
		monitor_done(a, msg->value);
	}
}
