/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels print, from the session's buffer to the program's stdio, where other threads of the program are too. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "guest-shim/output.h"
#include "proto/wire.h"
#include "tests/unit/runner.h"

#define RING 256u

/* As the host has it. */
static struct {
	struct gantry_output head;
	uint8_t rings[2][RING];
} buffer;

static struct gantry_printed printed = GANTRY_PRINTED_INIT;
static FILE *files[2];

static void say(unsigned int which, const char *text)
{
	uint64_t put = buffer.head.put[which];

	for (; *text; text++)
		buffer.rings[which][put++ % RING] = (uint8_t)*text;
	gantry_store_release(&buffer.head.put[which], put);
}

/* The test's own results go elsewhere: each test is a process. */
static void begin(void)
{
	files[0] = tmpfile();
	files[1] = tmpfile();
	ck_assert(files[0] && files[1]);
	ck_assert_int_ge(dup2(fileno(files[0]), STDOUT_FILENO), 0);
	ck_assert_int_ge(dup2(fileno(files[1]), STDERR_FILENO), 0);
	printed.is_wanted = 1;
	printed.head = &buffer.head;
	printed.bytes = RING;
	for (unsigned int i = 0; i < 2; i++)
		printed.ring[i] = buffer.rings[i];
}

static void end(void)
{
	for (unsigned int i = 0; i < 2; i++)
		(void)fclose(files[i]);
}

static void came(unsigned int which, const char *text)
{
	char got[4 * RING] = "";
	ssize_t n;

	(void)fflush(which ? stderr : stdout);
	n = pread(fileno(files[which]), got, sizeof(got) - 1, 0);
	ck_assert_int_ge(n, 0);
	ck_assert_str_eq(got, text);
}

START_TEST(test_printed_comes_in_order_with_the_programs_own)
{
	printf("program 1\n");
	say(0, "kernel 1\n");
	say(1, "failed\n");
	ck_assert(gantry_printed_is_news(&printed));
	gantry_printed_show(&printed);
	ck_assert(!gantry_printed_is_news(&printed));
	printf("program 2\n");
	gantry_printed_show(&printed);
	came(0, "program 1\nkernel 1\nprogram 2\n");
	came(1, "failed\n");
}
END_TEST

START_TEST(test_printed_more_than_the_ring_is_its_newest)
{
	for (unsigned int i = 0; i < 2 * RING; i++)
		say(0, i < RING ? "a" : "b");
	gantry_printed_show(&printed);
	came(0, memset((char[RING + 1]){ 0 }, 'b', RING));
}
END_TEST

/* ---- other threads ---- */

static uint32_t shower; /* its thread's number */

static void *show(void *unused)
{
	(void)unused;
	gantry_store_release(&shower, (uint32_t)syscall(SYS_gettid));
	gantry_printed_show(&printed);
	return NULL;
}

static bool is_asleep(uint32_t tid)
{
	char path[64], state = 0;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/self/task/%u/stat", tid);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fscanf(file, "%*d %*s %c", &state) != 1)
		state = 0;
	(void)fclose(file);
	return state == 'S';
}

/* A thread that is printing a line in parts calls CUDA, while another one shows what came: neither may wait for the other. */
START_TEST(test_printed_while_a_thread_has_stdout_stops_nobody)
{
	pthread_t thread;

	say(0, "kernel\n");
	flockfile(stdout);
	ck_assert_int_eq(pthread_create(&thread, NULL, show, NULL), 0);
	while (gantry_load_acquire(&shower) == 0 || !is_asleep(gantry_load_acquire(&shower)))
		;
	gantry_printed_show(&printed);
	printf("program\n");
	/* Whether anything can come is asked for where images are loaded. */
	ck_assert(gantry_printed_is_wanted(&printed));
	funlockfile(stdout);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	came(0, "kernel\nprogram\n");
}
END_TEST

/* Nothing came of that sort: whoever has the other stream is not waited for. */
START_TEST(test_printed_of_one_sort_leaves_the_other_stream_alone)
{
	pthread_t thread;

	say(0, "kernel\n");
	flockfile(stderr);
	ck_assert_int_eq(pthread_create(&thread, NULL, show, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	funlockfile(stderr);
	came(0, "kernel\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("printed");
	TCase *tc = gantry_unit_case(suite, "printed");

	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, test_printed_comes_in_order_with_the_programs_own);
	tcase_add_test(tc, test_printed_more_than_the_ring_is_its_newest);
	tcase_add_test(tc, test_printed_while_a_thread_has_stdout_stops_nobody);
	tcase_add_test(tc, test_printed_of_one_sort_leaves_the_other_stream_alone);
	return gantry_unit_run(suite);
}
