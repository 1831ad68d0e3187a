/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/signature.h"

#include <errno.h>
#include <string.h>

#include "base/array.h"
#include "proto/opencl.h"
#include "tests/unit/runner.h"

static const char *const round_trips[] = {
	"void",
	"u8",
	"r:f32*",
	"r:u8*,w:i8*,rw:u16*,c:i16*,u32,i32,u64,i64,f32,f64",
	"w:u64*,u8,u8,u16,u32,u64",
};

START_TEST(test_signature_format_gives_back_what_parse_read)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;
	char text[GANTRY_SIGNATURE_TEXT_MAX];

	ck_assert_int_eq(gantry_signature_parse(round_trips[_i], &sig, &err), 0);
	ck_assert_int_eq(gantry_signature_format(&sig, text, sizeof(text)), 0);
	ck_assert_str_eq(text, round_trips[_i]);
	/* One byte less does not hold it. */
	ck_assert_int_eq(gantry_signature_format(&sig, text, strlen(round_trips[_i])), -E2BIG);
}
END_TEST

START_TEST(test_signature_parse_places_arguments_at_natural_alignment)
{
	static const uint16_t offs[] = { 0, 1, 2, 4, 8, 16, 24 };
	struct gantry_signature sig;

	ck_assert_int_eq(gantry_signature_parse("u8,u8,i16,f32,r:u8*,f64,u8", &sig, NULL), 0);
	ck_assert_uint_eq(sig.nargs, GANTRY_ARRAY_SIZE(offs));
	for (uint32_t i = 0; i < sig.nargs; i++)
		ck_assert_uint_eq(sig.args[i].off_bytes, offs[i]);
	ck_assert_uint_eq(sig.args_bytes, 32);
	ck_assert_uint_eq(sig.args[4].mode, GANTRY_R);
	ck_assert_uint_eq(sig.args[5].mode, 0);
}
END_TEST

START_TEST(test_signature_parse_takes_64_arguments_and_no_more)
{
	char text[GANTRY_SIGNATURE_TEXT_MAX + 8] = "";
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;

	for (unsigned int i = 0; i < GANTRY_SIGNATURE_MAX_ARGS; i++)
		strcat(text, i ? ",rw:u16*" : "rw:u16*");
	ck_assert_int_eq(gantry_signature_parse(text, &sig, &err), 0);
	ck_assert_uint_eq(sig.args_bytes, 512);
	ck_assert_int_eq(gantry_signature_format(&sig, text, GANTRY_SIGNATURE_TEXT_MAX), 0);
	strcat(text, ",u8");
	ck_assert_int_eq(gantry_signature_parse(text, &sig, &err), -EINVAL);
	ck_assert_str_eq(err.text, "more than 64 arguments");
}
END_TEST

static const struct {
	const char *text;
	const char *sentence;
} bad[] = {
	{ "", "argument 1 is empty" },
	{ "u8,", "argument 2 is empty" },
	{ ",u8", "argument 1 is empty" },
	{ "u8,,u8", "argument 2 is empty" },
	{ "x:u8*", "argument 1: the mode is not r, w, rw or c" },
	{ ":u8*", "argument 1: the mode is not r, w, rw or c" },
	{ "u8,r:u8", "argument 2: a buffer's type ends with \"*\"" },
	{ "r:", "argument 1: a buffer's type ends with \"*\"" },
	{ "r:*", "argument 1: unknown type \"\"" },
	{ "u33", "argument 1: unknown type \"u33\"" },
	{ "u8*", "argument 1: unknown type \"u8*\"" },
	{ "void,u8", "argument 1: unknown type \"void\"" },
	{ "u8 ", "argument 1: unknown type \"u8 \"" },
	{ "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "argument 1: unknown type \"aaaaaaaaaaaaaaaa\"" },
};

START_TEST(test_signature_parse_names_the_argument_that_is_wrong)
{
	struct gantry_signature sig = { .nargs = 77 };
	struct gantry_err err = GANTRY_ERR_NONE;

	ck_assert_int_eq(gantry_signature_parse(bad[_i].text, &sig, &err), -EINVAL);
	ck_assert_str_eq(err.text, bad[_i].sentence);
	ck_assert_uint_eq(sig.nargs, 77);
}
END_TEST

START_TEST(test_signature_format_refuses_what_does_not_exist)
{
	struct gantry_signature sig = { .nargs = 1, .args = { { .type = 99 } } };
	char text[64];

	ck_assert_int_eq(gantry_signature_format(&sig, text, sizeof(text)), -EINVAL);
	sig.args[0].type = GANTRY_ARG_U8;
	sig.args[0].mode = 9;
	ck_assert_int_eq(gantry_signature_format(&sig, text, sizeof(text)), -EINVAL);
	ck_assert_int_eq(gantry_signature_format(&sig, text, 0), -E2BIG);
}
END_TEST

START_TEST(test_signature_parse_takes_what_opencl_images_have)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;
	char text[GANTRY_SIGNATURE_TEXT_MAX];

	ck_assert_int_eq(gantry_signature_parse("range,r:u8*,b3,local,b1024,u8", &sig, &err), 0);
	ck_assert_uint_eq(sig.nargs, 6);
	ck_assert_uint_eq(sig.args[0].len_bytes, sizeof(struct gantry_launch_range));
	ck_assert_uint_eq(sig.args[1].off_bytes, 32);
	ck_assert_uint_eq(sig.args[2].off_bytes, 40);
	ck_assert_uint_eq(sig.args[2].len_bytes, 3);
	ck_assert_uint_eq(sig.args[3].off_bytes, 48);
	ck_assert_uint_eq(sig.args[4].off_bytes, 56);
	ck_assert_uint_eq(sig.args[5].off_bytes, 1080);
	ck_assert_uint_eq(sig.args_bytes, 1088);
	ck_assert(gantry_signature_is_opencl(&sig));
	ck_assert_int_eq(gantry_signature_format(&sig, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "range,r:u8*,b3,local,b1024,u8");
}
END_TEST

START_TEST(test_signature_parse_takes_images_and_samplers)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig;
	char text[GANTRY_SIGNATURE_TEXT_MAX];

	ck_assert_int_eq(gantry_signature_parse("range,image,r:u8*,sampler,u32", &sig, &err), 0);
	ck_assert_uint_eq(sig.nargs, 5);
	ck_assert_uint_eq(sig.args[1].off_bytes, 32);
	ck_assert_uint_eq(sig.args[1].len_bytes, sizeof(struct gantry_launch_image));
	ck_assert_uint_eq(sig.args[2].off_bytes, 96);
	ck_assert_uint_eq(sig.args[3].off_bytes, 104);
	ck_assert_uint_eq(sig.args[3].len_bytes, sizeof(struct gantry_launch_sampler));
	ck_assert_uint_eq(sig.args_bytes, 128);
	ck_assert(gantry_signature_is_opencl(&sig));
	ck_assert_int_eq(gantry_signature_format(&sig, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "range,image,r:u8*,sampler,u32");
}
END_TEST

static const char *const refused[] = { "b0",	    "b",
				       "b01",	    "b1025",
				       "b99999",    "b-1",
				       "u8,range",  "r:b4*",
				       "rw:local*", "range*",
				       "b4x",	    "image",
				       "image,u32", "image,image,r:u8*",
				       "r:image*",  "image,sampler" };

START_TEST(test_signature_parse_refuses_what_opencl_images_have_not)
{
	struct gantry_err err = GANTRY_ERR_NONE;
	struct gantry_signature sig = { .nargs = 77 };

	ck_assert_int_eq(gantry_signature_parse(refused[_i], &sig, &err), -EINVAL);
	ck_assert_uint_eq(sig.nargs, 77);
	ck_assert(err.text[0] != '\0');
}
END_TEST

START_TEST(test_arg_type_bytes_knows_every_type)
{
	static const uint32_t bytes[] = { 0, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 0 };

	for (unsigned int type = 0; type < GANTRY_ARRAY_SIZE(bytes); type++)
		ck_assert_uint_eq(gantry_arg_type_bytes(type), bytes[type]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("signature");
	TCase *tc = gantry_unit_case(suite, "signature");

	tcase_add_loop_test(tc, test_signature_format_gives_back_what_parse_read, 0,
			    (int)GANTRY_ARRAY_SIZE(round_trips));
	tcase_add_test(tc, test_signature_parse_places_arguments_at_natural_alignment);
	tcase_add_test(tc, test_signature_parse_takes_64_arguments_and_no_more);
	tcase_add_loop_test(tc, test_signature_parse_names_the_argument_that_is_wrong, 0,
			    (int)GANTRY_ARRAY_SIZE(bad));
	tcase_add_test(tc, test_signature_format_refuses_what_does_not_exist);
	tcase_add_test(tc, test_signature_parse_takes_what_opencl_images_have);
	tcase_add_test(tc, test_signature_parse_takes_images_and_samplers);
	tcase_add_loop_test(tc, test_signature_parse_refuses_what_opencl_images_have_not, 0,
			    GANTRY_ARRAY_SIZE(refused));
	tcase_add_test(tc, test_arg_type_bytes_knows_every_type);
	return gantry_unit_run(suite);
}
