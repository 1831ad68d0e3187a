/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "host-agent/agent/journal.h"
#include "tests/unit/runner.h"

static struct gantry_journal_line seen[8];
static unsigned int nseen;

static void note(void *arg, const struct gantry_journal_line *line)
{
	(void)arg;
	ck_assert_uint_lt(nseen, 8);
	seen[nseen++] = *line;
}

static int parse(const char *text)
{
	nseen = 0;
	return gantry_journal_parse(text, strlen(text), note, NULL);
}

START_TEST(test_journal_lines_read_back_the_same)
{
	struct gantry_journal_line lines[6] = {
		{ .kind = GANTRY_JOURNAL_NEXT, .id = 12, .worker = 34, .migration = 5 },
		{ .kind = GANTRY_JOURNAL_SESSION,
		  .id = 7,
		  .unix_ns = 1234567890123456789,
		  .program = "a b\nc" },
		{ .kind = GANTRY_JOURNAL_TOKEN,
		  .token = { .bytes = { 1, 2, 255 },
			     .session_id = 7,
			     .share_id = UINT64_MAX,
			     .buffer_bytes = 4096,
			     .tenant_slot = 3,
			     .mode = GANTRY_RW } },
		{ .kind = GANTRY_JOURNAL_DEVICE, .device = "cpu0", .state = 2 },
		{ .kind = GANTRY_JOURNAL_HANDOVER,
		  .id = 7,
		  .state = 1,
		  .is_incoming = true,
		  .port = 16601,
		  .guest_session = 9,
		  .token = { .bytes = { 3, 0, 254 } },
		  .host = "south.example",
		  .nonce = { 9, 8, 7 } },
		{ .kind = GANTRY_JOURNAL_UPGRADE,
		  .upgrade = { .state = GANTRY_UPGRADE_YIELDED,
			       .id = 9,
			       .restart_workers = 1,
			       .ndone = 5,
			       .nrefused = 3,
			       .nback = 1,
			       .began_ns = UINT64_MAX,
			       .yielded_ns = 2,
			       .pause_ns = 3,
			       .took_ns = 4,
			       .from_program = UINT64_MAX,
			       .to_program = 0xabc,
			       .from = "0.1.0",
			       .to = "0.2.0" } },
	};
	char text[2048] = "";

	for (int i = 0; i < 6; i++)
		ck_assert_int_gt(gantry_journal_format(&lines[i], text + strlen(text), 512), 0);
	strcat(text, "end\n");
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(nseen, 6);
	ck_assert_uint_eq(seen[0].id, 12);
	ck_assert_uint_eq(seen[0].worker, 34);
	ck_assert_uint_eq(seen[1].unix_ns, 1234567890123456789);
	ck_assert_str_eq(seen[1].program, "a b\nc");
	ck_assert_mem_eq(seen[2].token.bytes, lines[2].token.bytes, GANTRY_DOOR_TOKEN);
	ck_assert_uint_eq(seen[2].token.share_id, UINT64_MAX);
	ck_assert_uint_eq(seen[2].token.mode, GANTRY_RW);
	ck_assert_str_eq(seen[3].device, "cpu0");
	ck_assert_uint_eq(seen[3].state, 2);
	ck_assert(seen[4].is_incoming);
	ck_assert_uint_eq(seen[4].id, 7);
	ck_assert_uint_eq(seen[4].state, 1);
	ck_assert_uint_eq(seen[4].port, 16601);
	ck_assert_uint_eq(seen[4].guest_session, 9);
	ck_assert_mem_eq(seen[4].token.bytes, lines[4].token.bytes, GANTRY_DOOR_TOKEN);
	ck_assert_str_eq(seen[4].host, "south.example");
	ck_assert_mem_eq(seen[4].nonce, lines[4].nonce, sizeof(lines[4].nonce));
	ck_assert_mem_eq(&seen[5].upgrade, &lines[5].upgrade, sizeof(lines[5].upgrade));
}
END_TEST

START_TEST(test_journal_cut_file_gives_what_is_whole)
{
	ck_assert_int_eq(parse("next 1 2\ndevice cpu0 2\ndevice cp"), -ENODATA);
	ck_assert_uint_eq(nseen, 2);
	ck_assert_int_eq(parse(""), -ENODATA);
	ck_assert_int_eq(parse("end"), -ENODATA);
}
END_TEST

START_TEST(test_journal_nonsense_is_passed_over)
{
	char longline[1200];

	memset(longline, 'x', sizeof(longline));
	longline[0] = '\0';
	strcat(longline, "next 1");
	memset(longline + 6, ' ', 1000);
	strcpy(longline + 1006, "\nend\n");
	ck_assert_int_eq(parse(longline), 0);
	ck_assert_uint_eq(nseen, 0);
	ck_assert_int_eq(parse("session x y z\ntoken 12 1 1 1 1 1\ndevice ../x 1\nsession 1 2 zz\n"
			       "handover up 00 1 1 1 1 x 00\nhandover in zz 1 1 1 1 x 00\nhuh\n"
			       "upgrade 99 1 1 1 1 1 1 1 1 1 a b\nupgrade 1 2\nend\n"),
			 0);
	ck_assert_uint_eq(nseen, 0);
}
END_TEST

START_TEST(test_journal_upgrade_of_a_build_that_names_no_programs_is_read)
{
	ck_assert_int_eq(parse("upgrade 3 9 1 5 3 1 1 2 3 4 0.1.0 0.2.0 ab cd\n"
			       "upgrade 3 9 1 5 3 1 1 2 3 4 0.1.0 0.2.0\n"
			       "upgrade 3 9 1 5 3 1 1 2 3 4 0.1.0\nend\n"),
			 0);
	ck_assert_uint_eq(nseen, 2);
	ck_assert_uint_eq(seen[0].upgrade.to_program, 0xcd);
	ck_assert_uint_eq(seen[1].upgrade.from_program, 0);
	ck_assert_uint_eq(seen[1].upgrade.to_program, 0);
	ck_assert_str_eq(seen[1].upgrade.to, "0.2.0");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *tc = gantry_unit_case(suite, "lines");

	tcase_add_test(tc, test_journal_lines_read_back_the_same);
	tcase_add_test(tc, test_journal_cut_file_gives_what_is_whole);
	tcase_add_test(tc, test_journal_nonsense_is_passed_over);
	tcase_add_test(tc, test_journal_upgrade_of_a_build_that_names_no_programs_is_read);
	return gantry_unit_run(suite);
}
