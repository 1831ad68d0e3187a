/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The built modules, as a worker meets them. GANTRY_TEST_KERNELS names the folder with their images
 * and manifests.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

#include "devices/cuda/module.h"
#include "devices/manifest.h"
#include "tests/unit/kernels/env.h"

static void path_of(char path[static PATH_MAX], const char *file)
{
	const char *folder = getenv("GANTRY_TEST_KERNELS");

	if (!folder)
		gantry_unit_skip("GANTRY_TEST_KERNELS does not name the modules' folder");
	ck_assert_int_lt(snprintf(path, PATH_MAX, "%s/%s", folder, file), PATH_MAX);
}

static struct gantry_manifest *manifest_read(const char *file)
{
	struct gantry_manifest *manifest;
	struct gantry_err err = { 0 };
	char path[PATH_MAX], text[16384];
	size_t len;
	FILE *f;

	path_of(path, file);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	len = fread(text, 1, sizeof(text), f);
	ck_assert(feof(f));
	fclose(f);
	ck_assert_msg(gantry_manifest_parse(text, len, &manifest, &err) == 0, "%s: %s", file,
		      err.text);
	return manifest;
}

static const struct {
	const char *image;
	const char *manifest;
	size_t nkernels;
} modules[] = {
	{ "core.so", "core.manifest", 38 },
	{ "test-kernels.so", "test.manifest", 5 },
};

START_TEST(test_manifest_kernels_are_exported)
{
	struct gantry_manifest *manifest = manifest_read(modules[_i].manifest);
	char path[PATH_MAX], symbol[96];
	void *image;

	ck_assert_str_eq(manifest->images[GANTRY_KIND_CPU], modules[_i].image);
	ck_assert_uint_eq(manifest->nkernels, modules[_i].nkernels);
	path_of(path, modules[_i].image);
	image = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(image != NULL, "%s", dlerror());
	for (uint32_t i = 0; i < manifest->nkernels; i++) {
		(void)snprintf(symbol, sizeof(symbol), "gantry_kernel_%s",
			       manifest->kernels[i].name);
		ck_assert_msg(dlsym(image, symbol) != NULL, "%s is missing", symbol);
	}
	dlclose(image);
	gantry_manifest_free(manifest);
}
END_TEST

/* Whatever the machine: the host functions need no driver to be there. */
START_TEST(test_cuda_image_has_every_kernel_and_its_device_code)
{
	struct gantry_manifest *manifest = manifest_read("core.manifest");
	const struct gantry_cuda_module *module;
	char path[PATH_MAX], symbol[96];
	void *image;

	if (!manifest->images[GANTRY_KIND_CUDA])
		gantry_unit_skip("no cuda image was built: there was no nvcc");
	path_of(path, manifest->images[GANTRY_KIND_CUDA]);
	image = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(image != NULL, "%s", dlerror());
	for (uint32_t i = 0; i < manifest->nkernels; i++) {
		(void)snprintf(symbol, sizeof(symbol), "gantry_kernel_%s",
			       manifest->kernels[i].name);
		ck_assert_msg(dlsym(image, symbol) != NULL, "%s is missing", symbol);
	}
	module = dlsym(image, "gantry_cuda_module");
	ck_assert_ptr_nonnull(module);
	ck_assert_uint_eq(module->size, sizeof(*module));
	ck_assert_uint_eq(module->abi, GANTRY_CUDA_MODULE_ABI);
	ck_assert_uint_gt(module->nfunctions, 0);
	ck_assert_uint_gt(module->image_bytes, 4096);
	for (uint32_t i = 0; i < module->nfunctions; i++)
		ck_assert_ptr_nonnull(module->functions[i]);
	dlclose(image);
	gantry_manifest_free(manifest);
}
END_TEST

/* "pure" of a kernel with a rw or c range promises what can never be used: a sign of a mistake. */
START_TEST(test_pure_kernels_only_read_or_write)
{
	struct gantry_manifest *manifest = manifest_read("core.manifest");

	for (uint32_t i = 0; i < manifest->nkernels; i++) {
		const struct gantry_kernel_def *def = &manifest->kernels[i];
		bool updates = false;

		for (uint32_t a = 0; a < def->sig.nargs; a++)
			updates |= def->sig.args[a].mode == GANTRY_RW ||
				   def->sig.args[a].mode == GANTRY_C;
		ck_assert_msg(!updates || !(def->flags & GANTRY_KERNEL_PURE), "%s is called pure",
			      def->name);
	}
	gantry_manifest_free(manifest);
}
END_TEST

START_TEST(test_module_kernel_runs_when_loaded)
{
	gantry_body *fill;
	char path[PATH_MAX];
	struct test_env te;
	uint32_t x[4] = { 0 };
	void *image;

	path_of(path, "core.so");
	image = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(image != NULL, "%s", dlerror());
	*(void **)&fill = dlsym(image, "gantry_kernel_fill");
	ck_assert(fill != NULL);
	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, fill, SPAN(x, 4), U64(4), U32(9)), 0);
	ck_assert_uint_eq(x[3], 9);
	env_fini(&te);
	dlclose(image);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kernels/module");
	TCase *tc = gantry_unit_case(suite, "module");

	tcase_add_loop_test(tc, test_manifest_kernels_are_exported, 0,
			    (int)(sizeof(modules) / sizeof(modules[0])));
	tcase_add_test(tc, test_cuda_image_has_every_kernel_and_its_device_code);
	tcase_add_test(tc, test_pure_kernels_only_read_or_write);
	tcase_add_test(tc, test_module_kernel_runs_when_loaded);
	return gantry_unit_run(suite);
}
