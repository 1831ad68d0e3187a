/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels print, on its way from the standard output of a worker to the buffer of its session. Each test is a process of its
 * own, which is the worker: what it writes to standard output is what a driver would.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "host-agent/worker/output.h"
#include "host-agent/worker/worker.h"
#include "tests/unit/runner.h"

#define BYTES (GANTRY_OUTPUT_MIN_BYTES + 64u)
#define GUARD 64u
#define SLOT  3u

static struct gantry_engine engine = { .isolated = true };
static struct wdevice device = { .engine = &engine, .nsessions = 1 };
static struct wsession session;
static struct gantry_ledger_object objects[SLOT + 1];
static _Alignas(64) uint8_t heap[BYTES + 2 * GUARD];
static struct gantry_output *const head = (struct gantry_output *)(heap + GUARD);

static uint64_t ring_bytes(void)
{
	return GANTRY_OUTPUT_RING(BYTES);
}

static const uint8_t *ring(unsigned int which)
{
	return (const uint8_t *)(head + 1) + which * ring_bytes();
}

/* What the log has, of this process alone. */
static char logged[16384];

static void note(void *unused, enum gantry_log_level level, const char *text)
{
	size_t len = strlen(logged);

	(void)unused;
	(void)level;
	(void)snprintf(logged + len, sizeof(logged) - len, "%s\n", text);
}

static void open_all(void)
{
	struct gantry_err err;

	gantry_log_sink_set(note, NULL);
	session.engine = &engine;
	memset(heap, 0xee, sizeof(heap));
	memset(head, 0, sizeof(*head));
	session.heap = (struct gantry_region){ heap, sizeof(heap) };
	session.ledger.objects = objects;
	objects[SLOT].state = GANTRY_OBJECT_LIVE;
	objects[SLOT].type = GANTRY_HANDLE_BUFFER;
	objects[SLOT].buffer.place = GANTRY_PLACE_HEAP;
	objects[SLOT].buffer.alloc_flags = GANTRY_ALLOC_HOST | GANTRY_ALLOC_OUTPUT;
	objects[SLOT].buffer.off = GUARD;
	objects[SLOT].buffer.bytes = BYTES;
	worker_output_is_at(&session, SLOT);
	ck_assert_int_eq(worker_output_open(&err), 0);
}

static void check_guards(void)
{
	for (unsigned int i = 0; i < GUARD; i++) {
		ck_assert_uint_eq(heap[i], 0xee);
		ck_assert_uint_eq(heap[GUARD + BYTES + i], 0xee);
	}
}

static void flush(uint32_t fault)
{
	ck_assert(worker_output_begin(&device, &session));
	worker_output_end(&device, &session, fault);
}

/* So often of @n times something is asked for though nobody has a place for it. */
static unsigned int begun_of(unsigned int n)
{
	unsigned int count = 0;

	while (n-- > 0)
		count += worker_output_begin(&device, &session);
	return count;
}

START_TEST(test_output_of_both_sorts_comes_to_the_sessions_buffer)
{
	ck_assert(worker_output_begin(&device, &session));
	(void)fputs("said", stdout);
	ck_assert_int_eq(write(STDERR_FILENO, "failed", 6), 6);
	worker_output_end(&device, &session, 710);
	ck_assert_uint_eq(head->put[0], 4);
	ck_assert_uint_eq(head->put[1], 6);
	ck_assert_mem_eq(ring(0), "said", 4);
	ck_assert_mem_eq(ring(1), "failed", 6);
	ck_assert_uint_eq(head->fault, 710);
	ck_assert_uint_eq(head->lost, 0);
	/* What was written before it was asked for counts too, and nothing comes twice. */
	(void)fputs(" more", stdout);
	(void)fflush(stdout);
	flush(0);
	ck_assert_uint_eq(head->put[0], 9);
	ck_assert_mem_eq(ring(0), "said more", 9);
	flush(0);
	ck_assert_uint_eq(head->put[0], 9);
	ck_assert_uint_eq(head->fault, 710);
	check_guards();
}
END_TEST

START_TEST(test_output_longer_than_the_ring_keeps_the_newest)
{
	uint64_t n = 3 * ring_bytes() + 5;

	for (uint64_t i = 0; i < n; i++)
		(void)fputc('a' + (int)(i % 23), stdout);
	flush(0);
	ck_assert_uint_eq(head->put[0], n);
	ck_assert_uint_eq(head->lost, n - ring_bytes());
	for (uint64_t i = n - ring_bytes(); i < n; i++)
		ck_assert_uint_eq(ring(0)[i % ring_bytes()], 'a' + i % 23);
	check_guards();
}
END_TEST

START_TEST(test_output_longer_than_the_file_is_bounded_and_what_follows_comes)
{
	static char block[64 << 10];

	memset(block, 'x', sizeof(block));
	for (unsigned int i = 0; i < 2 * WORKER_OUTPUT_BYTES / sizeof(block); i++)
		(void)!write(STDOUT_FILENO, block, sizeof(block));
	(void)fputs("lost", stdout);
	flush(0);
	ck_assert_uint_eq(head->put[0], WORKER_OUTPUT_BYTES);
	ck_assert_uint_gt(head->lost, WORKER_OUTPUT_BYTES - ring_bytes());
	ck_assert_int_eq(write(STDOUT_FILENO, "next", 4), 4);
	flush(0);
	ck_assert_uint_ge(head->put[0], WORKER_OUTPUT_BYTES + 4);
	check_guards();
}
END_TEST

/* The guest may write to all of its buffer, and free it. */
START_TEST(test_output_to_a_hostile_buffer_stays_inside)
{
	static const uint64_t heads[] = { UINT64_MAX, UINT64_MAX - 3, 1, UINT64_MAX / 2 };

	for (unsigned int i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		head->put[0] = heads[i];
		head->put[1] = ~heads[i];
		for (unsigned int k = 0; k < 2 * BYTES; k++)
			(void)fputc('z', stdout);
		flush(0);
		check_guards();
	}
}
END_TEST

START_TEST(test_output_of_a_buffer_that_is_none_is_dropped)
{
	for (unsigned int i = 0; i < 5; i++) {
		struct gantry_ledger_object was = objects[SLOT];

		if (i == 0)
			objects[SLOT].state = GANTRY_OBJECT_DYING;
		else if (i == 1)
			objects[SLOT].buffer.off = sizeof(heap);
		else if (i == 2)
			objects[SLOT].buffer.bytes = 64;
		else if (i == 3)
			objects[SLOT].buffer.alloc_flags = GANTRY_ALLOC_HOST;
		else
			objects[SLOT].buffer.place = GANTRY_PLACE_SLAB;
		worker_output_is_at(&session, SLOT);
		(void)fputs("nobody's", stdout);
		flush(0);
		objects[SLOT] = was;
		/* Nothing more is taken for it: each time would be a line of the host's log. */
		ck_assert_uint_eq(session.output, 0);
	}
	ck_assert_uint_le(begun_of(1000), 4);
	ck_assert_uint_eq(head->put[0], 0);
	worker_output_is_at(&session, SLOT);
	flush(0);
	ck_assert_uint_eq(head->put[0], 0);
	check_guards();
}
END_TEST

/* Whoever has no place for it does not take it, and the driver is asked for it now and then, so that somebody is told. */
START_TEST(test_output_where_several_sessions_are_is_nobodys)
{
	device.nsessions = 2;
	ck_assert(worker_output_begin(&device, &session));
	(void)fputs("nobody's", stdout);
	worker_output_end(&device, &session, 0);
	ck_assert_ptr_nonnull(strstr(logged, "what kernels print is dropped, 8 bytes so far"));
	ck_assert_uint_le(begun_of(1000), 4);
	device.nsessions = 1;
	engine.isolated = false;
	ck_assert_uint_le(begun_of(1000), 4);
	engine.isolated = true;
	session.output = 0;
	ck_assert_uint_le(begun_of(1000), 4);
	ck_assert_uint_eq(head->put[0], 0);
}
END_TEST

/* ---- standard error ---- */

/* NVIDIA's driver tells of an assertion when it is first asked for anything after it, which is not when somebody waits for that. */
START_TEST(test_stderr_written_at_any_time_is_the_sessions)
{
	ck_assert_int_eq(write(STDERR_FILENO, "failed", 6), 6);
	worker_output_look();
	flush(710);
	ck_assert_uint_eq(head->put[1], 6);
	ck_assert_mem_eq(ring(1), "failed", 6);
	ck_assert_str_eq(logged, "");
}
END_TEST

START_TEST(test_stderr_longer_than_the_file_is_bounded_and_what_follows_comes)
{
	static char block[64 << 10];

	memset(block, 'x', sizeof(block));
	for (unsigned int i = 0; i < 2 * WORKER_OUTPUT_BYTES / sizeof(block); i++)
		(void)!write(STDERR_FILENO, block, sizeof(block));
	flush(0);
	ck_assert_uint_eq(head->put[1], WORKER_OUTPUT_BYTES);
	ck_assert_int_eq(write(STDERR_FILENO, "next", 4), 4);
	flush(0);
	ck_assert_uint_eq(head->put[1], WORKER_OUTPUT_BYTES + 4);
	check_guards();
}
END_TEST

START_TEST(test_stderr_that_no_session_takes_is_the_logs_line_by_line)
{
	static const char text[] = "a library\nsays\033[2J\n";

	session.output = 0;
	engine.isolated = false;
	worker_output_close();
	open_all();
	ck_assert_int_eq(write(STDERR_FILENO, text, sizeof(text) - 1), sizeof(text) - 1);
	worker_output_look();
	ck_assert_str_eq(logged, "standard error: a library\nstandard error: says [2J\n");
	worker_output_look();
	worker_output_rest();
	ck_assert_str_eq(logged, "standard error: a library\nstandard error: says [2J\n");
	engine.isolated = true;
}
END_TEST

/* Guests decide how much it is. */
START_TEST(test_stderr_that_no_session_takes_is_bounded_in_the_log)
{
	engine.isolated = false;
	worker_output_close();
	open_all();
	for (unsigned int i = 0; i < 100000; i++)
		(void)!write(STDERR_FILENO, "a line of it\n", 13);
	for (unsigned int i = 0; i < 100; i++)
		worker_output_look();
	ck_assert_uint_lt(strlen(logged), 1000);
	engine.isolated = true;
}
END_TEST

START_TEST(test_stderr_before_an_abort_is_the_logs)
{
	char text[256] = { 0 };
	int ends[2], status;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		worker_output_close();
		(void)dup2(ends[1], STDERR_FILENO);
		open_all();
		(void)!write(STDERR_FILENO, "what\033 cannot be\ngantryd: is\n", 28);
		abort();
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ck_assert_int_gt(close(ends[1]) + read(ends[0], text, sizeof(text) - 1), 0);
	(void)close(ends[0]);
	/* A line of the log's own cannot be among it. */
	ck_assert_str_eq(text, "standard error: what  cannot be gantryd: is\n");
}
END_TEST

/* ---- drivers that print on threads of their own ---- */

#define NTHREADS 4u
#define NLINES	 3000u
static const char line[32] = "a line of one of the threads...";
static uint32_t nwriting = NTHREADS;

static void *print_lines(void *unused)
{
	(void)unused;
	for (unsigned int i = 0; i < NLINES; i++)
		if (write(STDOUT_FILENO, line, sizeof(line)) != (ssize_t)sizeof(line))
			abort();
	(void)gantry_fetch_add(&nwriting, -1u);
	return NULL;
}

START_TEST(test_output_written_while_it_is_taken_comes_whole)
{
	pthread_t threads[NTHREADS];

	for (unsigned int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, print_lines, NULL), 0);
	while (gantry_load_acquire(&nwriting) > 0)
		flush(0);
	for (unsigned int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	flush(0);
	ck_assert_uint_eq(head->put[0], (uint64_t)NTHREADS * NLINES * sizeof(line));
	for (uint64_t off = 0; off < ring_bytes(); off += sizeof(line))
		ck_assert_mem_eq(ring(0) + off, line, sizeof(line));
	check_guards();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("output");
	TCase *tc = gantry_unit_case(suite, "output");

	tcase_add_checked_fixture(tc, open_all, worker_output_close);
	tcase_add_test(tc, test_output_of_both_sorts_comes_to_the_sessions_buffer);
	tcase_add_test(tc, test_output_longer_than_the_ring_keeps_the_newest);
	tcase_add_test(tc, test_output_longer_than_the_file_is_bounded_and_what_follows_comes);
	tcase_add_test(tc, test_output_to_a_hostile_buffer_stays_inside);
	tcase_add_test(tc, test_output_of_a_buffer_that_is_none_is_dropped);
	tcase_add_test(tc, test_output_written_while_it_is_taken_comes_whole);
	tcase_add_test(tc, test_output_where_several_sessions_are_is_nobodys);
	tcase_add_test(tc, test_stderr_written_at_any_time_is_the_sessions);
	tcase_add_test(tc, test_stderr_longer_than_the_file_is_bounded_and_what_follows_comes);
	tcase_add_test(tc, test_stderr_that_no_session_takes_is_the_logs_line_by_line);
	tcase_add_test(tc, test_stderr_that_no_session_takes_is_bounded_in_the_log);
	tcase_add_test(tc, test_stderr_before_an_abort_is_the_logs);
	return gantry_unit_run(suite);
}
