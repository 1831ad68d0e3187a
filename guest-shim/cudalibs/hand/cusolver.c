/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factors that cuSOLVER made on the host: how long they are, and how large the matrix is, its object knows and no argument says. The
 * other end is devices/cuda/calls/hand/cusolver.c, and what lies on the wire is said there.
 */
#include <cusolverSp.h>
#include <cusolverSp_LOWLEVEL_PREVIEW.h>

#include "guest-shim/cudalibs/call.h"

struct factor {
	cusparseMatDescr_t descriptor;
	void *values;
	int *rows, *columns;
};

/* The rows of the matrix and one more, as the answer says: what the caller has room for. */
static _Thread_local int64_t counts[2];

static void put_counted(struct gantry_call *call, void *to, const int64_t *count,
			uint64_t element_bytes, uint64_t bytes)
{
	gantry_call_out(call, to, bytes);
	if (to)
		gantry_call_counted(call, count, element_bytes);
}

static void put_factor(struct gantry_call *call, const struct factor *factor, int nonzeros,
		       uint64_t value_bytes)
{
	gantry_call_out(call, factor->values, gantry_pack_span(nonzeros, value_bytes));
	put_counted(call, factor->rows, &counts[1], sizeof(int),
		    gantry_pack_span((int64_t)nonzeros + 1, sizeof(int)));
	gantry_call_out(call, factor->columns, gantry_pack_span(nonzeros, sizeof(int)));
}

static void extract(struct gantry_call *call, cusolverSpHandle_t handle, csrluInfoHost_t info,
		    int *const permutations[2], const struct factor factors[2],
		    uint64_t value_bytes)
{
	int nonzeros[2] = { 0, 0 };

	/* What fails leaves nothing to ask for, and the worker says no. */
	(void)cusolverSpXcsrluNnzHost(handle, &nonzeros[0], &nonzeros[1], info);
	call->waits = true;
	gantry_call_put(call, nonzeros, sizeof(nonzeros));
	gantry_call_handle(call, (uint64_t)(uintptr_t)handle, GANTRY_CALL_BOUND);
	for (int i = 0; i < 2; i++)
		gantry_call_handle(call, (uint64_t)(uintptr_t)factors[i].descriptor, 0);
	gantry_call_handle(call, (uint64_t)(uintptr_t)info, 0);
	gantry_call_out(call, counts, sizeof(counts));
	for (int i = 0; i < 2; i++)
		put_counted(call, permutations[i], &counts[0], sizeof(int),
			    gantry_pack_span(nonzeros[i], sizeof(int)));
	for (int i = 0; i < 2; i++)
		put_factor(call, &factors[i], nonzeros[i], value_bytes);
}

#define EXTRACT(letter, type)                                                              \
	void gantry_hand_cusolverSp##letter##csrluExtractHost(                             \
		struct gantry_call *call, cusolverSpHandle_t handle, int *p, int *q,       \
		cusparseMatDescr_t of_l, type *values_l, int *rows_l, int *columns_l,      \
		cusparseMatDescr_t of_u, type *values_u, int *rows_u, int *columns_u,      \
		csrluInfoHost_t info, void *work);                                         \
	void gantry_hand_cusolverSp##letter##csrluExtractHost(                             \
		struct gantry_call *call, cusolverSpHandle_t handle, int *p, int *q,       \
		cusparseMatDescr_t of_l, type *values_l, int *rows_l, int *columns_l,      \
		cusparseMatDescr_t of_u, type *values_u, int *rows_u, int *columns_u,      \
		csrluInfoHost_t info, void *work)                                          \
	{                                                                                  \
		(void)work; /* the worker has memory of its own */                         \
		extract(call, handle, info, (int *const[2]){ p, q },                       \
			(const struct factor[2]){ { of_l, values_l, rows_l, columns_l },   \
						  { of_u, values_u, rows_u, columns_u } }, \
			sizeof(type));                                                     \
	}

EXTRACT(S, float)
EXTRACT(D, double)
EXTRACT(C, cuComplex)
EXTRACT(Z, cuDoubleComplex)
