/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "guest-shim/session.h"
#include "tests/unit/guest-shim/fake_host.h"
#include "tests/unit/runner.h"

static struct fake_host host;
static struct gantry_session *session;
static gantry_queue queue;
static gantry_buffer buffer;

static void setup(void)
{
	fake_host_init(&host);
	fake_host_start(&host);
	ck_assert_int_eq(gantry_open(host.where, NULL, &session), 0);
	ck_assert_int_eq(gantry_queue_open(session, NULL, &queue), 0);
	ck_assert_int_eq(gantry_alloc(session, 4096, 0, &buffer), 0);
}

static void teardown(void)
{
	gantry_close(session);
	fake_host_stop(&host);
}

/*
 * Every call of the API in the child, by number; 0 if all of them said FORKED, else which did not.
 */
static int try_all(void)
{
	struct gantry_task task = { 0 };
	struct gantry_props props;
	struct gantry_stats stats;
	gantry_ticket ticket = GANTRY_TICKET(1, 1);
	uint64_t handle;
	void *ptr;
	int fd;
	const int answers[] = {
		gantry_props_get(session, 0, &props),
		gantry_stats_get(session, &stats),
		gantry_alloc(session, 1, 0, &handle),
		gantry_free(session, buffer),
		gantry_map(session, buffer, 0, 1, GANTRY_R, 0, &ptr),
		gantry_unmap(session, &fd),
		gantry_write(session, buffer, 0, "x", 1),
		gantry_read(session, buffer, 0, &fd, 1),
		gantry_share(session, buffer, GANTRY_R, &fd),
		gantry_adopt(session, 0, &handle, NULL),
		gantry_image_load(session, GANTRY_KIND_CUDA, "x", 1, &handle),
		gantry_image_find(session, "x", &handle),
		gantry_image_free(session, 1),
		gantry_kernel_find(session, "x", NULL, &handle),
		gantry_kernel_from(session, 1, "x", NULL, &handle),
		gantry_kernel_variant(session, 1, 1, "x", GANTRY_KIND_CUDA),
		gantry_kernel_free(session, 1),
		gantry_queue_open(session, NULL, &handle),
		gantry_queue_set(session, queue, GANTRY_QUEUE_PRIORITY, 1),
		gantry_queue_close(session, queue),
		gantry_cancel(session, queue),
		gantry_submit(session, queue, &task, 1, NULL),
		gantry_submit_copy(session, queue, buffer, 0, buffer, 0, 1, NULL),
		gantry_submit_fill(session, queue, buffer, 0, 1, 0, 1, NULL),
		gantry_submit_marker(session, queue, NULL),
		gantry_submit_wait(session, queue, NULL, 0, NULL),
		gantry_wait(session, &ticket, 1, 0),
		gantry_test(session, ticket),
	};

	for (unsigned i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (answers[i] != GANTRY_E_FORKED)
			return (int)i + 1;
	return 0;
}

/* The exit status of a child that does @what. */
static int in_child(int (*what)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(what());
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "the child died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

START_TEST(test_fork_every_call_in_child_returns_forked)
{
	ck_assert_int_eq(in_child(try_all), 0);
}
END_TEST

static int close_with_locks_held(void)
{
	gantry_close(session);
	return 0;
}

START_TEST(test_fork_child_may_close_whatever_threads_were_doing)
{
	gantry_ticket ticket;

	/* Locks as a thread that the child does not have would have left them. */
	pthread_mutex_lock(&session->table_lock);
	gantry_lock_take(&session->queues[0].lock);
	pthread_mutex_lock(&session->heap_lock);
	ck_assert_int_eq(in_child(close_with_locks_held), 0);
	pthread_mutex_unlock(&session->heap_lock);
	gantry_lock_put(&session->queues[0].lock);
	pthread_mutex_unlock(&session->table_lock);

	/* The parent's session goes on. */
	ck_assert_int_eq(gantry_submit_marker(session, queue, &ticket), 0);
	ck_assert_int_eq(gantry_wait(session, &ticket, 1, GANTRY_FOREVER), 0);
	ck_assert_int_eq(gantry_alloc(session, 1, 0, &buffer), 0);
}
END_TEST

static int reuse_address(void)
{
	void *there = session->segment.base;
	char *mine = mmap(there, 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (mine != there)
		return 1; /* the segment is in the child */
	gantry_close(session);
	*mine = 1; /* still there */
	return 0;
}

START_TEST(test_fork_child_has_no_segment_and_close_unmaps_nothing_else)
{
	ck_assert_int_eq(in_child(reuse_address), 0);
}
END_TEST

static int open_own(void)
{
	struct gantry_session *s;

	/*
	 * One fake agent serves one guest at a time: it is the answer that counts, not a welcome.
	 */
	return gantry_open("unix:@gantry-unit-nobody", NULL, &s) == GANTRY_E_NO_AGENT ? 0 : 1;
}

START_TEST(test_fork_child_may_open_its_own)
{
	ck_assert_int_eq(in_child(open_own), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/fork");
	TCase *tc = gantry_unit_case(suite, "fork");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_fork_every_call_in_child_returns_forked);
	tcase_add_test(tc, test_fork_child_may_close_whatever_threads_were_doing);
	tcase_add_test(tc, test_fork_child_has_no_segment_and_close_unmaps_nothing_else);
	tcase_add_test(tc, test_fork_child_may_open_its_own);
	return gantry_unit_run(suite);
}
