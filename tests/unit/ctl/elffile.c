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
	SEGMENT,
	STRINGS,
	SYMBOLS,
	DYNAMIC,
	NSECTIONS,
};

struct file {
	Elf64_Ehdr header;
	Elf64_Shdr sections[NSECTIONS];
	char names[64];
	char strings[128];
	Elf64_Sym symbols[3];
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

/* A program with code for GPUs that it registers with a runtime from elsewhere. */
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
	memcpy(file.names, "\0.nvFatBinSegment", sizeof("\0.nvFatBinSegment"));
	memcpy(file.strings, "\0__cudaRegisterFatBinary\0$ORIGIN/../../nvidia/cu13/lib",
	       sizeof("\0__cudaRegisterFatBinary\0$ORIGIN/../../nvidia/cu13/lib"));
	file.symbols[1].st_name = 1; /* undefined */
	section(&file, NAMES, 0, SHT_STRTAB, file.names, sizeof(file.names), 0);
	section(&file, SEGMENT, 1, SHT_PROGBITS, file.names, 16, 0);
	section(&file, STRINGS, 0, SHT_STRTAB, file.strings, sizeof(file.strings), 0);
	section(&file, SYMBOLS, 0, SHT_DYNSYM, file.symbols, sizeof(file.symbols), STRINGS);
	section(&file, DYNAMIC, 0, SHT_DYNAMIC, file.dynamic, sizeof(file.dynamic), STRINGS);
	return file;
}

START_TEST(test_a_program_over_a_shared_runtime_is_told_from_one_with_its_own)
{
	struct file file = a_program();
	struct gantry_elf elf = look_at(&file, sizeof(file));

	ck_assert(elf.is_elf && elf.has_gpu_code && !elf.has_static_runtime);
	file.symbols[1].st_shndx = 7; /* it is inside */
	ck_assert(look_at(&file, sizeof(file)).has_static_runtime);
	memset(&file.symbols[1], 0, sizeof(file.symbols[1]));
	ck_assert(look_at(&file, sizeof(file)).has_static_runtime);
	/* Without code for GPUs it does not matter. */
	file.sections[SEGMENT].sh_name = 0;
	elf = look_at(&file, sizeof(file));
	ck_assert(elf.is_elf && !elf.has_gpu_code && !elf.has_static_runtime);
}
END_TEST

START_TEST(test_folders_of_wheels_count_where_they_come_first)
{
	struct file file = a_program();

	file.dynamic[1].d_tag = DT_RPATH;
	file.dynamic[1].d_un.d_val = 1 + sizeof("__cudaRegisterFatBinary");
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
		Elf64_Shdr section = { .sh_type = i % 2 ? SHT_DYNSYM : SHT_DYNAMIC,
				       .sh_offset = large,
				       .sh_size = large,
				       .sh_link = STRINGS };

		if (i == NAMES || i == STRINGS)
			section = (Elf64_Shdr){ .sh_type = SHT_STRTAB,
						.sh_offset = 2 * large,
						.sh_size = large };
		ck_assert_uint_eq(fwrite(&section, 1, sizeof(section), out), sizeof(section));
	}
	ck_assert_int_eq(fclose(out), 0);
	ck_assert_int_eq(gantry_elf_look(path, &elf), 0);
	ck_assert(elf.is_elf && !elf.has_gpu_code && !elf.names_wheels);
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
	tcase_add_test(tc, test_a_program_over_a_shared_runtime_is_told_from_one_with_its_own);
	tcase_add_test(tc, test_folders_of_wheels_count_where_they_come_first);
	tcase_add_test(tc, test_what_is_no_elf_file_says_nothing);
	tcase_add_test(tc, test_files_that_lie_are_borne);
	tcase_add_test(tc, test_large_files_that_lie_are_looked_at_soon);
	failed = gantry_unit_run(suite);
	unlink(path);
	return failed;
}
