/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On a folder that looks like a cgroup file system. Ordinary files do not fill new folders by themselves, so the
 * folders that the code makes are made, with their files, before it comes.
 */
#include "host-agent/agent/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "tests/unit/runner.h"

#define KEY   "abc"
#define AGENT 4242
#define W9    "cg/gantry.service/gantry-" KEY "/w-9"
#define MON   4241

static char root[64];
static struct gantry_cgroup_where where;
static char proc[80], systemd[80];
static struct gantry_cgroups groups;

static void write_text(const char *path, const char *text)
{
	char full[256];
	FILE *out;

	(void)gantry_str_format(full, sizeof(full), "%s/%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(full, 0755);
		*slash = '/';
	}
	out = fopen(full, "w");
	ck_assert_ptr_nonnull(out);
	fputs(text, out);
	fclose(out);
}

static const char *read_text(const char *path)
{
	static char text[256];
	char full[256], *data = NULL;

	(void)gantry_str_format(full, sizeof(full), "%s/%s", root, path);
	if (gantry_file_read(full, sizeof(text) - 1, &data, NULL) < 0)
		return "(none)";
	(void)gantry_str_copy(text, sizeof(text), data);
	free(data);
	return text;
}

static bool there(const char *path)
{
	char full[256];

	(void)gantry_str_format(full, sizeof(full), "%s/%s", root, path);
	return access(full, F_OK) == 0;
}

static void fill_group(const char *dir, const char *controllers)
{
	static const char *const files[] = { "cgroup.procs", "cgroup.subtree_control",
					     "cpu.max",	     "cpu.weight",
					     "memory.max",   "pids.max" };
	char path[128];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		(void)gantry_str_format(path, sizeof(path), "%s/%s", dir, files[i]);
		write_text(path, "");
	}
	(void)gantry_str_format(path, sizeof(path), "%s/cgroup.controllers", dir);
	write_text(path, controllers);
}

/* A service's group on a machine with version 2 only; the agent and its monitor live in it. */
static void setup(void)
{
	char text[512];

	strcpy(root, "/tmp/gantry-cgroup-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	(void)gantry_str_format(proc, sizeof(proc), "%s/proc", root);
	(void)gantry_str_format(systemd, sizeof(systemd), "%s/systemd", root);
	where = (struct gantry_cgroup_where){
		.proc = proc,
		.systemd = systemd,
		.setting = "auto",
		.key = KEY,
		.own = { AGENT, MON },
	};
	write_text("proc/self/cgroup", "1:name=systemd:/x\n0::/gantry.service\n");
	(void)gantry_str_format(text, sizeof(text),
				"20 1 0:5 / /proc rw - proc proc rw\n"
				"30 1 0:26 / %s/cg rw,nosuid shared:9 - cgroup2 cgroup2 rw\n",
				root);
	write_text("proc/self/mountinfo", text);
	fill_group("cg/gantry.service", "cpuset cpu io memory pids\n");
	write_text("cg/gantry.service/cgroup.events", "populated 1\n");
	write_text("cg/gantry.service/cgroup.procs", "4241\n4242\n");
	fill_group("cg/gantry.service/gantry-" KEY, "cpu memory pids\n");
	fill_group("cg/gantry.service/gantryd-" KEY, "");
}

static void teardown(void)
{
	char command[128];

	gantry_cgroups_close(&groups);
	(void)gantry_str_format(command, sizeof(command), "rm -rf %s", root);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(test_open_in_a_service_moves_the_agent_to_a_leaf_and_enables_controllers)
{
	gantry_cgroups_open(&groups, &where);
	ck_assert_msg(groups.usable, "%s", groups.why_not);
	ck_assert_str_eq(read_text("cg/gantry.service/gantryd-" KEY "/cgroup.procs"), "4241");
	/* One write a word: the last lies over the first. */
	ck_assert_ptr_nonnull(
		strstr(read_text("cg/gantry.service/cgroup.subtree_control"), "+pids"));
	ck_assert_ptr_nonnull(strstr(
		read_text("cg/gantry.service/gantry-" KEY "/cgroup.subtree_control"), "+pids"));
	for (int i = 0; i < (int)GANTRY_CGROUP_NCONTROLLERS; i++)
		ck_assert_str_eq(groups.missing[i], "");
}
END_TEST

START_TEST(test_open_after_a_restart_finds_the_group_from_the_leaf)
{
	write_text("proc/self/cgroup", "0::/gantry.service/gantryd-" KEY "\n");
	write_text("cg/gantry.service/cgroup.procs", "");
	gantry_cgroups_open(&groups, &where);
	ck_assert_msg(groups.usable, "%s", groups.why_not);
	ck_assert_ptr_nonnull(strstr(groups.base, "/cg/gantry.service"));
	ck_assert_ptr_null(strstr(groups.base, "gantryd-"));
}
END_TEST

START_TEST(test_open_beside_other_processes_leaves_them_alone)
{
	write_text("cg/gantry.service/cgroup.procs", "4241\n4242\n77\n");
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.why_not, "pid 77"));
	ck_assert_str_eq(read_text("cg/gantry.service/gantryd-" KEY "/cgroup.procs"), "");
	ck_assert_str_eq(read_text("cg/gantry.service/cgroup.subtree_control"), "");
}
END_TEST

START_TEST(test_open_beside_processes_of_another_namespace_leaves_them_alone)
{
	write_text("cg/gantry.service/cgroup.procs", "0\n4242\n");
	where.own[1] = 0; /* without a monitor: 0 must not pass for it */
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
}
END_TEST

START_TEST(test_open_under_systemd_without_delegation_is_refused)
{
	write_text("systemd/x", "");
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.why_not, "Delegate=yes"));
}
END_TEST

START_TEST(test_open_hybrid_names_each_controller_that_is_missing)
{
	write_text("cg/gantry.service/cgroup.controllers", "hugetlb pidsx memory\n");
	gantry_cgroups_open(&groups, &where);
	ck_assert(groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.missing[GANTRY_CGROUP_CPU], "no controller cpu"));
	ck_assert_ptr_nonnull(strstr(groups.missing[GANTRY_CGROUP_PIDS], "no controller pids"));
	ck_assert_str_eq(groups.missing[GANTRY_CGROUP_MEMORY], "");
}
END_TEST

START_TEST(test_open_controller_that_cannot_be_enabled_says_why)
{
	ck_assert_int_eq(unlink(strcat(strcpy((char[160]){ 0 }, root),
				       "/cg/gantry.service/cgroup.subtree_control")),
			 0);
	gantry_cgroups_open(&groups, &where);
	ck_assert(groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.missing[GANTRY_CGROUP_CPU], strerror(ENOENT)));
}
END_TEST

START_TEST(test_open_enabled_controllers_are_left_as_they_are)
{
	write_text("cg/gantry.service/cgroup.subtree_control", "cpu memory pids\n");
	gantry_cgroups_open(&groups, &where);
	ck_assert_str_eq(read_text("cg/gantry.service/cgroup.subtree_control"),
			 "cpu memory pids\n");
}
END_TEST

START_TEST(test_open_without_version_2_says_so)
{
	write_text("proc/self/mountinfo",
		   "20 1 0:5 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.why_not, "cgroup2"));
	write_text("proc/self/cgroup", "4:memory:/x\n");
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
}
END_TEST

START_TEST(test_open_off_is_silent)
{
	where.setting = "off";
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
	ck_assert_str_eq(groups.why_not, "");
}
END_TEST

START_TEST(test_open_configured_folder_is_used_without_moving_anybody)
{
	char path[128];

	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service", root);
	where.setting = path;
	gantry_cgroups_open(&groups, &where);
	ck_assert(groups.usable);
	ck_assert_str_eq(read_text("cg/gantry.service/gantryd-" KEY "/cgroup.procs"), "");
	ck_assert_str_eq(read_text("cg/gantry.service/cgroup.procs"), "4241\n4242\n");
}
END_TEST

START_TEST(test_open_configured_folder_that_is_no_cgroup_is_refused)
{
	char path[128];

	(void)gantry_str_format(path, sizeof(path), "%s/plain", root);
	where.setting = path;
	gantry_cgroups_open(&groups, &where);
	ck_assert(!groups.usable);
	ck_assert_ptr_nonnull(strstr(groups.why_not, "no cgroup"));
}
END_TEST

START_TEST(test_open_sweeps_empty_groups_of_an_earlier_agent)
{
	char path[128];

	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service/gantry-" KEY "/w-7",
				root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	write_text("cg/gantry.service/gantry-" KEY "/w-8/cgroup.procs",
		   "5\n"); /* not empty: stays */
	gantry_cgroups_open(&groups, &where);
	ck_assert(!there("cg/gantry.service/gantry-" KEY "/w-7"));
	ck_assert(there("cg/gantry.service/gantry-" KEY "/w-8"));
}
END_TEST

START_TEST(test_open_sweeps_what_agents_that_are_no_more_left_empty)
{
	char path[128];

	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service/gantry-ff", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service/gantry-ff/w-3", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	write_text("cg/gantry.service/gantry-ee/w-1/cgroup.procs", "5\n");
	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service/gantry-mine", root);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	gantry_cgroups_open(&groups, &where);
	ck_assert(!there("cg/gantry.service/gantry-ff"));
	ck_assert(there("cg/gantry.service/gantry-ee/w-1"));
	ck_assert(there("cg/gantry.service/gantry-mine"));
	ck_assert(there("cg/gantry.service/gantryd-" KEY));
}
END_TEST

START_TEST(test_enter_makes_a_group_that_was_swept_away)
{
	char path[160];

	fill_group(W9, "");
	(void)gantry_str_format(path, sizeof(path), "%s/" W9, root);
	ck_assert_int_eq(gantry_cgroup_enter(path), 0);
	ck_assert_str_eq(read_text(W9 "/cgroup.procs"), "0");
	(void)gantry_str_format(path, sizeof(path), "%s/cg/gantry.service/gantry-new/w-1", root);
	ck_assert_int_eq(gantry_cgroup_enter(path), -ENOENT); /* no kernel fills this one */
	ck_assert(there("cg/gantry.service/gantry-new/w-1"));
}
END_TEST

START_TEST(test_limit_writes_what_was_asked)
{
	const struct gantry_cgroup_limits limits = {
		.cpu_milli = 1500,
		.cpu_weight = 200,
		.mem_bytes = 1ull << 33,
		.pids = 64,
	};
	char path[PATH_MAX];

	fill_group(W9, "");
	gantry_cgroups_open(&groups, &where);
	ck_assert_int_eq(gantry_cgroup_make(&groups, 9, path, sizeof(path)), 0);
	ck_assert_uint_eq(gantry_cgroup_limit(&groups, 9, &limits), 7);
	ck_assert_str_eq(read_text(W9 "/cpu.max"), "150000 100000");
	ck_assert_str_eq(read_text(W9 "/cpu.weight"), "200");
	ck_assert_str_eq(read_text(W9 "/memory.max"), "8589934592");
	ck_assert_str_eq(read_text(W9 "/pids.max"), "64");
}
END_TEST

START_TEST(test_limit_of_nothing_is_max)
{
	const struct gantry_cgroup_limits none = { 0 };
	char path[PATH_MAX];

	fill_group(W9, "");
	gantry_cgroups_open(&groups, &where);
	ck_assert_int_eq(gantry_cgroup_make(&groups, 9, path, sizeof(path)), 0);
	ck_assert_uint_eq(gantry_cgroup_limit(&groups, 9, &none), 7);
	ck_assert_str_eq(read_text(W9 "/cpu.max"), "max 100000");
	ck_assert_str_eq(read_text(W9 "/cpu.weight"), "100");
	ck_assert_str_eq(read_text(W9 "/memory.max"), "max");
	ck_assert_str_eq(read_text(W9 "/pids.max"), "max");
}
END_TEST

START_TEST(test_limit_that_cannot_be_written_is_not_held_and_says_why)
{
	const struct gantry_cgroup_limits limits = { .mem_bytes = 1 };
	char path[PATH_MAX], file[PATH_MAX + 16];

	fill_group(W9, "");
	gantry_cgroups_open(&groups, &where);
	ck_assert_int_eq(gantry_cgroup_make(&groups, 9, path, sizeof(path)), 0);
	(void)gantry_str_format(file, sizeof(file), "%s/memory.max", path);
	ck_assert_int_eq(unlink(file), 0);
	ck_assert_uint_eq(gantry_cgroup_limit(&groups, 9, &limits),
			  1u << GANTRY_CGROUP_CPU | 1u << GANTRY_CGROUP_PIDS);
	ck_assert_ptr_nonnull(strstr(groups.missing[GANTRY_CGROUP_MEMORY], strerror(ENOENT)));
}
END_TEST

START_TEST(test_holds_is_what_proc_says)
{
	gantry_cgroups_open(&groups, &where);
	write_text("proc/500/cgroup", "0::/gantry.service/gantry-" KEY "/w-9\n");
	write_text("proc/501/cgroup", "0::/gantry.service\n");
	ck_assert(gantry_cgroup_holds(&groups, proc, 9, 500));
	ck_assert(!gantry_cgroup_holds(&groups, proc, 99, 500));
	ck_assert(!gantry_cgroup_holds(&groups, proc, 9, 501));
	ck_assert(!gantry_cgroup_holds(&groups, proc, 9, 502));
}
END_TEST

START_TEST(test_remove_busy_group_is_tried_again_with_the_next)
{
	char path[PATH_MAX], file[PATH_MAX + 16];

	gantry_cgroups_open(&groups, &where);
	ck_assert_int_eq(gantry_cgroup_make(&groups, 1, path, sizeof(path)), 0);
	(void)gantry_str_format(file, sizeof(file), "%s/busy", path);
	ck_assert_int_eq(close(open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	gantry_cgroup_remove(&groups, 1);
	ck_assert(there("cg/gantry.service/gantry-" KEY "/w-1"));
	ck_assert_int_eq(unlink(file), 0);
	gantry_cgroup_remove(&groups, 2); /* never made: no harm */
	ck_assert(!there("cg/gantry.service/gantry-" KEY "/w-1"));
	ck_assert_uint_eq(groups.nleft, 0);
}
END_TEST

START_TEST(test_calls_on_unusable_groups_do_nothing)
{
	const struct gantry_cgroup_limits limits = { .pids = 1 };
	char path[PATH_MAX] = "untouched";

	where.setting = "off";
	gantry_cgroups_open(&groups, &where);
	ck_assert_int_eq(gantry_cgroup_make(&groups, 1, path, sizeof(path)), -ENOENT);
	ck_assert_str_eq(path, "untouched");
	ck_assert_uint_eq(gantry_cgroup_limit(&groups, 1, &limits), 0);
	ck_assert(!gantry_cgroup_holds(&groups, proc, 1, 500));
	gantry_cgroup_remove(&groups, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cgroup");
	TCase *tc = gantry_unit_case(suite, "cgroup");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc,
		       test_open_in_a_service_moves_the_agent_to_a_leaf_and_enables_controllers);
	tcase_add_test(tc, test_open_after_a_restart_finds_the_group_from_the_leaf);
	tcase_add_test(tc, test_open_beside_other_processes_leaves_them_alone);
	tcase_add_test(tc, test_open_beside_processes_of_another_namespace_leaves_them_alone);
	tcase_add_test(tc, test_open_under_systemd_without_delegation_is_refused);
	tcase_add_test(tc, test_open_hybrid_names_each_controller_that_is_missing);
	tcase_add_test(tc, test_open_controller_that_cannot_be_enabled_says_why);
	tcase_add_test(tc, test_open_enabled_controllers_are_left_as_they_are);
	tcase_add_test(tc, test_open_without_version_2_says_so);
	tcase_add_test(tc, test_open_off_is_silent);
	tcase_add_test(tc, test_open_configured_folder_is_used_without_moving_anybody);
	tcase_add_test(tc, test_open_configured_folder_that_is_no_cgroup_is_refused);
	tcase_add_test(tc, test_open_sweeps_empty_groups_of_an_earlier_agent);
	tcase_add_test(tc, test_open_sweeps_what_agents_that_are_no_more_left_empty);
	tcase_add_test(tc, test_enter_makes_a_group_that_was_swept_away);
	tcase_add_test(tc, test_limit_writes_what_was_asked);
	tcase_add_test(tc, test_limit_of_nothing_is_max);
	tcase_add_test(tc, test_limit_that_cannot_be_written_is_not_held_and_says_why);
	tcase_add_test(tc, test_holds_is_what_proc_says);
	tcase_add_test(tc, test_remove_busy_group_is_tried_again_with_the_next);
	tcase_add_test(tc, test_calls_on_unusable_groups_do_nothing);
	return gantry_unit_run(suite);
}
