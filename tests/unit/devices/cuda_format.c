/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver may be given. Images here are made by hand, as the compiler lays them out. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "devices/cuda/compile.h"
#include "tests/unit/runner.h"

static struct gantry_err err;
static unsigned char image[4096];

static int check(size_t nbytes, const char *arch)
{
	/* Of its own, so that the address sanitizer sees a read past the end. */
	void *copy = malloc(nbytes ? nbytes : 1);
	int r;

	memcpy(copy, image, nbytes);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_cuda_image_check(copy, nbytes, arch, &err);
	free(copy);
	ck_assert(r == 0 || (r == -ENOEXEC && err.text[0] != '\0'));
	return r;
}

/* A cubin of two sections and a segment at @at; returns its length. */
static size_t make_cubin(unsigned char *at, unsigned arch, bool old_abi)
{
	const size_t data = sizeof(Elf64_Ehdr), sections = data + 64;
	Elf64_Ehdr header = { .e_machine = EM_CUDA,
			      .e_ehsize = sizeof(header),
			      .e_shnum = 2,
			      .e_shentsize = sizeof(Elf64_Shdr),
			      .e_shoff = sections,
			      .e_phnum = 1,
			      .e_phentsize = sizeof(Elf64_Phdr) };
	Elf64_Shdr section[2] = { { 0 },
				  { .sh_type = SHT_PROGBITS, .sh_offset = data, .sh_size = 64 } };
	Elf64_Phdr segment = { .p_offset = data, .p_filesz = 64 };

	memcpy(header.e_ident, ELFMAG, SELFMAG);
	header.e_ident[EI_CLASS] = ELFCLASS64;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	header.e_ident[EI_ABIVERSION] = old_abi ? 7 : 8;
	header.e_flags = old_abi ? 0x00500500 | arch : 0x06000004 | arch << 8;
	header.e_phoff = sections + sizeof(section);
	memcpy(at, &header, sizeof(header));
	memcpy(at + sections, section, sizeof(section));
	memcpy(at + header.e_phoff, &segment, sizeof(segment));
	return header.e_phoff + sizeof(segment);
}

static void put(unsigned char *at, uint64_t value, size_t bytes)
{
	memcpy(at, &value, bytes);
}

/* A part's header of 64 bytes. */
static void make_part(unsigned char *at, unsigned kind, unsigned arch, uint64_t bytes)
{
	memset(at, 0, 64);
	put(at, kind, 2);
	put(at + 4, 64, 4);
	put(at + 8, bytes, 8);
	put(at + 28, arch, 4);
}

/* A fatbin of a cubin and a PTX part; returns its length. */
static size_t make_fatbin(unsigned cubin, unsigned ptx)
{
	size_t len = 16;
	size_t cubin_bytes = make_cubin(image + len + 64, cubin, false);

	make_part(image + len, 2, cubin, cubin_bytes);
	len += 64 + cubin_bytes;
	make_part(image + len, 1, ptx, 32);
	len += 64 + 32;
	put(image, 0xba55ed50u, 4);
	put(image + 4, 1, 2);
	put(image + 6, 16, 2);
	put(image + 8, len - 16, 8);
	return len;
}

START_TEST(test_cubin_of_the_architecture_passes)
{
	for (int old = 0; old <= 1; old++) {
		size_t len = make_cubin(image, 90, old);

		ck_assert_int_eq(gantry_cuda_image_sort(image, len), GANTRY_CUDA_CUBIN);
		ck_assert_int_eq(check(len, "sm_90"), 0);
		ck_assert_int_eq(check(len, NULL), 0);
		len = make_cubin(image, 80, old);
		ck_assert_int_eq(check(len, "sm_86"), 0);
	}
}
END_TEST

START_TEST(test_cubin_of_another_architecture_is_named)
{
	size_t len = make_cubin(image, 80, false);

	ck_assert_int_eq(check(len, "sm_90"), -ENOEXEC);
	ck_assert_str_eq(err.text, "the cubin is for sm_80, and the device is sm_90");
	len = make_cubin(image, 86, true);
	ck_assert_int_eq(check(len, "sm_80"), -ENOEXEC);
}
END_TEST

START_TEST(test_cubin_cut_short_is_refused_at_any_length)
{
	size_t len = make_cubin(image, 90, false);

	for (size_t part = 0; part < len; part++)
		ck_assert_int_eq(check(part, "sm_90"), -ENOEXEC);
	ck_assert_int_eq(check(len, "sm_90"), 0);
}
END_TEST

START_TEST(test_cubin_with_wild_headers_is_refused)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} wild[] = {
		{ offsetof(Elf64_Ehdr, e_shoff), 8, UINT64_MAX - 8 },
		{ offsetof(Elf64_Ehdr, e_shnum), 2, 0xffff },
		{ offsetof(Elf64_Ehdr, e_shentsize), 2, 1 },
		{ offsetof(Elf64_Ehdr, e_shstrndx), 2, 9 },
		{ offsetof(Elf64_Ehdr, e_phoff), 8, UINT64_MAX },
		{ offsetof(Elf64_Ehdr, e_phnum), 2, 0x7fff },
		{ offsetof(Elf64_Ehdr, e_phentsize), 2, 0 },
		{ offsetof(Elf64_Ehdr, e_machine), 2, EM_X86_64 },
		{ EI_CLASS, 1, ELFCLASS32 },
		/* the second section's offset and size, the segment's offset */
		{ 128 + 64 + offsetof(Elf64_Shdr, sh_offset), 8, UINT64_MAX - 16 },
		{ 128 + 64 + offsetof(Elf64_Shdr, sh_size), 8, UINT64_MAX },
		{ 256 + offsetof(Elf64_Phdr, p_offset), 8, 1u << 20 },
	};

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(wild); i++) {
		size_t len = make_cubin(image, 90, false);

		put(image + wild[i].at, wild[i].value, wild[i].bytes);
		ck_assert_msg(check(len, "sm_90") == -ENOEXEC, "case %u", i);
	}
}
END_TEST

START_TEST(test_fatbin_with_something_for_the_device_passes)
{
	size_t len = make_fatbin(80, 70);

	ck_assert_int_eq(gantry_cuda_image_sort(image, len), GANTRY_CUDA_FATBIN);
	ck_assert_int_eq(check(len, "sm_86"), 0);	/* the cubin */
	ck_assert_int_eq(check(len, "sm_100"), 0);	/* the PTX */
	ck_assert_int_eq(check(len + 100, "sm_90"), 0); /* what comes after it harms nobody */
}
END_TEST

START_TEST(test_fatbin_without_anything_for_the_device_says_so)
{
	size_t len = make_fatbin(90, 90);

	ck_assert_int_eq(check(len, "sm_80"), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "nothing for sm_80"));
}
END_TEST

START_TEST(test_fatbin_cut_short_is_refused_at_any_length)
{
	size_t len = make_fatbin(90, 90);

	for (size_t part = 0; part < len; part++)
		ck_assert_int_eq(check(part, "sm_90"), -ENOEXEC);
	ck_assert_int_eq(check(len, "sm_90"), 0);
}
END_TEST

START_TEST(test_fatbin_with_wild_headers_is_refused)
{
	static const struct {
		size_t at, bytes;
		uint64_t value;
	} wild[] = {
		{ 6, 2, 0 }, /* size of its header */
		{ 6, 2, 0xffff },
		{ 8, 8, UINT64_MAX }, /* of its parts */
		{ 8, 8, UINT64_MAX - 15 },
		{ 16 + 4, 4, 0 }, /* size of a part's header */
		{ 16 + 4, 4, UINT32_MAX },
		{ 16 + 8, 8, UINT64_MAX - 63 }, /* of its contents */
		{ 16 + 8, 8, 1 },		/* the next part begins in the middle */
		{ 16 + 16, 4, UINT32_MAX },	/* compressed */
		{ 16 + 64 + offsetof(Elf64_Ehdr, e_shoff), 8, 1u << 20 },
	};

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(wild); i++) {
		size_t len = make_fatbin(90, 90);

		put(image + wild[i].at, wild[i].value, wild[i].bytes);
		ck_assert_msg(check(len, "sm_90") == -ENOEXEC, "case %u", i);
	}
}
END_TEST

static void set_text(const char *text, size_t *ret_len)
{
	*ret_len = strlen(text);
	memcpy(image, text, *ret_len + 1);
}

START_TEST(test_ptx_needs_its_end)
{
	size_t len;

	set_text("// made by hand\n/* with **comments*/\n\t.version 8.0\n.target sm_90\n", &len);
	ck_assert_int_eq(gantry_cuda_image_sort(image, len), GANTRY_CUDA_PTX);
	ck_assert_int_eq(check(len, "sm_90"), -ENOEXEC);
	ck_assert_int_eq(check(len + 1, "sm_90"), 0);
	image[len + 1] = '\0';
	ck_assert_int_eq(check(len + 2, "sm_90"), -ENOEXEC);
}
END_TEST

START_TEST(test_anything_else_is_source_and_not_for_the_driver)
{
	static const char *const texts[] = {
		"",
		" ",
		"/",
		"/*",
		"/*/",
		"// .version 8.0",
		"/* .version 8.0",
		".version",
		".versions 8.0",
		"extern \"C\" __global__ void f() {}",
		"\x7f"
		"EL",
		"\xb1\x43\x62\x46 a wrapper with pointers",
	};

	for (unsigned int i = 0; i < GANTRY_ARRAY_SIZE(texts); i++) {
		size_t len;

		set_text(texts[i], &len);
		ck_assert_msg(gantry_cuda_image_sort(image, len) == GANTRY_CUDA_SOURCE, "text %u",
			      i);
		ck_assert_int_eq(check(len, NULL), -ENOEXEC);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda format");
	TCase *tc = gantry_unit_case(suite, "format");

	tcase_add_test(tc, test_cubin_of_the_architecture_passes);
	tcase_add_test(tc, test_cubin_of_another_architecture_is_named);
	tcase_add_test(tc, test_cubin_cut_short_is_refused_at_any_length);
	tcase_add_test(tc, test_cubin_with_wild_headers_is_refused);
	tcase_add_test(tc, test_fatbin_with_something_for_the_device_passes);
	tcase_add_test(tc, test_fatbin_without_anything_for_the_device_says_so);
	tcase_add_test(tc, test_fatbin_cut_short_is_refused_at_any_length);
	tcase_add_test(tc, test_fatbin_with_wild_headers_is_refused);
	tcase_add_test(tc, test_ptx_needs_its_end);
	tcase_add_test(tc, test_anything_else_is_source_and_not_for_the_driver);
	return gantry_unit_run(suite);
}
