/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of a sparse matrix on the host, there and back, against a library that has some. */
#include <cusolverSp.h>
#include <cusolverSp_LOWLEVEL_PREVIEW.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"
#include "guest-shim/cudalibs/call.h"
#include "tests/unit/runner.h"

#define N	3
#define NNZ_L	4
#define NNZ_U	5
#define WORK	100
#define UNTOLD	-77
#define HANDLE	0x7000u
#define MATRIX	0x7100u
#define FACTORS 0x7200u

extern const struct gantry_calls_library gantry_calls_cusolver;
/* Nobody takes the usual road here. */
const struct gantry_call_road gantry_call_road_session = { 0 };

static struct gantry_calls_site site;
static uint32_t answered;
static unsigned int nextracted;
static int said[2];
/* The number of the first factor's elements in the request becomes this; 0: it stays. */
static int32_t lie;
static cusolverSpHandle_t handle;
static cusparseMatDescr_t matrix;
static csrluInfoHost_t info;

static const int rows[N + 1] = { 0, 1, 2, 3 }, columns[N] = { 0, 1, 2 };
static const double values[N] = { 1, 2, 3 };

/* ---- the library ---- */

static cusolverStatus_t analyse(cusolverSpHandle_t of, int n, int nnz, cusparseMatDescr_t a,
				const int *at, const int *in, csrluInfoHost_t to)
{
	(void)of, (void)n, (void)nnz, (void)a, (void)at, (void)in, (void)to;
	return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t measure(cusolverSpHandle_t of, int n, int nnz, cusparseMatDescr_t a,
				const double *v, const int *at, const int *in, csrluInfoHost_t to,
				size_t *internal, size_t *work)
{
	(void)of, (void)n, (void)nnz, (void)a, (void)v, (void)at, (void)in, (void)to;
	*internal = 1;
	*work = WORK;
	return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t factor(cusolverSpHandle_t of, int n, int nnz, cusparseMatDescr_t a,
			       const double *v, const int *at, const int *in, csrluInfoHost_t to,
			       double threshold, void *work)
{
	(void)of, (void)n, (void)nnz, (void)a, (void)v, (void)at, (void)in, (void)to;
	(void)threshold;
	memset(work, 1, WORK);
	return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t count(cusolverSpHandle_t of, int *l, int *u, csrluInfoHost_t to)
{
	(void)of, (void)to;
	*l = said[0];
	*u = said[1];
	return CUSOLVER_STATUS_SUCCESS;
}

static void give(int *to, int n, int first)
{
	for (int i = 0; i < n; i++)
		to[i] = first + i;
}

static cusolverStatus_t extract(cusolverSpHandle_t of, int *p, int *q, cusparseMatDescr_t of_l,
				double *values_l, int *rows_l, int *columns_l,
				cusparseMatDescr_t of_u, double *values_u, int *rows_u,
				int *columns_u, csrluInfoHost_t to, void *work)
{
	ck_assert_uint_eq((uintptr_t)of, HANDLE);
	ck_assert_uint_eq((uintptr_t)of_l, MATRIX);
	ck_assert_uint_eq((uintptr_t)of_u, MATRIX);
	ck_assert_uint_eq((uintptr_t)to, FACTORS);
	nextracted++;
	give(p, N, 10);
	give(q, N, 20);
	give(rows_l, N + 1, 30);
	give(rows_u, N + 1, 40);
	give(columns_l, NNZ_L, 50);
	give(columns_u, NNZ_U, 60);
	for (int i = 0; i < NNZ_U; i++) {
		if (i < NNZ_L)
			values_l[i] = i;
		values_u[i] = -i;
	}
	memset(work, 2, WORK);
	return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t set_stream(cusolverSpHandle_t of, cudaStream_t stream)
{
	(void)of, (void)stream;
	return CUSOLVER_STATUS_SUCCESS;
}

static int index_base(const cusparseMatDescr_t of)
{
	(void)of;
	return 0;
}

static void *find_symbol(void *cookie, const struct gantry_calls_library *library, const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} symbols[] = {
		{ "cusolverSpXcsrluAnalysisHost", (void *)analyse },
		{ "cusolverSpDcsrluBufferInfoHost", (void *)measure },
		{ "cusolverSpDcsrluFactorHost", (void *)factor },
		{ "cusolverSpXcsrluNnzHost", (void *)count },
		{ "cusolverSpDcsrluExtractHost", (void *)extract },
		{ "cusolverSpSetStream", (void *)set_stream },
		{ "cusparseGetMatIndexBase", (void *)index_base },
	};

	(void)cookie, (void)library;
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
		if (strcmp(name, symbols[i].name) == 0)
			return symbols[i].function;
	return NULL;
}

/* ---- the way ---- */

static int carry(void *cookie, struct gantry_call_library *library,
		 const struct gantry_call_route *route, const void *request, size_t bytes,
		 void *reply, size_t reply_bytes)
{
	const struct gantry_calls_library *const libraries[] = { &gantry_calls_cusolver, NULL };
	uint8_t *copy = malloc(bytes);
	struct gantry_pack out;

	(void)cookie, (void)library;
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, request, bytes);
	if (lie && strstr(route->name, "Extract"))
		memcpy(copy + sizeof(struct gantry_calls_request), &lie, sizeof(lie));
	gantry_pack_init(&out, GANTRY_CALLS_MAX_BYTES);
	gantry_calls_serve(&site, libraries, NULL, copy, bytes, &out);
	answered = ((const struct gantry_calls_reply *)out.bytes)->state;
	if (route->waits) {
		ck_assert_uint_le(out.len, reply_bytes);
		memcpy(reply, out.bytes, out.len);
	}
	gantry_pack_fini(&out);
	free(copy);
	return 0;
}

static int is_device(void *cookie, const void *address)
{
	(void)cookie, (void)address;
	return 0;
}

static void *add(const char *type, uint64_t native)
{
	return (void *)(uintptr_t)gantry_calls_table_add(&site.table, gantry_calls_kind(type),
							 native);
}

static void start(void)
{
	static const struct gantry_call_road road = { .carry = carry, .is_device = is_device };

	nextracted = 0;
	said[0] = NNZ_L;
	said[1] = NNZ_U;
	lie = 0;
	site = (struct gantry_calls_site){ .symbol = find_symbol };
	gantry_calls_table_init(&site.table);
	gantry_call_road_set(&road);
	handle = add("cusolverSpHandle_t", HANDLE);
	matrix = add("cusparseMatDescr_t", MATRIX);
	info = add("csrluInfoHost_t", FACTORS);
}

static void finish(void)
{
	gantry_calls_table_fini(&site.table);
	gantry_call_road_set(NULL);
}

static void make_factors(void)
{
	size_t internal = 0, work = 0;

	ck_assert_int_eq(cusolverSpXcsrluAnalysisHost(handle, N, N, matrix, rows, columns, info),
			 0);
	ck_assert_int_eq(cusolverSpDcsrluBufferInfoHost(handle, N, N, matrix, values, rows, columns,
							info, &internal, &work),
			 0);
	ck_assert_int_eq(cusolverSpDcsrluFactorHost(handle, N, N, matrix, values, rows, columns,
						    info, 1, NULL),
			 0);
}

/* What the program has room for, and one element behind each that nobody may touch. */
static struct {
	int p[N + 1], q[N + 1];
	int rows_l[N + 2], rows_u[N + 2], columns_l[NNZ_L + 1], columns_u[NNZ_U + 1];
	double values_l[NNZ_L + 1], values_u[NNZ_U + 1];
} got;

static cusolverStatus_t get(void)
{
	memset(&got, 0, sizeof(got));
	got.p[N] = got.q[N] = got.rows_l[N + 1] = got.rows_u[N + 1] = UNTOLD;
	got.columns_l[NNZ_L] = got.columns_u[NNZ_U] = UNTOLD;
	return cusolverSpDcsrluExtractHost(handle, got.p, got.q, matrix, got.values_l, got.rows_l,
					   got.columns_l, matrix, got.values_u, got.rows_u,
					   got.columns_u, info, NULL);
}

static bool is_row(const int *at, int n, int first)
{
	for (int i = 0; i < n; i++)
		if (at[i] != first + i)
			return false;
	return at[n] == UNTOLD; /* nobody wrote behind it */
}

START_TEST(test_factors_come_with_as_many_elements_as_they_have)
{
	start();
	make_factors();
	ck_assert_int_eq(get(), CUSOLVER_STATUS_SUCCESS);
	ck_assert(is_row(got.p, N, 10) && is_row(got.q, N, 20));
	ck_assert(is_row(got.rows_l, N + 1, 30) && is_row(got.rows_u, N + 1, 40));
	ck_assert(is_row(got.columns_l, NNZ_L, 50) && is_row(got.columns_u, NNZ_U, 60));
	ck_assert(got.values_l[NNZ_L - 1] == NNZ_L - 1 && got.values_l[NNZ_L] == 0);
	ck_assert(got.values_u[NNZ_U - 1] == 1 - NNZ_U && got.values_u[NNZ_U] == 0);
	finish();
}
END_TEST

START_TEST(test_factors_that_nobody_made_are_refused)
{
	start();
	ck_assert_int_eq(get(), CUSOLVER_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(answered, GANTRY_CALLS_REFUSED);
	ck_assert_uint_eq(nextracted, 0);
	finish();
}
END_TEST

/* The library writes as many as there are, wherever it is told. */
START_TEST(test_other_lengths_than_the_object_has_are_refused)
{
	static const int32_t lies[] = { NNZ_L - 1, NNZ_L + 1, -1, INT32_MAX };

	start();
	make_factors();
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		lie = lies[i];
		ck_assert_int_eq(get(), CUSOLVER_STATUS_INVALID_VALUE);
		ck_assert_uint_eq(answered, GANTRY_CALLS_REFUSED);
	}
	lie = 0;
	/* Permutations would have no room. */
	said[0] = N - 1;
	ck_assert_int_eq(get(), CUSOLVER_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(nextracted, 0);
	finish();
}
END_TEST

START_TEST(test_factors_of_another_type_or_object_are_refused)
{
	float values_l[NNZ_L], values_u[NNZ_U];

	start();
	make_factors();
	ck_assert_int_eq(cusolverSpScsrluExtractHost(handle, got.p, got.q, matrix, values_l,
						     got.rows_l, got.columns_l, matrix, values_u,
						     got.rows_u, got.columns_u, info, NULL),
			 CUSOLVER_STATUS_NOT_SUPPORTED); /* this library has none of it */
	info = (csrluInfoHost_t)(void *)handle;
	ck_assert_int_eq(get(), CUSOLVER_STATUS_INVALID_VALUE);
	info = NULL;
	ck_assert_int_eq(get(), CUSOLVER_STATUS_INVALID_VALUE);
	ck_assert_uint_eq(nextracted, 0);
	finish();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cusolver factors");
	TCase *tc = gantry_unit_case(suite, "factors");

	tcase_add_test(tc, test_factors_come_with_as_many_elements_as_they_have);
	tcase_add_test(tc, test_factors_that_nobody_made_are_refused);
	tcase_add_test(tc, test_other_lengths_than_the_object_has_are_refused);
	tcase_add_test(tc, test_factors_of_another_type_or_object_are_refused);
	return gantry_unit_run(suite);
}
