/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <math.h>

#include "devices/kernels/openblas.h"
#include "tests/unit/kernels/env.h"

gantry_body gantry_kernel_gemm, gantry_kernel_gemm_plain;

static void assert_product(const float *a, const float *b, const float *c, size_t m, size_t n,
			   size_t k)
{
	for (size_t i = 0; i < m; i++)
		for (size_t j = 0; j < n; j++) {
			double sum = 0;

			for (size_t l = 0; l < k; l++)
				sum += (double)a[i * k + l] * (double)b[l * n + j];
			ASSERT_NEAR(c[i * n + j], sum, 1e-6 * (double)(k + 1));
		}
}

static void check_sizes(struct test_env *te, gantry_body *kernel)
{
	static const uint32_t sizes[][3] = {
		{ 1, 1, 1 }, { 3, 5, 2 }, { 65, 257, 129 }, { 17, 300, 260 }, { 600, 3, 4 },
	};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint32_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
		float *a = env_floats(te, (size_t)m * k, 1), *b = env_floats(te, (size_t)k * n, 2);
		float *c = env_floats(te, (size_t)m * n, 3);

		ck_assert_int_eq(RUN(te, kernel, SPAN(a, (size_t)m * k), SPAN(b, (size_t)k * n),
				     SPAN(c, (size_t)m * n), U32(m), U32(n), U32(k)),
				 0);
		assert_product(a, b, c, m, n, k);
	}
}

START_TEST(test_gemm_plain_equals_triple_loop)
{
	struct test_env te;

	env_init(&te, (enum env_mode)_i);
	check_sizes(&te, gantry_kernel_gemm_plain);
	env_fini(&te);
}
END_TEST

START_TEST(test_gemm_without_library_still_multiplies)
{
	struct test_env te;

	env_init(&te, ENV_INLINE);
	check_sizes(&te, gantry_kernel_gemm);
	env_fini(&te);
}
END_TEST

START_TEST(test_gemm_through_openblas_equals_triple_loop)
{
	struct gantry_openblas blas = { .size = sizeof(blas) };
	struct test_env te;
	void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		gantry_unit_skip("no libopenblas.so.0");
	*(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
	*(void **)&blas.dgemm = dlsym(library, "cblas_dgemm");
	*(void **)&blas.set_num_threads = dlsym(library, "openblas_set_num_threads");
	ck_assert(blas.sgemm && blas.dgemm && blas.set_num_threads);
	blas.set_num_threads(1);

	env_init(&te, (enum env_mode)_i);
	te.openblas = &blas;
	check_sizes(&te, gantry_kernel_gemm);
	env_fini(&te);
	/*
	 * The library stays open: it has threads of its own that only the end of the process stops.
	 */
}
END_TEST

START_TEST(test_gemm_of_no_depth_is_zero)
{
	struct test_env te;
	float c[6] = { 1, 2, 3, 4, 5, 6 };

	env_init(&te, ENV_INLINE);
	ck_assert_int_eq(RUN(&te, gantry_kernel_gemm, SPAN(c, 0), SPAN(c, 0), SPAN(c, 6), U32(2),
			     U32(3), U32(0)),
			 0);
	for (size_t i = 0; i < 6; i++)
		ck_assert_float_eq(c[i], 0);
	env_fini(&te);
}
END_TEST

START_TEST(test_gemm_sizes_past_spans_are_refused)
{
	static gantry_body *const kernels[] = { gantry_kernel_gemm, gantry_kernel_gemm_plain };
	struct test_env te;
	float *x;

	env_init(&te, ENV_INLINE);
	x = env_floats(&te, 16, 1);
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(RUN(&te, kernels[i], SPAN(x, 15), SPAN(x, 16), SPAN(x, 16), U32(4),
				     U32(4), U32(4)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, kernels[i], SPAN(x, 16), SPAN(x, 15), SPAN(x, 16), U32(4),
				     U32(4), U32(4)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, kernels[i], SPAN(x, 16), SPAN(x, 16), SPAN(x, 15), U32(4),
				     U32(4), U32(4)),
				 REFUSED(EINVAL));
		ck_assert_int_eq(RUN(&te, kernels[i], SPAN(x, 16), SPAN(x, 16), SPAN(x, 16),
				     U32(UINT32_MAX), U32(UINT32_MAX), U32(UINT32_MAX)),
				 REFUSED(EINVAL));
	}
	env_fini(&te);
}
END_TEST

START_TEST(test_gemm_plain_stops_when_cancelled)
{
	struct test_env te;
	float *a, *b, *c;

	env_init(&te, ENV_INLINE);
	a = env_floats(&te, 2000, 1);
	b = env_floats(&te, 1, 2);
	c = env_array(&te, 2000, sizeof(*c));
	te.asks_left = 1;
	ASSERT_CANCELLED(RUN(&te, gantry_kernel_gemm_plain, SPAN(a, 2000), SPAN(b, 1),
			     SPAN(c, 2000), U32(2000), U32(1), U32(1)));
	env_fini(&te);
}
END_TEST

Suite *kernels_gemm_suite(void)
{
	Suite *suite = suite_create("kernels/gemm");
	TCase *tc = env_case(suite, "gemm"), *library;

	tcase_add_loop_test(tc, test_gemm_plain_equals_triple_loop, 0, ENV_NMODES);
	tcase_add_test(tc, test_gemm_without_library_still_multiplies);
	tcase_add_test(tc, test_gemm_of_no_depth_is_zero);
	tcase_add_test(tc, test_gemm_sizes_past_spans_are_refused);
	tcase_add_test(tc, test_gemm_plain_stops_when_cancelled);

	/* No leak check: OpenBLAS starts threads when it is loaded, and keeps them. */
	library = tcase_create("openblas");
	tcase_set_timeout(library, GANTRY_UNIT_TIMEOUT_S);
	tcase_add_loop_test(library, test_gemm_through_openblas_equals_triple_loop, 0, ENV_NMODES);
	suite_add_tcase(suite, library);
	return suite;
}
