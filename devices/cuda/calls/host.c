/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that work on host memory. A library follows the indices that it finds there without looking, in this process: what
 * it would follow out of its arrays is refused before it is called.
 */
#include <stdlib.h>
#include <string.h>

#include "devices/cuda/calls/run.h"

struct gantry_calls_steps {
	uint32_t done; /* bits of enum gantry_calls_step_what */
	char letter;   /* of the newest measuring; 0: there was none */
	int64_t m, n, nonzeros;
	uint64_t work_bytes;
	/* The pattern that was analysed. */
	int32_t *rows;
	int32_t *columns;
};

/* ---- what lies in arrays ---- */

static bool is_matrix(const struct gantry_calls_matrix *matrix)
{
	int64_t base = matrix->base, end;

	if (!matrix->rows || !matrix->columns || matrix->nrows < 0 || matrix->nonzeros < 0)
		return false;
	if (base < 0)
		base = matrix->rows[0];
	if (base != 0 && base != 1)
		return false;
	end = matrix->nonzeros + base;
	if (matrix->rows[0] != base || (!matrix->ends && matrix->rows[matrix->nrows] != end))
		return false;
	for (int64_t i = 0; i < matrix->nrows; i++) {
		int64_t to = matrix->ends ? matrix->ends[i] : matrix->rows[i + 1];

		if (matrix->rows[i] < base || to < matrix->rows[i] || to > end)
			return false;
	}
	for (int64_t i = 0; i < matrix->nonzeros; i++)
		if (matrix->columns[i] < base || matrix->columns[i] - base >= matrix->ncolumns)
			return false;
	return true;
}

void gantry_calls_need_matrix(struct gantry_calls_run *run,
			      const struct gantry_calls_matrix *matrix)
{
	if (!run->in.failed && !is_matrix(matrix))
		gantry_calls_refuse(run);
}

/* Each number below @n once: a library that goes round in it does not come to an end. */
static bool is_permutation(const int32_t *at, int64_t n)
{
	uint8_t *seen = at && n >= 0 ? calloc(1, (size_t)n + 1) : NULL;
	int64_t i;

	for (i = 0; seen && i < n && at[i] >= 0 && at[i] < n && !seen[at[i]]; i++)
		seen[at[i]] = 1;
	free(seen);
	return seen && i == n;
}

void gantry_calls_need_permutation(struct gantry_calls_run *run, const int32_t *at, int64_t n)
{
	if (!run->in.failed && !is_permutation(at, n))
		gantry_calls_refuse(run);
}

int gantry_calls_index_base(struct gantry_calls_run *run, void *descriptor)
{
	int (*ask)(void *) = NULL;

	if (run->in.failed || !descriptor)
		return -1;
	for (const struct gantry_calls_library *const *l = run->libraries; *l && !ask; l++)
		if (strcmp((*l)->name, "cusparse") == 0)
			ask = (int (*)(void *))run->site->symbol(run->site->cookie, *l,
								 "cusparseGetMatIndexBase");
	return ask ? ask(descriptor) : -1;
}

/* ---- steps ---- */

static uint32_t bit(uint32_t what)
{
	return 1u << what;
}

static bool fits(int64_t begun, int64_t now)
{
	return now == GANTRY_CALLS_LEFT_OUT || now == begun;
}

static size_t row_bytes(const struct gantry_calls_steps *steps)
{
	return (size_t)((steps->m >= 0 ? steps->m : steps->n) + 1) * sizeof(int32_t);
}

static size_t column_bytes(const struct gantry_calls_steps *steps)
{
	return (size_t)steps->nonzeros * sizeof(int32_t);
}

/* The same matrix as the one that was analysed. */
static bool same_pattern(const struct gantry_calls_steps *steps,
			 const struct gantry_calls_step *step)
{
	if (!fits(steps->m, step->m) || !fits(steps->n, step->n) ||
	    !fits(steps->nonzeros, step->nonzeros))
		return false;
	if (!step->rows)
		return true;
	return memcmp(step->rows, steps->rows, row_bytes(steps)) == 0 &&
	       memcmp(step->columns, steps->columns, column_bytes(steps)) == 0;
}

static bool may_step(const struct gantry_calls_steps *steps, const struct gantry_calls_step *step)
{
	uint32_t wanted = bit(GANTRY_CALLS_ANALYSE);

	if (step->what == GANTRY_CALLS_ANALYSE)
		return (step->m == GANTRY_CALLS_LEFT_OUT || step->m >= 0) && step->n >= 0 &&
		       step->nonzeros >= 0 && step->rows && step->columns;
	if (step->what == GANTRY_CALLS_SET_UP || step->what == GANTRY_CALLS_FACTOR)
		wanted |= bit(GANTRY_CALLS_MEASURE);
	if (step->what == GANTRY_CALLS_FACTOR && step->wants_setup)
		wanted |= bit(GANTRY_CALLS_SET_UP);
	if (step->what == GANTRY_CALLS_USE)
		wanted |= bit(GANTRY_CALLS_MEASURE) | bit(GANTRY_CALLS_FACTOR);
	if (!steps || (steps->done & wanted) != wanted || !same_pattern(steps, step))
		return false;
	return step->what == GANTRY_CALLS_MEASURE || step->letter == 'X' ||
	       step->letter == steps->letter;
}

/* What the library is about to change is not known again before it has said that it did. */
static void unlearn(struct gantry_calls_steps *steps, const struct gantry_calls_step *step)
{
	const uint32_t factor = bit(GANTRY_CALLS_FACTOR), set_up = bit(GANTRY_CALLS_SET_UP);

	if (step->what == GANTRY_CALLS_ANALYSE)
		steps->done = 0;
	else if (step->what == GANTRY_CALLS_MEASURE)
		steps->done &= ~(bit(GANTRY_CALLS_MEASURE) | set_up | factor);
	else if (step->what == GANTRY_CALLS_SET_UP)
		steps->done &= ~(set_up | factor);
	else if (step->what == GANTRY_CALLS_FACTOR)
		steps->done &= ~factor;
}

void gantry_calls_need_step(struct gantry_calls_run *run, uint32_t kind, uint64_t id,
			    struct gantry_calls_step *step)
{
	struct gantry_calls_object *object =
		run->in.failed ? NULL : gantry_calls_table_find(&run->site->table, kind, id);

	if (object && !object->steps)
		object->steps = calloc(1, sizeof(*object->steps));
	if (object)
		step->steps = object->steps;
	if (!step->steps || !may_step(step->steps, step))
		gantry_calls_refuse(run);
	else
		unlearn(step->steps, step);
}

int64_t gantry_calls_step_columns(const struct gantry_calls_step *step)
{
	return step->steps ? step->steps->n : 0;
}

uint64_t gantry_calls_work(struct gantry_calls_run *run, const struct gantry_calls_step *step)
{
	return run->in.failed || !step->steps ? 0 : step->steps->work_bytes;
}

static void forget_pattern(struct gantry_calls_steps *steps)
{
	free(steps->rows);
	free(steps->columns);
	*steps = (struct gantry_calls_steps){ 0 };
}

void gantry_calls_steps_free(struct gantry_calls_steps *steps)
{
	if (steps)
		forget_pattern(steps);
	free(steps);
}

/* Without memory it was not analysed. */
static void begin(struct gantry_calls_steps *steps, const struct gantry_calls_step *step)
{
	forget_pattern(steps);
	steps->m = step->m;
	steps->n = step->n;
	steps->nonzeros = step->nonzeros;
	steps->rows = malloc(row_bytes(steps));
	steps->columns = malloc(column_bytes(steps) + 1);
	if (!steps->rows || !steps->columns)
		return;
	memcpy(steps->rows, step->rows, row_bytes(steps));
	memcpy(steps->columns, step->columns, column_bytes(steps));
	steps->done = bit(GANTRY_CALLS_ANALYSE);
}

void gantry_calls_note_step(struct gantry_calls_run *run, const struct gantry_calls_step *step,
			    uint64_t work_bytes)
{
	struct gantry_calls_steps *steps = step->steps;

	(void)run;
	switch (step->what) {
	case GANTRY_CALLS_ANALYSE:
		begin(steps, step);
		return;
	case GANTRY_CALLS_MEASURE:
		steps->done = bit(GANTRY_CALLS_ANALYSE) | bit(GANTRY_CALLS_MEASURE);
		steps->letter = step->letter;
		steps->work_bytes = work_bytes;
		return;
	case GANTRY_CALLS_SET_UP:
		/* What was factored before is another matrix's now. */
		steps->done &= ~bit(GANTRY_CALLS_FACTOR);
		break;
	}
	steps->done |= bit(step->what);
}
