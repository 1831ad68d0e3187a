/* SPDX-License-Identifier: Apache-2.0 */
/* What functions on host memory are given is looked at before a library follows it: devices/cuda/calls/host.c. */
#include <stdlib.h>

#include "devices/cuda/calls/run.h"
#include "proto/calls_types.h"
#include "tests/unit/runner.h"

#define KIND 77u

static struct gantry_calls_site site;
static const struct gantry_calls_library *const none[] = { NULL };

static bool is_taken(const struct gantry_calls_matrix *matrix)
{
	struct gantry_calls_run run = { .libraries = none };

	gantry_calls_need_matrix(&run, matrix);
	return !run.in.failed;
}

/* Two rows: the first has columns 0 and 2, the second column 1. */
static const int32_t rows[] = { 0, 2, 3 }, columns[] = { 0, 2, 1 };
static const struct gantry_calls_matrix good = { .rows = rows,
						 .nrows = 2,
						 .columns = columns,
						 .ncolumns = 3,
						 .nonzeros = 3 };

START_TEST(test_matrix_that_stays_inside_its_arrays_is_taken)
{
	static const int32_t from_one[] = { 1, 3, 4 }, columns_from_one[] = { 1, 3, 2 };
	static const int32_t ends[] = { 1, 3 }, gaps[] = { 0, 2, 3 };
	struct gantry_calls_matrix matrix = good;

	ck_assert(is_taken(&matrix));
	matrix.base = -1;
	ck_assert(is_taken(&matrix));
	matrix.rows = gaps;
	matrix.ends = ends;
	ck_assert(is_taken(&matrix));
	matrix = good;
	matrix.rows = from_one;
	matrix.columns = columns_from_one;
	ck_assert(!is_taken(&matrix));
	matrix.base = 1;
	ck_assert(is_taken(&matrix));
	matrix = (struct gantry_calls_matrix){ .rows = rows, .columns = columns };
	ck_assert(is_taken(&matrix));
}
END_TEST

static const struct {
	int32_t rows[3], ends[2], columns[3];
	bool has_ends;
} leaving[] = {
	{ .rows = { 0, 2, 4 }, .columns = { 0, 2, 1 } },
	{ .rows = { 0, 4, 3 }, .columns = { 0, 2, 1 } },
	{ .rows = { 0, -1, 3 }, .columns = { 0, 2, 1 } },
	{ .rows = { 1, 2, 3 }, .columns = { 0, 2, 1 } },
	{ .rows = { 2, 2, 3 }, .columns = { 0, 2, 1 } },
	{ .rows = { 0, 2, INT32_MAX }, .columns = { 0, 2, 1 } },
	{ .rows = { 0, 2, 3 }, .columns = { 0, 3, 1 } },
	{ .rows = { 0, 2, 3 }, .columns = { 0, 2, -1 } },
	{ .rows = { 0, 2, 3 }, .columns = { INT32_MIN, 2, 1 } },
	{ .rows = { 0, 2, 3 }, .columns = { 0, 2, 1 }, .ends = { 2, 4 }, .has_ends = true },
	{ .rows = { 0, 2, 3 }, .columns = { 0, 2, 1 }, .ends = { 2, 1 }, .has_ends = true },
};

START_TEST(test_matrix_that_leads_out_of_its_arrays_is_refused)
{
	struct gantry_calls_matrix matrix = good;

	matrix.rows = leaving[_i].rows;
	matrix.columns = leaving[_i].columns;
	matrix.ends = leaving[_i].has_ends ? leaving[_i].ends : NULL;
	ck_assert(!is_taken(&matrix));
}
END_TEST

START_TEST(test_matrix_that_is_not_there_is_refused)
{
	struct gantry_calls_matrix matrix = good;

	matrix.rows = NULL;
	ck_assert(!is_taken(&matrix));
	matrix = good;
	matrix.columns = NULL;
	ck_assert(!is_taken(&matrix));
	matrix = good;
	matrix.nonzeros = -1;
	ck_assert(!is_taken(&matrix));
	matrix = good;
	matrix.nrows = -1;
	ck_assert(!is_taken(&matrix));
}
END_TEST

START_TEST(test_permutation_has_each_number_once)
{
	static const int32_t rows_of[][3] = {
		{ 2, 0, 1 }, { 0, 0, 1 }, { 0, 1, 3 }, { -1, 0, 1 }, { 0, 1, INT32_MIN }
	};

	for (unsigned int i = 0; i < 5; i++) {
		struct gantry_calls_run run = { .site = &site };

		gantry_calls_need_permutation(&run, rows_of[i], 3);
		ck_assert_int_eq(run.in.failed, i > 0);
	}
}
END_TEST

/* ---- steps ---- */

static uint64_t object;

static const struct gantry_calls_step analyse = { .what = GANTRY_CALLS_ANALYSE,
						  .letter = 'X',
						  .m = GANTRY_CALLS_LEFT_OUT,
						  .n = 2,
						  .nonzeros = 3,
						  .rows = rows,
						  .columns = columns };

/* Whether the object may take the step; it has taken it then. */
static bool steps(struct gantry_calls_step step, uint32_t what, char letter)
{
	struct gantry_calls_run run = { .site = &site };

	step.what = what;
	step.letter = letter;
	gantry_calls_need_step(&run, KIND, object, &step);
	if (run.in.failed)
		return false;
	gantry_calls_note_step(&run, &step, what == GANTRY_CALLS_MEASURE ? 100 : 0);
	return true;
}

static uint64_t work(void)
{
	struct gantry_calls_run run = { .site = &site };
	struct gantry_calls_step step = analyse;

	step.what = GANTRY_CALLS_FACTOR;
	step.letter = 'D';
	gantry_calls_need_step(&run, KIND, object, &step);
	return gantry_calls_work(&run, &step);
}

static void begin(void)
{
	gantry_calls_table_init(&site.table);
	object = gantry_calls_table_add(&site.table, KIND, 0x1000);
}

START_TEST(test_steps_come_in_their_order)
{
	struct gantry_calls_step use = { .m = GANTRY_CALLS_LEFT_OUT,
					 .n = 2,
					 .nonzeros = GANTRY_CALLS_LEFT_OUT };

	begin();
	ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
	ck_assert(!steps(analyse, GANTRY_CALLS_MEASURE, 'D'));
	ck_assert(!steps(analyse, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	ck_assert(!steps(analyse, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_MEASURE, 'D'));
	ck_assert_uint_eq(work(), 100);
	ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(steps(use, GANTRY_CALLS_USE, 'D'));
	ck_assert(steps(use, GANTRY_CALLS_USE, 'X'));
	/* Whoever begins again has nothing of before. */
	ck_assert(steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	ck_assert_uint_eq(work(), 0);
	ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
	gantry_calls_table_fini(&site.table);
}
END_TEST

/* A number that is given counts, whatever it is: only what a function has not is left out. */
START_TEST(test_steps_with_negative_numbers_are_refused)
{
	struct gantry_calls_step use = { .m = GANTRY_CALLS_LEFT_OUT,
					 .n = -1,
					 .nonzeros = GANTRY_CALLS_LEFT_OUT };
	struct gantry_calls_step step = analyse;

	begin();
	step.m = -1;
	ck_assert(!steps(step, GANTRY_CALLS_ANALYSE, 'X'));
	ck_assert(steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	step = analyse;
	step.nonzeros = -1;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_MEASURE, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
	use.n = 2;
	use.m = -1;
	ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
	gantry_calls_table_fini(&site.table);
}
END_TEST

/* The library may have been half-way through it. */
START_TEST(test_a_step_that_fails_takes_away_what_it_would_have_changed)
{
	struct gantry_calls_step use = { .m = GANTRY_CALLS_LEFT_OUT,
					 .n = 2,
					 .nonzeros = GANTRY_CALLS_LEFT_OUT };
	const uint32_t order[] = { GANTRY_CALLS_ANALYSE, GANTRY_CALLS_MEASURE,
				   GANTRY_CALLS_FACTOR };

	begin();
	for (uint32_t failing = 0; failing < 3; failing++) {
		struct gantry_calls_run run = { .site = &site };
		struct gantry_calls_step step = analyse;

		for (uint32_t i = 0; i < 3; i++)
			ck_assert(steps(analyse, order[i], 'D'));
		ck_assert(steps(use, GANTRY_CALLS_USE, 'D'));
		step.what = order[failing];
		step.letter = 'D';
		gantry_calls_need_step(&run, KIND, object, &step);
		ck_assert(!run.in.failed);
		ck_assert(!steps(use, GANTRY_CALLS_USE, 'D'));
		ck_assert(failing == 2 || !steps(analyse, GANTRY_CALLS_FACTOR, 'D'));
	}
	gantry_calls_table_fini(&site.table);
}
END_TEST

START_TEST(test_steps_are_with_the_same_numbers_and_the_same_pattern)
{
	static const int32_t other_columns[] = { 0, 1, 1 }, other_rows[] = { 0, 1, 3 };
	struct gantry_calls_step step = analyse;

	begin();
	ck_assert(steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	step.columns = other_columns;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step = analyse;
	step.rows = other_rows;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step = analyse;
	step.n = 3;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step.n = 1;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step = analyse;
	step.nonzeros = 2;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step.nonzeros = 1u << 30;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	step = analyse;
	step.m = 2;
	ck_assert(!steps(step, GANTRY_CALLS_MEASURE, 'D'));
	/* Less memory is enough for what is smaller. */
	ck_assert(steps(analyse, GANTRY_CALLS_MEASURE, 'S'));
	ck_assert(!steps(analyse, GANTRY_CALLS_FACTOR, 'Z'));
	ck_assert(steps(analyse, GANTRY_CALLS_FACTOR, 'S'));
	ck_assert(!steps(analyse, GANTRY_CALLS_USE, 'Z'));
	/* What was factored is not what is measured now. */
	ck_assert(steps(analyse, GANTRY_CALLS_MEASURE, 'Z'));
	ck_assert(!steps(analyse, GANTRY_CALLS_USE, 'Z'));
	gantry_calls_table_fini(&site.table);
}
END_TEST

START_TEST(test_what_wants_to_be_set_up_is_not_factored_before)
{
	struct gantry_calls_step factor = analyse;

	begin();
	factor.wants_setup = true;
	ck_assert(steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	ck_assert(!steps(analyse, GANTRY_CALLS_SET_UP, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_MEASURE, 'D'));
	ck_assert(!steps(factor, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(!steps(analyse, GANTRY_CALLS_SET_UP, 'S'));
	ck_assert(steps(analyse, GANTRY_CALLS_SET_UP, 'D'));
	ck_assert(steps(factor, GANTRY_CALLS_FACTOR, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_USE, 'D'));
	ck_assert(steps(analyse, GANTRY_CALLS_SET_UP, 'D'));
	ck_assert(!steps(analyse, GANTRY_CALLS_USE, 'D'));
	gantry_calls_table_fini(&site.table);
}
END_TEST

START_TEST(test_object_that_is_none_takes_no_step)
{
	begin();
	object++;
	ck_assert(!steps(analyse, GANTRY_CALLS_ANALYSE, 'X'));
	gantry_calls_table_fini(&site.table);
}
END_TEST

/* ---- devices and addresses ---- */

static int32_t device(void *cookie)
{
	(void)cookie;
	return 3;
}

static bool reaches(void *cookie, void *stream, uint64_t address)
{
	(void)cookie;
	(void)stream;
	return address == 0x1000;
}

START_TEST(test_library_works_on_the_calls_device_and_on_no_other)
{
	const struct gantry_calls_site here = { .device = device };
	struct gantry_calls_run run = { .site = (struct gantry_calls_site *)(uintptr_t)&here };
	const int32_t *devices = gantry_calls_take_devices(&run, 1);

	ck_assert_ptr_nonnull(devices);
	ck_assert_int_eq(*devices, 3);
	free(run.outs[0].memory);
	ck_assert_ptr_null(gantry_calls_take_devices(&run, 2));
	ck_assert(run.in.failed);
	run.in.failed = false;
	ck_assert_ptr_null(gantry_calls_take_devices(&run, 0));
	ck_assert(run.in.failed);
}
END_TEST

START_TEST(test_addresses_in_an_array_are_looked_at)
{
	const struct gantry_calls_site here = { .reaches = reaches };
	struct gantry_calls_run run = { .site = (struct gantry_calls_site *)(uintptr_t)&here };
	_Alignas(8) uint64_t request[] = { 16, 0x1000, 0x1000 };

	run.in = (struct gantry_unpack){ .bytes = (const uint8_t *)request,
					 .len = sizeof(request) };
	ck_assert_mem_eq(gantry_calls_take_addresses(&run, 16), request + 1, 16);
	ck_assert(!run.in.failed);
	request[2] = 0x2000;
	run.in.pos = 0;
	(void)gantry_calls_take_addresses(&run, 16);
	ck_assert(run.in.failed);
}
END_TEST

START_TEST(test_matrix_by_columns_is_as_long_as_its_last_element_says)
{
	ck_assert_int_eq(gantry_matrix_span(3, 2, 5, 4), (5 + 3) * 4);
	ck_assert_int_eq(gantry_matrix_span(3, 1, 3, 8), 24);
	ck_assert_int_eq(gantry_matrix_span(0, 2, 5, 4), 0);
	ck_assert_int_eq(gantry_matrix_span(3, 2, 2, 4), 0);
	ck_assert_int_eq(gantry_matrix_span(3, -2, 5, 4), 0);
	ck_assert_int_eq(gantry_matrix_span(3, 2, 5, -4), 0);
	ck_assert_int_eq(gantry_matrix_span(2, INT64_MAX, INT64_MAX, 4), INT64_MAX);
	ck_assert_int_eq(gantry_matrix_span(INT64_MAX, 2, INT64_MAX, 1), INT64_MAX);
	ck_assert_int_eq(gantry_matrix_span(1, INT64_MAX, 1, 16), INT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("calls on host memory");
	TCase *tc = gantry_unit_case(suite, "host");

	tcase_add_test(tc, test_matrix_that_stays_inside_its_arrays_is_taken);
	tcase_add_loop_test(tc, test_matrix_that_leads_out_of_its_arrays_is_refused, 0,
			    sizeof(leaving) / sizeof(leaving[0]));
	tcase_add_test(tc, test_matrix_that_is_not_there_is_refused);
	tcase_add_test(tc, test_permutation_has_each_number_once);
	tcase_add_test(tc, test_steps_come_in_their_order);
	tcase_add_test(tc, test_steps_with_negative_numbers_are_refused);
	tcase_add_test(tc, test_a_step_that_fails_takes_away_what_it_would_have_changed);
	tcase_add_test(tc, test_steps_are_with_the_same_numbers_and_the_same_pattern);
	tcase_add_test(tc, test_what_wants_to_be_set_up_is_not_factored_before);
	tcase_add_test(tc, test_object_that_is_none_takes_no_step);
	tcase_add_test(tc, test_library_works_on_the_calls_device_and_on_no_other);
	tcase_add_test(tc, test_addresses_in_an_array_are_looked_at);
	tcase_add_test(tc, test_matrix_by_columns_is_as_long_as_its_last_element_says);
	return gantry_unit_run(suite);
}
