/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "guest-shim/arena.h"
#include "tests/unit/runner.h"

#define ARENA_BYTES 1024u
#define NSLOTS	    16u
#define HEAP_OFF    4096u

static uint8_t memory[ARENA_BYTES];

static void arena_open(struct gantry_arena *arena)
{
	ck_assert_int_eq(gantry_arena_init(arena, NULL, memory, HEAP_OFF, ARENA_BYTES, NSLOTS), 0);
}

START_TEST(test_arena_put_too_long_returns_enospc)
{
	struct gantry_arena arena;
	uint64_t off, oldest;
	uint8_t *ptr;

	arena_open(&arena);
	ck_assert_int_eq(gantry_arena_put(&arena, 0, 0, ARENA_BYTES + 1, &ptr, &off, &oldest),
			 -ENOSPC);
	gantry_arena_fini(&arena);
}
END_TEST

START_TEST(test_arena_put_full_names_oldest_and_goes_on_when_it_is_done)
{
	struct gantry_arena arena;
	uint64_t off, oldest = 99;
	uint8_t *ptr;

	arena_open(&arena);
	ck_assert_int_eq(gantry_arena_put(&arena, 7, 0, 600, &ptr, &off, &oldest), 0);
	ck_assert_uint_eq(off, HEAP_OFF);
	ck_assert_int_eq(gantry_arena_put(&arena, 8, 7, 600, &ptr, &off, &oldest), -EAGAIN);
	ck_assert_uint_eq(oldest, 7);
	ck_assert_int_eq(gantry_arena_put(&arena, 8, 8, 600, &ptr, &off, &oldest), 0);
	ck_assert_ptr_eq(ptr, memory);
	gantry_arena_fini(&arena);
}
END_TEST

START_TEST(test_arena_put_more_records_than_slots_returns_eagain)
{
	struct gantry_arena arena;
	uint64_t off, oldest;
	uint8_t *ptr;

	arena_open(&arena);
	for (uint64_t pos = 0; pos < NSLOTS; pos++)
		ck_assert_int_eq(gantry_arena_put(&arena, pos, 0, 8, &ptr, &off, &oldest), 0);
	ck_assert_int_eq(gantry_arena_put(&arena, NSLOTS, 0, 8, &ptr, &off, &oldest), -EAGAIN);
	ck_assert_uint_eq(oldest, 0);
	gantry_arena_fini(&arena);
}
END_TEST

/*
 * Whatever the sizes and however far the host lags: records in use never overlap, and are inside
 * and aligned.
 */
START_TEST(test_arena_random_records_never_overlap)
{
	struct {
		uint64_t from, to;
	} live[4096];
	struct gantry_arena arena;
	uint64_t done = 0;

	srand(3);
	arena_open(&arena);
	for (uint64_t pos = 0; pos < 4096;) {
		uint32_t len = 1 + (uint32_t)rand() % 400;
		uint64_t off, oldest;
		uint8_t *ptr;
		int r = gantry_arena_put(&arena, pos, done, len, &ptr, &off, &oldest);

		if (r == -EAGAIN) {
			ck_assert_uint_ge(oldest, done);
			done = oldest + 1;
			continue;
		}
		ck_assert_int_eq(r, 0);
		ck_assert_uint_eq(off % 8, 0);
		ck_assert_uint_le(off + len, HEAP_OFF + ARENA_BYTES);
		live[pos].from = off;
		live[pos].to = off + len;
		for (uint64_t p = done; p < pos; p++)
			ck_assert(live[p].to <= off || off + len <= live[p].from);
		pos++;
	}
	gantry_arena_fini(&arena);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guest-shim/arena");
	TCase *tc = gantry_unit_case(suite, "arena");

	tcase_add_test(tc, test_arena_put_too_long_returns_enospc);
	tcase_add_test(tc, test_arena_put_full_names_oldest_and_goes_on_when_it_is_done);
	tcase_add_test(tc, test_arena_put_more_records_than_slots_returns_eagain);
	tcase_add_test(tc, test_arena_random_records_never_overlap);
	return gantry_unit_run(suite);
}
