/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/modules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/runner.h"

static char dir[] = "/tmp/gantry-modules.XXXXXX";
static struct gantry_modules *modules;
static struct gantry_err err;

/* What the last scan told: "+core.manifest -old.manifest ..." and the last refusal. */
static char told[1024];
#define ZEROES "0000000000000000000000000000000000000000000000000000000000000000"
static char refusal[GANTRY_ERR_TEXT_MAX];

static void note(void *arg, const struct gantry_module_change *change)
{
	static const char marks[] = { '?', '+', '~', '-', '!' };

	ck_assert_ptr_eq(arg, told);
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s%c%s", told[0] ? " " : "",
		 marks[change->kind], change->file);
	if (change->kind == GANTRY_MODULE_REFUSED)
		strcpy(refusal, change->err.text);
}

static const char *path_of(const char *file)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	return path;
}

static void put(const char *file, const char *text)
{
	ck_assert_int_eq(gantry_file_replace(path_of(file), text, strlen(text), 0644), 0);
}

static int rescan(void)
{
	told[0] = '\0';
	refusal[0] = '\0';
	return gantry_modules_rescan(modules, note, told, &err);
}

static void make_dir(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void open_modules(void)
{
	told[0] = '\0';
	ck_assert_msg(gantry_modules_open(dir, note, told, &modules, &err) == 0, "%s", err.text);
}

static void remove_dir(void)
{
	char command[64];

	gantry_modules_close(modules);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(test_modules_open_finds_manifests_and_images)
{
	const struct gantry_kernel_def *def;
	const struct gantry_module *module;

	put("b.so", "x");
	put("b.manifest", "module b 1\nimage cpu b.so\nkernel add u8\n");
	put("a.manifest", "module a 1\nkernel mul u8 pure\n");
	put("README", "not one");
	put(".hidden.manifest", "nor this");
	open_modules();
	ck_assert_str_eq(told, "+a.manifest +b.manifest");
	ck_assert_str_eq(gantry_modules_at(modules, 0)->manifest->module, "a");
	ck_assert_ptr_null(gantry_modules_at(modules, 2));
	module = gantry_modules_find(modules, "add", GANTRY_KIND_CPU, &def);
	ck_assert_ptr_nonnull(module);
	ck_assert_str_eq(module->images[GANTRY_KIND_CPU], path_of("b.so"));
	ck_assert_str_eq(def->name, "add");
	ck_assert_ptr_null(gantry_modules_find(modules, "add", GANTRY_KIND_CUDA, NULL));
	ck_assert_ptr_nonnull(gantry_modules_find(modules, "mul", GANTRY_KIND_ANY, NULL));
	ck_assert_ptr_null(gantry_modules_find(modules, "mul", GANTRY_KIND_CPU, NULL));
	ck_assert_ptr_null(gantry_modules_find(modules, "div", GANTRY_KIND_ANY, NULL));
	ck_assert_ptr_null(gantry_modules_find(modules, "add", 99, NULL));
}
END_TEST

START_TEST(test_modules_rescan_of_nothing_new_tells_nothing)
{
	put("a.manifest", "module a 1\n");
	open_modules();
	ck_assert_int_eq(rescan(), 0);
	ck_assert_str_eq(told, "");
}
END_TEST

START_TEST(test_modules_rescan_tells_added_changed_and_removed)
{
	put("a.manifest", "module a 1\n");
	put("b.manifest", "module b 1\n");
	open_modules();
	put("a.manifest", "module a 2\n");
	ck_assert_int_eq(unlink(path_of("b.manifest")), 0);
	put("c.manifest", "module c 1\n");
	ck_assert_int_eq(rescan(), 3);
	ck_assert_str_eq(told, "-b.manifest ~a.manifest +c.manifest");
	ck_assert_uint_eq(gantry_modules_at(modules, 0)->manifest->version, 2);
}
END_TEST

START_TEST(test_modules_rescan_notices_a_new_image)
{
	put("a.so", "one");
	put("a.manifest", "module a 1\nimage cpu a.so\n");
	open_modules();
	put("a.so", "two");
	ck_assert_int_eq(rescan(), 1);
	ck_assert_str_eq(told, "~a.manifest");
}
END_TEST

START_TEST(test_modules_rescan_keeps_what_a_bad_manifest_replaces)
{
	put("a.manifest", "module a 1\n");
	open_modules();
	put("a.manifest", "module a 1\nkernle k u8\n");
	ck_assert_int_eq(rescan(), 1);
	ck_assert_str_eq(told, "!a.manifest");
	ck_assert_str_eq(refusal,
			 "a.manifest: line 2: \"kernle\" is not module, image, tenant or kernel");
	ck_assert_ptr_nonnull(gantry_modules_at(modules, 0));
	ck_assert_int_eq(rescan(), 0); /* told once */
	put("a.manifest", "module a 3\n");
	ck_assert_int_eq(rescan(), 1);
	ck_assert_str_eq(told, "~a.manifest");
}
END_TEST

START_TEST(test_modules_missing_image_is_refused_until_it_comes)
{
	put("a.manifest", "module a 1\nimage cpu a.so\n");
	open_modules();
	ck_assert_str_eq(told, "!a.manifest");
	ck_assert_ptr_null(gantry_modules_at(modules, 0));
	put("a.so", "x");
	ck_assert_int_eq(rescan(), 1);
	ck_assert_str_eq(told, "+a.manifest");
}
END_TEST

START_TEST(test_modules_links_are_refused)
{
	put("real", "module a 1\n");
	ck_assert_int_eq(chdir(dir), 0);
	ck_assert_int_eq(symlink("real", "a.manifest"), 0);
	ck_assert_int_eq(symlink("/bin/true", "b.so"), 0);
	ck_assert_int_eq(mkfifo("c.manifest", 0600), 0);
	put("b.manifest", "module b 1\nimage cpu b.so\n");
	open_modules();
	ck_assert_str_eq(told, "!a.manifest !b.manifest !c.manifest");
	ck_assert_str_eq(refusal, "c.manifest: not a regular file");
	ck_assert_ptr_null(gantry_modules_at(modules, 0));
}
END_TEST

START_TEST(test_modules_files_that_everybody_writes_are_refused)
{
	put("a.manifest", "module a 1\n");
	ck_assert_int_eq(chmod(path_of("a.manifest"), 0666), 0);
	open_modules();
	ck_assert_str_eq(refusal, "a.manifest: everybody may write to it");
}
END_TEST

START_TEST(test_modules_directory_that_everybody_writes_is_refused)
{
	ck_assert_int_eq(chmod(dir, 0777), 0);
	ck_assert_int_eq(gantry_modules_open(dir, NULL, NULL, &modules, &err), -EPERM);
	ck_assert_ptr_nonnull(strstr(err.text, "everybody may write to it"));
}
END_TEST

START_TEST(test_modules_open_of_no_directory_says_so)
{
	ck_assert_int_eq(gantry_modules_open(path_of("none"), NULL, NULL, &modules, &err), -ENOENT);
	put("file", "x");
	ck_assert_int_eq(gantry_modules_open(path_of("file"), NULL, NULL, &modules, &err),
			 -ENOTDIR);
}
END_TEST

START_TEST(test_modules_second_module_of_a_name_is_refused)
{
	put("a.manifest", "module same 1\n");
	put("b.manifest", "module same 1\n");
	open_modules();
	ck_assert_str_eq(told, "+a.manifest !b.manifest");
	ck_assert_str_eq(refusal, "b.manifest: a.manifest is module same already");
	ck_assert_int_eq(unlink(path_of("a.manifest")), 0);
	ck_assert_int_eq(rescan(), 2);
	ck_assert_str_eq(told, "-a.manifest +b.manifest");
}
END_TEST

START_TEST(test_modules_bitstream_is_a_module_with_its_kernels)
{
	const struct gantry_kernel_def *def = NULL;
	const struct gantry_module *m;

	put("b.bitstream", "bitstream image 3\nboard b\nload 0 b.bit " ZEROES
			   "\nconfigure 1s\ntenant red\nkernel k r:u8* window 0 pure\n");
	put("c.bitstream", "bitstream broken 1\n");
	open_modules();
	ck_assert_str_eq(told, "+b.bitstream !c.bitstream");
	ck_assert_str_eq(refusal, "c.bitstream: bitstream broken names no board");
	m = gantry_modules_find(modules, "k", GANTRY_KIND_FPGA, &def);
	ck_assert_ptr_nonnull(m);
	ck_assert_str_eq(m->manifest->module, "image");
	ck_assert_str_eq(m->manifest->tenant, "red");
	ck_assert_str_eq(m->images[GANTRY_KIND_FPGA], path_of("b.bitstream"));
	ck_assert_str_eq(m->board, "b");
	ck_assert_uint_eq(def->flags, GANTRY_KERNEL_PURE);
	ck_assert_str_eq(def->sig_text, "r:u8*");
}
END_TEST

START_TEST(test_modules_image_with_a_mark_beside_it_leaves_until_the_mark_is_gone)
{
	put("b.bitstream", "bitstream image 3\nboard b\nload 0 b.bit " ZEROES
			   "\nconfigure 1s\nkernel k r:u8* window 0\n");
	put("a.manifest", "module a 1\n");
	put("a.manifest.leaving", "");
	open_modules();
	ck_assert(!gantry_modules_at(modules, 0)->leaving); /* no image of a board */
	ck_assert(!gantry_modules_at(modules, 1)->leaving);
	put("b.bitstream.leaving", "");
	ck_assert_int_eq(rescan(), 1);
	ck_assert_str_eq(told, "");
	ck_assert(gantry_modules_at(modules, 1)->leaving);
	ck_assert_ptr_nonnull(gantry_modules_find(modules, "k", GANTRY_KIND_FPGA, NULL));
	ck_assert_int_eq(rescan(), 0);
	ck_assert_int_eq(unlink(path_of("b.bitstream.leaving")), 0);
	ck_assert_int_eq(rescan(), 1);
	ck_assert(!gantry_modules_at(modules, 1)->leaving);
}
END_TEST

START_TEST(test_modules_kernel_with_another_signature_is_refused)
{
	put("a.so", "x");
	put("a.manifest", "module a 1\nimage cpu a.so\nkernel k u8\n");
	put("b.so", "x");
	put("b.manifest", "module b 1\nimage cuda b.so\nkernel k u8\n");
	put("c.manifest", "module c 1\nkernel k u16\n");
	open_modules();
	ck_assert_str_eq(told, "+a.manifest +b.manifest !c.manifest");
	ck_assert_str_eq(refusal, "c.manifest: kernel k has another signature in a.manifest");
	ck_assert_str_eq(
		gantry_modules_find(modules, "k", GANTRY_KIND_CUDA, NULL)->manifest->module, "b");
}
END_TEST

START_TEST(test_modules_too_many_manifests_are_refused_and_nothing_changes)
{
	char file[32];

	put("a.manifest", "module a 1\n");
	open_modules();
	for (unsigned int i = 0; i < GANTRY_MODULES_MAX; i++) {
		snprintf(file, sizeof(file), "m%u.manifest", i);
		put(file, "");
	}
	ck_assert_int_eq(rescan(), -E2BIG);
	ck_assert_str_eq(told, "");
	ck_assert_ptr_nonnull(gantry_modules_at(modules, 0));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("modules");
	TCase *tc = gantry_unit_case(suite, "modules");

	tcase_add_checked_fixture(tc, make_dir, remove_dir);
	tcase_add_test(tc, test_modules_open_finds_manifests_and_images);
	tcase_add_test(tc, test_modules_bitstream_is_a_module_with_its_kernels);
	tcase_add_test(tc, test_modules_image_with_a_mark_beside_it_leaves_until_the_mark_is_gone);
	tcase_add_test(tc, test_modules_rescan_of_nothing_new_tells_nothing);
	tcase_add_test(tc, test_modules_rescan_tells_added_changed_and_removed);
	tcase_add_test(tc, test_modules_rescan_notices_a_new_image);
	tcase_add_test(tc, test_modules_rescan_keeps_what_a_bad_manifest_replaces);
	tcase_add_test(tc, test_modules_missing_image_is_refused_until_it_comes);
	tcase_add_test(tc, test_modules_links_are_refused);
	tcase_add_test(tc, test_modules_files_that_everybody_writes_are_refused);
	tcase_add_test(tc, test_modules_directory_that_everybody_writes_is_refused);
	tcase_add_test(tc, test_modules_open_of_no_directory_says_so);
	tcase_add_test(tc, test_modules_second_module_of_a_name_is_refused);
	tcase_add_test(tc, test_modules_kernel_with_another_signature_is_refused);
	tcase_add_test(tc, test_modules_too_many_manifests_are_refused_and_nothing_changes);
	return gantry_unit_run(suite);
}
