/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "tests/unit/runner.h"

struct heard {
	unsigned int lines;
	enum gantry_log_level level;
	char last[GANTRY_LOG_LINE_MAX];
	char first[GANTRY_LOG_LINE_MAX];
};

static void listen_in(void *arg, enum gantry_log_level level, const char *line)
{
	struct heard *heard = arg;

	if (heard->lines++ == 0)
		(void)snprintf(heard->first, sizeof(heard->first), "%s", line);
	heard->level = level;
	(void)snprintf(heard->last, sizeof(heard->last), "%s", line);
}

START_TEST(test_log_below_level_is_dropped)
{
	struct heard heard = { 0 };

	gantry_log_sink_set(listen_in, &heard);
	gantry_log(GANTRY_LOG_DEBUG, "unheard");
	ck_assert_uint_eq(heard.lines, 0);
	gantry_log_level_set(GANTRY_LOG_DEBUG);
	ck_assert_int_eq(gantry_log_level_get(), GANTRY_LOG_DEBUG);
	errno = ENOENT;
	gantry_log(GANTRY_LOG_DEBUG, "heard %d", 1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_uint_eq(heard.lines, 1);
	ck_assert_str_eq(heard.last, "heard 1");
	ck_assert_int_eq(heard.level, GANTRY_LOG_DEBUG);
}
END_TEST

START_TEST(test_log_flood_from_one_site_is_limited)
{
	struct heard heard = { 0 };

	gantry_log_sink_set(listen_in, &heard);
	for (int i = 0; i < 1000; i++)
		gantry_log(GANTRY_LOG_WARN, "flood %d", i);
	ck_assert_uint_eq(heard.lines, GANTRY_LOG_BURST);
	gantry_log(GANTRY_LOG_WARN, "another site");
	ck_assert_str_eq(heard.last, "another site");
}
END_TEST

START_TEST(test_log_next_window_reports_what_was_suppressed)
{
	struct gantry_log_site site = { 0 };
	struct heard heard = { 0 };

	for (int i = 0; i < 15; i++) {
		gantry_log_sink_set(listen_in, &heard);
		gantry_log_at(&site, GANTRY_LOG_WARN, "x");
	}
	heard = (struct heard){ 0 };
	site.window_start_ns -= GANTRY_LOG_WINDOW_NS; /* instead of waiting for it */
	gantry_log_at(&site, GANTRY_LOG_WARN, "y");
	ck_assert_uint_eq(heard.lines, 2);
	ck_assert_str_eq(heard.first, "5 similar lines were suppressed");
	ck_assert_str_eq(heard.last, "y");
}
END_TEST

START_TEST(test_log_control_characters_cannot_forge_a_line)
{
	struct heard heard = { 0 };

	gantry_log_sink_set(listen_in, &heard);
	gantry_log(GANTRY_LOG_WARN, "guest says %s", "x\n<3>forged\x1b[2J");
	ck_assert_str_eq(heard.last, "guest says x <3>forged [2J");
}
END_TEST

/* What is written to stderr while @say runs. */
static void capture(void (*say)(void), char *text, size_t cap)
{
	int ends[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	say();
	ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
	n = read(ends[0], text, cap - 1);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	close(ends[0]);
	close(ends[1]);
	close(saved);
}

static void say_plain(void)
{
	gantry_log_open("gantryd");
	gantry_log(GANTRY_LOG_WARN, "low on %s", "slabs");
}

static void say_journal(void)
{
	gantry_log_format_set(GANTRY_LOG_JOURNAL);
	gantry_log(GANTRY_LOG_ERR, "broken");
}

static void say_when_stderr_is_the_journal(void)
{
	struct stat st;
	char stream[64];

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	(void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
	gantry_log_open("gantryd");
	gantry_log(GANTRY_LOG_INFO, "to the journal");
}

START_TEST(test_log_stderr_formats_are_as_documented)
{
	char text[200];

	capture(say_plain, text, sizeof(text));
	ck_assert_str_eq(text, "gantryd: warning: low on slabs\n");
	capture(say_journal, text, sizeof(text));
	ck_assert_str_eq(text, "<3>broken\n");
	capture(say_when_stderr_is_the_journal, text, sizeof(text));
	ck_assert_str_eq(text, "<6>to the journal\n");
}
END_TEST

static void say_much(void)
{
	gantry_log(GANTRY_LOG_ERR, "%02000d", 1);
}

START_TEST(test_log_long_line_is_cut_and_ends_with_newline)
{
	char text[4000];

	capture(say_much, text, sizeof(text));
	ck_assert_uint_le(strlen(text), GANTRY_LOG_LINE_MAX + 64);
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(test_log_level_parse_knows_its_names)
{
	enum gantry_log_level level = GANTRY_LOG_ERR;

	ck_assert_int_eq(gantry_log_level_parse("debug", &level), 0);
	ck_assert_int_eq(level, GANTRY_LOG_DEBUG);
	ck_assert_int_eq(gantry_log_level_parse("loud", &level), -EINVAL);
	ck_assert_int_eq(level, GANTRY_LOG_DEBUG);
}
END_TEST

START_TEST(test_trace_points_compile_and_do_nothing)
{
	int value = 1;

	GANTRY_TRACE0(unit_zero);
	GANTRY_TRACE1(unit_one, value);
	GANTRY_TRACE2(unit_two, value, 2);
	GANTRY_TRACE3(unit_three, value, 2, 3);
	GANTRY_TRACE4(unit_four, value, 2, 3, 4);
	ck_assert_int_eq(value, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tc = gantry_unit_case(suite, "log");

	tcase_add_test(tc, test_log_below_level_is_dropped);
	tcase_add_test(tc, test_log_flood_from_one_site_is_limited);
	tcase_add_test(tc, test_log_next_window_reports_what_was_suppressed);
	tcase_add_test(tc, test_log_control_characters_cannot_forge_a_line);
	tcase_add_test(tc, test_log_stderr_formats_are_as_documented);
	tcase_add_test(tc, test_log_long_line_is_cut_and_ends_with_newline);
	tcase_add_test(tc, test_log_level_parse_knows_its_names);
	tcase_add_test(tc, test_trace_points_compile_and_do_nothing);
	return gantry_unit_run(suite);
}
