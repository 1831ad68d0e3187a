/* SPDX-License-Identifier: Apache-2.0 */
#include "host-agent/agent/procstat.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/unit/runner.h"

/* A child with a name that could be taken for more of the text; it ends with @status, or lives where that is negative. */
static pid_t child(int status)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	(void)prctl(PR_SET_NAME, "a) Z 1 (b");
	if (status >= 0)
		_exit(status);
	for (;;)
		(void)pause();
}

/* Over, and not yet reaped. */
static void await_end(pid_t pid)
{
	siginfo_t info;

	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

START_TEST(test_procstat_of_a_process_that_lives)
{
	struct gantry_procstat stat;
	pid_t pid = child(-1);

	ck_assert_int_eq(gantry_procstat(pid, 0, &stat), 0);
	ck_assert(!stat.ending);
	ck_assert(stat.started_ns > 0);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

START_TEST(test_procstat_tells_the_end_before_it_is_reaped)
{
	struct gantry_procstat stat;
	pid_t pid = child(-1);

	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	await_end(pid);
	ck_assert_int_eq(gantry_procstat(pid, 0, &stat), 0);
	ck_assert(stat.ending);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(gantry_procstat(pid, 0, &stat), -ESRCH);
}
END_TEST

START_TEST(test_procstat_of_one_that_ended_by_itself)
{
	struct gantry_procstat stat;
	pid_t pid = child(75);

	await_end(pid);
	ck_assert_int_eq(gantry_procstat(pid, 0, &stat), 0);
	ck_assert(stat.ending);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

START_TEST(test_procstat_stopped_is_not_ending)
{
	struct gantry_procstat stat;
	pid_t pid = child(-1);

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
	ck_assert_int_eq(gantry_procstat(pid, pid, &stat), 0);
	ck_assert_int_eq(stat.state, 'T');
	ck_assert(!stat.ending);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

START_TEST(test_procstat_of_no_process)
{
	struct gantry_procstat stat;

	ck_assert_int_eq(gantry_procstat(0x7ffffffe, 0, &stat), -ESRCH);
	ck_assert_int_eq(gantry_procstat(getpid(), 0x7ffffffe, &stat), -ESRCH);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("procstat");
	TCase *tc = gantry_unit_case(suite, "procstat");

	tcase_add_test(tc, test_procstat_of_a_process_that_lives);
	tcase_add_test(tc, test_procstat_tells_the_end_before_it_is_reaped);
	tcase_add_test(tc, test_procstat_of_one_that_ended_by_itself);
	tcase_add_test(tc, test_procstat_stopped_is_not_ending);
	tcase_add_test(tc, test_procstat_of_no_process);
	return gantry_unit_run(suite);
}
