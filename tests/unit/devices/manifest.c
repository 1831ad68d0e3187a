/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/manifest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tests/unit/runner.h"

static int parse(const char *text, struct gantry_manifest **ret_manifest, struct gantry_err *err)
{
	return gantry_manifest_parse(text, strlen(text), ret_manifest, err);
}

START_TEST(test_manifest_parse_reads_every_statement)
{
	struct gantry_manifest *m;
	struct gantry_err err = GANTRY_ERR_NONE;
	const struct gantry_kernel_def *def;

	ck_assert_msg(parse("# kernels\n"
			    "\n"
			    "module core-2 7   # a comment\n"
			    "image cpu core.so\n"
			    "\timage  cuda\tcore.fatbin\n"
			    "kernel fill w:u32*,u64,u32 pure\n"
			    "kernel _Go2 void split pure\n"
			    "kernel plain u8",
			    &m, &err) == 0,
		      "%s", err.text);
	ck_assert_str_eq(m->module, "core-2");
	ck_assert_uint_eq(m->version, 7);
	ck_assert_str_eq(m->images[GANTRY_KIND_CPU], "core.so");
	ck_assert_str_eq(m->images[GANTRY_KIND_CUDA], "core.fatbin");
	ck_assert_ptr_null(m->images[GANTRY_KIND_HIP]);
	ck_assert_uint_eq(m->nkernels, 3);
	def = gantry_manifest_find(m, "fill");
	ck_assert_ptr_nonnull(def);
	ck_assert_uint_eq(def->flags, GANTRY_KERNEL_PURE);
	ck_assert_str_eq(def->sig_text, "w:u32*,u64,u32");
	ck_assert_uint_eq(def->sig.nargs, 3);
	def = gantry_manifest_find(m, "_Go2");
	ck_assert_uint_eq(def->flags, GANTRY_KERNEL_PURE | GANTRY_KERNEL_SPLIT);
	ck_assert_uint_eq(def->sig.nargs, 0);
	ck_assert_uint_eq(gantry_manifest_find(m, "plain")->flags, 0);
	ck_assert_ptr_null(gantry_manifest_find(m, "nobody"));
	gantry_manifest_free(m);
}
END_TEST

#define NAME_64 "a123456789012345678901234567890123456789012345678901234567890123"

static const struct {
	const char *text;
	const char *sentence;
} bad[] = {
	{ "", "the manifest names no module" },
	{ "# nothing\n", "the manifest names no module" },
	{ "image cpu a.so\n", "line 1: the first statement must be \"module\"" },
	{ "\nkernel k void\n", "line 2: the first statement must be \"module\"" },
	{ "module\n", "line 1: write \"module NAME VERSION\"" },
	{ "module a 1 2\n", "line 1: write \"module NAME VERSION\"" },
	{ "module a 1\nmodule b 1\n", "line 2: the module is named already" },
	{ "module Upper 1\n", "line 1: \"Upper\" is no module name" },
	{ "module a 0\n", "line 1: version: \"0\" is not from 1 to 4294967295" },
	{ "module a 4294967296\n", "line 1: version: \"4294967296\" is not from 1 to 4294967295" },
	{ "module a one\n", "line 1: version: \"one\" is not a whole number" },
	{ "module a 1\nimage cpu\n", "line 2: write \"image KIND FILE\"" },
	{ "module a 1\nimage tpu a.so\n", "line 2: \"tpu\" is no kind of device" },
	{ "module a 1\nimage any a.so\n", "line 2: \"any\" is no kind of device" },
	{ "module a 1\nimage cpu a.so\nimage cpu b.so\n",
	  "line 3: the image for cpu is named already" },
	{ "module a 1\nimage cpu ../a.so\n",
	  "line 2: \"../a.so\" is no name of a file beside the manifest" },
	{ "module a 1\nimage cpu /a.so\n",
	  "line 2: \"/a.so\" is no name of a file beside the manifest" },
	{ "module a 1\nimage cpu .hidden\n",
	  "line 2: \".hidden\" is no name of a file beside the manifest" },
	{ "module a 1\nkernel k\n", "line 2: write \"kernel NAME SIGNATURE [FLAG ...]\"" },
	{ "module a 1\nkernel 2k void\n", "line 2: \"2k\" is no kernel name" },
	{ "module a 1\nkernel a-b void\n", "line 2: \"a-b\" is no kernel name" },
	{ "module a 1\nkernel " NAME_64 " void\n", "line 2: \"" NAME_64 "\" is no kernel name" },
	{ "module a 1\nkernel k void\nkernel k u8\n", "line 3: kernel k stands there twice" },
	{ "module a 1\nkernel k u9\n", "line 2: kernel k: argument 1: unknown type \"u9\"" },
	{ "module a 1\nkernel k u8 fast\n", "line 2: \"fast\" is no flag of a kernel" },
	{ "module a 1\nkernel k u8 pure pure\n", "line 2: the flag pure stands there twice" },
	{ "module a 1\nkernel k u8 pure split pure split\n", "line 2: too many words" },
	{ "module a 1\nkernle k u8\n",
	  "line 2: \"kernle\" is not module, image, tenant or kernel" },
	{ "module a 1\n\x01\n", "line 2: byte 0x01 is not text" },
	{ "module a 1\nkernel \xc3\xa4 u8\n", "line 2: byte 0xc3 is not text" },
	{ "module a 1\r\n", "line 1: byte 0x0d is not text" },
};

START_TEST(test_manifest_parse_names_the_line_that_is_wrong)
{
	struct gantry_manifest *m = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(parse(bad[_i].text, &m, &err), -EINVAL);
	ck_assert_str_eq(err.text, bad[_i].sentence);
	ck_assert_ptr_null(m);
}
END_TEST

START_TEST(test_manifest_parse_refuses_a_zero_byte)
{
	static const char text[] = "module a 1\n\0kernel k u8\n";
	struct gantry_manifest *m = NULL;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_manifest_parse(text, sizeof(text) - 1, &m, &err), -EINVAL);
	ck_assert_str_eq(err.text, "line 2: byte 0x00 is not text");
}
END_TEST

START_TEST(test_manifest_parse_reads_len_bytes_only)
{
	struct gantry_manifest *m;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_manifest_parse("module a 12", 10, &m, &err), 0);
	ck_assert_uint_eq(m->version, 1);
	gantry_manifest_free(m);
}
END_TEST

/* A manifest of @nkernels kernels; the caller frees it. */
static char *many_kernels(unsigned int nkernels)
{
	size_t cap = 32 + nkernels * 24u, len;
	char *text = malloc(cap);

	ck_assert_ptr_nonnull(text);
	len = (size_t)snprintf(text, cap, "module many 1\n");
	for (unsigned int i = 0; i < nkernels; i++)
		len += (size_t)snprintf(text + len, cap - len, "kernel k%u u8\n", i);
	return text;
}

START_TEST(test_manifest_parse_takes_1024_kernels_and_no_more)
{
	char *most = many_kernels(GANTRY_MANIFEST_MAX_KERNELS);
	char *more = many_kernels(GANTRY_MANIFEST_MAX_KERNELS + 1);
	struct gantry_manifest *m;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(parse(most, &m, &err), 0);
	ck_assert_uint_eq(m->nkernels, GANTRY_MANIFEST_MAX_KERNELS);
	ck_assert_ptr_nonnull(gantry_manifest_find(m, "k1023"));
	gantry_manifest_free(m);
	ck_assert_int_eq(parse(more, &m, &err), -EINVAL);
	ck_assert_str_eq(err.text, "line 1026: more than 1024 kernels");
	free(most);
	free(more);
}
END_TEST

START_TEST(test_manifest_parse_refuses_too_many_bytes)
{
	char *text = calloc(1, GANTRY_MANIFEST_MAX_BYTES + 1);
	struct gantry_manifest *m;
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_ptr_nonnull(text);
	memset(text, '\n', GANTRY_MANIFEST_MAX_BYTES + 1);
	memcpy(text, "module a 1\n", 11);
	ck_assert_int_eq(gantry_manifest_parse(text, GANTRY_MANIFEST_MAX_BYTES, &m, &err), 0);
	gantry_manifest_free(m);
	ck_assert_int_eq(gantry_manifest_parse(text, GANTRY_MANIFEST_MAX_BYTES + 1, &m, &err),
			 -EINVAL);
	ck_assert_str_eq(err.text, "the manifest has more than 262144 bytes");
	free(text);
}
END_TEST

START_TEST(test_manifest_free_takes_null)
{
	gantry_manifest_free(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("manifest");
	TCase *tc = gantry_unit_case(suite, "manifest");

	tcase_add_test(tc, test_manifest_parse_reads_every_statement);
	tcase_add_loop_test(tc, test_manifest_parse_names_the_line_that_is_wrong, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(tc, test_manifest_parse_refuses_a_zero_byte);
	tcase_add_test(tc, test_manifest_parse_reads_len_bytes_only);
	tcase_add_test(tc, test_manifest_parse_takes_1024_kernels_and_no_more);
	tcase_add_test(tc, test_manifest_parse_refuses_too_many_bytes);
	tcase_add_test(tc, test_manifest_free_takes_null);
	return gantry_unit_run(suite);
}
