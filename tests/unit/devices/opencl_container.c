/* SPDX-License-Identifier: Apache-2.0 */
/* What a vendor's loader may be given. Binaries here are made by hand, as PoCL 3.1 and ELF lay them out. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "devices/opencl/container.h"
#include "tests/unit/runner.h"

#define FOLDER "AB/CDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLM"

static struct gantry_err err;

/* A binary that grows at its end. */
struct image {
	unsigned char bytes[4096];
	size_t n;
};

static void put(struct image *to, uint64_t number, size_t bytes)
{
	memcpy(to->bytes + to->n, &number, bytes);
	to->n += bytes;
}

static void put_bytes(struct image *to, const void *bytes, size_t n)
{
	memcpy(to->bytes + to->n, bytes, n);
	to->n += n;
}

static void put_text(struct image *to, const char *text)
{
	put(to, strlen(text), 4);
	put_bytes(to, text, strlen(text));
}

/* What tests change; the rest is as PoCL writes it. */
struct shape {
	const char *folder;
	const char *root;   /* name of the program's file */
	const char *kernel; /* name of the kernel */
	const char *file;   /* name of the kernel's file */
	uint32_t format;
	uint32_t nkernels;
	uint32_t nroots;
	uint32_t nlocals;
};

static const struct shape sound = {
	.folder = FOLDER,
	.root = "/program.bc",
	.kernel = "vadd",
	.file = "/vadd/0-0-0/vadd.so",
	.format = 9,
	.nkernels = 1,
	.nroots = 1,
	.nlocals = 1,
};

static void put_kernel(struct image *to, const struct shape *s)
{
	size_t begin = to->n, args, files;
	uint64_t all_bytes, file_bytes, arg_bytes;

	put(to, 0, 8);
	put(to, 0, 8);
	put(to, 0, 4);
	put_text(to, s->kernel);
	put(to, 1, 4); /* arguments */
	put(to, s->nlocals, 4);
	for (unsigned int i = 0; i < 3 + s->nlocals; i++)
		put(to, 0, 8);
	put_text(to, ""); /* attributes */
	put(to, 0x1f, 8);
	args = to->n;
	put(to, 0x11a3, 4);
	put(to, 0x119b, 4);
	put(to, 0, 8);
	put(to, 1, 4);
	put(to, 8, 4);
	put_text(to, "x");
	put_text(to, "float*");
	files = to->n;
	put_text(to, s->file);
	put_text(to, "\177ELF and more");
	all_bytes = to->n - begin;
	file_bytes = to->n - files;
	arg_bytes = files - args;
	memcpy(to->bytes + begin, &all_bytes, 8);
	memcpy(to->bytes + begin + 8, &file_bytes, 8);
	memcpy(to->bytes + begin + 16, &arg_bytes, 4);
}

static void make(struct image *to, const struct shape *s)
{
	static const char code[] = "BC and what the compiler made";

	to->n = 0;
	put_bytes(to, "poclbin", 8);
	put(to, 0x1122334455667788, 8); /* of which device */
	put(to, s->format, 4);
	put(to, s->nkernels, 4);
	put(to, 0, 8);
	put(to, s->nroots, 4);
	put_bytes(to, s->folder, 41);
	put(to, 4 + strlen(s->root) + 4 + strlen(code), 8);
	put_text(to, s->root);
	put_text(to, code);
	for (uint32_t i = 0; i < s->nkernels && i < 2; i++)
		put_kernel(to, s);
}

static int check(const void *bytes, size_t nbytes)
{
	/* Of its own, so that the address sanitizer sees a read past the end. */
	void *copy = malloc(nbytes ? nbytes : 1);
	enum gantry_opencl_sort sort = 99;
	int r;

	memcpy(copy, bytes, nbytes);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_opencl_container_check(copy, nbytes, &sort, &err);
	free(copy);
	ck_assert(r == 0 || (r == -ENOEXEC && err.text[0] != '\0' && (int)sort == 99));
	return r;
}

static int check_shape(const struct shape *s)
{
	static struct image image;

	make(&image, s);
	return check(image.bytes, image.n);
}

START_TEST(test_check_of_a_sound_pocl_binary_passes)
{
	struct shape two = sound;
	enum gantry_opencl_sort sort;
	static struct image image;

	ck_assert_msg(check_shape(&sound) == 0, "%s", err.text);
	two.nkernels = 2;
	two.nlocals = 3;
	ck_assert_msg(check_shape(&two) == 0, "%s", err.text);
	make(&image, &sound);
	ck_assert_int_eq(gantry_opencl_container_check(image.bytes, image.n, &sort, NULL), 0);
	ck_assert_int_eq(sort, GANTRY_OPENCL_POCL);
}
END_TEST

START_TEST(test_check_of_a_pocl_binary_cut_anywhere_refuses)
{
	static struct image image;

	make(&image, &sound);
	/* Cut inside the first word it is not known for one. */
	for (size_t n = 8; n < image.n; n++)
		ck_assert_int_eq(check(image.bytes, n), -ENOEXEC);
	/* Nor is anything let through behind it. */
	image.bytes[image.n] = 0;
	ck_assert_int_eq(check(image.bytes, image.n + 1), -ENOEXEC);
}
END_TEST

/* Any one byte may be anything: what passes must still lead nowhere, which check() sees under the sanitizer. */
START_TEST(test_check_of_an_altered_pocl_binary_reads_nothing_outside)
{
	static struct image image;
	static const unsigned char values[] = { 0x00, 0x01, 0x2e, 0x2f, 0x7f, 0x80, 0xff };

	make(&image, &sound);
	for (size_t at = 0; at < image.n; at++) {
		unsigned char before = image.bytes[at];

		for (size_t i = 0; i < GANTRY_ARRAY_SIZE(values); i++) {
			image.bytes[at] = values[i];
			(void)check(image.bytes, image.n);
		}
		image.bytes[at] = before;
	}
}
END_TEST

START_TEST(test_check_of_files_that_lead_outside_refuses)
{
	static const char *const files[] = {
		"/../../../etc/cron.d/x",
		"/vadd/../../x",
		"/vadd/./vadd.so",
		"/vadd//vadd.so",
		"vadd/0-0-0/vadd.so",
		"/vadd/x\n.so",
		"/vadd/x y",
		"/vadd/",
		"/",
		"",
		"/vadd/.hidden",
		"/other/0-0-0/vadd.so",
		"/vaddx/0-0-0/vadd.so",
		"/vadd",
	};
	static const char *const roots[] = { "/../program.bc", "program.bc", "", "/a/../../b" };
	struct shape s = sound;

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(files); i++) {
		s.file = files[i];
		ck_assert_msg(check_shape(&s) == -ENOEXEC, "%s passed", files[i]);
	}
	s = sound;
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(roots); i++) {
		s.root = roots[i];
		ck_assert_msg(check_shape(&s) == -ENOEXEC, "%s passed", roots[i]);
	}
}
END_TEST

START_TEST(test_check_of_heads_that_lie_refuses)
{
	struct shape s = sound;

	s.folder = "../../../../../../tmp/xyzxyzxyzxyzxyzxyz";
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	s = sound;
	s.kernel = "../x";
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	s = sound;
	s.nroots = 0; /* PoCL 3.1 ends its process */
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	s = sound;
	s.nkernels = 0;
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	s.nkernels = 3; /* of which two are there */
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	s = sound;
	s.format = 8;
	ck_assert_int_eq(check_shape(&s), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "format 8"));
}
END_TEST

START_TEST(test_strip_leaves_all_but_the_intermediate_code)
{
	static struct image image, stripped;
	size_t n;

	make(&image, &sound);
	n = gantry_opencl_pocl_strip(image.bytes, image.n, stripped.bytes);
	ck_assert_uint_lt(n, image.n);
	ck_assert_msg(check(stripped.bytes, n) == 0, "%s", err.text);
	ck_assert_ptr_null(memmem(stripped.bytes, n, "program.bc", 10));
	ck_assert_ptr_nonnull(memmem(stripped.bytes, n, "/vadd/0-0-0/vadd.so", 19));
	/* In place, and once more. */
	ck_assert_uint_eq(gantry_opencl_pocl_strip(image.bytes, image.n, image.bytes), n);
	ck_assert_mem_eq(image.bytes, stripped.bytes, n);
	ck_assert_uint_eq(gantry_opencl_pocl_strip(image.bytes, n, image.bytes), n);
	ck_assert_mem_eq(image.bytes, stripped.bytes, n);
}
END_TEST

static size_t make_elf(unsigned char *at)
{
	const size_t data = sizeof(Elf64_Ehdr), sections = data + 64;
	Elf64_Ehdr head = { .e_ehsize = sizeof(head),
			    .e_shnum = 2,
			    .e_shentsize = sizeof(Elf64_Shdr),
			    .e_shoff = sections,
			    .e_phnum = 1,
			    .e_phentsize = sizeof(Elf64_Phdr) };
	Elf64_Shdr section[2] = { { 0 },
				  { .sh_type = SHT_PROGBITS, .sh_offset = data, .sh_size = 64 } };
	Elf64_Phdr part = { .p_offset = data, .p_filesz = 64 };

	memcpy(head.e_ident, ELFMAG, SELFMAG);
	head.e_ident[EI_CLASS] = ELFCLASS64;
	head.e_ident[EI_DATA] = ELFDATA2LSB;
	head.e_phoff = sections + sizeof(section);
	memcpy(at, &head, sizeof(head));
	memcpy(at + sections, section, sizeof(section));
	memcpy(at + head.e_phoff, &part, sizeof(part));
	return head.e_phoff + sizeof(part);
}

START_TEST(test_check_of_elf_follows_its_tables)
{
	static unsigned char image[1024];
	Elf64_Ehdr *head = (Elf64_Ehdr *)(void *)image;
	size_t n = make_elf(image);

	ck_assert_msg(check(image, n) == 0, "%s", err.text);
	for (size_t cut = 4; cut < n; cut++)
		ck_assert_int_eq(check(image, cut), -ENOEXEC);
	head->e_shoff = UINT64_MAX - 8;
	ck_assert_int_eq(check(image, n), -ENOEXEC);
	(void)make_elf(image);
	head->e_ident[EI_CLASS] = ELFCLASS32;
	ck_assert_int_eq(check(image, n), -ENOEXEC);
	(void)make_elf(image);
	head->e_shnum = head->e_phnum = 0;
	ck_assert_int_eq(check(image, n), -ENOEXEC);
}
END_TEST

static void put_u64(unsigned char *at, uint64_t number)
{
	memcpy(at, &number, sizeof(number));
}

static size_t make_xclbin(unsigned char *at)
{
	const size_t data = 456 + 2 * 40, n = data + 64;
	const uint32_t nsections = 2;

	memset(at, 0, n);
	memcpy(at, "xclbin2", 8);
	put_u64(at + 304, n);
	memcpy(at + 448, &nsections, sizeof(nsections));
	for (unsigned int i = 0; i < nsections; i++) {
		put_u64(at + 456 + 40 * i + 24, data);
		put_u64(at + 456 + 40 * i + 32, 64);
	}
	return n;
}

START_TEST(test_check_of_xclbin_follows_its_table)
{
	static unsigned char image[1024];
	size_t n = make_xclbin(image);

	ck_assert_msg(check(image, n) == 0, "%s", err.text);
	for (size_t cut = 8; cut < n; cut++)
		ck_assert_int_eq(check(image, cut), -ENOEXEC);
	put_u64(image + 456 + 40 + 24, UINT64_MAX - 8);
	ck_assert_int_eq(check(image, n), -ENOEXEC);
	(void)make_xclbin(image);
	put_u64(image + 456 + 32, n);
	ck_assert_int_eq(check(image, n), -ENOEXEC);
	(void)make_xclbin(image);
	memset(image + 448, 0xff, 4);
	ck_assert_int_eq(check(image, n), -ENOEXEC);
	memset(image + 448, 0, 4);
	ck_assert_int_eq(check(image, n), -ENOEXEC);
}
END_TEST

START_TEST(test_sort_tells_text_from_what_is_foreign)
{
	static const char text[] = "__kernel void k(void) {}";
	static const unsigned char foreign[] = { 'x', 'c', 'l', 'b', 'i', 'n', '2', 0, 1, 2 };

	ck_assert_int_eq(gantry_opencl_sort(text, sizeof(text)), GANTRY_OPENCL_SOURCE);
	ck_assert_int_eq(gantry_opencl_sort(text, sizeof(text) - 1), GANTRY_OPENCL_SOURCE);
	ck_assert_int_eq(gantry_opencl_sort("", 0), GANTRY_OPENCL_UNKNOWN);
	ck_assert_int_eq(gantry_opencl_sort("", 1), GANTRY_OPENCL_UNKNOWN);
	ck_assert_int_eq(check(foreign, sizeof(foreign)), -ENOEXEC);
	ck_assert_int_eq(check("", 0), -ENOEXEC);
}
END_TEST

/* Text before it is its options and constants; what is wrong with the module itself is told by its check. */
START_TEST(test_spirv_is_known_and_its_module_checked)
{
	static const uint32_t module[] = { 0x07230203, 0x00010200, 0, 9, 0, 0x00020011, 6 };
	static const char lines[] = "//gantry-options: -w\n//gantry-constant: 3 01\n";
	char bytes[sizeof(module) + sizeof(lines) - 1];
	enum gantry_opencl_sort sort = GANTRY_OPENCL_UNKNOWN;
	uint32_t wrong[GANTRY_ARRAY_SIZE(module)];

	ck_assert_int_eq(gantry_opencl_container_check(module, sizeof(module), &sort, &err), 0);
	ck_assert_int_eq(sort, GANTRY_OPENCL_IL);
	memcpy(bytes, lines, sizeof(lines) - 1);
	memcpy(bytes + sizeof(lines) - 1, module, sizeof(module));
	sort = GANTRY_OPENCL_UNKNOWN;
	ck_assert_int_eq(gantry_opencl_container_check(bytes, sizeof(bytes), &sort, &err), 0);
	ck_assert_int_eq(sort, GANTRY_OPENCL_IL);
	for (size_t n = 4; n < sizeof(module); n++)
		ck_assert_int_eq(gantry_opencl_container_check(module, n, NULL, &err), -ENOEXEC);
	memcpy(wrong, module, sizeof(module));
	wrong[5] = 0x00030011;
	ck_assert_int_eq(gantry_opencl_container_check(wrong, sizeof(wrong), NULL, &err), -ENOEXEC);
	ck_assert_msg(strstr(err.text, "do not fit") != NULL, "%s", err.text);
}
END_TEST

/* As NVIDIA's driver gives it, with two NULs behind the text. */
static const char ptx[] = "//\n// Made by a compiler\n/* of device code */\n\n.version 9.0\n"
			  ".target sm_90, texmode_independent\n.address_size 64\n\n"
			  ".entry k(.param .u64 .ptr .global .align 4 k_param_0)\n{\n\tret;\n}\n\0";

START_TEST(test_ptx_is_known_and_is_whole_up_to_its_nul)
{
	enum gantry_opencl_sort sort = GANTRY_OPENCL_UNKNOWN;
	const size_t text = strlen(ptx), version = (size_t)(strstr(ptx, ".version ") - ptx) + 9;

	ck_assert_uint_eq(sizeof(ptx), text + 2);
	for (size_t n = text + 1; n <= sizeof(ptx); n++) {
		ck_assert_int_eq(gantry_opencl_container_check(ptx, n, &sort, &err), 0);
		ck_assert_int_eq(sort, GANTRY_OPENCL_PTX);
	}
	/* Before its version it is a comment, and so a text. */
	for (size_t n = version; n <= text; n++) {
		ck_assert_int_eq(gantry_opencl_sort(ptx, n), GANTRY_OPENCL_PTX);
		ck_assert_int_eq(check(ptx, n), -ENOEXEC);
		ck_assert_ptr_nonnull(strstr(err.text, "cut short"));
	}
	for (size_t n = 1; n < version; n++)
		ck_assert_int_ne(gantry_opencl_sort(ptx, n), GANTRY_OPENCL_PTX);
}
END_TEST

START_TEST(test_check_of_altered_ptx_refuses)
{
	static const char *const wrong[] = { ".version 9.0", ".version 9.0\n",
					     ".version 9.0\nno target", ".version 9.0\n.target",
					     ".version\t9.0 .target sm_90" };
	static const char *const others[] = { ".versions 9.0\n.target sm_90\n",
					      "version 9.0\n",
					      "/* .version 9.0\n.target sm_90\n",
					      "// .version 9.0",
					      "__kernel void k(void) {} .version 9.0\n",
					      "/",
					      "/*",
					      "//" };
	char bytes[sizeof(ptx)];

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(wrong); i++) {
		ck_assert_int_eq(gantry_opencl_sort(wrong[i], strlen(wrong[i]) + 1),
				 GANTRY_OPENCL_PTX);
		ck_assert_int_eq(check(wrong[i], strlen(wrong[i]) + 1), -ENOEXEC);
	}
	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(others); i++) {
		ck_assert_int_eq(gantry_opencl_sort(others[i], strlen(others[i]) + 1),
				 GANTRY_OPENCL_SOURCE);
		ck_assert_int_eq(gantry_opencl_sort(others[i], strlen(others[i])),
				 GANTRY_OPENCL_SOURCE);
	}
	/* A NUL within it hides the rest from whoever takes it for a string. */
	for (size_t at = strlen(ptx) - 20; at < strlen(ptx); at++) {
		memcpy(bytes, ptx, sizeof(ptx));
		bytes[at] = '\0';
		ck_assert_int_eq(check(bytes, sizeof(bytes)), at == strlen(ptx) - 1 ? 0 : -ENOEXEC);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("opencl container");
	TCase *pocl = gantry_unit_case(suite, "pocl");
	TCase *others = gantry_unit_case(suite, "others");

	tcase_add_test(pocl, test_check_of_a_sound_pocl_binary_passes);
	tcase_add_test(pocl, test_check_of_a_pocl_binary_cut_anywhere_refuses);
	tcase_add_test(pocl, test_check_of_an_altered_pocl_binary_reads_nothing_outside);
	tcase_add_test(pocl, test_check_of_files_that_lead_outside_refuses);
	tcase_add_test(pocl, test_check_of_heads_that_lie_refuses);
	tcase_add_test(pocl, test_strip_leaves_all_but_the_intermediate_code);
	tcase_add_test(others, test_check_of_elf_follows_its_tables);
	tcase_add_test(others, test_ptx_is_known_and_is_whole_up_to_its_nul);
	tcase_add_test(others, test_check_of_altered_ptx_refuses);
	tcase_add_test(others, test_check_of_xclbin_follows_its_table);
	tcase_add_test(others, test_sort_tells_text_from_what_is_foreign);
	tcase_add_test(pocl, test_spirv_is_known_and_its_module_checked);
	return gantry_unit_run(suite);
}
