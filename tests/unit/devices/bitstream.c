/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/board/bitstream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/fd.h"
#include "tests/unit/runner.h"

#define ZEROES "0000000000000000000000000000000000000000000000000000000000000000"
/* What sha256sum says of "bits". */
#define BITS_HASH "e5e59d10f196504b6e08ac7785f84430a61e1558fd6246075a9566edaab2e814"
#define START	  "bitstream a 1\nboard b\n"
#define NAME_64	  "a123456789012345678901234567890123456789012345678901234567890123"

static int parse(const char *text, struct gantry_bitstream **ret_bitstream, struct gantry_err *err)
{
	return gantry_bitstream_parse(text, strlen(text), ret_bitstream, err);
}

START_TEST(test_bitstream_parse_reads_every_statement)
{
	struct gantry_bitstream *b;
	struct gantry_err err = GANTRY_ERR_NONE;
	const struct gantry_bitstream_kernel *k;

	ck_assert_msg(
		parse("# an image\n"
		      "bitstream pair 7\n"
		      "board two-regions # ours\n"
		      "load 0 pair-0.bit " ZEROES "\n"
		      "load 3 pair.3.bit " BITS_HASH "\n"
		      "configure 150ms\n"
		      "memory kept\n"
		      "kernel vadd r:i32*,w:i32*,u64 pure units 2 slower 17% window 4 run 3ms ndrange\n"
		      "kernel scale void window 0\n"
		      "kernel grid void window 7 ndrange 4096 pure\n",
		      &b, &err) == 0,
		"%s", err.text);
	ck_assert_str_eq(b->name, "pair");
	ck_assert_uint_eq(b->version, 7);
	ck_assert_str_eq(b->board, "two-regions");
	ck_assert_uint_eq(b->configure_ns, 150000000);
	ck_assert(b->keeps_memory);
	ck_assert_uint_eq(b->nkernels, 3);
	ck_assert_uint_eq(b->nunits, 4);
	ck_assert(gantry_bitstream_fits(b, 0) && gantry_bitstream_fits(b, 3));
	ck_assert(!gantry_bitstream_fits(b, 1) && !gantry_bitstream_fits(b, GANTRY_BOARD_WHOLE));
	ck_assert(!gantry_bitstream_fits(b, GANTRY_BOARD_NPLACES));
	ck_assert_str_eq(b->files[3].name, "pair.3.bit");
	ck_assert_uint_eq(b->files[3].sha256[1], 0xe5);
	k = gantry_bitstream_find(b, "vadd");
	ck_assert_ptr_nonnull(k);
	ck_assert(k->pure);
	ck_assert(k->ndrange);
	ck_assert_uint_eq(k->max_items, 1 << 28);
	ck_assert_uint_eq(gantry_bitstream_registers(k), 2 * 2 + 1 + 6);
	ck_assert_uint_eq(k->window, 4);
	ck_assert_uint_eq(k->units, 2);
	ck_assert_uint_eq(k->slower, 17);
	ck_assert_uint_eq(k->run_ns, 3000000);
	ck_assert_uint_eq(k->sig.nargs, 3);
	k = gantry_bitstream_find(b, "grid");
	ck_assert(k->ndrange && k->pure);
	ck_assert_uint_eq(k->max_items, 4096);
	k = gantry_bitstream_find(b, "scale");
	ck_assert_uint_eq(k->max_items, 0);
	ck_assert(!k->pure);
	ck_assert_uint_eq(k->units, 1);
	ck_assert_uint_eq(k->slower, 0);
	ck_assert_uint_eq(k->run_ns, 0);
	ck_assert_ptr_null(gantry_bitstream_find(b, "nobody"));
	free(b);
}
END_TEST

START_TEST(test_bitstream_parse_of_a_whole_image_loses_memory_unless_it_says_otherwise)
{
	struct gantry_bitstream *b;

	ck_assert_int_eq(parse(START "load whole a.bit " ZEROES
				     "\nconfigure 15s\nkernel k void window 0\n",
			       &b, NULL),
			 0);
	ck_assert(gantry_bitstream_fits(b, GANTRY_BOARD_WHOLE));
	ck_assert(!gantry_bitstream_fits(b, 0));
	ck_assert(!b->keeps_memory);
	free(b);
}
END_TEST

START_TEST(test_bitstream_module_has_its_kernels_and_its_tenant)
{
	struct gantry_bitstream *b;
	char *text;

	ck_assert_int_eq(parse(START "load 0 a.bit " ZEROES "\nconfigure 1s\ntenant red\n"
				     "kernel k r:i32*,u64 window 0 pure\nkernel l void window 1\n",
			       &b, NULL),
			 0);
	ck_assert_str_eq(b->tenant, "red");
	text = gantry_bitstream_module(b, "x.bitstream");
	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strncmp(text, "module ", 7) == 0, "%s", text);
	ck_assert_str_eq(
		strchr(text, '\n') + 1,
		"image fpga x.bitstream\ntenant red\nkernel k r:i32*,u64 pure\nkernel l void\n");
	free(text);
	free(b);
}
END_TEST

#define BUFFERS_7  "r:i32*,r:i32*,r:i32*,r:i32*,r:i32*,r:i32*,r:i32*"
#define BUFFERS_14 BUFFERS_7 "," BUFFERS_7

static const struct {
	const char *text;
	const char *sentence;
} bad[] = {
	{ START "tenant\n", "line 3: write \"tenant NAME\"" },
	{ START "tenant A\n", "line 3: \"A\" is no name of a tenant" },
	{ START "tenant a\ntenant b\n", "line 4: whose it is is said already" },
	{ "", "the manifest names no bitstream" },
	{ "board b\n", "line 1: the first statement must be \"bitstream\"" },
	{ "bitstream a\n", "line 1: write \"bitstream NAME VERSION\"" },
	{ "bitstream A 1\n", "line 1: \"A\" is no name of a bitstream" },
	{ "bitstream a 0\n", "line 1: version: \"0\" is not from 1 to 4294967295" },
	{ START "bitstream c 1\n", "line 3: the bitstream is named already" },
	{ START "board c\n", "line 3: the board is named already" },
	{ "bitstream a 1\nboard\n", "line 2: write \"board MODEL\"" },
	{ "bitstream a 1\nboard B/\n", "line 2: \"B/\" is no model of a board" },
	{ START "load 0 f\n", "line 3: write \"load whole|REGION FILE SHA256\"" },
	{ START "load 8 f " ZEROES "\n",
	  "line 3: \"8\" is neither whole nor a region from 0 to 7" },
	{ START "load half f " ZEROES "\n",
	  "line 3: \"half\" is neither whole nor a region from 0 to 7" },
	{ START "load 0 ../f " ZEROES "\n",
	  "line 3: \"../f\" is no name of a file beside the manifest" },
	{ START "load 0 f 12ab\n",
	  "line 3: \"12ab\" is no SHA-256 of 64 digits: sha256sum tells it" },
	{ START "load 0 f " ZEROES "0\n",
	  "line 3: \"" ZEROES "0\" is no SHA-256 of 64 digits: sha256sum tells it" },
	{ START "load 0 f " ZEROES "\nload 0 g " ZEROES "\n",
	  "line 4: the file for 0 is named already" },
	{ START "load 0 f " ZEROES "\nload whole g " ZEROES "\n",
	  "line 4: an image is for the whole board or for regions" },
	{ START "load whole f " ZEROES "\nload 1 g " ZEROES "\n",
	  "line 4: an image is for the whole board or for regions" },
	{ START "configure\n", "line 3: write \"configure TIME\"" },
	{ START "configure 0\n", "line 3: configure: write more than 0 and at most 10m" },
	{ START "configure 11m\n", "line 3: configure: write more than 0 and at most 10m" },
	{ START "configure 1s\nconfigure 1s\n", "line 4: how long loading takes is said already" },
	{ START "memory\n", "line 3: write \"memory kept\" or \"memory lost\"" },
	{ START "memory lost\nmemory kept\n", "line 4: what happens to memory is said already" },
	{ START "kernel k\n", "line 3: write \"kernel NAME SIGNATURE window N [WORD ...]\"" },
	{ START "kernel 2k void window 0\n", "line 3: \"2k\" is no kernel name" },
	{ START "kernel " NAME_64 " void window 0\n", "line 3: \"" NAME_64 "\" is no kernel name" },
	{ START "kernel k " BUFFERS_14 ",u32 window 0\n",
	  "line 3: kernel k: more than 28 arguments (a buffer counts twice, a grid six times)" },
	{ START "kernel k " BUFFERS_7 ",r:i32*,r:i32*,r:i32*,r:i32*,u64 window 0 ndrange\n",
	  "line 3: kernel k: more than 28 arguments (a buffer counts twice, a grid six times)" },
	{ START "kernel k void\n", "line 3: kernel k has no window" },
	{ START "kernel k void window\n", "line 3: a number is missing after \"window\"" },
	{ START "kernel k void window 256\n", "line 3: window: \"256\" is not from 0 to 255" },
	{ START "kernel k void window 255 units 2\n", "line 3: kernel k: no window past 255" },
	{ START "kernel k void window 0 units 0\n", "line 3: units: \"0\" is not from 1 to 32" },
	{ START "kernel k void window 0 units 33\n", "line 3: units: \"33\" is not from 1 to 32" },
	{ START "kernel k void window 0 slower 17\n", "line 3: write \"slower 17%\"" },
	{ START "kernel k void window 0 slower\n", "line 3: write \"slower 17%\"" },
	{ START "kernel k void window 0 slower 1001%\n",
	  "line 3: slower: \"1001\" is not from 0 to 1000" },
	{ START "kernel k void window 0 run\n", "line 3: a time is missing after \"run\"" },
	{ START "kernel k void window 0 ndrange 0\n",
	  "line 3: ndrange: \"0\" is not from 1 to 18446744073709551615" },
	{ START "kernel k void window 0 fast\n",
	  "line 3: \"fast\" is not window, units, slower, run, ndrange or pure" },
	{ START "kernel k void window 0\nkernel k void window 1\n",
	  "line 4: kernel k stands there twice" },
	{ START "kernel k void window 0 units 3\nkernel l void window 2\n",
	  "line 4: kernel l: window 2 is another's" },
	{ START "flash f\n",
	  "line 3: \"flash\" is not bitstream, board, load, configure, memory, tenant or kernel" },
	{ "bitstream a 1\nload 0 f " ZEROES "\nconfigure 1s\nkernel k void window 0\n",
	  "bitstream a names no board" },
	{ START "configure 1s\nkernel k void window 0\n", "bitstream a has no file to load" },
	{ START "load 0 f " ZEROES "\nkernel k void window 0\n",
	  "bitstream a does not say how long loading takes" },
	{ START "load 0 f " ZEROES "\nconfigure 1s\n", "bitstream a has no kernel" },
	{ "bitstream a 1\n\x7f\n", "line 2: byte 0x7f is not text" },
};

START_TEST(test_bitstream_parse_refuses_and_names_the_line)
{
	struct gantry_bitstream *b = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(parse(bad[_i].text, &b, &err), -EINVAL);
	ck_assert_str_eq(err.text, bad[_i].sentence);
	ck_assert_ptr_null(b);
}
END_TEST

START_TEST(test_bitstream_parse_takes_32_kernels_and_no_more)
{
	char text[4096];
	struct gantry_bitstream *b = NULL;
	int n = snprintf(text, sizeof(text), START "load 0 f " ZEROES "\nconfigure 1s\n");

	for (unsigned int i = 0; i < GANTRY_BITSTREAM_MAX_KERNELS; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "kernel k%u void window %u\n", i,
			      i);
	ck_assert_int_eq(parse(text, &b, NULL), 0);
	free(b);
	b = NULL;
	(void)snprintf(text + n, sizeof(text) - (size_t)n, "kernel more void window 99\n");
	ck_assert_int_eq(parse(text, &b, NULL), -EINVAL);
	ck_assert_ptr_null(b);
}
END_TEST

/* ---- files ---- */

static char folder[] = "/tmp/gantry-bitstream-XXXXXX";

static void put(const char *name, const char *content)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_int_eq(gantry_file_replace(path, content, strlen(content), 0644), 0);
}

static void drop(const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	ck_assert_int_eq(unlink(path), 0);
}

static struct gantry_bitstream *of_bits(void)
{
	struct gantry_bitstream *b = NULL;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(parse(START "load 1 f.bit " BITS_HASH
				     "\nconfigure 1s\nkernel k void window 0\n",
			       &b, NULL),
			 0);
	return b;
}

START_TEST(test_bitstream_open_file_gives_a_copy_that_nothing_changes)
{
	struct gantry_bitstream *b = of_bits();
	struct gantry_err err = GANTRY_ERR_NONE;
	char text[8] = "";
	int fd = -1;

	put("f.bit", "bits");
	ck_assert_msg(gantry_bitstream_open_file(b, folder, 1, &fd, &err) == 0, "%s", err.text);
	put("f.bit", "evil");
	ck_assert_int_eq(pread(fd, text, sizeof(text), 0), 4);
	ck_assert_str_eq(text, "bits");
	ck_assert_int_eq(pwrite(fd, "evil", 4, 0), -1);
	ck_assert_int_eq(ftruncate(fd, 2), -1);
	close(fd);
	drop("f.bit");
	rmdir(folder);
	free(b);
}
END_TEST

START_TEST(test_bitstream_open_file_refuses_what_the_manifest_was_not_written_for)
{
	static const char *const contents[] = { "bit", "bits ", "bitt", "" };
	struct gantry_bitstream *b = of_bits();
	int fd = -7;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(contents); i++) {
		struct gantry_err err = GANTRY_ERR_NONE;

		put("f.bit", contents[i]);
		ck_assert_int_eq(gantry_bitstream_open_file(b, folder, 1, &fd, &err), -EBADMSG);
		ck_assert_ptr_nonnull(
			strstr(err.text, "f.bit is not the file that the manifest of a"));
		ck_assert_int_eq(fd, -7);
	}
	drop("f.bit");
	rmdir(folder);
	free(b);
}
END_TEST

/* A file with a hole: nothing of it is read. */
START_TEST(test_bitstream_open_file_refuses_what_is_longer_than_any_image)
{
	struct gantry_bitstream *b = of_bits();
	struct gantry_err err = GANTRY_ERR_NONE;
	char path[128];
	int fd = -7;

	put("f.bit", "bits");
	(void)snprintf(path, sizeof(path), "%s/f.bit", folder);
	ck_assert_int_eq(truncate(path, (off_t)GANTRY_BITSTREAM_MAX_FILE_BYTES + 1), 0);
	ck_assert_int_eq(gantry_bitstream_open_file(b, folder, 1, &fd, &err), -EFBIG);
	ck_assert_msg(strstr(err.text, "f.bit has more than 536870912 bytes") != NULL, "%s",
		      err.text);
	ck_assert_int_eq(fd, -7);
	drop("f.bit");
	rmdir(folder);
	free(b);
}
END_TEST

START_TEST(test_bitstream_open_file_follows_no_link_and_waits_for_no_fifo)
{
	struct gantry_bitstream *b = of_bits();
	char path[128], target[128];
	int fd = -7;

	(void)snprintf(path, sizeof(path), "%s/f.bit", folder);
	(void)snprintf(target, sizeof(target), "%s/g.bit", folder);
	ck_assert_int_eq(gantry_bitstream_open_file(b, folder, 1, &fd, NULL), -ENOENT);
	put("g.bit", "bits");
	ck_assert_int_eq(symlink(target, path), 0);
	ck_assert_int_eq(gantry_bitstream_open_file(b, folder, 1, &fd, NULL), -EPERM);
	drop("f.bit");
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(gantry_bitstream_open_file(b, folder, 1, &fd, NULL), -EPERM);
	ck_assert_int_eq(fd, -7);
	drop("f.bit");
	drop("g.bit");
	rmdir(folder);
	free(b);
}
END_TEST

START_TEST(test_bitstream_read_names_the_file)
{
	struct gantry_bitstream *b = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;
	char path[128];

	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/m", folder);
	ck_assert_int_eq(gantry_bitstream_read(path, &b, &err), -ENOENT);
	put("m", "bitstream a 1\nboard b\nflash\n");
	ck_assert_int_eq(gantry_bitstream_read(path, &b, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "/m: line 3: "));
	ck_assert_ptr_null(b);
	drop("m");
	rmdir(folder);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bitstream");
	TCase *tc = gantry_unit_case(suite, "manifest");

	tcase_add_test(tc, test_bitstream_parse_reads_every_statement);
	tcase_add_test(tc,
		       test_bitstream_parse_of_a_whole_image_loses_memory_unless_it_says_otherwise);
	tcase_add_test(tc, test_bitstream_module_has_its_kernels_and_its_tenant);
	tcase_add_loop_test(tc, test_bitstream_parse_refuses_and_names_the_line, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(tc, test_bitstream_parse_takes_32_kernels_and_no_more);
	tc = gantry_unit_case(suite, "file");
	tcase_add_test(tc, test_bitstream_open_file_gives_a_copy_that_nothing_changes);
	tcase_add_test(tc, test_bitstream_open_file_refuses_what_the_manifest_was_not_written_for);
	tcase_add_test(tc, test_bitstream_open_file_refuses_what_is_longer_than_any_image);
	tcase_add_test(tc, test_bitstream_open_file_follows_no_link_and_waits_for_no_fifo);
	tcase_add_test(tc, test_bitstream_read_names_the_file);
	return gantry_unit_run(suite);
}
