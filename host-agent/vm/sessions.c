/* SPDX-License-Identifier: Apache-2.0 */
#include "sessions.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"

#define LOOK_MS	       10
#define LOOK_STAGED_MS 2
#define SETTLE_NS \
	(20 * (int64_t)GANTRY_NS_PER_S) /* what is called back has ended by then, or is in doubt */

typedef Gantry__Admin__AdminReply reply_t;
#define REQUEST(name) GANTRY__ADMIN__ADMIN_REQUEST__BODY_##name
#define REPLY(name)   GANTRY__ADMIN__ADMIN_REPLY__BODY_##name

static enum gantry_vm_where_session other(enum gantry_vm_where_session side)
{
	return side == GANTRY_VM_HERE ? GANTRY_VM_THERE : GANTRY_VM_HERE;
}

/* ---- asking an agent ---- */

static int list_sessions(struct gantry_ctl *agent, const char *tenant, reply_t **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__SessionFilter filter = GANTRY__ADMIN__SESSION_FILTER__INIT;

	filter.tenant = (char *)tenant;
	request.body_case = REQUEST(SESSION_LIST);
	request.session_list = &filter;
	return gantry_ctl_ask(agent, &request, REPLY(SESSIONS), ret_reply);
}

static int begin(struct gantry_vm_sessions *s, struct gantry_vm_session *one,
		 enum gantry_vm_where_session from, bool dry)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__SessionMigrate body = GANTRY__ADMIN__SESSION_MIGRATE__INIT;
	int r;

	body.session_id = one->id[from];
	body.host = (char *)s->host[other(from)];
	body.bandwidth = s->bandwidth;
	body.dry_run = dry;
	body.staged = s->staged && from == GANTRY_VM_HERE;
	request.body_case = REQUEST(SESSION_MIGRATE);
	request.session_migrate = &body;
	r = gantry_ctl_ask(s->agent[from], &request, REPLY(MIGRATIONS), &reply);
	if (!r)
		one->migration = reply->migrations->migrations[0]->id;
	return r;
}

static int look(struct gantry_ctl *agent, uint64_t id, reply_t **ret_reply)
{
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;

	filter.id = id;
	request.body_case = REQUEST(MIGRATION_LIST);
	request.migration_list = &filter;
	return gantry_ctl_ask(agent, &request, REPLY(MIGRATIONS), ret_reply);
}

/* What cannot be called back any more is waited for, so that it does not matter whether this could be done. */
static void call_back(struct gantry_ctl *agent, uint64_t id)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationFilter filter = GANTRY__ADMIN__MIGRATION_FILTER__INIT;

	filter.id = id;
	request.body_case = REQUEST(MIGRATION_CANCEL);
	request.migration_cancel = &filter;
	(void)gantry_ctl_ask_quietly(agent, &request, &reply, NULL);
}

/* ---- which ---- */

static bool is_meant(const Gantry__Admin__Session *row, const char *door, uint64_t machine)
{
	if (machine)
		return row->machine == machine;
	if (door)
		return strcmp(row->door, door) == 0;
	return strcmp(row->door, "vsock") == 0 || strcmp(row->door, "stream") == 0;
}

static int add(struct gantry_vm_sessions *s, const Gantry__Admin__Session *row)
{
	struct gantry_vm_session *one = &s->list[s->n];

	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].id[GANTRY_VM_HERE] == row->session_id)
			return 0;
	if (s->n == GANTRY_VM_SESSIONS_MAX)
		return gantry_ctl_fail(s->agent[GANTRY_VM_HERE], GANTRY_CTL_UNSUPPORTED,
				       "it has more than %u sessions", GANTRY_VM_SESSIONS_MAX);
	*one = (struct gantry_vm_session){ .attached_unix_ns = row->attached_unix_ns,
					   .machine = row->machine };
	one->id[GANTRY_VM_HERE] = row->session_id;
	/* cut short: it is only shown, and compared */
	(void)gantry_str_copy(one->tenant, sizeof(one->tenant), row->tenant);
	(void)gantry_str_copy(one->program, sizeof(one->program), row->program);
	s->n++;
	return 0;
}

int gantry_vm_sessions_find(struct gantry_vm_sessions *s, const char *tenant, const char *door,
			    uint64_t machine)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	int r = list_sessions(s->agent[GANTRY_VM_HERE], tenant, &reply);

	for (size_t i = 0; !r && i < reply->sessions->n_sessions; i++) {
		const Gantry__Admin__Session *row = reply->sessions->sessions[i];

		if (is_meant(row, door, machine))
			r = add(s, row);
	}
	return r;
}

/* The row of @one on its side, in what list_sessions() said of its tenant. NULL: it is not there. */
static const Gantry__Admin__Session *row_of(const struct gantry_vm_session *one,
					    const Gantry__Admin__SessionList *list)
{
	for (size_t i = 0; i < list->n_sessions; i++)
		if (list->sessions[i]->attached_unix_ns == one->attached_unix_ns &&
		    strncmp(list->sessions[i]->program, one->program, sizeof(one->program) - 1) ==
			    0)
			return list->sessions[i];
	return NULL;
}

/* Its number on the side it is on. It may have ended: session->where then says so. */
static int number(struct gantry_vm_sessions *s, struct gantry_vm_session *one)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	enum gantry_vm_where_session side = one->where;
	const Gantry__Admin__Session *row;
	int r = list_sessions(s->agent[side], one->tenant, &reply);

	if (r)
		return r;
	row = row_of(one, reply->sessions);
	if (row)
		one->id[side] = row->session_id;
	else
		one->where = GANTRY_VM_GONE;
	return 0;
}

size_t gantry_vm_sessions_count(const struct gantry_vm_sessions *s,
				enum gantry_vm_where_session where)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->list[i].where == where;
	return n;
}

/* ---- going ---- */

/* 0 once it has begun, or once its program is seen to have ended. One that is between two workers is asked again. */
static int begin_when_possible(struct gantry_vm_sessions *s, struct gantry_vm_session *one,
			       bool dry, uint64_t deadline_ns)
{
	enum gantry_vm_where_session from = one->where;
	int r;

	one->migration = 0;
	for (;;) {
		r = number(s, one);
		if (r || one->where == GANTRY_VM_GONE)
			return r;
		r = begin(s, one, from, dry);
		if (r == GANTRY_CTL_NOT_FOUND)
			continue; /* it has ended just now */
		if (r != GANTRY_CTL_BUSY || gantry_deadline_passed(deadline_ns) ||
		    gantry_vm_interrupted())
			return r;
		gantry_vm_turn(s->vm, LOOK_MS);
	}
}

/* The end of its migration, where that has come. */
static int take_result(struct gantry_vm_sessions *s, struct gantry_vm_session *one,
		       enum gantry_vm_where_session from, const Gantry__Admin__Migration *m)
{
	one->migration = 0;
	if (m->code)
		return gantry_ctl_fail(s->agent[from], gantry_ctl_code(m->code),
				       "session %" PRIu64 " (%s): %s", one->id[from], one->program,
				       m->text);
	if (m->dry_run)
		return 0;
	one->where = other(from);
	one->id[one->where] = 0;
	if (!one->held_ns)
		one->held_ns = gantry_now_ns() - m->downtime_ns;
	return 0;
}

static bool is_over(const Gantry__Admin__Migration *m)
{
	return strcmp(m->state, "done") == 0 || strcmp(m->state, "failed") == 0;
}

/* An agent that dies is another a moment later: what it does not say now it says then. */
static bool is_no_news(int code)
{
	return code == GANTRY_CTL_UNREACHABLE || code == GANTRY_CTL_FAILED;
}

/* The agent is another than that which began the migration, and does not know of it: where is the session? */
static int find_again(struct gantry_vm_sessions *s, struct gantry_vm_session *one,
		      enum gantry_vm_where_session from)
{
	int r;

	one->where = from;
	r = number(s, one);
	if (!r && one->where == GANTRY_VM_GONE) {
		one->where = other(from);
		r = number(s, one);
	}
	if (r)
		one->where = from;
	else
		one->migration = 0;
	return is_no_news(r) ? 0 : r;
}

/* One look at one that is under way. */
static int follow(struct gantry_vm_sessions *s, struct gantry_vm_session *one,
		  enum gantry_vm_where_session from)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	int r = look(s->agent[from], one->migration, &reply);

	if (r == GANTRY_CTL_NOT_FOUND)
		return find_again(s, one, from);
	if (r)
		return is_no_news(r) ? 0 : r;
	return is_over(reply->migrations->migrations[0])
		       ? take_result(s, one, from, reply->migrations->migrations[0])
		       : 0;
}

/* All that are under way, until they are over or @deadline_ns. The first failure; *@ret_left: still under way. */
static int follow_all(struct gantry_vm_sessions *s, enum gantry_vm_where_session from,
		      bool stop_at_failure, uint64_t deadline_ns, size_t *ret_left)
{
	int first = 0;

	for (;;) {
		*ret_left = 0;
		for (size_t i = 0; i < s->n; i++) {
			int r = s->list[i].migration ? follow(s, &s->list[i], from) : 0;

			first = first ? first : r;
			*ret_left += s->list[i].migration != 0;
		}
		if (*ret_left == 0 || (first && stop_at_failure) ||
		    gantry_deadline_passed(deadline_ns) || gantry_vm_interrupted())
			return first;
		gantry_vm_turn(s->vm, LOOK_MS);
	}
}

static void call_all_back(struct gantry_vm_sessions *s, enum gantry_vm_where_session from)
{
	struct gantry_err *into = s->agent[from]->into;
	struct gantry_err kept = into ? *into : (struct gantry_err)GANTRY_ERR_NONE;
	size_t left;

	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].migration)
			call_back(s->agent[from], s->list[i].migration);
	(void)follow_all(s, from, false, gantry_deadline_ns(SETTLE_NS), &left);
	for (size_t i = 0; left && i < s->n; i++)
		if (s->list[i].migration)
			s->list[i].where = GANTRY_VM_IN_DOUBT;
	if (into)
		*into = kept; /* that they were called back is not why */
}

static int begin_all(struct gantry_vm_sessions *s, enum gantry_vm_where_session from, bool dry,
		     uint64_t deadline_ns)
{
	int r = 0;

	for (size_t i = 0; !r && i < s->n; i++)
		if (s->list[i].where == from && !s->list[i].stays)
			r = begin_when_possible(s, &s->list[i], dry, deadline_ns);
	return r;
}

static int fail_late(struct gantry_vm_sessions *s, enum gantry_vm_where_session from)
{
	return gantry_vm_interrupted()
		       ? gantry_ctl_fail(s->agent[from], GANTRY_CTL_FAILED, "interrupted")
		       : gantry_ctl_fail(s->agent[from], GANTRY_CTL_TIMEOUT,
					 "the sessions were not at %s in the time given; give "
					 "--timeout more",
					 s->host[other(from)]);
}

static bool any_to_go(const struct gantry_vm_sessions *s, enum gantry_vm_where_session from)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].where == from && !s->list[i].stays)
			return true;
	return false;
}

int gantry_vm_sessions_send(struct gantry_vm_sessions *s, enum gantry_vm_where_session from,
			    uint64_t deadline_ns)
{
	size_t left = 0;
	int r = 0;

	/* More than once where an agent has died that knew of their migration: they are there after all. */
	while (!r && any_to_go(s, from)) {
		r = begin_all(s, from, false, deadline_ns);
		if (!r)
			r = follow_all(s, from, true, deadline_ns, &left);
		if (!r && (left || (gantry_deadline_passed(deadline_ns) && any_to_go(s, from))))
			r = fail_late(s, from);
	}
	if (r)
		call_all_back(s, from);
	return r;
}

/* ---- in step with their machine ---- */

static bool has_come_to(const Gantry__Admin__Migration *m, const char *state)
{
	return strcmp(m->state, state) == 0;
}

static int proceed(struct gantry_vm_sessions *s, const struct gantry_vm_session *one, bool commit)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	Gantry__Admin__AdminRequest request = GANTRY__ADMIN__ADMIN_REQUEST__INIT;
	Gantry__Admin__MigrationProceed body = GANTRY__ADMIN__MIGRATION_PROCEED__INIT;

	body.id = one->migration;
	body.commit = commit;
	request.body_case = REQUEST(MIGRATION_PROCEED);
	request.migration_proceed = &body;
	return gantry_ctl_ask(s->agent[GANTRY_VM_HERE], &request, -1, &reply);
}

/* Its agent does not know of the migration any more: it is copied once more, if it is still here. */
static int stage_again(struct gantry_vm_sessions *s, struct gantry_vm_session *one, bool hold,
		       uint64_t deadline_ns)
{
	int r = find_again(s, one, GANTRY_VM_HERE);

	if (r || one->migration || one->where != GANTRY_VM_HERE)
		return r;
	do {
		r = begin_when_possible(s, one, false, deadline_ns);
		if (is_no_news(r))
			gantry_vm_turn(s->vm, LOOK_MS);
	} while (is_no_news(r) && !gantry_deadline_passed(deadline_ns) && !gantry_vm_interrupted());
	if (!r && hold && one->migration)
		(void)proceed(s, one, false); /* who waits for it sees */
	return r;
}

/* Until all are @state; the first that has ended instead ends it. */
static int await_state(struct gantry_vm_sessions *s, const char *state, bool hold,
		       uint64_t deadline_ns)
{
	for (size_t i = 0; i < s->n; i++) {
		struct gantry_vm_session *one = &s->list[i];

		while (one->migration) {
			_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
			int r = look(s->agent[GANTRY_VM_HERE], one->migration, &reply);

			if (r == GANTRY_CTL_NOT_FOUND)
				r = stage_again(s, one, hold, deadline_ns);
			else if (!r && has_come_to(reply->migrations->migrations[0], state))
				break;
			else if (!r && is_over(reply->migrations->migrations[0]))
				r = take_result(s, one, GANTRY_VM_HERE,
						reply->migrations->migrations[0]);
			else if (is_no_news(r))
				r = 0;
			if (!r && gantry_vm_interrupted())
				r = fail_late(s, GANTRY_VM_HERE);
			else if (!r && gantry_deadline_passed(deadline_ns))
				r = gantry_ctl_fail(
					s->agent[GANTRY_VM_HERE], GANTRY_CTL_TIMEOUT,
					"the sessions were not %s in the time given; give "
					"--limit more, or --bandwidth",
					state);
			if (r)
				return r;
			gantry_vm_turn(s->vm, LOOK_STAGED_MS);
		}
	}
	return 0;
}

int gantry_vm_sessions_stage(struct gantry_vm_sessions *s, uint64_t deadline_ns)
{
	int r = begin_all(s, GANTRY_VM_HERE, false, deadline_ns);

	return r ? r : await_state(s, "ready", false, deadline_ns);
}

void gantry_vm_sessions_hold(struct gantry_vm_sessions *s)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].migration)
			(void)proceed(s, &s->list[i], false); /* who waits for it sees */
}

int gantry_vm_sessions_await_held(struct gantry_vm_sessions *s, uint64_t deadline_ns)
{
	gantry_vm_sessions_hold(s);
	return await_state(s, "prepared", true, deadline_ns);
}

static int go_once(struct gantry_vm_sessions *s, uint64_t deadline_ns)
{
	size_t left = 0;
	int r = 0;

	for (size_t i = 0; !r && i < s->n; i++) {
		if (s->list[i].migration)
			r = proceed(s, &s->list[i], true);
		if (r == GANTRY_CTL_NOT_FOUND || is_no_news(r))
			r = 0; /* who follows it sees what has become of it */
	}
	if (!r)
		r = follow_all(s, GANTRY_VM_HERE, true, deadline_ns, &left);
	return !r && left ? fail_late(s, GANTRY_VM_HERE) : r;
}

/* Those that are here after all: an agent has died that knew of their migration. */
static int stage_rest(struct gantry_vm_sessions *s, uint64_t deadline_ns, size_t *ret_n)
{
	int r = 0;

	*ret_n = 0;
	for (size_t i = 0; !r && i < s->n; i++) {
		struct gantry_vm_session *one = &s->list[i];

		if (one->where != GANTRY_VM_HERE || one->stays)
			continue;
		r = stage_again(s, one, true, deadline_ns);
		*ret_n += one->migration != 0;
	}
	return r;
}

int gantry_vm_sessions_go(struct gantry_vm_sessions *s, uint64_t deadline_ns)
{
	size_t n = 0;
	int r;

	do {
		r = go_once(s, deadline_ns);
		if (!r)
			r = stage_rest(s, deadline_ns, &n);
		if (!r && n)
			r = gantry_vm_sessions_await_held(s, deadline_ns);
	} while (!r && n);
	return r;
}

void gantry_vm_sessions_cancel(struct gantry_vm_sessions *s)
{
	call_all_back(s, GANTRY_VM_HERE);
}

int gantry_vm_session_ask(struct gantry_vm_sessions *s, struct gantry_vm_session *session,
			  uint64_t deadline_ns)
{
	int r = begin_when_possible(s, session, true, deadline_ns);

	while (!r && session->migration) {
		r = follow(s, session, GANTRY_VM_HERE);
		if (!r && session->migration && gantry_deadline_passed(deadline_ns)) {
			call_back(s->agent[GANTRY_VM_HERE], session->migration);
			return fail_late(s, GANTRY_VM_HERE);
		}
		if (!r && session->migration)
			gantry_vm_turn(s->vm, LOOK_MS);
	}
	return r;
}

int gantry_vm_sessions_settle(struct gantry_vm_sessions *s, uint64_t deadline_ns)
{
	size_t left = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->list[i].where == GANTRY_VM_IN_DOUBT)
			s->list[i].where =
				GANTRY_VM_HERE; /* whose agent asks, and knows once it is over */
	(void)follow_all(s, GANTRY_VM_HERE, false, deadline_ns,
			 &left); /* where each is says how it ended */
	for (size_t i = 0; left && i < s->n; i++)
		if (s->list[i].migration)
			s->list[i].where = GANTRY_VM_IN_DOUBT;
	return left ? gantry_ctl_fail(s->agent[GANTRY_VM_HERE], GANTRY_CTL_TIMEOUT,
				      "%zu sessions were offered to %s, which does not say whether "
				      "it has them; see gantryctl migration list",
				      left, s->host[GANTRY_VM_THERE])
		    : 0;
}

/* ---- coming back to them ---- */

static int look_for_guest(struct gantry_vm_sessions *s, struct gantry_vm_session *one)
{
	_cleanup_(gantry_client_reply_freep) reply_t *reply = NULL;
	const Gantry__Admin__Session *row;
	int r = list_sessions(s->agent[GANTRY_VM_THERE], one->tenant, &reply);

	if (r)
		return r;
	row = row_of(one, reply->sessions);
	if (!row)
		one->where = GANTRY_VM_GONE; /* it was done */
	else if (*row->door && (!s->staged || strcmp(row->state, "attached") == 0))
		one->back_ns = gantry_now_ns();
	return 0;
}

int gantry_vm_sessions_await(struct gantry_vm_sessions *s, uint64_t deadline_ns,
			     size_t *ret_missing)
{
	for (;;) {
		*ret_missing = 0;
		for (size_t i = 0; i < s->n; i++) {
			struct gantry_vm_session *one = &s->list[i];
			int r;

			if (one->where != GANTRY_VM_THERE || one->back_ns)
				continue;
			r = look_for_guest(s, one);
			if (r)
				return r;
			*ret_missing += one->where == GANTRY_VM_THERE && !one->back_ns;
		}
		if (*ret_missing == 0 || gantry_deadline_passed(deadline_ns) ||
		    gantry_vm_interrupted())
			return 0;
		gantry_vm_turn(s->vm, LOOK_MS);
	}
}
