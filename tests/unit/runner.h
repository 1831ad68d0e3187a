/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main() of a test binary built on `check`.
 *
 *	START_TEST(test_ring_take_empty_returns_eagain)
 *	...
 *	END_TEST
 *
 *	int main(void)
 *	{
 *		Suite *suite = suite_create("ring");
 *		TCase *tc = gantry_unit_case(suite, "take");
 *
 *		tcase_add_test(tc, test_ring_take_empty_returns_eagain);
 *		return gantry_unit_run(suite);
 *	}
 *
 * Each test runs in a process of its own, has a time limit, and fails when it leaves descriptors or
 *threads behind; memory leaks fail it in the address-sanitizer build. Results are TAP on stdout.
 * CK_FORK=no runs them in one process, for a debugger; CK_RUN_CASE chooses a case.
 */
#ifndef GANTRY_TESTS_UNIT_RUNNER_H
#define GANTRY_TESTS_UNIT_RUNNER_H

#include <check.h>

#ifdef NDEBUG
#error "tests must not be built with NDEBUG: they rely on asserts"
#endif

#define GANTRY_UNIT_TIMEOUT_S 60

/*
 * A new case of @suite whose tests have the default time limit and the leak check. Owned by @suite.
 */
TCase *gantry_unit_case(Suite *suite, const char *name);

/* Run and free @suite; returns the exit status for main(). */
int gantry_unit_run(Suite *suite);
/* The same for several at once, of which there is at least one. */
int gantry_unit_run_all(Suite *const *suites, unsigned int nsuites);

/*
 * What the process holds now is not the test's: for after the first use of a library that keeps descriptors and
 * threads for the process's life, as vendors' drivers do.
 */
void gantry_unit_forgive(void);
/*
 * Besides, @n descriptors of a kind, as /proc/self/fd names it ("anon_inode:[eventfd]"), may be more at the end of the
 * test than are now: of a library that is known to keep so many, no matter of what. Once in a test; @kind stays valid.
 */
void gantry_unit_allow_fds(const char *kind, unsigned int n);
/* End the running test as skipped. @reason says what the machine lacks. */
void gantry_unit_skip(const char *reason) __attribute__((noreturn));

/* Open descriptors of this process, all or of a kind; its threads. */
unsigned int gantry_unit_count_fds(void);
unsigned int gantry_unit_count_fds_of(const char *kind);
unsigned int gantry_unit_count_threads(void);

#endif
