/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites of this folder have in common: one session on a host, tasks of every sort, and a look inside. */
#ifndef GANTRY_TESTS_INPROC_FIXTURE_H
#define GANTRY_TESTS_INPROC_FIXTURE_H

#include <sched.h>
#include <string.h>

#include "base/atomic.h"
#include "tests/inproc/inproc.h"
#include "tests/unit/runner.h"

#define LONG_NS INT64_C(50000000000) /* longer than any test may take */

/* Waits for what another thread will do; the test's time limit is the deadline. */
#define eventually(condition)          \
	do {                           \
		while (!(condition))   \
			sched_yield(); \
	} while (0)

#define ck_ok(call)                                                               \
	do {                                                                      \
		int status_ = (call);                                             \
		ck_assert_msg(status_ == GANTRY_OK, "%s: %d, %s", #call, status_, \
			      gantry_last_error());                               \
	} while (0)

static const char *const one_cpu[] = { "cpu cores=1" };
static const char *const two_cpus[] = { "cpu cores=1", "cpu cores=1" };
static const char *const wide_cpu[] = { "cpu cores=2" };

struct fixture {
	struct inproc_host *h;
	struct gantry_session *s;
	gantry_queue q;
	uint32_t index;
};

static inline void fixture_session(struct fixture *f, const struct gantry_limits *ask)
{
	ck_ok(inproc_open(f->h, ask, &f->s, &f->index));
	ck_ok(gantry_queue_open(f->s, NULL, &f->q));
}

static inline struct fixture fixture_start(const char *const *devices, uint32_t n)
{
	struct fixture f = { .h = inproc_start(devices, n) };

	fixture_session(&f, NULL);
	return f;
}

static inline void fixture_end(struct fixture *f)
{
	gantry_close(f->s);
	inproc_stop(f->h);
}

static inline struct inproc_session *host_session(const struct fixture *f)
{
	return &f->h->sessions[f->index];
}

static inline struct gantry_ledger_queue *ledger_queue(const struct fixture *f, gantry_queue q)
{
	return &host_session(f)->ledger.queues[GANTRY_HANDLE_SLOT(q)];
}

static inline struct gantry_ledger_object *ledger_object(const struct fixture *f, uint64_t handle)
{
	return &host_session(f)->ledger.objects[GANTRY_HANDLE_SLOT(handle)];
}

static inline gantry_kernel find(const struct fixture *f, const char *name)
{
	gantry_kernel k = 0;

	ck_ok(gantry_kernel_find(f->s, name, NULL, &k));
	return k;
}

/* A task of kernel @name with one 8-byte argument, or none. */
static inline gantry_ticket put_flags(const struct fixture *f, gantry_queue q, const char *name,
				      const void *arg, uint32_t arg_bytes, uint32_t flags)
{
	struct gantry_task task = {
		.kernel = find(f, name),
		.args = arg,
		.args_bytes = arg_bytes,
		.flags = flags,
	};
	gantry_ticket t;

	ck_ok(gantry_submit(f->s, q, &task, 1, &t));
	return t;
}

static inline gantry_ticket put_empty(const struct fixture *f, gantry_queue q)
{
	return put_flags(f, q, "empty", NULL, 0, 0);
}

static inline gantry_ticket put_spin(const struct fixture *f, gantry_queue q, uint64_t ns)
{
	return put_flags(f, q, "spin", &ns, sizeof(ns), 0);
}

static inline gantry_ticket put_fail(const struct fixture *f, gantry_queue q)
{
	const int32_t args[2] = { -22, 0 };

	return put_flags(f, q, "fail", args, sizeof(args), 0);
}

/* All of @buffer, @n words, becomes @value. */
static inline gantry_ticket put_fill(const struct fixture *f, gantry_queue q, gantry_buffer buffer,
				     uint64_t n, uint32_t value)
{
	struct {
		uint64_t buffer;
		uint64_t n;
		uint32_t value;
		uint32_t pad;
	} args = { .n = n, .value = value };
	struct gantry_access access = { .buffer = buffer, .mode = GANTRY_W };
	struct gantry_task task = {
		.kernel = find(f, "fill"),
		.args = &args,
		.args_bytes = sizeof(args),
		.access = &access,
		.naccess = 1,
	};
	gantry_ticket t;

	ck_ok(gantry_submit(f->s, q, &task, 1, &t));
	return t;
}

static inline int outcome(const struct fixture *f, gantry_ticket t)
{
	return gantry_wait(f->s, &t, 1, LONG_NS);
}

static inline gantry_buffer make_buffer(const struct fixture *f, uint64_t bytes, unsigned flags)
{
	gantry_buffer b;

	ck_ok(gantry_alloc(f->s, bytes, flags, &b));
	return b;
}

static inline void pause_queue(const struct fixture *f, gantry_queue q, int64_t paused)
{
	ck_ok(gantry_queue_set(f->s, q, GANTRY_QUEUE_PAUSED, paused));
}

/* Until the engine has taken @n tasks of the queue. */
static inline void await_taken(const struct fixture *f, gantry_queue q, uint64_t n)
{
	eventually(gantry_load_acquire(&ledger_queue(f, q)->taken) >= n);
}

#endif
