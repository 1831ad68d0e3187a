/* SPDX-License-Identifier: Apache-2.0 */
/* Modules of SPIR-V and the lines before them: what is one, and what is wrong with others. */
#include "proto/spirv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tests/unit/runner.h"

#define OP(words, op) ((uint32_t)(words) << 16 | (op))

/* A module with an int constant 7, a bool 8, a half 9 and a constant 10 of a type that nobody gave; it prints. */
static const uint32_t whole[] = {
	GANTRY_SPIRV_MAGIC,
	0x00010000,
	0,
	40,
	0,
	OP(2, 17),
	6, /* Kernel */
	OP(4, 71),
	21,
	1,
	7, /* SpecId */
	OP(4, 71),
	22,
	1,
	8,
	OP(4, 71),
	23,
	1,
	9,
	OP(4, 71),
	24,
	1,
	10,
	OP(4, 71),
	25,
	1,
	11, /* of what is no constant */
	OP(4, 21),
	2,
	32,
	0, /* int */
	OP(2, 20),
	3, /* bool */
	OP(3, 22),
	4,
	16, /* half */
	OP(4, 50),
	2,
	21,
	100,
	OP(3, 48),
	3,
	22,
	OP(4, 50),
	4,
	23,
	0,
	OP(4, 50),
	39,
	24,
	0,
	OP(6, 12),
	2,
	30,
	1,
	184,
	31, /* printf */
};
#define WORDS (sizeof(whole) / sizeof(whole[0]))

START_TEST(test_module_of_kernels_is_whole_and_tells_its_constants)
{
	ck_assert_ptr_null(gantry_spirv_check(whole, sizeof(whole)));
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 7), 4);
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 8), 1);
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 9), 2);
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 10), 0);
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 11), 0);
	ck_assert_uint_eq(gantry_spirv_constant_bytes(whole, sizeof(whole), 0), 0);
	ck_assert(gantry_spirv_prints(whole, sizeof(whole)));
	ck_assert(!gantry_spirv_prints(whole, sizeof(whole) - 6 * 4));
}
END_TEST

/* In memory of exactly that size, so that a byte too many is seen. */
START_TEST(test_module_that_is_cut_short_is_refused_or_whole)
{
	for (size_t n = 0; n < sizeof(whole); n++) {
		char *copy = malloc(n ? n : 1);
		bool at_end = false;

		ck_assert_ptr_nonnull(copy);
		memcpy(copy, whole, n);
		for (size_t i = 5; i <= WORDS; i += i < WORDS ? whole[i] >> 16 : 1)
			at_end = at_end || i * 4 == n;
		if (at_end && n >= 7 * 4) {
			ck_assert_ptr_null(gantry_spirv_check(copy, n));
			(void)gantry_spirv_constant_bytes(copy, n, 7);
			(void)gantry_spirv_prints(copy, n);
		} else {
			ck_assert_ptr_nonnull(gantry_spirv_check(copy, n));
		}
		free(copy);
	}
}
END_TEST

static const struct {
	size_t at;
	uint32_t word;
	const char *sentence;
} changes[] = {
	{ 0, 0x03022307, "no SPIR-V" }, { 1, 0x00020000, "version" },
	{ 1, 0x00010700, "version" },	{ 1, 0x01010000, "version" },
	{ 1, 0x00010001, "version" },	{ 3, 0, "names" },
	{ 3, 4194304, "names" },	{ 4, 1, "schema" },
	{ 5, OP(0, 17), "do not fit" }, { 5, OP(0xffff, 17), "do not fit" },
	{ 7, OP(5, 71), "do not fit" }, { 6, 1, "none of OpenCL" },
};

START_TEST(test_module_that_was_altered_is_refused_with_what_is_wrong)
{
	uint32_t copy[WORDS];
	const char *wrong;

	memcpy(copy, whole, sizeof(whole));
	copy[changes[_i].at] = changes[_i].word;
	wrong = gantry_spirv_check(copy, sizeof(copy));
	ck_assert_ptr_nonnull(wrong);
	ck_assert_msg(strstr(wrong, changes[_i].sentence) != NULL, "%s", wrong);
}
END_TEST

/* ---- lines ---- */

static size_t with_lines(const char *lines, char *to)
{
	size_t n = strlen(lines);

	memcpy(to, lines, n);
	memcpy(to + n, whole, sizeof(whole));
	return n + sizeof(whole);
}

START_TEST(test_module_is_found_behind_options_and_constants)
{
	static const char *const good[] = {
		"",
		"//gantry-options:\n",
		"//gantry-options: -D X=1\n//gantry-constant: 7 05000000\n",
		"//gantry-constant: 4294967295 00\n//gantry-constant: 8 0102030405060708\n",
	};
	static const char *const bad[] = {
		" ",
		"\n",
		"//gantry-options: -D X",
		"//gantry-constant: 7\n",
		"//gantry-constant: 7 \n",
		"//gantry-constant: 7 050000\n",
		"//gantry-constant: 7 05000\n",
		"//gantry-constant: 7 0500000G\n",
		"//gantry-constant: 4294967296 00\n",
		"//gantry-constant: -1 00\n",
		"//gantry-constant: 7 010203040506070809\n",
		"//gantry-constant: 7 00000000000000000000000000000000\n",
		"//gantry-constant: 7 05000000\n//gantry-options: -w\n",
		"__kernel void k() {}\n",
	};
	char bytes[sizeof(whole) + 256];
	size_t off;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(good); i++) {
		off = 77;
		ck_assert_msg(gantry_spirv_find(bytes, with_lines(good[i], bytes), &off), "%s",
			      good[i]);
		ck_assert_uint_eq(off, strlen(good[i]));
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(bad); i++) {
		off = 77;
		ck_assert_msg(!gantry_spirv_find(bytes, with_lines(bad[i], bytes), &off), "%s",
			      bad[i]);
		ck_assert_uint_eq(off, 77);
	}
	ck_assert(!gantry_spirv_find(bytes, 0, &off));
	ck_assert(!gantry_spirv_find("//gantry-options: x\n", 20, &off));
}
END_TEST

START_TEST(test_constants_come_back_from_their_lines)
{
	const struct gantry_spirv_constant wanted = { .id = 4294967295u,
						      .bytes = 8,
						      .value = { 1, 2, 3, 4, 5, 6, 7, 0xfe } };
	struct gantry_spirv_constant found;
	char line[GANTRY_SPIRV_LINE];
	const char *at = line;

	gantry_spirv_line(&wanted, line);
	ck_assert_str_eq(line, "//gantry-constant: 4294967295 01020304050607fe\n");
	ck_assert(gantry_spirv_next(&at, line + strlen(line), &found));
	ck_assert_ptr_eq(at, line + strlen(line));
	ck_assert_uint_eq(found.id, wanted.id);
	ck_assert_uint_eq(found.bytes, wanted.bytes);
	ck_assert_mem_eq(found.value, wanted.value, 8);
	for (size_t n = 0; n < strlen(line); n++) {
		at = line;
		ck_assert(!gantry_spirv_next(&at, line + n, &found));
		ck_assert_ptr_eq(at, line);
	}
}
END_TEST

START_TEST(test_more_constants_than_there_may_be_are_no_program)
{
	size_t room = (GANTRY_SPIRV_MAX_CONSTANTS + 1) * GANTRY_SPIRV_LINE + sizeof(whole), n = 0,
	       off;
	char *bytes = malloc(room);

	ck_assert_ptr_nonnull(bytes);
	for (uint32_t i = 0; i <= GANTRY_SPIRV_MAX_CONSTANTS; i++) {
		const struct gantry_spirv_constant constant = { .id = i, .bytes = 1 };

		if (i == GANTRY_SPIRV_MAX_CONSTANTS) {
			memcpy(bytes + n, whole, sizeof(whole));
			ck_assert(gantry_spirv_find(bytes, n + sizeof(whole), &off));
		}
		gantry_spirv_line(&constant, bytes + n);
		n += strlen(bytes + n);
	}
	memcpy(bytes + n, whole, sizeof(whole));
	ck_assert(!gantry_spirv_find(bytes, n + sizeof(whole), &off));
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("spirv");
	TCase *modules = gantry_unit_case(suite, "modules");
	TCase *lines = gantry_unit_case(suite, "lines");

	tcase_add_test(modules, test_module_of_kernels_is_whole_and_tells_its_constants);
	tcase_add_test(modules, test_module_that_is_cut_short_is_refused_or_whole);
	tcase_add_loop_test(modules, test_module_that_was_altered_is_refused_with_what_is_wrong, 0,
			    GANTRY_ARRAY_SIZE(changes));
	tcase_add_test(lines, test_module_is_found_behind_options_and_constants);
	tcase_add_test(lines, test_constants_come_back_from_their_lines);
	tcase_add_test(lines, test_more_constants_than_there_may_be_are_no_program);
	return gantry_unit_run(suite);
}
