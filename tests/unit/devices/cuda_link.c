/* SPDX-License-Identifier: Apache-2.0 */
/* Images that are still to be linked, as a stranger makes them: what the driver may be given of them. */
#include <cuda.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/backend.h"
#include "devices/cuda/compile.h"
#include "proto/cuda_link.h"
#include "tests/unit/runner.h"

static const char ptx[] = ".version 7.0\n.target sm_80\n";

/* Two options, two inputs of PTX. */
static struct {
	struct gantry_link_header header;
	struct gantry_link_option options[2];
	struct gantry_link_input inputs[2];
	char bytes[2][32];
} image;

static struct gantry_err err;

static void fill(void)
{
	memset(&image, 0, sizeof(image));
	memcpy(image.header.magic, GANTRY_LINK_MAGIC, GANTRY_LINK_MAGIC_BYTES);
	image.header.version = GANTRY_LINK_VERSION;
	image.header.noptions = 2;
	image.header.ninputs = 2;
	image.header.bytes = sizeof(image);
	image.options[0].option = CU_JIT_MAX_REGISTERS;
	image.options[1].option = CU_JIT_LOG_VERBOSE;
	for (unsigned int i = 0; i < 2; i++) {
		memcpy(image.bytes[i], ptx, sizeof(ptx));
		image.inputs[i] = (struct gantry_link_input){
			.type = CU_JIT_INPUT_PTX,
			.off = (uint64_t)((char *)image.bytes[i] - (char *)&image),
			.bytes = sizeof(ptx),
			.name = "x",
		};
	}
}

static int check(size_t nbytes)
{
	/* Of its own, so that the address sanitizer sees a read past the end. */
	void *copy = malloc(nbytes ? nbytes : 1);
	int r;

	memcpy(copy, &image, nbytes);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_cuda_link_check(copy, nbytes, &err);
	free(copy);
	ck_assert(r == 0 || (r == -ENOEXEC && err.text[0] != '\0'));
	return r;
}

START_TEST(test_link_that_is_whole_passes_and_is_compiled_first)
{
	fill();
	ck_assert(gantry_cuda_link_is(&image, sizeof(image)));
	ck_assert(!gantry_cuda_link_is(&image, GANTRY_LINK_MAGIC_BYTES - 1));
	ck_assert(!gantry_cuda_link_is(ptx, sizeof(ptx)));
	/* What a stranger has assembled costs the device's thread nothing. */
	ck_assert(gantry_cuda_image_is_text(&image, sizeof(image)));
	ck_assert_int_eq(check(sizeof(image)), 0);
}
END_TEST

START_TEST(test_link_cut_short_is_refused_at_any_length)
{
	for (size_t n = 0; n < sizeof(image); n++) {
		fill();
		ck_assert_int_eq(check(n), -ENOEXEC);
		/* Behind the last input there may be anything. */
		if (n >= sizeof(image.header) && n < image.inputs[1].off + image.inputs[1].bytes) {
			image.header.bytes = n;
			ck_assert_int_eq(check(n), -ENOEXEC);
		}
	}
}
END_TEST

#define WRONG(change)                                             \
	do {                                                      \
		fill();                                           \
		change;                                           \
		ck_assert_int_eq(check(sizeof(image)), -ENOEXEC); \
	} while (0)

START_TEST(test_link_with_wild_numbers_is_refused)
{
	WRONG(image.header.version++);
	WRONG(image.header.reserved = 1);
	WRONG(image.header.ninputs = 0);
	WRONG(image.header.ninputs = UINT32_MAX);
	WRONG(image.header.ninputs = GANTRY_LINK_MAX_INPUTS);
	WRONG(image.header.noptions = GANTRY_LINK_MAX_OPTIONS + 1);
	WRONG(image.header.bytes++);
	WRONG(image.inputs[0].off = 0);
	WRONG(image.inputs[0].off++);
	WRONG(image.inputs[1].off = UINT64_MAX & ~7ull);
	WRONG(image.inputs[1].bytes = 0);
	WRONG(image.inputs[1].bytes = UINT64_MAX);
	WRONG(image.inputs[1].bytes = UINT64_MAX - image.inputs[1].off + 1);
	WRONG(image.inputs[1].reserved = 1);
	WRONG(memset(image.inputs[1].name, 'n', sizeof(image.inputs[1].name)));
}
END_TEST

/* None of the options that are addresses, and no input that is not what it says. */
START_TEST(test_link_with_what_the_driver_must_not_get_is_refused)
{
	for (uint32_t option = 0; option < 64; option++) {
		bool good = option == CU_JIT_MAX_REGISTERS || option == CU_JIT_THREADS_PER_BLOCK ||
			    option == CU_JIT_OPTIMIZATION_LEVEL ||
			    option == CU_JIT_GENERATE_DEBUG_INFO || option == CU_JIT_LOG_VERBOSE ||
			    option == CU_JIT_GENERATE_LINE_INFO;

		fill();
		image.options[1].option = option;
		ck_assert_int_eq(check(sizeof(image)), good ? 0 : -ENOEXEC);
	}
	for (uint32_t type = 0; type < 16; type++) {
		fill();
		image.inputs[1].type = type;
		ck_assert_int_eq(check(sizeof(image)), type == CU_JIT_INPUT_PTX ? 0 : -ENOEXEC);
	}
	WRONG(image.bytes[1][0] = 'x');
	WRONG(image.bytes[1][12] = '\0');
	WRONG(image.bytes[1][sizeof(ptx) - 1] = ' ');
}
END_TEST

START_TEST(test_link_with_any_byte_changed_is_looked_at_inside_its_bounds)
{
	for (size_t i = 0; i < sizeof(image); i++)
		for (unsigned int bit = 0; bit < 8; bit++) {
			fill();
			((unsigned char *)&image)[i] ^= (unsigned char)(1u << bit);
			(void)check(sizeof(image));
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cuda link");
	TCase *tc = gantry_unit_case(suite, "link");

	tcase_add_test(tc, test_link_that_is_whole_passes_and_is_compiled_first);
	tcase_add_test(tc, test_link_cut_short_is_refused_at_any_length);
	tcase_add_test(tc, test_link_with_wild_numbers_is_refused);
	tcase_add_test(tc, test_link_with_what_the_driver_must_not_get_is_refused);
	tcase_add_test(tc, test_link_with_any_byte_changed_is_looked_at_inside_its_bounds);
	return gantry_unit_run(suite);
}
