/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent that is started makes of an upgrade that its journal tells of. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "host-agent/agent/agent.h"
#include "host-agent/agent/upgrade.h"
#include "tests/unit/runner.h"

#define ANOTHER 0x1234u

static struct gantry_agent agent;

static uint64_t self(void)
{
	int fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
	uint64_t identity = gantry_file_identity(fd);

	close(fd);
	return identity;
}

static struct gantry_upgrade_record between(uint32_t state, const char *from, uint64_t from_program,
					    const char *to, uint64_t to_program)
{
	struct gantry_upgrade_record r = { .state = state,
					   .id = 1,
					   .ndone = 5,
					   .nback = 7,
					   .from_program = from_program,
					   .to_program = to_program };

	(void)gantry_str_copy(r.from, sizeof(r.from), from); /* they fit */
	(void)gantry_str_copy(r.to, sizeof(r.to), to);
	return r;
}

/* What the next agent, which is us, and no candidate, takes it for. */
static uint32_t becomes(struct gantry_upgrade_record record)
{
	memset(&agent.upgrade, 0, sizeof(agent.upgrade));
	gantry_upgrade_restored(&agent, &record);
	return agent.upgrade.record.state;
}

START_TEST(test_upgrade_to_a_build_of_the_same_version_is_told_by_the_program)
{
	const char *version = gantry_build_version;

	for (uint32_t state = GANTRY_UPGRADE_YIELDED; state <= GANTRY_UPGRADE_TAKEN; state++) {
		ck_assert_uint_eq(becomes(between(state, version, ANOTHER, version, self())),
				  GANTRY_UPGRADE_DONE);
		ck_assert_uint_eq(agent.upgrade.record.ndone, 6);
		ck_assert_uint_eq(agent.upgrade.record.nback, 7);
		ck_assert_uint_eq(becomes(between(state, version, self(), version, ANOTHER)),
				  GANTRY_UPGRADE_BACK);
		ck_assert_uint_eq(agent.upgrade.record.ndone, 5);
		ck_assert_uint_eq(agent.upgrade.record.nback, 8);
	}
}
END_TEST

/* The one that took over had written that it has, and died before it was what agents are started from. */
START_TEST(test_upgrade_of_which_the_build_before_finds_that_it_was_taken_went_back)
{
	ck_assert_uint_eq(becomes(between(GANTRY_UPGRADE_TAKEN, gantry_build_version, self(),
					  "9.9.9", ANOTHER)),
			  GANTRY_UPGRADE_BACK);
	ck_assert_ptr_nonnull(strstr(agent.upgrade.text, "9.9.9 died"));
	ck_assert_ptr_nonnull(strstr(agent.upgrade.text, "serves again"));
}
END_TEST

START_TEST(test_upgrade_that_a_build_wrote_which_names_no_programs_is_told_by_the_versions)
{
	const char *version = gantry_build_version;

	ck_assert_uint_eq(becomes(between(GANTRY_UPGRADE_YIELDED, "0.0.1", 0, version, 0)),
			  GANTRY_UPGRADE_DONE);
	ck_assert_uint_eq(becomes(between(GANTRY_UPGRADE_YIELDED, version, 0, "9.9.9", 0)),
			  GANTRY_UPGRADE_BACK);
	/* It had served, or not: more is not known. */
	ck_assert_uint_eq(becomes(between(GANTRY_UPGRADE_TAKEN, version, 0, version, 0)),
			  GANTRY_UPGRADE_DONE);
	ck_assert_uint_eq(becomes(between(GANTRY_UPGRADE_YIELDED, version, 0, version, 0)),
			  GANTRY_UPGRADE_BACK);
}
END_TEST

START_TEST(test_upgrade_whose_agent_is_started_again_still_exchanges_workers)
{
	for (uint32_t state = GANTRY_UPGRADE_YIELDED; state <= GANTRY_UPGRADE_TAKEN; state++) {
		struct gantry_upgrade_record r = between(state, "0.0.1", ANOTHER,
							 gantry_build_version, self());

		r.restart_workers = 1;
		ck_assert_uint_eq(becomes(r), GANTRY_UPGRADE_MOVING);
		ck_assert_uint_eq(agent.upgrade.record.ndone, 5); /* not yet */
		ck_assert_ptr_nonnull(strstr(agent.upgrade.text, "started again"));
	}
}
END_TEST

START_TEST(test_upgrade_that_was_over_or_not_given_anything_stays_so)
{
	const char *version = gantry_build_version;

	for (uint32_t state = 0; state < GANTRY_NUPGRADE_STATES; state++) {
		uint32_t now = becomes(between(state, version, ANOTHER, version, self()));

		if (state == GANTRY_UPGRADE_TRYING || state == GANTRY_UPGRADE_SETTLING)
			ck_assert_uint_eq(now, GANTRY_UPGRADE_BACK);
		else if (state < GANTRY_UPGRADE_YIELDED || state > GANTRY_UPGRADE_TAKEN)
			ck_assert_uint_eq(now, state);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("upgrade");
	TCase *tc = gantry_unit_case(suite, "restored");

	tcase_add_test(tc, test_upgrade_to_a_build_of_the_same_version_is_told_by_the_program);
	tcase_add_test(tc,
		       test_upgrade_of_which_the_build_before_finds_that_it_was_taken_went_back);
	tcase_add_test(
		tc,
		test_upgrade_that_a_build_wrote_which_names_no_programs_is_told_by_the_versions);
	tcase_add_test(tc, test_upgrade_whose_agent_is_started_again_still_exchanges_workers);
	tcase_add_test(tc, test_upgrade_that_was_over_or_not_given_anything_stays_so);
	return gantry_unit_run(suite);
}
