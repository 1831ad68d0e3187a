/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factors that cuSOLVER made on the host. On the wire:
 *
 *   the elements of both as the guest was told them, the handle, two descriptors, the object
 *   bytes out   the rows of the matrix and one more, 8 bytes each
 *   bytes out   both permutations, with room for as many as their factor's elements: each row has one at least
 *   bytes out   of each factor its values, where its rows begin (room for one more), its columns
 */
#include <cusolverSp.h>
#include <cusolverSp_LOWLEVEL_PREVIEW.h>

#include "devices/cuda/calls/run.h"

struct factor {
	void *descriptor, *values, *rows, *columns;
};

struct extraction {
	int32_t nonzeros[2];
	uint64_t info_id;
	void *handle, *info, *work;
	void *permutations[2];
	struct factor factors[2];
};

static void *take_object(struct gantry_calls_run *run, const char *type)
{
	void *object = (void *)(uintptr_t)gantry_calls_take_handle(run, gantry_calls_kind(type),
								   false);

	gantry_calls_need(run, object);
	return object;
}

/* Whether the object has so many, and room for its rows. */
static bool is_so_long(struct gantry_calls_run *run, const struct extraction *x, int64_t rows)
{
	__typeof__(&cusolverSpXcsrluNnzHost) ask = (__typeof__(&cusolverSpXcsrluNnzHost))
		gantry_calls_symbol(run, "cusolverSpXcsrluNnzHost");
	int nonzeros[2] = { 0, 0 };

	if (run->in.failed || !ask ||
	    ask(x->handle, &nonzeros[0], &nonzeros[1], x->info) != CUSOLVER_STATUS_SUCCESS)
		return false;
	return nonzeros[0] == x->nonzeros[0] && nonzeros[1] == x->nonzeros[1] && rows >= 0 &&
	       rows <= nonzeros[0] && rows <= nonzeros[1];
}

static void take_places(struct gantry_calls_run *run, struct extraction *x, int64_t rows,
			uint64_t value_bytes)
{
	int64_t *counts = gantry_calls_take_out(run, 2 * sizeof(*counts));

	if (counts) {
		counts[0] = rows;
		counts[1] = rows + 1;
	}
	for (int i = 0; i < 2; i++)
		x->permutations[i] = gantry_calls_take_out(run, gantry_pack_span(x->nonzeros[i],
										 sizeof(int32_t)));
	for (int i = 0; i < 2; i++) {
		struct factor *factor = &x->factors[i];

		factor->values =
			gantry_calls_take_out(run, gantry_pack_span(x->nonzeros[i], value_bytes));
		factor->rows = gantry_calls_take_out(
			run, gantry_pack_span((int64_t)x->nonzeros[i] + 1, sizeof(int32_t)));
		factor->columns = gantry_calls_take_out(run, gantry_pack_span(x->nonzeros[i],
									      sizeof(int32_t)));
	}
}

/* Whether the library may be called. */
static bool take(struct gantry_calls_run *run, struct extraction *x, char letter,
		 uint64_t value_bytes)
{
	struct gantry_calls_step step = {
		.what = GANTRY_CALLS_USE,
		.letter = letter,
		.m = GANTRY_CALLS_LEFT_OUT,
		.n = GANTRY_CALLS_LEFT_OUT,
		.nonzeros = GANTRY_CALLS_LEFT_OUT,
	};
	int64_t rows;

	gantry_calls_take(run, x->nonzeros, sizeof(x->nonzeros));
	x->handle = take_object(run, "cusolverSpHandle_t");
	for (int i = 0; i < 2; i++)
		x->factors[i].descriptor = take_object(run, "cusparseMatDescr_t");
	x->info_id = gantry_calls_peek(run);
	x->info = take_object(run, "csrluInfoHost_t");
	gantry_calls_need_step(run, gantry_calls_kind("csrluInfoHost_t"), x->info_id, &step);
	rows = gantry_calls_step_columns(&step);
	if (!is_so_long(run, x, rows))
		gantry_calls_refuse(run);
	take_places(run, x, rows, value_bytes);
	x->work = gantry_calls_take_scratch(run, gantry_calls_work(run, &step));
	return gantry_calls_may_run(run);
}

#define EXTRACT(letter, type)                                                                      \
	void gantry_hand_serve_cusolverSp##letter##csrluExtractHost(struct gantry_calls_run *run); \
	void gantry_hand_serve_cusolverSp##letter##csrluExtractHost(struct gantry_calls_run *run)  \
	{                                                                                          \
		__typeof__(&cusolverSp##letter##csrluExtractHost) function =                       \
			(__typeof__(&cusolverSp##letter##csrluExtractHost))gantry_calls_symbol(    \
				run, "cusolverSp" #letter "csrluExtractHost");                     \
		struct extraction x = { 0 };                                                       \
		struct factor *l = &x.factors[0], *u = &x.factors[1];                              \
		cusolverStatus_t ret;                                                              \
                                                                                                   \
		if (!take(run, &x, #letter[0], sizeof(type)))                                      \
			return;                                                                    \
		ret = function(x.handle, x.permutations[0], x.permutations[1], l->descriptor,      \
			       l->values, l->rows, l->columns, u->descriptor, u->values, u->rows,  \
			       u->columns, x.info, x.work);                                        \
		gantry_calls_ran(run, (uint64_t)ret, ret == CUSOLVER_STATUS_SUCCESS);              \
	}

EXTRACT(S, float)
EXTRACT(D, double)
EXTRACT(C, cuComplex)
EXTRACT(Z, cuDoubleComplex)
