/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/runner.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"

/* How check tells us of a skipped test, which it has no notion of: a failure with this message. */
#define SKIP_MARK "# SKIP "

/* The thread sanitizer starts a thread of its own with the program's first. */
#ifdef GANTRY_ATOMIC_UNDER_TSAN
#define SANITIZER_THREADS 1u
#else
#define SANITIZER_THREADS 0u
#endif

#ifdef __SANITIZE_ADDRESS__
/* PoCL 3.1 forgets the path of each kernel that it has built: 1 KiB, its own, and nothing that a caller could give back. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:pocl_check_kernel_disk_cache";
}
#endif

/* A joined thread may stand in /proc a moment longer than pthread_join() waits. */
#define THREAD_SETTLE_TRIES 1000

static struct {
	unsigned int fds;
	unsigned int threads;
} before;

/* Descriptors that a library of somebody else's may keep, see gantry_unit_allow_fds(). */
static struct {
	const char *kind;
	unsigned int n;
	unsigned int before;
} allowed;

static unsigned int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int count = 0;
	struct dirent *entry;

	ck_assert_msg(dir != NULL, "cannot read %s", path);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			count++;
	closedir(dir);
	return count;
}

unsigned int gantry_unit_count_fds(void)
{
	return count_entries("/proc/self/fd") - 1; /* the one that reads the directory */
}

unsigned int gantry_unit_count_threads(void)
{
	return count_entries("/proc/self/task");
}

static void remember_resources(void)
{
	/*
	 * Sanitizers may start a thread of their own at the first sign of another: not ours to
	 * count.
	 */
	before.fds = gantry_unit_count_fds();
	allowed.kind = NULL;
	before.threads = gantry_unit_count_threads() + SANITIZER_THREADS;
}

void gantry_unit_forgive(void)
{
	remember_resources();
}

/* What @fd is of, as /proc says; false: it is not open. */
static bool kind_of(int fd, char kind[256])
{
	char path[40];
	ssize_t len;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, kind, 255);
	if (len < 0)
		return false;
	kind[len] = '\0';
	return true;
}

/* For whoever has to find one of them. */
static const char *list_fds(void)
{
	static char text[2048];
	char kind[256];
	size_t used = 0;

	for (int fd = 0; fd < 1024 && used + 300 < sizeof(text); fd++)
		if (kind_of(fd, kind))
			used += (size_t)snprintf(text + used, sizeof(text) - used, " %d=%s", fd,
						 kind);
	return text;
}

unsigned int gantry_unit_count_fds_of(const char *wanted)
{
	unsigned int count = 0;
	char kind[256];

	for (int fd = 0; fd < 1024; fd++)
		count += kind_of(fd, kind) && strcmp(kind, wanted) == 0;
	return count;
}

void gantry_unit_allow_fds(const char *kind, unsigned int n)
{
	allowed.kind = kind;
	allowed.n = n;
	allowed.before = gantry_unit_count_fds_of(kind);
}

/* How many more are there of the kind that is allowed, and within what is. */
static unsigned int count_allowed(void)
{
	unsigned int now = allowed.kind ? gantry_unit_count_fds_of(allowed.kind) : 0;
	unsigned int more = allowed.kind && now > allowed.before ? now - allowed.before : 0;

	return more < allowed.n ? more : allowed.n;
}

static void check_resources(void)
{
	const struct timespec tick = { .tv_nsec = 1000000 };
	unsigned int fds = gantry_unit_count_fds() - count_allowed();
	unsigned int threads = gantry_unit_count_threads();

	for (int i = 0; i < THREAD_SETTLE_TRIES && threads > before.threads; i++) {
		nanosleep(&tick, NULL);
		threads = gantry_unit_count_threads();
	}
	ck_assert_msg(fds <= before.fds, "the test leaked %u descriptors; open are%s",
		      fds - before.fds, list_fds());
	ck_assert_msg(threads <= before.threads, "the test leaked %u threads",
		      threads - before.threads);
}

TCase *gantry_unit_case(Suite *suite, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, GANTRY_UNIT_TIMEOUT_S);
	/* check runs teardowns last added first, so this one sees what the tests' own leave. */
	tcase_add_checked_fixture(tc, remember_resources, check_resources);
	suite_add_tcase(suite, tc);
	return tc;
}

void gantry_unit_skip(const char *reason)
{
	ck_abort_msg(SKIP_MARK "%s", reason);
	abort(); /* ck_abort_msg() does not return, but does not say so */
}

/*
 * Print one line of check's TAP; a skip that check took for a failure becomes what TAP calls a
 * skip.
 */
static int print_result(char *line)
{
	int failed = strncmp(line, "not ok", 6) == 0;
	char *skip = strstr(line, SKIP_MARK);

	if (failed && skip) {
		/* "not ok 3 - file.c:case:name: # SKIP why" */
		fputs("ok", stdout);
		line += strlen("not ok");
		failed = 0;
	}
	fputs(line, stdout);
	return failed;
}

static int print_results(FILE *tap)
{
	char *line = NULL;
	size_t cap = 0;
	int failed = 0;

	while (getline(&line, &cap, tap) >= 0)
		failed += print_result(line);
	free(line);
	fflush(stdout);
	return failed;
}

int gantry_unit_run(Suite *suite)
{
	return gantry_unit_run_all(&suite, 1);
}

int gantry_unit_run_all(Suite *const *suites, unsigned int nsuites)
{
	char path[] = "/tmp/gantry-unit.XXXXXX";
	SRunner *runner = srunner_create(suites[0]);
	int fd = mkstemp(path);
	FILE *tap;
	int failed;

	for (unsigned int i = 1; i < nsuites; i++)
		srunner_add_suite(runner, suites[i]);
	if (fd < 0) {
		perror("mkstemp");
		return EXIT_FAILURE;
	}
	srunner_set_tap(runner, path);
	srunner_run_all(runner, CK_SILENT);
	srunner_free(runner);

	tap = fdopen(fd, "r");
	failed = tap ? print_results(tap) : 1;
	if (tap)
		fclose(tap);
	unlink(path);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
