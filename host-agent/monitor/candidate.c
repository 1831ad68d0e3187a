/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another build of the agent, beside the one that serves. Until it says TAKEN the agent that serves can go on as if
 * nothing had been; from then on the new one is the agent, and on trial until it is ready.
 *
 * Whoever of the three dies, one is left that may go on, and only one: the baton has one byte.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fd.h"
#include "base/log.h"
#include "host-agent/monitor/link.h"
#include "host-agent/monitor/state.h"

#define TRIAL_NS (60 * GANTRY_NS_PER_S)
#define LEAVE_NS (5 * GANTRY_NS_PER_S)

/* Whoever listens: a dead agent's end is seen elsewhere. */
static void tell_agent(const struct gantry_monitor *m, uint32_t op, int value, int status, int fd)
{
	if (m->sock >= 0)
		(void)gantry_link_send(m->sock, op, value, status, NULL, fd);
}

static void forget(struct gantry_monitor *m)
{
	m->candidate = (struct gantry_candidate){
		.sock = -EBADF,
		.program = -EBADF,
		.next = -EBADF,
	};
}

void gantry_candidate_try(struct gantry_monitor *m, int program)
{
	struct gantry_candidate *c = &m->candidate;
	int r = c->state == GANTRY_CANDIDATE_NONE && m->previous < 0 ? gantry_program_check(program)
								     : -EBUSY;

	/* One that was cancelled may take a while to be gone. */
	if (c->state == GANTRY_CANDIDATE_STARTING && c->cancelled) {
		gantry_fd_close(c->next);
		c->next = program;
		return;
	}
	gantry_failpoint(GANTRY_FAILPOINT_MONITOR_TRY);
	if (r == 0)
		r = gantry_program_start(m, program, "--standby", &c->pid, &c->sock);
	if (r < 0) {
		tell_agent(m, GANTRY_MONITOR_CANDIDATE, r, 0, -EBADF);
		gantry_fd_close(program);
		return;
	}
	c->program = program;
	c->state = GANTRY_CANDIDATE_STARTING;
}

void gantry_candidate_cancel(struct gantry_monitor *m)
{
	struct gantry_candidate *c = &m->candidate;

	if (c->state != GANTRY_CANDIDATE_STARTING)
		return;
	c->cancelled = true;
	c->next = gantry_fd_close(c->next);
	(void)kill(c->pid, SIGKILL); /* our child, not reaped: the pid is its own */
}

void gantry_candidate_give(struct gantry_monitor *m, int baton, int way_back)
{
	struct gantry_candidate *c = &m->candidate;
	int r = -ECHILD;

	gantry_failpoint(GANTRY_FAILPOINT_MONITOR_GIVE);
	if (c->state == GANTRY_CANDIDATE_STARTING && !c->cancelled) {
		c->state = GANTRY_CANDIDATE_GIVEN;
		c->no_way_back = way_back == GANTRY_MONITOR_TRY_AGAIN;
		r = gantry_link_send(c->sock, GANTRY_MONITOR_HAND, 0, 0, GANTRY_MONITOR_BATON,
				     baton);
		if (r == 0)
			r = gantry_link_hand_over(c->sock, &m->store, m->restarts);
		if (r < 0)
			(void)kill(c->pid, SIGKILL); /* its end is told to the agent */
	} else {
		tell_agent(m, GANTRY_MONITOR_RESUME, r, 0, -EBADF);
	}
	gantry_fd_close(baton);
}

/* It is the agent from here on. */
static void take_its_place(struct gantry_monitor *m)
{
	struct gantry_candidate c = m->candidate;

	gantry_failpoint(GANTRY_FAILPOINT_MONITOR_PLACE);
	tell_agent(m, GANTRY_MONITOR_LEAVE, 0, 0, -EBADF);
	m->leaving_pid = m->agent_gone || !m->agent_is_child ? 0 : m->agent_pid;
	m->leave_by_ns = gantry_now_ns() + LEAVE_NS;
	gantry_monitor_forget_agent(m);
	m->sock = c.sock;
	m->agent_pid = c.pid;
	m->agent_pidfd = pidfd_open(c.pid, 0);
	m->agent_is_child = true;
	m->agent_gone = false;
	m->started_ns = gantry_now_ns();
	m->previous = m->program;
	m->program = c.program;
	m->no_way_back = c.no_way_back;
	gantry_candidate_on_trial(m);
	forget(m); /* what it had is the agent's now */
	if (m->stopping)
		tell_agent(m, GANTRY_MONITOR_STOP, 0, 0, -EBADF);
	gantry_monitor_tell_exited(m);
}

void gantry_candidate_readable(struct gantry_monitor *m)
{
	struct gantry_candidate *c = &m->candidate;
	struct gantry_monitor_msg msg;
	int fd = -EBADF;
	int r = gantry_link_recv(c->sock, &msg, &fd, MSG_DONTWAIT);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		(void)kill(c->pid, SIGKILL); /* its end is what counts */
		c->sock = gantry_fd_close(c->sock);
		return;
	}
	if (msg.op == GANTRY_MONITOR_HELLO && c->state == GANTRY_CANDIDATE_STARTING &&
	    !c->cancelled)
		tell_agent(m, GANTRY_MONITOR_CANDIDATE, 0, 0, fd);
	else if (msg.op == GANTRY_MONITOR_TAKEN && c->state == GANTRY_CANDIDATE_GIVEN)
		take_its_place(m);
	gantry_fd_close(fd);
}

void gantry_candidate_ended(struct gantry_monitor *m, int status)
{
	bool given = m->candidate.state == GANTRY_CANDIDATE_GIVEN;
	struct gantry_candidate ended;

	if (given && m->candidate.sock >= 0)
		gantry_candidate_readable(m); /* TAKEN may have been its last word */
	if (m->candidate.state == GANTRY_CANDIDATE_NONE) {
		m->agent_gone = true;
		m->agent_status = status;
		return;
	}
	ended = m->candidate;
	forget(m);
	gantry_fd_close(ended.sock);
	gantry_fd_close(ended.program);
	if (!ended.cancelled)
		tell_agent(m, given ? GANTRY_MONITOR_RESUME : GANTRY_MONITOR_CANDIDATE, -ECHILD,
			   status, -EBADF);
	gantry_monitor_tell_exited(m);
	if (ended.next >= 0)
		gantry_candidate_try(m, ended.next);
}

void gantry_candidate_on_trial(struct gantry_monitor *m)
{
	if (m->previous >= 0)
		m->trial_ends_ns = gantry_now_ns() + TRIAL_NS;
}

void gantry_candidate_ready(struct gantry_monitor *m)
{
	if (m->previous < 0)
		return;
	m->become = true;
	m->trial_ends_ns = GANTRY_DEADLINE_NEVER;
}

void gantry_candidate_failed(struct gantry_monitor *m)
{
	if (m->previous < 0)
		return;
	m->trial_ends_ns = GANTRY_DEADLINE_NEVER;
	m->become = false; /* it was ready, and is dead: the next one has to be, too */
	if (m->no_way_back) {
		gantry_log(
			GANTRY_LOG_ERR,
			"the agent of another build failed, and the one before does not read what it "
			"writes: the other one is started again until it serves");
		return;
	}
	m->start_at_ns = gantry_now_ns();
	gantry_log(GANTRY_LOG_WARN, "the agent of another build failed; back to the one before");
	gantry_fd_close(m->program);
	m->program = m->previous;
	m->previous = -EBADF;
}
