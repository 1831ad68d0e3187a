/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a session, its end, and what a fork does to it. */
#include "guest-shim/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/atomic.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/thread.h"
#include "guest-shim/error.h"
#include "guest-shim/handshake.h"
#include "guest-shim/pause.h"
#include "guest-shim/ranges.h"

#define WELL_KNOWN_DOOR "/run/gantry/door"

/* A dead agent is noticed this soon by whoever waits, at the price of a system call each time. */
#define PEEK_EVERY_NS (100 * GANTRY_NS_PER_MS)

/*
 * The control queue and the copy queue are the library's own, on top of what the program asks for.
 */
#define OWN_QUEUES 2u

static const struct gantry_transport_ops *const transports[] = {
	&gantry_transport_unix,
	&gantry_transport_ivshmem,
	&gantry_transport_vsock,
	&gantry_transport_stream,
};

/* ---- state ---- */

int gantry_session_why_not(struct gantry_session *s)
{
	return s ? gantry_fail_plain(GANTRY_E_FORKED)
		 : gantry_fail(GANTRY_E_ARG, "the session is NULL");
}

int gantry_session_end(struct gantry_session *s, int status, const char *text)
{
	pthread_mutex_lock(&s->end_lock);
	if (!s->ended) {
		(void)gantry_str_copy(s->end_text, sizeof(s->end_text), text);
		/*
		 * Release: pairs with the acquire in gantry_session_why_over(); the text is written.
		 */
		gantry_store_release(&s->ended, status);
	}
	pthread_mutex_unlock(&s->end_lock);
	return gantry_fail(s->ended, "%s", s->end_text);
}

/* What the host wrote as the reason, as a status that concerns the session. */
static int end_by_reason(struct gantry_session *s, int reason, const char *notice)
{
	int status = reason <= -100 && reason > -200 ? reason : GANTRY_E_DETACHED;

	return gantry_session_end(
		s, status, *notice ? notice : gantry_status_text(reason < 0 ? reason : status));
}

/* The segment says that it is over and holds a number; the sentence was sent through the door before. */
static int end_by_host(struct gantry_session *s)
{
	struct gantry_door_refuse notice;

	(void)s->transport->peek(s->cookie, &notice); /* it hung up, as was to be expected */
	return end_by_reason(s, gantry_load_relaxed(&s->header->reason),
			     notice.status ? notice.text : "");
}

int gantry_session_why_over(struct gantry_session *s)
{
	/* Acquire: pairs with the release in gantry_session_end(). */
	int ended = gantry_load_acquire(&s->ended);

	return ended ? gantry_fail(ended, "%s", s->end_text) : end_by_host(s);
}

static int look_at_door(struct gantry_session *s)
{
	struct gantry_door_refuse notice;
	int r = s->transport->peek(s->cookie, &notice);

	if (notice.status != 0)
		return end_by_reason(s, notice.status, notice.text);
	if (r == 0)
		return 0;
	/* A host that ends a session writes the reason before it hangs up. */
	r = gantry_session_alive(s);
	return r < 0 ? r : gantry_session_end(s, GANTRY_E_DETACHED, "the agent hung up");
}

int gantry_session_look(struct gantry_session *s)
{
	uint64_t now = gantry_now_ns();
	uint64_t at = gantry_load_relaxed(&s->peek_at_ns);
	int r = gantry_session_alive(s);

	if (r < 0)
		return r;
	/* One thread of many looks; the others go on. */
	if (now < at || !gantry_cas(&s->peek_at_ns, &at, now + PEEK_EVERY_NS))
		return 0;
	return look_at_door(s);
}

int gantry_session_look_now(struct gantry_session *s)
{
	int r = gantry_session_alive(s);

	return r < 0 ? r : look_at_door(s);
}

uint64_t gantry_session_deadline(const struct gantry_session *s)
{
	return gantry_deadline_ns(s->call_timeout_ns);
}

int gantry_session_request(struct gantry_session *s, void *msg, uint16_t kind, void *ret_answer)
{
	uint64_t deadline_ns = gantry_session_deadline(s);
	int r = gantry_session_alive(s);

	if (r < 0)
		return r;
	if (gantry_lock_until(&s->request_lock, deadline_ns) < 0)
		return gantry_fail_plain(GANTRY_E_TIMEOUT);
	r = s->transport->request(s->cookie, msg, kind, ret_answer, deadline_ns);
	gantry_lock_put(&s->request_lock);
	return r == GANTRY_E_DETACHED ? gantry_session_end(s, r, "the agent hung up") : r;
}

/* ---- life ---- */

static int make_mark(struct gantry_fork_mark **ret_mark)
{
	void *page = mmap(NULL, GANTRY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	if (page == MAP_FAILED)
		return gantry_fail_errno(GANTRY_E_NO_MEMORY, errno, "a page to notice forks with");
	if (madvise(page, GANTRY_PAGE, MADV_WIPEONFORK) < 0) {
		int status = gantry_fail_errno(GANTRY_E_UNSUPPORTED, errno, "MADV_WIPEONFORK");

		(void)munmap(page,
			     GANTRY_PAGE); /* the failure being reported is the one that matters */
		return status;
	}
	*ret_mark = page;
	(*ret_mark)->is_ours = 1;
	return 0;
}

static int session_new(struct gantry_session **ret_session)
{
	struct gantry_session *s = aligned_alloc(_Alignof(struct gantry_session), sizeof(*s));
	int r;

	if (!s)
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	memset(s, 0, sizeof(*s));
	if (gantry_uses_init(&s->uses) < 0) {
		free(s);
		return gantry_fail_plain(GANTRY_E_NO_MEMORY);
	}
	r = make_mark(&s->mark);
	if (r < 0) {
		gantry_uses_fini(&s->uses);
		free(s);
		return r;
	}
	pthread_mutex_init(&s->table_lock, NULL);
	pthread_mutex_init(&s->heap_lock, NULL);
	pthread_mutex_init(&s->end_lock, NULL);
	for (uint32_t i = 0; i < GANTRY_MAX_QUEUES; i++) {
		gantry_failures_init(&s->queues[i].failures);
		s->queues[i].slot = i;
	}
	s->frees_end = &s->frees;
	s->ncpus = gantry_cpus_allowed();
	*ret_session = s;
	return 0;
}

static void free_tables(struct gantry_session *s)
{
	struct gantry_buffer_info *info, *next_info;
	struct gantry_mapping *next_mapping;

	for (struct gantry_mapping *m = s->mappings; m; m = next_mapping) {
		next_mapping = m->next;
		free(m->staging);
		free(m);
	}
	for (info = s->frees; info; info = next_info) {
		next_info = info->next;
		free(info);
	}
	gantry_buffers_fini(&s->buffers);
	gantry_uses_fini(&s->uses);
	gantry_ranges_fini(s);
	gantry_heap_fini(&s->heap);
}

/*
 * Also for a forked child's copy, whose locks may be held by threads that it does not have: takes
 * none.
 */
static void session_free(struct gantry_session *s)
{
	bool is_ours = s->mark->is_ours;

	if (s->transport)
		s->transport->close(s->cookie);
	/* A child has no segment (MADV_DONTFORK); something else may be mapped there by now. */
	if (s->segment.base && is_ours && !s->segment_is_borrowed)
		(void)munmap(s->segment.base,
			     s->segment.bytes); /* cannot fail for a mapping of ours */
	free_tables(s);
	for (uint32_t i = 0; i < GANTRY_MAX_QUEUES; i++) {
		free(gantry_arena_fini(&s->queues[i].arena));
		free(s->queues[i].failures.kept);
	}
	(void)munmap(s->mark, GANTRY_PAGE); /* likewise */
	free(s);
}

void gantry_close(struct gantry_session *session)
{
	if (session)
		session_free(session);
}

/* ---- opening ---- */

static int check_limits(const struct gantry_limits *ask)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(ask->reserved); i++)
		if (ask->reserved[i])
			return gantry_fail(GANTRY_E_ARG, "a reserved field of the limits is not 0");
	if (ask->nslots && (!gantry_is_pow2(ask->nslots) || ask->nslots < GANTRY_MIN_SLOTS ||
			    ask->nslots > GANTRY_MAX_SLOTS))
		return gantry_fail(GANTRY_E_ARG,
				   "a ring has a power of two from %u to %u slots, not %u",
				   GANTRY_MIN_SLOTS, GANTRY_MAX_SLOTS, ask->nslots);
	if (ask->nqueues > GANTRY_MAX_QUEUES - OWN_QUEUES)
		return gantry_fail(GANTRY_E_ARG, "a session has at most %u queues",
				   GANTRY_MAX_QUEUES - OWN_QUEUES);
	if (ask->call_timeout_ns < 0)
		return gantry_fail(GANTRY_E_ARG, "the call timeout is negative");
	return 0;
}

void gantry_session_greeting(const struct gantry_limits *ask, struct gantry_door_hello *hello)
{
	static const struct gantry_limits no_wishes;

	if (!ask)
		ask = &no_wishes;
	*hello = (struct gantry_door_hello){
		.version_min = GANTRY_WIRE_VERSION_MIN,
		.version_max = GANTRY_WIRE_VERSION_MAX,
		.heap_bytes = ask->heap_bytes,
		.virtual_bytes = ask->virtual_bytes,
		.mem_bytes = ask->mem_bytes,
		.nqueues = ask->nqueues ? ask->nqueues + OWN_QUEUES : 0,
		.nslots = ask->nslots,
		.pid = (uint32_t)getpid(),
	};
	gantry_door_header_init(&hello->h, GANTRY_DOOR_HELLO, 0);
	(void)gantry_str_copy(hello->name, sizeof(hello->name), program_invocation_short_name);
}

static int attach(struct gantry_session *s, const struct gantry_door_hello *hello,
		  uint64_t deadline_ns)
{
	struct gantry_attachment attachment = { 0 };
	int r = s->transport->handshake(s->cookie, hello, deadline_ns, &attachment);

	if (r != 0)
		return r;
	r = gantry_session_map(s, &attachment);
	gantry_fd_close(attachment.segment_fd);
	if (attachment.can_split) {
		gantry_fd_close(attachment.rings_fd);
		gantry_fd_close(attachment.heap_fd);
	}
	return r;
}

static int64_t call_timeout_of(const struct gantry_limits *ask)
{
	return ask && ask->call_timeout_ns ? ask->call_timeout_ns : GANTRY_CALL_TIMEOUT_NS;
}

int gantry_session_begin(const struct gantry_transport_ops *ops, void *cookie,
			 const struct gantry_door_hello *hello, int64_t call_timeout_ns,
			 uint64_t deadline_ns, struct gantry_session **ret_session)
{
	struct gantry_session *s = NULL;
	int r = session_new(&s);

	if (r < 0) {
		ops->close(cookie);
		return r;
	}
	s->transport = ops;
	s->cookie = cookie;
	if (ops->is_apart && s->ncpus < 2)
		s->ncpus = 2;
	s->call_timeout_ns = call_timeout_ns;
	s->is_adopted = hello->flags & GANTRY_HELLO_ADOPT;
	r = attach(s, hello, deadline_ns);
	if (r != 0) {
		session_free(s);
		return r;
	}
	*ret_session = s;
	return 0;
}

static int open_over(const struct gantry_transport_ops *ops, void *cookie,
		     const struct gantry_limits *ask, uint64_t deadline_ns,
		     struct gantry_session **ret_session)
{
	struct gantry_door_hello hello;

	gantry_session_greeting(ask, &hello);
	return gantry_session_begin(ops, cookie, &hello, call_timeout_of(ask), deadline_ns,
				    ret_session);
}

int gantry_session_open_transport(const struct gantry_transport_ops *ops, void *cookie,
				  const struct gantry_limits *ask,
				  struct gantry_session **ret_session)
{
	int r = ask ? check_limits(ask) : 0;

	if (r < 0) {
		ops->close(cookie);
		return r;
	}
	r = open_over(ops, cookie, ask, gantry_deadline_ns(call_timeout_of(ask)), ret_session);
	return r == GANTRY_HANDSHAKE_ANEW ? GANTRY_E_AGAIN
					  : r; /* there is no way to connect anew */
}

/* A prefix names the transport; a bare path is a Unix socket. */
static int find_transport(const char **where, const struct gantry_transport_ops **ret_ops)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(transports); i++) {
		if (!gantry_str_starts(*where, transports[i]->prefix))
			continue;
		*where += strlen(transports[i]->prefix);
		*ret_ops = transports[i];
		return 0;
	}
	if (!strchr("/.@", **where) && strchr(*where, ':'))
		return gantry_fail(GANTRY_E_UNSUPPORTED, "no transport for the door %.100s",
				   *where);
	*ret_ops = &gantry_transport_unix;
	return 0;
}

/* Where a program looks that was not told: in its container, then at the devices of its machine. */
static const struct {
	const struct gantry_transport_ops *ops;
	const char *where;
} usual_doors[] = {
	{ &gantry_transport_unix, WELL_KNOWN_DOOR },
	{ &gantry_transport_ivshmem, "" },
};

/* The first that is there; one that is there and does not let the program in is not passed over. */
static int connect_usual(uint64_t deadline_ns, const struct gantry_transport_ops **ret_ops,
			 void **ret_cookie)
{
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(usual_doors); i++) {
		int r = usual_doors[i].ops->connect(usual_doors[i].where, deadline_ns, ret_cookie);

		if (r == GANTRY_E_NO_AGENT)
			continue;
		*ret_ops = usual_doors[i].ops;
		return r;
	}
	return gantry_fail(
		GANTRY_E_NO_AGENT,
		"no agent: nothing answers at " WELL_KNOWN_DOOR
		", and this machine has no ivshmem device of an agent; GANTRY_DOOR names other doors");
}

static int connect_named(const char *where, uint64_t deadline_ns,
			 const struct gantry_transport_ops **ret_ops, void **ret_cookie)
{
	int r = find_transport(&where, ret_ops);

	return r < 0 ? r : (*ret_ops)->connect(where, deadline_ns, ret_cookie);
}

int gantry_session_reach(const char *where, uint64_t deadline_ns,
			 const struct gantry_transport_ops **ret_ops, void **ret_cookie)
{
	if (!where)
		where = secure_getenv(
			"GANTRY_DOOR"); /* whoever runs a set-uid program is not its user */
	return where && *where ? connect_named(where, deadline_ns, ret_ops, ret_cookie)
			       : connect_usual(deadline_ns, ret_ops, ret_cookie);
}

int gantry_open(const char *where, const struct gantry_limits *ask,
		struct gantry_session **ret_session)
{
	const struct gantry_transport_ops *ops = NULL;
	struct gantry_pause pause;
	uint64_t deadline_ns;
	void *cookie;
	int r;

	if (!ret_session)
		return gantry_fail(GANTRY_E_ARG, "there is nowhere to put the session");
	r = ask ? check_limits(ask) : 0;
	if (r < 0)
		return r;
	deadline_ns = gantry_deadline_ns(call_timeout_of(ask));
	pause = gantry_pause_until(deadline_ns);
	do {
		r = gantry_session_reach(where, deadline_ns, &ops, &cookie);
		if (r == 0)
			r = open_over(ops, cookie, ask, deadline_ns, ret_session);
	} while (r == GANTRY_HANDSHAKE_ANEW && gantry_pause(&pause));
	return r == GANTRY_HANDSHAKE_ANEW ? GANTRY_E_AGAIN : r;
}
