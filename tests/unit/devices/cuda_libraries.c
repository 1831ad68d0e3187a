/* SPDX-License-Identifier: Apache-2.0 */
/* How the cuda backend finds cuBLAS and cuFFT and keeps their handles; VENDOR names the folder of cuda_vendor.c's. */
#include "devices/cuda/libraries.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>

#include "devices/cuda/module.h"
#include "tests/unit/runner.h"

/* As cuda_vendor.c has it. */
struct vendor_state {
	int nhandles, nplans, last_plan;
	void *stream;
};

#define STREAM ((void *)(uintptr_t)0x5000)

static struct vendor_state *state_of(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	struct vendor_state *state;

	ck_assert_msg(library != NULL, "%s", dlerror());
	state = dlsym(library, "vendor_state");
	ck_assert_ptr_nonnull(state);
	dlclose(library);
	return state;
}

START_TEST(test_cublas_gets_handle_on_stream_once)
{
	struct gantry_cuda_libraries *libraries = gantry_cuda_libraries_open(STREAM, VENDOR);
	struct vendor_state *state = state_of(VENDOR "/libcublas.so.13");
	struct gantry_cublas *blas;

	ck_assert_ptr_nonnull(libraries);
	ck_assert_int_eq(state->nhandles, 0);
	blas = gantry_cuda_libraries_get(libraries, "cublas");
	ck_assert_ptr_nonnull(blas);
	ck_assert_uint_eq(blas->size, sizeof(*blas));
	ck_assert_ptr_eq(state->stream, STREAM);
	ck_assert_int_eq(
		blas->sgemm(blas->handle, 0, 0, 1, 1, 1, NULL, NULL, 1, NULL, 1, NULL, NULL, 1), 0);
	ck_assert_ptr_eq(gantry_cuda_libraries_get(libraries, "cublas"), blas);
	ck_assert_int_eq(state->nhandles, 1);
	gantry_cuda_libraries_close(libraries);
	ck_assert_int_eq(state->nhandles, 0);
}
END_TEST

START_TEST(test_cufft_plans_are_kept_and_the_oldest_goes)
{
	struct gantry_cuda_libraries *libraries = gantry_cuda_libraries_open(STREAM, VENDOR);
	struct vendor_state *state = state_of(VENDOR "/libcufft.so.12");
	struct gantry_cufft *fft = gantry_cuda_libraries_get(libraries, "cufft");
	uint64_t work_bytes = 0;
	int first, plan;

	ck_assert_ptr_nonnull(fft);
	ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_C2C, 100, 3, &first, &work_bytes), 0);
	ck_assert_uint_eq(work_bytes, 300);
	ck_assert_ptr_eq(state->stream, STREAM);
	ck_assert_int_eq(fft->c2c(first, NULL, NULL, -1), 0);
	/* Seven more fit; the first was used since, so the second goes for the ninth. */
	for (int n = 1; n <= 7; n++)
		ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_R2C, n, 1, &plan, &work_bytes),
				 0);
	ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_C2C, 100, 3, &plan, &work_bytes), 0);
	ck_assert_int_eq(plan, first);
	ck_assert_int_eq(state->nplans, 8);
	ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_C2R, 9, 1, &plan, &work_bytes), 0);
	ck_assert_int_eq(state->nplans, 8);
	ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_C2C, 100, 3, &plan, &work_bytes), 0);
	ck_assert_int_eq(plan, first);
	/* What cannot be planned leaves those that are. */
	ck_assert_int_eq(fft->plan(fft->cache, GANTRY_CUFFT_C2C, 666, 1, &plan, &work_bytes),
			 -ENOMEM);
	ck_assert_int_eq(plan, first);
	ck_assert_int_eq(state->nplans, 8);
	gantry_cuda_libraries_close(libraries);
	ck_assert_int_eq(state->nplans, 0);
}
END_TEST

START_TEST(test_unknown_library_is_null)
{
	struct gantry_cuda_libraries *libraries = gantry_cuda_libraries_open(STREAM, NULL);

	ck_assert_ptr_null(gantry_cuda_libraries_get(libraries, "cudnn"));
	gantry_cuda_libraries_close(libraries);
	gantry_cuda_libraries_close(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("devices/cuda/libraries");
	TCase *tc = gantry_unit_case(suite, "libraries");

	tcase_add_test(tc, test_cublas_gets_handle_on_stream_once);
	tcase_add_test(tc, test_cufft_plans_are_kept_and_the_oldest_goes);
	tcase_add_test(tc, test_unknown_library_is_null);
	return gantry_unit_run(suite);
}
