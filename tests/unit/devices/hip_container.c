/* SPDX-License-Identifier: Apache-2.0 */
/* What AMD's loader may be given: a bundle that the stand-in's tool made, and what can be wrong with one. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/fd.h"
#include "devices/hip/container.h"
#include "devices/hip/module.h"
#include "devices/hip/pack.h"
#include "tests/unit/runner.h"

#define ARCH "gfx90a:sramecc+:xnack-"

static struct gantry_err err;
static char *bundle;
static size_t nbundle;

static void read_bundle(void)
{
	ck_assert_int_eq(gantry_file_read(HIP_CODE, 1 << 20, &bundle, &nbundle), 0);
}

static void free_bundle(void)
{
	free(bundle);
}

/* Of a copy of its own, so that the address sanitizer sees a read past the end. */
static int open_copy(const void *bytes, size_t nbytes, const char *arch)
{
	void *copy = malloc(nbytes ? nbytes : 1);
	struct gantry_hip_object object = { 0 };
	int r;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, nbytes);
	err = (struct gantry_err)GANTRY_ERR_NONE;
	r = gantry_hip_container_open(copy, nbytes, arch, &object, &err);
	if (r < 0 && (r != -ENOEXEC || err.text[0] == '\0' || object.kernels))
		ck_abort_msg("refused with %d and \"%s\"", r, err.text);
	gantry_hip_object_free(&object);
	free(copy);
	return r;
}

/* The code object for gfx90a of the bundle. */
static struct gantry_hip_object sound(void)
{
	struct gantry_hip_object object;

	ck_assert_msg(gantry_hip_container_open(bundle, nbundle, ARCH, &object, &err) == 0, "%s",
		      err.text);
	return object;
}

START_TEST(test_open_of_a_bundle_tells_the_kernels_of_its_object_for_the_device)
{
	struct gantry_hip_object object = sound();
	const struct gantry_hip_kernel *set = gantry_hip_object_find(&object, "probe_set");

	ck_assert_ptr_nonnull(set);
	ck_assert_uint_eq(set->nparams, 3); /* without the one that the compiler adds */
	ck_assert(set->params[0].is_buffer && !set->params[1].is_buffer);
	ck_assert_uint_eq(set->params[1].off, 8);
	ck_assert_uint_eq(set->params[1].size, 4);
	ck_assert_uint_eq(set->params[2].off, 16);
	ck_assert_uint_eq(set->max_threads, 1024);
	ck_assert_ptr_null(gantry_hip_object_find(&object, "nobody"));
	/* It stands alone as well. */
	ck_assert_msg(open_copy(object.bytes, object.nbytes, ARCH) == 0, "%s", err.text);
	gantry_hip_object_free(&object);
}
END_TEST

START_TEST(test_open_for_a_processor_that_has_no_object_is_refused)
{
	static const char *const others[] = { "gfx1030", "gfx90", "gfx90a0", "gfx90a",
					      "gfx90a:sramecc+:xnack+" };

	for (size_t i = 0; i < GANTRY_ARRAY_SIZE(others); i++) {
		ck_assert_int_eq(open_copy(bundle, nbundle, others[i]), -ENOEXEC);
		ck_assert_msg(strstr(err.text, others[i]) != NULL, "%s", err.text);
	}
	ck_assert_int_eq(open_copy(bundle, nbundle, "gfx906:sramecc-:xnack+"), 0);
}
END_TEST

START_TEST(test_open_of_an_object_for_another_processor_names_both)
{
	struct gantry_hip_object object = sound();

	ck_assert_int_eq(open_copy(object.bytes, object.nbytes, "gfx906"), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "gfx90a:xnack-"));
	ck_assert_ptr_nonnull(strstr(err.text, "gfx906"));
	gantry_hip_object_free(&object);
}
END_TEST

START_TEST(test_open_of_what_is_cut_short_is_refused_at_every_length)
{
	struct gantry_hip_object object = sound();

	for (size_t n = 0; n < object.nbytes; n++)
		if (open_copy(object.bytes, n, ARCH) != -ENOEXEC)
			ck_abort_msg("taken with %zu of %zu bytes", n, object.nbytes);
	for (size_t n = 0; n < nbundle; n += n < 400 ? 1 : 97)
		if (open_copy(bundle, n, ARCH) != -ENOEXEC)
			ck_abort_msg("taken with %zu of %zu bytes", n, nbundle);
	gantry_hip_object_free(&object);
}
END_TEST

/* Whatever a byte is: an answer, and no read past the end, which the sanitizers look for. */
START_TEST(test_open_with_any_byte_changed_ends_well)
{
	static const unsigned char values[] = { 0x00, 0x7f, 0x80, 0xdf, 0xff };
	struct gantry_hip_object object = sound();
	unsigned char *bytes = malloc(object.nbytes);
	unsigned int refused = 0;

	ck_assert_ptr_nonnull(bytes);
	for (size_t i = 0; i < object.nbytes; i++)
		for (size_t v = 0; v < sizeof(values); v++) {
			memcpy(bytes, object.bytes, object.nbytes);
			bytes[i] = values[v];
			refused += open_copy(bytes, object.nbytes, ARCH) < 0;
		}
	ck_assert_uint_gt(refused, 1000);
	free(bytes);
	gantry_hip_object_free(&object);
}
END_TEST

START_TEST(test_open_of_other_files_says_what_they_are)
{
	static const char compressed[] = "CCOB and what zstd made";
	struct gantry_hip_object object = sound();
	unsigned char *bytes = malloc(object.nbytes);

	ck_assert_int_eq(open_copy(compressed, sizeof(compressed), ARCH), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "compress"));
	ck_assert_int_eq(open_copy("", 0, ARCH), -ENOEXEC);
	ck_assert_ptr_nonnull(bytes);
	memcpy(bytes, object.bytes, object.nbytes);
	bytes[18] = 62; /* a file for x86-64 */
	ck_assert_int_eq(open_copy(bytes, object.nbytes, ARCH), -ENOEXEC);
	ck_assert_ptr_nonnull(strstr(err.text, "AMD"));
	free(bytes);
	gantry_hip_object_free(&object);
}
END_TEST

#ifdef CORE_HIP
/* The installed kernels as the compiler made them, for each processor that the build names. */
START_TEST(test_code_of_the_installed_module_is_whole_for_each_processor)
{
	static const char *const archs[] = { "gfx900:xnack-", "gfx906:sramecc+:xnack-",
					     "gfx908:sramecc+:xnack-", ARCH, "gfx1030" };
	static const char *const names[] = {
#define FUNCTION(name) "core_" #name,
#include "devices/kernels/core/opencl/functions.def"
#undef FUNCTION
	};
	const struct gantry_hip_module_image *module;
	void *library = dlopen(CORE_HIP, RTLD_NOW | RTLD_LOCAL);

	ck_assert_msg(library != NULL, "%s", dlerror());
	module = dlsym(library, "gantry_hip_module");
	ck_assert_ptr_nonnull(module);
	ck_assert_uint_eq(module->nfunctions, GANTRY_ARRAY_SIZE(names));
	for (size_t a = 0; a < GANTRY_ARRAY_SIZE(archs); a++) {
		struct gantry_hip_object object;
		const struct gantry_hip_kernel *gemm;

		ck_assert_msg(gantry_hip_container_open(module->code, module->code_bytes, archs[a],
							&object, &err) == 0,
			      "%s: %s", archs[a], err.text);
		for (size_t i = 0; i < GANTRY_ARRAY_SIZE(names); i++) {
			ck_assert_str_eq(module->functions[i], names[i]);
			ck_assert_msg(gantry_hip_object_find(&object, names[i]) != NULL,
				      "%s has no %s", archs[a], names[i]);
		}
		gemm = gantry_hip_object_find(&object, "core_gemm");
		ck_assert_uint_eq(gemm->nparams, 7);
		ck_assert(gemm->params[2].is_buffer && !gemm->params[3].is_buffer);
		ck_assert_uint_eq(gemm->params[6].off, 48);
		gantry_hip_object_free(&object);
	}
	ck_assert_int_eq(dlclose(library), 0);
}
END_TEST
#endif

START_TEST(test_skip_of_what_nests_too_deep_fails)
{
	unsigned char bytes[64];
	struct gantry_pack pack = { bytes, bytes + sizeof(bytes) };

	memset(bytes, 0x91, sizeof(bytes)); /* arrays of one array each */
	ck_assert(!gantry_pack_skip(&pack));
	memset(bytes, 0x91, 8);
	bytes[8] = 0x05;
	pack.at = bytes;
	ck_assert(gantry_pack_skip(&pack));
	ck_assert_ptr_eq(pack.at, bytes + 9);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("hip_container");
	TCase *tc = gantry_unit_case(suite, "container");

	tcase_add_checked_fixture(tc, read_bundle, free_bundle);
	tcase_add_test(tc, test_open_of_a_bundle_tells_the_kernels_of_its_object_for_the_device);
	tcase_add_test(tc, test_open_for_a_processor_that_has_no_object_is_refused);
	tcase_add_test(tc, test_open_of_an_object_for_another_processor_names_both);
	tcase_add_test(tc, test_open_of_what_is_cut_short_is_refused_at_every_length);
	tcase_add_test(tc, test_open_with_any_byte_changed_ends_well);
	tcase_add_test(tc, test_open_of_other_files_says_what_they_are);
#ifdef CORE_HIP
	tcase_add_test(tc, test_code_of_the_installed_module_is_whole_for_each_processor);
#endif
	tcase_add_test(tc, test_skip_of_what_nests_too_deep_fails);
	return gantry_unit_run(suite);
}
