/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gantry.h promises, at whatever door GANTRY_DOOR names: the same for a Unix socket, the memory of an ivshmem
 * device and a stream. Run on the host by test_transports.py, and inside virtual machines by tests/vm.
 *
 * The tenant has at least 64 MiB of device memory and 8 MiB of heap, one cpu device, and the modules core and test.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest-shim/gantry.h"
#include "tests/unit/runner.h"

#define SECOND	INT64_C(1000000000)
#define LIMIT_S 60
#define KIB	1024u
#define MIB	(1024u * 1024u)

static struct gantry_session *session;
static gantry_queue queue;

/* ---- what tests are made of ---- */

static void check_status(int status, const char *what)
{
	ck_assert_msg(status >= 0, "%s: %d %s", what, status, gantry_last_error());
}

#define GOES_WELL(call) check_status((call), #call)

static struct gantry_session *open_session(void)
{
	struct gantry_limits ask = { .call_timeout_ns = 20 * SECOND };
	struct gantry_session *s = NULL;

	GOES_WELL(gantry_open(NULL, &ask, &s));
	return s;
}

static void set_up(void)
{
	session = open_session();
	GOES_WELL(gantry_queue_open(session, NULL, &queue));
}

static void tear_down(void)
{
	gantry_close(session);
	session = NULL;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void fill_bytes(uint8_t *bytes, uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)mix(seed * 1000003 + i / 8) >> (i % 8);
}

static uint64_t checksum(const uint64_t *words, uint64_t nwords)
{
	uint64_t sum = nwords * 8;

	for (uint64_t i = 0; i < nwords; i++)
		sum += mix(words[i] + (i + 1) * 0x9e3779b97f4a7c15ull);
	return sum;
}

static gantry_buffer alloc(struct gantry_session *s, uint64_t bytes, unsigned flags)
{
	gantry_buffer buffer = 0;

	GOES_WELL(gantry_alloc(s, bytes, flags, &buffer));
	return buffer;
}

static gantry_kernel find(struct gantry_session *s, const char *name)
{
	gantry_kernel kernel = 0;

	GOES_WELL(gantry_kernel_find(s, name, NULL, &kernel));
	return kernel;
}

static gantry_ticket submit(struct gantry_session *s, gantry_queue q,
			    const struct gantry_task *task)
{
	gantry_ticket ticket = { 0 };

	GOES_WELL(gantry_submit(s, q, task, 1, &ticket));
	return ticket;
}

static gantry_ticket submit_checksum(struct gantry_session *s, gantry_queue q, gantry_kernel kernel,
				     gantry_buffer data, gantry_buffer sum, uint64_t sum_off,
				     uint64_t bytes)
{
	struct {
		uint64_t data, sum, n;
	} args = { .n = bytes };
	struct gantry_access access[] = {
		{ .buffer = data, .mode = GANTRY_R, .arg_off = 0 },
		{ .buffer = sum, .mode = GANTRY_W, .arg_off = 8, .off = sum_off, .len = 8 },
	};

	return submit(s, q,
		      &(struct gantry_task){ .kernel = kernel,
					     .naccess = 2,
					     .access = access,
					     .args_bytes = sizeof(args),
					     .args = &args });
}

static gantry_ticket submit_plain(const char *name, const void *args, uint32_t args_bytes)
{
	const struct gantry_task task = {
		.kernel = find(session, name),
		.args = args,
		.args_bytes = args_bytes,
	};

	return submit(session, queue, &task);
}

static void wait_for(struct gantry_session *s, gantry_ticket ticket)
{
	GOES_WELL(gantry_wait(s, &ticket, 1, 20 * SECOND));
}

/* ---- sessions ---- */

START_TEST(test_open_twice_gives_two_sessions)
{
	struct gantry_session *other = open_session();
	struct gantry_props mine, theirs;

	GOES_WELL(gantry_props_get(session, GANTRY_KIND_ANY, &mine));
	GOES_WELL(gantry_props_get(other, GANTRY_KIND_ANY, &theirs));
	ck_assert_uint_ne(mine.session_id, theirs.session_id);
	ck_assert_uint_ge(mine.ndevices, 1);
	gantry_close(other);
	GOES_WELL(gantry_props_get(session, GANTRY_KIND_ANY, &mine));
}
END_TEST

START_TEST(test_open_and_close_many_times_leaves_nothing)
{
	for (int i = 0; i < 8; i++)
		gantry_close(open_session());
}
END_TEST

START_TEST(test_close_with_a_task_that_runs_does_not_hang)
{
	struct gantry_session *other = open_session();
	gantry_queue q;
	gantry_kernel endless = find(other, "endless");
	struct gantry_task task = { .kernel = endless };
	gantry_ticket ticket;

	GOES_WELL(gantry_queue_open(other, NULL, &q));
	GOES_WELL(gantry_submit(other, q, &task, 1, NULL));
	gantry_close(other);
	GOES_WELL(gantry_submit_marker(session, queue, &ticket));
	wait_for(session, ticket);
}
END_TEST

START_TEST(test_fork_leaves_the_session_to_the_parent)
{
	gantry_buffer buffer = alloc(session, 64, 0);
	uint64_t word = 7, back = 0;
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		int r = gantry_write(session, buffer, 0, &word, sizeof(word));

		gantry_close(session);
		_exit(r == GANTRY_E_FORKED ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	GOES_WELL(gantry_write(session, buffer, 0, &word, sizeof(word)));
	GOES_WELL(gantry_read(session, buffer, 0, &back, sizeof(back)));
	ck_assert_uint_eq(back, 7);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_write_read_returns_the_same_bytes)
{
	static const uint64_t sizes[] = { 1, 7, 8, 4096, 64 * KIB + 3, MIB + 1, 5 * MIB };
	gantry_buffer buffer = alloc(session, 6 * MIB, GANTRY_ALLOC_DEVICE);
	uint8_t *there = malloc(6 * MIB), *back = malloc(6 * MIB);

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t off = 13 * i;

		fill_bytes(there, sizes[i], i);
		memset(back, 0, sizes[i]);
		GOES_WELL(gantry_write(session, buffer, off, there, sizes[i]));
		GOES_WELL(gantry_read(session, buffer, off, back, sizes[i]));
		ck_assert_msg(memcmp(there, back, sizes[i]) == 0, "%lu bytes came back otherwise",
			      (unsigned long)sizes[i]);
	}
	free(there);
	free(back);
}
END_TEST

START_TEST(test_map_of_a_host_buffer_is_what_devices_see)
{
	const uint64_t nwords = 32 * KIB;
	gantry_buffer data = alloc(session, nwords * 8, GANTRY_ALLOC_HOST);
	gantry_buffer sum = alloc(session, 8, GANTRY_ALLOC_HOST);
	uint64_t wanted, seen = 0;
	uint64_t *words;
	void *ptr = NULL;

	GOES_WELL(gantry_map(session, data, 0, nwords * 8, GANTRY_W, 20 * SECOND, &ptr));
	words = ptr;
	for (uint64_t i = 0; i < nwords; i++)
		words[i] = mix(i);
	wanted = checksum(words, nwords);
	GOES_WELL(gantry_unmap(session, ptr));
	wait_for(session, submit_checksum(session, queue, find(session, "checksum"), data, sum, 0,
					  nwords * 8));
	GOES_WELL(gantry_map(session, sum, 0, 8, GANTRY_R, 20 * SECOND, &ptr));
	memcpy(&seen, ptr, 8);
	GOES_WELL(gantry_unmap(session, ptr));
	ck_assert_uint_eq(seen, wanted);
}
END_TEST

START_TEST(test_fill_and_copy_are_exact)
{
	gantry_buffer a = alloc(session, 64 * KIB, 0), b = alloc(session, 64 * KIB, 0);
	uint32_t *back = malloc(64 * KIB);
	gantry_ticket ticket;

	GOES_WELL(gantry_submit_fill(session, queue, a, 0, 64 * KIB, 0x01020304, 4, NULL));
	GOES_WELL(gantry_submit_fill(session, queue, a, 4 * KIB, 4 * KIB, 0x0a0b0c0d, 4, NULL));
	GOES_WELL(gantry_submit_copy(session, queue, b, 0, a, 0, 64 * KIB, &ticket));
	wait_for(session, ticket);
	GOES_WELL(gantry_read(session, b, 0, back, 64 * KIB));
	for (unsigned i = 0; i < 16 * KIB; i++)
		ck_assert_uint_eq(back[i], i / KIB == 1 ? 0x0a0b0c0d : 0x01020304);
	free(back);
}
END_TEST

START_TEST(test_alloc_beyond_the_limit_is_refused_with_a_sentence)
{
	gantry_buffer buffer = 0;

	ck_assert_int_eq(gantry_alloc(session, UINT64_C(1) << 40, 0, &buffer), GANTRY_E_LIMIT);
	ck_assert_str_ne(gantry_last_error(), "");
	ck_assert_uint_eq(buffer, 0);
	(void)alloc(session, 4096, 0);
}
END_TEST

START_TEST(test_share_between_two_sessions)
{
	struct gantry_session *other = open_session();
	gantry_buffer mine = alloc(session, 4096, GANTRY_ALLOC_SHARED), theirs = 0;
	uint8_t there[4096], back[4096];
	uint64_t bytes = 0;
	int fd = -1;

	fill_bytes(there, sizeof(there), 99);
	GOES_WELL(gantry_write(session, mine, 0, there, sizeof(there)));
	GOES_WELL(gantry_share(session, mine, GANTRY_R, &fd));
	GOES_WELL(gantry_adopt(other, fd, &theirs, &bytes));
	close(fd);
	ck_assert_uint_eq(bytes, 4096);
	GOES_WELL(gantry_read(other, theirs, 0, back, sizeof(back)));
	ck_assert_mem_eq(there, back, sizeof(back));
	gantry_close(other);
}
END_TEST

/* ---- tasks ---- */

#define NSUMS 2000u

START_TEST(test_many_tasks_in_flight_are_each_done_once_and_in_order)
{
	gantry_buffer data = alloc(session, 512, 0), sums = alloc(session, NSUMS * 8, 0);
	gantry_kernel kernel = find(session, "checksum");
	uint64_t *seen = calloc(NSUMS, 8);
	uint64_t words[64];
	gantry_ticket last = { 0 };

	for (unsigned i = 0; i < 64; i++)
		words[i] = mix(i);
	GOES_WELL(gantry_write(session, data, 0, words, sizeof(words)));
	for (unsigned i = 0; i < NSUMS; i++) {
		if (i == NSUMS / 2) {
			GOES_WELL(gantry_submit_fill(session, queue, data, 0, 8, 42, 8, NULL));
		}
		last = submit_checksum(session, queue, kernel, data, sums, 8 * i, 512);
	}
	wait_for(session, last);
	GOES_WELL(gantry_read(session, sums, 0, seen, NSUMS * 8));
	for (unsigned i = 0; i < NSUMS; i++) {
		words[0] = i < NSUMS / 2 ? mix(0) : 42;
		ck_assert_msg(seen[i] == checksum(words, 64), "task %u", i);
	}
	free(seen);
}
END_TEST

START_TEST(test_task_after_a_pause_wakes_the_host)
{
	struct timespec pause = { 0, 300 * 1000 * 1000 };
	gantry_ticket ticket;

	for (int i = 0; i < 3; i++) {
		(void)nanosleep(&pause, NULL); /* meanwhile the host goes to sleep */
		GOES_WELL(gantry_submit_marker(session, queue, &ticket));
		wait_for(session, ticket);
	}
}
END_TEST

START_TEST(test_wait_ends_at_its_time_and_cancel_ends_what_has_not_begun)
{
	gantry_ticket ticket = submit_plain("endless", NULL, 0), behind;

	ck_assert_int_eq(gantry_wait(session, &ticket, 1, SECOND / 50), GANTRY_E_TIMEOUT);
	ck_assert_int_eq(gantry_test(session, ticket), 0);
	behind = submit_plain("endless", NULL, 0);
	GOES_WELL(gantry_cancel(session, queue));
	ck_assert_int_lt(gantry_wait(session, &behind, 1, SECOND / 50), 0);
}
END_TEST

START_TEST(test_failed_task_says_so_by_its_ticket)
{
	int32_t answer = -5;
	gantry_ticket bad = submit_plain("fail", &answer, sizeof(answer));
	gantry_ticket good;

	ck_assert_int_lt(gantry_wait(session, &bad, 1, 20 * SECOND), 0);
	ck_assert_str_ne(gantry_last_error(), "");
	GOES_WELL(gantry_submit_marker(session, queue, &good));
	wait_for(session, good);
}
END_TEST

START_TEST(test_unknown_kernel_is_refused_with_a_sentence)
{
	gantry_kernel kernel;

	ck_assert_int_eq(gantry_kernel_find(session, "no-such-kernel", NULL, &kernel),
			 GANTRY_E_NO_KERNEL);
	ck_assert_str_ne(gantry_last_error(), "");
}
END_TEST

/* ---- threads ---- */

#define NTHREADS 4
#define NROUNDS	 50u

static void *work_in_a_thread(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg;
	gantry_kernel kernel = find(session, "checksum");
	gantry_buffer data = alloc(session, 2048, 0), sum = alloc(session, 8, 0);
	uint64_t words[256], seen;
	gantry_queue q = 0;

	GOES_WELL(gantry_queue_open(session, NULL, &q));
	for (unsigned round = 0; round < NROUNDS; round++) {
		for (unsigned i = 0; i < 256; i++)
			words[i] = mix(seed + round * 256 + i);
		GOES_WELL(gantry_write(session, data, 0, words, sizeof(words)));
		wait_for(session, submit_checksum(session, q, kernel, data, sum, 0, 2048));
		GOES_WELL(gantry_read(session, sum, 0, &seen, sizeof(seen)));
		ck_assert_uint_eq(seen, checksum(words, 256));
	}
	GOES_WELL(gantry_queue_close(session, q));
	return NULL;
}

START_TEST(test_threads_with_queues_of_their_own_do_not_mix)
{
	pthread_t threads[NTHREADS];

	for (uintptr_t i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work_in_a_thread,
						(void *)(i * 1000000)),
				 0);
	for (int i = 0; i < NTHREADS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

/* ---- */

static TCase *make_case(Suite *suite, const char *name)
{
	TCase *tc = gantry_unit_case(suite, name);

	tcase_set_timeout(tc, LIMIT_S);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	return tc;
}

int main(void)
{
	Suite *suite = suite_create("door");
	TCase *sessions = make_case(suite, "sessions");
	TCase *memory = make_case(suite, "memory");
	TCase *tasks = make_case(suite, "tasks");

	tcase_add_test(sessions, test_open_twice_gives_two_sessions);
	tcase_add_test(sessions, test_open_and_close_many_times_leaves_nothing);
	tcase_add_test(sessions, test_close_with_a_task_that_runs_does_not_hang);
	tcase_add_test(sessions, test_fork_leaves_the_session_to_the_parent);
	tcase_add_test(memory, test_write_read_returns_the_same_bytes);
	tcase_add_test(memory, test_map_of_a_host_buffer_is_what_devices_see);
	tcase_add_test(memory, test_fill_and_copy_are_exact);
	tcase_add_test(memory, test_alloc_beyond_the_limit_is_refused_with_a_sentence);
	tcase_add_test(memory, test_share_between_two_sessions);
	tcase_add_test(tasks, test_many_tasks_in_flight_are_each_done_once_and_in_order);
	tcase_add_test(tasks, test_task_after_a_pause_wakes_the_host);
	tcase_add_test(tasks, test_wait_ends_at_its_time_and_cancel_ends_what_has_not_begun);
	tcase_add_test(tasks, test_failed_task_says_so_by_its_ticket);
	tcase_add_test(tasks, test_unknown_kernel_is_refused_with_a_sentence);
	tcase_add_test(tasks, test_threads_with_queues_of_their_own_do_not_mix);
	return gantry_unit_run(suite);
}
