/* SPDX-License-Identifier: Apache-2.0 */
/* Workers as processes, on the real clock: holders are killed and stopped, the rest must go on. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "host-agent/shared/share.h"
#include "tests/unit/runner.h"

#define NWORKERS 4u
#define NLANES	 2u
#define NKILLS	 40
/* Generous: a busy test machine may not run a process for long. */
#define PROGRESS_NS (10 * GANTRY_NS_PER_S)

/* Beside the share page, what the workers report. */
struct board {
	uint32_t owner[NLANES];
	uint32_t collisions;
	uint64_t tasks[NWORKERS];
};

static struct gantry_share_page *page;
static struct board *board;
static int page_fd = -EBADF;
static pid_t pids[NWORKERS];

static void run_tasks(uint32_t worker, int lane, uint32_t *seen)
{
	uint32_t nobody = 0;
	uint32_t me = worker + 1;

	if (!gantry_cas(&board->owner[lane], &nobody, me))
		gantry_count_add(&board->collisions, 1);
	do {
		uint64_t until_ns = gantry_now_ns() + 20 * GANTRY_NS_PER_US;

		while (gantry_now_ns() < until_ns)
			gantry_cpu_relax();
		gantry_share_charge(page, worker, 200 * GANTRY_NS_PER_US);
		gantry_count_add(&board->tasks[worker], 1);
	} while (!gantry_share_must_yield(page, worker, seen));
	if (!gantry_cas(&board->owner[lane], &me, 0u))
		gantry_count_add(&board->collisions, 1);
}

/* A worker that floods, until it is killed. */
static void work(uint32_t worker)
{
	uint32_t seen = 0;

	for (;;) {
		uint32_t ticket = gantry_share_ticket(page, worker);
		int lane;

		gantry_share_want(page, worker, 0);
		lane = gantry_share_take(page, worker);
		if (lane < 0) {
			gantry_share_sleep(page, worker, ticket, GANTRY_DEADLINE_NEVER);
			continue;
		}
		run_tasks(worker, lane, &seen);
		gantry_share_give(page, worker, lane, true);
	}
}

static void start_worker(uint32_t worker)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* none outlives a test that failed */
		work(worker);
		_exit(EXIT_FAILURE);
	}
	pids[worker] = pid;
}

static void kill_worker(uint32_t worker)
{
	kill(pids[worker], SIGKILL);
	ck_assert_int_eq(waitpid(pids[worker], NULL, 0), pids[worker]);
	/* Before its lanes are: what it said it owns is nobody's. */
	for (uint32_t i = 0; i < NLANES; i++) {
		uint32_t owner = worker + 1;

		(void)gantry_cas(&board->owner[i], &owner, 0u);
	}
}

static void setup(void)
{
	ck_assert_int_eq(gantry_share_create("sim0", NLANES, 0, &page, &page_fd, NULL), 0);
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	ck_assert_ptr_ne(board, MAP_FAILED);
	for (uint32_t i = 0; i < NWORKERS; i++) {
		gantry_share_set_tenant(page, i, 100);
		gantry_share_admit(page, i, i, i);
		start_worker(i);
	}
}

static void teardown(void)
{
	for (uint32_t i = 0; i < NWORKERS; i++)
		kill_worker(i);
	gantry_share_close(page);
	munmap(board, sizeof(*board));
	page_fd = gantry_fd_close(page_fd);
}

/* Waits until @worker has run @n more tasks; false: it does not. */
static bool makes_progress(uint32_t worker, uint64_t n)
{
	uint64_t before = gantry_load_relaxed(&board->tasks[worker]);
	uint64_t deadline_ns = gantry_now_ns() + PROGRESS_NS;
	const struct timespec tick = { .tv_nsec = 200000 };

	while (gantry_load_relaxed(&board->tasks[worker]) - before < n) {
		if (gantry_deadline_passed(deadline_ns))
			return false;
		nanosleep(&tick, NULL);
	}
	return true;
}

static uint32_t a_holder(void)
{
	for (;;)
		for (uint32_t i = 0; i < NLANES; i++) {
			uint32_t lane = gantry_load_relaxed(&page->lanes[i]);

			if (lane)
				return lane - 1;
		}
}

START_TEST(test_processes_killed_holders_are_buried_and_others_go_on)
{
	for (int i = 0; i < NKILLS; i++) {
		/* Mostly one that holds a lane, sometimes one that waits or is between the two. */
		uint32_t victim = i % 4 ? a_holder() : (uint32_t)i / 4 % NWORKERS;

		kill_worker(victim);
		(void)gantry_share_bury(page, victim);
		for (uint32_t j = 0; j < NWORKERS; j++)
			ck_assert_msg(j == victim || makes_progress(j, 3),
				      "worker %u stands still after worker %u died", j, victim);
		start_worker(victim);
	}
	for (uint32_t i = 0; i < NWORKERS; i++)
		ck_assert(makes_progress(i, 3));
	ck_assert_uint_eq(board->collisions, 0);
}
END_TEST

/* A stopped worker has no successor and nobody buries it: only patience helps. */
START_TEST(test_processes_stopped_worker_is_passed_over)
{
	for (uint32_t victim = 0; victim < NWORKERS; victim++) {
		kill(pids[victim], SIGSTOP);
		for (uint32_t j = 0; j < NWORKERS; j++)
			ck_assert_msg(j == victim || makes_progress(j, 50),
				      "worker %u stands still while worker %u is stopped", j,
				      victim);
		kill(pids[victim], SIGCONT);
		ck_assert(makes_progress(victim, 3));
	}
	ck_assert_uint_eq(board->collisions, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share-processes");
	TCase *tc = gantry_unit_case(suite, "processes");

	tcase_set_timeout(tc, 50);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_processes_killed_holders_are_buried_and_others_go_on);
	tcase_add_test(tc, test_processes_stopped_worker_is_passed_over);
	return gantry_unit_run(suite);
}
