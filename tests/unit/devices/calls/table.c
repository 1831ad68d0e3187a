/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of objects: what is added is found, by its number and by the library's name of it, whatever came and went beside. */
#include <stdlib.h>

#include "devices/cuda/calls/run.h"
#include "tests/unit/runner.h"

#define NATIVES 600u
#define KINDS	2u

static struct gantry_calls_table table;
static uint64_t numbers[KINDS][NATIVES]; /* by kind and name; 0: it is not there */

static uint64_t native_of(uint32_t i)
{
	return 0x7f0000001000ull + i * 64;
}

/* A number of the guest's choice that is free; 0: none of some tries. */
static uint64_t choose(void)
{
	for (int i = 0; i < 8; i++) {
		uint64_t id = GANTRY_CALLS_CHOSEN | (uint32_t)rand() % 512 |
			      (uint64_t)((uint32_t)rand() % 4) << 16;

		if (gantry_calls_table_is_free(&table, id))
			return id;
	}
	return 0;
}

static void check_all(void)
{
	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t i = 0; i < NATIVES; i++) {
			uint64_t id = numbers[kind][i];
			const struct gantry_calls_object *object;

			ck_assert_uint_eq(gantry_calls_table_known(&table, kind, native_of(i)), id);
			if (!id)
				continue;
			object = gantry_calls_table_find(&table, kind, id);
			ck_assert_ptr_nonnull(object);
			ck_assert_uint_eq(object->native, native_of(i));
			ck_assert_ptr_null(gantry_calls_table_find(&table, kind + 1, id));
		}
}

START_TEST(test_table_knows_what_is_there_by_both_names)
{
	srand(11);
	gantry_calls_table_init(&table);
	for (int round = 0; round < 20000; round++) {
		uint32_t kind = (uint32_t)rand() % KINDS, i = (uint32_t)rand() % NATIVES;
		uint64_t *id = &numbers[kind][i];

		if (*id && rand() % 2) {
			gantry_calls_table_drop(&table, *id);
			*id = 0;
		} else if (rand() % 3) {
			uint64_t now = gantry_calls_table_add(&table, kind, native_of(i));

			ck_assert_uint_ne(now, 0);
			ck_assert(*id == 0 || *id == now);
			*id = now;
		} else {
			uint64_t chosen = choose();

			if (!chosen)
				continue;
			/* What had that name has ended. */
			ck_assert(gantry_calls_table_add_as(&table, kind, native_of(i), chosen));
			*id = chosen;
		}
		if (round % 200 == 0)
			check_all();
	}
	check_all();
	gantry_calls_table_fini(&table);
}
END_TEST

/* A guest that begins at the last place has the table made whole: each of those that follow is as soon there as the first. */
START_TEST(test_table_of_all_places_is_filled_and_emptied)
{
	gantry_calls_table_init(&table);
	for (uint32_t i = GANTRY_CALLS_CHOSEN; i-- > 0;)
		ck_assert(gantry_calls_table_add_as(&table, 0, 16 + 16ull * i,
						    GANTRY_CALLS_CHOSEN | i));
	for (uint32_t i = 0; i < GANTRY_CALLS_CHOSEN; i++) {
		ck_assert(!gantry_calls_table_is_free(&table, GANTRY_CALLS_CHOSEN | i));
		ck_assert_uint_eq(gantry_calls_table_known(&table, 0, 16 + 16ull * i),
				  GANTRY_CALLS_CHOSEN | i);
		gantry_calls_table_drop(&table, GANTRY_CALLS_CHOSEN | i);
		ck_assert_uint_eq(gantry_calls_table_known(&table, 0, 16 + 16ull * i), 0);
	}
	gantry_calls_table_fini(&table);
}
END_TEST

START_TEST(test_what_is_kept_stays_with_its_object_and_has_a_limit)
{
	const size_t half = GANTRY_CALLS_MAX_KEPT_BYTES / 2;
	uint8_t *bytes = calloc(1, half);
	uint64_t first, second;
	const uint8_t *kept;

	ck_assert_ptr_nonnull(bytes);
	gantry_calls_table_init(&table);
	first = gantry_calls_table_add(&table, 1, 0x1000);
	second = gantry_calls_table_add(&table, 1, 0x2000);
	bytes[half - 1] = 7;
	kept = gantry_calls_table_keep(&table, first, bytes, half);
	bytes[half - 1] = 0;
	ck_assert_uint_eq(kept[half - 1], 7);
	ck_assert_uint_eq((uintptr_t)kept % 16, 0);
	/* The limit is of all objects together, and what has ended makes room. */
	ck_assert_ptr_nonnull(gantry_calls_table_keep(&table, second, bytes, half - 1));
	ck_assert_ptr_null(gantry_calls_table_keep(&table, second, bytes, 2));
	ck_assert_ptr_nonnull(gantry_calls_table_keep(&table, second, bytes, 1));
	gantry_calls_table_drop(&table, first);
	ck_assert_ptr_nonnull(gantry_calls_table_keep(&table, second, bytes, half));
	for (unsigned int i = 3; i < GANTRY_CALLS_MAX_KEPT; i++)
		ck_assert_ptr_nonnull(gantry_calls_table_keep(&table, second, bytes, 0));
	ck_assert_ptr_null(gantry_calls_table_keep(&table, second, bytes, 0));
	gantry_calls_table_fini(&table);
	ck_assert_uint_eq(table.kept_bytes, 0);
	free(bytes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("table");
	TCase *tc = gantry_unit_case(suite, "table");

	tcase_add_test(tc, test_table_knows_what_is_there_by_both_names);
	tcase_add_test(tc, test_table_of_all_places_is_filled_and_emptied);
	tcase_add_test(tc, test_what_is_kept_stays_with_its_object_and_has_a_limit);
	return gantry_unit_run(suite);
}
