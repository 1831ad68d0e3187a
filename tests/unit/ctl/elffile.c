/* SPDX-License-Identifier: Apache-2.0 */
/* What is read out of ELF files: small ones put together here, and the same with bytes changed. */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "host-agent/ctl/elffile.h"
#include "tests/unit/runner.h"

#define MUTATIONS 500

enum {
	NONE,
	NAMES,
	CONSTANTS,
	STRINGS,
	DYNAMIC,
	NSECTIONS,
};

/* What a runtime that was linked in has among its constants. */
#define DRIVER	   "libcuda.so.1"
#define ERROR_NAME "cudaErrorInsufficientDriver"
#define ERROR_TEXT "CUDA driver version is insufficient for CUDA runtime version"

struct file {
	Elf64_Ehdr header;
	Elf64_Shdr sections[NSECTIONS];
	char names[64];
	char constants[256];
	char strings[128];
	Elf64_Dyn dynamic[3];
};

static char path[] = "/tmp/gantry-elf-XXXXXX";

static void write_file(const void *bytes, size_t len)
{
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(fwrite(bytes, 1, len, out), len);
	ck_assert_int_eq(fclose(out), 0);
}

static struct gantry_elf look_at(const void *bytes, size_t len)
{
	struct gantry_elf elf;

	write_file(bytes, len);
	ck_assert_int_eq(gantry_elf_look(path, &elf), 0);
	return elf;
}

static void section(struct file *file, int i, uint32_t name, uint32_t type, const void *at,
		    uint64_t len, uint32_t link)
{
	file->sections[i] = (Elf64_Shdr){
		.sh_name = name,
		.sh_type = type,
		.sh_offset = (uint64_t)((const char *)at - (const char *)file),
		.sh_size = len,
		.sh_link = link,
	};
}

/* A program with a runtime inside. */
static struct file a_program(void)
{
	struct file file;

	memset(&file, 0, sizeof(file));
	memcpy(file.header.e_ident, ELFMAG, SELFMAG);
	file.header.e_ident[EI_CLASS] = ELFCLASS64;
	file.header.e_ident[EI_DATA] = ELFDATA2LSB;
	file.header.e_shentsize = sizeof(Elf64_Shdr);
	file.header.e_shnum = NSECTIONS;
	file.header.e_shstrndx = NAMES;
	file.header.e_shoff = offsetof(struct file, sections);
	memcpy(file.names, "\0.rodata.str1.8\0.data", sizeof("\0.rodata.str1.8\0.data"));
	memcpy(file.constants, "x\0" DRIVER "\0" ERROR_NAME "\0" ERROR_TEXT,
	       sizeof("x\0" DRIVER "\0" ERROR_NAME "\0" ERROR_TEXT));
	memcpy(file.strings, "\0libcudart.so.13\0$ORIGIN/../../nvidia/cu13/lib",
	       sizeof("\0libcudart.so.13\0$ORIGIN/../../nvidia/cu13/lib"));
	section(&file, NAMES, 0, SHT_STRTAB, file.names, sizeof(file.names), 0);
	section(&file, CONSTANTS, 1, SHT_PROGBITS, file.constants, sizeof(file.constants), 0);
	section(&file, STRINGS, 0, SHT_STRTAB, file.strings, sizeof(file.strings), 0);
	section(&file, DYNAMIC, 0, SHT_DYNAMIC, file.dynamic, sizeof(file.dynamic), STRINGS);
	return file;
}

static bool is_static(const struct file *file)
{
	return look_at(file, sizeof(*file)).has_static_runtime;
}

START_TEST(test_runtime_inside_is_known_by_its_constants)
{
	static const char *const marks[] = { DRIVER, ERROR_NAME, ERROR_TEXT };
	struct file file = a_program();

	ck_assert(is_static(&file));
	for (size_t i = 0; i < 3; i++) {
		char *mark = memmem(file.constants, sizeof(file.constants), marks[i],
				    strlen(marks[i]) + 1);

		/* As part of something longer it is none. */
		ck_assert_ptr_nonnull(mark);
		mark[strlen(marks[i])] = 'x';
		ck_assert(!is_static(&file));
		mark[strlen(marks[i])] = '\0';
	}
	ck_assert(is_static(&file));
}
END_TEST

START_TEST(test_runtime_inside_is_looked_for_among_constants_only)
{
	struct file file = a_program();

	file.sections[CONSTANTS].sh_name = 1 + sizeof(".rodata.str1.8");
	ck_assert(!is_static(&file));
	file.sections[CONSTANTS].sh_name = 1;
	file.sections[CONSTANTS].sh_type = SHT_NOBITS;
	ck_assert(!is_static(&file));
	file.sections[CONSTANTS].sh_type = SHT_PROGBITS;
	file.sections[CONSTANTS].sh_size = 20;
	ck_assert(!is_static(&file));
}
END_TEST

/* A library that one could be linked with instead. */
START_TEST(test_shared_runtime_is_none_that_was_linked_in)
{
	struct file file = a_program();

	file.dynamic[1].d_tag = DT_SONAME;
	file.dynamic[1].d_un.d_val = 1;
	ck_assert(!is_static(&file));
	file.dynamic[1].d_tag = DT_NEEDED; /* and one inside all the same */
	ck_assert(is_static(&file));
}
END_TEST

/* Constants are read in pieces. */
START_TEST(test_runtime_inside_is_seen_wherever_it_lies)
{
	const size_t piece = 1u << 20, len = 3 * piece;
	struct file file = a_program();
	char *bytes = calloc(1, sizeof(file) + len);

	ck_assert_ptr_nonnull(bytes);
	section(&file, CONSTANTS, 1, SHT_PROGBITS, &file + 1, len, 0);
	for (size_t at = 2 * piece - 300; at < 2 * piece + 100; at += 7) {
		memset(bytes, 0, sizeof(file) + len);
		memcpy(bytes, &file, sizeof(file));
		memcpy(bytes + sizeof(file) + at, file.constants, sizeof(file.constants));
		ck_assert_msg(look_at(bytes, sizeof(file) + len).has_static_runtime, "at %zu", at);
	}
	free(bytes);
}
END_TEST

START_TEST(test_folders_of_wheels_count_where_they_come_first)
{
	struct file file = a_program();

	file.dynamic[1].d_tag = DT_RPATH;
	file.dynamic[1].d_un.d_val = 1 + sizeof("libcudart.so.13");
	ck_assert(look_at(&file, sizeof(file)).names_wheels);
	file.dynamic[1].d_tag = DT_RUNPATH;
	ck_assert(!look_at(&file, sizeof(file)).names_wheels);
}
END_TEST

START_TEST(test_what_is_no_elf_file_says_nothing)
{
	struct file file = a_program();
	struct gantry_elf elf;

	ck_assert(!look_at("#!/bin/sh\n", 10).is_elf);
	ck_assert(!look_at("", 0).is_elf);
	file.header.e_ident[EI_CLASS] = ELFCLASS32;
	ck_assert(!look_at(&file, sizeof(file)).is_elf);
	ck_assert_int_eq(gantry_elf_look("/nonexistent/file", &elf), -ENOENT);
	ck_assert_int_eq(gantry_elf_look("/", &elf), 0);
	ck_assert(!elf.is_elf);
}
END_TEST

/* It need not be right about them, but it has to come back, and within its memory. */
START_TEST(test_files_that_lie_are_borne)
{
	uint64_t state = 88172645463325252ull;

	for (int i = 0; i < MUTATIONS; i++) {
		struct file file = a_program();
		uint8_t *bytes = (uint8_t *)&file;
		size_t len = sizeof(file);

		for (int k = 0; k < 4; k++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			bytes[SELFMAG + state % (offsetof(struct file, names) - SELFMAG)] =
				(uint8_t)(state >> 32);
		}
		if (state % 4 == 0)
			len = (size_t)(state >> 8) % sizeof(file);
		(void)look_at(&file, len);
	}
}
END_TEST

/* A file may have as many sections as it likes, each of them large, and all of it be a hole. */
START_TEST(test_large_files_that_lie_are_looked_at_soon)
{
	enum {
		MANY = 4000
	};
	const uint64_t large = 64ull << 20;
	struct file file = a_program();
	uint64_t began_ns = gantry_now_ns();
	struct gantry_elf elf;
	FILE *out = fopen(path, "w");

	ck_assert_ptr_nonnull(out);
	file.header.e_shnum = MANY;
	file.header.e_shoff = 4 * large;
	ck_assert_uint_eq(fwrite(&file, 1, sizeof(file), out), sizeof(file));
	ck_assert_int_eq(fseek(out, (long)(4 * large), SEEK_SET), 0);
	for (uint32_t i = 0; i < MANY; i++) {
		Elf64_Shdr section = { .sh_name = 1,
				       .sh_type = i % 2 ? SHT_PROGBITS : SHT_DYNAMIC,
				       .sh_offset = large,
				       .sh_size = large,
				       .sh_link = STRINGS };

		if (i == NAMES)
			section = file.sections[NAMES];
		else if (i == STRINGS)
			section = (Elf64_Shdr){ .sh_type = SHT_STRTAB,
						.sh_offset = 2 * large,
						.sh_size = large };
		ck_assert_uint_eq(fwrite(&section, 1, sizeof(section), out), sizeof(section));
	}
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_int_eq(gantry_elf_look(path, &elf), 0);
	ck_assert(elf.is_elf && !elf.has_static_runtime && !elf.names_wheels);
	/* Half a second; a quarter of an hour when all were read. */
	ck_assert_uint_lt(gantry_now_ns() - began_ns, 20 * GANTRY_NS_PER_S);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("elf");
	TCase *tc = gantry_unit_case(suite, "elf");
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 1;
	close(fd);
	tcase_add_test(tc, test_runtime_inside_is_known_by_its_constants);
	tcase_add_test(tc, test_runtime_inside_is_looked_for_among_constants_only);
	tcase_add_test(tc, test_shared_runtime_is_none_that_was_linked_in);
	tcase_add_test(tc, test_runtime_inside_is_seen_wherever_it_lies);
	tcase_add_test(tc, test_folders_of_wheels_count_where_they_come_first);
	tcase_add_test(tc, test_what_is_no_elf_file_says_nothing);
	tcase_add_test(tc, test_files_that_lie_are_borne);
	tcase_add_test(tc, test_large_files_that_lie_are_looked_at_soon);
	failed = gantry_unit_run(suite);
	unlink(path);
	return failed;
}
