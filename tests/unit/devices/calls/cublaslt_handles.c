/* SPDX-License-Identifier: Apache-2.0 */
/* Programs give cuBLAS's handle to cuBLASLt: the vendor says that they may. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "tests/unit/runner.h"

#define OF_BLAS	  0x8000u /* what the libraries call their objects */
#define OF_LT	  0x8100u
#define OF_LAYOUT 0x8200u
#define OF_DESC	  0x8300u
#define OF_WISH	  0x8400u

extern const struct gantry_calls_library gantry_calls_cublasLt;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static uintptr_t seen;
static unsigned int ncalls;

static cublasStatus_t heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
				cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
				cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
				cublasLtMatmulPreference_t wish, int requested,
				cublasLtMatmulHeuristicResult_t results[], int *ret_count)
{
	ncalls++;
	seen = (uintptr_t)handle;
	ck_assert_ptr_eq((void *)desc, (void *)OF_DESC);
	ck_assert(a == b && b == c && c == d);
	ck_assert_ptr_eq((void *)wish, (void *)OF_WISH);
	for (int i = 0; i < requested; i++)
		results[i].workspaceSize = 77;
	*ret_count = requested;
	return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t destroy(cublasLtHandle_t handle)
{
	ncalls++;
	seen = (uintptr_t)handle;
	return CUBLAS_STATUS_SUCCESS;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	(void)cookie;
	(void)library;
	return strcmp(name, "cublasLtMatmulAlgoGetHeuristic") == 0 ? (void *)heuristic
	       : strcmp(name, "cublasLtDestroy") == 0		   ? (void *)destroy
								   : NULL;
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie;
	(void)address;
	return 0;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	(void)address;
	return false;
}

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_cublasLt, NULL };
	struct gantry_pack out;

	(void)cookie;
	(void)library;
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, request, bytes, &out);
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	return 0;
}

static void *add(const char *type, uint64_t native)
{
	return (void *)(uintptr_t)gantry_calls_table_add(&site.table, gantry_calls_kind(type),
							 native);
}

static cublasStatus_t ask(void *handle)
{
	void *layout = add("cublasLtMatrixLayout_t", OF_LAYOUT);
	cublasLtMatmulHeuristicResult_t result;
	cublasStatus_t status;
	int count = 0;

	memset(&result, 0, sizeof(result));
	status = cublasLtMatmulAlgoGetHeuristic(handle, add("cublasLtMatmulDesc_t", OF_DESC),
						layout, layout, layout, layout,
						add("cublasLtMatmulPreference_t", OF_WISH), 1,
						&result, &count);
	if (status == CUBLAS_STATUS_SUCCESS) {
		ck_assert_int_eq(count, 1);
		ck_assert_uint_eq(result.workspaceSize, 77);
	}
	return status;
}

START_TEST(test_cublas_handle_stands_for_cublaslts)
{
	static const struct gantry_call_road road = { .carry = carry, .is_device = is_device };
	void *blas, *lt;

	site = (struct gantry_calls_site){ .symbol = find_symbol, .reaches = reaches };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	ck_assert_int_eq(ask(add("cublasLtMatmulDesc_t", OF_DESC)), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(ncalls, 0);
	blas = add("cublasHandle_t", OF_BLAS);
	lt = add("cublasLtHandle_t", OF_LT);
	ck_assert_int_eq(ask(blas), 0);
	ck_assert_uint_eq(seen, OF_BLAS);
	ck_assert_int_eq(ask(lt), 0);
	ck_assert_uint_eq(seen, OF_LT);
	/* It ends as what it is. */
	ck_assert_int_eq(cublasLtDestroy(blas), CUBLAS_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(ncalls, 2);
	ck_assert_int_eq(cublasLtDestroy(lt), 0);
	ck_assert_int_eq(ask(lt), CUBLAS_STATUS_INVALID_VALUE);
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cublasLt handles");
	TCase *tc = gantry_unit_case(suite, "handles");

	tcase_add_test(tc, test_cublas_handle_stands_for_cublaslts);
	return gantry_unit_run(suite);
}
